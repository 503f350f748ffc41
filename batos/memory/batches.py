"""A file's sections, some at a time: those that the memory has already, by their content, are kept, the others cut into chunks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from batos.config import Settings
from batos.errors import Unreadable
from batos.image.turns import Turns
from batos.memory.drafts import Draft, bounded
from batos.memory.files import File
from batos.memory.sections import Section
from batos.memory.segments import Segment, build
from batos.memory.shelving import Shelved, Shelver, digest_of


class Known(NamedTuple):
    """What the memory has from a source already."""

    document: int
    digest: bytes
    complete: bool
    sections: tuple[Section, ...]
    elsewhere: int
    """Number of a document with the same content from another source; 0 if there is none."""


class Batch(NamedTuple):
    """Some sections that one transaction stores, with the index entries of their chunks."""

    shelved: list[Shelved]
    segment: Segment | None
    sections: list[int]
    """All sections that the document has with this batch; to the last one, those of its earlier version are among them."""
    last: bool


class Batches:
    """The new sections of a draft, some at a time. Used by one thread after the other."""

    def __init__(self, draft: Draft, known: Known, number: int, shelver: Shelver, settings: Settings, going: Callable[[], object]) -> None:
        """
        :param number: of the document.
        :param going: called before each section; what it raises ends it.
        """
        self._going = going
        self.draft, self.number, self._shelver = draft, number, shelver
        self._size = settings.ingest_batch_bytes
        self._parts = bounded(draft.parts, settings.ingest_section_chars)
        self._there: dict[bytes, deque[int]] = {}
        for section in known.sections:
            self._there.setdefault(section.digest, deque()).append(section.number)
        self._old = [section.number for section in known.sections]
        self._now: list[int] = []
        self._days: Counter[int] = Counter()
        self._speakers: dict[str, None] = {}
        self._turns = Turns()

    def next(self) -> Batch:
        """The next sections; the last batch may have none.

        :raises Unreadable: if there is not a word in all of the draft.
        """
        shelved: list[Shelved] = []
        size, last = 0, True
        for part in self._parts:
            self._going()
            self._days[part.day] += 1
            self._speakers |= dict.fromkeys(turn.speaker for turn in part.turns if turn.speaker)
            same = self._there.get(digest_of(part))
            if same:
                self._now.append(same.popleft())
                continue
            shelved.append(self._shelver.shelve(part, document=self.number, kind=self.draft.kind, day=self.draft.day))
            self._now.append(shelved[-1].shelf.section.number)
            self._turns.take()
            size += len(part.text)
            if size >= self._size:
                last = False
                break
        segment = build(entry for each in shelved for entry in each.entries) if shelved else None
        if not self._now:
            raise Unreadable("there is no text in it")
        kept = set(self._now)
        rest = [] if last else [number for number in self._old if number not in kept]
        return Batch(shelved, segment, self._now + rest, last)

    def facts(self, file: File) -> dict[str, Any]:
        """What is known of the document once all of it was seen."""
        draft = self.draft
        days = tuple(sorted(day for day in {*self._days, draft.day} if day))
        return {
            "title": draft.title, "kind": draft.kind, "source": file.path, "sources": (file.path,), "tags": draft.tags,
            "day": draft.day or (days[0] if days else 0), "days": days, "speakers": tuple(self._speakers),
            "digest": file.digest, "complete": True, "doubts": draft.told,
        }  # fmt: skip
