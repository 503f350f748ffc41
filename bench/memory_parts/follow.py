"""A kernel that follows what others commit to the memory: what a look costs, with and without news, and what the follower holds.

With `--follow-uri postgres://…` on a server's image, which is to be empty.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from transaction import TransactionManager

from batos.image import LivingImage
from batos.memory import objects
from batos.memory.embedding_worker import adopt_embedder
from batos.memory.follower import Follower
from batos.memory.segments import Entry, Facts, build
from batos.memory.store import library_of
from batos.memory.tokenizer import words
from bench.memory_parts.catalogue import BATCH, DIMENSIONS, SECTION, percentiles, texts, unit_vectors

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"follow_nothing_ms_p50": ("<=", 0.01), "follow_chunk_ms_p50": ("<=", 5.0)}
LOOKS, FILE = 200, 50


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--follow-uri", default="", help="image for the part `follow`; a file of its own if left out")


def _add(root: Any, first: int, said: list[str], vectors: Any) -> None:
    library = library_of(root)
    entries = [Entry(first + i, words(text), Facts(first // SECTION, (first + i) // SECTION)) for i, text in enumerate(said)]
    library.text.add(build(entries))
    library.vectors["e"].add([entry.id for entry in entries], vectors)


def _drop(root: Any, ids: list[int]) -> None:
    for log in (library_of(root).text, library_of(root).vectors["e"]):
        log.drop(ids)


def _tidy(root: Any) -> bool:
    logs = (library_of(root).text, library_of(root).vectors["e"])
    return sum(log.tidy() for log in logs) > 0


def _purge(root: Any) -> None:
    for log in (library_of(root).text, library_of(root).vectors["e"]):
        log.purge()


def _else(root: Any) -> None:
    root["elsewhere"] = root.get("elsewhere", 0) + 1


class _Looks:
    """Looks of a kernel, on a connection of its own as a membership's."""

    def __init__(self, image: LivingImage) -> None:
        self.tm = TransactionManager(explicit=True)
        self.connection = image.db.open(transaction_manager=self.tm)

    @contextlib.contextmanager
    def root(self) -> Iterator[Any]:
        self.tm.begin()
        try:
            yield self.connection.root()
        finally:
            self.tm.abort()

    def look(self, follower: Follower) -> float:
        with self.root() as root:
            begun = time.perf_counter()
            follower.look(root)
            return time.perf_counter() - begun


async def measure(bench: Bench) -> dict[str, Any]:
    image = await LivingImage.open(bench.args.follow_uri or f"file://{bench.folder / 'live_image.fs'}", steps=(objects.install,))
    await image.system(adopt_embedder, "e", DIMENSIONS)
    count, said, vectors = bench.args.chunks, texts(bench.args.chunks), unit_vectors(bench.args.chunks)
    for begin in range(0, count, BATCH):
        await image.system(_add, begin, said[begin : begin + BATCH], vectors[begin : begin + BATCH])
    while await image.system(_tidy):
        pass
    looks, found = _Looks(image), dict[str, list[float]]()
    with looks.root() as root:
        begun = time.perf_counter()
        follower = Follower.load(root)
        load_s = time.perf_counter() - begun
    looks.look(follower)
    found["nothing"] = [looks.look(follower) for _ in range(LOOKS)]
    for kind in ("elsewhere", "chunk", "file", "dropped"):
        found[kind] = []
    more, chance, number = texts(LOOKS + 20 * FILE, seed=9), random.Random(3), 10**9
    vectors = unit_vectors(len(more), seed=9)
    for i in range(LOOKS):
        await image.system(_else)
        found["elsewhere"].append(looks.look(follower))
        await image.system(_add, number, more[i : i + 1], vectors[i : i + 1])
        found["chunk"].append(looks.look(follower))
        number += SECTION
    for i in range(20):
        begin = LOOKS + i * FILE
        await image.system(_add, number, more[begin : begin + FILE], vectors[begin : begin + FILE])
        found["file"].append(looks.look(follower))
        number += FILE + SECTION
        await image.system(_drop, chance.sample(range(count), FILE))
        found["dropped"].append(looks.look(follower))
    while await image.system(_tidy):
        pass
    merged_s = looks.look(follower)
    await image.system(_purge)
    purged_s = looks.look(follower)
    held = sum(ids.nbytes for log in (follower._text, follower._vectors) for ids in log.ids.values())
    looks.connection.close()
    await image.close()
    figures = {f"follow_{kind}_ms_p{part}": percentiles(times)[at] for kind, times in found.items() for at, part in enumerate((50, 95))}
    return {
        **figures,
        "follow_merged_ms": round(merged_s * 1e3, 2),
        "follow_purged_ms": round(purged_s * 1e3, 2),
        "follow_load_ms": round(load_s * 1e3, 1),
        "follow_held_kb": round(held / 1024),
    }
