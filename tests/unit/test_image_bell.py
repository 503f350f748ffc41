"""The bell by which the committer's thread wakes the loop."""

from __future__ import annotations

import asyncio
import os
import threading

from batos.image.bell import Bell


async def test_a_thread_that_rings_is_heard_by_the_loop() -> None:
    heard: list[int] = []
    answered = asyncio.Event()

    def answer() -> None:
        heard.append(threading.get_ident())
        answered.set()

    bell = Bell(asyncio.get_running_loop(), answer)
    for _ in range(3):
        answered.clear()
        await asyncio.to_thread(bell.ring)
        await answered.wait()
    assert set(heard) == {threading.get_ident()}
    bell.close()


async def test_it_can_be_rung_as_often_as_one_likes() -> None:
    answered = asyncio.Event()
    bell = Bell(asyncio.get_running_loop(), answered.set)
    for _ in range(100_000):  # more than a pipe holds
        bell.ring()
    await answered.wait()
    bell.close()


async def test_closing_it_twice_closes_nothing_else() -> None:
    bell = Bell(asyncio.get_running_loop(), lambda: None)
    bell.close()
    others = os.pipe()
    bell.close()
    for end in others:
        os.close(end)
