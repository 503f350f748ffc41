"""A kernel on a loop of its own, for tests that are no coroutines: those of hypothesis."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from batos.app.kernel import Kernel


class KernelThread:
    """A kernel in a thread."""

    def __init__(self, begun: AbstractAsyncContextManager[Kernel]) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self._life = contextlib.AsyncExitStack()
        self.kernel: Kernel = self.run(self._life.enter_async_context(begun))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of work on the kernel's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.run(self._life.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
