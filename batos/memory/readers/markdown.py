"""Markdown: a part a heading, called by the way of headings that leads to it."""

from __future__ import annotations

import pathlib
import re

from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import dates

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD = re.compile(r"^(title|date|tags)[ \t]*:[ \t]*(.*)$", re.MULTILINE | re.IGNORECASE)
_MARKS = re.compile(r"[*_`]+|!?\[([^\]]*)\]\([^)]*\)")


def read(path: pathlib.PurePath, text: str) -> Draft:
    """Headings outside of fenced code; front matter gives title, date and tags."""
    front = _FRONT.match(text)
    fields = {name.lower(): value.strip().strip("\"'") for name, value in _FIELD.findall(front[1])} if front else {}
    parts, first = _parts(text[front.end() :] if front else text)
    tags = tuple(tag.strip().strip("\"'#") for tag in fields.get("tags", "").strip("[]").split(",") if tag.strip())
    title = fields.get("title") or first or path.stem
    return Draft("markdown", title, parts, day=dates.found(fields.get("date", "")) or dates.in_name(path.stem), tags=tags)


def _parts(text: str) -> tuple[list[DraftPart], str]:
    """The parts, and the words of the first heading of the highest level."""
    way: list[tuple[int, str]] = []
    parts: list[DraftPart] = []
    held: list[str] = []
    first, fence = "", ""

    def close() -> None:
        if "".join(held).strip():
            parts.append(DraftPart("".join(held), " > ".join(name for _, name in way), dates.found(way[-1][1]) if way else 0))
        held.clear()

    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.match(line.rstrip("\n"))
        if heading:
            close()
            level, name = len(heading[1]), _MARKS.sub(lambda m: m[1] or "", heading[2]).strip()
            way[:] = [(other, at) for other, at in way if other < level] + [(level, name)]
            if level == 1 and not first:
                first = name
        held.append(line)
    close()
    return parts, first
