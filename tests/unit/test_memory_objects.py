"""Documents, chunks, entities and summaries as objects that answer messages; what a mission remembers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from batos.errors import ImageDamaged, InferenceFailed, InvalidInput, UnknownSource
from batos.image import LivingImage, history
from batos.memory import embedding_worker, objects
from batos.memory.drafts import Draft, DraftPart
from batos.memory.retrieval import PassageQuery
from batos.memory.section_builder import remember_document
from batos.memory.segments import Segment
from batos.memory.store import library_of, summary_source
from batos.mind.messages import send
from tests.support.memory import Memory, memory
from tests.support.missions import FakeInference, mind, submit

CHAT = "# 8 May 2023\nAnna: I planted tomatoes.\nBen: Which kind, Anna?\nAnna: San Marzano, as in the Garden Book.\nBen: Nice.\n"


async def told(held: Memory, source: Path, at: int, selector: str, *args: Any) -> Any:
    """What the chunk at a place of a document answers: texts of chunks, names of entities, titles of documents."""
    with held.image.snapshot() as root:
        library = library_of(root)
        chunk = list(library.chunks_of(library.document(str(source))))[at]
        answer = await send(chunk, selector, *args)
        many = answer if isinstance(answer, tuple) else (answer,)
        return [next(one._slots[name] for name in ("text", "name", "title") if name in one._slots) for one in many]


async def test_chunks_lead_to_neighbours_sources_and_entities(tmp_path: Path) -> None:
    book, chat = tmp_path / "book.md", tmp_path / "chat.txt"
    book.write_text("# Garden Book\n\nSan Marzano is a kind of tomato.\n\n# Elsewhere\n\nNothing of that.\n")
    chat.write_text(CHAT)
    async with memory(tmp_path) as held:
        await held.read(book)
        await held.read(chat)
        await held.until(lambda: not held.look(lambda library: list(library.unlinked.keys("", excludemin=True))))  # the titles are known
        for _ in range(2):  # before there are vectors, and after
            assert await told(held, chat, 1, "neighbours_") == [f"# 8 May 2023\n{held_line(0)}", held_line(2)]
            assert await told(held, chat, 1, "neighbours_", 9) == [f"# 8 May 2023\n{held_line(0)}", held_line(2), held_line(3)]
            assert await told(held, book, 0, "neighbours_") == []  # what is under another heading is no neighbour
            assert await told(held, chat, 0, "source_") == ["chat"]
            assert await told(held, chat, 1, "mentions_") == ["Ben", "Anna"]
            assert await told(held, chat, 2, "mentions_") == ["Anna", "Garden Book"]
            assert held.look(links) == [(held.numbers(chat)[2], number_of(held, book))]
            await held.embedded()
        with held.image.snapshot() as root:
            library = library_of(root)
            assert [c.text for c in await send(library.entities["garden book"], "mentions_")] == [held_line(2)]
            assert [c.number for c in await send(library.document(str(chat)), "chunks_")] == held.numbers(chat)
        with pytest.raises(InvalidInput, match="from 1 to 1000"):
            await told(held, chat, 0, "neighbours_", 0)
        await held.recollection.tell(forget=str(chat))
        assert held.look(lambda library: list(library.entities)) == []
        await held.whole()


async def test_a_chunk_that_is_gone_has_no_neighbours_and_one_in_no_section_is_damaged(tmp_path: Path) -> None:
    chat = tmp_path / "chat.txt"
    chat.write_text(CHAT)
    async with memory(tmp_path) as held:
        await held.read(chat)
        with held.image.snapshot() as root:
            library = library_of(root)
            gone, astray = list(library.chunks_of(library.document(str(chat))))[:2]
            library.starts.clear()
            with pytest.raises(ImageDamaged, match=r"in no section; restore a backup \(`batos restore`\)"):
                await send(astray, "neighbours_")
            del library.chunks[gone.number]
            with pytest.raises(InvalidInput, match=r"no longer in the memory: .* search for it again"):
                await send(gone, "neighbours_")


def held_line(number: int) -> str:
    return CHAT.splitlines(keepends=True)[number + 1]


def number_of(held: Memory, source: Path) -> int:
    return held.look(lambda library: library.document(str(source)).number)  # type: ignore[no-any-return]


def links(library: Any) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for segment in library.text.segments() for a, b in segment.links]


async def test_what_is_named_before_it_is_there_is_pointed_at_without_an_embedder_and_with_one(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        held.embedder.away = True
        (tmp_path / "a.md").write_text("# A\n\nSee the Garden Book.\n")
        (tmp_path / "b.md").write_text("# Garden Book\n\nTomatoes.\n")
        await held.read(tmp_path / "a.md", tmp_path / "b.md")
        pointed = [(held.numbers(tmp_path / "a.md")[0], number_of(held, tmp_path / "b.md"))]
        await held.until(lambda: held.look(links) == pointed)
        held.embedder.away = False
        await held.embedded()
        assert held.look(links) == pointed
        await held.whole()


async def test_a_title_that_comes_later_is_pointed_at_by_what_was_there_and_nothing_is_embedded_again(tmp_path: Path) -> None:
    early, late = tmp_path / "a.md", tmp_path / "b.md"
    early.write_text("# A\n\nSee the Garden Book.\n\n# More\n\nOf nothing.\n")
    late.write_text("# Garden Book\n\nTomatoes.\n")
    async with memory(tmp_path) as held:
        await held.read(early)
        await held.embedded()
        numbers, count = held.numbers(early), len(held.embedder.texts)
        await held.read(late)
        await held.until(lambda: held.look(links) == [(numbers[0], number_of(held, late))])
        await held.whole()
        assert held.numbers(early) == numbers
        assert not any("See the" in text for text in held.embedder.texts[count:])
        assert await told(held, early, 0, "mentions_") == ["Garden Book"]
        view = held.recollection.collection.view()
        assert view.links[:, 1].tolist() == [number_of(held, late)]
        await held.recollection.tell(forget=str(late))
        early.write_text("# A\n\nSee the Garden Book again.\n")
        await held.read(early)
        assert held.look(links) == []  # it is no title any more
        await held.whole()


@pytest.mark.parametrize("earlier", [False, True])
async def test_of_two_documents_with_one_title_the_second_is_found_once_the_first_is_gone(tmp_path: Path, earlier: bool) -> None:
    """By texts that were there before; also in an image of an earlier BAT OS, which knew the first alone."""
    first, second, text = tmp_path / "a.md", tmp_path / "b.md", tmp_path / "c.md"
    first.write_text("# Garden Book\n\nTomatoes.\n")
    second.write_text("# Garden Book\n\nPotatoes.\n")
    text.write_text("# C\n\nSee the Garden Book.\n")
    async with memory(tmp_path) as held:
        for path in (first, second, text):
            await held.read(path)
        await held.embedded()
        assert (held.numbers(text)[0], number_of(held, first)) in held.look(links)
        if earlier:
            await held.image.system(lambda root: delattr(library_of(root), "namesakes"))
    async with memory(tmp_path) as held:
        first.write_text("# Garden Book\n\nTomatoes, and more of them.\n")
        await held.read(first)
        assert held.look(lambda library: library.by_title["garden book"]) == number_of(held, first)
        await held.whole()
        await held.recollection.tell(forget=str(first))
        await held.until(lambda: (held.numbers(text)[0], number_of(held, second)) in held.look(links))
        await held.whole()


async def test_a_first_name_finds_who_has_it(tmp_path: Path) -> None:
    (tmp_path / "chat.txt").write_text(
        "# 8 May 2023\nCaroline Smith: I painted the harbour at dawn.\nBen Lee: I painted a fence, in green.\n"
        "Caroline Smith: It took me a week.\nBen Lee: Mine took an hour.\n"
    )
    async with memory(tmp_path) as held:
        await held.read(tmp_path / "chat.txt")
        asked = held.recollection.retrieval
        found = await asked.search(PassageQuery("What did Caroline paint?"), explain=True)
        assert found["understood"]["names_speakers"] == 1
        assert found["hits"][0]["speaker"] == "Caroline Smith"
        assert {hit["speaker"]: hit["signals"]["speaker"] > 0 for hit in found["hits"]} == {"Caroline Smith": True, "Ben Lee": False}
        for name, speakers in (("caroline", {"Caroline Smith"}), ("Ben  Lee", {"Ben Lee"}), ("Lee", set()), ("Carol", set())):
            assert {hit["speaker"] for hit in (await asked.search(PassageQuery("painted", speaker=name)))["hits"]} == speakers
        numbers = await held.recollection.recall("What did Caroline Smith paint in the harbour?")
        assert numbers[0] == held.numbers(tmp_path / "chat.txt")[0]


async def test_titles_that_are_new_are_looked_for_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early, late = tmp_path / "a.md", tmp_path / "b.md"
    early.write_text("# A\n\nSee the Garden Book.\n")
    late.write_text("# Garden Book\n\nTomatoes.\n")
    with monkeypatch.context() as patched:
        patched.setattr(embedding_worker, "unlinked_titles", lambda root, most: [])  # it dies before
        async with memory(tmp_path) as held:
            await held.read(early)
            await held.embedded()
            await held.read(late)
            assert held.look(links) == []
    async with memory(tmp_path) as held:
        await held.until(lambda: held.look(links) == [(held.numbers(early)[0], number_of(held, late))])
        assert held.look(lambda library: list(library.unlinked)) == [""]
        await held.whole()


async def test_a_library_of_an_earlier_version_is_completed(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'image.fs'}", steps=(objects.install,))  # nobody works on it

    def earlier(root: Any) -> None:
        del library_of(root).unlinked, library_of(root).counts
        library_of(root).waiting.remove(0)

    await image.system(earlier)
    await image.close()
    (tmp_path / "a.md").write_text("# A\n\nSee the Garden Book.\n")
    async with memory(tmp_path) as held:
        await held.read(tmp_path / "a.md")
        await held.embedded()
        await held.whole()
        assert held.look(lambda library: (list(library.waiting), list(library.unlinked))) == ([0], [""])


async def test_a_document_that_changes_from_its_beginning_is_pointed_at_all_the_same(tmp_path: Path) -> None:
    maker, thing = tmp_path / "aldous.md", tmp_path / "zephyr.md"
    maker.write_text("# Aldous Works\n\nIt began as a smithy.\n\n# History\n\nThe founding was in Leeds.\n")
    thing.write_text("# Zephyr\n\nThe Zephyr is a car that was made by Aldous Works.\n")
    async with memory(tmp_path) as held:
        await held.read(maker, thing)
        await held.embedded()
        maker.write_text("# Aldous Works\n\nIt was a forge at first.\n\n# History\n\nThe founding was in Leeds.\n")
        await held.read(maker)
        await held.embedded()
        found = await held.recollection.retrieval.search(PassageQuery("Where was the company founded that made the Zephyr?"), explain=True)
        led = {hit["text"]: hit["signals"].get("link", 0) for hit in found["hits"] if len(hit["path"]) == 2}
        assert list(led) == ["# History\n\nThe founding was in Leeds."]
        await held.whole()


async def test_a_small_chunk_takes_little_room(tmp_path: Path) -> None:
    line = "Anna says some hundred and seventy characters, about what people say at a time when they speak of the weather."
    turns = "".join(f"{'Anna' if n % 2 else 'Ben'}: {line} And number {n} of it, with words.\n" for n in range(400))
    (tmp_path / "chat.txt").write_text(turns)
    async with memory(tmp_path) as held:
        await held.read(tmp_path / "chat.txt")
        oids = held.look(lambda library: [chunk._p_oid for chunk in library.chunks.values()])
        found = [held.image.db.history(oid, 1)[0]["size"] + 42 for oid in oids]  # with the record's header in the file
        assert len(found) == 400
        assert sum(found) / len(found) <= 450


def thought(number: int) -> Draft:
    return Draft("mission", f"Thought {number}", [DraftPart(f"What mission {number} found out about topic{number}.")], tags=("result",))


async def remembered(held: Memory, number: int, *, ready: asyncio.Event | None = None, doom: bool = False) -> Segment:
    shelver = held.recollection.shelver
    async with held.image.unit() as unit:
        unit.note(f"m{number}", "remembers")
        segment = remember_document(
            unit.root, thought(number), shelver, source=f"mission:m{number}", mission=f"m{number}", section_chars=8000
        )
        if ready is not None:
            await ready.wait()
        if doom:
            unit.doom()
    if ready is None and not doom:
        held.recollection.stored(segment, [])
    return segment


async def test_what_missions_remember_at_once_is_kept_with_each_of_them(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await held.embedded()  # whose vectors there will be is settled: a mission would meet that, and begin anew
        await remembered(held, 0)
        await held.embedded()  # nothing waits for vectors then: what is empty is what meets most easily
        ready = asyncio.Event()
        all_three = [asyncio.create_task(remembered(held, number, ready=ready)) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        ready.set()
        for segment in await asyncio.gather(*all_three):  # told of when all are there: vectors that come between would be another meeting
            held.recollection.stored(segment, [])
        await held.embedded()
        await held.whole()
        assert [held.found(f"topic{n}") for n in range(4)] == [[f"What mission {n} found out about topic{n}."] for n in range(4)]
        assert held.look(lambda library: library.catalogue.find(kind="mission", tags="result") == library.catalogue.find(kind="mission"))
        assert len(held.look(lambda library: library.catalogue.find(mission="m2"))) == 1
        with pytest.raises(InvalidInput, match="already"):
            await remembered(held, 2)
        await held.recollection.tell(forget="mission:m2")
        assert held.found("topic2") == []


async def test_what_a_doomed_mission_remembered_is_nowhere(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await held.embedded()  # as above: what a mission would begin anew for
        await remembered(held, 0)
        await held.embedded()
        await remembered(held, 1, doom=True)
        await held.whole()
        with pytest.raises(UnknownSource):
            await held.recollection.tell(forget="mission:m1")


async def test_what_is_longer_than_the_models_context_is_summarised_in_halves(tmp_path: Path) -> None:
    text = "\n\n".join(f"The bird number {n} sings in the morning." for n in range(60))
    (tmp_path / "birds.md").write_text(text)
    inference = FakeInference()
    inference.embedder = lambda text: [1.0, 0.5]
    inference.say = lambda request: "Birds sing."
    inference.fail_when = lambda request: (
        InferenceFailed("the input length exceeds the context length", cause="too_long", model="babs") if len(request.user) > 1000 else None
    )
    async with mind(tmp_path / "data", inference) as kernel:
        asked = await kernel.memory.ask([str(tmp_path / "birds.md")], [])
        await asked.done(lambda event: None)
        target = kernel.image.read(lambda root: history.oid_of(library_of(root).document(str(tmp_path / "birds.md"))))
        message = json.dumps({"target": target, "selector": "summarise_", "args": [2], "kwargs": {}})
        assert (await (await submit(kernel, "s1", message=message)).end())["state"] == "COMPLETE"
        read = [request.user for request in inference.asked if len(request.user) <= 1000]
        assert all(any(f"number {n} sings" in one for one in read) for n in range(60)), "nothing is left out"
        assert any(one.endswith("Birds sing.\nBirds sing.") for one in read), "then what was said of the halves"


async def test_a_document_is_summarised_in_a_mission(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Cats\n\nThe cat sleeps.\n\n# Dogs\n\nThe dog barks.\n")
    inference = FakeInference()
    inference.embedder = lambda text: [1.0, 0.5]
    async with mind(tmp_path / "data", inference) as kernel:
        asked = await kernel.memory.ask([str(tmp_path / "notes.md")], [])
        await asked.done(lambda event: None)
        target = kernel.image.read(lambda root: history.oid_of(library_of(root).document(str(tmp_path / "notes.md"))))
        with pytest.raises(InvalidInput, match="in a mission"), kernel.image.snapshot() as root:
            await send(library_of(root).document(str(tmp_path / "notes.md")), "summarise_")
        inference.say = lambda request: "Cats sleep, dogs bark."
        message = json.dumps({"target": target, "selector": "summarise_", "args": [2], "kwargs": {}})
        end = await (await submit(kernel, "s1", message=message)).end()
        assert end["state"] == "COMPLETE"
        assert end["result"]["text"] == "Cats sleep, dogs bark."
        made = kernel.image.read(lambda root: history.oid_of(library_of(root).document(str(tmp_path / "notes.md")).summary))
        assert end["result"]["value"] == {"oid": made, "class": "UvmObject"}
        (asked_for,) = inference.asked
        assert "at most 2 sentences" in asked_for.user
        assert "The cat sleeps." in asked_for.user
        assert "The dog barks." in asked_for.user

        def kept(root: Any) -> tuple[str, str, bool]:
            document = library_of(root).document(str(tmp_path / "notes.md"))
            return document.summary.text, document.summary.mission, document.summary.of == (document,)

        assert kernel.image.read(kept) == ("Cats sleep, dogs bark.", "s1", True)

        # it is found beside what it is of, and points at that
        assert kernel.memory is not None
        search = kernel.memory.retrieval.search

        async def summaries(question: str) -> list[str]:
            hits = (await search(PassageQuery(question)))["hits"]
            assert "markdown" in {hit["kind"] for hit in hits}
            return [hit["text"] for hit in hits if hit["kind"] == "summary"]

        def pointed(root: Any) -> list[bool]:
            library = library_of(root)
            number = library.document(str(tmp_path / "notes.md")).number
            return [int(to) == number for segment in library.text.segments() for _, to in segment.links]

        assert await summaries("Do cats sleep?") == ["Cats sleep, dogs bark."]
        assert kernel.image.read(pointed) == [True]
        inference.say = lambda request: "Two animals."
        assert (await (await submit(kernel, "s2", message=message)).end())["state"] == "COMPLETE"
        assert await summaries("Which animals?") == ["Two animals."]
        assert kernel.image.read(kept)[:2] == ("Two animals.", "s2")

        # and goes when that changes
        (tmp_path / "notes.md").write_text("# Cats\n\nThe cat sleeps.\n\n# Hens\n\nThe hen lays.\n")
        asked = await kernel.memory.ask([str(tmp_path / "notes.md")], [])
        await asked.done(lambda event: None)
        assert await summaries("Which animals?") == []
        assert kernel.image.read(pointed) == []
        assert not kernel.image.read(lambda root: "summary" in library_of(root).document(str(tmp_path / "notes.md"))._slots)


async def test_what_is_forgotten_takes_its_summaries_with_it(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Cats\n\nThe cat sleeps.\n")
    async with memory(tmp_path) as held:
        await held.read(tmp_path / "notes.md")
        await held.embedded()
        for of in ("document", "chunk"):

            def summarise(root: Any, of: str = of) -> Any:
                library = library_of(root)
                document = library.document(str(tmp_path / "notes.md"))
                one = document if of == "document" else next(library.chunks_of(document))
                draft = Draft("summary", f"Of a {of}", [DraftPart(f"What the {of} says.")])
                source = summary_source(one.number)
                return remember_document(root, draft, held.recollection.shelver, source=source, mission="m", section_chars=1000, of=(one,))

            held.recollection.stored(await held.image.system(summarise), [])
        await held.embedded()
        await held.whole()
        assert set(held.found("document chunk says")) == {"What the document says.", "What the chunk says."}
        await held.recollection.tell(forget=str(tmp_path / "notes.md"))
        assert held.found("document chunk says") == []
        await held.whole()
        assert held.look(lambda library: (len(library.documents), len(library.chunks))) == (0, 0)
