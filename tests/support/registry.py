"""A real model registry (Debian's docker-registry) on loopback, and a gate in front of it that counts and cuts.

Ollama takes a layer only from where a registry redirects it to, as its own registry does to a store on another host; of one that
answers with the layer itself it says "no Location header in response". So the gate redirects who asks 127.0.0.1 for a layer to
itself by the name of localhost, and what comes there goes to the registry unchanged, ranges included.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.servers import free_port

START_S = 90
BUFFER_BYTES = 256 * 1024  # in each direction of the gate: what was read but not passed on counts as served


class Registry:
    """One process; its data lie in `folder`. It keeps its port when it is killed and started again."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("docker-registry")
        assert program is not None, "no docker-registry: run `make registry`"
        self.port = free_port()
        self._command = [program, "serve", str(folder / "registry.yml")]
        self._log = folder / "registry.log"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "registry.yml").write_text(
            f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n"
            f"storage: {{filesystem: {{rootdirectory: {folder / 'data'}}}}}\nhttp: {{addr: '127.0.0.1:{self.port}'}}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns when it answers."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={"PATH": os.environ["PATH"]}
            )
        deadline = time.monotonic() + START_S
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            assert self._process.poll() is None, self._log.read_text()
            with contextlib.suppress(OSError), opener.open(f"http://127.0.0.1:{self.port}/v2/", timeout=5):
                return
            assert time.monotonic() < deadline, f"no answer from the registry: {self._log.read_text()}"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """A registry that runs."""
    made = Registry(folder)
    try:
        made.start()
        yield made
    finally:
        made.kill()


class Gate:
    """Passes connections on to a port, counts the bytes that come back, and holds or cuts them after so many.

    `served` counts since the last `count`. Hold: nothing more is passed on until `open`. Cut: connections are broken off, and new
    ones are refused a word, until `open`.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._limit: int | None = None
        self._cutting = False
        self._open = asyncio.Event()
        self._open.set()
        self.reached = asyncio.Event()  # the limit
        self.served = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=BUFFER_BYTES)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def hold_after(self, count: int) -> None:
        """Pass on so many bytes, then nothing until `open`."""
        self._limit, self._cutting = count, False
        self.count()

    def cut_after(self, count: int) -> None:
        """Pass on so many bytes, then break every connection until `open`."""
        self._limit, self._cutting = count, True
        self.count()

    def open(self) -> None:
        """No limit any more."""
        self._limit = None
        self._open.set()
        self.count()

    def count(self) -> None:
        """Count from nothing again."""
        self.served = 0
        self.reached.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        # Either side may go away at any time; that is what this is for.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            if self._cutting and self.reached.is_set():
                return
            head = await reader.readuntil(b"\r\n\r\n")
            request, *fields = head.split(b"\r\n")
            if b"Host: localhost" not in head:
                if request.startswith(b"GET") and b"/blobs/" in request:
                    path = request.split()[1]
                    place = b"Location: http://localhost:%d%s" % (self.port, path)
                    writer.write(b"HTTP/1.1 307 Temporary Redirect\r\n%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % place)
                    return await writer.drain()
                head = b"\r\n".join([request, b"Connection: close", *fields])
            there, back = await asyncio.open_connection("127.0.0.1", self._target, limit=BUFFER_BYTES)
            with contextlib.closing(back):
                back.write(head)
                pumps = [asyncio.create_task(self._up(reader, back)), asyncio.create_task(self._down(there, writer))]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._limit is not None and self.served >= self._limit:
                self.reached.set()
                if self._cutting:
                    return
                self._open.clear()
            await self._open.wait()
            if self._cutting and self.reached.is_set():
                return
            self.served += len(data)
            writer.write(data)
            await writer.drain()
