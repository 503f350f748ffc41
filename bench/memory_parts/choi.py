"""Whether documents are cut where their topics change (Choi's data, given as an argument), beside the usual cut at rare distances.

Each document is joined from extracts of different texts. Pk (Beeferman, Berger, Lafferty 1999) and WindowDiff (Pevzner, Hearst 2002), in
percent, lower is better; the window is half the mean length of a segment of the document, as is usual. Sizes are left unbounded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from batos.memory.chunking import boundaries
from bench.memory_parts.embedder import vectors

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"choi_pk": ("<=", 6.5)}
Rows = np.ndarray[Any, np.dtype[np.float32]]
Cut = Callable[[Rows], list[int]]


class Document(NamedTuple):
    """Its kind (how many sentences the segments have), its sentences' vectors, and where segments begin."""

    kind: str
    rows: Rows
    starts: list[int]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--choi", metavar="FILE", type=pathlib.Path, help="documents as lines of JSON with `set` and `segments`, for choi")


def lacks(args: argparse.Namespace) -> str:
    return "" if args.choi else "no --choi FILE"


async def measure(bench: Bench) -> dict[str, Any]:
    documents = await _documents(await asyncio.to_thread(_lines, bench.args.choi))
    begun = time.perf_counter()
    found: dict[str, list[tuple[float, float]]] = {document.kind: [] for document in documents}
    for document in documents:
        found[document.kind].append(_judged(document, _by_meaning))
    took = time.perf_counter() - begun
    pk, window_diff = _percent([score for scores in found.values() for score in scores])
    usual = _percent([_judged(document, _at_rare_distances) for document in documents])
    uncut = _percent([_judged(document, lambda rows: [0]) for document in documents])
    return {
        "choi_documents": len(documents),
        "choi_pk": pk,
        "choi_window_diff": window_diff,
        **{f"choi_pk_{kind}": _percent(scores)[0] for kind, scores in sorted(found.items())},
        "choi_ms_per_document": round(took / len(documents) * 1000, 2),
        "percentile95_pk": usual[0],
        "percentile95_window_diff": usual[1],
        "uncut_pk": uncut[0],
    }


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


async def _documents(lines: list[dict[str, Any]]) -> list[Document]:
    texts = [[sentence for segment in line["segments"] for sentence in segment] for line in lines]
    known = list(dict.fromkeys(sentence for text in texts for sentence in text))
    rows = await vectors(known)
    place = {sentence: at for at, sentence in enumerate(known)}
    return [
        Document(line["set"], rows[[place[s] for s in text]], np.cumsum([0, *map(len, line["segments"][:-1])]).tolist())
        for line, text in zip(lines, texts, strict=True)
    ]


def _by_meaning(rows: Rows) -> list[int]:
    return boundaries(rows, [1] * len(rows))


def _at_rare_distances(rows: Rows) -> list[int]:
    """What LangChain's SemanticChunker does by default: a cut where the distance of neighbours is above its 95th percentile."""
    distances = 1 - (rows[:-1] * rows[1:]).sum(axis=1)
    return [0, *(np.flatnonzero(distances > np.percentile(distances, 95)) + 1).tolist()]


def _judged(document: Document, cut: Cut) -> tuple[float, float]:
    """Pk and WindowDiff of one document, from 0 to 1."""
    n = len(document.rows)
    true, found = _labels(document.starts, n), _labels(cut(document.rows), n)
    window = max(1, round(n / (2 * len(document.starts))))
    between = [labels[window:] - labels[:-window] for labels in (true, found)]
    return float(np.mean((between[0] == 0) != (between[1] == 0))), float(np.mean(between[0] != between[1]))


def _labels(starts: Sequence[int], n: int) -> Any:
    """For each sentence the number of its segment."""
    begins = np.zeros(n, np.int64)
    begins[list(starts)] = 1
    return begins.cumsum()


def _percent(scores: Sequence[tuple[float, float]]) -> tuple[float, float]:
    pk, window_diff = np.mean(scores, axis=0) * 100
    return round(float(pk), 2), round(float(window_diff), 2)
