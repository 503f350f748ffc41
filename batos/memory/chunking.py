"""Where a document is cut into chunks: by structure and size at once, by meaning as soon as its sentences have vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from batos.memory.sentences import Span, sentences

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float64]]

BETA = 1.5
"""What a cut costs, in mean scatters of a sentence: more makes fewer and longer chunks (see docs/decisions.md)."""

_HEADING = re.compile(r"\s{0,3}#{1,6}\s|[^\n]*\n\s{0,3}(?:=+|-{2,})\s*\Z")
_BLANK = re.compile(r"\n[^\S\n]*\n")
_AT_HEADING, _AT_PARAGRAPH, _WITHIN, _NEVER = 0.25, 0.75, 1.0, 1e3
_LEAST = 1e-6  # mean scatter of sentences that are all alike, but for rounding
_BROKEN = 1e6  # what it costs to break a bound: more than any meaning is worth, yet finite, so that a way is always found


class Limits(NamedTuple):
    """Sizes of chunks in characters; both give way where a text cannot be cut so."""

    smallest: int = 160
    largest: int = 1200


class Piece(NamedTuple):
    """A chunk to be: `text[start:end]`. `vector` (float32, length 1) is the mean of its sentences', None while there are none."""

    start: int
    end: int
    vector: Any = None


def pieces(text: str, kind: str, limits: Limits) -> list[Piece]:
    """Provisional chunks, by structure and size alone: what can be searched before there are vectors. No vectors in them.

    :param kind: "text", "markdown", "code" or "conversation" (a turn a line, never put together); any other is read as "text".
    """
    spans = sentences(text, kind, limits.largest)
    if kind == "conversation":
        return [Piece(*span) for span in spans]
    found: list[Piece] = []
    for start, end, price in _with_headings(spans, prices(text, kind, spans)):
        if found and _goes_on(found[-1], end, price, limits):
            found[-1] = Piece(found[-1].start, end)
        else:
            found.append(Piece(start, end))
    return found


def _with_headings(spans: Sequence[Span], priced: Sequence[float]) -> list[tuple[int, int, float]]:
    """The sentences with what it costs to cut before them, a heading in one with what it stands above."""
    found: list[tuple[int, int, float]] = []
    for (start, end), price in zip(spans, priced, strict=True):
        if price == _NEVER:
            start, price = found[-1][0], found.pop()[2]
        found.append((start, end, price))
    return found


def _goes_on(last: Piece, end: int, price: float, limits: Limits) -> bool:
    """Whether a sentence up to `end` goes into the last piece: half full, a piece ends with its paragraph, and small with its heading."""
    size = last.end - last.start
    if end - last.start > limits.largest:
        return False
    if price <= _AT_HEADING:
        return size < limits.smallest
    return price > _AT_PARAGRAPH or size < limits.largest // 2


def by_meaning(text: str, kind: str, spans: Sequence[Span], vectors: Any, limits: Limits) -> list[Piece]:
    """Chunks cut where neighbouring sentences part in meaning.

    :param spans: what `sentences.sentences(text, kind, limits.largest)` found.
    :param vectors: float32 (len(spans), dimensions), rows of length 1.
    """
    if not spans:
        return []
    if kind == "conversation":
        starts = list(range(len(spans)))
    else:
        starts = boundaries(vectors, _reaches(spans), smallest=limits.smallest, largest=limits.largest, prices=prices(text, kind, spans))
    ends = [*starts[1:], len(spans)]
    return [Piece(spans[a][0], spans[b - 1][1], mean(vectors[a:b])) for a, b in zip(starts, ends, strict=True)]


def _reaches(spans: Sequence[Span]) -> list[int]:
    """How far it is from each sentence's start to the next one's: a chunk holds the white space between its sentences, too."""
    starts = [start for start, _ in spans]
    return [after - start for start, after in zip(starts, [*starts[1:], spans[-1][1]], strict=True)]


def mean(vectors: Any) -> Any:
    """The direction in which several vectors point together, of length 1; the first of them where they cancel each other out."""
    import numpy as np

    total = np.asarray(vectors, np.float64).sum(axis=0)
    length = float(np.linalg.norm(total))
    return np.asarray(total / length if length > 1e-9 else vectors[0], np.float32)


def prices(text: str, kind: str, spans: Sequence[Span]) -> list[float]:
    """What it costs to cut before each sentence, 1 being usual: little before a heading, less at paragraphs, and after a heading never."""
    found, after_heading = [], False
    for at, (start, end) in enumerate(spans):
        heading = kind == "markdown" and _HEADING.match(text, start, end) is not None
        if after_heading and not heading:
            found.append(_NEVER)
        elif heading:
            found.append(_WITHIN if after_heading else _AT_HEADING)
        else:
            found.append(_AT_PARAGRAPH if at and _BLANK.search(text, spans[at - 1][1], start) else _WITHIN)
        after_heading = heading
    return found


def boundaries(
    vectors: Any,
    lengths: Sequence[int],
    *,
    beta: float = BETA,
    smallest: int = 0,
    largest: int | None = None,
    prices: Sequence[float] | None = None,
) -> list[int]:
    """The first sentence of every segment, 0 among them, such that scatter within the segments and the price of cuts are least in all.

    Exact, by dynamic programming: the scatter of a segment is the sum of squared distances of its sentences' profiles from
    their mean, and a cut costs `beta` times the mean scatter of a sentence.

    :param vectors: rows of length 1.
    :param lengths: of the sentences; `smallest` and `largest` bound their sum in a segment, unless it cannot be met.
    :param prices: factors for the cut before each sentence.
    """
    import numpy as np

    n = len(lengths)
    if n == 0:
        return []
    rows = profiles(vectors)
    sums = np.zeros((n + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=sums[1:])
    sizes = np.concatenate(([0], np.cumsum(lengths))).astype(np.float64)
    squares = np.concatenate(([0.0], np.cumsum(np.einsum("ij,ij->i", rows, rows))))
    scatter = max(_LEAST, (float(squares[n]) - float(sums[n] @ sums[n]) / n) / n)
    cuts = beta * scatter * np.asarray(prices if prices is not None else np.ones(n), np.float64)
    cuts[0] = 0.0
    best, came = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        first = 0 if largest is None else min(int(np.searchsorted(sizes, sizes[end] - largest)), end - 1)
        totals = best[first:end] + cuts[first:end] + _costs(sums, squares, sizes, first, end, smallest)
        at = int(totals.argmin())
        best[end], came[end] = totals[at], first + at
    starts, end = [], n
    while end > 0:
        end = int(came[end])
        starts.append(end)
    return starts[::-1]


def profiles(vectors: Any) -> Floats:
    """Each sentence by how similar it is to every other of the document, as Choi (2000) compares them: rows whose distances say so.

    What many sentences share stands out, what is one sentence's own recedes. As many columns as there are sentences or dimensions,
    whichever are fewer.
    """
    import numpy as np

    rows = np.asarray(vectors, np.float64)
    rows = rows - rows.mean(axis=0)
    # No BLAS where it is small: its threads wait for each other on a busy machine, 140 ms a document instead of 3.
    if len(rows) <= rows.shape[1]:
        return np.asarray(np.einsum("id,jd->ij", rows, rows))
    spread = rows.T @ rows
    spread += np.eye(len(spread)) * (_LEAST * spread.trace() / len(spread) + _LEAST)
    return np.asarray(rows @ np.linalg.cholesky(spread))


def _costs(sums: Floats, squares: Floats, sizes: Floats, first: int, end: int, smallest: int) -> Floats:
    """Scatter of every segment that ends before sentence `end` and begins at `first` or later, with what it lacks in size."""
    import numpy as np

    gaps = sums[end] - sums[first:end]
    scatter: Floats = squares[end] - squares[first:end] - np.einsum("ij,ij->i", gaps, gaps) / np.arange(end - first, 0, -1)
    if smallest:
        lacking = np.maximum(0.0, smallest - (sizes[end] - sizes[first:end])) / smallest
        scatter += _BROKEN * lacking
    return scatter
