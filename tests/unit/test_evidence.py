"""What a mission recalls from memory: in its prompts, in its journal, in its citations."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batos.bridge.types import ChatRequest
from batos.errors import InferenceFailed
from batos.image import history, journal
from batos.kernel import Kernel
from batos.memory.library import Passage as Stored
from batos.memory.library import Section, Shelf, library_of
from batos.mind import evidence
from batos.mind.evidence import Passage
from tests.unit import mind_support
from tests.unit.mind_support import FakeInference, Listened, answer, submit

TIDE = "The tide mill at Olhao was built in 1840 and ground maize until 1975."
MILLER = "Its last miller was Joaquim Fernandes, who kept a diary of every tide."
FOUND = (Passage(1, "0a", "Mills", "mills.md", TIDE), Passage(2, "0b", "Mills", "mills.md", MILLER))


def store(root: Any) -> None:
    section = Section(1, 1, 1, 2, 2, b"", "", 0, True)
    facts = {"title": "Mills", "source": "mills.md", "sources": ("mills.md",), "digest": b"d", "complete": True}
    library_of(root).put(root, 1, facts, [Shelf(section, (Stored(TIDE), Stored(MILLER)))], None, [1])


mind = functools.partial(mind_support.mind, remember="off")


class Recalls:
    """Memory, as far as missions see it."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers, self.asked = numbers, list[str]()
        self.failure: Exception | None = None

    async def recall(self, question: str) -> Sequence[int]:
        self.asked.append(question)
        if self.failure is not None:
            raise self.failure
        return self.numbers


async def think(kernel: Kernel, id: str, brief: str) -> dict[str, Any]:
    event = await (await submit(kernel, id, brief)).end()
    assert event["state"] == "COMPLETE", event
    return dict(event["result"])


async def kernel_with(kernel: Kernel, recalls: Recalls) -> None:
    await kernel.image.system(store)
    kernel.memory = recalls


def test_marks_and_shared_words_lay_a_sentence_to_its_passage() -> None:
    text = "The mill ground maize until 1975 [1]. A diary of every tide was kept by the miller Joaquim. Nobody knows more. See [2][1]."
    assert evidence.cited(text, FOUND) == [
        (1, "The mill ground maize until 1975 [1]."),
        (2, "A diary of every tide was kept by the miller Joaquim."),
        (2, "See [2][1]."),
        (1, "See [2][1]."),
    ]
    (first, second) = evidence.citations(evidence.cited(text, FOUND), FOUND)
    assert (first.n, first.chunk, first.source, len(first.sentences)) == (1, "0a", "mills.md", 2)
    assert second.to_wire()["sentences"][0].startswith("A diary")


@pytest.mark.parametrize(
    ("text", "left"),
    [("So it was [3].", "So it was."), ("So it was [2].", "So it was [2]."), ("[0] a [12]b", " a [12]b".replace(" [12]", ""))],
)
def test_marks_that_name_no_passage_are_taken_out(text: str, left: str) -> None:
    assert evidence.without_false_marks(text, FOUND) == left
    assert evidence.without_false_marks(text, ()) == text


def test_what_the_brief_says_already_lays_a_sentence_to_nobody() -> None:
    brief = "Who was the last miller, and when was the mill built?"
    assert evidence.cited("The last miller built the mill.", FOUND, brief) == []
    assert evidence.cited("It was built in 1840.", FOUND, brief) == [(1, "It was built in 1840.")]


def test_quotes_are_the_sentences_that_hold_the_question() -> None:
    more = Passage(3, "0c", "Boats", "boats.txt", "The mooring is paid in May. Oars hang in the shed.")
    assert evidence.quoted("Who kept a diary of the tide?", (*FOUND, more)) == f"{TIDE} [1]\n{MILLER} [2]"
    assert evidence.quoted("Where do the oars hang?", (more,)) == "Oars hang in the shed. [1]"
    assert evidence.quoted("Xyzzy?", FOUND) == f"{TIDE} [1]"
    both = Passage(1, "0a", "Heater", "heater.md", "The thermostat is broken. It is blue. Ask Hendrik for the spare one.")
    assert evidence.quoted("Who has the spare thermostat?", (both,)) == "The thermostat is broken. Ask Hendrik for the spare one. [1]"


async def test_prompts_hold_the_passages_and_the_result_names_those_that_were_used(tmp_path: Path) -> None:
    def say(request: ChatRequest) -> str:
        woven = "The tide mill at Olhao ground maize until 1975 [1] [9]."
        return woven if "Notes to use" in request.user else answer(request)

    inference = FakeInference()
    inference.say = say
    async with mind(tmp_path, inference) as kernel:
        recalls = Recalls([1, 77, 2])  # 77 was forgotten in the meantime
        await kernel_with(kernel, recalls)
        result = await think(kernel, "m1", "Look up when the mill stopped")
        assert recalls.asked == ["Look up when the mill stopped"], "once, for all its inferences"
        shown = [request for request in inference.asked if TIDE in request.user]
        assert len(shown) == len(inference.asked) - 1, "all but the plan"
        assert all(f"[1] (Mills) {TIDE}\n[2] (Mills) {MILLER}" in request.user for request in shown)
        assert result["text"] == "The tide mill at Olhao ground maize until 1975 [1]."
        (cited,) = result["citations"]
        assert (cited["n"], cited["source"], cited["sentences"]) == (1, "mills.md", [result["text"]])
        assert cited["chunk"] == kernel.image.read(lambda root: history.oid_of(library_of(root).chunks[1]))
        assert kernel.image.read(journal.recalled_of, "m1") == {"Look up when the mill stopped": (1, 77, 2)}


async def test_who_keeps_to_memory_quotes_it_where_the_model_does_not(tmp_path: Path) -> None:
    inference = FakeInference()  # which never says a word of the passages
    async with mind(tmp_path, inference) as kernel:
        await kernel_with(kernel, Recalls([1, 2]))
        result = await think(kernel, "m1", "Look up who kept a diary of the tide")
        assert result["persona"] == "BABS"
        assert result["quoted"] is True
        assert result["text"] == f"{TIDE} [1]\n{MILLER} [2]"
        assert [one["n"] for one in result["citations"]] == [1, 2]
        assert any("most of it is not from the passages" in request.user for request in inference.asked), "it was asked once more"
        plan = await think(kernel, "m2", "Plan a visit to the mill")
        assert (plan["persona"], plan.get("quoted")) == ("BRICK", None)


async def test_passages_are_cut_at_the_budget(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel_with(kernel, Recalls([]))
        for chars, texts in ((1000, [TIDE, MILLER]), (len(TIDE) + 10, [TIDE, MILLER[:9] + "…"]), (10, [TIDE[:9] + "…"]), (0, [])):
            assert [one.text for one in kernel.image.read(evidence.passages, (1, 2), chars)] == texts


async def test_headings_are_no_part_of_what_a_passage_says(tmp_path: Path) -> None:
    def headed(root: Any) -> None:
        library = library_of(root)
        library.documents[1].kind = "markdown"
        library.chunks[1].text, library.chunks[2].text = f"# Mills\n\n{TIDE}\n## Millers\n{MILLER}", "# Alone\n"

    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel_with(kernel, Recalls([]))
        await kernel.image.system(headed)
        assert [one.text for one in kernel.image.read(evidence.passages, (1, 2), 1000)] == [f"{TIDE} {MILLER}", "# Alone"]


async def test_a_mission_that_is_taken_up_again_recalls_the_same_and_pays_nothing_twice(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("gone", cause="unreachable") if "Notes to use" in request.user else None
    async with mind(tmp_path, inference, retry_backoff_s=600) as kernel:
        await kernel_with(kernel, Recalls([2, 1]))
        await submit(kernel, "m1", "Plan a visit to the mill")
        await inference.came(5)
    asked = [request.user for request in inference.asked]
    again = FakeInference()
    async with mind(tmp_path, again) as kernel:
        recalls = Recalls([1])  # memory would say something else by now
        kernel.memory = recalls
        result = (await Listened(kernel, "m1").end())["result"]
        assert recalls.asked == []
        assert [request.user for request in again.asked] == [asked[-1]]
        assert result["usage"]["replayed"] == len(asked) - 1


async def test_a_memory_that_cannot_be_asked_does_not_fail_the_mission(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        recalls = Recalls([])
        recalls.failure = InferenceFailed("no embedder", cause="unreachable")
        kernel.memory = recalls
        result = await think(kernel, "m1", "Look up the mill")
        assert "citations" not in result
        assert json.loads(json.dumps(result))["text"]
