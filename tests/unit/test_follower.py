"""Follower: what it takes of the logs that others write, and numbers that no two kernels share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transaction.interfaces import TransientError

from batos.errors import ImageError
from batos.image.living_image import LivingImage
from batos.memory import objects
from batos.memory.chunking import ChunkLimits
from batos.memory.drafts import Draft, DraftPart
from batos.memory.embedding_worker import adopt_embedder
from batos.memory.follower import Follower, FollowerNews
from batos.memory.ingest import store_batch
from batos.memory.records import EPOCH, NOTE, Numbers
from batos.memory.section_builder import KnownNames, Shelver, prepare_document, store_document
from batos.memory.segments import Entry, Facts, build, signatures
from batos.memory.store import epoch_of, library_of, take_epoch
from tests.support.memory import equals_a_fresh_one, shared_memories

SIZE = 4
"""Numbers of a vector."""


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    made = await LivingImage.open(f"file://{tmp_path / 'image.fs'}", steps=(objects.install,))
    try:
        await made.system(adopt_embedder, "e", SIZE)
        yield made
    finally:
        await made.close()


def rows(*ids: int) -> Any:
    """Unit vectors that half precision holds exactly."""
    return np.array([[id % 2, (id + 1) % 2, 0, 0] for id in ids], np.float32)


def section(id: int) -> int:
    """Chunks 3 and 4 are of one section, which comes and goes as a whole, as in a library."""
    return 3 if id == 4 else id


def add(root: Any, *ids: int, words: str = "said", document: int = 1, link: int = 0, vectors: bool = True) -> None:
    library = library_of(root)
    library.text.add(
        build(Entry(id, [words, f"w{id}"], Facts(document, section(id), id), (link,) if link and id != 4 else ()) for id in ids)
    )
    if vectors:
        library.vectors["e"].add(ids, rows(*ids))


def drop(root: Any, *ids: int) -> None:
    for log in (library_of(root).text, library_of(root).vectors["e"]):
        log.drop(ids)


def relink(root: Any, *ids: int) -> None:
    library_of(root).text.drop(ids)
    add(root, *ids, link=77, vectors=False)


def embed(root: Any, *ids: int) -> None:
    log = library_of(root).vectors["e"]
    log.drop(ids)
    log.add(ids, np.eye(len(ids), SIZE, 2, dtype=np.float32))


def purge(root: Any) -> None:
    for log in (library_of(root).text, library_of(root).vectors["e"]):
        log.purge()


def merged(root: Any) -> None:
    for log in (library_of(root).text, library_of(root).vectors["e"]):
        while log.tidy():
            pass


async def do(image: LivingImage, *steps: tuple[Any, ...]) -> None:
    for function, *args in steps:
        await image.system(function, *args)


def look(image: LivingImage, follower: Follower) -> FollowerNews:
    with image.snapshot() as root:
        news = follower.look(root)
        equals_a_fresh_one(root, follower.collection, ("said", "w3"))
    return news


CASES: dict[str, list[tuple[Any, ...]]] = {
    "added": [(add, 10, 11)],
    "added and merged": [(add, 10), (add, 11), *((add, n) for n in range(20, 40)), (merged,)],
    "dropped": [(drop, 3, 4)],
    "dropped and purged": [(drop, 3, 4), (purge,)],
    "dropped, purged and merged": [(drop, 3, 4), *((add, n) for n in range(20, 40)), (purge,), (merged,)],
    "linked anew": [(relink, 3, 4)],
    "linked anew and purged": [(relink, 3, 4), (purge,)],
    "linked anew, purged and merged": [(relink, 3, 4), *((add, n) for n in range(20, 40)), (purge,), (merged,)],
    "dropped and back without its vector": [(drop, 3, 4), (lambda root: add(root, 3, 4, words="back", vectors=False),)],
    "dropped, purged and back without its vector": [(drop, 3, 4), (purge,), (lambda root: add(root, 3, 4, words="back", vectors=False),)],
    "dropped, back, purged": [(drop, 3, 4), (lambda root: add(root, 3, 4, words="back", vectors=False),), (purge,), (merged,)],
    "dropped, back, dropped again": [(drop, 3, 4), (add, 3, 4), (drop, 3, 4)],
    "dropped, back, dropped again, purged": [(drop, 3, 4), (add, 3, 4), (drop, 3, 4), (purge,)],
    "another vector": [(embed, 3, 4)],
    "another vector, and purged": [(embed, 3, 4), (purge,)],
    "vectors only": [(lambda root: library_of(root).vectors["e"].drop([3, 4]),)],
    "vectors only, purged": [(lambda root: library_of(root).vectors["e"].drop([3, 4]),), (purge,)],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
@pytest.mark.parametrize("looks", ["at the end", "after each step"])
async def test_it_equals_a_collection_that_is_loaded_anew(image: LivingImage, steps: list[tuple[Any, ...]], looks: str) -> None:
    await do(image, (add, 1, 2, 3, 4), (add, 5), (add, 6))
    follower = image.read(Follower.load)
    for step in steps:
        await do(image, step)
        if looks == "after each step":
            look(image, follower)
    news = look(image, follower)
    assert news.changed is (looks == "at the end")
    assert not news.reload
    assert not look(image, follower).changed


async def test_a_look_with_nothing_new_reads_no_record(image: LivingImage) -> None:
    await do(image, *((add, n) for n in range(1, 30)))
    follower = image.read(Follower.load)
    with image.snapshot() as root:
        loads = root._p_jar.getTransferCounts(True)
        assert not follower.look(root).changed
        assert root._p_jar.getTransferCounts(False) == (0, 0), loads


async def test_other_commits_are_no_news(image: LivingImage) -> None:
    await do(image, (add, 1, 2))
    follower = image.read(Follower.load)
    await image.system(lambda root: root["lobby"].__setattr__("says", "hello"))
    assert look(image, follower) == FollowerNews()


async def test_it_tells_which_documents_came(image: LivingImage) -> None:
    await do(image, (add, 1, 2))
    follower = image.read(Follower.load)
    await do(image, (lambda root: add(root, 8, document=5),), (lambda root: add(root, 9, document=6),))
    assert look(image, follower).documents == {5, 6}


async def test_the_first_embedder_is_followed_and_another_is_loaded(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'image.fs'}", steps=(objects.install,))
    try:
        await image.system(lambda root: library_of(root).text.add(build([Entry(1, ["said"], Facts(1, 1))])))
        follower = image.read(Follower.load)
        await do(image, (adopt_embedder, "e", SIZE), (lambda root: library_of(root).vectors["e"].add([1], rows(1)),))
        assert not look(image, follower).reload
        assert follower.collection.maker.identity == "e"
        await do(image, (lambda root: library_of(root).waiting.clear(),), (adopt_embedder, "other", 8))

        def serve(root: Any) -> None:
            library = library_of(root)
            library.vectors["other"].add([1], np.eye(1, 8, dtype=np.float32))
            del library.vectors["e"]
            library.embedder, library.change = "other", None

        await image.system(serve)
        assert image.read(follower.look).reload
        again = image.read(Follower.load)
        assert not look(image, again).changed
    finally:
        await image.close()


async def test_after_a_purge_of_many_rows_it_is_loaded_anew_and_holds_the_right_chunks_until_then(
    image: LivingImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batos.memory.follower.COMPARED", 3)
    await do(image, (add, 1, 2, 3, 4), (add, 5), (add, 6))
    follower = image.read(Follower.load)
    await do(image, (relink, 3, 4), (drop, 5), (add, 7), (purge,))
    assert image.read(follower.look).reload
    view = follower.collection.view()
    assert sorted(view.ids[~view.gone].tolist()) == [1, 2, 3, 4, 6, 7]
    assert view.has[~view.gone].all()
    assert not look(image, image.read(Follower.load)).changed


async def test_a_look_that_is_broken_off_is_begun_again(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    await do(image, (add, 1, 2, 3))
    follower = image.read(Follower.load)
    await do(image, (add, 4), (add, 5), (drop, 1), (relink, 2))
    replace, times = follower.collection.replace, iter([True])

    def once(segment: Any) -> None:
        replace(segment)
        if next(times, False):
            raise OSError("the server of the image is away")

    monkeypatch.setattr(follower.collection, "replace", once)
    with pytest.raises(OSError, match="away"):
        image.read(follower.look)
    assert look(image, follower).changed


def test_rows_that_differ_have_other_signatures() -> None:
    one = [Entry(7, ["a", "b", "b"], Facts(1, 2, 3, 4, 5, 6, 1), (8, 9)), Entry(6, ["a"], Facts(1, 2))]
    same = dict(zip(build(one).ids.tolist(), signatures(build(one)).tolist(), strict=True))
    alone = dict(zip([7], signatures(build(one[:1])).tolist(), strict=True))
    assert alone[7] == same[7], "whatever else is in the segment"
    others = [
        Entry(7, ["a", "b"], *one[0][2:]),
        Entry(7, ["b", "a", "a"], *one[0][2:]),
        Entry(7, ["a", "b", "c"], *one[0][2:]),
        one[0]._replace(links=(8,)),
        one[0]._replace(links=(8, 10)),
        *(
            one[0]._replace(facts=one[0].facts._replace(**{name: 99}))
            for name in ("document", "section", "place", "speaker", "day", "length")
        ),
        one[0]._replace(facts=one[0].facts._replace(flags=2)),
    ]
    found = [int(signatures(build([other]))[0]) for other in others]
    assert len({same[7], *found}) == len(others) + 1
    assert len(signatures(build([]))) == 0


@pytest.mark.parametrize("looks", [True, False])
async def test_what_is_committed_while_a_collection_is_loaded_anew_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    async with shared_memories(tmp_path) as (one, other):
        shelver = other.recollection.shelver

        async def in_helper(read: Any, load: Any) -> Any:
            loaded = read(load)
            made = prepare_document(Draft(NOTE, "n", [DraftPart("It says this.")], 0), shelver, source="n", mission="m", section_chars=600)
            await other.image.system(store_document, made, build(made.entries))
            if looks:
                one.image.read(one.recollection.look)
            return loaded

        monkeypatch.setattr("batos.memory.live_collection.in_helper", in_helper)
        await one.recollection.reload()
        with one.image.snapshot() as root:
            assert "n" in library_of(root).by_source
            equals_a_fresh_one(root, one.recollection.collection)


# --- numbers


async def test_two_kernels_that_take_an_epoch_at_once_meet_a_conflict(image: LivingImage) -> None:
    async def take() -> None:
        async with image.unit() as late:
            assert take_epoch(late.root) == 0
            async with image.unit() as early:
                assert take_epoch(early.root) == 0

    with pytest.raises(TransientError):
        await take()
    assert await image.system(take_epoch) == 1


async def test_each_kernel_has_numbers_of_its_own_above_those_that_were_given_out(image: LivingImage) -> None:
    await image.system(lambda root: setattr(library_of(root).epoch, "value", 7))  # seven runs of one daemon
    assert [await image.system(take_epoch), await image.system(take_epoch)] == [7, 8]
    assert image.read(epoch_of) == 9, "a daemon that has the image to itself goes on above them"


async def test_two_kernels_never_give_one_number(tmp_path: Path) -> None:
    async with shared_memories(tmp_path) as both:
        mine, others = (one.recollection.numbers.take(10) for one in both)
        assert mine // EPOCH != others // EPOCH


async def test_another_documents_number_is_never_taken_for_ones_own(image: LivingImage) -> None:
    def prepared(source: str, words: str) -> Any:
        shelver = Shelver(Numbers(3), ChunkLimits(), KnownNames())  # as two processes of one epoch would
        return prepare_document(Draft(NOTE, source, [DraftPart(words)], 0), shelver, source=source, mission="m", section_chars=600)

    def text(root: Any) -> dict[str, str]:
        library = library_of(root)
        return {one.source: "".join(chunk.text for chunk in library.chunks_of(one)) for one in library.documents.values()}

    await image.system(store_document, prepared("one", "It was said first."), None)
    with pytest.raises(ImageError, match=r"'one'.*nothing was stored.*restart"):
        await image.system(store_document, prepared("other", "It was said later."), None)
    assert image.read(text) == {"one": "It was said first."}


async def test_a_file_whose_document_was_left_to_another_path_is_prepared_anew(tmp_path: Path) -> None:
    async with shared_memories(tmp_path, 1) as (held,):
        first, second = tmp_path / "first.md", tmp_path / "second.md"
        first.write_text("# Twins\n\nBoth say this.")
        await held.read(first)
        number = held.look(lambda library: library.by_source[str(first)])
        second.write_text(first.read_text())
        await held.read(second)  # the same document
        await held.recollection.tell(forget=str(first))
        stale = (store_batch, (str(first), (0, 0)), number, {"sources": (str(first),), "source": str(first)}, [], None, [], True)
        assert await held.image.system(*stale) is None
        assert held.texts(second) == ["# Twins\n\nBoth say this."]


async def test_what_is_forgotten_is_not_brought_back_by_a_batch_that_was_under_way(tmp_path: Path) -> None:
    """The last batch of a file and a forgetting of it at the same moment: the second of them meets a conflict."""
    async with shared_memories(tmp_path) as (one, other):
        for name in ("0.md", "1.md", "2.md"):
            (tmp_path / name).write_text(f"# Title {name}\n\nIt says {name}.")
            await one.recollection.ask([str(tmp_path / name)], [])
        await until(lambda: one.look(lambda library: len(library.by_title) == 3 and not library.queue))
        await one.embedded()
        number, path = one.recollection.numbers.take(), str(tmp_path / "a.md")
        shelved = one.recollection.shelver.shelve(DraftPart("It says this."), document=number, kind="text")
        sections, own = [shelved.shelf.section.number], {"sources": (path,), "source": path}
        first = (store_batch, (path, (0, 0)), number, own, [shelved.shelf], build(shelved.entries), sections, False)
        last = (store_batch, (path, (0, 0)), number, {**own, "title": "Another", "complete": True}, [], None, sections, True)
        await one.image.system(*first)

        async def forget() -> None:
            async with other.image.unit() as unit:
                library_of(unit.root).forget(library_of(unit.root).document(path))
                await one.image.system(*last)

        with pytest.raises(TransientError):
            await forget()
        assert one.look(lambda library: library.documents[library.by_title["another"]].title) == "Another"


async def test_names_of_others_documents_are_known_here(tmp_path: Path) -> None:
    async with shared_memories(tmp_path) as (one, other):
        path = tmp_path / "walrus.md"
        path.write_text("# The Walrus Club\n\nIt meets on Mondays.")
        await one.recollection.ask([str(path)], [])
        await until(lambda: one.look(lambda library: str(path) in library.by_source and not library.queue))
        other.image.read(other.recollection.look)
        number = one.look(lambda library: library.by_source[str(path)])
        assert other.recollection.shelver.names.of("We spoke of the Walrus Club today.", 0).links == (number,)


async def test_a_text_that_two_kernels_read_under_two_names_keeps_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shared_memories(tmp_path) as (one, other):
        first, second = (str(tmp_path / name) for name in ("first.md", "second.md"))
        for path in (first, second):
            Path(path).write_text("# The Walrus Club\n\nIt meets on Mondays.")
        await one.recollection.ask([first], [])
        await until(lambda: one.look(lambda library: first in library.by_source and not library.queue))
        system, crossed = other.image.system, list[str]()

        async def late(function: Callable[..., Any], *args: Any, **more: Any) -> Any:
            if function.__name__ == "_alias" and not crossed:  # meanwhile the other kernel reads both anew
                crossed.append(function.__name__)
                await one.recollection.tell(forget=first)
                await one.recollection.ask([first, second], [])
                await until(lambda: one.look(lambda library: {first, second} <= {*library.by_source} and not library.queue))
            return await system(function, *args, **more)

        monkeypatch.setattr(other.image, "system", late)
        await other.recollection.ask([second], [])
        await until(lambda: crossed and not other.recollection.ingest.under_way)
        assert one.look(lambda library: sorted(library.by_source)) == [first, second]
        assert one.look(lambda library: len(library.documents)) == 1


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.01)
