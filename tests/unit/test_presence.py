"""Silence: when an observer takes another kernel for gone, by its own clock."""

from __future__ import annotations

import pytest

from batos.cluster.presence import Sign, Silence


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def silence(time: Time) -> Silence:
    return Silence(4.0, time)


def looks(silence: Silence, time: Time, seconds: float, *signs: Sign) -> list[str]:
    """Look each second, at these signs and then at the last one again; return who was gone at the end."""
    gone: list[str] = []
    for second in range(int(seconds)):
        time.now += 1.0
        gone = silence.look({"a.1": signs[min(second, len(signs) - 1)]})
    return gone


def test_one_that_beats_is_there_and_one_that_does_not_is_gone_after_the_lease(silence: Silence, time: Time) -> None:
    assert looks(silence, time, 20, *(Sign(n) for n in range(20))) == []
    assert looks(silence, time, 4, Sign(19)) == []
    assert looks(silence, time, 1, Sign(19)) == ["a.1"]


def test_a_lock_that_was_held_and_is_free_says_so_at_once(silence: Silence, time: Time) -> None:
    assert looks(silence, time, 5, Sign(1, True), Sign(2, True), Sign(3, True)) == []
    assert looks(silence, time, 1, Sign(4, False)) == []
    assert looks(silence, time, 1, Sign(5, False)) == ["a.1"]


def test_a_lock_that_was_never_seen_held_says_nothing(silence: Silence, time: Time) -> None:
    assert looks(silence, time, 10, *(Sign(n, False) for n in range(10))) == []


def test_locks_say_nothing_in_the_first_lease_of_a_session(silence: Silence, time: Time) -> None:
    silence.restart()  # its own session is new: the server may have been started anew, and have freed all locks
    assert looks(silence, time, 4, Sign(1, True), Sign(2, False), Sign(3, False), Sign(4, False)) == []


def test_an_observer_that_stood_still_itself_blames_nobody(silence: Silence, time: Time) -> None:
    assert looks(silence, time, 2, Sign(1, True)) == []
    time.now += 60.0
    assert silence.look({"a.1": Sign(1, True)}) == []
    assert looks(silence, time, 4, Sign(1, True)) == []
    assert looks(silence, time, 1, Sign(1, True)) == ["a.1"]


def test_a_held_lock_keeps_nobody_who_does_not_beat(silence: Silence, time: Time) -> None:
    assert looks(silence, time, 6, Sign(1, True)) == ["a.1"]
