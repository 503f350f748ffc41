"""How chunks stand: how much they are read, and which are to stay. By that the curator decides what may leave.

Reads are counted in memory, by chunk, and written now and then, by section: a score that halves every `half_life_s`, and the time of the
last one. A kill costs what was not written yet. A section that is not known is taken as read, by nobody, when the curator sees it first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from batos.memory.library import Library, library_of

_AHEAD_S = 3600.0  # by which a time may be ahead


class Standing(NamedTuple):
    """Of a section. Stored as a plain tuple."""

    score: float
    """Reads, as they counted at `at`."""
    at: float
    """When it was read last, or first seen; seconds since the epoch."""

    def now(self, now: float, half_life_s: float) -> float:
        """What its reads count now."""
        return float(self.score * 0.5 ** (max(0.0, now - self.at) / half_life_s))


class Reads:
    """Counts what is read. Any thread may."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, chunks: Iterable[int]) -> None:
        """These were read once more."""
        with self._lock:
            self._counts.update(chunks)

    def take(self) -> dict[int, int]:
        """What was counted since the last time."""
        with self._lock:
            found, self._counts = self._counts, Counter()
        return dict(found)


def note(root: Any, counts: Mapping[int, int], now: float, half_life_s: float) -> None:
    """System transaction: these chunks were read so often."""
    library = library_of(root)
    found: Counter[int] = Counter()
    for chunk, count in counts.items():
        if chunk in library.chunks:
            found[library.starts[library.starts.maxKey(chunk)]] += count
    for section, count in found.items():
        score = of(library, section).now(now, half_life_s) + count
        library.reads[section] = tuple(Standing(score, now))


class Unseen(NamedTuple):
    """Numbers of sections, each lot in order."""

    new: list[int]
    """Those that are not known yet."""
    gone: list[int]
    """Those that are known and not there any more."""
    ahead: list[int]
    """Those that were seen in the future: the clock was wrong then."""


def unseen(root: Any, now: float) -> Unseen:
    """What is to be noticed; a look at all sections, for a helper thread."""
    library = library_of(root)
    known, there = set(library.reads), set(library.sections)
    ahead = [section for section, (_, at) in library.reads.items() if at > now + _AHEAD_S]
    return Unseen(sorted(there - known), sorted(known - there), ahead)


def see(root: Any, now: float, some: Unseen) -> None:
    """System transaction: notice sections that are new, and forget those that are gone; one that was seen in the future is seen now."""
    library = library_of(root)
    for section in some.new:
        if section in library.sections:
            library.reads.setdefault(section, tuple(Standing(0.0, now)))
    for section in some.gone:
        if section not in library.sections:
            library.reads.pop(section, None)
    for section in some.ahead:
        if section in library.reads:
            library.reads[section] = tuple(of(library, section)._replace(at=now))


def of(library: Library, section: int) -> Standing:
    """How a section stands; one that is not known has not been read."""
    return Standing(*library.reads.get(section, (0.0, 0.0)))


# --- what stays


def waits(library: Library, number: int, unread_s: float, patience_s: float) -> bool:
    """Whether a section stays until it has vectors: where there never was an embedder, or it is away for long, that could be for ever.

    :param unread_s: how long it was not read, or has been there.
    :param patience_s: how long it is waited for.
    """
    return bool(library.embedder) and number in library.waiting and unread_s < patience_s


def pin(root: Any, source: str, *, stays: bool) -> bool:
    """System transaction: what is from a source, or below that folder, stays from now on, or may leave; whether that is new.

    :raises UnknownSource: to pin what there is nothing of.
    """
    library = library_of(root)
    if stays is (source in library.pinned):
        return False
    if stays:
        if not below(library, source):
            library.document(source)
        library.pinned.add(source)
    else:
        library.pinned.remove(source)
    return True


def pinned(library: Library) -> set[int]:
    """Numbers of the documents that stay."""
    return {number for source in library.pinned for number in below(library, source)}


def below(library: Library, source: str) -> set[int]:
    """Numbers of the documents from a source, or from below that folder."""
    folder = source.rstrip("/") + "/"
    found = set(library.by_source.values(folder, folder + chr(0x10FFFF)))
    return found | {library.by_source[source]} if source in library.by_source else found
