"""The event loop of a synchronous client: it runs in a thread of its own, and callers in other threads wait for its results."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Self, TypeVar

from batos.wire.client import Client
from batos.wire.connection import MESSAGE_BYTES
from batos.wire.keys import ClientKeys

T = TypeVar("T")


class SyncConnection:
    """A `Client` with a loop of its own, as a context manager: the base of `batos.wire.SyncClient`."""

    def __init__(
        self,
        endpoint: str | None = None,
        timeout_s: float = 10.0,
        *,
        message_bytes: int = MESSAGE_BYTES,
        keys: ClientKeys | None = None,
    ) -> None:
        """Take the parameters of `Client`; the connection is made on entry."""
        self._client = Client(endpoint, timeout_s, message_bytes=message_bytes, keys=keys)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking = threading.Lock()  # so that no request goes to a loop that ends

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="batos-client", daemon=True)
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self._client.__aexit__)

    def _events(self, events: AsyncGenerator[dict[str, Any], None]) -> Iterator[dict[str, Any]]:
        """Yield the events of a watch as they come, and close the watch at the end."""
        try:
            while (event := self._run(_next(events))) is not None:
                yield event
        finally:
            if self._loop is not None:  # the generator is closed by now if the reader leaves the loop after the client
                self._run(events.aclose())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result.

        :raises RuntimeError: outside the `with` block, and where another thread closes the client meanwhile.
        """
        with self._asking:
            loop = self._loop
            future = None if loop is None else asyncio.run_coroutine_threadsafe(work, loop)
        if future is None:
            work.close()
            raise RuntimeError("a SyncClient is used inside `with SyncClient(...) as client:`")
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._loop is loop:
                raise
            raise RuntimeError("the SyncClient was closed by another thread; what was asked for may have been done or not") from None
        except BaseException:  # Ctrl-C ends the wait, so it must also end the work
            future.cancel()
            raise

    def _end(self, *last: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Cancel the calls that other threads still wait for, run `last`, then stop the loop. A second call does nothing."""
        with self._asking:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            for work in (_cancel_all, *last, loop.shutdown_default_executor):
                asyncio.run_coroutine_threadsafe(work(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()


async def _next(events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
    return await anext(events, None)


async def _cancel_all() -> None:
    """Cancel all other tasks of this loop and wait until they have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
