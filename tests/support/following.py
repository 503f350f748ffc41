"""Changes of the memory at two kernels of one image, in any order, and what both must hold then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from transaction.interfaces import TransientError

from batos.memory.drafts import Draft, DraftPart
from batos.memory.records import NOTE, STATEMENT
from batos.memory.section_builder import prepare_document, remember_document, store_document
from batos.memory.segments import build
from batos.memory.store import library_of
from tests.support.memory import Memory, consistent, equals_a_fresh_one

Step = tuple[str, int, str, list[int]]
"""What is done, by which of two kernels, to which file, and the parts that the file has then."""
NAMES = ("a.md", "b.md", "c.txt")
PARTS = st.lists(st.integers(0, 7), min_size=1, max_size=6)
LIMITS: dict[str, Any] = {"ingest_batch_bytes": 1024, "ingest_section_chars": 600, "dropped_rows": 8}
WITH_TEXT, PLAIN = ("write", "both", "note", "state"), ("forget", "purge", "embed", "reload", "look")
STEPS = st.lists(
    st.one_of(
        *(st.tuples(st.just(step), st.integers(0, 1), st.sampled_from(NAMES), PARTS) for step in WITH_TEXT),
        *(st.tuples(st.just(step), st.integers(0, 1), st.sampled_from(NAMES), st.just([])) for step in PLAIN),
    ),
    max_size=14,
)


def text(parts: list[int]) -> str:
    """Sections in some order; some of them name others, or a document."""
    return "".join(f"# Part {n}\n\nIt says word{n}, and see Part {(n + 1) % 8}. {'Much more. ' * (40 * (n % 3))}\n\n" for n in parts)


async def happen(both: list[Memory], folder: Path, steps: list[Step]) -> None:
    """Do what the steps say, and check that each kernel has at its looks what the image says."""
    says: dict[str, str] = {}
    noted = 0
    for at, (step, who, name, parts) in enumerate(steps):
        one, path = both[who], str(folder / name)
        if step in ("write", "both"):
            says[path] = text(parts)
            Path(path).write_text(says[path])
            second = str(folder / f"second-{name}")
            if step == "both":  # two kernels read files at the same moment
                says[second] = text(parts[::-1])
                Path(second).write_text(says[second])
                await asyncio.gather(one.recollection.ask([path], []), both[1 - who].recollection.ask([second], []))
            else:
                await one.recollection.ask([path], [])
            await _read(both)
        elif step == "note":
            noted += 1
            await _note(one, f"note:{at}", text(parts))
            equals_now(one)
        elif step == "state":
            noted += 1
            await _state(one, f"said:{at}", text(parts))
            equals_now(one)
        elif step == "forget" and path in says:
            await one.recollection.tell(forget=path)
            del says[path]
            equals_now(one)
        elif step == "purge":
            await one.recollection.vectors.purge()
        elif step == "embed":
            await _embedded(both)
        elif step == "reload":
            await one.recollection.reload()
        elif step == "look":
            equals_now(one)
    await _embedded(both)
    for one in both:
        equals_now(one)
    both[0].look(consistent)
    assert both[0].look(lambda library: len(library.by_source)) == len(says) + noted
    for path, words in says.items():
        assert "".join(both[0].texts(path)).split() == words.split()
    for question in ("word3", "see part 4", "much more"):
        assert sorted(both[0].found(question)) == sorted(both[1].found(question))


def equals_now(one: Memory) -> None:
    """A look takes in all that is committed now."""
    with one.image.snapshot() as root:
        one.recollection.look(root)
        equals_a_fresh_one(root, one.recollection.collection)


async def _read(both: list[Memory]) -> None:
    """Wait until nothing is queued any more; each kernel looks meanwhile."""

    def done() -> bool:
        for one in both:
            one.image.read(one.recollection.look)
        return not any(one.recollection.ingest.under_way for one in both) and not both[0].look(lambda library: list(library.queue))

    await both[0].until(done)


async def _embedded(both: list[Memory]) -> None:
    def done() -> bool:
        for one in both:
            one.image.read(one.recollection.look)
        return not both[0].look(lambda library: [*library.without_vectors(), *library.unlinked.keys("", excludemin=True)])

    await _read(both)
    await both[0].until(done)


async def _note(one: Memory, source: str, words: str) -> None:
    """A mission keeps a note: in a unit of work of its own, which is tried again after a conflict."""
    shelver = one.recollection.shelver
    while True:
        try:
            async with one.image.unit() as unit:
                segment = remember_document(
                    unit.root, Draft(NOTE, source, [DraftPart(words)], 0), shelver, source=source, mission="m", section_chars=600
                )
        except TransientError:
            continue
        one.recollection.stored(segment, ())
        return


async def _state(one: Memory, source: str, words: str) -> None:
    """A mission becomes memory: in a system transaction."""
    draft = Draft(STATEMENT, source, [DraftPart(words)], 0)
    made = prepare_document(draft, one.recollection.shelver, source=source, mission="m", section_chars=600)
    segment = build(made.entries)

    def store(root: Any) -> None:
        if made.source not in library_of(root).by_source:
            store_document(root, made, segment)

    await one.image.system(store, mission="remember")
    one.recollection.stored(segment, ())
