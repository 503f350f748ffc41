"""Drafts: a document before it is stored, as a reader makes it of a file or a mission of a text to remember.

A draft has parts, such as the text under one heading, which is named by the path of headings that leads to it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*|\n(?=\S)")
_SHARE = 4  # a section has at least this fraction (1/n) of the largest size


class Turn(NamedTuple):
    """One speaker's turn in a conversation: `text[start:end]` of its part."""

    start: int
    end: int
    speaker: str


class DraftPart(NamedTuple):
    """A part that neighbours do not reach out of: under one heading, of one session, of one page.

    `day` counts as `datetime.date.toordinal` does; 0 is that of the document. `turns` only where it is a conversation.
    """

    text: str
    title: str = ""
    day: int = 0
    turns: tuple[Turn, ...] = ()


class Draft(NamedTuple):
    """A document before it is stored. `kind` is text, markdown, html, pdf, code, conversation, or a kind that a mission names. `told`
    lists what the reader was unsure of or left out, for the user who asked.
    """

    kind: str
    title: str
    parts: list[DraftPart]
    day: int = 0
    tags: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    origin: str = ""
    """Origin of the document (`batos.memory.objects`), if its kind does not give it."""


def bounded(parts: Iterable[DraftPart], largest: int) -> Iterator[DraftPart]:
    """Yield the parts that are not blank; a part of more than `largest` characters is split.

    The words at a cut decide on its place, not their position. So inserted text moves no later cut, and unchanged sections of a document
    stay the same.
    """
    for part in parts:
        if not part.text.strip():
            continue
        if len(part.text) <= largest:
            yield part
        elif part.turns:
            yield from _turns(part, largest)
        else:
            yield from (part._replace(text=text) for text in _cut(part.text, largest))


def _cut(text: str, largest: int) -> Iterator[str]:
    smallest, start = largest // _SHARE, 0
    while len(text) - start > largest:
        ends = [match.end() for match in _PARAGRAPH.finditer(text, start + smallest, start + largest)]
        # Cut at the end of the paragraph whose next words have the lowest checksum: the choice depends on the content only.
        end = min(ends, key=lambda at: zlib.crc32(text[at : at + 48].encode("utf-8", "replace"))) if ends else _space(text, start + largest)
        yield text[start:end]
        start = end
    if text[start:].strip():
        yield text[start:]


def _space(text: str, before: int) -> int:
    """Return the last position up to `before` that parts no word, if there is one near."""
    at = text.rfind(" ", before - 200, before)
    return at + 1 if at >= 0 else before


def _turns(part: DraftPart, largest: int) -> Iterator[DraftPart]:
    begin, held = 0, 0
    for number, turn in enumerate(part.turns):
        if number > begin and turn.end - held > largest:
            yield _some(part, begin, number)
            begin, held = number, turn.start
    yield _some(part, begin, len(part.turns))


def _some(part: DraftPart, begin: int, end: int) -> DraftPart:
    """Return the turns from one to another as a part of their own."""
    start = part.turns[begin].start if begin else 0
    stop = part.turns[end].start if end < len(part.turns) else len(part.text)
    turns = tuple(Turn(turn.start - start, turn.end - start, turn.speaker) for turn in part.turns[begin:end])
    return part._replace(text=part.text[start:stop], turns=turns)
