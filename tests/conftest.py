"""What all tests share: an environment without BAT OS in it, and one real Ollama a run."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from batos.testing import ScriptedOllama

pytest.register_assert_rewrite("tests.support")  # before the first import: what fails in a helper is told as in a test

from tests.support import ollama_fixture, replies  # noqa: E402

replies.keep_replies()

# The many daemons that tests start would each compile all of batos/ anew: a second and a half of a core every time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _has_room(folder: Path, least: int) -> bool:
    """Return True for a RAM disk that this user may write, with so many bytes free on it and in memory."""
    try:
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
        memory = next(int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:")
        return os.access(folder, os.W_OK) and min(shutil.disk_usage(folder).free, memory) > least
    except (OSError, StopIteration):
        return False


# The images that tests make are written through to the disk hundreds of times; on a RAM disk nobody waits for that.
if _has_room(Path("/dev/shm"), 8 << 30):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# What a shell runs in the background has Ctrl-C ignored, and so would the programs have that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


# A machine that is busy with other tests makes and tries examples slowly, which says nothing of a test.
hypothesis.settings.register_profile(
    "busy", hypothesis.settings.default, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test that would begin after `TESTS_UNTIL`, in seconds since 1970: where time is bounded, as in `.ci/run`."""
    if (until := os.environ.get("TESTS_UNTIL")) and time.time() > float(until):
        pytest.skip("left out: the time for tests was over")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's own machine gets into a test."""
    for name in [n for n in os.environ if n.startswith(("BATOS_", "OLLAMA_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _replies_are_as_the_reference_says() -> Iterator[None]:
    """Fail a test in which a kernel of this process sent a reply that `batos.wire.replies` does not describe."""
    yield
    replies.check_kept()


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
