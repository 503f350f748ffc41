"""By which title a document is found: the first that has it, and once that is gone the next.

`Library.by_title` holds who is found, `Library.namesakes` who else has that title. All functions work inside whatever transaction is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged
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
    library.namesakes.discard((key, number))
    if library.by_title.get(key) == number:
        del library.by_title[key]
    if for_good and key not in library.by_title:
        for _, heir in list(library.namesakes.keys((key,), (key, float("inf"))))[:1]:
            give(library, key, heir)


def complete(library: Library, key_of: Callable[[UvmObject], str]) -> None:
    """List what an earlier BAT OS did not: it knew one document of each title.

    :param key_of: the title of a document, casefolded; empty for one that is not found by it.
    """
    for number, document in library.documents.items():
        with contextlib.suppress(ImageDamaged, POSKeyError):  # the self-audit tells of what is damaged
            if document.complete and not (document.archives and not document.sections):
                give(library, key_of(document), number)
