"""`train methods` as a whole, on a base that takes no time to train: what it begins with, what an image adds, what is staged."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import tomllib
from pathlib import Path
from typing import Any, ClassVar

import pytest

from batos.bridge.profiles import load_profile
from batos.cli import main
from batos.config import Settings
from batos.errors import ImageError, InvalidInput
from batos.objects import Example, Intent
from batos.training import methods, workspace
from batos.training.dataset import digest_of, generate
from batos.training.lora import Trainer, TrainingPlan
from batos.training.workspace import alone
from tests.support.lora import stage
from tests.support.method_writer import DOUBLE, hire, teach, writing
from tests.support.methods import give, sent
from tests.support.missions import FakeInference, mind
from tests.support.training import tiny

CHECKED = 8
drawn = functools.cache(generate)  # seconds a draw


def few(*args: Any, **more: Any) -> list[Any]:
    """As many tasks of those that are drawn as a training is measured by: each costs a prompt."""
    return drawn(*args, **more)[:CHECKED]


PLAN = TrainingPlan(1, rank=2, rate=1e-2, first_layer=1, threads=1, batch=4, passes=1)


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TrainingPlan]:
    """The plans of the trainings there were."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder, seen = tiny(tmp_path / "base"), []

    def base(weights: Path) -> tuple[object, object]:
        model = transformers.AutoModelForCausalLM.from_pretrained(weights, dtype=torch.bfloat16)
        model.requires_grad_(False)
        return transformers.AutoTokenizer.from_pretrained(weights), model

    def begun(self: Trainer, weights: Path, work: Path, plan: TrainingPlan) -> None:
        seen.append(plan)
        made(self, weights, work, plan)

    made = Trainer.__init__
    monkeypatch.setattr(Trainer, "__init__", begun)
    monkeypatch.setattr("batos.training.lora.base_model", base)
    monkeypatch.setattr(methods, "base_of", lambda settings: (load_profile("embedded").models[0], folder))
    monkeypatch.setattr(methods, "generate", few)
    monkeypatch.setattr(methods, "CHECKED", CHECKED)
    monkeypatch.setattr(methods, "training_tasks", lambda seed: drawn("validation", seed, each=1)[:6])
    return seen


async def used(folder: Path) -> str:
    """URI of an image whose user taught a method, and sends its message."""
    inference = FakeInference()
    writing(inference, DOUBLE)
    async with mind(folder, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((50,), (), 100))
        for number in range(3):
            assert (await sent(kernel, f"m{number}", "thing", "twice_", number))["state"] == "COMPLETE"
    return f"file://{folder}/live_image.fs"


def figures(folder: Path) -> tuple[int, dict[str, Any]]:
    about = tomllib.loads((folder / "expert.toml").read_text("utf-8"))
    return about["version"], about["lineage"]["figures"]


class Played:
    """A trainer that learns nothing: what it was given to learn, by the work folder."""

    learned: ClassVar[dict[Path, list[Any]]] = {}

    def __init__(self, weights: Path, work: Path, plan: TrainingPlan) -> None:
        self.plan, self.work, self.curve, self.step, self.seconds = plan, work, [], 0, 0.0

    def read(self, file: Path) -> dict[str, Any]:
        return {}

    def take(self, held: dict[str, Any]) -> None: ...

    def resume(self, digest: str) -> bool:
        assert digest == digest_of(self.learned[self.work][-1]), "it is of other data"
        return True

    def train(self, data: Any, *more: Any) -> None:
        self.learned.setdefault(self.work, []).append(data)

    def keep_the_better(self, *_: Any) -> tuple[float, float]:
        return 1.0, 2.0


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, workspace.TrainingLineage]]:
    """Trainings without torch: version and lineage of each that would have been staged."""
    made: list[tuple[int, workspace.TrainingLineage]] = []

    def exported(trainer: Any, folder: Path, expert: Any, base: Any, lineage: workspace.TrainingLineage, version: int) -> Path:
        made.append((version, lineage))
        return folder

    for name, value in {
        "Trainer": Played, "begun": lambda work, plan: plan, "export": exported, "generate": few, "CHECKED": CHECKED,
        "base_of": lambda settings: (load_profile("embedded").models[0], tmp_path),
        "training_tasks": lambda seed: drawn("validation", seed, each=1)[:3],
        "pairs": lambda tasks, seed: [(task.prompt(example=True), task.source) for task in tasks],
    }.items():  # fmt: skip
        monkeypatch.setattr(methods, name, value)
    return made


@pytest.mark.long
def test_what_is_gone_on_with_is_what_the_image_had_when_it_was_begun(
    tmp_path: Path, played: list[tuple[int, workspace.TrainingLineage]]
) -> None:
    settings = Settings(data=tmp_path / "data")
    image = asyncio.run(used(tmp_path / "image"))
    methods.train_methods(settings, PLAN, tmp_path / "staging", image=image)

    async def more() -> None:
        async with mind(tmp_path / "image", FakeInference()) as kernel:
            assert (await sent(kernel, "later", "thing", "twice_", 50))["state"] == "COMPLETE"

    asyncio.run(more())
    methods.train_methods(settings, PLAN, tmp_path / "staging", image=image, resume=True)
    methods.train_methods(settings, PLAN, tmp_path / "staging", resume=True)
    (_, first), *others = played
    assert [lineage for _, lineage in others] == [first, first]
    assert first.figures["from_image"] == 3
    methods.train_methods(settings, PLAN, tmp_path / "staging", image=image)
    assert played[-1][1].figures["from_image"] == 4, "a new one has what there is now"
    methods.train_methods(settings, PLAN, tmp_path / "staging")
    methods.train_methods(settings, PLAN, tmp_path / "staging", image=image, resume=True)
    assert [lineage.figures["from_image"] for _, lineage in played[-2:]] == [0, 0], "nor does one get what it was begun without"


def test_what_is_made_is_a_version_that_the_image_never_had(tmp_path: Path, played: list[tuple[int, workspace.TrainingLineage]]) -> None:
    async def hired() -> None:
        async with mind(tmp_path / "image", FakeInference()) as kernel:
            await hire(kernel)  # version 1, whose folder is gone

    asyncio.run(hired())
    settings, lines = Settings(data=tmp_path / "data"), []
    known = f"file://{tmp_path}/image/live_image.fs"
    methods.train_methods(settings, PLAN, tmp_path / "staging", known=known, tell=lines.append)
    methods.train_methods(settings, PLAN, tmp_path / "staging", known=f"file://{tmp_path}/none.fs", tell=lines.append)
    assert [version for version, _ in played] == [2, 1]
    assert not any("cannot be seen" in line for line in lines)
    (tmp_path / "none.fs").mkdir()  # what cannot be read
    methods.train_methods(settings, PLAN, tmp_path / "staging", known=f"file://{tmp_path}/none.fs", tell=lines.append)
    assert any("which versions of method-writer there were cannot be seen" in line for line in lines)


def test_what_is_in_its_way_is_said_before_anything_is_proved(tmp_path: Path, played: list[tuple[int, workspace.TrainingLineage]]) -> None:
    settings, staging, lines = Settings(data=tmp_path / "data"), tmp_path / "staging", []

    def refused(words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            methods.train_methods(settings, PLAN, staging, tell=lines.append)

    with pytest.raises(ImageError, match="there is no image at"):
        methods.train_methods(settings, PLAN, staging, image=f"file://{tmp_path}/none.fs", tell=lines.append)
    with alone(settings.data / "training" / "method-writer"):
        refused("another training goes on in .*method-writer; wait until it has ended, or train in another data folder")
    stage(staging, "method-writer", persona="brick", name="method-writer", version=1, role="methods")
    weights = staging / "method-writer" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    refused("it was not copied whole; move it away, or begin with --fresh")
    (staging / "method-writer" / "expert.toml").write_text("version = ?")
    refused("expert.toml is not valid TOML: .*; mend it, or move the folder away")
    assert (lines, played) == ([], [])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_it_goes_on_from_what_is_staged_and_learns_what_the_image_accepted(tmp_path: Path, plans: list[TrainingPlan]) -> None:
    settings, lines = Settings(data=tmp_path / "data"), []
    staging = tmp_path / "staging"
    made = methods.train_methods(settings, PLAN, staging, tell=lines.append)
    assert figures(made)[0] == 1
    assert (made / "curve.txt").read_text().count("\n") == 2, "a short training has a last point, too"
    image = asyncio.run(used(tmp_path / "image"))
    made = methods.train_methods(settings, PLAN, staging, image=image, tell=lines.append)
    version, told = figures(made)
    assert (version, told["from_image"], told["tasks"]) == (2, 3, 6)
    assert any(line.startswith("beginning with") for line in lines)
    made = methods.train_methods(settings, PLAN, staging, fresh=True, tell=lines.append)
    assert figures(made)[0] == 3
    assert [plan.rate for plan in plans] == [1e-2, 5e-3, 1e-2], "what was learned before is not trained over at the whole rate"


def test_what_cannot_be_gone_on_with_is_said_at_once(tmp_path: Path, plans: list[TrainingPlan], capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with pytest.raises(InvalidInput, match=r"holds no training that was interrupted; leave out --resume"):
        methods.train_methods(Settings(data=tmp_path / "data"), PLAN, tmp_path / "staging", resume=True, tell=lines.append)
    assert (lines, plans) == ([], []), "nothing was proved for it"
    assert main(["train", "methods", "--fresh", "--resume", "--data", str(tmp_path)]) == 2
    assert "give only one" in " ".join(capsys.readouterr().err.split())


@pytest.mark.filterwarnings("ignore")
def test_it_is_gone_on_with_as_it_was_begun(tmp_path: Path, plans: list[TrainingPlan]) -> None:
    settings, staging = Settings(data=tmp_path / "data"), tmp_path / "staging"
    for words in ({}, {"fresh": True}, {}):
        methods.train_methods(settings, PLAN, staging, **words)
        lines: list[str] = []
        methods.train_methods(settings, PLAN, staging, resume=True, tell=lines.append)
        assert any(line.startswith("going on at step") for line in lines), words
    assert [plan.rate for plan in plans] == [1e-2] * 4 + [5e-3] * 2
    lines = []
    with pytest.raises(InvalidInput, match="of other data or another plan"):
        methods.train_methods(settings, dataclasses.replace(PLAN, seed=2), staging, resume=True, tell=lines.append)
    assert lines == []
