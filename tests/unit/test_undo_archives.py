"""Undo and the curator: what a mission remembered goes out of its archive too, and what it forgot there comes back."""

from __future__ import annotations

from pathlib import Path

from batos.memory.store import library_of
from tests.support.archives import put_away
from tests.support.undo import LONG, NOTE, held


async def test_what_a_mission_remembered_goes_also_out_of_an_archive(tmp_path: Path) -> None:
    async with held(tmp_path) as memory:
        await memory.sent("m1", "memory", "remember_", LONG, "Harbours")
        await memory.sent("m2", "memory", "remember_", NOTE, "Keys")
        await memory.embedded()
        sources = memory.look(lambda library: [d.source for d in library.documents.values()])  # in the order in which they came
        number = await put_away(memory, *sources, text="Boats, and a key.")
        await memory.embedded()
        assert (await memory.undo("m1"))["documents"] == {"gone": ["Harbours"], "back": []}
        await memory.whole()
        assert memory.found("boats") == []
        await memory.recollection.curator.restore(str(number))
        await memory.whole()
        assert memory.found("stone") == [NOTE]
        assert memory.look(lambda library: [document.title for document in library.documents.values()]) == ["Keys"]


async def test_what_was_archived_when_its_mission_was_undone_comes_back_whole(tmp_path: Path) -> None:
    async with held(tmp_path) as memory:
        await memory.sent("m1", "memory", "remember_", LONG, "Harbours")
        await memory.sent("m2", "memory", "remember_", NOTE, "Keys")
        await memory.embedded()
        sources = memory.look(lambda library: [d.source for d in library.documents.values()])
        await put_away(memory, *sources, text="Boats, and a key.")
        await memory.undo("m1")
        await memory.undo("m1", redo=True)
        await memory.whole()
        assert "".join(memory.texts(sources[0])) == LONG
        await memory.recollection.tell(forget=sources[0])
        assert memory.found("tide") == []
        await memory.whole()


async def test_what_a_mission_forgot_in_an_archive_comes_back(tmp_path: Path) -> None:
    async with held(tmp_path) as memory:
        await memory.sent("m1", "memory", "remember_", LONG, "Harbours")
        await memory.sent("m2", "memory", "remember_", NOTE, "Keys")
        await memory.embedded()
        sources = memory.look(lambda library: [d.source for d in library.documents.values()])  # in the order in which they came
        number = await put_away(memory, *sources, text="Boats, and a key.")
        await memory.forget("m3", sources[0])
        assert memory.look(lambda library: list(library.unsummarised)) == [0, number]
        told = await memory.undo("m3")
        assert told["documents"] == {"gone": [], "back": ["Harbours"]}
        await memory.whole()
        assert "".join(memory.texts(sources[0])) == LONG
        assert memory.look(lambda library: [d.source for d in library.archives[number].of]) == sources[1:]
        await memory.undo("m3", redo=True)
        await memory.whole()
        assert sources[0] not in memory.look(lambda library: list(library.by_source))


async def test_the_memory_as_it_was_is_shown_with_its_archives(tmp_path: Path) -> None:
    async with held(tmp_path) as memory:
        await memory.sent("m1", "memory", "remember_", LONG, "Harbours")
        await memory.embedded()
        (source,) = memory.look(lambda library: list(library.by_source))
        number = await put_away(memory, source)
        then = memory.image.db.lastTransaction()
        await memory.recollection.curator.restore(str(number))
        with memory.image.snapshot(at=then) as root:
            assert library_of(root).document(source).sections == ()
            assert library_of(root).archives[number].chunks > 1
