"""What goes wrong with a real Ollama of the test's own: killed, stopped, cancelled, without room."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from batos.bridge.client import OllamaInference, connect
from batos.bridge.downloads import DiskSpace
from batos.bridge.failures import RetryPolicy
from batos.bridge.inference import ChatRequest, ReadyInference
from batos.bridge.ollama_server import OllamaService, ProcessNote
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.config import Settings, load
from batos.errors import InferenceFailed, ProvisioningFailed
from tests.support import ollama_fixture
from tests.support.daemon import Peer, daemon
from tests.support.programs import cpu_ticks

NOBODY = "127.0.0.1:1"  # no Ollama of the machine's is used: the tests start their own
ROOM = 8 * 1024 * 1024  # bytes; the embedded models need a hundred times that
COUNT = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 9}, "minItems": 900}
"""The schema of an answer that takes the embedded model half a minute."""


@pytest.fixture
def models(tmp_path: Path, ollama_host: str) -> Path:
    """A data folder whose Ollama has the embedded models already."""
    ollama_fixture.copy_models(tmp_path / "ollama" / "models")
    return tmp_path


def settings(folder: Path) -> Settings:
    return load({"data": str(folder), "ollama_host": NOBODY, "inference_concurrency": 1}, environ={})


@pytest.fixture
async def service(models: Path, ollama_binary: Path) -> AsyncIterator[OllamaService]:
    made = OllamaService(settings(models))
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def inference(service: OllamaService) -> AsyncIterator[OllamaInference]:
    made = OllamaInference(service.host, 1, policy=RetryPolicy(breaker_probe_s=0.05))
    yield made
    await made.close()


def ask(user: str, num_predict: int, **more: object) -> ChatRequest:
    options = (("num_ctx", 2048), ("num_predict", num_predict), ("seed", 1), ("temperature", 0.0))
    return ChatRequest("robin:embedded", "", user, options=options, **more)  # type: ignore[arg-type]


def used_by(service: OllamaService) -> int:
    """What the server and its runners have used of the processor, in clock ticks."""
    assert service.pid is not None
    return cpu_ticks(ProcessNote.of(service.pid).members())


async def test_cancelling_stops_the_generation_on_the_server(service: OllamaService, inference: OllamaInference) -> None:
    """It has one place for inferences: the next one, and the processor, would have to wait for the first."""
    heard = 0
    begun = asyncio.Event()

    def hear(text: str) -> None:
        nonlocal heard
        heard += 1
        if heard == 5:
            begun.set()

    chat = asyncio.create_task(inference.chat(ask("Count.", 1900, schema=COUNT), deadline_s=100, on_text=hear))
    async with asyncio.timeout(90):
        await begun.wait()
        used = used_by(service)
        while used_by(service) <= used + 10:  # it works: not only the answer is under way
            await asyncio.sleep(0.05)
    assert not chat.done()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    cancelled = time.monotonic()
    assert (await inference.chat(ask("Hello", 2), deadline_s=60)).answer_tokens <= 2
    took = time.monotonic() - cancelled
    async with asyncio.timeout(90):
        idle = 0
        while idle < 5:  # a quarter of a second without a tick
            used = used_by(service)
            await asyncio.sleep(0.05)
            idle = idle + 1 if used_by(service) == used else 0
    print(f"the next answer came {took:.2f} s after the cancellation")


async def test_a_server_that_stands_still(service: OllamaService, inference: OllamaInference) -> None:
    """It takes the request and says nothing: a time-out, the breaker, and all is well when it moves again."""
    assert (await inference.chat(ask("Hello", 2), deadline_s=60)).text
    assert service.pid is not None
    os.kill(service.pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            with pytest.raises(InferenceFailed) as failed:
                await inference.chat(ask("Hello", 2), deadline_s=0.3)
            assert failed.value.cause == "timeout"
        assert inference.breaker.open
    finally:
        os.kill(service.pid, signal.SIGCONT)
    async with asyncio.timeout(90):
        await inference.breaker.closed()
    assert (await inference.chat(ask("Hello", 2), deadline_s=60)).text


async def test_killed_in_the_middle_of_an_answer(service: OllamaService, inference: OllamaInference) -> None:
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        if len(heard) == 10:
            assert service.pid is not None
            os.kill(service.pid, signal.SIGKILL)

    with pytest.raises(InferenceFailed) as failed:
        await inference.chat(ask("Count.", 900, schema=COUNT), deadline_s=60, on_text=hear)
    assert failed.value.cause == "truncated"
    assert len(heard) >= 10


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that is too small for any model."""
    folder = tmp_path / "small"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, f"size={ROOM}".encode()) != 0:
        pytest.skip(f"no file system can be mounted here: {os.strerror(ctypes.get_errno())}; the stand-in's test remains")
    yield folder
    libc.umount2(str(folder).encode(), 2)


async def test_no_room_for_a_model(full_disk: Path, tmp_path: Path, ollama_binary: Path) -> None:
    """It is told what to look for; the server and the daemon go on.

    Ollama cuts the upload short, so that its own words may be lost; where its folder is known, as the daemon's own is, it is not tried.
    """
    (tmp_path / "ollama").mkdir()
    (tmp_path / "ollama" / "models").symlink_to(full_disk)
    service = OllamaService(settings(tmp_path))
    host = await service.start()
    try:
        async with connect(host) as client:
            provisioner = Provisioner(client, load_profile("embedded"), modelfiles_folder())
            states = {status.name: status for status in await provisioner.ensure()}
            assert {status.state for status in states.values()} == {"failed"}
            assert re.search("room|space", states["smollm2:embedded"].detail + states["smollm2:embedded"].remedy)
            inference = OllamaInference(host)
            with pytest.raises(ProvisioningFailed, match=r"room|space") as failed:
                await ReadyInference(inference, ready=provisioner.ready, heal=provisioner.heal).chat(ask("Hello", 2), deadline_s=5)
            assert failed.value.cause in ("disk_full", "truncated")
            known = Provisioner(client, load_profile("embedded"), modelfiles_folder(), room=DiskSpace(service.models_folder, 0))
            assert {status.cause for status in await known.ensure()} == {"disk_full"}
            assert service.state == "running"
            await inference.close()
    finally:
        await service.stop()


@pytest.mark.long
def test_the_daemons_own_ollama_dies_in_the_middle(models: Path) -> None:
    """It is started again, and the mission goes on with what had come: nothing of it is generated again."""
    more = {"ollama_host": NOBODY, "num_predict": 100, "facets_limit": 1, "breaker_probe_s": 0.1, "depth": "facets"}
    with daemon(models, **more) as running, Peer(running.endpoint) as peer:
        peer.send("submit", id="long", brief="Tell me the long story of a lighthouse keeper and her cat", watch=True)
        heard, pieces = "", 0
        while pieces < 30:
            reply = peer.reply()
            assert reply["type"] != "result", "the answer was shorter than this test needs"
            if reply["type"] == "token" and reply["facet"] is None:
                heard, pieces = heard + reply["text"], pieces + reply["pieces"]
        os.kill(json.loads((models / "ollama" / "child.json").read_text())["pid"], signal.SIGKILL)
        end = peer.until_result()[-1]
        assert end["state"] == "COMPLETE", end
        assert end["result"]["text"].startswith(heard.strip())
        assert end["result"]["usage"]["replayed"] >= 2  # the plan, however often it was asked for, and the facet
        assert peer.ask("status", id="long")["attempts"] == 2
        info = peer.ask("info")["ollama"]
        assert (info["restarts"], info["state"]) == (1, "running")
        assert [host["answers"] for host in info["hosts"]] == [True]
        assert running.terminate() == 0
    assert running.noise == []
