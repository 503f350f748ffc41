"""Connections to an Ollama whose stream is read in batches.

A stream brings a token at a time, and to take each through all layers of an HTTP client costs more than all else that is done with it. So
what comes is only gathered here, and its reader hears of it every `GATHER_S` seconds; of the beginning and the end of a reply at once.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterable
from typing import Any, cast

import httpcore

__all__ = ["GATHER_S", "Backend", "Connection"]

GATHER_S = 0.05  # over which what a stream brings is gathered
LAST_CHUNK = b"0\r\n\r\n"  # how a streamed reply ends
HELD_BYTES = 256 * 1024  # that a connection holds at most, and some more, before it reads on
STAGGER_S = 0.25  # until a name's next address is tried


class Connection(httpcore.AsyncNetworkStream, asyncio.Protocol):
    """One connection: what came, and when its one reader hears of it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._held = bytearray()
        self._over = False
        self._fault: Exception | None = None
        self._every_s = 0.0
        self._due = 0.0  # when the reader is to hear of more
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def gather(self, every_s: float) -> None:
        """From now on let the reader hear of what comes every so many seconds, and of the end of a streamed reply; 0: at once."""
        self._every_s = every_s
        self._due = self._loop.time() + every_s if every_s else 0.0
        if not every_s and self._held:
            self._wake()

    # --- what the socket says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hold what came, and wake the reader if it is time."""
        self._held += data
        if len(self._held) >= HELD_BYTES:
            self._transport.pause_reading()
        if self._reader is not None:
            if self._is_due():
                self._wake()
            elif self._timer is None:
                self._timer = self._loop.call_at(self._due, self._wake)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self._over, self._fault = True, exc
        self._writable.set()
        self._wake()

    def eof_received(self) -> None:
        """Nothing more comes; the transport closes."""
        self._over = True
        self._wake()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable.set()

    def _is_due(self) -> bool:
        full = len(self._held) >= HELD_BYTES or self._held.endswith(LAST_CHUNK)
        return full or not self._every_s or self._loop.time() >= self._due

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # --- what the client asks

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See `httpcore.AsyncNetworkStream`: empty at the end."""
        if not self._over and not (self._held and self._is_due()):
            try:
                async with asyncio.timeout(timeout):
                    await self._something()
            except TimeoutError:
                raise httpcore.ReadTimeout from None
        if not self._held and self._fault is not None:
            raise httpcore.ReadError(str(self._fault)) from self._fault
        data = bytes(self._held[:max_bytes])
        del self._held[:max_bytes]
        if len(self._held) < HELD_BYTES and not self._over:
            self._transport.resume_reading()  # does nothing where it reads
        self._due = self._loop.time() + self._every_s
        return data

    async def _something(self) -> None:
        """Wait until there is something to read, and it is time."""
        self._reader = self._loop.create_future()
        if self._held:
            self._timer = self._loop.call_at(self._due, self._wake)
        try:
            await self._reader
        finally:
            self._reader = None
            self._wake()  # no timer stays

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See `httpcore.AsyncNetworkStream`."""
        if self._over or self._transport.is_closing():
            raise httpcore.WriteError(str(self._fault or "the connection is closed"))
        if not buffer:
            return
        self._transport.write(buffer)
        if self._writable.is_set():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._writable.wait()
        except TimeoutError:
            raise httpcore.WriteTimeout from None
        if self._over:
            raise httpcore.WriteError(str(self._fault or "the connection is closed"))

    async def aclose(self) -> None:
        """Close at once: that is what stops a model."""
        self._transport.abort()

    def get_extra_info(self, info: str) -> Any:
        """See `httpcore.AsyncNetworkStream`."""
        if info == "is_readable":  # asked of one that serves nobody: then its end has come
            return self._over or bool(self._held) or self._transport.is_closing() or _has_news(self._transport.get_extra_info("socket"))
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(names.get(info, info))


def _has_news(socket: Any) -> bool:
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class Backend(httpcore.AsyncNetworkBackend):
    """Makes connections of this kind, without encryption."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> Connection:
        """See `httpcore.AsyncNetworkBackend`."""
        local = None if local_address is None else (local_address, 0)
        connect = asyncio.get_running_loop().create_connection
        try:
            async with asyncio.timeout(timeout):
                transport, made = await connect(Connection, host, port, local_addr=local, happy_eyeballs_delay=STAGGER_S)
        except TimeoutError as e:
            raise httpcore.ConnectTimeout(str(e)) from e
        except OSError as e:
            raise httpcore.ConnectError(str(e)) from e
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return made

    async def sleep(self, seconds: float) -> None:
        """See `httpcore.AsyncNetworkBackend`."""
        await asyncio.sleep(seconds)
