"""Office reader: archives of XML (docx, pptx, odt, odp and similar, epub, spreadsheets).

mammoth turns Word documents into HTML, with styles, lists, tables, footnotes and comments. Where mammoth fails, the document is read by its
paragraphs, as slides and OpenDocument are. Spreadsheets need python-calamine.
"""

from __future__ import annotations

import io
import pathlib
import posixpath
import re
import urllib.parse
import zipfile
from collections.abc import Callable, Collection, Iterator
from typing import Any
from xml.etree import ElementTree

from batos.errors import Unreadable
from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import charset, dates, html, plain_text
from batos.memory.readers.outline import Outline

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
        self.names = {name.replace("\\", "/"): name for name in self._zip.namelist()}
        """Names of the members, in order, each with the name that the archive has for it: some programs write `\\` for `/`."""
        self._left = _LARGEST
        if any(info.flag_bits & 1 for info in self._zip.infolist()):
            raise Unreadable("it is encrypted with a password; save it without one")

    def read(self, name: str) -> bytes:
        """Return the bytes of a member; empty if there is none."""
        if name not in self.names:
            return b""
        with self._zip.open(self.names[name]) as member:
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
    day = draft.day or dates.day_in_name(path.stem)
    return draft._replace(kind=_KIND, day=day)


# --- Word


def _word(path: pathlib.PurePath, archive: Archive, data: bytes) -> Draft:
    import mammoth

    known, hidden = _known_to_mammoth(archive, data)
    try:
        made = mammoth.convert_to_html(
            io.BytesIO(known),
            style_map="comment-reference => sup",
            convert_image=mammoth.images.img_element(lambda image: {"src": ""}),
        ).value
    except (ValueError, KeyError, AttributeError, TypeError, IndexError):
        found = Draft(_KIND, path.stem, [DraftPart("".join(_paragraphs(archive.tree("word/document.xml"))))])
        beside = [(kind, "".join(_paragraphs(archive.tree(f"word/{kind}.xml")))) for kind in ("footnotes", "endnotes", "comments")]
        made = ""
    else:
        found, beside = html.read_html(path, made, whole=True), []
    pictured = _pictured(archive.tree("word/document.xml"))
    alone = [f"[{words}]\n" for words in pictured if not any(f"[{words}]" in part.text for part in found.parts)]
    drawn = "".join((*_drawn(archive, "word/document.xml"), *alone))
    extra = [DraftPart(text, title) for title, text in (*beside, *_margins(archive), ("drawings", drawn)) if text.strip()]
    named = _words(archive.tree("docProps/core.xml"), "title")
    chunks = sum(kind == "aFChunk" for kind, _ in _relations(archive, "word/document.xml"))
    told = [f"documents that are put into it were not read: {chunks}"] if chunks else []
    told += [f"{hidden} characters that are hidden in it were left out"] if hidden else []
    return found._replace(title=named or (found.title if made else path.stem), parts=[*found.parts, *extra], told=(*found.told, *told))


_W, _M = ("{http://schemas.openxmlformats.org/wordprocessingml/2006/main}", "{http://schemas.openxmlformats.org/officeDocument/2006/math}")
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_UNKNOWN = (b":vanish", b"fldSimple", b":ruby", b":oMath", b":bdo", b":dir ", b"AlternateContent")
_SIGNS = {"f": "/", "sSup": "^", "sSub": "_", "rad": "√", "sSubSup": " ", "nary": " "}


def _pictured(tree: ElementTree.Element) -> list[str]:
    """Return the alternative texts of pictures, charts and drawings, each once; names of files are none."""
    found = (one.get("descr") or one.get("alt") or "" for one in tree.iter() if _local(one) in ("docPr", "cNvPr", "shape"))
    return [words for text in dict.fromkeys(found) if (words := " ".join(text.split())) and not _FILE_NAME.fullmatch(words)]


_FILE_NAME = re.compile(r"\S{1,200}\.(?:png|jpe?g|gif|bmp|tiff?|svg|emf|wmf|webp|heic)", re.IGNORECASE)


def _known_to_mammoth(archive: Archive, data: bytes) -> tuple[bytes, int]:
    """Return a Word document in which elements that mammoth leaves out with their text have names that it knows. They are fields, text with
    its pronunciation, formulas, text from right to left, text boxes of which there is one form. Hidden text is taken out: return the number
    of its characters, too.
    """
    odd = [
        name for name in archive.names if re.fullmatch(r"word/[^/]{1,80}\.xml", name) and any(one in archive.read(name) for one in _UNKNOWN)
    ]
    if not odd and all(name == own for name, own in archive.names.items()):
        return data, 0
    hidden = 0
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as copy:
        for name in archive.names:
            if name in odd:
                tree = archive.tree(name)
                hidden += _without_hidden(tree) if name == "word/document.xml" else 0
                _rename(tree)
                copy.writestr(name, ElementTree.tostring(tree, "utf-8", xml_declaration=True))
            elif name.endswith((".xml", ".rels")):
                copy.writestr(name, archive.read(name))
    return made.getvalue(), hidden


def _without_hidden(tree: ElementTree.Element) -> int:
    """Take the text out of runs that are hidden; return its number of characters."""
    hidden = 0
    for run in tree.iter(f"{_W}r"):
        mark = run.find(f"{_W}rPr/{_W}vanish")
        if mark is not None and mark.get(f"{_W}val") not in ("0", "false", "off"):
            hidden += sum(len(text) for one in run.iter(f"{_W}t") for text in one.itertext())
            run[:] = [child for child in run if child.tag == f"{_W}rPr"]
    return hidden


def _rename(tree: ElementTree.Element) -> None:
    for element in list(tree.iter()):
        if element.tag in (f"{_W}fldSimple", f"{_W}bdo", f"{_W}dir"):
            element.tag = f"{_W}smartTag"
        elif element.tag == f"{_W}ruby":
            spoken = "".join(text for one in element.iter(f"{_W}rt") for text in one.itertext())
            element[:] = [child for one in element.iter(f"{_W}rubyBase") for child in one] + [_run(f"({spoken})")]
            element.tag = f"{_W}smartTag"
        elif element.tag == f"{_M}oMath":
            element[:] = [_run(_formula(element))]
            element.tag = f"{_W}smartTag"
        elif element.tag == f"{_COMPATIBLE}AlternateContent":
            boxes = [box for one in element.findall(f"{_COMPATIBLE}Choice") for box in one.iter(f"{_W}txbxContent")]
            fallback = element.find(f"{_COMPATIBLE}Fallback")
            if fallback is None:
                fallback = ElementTree.SubElement(element, f"{_COMPATIBLE}Fallback")
            if boxes and next(fallback.iter(f"{_W}t"), None) is None:
                fallback[:] = boxes


def _run(text: str) -> ElementTree.Element:
    run = ElementTree.Element(f"{_W}r")
    words = ElementTree.SubElement(run, f"{_W}t", {"{http://www.w3.org/XML/1998/namespace}space": "preserve"})
    words.text = text
    return run


def _formula(element: ElementTree.Element) -> str:
    """Return a formula in one line."""
    if _local(element) == "t":
        return element.text or ""
    parts = [text for child in element if not _local(child).endswith("Pr") and (text := _formula(child))]
    sign = _SIGNS.get(_local(element), "")
    return sign + "".join(parts) if sign == "√" else sign.join(parts)


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


_SPACES = {"tab": "\t", "br": "\n", "line-break": "\n", "s": " ", "cr": "\n", "noBreakHyphen": "\u2011"}
_DROPPED = frozenset(("instrText", "delText", "moveFrom", "tracked-changes", "fld", "note-citation"))
_MARK = re.compile(r"\[[^\[\]]{0,20}\]")  # of a note in a heading
_ASIDE = {"note": "note-citation", "annotation": "creator"}
"""Elements whose text stands beside the paragraph -> the element in them that says which, or who."""


def _inline(paragraph: ElementTree.Element) -> str:
    """Return the text of a paragraph, in whatever runs it stands; its notes and comments follow it, and so do those of boxes in it."""
    found: list[str] = []
    aside: list[str] = []
    stack = [(paragraph, False)]
    while stack:
        element, done = stack.pop()
        name = _local(element)
        nested = name in ("p", "h") and element is not paragraph
        tail = (element.tail or "") if element is not paragraph else ""
        if done or name in _DROPPED:
            found += ["\n" if nested else "", tail]
        elif name in _ASIDE and element is not paragraph:
            mark = next(("".join(one.itertext()) for one in element.iter() if _local(one) == _ASIDE[name]), "").strip()
            text = " ".join(_inline(element).split())
            found += [f"[{mark}]" if name == "note" else "", tail]
            aside.append(f"\n[{mark}] {text}" if name == "note" else f"\ncomment{f' by {mark}' if mark else ''}: {text}")
        elif name == "ruby-text":
            found += [f"({''.join(element.itertext())})", tail]
        else:
            found += ["\n" if nested or name in ("title", "desc") else "", _SPACES.get(name, "") or (element.text or "")]
            stack.append((element, True))
            stack += [(child, False) for child in reversed(_shown(element))]
    lines = (line.strip() for line in "".join(found).split("\n"))
    return "\n".join(filter(None, lines)) + "".join(aside)


def _shown(element: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the children of an element; of two forms of one drawing, the first that has text, and of a comment its paragraphs."""
    if _local(element) == "annotation":
        return [child for child in element if _local(child) in ("p", "h", "list")]
    if _local(element) != "AlternateContent":
        return list(element)
    return next(([child] for child in element if any(text.strip() for text in child.itertext())), [])


def _within(tree: ElementTree.Element, names: Collection[str]) -> Iterator[ElementTree.Element]:
    """Yield the elements of these names in a tree; none that is in another of them, nor in what is deleted."""
    stack = list(reversed(tree))
    while stack:
        element = stack.pop()
        if _local(element) in names:
            yield element
        elif _local(element) not in _DROPPED:
            stack += reversed(element)


def _paragraphs(tree: ElementTree.Element) -> Iterator[str]:
    """Yield the paragraphs of a tree, a line each; rows of tables as Markdown has them."""
    inside: set[ElementTree.Element] = set()
    for element in tree.iter():
        name = _local(element)
        if element in inside:
            continue
        if name in _DROPPED:
            inside.update(element.iter())
        elif name == "AlternateContent":
            shown = _shown(element)
            inside.update(one for child in element if child not in shown for one in child.iter())
        elif name in ("tr", "table-row"):
            inside.update(element.iter())
            cells = _within(element, ("tc", "table-cell"))
            row = [" ".join(" ".join(_inline(p) for p in _within(cell, ("p", "h"))).split()) for cell in cells]
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
        pictured = (f"[{words}]\n" for words in _pictured(tree))
        text = "".join((*_paragraphs(tree), *pictured, *_drawn(archive, name))) + (f"\nNotes: {notes}" if notes.strip() else "")
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
    return next((target for found, target in _relations(archive, name) if found == kind), "")


def _relations(archive: Archive, name: str) -> Iterator[tuple[str, str]]:
    """Yield the members that one refers to, each with the kind of the relation."""
    folder, _, file = name.rpartition("/")
    for one in archive.tree(f"{folder}/_rels/{file}.rels"):
        yield _attribute(one, "Type").rpartition("/")[2], _joined(folder, _attribute(one, "Target"))


def _drawn(archive: Archive, name: str) -> Iterator[str]:
    """Yield the words of diagrams and charts in a document or slide, and comments beside a slide, a line each."""
    for kind, target in _relations(archive, name):
        if kind == "diagramData":
            yield from _paragraphs(archive.tree(target))
        elif kind == "chart":
            yield from _charted(archive.tree(target))
        elif kind == "comments" and name.startswith("ppt/"):
            tree = archive.tree(target)
            said = [" ".join("".join(one.itertext()).split()) for one in tree.iter() if _local(one) == "text"]
            yield from (f"comment: {text}\n" for text in said or map(str.strip, _paragraphs(tree)) if text)


def _charted(tree: ElementTree.Element) -> Iterator[str]:
    """Yield the words of a chart, and the values of each of its series with their names."""
    yield from _paragraphs(tree)
    for series in (one for one in tree.iter() if _local(one) == "ser"):
        names, labels, values = (_points(series, *kinds) for kinds in (("tx",), ("cat", "xVal"), ("val", "yVal")))
        pairs = ", ".join(f"{labels.get(at) or at + 1}: {value}" for at, value in values.items())
        yield f"{' '.join(names.values())}: {pairs}\n" if names else f"{pairs}\n"


def _points(series: ElementTree.Element, *kinds: str) -> dict[int, str]:
    """Return the cached cells of a series by their places."""
    points = (one for child in series if _local(child) in kinds for one in child.iter() if _local(one) == "pt")
    found = {}
    for at, point in enumerate(points):
        text = " ".join("".join(point.itertext()).split())
        place = _attribute(point, "idx")
        found[int(place) if place.isdecimal() and len(place) < 7 else at] = text
    return found


def _is_title(shape: ElementTree.Element) -> bool:
    return any(_local(one) == "ph" and one.get("type") in ("title", "ctrTitle") for one in shape.iter())


def _shape_text(shape: ElementTree.Element) -> str:
    return " ".join("".join(_paragraphs(shape)).split())


# --- OpenDocument


def _open(path: pathlib.PurePath, archive: Archive, data: bytes) -> Draft:
    return _opened(path, archive.tree("content.xml"), archive.tree("meta.xml"))


def read_flat(path: pathlib.PurePath, data: bytes) -> Draft:
    """Return the draft of an OpenDocument that is one file of XML.

    :raises Unreadable: if it is not XML.
    """
    try:
        tree = ElementTree.fromstring(data)  # noqa: S314  expat bounds what entities grow to, and this is a child with limits
    except ElementTree.ParseError as e:
        raise Unreadable(f"it is not valid XML ({e}); see whether the file is complete") from None
    tables = [one for sheet in tree.iter() if _local(sheet) == "spreadsheet" for one in _within(sheet, ("table",))]
    if not tables:
        return _opened(path, tree, tree)._replace(day=dates.day_in_name(path.stem))
    parts = [
        DraftPart(text, _attribute(one, "name"))
        for one in tables
        if (text := "".join((*plain_text.table_lines(_rows(one)), *_noted_on(one)))).strip()
    ]
    return Draft(plain_text.TABLE_KIND, path.stem, parts, day=dates.day_in_name(path.stem))


_REPEATED = 100  # greatest number of columns that a repeated cell with text stands for


def _rows(table: ElementTree.Element) -> Iterator[list[str]]:
    """Yield the rows of a table in OpenDocument."""
    for row in _within(table, ("table-row",)):
        cells: list[str] = []
        for cell in _within(row, ("table-cell", "covered-table-cell")):
            text = " ".join(" ".join(_inline(one) for one in cell if _local(one) == "p").split())
            cells += [text] * min(_REPEATED, _repeated(cell, "number-columns-repeated"))
        yield cells


def _listed(body: ElementTree.Element) -> dict[ElementTree.Element, str]:
    """Return the paragraphs that begin an item of a list, each with the mark of the item."""
    marks: dict[ElementTree.Element, str] = {}
    stack = [(body, 0)]
    while stack:
        element, deep = stack.pop()
        name = _local(element)
        if name == "list-item" and len(element) and _local(element[0]) in ("p", "h"):
            marks[element[0]] = "  " * min(8, deep - 1) + "- "
        stack += [(child, deep + (name == "list")) for child in element]
    return marks


def _opened(path: pathlib.PurePath, tree: ElementTree.Element, about: ElementTree.Element) -> Draft:
    """Return the draft of an OpenDocument text or presentation: headings and slides begin parts."""
    outline = Outline()
    body = next((one for one in tree.iter() if _local(one) == "body"), tree)
    marks = _listed(body)
    inside: set[ElementTree.Element] = set()
    slides = 0
    for element in body.iter():
        name = _local(element)
        if element in inside:
            continue
        if name in _DROPPED:
            inside.update(element.iter())
        elif name == "page":
            slides += 1
            outline.heading(1, f"slide {slides}")
        elif name == "h":
            inside.update(element.iter())
            words, _, aside = _inline(element).partition("\n[")
            level, words = _attribute(element, "outline-level"), " ".join(words.split())
            if words:
                name = _MARK.sub("", words) if aside else words
                outline.heading(min(6, int(level)) if level.isdecimal() and level.isascii() and len(level) < 3 else 1, name)
                outline.text(f"{words}\n\n" + (f"[{aside}\n\n" if aside else ""))
        elif name in ("p", "table-row"):
            inside.update(element.iter())
            mark = marks.get(element, "")
            outline.text(mark + "".join(_paragraphs(element)) + ("\n" if name == "p" and not mark else ""))
    named = next((_words(one, "title") for one in about.iter() if _local(one) == "meta"), "")
    return Draft(_KIND, named or (outline.first if not slides else "") or path.stem, outline.done())


# --- books


def _book(path: pathlib.PurePath, archive: Archive, data: bytes) -> Draft:
    """Return the chapters in their order."""
    package = next((_attribute(one, "full-path") for one in archive.tree("META-INF/container.xml").iter() if _local(one) == "rootfile"), "")
    if package not in archive.names:
        package = next((name for name in archive.names if name.lower().endswith(".opf")), "")
    tree = archive.tree(package)
    folder = posixpath.dirname(package)
    items = {one.get("id", ""): one for one in tree.iter() if _local(one) == "item"}
    order = [items[one.get("idref", "")] for one in tree.iter() if _local(one) == "itemref" and one.get("idref", "") in items]
    names = [_joined(folder, urllib.parse.unquote(one.get("href", ""))) for one in order]
    pages = [name for name in archive.names if name.lower().endswith((".xhtml", ".html", ".htm"))]
    found = [name for name in names if name in archive.names] or pages
    parts: list[DraftPart] = []
    told: list[str] = []
    for number, name in enumerate(dict.fromkeys(found), 1):
        try:
            chapter = html.read_html(pathlib.PurePath(f"chapter {number}"), charset.decoded(archive.read(name)).text, whole=True)
        except Unreadable as e:
            told.append(f"chapter {number} ({posixpath.basename(name)}) was not read: {e.message}")
            continue
        parts += [part._replace(title=part.title or chapter.title) for part in chapter.parts]
        told += chapter.told
    missing = [name for name in names if name not in archive.names]
    told += [f"chapters that its list names are not in the file: {len(missing)}"] if missing and parts else []
    if told and not parts:
        protected = "META-INF/encryption.xml" in archive.names
        raise Unreadable("its chapters are encrypted against copying (DRM): only its own program reads them" if protected else told[0])
    title, author = _words(tree, "title"), _words(tree, "creator")
    return Draft(_KIND, " by ".join(filter(None, (title, author))) or path.stem, parts, told=tuple(told))


def read_sheets(path: pathlib.PurePath, data: bytes) -> Draft:
    """Return a part each sheet of a workbook.

    :raises Unreadable: for one that is broken, encrypted or empty.
    """
    import python_calamine as calamine

    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        sheets = [(name, _filled(book.get_sheet_by_name(name))) for name in book.sheet_names]
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
        if (text := "".join(plain_text.table_lines([_written(cell) for cell in row] for row in rows))).strip()
    ]
    told: tuple[str, ...] = ()
    if data.startswith(b"PK"):
        archive = Archive(data)
        if empty := sum(len(_NO_RESULT.findall(archive.read(name))) for name in archive.names if _SHEET.fullmatch(name)):
            told = (f"{empty} of its formulas have no result in it: open it in its program and save it",)
        if text := "".join((*_noted(archive), *_noted_in_open(archive))):
            parts.append(DraftPart(text, "comments"))
        if any(re.fullmatch(r"xl/(?:threadedC|c)omments[^/]{0,80}\.bin", name) for name in archive.names):
            told = (*told, "comments on its cells were not read: save it as .xlsx")
    return Draft(plain_text.TABLE_KIND, path.stem, parts, day=dates.day_in_name(path.stem), told=told)


_SHEET = re.compile(r"xl/worksheets/[^/]{1,80}\.xml")
_NO_RESULT = re.compile(rb"<f(?:[ ][^<>]{0,500})?(?:/>|>[^<]*+</f>)[ \r\n\t]{0,20}</c>")
_SPAN_CHARS, _SPANS = 200, 10_000  # greatest length of a cell that is repeated in the rows it spans, and number of those


def _filled(sheet: Any) -> list[list[Any]]:
    """Return the rows of a sheet. A cell that goes on in the rows below is repeated in them, because a row is read without those above."""
    rows: list[list[Any]] = sheet.to_python()
    first_row, first = sheet.start or (0, 0)
    for (top, left), (bottom, _) in (sheet.merged_cell_ranges or [])[:_SPANS]:
        place, column = top - first_row, left - first
        if not (0 <= place < len(rows) and 0 <= column < len(rows[place])) or not 0 < len(str(rows[place][column])) <= _SPAN_CHARS:
            continue
        for row in rows[place + 1 : bottom - first_row + 1]:
            if column < len(row) and row[column] in ("", None):
                row[column] = rows[place][column]
    return rows


def _strings(data: bytes) -> str:
    """Return the words that a broken workbook's cells share, a line each."""
    try:
        tree = Archive(data).tree("xl/sharedStrings.xml")
    except Unreadable:
        return ""
    return "".join(f"{words}\n" for one in tree if (words := " ".join("".join(one.itertext()).split())))


def _noted(archive: Archive) -> Iterator[str]:
    """Yield the comments on cells of a workbook with sheet and author, and the texts in boxes on its sheets, a line each."""
    people = {
        _attribute(one, "id"): _attribute(one, "displayName")
        for name in archive.names
        if re.fullmatch(r"xl/persons/[^/]{1,80}\.xml", name)
        for one in archive.tree(name)
    }
    sheets = _sheets_of(archive)
    for name in sorted(name for name in archive.names if re.fullmatch(r"xl/(?:threadedC|c)omments?/?[^/]{0,80}\.xml", name)):
        tree = archive.tree(name)
        authors = ["".join(one.itertext()).strip() for one in tree.iter() if _local(one) == "author"]
        for one in tree.iter():
            words = " ".join("".join(text for part in one if _local(part) == "text" for text in part.itertext()).split())
            if _attribute(one, "ref") and words and not words.startswith("[Threaded comment]"):
                number = _attribute(one, "authorId")
                known = authors[int(number)] if number.isdecimal() and len(number) < 6 and int(number) < len(authors) else ""
                yield _comment(sheets.get(name, ""), _attribute(one, "ref"), people.get(_attribute(one, "personId")) or known, words)
    for name in sorted(name for name in archive.names if re.fullmatch(r"xl/drawings/drawing\d{1,9}\.xml", name)):
        yield from _paragraphs(archive.tree(name))
        yield from (f"[{words}]\n" for words in _pictured(archive.tree(name)))


def _sheets_of(archive: Archive) -> dict[str, str]:
    """Return the members of a workbook that sheets refer to, each with the name of its sheet."""
    targets = {_attribute(one, "Id"): _joined("xl", _attribute(one, "Target")) for one in archive.tree("xl/_rels/workbook.xml.rels")}
    found = {}
    for one in archive.tree("xl/workbook.xml").iter():
        if _local(one) == "sheet":
            member = targets.get(one.get(f"{{{_RELATIONS}}}id", ""), "")
            found.update({target: _attribute(one, "name") for _, target in _relations(archive, member)})
    return found


def _noted_in_open(archive: Archive) -> Iterator[str]:
    """Yield the comments on cells of a table in OpenDocument, and the texts in boxes on its sheets, a line each."""
    if archive.kind() != "ods":
        return
    for sheet in (one for one in archive.tree("content.xml").iter() if _local(one) == "table"):
        yield from _noted_on(sheet)


def _noted_on(sheet: ElementTree.Element) -> Iterator[str]:
    """Yield the comments on the cells of a sheet in OpenDocument, and the texts in boxes on it, a line each."""
    row = 0
    for line in _within(sheet, ("table-row", "shapes")):
        if _local(line) == "shapes":
            yield from _paragraphs(line)
            continue
        row += 1
        column = 0
        for cell in _within(line, ("table-cell", "covered-table-cell")):
            column += 1
            for one in cell:
                if _local(one) == "annotation":
                    said = " ".join(" ".join(_inline(p) for p in _within(one, ("p",))).split())
                    yield _comment(_attribute(sheet, "name"), f"{_column(column)}{row}", _words(one, "creator"), said) if said else ""
                elif _local(one) not in ("p", "table"):
                    yield from _paragraphs(one)
            column += _repeated(cell, "number-columns-repeated") - 1
        row += _repeated(line, "number-rows-repeated") - 1


def _repeated(element: ElementTree.Element, name: str) -> int:
    times = _attribute(element, name)
    return int(times) if times.isdecimal() and times.isascii() and 1 <= len(times) < 8 else 1


def _column(number: int) -> str:
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def _comment(sheet: str, cell: str, who: str, words: str) -> str:
    """Return a comment on a cell in a line. Programs write the author before the words, too."""
    place = f"{sheet}!{cell}" if sheet else cell
    if not who or who.startswith("tc="):
        return f"comment on {place}: {words}\n"
    return f"comment on {place} by {who}: {words.removeprefix(f'{who}:').strip()}\n"


def _written(cell: object) -> str:
    """Return a cell as its program shows it: 0.3 is not the sum of 0.1 and 0.2 in binary numbers."""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else f"{cell:.15g}"
    return str(cell).removesuffix(" 00:00:00")
