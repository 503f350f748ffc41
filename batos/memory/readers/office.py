"""Office reader: archives of XML (docx, pptx, odt, odp and similar, epub, spreadsheets), and files of programs that hold notes.

mammoth turns Word documents into HTML, with styles, lists, tables, footnotes and comments; where it fails, the document is read by its
paragraphs, as slides and OpenDocument are. Spreadsheets need python-calamine. Files with notes are notebooks (ipynb), boards (canvas),
outlines (OPML), calendars (ics), address books (vcf) and RTF.
"""

from __future__ import annotations

import importlib
import io
import json
import pathlib
import posixpath
import quopri
import re
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from batos.errors import Unreadable
from batos.memory import drafts
from batos.memory.drafts import Draft, DraftPart, Outline
from batos.memory.readers import charset, html, plain_text

_LARGEST = 1 << 29  # greatest number of unpacked bytes of one archive
_DIGITS = re.compile(r"\d++")
_KIND = "document"


class Archive:
    """A zip archive that is a document."""

    def __init__(self, data: bytes) -> None:
        """
        :raises Unreadable: for one that is broken, or unpacks to more than fits.
        """
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile as e:
            raise Unreadable(f"it is a broken archive ({e}): open it in its program and save it anew") from None
        self.names = dict.fromkeys(self._zip.namelist())  # a dict keeps the order and answers fast: there may be very many names
        self._left = _LARGEST
        if any(info.flag_bits & 1 for info in self._zip.infolist()):
            raise Unreadable("it is encrypted with a password; save it without one")

    def read(self, name: str) -> bytes:
        """Return the bytes of a member; empty if there is none."""
        if name not in self.names:
            return b""
        with self._zip.open(name) as member:
            data = member.read(self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise Unreadable(f"it unpacks to more than {_LARGEST >> 20} MiB")
        return data

    def tree(self, name: str) -> ElementTree.Element:
        """Return a member's XML; an empty element if the member is missing or not XML."""
        try:
            return ElementTree.fromstring(self.read(name))  # noqa: S314  expat bounds what entities grow to, and this is a child with limits
        except ElementTree.ParseError:
            return ElementTree.Element("none")

    def kind(self) -> str:
        """Return the kind of document: "docx", "pptx", "xlsx", "odt", "odp", "ods" or "epub"; empty for any other archive."""
        mime = self.read("mimetype").decode("ascii", "replace").strip() if "mimetype" in self.names else ""
        by_mime = {"epub": "epub", "opendocument.text": "odt", "opendocument.presentation": "odp", "opendocument.spreadsheet": "ods"}
        for mark, kind in by_mime.items():
            if mark in mime:
                return kind
        for folder, kind in (("word/", "docx"), ("ppt/", "pptx"), ("xl/", "xlsx")):
            if any(name.startswith(folder) for name in self.names):
                return kind
        return "odt" if "content.xml" in self.names else "epub" if "META-INF/container.xml" in self.names else ""


_Reader = Callable[[pathlib.PurePath, Archive, bytes], Draft]


def read_packed(path: pathlib.PurePath, data: bytes) -> Draft:
    """Return the draft of a packed document.

    :raises Unreadable: if the data is not an archive, or the archive is broken or has a password.
    """
    archive = Archive(data)
    readers: dict[str, _Reader] = {"docx": _word, "pptx": _slides, "odt": _open, "odp": _open, "epub": _book}
    reader = readers.get(archive.kind())
    if reader is None:
        raise Unreadable("it is an archive of files; unpack it, and read what is in it")
    draft = reader(path, archive, data)
    day = draft.day or drafts.day_in_name(path.stem)
    return draft._replace(kind=_KIND, day=day)


# --- Word


def _word(path: pathlib.PurePath, archive: Archive, data: bytes) -> Draft:
    import mammoth

    try:
        made = mammoth.convert_to_html(
            io.BytesIO(data), style_map="comment-reference => sup", convert_image=mammoth.images.img_element(lambda image: {"src": ""})
        ).value
    except (ValueError, KeyError, AttributeError, TypeError, IndexError):
        return Draft(_KIND, path.stem, [DraftPart("".join(_paragraphs(archive.tree("word/document.xml"))))])
    found = html.read_html(path, made)
    extra = [DraftPart(text, title) for title, text in _margins(archive) if text.strip()]
    named = _words(archive.tree("docProps/core.xml"), "title")
    return found._replace(title=named or (found.title if made else path.stem), parts=[*found.parts, *extra])


def _margins(archive: Archive) -> Iterator[tuple[str, str]]:
    """Return the headers and footers, each text once."""
    seen = set()
    for name in sorted(archive.names):
        for kind in ("header", "footer"):
            if name.startswith(f"word/{kind}") and name.endswith(".xml"):
                text = "".join(_paragraphs(archive.tree(name)))
                if text not in seen:
                    seen.add(text)
                    yield kind, text


def _words(tree: ElementTree.Element, name: str) -> str:
    """Return the text of the first element of that name."""
    return next((" ".join("".join(one.itertext()).split()) for one in tree.iter() if _local(one) == name), "")


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _attribute(element: ElementTree.Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


_SPACES = {"tab": "\t", "br": "\n", "line-break": "\n", "s": " ", "cr": "\n"}
_DROPPED = frozenset(("instrText", "delText", "annotation", "tracked-changes", "fld"))


def _inline(paragraph: ElementTree.Element) -> str:
    """Return the text of a paragraph, in whatever runs it stands."""
    found: list[str] = []
    stack = [(paragraph, False)]
    while stack:
        element, done = stack.pop()
        name = _local(element)
        if done or name in _DROPPED:
            found.append((element.tail or "") if element is not paragraph else "")
            continue
        found.append(_SPACES.get(name, "") or (element.text or ""))
        stack.append((element, True))
        stack += [(child, False) for child in reversed(element)]
    return "".join(found).strip()


def _paragraphs(tree: ElementTree.Element) -> Iterator[str]:
    """Yield the paragraphs of a tree, a line each; rows of tables as Markdown has them."""
    inside: set[ElementTree.Element] = set()
    for element in tree.iter():
        name = _local(element)
        if element in inside:
            continue
        if name in ("tr", "table-row"):
            inside.update(element.iter())
            cells = (one for one in element.iter() if _local(one) in ("tc", "table-cell"))
            row = [" ".join(" ".join(_inline(p) for p in cell.iter() if _local(p) in ("p", "h")).split()) for cell in cells]
            if any(row):
                yield f"| {' | '.join(row)} |\n"
        elif name in ("p", "h") and (text := _inline(element)):
            inside.update(element.iter())
            yield f"{text}\n"


# --- slides


def _slides(path: pathlib.PurePath, archive: Archive, data: bytes) -> Draft:
    parts = []
    for number, name in enumerate(_slide_names(archive), 1):
        tree = archive.tree(name)
        title = next((_shape_text(shape) for shape in tree.iter() if _local(shape) == "sp" and _is_title(shape)), "")
        notes = "".join(_paragraphs(archive.tree(_related(archive, name, "notesSlide"))))
        text = "".join(_paragraphs(tree)) + (f"\nNotes: {notes}" if notes.strip() else "")
        parts.append(DraftPart(text, f"slide {number}" + (f": {title[:100]}" if title else "")))
    named = _words(archive.tree("docProps/core.xml"), "title")
    first = next((part.title.partition(": ")[2] for part in parts), "")
    return Draft(_KIND, ("" if named.lower() == "powerpoint presentation" else named) or first or path.stem, parts)


def _slide_names(archive: Archive) -> list[str]:
    """Return the slides in the order in which they are shown."""
    targets = {_attribute(one, "Id"): _attribute(one, "Target") for one in archive.tree("ppt/_rels/presentation.xml.rels")}
    entries = (one for one in archive.tree("ppt/presentation.xml").iter() if _local(one) == "sldId")
    shown = [targets.get(one.get(f"{{{_RELATIONS}}}id", ""), "") for one in entries]
    found = [name for target in shown if (name := _joined("ppt", target)) in archive.names]
    every = (name for name in archive.names if re.fullmatch(r"ppt/slides/slide\d{1,9}\.xml", name))
    return found or sorted(every, key=lambda name: int(_DIGITS.findall(name)[0]))


_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def _joined(folder: str, target: str) -> str:
    return target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))


def _related(archive: Archive, name: str, kind: str) -> str:
    folder, _, file = name.rpartition("/")
    for one in archive.tree(f"{folder}/_rels/{file}.rels"):
        if _attribute(one, "Type").endswith(f"/{kind}"):
            return _joined(folder, _attribute(one, "Target"))
    return ""


def _is_title(shape: ElementTree.Element) -> bool:
    return any(_local(one) == "ph" and one.get("type") in ("title", "ctrTitle") for one in shape.iter())


def _shape_text(shape: ElementTree.Element) -> str:
    return " ".join("".join(_paragraphs(shape)).split())


# --- OpenDocument


def _open(path: pathlib.PurePath, archive: Archive, data: bytes) -> Draft:
    """Return the draft of an OpenDocument text or presentation: headings and slides begin parts."""
    outline = Outline()
    tree = archive.tree("content.xml")
    body = next((one for one in tree.iter() if _local(one) == "body"), tree)
    inside: set[ElementTree.Element] = set()
    slides = 0
    for element in body.iter():
        name = _local(element)
        if element in inside:
            continue
        if name == "page":
            slides += 1
            outline.heading(1, f"slide {slides}")
        elif name == "h":
            inside.update(element.iter())
            level, words = _attribute(element, "outline-level"), " ".join(_inline(element).split())
            if words:
                outline.heading(min(6, int(level)) if level.isdecimal() and level.isascii() and len(level) < 3 else 1, words)
                outline.text(f"{words}\n\n")
        elif name in ("p", "table-row"):
            inside.update(element.iter())
            outline.text("".join(_paragraphs(element)) + ("\n" if name == "p" else ""))
    named = _words(archive.tree("meta.xml"), "title")
    return Draft(_KIND, named or (outline.first if not slides else "") or path.stem, outline.done())


# --- books


def _book(path: pathlib.PurePath, archive: Archive, data: bytes) -> Draft:
    """Return the chapters in their order."""
    package = next((_attribute(one, "full-path") for one in archive.tree("META-INF/container.xml").iter() if _local(one) == "rootfile"), "")
    tree = archive.tree(package)
    folder = posixpath.dirname(package)
    items = {one.get("id", ""): one for one in tree.iter() if _local(one) == "item"}
    order = [items[one.get("idref", "")] for one in tree.iter() if _local(one) == "itemref" and one.get("idref", "") in items]
    names = [_joined(folder, urllib.parse.unquote(one.get("href", ""))) for one in order]
    pages = [name for name in archive.names if name.lower().endswith((".xhtml", ".html", ".htm"))]
    found = [name for name in names if name in archive.names] or pages
    parts: list[DraftPart] = []
    for number, name in enumerate(dict.fromkeys(found), 1):
        chapter = html.read_html(pathlib.PurePath(f"chapter {number}"), charset.decoded(archive.read(name)).text)
        parts += [part._replace(title=part.title or chapter.title) for part in chapter.parts]
    title, author = _words(tree, "title"), _words(tree, "creator")
    return Draft(_KIND, " by ".join(filter(None, (title, author))) or path.stem, parts)


def read_sheets(path: pathlib.PurePath, data: bytes) -> Draft:
    """Return a part each sheet of a workbook.

    :raises Unreadable: for one that is broken, encrypted or empty.
    """
    import python_calamine as calamine

    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        sheets = [(name, book.get_sheet_by_name(name).to_python()) for name in book.sheet_names]
    except calamine.PasswordError:
        raise Unreadable("it is encrypted with a password; save it without one") from None
    except (calamine.CalamineError, OSError, ValueError) as e:
        if words := _strings(data):
            return Draft(
                plain_text.TABLE_KIND,
                path.stem,
                [DraftPart(words)],
                told=("the workbook is broken: only the words in it were read, not where they stand",),
            )
        raise Unreadable(f"the workbook is broken ({str(e)[:120]}); open it in its program and save it anew") from None
    parts = [
        DraftPart(text, name)
        for name, rows in sheets
        if (text := "".join(plain_text.table_lines([_shown(cell) for cell in row] for row in rows))).strip()
    ]
    return Draft(plain_text.TABLE_KIND, path.stem, parts, day=drafts.day_in_name(path.stem))


def _strings(data: bytes) -> str:
    """Return the words that a broken workbook's cells share, a line each."""
    try:
        tree = Archive(data).tree("xl/sharedStrings.xml")
    except Unreadable:
        return ""
    return "".join(f"{words}\n" for one in tree if (words := " ".join("".join(one.itertext()).split())))


def _shown(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).removesuffix(" 00:00:00")


_OUTPUT_CHARS = 2000  # greatest number of characters of a notebook cell's output
_FIELDS = {
    "SUMMARY": "", "DTSTART": "begins", "DTEND": "ends", "DUE": "due", "COMPLETED": "completed", "STATUS": "status", "RRULE": "repeats",
    "LOCATION": "place", "ORGANIZER": "organizer", "ATTENDEE": "with", "CATEGORIES": "categories", "URL": "link", "DESCRIPTION": "",
    "COMMENT": "comment", "FN": "", "NICKNAME": "nickname", "ORG": "organization", "TITLE": "title", "ROLE": "role", "TEL": "telephone",
    "EMAIL": "mail", "ADR": "address", "BDAY": "birthday", "NOTE": "note",
}  # fmt: skip
"""Fields of calendars and address books that are read -> their labels in the text."""
_ESCAPED = re.compile(r"\\([nN,;\\])")
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?\Z")


def read_structured(path: pathlib.PurePath, text: str) -> Draft:
    """Return the draft of a file, read by the suffix of its name.

    :raises Unreadable: if the file is not of its kind.
    """
    suffix = path.suffix.lower()
    draft = {".ipynb": _notebook, ".canvas": _canvas, ".opml": _opml, ".rtf": _rtf}.get(suffix, _entries)(path, text)
    return draft._replace(day=draft.day or drafts.day_in_name(path.stem))


# --- JSON


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Unreadable(f"it is not valid JSON ({e}); see whether the file is complete") from None
    return found if isinstance(found, dict) else {}


def _said(value: Any) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""


def _notebook(path: pathlib.PurePath, text: str) -> Draft:
    """Return the cells of a notebook: Markdown by headings, code fenced, and printed output; pictures are left out."""
    from batos.memory.readers import plain_text

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
    return plain_text.read_markdown(path, "\n".join(whole) or "\n")._replace(kind=_KIND)


def _printed(output: dict[str, Any]) -> str:
    data = output.get("data")
    return _said(output.get("text")) or (_said(data.get("text/plain")) if isinstance(data, dict) else "")


def _canvas(path: pathlib.PurePath, text: str) -> Draft:
    """Return the cards of a board, groups and lines between cards with their labels."""
    board = _json(text)
    said = []
    for one in (*(board.get("nodes") or ()), *(board.get("edges") or ())):
        if isinstance(one, dict):
            said.append(_said(one.get("text")) or _said(one.get("label")) or _said(one.get("file")) or _said(one.get("url")))
    return Draft(_KIND, path.stem, [DraftPart("\n\n".join(filter(None, said)) + "\n")])


# --- outlines


def _opml(path: pathlib.PurePath, text: str) -> Draft:
    """Return its items, those within others further in."""
    try:
        tree = ElementTree.fromstring(text.encode())  # noqa: S314  expat bounds what entities grow to, and this is a child with limits
    except ElementTree.ParseError as e:
        raise Unreadable(f"it is not valid XML ({e}); see whether the file is complete") from None
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
    striprtf = importlib.import_module("striprtf.striprtf")  # the package has no types
    return Draft(_KIND, path.stem, [DraftPart(str(striprtf.rtf_to_text(text, errors="replace")))])


# --- calendars and address books


def _entries(path: pathlib.PurePath, text: str) -> Draft:
    """Return a part each event, task, note or person."""
    outline = Outline()
    day, many = 0, 0
    for name, fields in _components(text):
        said = [(label, _value(key, value)) for key, value in fields if (label := _FIELDS.get(key)) is not None]
        words = next((value for label, value in said if not label and value), name)
        lines = [f"{label}: {value}" if label else value for label, value in dict.fromkeys(said) if value]
        if lines:
            when = next((value for label, value in said if label in ("begins", "due", "birthday")), "")
            outline.parts.append(DraftPart("\n".join(lines) + "\n", " ".join(words.split())[:200], drafts.day_in(when)))
            day, many = drafts.day_in(when), many + 1
    if not outline.parts:
        raise Unreadable("it has no event, task or address")
    return Draft(_KIND, path.stem, outline.parts, day=day if many == 1 else 0)


def _components(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield events, tasks, notes and cards with their fields; omit alarms and time zones."""
    wanted = {"VEVENT": "event", "VTODO": "task", "VJOURNAL": "note", "VCARD": "person"}
    open_: list[str] = []
    fields: list[tuple[str, str]] = []
    for line in _unfolded(text):
        key, _, value = line.partition(":")
        if '"' in key:  # a quoted parameter may contain a colon
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
    """Yield the lines of the format: one that begins with a blank goes on with the one before, and so does one behind `=` at its end."""
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
