"""What a mission recalls from memory: in its prompts, in its journal, in its citations."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatReply, ChatRequest
from batos.errors import InferenceFailed
from batos.image import history, journal, ledger
from batos.memory.records import Passage as Stored
from batos.memory.records import Section, Shelf
from batos.memory.store import library_of
from batos.mind import evidence, rule_answers
from batos.mind.evidence import RecalledPassage
from tests.support import missions
from tests.support.missions import FakeInference, Listened, answer, give, submit

TIDE = "The tide mill at Olhao was built in 1840 and ground maize until 1975."
MILLER = "Its last miller was Joaquim Fernandes, who kept a diary of every tide."
FOUND = (RecalledPassage(1, "0a", "Mills", "mills.md", TIDE), RecalledPassage(2, "0b", "Mills", "mills.md", MILLER))


def store(root: Any) -> None:
    section = Section(1, 1, 1, 2, 2, b"", "", 0, True)
    facts = {"title": "Mills", "source": "mills.md", "sources": ("mills.md",), "digest": b"d", "complete": True}
    library_of(root).put(root, 1, facts, [Shelf(section, (Stored(TIDE), Stored(MILLER)))], None, [1])


mind = functools.partial(missions.mind, remember="off")


class Recalls:
    """Memory, as far as missions see it."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers, self.asked = numbers, list[str]()
        self.failure: Exception | None = None

    async def recall(self, question: str) -> Sequence[int]:
        self.asked.append(question)
        await asyncio.sleep(0)  # as a search in a thread does, it lets others run
        if self.failure is not None:
            raise self.failure
        return self.numbers


async def think(kernel: Kernel, id: str, brief: str) -> dict[str, Any]:
    event = await (await submit(kernel, id, brief)).end()
    assert event["state"] == "COMPLETE", event
    return dict(event["result"])


async def kernel_with(kernel: Kernel, recalls: Recalls) -> None:
    await kernel.image.system(store)
    give(kernel, memory=recalls)


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
    [
        ("So it was [3].", "So it was."),
        ("Take rows[0] of it [1][9].", "Take rows[0] of it [1]."),
        ("So it was [2].", "So it was [2]."),
        ("[0] a [12]b", " a [12]b".replace(" [12]", "")),
    ],
)
def test_marks_that_name_no_passage_are_taken_out(text: str, left: str) -> None:
    assert evidence.without_false_marks(text, FOUND) == left
    assert evidence.without_false_marks(text, ()) == text


def test_what_the_brief_says_already_lays_a_sentence_to_nobody() -> None:
    brief = "Who was the last miller, and when was the mill built?"
    assert evidence.cited("The last miller built the mill.", FOUND, brief) == []
    assert evidence.cited("It was built in 1840.", FOUND, brief) == [(1, "It was built in 1840.")]


def quoted(brief: str, *found: RecalledPassage) -> str:
    return rule_answers.quotes_text(rule_answers.quotes(brief, found))


def test_quotes_are_the_sentences_that_hold_the_question() -> None:
    more = RecalledPassage(3, "0c", "Boats", "boats.txt", "The mooring is paid in May. Oars hang in the shed.")
    assert quoted("Who kept a diary of the tide?", *FOUND, more) == f"“{MILLER}” [2]"
    assert quoted("Where do the oars hang?", more) == "“Oars hang in the shed.” [1]"
    assert quoted("Xyzzy?", *FOUND) == "", "nothing fits: nothing is quoted"
    both = RecalledPassage(1, "0a", "Heater", "heater.md", "The thermostat is broken. It is blue. Ask Hendrik for the spare one.")
    assert quoted("Who has the spare thermostat?", both) == "“The thermostat is broken. Ask Hendrik for the spare one.” [1]"


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
        assert len(shown) == len(inference.asked), "the plan, too: what all prompts share is the same"
        assert all(f"[1] (Mills) {TIDE}\n[2] (Mills) {MILLER}" in request.user for request in shown)
        assert result["text"] == "The tide mill at Olhao ground maize until 1975 [1]."
        (cited,) = result["citations"]
        assert (cited["n"], cited["source"], cited["sentences"]) == (1, "mills.md", [result["text"]])
        assert cited["chunk"] == kernel.image.read(lambda root: history.oid_of(library_of(root).chunks[1]))
        await kernel.image.system(lambda root: None)  # with it comes what was deferred
        (recorded,) = kernel.image.read(journal.recalled_of, "m1").values()
        assert (recorded.question, recorded.chunks, recorded.shown) == ("Look up when the mill stopped", (1, 77, 2), ())


async def test_who_keeps_to_memory_quotes_it_where_the_model_does_not(tmp_path: Path) -> None:
    inference = FakeInference()  # which never says a word of the passages
    async with mind(tmp_path, inference) as kernel:
        await kernel_with(kernel, Recalls([1, 2]))
        result = await think(kernel, "m1", "Look up who kept a diary of the tide")
        assert result["persona"] == "BABS"
        assert result["quoted"] is True
        assert result["text"] == f"“{MILLER}” [2]"
        assert [(one["n"], one["sentences"], one["origin"]) for one in result["citations"]] == [(2, [MILLER], "file")]
        assert any("most of it is not from the passages" in request.user for request in inference.asked), "it was asked once more"
        plan = await think(kernel, "m2", "Plan a visit to the mill")
        assert (plan["persona"], plan.get("quoted")) == ("BRICK", None)


LEASE = RecalledPassage(
    1, "oid:1", "lease", "lease.txt", "The lease of the greenhouse ends on 30 September 2027, and Hendrik has the keys."
)


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("The lease ends on 30 September 2027.", True),
        ("Hendrik has the keys. The lease of the greenhouse ends on 30 September 2027 [1].", True),
        ("The lease of the greenhouse ends on 20 September 2027 [1].", False),
        ("The lease of the greenhouse ends on 30 October 2027 [1].", False),
        ("The lease ends on 30 September 2027, and Ingrid has the keys.", False),
        ("Magic spells are possible in this world [1].", False),
        ("Magic is possible. So are spells. The lease ends on 30 September 2027.", False),
    ],
)
def test_what_keeps_to_a_passage(text: str, keeps: bool) -> None:
    assert evidence.keeps_to(text, [LEASE], "Look up when it is over") is keeps


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
        assert [one.text for one in kernel.image.read(evidence.passages, (1, 2), 1000)] == [f"{TIDE}\n{MILLER}", "# Alone"]

        def spoken(root: Any) -> None:
            library = library_of(root)
            library.documents[1].kind = "conversation"
            for number, text in ((1, "# 8 May\nAnna: It froze."), (2, "It thawed.")):
                library.chunks[number].text, library.chunks[number].speaker = text, "Anna"

        await kernel.image.system(spoken)
        assert [one.text for one in kernel.image.read(evidence.passages, (1, 2), 1000)] == ["Anna: It froze.", "Anna: It thawed."]


async def test_a_mission_that_is_taken_up_again_recalls_the_same_and_pays_nothing_twice(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("gone", cause="unreachable") if "Notes to use" in request.user else None
    async with mind(tmp_path, inference, retry_backoff_s=600, shutdown_s=0.1) as kernel:
        await kernel_with(kernel, Recalls([2, 1]))
        await submit(kernel, "m1", "Plan a visit to the mill")
        await inference.came(5)
    asked = [request.user for request in inference.asked]
    again = FakeInference()
    async with mind(tmp_path, again) as kernel:
        recalls = Recalls([1])  # memory would say something else by now
        give(kernel, memory=recalls)
        result = (await Listened(kernel, "m1").end())["result"]
        assert recalls.asked == []
        assert [request.user for request in again.asked] == [asked[-1]]
        assert result["usage"]["replayed"] == len(asked) - 1


async def test_marks_of_others_are_no_marks_of_this_answer(tmp_path: Path) -> None:
    """An inner cycle's, an earlier mission's, a document's own: each numbers what others do not see under that number."""

    def say(request: ChatRequest) -> str:
        if "Notes to use" not in request.user:
            return answer(request)
        return "It ground maize until 1975 [2]." if "robin:" not in request.user else "Be gentle with yourself, and cook soup for four."

    def footnotes(root: Any) -> None:
        library_of(root).chunks[1].text = TIDE.replace("1840", "1840 [2]")

    inference = FakeInference()
    inference.say = say
    async with mind(tmp_path, inference) as kernel:
        await kernel_with(kernel, Recalls([1, 2]))
        await kernel.image.system(footnotes)
        two = "I feel so lonely and sad since she left. Then plan a small dinner for four friends."
        assert (await think(kernel, "m1", two))["plan"] == "personas"
        outer = next(request.user for request in inference.asked if "Notes to use" in request.user and "robin:" in request.user)
        assert "It ground maize until 1975." in outer
        assert "built in 1840 (2) and" in outer
        first = await think(kernel, "m2", "Plan a visit to the mill")
        assert [one["n"] for one in first["citations"]] == [1], "whatever the model marked it with"
        heard = await submit(kernel, "m3", "And then plan a second visit", context="m2")
        await heard.end()
        assert "Answer: It ground maize until 1975.\n" in inference.asked[-1].user


async def test_a_document_that_is_cut_otherwise_or_forgotten_meanwhile(tmp_path: Path) -> None:
    def recut(root: Any) -> None:
        library_of(root).chunks[2].text = "Its last miller was somebody else."

    def forget(root: Any) -> None:
        library = library_of(root)
        library.forget(library.documents[1])

    for name, change, fresh in (("recut", recut, 1), ("forget", forget, None)):
        inference = FakeInference()
        inference.fail_when = lambda request: InferenceFailed("gone", cause="unreachable") if "Notes to use" in request.user else None
        async with mind(tmp_path / name, inference, retry_backoff_s=600, shutdown_s=0.1) as kernel:
            await kernel_with(kernel, Recalls([2, 1]))
            await submit(kernel, "m1", "Plan a visit to the mill")
            await inference.came(5)
            await kernel.image.system(change)
        again = FakeInference()
        async with mind(tmp_path / name, again) as kernel:
            give(kernel, memory=Recalls([1]))
            await Listened(kernel, "m1").end()
            assert fresh is None or len(again.asked) == fresh, "what was paid for is found"
            assert all((MILLER in request.user) is (fresh is not None) for request in again.asked), name
            assert "somebody else" not in str([request.user for request in again.asked])
            await kernel.image.system(lambda root: None)  # with it comes what was deferred
            (recorded,) = kernel.image.read(journal.recalled_of, "m1").values()
            assert recorded.shown == (), "no text stays behind"


async def test_a_mission_that_recalled_nothing_recalls_nothing_later(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("gone", cause="unreachable") if "Notes to use" in request.user else None
    for name, failure in (("a", None), ("b", InferenceFailed("no embedder", cause="unreachable"))):
        async with mind(tmp_path / name, inference, retry_backoff_s=600, shutdown_s=0.1) as kernel:
            recalls = Recalls([])
            recalls.failure = failure
            await kernel_with(kernel, recalls)
            await submit(kernel, "m1", "Plan a visit to the mill")
            await inference.came(5)
        again, inference.asked = FakeInference(), []
        async with mind(tmp_path / name, again) as kernel:
            recalls = Recalls([1])
            give(kernel, memory=recalls)  # by now memory would know something
            result = (await Listened(kernel, "m1").end())["result"]
            assert (recalls.asked, len(again.asked)) == ([], 1)
            assert "citations" not in result


async def test_a_replay_asks_no_memory_and_leaves_no_trace(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await kernel_with(kernel, Recalls([]))
        await think(kernel, "m1", "Plan a visit to the mill")
        recalls = Recalls([1])
        give(kernel, memory=recalls)
        await kernel.image.system(lambda root: setattr(ledger.mission_of(root, "m1").journal, "nothing_on", ()))  # as older missions are
        told = await kernel.replays.replay("m1")
        assert (told["outcome"], recalls.asked) == ("same", [])
        await kernel.image.system(lambda root: None)  # with it comes what was deferred
        assert kernel.image.read(journal.recalled_of, "m1") == {}


async def test_a_memory_that_cannot_be_asked_does_not_fail_the_mission(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        recalls = Recalls([])
        recalls.failure = InferenceFailed("no embedder", cause="unreachable")
        give(kernel, memory=recalls)
        result = await think(kernel, "m1", "Look up the mill")
        assert "citations" not in result
        assert json.loads(json.dumps(result))["text"]


async def test_a_quotation_is_not_cut_where_the_answer_was_that_it_stands_for(tmp_path: Path) -> None:
    class Cut(FakeInference):
        async def chat(self, request: ChatRequest, **more: Any) -> ChatReply:
            reply = await super().chat(request, **more)
            return reply if request.schema is not None else dataclasses.replace(reply, done_reason="length")

    async with mind(tmp_path, Cut()) as kernel:
        await kernel_with(kernel, Recalls([1, 2]))
        result = await think(kernel, "m1", "Look up who kept a diary of the tide")
    assert (result["quoted"], result.get("cut")) == (True, None)
