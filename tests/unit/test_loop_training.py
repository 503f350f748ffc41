"""The loop trains the expert for methods: by an idle child, as a version of its own, tried beside the one that writes, chosen or gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import change_preparation, changes, rule_proposals, writer_evaluation
from batos.autotelic.budget import Budget
from batos.autotelic.change_types import Ground
from batos.bridge.inference import ChatRequest
from batos.bridge.lora.staging import read_about
from batos.config import Settings
from batos.errors import InferenceFailed
from batos.forge import method_prompts
from batos.image import model_registry
from batos.synthesis.handbook import handbook
from batos.training.dataset import generate
from tests.support import fake_trainer
from tests.support.autonomy import fire, improving, listed, stepped
from tests.support.methods import ADD, give, sent
from tests.support.missions import WAIT_S, FakeInference, answer, written

OLD, NEW = "brick:method-writer-v1", "brick:method-writer-v2"
ON = {"loop_training_minutes": 5, "trigger_syntheses": 2, "rehearsal_tasks": 3}
TASKS = {task.prompt(example=True, book=handbook()): task.source for task in generate("validation", 1, each=1)}
SHORTER = "def add_(self, number, number2):\n    return number2 + number\n"


class Factory:
    """Builds what is staged, in the image only; `state` is what comes of it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.staging, self.state = kernel, Path(kernel.settings.lora_staging), model_registry.BUILT
        self.gone: list[str] = []
        self.away = False

    async def scan_settled(self) -> None:
        for folder in sorted(self.staging.glob("[!.]*")):
            about = read_about(folder / "expert.toml")
            if any(one["model"] == about.model and one["built"] for one in self.kernel.image.read(model_registry.describe_experts)):
                continue
            facts = {"model": about.model, "persona": "brick", "expert": about.name, "version": about.version, "base": about.base}
            facts |= {"content": folder.name, "folder": folder.name, "role": about.role, "on_choice": about.on_choice}
            await self.kernel.image.system(model_registry.intend_expert, facts)
            if self.state == model_registry.BUILT:
                await self.kernel.image.system(model_registry.note_built, about.model, "d" * 64, "r", "adapter", "")
            elif self.state == model_registry.REFUSED:
                await self.kernel.image.system(
                    model_registry.note_unusable, about.model, model_registry.REFUSED, "its tensors are of another shape"
                )

    async def discard(self, model: str, why: str) -> None:
        self.gone.append(model)
        await self.kernel.image.system(model_registry.note_unusable, model, model_registry.MISSING, why)

    def report(self) -> dict[str, Any]:
        return {"refused": []}


class Writer(FakeInference):
    """An expert that is right of what the image has, and of no other task; the new one is right as `right` says."""

    def __init__(self) -> None:
        super().__init__()
        self.digests = {OLD: "1" * 64, NEW: "2" * 64}
        self.own = {OLD: ADD, NEW: SHORTER}
        self.right: Callable[[str], bool] = lambda model: model == NEW
        self.say = self._say

    def _say(self, request: ChatRequest) -> str:
        if request.system != method_prompts.COMPACT_SYSTEM:
            return answer(request)
        asked = request.user.rpartition("\n\n")[2]  # before it stands what the handbook has
        if asked.startswith("def add_("):
            return self.own[request.model]
        if asked.startswith("def twice_("):
            return "def twice_(self, number):\n    return number * 2\n"
        return TASKS[request.user] if self.right(request.model) else "def wrong_(self):\n    return None\n"


@contextlib.asynccontextmanager
async def trained(folder: Path, inference: FakeInference, how: str = "good", **more: Any) -> AsyncIterator[tuple[Kernel, Factory]]:
    """A kernel with an expert that writes, and whose trainings are played."""
    async with improving(folder, inference, **{**ON, **more}) as kernel:
        improver, factory = kernel.improving.improver, Factory(kernel)
        assert improver is not None

        def command(settings: Settings, image: str, work: Path, minutes: float) -> list[str]:
            assert image == kernel.image.uri
            return [sys.executable, fake_trainer.__file__, str(work), how]

        one = change_preparation.TrainingPreparation(
            kernel.image, kernel.settings, kernel.loop.budget, lambda: None if factory.away else factory, factory.staging, command=command
        )
        improver.preparations = {"training": one}
        await kernel.image.system(model_registry.begin_experts, {"brick": "smollm2:embedded"})
        if not factory.staging.exists():
            fake_trainer.stage(factory.staging, "method-writer", persona="brick", name="method-writer", version=1, role="methods")
        await factory.scan_settled()
        yield kernel, factory


@pytest.fixture(autouse=True)
def _extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra `training` were there."""
    monkeypatch.setattr(change_preparation, "TRAINING_MODULES", ())


async def learned(kernel: Kernel) -> None:
    """The image has methods that its expert wrote."""
    await give(kernel)
    for n, (selector, *args) in enumerate((("add_", 2, 3), ("twice_", 4), ("add_", 20, 3))):
        end = await sent(kernel, f"m{n}", "thing", selector, *args)
        assert end["state"] == "COMPLETE", end
    await kernel.loop.tick()
    await written(kernel)


def writes(kernel: Kernel) -> str:
    return str(kernel.image.read(model_registry.speaks_methods))


async def test_a_better_expert_takes_over_in_one_transaction_and_one_command_goes_back(tmp_path: Path) -> None:
    async with trained(tmp_path, Writer()) as (kernel, factory):
        await learned(kernel)
        result = await fire(kernel, "expert_behind", words="2 methods were written since it was made.")
        assert result["proposal"]["content"] == {"minutes": 5, "methods": 2, "refused": 0, "after": 0}
        (change,) = await stepped(kernel)
        assert (change["state"], change["reason"]) == (changes.PROMOTED, "")
        told = change["comparison"]
        assert told["prepared"] == {"minutes": 5, "folder": "method-writer-change-1", "model": NEW, "figures": {}}
        assert (told["trials"], told["without"]["tasks"], told["changed"]["tasks"]) == (5, 3, 0)
        assert told["better"] == ["methods of no image that are not written right: 3 before, 0 with it"]
        assert told["without"]["trials"] == told["changed"]["trials"] == 0, "both write what the image has"
        assert told["paid"]["inferences"] == 10
        assert writes(kernel) == NEW
        assert (await kernel.loop.budget.spent()).training_minutes == 5
        assert (tmp_path / "training" / "loop" / "idle").read_text() == f"19 {os.SCHED_IDLE}"
        about = read_about(factory.staging / "method-writer-change-1" / "expert.toml")
        assert (about.version, about.on_choice) == (2, True), "a version of its own"
        assert read_about(factory.staging / "method-writer" / "expert.toml").version == 1
        await kernel.undoing.undo_change(1, "a user said so")
        assert (writes(kernel), factory.gone) == (OLD, [])


@pytest.mark.parametrize(
    ("own", "right", "reason"),
    [
        (SHORTER, lambda model: False, "nothing gets better"),
        (
            "def add_(self, number, number2):\n    return number\n",
            lambda model: model == NEW,
            "worse: trials that fail: 0 before, 1 with it",
        ),
        (SHORTER, lambda model: model == OLD, "worse: methods of no image that are not written right: 0 before, 3 with it"),
    ],
    ids=["alike", "forgets", "worse"],
)
async def test_one_that_is_not_better_is_done_away_with(tmp_path: Path, own: str, right: Callable[[str], bool], reason: str) -> None:
    inference = Writer()
    inference.own[NEW], inference.right = own, right
    async with trained(tmp_path, inference) as (kernel, factory):
        await learned(kernel)
        await fire(kernel, "expert_behind")
        (change,) = await stepped(kernel)
        assert (change["state"], change["reason"]) == (changes.REFUSED, reason)
        assert (writes(kernel), factory.gone) == (OLD, [NEW])
        assert not list(factory.staging.glob("*change*"))
        assert change["comparison"]["prepared"]["model"] == NEW, "it is known what it was"
        assert (await fire(kernel, "expert_behind"))["proposal"] is None, "not before as much has come again"
        for n in range(2):
            await give_and_send(kernel, f"other{n}", f"n{n}")
        proposal = (await fire(kernel, "expert_behind"))["proposal"]
        assert proposal["content"]["methods"] == 2


async def give_and_send(kernel: Kernel, name: str, mission: str) -> None:
    def make(root: Any) -> None:
        root["lobby"]._slots[name] = root["lobby"].genesis.derive(name=name)

    await kernel.image.system(make)
    assert (await sent(kernel, mission, name, "add_", 2, 3))["state"] == "COMPLETE"
    await kernel.loop.tick()
    await written(kernel)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("fails", "the training ended with 4: no memory is left for it"),
        ("nothing", "the training ended well and left no expert"),
        (
            "nan",
            "the training left an expert that cannot be read: expert.toml, key lineage.figures.loss.float: Input should be a finite number",
        ),
    ],
)
async def test_a_training_that_fails_leaves_the_old_expert(tmp_path: Path, how: str, words: str) -> None:
    async with trained(tmp_path, Writer(), how) as (kernel, factory):
        await learned(kernel)
        await fire(kernel, "expert_behind")
        (change,) = await stepped(kernel)
        assert (change["state"], change["reason"]) == (changes.REFUSED, words)
        assert (writes(kernel), factory.gone) == (OLD, [])
        assert (await kernel.loop.budget.spent()).training_minutes == 5, "it was counted before it began"


async def test_an_expert_that_cannot_be_built_is_refused_and_one_that_waits_waits(tmp_path: Path) -> None:
    async with trained(tmp_path, Writer()) as (kernel, factory):
        await learned(kernel)
        factory.state = model_registry.INTENDED
        await fire(kernel, "expert_behind")
        assert (await stepped(kernel))[0]["state"] == changes.PROPOSED
        (tmp_path / "training" / "loop" / "idle").unlink()
        factory.state = model_registry.REFUSED
        (change,) = await stepped(kernel)
        assert change["reason"] == f"{NEW} cannot be built: its tensors are of another shape"
        assert not (tmp_path / "training" / "loop" / "idle").exists(), "it was not trained again"
        assert (writes(kernel), factory.gone) == (OLD, [NEW])


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not there():
            await asyncio.sleep(0.01)


def is_there(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def test_one_that_is_not_wanted_any_more_is_stopped_and_users_missions_go_on_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_preparation, "LOOK_S", 0.02)
    async with trained(tmp_path, Writer(), "stays") as (kernel, _):
        await learned(kernel)
        await fire(kernel, "expert_behind")
        improver = kernel.improving.improver
        assert improver is not None
        stepping = asyncio.create_task(improver.step())
        file = tmp_path / "training" / "loop" / "pid"
        await until(lambda: file.exists() and file.read_text() != "")
        pid = int(file.read_text())
        assert (await sent(kernel, "beside", "thing", "add_", 1, 1))["result"]["value"] == 2
        assert is_there(pid)
        assert (await kernel.undoing.undo_change(1, "not now"))["objects"] == []
        await stepping
        assert not is_there(pid)
        (change,) = listed(kernel)
        assert (change["state"], change["reason"], writes(kernel)) == (changes.REFUSED, "not now", OLD)


async def test_a_daemon_that_stops_ends_it_and_the_next_one_trains_anew(tmp_path: Path) -> None:
    inference = Writer()
    async with trained(tmp_path, inference, "stays") as (kernel, _):
        await learned(kernel)
        await fire(kernel, "expert_behind")
        improver = kernel.improving.improver
        assert improver is not None
        stepping = asyncio.create_task(improver.step())
        file = tmp_path / "training" / "loop" / "pid"
        await until(lambda: file.exists() and file.read_text() != "")
        stepping.cancel()
        await asyncio.wait([stepping])
        assert not is_there(int(file.read_text()))
        assert listed(kernel)[0]["comparison"]["prepared"] == {"minutes": 5, "folder": "method-writer-change-1"}
    async with trained(tmp_path, inference, loop_training_minutes=20, rehearsal_tries=1) as (kernel, _):
        (change,) = await stepped(kernel)
        assert (change["state"], writes(kernel)) == (changes.PROMOTED, NEW)
        assert (await kernel.loop.budget.spent()).training_minutes == 10, "both count"


async def test_killed_while_it_was_done_away_with_or_tampered_with_it_is_refused_and_the_loop_goes_on(tmp_path: Path) -> None:
    async with trained(tmp_path, Writer()) as (kernel, factory):
        await learned(kernel)
        folder = factory.staging / "method-writer-change-1"
        await fire(kernel, "expert_behind")
        shutil.copytree(factory.staging / "method-writer", folder)
        (folder / "expert.toml").unlink()  # the first that went, say
        improver = kernel.improving.improver
        assert improver is not None
        await improver.record()
        await kernel.image.system(changes.rehearsed, 1, {"prepared": {"minutes": 5, "folder": folder.name}})
        (change,) = await stepped(kernel)
        assert (change["state"], "no expert.toml" in change["reason"]) == (changes.REFUSED, True), change
        assert not folder.exists()


async def test_it_may_not_train_for_longer_than_its_day_has_or_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_preparation, "LOOK_S", 0.02)
    async with trained(tmp_path, Writer(), "stays", training_limit_s=0.1) as (kernel, _):
        await learned(kernel)
        budget: Budget = kernel.loop.budget
        await budget.trains(5)
        await fire(kernel, "expert_behind")
        assert (await stepped(kernel))[0]["state"] == changes.PROPOSED, "it waits for another day"
        await budget.trains(-3)
        (change,) = await stepped(kernel)
        assert change["reason"] == "the training took longer than 0.1 s"
        assert change["comparison"]["prepared"]["minutes"] == 3


async def test_without_an_ollama_it_waits_and_a_service_that_is_away_makes_tasks_unknown(tmp_path: Path) -> None:
    inference = Writer()
    async with trained(tmp_path, inference) as (kernel, factory):
        await learned(kernel)
        await fire(kernel, "expert_behind")
        factory.away = True
        assert (await stepped(kernel))[0]["state"] == changes.PROPOSED
        factory.away = False
        inference.fail_when = lambda request: InferenceFailed("away", cause="unreachable")
        (change,) = await stepped(kernel)
        assert change["reason"].startswith("too little is known to judge")


# --- when


async def test_it_is_proposed_where_enough_has_come_and_the_evidence_says_where_it_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trained(tmp_path, Writer()) as (kernel, _):
        ground = Ground(kernel.settings, kernel.methods.audit, trains=str)

        def proposed(ground: Ground, trigger: str = "guardian_refuses", key: str = "") -> list[str]:
            return [one.kind for one in kernel.image.read(lambda root: list(rule_proposals.remedies(root, trigger, key, ground)))]

        assert proposed(ground) == []
        await learned(kernel)
        assert proposed(ground) == proposed(ground, "failure_repeats", "method_refused guardian thing x_") == ["training"]
        assert proposed(ground, "method_unused", "0x1 add_") == ["retire"]
        assert proposed(ground._replace(trains=lambda: "it is off")) == []
        assert kernel.image.read(rule_proposals.learned) == (2, 0)
    off = Settings(data=tmp_path)
    assert change_preparation.why_no_training(off) == "trainings are off (autonomy.training_minutes is 0)"
    on = off.model_copy(update={"loop_training_minutes": 5.0})
    assert change_preparation.why_no_training(on) == ""
    assert "methods.writer" in change_preparation.why_no_training(on.model_copy(update={"synthesis_model": "plain"}))
    assert "workstation" in change_preparation.why_no_training(on.model_copy(update={"profile": "workstation"}))
    monkeypatch.setattr(change_preparation, "TRAINING_MODULES", ("torch_of_no_machine",))
    assert "torch_of_no_machine missing" in change_preparation.why_no_training(on)


async def test_refused_syntheses_count_and_what_was_proposed_instead_says_why_it_is_no_training(tmp_path: Path) -> None:
    inference = Writer()
    async with trained(tmp_path, inference, mission_attempts=1, synthesis_expert_tries=1, loop_training_minutes=0) as (kernel, _):
        inference.say = lambda request: (
            "def never_(self, number):\n    import os\n    return number\n"
            if request.system == method_prompts.COMPACT_SYSTEM
            else answer(request)
        )
        await give(kernel)
        for n in range(2):
            assert (await sent(kernel, f"m{n}", "thing", "never_", 1))["state"] == "FAILED"
        assert kernel.image.read(rule_proposals.learned) == (0, 2)
        proposal = (await fire(kernel, "guardian_refuses"))["proposal"]
        assert proposal["kind"] == "intent"
        assert proposal["evidence"]["training"] == "not proposed: trainings are off (autonomy.training_minutes is 0)"


def test_what_is_asked_for_is_read_as_minutes_or_not_at_all() -> None:
    from batos.autotelic.changes import Proposal

    for content, minutes in (("7.5", 7.5), ({"minutes": 3}, 3), ("soon", 0), (None, 0), (-4, 0)):
        assert change_preparation.training_minutes_of(Proposal("training", "methods", content, "w")) == minutes
    assert writer_evaluation.model_of(Proposal("training", "methods", "7", "w")) is None


def test_the_command_is_that_of_the_verb(tmp_path: Path) -> None:
    words = change_preparation.training_command(Settings(data=tmp_path), "file:///x/live_image.fs", tmp_path / "work", 4.5)
    assert words[:7] == [sys.executable, "-m", "batos", "train", "methods", "--from-image", "--minutes"]
    assert json.dumps(words).count(str(tmp_path / "work")) == 2
    assert "image=file:///x/live_image.fs" in words
    assert shutil.which(words[0])
