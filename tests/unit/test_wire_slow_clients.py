"""Clients that do not read: they lose events, never a result, and nobody else notices."""

import asyncio
from typing import Any

import zmq

from batos.wire.fields import Request
from batos.wire.listener import Message
from batos.wire.outbox import ClientHandle
from tests.support.wire import ask, listening, raw, receive

EVENTS = 4000
EVENT = {"type": "token", "id": "m", "text": "x" * 16_000}  # 64 MB of them: more than libzmq and the kernel hold
SMALL_BUFFERS = {"RCVHWM": 1, "RCVBUF": 4096}


async def until_stuck(client: ClientHandle) -> None:
    """Send events until one is dropped; what follows in the same turn of the loop finds the queue full."""
    async with asyncio.timeout(90):
        while True:
            client.send(EVENT, event=True)
            if client.dropped:
                return
            await asyncio.sleep(0)


async def flood(request: Request, client: ClientHandle) -> None:
    if request.op != "watch":
        client.send({"type": "status"})
        return
    for _ in range(EVENTS):
        client.send(EVENT, event=True)
    client.send({"type": "result", "id": "m", "state": "COMPLETE", "result": {}})


async def read_to_the_end(socket: Any) -> tuple[int, int, list[str]]:
    """Events got, events reported as dropped, and the types of the other replies, up to a result."""
    events = dropped = 0
    others: list[str] = []
    while "result" not in others:
        reply = await receive(socket, within_s=30)
        dropped += reply.get("dropped", 0)
        if reply["type"] == "token":
            events += 1
        else:
            others.append(reply["type"])
    return events, dropped, others


async def test_events_are_dropped_and_counted_and_the_result_arrives() -> None:
    async with listening(flood, client_queue=8) as (listener, _):
        endpoint = listener.bound[0]
        async with raw(zmq.DEALER, endpoint, **SMALL_BUFFERS) as slow, raw(zmq.DEALER, endpoint) as quick:
            await slow.send_json({"op": "watch", "id": "m"})
            for _ in range(50):
                assert (await ask(quick, {"op": "info"}))["type"] == "status"
            events, dropped, _ = await read_to_the_end(slow)
            assert dropped > 0
            assert events + dropped == EVENTS
            assert (await ask(slow, {"op": "info"}))["type"] == "status"


async def test_a_reader_that_keeps_up_loses_nothing() -> None:
    read = asyncio.Semaphore(100)

    async def many(request: Request, client: ClientHandle) -> None:
        for n in range(5000):
            await read.acquire()  # never more than 100 ahead of the reader
            client.send({"type": "token", "n": n}, event=True)

    async with listening(many, client_queue=100) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        await dealer.send_json({"op": "watch", "id": "m"})
        for n in range(5000):
            assert await receive(dealer) == {"type": "token", "n": n}
            read.release()


async def test_a_burst_of_replies_larger_than_the_queue_loses_none() -> None:
    gate = asyncio.Event()

    async def together(request: Request, client: ClientHandle) -> None:
        if request.mission == "m199":
            gate.set()
        await gate.wait()
        client.send({"type": "accepted", "id": request.mission, "state": "ACCEPTED"})

    async with listening(together, client_queue=8) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        for n in range(200):
            await dealer.send_json({"op": "submit", "id": f"m{n}", "brief": "b"})
        assert {(await receive(dealer))["id"] for _ in range(200)} == {f"m{n}" for n in range(200)}


async def test_replies_take_the_place_of_events_up_to_the_bound() -> None:
    async with listening(client_queue=8) as (listener, handler):
        endpoint = listener.bound[0]
        async with raw(zmq.DEALER, endpoint, **SMALL_BUFFERS) as slow, raw(zmq.DEALER, endpoint) as quick:
            await slow.send_json({"op": "watch", "id": "m", "ref": "w"})
            while not handler.clients:
                await ask(quick, {"op": "info"})
                handler.clients = [c for c in handler.clients if c.ref == "w"]
            client = handler.clients[0]
            await until_stuck(client)
            for n in range(20):
                client.send({"type": "status", "n": n})
            assert [entry.event for entry in client.peer.queue] == [False] * 8
            # private: over the socket it would come some turns of the loop later, when the client may have taken replies
            listener._take(Message(client.key, False, b'{"op": "submit", "id": "ignored", "brief": "b"}'))
            await ask(quick, {"op": "info"})
            assert "ignored" not in [request.mission for request in handler.requests]  # it could not have been answered
            got = []
            while (reply := await receive(slow)).get("n") != 7:
                got.append(reply)
            assert [r["n"] for r in got if "n" in r] == list(range(7))
            assert (await ask(slow, {"op": "info", "ref": "after"}))["ref"] == "after"


async def test_bytes_are_bounded_for_one_client_and_for_all() -> None:
    async with listening(client_queue_bytes=100_000, outbox_bytes=150_000) as (listener, handler):
        sockets = [raw(zmq.DEALER, listener.bound[0], **SMALL_BUFFERS) for _ in range(3)]
        async with sockets[0] as a, sockets[1] as b, sockets[2] as c:
            for ref, socket in enumerate((a, b, c)):
                await ask(socket, {"op": "watch", "id": "m", "ref": ref})
            for client in handler.clients:
                await until_stuck(client)
            for client in handler.clients:
                assert client.peer.bytes <= 100_000 + 20_000
            assert sum(client.peer.bytes for client in handler.clients) <= 150_000 + 3 * 20_000


async def test_what_waits_for_a_client_that_vanished_is_let_go() -> None:
    async with listening(client_queue=8) as (listener, handler):
        async with raw(zmq.DEALER, listener.bound[0], **SMALL_BUFFERS) as slow:
            await ask(slow, {"op": "watch", "id": "m"})
            client = handler.clients[0]
            await until_stuck(client)
            client.send({"type": "result"})
        async with raw(zmq.DEALER, listener.bound[0]) as quick, asyncio.timeout(90):
            while not client.closed:
                await ask(quick, {"op": "info"})
        assert (client.peer.bytes, len(client.peer.queue)) == (0, 0)


async def test_stopping_is_bounded_when_a_client_does_not_read() -> None:
    async with listening(client_queue=8, linger_s=0.2) as (listener, handler), raw(zmq.DEALER, listener.bound[0], **SMALL_BUFFERS) as slow:
        await ask(slow, {"op": "watch", "id": "m"})
        await until_stuck(handler.clients[0])
        async with asyncio.timeout(90):
            await listener.stop()
        assert handler.clients[0].closed
