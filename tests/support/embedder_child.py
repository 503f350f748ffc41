"""A memory whose embedder is a model that may be another at each start; it works until it is killed.

    python embedder_child.py FOLDER MODEL [FILE…]

A line comes out once it is open, another when all chunks have the vectors of the model, and searches use them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.memory import CountsWords, memory


class Slow(CountsWords):
    """Takes its time for each text, as a model does."""

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        await asyncio.sleep(0.002 * len(texts))
        return await super().embed(model, texts, deadline_s=deadline_s)


async def main(folder: Path, model: str, files: list[str]) -> None:
    async with memory(folder, embedder=Slow(), model=model, embed_sections=3) as held:
        print("open", flush=True)
        if files:
            await held.read(*files)
        await held.until(lambda: held.recollection.collection.maker.identity.startswith(f"ollama:{model}@"))
        await held.whole()
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
