"""From a draft to what is stored: sections cut into chunks, numbered, with their index entries. No image needed; any thread."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from batos.memory.chunking import Limits, pieces
from batos.memory.drafts import DraftPart
from batos.memory.kinds import DIGEST, FAILURE, MISSION, SUMMARY
from batos.memory.naming import Names
from batos.memory.numbers import Numbers
from batos.memory.sections import Passage, Section, Shelf
from batos.memory.segments import SUMMARY as TELLS_OTHERS
from batos.memory.segments import Entry, Facts, speaker_key
from batos.memory.traits import LIVED, traits
from batos.memory.words import words
from batos.objects import UvmObject

_KINDS = {MISSION: LIVED, FAILURE: LIVED, SUMMARY: TELLS_OTHERS, DIGEST: TELLS_OTHERS | LIVED}
"""Kind of a document -> what is to be known of its chunks beside their own traits."""


class Shelved(NamedTuple):
    """A section to be stored, and the index entries of its chunks."""

    shelf: Shelf
    entries: list[Entry]


class Shelver:
    """Cuts parts into chunks by structure and size: what can be searched before there are vectors."""

    def __init__(self, numbers: Numbers, limits: Limits, names: Names) -> None:
        self.numbers, self._limits, self.names = numbers, limits, names

    def shelve(self, part: DraftPart, *, document: int, kind: str, day: int = 0, about: tuple[int, ...] = ()) -> Shelved:
        """A new section of provisional chunks.

        :param document: the number of the document that it is of.
        :param day: of the document, where the part has none.
        :param about: numbers of the documents that all its chunks point at.
        """
        cuts = list(self._turns(part) if part.turns else self._pieces(part.text, kind))
        # a conversation is cut by who speaks, and nothing else parts it
        section = Section(self.numbers.take(), document, 0, 0, 0, digest_of(part), part.title, part.day or day, bool(part.turns))
        return self.filled(section, cuts, kind, about)

    def filled(self, section: Section, cuts: Sequence[tuple[str, str]], kind: str, about: tuple[int, ...] = ()) -> Shelved:
        """The section of a document of that kind with these texts as its chunks, each with who says it.

        They take the numbers of the chunks that it has, if they are not more than it was given room for: what points at its beginning
        goes on doing so.
        """
        if len(cuts) > section.room:
            room = max(len(cuts), sum(len(text) for text, _ in cuts) // self._limits.smallest + 1)
            section = section._replace(first=self.numbers.take(room), room=room)
        section = section._replace(size=len(cuts))
        number, heading, day = section_key(section.number), words(section.title), section.day
        passages, entries, lived = [], [], _KINDS.get(kind, 0)
        for at, (text, speaker) in enumerate(cuts):
            named = self.names.of(text, section.document)
            keys = (speaker.casefold(), *named.keys) if speaker else named.keys
            passages.append(Passage(text, speaker, tuple(dict.fromkeys(keys))))
            flags, told = traits(text)
            said = speaker_key(speaker) if speaker else 0
            facts = Facts(section.document, number, speaker=said, day=day, length=told, flags=flags | lived)
            links = tuple(dict.fromkeys((*about, *named.links)))
            entries.append(Entry(section.first + at, (*heading, *words(text)), facts, links))
        return Shelved(Shelf(section, tuple(passages)), entries)

    def _pieces(self, text: str, kind: str) -> Iterator[tuple[str, str]]:
        """The texts of its pieces, with the gaps after them: put together they are the whole text."""
        yield from ((piece, "") for piece in parted(text, [(p.start, p.end) for p in pieces(text, kind, self._limits)]))

    def _turns(self, part: DraftPart) -> Iterator[tuple[str, str]]:
        for text, turn in zip(parted(part.text, [turn[:2] for turn in part.turns]), part.turns, strict=True):
            if len(text) <= self._limits.largest:
                yield text, turn.speaker
            else:
                yield from ((piece, turn.speaker) for piece, _ in self._pieces(text, "text"))


def about_of(objects: Iterable[UvmObject]) -> tuple[int, ...]:
    """Numbers of these documents, and of those that these chunks are of; not of what is archived whole, of which nothing can be found."""
    documents = (one.document if "document" in one._slots else one for one in objects)
    return tuple(dict.fromkeys(one.number for one in documents if one.sections or not one.archives))


def section_key(number: int) -> int:
    """The number by which searches tell sections apart: 31 bits, spread so that those of two runs do not fall together."""
    return zlib.crc32(number.to_bytes(8, "big")) & 0x7FFFFFFF


def parted(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """The text cut where spans begin: nothing between them is lost. One piece where there are none."""
    starts = [start for start, _ in spans][1:]
    return [text[begin:end] for begin, end in zip([0, *starts], [*starts, len(text)], strict=True)]


def digest_of(part: DraftPart) -> bytes:
    """What tells whether a section is the same as before: its title, day, text but for blanks at its ends, and who says what."""
    found = hashlib.sha256(f"{part.title}\0{part.day}\0".encode("utf-8", "replace"))
    found.update(part.text.strip().encode("utf-8", "replace"))
    for turn in part.turns:
        found.update(f"\0{turn.start}\0{turn.speaker}".encode("utf-8", "replace"))
    return found.digest()[:16]
