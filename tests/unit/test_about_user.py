"""Who asks about himself is answered in his own words, in whatever language he told them and asks; or is told that nothing is known."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.memory.store import library_of
from batos.missions.about_user import LONGEST, self_question_of
from batos.wire.admin_schemas import UndoRequest
from tests.support.missions import WAIT_S, FakeInference, mind, replayed, submit

DATA = Path(__file__).parents[1] / "data"
ROOT = DATA.parents[1]
LABELLED = [tuple(line.split("\t")) for line in (DATA / "self_questions.tsv").read_text("utf-8").splitlines()]
"""What is asked about the user (`-`: nothing; of nouns, which), and the brief."""

KIM = "My name is Kim and I have a dog called Bruno."
TOLD = (
    KIM,
    "Ich wohne seit 2015 in Kiel.",
    "My wife Ines lives in Paris on weekdays.",
    "I was born on 3 May 1990.",
    "I am allergic to penicillin.",
)


@pytest.mark.parametrize(("label", "brief"), LABELLED, ids=[brief for _, brief in LABELLED])
def test_what_a_brief_asks_about_its_user(label: str, brief: str) -> None:
    kind, _, nouns = label.partition(" ")
    found = self_question_of(brief)
    assert (found.kind if found else "-") == kind
    assert set(nouns.split(",")) - {""} <= set(found.nouns if found else ())


def test_no_brief_of_other_sets_asks_about_its_user() -> None:
    briefs = [json.loads(line)["brief"] for line in (DATA / "briefs.jsonl").read_text("utf-8").splitlines()]
    briefs += [json.loads(line)["brief"] for line in (ROOT / "bench" / "open_briefs.jsonl").read_text("utf-8").splitlines()]
    briefs += [line.split("\t")[0] for line in (DATA / "ordinary_questions.tsv").read_text("utf-8").splitlines()]
    assert len(briefs) > 350
    assert [brief for brief in briefs if self_question_of(brief)] == []


@pytest.mark.parametrize("char", list("aé0_私我"))
def test_a_run_of_one_character_asks_nothing(char: str) -> None:
    for beginning in ("what is my ", "who am i ", "wie heißt mein ", "私の"):
        assert self_question_of((beginning + char * LONGEST)[:LONGEST]) is None


async def ask(kernel: Kernel, id: str, brief: str, **options: Any) -> dict[str, Any]:
    event = await (await submit(kernel, id, brief, **options)).end()
    assert event["state"] == "COMPLETE", event
    return dict(event["result"])


async def tell(kernel: Kernel, *said: str, begin: int = 0) -> None:
    for number, brief in enumerate(said, begin):
        await ask(kernel, f"told-{number}", brief)
    async with asyncio.timeout(WAIT_S):
        while not {f"said:told-{number}" for number in range(begin, begin + len(said))} <= kernel.image.read(_sources):
            await asyncio.sleep(0.01)


def _sources(root: Any) -> set[str]:
    return set(library_of(root).by_source)


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
async def test_a_question_about_the_user_is_answered_in_his_words_or_not_at_all(tmp_path: Path, told: bool) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, remember_pause_s=0) as kernel:
        if told:
            await tell(kernel, *TOLD)
        before = len(inference.asked)
        for number, (brief, quoted, other) in enumerate(
            [
                ("Who am I?", KIM, TOLD[4]),
                ("Qui suis-je ?", KIM, TOLD[2]),
                ("Wie heiße ich?", KIM, TOLD[1]),
                ("あなたは私の名前を知っていますか", KIM, TOLD[1]),
                ("Como me llamo", KIM, TOLD[3]),
                ("What do you know about me?", TOLD[4], "\0"),
                ("Where do I live?", TOLD[1], TOLD[2]),
                ("Quel âge ai-je ?", TOLD[3], KIM),
                ("Wie heißt mein Hund?", KIM, TOLD[2]),
                ("¿Cómo se llama mi mujer?", TOLD[2], KIM),
                ("A cosa sono allergico?", TOLD[4], KIM),
            ]
        ):
            result = await ask(kernel, f"asked-{number}", brief)
            assert result["by_rule"] is True
            assert (quoted in result["text"]) is told, result["text"]
            assert other not in result["text"]
            assert bool(result.get("quoted")) is told
            assert {one["origin"] for one in result.get("citations", ())} == ({"user"} if told else set())
            assert result["usage"]["inferences"] == 0
        assert len(inference.asked) == before


async def test_what_is_said_in_the_console_counts_as_said_and_what_others_send_does_not(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, remember_pause_s=0) as kernel:
        await ask(kernel, "sent", "My name is Mallory.", origin="hook")
        await ask(kernel, "told-0", KIM, origin="console")
        async with asyncio.timeout(WAIT_S):
            while "said:told-0" not in kernel.image.read(_sources):
                await asyncio.sleep(0.01)
        before = len(inference.asked)
        result = await ask(kernel, "who", "Who am I?", origin="console")
        assert KIM in result["text"]
        assert "Mallory" not in result["text"]
        assert len(inference.asked) == before
        assert "by_rule" not in await ask(kernel, "others", "Who am I?", origin="hook")
    async with mind(tmp_path, inference, remember="off") as kernel:  # nothing else writes while it is replayed
        assert (await replayed(kernel, inference, "who"))["outcome"] == "same"


async def test_the_newest_name_comes_first_and_a_forgotten_one_is_not_told(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), remember_pause_s=0) as kernel:
        await tell(kernel, KIM)
        await tell(kernel, "Please call me Alex from now on. My name is Alex.", begin=1)
        text = (await ask(kernel, "who", "What's my name?"))["text"]
        assert text.index("Alex") < text.index("Kim")
        await kernel.undoing.undo(UndoRequest(op="undo", id="told-0"))
        assert "Kim" not in (await ask(kernel, "who2", "What's my name?"))["text"]


async def test_who_says_what_he_wants_to_be_called_is_told_so_when_he_asks_for_his_name(tmp_path: Path) -> None:
    said = (
        "Call me Kit.",
        "Nenn mich Lou.",
        "Appelle-moi Max.",
        "Llámame Noé.",
        "Зови меня Оля.",
        "叫我小明。",
        "ケンと呼んでください。",
        "민수라고 불러 주세요.",
    )
    async with mind(tmp_path, FakeInference(), remember_pause_s=0) as kernel:
        for number, one in enumerate(said):
            await tell(kernel, one, begin=number)
            assert one in (await ask(kernel, f"name-{number}", "What's my name?"))["text"]


async def test_a_fact_that_only_a_note_tells_is_thought_about(tmp_path: Path) -> None:
    inference = FakeInference()
    note = tmp_path / "home.md"
    note.write_text("# Home\n\nThe house where I live is in Hafenstr. 5, Kiel.\n")
    async with mind(tmp_path / "data", inference, remember_pause_s=0) as kernel:
        asked = await kernel.memory.ask([str(note)], [])
        assert (await asked.done(lambda event: None))["refused"] == []
        result = await ask(kernel, "where", "Where do I live?")
        assert "by_rule" not in result
        assert "Hafenstr. 5" in result["text"]


async def test_what_a_conversation_may_hold_is_thought_about(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, remember_pause_s=0) as kernel:
        await ask(kernel, "first", "Hello there, nice weather for a long walk")
        assert "by_rule" not in await ask(kernel, "second", "Who am I?", context="first")
        asked = await ask(kernel, "third", "Who am I?")
        assert asked["text"].startswith("I know nothing about you")
