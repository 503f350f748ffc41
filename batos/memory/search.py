"""Searching: a question over a view of the memory, with or without vectors, to the chunks that answer it and why.

Pure: it reads arrays that nobody changes, so that any thread may search while missions think and files are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Collection as Set
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from batos.memory.fusion import FINALISTS, Fused, Vectors, Weighing, likeness
from batos.memory.links import Step, spread
from batos.memory.question import Question, Span, understood
from batos.memory.segments import Array

if TYPE_CHECKING:
    from batos.memory.view import View

_ALIKE = 0.9995
"""Cosine from which two chunks say the same: float16 rows of the same text differ by less."""
_MORE = 3
"""Times `k` that are looked at for some that say the same."""


class Filters(NamedTuple):
    """Which chunks may be found; what is left out does not matter."""

    documents: Set[int] | None = None
    """Numbers of their documents."""
    since: int = 0
    until: int = 0
    """Days, `date.toordinal()`, both included; a chunk of no day is never within."""
    speakers: tuple[int, ...] = ()
    """Keys of who says it, one of these."""

    def mask(self, view: View) -> Array | None:
        """bool[n]: the rows that fit; None if all do."""
        facts, masks = view.facts, []
        if self.documents is not None:
            masks.append(np.isin(facts["document"], np.fromiter(self.documents, np.int64, len(self.documents))))
        if self.since:
            masks.append(facts["day"] >= self.since)
        if self.until:
            masks.append((facts["day"] > 0) & (facts["day"] <= self.until))
        if self.speakers:
            masks.append(np.isin(facts["speaker"], self.speakers))
        return np.logical_and.reduce(masks) if masks else None


class Hit(NamedTuple):
    """A chunk that was found."""

    id: int
    score: float
    signals: dict[str, float]
    """What each signal added to the score (`batos.memory.fusion.Weights` says what they are)."""
    path: tuple[int, ...]
    """Ids of the chunks that lead to it by links, itself last; alone if it was found by itself."""


class Found(NamedTuple):
    """What a search found, the best first."""

    hits: list[Hit]
    question: Question
    by_vectors: bool
    """Whether meaning counted: False if there is no embedder at hand or no chunk has its vector yet."""


def read(view: View, text: str, *, today: date | None = None, called: Callable[[str], Iterable[int]] = lambda name: ()) -> Question:
    """What a question says, given who speaks in the view and from when it is.

    :param called: see `understood`; without it, speakers are known by their whole names only.
    """
    return understood(text, view.speakers, called=called, days=lambda: _days(view), today=today)


def search(view: View, question: Question, vectors: Vectors | None, k: int, *, filters: Filters | None = None) -> Found:
    """The `k` chunks that answer a question best; fewer if there are not as many, or if some say the same as better ones.

    :param question: what `read` made of it, for this view or an older one.
    :param vectors: of its cleaned text and of its text; None if they cannot be had: words, names and days decide then.
    """
    weighing = Weighing(view, question, vectors, allowed=filters.mask(view) if filters is not None else None)
    fused = weighing.best(max(FINALISTS, k * _MORE))
    steps: dict[int, Step] = {}
    if question.bridges:
        fused, steps = spread(weighing, fused)
    places = _different(view, fused, k)
    hits = _hits(view, fused, places, steps)
    return Found(hits, question, vectors is not None and bool(view.has.any()))


def _days(view: View) -> Span | None:
    return Span(*view.span) if view.span is not None else None


def _different(view: View, fused: Fused, k: int) -> list[int]:
    """Places of the best `k` of which no two say the same, word for word."""
    rows = fused.rows[: k * _MORE]
    lengths = view.facts["length"][rows].tolist()
    kept: dict[int, list[int]] = {}
    places: list[int] = []
    for place, (row, length) in enumerate(zip(rows.tolist(), lengths, strict=True)):
        if len(places) == k:
            break
        twins = kept.setdefault(length, [])
        if not (twins and (likeness(view.matrix[twins], view.matrix[row]) > _ALIKE).any()):
            twins.append(row)
            places.append(place)
    return places


def _hits(view: View, fused: Fused, places: list[int], steps: dict[int, Step]) -> list[Hit]:
    best = np.array(places, np.int64)
    rows, ids = fused.rows[best].tolist(), view.ids[fused.rows[best]].tolist()
    scores = np.round(fused.scores[best].astype(np.float64), 4).tolist()
    added = np.round(np.array(list(fused.signals.values()), np.float64)[:, best], 4).T.tolist()
    hits = []
    for row, id, score, values in zip(rows, ids, scores, added, strict=True):
        signals = {name: value for name, value in zip(fused.signals, values, strict=True) if value}
        path = (int(view.ids[steps[row].seed]), id) if row in steps else (id,)
        hits.append(Hit(id, score, signals, path))
    return hits
