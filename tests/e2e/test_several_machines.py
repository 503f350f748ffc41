"""The page *Several machines* is followed word for word: two kernels on one PostgreSQL, one of them is killed while its tool acts.

Its backups are made and restored by tests/contract/test_server_backups.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT
from tests.support.servers import Postgres, free_port, postgres  # noqa: F401
from tests.support.shown_pages import pages, run_by
from tools.follow import blocks_of, follow

NAME = "docs/several-machines.md"
PAGE = pages()[NAME]


@pytest.mark.timeout(300)
def test_two_kernels_of_which_one_is_killed_while_its_tool_acts(
    tmp_path: Path,
    ollama_host: str,
    postgres: Postgres,  # noqa: F811
) -> None:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name, words in (("batos", "-m batos"), ("python3", "")):
        (scripts / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (scripts / name).chmod(0o755)
    shutil.copytree(ROOT / "examples" / "two_machines", tmp_path / "examples" / "two_machines")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_", "PG"))}
    environment |= {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "BATOS_INFERENCE_HOST": ollama_host}
    environment |= {"BATOS_DOORS_ENABLED": "off", "BATOS_AUTONOMY_MODE": "off", "HOME": str(tmp_path)}
    environment |= {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "batos"}
    environment |= {"COLUMNS": "120", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    port, address = str(free_port()), postgres.address("image")
    instead = {}
    for _, block in blocks_of(PAGE):
        for command in block.commands:
            words = command.words.replace("postgres://batos:secret@db.example/image?keep_history=1", address)
            words = words.replace(":8090", f":{port}").replace("shop.py", f"shop.py --port {port}")
            instead[command.words] = "" if run_by(NAME, command.words) else words
    followed = follow(PAGE, tmp_path, environment, instead=instead)
    troubles = [trouble for _, block in followed for trouble in block.trouble()]
    assert troubles == [], "\n".join(troubles)
    ended = next(command for _, block in followed for command in block.commands if command.words == "b result order-1")
    assert any('"sold": {"what": "tea", "count": 2}' in line for line in ended.appeared), ended.appeared
    assert (tmp_path / "orders.txt").read_text() == '{"what": "tea", "count": 2}\n', "sold once, and asked for with one key"
