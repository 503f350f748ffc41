"""A memory with its curator, at a time that the test sets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.memory import Memory, memory

DAY = 86400.0
THEMES = {
    "boats": ("harbour ferry sails keel", ("leaves at dawn", "was mended", "takes sailors home")),
    "bread": ("dough oven flour crust", ("rises slowly", "is baked by noon", "smells of rye")),
    "stars": ("comet telescope nebula moons", ("has a tail", "was seen twice", "counts for nothing")),
}
"""What each text on a theme names, and what it says of that."""
PLACES = ("Malta", "Genoa", "Lisbon", "Bergen")


def text_of(theme: str, n: int, place: str) -> str:
    """What a file on a theme says in one of its sections."""
    named, said = THEMES[theme]
    return f"The {named} of {place} {said[n]}."


class Clock:
    """Seconds since the epoch, as a test says."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


class Curated:
    """A memory with its curator, at a time of its own."""

    def __init__(self, held: Memory, folder: Path) -> None:
        self.held, self.folder, self.clock = held, folder, Clock()
        self.curator = held.recollection.curator
        self.curator.now = self.clock

    async def fill(self, themes: Sequence[str] = tuple(THEMES), places: Sequence[str] = PLACES) -> None:
        await self.write(themes, places)
        await self.held.embedded()
        await self.curator.round("to see what is there")

    async def write(self, themes: Sequence[str], places: Sequence[str] = PLACES) -> None:
        for theme in themes:
            for place in places:
                path = self.folder / theme / f"{theme} of {place}.md"
                path.parent.mkdir(exist_ok=True)
                path.write_text("".join(f"# Of {theme} {n}\n\n{text_of(theme, n, place)}\n\n" for n in range(3)))
        assert (await self.held.read(self.folder / themes[0], *(self.folder / theme for theme in themes[1:])))["refused"] == []

    def chunks(self) -> int:
        return self.held.look(lambda library: len(library.chunks))  # type: ignore[no-any-return]

    def sources(self, archive: int) -> list[str]:
        return self.held.look(lambda library: [Path(d.source).parent.name for d in library.archives[archive].of])  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def curated(folder: Path, **settings: Any) -> AsyncIterator[Curated]:
    settings = {"chunk_smallest": 20, "curate_least": 4, "curate_cluster": 12, "curate_alike": 0.999, **settings}
    async with memory(folder, **settings) as held:
        yield Curated(held, folder)
