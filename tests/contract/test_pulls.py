"""Pulls from a real registry into a real Ollama of the test's own, with a gate between them that counts and cuts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ollama import AsyncClient

from batos.bridge import ollama_server as service_module
from batos.bridge.client import connect
from batos.bridge.downloads import DiskSpace
from batos.bridge.ollama_server import OllamaService
from batos.bridge.profiles import BaseModelSource, Profile
from batos.bridge.provisioning import Provisioner
from batos.config import MIB, load
from batos.errors import ProvisioningFailed
from tests.support.registry import Gate, Registry, registry

MODELS = {"smollm2:embedded": "batos/smollm2:test", "minilm:embedded": "batos/minilm:test"}
SLACK = 12 * MIB  # what is on its way to the disk when a pull is broken off


class Pushed(NamedTuple):
    """A registry with the embedded models; `sizes` are their bytes."""

    server: Registry
    sizes: dict[str, int]


class Bare(NamedTuple):
    """An Ollama of the test's own, without models."""

    service: OllamaService
    client: AsyncClient


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory, ollama_host: str) -> Iterator[Pushed]:
    with registry(tmp_path_factory.mktemp("registry")) as server:
        yield Pushed(server, asyncio.run(push(ollama_host, server.port)))


async def push(host: str, port: int) -> dict[str, int]:
    async with connect(host) as client:
        sizes = {m.model: int(m.size or 0) for m in (await client.list()).models}
        for source, name in MODELS.items():
            target = f"127.0.0.1:{port}/{name}"
            await client.copy(source, target)
            async for _ in await client.push(target, insecure=True, stream=True):
                pass
            await client.delete(target)
        return {name: sizes[source] for source, name in MODELS.items()}


@pytest.fixture
async def gate(pushed: Pushed) -> AsyncIterator[Gate]:
    async with Gate(pushed.server.port) as made:
        yield made


@contextlib.asynccontextmanager
async def own_ollama(folder: Path) -> AsyncIterator[Bare]:
    service = OllamaService(load({"data": str(folder)}, environ={}))
    host = await service.start()
    try:
        async with connect(host) as client:
            yield Bare(service, client)
    finally:
        await service.stop()


@pytest.fixture
async def bare(tmp_path: Path, ollama_binary: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bare]:
    monkeypatch.setattr(service_module, "DEFAULT_HOST", "127.0.0.1:1")
    async with own_ollama(tmp_path) as made:
        yield made


def names(gate: Gate, *models: str) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{gate.port}/{name}" for name in models or MODELS.values())


def provisioner(bare: Bare, tmp_path: Path, *models: str, room: DiskSpace | None = None, note_s: float = 60) -> Provisioner:
    sources = tuple(BaseModelSource(name=name) for name in models)
    profile = Profile(name="own", models=sources, embedder=models[0], dimensions=1, personas={}, options={})
    return Provisioner(bare.client, profile, tmp_path, room=room, note_s=note_s)


def arrival(made: Provisioner, count: int) -> asyncio.Event:
    """Set once Ollama says that it has so many bytes of a layer: what has passed the gate may wait in sockets, 32 MiB in each."""
    arrived = asyncio.Event()

    def hear(event: dict[str, Any]) -> None:
        if (event.get("completed") or 0) >= count:
            arrived.set()

    made.watch(hear)
    return arrived


async def test_a_pull_reports_each_layer(pushed: Pushed, gate: Gate, bare: Bare, tmp_path: Path) -> None:
    [name] = names(gate, "batos/smollm2:test")
    made = provisioner(bare, tmp_path, name)
    events: list[dict[str, Any]] = []
    made.watch(events.append)
    [status] = await made.ensure()
    assert status.state == "pulled"
    layers = {e["layer"]: e["total"] for e in events if "total" in e}
    assert sum(layers.values()) == pytest.approx(pushed.sizes["batos/smollm2:test"], rel=0.001)
    for layer, total in layers.items():
        steps = [e["completed"] for e in events if e.get("layer") == layer and "completed" in e]
        assert steps == sorted(steps)
        assert steps[-1] == total
    assert {"pulling manifest", "verifying sha256 digest", "success"} <= {e.get("status") for e in events}
    assert events[-1] == {"type": "model", "name": name, "state": "pulled", "detail": "", "remedy": "", "cause": ""}
    assert [s.state for s in await made.ensure()] == ["present"]
    reply = await bare.client.chat(name, messages=[{"role": "user", "content": "Hi"}], options={"num_predict": 2})
    assert reply.message.content


async def test_a_broken_pull_goes_on_where_it_broke(pushed: Pushed, gate: Gate, bare: Bare, tmp_path: Path) -> None:
    [name] = names(gate, "batos/smollm2:test")
    made = provisioner(bare, tmp_path, name)
    arrived = arrival(made, 56 * MIB)
    gate.hold_after(60 * MIB)
    pulling = asyncio.create_task(made.ensure())
    await asyncio.wait_for(arrived.wait(), 90)
    await made.close()
    assert [s.state for s in await pulling] == ["failed"]
    gate.open()
    assert [s.state for s in await made.ensure()] == ["pulled"]
    assert gate.served < pushed.sizes["batos/smollm2:test"] - 60 * MIB + SLACK


async def test_a_cancelled_start_keeps_what_was_pulled(pushed: Pushed, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon is stopped in the middle of a layer, its Ollama with it. Ollama would drop the parts at its next start."""
    monkeypatch.setattr(service_module, "DEFAULT_HOST", "127.0.0.1:1")
    [name] = names(gate, "batos/smollm2:test")
    async with own_ollama(tmp_path) as bare:
        made = provisioner(bare, tmp_path, name, room=DiskSpace(bare.service.models_folder))
        arrived = arrival(made, 56 * MIB)
        gate.hold_after(60 * MIB)
        pulling = asyncio.create_task(made.ensure())
        await asyncio.wait_for(arrived.wait(), 90)
        pulling.cancel()
        await made.close()
    gate.open()
    async with own_ollama(tmp_path) as bare:
        assert [s.state for s in await provisioner(bare, tmp_path, name).ensure()] == ["pulled"]
    assert gate.served < pushed.sizes["batos/smollm2:test"] - 60 * MIB + SLACK


async def test_a_killed_ollama_goes_on_where_it_had_noted(
    pushed: Pushed, gate: Gate, bare: Bare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL in the middle of a layer: only what came since the last note is transferred again. The daemon starts Ollama anew."""
    [name] = names(gate, "batos/smollm2:test")
    events: list[dict[str, Any]] = []
    made = provisioner(bare, tmp_path, name, room=DiskSpace(bare.service.models_folder), note_s=0.1)
    made.watch(events.append)
    gate.hold_after(60 * MIB)
    pulling = asyncio.create_task(made.ensure())
    await asyncio.wait_for(gate.reached.wait(), 90)
    blobs = tmp_path / "ollama" / "models" / "blobs"
    while sum(json.loads(part.read_text() or "{}").get("Completed", 0) for part in blobs.glob("*-partial-*")) <= 50 * MIB:
        await asyncio.sleep(0.05)  # the notes are Ollama's own, one for each part of a layer
    assert bare.service.pid is not None
    os.kill(bare.service.pid, signal.SIGKILL)
    [status] = await pulling
    assert (status.state, status.cause) == ("waiting", "unreachable")
    gate.open()
    while bare.service.restarts == 0:
        await asyncio.sleep(0.05)
    assert [s.state for s in await made.ensure()] == ["pulled"]
    assert gate.served < pushed.sizes["batos/smollm2:test"] - 50 * MIB + SLACK


async def test_a_registry_that_dies_and_comes_back(pushed: Pushed, gate: Gate, bare: Bare, tmp_path: Path) -> None:
    [name] = names(gate, "batos/smollm2:test")
    made = provisioner(bare, tmp_path, name)
    arrived = arrival(made, 56 * MIB)
    gate.hold_after(60 * MIB)
    pulling = asyncio.create_task(made.ensure())
    await asyncio.wait_for(arrived.wait(), 90)
    pushed.server.kill()
    gate.open()
    await asyncio.to_thread(pushed.server.start)
    assert [s.state for s in await pulling] == ["pulled"]
    assert gate.served < pushed.sizes["batos/smollm2:test"] - 60 * MIB + SLACK


async def test_who_asked_may_go_the_pull_goes_on(pushed: Pushed, gate: Gate, bare: Bare, tmp_path: Path) -> None:
    smol, mini = names(gate)
    made = provisioner(bare, tmp_path, smol)
    gate.hold_after(20 * MIB)
    asked = [asyncio.create_task(made.ready(mini)) for _ in range(3)]
    whole = asyncio.create_task(made.ensure())
    await asyncio.wait_for(gate.reached.wait(), 90)
    asked[0].cancel()
    gate.open()
    await asyncio.gather(*asked[1:], whole)
    assert asked[0].cancelled()
    assert [s.state for s in made.status()] == ["pulled", "pulled"]
    assert gate.served < sum(pushed.sizes.values()) - 20 * MIB + 2 * SLACK  # each once


async def test_a_name_that_no_registry_has(gate: Gate, bare: Bare, tmp_path: Path) -> None:
    [lost, there] = names(gate, "batos/nothing:test", "batos/minilm:test")
    states = {s.name: s for s in await provisioner(bare, tmp_path, lost, there).ensure()}
    assert states[there].state == "pulled"
    assert states[lost].state == "failed"
    assert "file does not exist" in states[lost].detail
    assert states[lost].cause == "model_missing"
    assert f"ollama pull {lost}" in states[lost].remedy


async def test_offline_what_is_there_runs(pushed: Pushed, gate: Gate, bare: Bare, tmp_path: Path) -> None:
    smol, mini = names(gate)
    await provisioner(bare, tmp_path, mini).ensure()
    gate.cut_after(0)
    made = provisioner(bare, tmp_path, smol, mini)
    states = {s.name: s for s in await made.ensure()}
    assert (states[smol].state, states[mini].state) == ("failed", "present")
    assert "cannot pull" in states[smol].detail
    await made.ready(mini)
    with pytest.raises(ProvisioningFailed, match="see that this machine reaches the registry") as failed:
        await made.ready(smol)
    assert failed.value.cause == "registry"
    gate.open()
    assert all(s.ready for s in await made.ensure())


async def test_a_pull_that_does_not_fit_is_broken_off(pushed: Pushed, gate: Gate, bare: Bare, tmp_path: Path) -> None:
    [name] = names(gate, "batos/smollm2:test")
    made = provisioner(bare, tmp_path, name, room=DiskSpace(bare.service.models_folder, reserve=2**50))
    [status] = await made.ensure()
    assert status.state == "failed"
    assert re.search(r"\d+ MiB are needed, .* has [\d,]+ MiB free, and 1,073,741,824 MiB stay free", status.detail)
    assert "free " in status.remedy
    assert not (await bare.client.list()).models
    assert [s.state for s in await provisioner(bare, tmp_path, name, room=DiskSpace(bare.service.models_folder)).ensure()] == ["pulled"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder of data whose Ollama keeps its models on a file system of 64 MiB."""
    place = tmp_path / "ollama"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small file system; the rule itself is tested with a reserve and in test_provision_parts")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(place)], check=True)


async def test_on_a_small_disk(pushed: Pushed, gate: Gate, small_disk: Path, ollama_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits is pulled, what does not is refused. Where free disk is not known, Ollama meets the end of the disk, and lives."""
    monkeypatch.setattr(service_module, "DEFAULT_HOST", "127.0.0.1:1")
    smol, mini = names(gate)
    async with own_ollama(small_disk) as bare:
        made = provisioner(bare, small_disk, smol, room=DiskSpace(bare.service.models_folder, reserve=8 * MIB))
        assert [s.state for s in await made.ensure([mini])] == ["pulled"]
        gate.hold_after(MIB)  # else 20 MiB are full before Ollama says how large the layer is
        [refused] = await made.ensure([smol])
        gate.open()
        assert refused.state == "failed"
        assert re.search(r"\d+ MiB are needed, .*/models has \d+ MiB free", refused.detail)
        [blind] = await provisioner(bare, small_disk, smol).ensure()
        assert blind.state == "failed"
        assert "no space left on device" in blind.detail
        assert (await bare.client.embed(mini, "still here")).embeddings


async def test_a_model_may_bring_so_many_bytes_and_no_more_and_goes_again(pushed: Pushed, gate: Gate, bare: Bare, tmp_path: Path) -> None:
    [name] = names(gate, "batos/minilm:test")
    size = pushed.sizes["batos/minilm:test"]
    made = provisioner(bare, tmp_path, "nobody/needs:it", room=DiskSpace(bare.service.models_folder))
    gate.hold_after(8 * MIB)
    status, came = await made.fetch(name, size // 2)
    assert (status.state, status.cause) == ("failed", "too_large")
    assert "autonomy.pull_bytes" in status.remedy
    assert came <= gate.served < size // 2
    assert not made.knows(name)
    gate.open()
    status, more = await made.fetch(name, size)
    assert status.state == "pulled", status
    assert came + more == pytest.approx(size, rel=0.001)
    assert made.is_ready(name)
    for _ in range(2):  # what is gone is gone
        await made.discard(name)
        assert name not in {m.model for m in (await bare.client.list()).models}
    assert not made.knows(name)
