"""The logs of text and vectors in an image: adding conflicts with nobody, merging keeps everything, deleting leaves nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transaction.interfaces import TransientError

from batos.image import LivingImage
from batos.image.packing import pack
from batos.memory import part_log
from batos.memory.part_log import Tail, VectorLog
from batos.memory.search_index import Collection
from batos.memory.segments import Entry, Segment, build
from batos.memory.text_index import OkapiText, SegmentedText

D = 8


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await image.system(lambda root: root.update(text=SegmentedText(), vectors=VectorLog("test", D)))
    yield image
    await image.close()


def segment(*ids: int, word: str = "w") -> Segment:
    return build([Entry(id, [f"{word}{id}", "common"]) for id in ids])


def row(id: int) -> Any:
    """A vector whose bytes are found nowhere else."""
    return np.random.default_rng(id).standard_normal((1, D)).astype(np.float16)


def add(root: Any, *ids: int) -> None:
    root["text"].add(segment(*ids))
    root["vectors"].add(ids, np.concatenate([row(id) for id in ids]))


def tidy(root: Any) -> int:
    return sum(log.tidy() for log in (root["text"], root["vectors"]))


def held(root: Any) -> tuple[set[int], set[int]]:
    """The ids in text and vectors, after looking whether each says what it was given."""
    collection = Collection.load(root["text"], root["vectors"])
    view = collection.view()
    for id, vector, has in zip(view.ids.tolist(), view.matrix, view.has, strict=True):
        assert not has or (vector == row(id)[0].astype(np.float32)).all()
        assert view.row_of(id) in np.flatnonzero(view.bm25([f"w{id}"]))
    return set(view.ids.tolist()), root["vectors"].ids()


async def test_units_that_add_at_once_do_not_conflict(image: LivingImage) -> None:
    async with image.unit() as one, image.unit() as two:
        add(one.root, 1, 2)
        add(two.root, 3)
        await image.system(add, 4)
    assert image.read(held) == ({1, 2, 3, 4},) * 2


async def test_dropping_and_adding_at_once_do_not_conflict(image: LivingImage) -> None:
    await image.system(add, 0, 1)
    async with image.unit() as one, image.unit() as two:
        add(one.root, 2)
        one.root["text"].drop([0])
        two.root["text"].drop([1])
    assert image.read(held)[0] == {2}


async def test_a_merge_and_a_unit_that_adds_both_hold(image: LivingImage) -> None:
    for id in range(40):
        await image.system(add, id)
    async with image.unit() as unit:
        add(unit.root, 100)
        assert await image.system(tidy) == 2
    assert image.read(held) == ({*range(40), 100},) * 2
    assert image.read(lambda root: root["text"].parts()) < 41


async def test_a_unit_that_fails_leaves_nothing(image: LivingImage) -> None:
    await image.system(add, 1)
    async with image.unit() as unit:
        add(unit.root, 2)
        unit.root["text"].drop([1])
        unit.doom()
    assert image.read(held) == ({1}, {1})


async def test_a_drop_that_is_committed_beside_a_merge_holds(image: LivingImage) -> None:
    for id in range(16):
        await image.system(add, id)
    async with image.unit() as unit:
        unit.root["text"].drop([3, 7])
        unit.root["vectors"].drop([3, 7])
        await image.system(tidy)
    assert image.read(held) == (set(range(16)) - {3, 7},) * 2
    await image.system(lambda root: (root["text"].purge(), root["vectors"].purge()))
    assert image.read(held) == (set(range(16)) - {3, 7},) * 2


async def test_a_drop_holds_though_what_came_meanwhile_was_merged_with_what_it_dropped(image: LivingImage) -> None:
    for id in range(31):
        await image.system(add, id)
    async with image.unit() as unit:  # a mission that forgets, and goes on
        for name in ("text", "vectors"):
            unit.root[name].drop([3, 7])
        await image.system(add, 31)
        assert await image.system(tidy) == 2
    left = set(range(32)) - {3, 7}
    assert image.read(held) == (left, left)
    await image.system(lambda root: (root["text"].purge(), root["vectors"].purge()))
    assert image.read(held) == (left, left)
    await image.system(add, 3)
    assert image.read(held) == (left | {3}, left | {3})


async def test_what_comes_again_while_a_purge_is_under_way_stays(image: LivingImage) -> None:
    await image.system(add, *range(10))
    await image.system(lambda root: [root[name].drop([3, 7]) for name in ("text", "vectors")])
    drops = image.read(lambda root: {name: root[name].drops() for name in ("text", "vectors")})
    await image.system(add, 3)
    await image.system(lambda root: [root[name].purge_some(drops[name], part_log.BEGIN) for name in drops])
    assert image.read(held) == (set(range(10)) - {7},) * 2


async def test_a_part_can_be_written_anew_as_often_as_need_be(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_log, "_TURNS", 2)
    await image.system(add, *range(20))
    await image.system(add, 100)
    for id in range(10):
        await image.system(lambda root, id: root["text"].drop([id]) or root["text"].purge(), id)
        assert image.read(held)[0] == {*range(id + 1, 20), 100}


async def test_two_that_merge_at_once_conflict_and_lose_nothing(image: LivingImage) -> None:
    for id in range(8):
        await image.system(add, id)

    async def both() -> None:
        async with image.unit() as unit:
            unit.root["text"].tidy()
            await image.system(tidy)

    with pytest.raises(TransientError):
        await both()
    assert image.read(held) == (set(range(8)),) * 2


async def test_two_that_make_room_in_the_tail_conflict_and_lose_nothing(image: LivingImage) -> None:
    for id in range(part_log.TAIL):
        await image.system(add, id)

    async def both() -> None:
        async with image.unit() as unit:
            add(unit.root, 100)  # the same parts would leave twice
            await image.system(add, 101)

    with pytest.raises(TransientError):
        await both()
    assert image.read(held) == ({*range(part_log.TAIL), 101},) * 2
    assert image.read(lambda root: root["text"].parts()) == part_log.TAIL + 1


async def test_a_log_of_an_earlier_version_goes_on(image: LivingImage) -> None:
    def as_it_was(root: Any) -> None:
        for name in ("text", "vectors"):
            state = root[name].__getstate__()
            tail = state.pop("_tail")
            state["_parts"].update({key: tail[key] for key in tail})
            root[name].__setstate__(state)
            root[name]._p_changed = True

    await image.system(add, 1, 2)
    await image.system(add, 3)
    await image.system(as_it_was)
    assert image.read(held) == ({1, 2, 3},) * 2
    await image.system(lambda root: [root[name].drop([2]) for name in ("text", "vectors")])
    await image.system(add, 2)
    await image.system(lambda root: [root[name].drop([1]) for name in ("text", "vectors")])
    assert image.read(held) == ({2, 3},) * 2
    for id in range(10, 50):
        await image.system(add, id)
        await image.system(tidy)
    assert image.read(held) == ({2, 3, *range(10, 50)},) * 2


async def test_parts_stay_few_and_bounded(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentedText, "MOST", 64)
    monkeypatch.setattr(VectorLog, "MOST", 64)
    await image.system(add, *range(1000, 1150))  # in pieces at once
    for id in range(200):
        await image.system(add, id)
        await image.system(tidy)
    assert image.read(held) == ({*range(200), *range(1000, 1150)},) * 2

    def sizes(root: Any) -> list[list[int]]:
        return [log.sizes() for log in (root["text"], root["vectors"])]

    text, vectors = image.read(sizes)
    assert max(text) == max(vectors) == 64
    assert len(text) < 24
    assert len(vectors) < 40


async def test_what_was_dropped_can_come_again(image: LivingImage) -> None:
    await image.system(add, 1, 2, 3)

    def again(root: Any) -> None:
        for log in (root["text"], root["vectors"]):
            log.drop([2, 99])
        root["text"].add(build([Entry(2, ["anew", "w2"])]))
        root["vectors"].add([2], row(2))

    await image.system(again)
    for _ in range(8):
        assert image.read(held) == ({1, 2, 3}, {1, 2, 3})
        assert image.read(lambda root: list(root["text"].apply("anew"))) == [2]
        assert image.read(lambda root: sorted(root["text"].apply("common"))) == [1, 3]
        await image.system(add, 50)
        await image.system(lambda root: [root[name].drop([50]) for name in ("text", "vectors")])
        await image.system(tidy)
    assert image.read(lambda root: (root["text"].dropped() > 0, root["vectors"].dropped() > 0)) == (True, True)
    await image.system(lambda root: (root["text"].purge(), root["vectors"].purge()))
    assert image.read(lambda root: (root["text"].dropped(), root["vectors"].dropped())) == (0, 0)
    assert image.read(held) == ({1, 2, 3}, {1, 2, 3})


async def test_keys_ascend_though_the_clock_goes_back(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    await image.system(add, 1)
    monkeypatch.setattr(part_log, "_last", 0)  # another process, later
    monkeypatch.setattr(part_log.time, "time_ns", lambda: 5000)
    await image.system(lambda root: root["text"].drop([1]))
    await image.system(lambda root: root["text"].add(build([Entry(1, ["anew"])])))
    assert image.read(lambda root: list(root["text"].apply("anew"))) == [1]
    assert image.read(lambda root: len(root["text"].apply("w1"))) == 0


@pytest.mark.parametrize("merged", [False, True])
async def test_deleting_really_deletes(image: LivingImage, tmp_path: Path, merged: bool) -> None:
    """After purge and pack the file holds neither the words nor the vectors of what was dropped, and all of the rest."""
    for id in range(40):
        await image.system(add, id)
    while merged and await image.system(tidy):
        pass
    path = tmp_path / "i.fs"
    secret, kept = row(17).tobytes(), row(18).tobytes()
    assert b"w17" in path.read_bytes()
    assert secret in path.read_bytes()

    def forget(root: Any) -> int:
        for log in (root["text"], root["vectors"]):
            log.drop([17])
        return sum(log.purge() for log in (root["text"], root["vectors"]))

    assert await image.system(forget) == 2
    pack(image.db, path, time.time(), threading.Event())
    data = path.read_bytes()
    assert b"w17" not in data
    assert secret not in data
    assert b"w18" in data
    assert kept in data
    assert image.read(held) == (set(range(40)) - {17},) * 2


async def test_a_merge_deletes_too(image: LivingImage) -> None:
    for id in range(8):
        await image.system(add, id)
    await image.system(lambda root: root["text"].drop(range(8)))
    assert await image.system(lambda root: root["text"].tidy())
    assert image.read(lambda root: (root["text"].parts(), root["text"].documentCount())) == (0, 0)


async def test_vectors_of_another_shape_are_refused(image: LivingImage) -> None:
    with pytest.raises(ValueError, match=r"2 vectors of 8 numbers were expected, not an array of shape \(2, 7\)"):
        await image.system(lambda root: root["vectors"].add([1, 2], np.zeros((2, 7))))


async def test_both_text_indexes_live_in_an_image(image: LivingImage) -> None:
    await image.system(lambda root: root.update(okapi=OkapiText()))
    for name in ("text", "okapi"):
        await image.system(lambda root, name: root[name].index_docs([(1, "Paintings"), (2, "Cafés")]), name)
        assert image.read(lambda root, name: list(root[name].apply("painted")), name) == [1]
        await image.system(lambda root, name: root[name].index_doc(2, "painted cafés"), name)
        assert image.read(lambda root, name: list(root[name].apply("painted")), name) == [1, 2]


def test_a_tail_keeps_the_order_of_keys_whatever_comes_late() -> None:
    tail = Tail()
    for key in (5, 9, 7, -3, 9):
        tail[key] = (abs(key) + key % 2, f"part {key}")
    del tail[7]
    again = Tail()
    again.__setstate__(tail.__getstate__())
    for one in (tail, again):
        assert list(one) == [-3, 5, 9]
        assert one.newest() == 9
        assert (7 in one, one[9], len(one)) == (False, (10, "part 9"), 3)
    assert again.__getstate__() == tail.__getstate__()
    with pytest.raises(KeyError):
        del tail[7]
