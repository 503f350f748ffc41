"""The standard streams of an MCP server's process as a transport of the SDK's: bounded, read in linear time, dead with the daemon.

The process has a group of its own, and starts with the environment that its user named and nothing else. Above it is one process
(`batos.tools.launcher`) that ends it, and all that came of it, when the daemon dies or lets go of a pipe. A message that is larger than
the bound ends the connection, since what follows it cannot be read in step.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from batos.errors import InvalidInput, ToolFailed
from batos.tools import launcher
from batos.tools.effects import process_start

log = structlog.get_logger("batos.tools")
END_S = 1.0
"""Seconds that a server has to end by itself after its standard input was closed, and again after SIGTERM."""
_NOISE_LINES = 2000  # lines in a row that are not JSON-RPC, after which a server is taken to flood
_QUEUED = 8
_LINE_CHARS = 400
_LINES_A_MINUTE = 60  # of a server's standard error, in the log
_STEP = 0.01
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


def words_of(command: str) -> list[str]:
    """Return the words of a command line, as a shell would split them.

    :raises InvalidInput: if its quotes do not close, or there are none.
    """
    try:
        words = shlex.split(command)
    except ValueError as e:
        raise InvalidInput(f"{command[:200]!r} is not a valid command line: {e}; close its quotes") from None
    if not words:
        raise InvalidInput("a command line is empty; give the program that starts the server and its arguments")
    return words


class StdioTransport:
    """The transport of one process, used once.

    :ivar process: its `PID START`.
    :ivar why: how the connection ended; empty while it lasts.
    :ivar ended: hears that it did.
    """

    def __init__(self, name: str, argv: list[str], environment: Mapping[str, str], *, most: int) -> None:
        """
        :param environment: variables beside PATH, HOME and LANG.
        :param most: bytes of one message.
        """
        self._name, self._argv, self._most = name, argv, most
        self.ended: Callable[[], None] = lambda: None
        self._environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(Path.home()), "LANG": "C.UTF-8", **environment}
        home = self._environment["HOME"]
        self._folder = home if os.path.isdir(home) else "/"
        self.process, self.why, self.refused = "", "", ""
        self._said: deque[str] = deque(maxlen=4)
        self._child: Process | None = None
        self._watch = -1  # the daemon's end of the pipe that keeps the process alive
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Streams:
        """Start the process.

        :raises ToolFailed: if its program is missing.
        """
        path = self._environment["PATH"]
        if shutil.which(self._argv[0], path=path) is None:
            raise ToolFailed(f"{self._argv[0]!r} is not a program on PATH ({path}); install it, or name it by its whole path")
        watched, self._watch = os.pipe()
        try:
            self._child = child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), str(watched), *self._argv),
                stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self._environment, cwd=self._folder,
                limit=self._most, start_new_session=True, pass_fds=(watched,),
            )  # fmt: skip
        except BaseException:
            self._kill()
            raise
        finally:
            os.close(watched)
        try:
            self.process = f"{child.pid} {process_start(child.pid)}"
            to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](_QUEUED)
            write, from_session = anyio.create_memory_object_stream[SessionMessage](_QUEUED)
            self._tasks = [
                asyncio.create_task(self._reading(child, to_session)),
                asyncio.create_task(self._writing(child, from_session)),
                asyncio.create_task(self._hearing(child)),
            ]
        except BaseException:
            self._kill()
            _forget(child)
            raise
        return read, write

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the process: its standard input is closed, then come SIGTERM and SIGKILL, to all of its group."""
        child = self._child
        assert child is not None
        assert child.stdin is not None
        try:
            child.stdin.close()
            if not await self._gone(child):
                self._signal(signal.SIGTERM)
                await self._gone(child)
        finally:
            for task in self._tasks:
                task.cancel()
            self._kill()
            try:
                if not await self._gone(child):
                    self._signal(signal.SIGKILL)
                    await self._gone(child)
            finally:
                _forget(child)

    def _kill(self) -> None:
        """Let go of the pipe: the launcher kills what is left, also what left the group."""
        if self._watch >= 0:
            os.close(self._watch)
            self._watch = -1

    def _signal(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    async def _gone(self, child: Process) -> bool:
        """Return True once the process has ended, False after a while. `wait` would wait for the end of its output, too."""
        end = time.monotonic() + END_S
        while child.returncode is None and time.monotonic() < end:  # noqa: ASYNC110 - asyncio tells the end of a process by `wait` only
            await asyncio.sleep(_STEP)
        return child.returncode is not None

    async def _reading(self, child: Process, to_session: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        assert child.stdout is not None
        noise = 0
        async with to_session:
            while not self.why:
                try:
                    line = await child.stdout.readuntil(b"\n")
                except asyncio.LimitOverrunError:
                    self._close_for(f"it sent a message larger than {self._most} bytes")
                except (asyncio.IncompleteReadError, ConnectionError):
                    await self._gone(child)
                    self._close_for("it ended" if child.returncode is None else f"it ended {_status(child.returncode)}")
                else:
                    try:
                        message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                    except ValueError:  # a line of its log, say
                        noise += 1
                        if noise > _NOISE_LINES:
                            self._close_for("it floods its standard output with what is not JSON-RPC")
                        await asyncio.sleep(0)  # reading what is buffered does not yield
                        continue
                    noise = 0
                    try:
                        await to_session.send(message)
                    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                        self._close_for("the connection was closed")
        self.ended()

    def _close_for(self, why: str) -> None:
        self.why = f"{why}; its last words were: {' | '.join(self._said)}" if self._said else why

    async def _writing(self, child: Process, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert child.stdin is not None
        async with from_session:
            async for sent in from_session:
                try:
                    child.stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await child.stdin.drain()
                except (ConnectionError, RuntimeError):
                    return  # the reader notices the end, too, and says how

    async def _hearing(self, child: Process) -> None:
        """Keep the last lines of standard error, and log a bounded number of them a minute."""
        assert child.stderr is not None
        left, minute = _LINES_A_MINUTE, time.monotonic()
        rest = b""
        while part := await child.stderr.read(4096):
            *lines, rest = (rest + part).split(b"\n")
            rest = rest[-_LINE_CHARS:]
            for line in lines:
                text = line[:_LINE_CHARS].decode("utf-8", "replace").strip()
                if not text:
                    continue
                self._said.append(text[:160])
                if time.monotonic() - minute > 60:
                    left, minute = _LINES_A_MINUTE, time.monotonic()
                if left > 0:
                    left -= 1
                    log.info("mcp_server_says", connection=self._name, line=text)


def _forget(process: Process) -> None:
    """Close what asyncio keeps of a process: its pipes stay open while a grandchild that left the group holds them."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _status(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
