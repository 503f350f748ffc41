"""Clients that go away at every point of a submit: what was accepted ends, nothing is kept for them, the daemon goes on."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from batos.api import subscriptions
from batos.app.kernel import Kernel
from batos.image import ledger
from batos.wire.listener import Listener
from tests.support.missions import WAIT_S, FakeInference, settings

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


class House:
    """A daemon with its parts in reach."""

    kernel: Kernel
    inference: FakeInference

    @property
    def listener(self) -> Listener:
        listener = self.kernel.transport.listener
        assert listener is not None
        return listener

    @property
    def endpoint(self) -> str:
        return self.kernel.endpoints[0]

    def address(self) -> tuple[str, int]:
        host, _, port = self.endpoint.removeprefix("tcp://").rpartition(":")
        return host, int(port)

    def states(self) -> dict[str, str]:
        return dict(self.kernel.image.read(lambda root: {m.id: m.state for m in ledger.newest_first(root)}))

    async def accepted(self, id: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while id not in self.states():
                await asyncio.sleep(0.001)

    async def calm(self) -> None:
        """All missions are over, and nothing is kept for those who left."""
        async with asyncio.timeout(WAIT_S):
            await self.kernel.scheduler.quiet()
            watches = self.kernel.transport.missions.watches
            while len(watches) or self.listener.working or self.listener.outbox.bytes:
                await asyncio.sleep(0.001)
        assert not watches.clients
        assert not any(self.kernel.events.is_watched(id) for id in self.states())
        assert not self.listener.outbox.blocked


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    house = House()
    house.inference = FakeInference()

    wanted = settings(tmp_path, listen=["tcp://127.0.0.1:*"], linger_s=0.2, concurrent_missions=20)
    house.kernel = await Kernel.start(wanted, inference=house.inference)
    try:
        yield house
    finally:
        await house.kernel.stop()


def submit(id: str) -> bytes:
    return json.dumps({"op": "submit", "id": id, "brief": f"I feel stuck with {id}", "watch": True}).encode()


class Raw:
    """A client on a bare socket, which can stop at any byte."""

    def __init__(self, house: House) -> None:
        self.socket = socket.create_connection(house.address())
        self.socket.setblocking(False)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self, count: int) -> bytes:
        loop, data = asyncio.get_running_loop(), b""
        async with asyncio.timeout(WAIT_S):
            while len(data) < count:
                data += await loop.sock_recv(self.socket, count - len(data))
        return data

    async def greet(self) -> None:
        await self.send(GREETING)
        await self.read(64)
        await self.send(b"\x04" + bytes([len(READY)]) + READY)
        _, length = await self.read(2)
        await self.read(length)

    async def reply(self) -> dict[str, Any]:
        """The next message; heartbeats are let by."""
        while True:
            [flags] = await self.read(1)
            [length] = struct.unpack(">Q", await self.read(8)) if flags & 2 else await self.read(1)
            body = await self.read(length)
            if not flags & 4:
                return dict(json.loads(body))

    def leave(self, *, rudely: bool) -> None:
        if rudely:  # a reset instead of an orderly end
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def frame(body: bytes) -> bytes:
    return b"\x00" + bytes([len(body)]) + body if len(body) < 256 else b"\x02" + struct.pack(">Q", len(body)) + body


async def goes_on(house: House) -> None:
    """Another client has its mission thought."""
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        peer.connect(house.endpoint)
        await peer.send(submit("after"))
        async with asyncio.timeout(WAIT_S):
            while (reply := json.loads(await peer.recv()))["type"] != "result":
                pass
    assert reply["state"] == "COMPLETE"


@pytest.mark.parametrize("rudely", [False, True], ids=["closed", "reset"])
async def test_gone_at_any_byte_of_the_handshake_and_of_the_frame(house: House, rudely: bool) -> None:
    """Half a frame is no message: nothing is accepted."""
    whole = GREETING + b"\x04" + bytes([len(READY)]) + READY + frame(submit("half"))
    for cut in [0, 1, 10, 63, 64, 65, 90, 92, 93, *range(len(whole) - len(submit("half")) - 2, len(whole), 9)]:
        raw = Raw(house)
        await raw.send(whole[:cut])
        raw.leave(rudely=rudely)
    await goes_on(house)
    await house.calm()
    assert house.states() == {"after": "COMPLETE"}


@pytest.mark.parametrize("rudely", [False, True], ids=["closed", "reset"])
async def test_gone_after_sending_and_before_accepted(house: House, rudely: bool) -> None:
    """It may have been accepted or not; what was accepted ends."""
    house.inference.hold()
    for number in range(20):
        raw = Raw(house)
        await raw.greet()
        await raw.send(frame(submit(f"m{number}")))
        if number % 2:
            await house.accepted(f"m{number}")
        raw.leave(rudely=rudely)
    house.inference.release()
    await goes_on(house)
    await house.calm()
    states = house.states()
    assert {f"m{number}" for number in range(1, 20, 2)} <= set(states)
    assert set(states.values()) == {"COMPLETE"}


@pytest.mark.parametrize("rudely", [False, True], ids=["closed", "reset"])
async def test_gone_after_accepted_and_before_the_result(house: House, rudely: bool) -> None:
    """What was accepted ends, and whoever asks for it later gets its result."""
    house.inference.hold()
    for number in range(10):
        raw = Raw(house)
        await raw.greet()
        await raw.send(frame(submit(f"m{number}")))
        assert (await raw.reply())["type"] == "accepted"
        for _ in range(number % 3):
            assert (await raw.reply())["type"] == "state"
        raw.leave(rudely=rudely)
    house.inference.release()
    await goes_on(house)
    await house.calm()
    assert house.states() == {**{f"m{number}": "COMPLETE" for number in range(10)}, "after": "COMPLETE"}
    again = Raw(house)
    await again.greet()
    await again.send(frame(submit("m3")))
    reply = await again.reply()
    assert (reply["type"], reply["duplicate"], reply["state"]) == ("accepted", True, "COMPLETE")
    again.leave(rudely=rudely)


async def test_who_watches_a_mission_that_rests_and_leaves_is_not_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody new is let in once there were `clients_limit` of them, though nobody is there."""
    monkeypatch.setattr(subscriptions, "_QUIET_S", 0.0)
    house.listener.outbox.clients_limit = limit = 6
    await house.kernel.scheduler.submit("rests", "I feel stuck", {})
    await house.kernel.scheduler.pause("rests")
    stays = Raw(house)
    await stays.greet()
    await stays.send(frame(json.dumps({"op": "watch", "id": "rests", "ref": 1}).encode()))
    assert (await stays.reply())["state"] == "PAUSED"
    for number in range(4 * limit):
        raw = Raw(house)
        await raw.greet()
        await raw.send(frame(json.dumps({"op": "watch", "id": "rests"}).encode()))
        assert (await raw.reply())["state"] == "PAUSED", number
        raw.leave(rudely=True)
    told = await stays.reply()
    assert (told["type"], told["id"], told["ref"]) == ("status", "rests", 1)
    await house.kernel.scheduler.cancel("rests")
    async with asyncio.timeout(WAIT_S):
        while (await stays.reply())["type"] != "result":
            pass
    await house.calm()
    stays.leave(rudely=False)
