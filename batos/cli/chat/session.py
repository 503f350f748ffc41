"""A chat from its first line to its last, and Ctrl-C in it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from batos.cli.app import INTERRUPTED
from batos.cli.chat.commands import Commands
from batos.cli.chat.dialogue import Dialogue
from batos.cli.chat.keyboard import Interrupted, Seat
from batos.cli.chat.screen import Screen
from batos.errors import BatosError

T = TypeVar("T")
_HOW = (
    "A \\ at the end of a line goes on in the next one; so does Alt-Enter. /help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves."
)


class Session:
    """Takes line after line, until there are no more."""

    def __init__(self, dialogue: Dialogue, commands: Commands, seat: Seat, screen: Screen, *, lively: bool) -> None:
        """
        :param lively: whether somebody sits there.
        """
        self._dialogue, self._commands, self._seat, self._screen, self._lively = dialogue, commands, seat, screen, lively
        self._under_way: asyncio.Future[Any] | None = None
        self._pressed = False
        self._turns = self._failed = 0

    async def run(self, context: str | None = None, *, last: bool = False) -> int:
        """Chat; the exit code.

        :param context: a mission to go on after.
        :param last: whether the last conversation is gone on with.
        :raises BatosError: if that cannot be.
        """
        self._screen.told(_HOW if self._lively else "")
        try:
            with self._seat.quiet():
                await self._begin(context, last)
                while True:
                    await self._next()
        except EOFError:
            self._left()
        except Interrupted:
            return INTERRUPTED
        return 1 if self._failed and not self._lively else 0

    async def _next(self) -> None:
        """Take the next line.

        :raises EOFError: if there are no more.
        :raises Interrupted: if there was Ctrl-C, and nobody sits there who could go on.
        """
        try:
            line = await self._stoppable(self._seat.line("> "))
        except Interrupted:
            if not self._lively:
                raise
        except BatosError as e:  # a line that cannot be read
            self._failed += 1
            self._screen.error(e)
        else:
            await self._take(line)

    async def _begin(self, context: str | None, last: bool) -> None:
        if context is not None:
            await self._turn(self._dialogue.join(context), raises=True)
        elif last and not await self._turn(self._dialogue.find(), raises=True):
            self._screen.told("there is no conversation yet to go on with; a new one begins")

    async def _take(self, line: str) -> None:
        if self._commands.means(line):
            await self._turn(self._commands.do(line))
        elif brief := line.strip():
            self._turns += 1
            if await self._turn(self._dialogue.say(brief)) is False:
                self._failed += 1

    async def _turn(self, work: Coroutine[Any, Any, T], *, raises: bool = False) -> T | None:
        """Do something that Ctrl-C stops, and not the chat; None where it was stopped, or refused.

        :param raises: whether an error ends the chat.
        """
        try:
            return await self._stoppable(work)
        except Interrupted:
            with contextlib.suppress(Interrupted):  # pressed again: it is given up
                await self._stoppable(self._stop())
        except BatosError as e:
            if raises:
                self._screen.clear()
                raise
            self._failed += 1
            self._screen.error(e)
        return None

    async def _stop(self) -> None:
        try:
            await self._dialogue.stop()
        except BatosError as e:
            self._screen.error(e)

    def _left(self) -> None:
        """Say what is left, at the end."""
        self._screen.clear()
        if waits := self._dialogue.under_way:
            self._screen.told(f"the mission {waits} waits for an answer: `batos chat --last` goes on with it")
        if self._screen.output.as_json:
            self._screen.output.event({"type": "chat", "turns": self._turns, "failed": self._failed, "last": self._dialogue.last})

    # --- Ctrl-C

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While the block lasts, Ctrl-C stops what is under way and nothing else. At a prompt it is a key."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.press)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def press(self) -> None:
        """Hear Ctrl-C."""
        if self._under_way is not None:
            self._pressed = True
            self._under_way.cancel()

    async def _stoppable(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something.

        :raises Interrupted: if there was Ctrl-C.
        """
        self._under_way, self._pressed = asyncio.ensure_future(work), False
        try:
            return await self._under_way  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if not self._pressed:
                raise
            raise Interrupted from None
        finally:
            self._under_way = None
