"""Answering a mission's question at the terminal on which it is watched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from batos.cli.output import Output
from batos.errors import BatosError, DaemonUnavailable
from batos.wire import Client

LINE_BYTES = 1 << 16


class Answering:
    """Reads the answer to one question at a time, and gives it. Elsewhere answered, or the mission over, it is read no more."""

    def __init__(self, client: Client, output: Output) -> None:
        self._client, self._output = client, output
        self._reading: asyncio.Task[None] | None = None

    @staticmethod
    def possible(output: Output) -> bool:
        """Whether somebody can be asked here: a terminal that this process may read from."""
        if output.as_json or sys.stdin is None or not (sys.stdin.isatty() and output.console.is_terminal):
            return False
        try:
            return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()  # in the background a read would stop it
        except OSError:
            return False

    def ask(self, id: str, number: int | None) -> None:
        """Begin to read the answer to a mission's question."""
        self.stop()
        self._reading = asyncio.create_task(self._until_given(id, number))

    def stop(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _until_given(self, id: str, number: int | None) -> None:
        while True:
            self._output.write("> ")
            line = await _line()
            if not line:  # Ctrl-D: it stays open
                self._output.note(f"\nanswer it with: batos answer {id} TEXT", "dim")
                return
            if not (text := line.decode("utf-8", "replace").strip()):
                continue
            try:
                await self._client.answer(id, text, number)
            except DaemonUnavailable as e:
                self._output.note(f"{e.message}; once it is back: batos answer {id} TEXT", "yellow")
                return
            except BatosError as e:
                self._output.note(e.message, "red")
                continue
            return


async def _line() -> bytes:
    """A line from the terminal; empty at its end. Cancelled, it leaves what is typed to whoever reads next."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    with contextlib.suppress(OSError):  # the terminal is gone
        return os.read(descriptor, LINE_BYTES)
    return b""
