import asyncio
import contextlib
import gc
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from batos.errors import (
    BatosError,
    Busy,
    DaemonUnavailable,
    DeadlineExceeded,
    EndpointError,
    InferenceFailed,
    InvalidRequest,
    MessageNotUnderstood,
    MessageTooLarge,
    MissionFailed,
    MissionPending,
    UnknownMission,
    from_wire,
)
from batos.wire import Client, SyncClient, connection
from batos.wire.fields import Request
from batos.wire.listener import Listener
from batos.wire.outbox import ClientHandle
from batos.wire.schemas import ResultRequest, SendRequest, SubmitRequest, WatchRequest
from tests.support import forked
from tests.support.wire import Answer, listening

ROOT = Path(__file__).parents[2]


class Missions:
    """Just enough of a daemon: missions end when they are told to."""

    def __init__(self) -> None:
        self.ended: dict[str, dict[str, object]] = {}
        self.change = asyncio.Condition()
        self.watchers: set[ClientHandle] = set()
        self.drop = 0  # requests to leave without an answer

    async def end(self, id: str, **end: object) -> None:
        async with self.change:
            self.ended[id] = {"type": "result", "id": id, **end}
            self.change.notify_all()

    async def __call__(self, request: Request, client: ClientHandle) -> None:
        if self.drop:
            self.drop -= 1
            return
        match request:
            case SubmitRequest(id=id) | SendRequest(id=id):
                client.send({"type": "accepted", "id": id, "state": "ACCEPTED"})
                if request.watch:
                    await self.stream(id, client)
            case WatchRequest(id="unknown"):
                raise UnknownMission("no mission 'unknown'")
            case WatchRequest(id=id):
                await self.stream(id, client)
            case ResultRequest(id=id):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(request.wait_s), self.change:
                        await self.change.wait_for(lambda: id in self.ended)
                client.send(self.ended.get(id) or {"type": "status", "id": id, "state": "DELEGATING"})
            case _:
                client.send({"type": request.op, **request.model_dump(exclude={"op", "ref"}, exclude_none=True)})

    async def stream(self, id: str, client: ClientHandle) -> None:
        client.send({"type": "state", "id": id, "state": "IDLE"}, event=True)
        if client in self.watchers:
            return
        self.watchers.add(client)
        async with self.change:
            await self.change.wait_for(lambda: id in self.ended)
        client.send({"type": "token", "id": id, "text": "Invite "}, event=True)
        client.send(self.ended[id])


COMPLETE = {"state": "COMPLETE", "result": {"text": "done"}}


async def test_submit_watch_and_result() -> None:
    missions = Missions()
    async with listening(missions) as (listener, handler), Client(listener.bound[0]) as client:
        accepted = await client.submit("Plan a party", persona="ALFRED", deadline_s=30, priority=2)
        assert (accepted.state, accepted.duplicate, accepted.result) == ("ACCEPTED", False, None)
        asked = handler.requests[0]
        assert isinstance(asked, SubmitRequest)
        assert (asked.id, asked.brief, asked.persona, asked.deadline_s, asked.priority) == (accepted.id, "Plan a party", "ALFRED", 30, 2)
        events = []
        async for event in client.watch(accepted.id):
            events.append(event["type"])
            if event["type"] == "state":
                await missions.end(accepted.id, **COMPLETE)
        assert events == ["state", "token", "result"]
        assert await client.result(accepted.id) == {"text": "done"}


async def test_send_is_a_mission() -> None:
    async with listening(Missions()) as (listener, handler), Client(listener.bound[0]) as client:
        accepted = await client.send("genesis", "add_", 2, {"x": [1]}, id="s1", to=3)
        assert accepted.id == "s1"
        assert handler.requests == [
            SendRequest(op="send", ref=1, id="s1", target="genesis", selector="add_", args=[2, {"x": [1]}], kwargs={"to": 3})
        ]


async def test_the_other_ops() -> None:
    async with listening(Missions(), folders=("/f",)) as (listener, _), Client(listener.bound[0]) as client:
        assert await client.status("m") == {"type": "status", "id": "m"}
        assert await client.cancel("m") == {"type": "cancel", "id": "m"}
        assert await client.show("t") == {"type": "show", "target": "t"}
        assert await client.show("t", 1.5) == {"type": "show", "target": "t", "at": 1.5}
        flags = {"redo": False, "cascade": False, "dry": False}
        assert await client.undo("m") == {"type": "undo", "id": "m", **flags}
        asked = await client.undo("m", cascade=True, dry=True, expect=["m", "n"])
        assert asked == {"type": "undo", "id": "m", **flags, "cascade": True, "dry": True, "expect": ["m", "n"]}
        assert await client.fork("/f", 1.5) == {"type": "fork", "folder": "/f", "at": 1.5}
        assert await client.ls() == {"type": "ls"}
        assert await client.diff("t", 1.5, "0" * 16) == {"type": "diff", "target": "t", "a": 1.5, "b": "0" * 16}
        assert await client.history("t", 3) == {"type": "history", "target": "t", "limit": 3}
        assert await client.missions("FAILED") == {"type": "missions", "state": "FAILED", "limit": 50, "system": True}
        assert await client.info() == {"type": "info"}
        asked = await client.models(["m"], ensure=True)
        assert asked == {"type": "models", "ensure": True, "names": ["m"], "watch": False, "fit": False}
        asked = await client.fit_models(["m"])
        assert asked == {"type": "models", "ensure": False, "names": ["m"], "watch": False, "fit": True}
        assert await client.personas() == {"type": "personas"}


async def test_many_at_once_on_one_connection() -> None:
    async with listening(Missions()) as (listener, _), Client(listener.bound[0]) as client:
        accepted = await asyncio.gather(*(client.submit("b", id=f"m{n}") for n in range(2000)))
        assert [a.id for a in accepted] == [f"m{n}" for n in range(2000)]


async def test_a_failed_mission_is_raised() -> None:
    missions = Missions()
    async with listening(missions) as (listener, _), Client(listener.bound[0]) as client:
        await missions.end("late", state="FAILED", error={"code": "deadline", "message": "too late"})
        with pytest.raises(DeadlineExceeded, match="too late"):
            await client.result("late")
        await missions.end("cut", state="FAILED", error={"code": "inference_failed", "message": "cut", "context": {"cause": "truncated"}})
        with pytest.raises(MissionFailed, match="cut") as caught:
            await client.result("cut")
        assert caught.value.context == {"cause": "truncated", "code": "inference_failed"}


async def test_a_mission_without_a_result_yet() -> None:
    missions = Missions()
    async with listening(missions) as (listener, _), Client(listener.bound[0], timeout_s=0.2) as client:
        with pytest.raises(MissionPending, match="DELEGATING"):
            await client.result("m", wait=False)
        with pytest.raises(MissionPending):
            await client.result("m", timeout_s=0.3)
        waiting = asyncio.create_task(client.result("m"))
        with pytest.raises(MissionPending):
            await client.result("m", timeout_s=0.5)
        await missions.end("m", **COMPLETE)
        assert await waiting == {"text": "done"}


async def test_error_replies_are_raised_as_their_class() -> None:
    async def busy(request: Request, client: ClientHandle) -> None:
        raise Busy("10000 missions are waiting")

    async with listening(Missions()) as (listener, _), Client(listener.bound[0]) as client:
        with pytest.raises(InvalidRequest, match="empty"):
            await client.submit("  ")
        with pytest.raises(InvalidRequest, match="`id`"):
            await client.status("no id")
        with pytest.raises(MessageTooLarge, match="65537 bytes"):
            await client.submit("x" * 65_537)
        with pytest.raises(UnknownMission):
            await anext(client.watch("unknown"))
    async with listening(busy) as (listener, _), Client(listener.bound[0]) as client:
        with pytest.raises(Busy, match="10000"):
            await client.submit("b")


async def test_what_cannot_be_sent_is_not() -> None:
    async with listening(Missions(), message_bytes=1024) as (listener, handler), Client(listener.bound[0]) as client:
        with pytest.raises(MessageTooLarge, match="2097"):
            await client.submit("x" * 2 * 1024 * 1024)
        for value, told in (
            (float("nan"), "has infinity or NaN"),
            (object(), "not JSON serializable"),
            ("\ud800", "an invalid character"),
        ):
            with pytest.raises(InvalidRequest, match=f"send: `args` .*{told}"):
                await client.send("t", "s_", value)
        with pytest.raises(InvalidRequest, match="submit: `deadline_s` has infinity or NaN in it"):
            await client.submit("b", deadline_s=float("inf"))
        assert not handler.requests
        with pytest.raises(MessageTooLarge, match="1024"):  # refused by the daemon, which could not read the `ref`
            await client.submit("x" * 2000)


async def test_a_lost_request_is_sent_again_as_the_same_mission() -> None:
    missions = Missions()
    async with listening(missions) as (listener, handler), Client(listener.bound[0], timeout_s=1) as client:
        missions.drop = 1
        accepted = await client.submit("b")
        assert [r.mission for r in handler.requests] == [accepted.id, accepted.id]


async def test_no_daemon() -> None:
    async with listening() as (listener, _):
        endpoint = listener.bound[0]
    async with Client(endpoint, timeout_s=0.2) as client:
        with pytest.raises(DaemonUnavailable, match="batos run"):
            await client.info()
        with pytest.raises(DaemonUnavailable, match=endpoint):
            await anext(client.watch("m"))


class Killed:
    """A daemon that takes one request and is killed then: its socket is closed, without a word."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.port = 0

    def begin(self) -> "Killed":
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        return self

    async def begin_again(self, port: int) -> "Killed":
        """On a port that one had which died: ZeroMQ's own thread frees it, soon after its socket was closed."""
        while not self.port:
            try:
                self.socket.bind(f"tcp://127.0.0.1:{port}")
                self.port = port
            except zmq.ZMQError as e:
                if e.errno != zmq.EADDRINUSE:
                    raise
                await asyncio.sleep(0.01)
        return self

    async def asked(self) -> tuple[bytes, dict[str, object]]:
        client, payload = await self.socket.recv_multipart()
        return client, json.loads(payload)

    async def answer(self) -> None:
        client, request = await self.asked()
        await self.socket.send_multipart([client, json.dumps({"type": request["op"], "ref": request["ref"]}).encode()])

    def die(self) -> None:
        self.socket.close()


@contextlib.asynccontextmanager
async def killed_while_it_packs(
    timeout_s: float, limit_s: float
) -> AsyncIterator[tuple[zmq.asyncio.Context, int, Client, asyncio.Task[Any]]]:
    """Where the daemon was, with a client that has it pack, and the task that waits for that; the daemon is gone."""
    with zmq.asyncio.Context() as context:
        daemon = Killed(context).begin()
        async with Client(f"tcp://127.0.0.1:{daemon.port}", timeout_s=timeout_s) as client, asyncio.timeout(limit_s):
            packing = asyncio.create_task(client.pack())
            await daemon.asked()
            daemon.die()
            yield context, daemon.port, client, packing


async def test_a_long_wait_ends_soon_after_the_daemon_was_killed() -> None:
    async with killed_while_it_packs(0.2, 10) as (_, _, client, packing):
        with pytest.raises(DaemonUnavailable, match="batos run"):
            await packing
        with pytest.raises(DaemonUnavailable):
            await client.backup()


async def test_a_long_wait_goes_on_at_a_daemon_that_is_back() -> None:
    async with killed_while_it_packs(0.6, 20) as (context, port, _, packing):
        daemon = await Killed(context).begin_again(port)
        await daemon.answer()
        assert await packing == {"type": "pack"}
        daemon.die()


async def test_a_long_wait_at_a_daemon_that_is_there_is_one_request() -> None:
    """However long it is silent: nobody packs twice."""
    with zmq.asyncio.Context() as context:
        daemon = Killed(context).begin()
        async with Client(f"tcp://127.0.0.1:{daemon.port}", timeout_s=0.01) as client, asyncio.timeout(90):
            packing = asyncio.create_task(client.pack())
            sender, asked = await daemon.asked()
            with pytest.raises(DaemonUnavailable):  # as much time as many spells of the pack
                await client.result("m", timeout_s=5)
            assert (await daemon.asked())[1]["op"] == "result"
            assert not packing.done()
            await daemon.socket.send_multipart([sender, json.dumps({"type": "pack", "ref": asked["ref"]}).encode()])
            assert await packing == {"type": "pack"}
        daemon.die()


class Wire:
    """What lies between a client and a daemon of another machine: cut, it says nothing to either, and no connection ends."""

    def __init__(self, port: int) -> None:
        self._port, self._cut = port, False
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def laid(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._taken, "127.0.0.1", 0)
        try:
            yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for writer in self._writers:
                writer.close()

    def cut(self) -> None:
        self._cut = True

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._along(reader, far_writer), self._along(far_reader, writer))

    async def _along(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while some := await reader.read(4096):
                if not self._cut:
                    writer.write(some)


async def test_a_long_wait_ends_when_the_daemons_machine_was_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_PING_MS", 100)
    monkeypatch.setattr(connection, "_SILENCE_MS", 300)
    with zmq.asyncio.Context() as context:
        daemon = Killed(context).begin()
        wire = Wire(daemon.port)
        async with wire.laid() as endpoint, Client(endpoint, timeout_s=0.3) as client, asyncio.timeout(90):
            packing = asyncio.create_task(client.pack())
            await daemon.asked()
            wire.cut()
            with pytest.raises(DaemonUnavailable):
                await packing
        daemon.die()


async def test_a_client_and_its_watch_outlive_a_restart_of_the_daemon() -> None:
    first, second = Missions(), Missions()
    async with contextlib.AsyncExitStack() as stack:
        async with listening(first) as (listener, _):
            endpoint = listener.bound[0]
            client = await stack.enter_async_context(Client(endpoint, timeout_s=0.3))
            events = client.watch("m")
            assert (await anext(events))["type"] == "state"
            await listener.stop()
        await stack.enter_async_context(listening(second, endpoint=endpoint))
        await second.end("m", **COMPLETE)
        assert [e["type"] async for e in events if e["type"] != "state"] == ["token", "result"]


async def test_a_quiet_mission_is_watched_once() -> None:
    missions = Missions()
    async with listening(missions) as (listener, handler), Client(listener.bound[0], timeout_s=0.1) as client:
        got = []
        async for event in client.watch("m"):
            got.append(event["type"])
            if len(got) == 3:  # asked again twice, in silence
                await missions.end("m", **COMPLETE)
        assert len(missions.watchers) == 1
        assert got.count("token") == got.count("result") == 1
        assert len(handler.requests) >= 3


@pytest.mark.parametrize(
    "junk", [b"[" * 100_000, b'{"ref": [1], "type": "info"}', b"\xff", b"5", b'{"ref": {}, "type": "error", "code": "busy"}']
)
async def test_a_client_goes_on_after_what_is_no_reply(junk: bytes) -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as other:
        other.linger = 0
        port = other.bind_to_random_port("tcp://127.0.0.1")

        async def answer() -> None:
            client, payload = await other.recv_multipart()
            await other.send_multipart([client, junk])
            await other.send_multipart([client, json.dumps({"type": "info", "ref": json.loads(payload)["ref"]}).encode()])

        async with Client(f"tcp://127.0.0.1:{port}") as client, asyncio.TaskGroup() as group:
            group.create_task(answer())
            assert await client.info() == {"type": "info"}


async def test_no_endpoint() -> None:
    with pytest.raises(EndpointError, match="no endpoint"):
        async with Client("localhost"):
            pass


async def test_used_outside_its_context() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client().info()
    with pytest.raises(RuntimeError, match="with SyncClient"):
        SyncClient().info()


@contextlib.contextmanager
def _threaded(answer: Answer) -> Iterator[Listener]:
    """A listener on a loop thread of its own, for code that blocks."""
    with asyncio.Runner() as runner:
        stop = asyncio.Event()
        started: asyncio.Future[Listener] = runner.get_loop().create_future()

        async def serve() -> None:
            async with listening(answer, folders=("/f",)) as (listener, _):
                started.set_result(listener)
                await stop.wait()

        thread = threading.Thread(target=runner.run, args=(serve(),))
        thread.start()
        yield asyncio.run_coroutine_threadsafe(_value(started), runner.get_loop()).result(10)
        runner.get_loop().call_soon_threadsafe(stop.set)
        thread.join()


async def _value(future: asyncio.Future[Listener]) -> Listener:
    return await future


def test_the_sync_client_does_the_same() -> None:
    missions = Missions()
    missions.ended["m"] = {"type": "result", "id": "m", **COMPLETE}
    missions.ended["f"] = {"type": "result", "id": "f", "state": "FAILED", "error": {"code": "failed", "message": "no"}}
    with _threaded(missions) as listener, SyncClient(listener.bound[0]) as client:
        assert client.submit("b", id="m").state == "ACCEPTED"
        assert client.send("t", "s_", 1, id="m2").id == "m2"
        assert [e["type"] for e in client.watch("m")] == ["state", "token", "result"]
        assert next(client.watch("m"))["type"] == "state"
        assert client.result("m") == {"text": "done"}
        with pytest.raises(MissionFailed, match="no"):
            client.result("f")
        with pytest.raises(MissionPending):
            client.result("other", wait=False)
        for reply, kind in (
            (client.status("m"), "status"),
            (client.cancel("m"), "cancel"),
            (client.show("t"), "show"),
            (client.history("t"), "history"),
            (client.ls("t"), "ls"),
            (client.fork("/f"), "fork"),
            (client.undo("m"), "undo"),
            (client.diff("t", 1.5), "diff"),
            (client.missions(), "missions"),
            (client.info(), "info"),
            (client.models(), "models"),
        ):
            assert reply["type"] == kind


def test_a_sync_client_that_is_closed_ends_what_other_threads_wait_for() -> None:
    ended: list[str] = []

    def wait(client: SyncClient, asked: threading.Event) -> None:
        asked.set()
        try:
            client.result("never")
        except RuntimeError as e:
            ended.append(str(e))

    missions = Missions()
    with _threaded(missions) as listener:
        with SyncClient(listener.bound[0], timeout_s=60) as client:
            asked = threading.Event()
            waiting = threading.Thread(target=wait, args=(client, asked), daemon=True)
            waiting.start()
            asked.wait()
            assert client.info()["type"] == "info"
        waiting.join(20)
    assert not waiting.is_alive()
    assert "SyncClient" in ended[0]


@pytest.mark.filterwarnings("error")
def test_a_sync_client_may_be_closed_more_than_once() -> None:
    client = SyncClient("tcp://127.0.0.1:9", timeout_s=0.1)
    client.__exit__()
    with client:
        client.__exit__()
    client.__exit__()
    gc.collect()  # what was never awaited would be told now
    with client, pytest.raises(DaemonUnavailable):
        client.info()


def test_the_sync_client_without_an_endpoint() -> None:
    with pytest.raises(EndpointError), SyncClient("nowhere"):
        pass


@pytest.mark.parametrize(("name", "types"), [("send_mission.py", ["accepted", "state", "token", "result"]), ("send_mission_req.py", None)])
def test_the_examples_run(name: str, types: list[str] | None) -> None:
    class Quick(Missions):
        async def __call__(self, request: Request, client: ClientHandle) -> None:
            if request.mission:
                self.ended[request.mission] = {"type": "result", "id": request.mission, **COMPLETE}
            await super().__call__(request, client)

    with _threaded(Quick()) as listener:
        command = [sys.executable, str(ROOT / "examples" / name), "Plan a party", listener.bound[0]]
        done = forked.run(command, capture_output=True, text=True, timeout=30, check=True)
    lines = done.stdout.splitlines()
    assert [line.split('"')[3] for line in lines] == (types or ["accepted", "result"])


def test_the_examples_say_that_nobody_answers(tmp_path: Path) -> None:
    """After seconds, where there are minutes for a mission. Both at once: they wait."""
    with contextlib.ExitStack() as stack:
        running = []
        for name in ("send_mission.py", "send_mission_req.py"):
            command = [sys.executable, str(ROOT / "examples" / name), "Plan a party", f"ipc://{tmp_path}/none.sock"]
            one = forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            stack.callback(one.kill)
            running.append(stack.enter_context(one))
        for one in running:
            told, error = one.communicate(timeout=30)
            assert (one.returncode, told) == (1, "")
            assert error == f"no daemon answers at ipc://{tmp_path}/none.sock: start one with `batos run`, or name another ENDPOINT\n"


def test_errors_come_back_from_the_wire_as_they_were() -> None:
    inference = from_wire(InferenceFailed("gone", cause="timeout", model="m").to_wire())
    assert isinstance(inference, InferenceFailed)
    assert (inference.cause, inference.context, str(inference)) == ("timeout", {"cause": "timeout", "model": "m"}, "gone")
    assert isinstance(from_wire(MessageNotUnderstood("x", "y_").to_wire()), MessageNotUnderstood)
    unknown = from_wire({"code": "of_a_newer_daemon", "message": "new"})
    assert (type(unknown), unknown.message) == (BatosError, "new")
