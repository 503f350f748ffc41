"""Records of the library: facts about documents, kinds, waiting sections, counts, and numbers of documents, sections and chunks.

* Facts narrow a search to documents and list them: zope.index field and keyword indexes over document numbers. Day, speaker and kind of a
  chunk are elsewhere, in the facts that searches keep in memory (`batos.memory.segments.FACTS`).
* Counts are stored with each change, because a tree knows its size only by a walk through all its leaves.
* The process hands out numbers, so that missions do not all write one counter in the image. Those of each run lie in an epoch of its own.
* Numbers ascend, so trees grow at their end. A tree frees a leaf only with its last entry. Where most entries leave and a few stay here and
  there, there are as many leaves as ever, each a record. `sparse_keys` finds such entries, `reinsert` packs them together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import BTrees
from BTrees.LLBTree import LLTreeSet
from BTrees.LOBTree import LOBTree
from persistent import Persistent
from ZODB.POSException import ConflictError

from batos.errors import InvalidInput

MISSION, FAILURE = "mission", "failure"
"""Kinds of documents that hold missions: a mission with its answer, and a failed mission."""
NOTE = "note"
"""Kind of the documents that missions note."""
STATEMENT = "statement"
"""Kind of the documents that hold statements of the user from briefs."""
SUMMARY, DIGEST = "summary", "digest"
"""Kinds of documents that summarise others, which `of` lists. A digest covers missions that the curator archived."""
KINDS = (
    "text", "markdown", "html", "pdf", "code", "conversation", "document", "table", "mail",
    NOTE, STATEMENT, MISSION, FAILURE, SUMMARY, DIGEST,
)  # fmt: skip
"""All kinds of documents: those of files, and the kinds above."""
UNTITLED = (STATEMENT, MISSION, FAILURE, SUMMARY, DIGEST)
"""Kinds whose titles are briefs or describe the documents that they cover. A search never finds a document by such a title."""


class Section(NamedTuple):
    """A part of a document: a heading's text, a conversation's session, some pages. Stored as a plain tuple under `number`."""

    number: int
    """Number of the section; it stays when the chunks are cut anew."""
    document: int
    first: int
    """Number of the first chunk."""
    size: int
    """Number of chunks."""
    room: int
    """Greatest number of chunks that fit without a change of numbers."""
    digest: bytes
    title: str
    day: int
    cut: bool
    """True if the chunks were cut where the meaning changes; False if they were cut by structure and size alone."""

    @property
    def numbers(self) -> range:
        """Return the numbers of its chunks."""
        return range(self.first, self.first + self.size)


class Passage(NamedTuple):
    """Chunk before it is stored: its text, its speaker (empty: none), keys of the entities it mentions."""

    text: str
    speaker: str = ""
    mentioned: tuple[str, ...] = ()


class Shelf(NamedTuple):
    """A section to be stored, with its chunks."""

    section: Section
    passages: tuple[Passage, ...]


class Change(Persistent):
    """The embedder that comes, while its vectors are being made."""

    __module__ = "batos.memory"

    def __init__(self, identity: str, sections: Iterable[int], since: int) -> None:
        """
        :param sections: that lack its vectors: all there are.
        :param since: the number of the newest of them.
        """
        self.identity, self.since = identity, since
        self.waiting = LLTreeSet([0])  # see `Library.complete`
        self.waiting.update(sections)


class Counts(Persistent):
    """Documents, sections, chunks and entities. A record of its own, that transactions which commit at once both change."""

    __module__ = "batos.memory"

    def __init__(self, documents: int = 0, sections: int = 0, chunks: int = 0, entities: int = 0) -> None:
        self.documents, self.sections, self.chunks, self.entities = documents, sections, chunks, entities

    def add(self, *, documents: int = 0, sections: int = 0, chunks: int = 0, entities: int = 0) -> None:
        """Add numbers, which may be negative, to the counts in the open transaction."""
        self.documents += documents
        self.sections += sections
        self.chunks += chunks
        self.entities += entities

    def told(self) -> dict[str, int]:
        """Return the counts by name."""
        return {"documents": self.documents, "sections": self.sections, "chunks": self.chunks, "entities": self.entities}

    def _p_resolveConflict(self, old: dict[str, int], saved: dict[str, int], new: dict[str, int]) -> dict[str, int]:
        """Merge two changes: both additions count."""
        return {name: saved[name] + new[name] - old[name] for name in new}


EPOCH = 1 << 32
"""Number of ids that one run of the process may hand out."""


class Epoch(Persistent):
    """Number of runs of the process that stored something; each run's numbers lie apart from those of all others."""

    __module__ = "batos.memory"
    value: int = 0
    taken: int = 0
    """Number of epochs that were taken before anything was stored: by kernels that share the image."""

    def take(self) -> int:
        """Take an epoch that no other caller gets, in the open transaction."""
        epoch = self.value
        self.value += 1
        self.taken += 1
        return epoch

    def _p_resolveConflict(self, old: dict[str, int], saved: dict[str, int], new: dict[str, int]) -> dict[str, int]:
        """Merge two first transactions of one run: both hold the same value.

        :raises ConflictError: if one of them takes an epoch that the other may have, too.
        """
        were = old.get("taken", 0)
        if were != new.get("taken", 0) or were != saved.get("taken", 0):
            raise ConflictError("two kernels took the same epoch")
        return max(saved, new, key=lambda state: state["value"])


class Numbers:
    """Hands out numbers of documents and chunks. May be asked by any thread."""

    def __init__(self, epoch: int) -> None:
        """
        :param epoch: epoch of this run of the process (`epoch_of`).
        """
        self._next, self._end = max(1, epoch * EPOCH), (epoch + 1) * EPOCH
        self._lock = threading.Lock()

    def take(self, count: int = 1) -> int:
        """Return the first of `count` consecutive unused numbers."""
        with self._lock:
            first = self._next
            self._next += count
        assert self._next <= self._end, "a run of the process hands out at most 2**32 numbers"
        return first


_FULL = 0.75
"""Share of a leaf up to which neighbours are merged: the next entry between them must not split them again."""


class GrowingTree(LOBTree):
    """Number -> value. Small leaves: an addition writes the last one whole, and most of what that costs is what its entries refer to."""

    __module__ = "batos.memory"
    max_leaf_size, max_internal_size = 20, 64


def sparse_keys(tree: Any) -> list[Any]:
    """Return the keys in leaves whose entries would fit into the leaf before them; none of the last leaf, which grows."""
    found: list[Any] = []
    room = 0.0
    leaf = tree._firstbucket
    while leaf is not None and leaf._next is not None:
        if (size := len(leaf)) <= room:
            found += leaf.keys()
            room -= size
        else:
            room = _FULL * tree.max_leaf_size - size
        leaf = leaf._next
    return found


def reinsert(tree: Any, keys: Iterable[Any]) -> None:
    """Remove these keys, if present, and insert them again: they move into the leaves before theirs, which disappear."""
    held = {key: tree[key] for key in keys if key in tree}
    for key in held:
        del tree[key]
    tree.update(held)


FIELDS = ("kind", "mission", "day")
"""Fields with one value for each document."""
KEYWORDS = ("tags", "speakers", "days")
"""Fields with any number of values for each document."""


class Catalogue(Persistent):
    """The indexes of one library, by name."""

    __module__ = "batos.memory"

    def __init__(self) -> None:
        from zope.index.field import FieldIndex  # late import: a daemon with an empty memory does not pay for it
        from zope.index.keyword import KeywordIndex

        family = BTrees.family64
        self.fields = {name: FieldIndex(family) for name in FIELDS}
        self.keywords = {name: KeywordIndex(family) for name in KEYWORDS}

    def put(self, number: int, facts: Mapping[str, Any]) -> None:
        """Index a document in place of its earlier entry. Empty fields are not indexed."""
        for name, index in self.fields.items():
            index.unindex_doc(number)
            if facts.get(name):
                index.index_doc(number, facts[name])
        for name, index in self.keywords.items():
            index.unindex_doc(number)
            if words := [_key(word) for word in facts.get(name, ())]:
                index.index_doc(number, words)

    def drop(self, number: int) -> None:
        """Remove a document."""
        for index in (*self.fields.values(), *self.keywords.values()):
            index.unindex_doc(number)

    def find(self, **wanted: Any) -> set[int] | None:
        """Return the numbers of the documents that fit all of these; None if nothing is asked for.

        :param wanted: of a field one value, or a pair (lowest, highest; None is open). Of a keyword, one value, or several of which one
            must be there.
        :raises InvalidInput: for an index that there is not.
        """
        found: set[int] | None = None
        for name, value in wanted.items():
            if name in self.fields:
                span = value if isinstance(value, tuple) else (value, value)
                fits = set(self.fields[name].apply(span))
            elif name in self.keywords:
                several = [value] if isinstance(value, str | int) else list(value)
                fits = set(self.keywords[name].apply({"query": [_key(word) for word in several], "operator": "or"}))
            else:
                raise InvalidInput(f"documents are not indexed by {name!r}; they are by {', '.join((*FIELDS, *KEYWORDS))}")
            found = fits if found is None else found & fits
        return found

    def called(self, name: str) -> list[int]:
        """Return the keys (`speaker_key`) of the speakers whose names start with a name, such as a first name.

        :param name: its words, casefolded.
        """
        from batos.memory.segments import speaker_key

        return [speaker_key(known) for known in self.keywords["speakers"]._fwd_index.keys(f"{name} ", f"{name} \U0010ffff")]

    def values(self, name: str) -> list[Any]:
        """Return the values that there are of a keyword, in order."""
        return list(self.keywords[name]._fwd_index)


def _key(word: Any) -> Any:
    return word.casefold() if isinstance(word, str) else word
