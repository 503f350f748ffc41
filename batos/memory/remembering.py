"""Remembering: a document that is not read from a file but made, inside whatever transaction is open.

A mission does so in its own unit of work: what it remembers is committed with it or not at all. It writes new objects only, and into
trees that merge what two transactions put into them; nothing that all missions would write is touched. What is to be told to the
collection once that is committed is answered.
"""

from __future__ import annotations

import hashlib
from typing import Any

from batos.errors import InvalidInput
from batos.memory.drafts import Draft, bounded
from batos.memory.library import library_of
from batos.memory.segments import Segment, build
from batos.memory.shelving import Shelver


def remember(root: Any, draft: Draft, shelver: Shelver, *, source: str, mission: str, section_chars: int) -> Segment:
    """Put a document into the memory.

    :param source: where it is from, such as `mission:ID`; another document from there must not be known.
    :param mission: the id of the mission that remembers it.
    :param section_chars: its longest section.
    :returns: the index entries of its chunks, for `Recollection.stored` after the commit.
    :raises InvalidInput: for a source that is known, or a draft without a word in it.
    """
    library = library_of(root)
    if source in library.by_source:
        raise InvalidInput(f"something from {source!r} is in the memory already; forget it first, or give this another source")
    number = shelver.numbers.take()
    parts = list(bounded(draft.parts, section_chars))
    if not parts:
        raise InvalidInput(f"there is nothing to remember of {source!r}: it has no words")
    shelved = [shelver.shelve(part, document=number, kind=draft.kind, day=draft.day) for part in parts]
    segment = build(entry for each in shelved for entry in each.entries)
    digest = hashlib.sha256("\0".join([source, *(part.text for part in parts)]).encode("utf-8", "replace")).digest()
    days = tuple(sorted({part.day or draft.day for part in parts} - {0}))
    facts = {
        "title": draft.title, "kind": draft.kind, "source": source, "sources": (source,), "tags": draft.tags, "mission": mission,
        "day": draft.day, "days": days, "digest": digest, "complete": True,
    }  # fmt: skip
    library.put(root, number, facts, [each.shelf for each in shelved], segment, [each.shelf.section.number for each in shelved])
    return segment
