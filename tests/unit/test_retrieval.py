"""Retrieval over a real image: passages with where they are from, with and without an embedder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batos.errors import InferenceFailed, InvalidInput
from batos.image import LivingImage
from batos.memory import objects
from batos.memory.chunking import ChunkLimits
from batos.memory.drafts import DraftPart, Turn
from batos.memory.embedders import Identity
from batos.memory.embedding_worker import adopt_embedder, load_collection
from batos.memory.records import Numbers
from batos.memory.retrieval import PassageQuery, Retrieval, RetrievalTerms
from batos.memory.search_index import Collection
from batos.memory.section_builder import KnownNames, Shelver
from batos.memory.segments import build
from batos.memory.store import library_of
from tests.support.search import DIMENSIONS, axis, noise

DAY = date(2023, 5, 7)


class Embedder:
    """Knows two meanings; may be another one, be away, or never answer."""

    def __init__(self) -> None:
        self.digest, self.fault, self.calls = "one", None, 0
        self.texts: list[str] = []
        self.hangs = False

    async def identity(self) -> Identity:
        return Identity("test", "two-meanings", self.digest, DIMENSIONS)

    async def embed(self, texts: Sequence[str]) -> Any:
        self.calls += 1
        self.texts += texts
        if self.fault is not None:
            raise self.fault
        if self.hangs:
            await asyncio.Event().wait()
        return np.stack([axis(3) if "sea" in text else axis(4) for text in texts])


class Memory:
    """An image with two documents, and the retrieval over it."""

    def __init__(self, image: LivingImage) -> None:
        self.image, self.embedder, self.clock = image, Embedder(), 0.0
        self.collection = Collection()
        self.retrieval = Retrieval(
            image,
            lambda: self.collection,
            lambda maker: self.embedder,
            RetrievalTerms(limit_s=2, pause_s=30),
            today=lambda: date(2023, 5, 8),
            now=lambda: self.clock,
        )

    async def fill(self) -> None:
        await self.image.system(_fill)
        self.collection = self.image.read(load_collection)

    async def vectors(self) -> None:
        """A vector for each chunk; the note about boats is near the sea."""
        await self.image.system(adopt_embedder, str(await self.embedder.identity()), DIMENSIONS)
        self.collection = self.image.read(load_collection)
        ids = self.collection.view().ids
        rows = noise(len(ids))
        rows[ids == _number(self.image, "Boats")] = axis(3)
        self.collection.vectors(ids, rows)

    async def ask(self, question: str, **wanted: Any) -> dict[str, Any]:
        return await self.retrieval.search(PassageQuery(question, **wanted), explain=True)


def _fill(root: Any) -> None:
    library, shelver = library_of(root), Shelver(Numbers(7), ChunkLimits(20, 400), KnownNames())
    notes = [
        DraftPart("Boats lie at the quay.", "Quay"),
        DraftPart("Trees grow in the wood.", "Wood"),
        DraftPart("Roads lead away.", "Roads"),
    ]
    talk = "Ann: I sold my dog.\nBen: I kept my cat.\n"
    said = DraftPart(talk, "Sunday", DAY.toordinal(), (Turn(0, 20, "Ann"), Turn(20, len(talk), "Ben")))
    for number, source, kind, parts in ((1, "/n/notes.md", "markdown", notes), (2, "/t/talk.txt", "conversation", [said])):
        shelved = [shelver.shelve(part, document=number, kind=kind) for part in parts]
        segment = build([entry for one in shelved for entry in one.entries])
        facts = {
            "title": Path(source).stem.title(),
            "source": source,
            "sources": (source,),
            "kind": kind,
            "digest": source.encode(),
            "complete": True,
        }
        sections = tuple(one.shelf.section.number for one in shelved)
        library.put(root, number, facts, [one.shelf for one in shelved], segment, sections)


def _number(image: LivingImage, begins: str) -> int:
    return image.read(lambda root: next(n for n, chunk in library_of(root).chunks.items() if chunk.text.startswith(begins)))


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    image = await LivingImage.open(f"file://{tmp_path}/image.fs", steps=(objects.install,))
    made = Memory(image)
    await made.fill()
    yield made
    await image.close()


async def test_a_passage_says_where_it_is_from(memory: Memory) -> None:
    hit = (await memory.ask("Who sold a dog?"))["hits"][0]
    assert {name: hit[name] for name in ("text", "source", "title", "section", "kind", "speaker", "day")} == {
        "text": "Ann: I sold my dog.",
        "source": "/t/talk.txt",
        "title": "Talk",
        "section": "Sunday",
        "kind": "conversation",
        "speaker": "Ann",
        "day": "2023-05-07",
    }
    assert hit["oid"].startswith("oid:")
    assert hit["path"] == [hit["oid"]]
    assert hit["signals"]["words"] > 0


async def test_without_vectors_words_decide_and_the_answer_says_so(memory: Memory) -> None:
    reply = await memory.ask("Which boats?")
    assert reply["hits"][0]["text"] == "Boats lie at the quay."
    assert (reply["by_vectors"], reply["why"]) == (False, "no passage has a vector yet")
    assert memory.embedder.calls == 0


async def test_meaning_finds_what_no_word_does(memory: Memory) -> None:
    await memory.vectors()
    reply = await memory.ask("What is at the sea?")
    assert (reply["by_vectors"], reply["why"]) == (True, "")
    assert reply["hits"][0]["text"] == "Boats lie at the quay."
    assert memory.embedder.calls == 1


async def test_a_question_that_cleaning_leaves_as_it_is_is_read_once(memory: Memory) -> None:
    await memory.vectors()
    assert (await memory.ask("sea"))["hits"][0]["text"] == "Boats lie at the quay."
    assert memory.embedder.texts == ["sea"]


async def test_an_embedder_that_is_away_costs_one_question_and_is_then_left_alone(memory: Memory) -> None:
    await memory.vectors()
    memory.embedder.fault = InferenceFailed("nobody answers at 127.0.0.1:1", cause="refused")
    for _ in range(2):
        reply = await memory.ask("Which boats?")
        assert reply["hits"][0]["text"] == "Boats lie at the quay."
        assert (reply["by_vectors"], reply["why"]) == (False, "the embedder is away: nobody answers at 127.0.0.1:1")
    assert memory.embedder.calls == 1
    memory.clock, memory.embedder.fault = 31.0, None
    assert (await memory.ask("Which boats?"))["by_vectors"]


async def test_an_embedder_that_never_answers_is_not_waited_for(memory: Memory) -> None:
    await memory.vectors()
    memory.embedder.hangs = True
    assert (await memory.ask("Which boats?"))["why"] == "the embedder is away: no answer within 2 s"


async def test_vectors_of_two_embedders_are_never_compared(memory: Memory) -> None:
    await memory.vectors()
    memory.embedder.digest = "two"
    reply = await memory.ask("What is at the sea?")
    assert (reply["by_vectors"], memory.embedder.calls) == (False, 0)
    assert "makes them anew" in reply["why"]


@pytest.mark.parametrize(
    ("wanted", "texts"),
    [
        ({"kind": "conversation"}, {"Ann: I sold my dog.", "Ben: I kept my cat."}),
        ({"kind": "pdf"}, set()),
        ({"source": "/t/talk.txt", "speaker": "ben"}, {"Ben: I kept my cat."}),
        ({"source": "/n"}, {"Boats lie at the quay.", "Trees grow in the wood.", "Roads lead away."}),
        ({"source": "/n/no"}, set()),
        ({"since": DAY}, {"Ann: I sold my dog.", "Ben: I kept my cat."}),
        ({"until": date(2023, 5, 6)}, set()),
        ({"k": 1, "kind": "markdown"}, {"Boats lie at the quay."}),
    ],
)
async def test_only_what_fits(memory: Memory, wanted: dict[str, Any], texts: set[str]) -> None:
    assert {hit["text"] for hit in (await memory.ask("boats?", **wanted))["hits"]} == texts


async def test_what_was_forgotten_since_the_view_was_taken_is_left_out(memory: Memory) -> None:
    def forget(root: Any) -> None:
        library_of(root).forget(library_of(root).document("/t/talk.txt"))

    await memory.image.system(forget)  # the collection has not heard of it yet
    assert {hit["kind"] for hit in (await memory.ask("Who sold a dog?"))["hits"]} == {"markdown"}


async def test_yesterday_is_the_day_before_today(memory: Memory) -> None:
    reply = await memory.ask("What did they say yesterday?")
    assert reply["understood"]["days"] == [["2023-05-07", "2023-05-07"]]
    assert reply["hits"][0]["day"] == "2023-05-07"


async def test_signals_are_told_to_who_asks_for_them(memory: Memory) -> None:
    reply = await memory.retrieval.search(PassageQuery("boats?"))
    assert "understood" not in reply
    assert {"signals", "path"} & reply["hits"][0].keys() == set()


async def test_a_question_without_words_is_refused(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="no words"):
        await memory.ask("?!")


async def test_a_kind_that_no_document_can_have_is_refused_with_those_that_there_are(memory: Memory) -> None:
    assert (await memory.ask("boats", kind="pdf"))["hits"] == []
    with pytest.raises(InvalidInput, match=r"'markdwn' \(did you mean 'markdown'\?\); the kinds are text, markdown, html, pdf, code, conv"):
        await memory.ask("boats", kind="markdwn")


async def test_a_search_waits_for_no_transaction(memory: Memory) -> None:
    """One that holds the committer for as long as it likes."""
    begun, end = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(root: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(end.wait(), loop).result()

    held = asyncio.create_task(memory.image.system(hold))
    await begun.wait()
    assert (await memory.ask("Which boats?"))["hits"]
    assert not held.done()
    end.set()
    await held
