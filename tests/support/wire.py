"""A listener on a free loopback port with a scripted handler behind it, and raw sockets to speak to it. Everything is real ZeroMQ."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import zmq
import zmq.asyncio

from batos.config import Settings
from batos.errors import from_wire
from batos.wire.fields import Request
from batos.wire.listener import Listener
from batos.wire.outbox import ClientHandle
from tests.support.replies import checked

Answer = Callable[[Request, ClientHandle], Awaitable[None]]


class Scripted:
    """A handler that answers as it is told, and remembers what it was asked."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer or say_status
        self.requests: list[Request] = []
        self.clients: list[ClientHandle] = []

    async def handle(self, request: Request, client: ClientHandle) -> None:
        self.requests.append(request)
        self.clients.append(client)
        await self.answer(request, client)


async def say_status(request: Request, client: ClientHandle) -> None:
    client.send({"type": "status", "id": request.mission, "op": request.op})


@contextlib.asynccontextmanager
async def listening(
    answer: Answer | None = None, endpoint: str = "tcp://127.0.0.1:*", **settings: Any
) -> AsyncIterator[tuple[Listener, Scripted]]:
    handler = Scripted(answer)
    listener = Listener([endpoint], Settings(**settings), handler)
    await listener.start()
    try:
        yield listener, handler
    finally:
        await listener.stop()


@contextlib.asynccontextmanager
async def raw(kind: int, endpoint: str, **options: Any) -> AsyncIterator[zmq.asyncio.Socket]:
    """A plain ZeroMQ socket, as any program would use it. `options` are names of libzmq's."""
    context = zmq.asyncio.Context()
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    for name, value in options.items():
        socket.setsockopt(getattr(zmq, name), value)
    socket.connect(endpoint)
    try:
        yield socket
    finally:
        socket.close()
        context.term()


async def receive(socket: zmq.asyncio.Socket, within_s: float = 60) -> dict[str, Any]:
    """The next reply to a DEALER or REQ."""
    async with asyncio.timeout(within_s):
        (payload,) = await socket.recv_multipart()
    return json.loads(payload)


async def ask(socket: zmq.asyncio.Socket, message: Any) -> dict[str, Any]:
    await socket.send(message if isinstance(message, bytes) else json.dumps(message).encode())
    return await receive(socket)


class Caller:
    """A program that writes its requests itself, over a plain socket: one after the other."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket = socket

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Return the reply to one request.

        :raises BatosError: the error that the daemon answered with.
        """
        reply = checked(await ask(self._socket, {"op": op, **fields}), op)
        if reply["type"] == "error":
            raise from_wire(reply)
        return reply


@contextlib.asynccontextmanager
async def calling(endpoint: str) -> AsyncIterator[Caller]:
    """Connect a Caller to an endpoint."""
    async with raw(zmq.DEALER, endpoint) as socket:
        yield Caller(socket)
