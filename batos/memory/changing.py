"""A change of embedder: the vectors of the one before serve until all those of the new one are there, then all at once give way.

What the image says of it is enough to go on after a kill: `Library.embedder` is whose vectors searches use, `Library.change` who comes
next and which sections lack its vectors. There are two logs of vectors meanwhile and never more. All are functions of the root: reads and
system transactions. `batos.memory.vectors` does the work.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged
from batos.memory.library import Library, library_of
from batos.memory.meaning import Work, work_of
from batos.memory.sections import Change
from batos.memory.vectorlog import VectorLog


class Adopted(Enum):
    """What became of an embedder that was asked who it is."""

    KNOWN = 0
    """It is the one that was known: that serves, or that comes."""
    SERVES = 1
    """Searches use its vectors from now on: there were none of another."""
    COMES = 2
    """Its vectors are made now; those of the one before serve meanwhile."""
    BACK = 3
    """It serves, and another was to come: that one does not any more."""


def adopt(root: Any, identity: str, dimensions: int, place: str = "") -> Adopted:
    """System transaction: this is the embedder that the settings ask for.

    :param place: see `VectorLog`.
    """
    library = library_of(root)
    change, logs = library.change, library.vectors
    if identity in logs and logs[identity].place != place:
        logs[identity].place = place
    if change is not None and change.identity != identity:  # what there is of that one's is of no use
        del logs[change.identity]
        change = library.change = None
        if identity == library.embedder:
            return Adopted.BACK
    if identity in (library.embedder, change and change.identity):
        return Adopted.KNOWN
    before = logs.get(library.embedder)
    logs[identity] = VectorLog(identity, dimensions, place)
    if before is None or not before.parts():
        _serve(library, identity)
        library.waiting.update(library.sections)
        return Adopted.SERVES
    since = library.sections.maxKey() if library.sections else 0
    library.change = Change(identity, library.sections, since)
    return Adopted.COMES


def arrive(root: Any, identity: str) -> bool:
    """System transaction: searches use the vectors of the embedder that comes, if none is lacking; whether they do."""
    library = library_of(root)
    change = library.change
    if change is not None and change.identity == identity and len(change.waiting) == 1:
        _serve(library, identity)
    return bool(library.embedder == identity)


class Due(NamedTuple):
    """Sections that lack vectors."""

    works: list[Work]
    damaged: list[int]
    """Numbers of those that cannot be read."""


def due(root: Any, most: int) -> Due:
    """Sections that lack the vectors of the embedder that the settings ask for, in the order in which they came."""
    library = library_of(root)
    return _works(library, (library.change or library).waiting.keys(0, excludemin=True), most)


def late(root: Any, most: int) -> Due:
    """Sections that came during a change, and lack the vectors that searches use till its end."""
    library = library_of(root)
    return _works(library, library.waiting.keys(library.change.since, excludemin=True) if library.change is not None else [], most)


def give_up(root: Any, work: Work, identity: str) -> None:
    """System transaction: a section stays without an embedder's vectors, and is found by its words."""
    library = library_of(root)
    waiting = library.lacking(identity)
    if waiting is not None and library.sections.get(work.section.number) == tuple(work.section[1:]):
        waiting.discard(work.section.number)


def pass_over(root: Any, damaged: Iterable[int], identity: str) -> None:
    """System transaction: sections that cannot be read stay without an embedder's vectors, and hold up no other."""
    waiting = library_of(root).lacking(identity)
    for number in damaged if waiting is not None else []:
        waiting.discard(number)


def _works(library: Library, numbers: Iterable[int], most: int) -> Due:
    found = Due([], [])
    for number in itertools.islice(numbers, most):
        try:
            found.works.append(work_of(library, number))
        except (ImageDamaged, POSKeyError):  # the self-audit tells of what is damaged
            found.damaged.append(number)
    return found


def _serve(library: Library, identity: str) -> None:
    for other in list(library.vectors):
        if other != identity:
            del library.vectors[other]
    library.embedder, library.change = identity, None
    for number in list(library.without_vectors()):  # of the one before
        library.waiting.remove(number)
