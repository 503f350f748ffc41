"""Readers of plain text: prose, conversations, source code, Markdown and tables.

* Conversations: lines that begin with a time and a name, or with a name alone, under or with dates. Exports of WhatsApp, Telegram, LINE and
  IRC are read, and texts written like them; each turn becomes a chunk. A line with a time before the name begins a turn of any speaker: an
  unknown number, a name with an emoji. A program's own notice ("Anna joined") has no speaker.
* Source code: a part begins where a line begins a definition at the margin; small ones are joined.
* Markdown: a part for each heading, named by the path of headings. Front matter is a part of its own, with title, day and tags.
* Tables (CSV and similar): each row repeats the names of its columns, in whatever chunk it is.
"""

from __future__ import annotations

import csv
import io
import pathlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from batos.memory import drafts
from batos.memory.drafts import Draft, DraftPart, Outline, Turn


def read_text(path: pathlib.PurePath, text: str) -> Draft:
    """Return the whole text as one part; its day is that in its name, if there is one."""
    return Draft("text", path.stem, [DraftPart(text)], day=drafts.day_in_name(path.stem))


_DEFINITION = re.compile(
    r"^(?:@|(?:export |pub(?:\([^)]*\))? |public |private |static |async |abstract |final |unsafe |extern )*"
    r"(?:def|class|fn|func|function|struct|enum|impl|trait|interface|module|type|object|namespace)\b)[^\n]*",
    re.MULTILINE,
)
_NAME = re.compile(r"(?:def|class|fn|func|function|struct|enum|impl|trait|interface|module|type|object|namespace)\s+([\w.:<>]+)")
_TOGETHER = 2000  # characters up to which definitions share a part


def read_code(path: pathlib.PurePath, text: str) -> Draft:
    """Return its definitions; the name of each part is that of its first one."""
    starts = [match.start() for match in _DEFINITION.finditer(text)]
    parts, begin = [], 0
    for at in [*starts[1:], len(text)]:
        if at - begin >= _TOGETHER or at == len(text):
            piece = text[begin:at]
            named = _NAME.search(piece)
            parts.append(DraftPart(piece, named[1] if named else ""))
            begin = at
    return Draft("code", path.name, parts)


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
_LINE_CHARS = 240  # characters of the start of a line that are looked at
_HEADING_CHARS = 80  # greatest number of characters of a line that dates a session
_SHARE = 0.5  # share of lines that start a turn above which the text is a conversation
_STAMPED_SHARE = 0.1  # the same share for texts in which each turn has a time
_FEWEST = 4  # least number of turns
_WORDS = 6  # greatest number of words of a name
_FIELDS = frozenset(
    (
        "note", "notes", "todo", "date", "from", "to", "subject", "cc", "re", "fw", "fwd", "title", "author", "tags", "summary", "abstract",
        "url", "http", "https", "see", "warning", "info", "error", "errors", "warn", "debug", "trace", "fatal", "critical", "notice",
        "severe", "exception", "caused by", "at",
    )
)  # fmt: skip
"""Words before a colon that are not names: fields, and log levels."""


class _Begins(NamedTuple):
    """Start of a line in a conversation: a time, a name (empty for a notice without a speaker), or both."""

    name: str
    stamp: str = ""


def read_conversation(path: pathlib.PurePath, text: str) -> Draft | None:
    """Return the conversation that a text is; None for one that is none."""
    lines = text.splitlines(keepends=True)
    marks = [_begins(line[:_LINE_CHARS]) for line in lines]
    said = [mark for mark in marks if mark and mark.name]
    speakers = {mark.name.casefold() for mark in said}
    stamped = sum(bool(mark.stamp) for mark in said)
    filled = sum(bool(line.strip()) for line in lines)
    if speakers & _FIELDS or len(said) < _FEWEST:
        return None
    if stamped * 2 > len(said):  # in a text with times, names without a time are words before a colon
        marks = [mark if mark and mark.stamp else None for mark in marks]
        speakers = {mark.name.casefold() for mark in marks if mark and mark.name}
        if stamped < filled * _STAMPED_SHARE or not 2 <= len(speakers) < len(said):
            return None
    elif len(said) < filled * _SHARE or not 2 <= len(speakers) <= len(said) / 2:
        return None
    order, sure = drafts.date_order(mark.stamp for mark in marks if mark)
    told = () if sure else ("its dates may have the day or the month first: read with the day first",)
    return Draft("conversation", path.stem, _sessions(lines, marks, order), day=drafts.day_in_name(path.stem), told=told)


def _begins(line: str) -> _Begins | None:
    """Return the start of a line that begins a turn; None for a line that continues one."""
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
    """Return the text if it is a name; else an empty text."""
    name = words.strip(" \t*~\xa0\u202f" + "\u200e\u200f\u202a\u202c")
    is_name = any(char.isalpha() for char in name) or _PHONE.match(name) is not None
    return name if is_name and len(name.split()) <= _WORDS else ""


def _sessions(lines: list[str], marks: list[_Begins | None], order: str) -> list[DraftPart]:
    """Return a part for each stretch of turns of one day: a line with a date in it, or a date before a name, begins another."""
    parts: list[DraftPart] = []
    held: list[tuple[str, str]] = []  # turns: text and speaker
    ahead, title, day, blank = "", "", 0, True  # text before the next turn, its title, its day, and True if the last line was blank

    def close() -> None:
        if held:
            parts.append(_part(held, title, day))
            held.clear()

    for line, mark in zip(lines, marks, strict=True):
        if mark:
            named = drafts.day_in(mark.stamp, order)
            if named and named != day:
                close()
                title, day = "", named
            held.append((ahead + line, mark.name))
            ahead = ""
        elif (named := drafts.day_in(line[:_LINE_CHARS], order)) and len(line.strip()) <= _HEADING_CHARS and (blank or line[0] in "#=*-["):
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


_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)")
_MARKS_MARKDOWN = re.compile(r"[*_`]++|!?\[([^\[\]]*+)\]\([^()]*+\)")
_FRONT_LINES = 500  # greatest number of lines of front matter
_UNDERLINED_CHARS = 120  # greatest number of characters of an underlined heading: longer text is a paragraph with a rule below it
_FIELD = re.compile(r"""["']?([^\W\d_][\w.-]*(?: [\w.-]+){0,2})["']?[ \t]*:(?:[ \t]+(.*)|[ \t]*)\Z""")
_TITLES, _DAYS, _TAGS = ("title",), ("date", "created", "day"), ("tags", "tag", "keywords")
_FRONT_TITLE = "properties"
"""Title of the part that holds the front matter."""


def read_markdown(path: pathlib.PurePath, text: str) -> Draft:
    """Read Markdown. Headings have `#` before them or a line under them; fenced code contains none."""
    front, fields = _front(text)
    outline = Outline()
    if front and any(values for name, values in fields.items() if name not in _TITLES):
        outline.parts.append(DraftPart(front.partition("\n")[2].rstrip().rpartition("\n")[0] + "\n", _FRONT_TITLE))
    _outlined(text[len(front) :], outline)
    title = " ".join(_said(fields, _TITLES)) or outline.first or path.stem
    day = next((day for one in _said(fields, _DAYS) if (day := drafts.day_in(one))), 0) or drafts.day_in_name(path.stem)
    tags = tuple(dict.fromkeys(tag.lstrip("#") for tag in _said(fields, _TAGS)))
    return Draft("markdown", title, outline.done(), day=day, tags=tags)


# --- front matter


def _said(fields: dict[str, list[str]], names: tuple[str, ...]) -> list[str]:
    return [value for name in names for value in fields.get(name, ())]


def _front(text: str) -> tuple[str, dict[str, list[str]]]:
    """Return the front matter at the beginning, with its marks, and what its fields say; nothing if a text begins with a rule."""
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
    """Return the fields of a mapping; none if a line neither is a field nor belongs to one: then it is prose, and not YAML."""
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
    """Return a scalar, or the items of a list in one line."""
    text = text.strip()
    if text in ("|", ">", "|-", ">-", "|+", ">+"):
        return []
    parts = text.strip("[]").split(",") if text.startswith("[") or ("," in text and " " not in text.replace(", ", ",")) else [text]
    return [value for part in parts if (value := part.strip().strip("\"'"))]


# --- headings


def _outlined(text: str, outline: Outline) -> None:
    fence = ""
    before = ""  # the previous line, if it may become an underlined heading
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
    """Return level and words of a heading with `#` before it."""
    bare = line.lstrip(" ")
    level = len(bare) - len(bare.lstrip("#"))
    if not 1 <= level <= 6 or len(line) - len(bare) > 3 or bare[level : level + 1] not in (" ", "\t", "\n", ""):
        return None
    words = bare[level:].strip()
    closed = words.rstrip("#")
    return level, (closed.rstrip() if not closed or closed[-1] in " \t" else words)


def _underline(line: str) -> int:
    """Return the level that a line gives to the one above it; 0 for none."""
    solid = line.rstrip()
    bare = solid.lstrip(" ")
    if len(solid) - len(bare) > 3 or len(bare) < 2:
        return 0
    return 1 if not bare.strip("=") else 2 if not bare.strip("-") else 0


def _plain(words: str) -> str:
    return _MARKS_MARKDOWN.sub(lambda m: m[1] or "", words).strip()


TABLE_KIND = "table"
_DELIMITERS = ",;\t|"
_LOOKED_AT = 50  # lines that decide on the separator of columns
_FIT = 0.8  # least share of these lines with the most common number of columns
_NAME_CHARS = 80  # greatest number of characters of a column's name
_NUMBER = re.compile(r"[-+$€£¥%\d.,:/ ]++\Z")


def read_tables(path: pathlib.PurePath, text: str) -> Draft | None:
    """Return the draft of a table; None for a text without rows."""
    delimiter = _delimiter(text)
    if not delimiter:
        return None
    csv.field_size_limit(1 << 26)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return Draft(TABLE_KIND, path.stem, [DraftPart("".join(table_lines(rows)))], day=drafts.day_in_name(path.stem))


def table_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a line each row, as Markdown has them; each cell with the name of its column, if the first row has such."""
    names: list[str] | None = None
    first: list[str] | None = None
    for row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        if not any(cells):
            continue
        if first is None:
            first = cells
            continue
        if names is None:
            names = first if _are_names(first, cells) else []
            yield f"| {' | '.join(filter(None, first))} |\n"
        if names:
            said = [f"{names[at]}: {cell}" if at < len(names) and names[at] else cell for at, cell in enumerate(cells) if cell]
        else:
            said = [cell for cell in cells if cell]
        yield f"| {' | '.join(said)} |\n"
    if first is not None and names is None:
        yield f"| {' | '.join(filter(None, first))} |\n"


def _are_names(row: list[str], after: list[str]) -> bool:
    """Return True if a first row names the columns: short, different words above a row with as many cells."""
    named = [cell for cell in row if cell]
    words = all(len(cell) <= _NAME_CHARS and not _NUMBER.match(cell) for cell in named)
    return words and len(set(named)) == len(named) and len(named) >= 2 and len(named) >= len([cell for cell in after if cell]) - 1


def _delimiter(text: str) -> str:
    """Return the delimiter of the columns; empty for a text without any."""
    head = "".join(text[: 1 << 16].splitlines(keepends=True)[:_LOOKED_AT])
    best, most = "", 1.0
    for one in _DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(io.StringIO(head, newline=""), delimiter=one) if row]
        except csv.Error:
            continue
        usual = max(set(widths), key=widths.count, default=0)
        fit = widths.count(usual) / max(1, len(widths))
        if usual > 1 and len(widths) > 1 and fit >= _FIT and usual * fit > most:
            best, most = one, usual * fit
    return best
