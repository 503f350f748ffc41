"""Eviction: choose clusters of sections that may leave the memory, because they are old, rarely read or redundant.

A section is *old* when it was not read for long, or ever, and its access score is low. It is *redundant* when another says nearly the same
and neither is read. When there are more chunks than the memory is to hold, those with the lowest score go first (*pressure*). A rarely read
record of a mission of which one line is left (`batos.image.retention`) goes too (*folded*). Sections with similar meaning, or of one
document, form a cluster. Reads of the image and of arrays only; any thread.

Access statistics: reads are counted in memory, by chunk, and written now and then, by section. Written are a score that halves every
`half_life_s`, and the time of the last read. A kill loses what was not yet written. A section without statistics is recorded when the
curator first sees it, as if read then.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from ZODB.POSException import POSKeyError

from batos.concurrency import LoopTurns
from batos.errors import ImageDamaged
from batos.image import ledger
from batos.memory.records import DIGEST, FAILURE, MISSION, Section
from batos.memory.segments import Array
from batos.memory.store import Library, library_of
from batos.objects import Root

if TYPE_CHECKING:
    from batos.memory.search_index import View

_AHEAD_S = 3600.0  # seconds that a time may lie in the future


class AccessScore(NamedTuple):
    """Access statistics of a section. Stored as a plain tuple."""

    score: float
    """Decayed number of reads at the time `at`."""
    at: float
    """Time of the last read, or of the first sight; seconds since the epoch."""

    def now(self, now: float, half_life_s: float) -> float:
        """Return the decayed score at the time `now`."""
        return float(self.score * 0.5 ** (max(0.0, now - self.at) / half_life_s))


class ReadCounter:
    """Counter of reads, for any thread."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, chunks: Iterable[int]) -> None:
        """Count one more read of each section."""
        with self._lock:
            self._counts.update(chunks)

    def take(self) -> dict[int, int]:
        """Return the counts since the last call, and reset them."""
        with self._lock:
            found, self._counts = self._counts, Counter()
        return dict(found)


def note_reads(root: Root, counts: Mapping[int, int], now: float, half_life_s: float) -> None:
    """System transaction: add reads of chunks."""
    library = library_of(root)
    found: Counter[int] = Counter()
    for chunk, count in counts.items():
        if chunk in library.chunks:
            found[library.starts[library.starts.maxKey(chunk)]] += count
    for section, count in found.items():
        score = access_score(library, section).now(now, half_life_s) + count
        library.reads[section] = tuple(AccessScore(score, now))


class UnseenSections(NamedTuple):
    """Numbers of sections, each lot in order."""

    new: list[int]
    """Numbers of sections without statistics."""
    gone: list[int]
    """Numbers of sections that have statistics but no longer exist."""
    ahead: list[int]
    """Numbers of sections whose last read lies in the future, because the clock was wrong."""


def unseen_sections(root: Root, now: float) -> UnseenSections:
    """Return the sections whose statistics must be added or removed. It looks at all sections: call it in a helper thread."""
    library = library_of(root)
    known, there = set(library.reads), set(library.sections)
    ahead = [section for section, (_, at) in library.reads.items() if at > now + _AHEAD_S]
    return UnseenSections(sorted(there - known), sorted(known - there), ahead)


def note_seen(root: Root, now: float, some: UnseenSections) -> None:
    """System transaction: add new sections to the statistics and remove deleted ones. A last read in the future becomes now."""
    library = library_of(root)
    for section in some.new:
        if section in library.sections:
            library.reads.setdefault(section, tuple(AccessScore(0.0, now)))
    for section in some.gone:
        if section not in library.sections:
            library.reads.pop(section, None)
    for section in some.ahead:
        if section in library.reads:
            library.reads[section] = tuple(access_score(library, section)._replace(at=now))


def access_score(library: Library, section: int) -> AccessScore:
    """Return the access score of a section; zero for one without statistics."""
    return AccessScore(*library.reads.get(section, (0.0, 0.0)))


# --- pins


def waits_for_vectors(library: Library, number: int, unread_s: float, patience_s: float) -> bool:
    """Return True if a section stays until it has vectors. The wait is bounded, because an embedder may be missing or away for long.

    :param unread_s: seconds since the section was last read, or added.
    :param patience_s: longest wait in seconds.
    """
    return bool(library.embedder) and number in library.waiting and unread_s < patience_s


def pin_source(root: Root, source: str, *, stays: bool) -> bool:
    """System transaction: pin or unpin the documents from a source, or below that folder. Return True if that is a change.

    :raises UnknownSource: if nothing of it is in the memory, and it is to be pinned.
    """
    library = library_of(root)
    if stays is (source in library.pinned):
        return False
    if stays:
        if not documents_below(library, source):
            library.document(source)
        library.pinned.add(source)
    else:
        library.pinned.remove(source)
    return True


def pinned_documents(library: Library) -> set[int]:
    """Return the numbers of the documents that stay."""
    return {number for source in library.pinned for number in documents_below(library, source)}


def documents_below(library: Library, source: str) -> set[int]:
    """Return the numbers of the documents from a source, or from below that folder."""
    folder = source.rstrip("/") + "/"
    found = set(library.by_source.values(folder, folder + chr(0x10FFFF)))
    return found | {library.by_source[source]} if source in library.by_source else found


OLD, REDUNDANT, FOLDED, PRESSURE = "old", "redundant", "folded", "pressure"
_OF_ANY_THEME = (FOLDED, PRESSURE)
_NEAR = 0.3
"""Cosine from which two sections have one theme."""
_KIN = 0.25
"""Added similarity of two sections of one document."""
_ROOM = 0.9
"""Share of `EvictionLimits.chunks` down to which pressure makes room. Otherwise each new document would exceed the limit again."""
_LOADED = 1000  # documents that are read before the cache is emptied


class EvictionLimits(NamedTuple):
    """Limits that decide on eviction; times in seconds."""

    age_s: float
    """Seconds without a read from which a section is old."""
    fresh_s: float
    """Seconds after a section's arrival or last read in which it is never archived."""
    reads: float
    """Decayed number of reads up to which a section counts as rarely read."""
    half_life_s: float
    """Seconds in which the weight of a read halves."""
    chunks: int
    """Greatest number of chunks in the memory."""
    alike: float
    """Cosine from which two sections count as redundant."""
    cluster: int
    """Greatest number of chunks of a cluster; a larger section makes a cluster of its own."""
    archive: int
    """Greatest number of chunks of several archives that are merged."""
    least: int
    """Least number of chunks of a cluster that is worth a summary. For redundant sections, and under pressure, two are enough."""
    looked: int
    """Greatest number of sections that one plan looks at, those with the lowest score first."""


class Cluster(NamedTuple):
    """Sections that may leave together."""

    sections: tuple[int, ...]
    chunks: int
    why: str
    level: int
    """Level of the resulting archive: 1 for documents and missions, more for summaries, whose archives are merged."""
    lived: bool
    """True for sections of missions, False for sections of documents."""
    documents: tuple[int, ...]


class _Row(NamedTuple):
    section: Section
    weight: int
    """Number of the section's chunks that an archive would hold."""
    score: float
    at: float
    why: str
    level: int
    lived: bool


def plan_clusters(root: Root, view: View, limits: EvictionLimits, now: float) -> list[Cluster]:
    """Return the clusters that may be archived now, those with the lowest score first.

    :param now: seconds since the epoch.
    """
    library = library_of(root)
    rows = _candidates(root, library, limits, now)
    means, known = _means(view, [row.section for row in rows])
    rows = _with_redundant(rows, means, known, limits)
    groups: dict[tuple[bool, bool], list[int]] = {}
    for place, row in enumerate(rows):
        if row.why:
            groups.setdefault((row.level > 1, row.lived), []).append(place)
    return [cluster for places in groups.values() for cluster in _clusters(rows, means, places, limits)]


def _candidates(root: Root, library: Library, limits: EvictionLimits, now: float) -> list[_Row]:
    """Return the sections that may be archived, those with the lowest score first. The reason is empty if it is not known yet."""
    stay, turns = pinned_documents(library), LoopTurns()
    judged = []
    for number, state in library.sections.items():
        turns.take()
        stands = access_score(library, number)
        if state[0] in stay or waits_for_vectors(library, number, now - stands.at, limits.age_s):
            continue
        score = stands.now(now, limits.half_life_s)
        if stands.at and now - stands.at >= limits.fresh_s:
            judged.append((score, stands.at, number, state))
    judged.sort(key=lambda one: one[:3])
    there = library.counts.chunks
    excess = there - _ROOM * limits.chunks if there > limits.chunks else 0.0
    rows: list[_Row] = []
    for score, at, number, state in judged:
        if len(rows) >= limits.looked:
            break
        section = Section(number, *state)
        kind = _kind(root, library, section.document, len(rows))
        if kind is None:
            continue
        weight, level, lived, folded = kind
        rarely = score <= limits.reads
        why = FOLDED if folded and rarely else OLD if rarely and now - at >= limits.age_s else PRESSURE if excess > 0 else ""
        excess -= section.size if why else 0
        rows.append(_Row(section, weight or section.size, score, at, why, level, lived))
    return rows


def _kind(root: Root, library: Library, number: int, looked: int) -> tuple[int, int, bool, bool] | None:
    """Return facts about a document's sections: the chunks that they stand for, level, class, and whether its mission was folded.

    None if they must stay.
    """
    if looked % _LOADED == _LOADED - 1:
        root._p_jar.cacheGC()
    try:
        document = library.documents[number]
        if not document.complete:
            return None
        chunks, level = (document.archive.chunks, document.archive.level + 1) if document.archive is not None else (0, 1)
        lived = document.kind in (MISSION, FAILURE)
        folded = lived and ledger.line_of(root, document.mission) is not None
        return chunks, level, lived or document.kind == DIGEST, folded
    except (ImageDamaged, POSKeyError):  # the self-audit reports the damage
        return None


def _means(view: View, sections: Iterable[Section]) -> tuple[Array, Array]:
    """Return the mean vector of each section (unit rows; zeros if there is none), and which have one."""
    sections = list(sections)
    means = np.zeros((len(sections), view.matrix.shape[1] or 1), np.float32)
    for place, section in enumerate(sections):
        rows = view.rows_of(np.arange(section.first, section.first + section.size, dtype=np.int64))
        rows = rows[rows >= 0]
        if len(rows) and view.matrix.shape[1]:
            means[place] = view.matrix[rows].mean(0)
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return means / np.where(lengths > 0, lengths, 1), lengths[:, 0] > 0


def _with_redundant(rows: list[_Row], means: Array, known: Array, limits: EvictionLimits) -> list[_Row]:
    """Return the rows, and those made redundant by a similar row that is read as little."""
    found = list(rows)
    for begin in range(0, len(rows), 512):
        near = means[begin : begin + 512] @ means.T
        near[np.arange(len(near)), np.arange(begin, begin + len(near))] = -1
        for place in (np.flatnonzero((near >= limits.alike).any(1)) + begin).tolist():
            if known[place] and not rows[place].why and rows[place].score <= limits.reads:
                found[place] = rows[place]._replace(why=REDUNDANT)
    return found


def _clusters(rows: list[_Row], means: Array, places: list[int], limits: EvictionLimits) -> list[Cluster]:
    """Return clusters, greedily: the section with the lowest score takes its nearest ones along."""
    left = np.array(places)
    found = []
    while len(left):
        seed = rows[left[0]]
        kin = np.array([rows[place].section.document == seed.section.document for place in left])
        near = means[left] @ means[left[0]] + _KIN * kin
        near[0] = np.inf
        taken = _taken(rows, left, near, kin, limits)
        cluster = [rows[place] for place in left[sorted(taken)]]
        left = np.delete(left, taken)
        chunks = sum(row.section.size for row in cluster)
        enough = limits.least if seed.level == 1 and all(row.why == OLD for row in cluster) else 2
        if chunks >= enough and (seed.level == 1 or len({row.section.document for row in cluster}) > 1):
            found.append(_cluster(cluster, chunks))
    return found


def _taken(rows: list[_Row], left: Array, near: Array, kin: Array, limits: EvictionLimits) -> list[int]:
    """Return the indexes of the remaining rows that form a cluster with the first one."""
    taken: list[int] = []
    chunks, most = 0, limits.archive if rows[left[0]].level > 1 else limits.cluster
    for at in np.argsort(-near, kind="stable").tolist():
        pressed = rows[left[at]].why in _OF_ANY_THEME and rows[left[at]].why == rows[left[0]].why
        if taken and near[at] < _NEAR and not kin[at] and not pressed:
            break
        weight = rows[left[at]].weight
        if taken and chunks + weight > most:
            continue
        taken.append(at)
        chunks += weight
        if chunks >= most:
            break
    return taken


def _cluster(rows: list[_Row], chunks: int) -> Cluster:
    ordered = sorted(rows, key=lambda row: (row.section.document, row.section.number))
    why = min((row.why for row in rows), key=(OLD, REDUNDANT, FOLDED, PRESSURE).index)
    documents = tuple(dict.fromkeys(row.section.document for row in ordered))
    level = max(row.level for row in rows)
    return Cluster(tuple(row.section.number for row in ordered), chunks, why, level, rows[0].lived, documents)
