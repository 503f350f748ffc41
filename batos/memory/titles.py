"""By which title a document is found: the first that has it, and once that is gone the next.

`Library.by_title` holds who is found, `Library.namesakes` who else has that title. All functions work inside whatever transaction is open.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged
from batos.memory.kinds import UNTITLED
from batos.objects import UvmObject

if TYPE_CHECKING:
    from batos.memory.library import Library


def give(library: Library, key: str, number: int) -> None:
    """A document has this title."""
    if key and library.by_title.get(key, number) != number:
        library.namesakes.add((key, number))
    elif key and key not in library.by_title:
        library.namesakes.discard((key, number))
        library.by_title[key] = number
        library.unlinked.add(key)


def take(library: Library, key: str, number: int, *, for_good: bool) -> None:
    """A document has this title no more.

    :param for_good: else it may come back, and what points at it stays: no other takes its place.
    """
    for listed in _listed(library, key, number):
        library.namesakes.discard((listed, number))
        if library.by_title.get(listed) == number:
            del library.by_title[listed]
        if for_good and listed not in library.by_title:
            for _, heir in list(library.namesakes.keys((listed,), (listed, float("inf"))))[:1]:
                give(library, listed, heir)


def _listed(library: Library, key: str, number: int) -> list[str]:
    """The titles under which a document is listed: another than its own, where a mission wrote that."""
    if not key or library.by_title.get(key) == number or (key, number) in library.namesakes:
        return [key]
    both = itertools.chain(library.by_title.items(), library.namesakes)
    return [title for title, listed in both if listed == number]


def title_of(document: UvmObject) -> str:
    """The title that a document is found by, casefolded; empty for one that is not."""
    return "" if document.kind in UNTITLED else document.title.casefold()


def complete(library: Library) -> None:
    """List what an earlier BAT OS did not: it knew one document of each title."""
    for number, document in library.documents.items():
        with contextlib.suppress(ImageDamaged, POSKeyError):  # the self-audit tells of what is damaged
            if document.complete and not (document.archives and not document.sections):
                give(library, title_of(document), number)
