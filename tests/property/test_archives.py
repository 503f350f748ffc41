"""Whatever is archived, restored, forgotten, changed and packed in whatever order: what is left is what it was, bit for bit."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batos.memory import archive_format
from batos.memory.archive_format import ArchiveContent, ArchivedChunk, ArchivedSection
from batos.memory.records import Section
from batos.memory.segments import FACTS, Entry, Facts, build
from tests.support.archives import everything, pack
from tests.support.curator import DAY, Curated, curated
from tests.support.memory import Memory

NAMES = ("a.md", "b.md", "c.md", "d.md")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("curate"), st.just("")),
        st.tuples(st.just("restore"), st.sampled_from(NAMES)),
        st.tuples(st.just("forget"), st.sampled_from(NAMES)),
        st.tuples(st.just("change"), st.sampled_from(NAMES)),
        st.tuples(st.just("pack"), st.just("")),
        st.tuples(st.just("restart"), st.just("")),
    ),
    min_size=1,
    max_size=10,
)
WORDS = ("harbour", "dough", "comet", "piano")


def text(name: str, version: int) -> str:
    """What a file says: three sections on one theme, and the name of another file's first heading."""
    n = NAMES.index(name)
    said = f"The {WORDS[n]} and its {WORDS[n]}master of {name} {version}. See Part {(n + 1) % 4}0 for more of that."
    return "".join(f"# Part {n}{k}\n\n{said} It is number {k}.\n\n" for k in range(3))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_what_is_left_is_what_it_was(steps: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_happens(Path(folder), steps))


async def _happens(folder: Path, steps: list[tuple[str, str]]) -> None:
    left, versions, was = list(steps), dict.fromkeys(NAMES, 0), {}
    now = 1_000_000_000.0
    for name in NAMES:
        (folder / name).write_text(text(name, 0))
    while True:
        async with curated(folder, curate_cluster=6, curate_least=2) as kept:
            kept.clock.now = now
            if not was:
                for name in NAMES:
                    await kept.held.read(folder / name)
                await kept.held.embedded()
                was = _documents(kept.held)
            while left:
                step, name = left.pop(0)
                if step == "restart":
                    break
                await _step(kept, folder, step, name, versions, was)
            else:
                await _all_back(kept)
                assert _documents(kept.held) == was
                return
            now = kept.clock.now


async def _step(kept: Curated, folder: Path, step: str, name: str, versions: dict[str, int], was: dict[str, Any]) -> None:
    source = str(folder / name)
    known = kept.held.look(lambda library: source in library.by_source)
    if step == "curate":
        kept.clock.now += 100 * DAY
        await kept.curator.round("a test says so")
    elif step == "pack":
        await kept.held.recollection.vectors.purge()
        await pack(kept.held.image, folder)
    elif step == "restore" and known:
        await kept.curator.restore(source)
    elif step == "forget" and known:
        await kept.held.recollection.tell(forget=source)
        del was[source]
    elif step == "change":
        versions[name] += 1
        (folder / name).write_text(text(name, versions[name]))
        assert (await kept.held.read(source))["refused"] == []
        await kept.held.embedded()
        was[source] = _documents(kept.held)[source]
    await kept.held.whole()


async def _all_back(kept: Curated) -> None:
    while numbers := kept.held.look(lambda library: list(library.archives)):
        await kept.curator.restore(str(numbers[0]))
    await kept.held.whole()


def _documents(held: Memory) -> dict[str, Any]:
    """Of each document that was read: its sections, chunks as records under their ids, words, facts and vectors."""
    found = held.image.read(everything)
    told = {}
    for source, number in found["sources"].items():
        if source.startswith("archive:"):
            continue
        sections = [one for n, one in found["sections"].items() if one[1] == number]
        ids = [n for one in sections for n in range(one[2], one[2] + one[3])]
        entries = {n: found["entries"][n][:2] for n in ids}  # what it points at may have been forgotten, or come anew
        texts = held.look(lambda library, ids=ids: [(library.chunks[n]._p_oid, library.chunks[n].text) for n in ids])
        told[source] = (sorted(sections), texts, entries, {n: found["vectors"].get(n) for n in ids})
    return told


# --- the format alone

TEXTS = st.text(max_size=40)
IDS = st.integers(1, 2**62)


@st.composite
def materials(draw: Any) -> ArchiveContent:
    """Archives of anything."""
    held, entries = [], []
    first = 1
    for number in draw(st.lists(IDS, min_size=1, max_size=4, unique=True)):
        size, dimensions = draw(st.integers(1, 4)), draw(st.integers(1, 5))
        said = draw(st.lists(st.tuples(TEXTS, TEXTS, st.lists(TEXTS, max_size=2)), min_size=size, max_size=size))
        section = Section(
            number, draw(IDS), first, size, size + draw(st.integers(0, 5)), draw(st.binary(min_size=16, max_size=16)), draw(TEXTS), 7, True
        )
        chunks = tuple(ArchivedChunk(draw(st.binary(min_size=8, max_size=8)), text, speaker, tuple(named)) for text, speaker, named in said)
        bits = draw(st.binary(min_size=2 * size * dimensions, max_size=2 * size * dimensions))
        vectors = np.frombuffer(bits, "<f2").reshape(size, dimensions) if draw(st.booleans()) else None
        held.append(ArchivedSection(section, chunks, vectors))
        words = st.lists(st.text(st.characters(exclude_characters="\n"), min_size=1, max_size=5), max_size=4)
        entries += [
            Entry(first + n, draw(words), Facts(section.document, 5, speaker=9, day=-3), draw(st.lists(IDS, max_size=2)))
            for n in range(size)
        ]
        first += size
    return ArchiveContent(tuple(held), build(entries), draw(TEXTS))


@settings(max_examples=150, deadline=None)
@given(materials())
def test_what_is_packed_is_unpacked_bit_for_bit(material: ArchiveContent) -> None:
    again = archive_format.unpack_archive(archive_format.pack_archive(material))
    assert again.embedder == material.embedder
    for one, other in zip(again.held, material.held, strict=True):
        assert (one.section, one.chunks) == (other.section, other.chunks)
        assert (one.vectors is None) == (other.vectors is None)
        if one.vectors is not None and other.vectors is not None:
            assert one.vectors.tobytes() == other.vectors.tobytes()
    assert again.segment.terms == material.segment.terms
    assert again.segment.facts.astype(FACTS).tobytes() == material.segment.facts.tobytes()
    for name in ("starts", "rows", "counts", "links"):
        assert np.array_equal(getattr(again.segment, name), getattr(material.segment, name))
