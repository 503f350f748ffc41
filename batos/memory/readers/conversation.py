"""Conversations: lines that begin with a time and a name, or with the name alone, under dates or with them. Each turn becomes a chunk.

Read are exports of WhatsApp, Telegram, LINE and IRC, and what is written down like them. A line that has a time before its name begins a
turn whoever it is: an unknown number, a name with an emoji. What a program says itself ("Anna joined") is nobody's.
"""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

from batos.memory.drafts import Draft, DraftPart, Turn
from batos.memory.readers import dates

_MARKS = "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
_DATE = (
    r"(?:\d{1,4}[./-][ ]?\d{1,2}[./-][ ]?\d{2,4}\.?(?!\d)|\d{4}[ ]?[年년][ ]?\d{1,2}[ ]?[月월][ ]?\d{1,2}[ ]?[日일]"
    r"|\d{1,2}\.?[ ][^\W\d_]{3,10}\.?,?[ ]\d{4})(?:\([^()\n]{1,6}\))?"
)
_TIME = r"(?:[AaPp][Mm][ ]|上午|下午|오전[ ]|오후[ ])?\d{1,2}[:.]\d\d(?:[:.]\d\d)?(?:[ \u202f\xa0]?[AaPp]\.?[ ]?[Mm]\.?)?"
_STAMP = rf"(?:{_DATE}(?:[ ,T\u202f\xa0]{{1,3}}(?:(?:um|at|à|alle|a las|om)[ ])?{_TIME})?|{_TIME})"
_STAMPED = re.compile(
    rf"[{_MARKS}]{{0,3}}(?:\[(?P<a>{_STAMP})\]|\((?P<b>{_STAMP})\)|(?P<c>{_STAMP}))(?:[ \u202f]{{0,2}}[-–—:,])?[ \t\u202f]{{0,2}}"
)
_NICK = re.compile(r"<(?P<name>[^<>\s]{1,40})>[ \t]")
_ANYBODY = re.compile(
    rf"[{_MARKS}~ *]{{0,4}}(?P<name>[^\n:：\t=\[\]{{}}<>|]{{1,60}}?)[ \xa0\u202f*]{{0,3}}(?::\*{{0,2}}(?=[ \t\u202f\n]|\Z)|：|\t)"
)
_NAMED = re.compile(
    r"\*{0,2}(?P<name>[^\W\d_][\w.'’-]*+(?:[ ][^\W\d_][\w.'’-]*+){0,3}(?:[ ]?\(\w{1,40}\))?(?:[ ][^\w\s:]{1,6})?)\*{0,2}"
    r"(?::\*{0,2}(?=[ \t])|：)"
)
_TELEGRAM = re.compile(rf"(?P<name>[^\n\[\]]{{1,60}}?),?[ ]\[(?P<a>{_DATE}[ ,]{{1,2}}{_TIME})\]:?[ \t]*(?=\n|\Z)")
_PHONE = re.compile(r"[+(]?[\d\xa0 ()/.-]{6,24}\Z")
_LINE_CHARS = 240  # of a line's beginning that is looked at
_HEADING_CHARS = 80  # of a line that says when a session was
_SHARE = 0.5  # of the lines that begin a turn, past which it is a conversation
_STAMPED_SHARE = 0.1  # of those, where each turn has its time
_FEWEST = 4  # turns
_WORDS = 6  # of a name
_FIELDS = frozenset(
    (
        "note", "notes", "todo", "date", "from", "to", "subject", "cc", "re", "fw", "fwd", "title", "author", "tags", "summary", "abstract",
        "url", "http", "https", "see", "warning", "info", "error", "errors", "warn", "debug", "trace", "fatal", "critical", "notice",
        "severe", "exception", "caused by", "at",
    )
)  # fmt: skip
"""What stands before a colon and is nobody's name: fields, and the levels of logs."""


class _Begins(NamedTuple):
    """How a line begins: with a time, a name (empty for what nobody says), or both."""

    name: str
    stamp: str = ""


def read_conversation(path: pathlib.PurePath, text: str) -> Draft | None:
    """The conversation that a text is; None for one that is none."""
    lines = text.splitlines(keepends=True)
    marks = [_begins(line[:_LINE_CHARS]) for line in lines]
    said = [mark for mark in marks if mark and mark.name]
    speakers = {mark.name.casefold() for mark in said}
    stamped = sum(bool(mark.stamp) for mark in said)
    filled = sum(bool(line.strip()) for line in lines)
    if speakers & _FIELDS or len(said) < _FEWEST:
        return None
    if stamped * 2 > len(said):  # names that stand alone in a text with times are words before a colon
        marks = [mark if mark and mark.stamp else None for mark in marks]
        speakers = {mark.name.casefold() for mark in marks if mark and mark.name}
        if stamped < filled * _STAMPED_SHARE or not 2 <= len(speakers) < len(said):
            return None
    elif len(said) < filled * _SHARE or not 2 <= len(speakers) <= len(said) / 2:
        return None
    order, sure = dates.order_of(mark.stamp for mark in marks if mark)
    told = () if sure else ("its dates may have the day or the month first: read with the day first",)
    return Draft("conversation", path.stem, _sessions(lines, marks, order), day=dates.in_name(path.stem), told=told)


def _begins(line: str) -> _Begins | None:
    """How a line begins that begins a turn; None for one that goes on."""
    if found := _TELEGRAM.match(line):
        return _Begins(_name(found["name"]), found["a"])
    if found := _STAMPED.match(line):
        stamp, rest = found["a"] or found["b"] or found["c"], line[found.end() :]
        named = _NICK.match(rest) or _ANYBODY.match(rest)
        name = _name(named["name"]) if named else ""
        if not found["c"] or name:
            return _Begins(name, stamp)
        dashed = line[: found.end()].rstrip()[-1:] in "-–—"
        return _Begins("", stamp) if dashed else None
    if named := _NICK.match(line) or _NAMED.match(line):
        return _Begins(named["name"].strip())
    return None


def _name(words: str) -> str:
    """A name; empty for what is none."""
    name = words.strip(" \t*~\xa0\u202f" + "\u200e\u200f\u202a\u202c")
    is_name = any(char.isalpha() for char in name) or _PHONE.match(name) is not None
    return name if is_name and len(name.split()) <= _WORDS else ""


def _sessions(lines: list[str], marks: list[_Begins | None], order: str) -> list[DraftPart]:
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
            named = dates.found(mark.stamp, order)
            if named and named != day:
                close()
                title, day = "", named
            held.append((ahead + line, mark.name))
            ahead = ""
        elif (named := dates.found(line[:_LINE_CHARS], order)) and len(line.strip()) <= _HEADING_CHARS and (blank or line[0] in "#=*-["):
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
    text, turns = [], []
    at = 0
    for words, speaker in held:
        turns.append(Turn(at, at + len(words), speaker))
        text.append(words)
        at += len(words)
    return DraftPart("".join(text), title, day, tuple(turns))
