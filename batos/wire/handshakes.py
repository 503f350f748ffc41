"""What becomes of a client's handshakes: libzmq goes on silently where a daemon will never let it in, so its events are heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from batos.errors import KeyRefused

_HEARD = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)
_HANG_UPS = 3  # of a daemon in the middle of a handshake with keys: it cannot read what was meant for another


class Handshakes:
    """Hears how one socket's handshakes go, whether a further one could do better, and whether a connection stands. In a running loop."""

    def __init__(self, socket: zmq.asyncio.Socket, endpoint: str, *, with_keys: bool, on_refused: Callable[[KeyRefused], None]) -> None:
        """
        :param on_refused: told once.
        """
        self._refused: asyncio.Future[KeyRefused] = asyncio.get_running_loop().create_future()
        self._socket, self._endpoint, self._with_keys, self._on_refused = socket, endpoint, with_keys, on_refused
        self._monitor: Any = socket.get_monitor_socket(_HEARD)
        self._hang_ups = self._made = 0
        self._there = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Hear from now on."""
        self._task = asyncio.create_task(self._hear())

    def way(self) -> int:
        """Which connection takes what is sent now: the one that stands, else the next."""
        return self._made if self._there else self._made + 1

    def stands(self, way: int) -> bool:
        """Whether a connection stands: on one that does not, no answer comes any more."""
        return self._there and way == self._made

    def check(self) -> None:
        """
        :raises KeyRefused: if the daemon will not let this client in.
        """
        if self._refused.done():
            raise self._refused.result()

    async def unless_refused(self, work: asyncio.Future[Any]) -> None:
        """Wait for some work, which is cancelled where it cannot come to its end.

        :raises KeyRefused: if the daemon will not let this client in.
        """
        try:
            await asyncio.wait([work, self._refused], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.check()
        finally:
            work.cancel()

    async def stop(self) -> None:
        """Hear no more; before the socket is closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.close()

    def close(self) -> None:
        """Let go of the events' socket."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)

    async def _hear(self) -> None:
        while not self._refused.done():
            event = parse_monitor_message(await self._monitor.recv_multipart())
            why = self._why(event["event"], event["value"])
            if why is not None:
                error = KeyRefused(f"{self._endpoint} {why}")
                self._refused.set_result(error)
                self._on_refused(error)

    def _why(self, event: int, value: int) -> str | None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._hang_ups, self._made, self._there = 0, self._made + 1, True
        elif event == zmq.EVENT_DISCONNECTED:
            self._there = False
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return "does not know this client's key; put its public key into the daemon's folder of clients (curve_clients)"
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            if self._with_keys:
                return "asks for no keys; leave curve_client and curve_server out"
            return "lets in only clients with keys; name yours in curve_client, and the daemon's public one in curve_server"
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and self._with_keys:
            self._hang_ups += 1
            if self._hang_ups >= _HANG_UPS:
                return "hangs up: most likely its key is another than curve_server says, or it asks for no keys"
        return None
