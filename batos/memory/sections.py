"""What the library stores as records: sections of documents, chunks to be, and a change of embedder that is under way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from BTrees.LLBTree import LLTreeSet
from persistent import Persistent


class Section(NamedTuple):
    """A part of a document: a heading's text, a conversation's session, some pages. Stored as a plain tuple under `number`."""

    number: int
    """Its own; it stays when its chunks are cut anew."""
    document: int
    first: int
    """Number of its first chunk."""
    size: int
    """How many chunks it has."""
    room: int
    """How many it can have without other numbers."""
    digest: bytes
    title: str
    day: int
    cut: bool
    """Whether its chunks were cut where its meaning parts; before, by structure and size alone."""

    @property
    def numbers(self) -> range:
        """The numbers of its chunks."""
        return range(self.first, self.first + self.size)


class Passage(NamedTuple):
    """A chunk to be: its text, who says it (empty: nobody), keys of the entities it mentions."""

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
