"""Reading the ROUTER socket: frames become messages, whatever is sent, in bounded memory and bounded steps.

libzmq limits the bytes of one frame only. So frames are counted and added up here, and those of a message that is
too large are let go as they come.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import zmq

from batos.errors import InvalidRequest, MalformedMessage, MessageTooLarge

_NOW, _MORE = int(zmq.DONTWAIT), int(zmq.RCVMORE)
_FRAMES_KEPT = 3  # routing id, empty delimiter of a REQ, payload


class Message(NamedTuple):
    """One message as it arrived. `problem` says why it cannot be a request."""

    routing_id: bytes
    enveloped: bool  # the sender is a REQ socket, or behaves like one
    payload: bytes
    problem: InvalidRequest | None = None
    key: bytes = b""  # the public key under which it came, where the socket asks for keys


class Inbox:
    """The messages that arrive at `socket`, at most `message_bytes` each."""

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
        self._key = b""

    def read(self, frames: int) -> Iterator[Message]:
        """The messages that are complete after at most `frames` more frames; never blocks."""
        self.drained = False
        receive, option = self._receive if self._with_keys else self._socket.recv, self._socket.getsockopt
        for _ in range(frames):
            try:
                frame = receive(_NOW)
            except zmq.Again:
                self.drained = True
                return
            if not self._count:
                self._kept.append(frame)
                self._count = 1
                continue  # a routing id is never the last frame
            self._take(frame)
            if not option(_MORE):
                message = self._message()
                self._start()
                yield message

    def _receive(self, flags: int) -> bytes:
        """A frame; of a routing id, the key of the connection is noted, too."""
        frame = self._socket.recv(flags, copy=False)
        if self._count == 0:
            with contextlib.suppress(zmq.ZMQError):  # without one it is refused like any other that is not known
                self._key = str(frame.get("User-Id")).encode()
        return frame.bytes

    def _take(self, frame: bytes) -> None:
        self._count += 1
        self._bytes += len(frame)
        if self._count <= _FRAMES_KEPT:
            self._kept.append(frame if self._bytes <= self._limit else b"")

    def _message(self) -> Message:
        if self._count == 2 and self._bytes <= self._limit:  # nearly all
            return Message(self._kept[0], False, self._kept[1], None, self._key)
        routing_id, *frames = self._kept
        enveloped = self._count > 2 and self._kept[1] == b""
        return Message(routing_id, enveloped, frames[-1] if frames else b"", self._problem(enveloped), self._key)

    def _problem(self, enveloped: bool) -> InvalidRequest | None:
        if self._bytes > self._limit:
            return MessageTooLarge(f"a message of {self._bytes} bytes; at most {self._limit} are taken (setting `message_bytes`)")
        if self._count > _FRAMES_KEPT:
            return MessageTooLarge(f"a message of {self._count - 1} frames; it is one JSON object in one frame")
        if self._count == _FRAMES_KEPT and not enveloped:
            return MalformedMessage("a message is one JSON object in one frame, after an empty one at most, as a REQ sends it")
        return None
