"""What several parts share: many chunks of real English, and an image that holds them."""

from __future__ import annotations

import ast
import functools
import pathlib
import random
import re
import sysconfig
from collections.abc import Sequence
from typing import Any

import numpy as np

from batos.memory.part_log import PartLog, VectorLog
from batos.memory.records import GrowingTree
from batos.memory.segments import Entry, Facts, Segment, build
from batos.memory.text_index import SegmentedText
from batos.memory.tokenizer import words
from batos.objects import UvmObject

BATCH = 1000
DIMENSIONS = 384
SECTION = 20  # chunks
QUESTIONS = 300
RRF_K = 60  # of reciprocal rank fusion (Cormack et al. 2009)


@functools.cache
def sentences() -> list[str]:
    """Sentences of 8 to 24 words: the documentation strings of the standard library, English that is there wherever Python is."""
    found: list[str] = []
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("**/*.py")):
        if "site-packages" in path.parts or "test" in path.parts or "tests" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # files that are broken on purpose
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = re.sub(r"\s+", " ", ast.get_docstring(node) or "")
                found += [sentence for sentence in re.split(r"(?<=[.!?]) ", text) if 8 <= len(sentence.split()) <= 24]
    assert len(found) > 3000, "the standard library has no documentation strings here"
    return found


def texts(count: int, seed: int = 1) -> list[str]:
    """Chunks of two sentences."""
    rng, known = random.Random(seed), sentences()
    return [f"{rng.choice(known)} {rng.choice(known)}" for _ in range(count)]


def questions(count: int = QUESTIONS, seed: int = 2) -> list[str]:
    """Questions about something: half of the words of a sentence, of which some are stop words."""
    rng, known = random.Random(seed), sentences()
    asked: list[str] = []
    while len(asked) < count:
        said = rng.choice(known).split()
        question = "What about " + " ".join(rng.sample(said, len(said) // 2)) + "?"
        asked += [question] * bool(words(question))
    return asked


def unit_vectors(count: int, seed: int = 3) -> np.ndarray[Any, np.dtype[np.float32]]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, DIMENSIONS), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def entries(first: int, said: Sequence[str]) -> list[Entry]:
    """As a long document of sections is indexed."""
    return [Entry(first + i, words(text), Facts(1, (first + i) // SECTION, length=len(text))) for i, text in enumerate(said)]


def begin(root: Any) -> None:
    """System transaction: an image's memory."""
    lobby = root["lobby"]
    root["bench"] = GrowingTree()
    root["text"], root["vectors"] = SegmentedText(), VectorLog("bench", DIMENSIONS)
    lobby.traits.chunk = lobby.genesis.derive(name="chunk")


def remember(root: Any, first: int, said: Sequence[str], vectors: Any) -> Segment:
    """System transaction: chunks as objects, their text and their vectors; what a collection is to be told."""
    parent = root["lobby"].traits.chunk
    for i, text in enumerate(said):
        root["bench"][first + i] = UvmObject(**{"parent*": parent, "text": text})
    segment = build(entries(first, said))
    root["text"].add(segment)
    root["vectors"].add(segment.ids, vectors)
    return segment


def tidy(root: Any) -> None:
    """System transaction: what upkeep does."""
    tidy_logs(root["text"], root["vectors"])


def tidy_logs(*logs: PartLog) -> None:
    """Merge until nothing is due."""
    for log in logs:
        while log.tidy():
            pass


async def fill(image: Any, count: int) -> None:
    """An image with so many chunks, in batches of 1,000."""
    await image.system(begin)
    said, vectors = texts(count), unit_vectors(BATCH)
    for first in range(0, count, BATCH):
        batch = said[first : first + BATCH]
        await image.system(remember, first, batch, vectors[: len(batch)])
        await image.system(tidy)


def percentiles(times: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile of seconds, in milliseconds."""
    ordered = sorted(times)
    return round(ordered[len(ordered) // 2] * 1e3, 3), round(ordered[int(len(ordered) * 0.95)] * 1e3, 3)
