"""PDF reader: a part for each page, with its form fields and annotations (needs pypdf). Text that is only a picture is not read."""

from __future__ import annotations

import io
import itertools
import logging
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError

from batos.errors import Unreadable
from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import dates

_LOCKED = "it is encrypted with a password; save it without one, for example with `qpdf --decrypt`"
_CRYPTO = "it is encrypted, and reading it needs the package 'cryptography': pip install 'batos[documents]'"
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010\xad]\n(?=([^\W\d_]))")
_SPACED = re.compile(r"(?<!\S)(?:[^\W_] ){3,}[^\W_](?!\S)")
"""Matches letters that were placed one by one: `I N V O I C E`."""
_NO_TITLE = re.compile(
    r"(?:untitled|ohne titel|sans titre|anonymous|document\d*|unknown|microsoft (?:word|excel|powerpoint) - .*|.*\.\w{2,5})\Z",
    re.IGNORECASE,
)
_NOTES = frozenset(
    ("/Text", "/FreeText", "/Highlight", "/Underline", "/StrikeOut", "/Squiggly", "/Caret", "/Square", "/Circle", "/Line", "/Ink", "/Stamp")
)
_OFF = ("", "/Off")
_NAMES, _NAME_CHARS = 5, 60  # greatest number of attached files that are named, and the characters of each name
_HEAD = 1024  # bytes within which a PDF starts
logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # pypdf logs every flaw that it repairs


def read_pdf(path: pathlib.PurePath, data: bytes) -> Draft:
    """Return its pages in order.

    :raises Unreadable: for an encrypted file, a broken one, or one without any text in it.
    """
    try:
        return _draft(path, data[max(0, data.find(b"%PDF-", 0, _HEAD)) :])
    except DependencyError:  # AES needs the package cryptography
        raise Unreadable(_CRYPTO) from None
    except PyPdfError as e:
        raise Unreadable(f"the PDF is broken ({e}); open it in a viewer and save it anew") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, AssertionError, NotImplementedError) as e:
        raise Unreadable(f"the PDF is broken ({type(e).__name__}: {str(e)[:120]}); open it in a viewer and save it anew") from None


def _draft(path: pathlib.PurePath, data: bytes) -> Draft:
    pdf = PdfReader(io.BytesIO(data))
    if pdf.is_encrypted and not pdf.decrypt(""):
        raise Unreadable(_LOCKED)
    parts, bare = [], []
    for number, page in enumerate(pdf.pages, 1):
        text = tidied(page.extract_text())
        if not text.strip():
            bare.append(number)
        parts.append(DraftPart(text + "".join(_beside(page)), f"page {number}"))
    if not any(part.text.strip() for part in parts):
        raise Unreadable("this PDF has no text, only pictures of pages; run it through OCR first, for example `ocrmypdf`")
    about = pdf.metadata
    title, when = (about.title if about else None), (about.creation_date_raw if about else None)
    named = " ".join(str(title or "").replace("\x00", "").strip("() ").split())
    told = [f"{_pages(bare)} of {len(parts)} have no text, only pictures: run it through OCR, for example `ocrmypdf`"] if bare else []
    if names := _attached(pdf):
        told.append(f"files that are attached to it were not read: {', '.join(names)}")
    name = path.stem if not named or _NO_TITLE.match(named) else named
    return Draft("pdf", name, parts, day=dates.day_in_name(str(when or "").removeprefix("D:")[:8]), told=tuple(told))


def _attached(pdf: PdfReader) -> list[str]:
    """Return the names of the files that are attached to a PDF, as far as its list of them is whole."""
    try:
        return [" ".join(str(name).split())[:_NAME_CHARS] for name in itertools.islice(pdf.attachments, _NAMES)]
    except (PyPdfError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return []


def tidied(text: str) -> str:
    """Return the text of a page, without hyphens that part words at ends of lines, and without spaces that part letters."""
    joined = _HYPHEN.sub(_joined, text).replace("\x00", "")
    return _SPACED.sub(lambda found: found[0].replace(" ", ""), joined) + "\n"


def _joined(found: re.Match[str]) -> str:
    """Return nothing for the hyphen that parts a word at the end of a line, in any script. A hyphen before a capital is the word's own."""
    own = found[0][0] == "\xad" or (found[1].islower() and not found.string[found.start() - 1].isupper())
    return "" if own else found[0]


def _pages(numbers: Sequence[int]) -> str:
    """Return the numbers of pages in words, those in a row together."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    said = [f"{row[0]}" if len(row) == 1 else f"{row[0]} to {row[-1]}" for row in rows]
    shown = ", ".join(said[:20]) + (f" and {len(said) - 20} more ranges" if len(said) > 20 else "")
    return f"page{'s' if len(numbers) > 1 else ''} {shown}"


# --- forms and comments


def _beside(page: Any) -> Iterator[str]:
    """Yield form values and annotations of a page, a line each."""
    seen = set()
    for reference in _resolved(page.get("/Annots")) or ():
        annotation = _resolved(reference)
        kind = annotation.get("/Subtype") if hasattr(annotation, "get") else None
        line = _filled(annotation) if kind == "/Widget" else _note(annotation) if kind in _NOTES else ""
        if line and line not in seen:
            seen.add(line)
            yield line


def _filled(widget: Any) -> str:
    """Return a field of a form with its value; empty for one that has none."""
    names, value, field, steps = [], None, widget, 0
    while hasattr(field, "get") and steps < 16:
        name = _words(field.get("/TU")) or _words(field.get("/T"))
        if name:
            names.append(name)
        value = _resolved(field.get("/V")) if value is None else value
        field, steps = _resolved(field.get("/Parent")), steps + 1
    said = ", ".join(map(_words, value)) if isinstance(value, list) else _words(value)
    if said in _OFF or not names:
        return ""
    return f"{names[0]}: {said.removeprefix('/')}\n"


def _note(annotation: Any) -> str:
    words, who = _words(annotation.get("/Contents")), _words(annotation.get("/T"))
    return f"comment{f' by {who}' if who else ''}: {words}\n" if words else ""


def _words(value: Any) -> str:
    found = _resolved(value)
    if isinstance(found, bytes):
        found = found.decode("utf-8", "replace")
    return " ".join(found.replace("\x00", "").split()) if isinstance(found, str) else "" if found is None else str(found)


def _resolved(value: Any) -> Any:
    return value.get_object() if hasattr(value, "get_object") else value
