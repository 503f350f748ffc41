import asyncio
import json
import os

import pytest
import zmq

from batos.errors import BatosSignal, Busy, UnknownMission
from batos.wire.fields import Request
from batos.wire.outbox import ClientHandle
from tests.support.wire import ask, listening, raw, receive


async def test_a_dealer_gets_its_reply_in_one_frame() -> None:
    async with listening() as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        await dealer.send(b'{"op": "status", "id": "m", "ref": "r1"}')
        assert [json.loads(f) for f in await dealer.recv_multipart()] == [{"type": "status", "id": "m", "op": "status", "ref": "r1"}]


async def test_a_req_and_a_dealer_that_behaves_like_one_get_it_after_an_empty_frame() -> None:
    async with listening() as (listener, _):
        async with raw(zmq.REQ, listener.bound[0]) as req:
            for ref in range(3):
                assert (await ask(req, {"op": "info", "ref": ref}))["ref"] == ref
            assert (await ask(req, b"no json"))["code"] == "malformed"
            assert (await ask(req, {"op": "info"}))["type"] == "status"
        async with raw(zmq.DEALER, listener.bound[0]) as dealer:
            await dealer.send_multipart([b"", b'{"op": "info"}'])
            empty, payload = await dealer.recv_multipart()
            assert (empty, json.loads(payload)["type"]) == (b"", "status")


async def test_every_reply_to_a_request_has_its_ref_and_no_other() -> None:
    async def stream(request: Request, client: ClientHandle) -> None:
        for n in range(3):
            client.send({"type": "state", "n": n}, event=True)
            await asyncio.sleep(0)
        client.send({"type": "result"})

    async with listening(stream) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        for ref in (1, "1", None):
            await dealer.send_json({"op": "watch", "id": "m", "ref": ref})
        got = [await receive(dealer) for _ in range(12)]
    for ref in (1, "1"):
        assert [e["type"] for e in got if e.get("ref") == ref] == ["state"] * 3 + ["result"]
    assert len([e for e in got if "ref" not in e]) == 4


async def test_requests_start_in_the_order_they_came() -> None:
    async with listening() as (listener, handler), raw(zmq.DEALER, listener.bound[0]) as dealer:
        for n in range(1000):
            await dealer.send_json({"op": "status", "id": f"m{n}"})
        assert [(await receive(dealer))["id"] for n in range(1000)] == [f"m{n}" for n in range(1000)]
        assert [r.mission for r in handler.requests] == [f"m{n}" for n in range(1000)]


async def test_errors_of_the_handler_become_replies_and_the_daemon_goes_on() -> None:
    async def answer(request: Request, client: ClientHandle) -> None:
        if request.mission == "unknown":
            raise UnknownMission("no mission 'unknown'", near=["known"])
        if request.mission == "busy":
            raise Busy("full")
        if request.mission == "bug":
            raise ZeroDivisionError
        client.send({"type": "status"})

    async with listening(answer) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        reply = await ask(dealer, {"op": "status", "id": "unknown", "ref": 9})
        named = {"code": "unknown_mission", "message": "no mission 'unknown'", "context": {"near": ["known"]}}
        assert reply == {"type": "error", **named, "id": "unknown", "ref": 9}
        assert await ask(dealer, {"op": "status", "id": "busy"}) == {"type": "error", "code": "busy", "message": "full", "id": "busy"}
        reply = await ask(dealer, {"op": "status", "id": "bug"})
        assert (reply["code"], reply["id"]) == ("internal", "bug")
        assert "ZeroDivision" not in reply["message"]
        assert await ask(dealer, {"op": "status", "id": "m"}) == {"type": "status"}


async def test_a_signal_reaches_whoever_runs_the_loop() -> None:
    class Failed(BatosSignal):
        pass

    async def answer(request: Request, client: ClientHandle) -> None:
        raise Failed

    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.set_result(context["exception"]))
    async with listening(answer) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        await dealer.send_json({"op": "info"})
        assert isinstance(await asyncio.wait_for(told, 90), Failed)


async def test_a_reply_that_is_no_json_becomes_an_error_and_such_an_event_is_left_out() -> None:
    async def answer(request: Request, client: ClientHandle) -> None:
        client.send({"type": "state", "id": "m", "value": float("nan")}, event=True)
        client.send({"type": "result", "id": "m", "value": object()})

    async with listening(answer) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        reply = await ask(dealer, {"op": "watch", "id": "m", "ref": 4})
        assert (reply["type"], reply["code"], reply["id"], reply["ref"]) == ("error", "internal", "m", 4)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([b""], "malformed"),
        ([b"", b""], "malformed"),
        ([b'{"op": "info"}', b""], "malformed"),
        ([b'{"op": "info"}', b'{"op": "info"}'], "malformed"),
        ([b"", b'{"op": "info"}', b'{"op": "info"}'], "too_large"),
        ([b"", b"", b"", b'{"op": "info"}'], "too_large"),
        ([b'{"op": "info"}'] * 50, "too_large"),
        ([b""] * 5000, "too_large"),
        ([b"x" * 900] * 2, "too_large"),  # more than 1,024 bytes together
        ([b"x" * 1025], "too_large"),
        ([b"", b"x" * 8000], "too_large"),
    ],
    ids=lambda value: f"{len(value)}-frames" if isinstance(value, list) else value,
)
async def test_wrong_frames_get_one_error_in_their_envelope(frames: list[bytes], code: str) -> None:
    async with listening(message_bytes=1024) as (listener, handler), raw(zmq.DEALER, listener.bound[0]) as dealer:
        await dealer.send_multipart(frames)
        *envelope, payload = await dealer.recv_multipart()
        assert envelope == ([b""] if len(frames) > 1 and frames[0] == b"" else [])
        assert json.loads(payload)["code"] == code
        await dealer.send_json({"op": "info"})
        assert json.loads((await dealer.recv_multipart())[-1])["type"] == "status"
        assert len(handler.requests) == 1


async def test_a_message_at_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    async with listening(message_bytes=1024) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        payload = b'{"op": "info"}'
        assert (await ask(dealer, payload.ljust(1024)))["type"] == "status"
        assert (await ask(dealer, payload.ljust(1025)))["code"] == "too_large"


async def test_a_brief_of_two_mebibytes_is_answered() -> None:
    async with listening() as (listener, handler), raw(zmq.DEALER, listener.bound[0]) as dealer:
        reply = await ask(dealer, {"op": "submit", "id": "m", "brief": "x" * 2 * 1024 * 1024})
        assert (reply["type"], reply["code"]) == ("error", "too_large")
        reply = await ask(dealer, {"op": "submit", "id": "m", "brief": "x" * 65_537, "ref": 3})
        assert (reply["code"], reply["id"], reply["ref"]) == ("too_large", "m", 3)
        assert not handler.requests
        assert (await ask(dealer, {"op": "submit", "id": "m", "brief": "x" * 65_536}))["type"] == "status"


async def test_a_frame_beyond_all_bounds_ends_that_connection_only() -> None:
    async with listening(message_bytes=1024) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as other:
        async with raw(zmq.DEALER, listener.bound[0], RECONNECT_IVL=-1) as huge:
            await huge.send(b"x" * 100_000)
            assert (await ask(other, {"op": "info"}))["type"] == "status"
        assert (await ask(other, {"op": "info"}))["type"] == "status"


async def test_bytes_that_are_no_zmtp_do_no_harm() -> None:
    async with listening() as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        host, port = listener.bound[0].removeprefix("tcp://").split(":")
        for junk in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\x01\x00" * 500, b"\xff" + b"\0" * 8 + b"\x7f" + b"\xff" * 100, b""):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(junk)
            writer.close()
            assert (await ask(dealer, {"op": "info"}))["type"] == "status"


async def test_nobody_takes_over_the_routing_id_of_a_connected_client() -> None:
    async with listening() as (listener, _), raw(zmq.DEALER, listener.bound[0], IDENTITY=b"alice") as alice:
        assert (await ask(alice, {"op": "info"}))["type"] == "status"
        async with raw(zmq.DEALER, listener.bound[0], IDENTITY=b"alice") as mallory:
            await mallory.send_json({"op": "info", "ref": "mallory"})
            assert (await ask(alice, {"op": "info", "ref": "alice"}))["ref"] == "alice"
            assert not await mallory.poll(0)


async def test_a_client_that_comes_back_under_its_routing_id_is_served() -> None:
    async with listening() as (listener, handler):
        for _ in range(3):
            async with raw(zmq.DEALER, listener.bound[0], IDENTITY=b"alice") as alice:
                assert (await ask(alice, {"op": "info"}))["type"] == "status"
            await _gone(handler.clients[-1])
            handler.clients.clear()


async def _gone(client: ClientHandle) -> None:
    async with asyncio.timeout(90):
        while not client.closed:
            client.send({"type": "state"}, event=True)
            await asyncio.sleep(0)


async def test_a_handle_tells_when_its_client_is_gone() -> None:
    async with listening() as (listener, handler):
        async with raw(zmq.DEALER, listener.bound[0]) as dealer:
            await ask(dealer, {"op": "info"})
            assert not handler.clients[0].closed
        await _gone(handler.clients[0])
        handler.clients[0].send({"type": "result"})
        async with raw(zmq.DEALER, listener.bound[0]) as dealer:
            assert (await ask(dealer, {"op": "info"}))["type"] == "status"


async def test_handles_are_equal_if_their_messages_cannot_be_told_apart() -> None:
    async with listening() as (listener, handler), raw(zmq.DEALER, listener.bound[0]) as one, raw(zmq.DEALER, listener.bound[0]) as two:
        for socket, ref in ((one, 1), (one, 1), (one, 2), (two, 1)):
            await ask(socket, {"op": "watch", "id": "m", "ref": ref})
        first, again, other_ref, other_client = handler.clients
        assert first == again
        assert len({first, again, other_ref, other_client}) == 3
        assert first.key == other_ref.key != other_client.key
        assert first != "first"


async def test_requests_at_once_are_bounded_and_none_is_lost() -> None:
    most = 0
    open_now = 0
    gate = asyncio.Event()

    async def slow(request: Request, client: ClientHandle) -> None:
        nonlocal most, open_now
        open_now += 1
        most = max(most, open_now)
        if open_now == 4:
            asyncio.get_running_loop().call_soon(gate.set)
        await gate.wait()
        await asyncio.sleep(0)
        open_now -= 1
        client.send({"type": "status", "id": request.mission})

    async with listening(slow, requests_at_once=4) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        for n in range(200):
            await dealer.send_json({"op": "status", "id": f"m{n}"})
        assert {(await receive(dealer))["id"] for _ in range(200)} == {f"m{n}" for n in range(200)}
    assert most <= 256  # one batch of frames may be under way when the bound is met


async def test_those_who_wait_for_results_hold_nobody_up() -> None:
    async def answer(request: Request, client: ClientHandle) -> None:
        if request.waits:
            await asyncio.Event().wait()
        client.send({"type": "status", "id": request.mission})

    async with listening(answer, waits_limit=3, requests_at_once=1) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        for n in range(3):
            await dealer.send_json({"op": "result", "id": f"m{n}", "wait_s": 60})
        reply = await ask(dealer, {"op": "result", "id": "m4", "wait_s": 60})
        assert (reply["code"], reply["id"]) == ("busy", "m4")
        assert await ask(dealer, {"op": "result", "id": "m5"}) == {"type": "status", "id": "m5"}
        await listener.stop()
        told = [await receive(dealer) for _ in range(3)]
        assert {(r["code"], r["id"]) for r in told} == {("busy", f"m{n}") for n in range(3)}


async def test_one_client_too_many_is_busy() -> None:
    async with listening(clients_limit=2) as (listener, handler):
        endpoint = listener.bound[0]
        async with raw(zmq.DEALER, endpoint) as a, raw(zmq.DEALER, endpoint) as b, raw(zmq.REQ, endpoint) as c:
            await ask(a, {"op": "watch", "id": "m"})
            await ask(b, {"op": "watch", "id": "m"})
            assert (await ask(c, {"op": "info"}))["code"] == "busy"
            assert len(handler.requests) == 2
            handler.clients.clear()
            assert (await ask(c, {"op": "info"}))["type"] == "status"


async def test_stopping_finishes_what_is_under_way_and_frees_the_port() -> None:
    begun = asyncio.Event()

    async def answer(request: Request, client: ClientHandle) -> None:
        begun.set()
        await asyncio.sleep(0.05)
        client.send({"type": "accepted", "id": request.mission, "state": "ACCEPTED"})

    async with listening(answer) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        await dealer.send_json({"op": "submit", "id": "m", "brief": "b"})
        await begun.wait()
        await listener.stop()
        assert (await receive(dealer))["type"] == "accepted"
        async with listening(endpoint=listener.bound[0]):
            pass


async def test_stopping_is_bounded_when_a_handler_hangs() -> None:
    begun = asyncio.Event()

    async def hang(request: Request, client: ClientHandle) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with listening(hang, linger_s=0.1) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        await dealer.send_json({"op": "info"})
        await begun.wait()
        async with asyncio.timeout(90):
            await listener.stop()
        assert (await receive(dealer))["code"] == "busy"
        await listener.stop()
