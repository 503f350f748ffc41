"""Search: rank the chunks of a view for a question, with or without vectors, and say why.

It is pure: it reads immutable arrays, so that any thread may search while missions think and files are read.

Several signals of each chunk are weighed and added. Scores are standardised (z) and added, not ranked and merged: ranks forget how much
better one chunk is than the next. All rows get the cheap signals (words, one product with the vectors, the best of each section, names,
days). The best rows then get all signals. Nothing is learned at run time and nothing fits a data set: `WEIGHTS` says why each signal
counts.

A chunk that names another document links to it, and a search goes one step along links. "In which year was the company founded that
made X?" has its answer in a text that does not mention X. The text about X names the company. From there the best chunk of the text about
the company gets a part of the first one's score.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from collections.abc import Collection as Set
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from batos.memory.question import Question, Span, parse_question
from batos.memory.segments import FIRST_PERSON, NUMBER, QUESTION, SPOKEN, WHEN, Array

if TYPE_CHECKING:
    from batos.memory.search_index import View


class Weights(NamedTuple):
    """Weight of each signal, in standard deviations of the signal or, for facets, as an addend."""

    words: float = 0.4
    """Weight of BM25 of the chunk with its window: words of the question in the right surroundings."""
    document_words: float = 0.2
    """Added weight of BM25, in proportion to the share of documents. What people say is scattered over several turns; a document's chunk
    holds it in one place. All rows get the same weight, so that neither kind has an advantage.
    """
    meaning: float = 0.2
    """Weight of the similarity of the chunk's vector to the cleaned question: names and stop words attract greetings in a small model."""
    around: float = 0.4
    """Weight of the similarity of the vector, with half of each neighbour's, to the original question: an answer has sense in its
    context.
    """
    section_meaning: float = 0.3
    """Weight of the best vector of the section: evidence is near the subject."""
    section_words: float = 0.45
    """Weight of the best BM25 of the section."""
    answers: float = 0.45
    """Weight of the similarity of the question to the question just before the chunk, which the chunk may answer."""
    told: float = 0.7
    """Weight of the logarithm of the characters outside of questions: "Thanks!" and "What about you?" answer nothing."""
    enough: int = 400
    """Number of characters above which more of them no longer count: all chunks of documents are longer."""
    says_when: float = 0.3
    wanted_when: float = 2.1
    """Weight of naming a time: small in a conversation for any question, large for a question about a time. Most chunks of documents
    name one.
    """
    says_number: float = 0.2
    wanted_number: float = 1.3
    """Weight of naming a number, likewise for a question about a number."""
    personal: float = 0.55
    """Weight of a speaker who talks about themselves in a conversation: most questions about people have their answer there."""
    speaker: float = 0.6
    """Weight of a chunk by the one speaker that the question names; negative for other speakers. It is not decisive: speakers mention
    each other.
    """
    stranger: float = 3.0
    """Penalty of sections of conversations in which none of the speakers in the question speaks: a name tells sections apart."""
    days: float = 3.2
    """Weight of each of day, month and year that a chunk shares with the question. It is nearly a filter: a question with a date means
    it.
    """


WEIGHTS = Weights()
CANDIDATES, FINALISTS = 1024, 128
"""Number of rows that are also scored by their facts, and number of the best of these that are scored by their neighbours. Neighbours cost
most.
"""
_STEP, _MANY = 64, 4
"""A threshold for the best scores comes from a sample of every `_STEP`-th score, if there are `_MANY` times as many scores as are
wanted.
"""


class QuestionVectors(NamedTuple):
    """Unit vectors (float32) of a question: of its cleaned text and of its original text."""

    cleaned: Array
    full: Array


class Fused(NamedTuple):
    """The weighed rows, the best first."""

    rows: Array
    scores: Array
    signals: dict[str, Array]
    """Name of a signal -> its addend to the score of each row."""


class Weighing:
    """The rows of a view, weighed for one question."""

    def __init__(
        self, view: View, question: Question, vectors: QuestionVectors | None, *, allowed: Array | None = None, weights: Weights = WEIGHTS
    ) -> None:
        """:param vectors: vectors of the question; None if there is no embedder: words and facets decide then.
        :param allowed: bool[n]: rows that may be returned; all if left out.
        """
        self.view, self._question, self._weights = view, question, weights
        known = view.known()
        self._vectors = vectors if known.any() else None
        self._barred = view.gone if allowed is None else view.gone | ~allowed
        self._facets = _facets(weights, question.wants)
        self._wide = _for_all(view, question, self._vectors, known, weights) if view.n else _Wide({}, {})

    def best(self, count: int = FINALISTS) -> Fused:
        """Select rows by the cheap signals, score them by all signals, and return the best `count` rows, or fewer."""
        rows = _best(self._rough, max(CANDIDATES, count))
        return self.of(rows[_best(self._rough.take(rows) + self._facets.sums(self.view, rows), count)])

    def best_of(self, document: int) -> int | None:
        """Return the row of a document with the best cheap signals; None if the document has no row that may be returned."""
        rows = np.flatnonzero(self.view.documents == document)
        best = int(rows[np.argmax(self._rough[rows])]) if len(rows) else 0
        return best if len(rows) and np.isfinite(self._rough[best]) else None

    def of(self, rows: Array) -> Fused:
        """Return these rows, scored by all signals, without rows that may not be returned."""
        rows = rows[~self._barred[rows]]
        runs = self.view.runs[rows]
        signals = {name: found.take(rows) for name, found in self._wide.rows.items()}
        signals |= {name: found.take(runs) for name, found in self._wide.sections.items()}
        signals |= self._facets.signals(self.view, rows)
        if self._vectors is not None and len(rows):
            signals |= _beside(self.view, rows, self._vectors.full, self._weights)
        table = np.array(list(signals.values()), np.float32).reshape(len(signals), len(rows))
        scores = np.add.reduce(table, axis=0)
        order = np.lexsort((self.view.ids[rows], -scores))  # what is equally good stands in one order, wherever its rows are
        return Fused(rows[order], scores[order], dict(zip(signals, table[:, order], strict=True)))

    @functools.cached_property
    def _rough(self) -> Array:
        """Return float32[n]: the sum of the cheap signals; minus infinity for rows that may not be returned."""
        sections = np.zeros(len(self.view.starts), np.float32)
        for signal in self._wide.sections.values():
            sections += signal
        rough = np.repeat(sections, self.view.sizes)
        for signal in self._wide.rows.values():
            rough += signal
        if self._barred is not self.view.gone or self.view.masked:
            rough[self._barred] = -np.inf
        return rough


# --- signals of all rows


class _Wide(NamedTuple):
    """The signals of all rows: of each, and of each section, which are those of all its rows."""

    rows: dict[str, Array]
    sections: dict[str, Array]


def _for_all(view: View, question: Question, vectors: QuestionVectors | None, known: Array, weights: Weights) -> _Wide:
    said = view.bm25(question.words)
    sections = {"section_words": _of_sections(view, said, weights.section_words)}
    rows = {"words": standard(said, weights.words + weights.document_words * (1 - view.talk), view.counted)}
    if vectors is not None:
        meant = likeness(view.matrix, vectors.cleaned)
        if not known.all():  # a row without a vector gets the mean, and so does its section
            meant = np.where(known, meant, meant[known].mean())
        sections["section_meaning"] = _of_sections(view, meant, weights.section_meaning)
        rows["meaning"] = standard(meant, weights.meaning, view.counted)
    if question.spans:
        within = np.zeros(view.n, np.float32)
        for span in question.spans:
            within += (view.days >= span.first) & (view.days <= span.last)
        rows["days"] = within * np.float32(weights.days)
    if question.speakers:
        theirs = np.isin(view.spoken, question.speakers)
        sections["strangers"] = _of_strangers(view, theirs, weights)
        if question.people == 1:
            rows["speaker"] = _by_speaker(view, theirs, weights)
    return _Wide(rows, sections)


def _of_sections(view: View, scores: Array, weight: float) -> Array:
    """Return the best score of each section, standardised over all rows."""
    return standard(np.maximum.reduceat(scores, view.starts), weight, view.counts)


def _of_strangers(view: View, theirs: Array, weights: Weights) -> Array:
    """Return a penalty for each section of conversation in which none of the people named in the question speaks."""
    talk = np.maximum.reduceat(view.looks, view.starts) >= SPOKEN
    strange = talk & ~np.logical_or.reduceat(theirs, view.starts)
    return np.where(strange, np.float32(-weights.stranger), np.float32(0))


def _by_speaker(view: View, theirs: Array, weights: Weights) -> Array:
    other = np.where(view.looks >= SPOKEN, np.float32(-weights.speaker), np.float32(0))
    return np.where(theirs, np.float32(weights.speaker), other)


# --- signals of the best rows only


class _Facets(NamedTuple):
    """Addends for the facts of a chunk, computed once for all possible facts."""

    told: Array
    """float32: addend for each length, up to `Weights.enough`."""
    flagged: Array
    """float32[3, 512]: addend for each value of `View.looks`, one signal in each row."""
    added: Array
    """float32[512]: sum of the three rows of `flagged`."""

    def sums(self, view: View, rows: Array) -> Array:
        """Return float32: the sum of the addends of each row."""
        sums: Array = self.told.take(view.told.take(rows), mode="clip")
        sums += self.added.take(view.looks.take(rows))
        return sums

    def signals(self, view: View, rows: Array) -> dict[str, Array]:
        """Return the same, signal by signal."""
        flagged = self.flagged.take(view.looks.take(rows), 1)
        return {"told": self.told.take(view.told.take(rows), mode="clip"), **dict(zip(_FLAGGED, flagged, strict=True))}


_FLAGGED = ("when", "number", "personal")


@functools.lru_cache(maxsize=16)
def _facets(weights: Weights, wants: int) -> _Facets:
    flags = np.arange(2 * SPOKEN)
    speaks = flags >= SPOKEN

    def flagged(flag: int, where: Array | bool, weight: float) -> Array:
        return ((flags & flag > 0) & where) * np.float32(weight)

    by_flags = np.stack(
        [
            flagged(WHEN, bool(wants & WHEN), weights.wanted_when) + flagged(WHEN, speaks, weights.says_when),
            flagged(NUMBER, bool(wants & NUMBER), weights.wanted_number) + flagged(NUMBER, speaks, weights.says_number),
            flagged(FIRST_PERSON, speaks, weights.personal),
        ]
    )
    told = np.log1p(np.arange(weights.enough + 1, dtype=np.float32)) * np.float32(weights.told)
    return _Facets(told, by_flags, by_flags.sum(axis=0))


def _beside(view: View, rows: Array, vector: Array, weights: Weights) -> dict[str, Array]:
    """Return the signals of the context of rows: the similarity of their neighbours, and of a preceding question, to the question."""
    beside = view.beside(rows)
    sample = likeness(view.sampled, vector)
    usual, usual_around = sample[: len(sample) // 2], sample[len(sample) // 2 :]
    around = _apart(likeness(beside.around, vector) / beside.lengths, usual_around)
    answers = np.zeros(len(rows), np.float32)
    asked = np.flatnonzero((beside.flags & QUESTION > 0) & ~beside.first)
    if len(asked):
        answers[asked] = _apart(likeness(view.matrix.take(rows[asked] - 1, 0), vector), usual) * np.float32(weights.answers)
    known = view.has.take(rows)
    return {"around": np.where(known, around, np.float32(0)) * np.float32(weights.around), "answers": answers}


def _apart(found: Array, usual: Array) -> Array:
    """Return the distances of values from a usual sample, in standard deviations of the sample."""
    mean = np.add.reduce(usual) / len(usual)
    apart = usual - mean
    spread = math.sqrt(float(np.einsum("i,i->", apart, apart)) / len(usual))
    away: Array = (found - mean) / np.float32(spread or 1)
    return away


# --- numbers


def likeness(rows: Array, vector: Array) -> Array:
    """Return the product of each row with a vector, in this thread. Memory is the bottleneck, so one thread is as fast as BLAS on all
    processors. The threads of BLAS wait for each other while a model infers (20 ms instead of 0.2 for 10,000 rows). A second thread for
    blocks of 100,000 rows gains a fifth on an idle machine, and loses a quarter on a busy one.
    """
    found: Array = np.vecdot(rows, vector)
    return found


def standard(scores: Array, weight: float = 1.0, times: Array | None = None) -> Array:
    """Return the scores less their mean, in standard deviations, times a weight; zeros if all are alike.

    :param times: weight of each score; 1 if omitted.
    """
    size = len(scores) if times is None else int(np.add.reduce(times)) or 1
    mean = np.add.reduce(scores if times is None else scores * times) / size
    apart: Array = scores - np.float32(mean)
    squares = np.einsum("i,i->", apart, apart) if times is None else np.add.reduce(apart * apart * times)
    spread = math.sqrt(float(squares) / size)
    apart *= np.float32(weight / spread if spread > 1e-6 else 0)
    return apart


def _best(scores: Array, count: int) -> Array:
    """Return the rows of the best scores, in any order, without rows of minus infinity."""
    some = scores[::_STEP]
    place = len(some) - 2 * count // _STEP
    # a sample gives a score that twice as many rows exceed as are wanted: only these are partitioned
    if len(scores) > _MANY * count and place < len(some):
        rows = (scores > np.partition(some, place)[place]).nonzero()[0]
        if len(rows) >= count:
            best: Array = rows[_parted(scores.take(rows), count)]
            return best
    return _parted(scores, count)


def _parted(scores: Array, count: int) -> Array:
    # Partition the negative scores: for many equal scores, as where no word occurs, the other order is 40 times slower.
    rows = np.argpartition(-scores, count - 1)[:count] if len(scores) > count else np.arange(len(scores))
    best: Array = rows[np.isfinite(scores.take(rows))]
    return best


SEEDS = 8
"""Number of the best chunks that pass on a part of their score."""
SHARE = 1.0
"""Factor of a seed's score above the median of the candidates that its targets get."""


class LinkStep(NamedTuple):
    """Link that led to a row: the row that points at it, and the addition to its score."""

    seed: int
    added: float


def spread(weighing: Weighing, fused: Fused, *, seeds: int = SEEDS, share: float = SHARE) -> tuple[Fused, dict[int, LinkStep]]:
    """Go one step along the links of the best rows: the best row of each linked document gets a share of the linking row's score.

    Return the rows with their new scores, and the link of each row that gained. A row gains from its best seed only.
    """
    links = weighing.view.links
    if not len(links) or not len(fused.rows):
        return fused, {}
    middle = float(np.median(fused.scores))
    steps: dict[int, LinkStep] = {}
    for seed, score in zip(fused.rows[:seeds].tolist(), fused.scores[:seeds].tolist(), strict=True):
        for document in targets(links, seed):
            target, added = weighing.best_of(document), share * max(0.0, score - middle)
            if target is not None and target != seed and added > (steps[target].added if target in steps else 0.0):
                steps[target] = LinkStep(seed, added)
    if not steps:
        return fused, {}
    weighed = _joined(fused, weighing.of(np.setdiff1d(np.fromiter(steps, np.int64, len(steps)), fused.rows)))
    added = np.fromiter((steps[row].added if row in steps else 0.0 for row in weighed.rows.tolist()), np.float32, len(weighed.rows))
    scores = weighed.scores + added
    order = np.lexsort((weighing.view.ids[weighed.rows], -scores))
    signals = {name: found[order] for name, found in {**weighed.signals, "link": added}.items()}
    return Fused(weighed.rows[order], scores[order], signals), steps


def targets(links: Array, seed: int) -> list[int]:
    """Return the documents that the chunk of a row points at."""
    begin, end = np.searchsorted(links[:, 0], [seed, seed + 1])
    return links[begin:end, 1].tolist()  # type: ignore[no-any-return]


def _joined(one: Fused, other: Fused) -> Fused:
    if not len(other.rows):
        return one
    signals = {name: np.concatenate([found, other.signals[name]]) for name, found in one.signals.items()}
    return Fused(np.concatenate([one.rows, other.rows]), np.concatenate([one.scores, other.scores]), signals)


_ALIKE = 0.9995
"""Cosine from which two chunks count as equal: float16 rows of one text differ by less."""
_MORE = 3
"""Factor: rows that are looked at for each wanted chunk, since some may be equal."""


class Filters(NamedTuple):
    """Filters of a search: which chunks may be found; a filter left out allows all."""

    documents: Set[int] | None = None
    """Numbers of the allowed documents."""
    since: int = 0
    until: int = 0
    """Last day, as `date.toordinal()`; both limits are included. A chunk without a day never passes."""
    speakers: tuple[int, ...] = ()
    """Keys of the allowed speakers."""

    def mask(self, view: View) -> Array | None:
        """Return bool[n]: True for the rows that pass; None if all rows pass."""
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
    """Addend of each signal to the score; see `batos.memory.search.Weights`."""
    path: tuple[int, ...]
    """Ids of the chunks that lead to this chunk by links, then its own id. Only its own id if no link led to it."""


class SearchResult(NamedTuple):
    """Result of a search, best hit first."""

    hits: list[Hit]
    question: Question
    by_vectors: bool
    """True if vectors counted; False if there is no embedder, or no chunk has its vector yet."""


def prepare_question(
    view: View, text: str, *, today: date | None = None, called: Callable[[str], Iterable[int]] = lambda name: ()
) -> Question:
    """Return the parsed question, given the speakers and days of the view.

    :param called: see `parse_question`; without it, speakers are known by their whole names only.
    """
    return parse_question(text, view.speakers, called=called, days=lambda: _days(view), today=today)


def search(view: View, question: Question, vectors: QuestionVectors | None, k: int, *, filters: Filters | None = None) -> SearchResult:
    """Return the `k` chunks that answer a question best; fewer if there are not as many, or if some say the same as better ones.

    :param question: what `read` made of it, for this view or an older one.
    :param vectors: vectors of the question's cleaned and original text; None if there is no embedder: then words, names and days decide.
    """
    weighing = Weighing(view, question, vectors, allowed=filters.mask(view) if filters is not None else None)
    fused = weighing.best(max(FINALISTS, k * _MORE))
    steps: dict[int, LinkStep] = {}
    if question.bridges:
        fused, steps = spread(weighing, fused)
    places = _different(view, fused, k)
    hits = _hits(view, fused, places, steps)
    return SearchResult(hits, question, vectors is not None and bool(view.has.any()))


def _days(view: View) -> Span | None:
    return Span(*view.span) if view.span is not None else None


def _different(view: View, fused: Fused, k: int) -> list[int]:
    """Return the indexes of the best `k` rows, without rows of equal text."""
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


def _hits(view: View, fused: Fused, places: list[int], steps: dict[int, LinkStep]) -> list[Hit]:
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
