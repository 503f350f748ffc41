"""How the committer's thread tells the loop that it has answers.

`loop.call_soon_threadsafe` does that too, but it makes a callback with a context for each, and the loop reads what woke it until there is
nothing left and it fails: a twentieth of what a small system transaction takes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Bell:
    """Rung by any thread; then the loop calls what was given for it, once or more often."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Callable[[], None]) -> None:
        """To be made on the loop's thread.

        :param answer: finds out itself what there is to do.
        """
        self._loop, self._answer = loop, answer
        self._heard, self._rung = os.pipe()
        self._open = True
        for end in (self._heard, self._rung):
            os.set_blocking(end, False)
        loop.add_reader(self._heard, self._hear)

    def ring(self) -> None:
        """Wake the loop. The bell must not be closed meanwhile."""
        try:
            os.write(self._rung, b"\0")
        except BlockingIOError:  # so often rung, and not heard yet: it will be
            return

    def close(self) -> None:
        """On the loop's thread, when nobody can ring any more."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._heard)
            os.close(self._heard)
            os.close(self._rung)

    def _hear(self) -> None:
        try:
            os.read(self._heard, 4096)
        except BlockingIOError:
            return
        self._answer()
