"""The watchdog: when a loop counts as standing, and what is told and done then. `tests/crash/test_stall.py` has whole daemons."""

from __future__ import annotations

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from batos import supervision
from batos.config import Settings
from batos.errors import EXIT_IMAGE_FAILED, EXIT_STALLED, ConfigError
from batos.supervision import Watchdog
from batos.watcher import StallDetector
from tests.support.missions import WAIT_S


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Looks:
    """What a watch of 30 s says at each look."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.standing = StallDetector(30, self.clock)

    def after(self, seconds: float, beats: int) -> bool:
        self.clock.now += seconds
        return self.standing.too_long(beats)


def test_it_has_stood_too_long_at_the_limit_and_not_before() -> None:
    looks = Looks()
    assert looks.standing.look_s == 1
    assert [looks.after(1, 7) for _ in range(31)] == [False] * 30 + [True], "the first look sees that it has beaten"
    assert looks.standing.stood_s == 30


def test_one_beat_at_the_last_moment_is_enough() -> None:
    looks = Looks()
    assert not any(looks.after(1, 1) for _ in range(30))
    assert not looks.after(1, 2)
    assert looks.standing.stood_s == 0
    assert not any(looks.after(1, 2) for _ in range(29))
    assert looks.after(1, 2)


@pytest.mark.parametrize("away_s", [31, 3600, 86400 * 30])
def test_time_in_which_nobody_looked_is_no_time_for_which_it_stood(away_s: float) -> None:
    """The machine was suspended, or the process was stopped: its watchdog was, too."""
    looks = Looks()
    assert not any(looks.after(1, 1) for _ in range(20))
    assert not looks.after(away_s, 1), "it counts as one look"
    assert looks.standing.stood_s == 20
    assert not looks.after(1, 2), "the loop goes on"


def test_stopped_again_and_again_it_counts_each_look_once() -> None:
    looks = Looks()
    assert [looks.after(60, 1) for _ in range(31)] == [False] * 30 + [True], "a loop that stands is noticed nevertheless, only later"


def test_a_short_limit_is_looked_at_more_often() -> None:
    assert StallDetector(1).look_s == pytest.approx(0.1)


@pytest.mark.parametrize("value", [0, 0.9, 86401, "nan", "soon"])
def test_limits_of_the_setting(value: object) -> None:
    with pytest.raises(ValueError, match="loop_stall_s"):
        Settings(loop_stall_s=value)  # type: ignore[arg-type]
    assert Settings(loop_stall_s=1).loop_stall_s == 1
    assert Settings(loop_stall_s=86400).loop_stall_s == 86400
    assert ConfigError.exit_code not in (EXIT_STALLED, EXIT_IMAGE_FAILED)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the process beside it, which would end the tests if this machine is slow."""
    monkeypatch.setattr(supervision, "_exit_on_signal", lambda: None)
    monkeypatch.setattr(supervision, "_beside", lambda limit_s: None)


def _stands_here(until: threading.Event) -> None:
    assert until.wait(WAIT_S), "nobody noticed that the loop stands"


@pytest.mark.usefixtures("alone")
async def test_a_loop_that_stands_is_told_of_with_the_stacks_and_ends_the_process() -> None:
    ended, codes = threading.Event(), []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    with capture_logs() as log, Watchdog(0.1, end).over(asyncio.get_running_loop()):
        _stands_here(ended)
    assert codes == [EXIT_STALLED]
    (line,) = [line for line in log if line["event"] == "loop_stalled"]
    assert line["log_level"] == "critical"
    assert "thread MainThread:" in line["stacks"]
    assert "_stands_here" in line["stacks"]
    assert line["stood_s"] >= 0.1


@pytest.mark.usefixtures("alone")
async def test_a_log_that_takes_nothing_does_not_keep_it_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, open_again = threading.Event(), threading.Event()
    monkeypatch.setattr(supervision, "TELL_S", 0.05)
    monkeypatch.setattr(supervision, "_tell", lambda stood_s, stacks: open_again.wait(WAIT_S))
    with Watchdog(0.1, lambda code: ended.set()).over(asyncio.get_running_loop()):
        _stands_here(ended)
    open_again.set()


@pytest.mark.usefixtures("alone")
async def test_a_loop_that_turns_is_left_alone() -> None:
    codes: list[int] = []
    dog = Watchdog(1, codes.append)
    with dog.over(asyncio.get_running_loop()):
        while dog.beats < 5:
            await asyncio.sleep(0.01)
    assert codes == []
    assert dog.timer is not None
    assert dog.timer.cancelled(), "it beats no more"


async def test_the_process_beside_it_ends_with_the_watch() -> None:
    dog = Watchdog(60)
    with dog.over(asyncio.get_running_loop()):
        beside = dog.beside
        assert beside is not None
        assert beside.poll() is None
    assert beside.returncode == 0
