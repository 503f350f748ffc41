"""Tests of what is read while nothing is under way, and of what is read once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from batos.config import Settings
from batos.mind import ahead
from batos.mind.once import once


def test_a_thread_that_asks_meanwhile_waits_for_what_another_comes_to() -> None:
    begun, go, runs = threading.Event(), threading.Event(), []

    @once
    def read() -> object:
        runs.append(threading.get_ident())
        begun.set()
        assert go.wait(30)
        return object()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(read)
        assert begun.wait(30)
        second = pool.submit(read)
        go.set()
        assert first.result(30) is second.result(30) is read()
    assert len(runs) == 1


def test_what_fails_is_tried_again() -> None:
    values: list[Callable[[], int]] = [lambda: 1 // 0, lambda: 3]

    @once
    def read() -> int:
        return values.pop(0)()

    with pytest.raises(ZeroDivisionError):
        read()
    assert read() == 3


async def test_it_reads_all_and_looks_before_each_step_whether_anything_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[str] = []

    async def quiet() -> None:
        came.append("quiet")

    monkeypatch.setattr(ahead, "STEPS", [lambda: came.append("one"), lambda: came.append("two")])
    await ahead.read(Settings(synthesis_ahead_s=0.001), quiet)
    assert came == ["quiet", "one", "quiet", "two"]


@pytest.mark.parametrize("given", [{"synthesis_ahead_s": 0}, {"synthesis_ahead_s": 0.001, "synthesis_parts": 0}])
async def test_nothing_is_read_that_is_not_wanted(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def quiet() -> None:
        raise AssertionError("it waits for a pause")

    monkeypatch.setattr(ahead, "STEPS", [lambda: pytest.fail("it reads")])
    await ahead.read(Settings(**given), quiet)
