"""Follower: a collection that follows what all kernels of an image commit to the memory.

A kernel that has an image to itself puts its own commits into its collection (`batos.app.memory`). Where several kernels share an image,
each follows the logs in it (`batos.memory.part_log`), its own commits included. There is one path, in the order of the image. So a
collection is what the logs say, not who wrote them. A part of a log never changes and a key never names another part. So a look compares
the keys and the drops with those of the look before. Of the parts that came it takes the new rows:

* rows that the collection lacks;
* rows of chunks that were dropped and added again: cut anew, linked anew, brought back;
* after a purge, which takes records of drops away: rows that differ from the collection's. If they are many, that is left to a collection
  that is loaded anew in a helper thread.

Rows whose part is gone and that no other part holds were dropped, too. Vectors are taken in the same way. A look with nothing new reads
nothing, and one after a merge looks at numbers only. The collection is also loaded anew where another embedder serves, and to free the rows
of dropped chunks.
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
    purged: bool
    """True if records of drops may have come and gone since."""


class LogFollower:
    """Knows which parts and drops of a log were taken in. It holds eight bytes for each row."""

    def __init__(self, oid: bytes = b"") -> None:
        """:param oid: id of the log."""
        self._oid, self._serials = oid, tuple[bytes, ...]()
        self._marks: dict[int, int] = {}
        self._purges = 0
        self.ids: dict[int, Array] = {}
        """Key of a part -> ids of the rows that counted when it was taken in."""

    def news(self, held: PartLog) -> LogNews | None:
        """Return what there is to take in; None if there is nothing. `taken` notes that it was."""
        if held.serials() == self._serials:
            return None
        held._p_activate()
        marks = held.marks()
        changed = [(id, age) for id, age in marks.items() if self._marks.get(id) != age]
        now = held.keys()
        there = set(now)
        return LogNews(
            [id for id, age in changed if age > EVER // 2],
            np.array([id for id, age in changed if age <= EVER // 2], np.int64),
            [key for key in now if key not in self.ids],
            {key: ids for key, ids in self.ids.items() if key not in there},
            held.purges != self._purges,
        )

    def taken(self, held: PartLog, gone: Iterable[int], came: dict[int, Array]) -> None:
        """Note the log as it is now: these parts are gone, and those came with these ids."""
        for key in gone:
            del self.ids[key]
        self.ids |= came
        self._oid, self._marks, self._serials, self._purges = held._p_oid, held.marks(), held.serials(), held.purges

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
    """True if the collection is to be loaded anew: another embedder serves by now, or a purge took records of many rows away."""


_NOTHING = FollowerNews()
COMPARED = 2000
"""Greatest number of rows that a look compares after a purge: more would block the loop."""


class Follower:
    """A collection and what it has taken in. All methods but `load` are called on one thread."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._seen, self._reload = b"", False
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
        self._reload = False
        documents = self._look_at_text(library)
        changed = documents is not None
        vectors = library.vectors.get(library.embedder)
        if vectors is not None:
            if not self.collection.maker.identity:  # the first embedder
                self.collection.serve(Maker(vectors.identity, vectors.place), vectors.dimensions)
                self._vectors = LogFollower(vectors._p_oid)
            if self._vectors.is_of(vectors):
                changed |= self._look_at_vectors(vectors)
            else:
                self._reload = changed = True
        self._seen = seen
        return FollowerNews(changed, documents or frozenset(), self._reload)

    def _look_at_text(self, library: Library) -> frozenset[int] | None:
        """Take in the text's news. Return the documents of chunks that came; None if nothing has changed."""
        held, collection = library.text, self.collection
        news = self._text.news(held)
        if news is None:
            return None
        compared = self._is_compared(held, news)
        collection.drop(news.dropped)
        came: dict[int, Array] = {}
        documents: set[int] = set()
        for entry in _readable(held, news.came, came):
            ids = came[entry.key] = entry.ids()
            wanted = ~collection.holds(ids) | np.isin(ids, news.again)
            if not (wanted.any() or compared):
                continue
            segment = _segment(entry)
            if compared and not wanted.all():
                wanted |= self._differs(segment, ~wanted)
            if wanted.any():
                # sections come as a whole: searches take adjacent rows for neighbours
                wanted |= np.isin(segment.facts["section"], segment.facts["section"][wanted])
                new = segment if wanted.all() else merge([segment], [~wanted])
                collection.replace(new)  # the chunks keep their vectors: those that go are dropped from the vectors' log, too
                documents.update(new.facts["document"].tolist())
        collection.drop(self._text.left(news.gone, came, collection))
        self._text.taken(held, news.gone, came)
        return frozenset(documents)

    def _is_compared(self, held: PartLog, news: LogNews) -> bool:
        """Return True if rows of parts that came are to be compared with those that are there. If they are too many, ask for a reload."""
        if not news.purged:
            return False
        sizes = dict(zip(held.keys(), held.sizes(), strict=True))
        many = sum(sizes[key] for key in news.came) > COMPARED
        self._reload |= many
        return not many

    def _differs(self, segment: Segment, alive: Array) -> Array:
        """Return bool: True for each of these rows that the collection has otherwise.

        :param alive: rows that the collection has.
        """
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
        compared = self._is_compared(held, news)
        self.collection.drop_vectors(news.dropped)
        came = _take_vectors(self.collection, held, news.came, None if compared else news.again)
        self.collection.drop_vectors(self._vectors.left(news.gone, came, self.collection))
        self._vectors.taken(held, news.gone, came)
        return True


def _take_vectors(collection: Collection, held: VectorLog, keys: list[int], again: Array | None = None) -> dict[int, Array]:
    """Take in vectors of these parts; return the ids of each.

    :param again: of the chunks that have vectors already, those that get others; None: all do.
    """
    came: dict[int, Array] = {}
    for entry in _readable(held, keys, came):
        ids = came[entry.key] = entry.ids()
        wanted = np.ones(len(ids), bool) if again is None else ~collection.holds_vectors(ids) | np.isin(ids, again)
        if wanted.any():
            rows = entry.part.load()
            rows = rows if entry.mask is None else rows[~entry.mask]
            collection.vectors(ids[wanted], rows[wanted])
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
