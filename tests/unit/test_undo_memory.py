"""What searches see when a mission is undone: what it remembered goes, what it forgot comes back, whatever became of the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.errors import UndoConflict
from batos.image import history, ledger
from batos.memory.store import Library, library_of
from batos.missions import memory_writer
from tests.support.missions import submit
from tests.support.undo import LONG, NOTE, held


def all_of(library: Library) -> tuple[Any, ...]:
    """What there is in a library, and what searches know of it."""
    facts = {int(row["id"]): tuple(row) for segment in library.text.segments() for row in segment.facts}
    return list(library.chunks), sorted(library.entities), list(library.by_source), list(library.sections), facts


@pytest.mark.parametrize("vectors", [False, True])
async def test_what_a_mission_remembered_goes_and_comes_back_as_it_was(tmp_path: Path, vectors: bool) -> None:
    async with held(tmp_path) as memory:
        result = await memory.sent("m1", "memory", "remember_", LONG, "Harbours")
        if vectors:
            await memory.embedded()
        assert memory.found("tide")
        told = await memory.undo("m1")
        assert told["documents"] == {"gone": ["Harbours"], "back": []}
        assert memory.found("tide") == []
        await memory.whole()
        assert memory.look(lambda library: len(library.documents)) == 0
        told = await memory.undo("m1", redo=True)
        assert told["documents"] == {"gone": [], "back": ["Harbours"]}
        assert memory.found("tide")
        await memory.whole()
        found = memory.look(lambda library: next(iter(library.documents.values())))
        assert history.oid_of(found) == result["result"]["value"]["oid"], "the same object"
        source = memory.look(lambda library: next(iter(library.by_source)))
        assert "".join(memory.texts(source)) == LONG


async def test_what_a_mission_forgot_comes_back_with_its_names_and_days(tmp_path: Path) -> None:
    chat = tmp_path / "chat.txt"
    chat.write_text("# 8 May 2023\nAnna: I planted tomatoes.\nBen: Which kind, Anna?\nAnna: San Marzano.\n")
    async with held(tmp_path) as memory:
        await memory.read(chat)
        await memory.embedded()
        before = memory.look(
            lambda library: (list(library.chunks), sorted(library.entities), list(library.by_source), list(library.sections))
        )
        facts = {int(row["id"]): tuple(row) for segment in memory.look(lambda library: library.text.segments()) for row in segment.facts}
        await memory.forget("m1", str(chat))
        assert memory.found("tomatoes") == []
        assert memory.look(lambda library: list(library.entities)) == []
        told = await memory.undo("m1")
        assert told["documents"]["back"] == ["chat"]
        assert memory.found("tomatoes")
        await memory.whole()
        after = memory.look(
            lambda library: (list(library.chunks), sorted(library.entities), list(library.by_source), list(library.sections))
        )
        assert after == before
        again = {int(row["id"]): tuple(row) for segment in memory.look(lambda library: library.text.segments()) for row in segment.facts}
        assert again == facts
        await memory.undo("m1", redo=True)
        assert memory.found("tomatoes") == []
        await memory.whole()


async def test_what_a_mission_wrote_on_a_document_and_on_a_chunk_is_undone_too(tmp_path: Path) -> None:
    def written(library: Library) -> tuple[Any, ...]:
        document = next(iter(library.documents.values()))
        return document._slots.get("importance"), document.title, next(library.chunks_of(document))._slots.get("seen_by")

    async def write(id: str, importance: int) -> None:
        await memory.image.system(ledger.accept, id, "mark it", {}, True, mission=id)
        async with memory.image.unit() as unit:
            document = next(iter(library_of(unit.root).documents.values()))
            document.importance, document.title = importance, "The key"
            next(library_of(unit.root).chunks_of(document))._slots["seen_by"] = "BABS"
            ledger.complete(ledger.mission_of(unit.root, id), {"text": ""}, None)
            unit.note(id, "COMPLETE by ROBIN")

    async with held(tmp_path) as memory:
        await memory.sent("m1", "memory", "remember_", NOTE, "A key")
        await memory.embedded()
        before = memory.look(written)
        await write("m2", 5)
        told = await memory.undo("m2")
        assert sorted(part for one in told["objects"] for part in one["parts"]) == ["importance", "seen_by", "title"]
        assert told["documents"] == {"gone": [], "back": []}
        assert memory.look(written) == before
        await memory.undo("m2", redo=True)
        assert memory.look(written) == (5, "The key", "BABS")
        await write("m3", 6)
        with pytest.raises(UndoConflict, match="importance"):
            await memory.undo("m2")
        await memory.whole()
        await memory.forget("m4", memory.look(lambda library: next(iter(library.by_source))))
        assert memory.look(lambda library: list(library.by_title)) == [], "the one under which it was listed, too"


async def test_after_parts_of_the_index_were_merged_and_others_came(tmp_path: Path) -> None:
    async with held(tmp_path, dropped_rows=0) as memory:
        await memory.sent("m1", "memory", "remember_", NOTE)
        for n in range(20):  # more than a fan of parts
            await memory.sent(f"n{n}", "memory", "remember_", f"Note {n} about something else altogether.")
            await memory.embedded()
        assert memory.look(lambda library: library.text.parts()) < 21
        await memory.undo("m1")
        assert memory.found("stone") == []
        assert len(memory.found("altogether")) == 20
        await memory.whole()
        await memory.undo("m1", redo=True)
        assert memory.found("stone") == [NOTE]
        await memory.whole()


async def test_what_was_forgotten_or_read_again_meanwhile_stays_so(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text(f"# Keys\n\n{NOTE}\n")
    async with held(tmp_path) as memory:
        await memory.sent("m1", "memory", "remember_", NOTE)
        [source] = memory.look(lambda library: list(library.by_source))
        await memory.forget("m2", source)
        assert (await memory.undo("m1"))["documents"]["gone"] == []
        await memory.undo("m1", redo=True)
        assert memory.found("stone") == [NOTE], "what the mission remembered is there again"
        await memory.read(notes)
        await memory.forget("m3", str(notes))
        await memory.read(notes)
        assert (await memory.undo("m3"))["documents"]["back"] == []
        assert memory.look(lambda library: len(library.documents)) == 2
        await memory.whole()


async def test_a_restart_sees_the_same(tmp_path: Path) -> None:
    async with held(tmp_path) as memory:
        await memory.sent("m1", "memory", "remember_", NOTE)
        await memory.sent("m2", "memory", "remember_", "The lamp is in the shed.")
        await memory.undo("m1")
        await memory.undo("m2")
        await memory.undo("m2", redo=True)
    async with held(tmp_path) as memory:
        assert memory.found("stone") == []
        assert len(memory.found("lamp")) == 1
        await memory.whole()


async def test_a_mission_that_became_memory_is_forgotten_with_its_undo_and_remembered_again(tmp_path: Path) -> None:
    async with held(tmp_path, remember="on", remember_pause_s=0) as memory:
        heard = await submit(memory.kernel, "m1", "Where is the marzipan?")
        await heard.end()
        await memory.until(lambda: memory.found("marzipan"))
        await memory.undo("m1")
        assert memory.found("marzipan") == []
        await memory.whole()
        await memory.undo("m1", redo=True)
        await memory.until(lambda: memory.found("marzipan"))
        await memory.whole()
        assert memory.look(lambda library: [one.mission for one in library.documents.values()]) == ["m1"]


async def test_a_mission_that_is_undone_before_its_time_never_becomes_memory(tmp_path: Path) -> None:
    async with held(tmp_path, remember="on", remember_pause_s=0.2) as memory:
        await (await submit(memory.kernel, "m1", "Where is the marzipan?")).end()
        await memory.undo("m1")
        await (await submit(memory.kernel, "m2", "Where is the nougat?")).end()
        await memory.until(lambda: memory.found("nougat"))
        assert memory.found("marzipan") == []
        await memory.undo("m1", redo=True)
        await memory.until(lambda: memory.found("marzipan"))


async def test_a_real_mission_and_its_record(tmp_path: Path) -> None:
    async with held(tmp_path) as memory:
        await (await submit(memory.kernel, "m1", "Plan the day")).end()
        told = await memory.undo("m1")
        assert [one["id"] for one in told["missions"]] == ["m1"]
        assert memory.image.read(lambda root: history.resolve(root, "m1").state) == "COMPLETE"
        assert memory.image.read(lambda root: ledger.mission_of(root, "m1").thought is not None)


async def test_a_mission_that_is_undone_while_it_becomes_memory_does_not(tmp_path: Path) -> None:
    """Whichever of the two is committed first."""
    async with held(tmp_path) as memory:
        for id in ("m1", "m2"):
            await (await submit(memory.kernel, id, f"Where is the marzipan of {id}?")).end()
        shelver = memory.recollection.shelver
        work = memory_writer.MemoryWriter(memory.image, shelver=shelver, stored=memory.recollection.stored, section_chars=8000, pause_s=0)
        until, still_open, found = memory.image.read(memory_writer.missions_to_remember)
        prepared = work.prepared(found)
        await memory.undo("m1")
        assert not await memory.image.system(memory_writer.store_remembered, prepared, None, (0, ()), until, still_open)
        commit = memory.image.committer.commit

        async def remembered_first(tm: Any) -> None:
            memory.image.committer.commit = commit  # type: ignore[method-assign]
            assert await work.write_batch()
            await commit(tm)

        memory.image.committer.commit = remembered_first  # type: ignore[method-assign]
        told = await memory.undo("m2")
        assert told["documents"]["gone"] == ["Where is the marzipan of m2?"]
        assert memory.found("marzipan") == []
        assert memory.look(lambda library: len(library.documents)) == 0
        await memory.whole()
