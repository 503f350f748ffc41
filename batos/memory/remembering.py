"""Remembering: a document that is not read from a file but made, inside whatever transaction is open.

A mission does so in its own unit of work: what it remembers is committed with it or not at all. It writes new objects only, and into
trees and counts that merge what two transactions put into them; nothing else that all missions would write is touched. What is to be
told to the collection once that is committed is answered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from batos.errors import InvalidInput
from batos.memory.drafts import Draft, bounded
from batos.memory.library import library_of
from batos.memory.segments import Entry, Segment, build
from batos.memory.shelving import Shelved, Shelver, about_of
from batos.objects import UvmObject


class Prepared(NamedTuple):
    """A document that is ready to be stored."""

    draft: Draft
    source: str
    mission: str
    number: int
    shelved: list[Shelved]
    of: tuple[UvmObject, ...] = ()

    @property
    def entries(self) -> list[Entry]:
        """The index entries of its chunks."""
        return [entry for each in self.shelved for entry in each.entries]


def prepare(
    draft: Draft,
    shelver: Shelver,
    *,
    source: str,
    mission: str,
    section_chars: int,
    of: tuple[UvmObject, ...] = (),
    about: tuple[int, ...] = (),
) -> Prepared:
    """Cut a draft into sections and chunks. Needs no image; any thread.

    :param source: where it is from, such as `mission:ID`.
    :param mission: the id of the mission that remembers it.
    :param section_chars: its longest section.
    :param of: what it is a summary of: documents and chunks.
    :param about: numbers of the documents that it is of, where the objects are not at hand.
    :raises InvalidInput: for a draft without a word in it.
    """
    number = shelver.numbers.take()
    parts = list(bounded(draft.parts, section_chars))
    if not parts:
        raise InvalidInput(f"there is nothing to remember of {source!r}: it has no words")
    shelved = [shelver.shelve(part, document=number, kind=draft.kind, day=draft.day, about=about or about_of(of)) for part in parts]
    return Prepared(draft, source, mission, number, shelved, of)


def keep(root: Any, prepared: Prepared, segment: Segment | None) -> None:
    """Store what was prepared.

    :param segment: of its entries; None if they come with those of another document.
    :raises InvalidInput: for a source that is known.
    """
    library, (draft, source, mission, number, shelved, of) = library_of(root), prepared
    if source in library.by_source:
        raise InvalidInput(f"something from {source!r} is in the memory already; forget it first, or give this another source")
    days = tuple(sorted({each.shelf.section.day for each in shelved} - {0}))
    facts = {
        "title": draft.title, "kind": draft.kind, "source": source, "sources": (source,), "tags": draft.tags, "mission": mission,
        "day": draft.day, "days": days, "of": of, "complete": True, **({"origin": draft.origin} if draft.origin else {}),
    }  # fmt: skip
    library.put(root, number, facts, [each.shelf for each in shelved], segment, [each.shelf.section.number for each in shelved])


def remember(
    root: Any, draft: Draft, shelver: Shelver, *, source: str, mission: str, section_chars: int, of: tuple[UvmObject, ...] = ()
) -> Segment:
    """Prepare a document and put it into the memory; see `prepare` and `keep`.

    :returns: the index entries of its chunks, for `Recollection.stored` after the commit.
    """
    prepared = prepare(draft, shelver, source=source, mission=mission, section_chars=section_chars, of=of)
    segment = build(prepared.entries)
    keep(root, prepared, segment)
    return segment
