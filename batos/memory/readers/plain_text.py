"""Readers of plain text: prose, subtitles, source code, Markdown and tables.

* Source code: a part begins where a line begins a definition at the margin; small ones are joined.
* Markdown: a part for each heading, named by the path of headings. Front matter is a part of its own, with title, day and tags.
* Tables (CSV and similar): each row repeats the names of its columns, in whatever chunk it is.
"""

from __future__ import annotations

import csv
import html
import io
import itertools
import pathlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence

from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import dates
from batos.memory.readers.outline import Outline


def read_text(path: pathlib.PurePath, text: str) -> Draft:
    """Return the whole text as one part; its day is that in its name, if there is one."""
    return Draft("text", path.stem, [DraftPart(text)], day=dates.day_in_name(path.stem))


_CUE = re.compile(r"[ \t]*(?:\d{1,3}:)?\d{1,2}:\d\d[.,]\d{1,3}(?:[ \t]*-->[ \t]*|,)(?:\d{1,3}:)?\d{1,2}:\d\d[.,]\d{1,3}(?:[ \t][^\n]*)?\Z")
"""Matches the line of a subtitle that says from when to when it is shown."""
_CUE_SHARE = 0.2  # least share of such lines in a text that consists of subtitles
_VOICE = re.compile(r"<v(?:\.[\w.-]{1,40})?[ \t]([^<>\n]{1,80})>")
_CUE_MARK = re.compile(r"</?[A-Za-z\d][^<>\n]{0,80}>|\{\\[^{}\n]{1,40}\}")
_NOT_SHOWN = ("WEBVTT", "NOTE", "STYLE", "REGION")


def read_subtitles(path: pathlib.PurePath, text: str) -> Draft | None:
    """Return what subtitles say, without times and numbers, each line once, and who says it; None for a text that has none."""
    lines = [line.strip() for line in text.split("\n")]
    times = {at for at, line in enumerate(lines) if _CUE.match(line)}
    if len(times) < 2 or len(times) < _CUE_SHARE * sum(map(bool, lines)):
        return None
    is_web = lines[0].startswith(_NOT_SHOWN[0])
    said: list[str] = []
    skipping = False
    for at, line in enumerate(lines):
        begins = not at or not lines[at - 1]
        skipping = bool(line) and (skipping or (is_web and begins and line.split()[0] in _NOT_SHOWN))
        is_number = at + 1 in times and (line.isdecimal() or (is_web and begins))
        if not line or skipping or at in times or is_number:
            continue
        shown = " ".join(html.unescape(_CUE_MARK.sub("", _VOICE.sub(r"\1: ", line))).split())
        if shown and shown not in said[-2:]:  # captions that roll show a line twice
            said.append(shown)
    title = lines[0].removeprefix(_NOT_SHOWN[0]).strip(" -\t") if is_web else ""
    return Draft("text", title or path.stem, [DraftPart("\n".join(said) + "\n")], day=dates.day_in_name(path.stem))


_DEFINITION = re.compile(
    r"^(?:@|(?:export |pub(?:\([^)]*\))? |public |private |static |async |abstract |final |unsafe |extern )*"
    r"(?:def|class|fn|func|function|struct|enum|impl|trait|interface|module|type|object|namespace)\b)[^\n]*",
    re.MULTILINE,
)
_NAME = re.compile(r"(?:def|class|fn|func|function|struct|enum|impl|trait|interface|module|type|object|namespace)\s+([\w.:<>]+)")
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][\da-fA-F]{2})\\u([dD][c-fC-F][\da-fA-F]{2})|u([\da-fA-F]{4})|.)", re.DOTALL)
_TOGETHER = 2000  # characters up to which definitions share a part


def _unescaped(found: re.Match[str]) -> str:
    """Return a letter beyond ASCII instead of its number; any other escape stays."""
    if found[1]:
        return chr(0x10000 + ((int(found[1], 16) & 0x3FF) << 10) + (int(found[2], 16) & 0x3FF))
    letter = chr(int(found[3], 16)) if found[3] else ""
    return letter if letter > "\xa0" and letter.isprintable() else found[0]


def read_code(path: pathlib.PurePath, text: str) -> Draft:
    """Return its definitions; the name of each part is that of its first one. Escaped letters of JSON are written as they are read."""
    if path.suffix.lower() in (".json", ".jsonl"):
        text = _ESCAPE.sub(_unescaped, text)
    starts = [match.start() for match in _DEFINITION.finditer(text)]
    parts, begin = [], 0
    for at in [*starts[1:], len(text)]:
        if at - begin >= _TOGETHER or at == len(text):
            piece = text[begin:at]
            named = _NAME.search(piece)
            parts.append(DraftPart(piece, named[1] if named else ""))
            begin = at
    return Draft("code", path.name, parts)


_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)")
_MARKS_MARKDOWN = re.compile(r"`++|(?<!\s)\*++|\*++(?!\s)|(?<!\w)_++(?=\S)|(?<=[^\s_])_++(?!\w)|!?\[([^\[\]]*+)\]\([^()]*+\)")
"""Matches marks that a reader does not see; in `my_file_name` and `2 * 3` they are characters."""
_FRONT_LINES = 500  # greatest number of lines of front matter
_UNDERLINED_CHARS = 120  # greatest number of characters of an underlined heading: longer text is a paragraph with a rule below it
_FIELD = re.compile(r"""["']?([^\W\d_][\w.-]*(?: [\w.-]+){0,2})["']?[ \t]*:(?:[ \t]+(.*)|[ \t]*)\Z""")
_TITLES, _DAYS, _TAGS = ("title",), ("date", "created", "day"), ("tags", "tag", "keywords")
_BLOCKS = ("|", ">", "|-", ">-", "|+", ">+")
"""Marks of a text in the lines below."""
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
    day = next((day for one in _said(fields, _DAYS) if (day := dates.day_in(one))), 0) or dates.day_in_name(path.stem)
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
    flows: set[str] = set()  # names of lists that go on in other lines
    folded: set[str] = set()  # names of texts that do
    for line in lines:
        solid = line.strip()
        if not solid or solid.startswith("#"):
            continue
        field = _FIELD.match(line.rstrip("\n")) if not line[0].isspace() else None
        if field:
            name = field[1].lower()
            said = (field[2] or "").strip()
            fields[name] = _values(said)
            if said.startswith("[") and "]" not in said:
                flows.add(name)
            elif said in _BLOCKS:
                folded.add(name)
        elif not name or not (line[0].isspace() or solid.startswith("- ") or solid in ("-", "]", "}")):
            return {}
        elif solid.startswith("- "):
            fields[name] += _values(solid[2:])
        elif name in flows:
            fields[name] += _values(f"[{solid.strip('[]')}]")
        elif name in folded:
            fields[name] = [" ".join((*fields[name], solid))]
        elif not fields[name]:
            fields[name] += _values(solid)
    return fields


def _values(text: str) -> list[str]:
    """Return a scalar, or the items of a list in one line."""
    text = text.strip()
    if text in _BLOCKS:
        return []
    if text[:1] in ("'", '"') and text.count(text[0]) == 2 and text[-1:] == text[0]:
        return [text[1:-1].strip()] if text[1:-1].strip() else []
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
_DELIMITERS = ";\t|,"  # a comma may be the mark of decimals in all rows alike
_LOOKED_AT = 50  # lines that decide on the separator of columns
_FIT = 0.8  # least share of these lines with the most common number of columns
_NAME_CHARS = 80  # greatest number of characters of a column's name
_NUMBER = re.compile(r"[-+$€£¥%\d.,:/ ]++\Z")
_PERIOD = re.compile(r"(?:(?:19|20)\d\d(?:[-/.]\d\d?){0,2}|(?:\d\d?[-/.]){1,2}(?:19|20)\d\d)\Z")
"""Matches a year, month or day, which may name a column."""
_SEPARATOR = re.compile(r"sep=(.)\n", re.IGNORECASE)  # first line for a spreadsheet program


def read_tables(path: pathlib.PurePath, text: str) -> Draft | None:
    """Return the draft of a table; None for a text without rows."""
    said = _SEPARATOR.match(text)
    text = text[said.end() :] if said else text
    delimiter = said[1] if said else _delimiter(text)
    if not delimiter:
        return None
    csv.field_size_limit(1 << 26)
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if _is_open(text, delimiter) else csv.QUOTE_MINIMAL,
        skipinitialspace=True,
    )
    return Draft(TABLE_KIND, path.stem, [DraftPart("".join(table_lines(rows)))], day=dates.day_in_name(path.stem))


def table_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a line each row, as Markdown has them; each cell with the name of its column, if a row has such.

    The names may have a title and notes above them, in rows of fewer cells.
    """
    waiting = iter([" ".join(cell.split()) for cell in row] for row in rows)
    head = [row for row in itertools.islice(waiting, _LOOKED_AT) if any(row)]
    at = _names_at(head)
    names = head[at] if at is not None else []
    for number, cells in enumerate(itertools.chain(head, waiting)):
        if not any(cells):
            continue
        if at is None or number <= at:
            said = [cell for cell in cells if cell]
        else:
            said = [f"{names[place]}: {cell}" if place < len(names) and names[place] else cell for place, cell in enumerate(cells) if cell]
        yield f"| {' | '.join(said)} |\n"


def _names_at(rows: Sequence[Sequence[str]]) -> int | None:
    """Return the place of the row that names the columns; None if there is none."""
    sizes = [sum(1 for cell in row if cell) for row in rows]
    usual = max(set(sizes), key=lambda size: (sizes.count(size), size), default=0)
    full = next((at for at, size in enumerate(sizes) if size >= max(2, usual)), 0)  # what is shorter than the table may stand above it
    for at in dict.fromkeys((full, 0)):
        row, after = (rows[at], rows[at + 1]) if at + 1 < len(rows) else ((), ())
        above = any(cell and value and not _NUMBER.match(cell) and _NUMBER.match(value) for cell, value in zip(row, after, strict=False))
        if _are_names(row, after) and sizes[at] >= usual - 1 and (above or not at):
            return at
    return None


def _are_names(row: Sequence[str], after: Sequence[str]) -> bool:
    """Return True if a row names the columns: short, different words above a row with as many cells. Years may be among them, if the row
    below has none there.
    """
    named = [cell for cell in row if cell]
    words = [len(cell) <= _NAME_CHARS and not _NUMBER.match(cell) for cell in named]
    dates = [_PERIOD.match(cell) is not None for cell in named]
    below = [_PERIOD.match(after[place]) for place, cell in enumerate(row) if place < len(after) and _PERIOD.match(cell)]
    fits = all(word or date for word, date in zip(words, dates, strict=True)) and any(words) and not any(below)
    different = len(set(named)) * 2 > len(named)  # two columns may have one name
    return fits and different and len(named) >= 2 and len(named) >= len([cell for cell in after if cell]) - 1


def _is_open(text: str, delimiter: str) -> bool:
    """Return True if a quotation mark opens a cell that nothing closes: it is a mark of inches, and not of a cell."""
    try:
        for _ in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True):
            pass
    except csv.Error as e:
        return "unexpected end of data" in str(e)
    return False


def _delimiter(text: str) -> str:
    """Return the delimiter of the columns; empty for a text without any. A title and notes may stand above the table."""
    head = "".join(text[: 1 << 16].splitlines(keepends=True)[:_LOOKED_AT])
    best, most = "", 0.0
    for one in _DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(io.StringIO(head, newline=""), delimiter=one, skipinitialspace=True) if row]
        except csv.Error:
            continue
        usual = max(set(widths), key=lambda width: (widths.count(width), width), default=0)
        below = widths[widths.index(usual) :] if usual in widths else []
        fit = below.count(usual) / max(1, len(below))
        likely = usual * fit * (0.9 + 0.1 * len(below) / max(1, len(widths)))
        if usual > 1 and len(below) > 1 and len(below) * 2 >= len(widths) and fit >= _FIT and likely > most:
            best, most = one, likely
    return best
