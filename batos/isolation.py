"""Isolation: work on untrusted data in a child process that may freeze, grow or die without harm. `batos/confinement.py` is its other side.

Code that keeps the interpreter's lock (a regular expression, a parser in C) would freeze the daemon from any thread. The child has
limits on processor time and memory, no files, no network, and the walls of the sandbox. It is started on demand, kept for a while, and
never outlives the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any

from batos import confinement
from batos.errors import BatosError, from_wire

IDLE_S = 20.0  # seconds without a request after which a child ends
PATIENCE = 5  # wall-clock limit of a request, as a multiple of its processor seconds; allows for a busy machine
START_S = 30.0  # seconds for the child to start, on top of the request's own limit
_STEP = 1 << 20  # bytes written to the child at once


class ChildStopped(Exception):
    """The child did not end its work. `reason` is "time", "memory", "died", or "fault" (in the module, with its `trace`)."""

    def __init__(self, reason: str, detail: str = "", trace: str = "") -> None:
        """:param detail: details beyond the reason."""
        super().__init__(f"{reason} {detail}".strip())
        self.reason, self.detail, self.trace = reason, detail, trace


class IsolatedChild:
    """A child that runs one module's `serve(request, data)`, one request at a time. Used on one loop."""

    def __init__(self, module: str, *, memory: int, idle_s: float = IDLE_S) -> None:
        """
        :param module: name of the module; it should import little.
        :param memory: limit of the child's address space, in bytes.
        """
        self._module, self._memory, self._idle_s = module, memory, idle_s
        self._process: Process | None = None
        self._alone = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Return the id of the child process; None while no child runs."""
        return None if self._process is None else self._process.pid

    async def ask(self, request: Any, data: bytes = b"", *, seconds: float) -> list[Any]:
        """Return the values that the module yields for a request, each passed as JSON.

        :param seconds: limit of processor time.
        :raises ChildStopped: if the child exceeds its time or memory, dies, or the module has a fault.
        :raises BatosError: if the module raises one.
        """
        async with self._alone:
            try:
                async with asyncio.timeout(seconds * PATIENCE + START_S):
                    while True:
                        kept = self._process is not None
                        process = self._process or await self._started()
                        try:
                            return await self._asked(process, request, data, seconds)
                        except (ConnectionError, asyncio.IncompleteReadError):
                            status = await self._ended()
                        if status != 0 or not kept:  # else an idle child ended just as the request came: try again with a new one
                            raise ChildStopped(*_why(status))
            except TimeoutError:
                await self.close()
                raise ChildStopped("time") from None
            except (ChildStopped, BatosError):
                raise
            except BaseException:  # for example a cancellation: later output of the child would answer a request that is gone
                await self.close()
                raise

    async def close(self) -> None:
        """Kill the child, if there is one, even during a request."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await self._ended()

    async def _started(self) -> Process:
        root = str(Path(__file__).parents[1])
        paths = dict.fromkeys([root, *filter(os.path.isabs, sys.path)])
        words = [confinement.__file__, str(os.getpid()), self._module, str(self._memory), str(self._idle_s), *paths]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", *words), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_STEP, start_new_session=True,
        )  # fmt: skip
        return self._process

    async def _asked(self, process: Process, request: Any, data: bytes, seconds: float) -> list[Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        head = json.dumps({"request": request, "bytes": len(data), "seconds": seconds}).encode()
        process.stdin.write(struct.pack(">I", len(head)) + head)
        for at in range(0, len(data), _STEP):
            process.stdin.write(data[at : at + _STEP])
            await process.stdin.drain()
        await process.stdin.drain()
        found: list[Any] = []
        while True:
            size = struct.unpack(">I", await process.stdout.readexactly(4))[0]
            frame = await process.stdout.readexactly(size)
            tag, content = frame[:1], frame[1:]
            if tag == confinement.PIECE:
                found.append(json.loads(content.decode("utf-8", "surrogatepass")))
            elif tag == confinement.DONE:
                return found
            elif tag == confinement.REFUSED:
                raise from_wire(json.loads(content))
            elif tag == confinement.NO_MEMORY:
                await self.close()  # the child does not return its memory to the system
                raise ChildStopped("memory")
            else:
                what, trace = json.loads(content)
                raise ChildStopped("fault", what, trace)

    async def _ended(self) -> int:
        """Return the exit status of the child, which ends; from now on there is none."""
        process, self._process = self._process, None
        assert process is not None
        if process.stdin is not None:
            process.stdin.close()
        return await process.wait()


def _why(status: int) -> tuple[str, str]:
    if status in (-signal.SIGXCPU, -signal.SIGPROF):
        return "time", ""
    return "died", f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
