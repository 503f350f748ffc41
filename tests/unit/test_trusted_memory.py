"""Whom the memory believes: what a file or the user says is evidence, what the system answered itself is none, unless he vouched for it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.memory import objects
from batos.memory.drafts import Draft, DraftPart
from batos.memory.objects import FILE, SELF, TOOL, USER, noted_by, origin_of
from batos.memory.section_builder import prepare_document, store_document
from batos.memory.segments import build
from batos.memory.store import library_of
from batos.memory.tokenizer import asks_what_was_answered, subject_of
from batos.wire.admin_schemas import SearchRequest, UndoRequest
from tests.support.missions import WAIT_S, FakeInference, Listened, mind, submit

INVENTED = "You are allergic to peanuts and to shellfish, as your doctor in Munich told us in 1987."
HEALTH = "# Health\n\nThe flu shot was in October.\n\nI am allergic to penicillin. Dr. Weber's practice is in Hafenstr. 5, second floor.\n"


class Inventor(FakeInference):
    """Invents on purpose, and claims to have it from the first passage."""

    def __init__(self) -> None:
        super().__init__()
        self.say = lambda request: f"{INVENTED} [1]"


@contextlib.asynccontextmanager
async def lived(folder: Path, inference: FakeInference | None = None, **settings: Any) -> AsyncIterator[Kernel]:
    async with mind(folder / "data", inference or Inventor(), remember_pause_s=0, **settings) as kernel:
        yield kernel


async def told(kernel: Kernel, id: str, brief: str, **options: Any) -> dict[str, Any]:
    event = await (await submit(kernel, id, brief, **options)).end()
    assert event["state"] == "COMPLETE", event
    return dict(event["result"])


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def sources(kernel: Kernel) -> list[str]:
    return kernel.image.read(lambda root: list(library_of(root).by_source))  # type: ignore[no-any-return]


async def remembered(kernel: Kernel, *expected: str) -> None:
    await until(lambda: set(expected) <= set(sources(kernel)))
    await kernel.image.told()


async def read(kernel: Kernel, folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    asked = await kernel.memory.ask([str(folder / name)], [])
    assert (await asked.done(lambda event: None))["refused"] == []


async def test_a_fact_is_quoted_to_any_persona_where_the_model_leaves_it(tmp_path: Path) -> None:
    async with lived(tmp_path) as kernel:
        await read(kernel, tmp_path, "health.md", HEALTH)
        for persona in ("robin", "brick", "babs", "alfred"):
            result = await told(kernel, persona, "What am I allergic to?", persona=persona)
            assert result["text"] == "“I am allergic to penicillin.” [1]", persona
            assert result["quoted"] is True
            (cited,) = result["citations"]
            assert (cited["origin"], cited["sentences"]) == ("file", ["I am allergic to penicillin."])
        where = await told(kernel, "where", "Where is Dr. Weber's practice?")
        assert where["text"] == "“Dr. Weber's practice is in Hafenstr. 5, second floor.” [1]"


async def test_a_model_that_uses_the_passage_speaks_for_itself(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = lambda request: "It is penicillin that you should keep away from [1]."
    async with lived(tmp_path, inference) as kernel:
        await read(kernel, tmp_path, "health.md", HEALTH)
        result = await told(kernel, "m1", "What am I allergic to?", persona="robin")
        assert result["text"] == "It is penicillin that you should keep away from [1]."
        assert "quoted" not in result
        assert [one["n"] for one in result["citations"]] == [1]


async def test_where_nothing_fits_nothing_is_quoted_and_no_mark_is_believed(tmp_path: Path) -> None:
    async with lived(tmp_path) as kernel:
        await read(kernel, tmp_path, "health.md", HEALTH)
        for id, brief in (("m1", "What is the capital of France?"), ("m2", "Plan a week of walks"), ("m3", "Who is Zaphod?")):
            result = await told(kernel, id, brief)
            assert "quoted" not in result
            assert "citations" not in result or result["citations"] == []
        plan = await told(kernel, "m4", "Plan what to tell the practice of Dr. Weber in Hafenstr. 5 about penicillin")
        assert (plan["text"], plan.get("citations", [])) == (INVENTED, []), "its mark is gone, and nothing is cited for it"


async def test_its_own_answers_are_no_evidence_unless_rated_or_asked_for(tmp_path: Path) -> None:
    inference = Inventor()
    async with lived(tmp_path, inference) as kernel:
        await told(kernel, "m1", "What am I allergic to?")
        await remembered(kernel, "mission:m1")
        again = await told(kernel, "m2", "Do you remember what I am allergic to?")
        assert "citations" not in again
        assert not any("Passages from memory" in request.user for request in inference.asked)
        asked = await told(kernel, "m3", "What did you say that I am allergic to?")
        assert asked["citations"][0]["origin"] == "self"
        assert any("(you answered" in request.user for request in inference.asked)
        await kernel.loop.rate("m1", 1, "")
        vouched = await told(kernel, "m4", "What am I allergic to?")
        assert [one["source"] for one in vouched["citations"]] == ["mission:m1"]
        await kernel.loop.rate("m1", -1, "")
        assert "citations" not in await told(kernel, "m5", "Now: what am I allergic to?")


async def test_what_was_rated_before_it_was_remembered_or_by_an_earlier_version_counts(tmp_path: Path) -> None:
    async with lived(tmp_path, remember="off") as kernel:
        await told(kernel, "m1", "What am I allergic to?")
        await kernel.loop.rate("m1", 1, "")
    async with lived(tmp_path) as kernel:
        await remembered(kernel, "mission:m1")
        assert len(kernel.image.read(objects.vouched)) == 1

        def forgotten(root: Any) -> None:
            root["lobby"].memory.vouched = objects.none_vouched()

        await kernel.image.system(forgotten)
    async with lived(tmp_path) as kernel:
        await until(lambda: kernel.image.read(objects.vouched))


async def test_what_the_user_tells_is_remembered_with_his_name_on_it(tmp_path: Path) -> None:
    inference = Inventor()
    async with lived(tmp_path, inference) as kernel:
        await told(kernel, "m1", "My name is Kim and I have a dog called Bruno.")
        await told(kernel, "m2", "I feel tired. Plan the day")
        await remembered(kernel, "said:m1", "mission:m2")
        assert "said:m2" not in sources(kernel)
        for id, brief in (("q1", "What is my name?"), ("q2", "What is my dog called?")):
            result = await told(kernel, id, brief)
            assert re.fullmatch(
                r"You told me \(on 20\d\d-\d\d-\d\d\): “My name is Kim and I have a dog called Bruno\.” \[1\]", result["text"]
            )
            assert (result["citations"][0]["origin"], result["citations"][0]["source"]) == ("user", "said:m1")
            assert result["citations"][0]["day"]
        await told(kernel, "q4", "What should I buy for my dog called Bruno?")
        assert any("(the user said, 20" in request.user for request in inference.asked)
        found = await kernel.memory.search(SearchRequest(op="search", question="What is my dog called?"))
        assert (found["hits"][0]["source"], found["hits"][0]["origin"], found["fits"]) == ("said:m1", "user", True)
        await kernel.memory.tell(forget="said:m1")
        assert "quoted" not in await told(kernel, "q3", "And what is my dog called?")
    async with lived(tmp_path, inference) as kernel:
        assert "said:m1" not in sources(kernel), "nor does it come back"


async def test_what_is_told_is_not_remembered_where_nothing_is_to_be(tmp_path: Path) -> None:
    async with lived(tmp_path, remember="off") as kernel:
        await told(kernel, "m1", "My name is Kim.")
        assert sources(kernel) == []


@pytest.mark.parametrize("origin", ["hook", "folder"])
async def test_what_others_say_is_nobody_s_statement(tmp_path: Path, origin: str) -> None:
    async with lived(tmp_path) as kernel:
        await told(kernel, "m1", "My name is Kim.", origin=origin)
        await told(kernel, "m2", "Plan the day")
        await remembered(kernel, "mission:m1", "mission:m2")
        assert "said:m1" not in sources(kernel)


async def test_an_undo_takes_back_what_was_told(tmp_path: Path) -> None:
    async with lived(tmp_path) as kernel:
        await told(kernel, "m1", "My name is Kim.")
        await remembered(kernel, "mission:m1", "said:m1")
        await kernel.undoing.undo(UndoRequest(op="undo", id="m1"))
        assert sources(kernel) == []


async def test_search_says_when_nothing_fits_and_puts_its_own_words_last(tmp_path: Path) -> None:
    async with lived(tmp_path) as kernel:
        await told(kernel, "m1", "What am I allergic to?")
        await remembered(kernel, "mission:m1")
        await read(kernel, tmp_path, "health.md", HEALTH)
        found = await kernel.memory.search(SearchRequest(op="search", question="What am I allergic to?"))
        assert [hit["origin"] for hit in found["hits"]][:1] == ["file"]
        assert found["hits"][-1]["origin"] == "self"
        assert found["hits"][0]["fits"] is True
        away = await kernel.memory.search(SearchRequest(op="search", question="How do walruses sleep?"))
        assert away["fits"] is False
        assert away["hits"], "the nearest are there"


def store(root: Any, shelver: Any, draft: Draft, source: str, mission: str = "") -> Any:
    prepared = prepare_document(draft, shelver, source=source, mission=mission, section_chars=1000)
    store_document(root, prepared, build(prepared.entries))
    return library_of(root).document(source)


async def test_documents_of_earlier_versions_have_the_origin_of_their_kind(tmp_path: Path) -> None:
    async with lived(tmp_path) as kernel:
        event = Listened(kernel, "n1")
        message = '{"target": "memory", "selector": "remember_", "args": ["The key is under the stone."], "kwargs": {}}'
        await kernel.scheduler.submit("n1", "memory remember_", {"message": message})
        await event.end()
        kinds = {"text": FILE, "markdown": FILE, "mission": SELF, "failure": SELF, "digest": SELF, "summary": SELF, "statement": USER}

        def look(root: Any) -> tuple[dict[str, str], list[str]]:
            shelver = kernel.memory.shelver
            found = {
                kind: origin_of(root, store(root, shelver, Draft(kind, kind, [DraftPart(f"words of {kind}")]), f"x:{kind}"))
                for kind in kinds
            }
            note = next(one for one in library_of(root).documents.values() if one.kind == "note")
            given = note.origin
            note._slots.pop("origin")  # as version 0.1.0 left it
            strange = store(root, shelver, Draft("note", "n", [DraftPart("made up")]), "note:1", "n1")
            unknown = store(root, shelver, Draft("note", "n", [DraftPart("made up")]), "note:2", "nobody")
            return found, [given, origin_of(root, note), origin_of(root, strange), origin_of(root, unknown)]

        found, notes = await kernel.image.system(look)
        assert found == kinds
        assert notes == [USER, USER, TOOL, TOOL]


def test_who_says_a_note() -> None:
    message = '{"target": "diary", "selector": "add_", "args": ["Fed the cat."], "kwargs": {}}'
    assert noted_by("Fed the cat.", "diary add_", message, ()) == USER
    assert noted_by("2026-11-26: fed", "diary add_", message, ()) == TOOL
    assert noted_by("The cat was surely fed by me.", "diary add_", message, ["The cat was surely fed by me."]) == SELF
    assert noted_by("Something thought", "Plan the day", None, ()) == SELF


@pytest.mark.parametrize(
    "brief",
    [
        "What did you say about tomatoes?",
        "You suggested a book last week, which one?",
        "What was your last answer?",
        "Was hast du mir zur Heizung gesagt?",
        "Qu'as-tu dit sur le chauffage ?",
        "¿Qué me dijiste de la cita?",
        "Che cosa mi hai detto ieri?",
        "What did we decide about the tiles?",
    ],
)
def test_own_answers_are_asked_for(brief: str) -> None:
    assert asks_what_was_answered(brief)


@pytest.mark.parametrize(
    "brief",
    [
        "Do you remember my name?",
        "What was yesterday's weather like, and earlier?",
        "What did I tell you about the heating?",
        "Remember that I am allergic",
        "Was habe ich über die Heizung gesagt?",
        "What am I allergic to?",
    ],
)
def test_and_here_they_are_not(brief: str) -> None:
    assert not asks_what_was_answered(brief)


def test_what_a_question_is_about() -> None:
    assert subject_of("Wie heißt mein Hund?").words == ("hund",)
    assert subject_of("What is my name?").words == ("name",)
    assert subject_of("What is the plumber's phone number?")[:2] == (("plumber",), ("phone", "number"))
    assert not subject_of("Plan a party").asks
    assert subject_of("Où habite ma sœur ?").own
    assert not subject_of("Tell me the capital of France").own


def test_long_briefs_and_runs_of_one_character_are_looked_at_in_time() -> None:
    for char in "a .?'’-":
        text = char * 60_000
        assert not asks_what_was_answered(text)
        assert len(subject_of(text).words) <= 1
