"""Sustained ingest with and without the Memory Curator: what becomes of the image, of memory in RAM, and of what is found.

    python bench/curator.py --dir /dev/shm
    python bench/curator.py --chunks 4000 --json

A day is a batch of documents: they are read, questions about some themes are asked, the curator has its round, the index is purged and
the image packed. Documents of the kept themes come in the first four of forty days; one in six is pinned, the others are kept because
they are asked about (by other questions than those that count). All others come all the time and nobody asks. Recall@10: the share of 300
questions, three words of a sentence each, whose sentence is in one of the ten passages. Vectors are hashed bags of words (384 numbers, no
model); summaries are extracts. Each of the two is a process of its own. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import numpy as np

from batos import logs
from batos.app.memory import MemoryRuntime
from batos.concurrency import Lifetime
from batos.config import Settings
from batos.image import LivingImage
from batos.image.blobs import folder_of
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.image.usage_totals import CostMeter
from batos.memory import objects
from batos.memory.store import library_of
from batos.resources import one_arena
from batos.wire.admin_schemas import SearchRequest

THEMES, KEPT = 60, 6
DAYS = 40
LIVE = 0.15  # of all chunks are what the memory may hold
KEPT_SHARE = 0.4  # of the documents of the first tenth
PARTS, PARAGRAPHS = 4, 6
CHUNKS_A_DOCUMENT = PARTS * PARAGRAPHS
QUESTIONS, ASKED_A_DAY = 300, 60
DAY_S = 86400.0
AIMS = {"image_after_first_fifth": 1.15, "rss_after_first_fifth": 1.15, "recall_lost": 0.05}
DIMENSIONS = 384


class Hashed:
    """Stands in for Ollama: a text's vector is a hashed bag of its words, signs hashed too (Weinberger et al. 2009)."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        return [self._vector(text).tolist() for text in texts]

    async def digest(self, model: str) -> str:
        return "1"

    def _vector(self, text: str) -> Any:
        row = np.full(DIMENSIONS, 1e-3)
        for word in text.lower().replace(".", " ").split():
            place, sign = self._known.setdefault(word, _hashed(word))
            row[place] += sign
        return row / np.linalg.norm(row)


def _hashed(word: str) -> tuple[int, float]:
    found = zlib.crc32(word.encode())
    return found % DIMENSIONS, 1.0 if found >> 16 & 1 else -1.0


class Writer:
    """Documents of sentences that are made up, on themes with words of their own."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._common = [self._word() for _ in range(400)]
        self._of = [[self._word() for _ in range(80)] for _ in range(THEMES)]
        self.kept: list[str] = []
        """Sentences of the kept themes."""
        self.written = 0

    def _word(self) -> str:
        syllables = ("ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu", "za")
        return "".join(self._chance.choices(syllables, k=self._chance.choice((2, 3, 4))))

    def document(self, folder: pathlib.Path, theme: int) -> None:
        self.written += 1
        parts = []
        for part in range(PARTS):
            said = "\n\n".join(" ".join(self._sentence(theme) for _ in range(3)) for _ in range(PARAGRAPHS))
            parts.append(f"# Part {part} of paper {self.written}\n\n{said}\n")
        path = folder / f"theme{theme:02}" / f"paper{self.written}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(parts))

    def _sentence(self, theme: int) -> str:
        own, chance = self._of[theme], self._chance
        words = [own[min(int(chance.expovariate(0.05)), len(own) - 1)] for _ in range(8)] + chance.choices(self._common, k=4)
        chance.shuffle(words)
        said = " ".join(words).capitalize() + "."
        if theme < KEPT:
            self.kept.append(said)
        return said

    def question(self, chance: random.Random) -> tuple[str, str]:
        """Words of a sentence of a kept theme, and the sentence."""
        sentence = chance.choice(self.kept)
        return " ".join(chance.sample(sentence.lower().rstrip(".").split(), 3)), sentence


class Life:
    """A memory over many days."""

    def __init__(self, folder: pathlib.Path, image: LivingImage, memory: MemoryRuntime, chunks: int, curates: bool) -> None:
        self.folder, self.image, self.memory, self.chunks, self.curates = folder, image, memory, chunks, curates
        self.now = 1.7e9
        memory.curator.now = lambda: self.now
        self.upkeep = Upkeep(image, CostMeter(image), UpkeepPlan(0, 0, interval_s=1e6, first_s=1e6), backups=folder)
        self.writer, self.chance = Writer(7), random.Random(8)

    async def lived(self) -> dict[str, Any]:
        rows, read = [], 0
        for day in range(DAYS):
            read += await self._read(day)
            for _ in range(ASKED_A_DAY):
                await self._found(*self.writer.question(self.chance))
            self.now += DAY_S
            while self.curates and (await self.memory.curator.round("a day went by"))["clusters"]:
                await self._embedded()
            await self.memory.vectors.purge()
            await self.upkeep.pack(0)
            if (day + 1) % (DAYS // 5) == 0:
                rows.append({"read": read, **self._measured()})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        again = random.Random(99)
        hits = [await self._found(*self.writer.question(again)) for _ in range(QUESTIONS)]
        return {"fifths": rows, "recall_at_10": round(sum(hits) / len(hits), 4), **await self._restored()}

    async def _read(self, day: int) -> int:
        """A day's documents; their chunks."""
        folder, there = self.folder / "papers" / f"day{day}", self._chunks()
        count = round(self.chunks / DAYS / CHUNKS_A_DOCUMENT)
        kept = round(count * KEPT_SHARE) if day < DAYS // 10 else 0
        for n in range(count):
            theme = (day * kept + n) % KEPT if n < kept else KEPT + self.chance.randrange(THEMES - KEPT)
            self.writer.document(folder, theme)
        await (await self.memory.ask([str(folder)], [])).done(lambda event: None)
        await self._embedded()
        if day == 0:
            await self.memory.tell(pin=str(folder / "theme00"))
        return self._chunks() - there

    async def _embedded(self) -> None:
        def behind() -> bool:
            return self.image.read(lambda root: len(library_of(root).waiting)) > 1 or self.memory.vectors.facts()["state"] != "ready"

        while behind():  # noqa: ASYNC110  the worker has nobody to tell
            await asyncio.sleep(0.02)

    async def _found(self, question: str, sentence: str) -> bool:
        reply = await self.memory.search(SearchRequest(op="search", question=question, k=10))
        return any(sentence in " ".join(hit["text"].split()) for hit in reply["hits"])

    async def _restored(self) -> dict[str, Any]:
        """How many archives there are, and how many of the oldest twenty come back with all they held."""
        numbers = self.image.read(lambda root: list(library_of(root).archives))
        whole = 0
        for number in numbers[:20]:
            held = self.image.read(lambda root, number=number: getattr(library_of(root).archives.get(number), "chunks", 0))
            whole += held == 0 or (await self.memory.curator.restore(str(number)))["chunks"] == held
        return {"archives": len(numbers), "restored_whole": whole} if numbers else {}

    def _chunks(self) -> int:
        return self.image.read(lambda root: len(library_of(root).chunks))  # type: ignore[no-any-return]

    def _measured(self) -> dict[str, Any]:
        gc.collect()
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        blobs = sum(file.stat().st_size for file in folder_of(self.folder / "live_image.fs").rglob("*.blob"))
        mib = 1 << 20
        return {
            "live": self._chunks(),
            "image_mib": round(self.image.db.getSize() / mib, 2),
            "blobs_mib": round(blobs / mib, 2),
            "rss_mib": round(pages * os.sysconf("SC_PAGESIZE") / mib, 1),
        }


async def life(folder: pathlib.Path, chunks: int, curates: bool) -> dict[str, Any]:
    settings = Settings(
        data=folder, embed_sections=64, embed_texts=32, dropped_rows=1000, curate="off", curate_age_days=1000, curate_fresh_days=0.5,
        curate_chunks=max(100, round(chunks * LIVE)), curate_half_life_days=4, curate_tokens=0, chunk_largest=400,
    )  # fmt: skip
    async with Lifetime() as lifetime:
        image = await LivingImage.open(f"file://{folder / 'live_image.fs'}", steps=(objects.install,))
        lifetime.push_async_callback(image.close)
        memory = MemoryRuntime(image, settings)
        await memory.open(Hashed(), "hashed", life=lifetime)  # type: ignore[arg-type]
        return await Life(folder, image, memory, chunks, curates).lived()


def in_process(args: argparse.Namespace, curates: bool) -> dict[str, Any]:
    """A life in a process of its own: what it has in memory is its own."""
    command = [sys.executable, __file__, "--dir", args.dir, "--chunks", str(args.chunks), "--life", "with" if curates else "without"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if args.json else None, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def grown(life: dict[str, Any], name: str) -> float:
    """The most of the last four fifths, as a multiple of what it was after the first."""
    first, *rest = (row[name] for row in life["fifths"])
    return round(max(rest) / first, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the images")
    parser.add_argument("--chunks", type=int, default=20_000, help="chunks that are read in all, about")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--life", choices=("with", "without"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    logs.configure("error", "json")
    if args.life:
        one_arena()  # as the daemon does
        with tempfile.TemporaryDirectory(dir=args.dir) as folder:
            print(json.dumps(asyncio.run(life(pathlib.Path(folder), args.chunks, args.life == "with"))))
        return
    lives = {name: in_process(args, name == "with") for name in ("with", "without")}
    figures: dict[str, Any] = {
        "image_after_first_fifth": grown(lives["with"], "image_mib"),
        "rss_after_first_fifth": grown(lives["with"], "rss_mib"),
        "recall_lost": round(lives["without"]["recall_at_10"] - lives["with"]["recall_at_10"], 4),
    }
    missed = [name for name, aim in AIMS.items() if figures[name] > aim]
    uncurated = {f"{name}_without": grown(lives["without"], f"{name}_mib") for name in ("image", "rss")}
    print(
        json.dumps(
            {
                "bench": "curator",
                "chunks": args.chunks,
                "embedder": "hashed",
                **figures,
                **uncurated,
                "aims": AIMS,
                "missed": missed,
                **lives,
            }
        )
    )


if __name__ == "__main__":
    main()
