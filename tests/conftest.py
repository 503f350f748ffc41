"""What all tests share: an environment without BAT OS in it, and one real Ollama a run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from batos.testing import ScriptedOllama

pytest.register_assert_rewrite("tests.support")  # before the first import: what fails in a helper is told as in a test

from tests.support import ollama_fixture  # noqa: E402

# The many daemons that tests start would each compile all of batos/ anew: a second and a half of a core every time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What a shell runs in the background has Ctrl-C ignored, and so would the programs have that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


# A machine that is busy with other tests makes examples slowly, which says nothing of a test.
hypothesis.settings.register_profile("busy", hypothesis.settings.default, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's own machine gets into a test."""
    for name in [n for n in os.environ if n.startswith(("BATOS_", "OLLAMA_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def ollama_binary() -> Path:
    """The real `ollama`."""
    return ollama_fixture.binary()


@pytest.fixture(scope="session")
def ollama_host() -> Iterator[str]:
    """Address of a real Ollama with the models of the profile `embedded`; shared: leave those models as they are."""
    with ollama_fixture.shared_ollama() as host:
        yield host


@pytest.fixture
def scripted() -> Iterator[ScriptedOllama]:
    """A scripted Ollama of the test's own."""
    with ScriptedOllama() as server:
        yield server
