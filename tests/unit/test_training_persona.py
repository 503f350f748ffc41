"""A voice from missions that users liked: what is learned from, what is not, and when nothing is staged."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.bridge.lora.staging import read_about
from batos.bridge.profiles import load_profile
from batos.cli import main
from batos.errors import ConfigError, ExpertRefused, InvalidInput, UnknownPersona
from batos.image import ledger
from batos.training.lora import Trainer, TrainingPlan
from batos.training.persona import Liked, Said, VoiceFigures, liked, parted, train_voice, worse_than
from batos.wire.admin_schemas import UndoRequest
from tests.support.missions import FakeInference, answer, mind, settings, submit
from tests.support.training import tiny


async def asked(kernel: Kernel, id: str, brief: str, rating: int = 1, **options: Any) -> None:
    """A mission of robin's that has ended, rated."""
    end = await (await submit(kernel, id, brief, **{"persona": "robin", **options})).end()
    assert end["state"] == "COMPLETE", end
    if rating:
        await kernel.image.system(ledger.rate, id, rating, "")


def of(kernel: Kernel, name: str = "robin") -> tuple[list[Liked], int]:
    return kernel.image.read(liked, name, kernel.settings)


async def test_prompts_are_those_that_were_asked_word_for_word(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await asked(kernel, "m1", "How do I calm down before a talk?")
        await asked(kernel, "m2", "And if it does not help?", context="m1")
        found, lost = of(kernel)
        assert lost == 0
        assert [one.id for one in found] == ["m2", "m1"]
        assert {one.begun for one in found} == {"How do I calm down before a talk?"}, "one conversation"
        requests = {(request.system, request.user) for request in inference.asked if request.schema is None}
        said = [one for mission in found for one in mission.said]
        assert {(one.system, one.prompt) for one in said} == requests
        assert "Earlier in this conversation" in found[0].said[-1].prompt
        assert [sum(one.whole for one in mission.said) for mission in found] == [1, 1]
        assert {one.answer for one in said} == {"Take one small step and look where it led."}
        assert of(kernel, "brick") == ([], 0), "who did not speak has nothing to learn from"


async def test_what_nobody_liked_is_not_learned(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await asked(kernel, "bad", "How do I calm down?", -1)
        await asked(kernel, "unrated", "How do I sleep?", 0)
        await asked(kernel, "changed", "How do I wake up?", 1)
        await kernel.image.system(ledger.rate, "changed", -1, "on second thought")
        await asked(kernel, "undone", "How do I get up?", 1)
        await kernel.undoing.undo(UndoRequest(op="undo", id="undone"))
        await asked(kernel, "form", "How many?", 1, schema='{"type": "object", "properties": {"n": {"type": "string"}}}')
        assert of(kernel) == ([], 0)


async def test_an_answer_that_the_gate_sent_back_is_not_learned_but_the_one_that_passed(tmp_path: Path) -> None:
    inference, tries = FakeInference(), []

    def say(request: Any) -> str:
        if "Notes to use" not in request.user:
            return answer(request)
        tries.append(request.user)
        return "!!!" if len(tries) == 1 else "Breathe out slowly, and count to ten."

    inference.say = say
    async with mind(tmp_path, inference) as kernel:
        await asked(kernel, "m1", "How do I calm down?")
        whole = next(one for one in of(kernel)[0][0].said if one.whole)
        assert len(tries) == 2
        assert (whole.prompt, whole.answer) == (tries[0], "Breathe out slowly, and count to ten.")


async def test_what_cannot_be_rebuilt_is_left_out(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), journal_days=1) as kernel:
        await asked(kernel, "m1", "How do I calm down?")
        await asked(kernel, "m2", "How do I sleep?")

        def reword(root: Any) -> None:
            for state in ("DELEGATING", "SYNTHESIZING"):
                root["lobby"].psm._slots[state].meta_prompt += " Be brief."

        await kernel.image.system(reword)
        assert of(kernel) == ([], 2)
        await asked(kernel, "m3", "How do I wake up?")
        assert [one.id for one in of(kernel)[0]] == ["m3"]
        await kernel.image.system(drop, "m3")
        assert of(kernel) == ([], 2), "retention dropped the texts"


def drop(root: Any, id: str) -> None:
    """System transaction: as retention does it."""
    from batos.image import journal

    journal.drop_texts(ledger.mission_of(root, id).journal)


def mission(number: int, begun: str = "") -> Liked:
    said = Said("You are ROBIN.", f"question {number}?", f"answer {number}", True)
    return Liked(f"m{number}", f"brief {number}", begun or f"Brief {number}", (said,), ("robin",), (), 10)


def test_missions_are_parted_by_conversation_and_stay_where_they_are() -> None:
    missions = [mission(number) for number in range(20)] + [mission(30, "brief  3"), mission(31, "Brief 3")]
    learned, held = parted(missions, 0.25)
    assert len({one.begun.lower() for one in held}) in (5, 6)
    assert not {" ".join(one.begun.lower().split()) for one in learned} & {" ".join(one.begun.lower().split()) for one in held}
    assert {one.id for one in (*learned, *held)} == {one.id for one in missions}
    more, still = parted([*missions, *(mission(number) for number in range(40, 44))], 0.25)
    assert len({one.id for one in held} & {one.id for one in more}) <= 2, "a few, where new ones go before them"
    assert {one.id for one in learned} & {one.id for one in still} == set() or len(still) > len(held)
    assert [len(part) for part in parted(missions[:2], 0.9)] == [1, 1]


def test_worse_is_said_in_words() -> None:
    plain = VoiceFigures(10.0, 0.5, 1)
    assert worse_than(plain, VoiceFigures(9.0, 0.46, 1), 0.05, "the plain model") == []
    assert worse_than(VoiceFigures(10.0), VoiceFigures(9.0), 0.05, "the plain model") == []
    assert worse_than(plain, VoiceFigures(10.0, 0.4, 2), 0.05, "the plain model") == [
        "on what it did not learn its perplexity is 10.00, that of the plain model 10.00",
        "the entropy of its answers is 0.400, with the plain model 0.500",
        "the gate refuses 2 of its answers, 1 of those of the plain model",
    ]


def test_without_consent_nothing_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "persona", "robin", "--data", str(tmp_path)]) == ConfigError("").exit_code
    said = capsys.readouterr().err
    assert "--set memory.training_consent=on" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["persona"], ["methods", "robin"], ["persona", "robin", "--fresh"], ["persona", "robin", "--from-image"]]
)
def test_the_verb_takes_a_name_for_a_persona_only(words: list[str], tmp_path: Path) -> None:
    assert main(["train", *words, "--data", str(tmp_path)]) == 2


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base that takes no time to train: letters are its words."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = tiny(tmp_path / "base")

    def base(weights: Path) -> tuple[object, object]:
        model = transformers.AutoModelForCausalLM.from_pretrained(weights, dtype=torch.bfloat16)
        model.requires_grad_(False)
        return transformers.AutoTokenizer.from_pretrained(weights), model

    monkeypatch.setattr("batos.training.lora.base_model", base)
    monkeypatch.setattr("batos.training.persona.base_of", lambda settings: (load_profile("embedded").models[0], folder))
    monkeypatch.setattr("batos.training.persona.ANSWER_TOKENS", 4)
    return folder


async def liked_by_a_user(folder: Path, count: int) -> str:
    """URI of an image in which robin answered so many briefs well."""
    inference = FakeInference()
    inference.say = lambda request: (
        answer(request) if request.schema is not None else f"One step more: {_matter(request)} {request.user[-90:-60]}"
    )
    async with mind(folder, inference) as kernel:
        for number in range(count):
            await asked(kernel, f"m{number}", f"How do I feel better in the matter number {number}?")
        return f"file://{folder}/live_image.fs"


def _matter(request: ChatRequest) -> str:
    """The end of the brief, which comes after what earlier missions left in the memory."""
    return re.findall(r"matter number \d+", request.user)[-1]


PLAN = TrainingPlan(1, rank=2, rate=1e-2, first_layer=1, threads=1, batch=4, passes=3)


@pytest.mark.filterwarnings("ignore")
async def test_too_few_missions_or_a_persona_that_is_not_there_say_so(tmp_path: Path, small: Path) -> None:
    image = await liked_by_a_user(tmp_path, 2)
    more = settings(tmp_path, training_consent="on", training_missions=3)
    with pytest.raises(InvalidInput, match=r"robin spoke in 2 missions .* takes 3"):
        train_voice(more, PLAN, tmp_path / "staging", "ROBIN", image=image)
    with pytest.raises(UnknownPersona, match="there are: robin"):
        train_voice(more, PLAN, tmp_path / "staging", "nobody", image=image)
    with pytest.raises(InvalidInput, match="holds no training that was interrupted"):
        train_voice(more, PLAN, tmp_path / "staging", "robin", image=image, resume=True)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
async def test_a_voice_is_trained_measured_and_staged_and_a_worse_one_is_not(
    tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = await liked_by_a_user(tmp_path, 8)
    chosen = settings(tmp_path, training_consent="on", training_missions=8, training_entropy=1.0)
    monkeypatch.setattr("batos.training.persona.answer_checks.fault_of", lambda *_: None)  # a base of letters says nothing that passes
    lines: list[str] = []
    made = train_voice(chosen, PLAN, tmp_path / "staging", "ROBIN", image=image, tell=lines.append)
    about = read_about(made / "expert.toml")
    assert (made.name, about.model, about.role) == ("robin-voice", "robin:voice-v1", "voice")
    assert about.on_choice, "nobody has heard it yet"
    figures = tomllib.loads((made / "expert.toml").read_text())["lineage"]["figures"]
    assert figures["tuned_perplexity"] < figures["plain_perplexity"]
    assert len(about.lineage.missions) == 6, "two of eight measure"
    assert any(line.startswith("the plain model: perplexity") for line in lines)

    monkeypatch.setattr(Trainer, "train", lambda self, *_: None)
    before = (made / "expert.toml").read_bytes()
    with pytest.raises(ExpertRefused, match=r"not staged: .* that of the voice that is staged .* that of the plain model"):
        train_voice(chosen, PLAN, tmp_path / "staging", "robin", image=image)
    assert (made / "expert.toml").read_bytes() == before
    with pytest.raises(InvalidInput, match="robin-voice holds a voice of another making"):
        train_voice(chosen, dataclasses.replace(PLAN, rank=3), tmp_path / "staging", "robin", image=image)
    with pytest.raises(ExpertRefused, match="that of the plain model"):
        train_voice(chosen, PLAN, tmp_path / "elsewhere", "robin", image=image)
    assert not (tmp_path / "elsewhere").exists()
