"""Markdown: a part a heading, called by the way of headings that leads to it. Front matter is a part of its own, with title, day, tags."""

from __future__ import annotations

import pathlib
import re
import tomllib

from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import dates
from batos.memory.readers.outline import Outline

_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)")
_MARKS = re.compile(r"[*_`]++|!?\[([^\[\]]*+)\]\([^()]*+\)")
_FRONT_LINES = 500  # of front matter, at most
_UNDERLINED_CHARS = 120  # of a heading with a line under it: what is longer is a paragraph with a rule behind it
_FIELD = re.compile(r"""["']?([^\W\d_][\w.-]*(?: [\w.-]+){0,2})["']?[ \t]*:(?:[ \t]+(.*)|[ \t]*)\Z""")
_TITLES, _DAYS, _TAGS = ("title",), ("date", "created", "day"), ("tags", "tag", "keywords")
_FRONT_TITLE = "properties"
"""What the part is called that front matter makes."""


def read_markdown(path: pathlib.PurePath, text: str) -> Draft:
    """Headings outside of fenced code, with `#` before them or a line under them."""
    front, fields = _front(text)
    outline = Outline()
    if front and any(values for name, values in fields.items() if name not in _TITLES):
        outline.parts.append(DraftPart(front.partition("\n")[2].rstrip().rpartition("\n")[0] + "\n", _FRONT_TITLE))
    _outlined(text[len(front) :], outline)
    title = " ".join(_said(fields, _TITLES)) or outline.first or path.stem
    day = next((day for one in _said(fields, _DAYS) if (day := dates.found(one))), 0) or dates.in_name(path.stem)
    tags = tuple(dict.fromkeys(tag.lstrip("#") for tag in _said(fields, _TAGS)))
    return Draft("markdown", title, outline.done(), day=day, tags=tags)


# --- front matter


def _said(fields: dict[str, list[str]], names: tuple[str, ...]) -> list[str]:
    return [value for name in names for value in fields.get(name, ())]


def _front(text: str) -> tuple[str, dict[str, list[str]]]:
    """The front matter at the beginning, with its marks, and what its fields say; nothing where a text begins with a rule."""
    lines = text[: 1 << 16].splitlines(keepends=True)[:_FRONT_LINES]
    mark = lines[0].rstrip() if lines else ""
    ends = {"---": ("---", "..."), "+++": ("+++",)}.get(mark)
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() in ends), 0) if ends else 0
    if not end:
        return "", {}
    inner = lines[1:end]
    fields = _toml(inner) if mark == "+++" else _yaml(inner)
    return ("".join(lines[: end + 1]), fields) if fields else ("", {})


def _toml(lines: list[str]) -> dict[str, list[str]]:
    try:
        found = tomllib.loads("".join(lines))
    except ValueError:
        return {}
    return {name.lower(): [str(one) for one in (value if isinstance(value, list) else [value])] for name, value in found.items()}


def _yaml(lines: list[str]) -> dict[str, list[str]]:
    """The fields of a mapping; none where a line is neither a field nor what belongs to one: that is no YAML, but a text."""
    fields: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        solid = line.strip()
        if not solid or solid.startswith("#"):
            continue
        field = _FIELD.match(line.rstrip("\n")) if not line[0].isspace() else None
        if field:
            name = field[1].lower()
            fields[name] = _values(field[2] or "")
        elif not name or not (line[0].isspace() or solid.startswith("- ") or solid in ("-", "]", "}")):
            return {}
        elif solid.startswith("- "):
            fields[name] += _values(solid[2:])
        elif not fields[name] or fields[name][-1:] == ["["]:
            fields[name] += _values(solid)
    return fields


def _values(text: str) -> list[str]:
    """A scalar, or the items of a list in one line."""
    text = text.strip()
    if text in ("|", ">", "|-", ">-", "|+", ">+"):
        return []
    parts = text.strip("[]").split(",") if text.startswith("[") or ("," in text and " " not in text.replace(", ", ",")) else [text]
    return [value for part in parts if (value := part.strip().strip("\"'"))]


# --- headings


def _outlined(text: str, outline: Outline) -> None:
    fence = ""
    before = ""  # the line before, where it is a paragraph of its own so far
    alone = False
    held = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and line.strip() == mark[1])):
            fence = "" if fence else mark[1]
        found = None if fence or mark else _heading(line)
        under = 0 if fence or not alone or len(before) > _UNDERLINED_CHARS else _underline(line)
        if under:
            outline.heading(under, _plain(before))
        elif held:
            outline.text(held)
            held = ""
        if found:
            outline.heading(found[0], _plain(found[1]))
        solid = line.strip()
        may_be = not (fence or mark or found or under) and solid and not solid.startswith((">", "|", "-", "*", "+", "<", "    "))
        if may_be and not before:
            held, before, alone = line, solid, True
            continue
        outline.text(held + line)
        held, alone = "", False
        before = "" if not solid or found or under or mark else solid
    outline.text(held)


def _heading(line: str) -> tuple[int, str] | None:
    """Level and words of a heading with `#` before it."""
    bare = line.lstrip(" ")
    level = len(bare) - len(bare.lstrip("#"))
    if not 1 <= level <= 6 or len(line) - len(bare) > 3 or bare[level : level + 1] not in (" ", "\t", "\n", ""):
        return None
    words = bare[level:].strip()
    closed = words.rstrip("#")
    return level, (closed.rstrip() if not closed or closed[-1] in " \t" else words)


def _underline(line: str) -> int:
    """The level that a line gives to the one above it; 0 for none."""
    solid = line.rstrip()
    bare = solid.lstrip(" ")
    if len(solid) - len(bare) > 3 or len(bare) < 2:
        return 0
    return 1 if not bare.strip("=") else 2 if not bare.strip("-") else 0


def _plain(words: str) -> str:
    return _MARKS.sub(lambda m: m[1] or "", words).strip()
