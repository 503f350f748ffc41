"""From a training to an expert: curve, folder, lineage; what an image gives; the adapter itself where torch is there."""

from __future__ import annotations

import struct
import tomllib
import zlib
from pathlib import Path

import pytest

from batos.bridge.lora.staging import read_about
from batos.bridge.profiles import load_profile
from batos.cli import main
from batos.config import Settings
from batos.errors import ConfigError, InvalidInput
from batos.training import lora, methods, workspace
from batos.training.dataset import generate
from batos.training.lora import Point, Trainer, TrainingPlan
from batos.training.workspace import base_of
from tests.support.lora import about
from tests.support.training import tiny

CURVE = [Point(25, 60.0, 2.0), Point(50, 120.0, 1.0), Point(75, 180.0, 0.5), Point(100, 240.0, 0.25, 0.4)]


def test_the_curve_as_text_and_picture() -> None:
    assert workspace.curve_as_text(CURVE).splitlines()[-1] == "100   4.0      0.2500  0.4000"
    data = workspace.curve_as_png(CURVE)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (workspace.WIDTH, workspace.HEIGHT)
    at, rows = 8, b""
    while at < len(data):
        (size,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        rows += body if kind == b"IDAT" else b""
        at += 12 + size
    picture = zlib.decompress(rows)
    assert len(picture) == workspace.HEIGHT * (1 + 3 * workspace.WIDTH)
    assert bytes(workspace.TRAINED) in picture
    assert workspace.curve_as_png([]).startswith(b"\x89PNG")


def test_expert_toml_is_one_that_the_factory_reads(tmp_path: Path) -> None:
    lineage = workspace.TrainingLineage("abc", 3, "0123456789abcdef", ("m1", "m2"), {"steps": 100, "loss": 0.25})
    text = workspace.about_expert(methods.EXPERT, 2, "smollm2:embedded", 40, lineage)
    (tmp_path / "expert.toml").write_text(text)
    told = read_about(tmp_path / "expert.toml")
    assert (told.model, told.role) == ("brick:method-writer-v2", "methods")
    assert (told.lineage.data, told.lineage.seed, told.lineage.figures) == ("abc", 3, {"steps": 100, "loss": 0.25})
    assert told.lineage.missions == ["m1", "m2"]
    assert tomllib.loads(text)["lineage"]["image_revision"] == "0123456789abcdef"


def test_a_version_is_made_once_wherever_the_earlier_ones_are(tmp_path: Path) -> None:
    expert, folder = workspace.Expert("brick", "method-writer", "methods", "Writes methods."), tmp_path / "method-writer"
    assert workspace.next_version(folder, expert) == 1
    named = {"persona": "brick", "name": "method-writer"}
    about(folder, **named, version=5)
    assert workspace.next_version(folder, expert) == 6
    about(tmp_path / "method-writer-change-3", **named, version=6, on_choice=True)  # as the loop stages one
    about(tmp_path / "robin-voice", persona="robin", name="voice", version=9)
    about(tmp_path / ".method-writer-change-4", **named, version=8)  # on its way: nobody takes it
    (tmp_path / "notes").write_text("no folder")
    assert workspace.next_version(folder, expert) == 7
    assert workspace.next_version(folder, expert, [2, 7]) == 8, "of 7 the image knows that it was built"
    (folder / "expert.toml").write_text("version = ?")
    with pytest.raises(InvalidInput, match=r"method-writer: expert.toml is not valid TOML: .*; mend it, or move the folder away"):
        workspace.next_version(folder, expert)


def test_answers_are_proved_once(tmp_path: Path) -> None:
    tasks = generate("validation", 1, each=1)[:3]
    settings = Settings(data=tmp_path)
    assert methods.proved_tasks(tasks, settings, tmp_path) == (tasks, 0)
    known = (tmp_path / "proved.json").read_text()
    spoiled = tasks[0]._replace(source=tasks[0].source.replace("return", "return not"))
    found, refused = methods.proved_tasks([spoiled, *tasks[1:]], settings, tmp_path)
    assert refused == 1
    assert spoiled not in found
    assert (tmp_path / "proved.json").read_text() != known
    (tmp_path / "proved.json").write_text("")  # as a power cut may leave it
    assert methods.proved_tasks(tasks[:1], settings, tmp_path) == (tasks[:1], 0)


def test_a_profile_without_weights_to_train_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a GGUF file"):
        base_of(Settings(data=tmp_path, profile="workstation"))


def test_the_verb_says_what_is_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "methods", "--data", str(tmp_path), "--profile", "workstation"]) == ConfigError("").exit_code
    assert "train with --set profile=embedded" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_told_of_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    workspace.check_place(tmp_path / "new" / "method-writer")
    with pytest.raises(ConfigError, match=r"file/method-writer: .*file is not a folder; set inference.staging"):
        workspace.check_place(tmp_path / "file" / "method-writer")
    monkeypatch.setattr("batos.training.workspace.os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="is not ours to write; see its owner and mode"):
        workspace.check_place(tmp_path / "new")


def test_what_the_system_refuses_is_no_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("batos.training.methods.base_of", lambda settings: (load_profile("embedded").models[0], tmp_path))
    (tmp_path / "file").touch()
    words = ["train", "methods", "--data", str(tmp_path / "file" / "data"), "--set", f"lora_staging={tmp_path}"]
    assert main(words) == InvalidInput("").exit_code
    assert "Not a directory; see owner, mode and free space" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(("able", "kind"), [(True, "bfloat16"), (False, "float32")])
def test_the_frozen_weights_are_of_a_kind_that_the_processor_computes_in(
    able: bool, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    asked: dict[str, object] = {}

    def model(*_: object, **options: object) -> object:
        asked.update(options)
        return torch.nn.Linear(1, 1)

    assert lora.computes_in_bfloat16() in (True, False)
    monkeypatch.setattr(lora, "computes_in_bfloat16", lambda: able)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: None)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", model)
    lora.base_model(tmp_path / "base.gguf")
    assert asked["dtype"] is getattr(torch, kind)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a tiny model, which trainers load in place of a base."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    def base(weights: Path) -> tuple[object, object]:
        model = transformers.AutoModelForCausalLM.from_pretrained(weights, dtype=torch.bfloat16)
        model.requires_grad_(False)
        return transformers.AutoTokenizer.from_pretrained(weights), model

    monkeypatch.setattr("batos.training.lora.base_model", base)
    torch.manual_seed(1)
    return tiny(tmp_path / "base")


@pytest.mark.filterwarnings("ignore")
def test_a_training_learns_is_taken_up_again_and_becomes_an_adapter(small: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    data = [("say a:", "aaaa"), ("say b:", "bbbb")] * 8
    plan = TrainingPlan(0.05, rank=4, rate=1e-2, first_layer=1, threads=1)
    points: list[Point] = []
    trainer = Trainer(small, tmp_path / "work", plan)
    trainer.train(data, data[:2], "digest", lambda point, done: points.append(point))
    assert points[-1].loss < points[0].loss
    tensors = trainer.tensors()
    assert {name.split(".")[4] for name in tensors} == {"1", "2"}
    again = Trainer(small, tmp_path / "work", plan)
    assert again.resume("digest")
    assert (again.step, len(again.curve)) == (trainer.step, len(trainer.curve))
    for name, value in again.tensors().items():
        assert torch.equal(value, tensors[name])
    with pytest.raises(InvalidInput, match="other data"):
        again.resume("another")
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file(tensors, tmp_path / "adapter.safetensors")
    begun = Trainer(small, tmp_path / "new", plan)
    begun.take(begun.read(tmp_path / "adapter.safetensors"))
    assert all(torch.equal(value, tensors[name]) for name, value in begun.tensors().items())
    with pytest.raises(InvalidInput, match="--fresh"):
        Trainer(small, tmp_path / "new", TrainingPlan(0.05, rank=2, first_layer=1, threads=1)).read(tmp_path / "adapter.safetensors")
    assert not Trainer(small, tmp_path / "elsewhere", plan).resume("digest")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("checked", "mean"), [("aaaa", False), ("bbbb", True)])
def test_what_was_learned_or_its_mean_with_what_was_before_is_kept_by_their_losses(
    small: Path, tmp_path: Path, checked: str, mean: bool
) -> None:
    torch = pytest.importorskip("torch")
    plan = TrainingPlan(1, rank=4, rate=3e-2, first_layer=1, threads=1, passes=30)
    before, trainer = Trainer(small, tmp_path / "before", plan), Trainer(small, tmp_path / "after", plan)
    before.train([("say:", "bbbb")] * 16, (), "digest", lambda point, done: None)
    trainer.train([("say:", "aaaa")] * 16, (), "digest", lambda point, done: None)
    learned = trainer.tensors()
    alone, together = trainer.keep_the_better(before.tensors(), [("say:", checked)])
    assert (together < alone) is mean
    wanted = {name: (value.float() + before.tensors()[name].float()) / 2 if mean else value for name, value in learned.items()}
    for name, value in trainer.tensors().items():
        assert torch.equal(value, wanted[name].half())
