"""The tutorial, *Get started* and the worked example are followed word for word, on a real Ollama: what they show is what appears."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT
from tools.follow import follow


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [pytest.param("tutorial.md", marks=pytest.mark.long), "start.md", "example.md"])
def test_everything_that_a_page_shows_appears(page: str, tmp_path: Path, ollama_host: str) -> None:
    folder = tmp_path / "checkout"
    scripts = folder / ".venv" / "bin"
    scripts.mkdir(parents=True)
    script = scripts / "batos"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m batos "$@"\n')
    script.chmod(0o755)
    for name in ("examples", "lora_staging"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("node_modules"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
    environment |= {"PYTHONPATH": str(ROOT), "BATOS_OLLAMA_HOST": ollama_host, "COLUMNS": "120", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    environment["HOME"] = str(tmp_path)
    run = ".venv/bin/batos run"
    followed = follow((ROOT / "docs" / page).read_text("utf-8"), folder, environment, instead={"make run": run})
    troubles = [trouble for _, block in followed for trouble in block.trouble()]
    assert troubles == [], "\n".join(troubles)
