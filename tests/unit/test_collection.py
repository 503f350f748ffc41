"""The collection: what searches see while chunks come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from batos.memory.part_log import VectorLog
from batos.memory.search_index import Collection, View
from batos.memory.segments import Entry, Facts, build
from batos.memory.text_index import SegmentedText


def entry(id: int, text: str = "", document: int = 0, section: int = 0, **more: Any) -> Entry:
    return Entry(id, text.split(), Facts(document, section, **{k: v for k, v in more.items() if k != "links"}), more.get("links", ()))


def rows(count: int, seed: int = 0, dimensions: int = 4) -> Any:
    found = np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float16).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def found(view: View, *words: str) -> dict[int, float]:
    scores = view.bm25(words)
    return {int(view.ids[row]): round(float(scores[row]), 4) for row in np.flatnonzero(scores)}


def told(view: View) -> dict[int, Any]:
    """All that a view says of each chunk, whatever its row is."""
    ids, scores = view.ids.tolist(), found(view, *"abcdef")
    linked: dict[int, list[int]] = {}
    for row, to in view.links.tolist():
        linked.setdefault(row, []).append(to)
    return {
        id: (
            view.facts[row].tolist(),
            view.matrix[row].tolist() if view.has[row] else None,
            sorted(linked.get(row, ())),
            scores.get(id, 0.0),
        )
        for row, id in enumerate(ids)
        if not view.gone[row]
    }


def test_an_empty_collection_answers() -> None:
    view = Collection().view()
    assert (view.n, view.bm25(["a"]).shape, view.matrix.shape, view.links.shape) == (0, (0,), (0, 0), (0, 2))
    assert view.row_of(1) is None
    assert view.starts.tolist() == []


def test_one_by_one_is_as_all_at_once() -> None:
    entries = [
        entry(0, "a b", 1, 1, length=7, flags=3),
        entry(1, "b", 1, 1, speaker=99, length=70_000, flags=255),
        entry(2, "c a", 1, 2, speaker=99),
        entry(3, "", 2, 2, speaker=5, flags=1),
        entry(4, "a a b", 2, 2, length=65_535),
    ]
    one_by_one, at_once = Collection(), Collection()
    for one in entries:
        one_by_one.append(build([one]))
    at_once.append(build(entries))
    grown, whole = one_by_one.view(), at_once.view()
    assert told(grown) == told(whole)
    for name in ("facts", "told", "looks", "runs", "begins", "starts", "sizes"):
        assert getattr(grown, name).tolist() == getattr(whole, name).tolist(), name
    assert grown.speakers == whole.speakers == {5, 99}
    assert grown.talk == whole.talk == 0.6


def test_neighbours_count_within_their_section_only() -> None:
    collection = Collection()
    collection.append(build([*(entry(i, "abcdef"[i], 1, 1) for i in range(6)), entry(6, "z", 1, 2), entry(7, "y", 2, 2)]))
    view = collection.view()
    assert set(found(view, "c")) == {0, 1, 2, 3, 4}
    assert found(view, "c")[2] == max(found(view, "c").values())
    assert set(found(view, "f")) == {3, 4, 5}
    assert set(found(view, "z")) == {6}
    assert view.starts.tolist() == [0, 6, 7]


def test_a_section_that_grows_has_neighbours_across_what_was_added() -> None:
    collection = Collection()
    collection.append(build([entry(1, "a"), entry(2, "b")]))
    collection.append(build([entry(3, "c")]))
    assert set(found(collection.view(), "a")) == {1, 2, 3}
    assert set(found(collection.view(), "c")) == {1, 2, 3}
    assert collection.view().starts.tolist() == [0]


def test_places_say_the_order_where_ids_do_not() -> None:
    entries = [entry(9, "a", place=0), entry(5, "b", place=1), entry(7, "c", place=2), entry(1, "d", place=3)]
    text = SegmentedText()
    text.add(build(entries[::2]))
    text.add(build(entries[1::2]))
    assert Collection.load(text).view().ids.tolist() == [9, 5, 7, 1]


def test_a_view_stays_as_it_is() -> None:
    collection = Collection()
    collection.append(build([entry(1, "a", links=(2,)), entry(2, "b")]))
    collection.vectors(np.array([1, 2]), rows(2))
    view = collection.view()
    before, links = told(view), view.links.tolist()
    assert collection.view() is view
    collection.append(build([entry(i, "a b", 5) for i in range(10, 40_000)]))
    collection.drop([1])
    collection.vectors(np.array([10, 11]), rows(2, 1))
    assert collection.view().facts.base is not view.facts.base  # all was copied
    assert told(view) == before
    assert view.links.tolist() == links
    assert view.row_of(10) is None
    assert view.row_of(1) == 0
    assert collection.view().row_of(1) is None
    assert 1 not in told(collection.view())
    assert collection.view().links.tolist() == []


def test_vectors_come_later_and_in_any_order() -> None:
    collection = Collection()
    collection.append(build([entry(i) for i in range(6)]))
    view = collection.view()
    assert not view.has.any()
    given = rows(4)
    collection.vectors(np.array([4, 99, 0, 2]), given)
    now = collection.view()
    assert now.has.tolist() == [True, False, True, False, True, False]
    assert (now.matrix[[4, 0, 2]] == given[[0, 2, 3]]).all()
    assert not now.matrix[1].any()
    assert view.matrix.shape == (6, 0)  # taken before any vector was there
    with pytest.raises(ValueError, match="vectors of 5 numbers do not go with those of 4"):
        collection.vectors(np.array([1]), rows(1, dimensions=5))


def test_a_chunk_that_comes_again_takes_its_place() -> None:
    collection = Collection()
    collection.append(build([entry(1, "a"), entry(2, "b", 7)]))
    collection.append(build([entry(1, "c", 3)]))
    view = collection.view()
    assert found(view, "a") == {}
    assert set(found(view, "c")) == {1}
    assert (view.row_of(1), view.gone.tolist()) == (2, [True, False, False])
    assert collection.dropped == 1


def test_what_was_dropped_lends_its_words_to_nobody() -> None:
    collection = Collection()
    collection.append(build([entry(1, "a"), entry(2, "b"), entry(3, "c")]))
    collection.drop([2, 77])
    view = collection.view()
    assert found(view, "b") == {}
    assert set(found(view, "a")) == {1, 3}
    assert told(view).keys() == {1, 3}


def test_many_small_additions_say_the_same_as_one() -> None:
    entries = [entry(i, "abcdef"[i % 6] + " " + "fedcba"[i * i % 6], i // 40, i // 7, links=(i * 3,)) for i in range(300)]
    one, many = Collection(), Collection()
    one.append(build(entries))
    for single in entries:
        many.append(build([single]))
        many.vectors(np.array([single.id]), rows(1, single.id))
    one.vectors(np.arange(300), np.concatenate([rows(1, i) for i in range(300)]))
    assert told(many.view()) == told(one.view())
    assert many.parts < 40
    assert (many.view().starts == one.view().starts).all()


def stored(entries: Iterable[Entry], size: int, vectors: Any) -> tuple[SegmentedText, VectorLog]:
    text, log = SegmentedText(), VectorLog("test", 4)
    entries = list(entries)
    for begin in range(0, len(entries), size):
        text.add(build(entries[begin : begin + size]))
        log.add([entry.id for entry in entries[begin : begin + size]], vectors[begin : begin + size])
    return text, log


@pytest.mark.parametrize("size", [1, 7, 300])
def test_a_load_says_what_appending_said(size: int) -> None:
    entries = [entry((i * 37) % 301, "abcdef"[i % 6], i // 40, i // 7, place=i, links=(i,)) for i in range(300)]
    vectors = rows(300).astype(np.float16)
    text, log = stored(entries, size, vectors)
    collection = Collection()
    collection.append(build(entries))
    collection.vectors(np.array([entry.id for entry in entries]), vectors)
    assert told(Collection.load(text, log).view()) == told(collection.view())
    dropped = [entry.id for entry in entries[::3]]
    text.drop(dropped)
    log.drop(dropped)
    while text.tidy() or log.tidy():
        pass
    loaded = Collection.load(text, log).view()
    assert loaded.n == 200
    fresh = Collection()
    left = [(entry, vector) for entry, vector in zip(entries, vectors, strict=True) if entry.id not in dropped]
    fresh.append(build([entry for entry, _ in left]))
    fresh.vectors(np.array([entry.id for entry, _ in left]), np.stack([vector for _, vector in left]))
    assert told(loaded) == told(fresh.view())
    assert (loaded.ids == fresh.view().ids).all()


def test_searches_go_on_in_other_threads_while_chunks_come() -> None:
    """Whatever a search sees, it sees whole: each chunk says its own number, and so does its vector."""
    collection = Collection()
    collection.append(build([entry(0, "word0 all", 0)]))
    collection.vectors(np.array([0]), np.full((1, 4), 0, np.float32))
    stop, wrong, looks = threading.Event(), [], [0, 0]

    def search(which: int) -> None:
        while not stop.is_set() or not looks[which]:
            view = collection.view()
            looks[which] += 1
            last = view.n - 1
            scores = view.bm25([f"word{last}", "all"])
            if len(scores) != view.n or not scores.all() or int(np.argmax(scores)) != last:
                wrong.append((last, scores))
            has = view.has.copy()  # vectors that come meanwhile are seen
            expected = np.where(has, view.ids, 0)
            if not (view.matrix[:, 0][has] == expected[has]).all():
                wrong.append((last, "vectors"))

    threads = [threading.Thread(target=search, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for i in range(1, 400):
        collection.append(build([entry(i, f"word{i} all", i)]))
        collection.vectors(np.array([i]), np.full((1, 4), i, np.float32))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert min(looks) > 0
