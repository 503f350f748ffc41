"""Archives: what leaves the memory comes back bit for bit, and what is forgotten is forgotten there, too."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from batos.errors import ImageDamaged, InvalidInput, UnknownSource
from batos.image import blobs
from batos.memory import archive_format, archiver, curation, eviction
from batos.memory.section_builder import about_of
from batos.memory.store import Library, library_of
from tests.support.archives import everything, made_of, material_of, pack, put_away
from tests.support.memory import Memory, consistent, memory

NOTES = {
    "garden.md": "# Garden\n\nThe tomatoes stand on the balcony and want water every day.\n\n"
    "# Cats\n\nThe cat sleeps on the piano all day.\n",
    "boats.md": "# Boats\n\nThe ferry to Malta leaves at dawn from the old pier. See Garden for the lettuce.\n",
    "talk.txt": "Ada: I met Charles on Tuesday.\nMary: Did he bring the engine?\nAda: He did, on 3 May 1842.\nMary: So I see.\n",
}


async def filled(held: Memory, folder: Path, notes: dict[str, str] = NOTES) -> None:
    """The memory with these files, each chunk with its vector."""
    for name, text in notes.items():
        (folder / name).write_text(text)
        assert (await held.read(folder / name))["refused"] == []
    await held.embedded()


async def bring_back(held: Memory, number: int, only: int | None = None) -> archiver.MemoryChange:
    change: archiver.MemoryChange = await held.image.system(archiver.restore_archive, number, only)
    held.recollection.brought_back(change)
    return change


def archived(library: Library) -> list[int]:
    return list(library.archives)


async def test_what_is_put_away_is_gone_and_its_summary_leads_to_it(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        number = await put_away(held, tmp_path / "garden.md", tmp_path / "talk.txt", text="Balconies, and a visit from Charles.")
        await held.whole()
        assert held.found("tomatoes") == []
        assert held.found("balconies") == ["Balconies, and a visit from Charles."]
        assert held.texts(tmp_path / "garden.md") == []

        def told(library: Library) -> Any:
            node = library.archives[number]
            summary = library.document(f"archive:{number}")
            (chunk,) = library.chunks_of(summary)
            assert chunk.source_(chunk) is summary is node.summary
            assert summary.archive is node
            assert node.source_(node) == summary.of
            return [document.source for document in summary.of], node.chunks, library.document(str(tmp_path / "boats.md")).archives

        sources, chunks, of_boats = held.look(told)
        assert sources == [str(tmp_path / "garden.md"), str(tmp_path / "talk.txt")]
        assert chunks == 6
        assert of_boats == ()
        assert held.look(lambda library: sorted(library.entities)) == ["garden"]  # which Boats names


@pytest.mark.parametrize("packed", [False, True])
async def test_it_comes_back_bit_for_bit(tmp_path: Path, packed: bool) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        before = held.image.read(everything)
        number = await put_away(held, tmp_path / "garden.md", tmp_path / "talk.txt")
        await held.embedded()
        if packed:
            await held.recollection.vectors.purge()
            await pack(held.image, tmp_path)
            oid = next(iter(before["chunks"].values()))[0]
            with pytest.raises(KeyError):
                held.image.db.storage.load(oid)
        await bring_back(held, number)
        assert held.image.read(everything) == before
        await held.whole()
        assert "tomatoes" in held.found("tomatoes")[0]
        assert held.look(archived) == []
        with pytest.raises(UnknownSource, match=r"archive .* does not exist"):
            await bring_back(held, number)


async def test_one_section_of_a_document_goes_and_comes_back_to_its_place(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        garden, cats = held.look(lambda library: library.document(str(tmp_path / "garden.md")).sections)
        before = held.image.read(everything)
        first = await put_away(held, sections=[garden])
        assert [text.strip()[:6] for text in held.texts(tmp_path / "garden.md")] == ["# Cats"]
        second = await put_away(held, sections=[cats])
        await held.embedded()
        await bring_back(held, first)
        assert held.look(lambda library: library.document(str(tmp_path / "garden.md")).sections) == (garden,)
        await bring_back(held, second)
        assert held.image.read(everything) == before


async def test_sections_that_stand_in_another_order_come_back_in_it(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        source = tmp_path / "garden.md"
        source.write_text("# Frogs\n\nFrogs sing in the pond.\n\n" + NOTES["garden.md"])  # a new section before those that stay
        await held.read(source)
        await held.embedded()
        before = held.image.read(everything)
        sections = held.look(lambda library: library.document(str(source)).sections)
        assert list(sections) != sorted(sections)
        numbers = [await put_away(held, sections=list(some)) for some in (sections[:1], sections[1:])]
        await held.embedded()
        for number in numbers[::-1]:
            await bring_back(held, number)
        assert held.image.read(everything) == before


async def test_what_is_archived_whole_costs_little_and_is_named_again_once_it_is_back(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)

        def named(library: Library) -> tuple[bool, tuple[str, ...], set[int]]:
            (chunk,) = library.chunks_of(library.document(str(tmp_path / "new.md")))
            linked = {int(to) for segment in library.text.segments() for id, to in segment.links if id == chunk.number}
            return "garden" in library.by_title, chunk.mentioned, linked

        garden = held.look(lambda library: library.document(str(tmp_path / "garden.md")).number)
        number = await put_away(held, tmp_path / "garden.md")
        assert held.look(lambda library: not {"sections", "whole"} & library.documents[garden]._slots.keys())
        (tmp_path / "new.md").write_text("What the Garden needs is a fence.\n")
        await held.read(tmp_path / "new.md")
        await held.embedded()
        assert held.look(named) == (False, (), set())
        await bring_back(held, number)
        held.recollection.vectors.wake()
        await held.until(lambda: held.look(named) == (True, ("garden",), {garden}))
        await held.whole()


async def test_a_summary_points_at_what_can_be_found_only(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        gardens = list(held.look(lambda library: library.document(str(tmp_path / "garden.md")).sections))
        boats = list(held.look(lambda library: library.document(str(tmp_path / "boats.md")).sections))
        garden = held.look(lambda library: library.document(str(tmp_path / "garden.md")).number)
        facts = held.image.read(curation.read_sections, [gardens[0], *boats])[1]
        assert facts.left == (garden,)
        await put_away(held, sections=[gardens[0], *boats])
        assert held.look(lambda library: about_of(library.archives[archived(library)[0]].of)) == (garden,)


async def put_together(held: Memory, *archives_: int, text: str = "Much is away.") -> archiver.MemoryChange | None:
    """Put archives together under the number 99."""
    summaries = held.look(lambda library: [library.archives[number].summary.number for number in archives_])
    inner = held.image.read(curation.inner_archives, summaries)
    assert inner is not None
    made = made_of(held, inner.material, 99, text, level=2)
    change: archiver.MemoryChange | None = await held.image.system(
        curation.put_together, inner, archive_format.pack_archive(inner.material), made, ""
    )
    if change is not None:
        held.recollection.brought_back(change)
    return change


async def test_archives_are_put_together_and_what_was_in_them_comes_back(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        before = held.image.read(everything)
        first, second = await put_away(held, tmp_path / "garden.md"), await put_away(held, tmp_path / "boats.md")
        await held.embedded()
        assert await put_together(held, first, second) is not None
        await held.whole()
        assert held.look(archived) == [99]
        assert held.found("pianos") == []
        assert held.look(lambda library: [d.source for d in library.documents.values() if d.of]) == ["archive:99"]
        assert held.look(lambda library: {node.number for d in library.documents.values() for node in d.archives}) == {99}
        await pack(held.image, tmp_path)
        assert len(list(tmp_path.rglob("*.blob"))) == 1
        await bring_back(held, 99)
        assert held.image.read(everything) == before
        await held.whole()


async def test_one_document_comes_back_out_of_many(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        before = held.image.read(everything)
        number = await put_away(held, *(tmp_path / name for name in NOTES), text="All of it.")
        boats = before["sources"][str(tmp_path / "boats.md")]
        await bring_back(held, number, boats)
        await held.whole()
        assert held.look(archived) == [number]
        assert held.texts(tmp_path / "boats.md") != []
        assert held.texts(tmp_path / "garden.md") == []
        assert f"archive:{number}" not in held.look(lambda library: list(library.by_source))  # it told of what can be forgotten now
        assert held.look(lambda library: list(library.unsummarised)) == [0, number]
        assert str(tmp_path / "boats.md") not in held.look(lambda library: [d.source for d in library.archives[number].of])
        await bring_back(held, number)
        assert held.image.read(everything) == before


async def test_archives_that_changed_meanwhile_are_not_put_together(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        first, second = await put_away(held, tmp_path / "garden.md", tmp_path / "talk.txt"), await put_away(held, tmp_path / "boats.md")
        summaries = held.look(lambda library: [library.archives[number].summary.number for number in (first, second)])
        inner = held.image.read(curation.inner_archives, summaries)
        made = made_of(held, inner.material, 99, "Stale.", level=2)
        await bring_back(held, first, held.look(lambda library: library.document(str(tmp_path / "talk.txt")).number))
        assert await held.image.system(curation.put_together, inner, archive_format.pack_archive(inner.material), made, "") is None
        await held.recollection.tell(forget=str(tmp_path / "boats.md"))
        assert await held.image.system(curation.put_together, inner, archive_format.pack_archive(inner.material), made, "") is None
        assert held.image.read(curation.inner_archives, summaries) is None
        await held.whole()


async def test_a_summary_itself_is_not_put_away(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        number = await put_away(held, tmp_path / "garden.md")
        await held.embedded()
        sections = list(held.look(lambda library: library.document(f"archive:{number}").sections))
        material = material_of(held, sections)
        assert (
            await held.image.system(
                archiver.archive_sections, material, archive_format.pack_archive(material), made_of(held, material, 98, "No.")
            )
            is None
        )


async def test_what_changed_meanwhile_or_is_to_stay_is_left_alone(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        source = str(tmp_path / "garden.md")
        sections = list(held.look(lambda library: library.document(source).sections))
        material = material_of(held, sections)
        made = made_of(held, material, 77, "Never.")

        async def refused() -> bool:
            before = held.image.read(everything)
            answer = await held.image.system(archiver.archive_sections, material, archive_format.pack_archive(material), made)
            assert held.image.read(everything) == before
            return answer is None

        await held.image.system(lambda root: eviction.pin_source(root, str(tmp_path), stays=True))
        assert await refused()
        await held.image.system(lambda root: eviction.pin_source(root, str(tmp_path), stays=False))
        await held.image.system(lambda root: setattr(next(iter(library_of(root).chunks.values())), "note", "of mine"))
        assert await refused()
        assert [one.section.number for one in held.image.read(archiver.sections_as_archived, sections)] == sections[
            1:
        ]  # it has a slot of its own
        await held.recollection.tell(forget=source)
        assert await refused()


async def test_a_document_that_is_forgotten_is_forgotten_in_its_archive(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        before = held.image.read(everything)
        number = await put_away(held, tmp_path / "garden.md", tmp_path / "boats.md", text="Tomatoes and a ferry.")
        await held.embedded()
        assert (await held.recollection.tell(forget=str(tmp_path / "garden.md")))["forgotten"]["chunks"] == 1  # of the summary
        assert held.found("ferry") == []
        assert held.look(lambda library: list(library.unsummarised)) == [0, number]
        await pack(held.image, tmp_path)
        for file in [tmp_path / "image.fs", *tmp_path.rglob("*.blob")]:
            data = file.read_bytes()
            assert b"tomatoes" not in data
            if file.suffix == ".blob":
                assert b"tomatoes" not in archive_format.zstd.decompress(data[46:])
        await bring_back(held, number)
        await held.whole()
        after = held.image.read(everything)
        assert set(after["sources"]) == {str(tmp_path / "boats.md"), str(tmp_path / "talk.txt")}
        boats = before["sources"][str(tmp_path / "boats.md")]
        ids = [n for section in before["sections"].values() if section[1] == boats for n in range(section[2], section[2] + section[3])]
        for part in ("chunks", "vectors", "entries"):
            assert [after[part][n] for n in ids] == [before[part][n] for n in ids]
        assert held.look(lambda library: list(library.unsummarised)) == [0]


async def test_forgetting_the_last_of_an_archive_leaves_nothing(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        await put_away(held, tmp_path / "garden.md")
        await held.recollection.tell(forget=str(tmp_path / "garden.md"))
        assert held.look(archived) == []
        await held.whole()
        await pack(held.image, tmp_path)
        assert not list(tmp_path.rglob("*.blob"))


async def test_a_summary_that_stands_for_something_is_not_forgotten_alone(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        number = await put_away(held, tmp_path / "garden.md")
        with pytest.raises(InvalidInput, match=f"batos memory restore {number}"):
            await held.recollection.tell(forget=f"archive:{number}")
        await held.whole()


async def test_a_file_that_changed_is_read_anew_and_its_archive_goes(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        await put_away(held, tmp_path / "garden.md")
        await held.embedded()
        assert (await held.read(tmp_path / "garden.md"))["unchanged"] == 1
        assert held.look(archived) != []
        (tmp_path / "garden.md").write_text(NOTES["garden.md"].replace("cat", "dog"))
        assert (await held.read(tmp_path / "garden.md"))["chunks"] == 2
        await held.whole()
        assert held.look(archived) == []
        assert "dog" in held.found("piano")[0]


async def test_vectors_of_another_embedder_are_made_anew(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        number = await put_away(held, tmp_path / "garden.md")
        held.embedder.digest_now = "d2"
        held.recollection.vectors.wake()
        await held.until(
            lambda: held.look(lambda library: library.embedder).endswith("d2") or "d2" in held.look(lambda library: library.embedder)
        )
        await bring_back(held, number)
        await held.whole()
        assert "".join(held.texts(tmp_path / "garden.md")) == NOTES["garden.md"]


async def test_another_summary_takes_the_place_of_one_that_was_lost(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        number = await put_away(held, tmp_path / "garden.md", tmp_path / "boats.md")
        material = archive_format.unpack_archive(held.image.read(lambda root: blobs.read(library_of(root).archives[number].blob)))
        stale = made_of(held, material, number, "It tells of tomatoes.")
        await held.recollection.tell(forget=str(tmp_path / "garden.md"))
        assert await held.image.system(archiver.replace_summary, stale) is None  # it was made of more than is left
        rest = material.without([material.held[0].section.document])
        change = await held.image.system(archiver.replace_summary, made_of(held, rest, number, "It is about a ferry."))
        held.recollection.stored(change.segment, change.dropped)
        await held.whole()
        assert held.found("ferry") == ["It is about a ferry."]
        assert held.look(lambda library: list(library.unsummarised)) == [0]


async def test_a_damaged_archive_is_named_and_nothing_else_suffers(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        number = await put_away(held, tmp_path / "garden.md")
        (blob,) = tmp_path.rglob("*.blob")
        blob.chmod(0o600)
        blob.write_bytes(blob.read_bytes()[:-3])
        with pytest.raises(ImageDamaged, match="not what was written"):
            await bring_back(held, number)
        await held.whole()
        assert held.found("pianos") == ["Gardens and pianos of all kinds."]


def test_what_is_no_archive_is_refused() -> None:
    for data in (b"", b"junk", archive_format.zstd.compress(b"no json\n"), archive_format.zstd.compress(b'{"format": 1}\n')):
        with pytest.raises(ImageDamaged, match="cannot be read"):
            archive_format.unpack_archive(data)
    with pytest.raises(ImageDamaged, match="upgrade BAT OS"):
        archive_format.unpack_archive(archive_format.zstd.compress(b'{"format": 99}\n'))


async def test_packed_and_unpacked_it_is_the_same(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path, {**NOTES, "odd.txt": "A lone \ud800 surrogate is no UTF-8.".encode("utf-8", "replace").decode()})
        material = material_of(held, held.look(lambda library: list(library.sections)))
        again = archive_format.unpack_archive(archive_format.pack_archive(material))
        assert hashlib.sha256(archive_format.pack_archive(again)).digest() == hashlib.sha256(archive_format.pack_archive(material)).digest()
        assert held.look(lambda library: consistent(library)[0]) == set(again.ids)
