"""Reading the ROUTER socket: frames become messages, whatever is sent, in bounded memory and bounded steps.

libzmq limits the bytes of one frame only. So frames are counted and added up here, and those of a message that is
too large are let go as they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import structlog
import zmq

from batos.errors import InvalidRequest, MalformedMessage, MessageTooLarge

log = structlog.get_logger("batos.wire")

_NOW, _MORE = int(zmq.DONTWAIT), int(zmq.RCVMORE)
_FRAMES_KEPT = 3  # routing id, empty delimiter of a REQ, payload


class Message(NamedTuple):
    """One message as it arrived. `problem` says why it cannot be a request."""

    routing_id: bytes
    enveloped: bool  # the sender is a REQ socket, or behaves like one
    payload: bytes
    problem: InvalidRequest | None = None
    key: bytes = b""  # the public key under which it came, where the socket asks for keys
    address: str = ""  # the host it came from; of a local socket `localhost:UID:GID:PID`, of whom opened it


class Inbox:
    """The messages that arrive at `socket`, at most `message_bytes` each.

    What did not come by ZMTP/3 is let go: earlier versions take any bytes for frames, a browser's, too. libzmq refuses them as the
    listener sets it up; this is a second wall, which stands by itself. Only ZMTP/3 tells the type of the sender's socket.
    """

    def __init__(self, socket: zmq.Socket[bytes], message_bytes: int, *, with_keys: bool = False) -> None:
        """
        :param with_keys: whether the socket asks for keys; then each message has the one of its sender.
        """
        self._socket = socket
        self._limit = message_bytes
        self._with_keys = with_keys
        self.drained = False  # whether the last `read` found the socket empty
        self._start()

    def _start(self) -> None:
        self._kept: list[bytes] = []
        self._count = 0
        self._bytes = 0
        self._key, self._address, self._spoken = b"", "", True

    def read(self, frames: int) -> Iterator[Message]:
        """The messages that are complete after at most `frames` more frames; never blocks."""
        self.drained = False
        receive, option = self._socket.recv, self._socket.getsockopt
        for _ in range(frames):
            try:
                if not self._count:
                    self._begin(receive(_NOW, copy=False))
                    continue  # a routing id is never the last frame
                self._take(receive(_NOW))
            except zmq.Again:
                self.drained = True
                return
            if not option(_MORE):
                message, spoken = self._message(), self._spoken
                self._start()
                if spoken:
                    yield message
                else:
                    log.warning("foreign_bytes", why="a connection spoke a protocol before ZMTP/3; its message is let go")

    def _begin(self, frame: zmq.Frame) -> None:
        """Take a routing id, and note what its connection is known by."""
        self._kept.append(frame.bytes)
        self._count = 1
        self._spoken = bool(_told(frame, "Socket-Type"))
        self._address = _told(frame, "Peer-Address")
        if self._with_keys:  # without one it is refused like any other that is not known
            self._key = _told(frame, "User-Id").encode()

    def _take(self, frame: bytes) -> None:
        self._count += 1
        self._bytes += len(frame)
        if self._count <= _FRAMES_KEPT:
            self._kept.append(frame if self._bytes <= self._limit else b"")

    def _message(self) -> Message:
        if self._count == 2 and self._bytes <= self._limit:  # nearly all
            return Message(self._kept[0], False, self._kept[1], None, self._key, self._address)
        routing_id, *frames = self._kept
        enveloped = self._count > 2 and self._kept[1] == b""
        return Message(routing_id, enveloped, frames[-1] if frames else b"", self._problem(enveloped), self._key, self._address)

    def _problem(self, enveloped: bool) -> InvalidRequest | None:
        if self._bytes > self._limit:
            return MessageTooLarge(f"a message of {self._bytes} bytes; at most {self._limit} are taken (setting `message_bytes`)")
        if self._count > _FRAMES_KEPT:
            return MessageTooLarge(f"a message of {self._count - 1} frames; it is one JSON object in one frame")
        if self._count == _FRAMES_KEPT and not enveloped:
            return MalformedMessage("a message is one JSON object in one frame, after an empty one at most, as a REQ sends it")
        return None


def _told(frame: zmq.Frame, what: str) -> str:
    """What libzmq knows of the connection by which a frame came; "" where it knows nothing of that kind."""
    try:
        return str(frame.get(what))
    except zmq.ZMQError:
        return ""
