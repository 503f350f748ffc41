"""Files of programs that hold notes: notebooks (ipynb), boards (canvas), outlines (OPML), calendars (ics), address books (vcf), RTF."""

from __future__ import annotations

import importlib
import json
import pathlib
import quopri
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from batos.errors import Unreadable
from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import dates, html
from batos.memory.readers.outline import Outline

_KIND = "document"
_OUTPUT_CHARS = 2000  # of what a cell printed, at most
_FIELDS = {
    "SUMMARY": "", "DTSTART": "begins", "DTEND": "ends", "DUE": "due", "COMPLETED": "completed", "STATUS": "status", "RRULE": "repeats",
    "LOCATION": "place", "ORGANIZER": "organizer", "ATTENDEE": "with", "CATEGORIES": "categories", "URL": "link", "DESCRIPTION": "",
    "COMMENT": "comment", "FN": "", "NICKNAME": "nickname", "ORG": "organization", "TITLE": "title", "ROLE": "role", "TEL": "telephone",
    "EMAIL": "mail", "ADR": "address", "BDAY": "birthday", "NOTE": "note",
}  # fmt: skip
"""Fields of calendars and address books that are read, and what they are called here."""
_ESCAPED = re.compile(r"\\([nN,;\\])")
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?\Z")


def read_structured(path: pathlib.PurePath, text: str) -> Draft:
    """What a file says, by the end of its name.

    :raises Unreadable: for one that is not of its kind.
    """
    suffix = path.suffix.lower()
    draft = {".ipynb": _notebook, ".canvas": _canvas, ".opml": _opml, ".rtf": _rtf}.get(suffix, _entries)(path, text)
    return draft._replace(day=draft.day or dates.in_name(path.stem))


# --- JSON


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Unreadable(f"it is no JSON ({e}); is the file whole?") from None
    return found if isinstance(found, dict) else {}


def _said(value: Any) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""


def _notebook(path: pathlib.PurePath, text: str) -> Draft:
    """Its cells: what is Markdown by headings, code fenced, and what it printed; pictures are left out."""
    from batos.memory.readers import markdown

    whole = []
    book = _json(text)
    sheets = (sheet for sheet in book.get("worksheets") or () if isinstance(sheet, dict))
    cells = book.get("cells") or [cell for sheet in sheets for cell in sheet.get("cells") or ()]
    for cell in cells if isinstance(cells, list) else ():
        source = _said(cell.get("source") or cell.get("input")) if isinstance(cell, dict) else ""
        if not source.strip():
            continue
        if cell.get("cell_type") == "code":
            whole.append(f"```\n{source}\n```\n")
            printed = "".join(_printed(output) for output in cell.get("outputs") or () if isinstance(output, dict))[:_OUTPUT_CHARS]
            whole.append(f"```\n{printed}\n```\n" if printed.strip() else "")
        else:
            whole.append(f"{source}\n")
    return markdown.read_markdown(path, "\n".join(whole) or "\n")._replace(kind=_KIND)


def _printed(output: dict[str, Any]) -> str:
    data = output.get("data")
    return _said(output.get("text")) or (_said(data.get("text/plain")) if isinstance(data, dict) else "")


def _canvas(path: pathlib.PurePath, text: str) -> Draft:
    """The cards of a board, groups and lines between cards with their labels."""
    board = _json(text)
    said = []
    for one in (*(board.get("nodes") or ()), *(board.get("edges") or ())):
        if isinstance(one, dict):
            said.append(_said(one.get("text")) or _said(one.get("label")) or _said(one.get("file")) or _said(one.get("url")))
    return Draft(_KIND, path.stem, [DraftPart("\n\n".join(filter(None, said)) + "\n")])


# --- outlines


def _opml(path: pathlib.PurePath, text: str) -> Draft:
    """Its items, those within others further in."""
    try:
        tree = ElementTree.fromstring(text.encode())  # noqa: S314  expat bounds what entities grow to, and this is a child with limits
    except ElementTree.ParseError as e:
        raise Unreadable(f"it is no XML ({e}); is the file whole?") from None
    lines = []
    stack = [(one, 0) for one in reversed(tree)]
    title = " ".join((tree.findtext("head/title") or "").split())
    while stack:
        element, deep = stack.pop()
        if element.tag == "outline":
            words = [html.text_of(element.get(name, "")).strip() for name in ("text", "title", "_note")]
            link = element.get("htmlUrl") or element.get("url") or element.get("xmlUrl") or ""
            lines.append(f"{'  ' * min(deep, 12)}- {' '.join(' '.join(dict.fromkeys(filter(None, (*words, link)))).split())}\n")
        stack += [(child, deep + (element.tag == "outline")) for child in reversed(element)]
    return Draft(_KIND, title or path.stem, [DraftPart("".join(lines))])


def _rtf(path: pathlib.PurePath, text: str) -> Draft:
    if not text.startswith("{\\rtf"):
        raise Unreadable("its name says RTF, its content does not")
    striprtf = importlib.import_module("striprtf.striprtf")  # without types
    return Draft(_KIND, path.stem, [DraftPart(str(striprtf.rtf_to_text(text, errors="replace")))])


# --- calendars and address books


def _entries(path: pathlib.PurePath, text: str) -> Draft:
    """A part each event, task, note or person."""
    outline = Outline()
    day, many = 0, 0
    for name, fields in _components(text):
        said = [(label, _value(key, value)) for key, value in fields if (label := _FIELDS.get(key)) is not None]
        words = next((value for label, value in said if not label and value), name)
        lines = [f"{label}: {value}" if label else value for label, value in dict.fromkeys(said) if value]
        if lines:
            when = next((value for label, value in said if label in ("begins", "due", "birthday")), "")
            outline.parts.append(DraftPart("\n".join(lines) + "\n", " ".join(words.split())[:200], dates.found(when)))
            day, many = dates.found(when), many + 1
    if not outline.parts:
        raise Unreadable("there is no event, task or address in it")
    return Draft(_KIND, path.stem, outline.parts, day=day if many == 1 else 0)


def _components(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Events, tasks, notes and cards, each with its fields; alarms and time zones are left out."""
    wanted = {"VEVENT": "event", "VTODO": "task", "VJOURNAL": "note", "VCARD": "person"}
    open_: list[str] = []
    fields: list[tuple[str, str]] = []
    for line in _unfolded(text):
        key, _, value = line.partition(":")
        if '"' in key:  # a parameter in quotes may hold a colon
            key, value = _parted(line)
        name, *parameters = key.upper().split(";")
        name = name.rpartition(".")[2]
        if name == "BEGIN":
            open_.append(value.strip().upper())
            if open_[-1] in wanted:
                fields = []
        elif name == "END":
            if open_ and open_[-1] in wanted:
                yield wanted[open_[-1]], fields
                fields = []
            open_ = open_[:-1]
        elif open_ and open_[-1] in wanted:
            if "ENCODING=QUOTED-PRINTABLE" in parameters:
                value = quopri.decodestring(value.encode()).decode("utf-8", "replace")
            fields.append((name, value))


def _parted(line: str) -> tuple[str, str]:
    quoted = False
    for at, char in enumerate(line):
        quoted ^= char == '"'
        if char == ":" and not quoted:
            return line[:at], line[at + 1 :]
    return line, ""


def _unfolded(text: str) -> Iterator[str]:
    """The lines of the format: one that begins with a blank goes on with the one before, and so does one behind `=` at its end."""
    held: list[str] = []
    soft = False
    for line in text.split("\n"):
        if held and line[:1] in (" ", "\t") and not soft:
            held.append(line[1:])
        elif held and soft:
            held.append(line)
        else:
            if held:
                yield "".join(held)
            held = [line]
        soft = line.endswith("=") and "QUOTED-PRINTABLE" in held[0].upper()
        if soft:
            held[-1] = held[-1][:-1]
    if held:
        yield "".join(held)


def _value(key: str, value: str) -> str:
    if stamp := _STAMP.match(value.strip()):
        year, month, number, hour, minute, zulu = stamp.groups()
        return f"{year}-{month}-{number}" + (f" {hour}:{minute}{' UTC' if zulu else ''}" if hour else "")
    plain = _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], value).strip()
    if key in ("ORGANIZER", "ATTENDEE"):
        return plain.removeprefix("mailto:").removeprefix("MAILTO:")
    return ", ".join(part for part in plain.split(";") if part) if key in ("ADR", "ORG", "N") else plain
