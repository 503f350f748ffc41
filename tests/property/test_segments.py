"""Segments hold what they were given, and merging is the same as building anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.memory.segments import Entry, Facts, Segment, StoredSegment, build, merge, pack, pack_sorted, unpack, unpack_sorted, widen

LONGS = st.integers(-(2**63), 2**63 - 1)
ENTRIES = st.lists(
    st.builds(
        Entry,
        LONGS,
        st.lists(st.sampled_from(["ant", "bee", "cat", "über", "東京"]), max_size=300),
        st.builds(
            Facts,
            LONGS,
            st.integers(-(2**31), 2**31 - 1),
            st.integers(-(2**31), 2**31 - 1),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**40),
            st.integers(0, 255),
        ),
        st.lists(LONGS, max_size=3),
    ),
    unique_by=lambda entry: entry.id,
    max_size=12,
)


def told(segment: Segment) -> dict[int, Any]:
    """All that a segment says, chunk by chunk."""
    found: dict[int, Any] = {int(fact["id"]): (fact.tolist(), {}, []) for fact in segment.facts}
    for i, term in enumerate(segment.terms):
        postings = slice(segment.starts[i], segment.starts[i + 1])
        assert (np.diff(segment.rows[postings]) > 0).all()
        assert postings.stop > postings.start
        for row, count in zip(segment.rows[postings].tolist(), segment.counts[postings].tolist(), strict=True):
            found[int(segment.ids[row])][1][term] = count
    for source, target in segment.links.tolist():
        found[source][2].append(target)
    return found


@given(st.lists(LONGS, max_size=50))
def test_numbers_come_back(numbers: list[int]) -> None:
    given = np.array(numbers, np.int64)
    assert unpack(pack(given)).tolist() == unpack_sorted(pack_sorted(given)).tolist() == numbers


def test_small_ranges_take_few_bytes() -> None:
    far = np.arange(2**60, 2**60 + 1000)
    assert len(pack_sorted(far)) < 40
    assert len(pack(far)) < 2100
    assert len(pack(np.full(10**6, -7))) < 20


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-7])
def test_halves_are_widened_exactly(scale: float) -> None:
    every = np.arange(2**16, dtype=np.uint16).view("<f2")
    halves = np.concatenate([every[np.isfinite(every)], (np.random.default_rng(1).standard_normal(5000) * scale).astype("<f2")])
    out = np.empty(len(halves), np.float32)
    widen(halves, out)
    assert (out.view(np.uint32) == halves.astype(np.float32).view(np.uint32)).all()


@given(ENTRIES)
def test_a_segment_says_what_it_was_given(entries: list[Entry]) -> None:
    segment = build(entries)
    expected = {
        entry.id: (
            (entry.id, *entry.facts[:5], min(entry.facts.length, 65535), entry.facts.flags),
            {word: entry.words.count(word) for word in entry.words},
            list(entry.links),
        )
        for entry in entries
    }
    assert told(segment) == told(StoredSegment(segment).load()) == expected
    order = [(fact["document"], fact["section"], fact["place"], fact["id"]) for fact in segment.facts]
    assert order == sorted(order)


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.data())
def test_merging_is_building_anew(batches: list[list[Entry]], data: st.DataObject) -> None:
    seen: set[int] = set()
    fresh = []
    for batch in batches:
        fresh.append([entry for entry in batch if entry.id not in seen])
        seen |= {entry.id for entry in batch}
    gone = data.draw(st.sets(st.sampled_from(sorted(seen)))) if seen else set()
    segments = [build(batch) for batch in fresh]
    merged = merge(segments, [np.isin(segment.ids, list(gone)) for segment in segments])
    assert told(merged) == told(build([entry for batch in fresh for entry in batch if entry.id not in gone]))
    assert merged.ids.tolist() == [id for segment in segments for id in segment.ids.tolist() if id not in gone]


def test_a_chunk_is_in_a_segment_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        build([Entry(1, ["a"]), Entry(1, ["b"])])
