"""A mission that needs what no model here can do, a real Ollama of the daemon's own, and a real registry that has one."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from batos.bridge.catalogue import registry_models
from batos.bridge.client import connect
from batos.mind.events import Event
from tests.support.daemon import Daemon, Peer, daemon
from tests.support.registry import Gate, registry
from tests.support.tiny_models import CONTEXT, created

pytestmark = pytest.mark.skipif(shutil.which("docker-registry") is None, reason="there is no docker-registry here: run `make registry`")
SLOW_S = 240
QUICK: dict[str, Any] = {
    "remember": "off", "evidence_passages": 0, "mission_attempts": 2, "profile": "embedded", "num_thread": 1, "facets_limit": 1,
}  # fmt: skip
BY_ITSELF: dict[str, Any] = {"autotelic": "on", "heartbeat_first_s": 3600}


@contextmanager
def gated(port: int) -> Iterator[Gate]:
    """A gate in front of a registry, on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    gate = Gate(port)
    asyncio.run_coroutine_threadsafe(gate.__aenter__(), loop).result(30)
    try:
        yield gate
    finally:
        asyncio.run_coroutine_threadsafe(gate.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory, ollama_host: str) -> Iterator[Gate]:
    """A registry with a model that uses tools and thinks, and one that does neither; nothing of them is in any Ollama."""
    folder = tmp_path_factory.mktemp("registry")
    with registry(folder) as server, gated(server.port) as gate:
        with created(ollama_host, folder, ["qwen3", "gemma3"]) as names:
            asyncio.run(push(ollama_host, server.port, {names["qwen3"]: "house/worker", names["gemma3"]: "house/talker"}))
        yield gate


async def push(host: str, port: int, models: dict[str, str]) -> None:
    async with connect(host) as client:
        for source, name in models.items():
            target = f"127.0.0.1:{port}/{name}:1"
            await client.copy(source, target)
            async for _ in await client.push(target, insecure=True, stream=True):
                pass
            await client.delete(target)


def there(running: Daemon) -> set[str]:
    with Peer(running.endpoint) as peer:
        host = peer.ask("info")["ollama"]["host"]

    async def names() -> set[str]:
        async with connect(host) as client:
            return {str(model.model) for model in (await client.list()).models}

    return asyncio.run(names())


def until(peer: Peer, kind: str) -> list[Event]:
    """All replies up to the next of a kind."""
    replies = [peer.reply()]
    while replies[-1]["type"] != kind:
        assert replies[-1]["type"] not in ("error", "result"), replies[-1]
        replies.append(peer.reply())
    return replies


@contextmanager
def started(folder: Path, gate: Gate, **given: Any) -> Iterator[tuple[Daemon, Peer]]:
    """A daemon with an Ollama of its own."""
    settings = {**QUICK, "model_registry": f"127.0.0.1:{gate.port}", "ollama_host": "", **given}
    with daemon(folder, **settings) as running, Peer(running.endpoint) as peer:
        peer.socket.setsockopt(zmq.RCVTIMEO, 1000 * SLOW_S)
        assert peer.ask("models", ensure=True)["type"] == "models"
        yield running, peer


async def test_what_a_registry_has_is_read_from_its_files(stocked: Gate) -> None:
    found, trouble = await registry_models(f"127.0.0.1:{stocked.port}")
    assert trouble == ""
    by_name = {offer.model.name.rpartition("/")[2]: offer.model for offer in found}
    assert by_name.keys() == {"worker:1", "talker:1"}
    worker, talker = by_name["worker:1"], by_name["talker:1"]
    assert (worker.can.tools, worker.can.thinks, worker.can.vision, worker.can.context, worker.can.chats) == (
        True,
        True,
        False,
        CONTEXT,
        True,
    )
    assert (talker.can.tools, talker.can.thinks) == (False, False)
    assert worker.bytes > 1_000_000
    assert worker.can.parameters


async def test_a_registry_that_does_not_answer_is_said_and_no_fault() -> None:
    assert "127.0.0.1:9 does not say what it has" in (await registry_models("127.0.0.1:9")).trouble


@pytest.mark.timeout(600)
def test_it_asks_pulls_probes_goes_on_and_is_taken_back(tmp_path: Path, stocked: Gate, ollama_binary: Path) -> None:
    name = f"127.0.0.1:{stocked.port}/house/worker:1"
    with started(tmp_path / "data", stocked) as (running, peer):
        before = there(running)
        peer.send(
            "submit", id="m1", brief="Say hello to my cat", persona="robin", flavour="full", needs=["tools"], may_ask=True, watch=True
        )
        asked = until(peer, "needs_input")[-1]["question"]
        assert name in asked
        assert "the registry 127.0.0.1" in asked
        peer.send("answer", id="m1", text="yes", ref="a")
        end = until(peer, "result")[-1]
        assert end["state"] == "COMPLETE", end
        assert end["result"]["text"].startswith("Hello there")
        assert end["result"]["provided"]["model"] == name
        assert all(model.startswith("batos/robin:") for model in end["result"]["usage"]["models"])
        assert there(running) > before | {name}
        undone = peer.ask("undo_change", number=1)
        assert name in undone["models"]
        assert there(running) == before
        assert running.terminate() == 0
    assert running.noise == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_in_the_middle_of_the_pull_it_goes_on_and_cancelled_nothing_is_left(
    tmp_path: Path, stocked: Gate, ollama_binary: Path
) -> None:
    name, data = f"127.0.0.1:{stocked.port}/house/worker:1", tmp_path / "data"
    own = {**BY_ITSELF, "autotelic_models": name}
    try:
        with started(data, stocked, **own) as (running, peer):
            before, blobs = there(running), data / "ollama" / "models" / "blobs"
            files = {path.name for path in blobs.iterdir()}
            stocked.hold_after(4_000_000)
            peer.send("submit", id="m1", brief="Say hello to my cat", persona="robin", needs=["thinking"], watch=True)
            until(peer, "provision")
            running.kill()
        stocked.open()
        with started(data, stocked, **own) as (running, peer):
            end = peer.result("m1")
            assert end["result"]["provided"] == {**end["result"]["provided"], "model": name, "change": 1}
            assert end["result"]["text"].startswith("Hello there")
            peer.ask("undo_change", number=1)
            assert there(running) == before
            stocked.hold_after(4_000_000)
            peer.send("submit", id="m2", brief="Say hello again", persona="robin", needs=["tools"], may_ask=True, watch=True)
            until(peer, "needs_input")
            peer.send("answer", id="m2", text="yes", ref="a")
            until(peer, "provision")
            peer.send("pause", id="m2", ref="p")
            while peer.reply().get("ref") != "p":
                pass
            peer.send("cancel", id="m2", ref="c")
            while (told := peer.reply())["type"] != "result":
                pass
            assert told["error"]["code"] == "cancelled"
            for _ in range(2):  # the first was that of the undo
                running.logged("model_cleared")
            assert there(running) == before
            assert {path.name for path in blobs.iterdir()} == files, "nothing half"
            assert running.terminate() == 0
    finally:
        stocked.open()
