"""A model that is to be pulled before a persona may have it: within its budget, noted before it is begun, gone where it is not taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import changes, schema
from batos.autotelic.budget import Budget, DaySpending
from batos.autotelic.change_preparation import ModelPreparation
from batos.bridge.downloads import TOO_LARGE
from batos.bridge.inference import ChatRequest
from batos.bridge.model_status import ModelStatus
from tests.support.autonomy import BRIEFS, improving, listed, recorded, stepped, thought, varied
from tests.support.missions import FakeInference, answer

NEW = "small:1b"
PULLED = ModelStatus(NEW, "pulled")


class Store:
    """An Ollama's models, and what a pull of another one comes to."""

    def __init__(self, outcome: ModelStatus = PULLED, size: int = 600) -> None:
        self.there: set[str] = set()
        self.outcome, self.size = outcome, size
        self.fetched: list[tuple[str, int]] = []
        self.layer = 0  # bytes of it that have come whole, before `begins`
        self.begins: Callable[[], None] = lambda: None

    async def has(self, name: str) -> bool:
        return name in self.there

    async def fetch(self, name: str, most: int, whole: Callable[[int], object] = lambda size: None) -> tuple[ModelStatus, int]:
        self.fetched.append((name, most))
        if self.layer:
            whole(self.layer)
        self.begins()
        if self.size > most:
            return ModelStatus(name, "failed", "it takes more", "", TOO_LARGE), 0
        if self.outcome.ready:
            self.there.add(name)
        return self.outcome, self.size

    async def discard(self, name: str) -> None:
        self.there.discard(name)


def equip(kernel: Kernel, store: Store, limit: int = 1000) -> Budget:
    improver = kernel.improving.improver
    assert improver is not None
    budget = Budget(kernel.image, DaySpending(1e9, 1440, 1e9, 100, limit))
    improver.preparations = {"model": ModelPreparation(kernel.image, store, budget)}
    return budget


def inferring() -> FakeInference:
    inference = FakeInference()
    inference.digests[NEW] = "e" * 64
    return inference


def lively(request: ChatRequest) -> str:
    """The new model says something else each time."""
    return varied(lambda asked: asked.model == NEW)(request)


def spoken(kernel: Kernel) -> str:
    return str(kernel.image.read(lambda root: root["lobby"].robin.model))


async def test_a_better_model_is_pulled_tried_and_taken_and_one_command_goes_back(tmp_path: Path) -> None:
    inference, store = inferring(), Store()
    inference.say = lively
    async with improving(tmp_path, inference, autotelic_models=(NEW,)) as kernel:
        budget = equip(kernel, store)
        await thought(kernel, *BRIEFS)
        before = spoken(kernel)
        await recorded(kernel, "model", "robin", NEW)
        (change,) = await stepped(kernel)
        assert change["state"] == changes.PROMOTED, change["reason"]
        assert store.fetched == [(NEW, 1000)]
        assert change["comparison"]["prepared"] == {"model": NEW, "bytes": 600, "there": True}
        assert change["comparison"]["changed"]["cem"] > change["comparison"]["without"]["cem"]
        assert change["comparison"]["paid"]["inferences"] == sum(request.model == NEW for request in inference.asked), "real ones"
        assert (spoken(kernel), await budget.may_pull()) == (NEW, 400)
        await thought(kernel, "I feel stuck again", prefix="n")
        assert inference.asked[-1].model == NEW
        await kernel.undoing.undo_change(1, "a user said so")
        assert (spoken(kernel), store.there) == (before, {NEW})


async def test_observed_it_pulls_nothing_and_tries_others_meanwhile(tmp_path: Path) -> None:
    inference, store = inferring(), Store()
    async with improving(tmp_path, inference, autotelic_models=(NEW,), autotelic="observe") as kernel:
        equip(kernel, store)
        await thought(kernel, *BRIEFS)
        await recorded(kernel, "model", "robin", NEW)
        await recorded(kernel, "facet", "robin.dull_facet_", "Say what everybody says about it.")
        facet, model = await stepped(kernel)
        assert (facet["state"], model["state"]) == (changes.REFUSED, changes.PROPOSED)
        assert (model["comparison"], store.fetched) == ({}, [])


async def test_a_model_that_is_not_better_goes_again(tmp_path: Path) -> None:
    inference, store = inferring(), Store()
    async with improving(tmp_path, inference, autotelic_models=(NEW,)) as kernel:
        equip(kernel, store)
        await thought(kernel, *BRIEFS)
        await recorded(kernel, "model", "robin", NEW)
        (change,) = await stepped(kernel)
        assert (change["state"], change["reason"]) == (changes.REFUSED, "nothing gets better")
        assert (change["comparison"]["prepared"]["model"], store.there) == (NEW, set())
        store.there.add(NEW)  # somebody has pulled it himself
        await recorded(kernel, "model", "brick", NEW)
        assert (await stepped(kernel))[0]["state"] == changes.REFUSED
        assert store.there == {NEW}
        assert len(store.fetched) == 1


async def test_a_model_that_is_slower_than_it_may_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference, store = inferring(), Store()
    inference.say = lively
    async with improving(tmp_path, inference, autotelic_models=(NEW,)) as kernel:
        equip(kernel, store)
        await thought(kernel, *BRIEFS)
        chat = inference.chat

        async def slow(request: ChatRequest, **more: Any) -> Any:
            return dataclasses.replace(await chat(request, **more), total_ms=9000.0)

        monkeypatch.setattr(inference, "chat", slow)
        await recorded(kernel, "model", "robin", NEW)
        (change,) = await stepped(kernel)
        assert "s of model time, 0.0 s before" in change["reason"]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (ModelStatus(NEW, "failed", "no such model", "ask for another", "registry"), "could not be had: no such model"),
        (ModelStatus(NEW, "failed", "no room on disk", "free some", "disk_full"), "no room on disk"),
    ],
    ids=["registry", "disk"],
)
async def test_a_model_that_cannot_be_had_is_refused(tmp_path: Path, outcome: ModelStatus, words: str) -> None:
    async with improving(tmp_path, inferring(), autotelic_models=(NEW,)) as kernel:
        equip(kernel, Store(outcome, 10))
        await thought(kernel, *BRIEFS)
        await recorded(kernel, "model", "robin", NEW)
        (change,) = await stepped(kernel)
        assert change["state"] == changes.REFUSED
        assert words in change["reason"]


async def test_one_that_is_too_large_for_today_waits_and_one_too_large_for_any_day_is_refused(tmp_path: Path) -> None:
    store = Store()
    async with improving(tmp_path, inferring(), autotelic_models=(NEW,)) as kernel:
        budget = equip(kernel, store)
        await thought(kernel, *BRIEFS)
        await budget.pulled(500)
        await recorded(kernel, "model", "robin", NEW)
        assert (await stepped(kernel))[0]["state"] == changes.PROPOSED
        assert store.fetched == [(NEW, 500)], "once, and it waits"
        await budget.pulled(500)
        assert (await stepped(kernel))[0]["state"] == changes.PROPOSED
        assert len(store.fetched) == 1, "nothing is left of the day"
        assert kernel.image.read(lambda root: dict(schema.part_of(root, "rehearsals").begun)) == {1: 0}
        equip(kernel, store, 2000)
        store.size = 5000
        await stepped(kernel)
        await budget.pulled(-1000)
        assert (await stepped(kernel))[0]["state"] == changes.REFUSED


async def test_while_no_ollama_answers_it_waits(tmp_path: Path) -> None:
    store = Store(ModelStatus(NEW, "waiting", "nobody answers", "", "unreachable"), 0)
    async with improving(tmp_path, inferring(), autotelic_models=(NEW,)) as kernel:
        equip(kernel, store)
        await thought(kernel, *BRIEFS)
        await recorded(kernel, "model", "robin", NEW)
        assert (await stepped(kernel))[0]["state"] == changes.PROPOSED
        assert len(store.fetched) == 1


async def test_killed_in_the_pull_the_next_daemon_knows_whose_model_it_is(tmp_path: Path) -> None:
    store = Store()

    def dies() -> None:
        store.there.add(NEW)  # the pull itself came to its end
        raise SystemError("killed")

    store.begins, store.layer = dies, 400
    async with improving(tmp_path, inferring(), autotelic_models=(NEW,)) as kernel:
        equip(kernel, store)
        await thought(kernel, *BRIEFS)
        await recorded(kernel, "model", "robin", NEW)
        with pytest.raises(SystemError):
            await stepped(kernel)
        assert listed(kernel)[0]["comparison"]["prepared"] == {"model": NEW, "bytes": 0, "there": False}
    store.begins, store.size, store.layer = lambda: None, 0, 0
    async with improving(tmp_path, inferring(), autotelic_models=(NEW,)) as kernel:
        budget = equip(kernel, store)
        assert await budget.may_pull() == 600, "what came whole before the kill is counted: nothing tells of it later"
        (change,) = await stepped(kernel)
        assert (change["state"], store.there) == (changes.REFUSED, set()), "it knows that it was not there before"


async def test_what_was_counted_layer_by_layer_is_counted_once(tmp_path: Path) -> None:
    store = Store()
    store.layer = 500
    async with improving(tmp_path, inferring(), autotelic_models=(NEW,)) as kernel:
        budget = equip(kernel, store)
        await thought(kernel, *BRIEFS)
        await recorded(kernel, "model", "robin", NEW)
        (change,) = await stepped(kernel)
        assert (change["comparison"]["prepared"]["bytes"], await budget.may_pull()) == (600, 400)


async def test_what_is_not_on_the_list_is_no_proposal_and_a_voice_goes_before_any_model(tmp_path: Path) -> None:
    async with improving(tmp_path, inferring(), autotelic_models=(NEW,)) as kernel:
        store = Store()
        equip(kernel, store)
        await thought(kernel, *BRIEFS)
        await recorded(kernel, "model", "robin", "large:70b")
        assert "may not be pulled (setting autonomy.models)" in (await stepped(kernel))[0]["reason"]

        def speaks(root: Any) -> None:
            root["lobby"].robin.voice = "robin:gentle-v1"

        await kernel.image.system(speaks)
        await recorded(kernel, "model", "robin", NEW)
        assert "speaks with the expert robin:gentle-v1" in (await stepped(kernel))[0]["reason"]
        assert store.fetched == []


def test_the_usual_model_says_nothing_new() -> None:
    request = ChatRequest("robin:embedded", "s", "u", None, ())
    assert lively(request) == answer(request)
