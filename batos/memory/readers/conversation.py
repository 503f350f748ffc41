"""Conversations: lines that begin with somebody's name, under dates or with them. Each turn becomes a chunk."""

from __future__ import annotations

import pathlib
import re

from batos.memory.drafts import Draft, DraftPart, Turn
from batos.memory.readers import dates

_STAMP = r"[\[(]?(?P<stamp>\d[\d./-]{4,}[^\]\)A-Za-z\n]{0,24}(?:[AaPp]\.?[Mm]\.?)?)[\])]?[ ,-]*"
_NICK = r"<(?P<nick>[^<>\s]{1,40})>"
_NAME = r"\**(?P<name>[^\W\d_][\w.'’-]*(?:[ ][^\W\d_][\w.'’-]*){0,3}(?:[ ]?\(\w+\))?)\**:\**"
_TURN = re.compile(rf"^(?:{_STAMP})?(?:{_NICK}|{_NAME})(?=[ \t])")
_HEADING_CHARS = 80  # of a line that says when a session was
_SHARE = 0.5  # of the lines that begin a turn, past which it is a conversation
_FEWEST = 4  # turns
_FIELDS = frozenset(
    (
        "note", "notes", "todo", "date", "from", "to", "subject", "cc", "re", "fw", "fwd", "title", "author", "tags", "summary", "abstract",
        "url", "http", "https", "see", "warning",
    )
)  # fmt: skip
"""What stands before a colon and is nobody's name."""


def read(path: pathlib.PurePath, text: str) -> Draft | None:
    """The conversation that a text is; None for one that is none."""
    lines = text.splitlines(keepends=True)
    marks = [_TURN.match(line) for line in lines]
    names = [_name(mark) for mark in marks if mark]
    speakers = {name.casefold() for name in names}
    filled = sum(bool(line.strip()) for line in lines)
    if len(names) < max(_FEWEST, filled * _SHARE) or not 2 <= len(speakers) <= len(names) / 2 or speakers & _FIELDS:
        return None
    return Draft("conversation", path.stem, _sessions(lines, marks), day=dates.in_name(path.stem))


def _name(mark: re.Match[str]) -> str:
    return (mark["nick"] or mark["name"]).strip()


def _sessions(lines: list[str], marks: list[re.Match[str] | None]) -> list[DraftPart]:
    """A part for each stretch of turns of one day: a line with a date in it, or a date before a name, begins another."""
    parts: list[DraftPart] = []
    held: list[tuple[str, str]] = []  # turns: text and speaker
    ahead, title, day, blank = "", "", 0, True  # what stands before the next turn, and whether the line before was blank

    def close() -> None:
        if held:
            parts.append(_part(held, title, day))
            held.clear()

    for line, mark in zip(lines, marks, strict=True):
        if mark:
            named = dates.found(mark["stamp"] or "")
            if named and named != day:
                close()
                title, day = "", named
            held.append((ahead + line, _name(mark)))
            ahead = ""
        elif (named := dates.found(line)) and len(line.strip()) <= _HEADING_CHARS and (blank or line[0] in "#=*-["):
            close()
            title, day, ahead = line.strip(" \t\n#=*-[]"), named, ahead + line
        elif held and not ahead:
            held[-1] = (held[-1][0] + line, held[-1][1])
        else:
            ahead += line
        blank = not line.strip()
    if held:
        held[-1] = (held[-1][0] + ahead, held[-1][1])
    close()
    return parts


def _part(held: list[tuple[str, str]], title: str, day: int) -> DraftPart:
    text, turns = "", []
    for words, speaker in held:
        turns.append(Turn(len(text), len(text) + len(words), speaker))
        text += words
    return DraftPart(text, title, day, tuple(turns))
