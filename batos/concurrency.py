"""What coroutines share: work that is done once for all who ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from batos.errors import Busy

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Does work once for all who ask for the same key while it is under way. All methods are called on the loop's thread.

    Nobody who waits can cancel the work. Work that has ended is under way no more, whether or not its callbacks have run: who asks in
    the very turn of the loop in which it ends begins it anew. So nobody ever waits for a task that is done. An await of such a task (or of
    a `shield` around it) does not yield, and a loop around it would keep the callbacks from running for ever.
    """

    def __init__(self, name: str) -> None:
        """
        :param name: what the work is called, in the names of its tasks and to those whose work is given up.
        """
        self._name = name
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}

    def begin(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Return the task that is under way for `key`, else that of `work()`, which begins now. To be waited for with `asyncio.wait`."""
        task = self._under_way.get(key)
        if task is None or task.done():
            task = self._under_way[key] = asyncio.create_task(work(), name=self._name)
            task.add_done_callback(partial(self._ended, key))
        return task

    async def of(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what comes of the work for `key`, or raise what it raises.

        :raises Busy: if `stop` gives it up.
        """
        task = self.begin(key, work)
        await asyncio.wait([task])
        if task.cancelled():
            raise Busy(f"the {self._name} was given up: the daemon is stopping; ask again when it is back")
        return task.result()

    async def give_up(self, key: Hashable) -> None:
        """Cancel the work that is under way for `key`, if there is any; return when it has ended."""
        if (task := self._under_way.get(key)) is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Cancel what is under way; return when it has ended."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, key: Hashable, task: asyncio.Task[T]) -> None:
        if self._under_way.get(key) is task:  # else it was begun anew before this ran
            del self._under_way[key]
        if not task.cancelled():
            task.exception()  # retrieved: who waits hears of it, and it is no fault that nobody does
