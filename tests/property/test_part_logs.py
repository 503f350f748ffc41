"""Whatever is added, dropped, merged and purged, in whatever order: the logs hold what a dict would, and a load says it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batos.memory.part_log import BEGIN, Drops, PartLog, VectorLog
from batos.memory.search_index import Collection
from batos.memory.segments import Entry, build
from batos.memory.text_index import SegmentedText

IDS = st.sets(st.integers(0, 12), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), IDS),
        st.tuples(st.just("drop"), IDS),
        st.tuples(st.sampled_from(["tidy", "purge", "some"]), st.just(set())),
    ),
    max_size=30,
)


class SmallText(SegmentedText):
    FAN, MOST = 2, 8


class SmallVectors(VectorLog):
    FAN, MOST = 3, 5


def vector(id: int, version: int) -> list[float]:
    return [id, version]


@given(STEPS)
def test_the_logs_hold_what_a_dict_would(steps: list[tuple[str, set[int]]]) -> None:
    text, vectors, live = SmallText(), SmallVectors("test", 2), Collection()
    expected: dict[int, int] = {}
    under_way: dict[PartLog, tuple[Drops, int]] = {}  # purges in several transactions, with all the rest between them
    for version, (what, ids) in enumerate(steps):
        given = sorted(ids)
        if what in ("put", "drop"):
            for log in (text, vectors):
                log.drop(given)
            live.drop(given)
            for id in given:
                expected.pop(id, None)
        if what == "put":
            rows = np.array([vector(id, version) for id in given], np.float16)
            segment = build([Entry(id, [f"w{id}", f"v{version}"]) for id in given])
            text.add(segment)
            vectors.add(given, rows)
            live.append(segment)
            live.vectors(np.array(given), rows)
            expected |= dict.fromkeys(given, version)
        if what == "tidy":
            for log in (text, vectors):
                log.tidy()
        if what == "purge":
            for log in (text, vectors):
                log.purge()
                assert log.dropped() == 0
        if what == "some":
            for log in (text, vectors):
                drops, after = under_way.pop(log, (log.drops(), BEGIN))
                further = log.purge_some(drops, after, 1)
                if further is not None:
                    under_way[log] = (drops, further)
    for collection in (Collection.load(text, vectors), live):
        view = collection.view()
        there = {int(view.ids[row]): row for row in np.flatnonzero(~view.gone)}
        assert there.keys() == expected.keys()
        for id, version in expected.items():
            row = there[id]
            assert view.row_of(id) == row
            assert view.matrix[row].tolist() == vector(id, version)
            assert view.bm25([f"w{id}"])[row] > 0
            assert view.bm25([f"v{version}"])[row] > 0
    assert vectors.ids() == expected.keys()
    assert text.documentCount() == len(expected)
    for log in (text, vectors):
        assert max(log.sizes(), default=0) <= log.MOST
