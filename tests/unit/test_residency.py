"""Residency on a scripted Ollama: sizes and the budget, who is unloaded, grouping, preloading, and what is told of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from batos.app.kernel import Kernel
from batos.bridge.admission import Fairness, Load, Ticket, session
from batos.bridge.client import OllamaInference, connect
from batos.bridge.client_library import AsyncClient
from batos.bridge.inference import ChatRequest, Inference
from batos.bridge.residency import Expected, Preloader, Residency, ResidentInference
from batos.errors import InferenceFailed
from batos.mind.router import PersonaForecast
from batos.testing import ScriptedOllama
from batos.testing.models import Model, sha256
from tests.support.daemon import note_built, provisioned
from tests.support.missions import WAIT_S, settings, submit

MB = 1_000_000
OPTIONS = {"num_ctx": 2048, "num_predict": 16}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class House:
    """A scripted Ollama with models of given sizes, and a bridge in front of it."""

    def __init__(self, server: ScriptedOllama, client: Any, budget: int) -> None:
        self.server, self.clock = server, Clock()
        self.residency = Residency(client, budget, OPTIONS, Fairness(64, 60, self.clock))
        self.inner = OllamaInference(server.host, 4, OPTIONS)
        self.inference = ResidentInference(self.inner, self.residency)

    @property
    def there(self) -> set[str]:
        return set(self.server.runners.listed())

    async def chat(self, model: str, user: str = "Hello", **options: Any) -> None:
        self.clock.now += 1.0
        request = ChatRequest(model, "", user, options=tuple(sorted({**OPTIONS, **options}.items())))
        await self.inference.chat(request, deadline_s=WAIT_S)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not true():
                await asyncio.sleep(0.005)


def expert(name: str, weights: str = "base") -> Model:
    return Model(weights=sha256(weights.encode()), adapters=(sha256(name.encode()),))


@contextlib.asynccontextmanager
async def house(budget: int = 1000 * MB, **sizes: int) -> AsyncIterator[House]:
    """Models of these sizes, in MB, each with weights of its own."""
    with ScriptedOllama([*sizes]) as server:
        server.runners.sizes.update({f"{name}:latest": size * MB for name, size in sizes.items()})
        async with connect(server.host) as client:
            made = House(server, client, budget)
            try:
                yield made
            finally:
                await made.residency.close()
                await made.inner.close()


async def test_the_least_recently_used_makes_room() -> None:
    async with house(700 * MB, a=300, b=300, c=300) as it:
        for model in ("a", "b", "a", "c"):
            await it.chat(model)
        assert it.there == {"a:latest", "c:latest"}
        facts = it.residency.facts()
        assert (facts["loads"], facts["unloads"], facts["bytes"], facts["resident"]) == (3, 1, 600 * MB, ["a", "c"])
        await it.chat("a")
        assert it.server.runners.loads == ["a:latest", "b:latest", "c:latest"]


async def test_what_generates_is_not_unloaded_and_what_does_not_fit_beside_it_waits() -> None:
    async with house(700 * MB, a=400, b=400) as it:
        await it.chat("a")
        it.server.hold()
        first = asyncio.create_task(it.chat("a"))
        await asyncio.to_thread(it.server.wait_for, count=2)
        second = asyncio.create_task(it.chat("b"))
        await it.until(lambda: it.residency.gate.waiting == 1)
        assert it.there == {"a:latest"}
        it.server.release()
        await asyncio.gather(first, second)
        assert it.there == {"b:latest"}


async def test_an_answer_that_is_older_than_a_load_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ollama says what is in memory before a model is loaded, and is heard after its first inference has ended."""
    async with house(a=50) as it:
        it.server.hold()
        first = asyncio.create_task(it.chat("a"))
        await asyncio.to_thread(it.server.wait_for)
        ps, asked, heard = AsyncClient.ps, asyncio.Event(), asyncio.Event()

        async def late(client: AsyncClient) -> Any:
            told = await ps(client)
            asked.set()
            await heard.wait()
            return told

        monkeypatch.setattr(AsyncClient, "ps", late)
        refreshed = asyncio.create_task(it.residency.refresh())
        await asked.wait()
        it.server.release()
        await first
        heard.set()
        await refreshed
        assert it.residency.facts()["resident"] == ["a"]


async def test_a_model_larger_than_the_budget_is_said_and_tried() -> None:
    async with house(100 * MB, a=50, big=400) as it:
        await it.chat("a")
        with structlog.testing.capture_logs() as logs:
            await it.chat("big")
            await it.chat("a")
            await it.chat("big")
        told = [line for line in logs if "larger than the memory budget" in line["event"]]
        assert [(line["model"], line["bytes"], line["memory_budget_bytes"]) for line in told] == [("big", 400 * MB, 100 * MB)]
        assert it.there == {"big:latest"}


async def test_the_measured_size_corrects_the_size_of_the_files() -> None:
    async with house(700 * MB, a=200, b=200, c=200) as it:
        for model in ("a", "b", "c"):
            await it.residency.learn(model, await it.inner.digest(model))
        assert it.residency.about("b") == {"resident": False, "bytes": 200 * MB, "measured": False, "last_used": None, "loads": 0}
        it.server.runners.sizes.update({"b:latest": 450 * MB})
        await it.chat("a")
        await it.chat("c")
        await it.chat("b")  # by its files it fits beside both; it does not
        await it.until(lambda: it.there == {"b:latest", "c:latest"})
        await it.until(lambda: it.residency.facts()["bytes"] == 650 * MB)
        about = it.residency.about("b")
        assert (about["resident"], about["bytes"], about["measured"], about["loads"]) == (True, 450 * MB, True, 1)
        assert about["last_used"]


async def test_what_others_hold_counts_and_stays() -> None:
    async with house(700 * MB, a=300, theirs=300, b=300) as it:
        it.server.runners.use("theirs:latest", it.server.models["theirs:latest"])
        await it.chat("a")
        await it.chat("b")
        assert it.there == {"theirs:latest", "b:latest"}
        assert it.residency.facts()["foreign_bytes"] == 300 * MB


async def test_models_that_share_weights_share_a_runner_and_adapters_do_not() -> None:
    async with house(base=100) as it:
        shared = it.server.models["base:latest"]
        it.server.models["kind:latest"] = Model(weights=shared.weights, system="You are kind.")
        it.server.models["expert:latest"] = expert("one")
        for model in ("base", "kind", "base", "expert", "kind"):
            await it.chat(model)
        assert it.server.runners.loads == ["base:latest", "expert:latest", "kind:latest"]
        assert it.residency.facts()["loads"] == 3
        assert it.residency.about("base")["resident"]
        assert not it.residency.about("expert")["resident"]


async def test_another_context_loads_the_weights_anew() -> None:
    async with house(a=100) as it:
        for num_ctx in (2048, 1024, 1024, 2048):
            await it.chat("a", num_ctx=num_ctx)
        assert len(it.server.runners.loads) == it.residency.facts()["loads"] == 3


async def test_missions_on_experts_of_one_base_do_not_throw_each_other_out() -> None:
    async with house(base=100) as it:
        for name in "pq":
            it.server.models[f"{name}:latest"] = expert(name)

        async def mission(number: int) -> None:
            with session(Ticket((False, 0), number)):
                for _ in range(3):
                    await it.chat("pq"[number % 2])

        it.server.hold()
        missions = asyncio.gather(*(mission(number) for number in range(12)))
        # Until all are there: for one that comes when the others on its expert have ended, that one is rightly loaded again.
        await it.until(lambda: it.inner.under_way == it.residency.gate.waiting == 6)
        it.server.release()
        await missions
        assert sorted(it.server.runners.loads) == ["p:latest", "q:latest"]  # which comes first is whose digest came first


async def test_a_model_that_ollama_let_go_of_is_counted_again() -> None:
    async with house(a=100) as it:
        await it.chat("a")
        it.server.runners.drop(it.server.models["a:latest"])
        it.clock.now += 600.0
        await it.chat("a")
        assert it.residency.facts()["loads"] == 2


async def test_a_failed_inference_leaves_no_belief_behind() -> None:
    async with house(a=100) as it:
        it.server.fail("status_500", times=3)  # the request and its two repetitions
        with pytest.raises(InferenceFailed):
            await it.chat("a")
        await it.chat("a")
        assert it.server.runners.loads == ["a:latest"]
        assert it.residency.gate.idle
        assert it.residency.facts()["loads"] == 2  # asked for twice: whether the first came to memory was not known


async def test_an_ollama_that_does_not_say_what_is_in_memory_is_used_all_the_same() -> None:
    async with house(a=100) as it:
        it.server.fail("junk", times=None, path="/api/ps")
        it.server.fail("status_500", times=None, path="/api/show")
        await it.chat("a")
        await it.chat("a")
        assert it.residency.load_of("a") == Load(await it.inner.digest("a"))


async def test_a_missing_model_is_a_missing_model() -> None:
    async with house(a=100) as it:
        with pytest.raises(InferenceFailed) as failed:
            await it.chat("nobody")
        assert failed.value.cause == "model_missing"
        assert it.residency.gate.idle


async def test_embeddings_take_their_turn() -> None:
    async with house(300 * MB, a=200, embedder=200) as it:
        await it.chat("a")
        for _ in range(2):
            assert len(await it.inference.embed("embedder", ["one", "two"], deadline_s=WAIT_S)) == 2
        assert it.there == {"embedder:latest"}
        assert it.residency.facts()["loads"] == 2


# --- preloading


class Fortune:
    """What is expected, as a test wants it."""

    def __init__(self, it: House, needed: str = "", likely: str = "") -> None:
        self.expected = Expected(needed.split(), likely.split())
        it.residency.preloader = Preloader(it.residency, 0.01, lambda: self.expected)
        self.residency = it.residency

    async def over(self) -> None:
        preloader = self.residency.preloader
        assert preloader is not None
        async with asyncio.timeout(WAIT_S):
            await preloader.settled()


async def learned(it: House, *models: str) -> None:
    await it.residency.learn_all(models)


async def test_the_next_model_is_loaded_in_a_pause() -> None:
    async with house(700 * MB, a=200, b=200, c=400) as it:
        await learned(it, "a", "b", "c")
        fortune = Fortune(it, needed="b", likely="c")
        await it.chat("a")
        await fortune.over()
        assert it.there == {"b:latest", "c:latest"}  # a is expected by nobody
        assert it.residency.facts()["preloads"] == 2
        await it.chat("b")
        assert it.server.runners.loads == ["a:latest", "b:latest", "c:latest"]


async def test_nothing_is_preloaded_over_what_waiting_missions_need_or_what_is_likelier() -> None:
    async with house(700 * MB, a=400, b=400, base=100) as it:
        it.server.models["expert:latest"] = expert("one")
        await learned(it, "a", "b", "base", "expert")
        await it.chat("base")
        fortune = Fortune(it, needed="a", likely="b base expert")
        await it.chat("a")
        await fortune.over()
        assert it.there == {"a:latest", "base:latest"}
        assert it.residency.facts()["preloads"] == 0


@pytest.mark.parametrize(("wanted", "loads"), [("c", ["a", "c"]), ("b", ["a", "b"])])
async def test_a_request_does_not_wait_for_a_preload(wanted: str, loads: list[str]) -> None:
    async with house(700 * MB, a=200, b=200, c=200) as it:
        await learned(it, "a", "b", "c")
        Fortune(it, likely="b")
        await it.chat("a")
        it.server.hold()
        await asyncio.to_thread(it.server.wait_for, "/api/generate")
        chat = asyncio.create_task(it.chat(wanted))
        if wanted == "c":  # another model: what is being loaded is given up
            await asyncio.to_thread(it.server.wait_abandoned)
        it.server.release()
        await chat
        assert it.server.runners.loads == [f"{name}:latest" for name in loads]


async def test_closing_gives_up_a_preload() -> None:
    async with house(700 * MB, a=200, b=200) as it:
        await learned(it, "a", "b")
        Fortune(it, likely="b")
        await it.chat("a")
        it.server.hold()
        await asyncio.to_thread(it.server.wait_for, "/api/generate")
        await it.residency.close()
        await asyncio.to_thread(it.server.wait_abandoned)
        assert it.there == {"a:latest"}


def test_who_comes_next() -> None:
    foresight = PersonaForecast()
    assert foresight.likely() == []
    for persona in ("robin", "brick") * 5:
        foresight.note(persona)
    assert foresight.likely() == ["robin"]
    for persona in ("babs", "brick") * 20:
        foresight.note(persona)
    assert foresight.likely() == ["babs"]  # the past fades


# --- in the daemon


@contextlib.asynccontextmanager
async def daemon(server: ScriptedOllama, folder: Path, **more: Any) -> AsyncIterator[Kernel]:
    note_built(provisioned(server).host, folder / "ollama")
    kernel = await Kernel.start(settings(folder, ollama_host=server.host, remember="off", **more), listen=False)
    try:
        await kernel.models_settled()
        yield kernel
    finally:
        await kernel.stop()


PERSONAS = ("robin", "brick", "babs", "alfred")


def with_experts(server: ScriptedOllama) -> Callable[[Kernel], Awaitable[Any]]:
    """Give each persona a model with an adapter of its own."""
    for name in PERSONAS:
        server.models[f"{name}:expert-v1"] = expert(name)

    def change(root: Any) -> None:
        for name in PERSONAS:
            root["lobby"]._slots[name].model = f"{name}:expert-v1"

    return lambda kernel: kernel.image.system(change)


@pytest.mark.parametrize(("group_missions", "most", "least"), [(64, 8, 4), (1, 24, 14)])
async def test_the_daemon_groups_its_missions(tmp_path: Path, group_missions: int, most: int, least: int) -> None:
    with ScriptedOllama() as server:
        experts = with_experts(server)
        async with daemon(server, tmp_path, group_missions=group_missions, group_wait_s=600, preload_idle_s=0) as kernel:
            await experts(kernel)
            server.hold()  # all are there to be grouped, however slow the machine is
            heard = [await submit(kernel, f"m{i}", persona=PERSONAS[i % 4]) for i in range(24)]
            server.release()
            for mission in heard:
                assert (await mission.end())["state"] == "COMPLETE"
            loads = [name for name in server.runners.loads if name.endswith("expert-v1")]
            assert least <= len(loads) <= most
            facts = kernel.info()["residency"]
            assert facts["loads"] == len(server.runners.loads)
            assert facts["waiting"] == 0


async def test_info_and_models_say_what_is_in_memory(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        server.runners.sizes.update(dict.fromkeys(server.models, 5 * MB))
        async with daemon(server, tmp_path, preload_idle_s=0) as kernel:
            await (await submit(kernel, "m1", persona="robin")).end()
            # one runner for all four, under the name that had it last: the mission's, or that of who is likely to come next
            assert set(kernel.info()["residency"]["resident"]) & {f"{name}:embedded" for name in ("robin", "brick", "babs", "alfred")}
            await kernel.substrate.models.refresh()
            listed = {m["name"]: m for m in kernel.substrate.models.listed()}
            facts = {name: (m["resident"], m["bytes"], m["loads"]) for name, m in listed.items() if "resident" in m}
            assert facts["robin:embedded"] == (True, 5 * MB, 1)
            assert facts["brick:embedded"] == facts["robin:embedded"]  # they differ by their system message only


async def test_a_restarted_daemon_knows_who_comes_next(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        experts = with_experts(server)
        async with daemon(server, tmp_path, preload_idle_s=0) as kernel:
            await experts(kernel)
            for i, persona in enumerate(("robin", "brick", "robin", "brick", "robin")):
                await (await submit(kernel, f"m{i}", persona=persona)).end()
        server.runners.drop(expert("robin"))
        async with daemon(server, tmp_path, preload_idle_s=0.01) as kernel:
            await (await submit(kernel, "last", persona="brick")).end()
            async with asyncio.timeout(WAIT_S):
                while "robin:expert-v1" not in server.runners.listed() or not kernel.info()["residency"]["preloads"]:
                    await asyncio.sleep(0.01)


def test_the_bridge_is_an_inference() -> None:
    assert issubclass(ResidentInference, Inference)
