"""Whatever happens to files in whatever order, the memory holds what they say now, and all its parts agree."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.memory import memory

NAMES = ("a.md", "b.md", "c.txt")
PARTS = st.lists(st.integers(0, 7), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(NAMES), PARTS),
        st.tuples(st.just("forget"), st.sampled_from(NAMES), st.just([])),
        st.tuples(st.just("embed"), st.just(""), st.just([])),
        st.tuples(st.just("restart"), st.just(""), st.just([])),
    ),
    max_size=10,
)


def text(parts: list[int]) -> str:
    """Sections in some order; some of them name others, or a document."""
    return "".join(f"# Part {n}\n\nIt says word{n}, and see Part {(n + 1) % 8}. {'Much more. ' * (40 * (n % 3))}\n\n" for n in parts)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_the_memory_is_what_the_files_say(steps: list[tuple[str, str, list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_happens(Path(folder), steps))


async def _happens(folder: Path, steps: list[tuple[str, str, list[int]]]) -> None:
    says: dict[str, str] = {}
    left = list(steps)
    while True:
        async with memory(folder, ingest_batch_bytes=1024, ingest_section_chars=600) as held:
            while left:
                step, name, parts = left.pop(0)
                path = str(folder / name)
                if step == "write":
                    says[path] = text(parts)
                    Path(path).write_text(says[path])
                    assert (await held.read(path))["refused"] == []
                elif step == "forget" and path in says:
                    await held.recollection.tell(forget=path)
                    del says[path]
                elif step == "embed":
                    await held.embedded()
                elif step == "restart":
                    break
            else:
                await held.embedded()
                await held.whole()
                for path, words in says.items():
                    assert "".join(held.texts(path)).split() == words.split()
                assert set(held.look(lambda library: list(library.by_source))) == set(says)
                return
