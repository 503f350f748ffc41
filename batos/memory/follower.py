"""Follower: a collection that follows what all kernels of an image commit to the memory.

A kernel that has an image to itself puts its own commits into its collection (`batos.app.memory`). Where several kernels share an image,
each follows the logs in it (`batos.memory.part_log`), its own commits included: one path, in the order of the image, so that a collection
is what the logs say, whoever wrote them. A part of a log never changes and a key never names another part. So a look compares the keys and
the drops with those of the look before, and takes of the parts that came the rows that are new:

* rows that the collection lacks;
* rows of chunks that were dropped and added again: cut anew, linked anew, brought back;
* where parts were merged or purged since, which may have taken the record of a drop away: rows that differ from the collection's.

Rows whose part is gone and that no other part holds were dropped, too. Vectors are taken in the same way. Nothing is ever compared as a
whole, and a look with nothing new reads nothing. The collection is loaded anew where another embedder serves, and to free the rows of
dropped chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import structlog
from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged
from batos.image import zodb_patches
from batos.memory.embedders import Maker
from batos.memory.part_log import EVER, LogEntry, PartLog, VectorLog
from batos.memory.search_index import Collection
from batos.memory.segments import Array, Segment, merge, signatures
from batos.memory.store import Library, library_of
from batos.objects import Root

log = structlog.get_logger("batos.memory")
_NONE = np.empty(0, np.int64)


class LogNews(NamedTuple):
    """News of a log since the look before."""

    dropped: list[int]
    """Ids that were dropped and not added again."""
    again: Array
    """Ids that were dropped and added again."""
    came: list[int]
    """Keys of the parts that came, the oldest first."""
    gone: dict[int, Array]
    """Key -> ids of its rows, for the parts that were merged or purged."""


class LogFollower:
    """Knows which parts and drops of a log were taken in. It holds eight bytes for each row."""

    def __init__(self, oid: bytes = b"") -> None:
        """:param oid: id of the log."""
        self._oid, self._serials = oid, tuple[bytes, ...]()
        self._marks: dict[int, int] = {}
        self.ids: dict[int, Array] = {}
        """Key of a part -> ids of the rows that counted when it was taken in."""

    def news(self, held: PartLog) -> LogNews | None:
        """Return what there is to take in; None if there is nothing. `taken` notes that it was."""
        if held.serials() == self._serials:
            return None
        marks = held.marks()
        changed = [(id, age) for id, age in marks.items() if self._marks.get(id) != age]
        now = held.keys()
        there = set(now)
        return LogNews(
            [id for id, age in changed if age > EVER // 2],
            np.array([id for id, age in changed if age <= EVER // 2], np.int64),
            [key for key in now if key not in self.ids],
            {key: ids for key, ids in self.ids.items() if key not in there},
        )

    def taken(self, held: PartLog, gone: Iterable[int], came: dict[int, Array]) -> None:
        """Note the log as it is now: these parts are gone, and those came with these ids."""
        for key in gone:
            del self.ids[key]
        self.ids |= came
        self._oid, self._marks, self._serials = held._p_oid, held.marks(), held.serials()

    def is_of(self, held: PartLog) -> bool:
        """Return True if it followed this log, and not another in its place."""
        return bool(held._p_oid == self._oid)

    def left(self, gone: dict[int, Array], came: dict[int, Array], collection: Collection) -> Array:
        """Return the chunks of the collection that parts held which are gone, and that no part holds now."""
        if not gone:
            return _NONE
        left = np.setdiff1d(_together(gone.values()), _together(came.values()))
        left = left[collection.holds(left)]
        return left[~np.isin(left, _together(ids for key, ids in self.ids.items() if key not in gone))] if len(left) else left


class FollowerNews(NamedTuple):
    """News that a look found."""

    changed: bool = False
    """True if the memory has changed since the look before."""
    documents: frozenset[int] = frozenset()
    """Numbers of the documents of chunks that came, or came anew."""
    reload: bool = False
    """True if the collection must be loaded anew: another embedder serves by now."""


_NOTHING = FollowerNews()


class Follower:
    """A collection and what it has taken in. All methods but `load` are called on one thread."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._seen = b""
        self._text, self._vectors = LogFollower(), LogFollower()

    @classmethod
    def load(cls, root: Root) -> Follower:
        """Return a follower with all that the memory holds, in a helper thread if need be."""
        library, segments, came = library_of(root), list[Segment](), dict[int, Array]()
        for entry in _readable(library.text, library.text.keys(), came):
            segments.append(_segment(entry))
            came[entry.key] = segments[-1].ids.copy()
        made = cls(Collection.of(segments))
        made._text.taken(library.text, (), came)
        vectors = library.vectors.get(library.embedder)
        if vectors is not None:
            made.collection.serve(Maker(vectors.identity, vectors.place), vectors.dimensions)
            made._vectors.taken(vectors, (), _take_vectors(made.collection, vectors, vectors.keys()))
        made._seen = zodb_patches.first_unseen(root._p_jar)
        return made

    def look(self, root: Root) -> FollowerNews:
        """Take in what was committed since the last look, as of this view of the image.

        It can be broken off at any point by an image that is away: the next look begins again.
        """
        seen = zodb_patches.first_unseen(root._p_jar)
        if seen == self._seen:
            return _NOTHING
        library = library_of(root)
        documents = self._look_at_text(library)
        changed, other = documents is not None, False
        vectors = library.vectors.get(library.embedder)
        if vectors is not None:
            if not self.collection.maker.identity:  # the first embedder
                self.collection.serve(Maker(vectors.identity, vectors.place), vectors.dimensions)
                self._vectors = LogFollower(vectors._p_oid)
            other = not self._vectors.is_of(vectors)
            changed |= other or self._look_at_vectors(vectors)
        self._seen = b"" if other else seen
        return FollowerNews(changed, documents or frozenset(), other)

    def _look_at_text(self, library: Library) -> frozenset[int] | None:
        """Take in the text's news. Return the documents of chunks that came; None if nothing has changed."""
        held, collection = library.text, self.collection
        news = self._text.news(held)
        if news is None:
            return None
        collection.drop(news.dropped)
        came: dict[int, Array] = {}
        documents: set[int] = set()
        for entry in _readable(held, news.came, came):
            segment = _segment(entry)
            came[entry.key] = segment.ids.copy()
            if len(new := self._new_rows(segment, news)):
                collection.replace(new)  # the chunks keep their vectors: those that go are dropped from the vectors' log, too
                documents.update(new.facts["document"].tolist())
        collection.drop(self._text.left(news.gone, came, collection))
        self._text.taken(held, news.gone, came)
        return frozenset(documents)

    def _new_rows(self, segment: Segment, news: LogNews) -> Segment:
        """Return the rows of a part that came which the collection lacks, or has otherwise."""
        alive = self.collection.holds(segment.ids)
        wanted = ~alive | np.isin(segment.ids, news.again)
        if news.gone and not wanted.all():  # the record of a drop may be gone with those parts
            wanted |= self._differs(segment, alive)
        if wanted.any() and not wanted.all():  # sections come as a whole: searches take adjacent rows for neighbours
            wanted |= np.isin(segment.facts["section"], segment.facts["section"][wanted])
        return segment if wanted.all() else merge([segment], [~wanted])

    def _differs(self, segment: Segment, alive: Array) -> Array:
        """Return bool: True for each row that the collection has otherwise; it has those that are `alive`."""
        ids = segment.ids[alive]
        ours, _, _ = self.collection.excerpt(ids)
        order = np.argsort(ours.ids, kind="stable")
        same = signatures(ours)[order][np.searchsorted(ours.ids[order], ids)]
        differs = np.zeros(len(segment), bool)
        differs[alive] = signatures(segment)[alive] != same
        return differs

    def _look_at_vectors(self, held: VectorLog) -> bool:
        """Take in the news of the vectors. Return True if anything has changed."""
        if held.place != self.collection.maker.place:
            self.collection.serve(Maker(held.identity, held.place), held.dimensions)
        news = self._vectors.news(held)
        if news is None:
            return False
        self.collection.drop_vectors(news.dropped)
        came = _take_vectors(self.collection, held, news.came)
        self.collection.drop_vectors(self._vectors.left(news.gone, came, self.collection))
        self._vectors.taken(held, news.gone, came)
        return True


def _take_vectors(collection: Collection, held: VectorLog, keys: list[int]) -> dict[int, Array]:
    came: dict[int, Array] = {}
    for entry in _readable(held, keys, came):
        ids, rows = entry.part.held(), entry.part.load()
        if entry.mask is not None:
            ids, rows = ids[~entry.mask], rows[~entry.mask]
        came[entry.key] = ids
        collection.vectors(ids, rows)
    return came


def _readable(held: PartLog, keys: list[int], came: dict[int, Array]) -> Iterator[LogEntry]:
    """Yield the parts of these keys; one that is damaged comes without rows, and the self-audit reports it."""
    if not keys:
        return
    drops = held.drops()
    for key in keys:
        try:
            entry = held.entry(key, drops)
        except (ImageDamaged, POSKeyError) as e:
            log.error("memory_part_damaged", error=str(e), hint="its chunks are not found; restore a backup (`batos restore`)")
            came[key] = _NONE
            continue
        yield entry
        entry.part._p_deactivate()  # the cache counts objects, and a part is as large as a thousand others


def _segment(entry: LogEntry) -> Segment:
    """Return the rows of a part that count."""
    segment: Segment = entry.part.load()
    return segment if entry.mask is None else merge([segment], [entry.mask])


def _together(columns: Iterable[Any]) -> Array:
    return np.concatenate([_NONE, *columns])
