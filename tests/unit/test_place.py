"""Several Ollamas, each with its own models, memory and turns."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from batos.bridge.admission import Fairness, Ticket, session
from batos.bridge.client import OllamaInference, connect
from batos.bridge.failures import RetryPolicy
from batos.bridge.hosts import Hosts, ManagedHost, ManagedHosts
from batos.bridge.inference import ChatRequest
from batos.bridge.model_management import ModelManager
from batos.bridge.profiles import BaseModelSource, Profile
from batos.bridge.provisioning import Provisioner
from batos.bridge.residency import Residency
from batos.errors import InferenceFailed, ProvisioningFailed
from batos.testing import ScriptedOllama
from batos.testing.models import Model, base, sha256
from tests.support.missions import WAIT_S

PLENTY = 10_000_000_000
OPTIONS = {"num_ctx": 2048, "num_predict": 16}
QUICK = RetryPolicy(inference_retries=0, inference_backoff_s=0.01, breaker_failures=1, breaker_probe_s=0.02)
SMALL = BaseModelSource(name="small:test", package="batos", root="bridge", files=("launcher.py",))
PROFILE = Profile(name="test", models=(SMALL,), embedder="small:test", dimensions=3, personas={"robin": "robin:test"}, options={})


@pytest.fixture
def one() -> Iterator[ScriptedOllama]:
    with ScriptedOllama(models=()) as server:
        yield server


@pytest.fixture
def two() -> Iterator[ScriptedOllama]:
    with ScriptedOllama(models=()) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "robin.Modelfile").write_text("FROM small:test\nSYSTEM You are ROBIN.\n")
    return tmp_path


@asynccontextmanager
async def made(folder: Path, *servers: ScriptedOllama) -> AsyncIterator[list[ManagedHost]]:
    fairness = Fairness(64, 60)
    clients = [connect(server.host) for server in servers]
    places = [
        ManagedHost(
            OllamaInference(server.host, 4, OPTIONS, QUICK),
            Residency(client, PLENTY, OPTIONS, fairness),
            Provisioner(client, PROFILE, folder),
        )
        for server, client in zip(servers, clients, strict=True)
    ]
    try:
        yield places
    finally:
        for place, client in zip(places, clients, strict=True):
            await place.close()
            await client.close()


def over(places: list[ManagedHost]) -> Hosts[ManagedHost]:
    return Hosts(places, wait_s=WAIT_S, switch_s=0, look_s=0.02, crowded=lambda place, model: place.crowded(model))


def ask(model: str) -> ChatRequest:
    return ChatRequest(model, "", "Hello", options=tuple(sorted(OPTIONS.items())))


def experts(*servers: ScriptedOllama) -> None:
    """Two adapters on one base, at each: they throw each other out of one memory."""
    for server in servers:
        for name in ("knight", "weaver"):
            server.models[f"{name}:latest"] = Model(sha256(b"base"), adapters=(sha256(name.encode()),))


# --- models


async def test_a_model_that_was_made_anew_is_known_by_its_new_digest_at_once(one: ScriptedOllama, folder: Path) -> None:
    """Answers are kept under the digest: one of a second ago would have them paid for again at the next start."""
    one.models["robin:test"] = base("robin:test")  # of an earlier version: it is built anew
    one.fail("slow", path="/api/create", when=lambda request: request.get("model") == "robin:test", seconds=0.1)
    async with made(folder, one) as places:
        provisioned = asyncio.create_task(places[0].provisioner.ensure())
        await places[0].provisioner.ready("small:test")
        old = await places[0].digest("robin:test")  # as anybody's question for another model does
        await provisioned
        assert await places[0].digest("robin:test") == one.models["robin:test"].digest != old
        one.models["robin:test"] = Model(sha256(b"an expert"))
        await places[0].made("robin:test")
        assert await places[0].digest("robin:test") == one.models["robin:test"].digest


async def test_each_has_the_models_of_the_profile(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    async with made(folder, one, two) as places:
        models = ModelManager(lambda: "test", places)
        events: list[dict[str, Any]] = []
        models.watch(events.append)
        told = await models.ensure()
        assert {(m["name"], m["host"], m["state"]) for m in told["models"]} == {
            (name, server.host, "created") for name in ("small:test", "robin:test") for server in (one, two)
        }
        assert {event["host"] for event in events} == {one.host, two.host}
        assert one.models["robin:test"].digest == two.models["robin:test"].digest
        await models.settled()
        await models.refresh()
        assert not models.describe(["robin"])["under_way"]


async def test_one_that_has_it_is_enough(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    """Whichever of the two has it, and whatever is in the other's way."""
    one.fail("full", times=None, path="/api/create")
    async with made(folder, one, two) as places:
        everywhere = ManagedHosts(places, 0)
        waiting = asyncio.create_task(everywhere.ready("robin:test"))
        await asyncio.gather(*(place.provisioner.ensure() for place in places))
        await asyncio.wait_for(waiting, WAIT_S)
        await everywhere.ready("robin:test")
        assert (await over(places).chat(ask("robin:test"), deadline_s=WAIT_S)).text
        assert (len(one.chats), len(two.chats)) == (0, 1)


async def test_where_nobody_can_have_it_the_first_says_why(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    one.fail("full", times=None, path="/api/create")
    two.fail("status_500", times=None, path="/api/create")
    async with made(folder, one, two) as places:
        await asyncio.gather(*(place.provisioner.ensure() for place in places))
        with pytest.raises(ProvisioningFailed) as failed:
            await ManagedHosts(places, WAIT_S).ready("robin:test")
        assert failed.value.cause == "disk_full"
        two.stop()
        await places[1].provisioner.ensure()
        places[1].breaker.lost("it is down")
        with pytest.raises(ProvisioningFailed):  # nobody waits for one that may never come back
            await asyncio.wait_for(ManagedHosts(places, 3600).ready("robin:test"), WAIT_S)


async def test_what_no_profile_knows_is_pulled_once(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    one.pullable.add("other:latest")
    two.models["there:latest"] = base("there")
    async with made(folder, one, two) as places:
        everywhere = ManagedHosts(places, WAIT_S)
        await everywhere.ready("there")
        await everywhere.ready("other")
        assert "other:latest" in one.models
        assert (one.counts["/api/pull"], two.counts["/api/pull"]) == (1, 0)


async def test_what_vanished_is_made_again_where_it_was(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    async with made(folder, one, two) as places:
        await asyncio.gather(*(place.provisioner.ensure() for place in places))
        for server in (one, two):
            del server.models["robin:test"]
        two.fail("full", times=None, path="/api/create")
        await ManagedHosts(places, WAIT_S).heal("robin:test")
        assert "robin:test" in one.models


# --- away


async def test_away_in_the_very_first_provisioning(one: ScriptedOllama, folder: Path) -> None:
    """Who needs a model waits; when the Ollama is back the models are seen to at once, not after the pause."""
    one.stop()
    async with made(folder, one) as (place,):
        once = asyncio.Event()
        work = asyncio.create_task(place.look_after(3600, list, once))
        waiting = asyncio.create_task(ManagedHosts([place], WAIT_S).ready("robin:test"))
        async with asyncio.timeout(WAIT_S):
            await once.wait()
            while not place.breaker.open:
                await asyncio.sleep(0.005)
        assert not waiting.done()
        assert {s.cause for s in place.provisioner.status()} == {"unreachable"}
        one.start()
        await asyncio.wait_for(waiting, WAIT_S)
        assert (await place.chat(ask("robin:test"), deadline_s=WAIT_S)).text
        work.cancel()


async def test_away_for_too_long(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    one.stop()
    two.stop()
    async with made(folder, one, two) as places:
        work = [asyncio.create_task(place.look_after(3600, list, asyncio.Event())) for place in places]
        with pytest.raises(InferenceFailed) as failed:
            await asyncio.wait_for(ManagedHosts(places, 0.3).ready("robin:test"), WAIT_S)
        assert (failed.value.cause, failed.value.may_retry) == ("breaker", True)
        for task in work:
            task.cancel()


async def test_broken_off_and_gone_is_away(one: ScriptedOllama, folder: Path) -> None:
    """An Ollama that dies while it makes a model has not refused it."""
    one.fail("hang", times=1, path="/api/create")
    async with made(folder, one) as (place,):
        work = asyncio.create_task(place.look_after(3600, list, asyncio.Event()))
        await asyncio.to_thread(one.wait_for, "/api/create", 1)
        await asyncio.to_thread(one.stop)
        async with asyncio.timeout(WAIT_S):
            while not place.breaker.open:
                await asyncio.sleep(0.005)
        one.start()
        await asyncio.wait_for(place.provisioner.ready("robin:test"), WAIT_S)
        work.cancel()


# --- memory


async def test_two_memories_hold_what_one_cannot(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    """Missions on two experts go on side by side, each where its expert is loaded, however busy that one is."""
    experts(one, two)
    async with made(folder, one, two) as places:
        hosts = over(places)
        one.hold()
        with session(Ticket((False, 0), 1)):
            busy = [asyncio.create_task(hosts.chat(ask("knight"), deadline_s=WAIT_S))]
            await asyncio.to_thread(one.wait_for, "/api/chat", 1)
            with session(Ticket((False, 0), 2)):
                await hosts.chat(ask("weaver"), deadline_s=WAIT_S)
                with session(Ticket((False, 0), 3)):
                    busy += [asyncio.create_task(hosts.chat(ask("knight"), deadline_s=WAIT_S)) for _ in range(2)]
                    await asyncio.to_thread(one.wait_for, "/api/chat", 3)
                    one.release()
                    await asyncio.gather(*busy)
                await hosts.chat(ask("weaver"), deadline_s=WAIT_S)
        assert [r["model"] for r in one.chats] == ["knight"] * 3
        assert [r["model"] for r in two.chats] == ["weaver"] * 2
        assert [place.residency.facts()["loads"] for place in places] == [1, 1]


async def test_one_model_is_shared_out(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    """That it is loaded at one is no reason to leave the other idle."""
    experts(one, two)
    async with made(folder, one, two) as places:
        hosts = over(places)
        one.hold()
        two.hold()
        chats = [asyncio.create_task(hosts.chat(ask("knight"), deadline_s=WAIT_S)) for _ in range(4)]
        await asyncio.to_thread(one.wait_for, "/api/chat", 2)
        await asyncio.to_thread(two.wait_for, "/api/chat", 2)
        assert [place.under_way for place in places] == [2, 2]
        one.release()
        two.release()
        await asyncio.gather(*chats)
        assert [place.under_way for place in places] == [0, 0]


async def test_each_measures_its_own_memory(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    """What is unloaded to make room in one stays loaded in the other."""
    for server in (one, two):
        for name in ("a:latest", "b:latest"):
            server.models[name] = base(name)
            server.runners.sizes[name] = PLENTY // 2 + 1
    async with made(folder, one, two) as places:
        for place, models in zip(places, (("a", "b"), ("a",)), strict=True):
            for model in models:
                await place.chat(ask(model), deadline_s=WAIT_S)
            await place.residency.refresh()
        assert [place.residency.facts()["resident"] for place in places] == [["b"], ["a"]]
        assert [place.residency.facts()["unloads"] for place in places] == [1, 0]


async def test_other_weights_elsewhere_are_passed_over(one: ScriptedOllama, two: ScriptedOllama, folder: Path) -> None:
    experts(one, two)
    two.models["knight:latest"] = dataclasses.replace(two.models["knight:latest"], system="another")
    async with made(folder, one, two) as places:
        hosts = over(places)
        for _ in range(3):
            await hosts.chat(ask("knight"), deadline_s=WAIT_S)
        assert (len(one.chats), len(two.chats)) == (3, 0)
        assert hosts.facts()[1]["differs"] == ["knight:latest"]
