"""Vectors of two embedders are never mixed, whenever the model becomes another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memory_support import CountsWords, memory


class Becoming(CountsWords):
    """Becomes another model while it embeds `at` texts for the first time; the vectors of the other point the other way."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        way = 1.0 if self.digest_now == "d1" else -1.0
        rows = [[way * x for x in row] for row in await super().embed(model, texts, deadline_s=deadline_s)]
        if any(self.at in text for text in texts):
            self.digest_now = "d2"
        return rows


async def test_vectors_made_while_the_embedder_became_another_are_made_again(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\nThe tomatoes grow by the wall. The boat lies in the harbour.\n")
    async with memory(tmp_path, embedder=Becoming("tomatoes")) as held:
        await held.read(tmp_path / "notes.md")
        await held.embedded()
        await held.whole()
        view = held.recollection.collection.view()
        assert held.look(lambda library: "@d2" in library.embedder)
        assert view.has.all()
        assert (view.matrix.sum(axis=1) < 0).all()
