"""Trainings, run by the words of the pages: real ones of seconds, on a handful of tasks and twelve rated missions."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batos.autotelic.change_preparation import TRAINING_MODULES
from tests.support import short_training
from tests.support.daemon import ROOT
from tests.support.shown_pages import Machine, commands_of, machine, shared_daemon

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

THIS = "tests/e2e/test_training.py"
MINUTES = "0.05"
BRIEFS = [f"I feel stuck, and it is reason {number} of mine" for number in range(12)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which `batos` trains on few tasks."""
    for module in TRAINING_MODULES:
        pytest.importorskip(module)
    with machine(tmp_path_factory.mktemp("you")) as made, shared_daemon(made) as running:
        (made.home / "bin" / "batos").write_text(f'#!/bin/sh\nexec {sys.executable} {short_training.__file__} "$@"\n')
        made.environment["BATOS_INFERENCE_STAGING"] = str(made.folder / "lora_staging")
        yield running


def run(here: Machine, words: str, code: int | None = 0, folder: Path | None = None) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        words, shell=True, cwd=folder or here.folder, env=here.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=900,
    )  # fmt: skip
    assert code is None or done.returncode == code, f"{words}: {done.returncode}, {done.stdout[-3000:]}"
    return done.stdout


def briefly(words: str) -> str:
    """Return a command with a training of seconds in the place of one of 40 minutes."""
    if "--minutes" in words:
        return words.replace("--minutes 40", f"--minutes {MINUTES}")
    return words.replace("batos train", f"batos train --minutes {MINUTES}")


def test_what_a_training_needs_is_installed() -> None:
    install = commands_of("docs/training.md", THIS)[0]
    subprocess.run(install, shell=True, cwd=ROOT, check=True, timeout=900)


def test_the_expert_for_methods_learns(here: Machine) -> None:
    adapter = here.folder / "lora_staging" / "method-writer" / "adapter_model.safetensors"
    for words in commands_of("docs/training.md", THIS)[1:4]:
        before = adapter.read_bytes()
        said = run(here, briefly(words))
        assert "the daemon builds it at its next look" in said
        assert ("it began" in said and "the better one is kept" in said) or adapter.read_bytes() != before
    (whole,) = commands_of("docs/synthesis.md", THIS)
    training, _, bench = whole.partition(" && ")
    assert "the daemon builds it at its next look" in run(here, briefly(training))
    assert "usage" in run(here, f"{bench} --help", folder=ROOT)


def test_a_persona_learns_from_what_was_liked(here: Machine) -> None:
    """It learns only with its user's consent, and is staged only if nothing gets worse by it."""
    numbers = itertools.count()
    here.ollama.say(lambda request: f"Sit down with reason {next(numbers)}, and look at it for a while. It is one of many.")
    for number, brief in enumerate(BRIEFS):
        run(here, f"batos send '{brief}' --persona robin --depth direct --flavour full --id liked-{number} --watch")
        run(here, f"batos rate liked-{number} +1")
    (without_consent,) = commands_of("docs/experts.md", THIS)
    with_consent = commands_of("docs/training.md", THIS)[4]
    assert "memory.training_consent" in run(here, briefly(without_consent), code=None)
    said = run(here, briefly(with_consent), code=None)
    staged = (here.folder / "lora_staging" / "robin-voice" / "expert.toml").exists()
    assert staged == ("the daemon builds it at its next look" in said), said
    assert staged or "is not staged" in said, said
