"""Readers: turn the bytes of a file into a draft of a document. The content decides on the kind of file, then the name.

They run in a child process with limits (`batos.memory.ingest`), which calls `serve`. A reader raises `Unreadable` with the fault and a
remedy, whatever the bytes are.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pathlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from batos.errors import BatosError, Unreadable
from batos.memory.drafts import Draft, DraftPart, Turn
from batos.memory.readers import charset

VERSION = 6
"""Version of the readers. Increase it when the readers can read more; the daemon then tries refused files again."""
PACKAGES = ("selectolax", "pypdf", "cryptography", "mammoth", "python_calamine", "striprtf")
"""Packages of the extra `documents` that the readers need."""
_SUFFIXES = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mdx", ".rmd", ".qmd"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
    **dict.fromkeys((".docx", ".docm", ".dotx", ".pptx", ".pptm", ".ppsx", ".odt", ".ott", ".odp", ".epub"), "packed"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "sheets"),
    **dict.fromkeys((".fodt", ".fods", ".fodp"), "flat"),
    **dict.fromkeys((".srt", ".vtt", ".sbv"), "subtitles"),
    **dict.fromkeys((".csv", ".tsv"), "tables"),
    **dict.fromkeys((".eml", ".mbox", ".mht", ".mhtml"), "mail"),
    **dict.fromkeys((".ipynb", ".canvas", ".opml", ".ics", ".ical", ".vcf", ".rtf"), "structured"),
    **dict.fromkeys(
        (
            ".py", ".pyi", ".js", ".mjs", ".ts", ".tsx", ".jsx", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".java", ".kt", ".go", ".rs",
            ".rb", ".php", ".swift", ".scala", ".sh", ".bash", ".zsh", ".sql", ".lua", ".pl", ".r", ".jl", ".hs", ".ml", ".ex", ".exs",
            ".erl", ".clj", ".el", ".lisp", ".css", ".scss", ".toml", ".yaml", ".yml", ".json", ".jsonl", ".ini", ".cfg", ".xml", ".make",
            ".cmake", ".st", ".ndjson", ".geojson", ".jsonc",
        ),
        "code",
    ),
}  # fmt: skip
_TEXTS = (".txt", ".text", ".log", ".rst", ".org", ".adoc", ".tex", "")
SUFFIXES = frozenset((*_SUFFIXES, *_TEXTS))
"""Suffixes of the files that an ingest of a folder reads. A file that is named itself is read whatever its suffix."""
_OLD = {".doc": "docx", ".ppt": "pptx", ".pps": "pptx", ".msg": "eml", ".wpd": "odt", ".pages": "docx", ".key": "pptx", ".numbers": "xlsx"}
"""Suffixes of files that no reader reads -> a kind in which their programs can save them."""
_MODULES = {
    "read_text": "batos.memory.readers.plain_text",
    "read_code": "batos.memory.readers.plain_text",
    "read_conversation": "batos.memory.readers.conversation",
    "read_stamped": "batos.memory.readers.conversation",
    "read_messages": "batos.memory.readers.conversation",
    "read_page": "batos.memory.readers.conversation",
    "read_markdown": "batos.memory.readers.plain_text",
    "read_tables": "batos.memory.readers.plain_text",
    "read_subtitles": "batos.memory.readers.plain_text",
    "read_sheets": "batos.memory.readers.office",
    "read_flat": "batos.memory.readers.office",
    "read_packed": "batos.memory.readers.office",
    "read_structured": "batos.memory.readers.notes",
    "read_html": "batos.memory.readers.html",
    "read_mail": "batos.memory.readers.mail",
    "read_pdf": "batos.memory.readers.pdf",
}
"""Function that reads a kind of file -> its module, imported on first use: most of them load packages."""
_PACKED, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_HEAD = 1024
_FOLDED = re.compile(rb"(?<=[\x80-\xff])\r?\n[ \t](?=[\x80-\xbf])")  # lines of calendars are folded within characters, too
_SURROGATE = re.compile("[\ud800-\udfff]")
_PIECE_CHARS = 1 << 17  # characters of text that `serve` yields at once
_PIECE_TURNS = 2000
_PIECE_BYTES = 100  # bytes, about, of a piece beside its text
_TITLE_CHARS = 300  # greatest number of characters of a title: of a document, and of a part, which may have the name of its file
# doubts of one file, without repetitions, and the characters of each: a mailbox may have one for each message
_DOUBTS, _DOUBT_CHARS = 20, 300


def read(name: str, data: bytes, deep: int = 0) -> Draft:
    """Return the draft of a file.

    :param name: its path, or any name: only the last part and its suffix matter.
    :param deep: nesting depth; a file attached to a mail has depth 1.
    :raises Unreadable: if the file is not text, is broken or is encrypted.
    """
    path = pathlib.PurePath(name)
    kind = kind_of(path.suffix.lower(), data)
    draft = _drafted(kind, path, data, deep)
    if any(map(_SURROGATE.search, (draft.title, *(text for part in draft.parts for text in (part.title, part.text))))):
        draft = _without_surrogates(draft)
    for part in draft.parts:
        charset.check_words(part.text)
    parts = [part._replace(title=_cut(part.title)) for part in draft.parts]
    return draft._replace(title=_cut(draft.title), parts=parts, told=_in_short(draft.told))


def _without_surrogates(draft: Draft) -> Draft:
    """Return a draft whose halves of characters, as escapes of RTF and JSON write them, are characters; a half alone is
    replaced.
    """
    parts = []
    for part in draft.parts:
        pieces: list[str] = []
        places = {0: 0}  # where a turn begins or ends, before -> after
        at = 0
        for place in sorted({len(part.text), *(place for turn in part.turns for place in (turn.start, turn.end))}):
            pieces.append(_joined(part.text[at:place]))
            places[place] = places[at] + len(pieces[-1])
            at = place
        turns = tuple(Turn(places[turn.start], places[turn.end], turn.speaker) for turn in part.turns)
        parts.append(part._replace(text="".join(pieces), title=_joined(part.title), turns=turns))
    return draft._replace(title=_joined(draft.title), parts=parts, tags=tuple(map(_joined, draft.tags)))


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _cut(title: str) -> str:
    """Return a title at its stored length: each section holds it, and so does the index of titles."""
    return title if len(title) <= _TITLE_CHARS else f"{title[: _TITLE_CHARS - 1]}…"


def _in_short(told: Sequence[str]) -> tuple[str, ...]:
    """Return the doubts about a file in short form: each once, and only the first if there are many."""
    found = [(one[:_DOUBT_CHARS], count) for one, count in Counter(told).items()]
    more = len(found) - _DOUBTS
    said = [one if count == 1 else f"{one} ({count} times)" for one, count in found[:_DOUBTS]]
    return (*said, *([f"and {more} more doubts"] if more > 0 else []))


def kind_of(suffix: str, data: bytes) -> str:
    """Return the kind of a file, which names its reader. The first bytes of the file count more than its name.

    :raises Unreadable: for what no reader is for.
    """
    head = data[:_HEAD]
    kind = _SUFFIXES.get(suffix, "text")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"%PDF-") or (kind == "pdf" and b"%PDF-" in head):
        return "pdf"
    if head.startswith(_PACKED):
        return kind if kind == "sheets" else "packed"
    if head.startswith(_OLE):
        if kind == "sheets" or suffix in ("", ".xlt"):
            return "sheets"
        raise Unreadable(f"it is a document of an old form: open it in its program and save it as .{_OLD.get(suffix, 'docx')}")
    if suffix in _OLD:
        raise Unreadable(f"{suffix} is not read: open it in its program and save it as .{_OLD[suffix]}")
    if kind in ("pdf", "packed", "sheets"):
        raise Unreadable(f"its name says {suffix[1:].upper()}, its content does not: is it a download that failed?")
    if start.startswith(b"{\\rtf"):
        return "structured"
    if kind in ("text", "code", "flat") and b"<office:document" in head:
        return "flat"
    if kind == "flat":
        return "text"
    return "html" if kind == "text" and start[:15].lower().startswith((b"<!doctype html", b"<html")) else kind


def serve(request: Any, data: bytes) -> Iterator[Any]:
    """Answer a request of the parent process: a name, and the greatest number of characters. Yield lists of pieces, each of bounded size,
    as `drafted` takes them.

    :raises Unreadable: as `read`; and for what says more: a small archive may unpack to very much.
    """
    name, most = request
    draft = read(name, data)
    if (chars := sum(len(part.text) for part in draft.parts)) > most:
        raise Unreadable(f"it holds {chars} characters of text; at most {most} are read (setting memory.file_bytes): split it")
    held: list[Any] = []
    size = 0
    for piece in _pieces(draft):
        held.append(piece)
        size += _PIECE_BYTES + (len(piece[1]) if piece[0] == "text" else 0)
        if size >= _PIECE_CHARS:
            yield held
            held, size = [], 0
    yield held


def _pieces(draft: Draft) -> Iterator[Any]:
    """Yield the facts of a draft, then of each part its facts, its turns, and its text in pieces."""
    yield ["draft", draft.kind, draft.title, draft.day, draft.tags, draft.told]
    for part in draft.parts:
        yield ["part", part.title, part.day]
        for at in range(0, len(part.turns), _PIECE_TURNS):
            yield ["turns", part.turns[at : at + _PIECE_TURNS]]
        for at in range(0, len(part.text), _PIECE_CHARS):
            yield ["text", part.text[at : at + _PIECE_CHARS]]


def drafted(lists: list[Any]) -> Draft:
    """Return the draft that `serve` yielded in pieces."""
    pieces = itertools.chain.from_iterable(lists)
    _, kind, title, day, tags, told = next(pieces)
    parts: list[DraftPart] = []
    texts: list[str] = []
    turns: list[Turn] = []
    facts: tuple[str, int] | None = None
    for what, *piece in itertools.chain(pieces, [["part", "", 0]]):
        if what == "text":
            texts.append(piece[0])
        elif what == "turns":
            turns += (Turn(*turn) for turn in piece[0])
        else:
            if facts is not None:
                parts.append(DraftPart("".join(texts), *facts, tuple(turns)))
            facts, texts, turns = (piece[0], piece[1]), [], []
    return Draft(kind, title, parts, day, tuple(tags), tuple(told))


def _drafted(kind: str, path: pathlib.PurePath, data: bytes, deep: int) -> Draft:
    if kind in ("pdf", "packed"):
        return _read_by(kind, f"read_{kind}", path, data)
    if kind == "flat":
        return _read_by("document", "read_flat", path, data)
    if kind == "sheets":
        return _read_by("tables", "read_sheets", path, data)
    if kind == "mail":
        return _read_by(kind, f"read_{kind}", path, data, functools.partial(read, deep=deep + 1), deep)
    found = charset.decoded(_FOLDED.sub(b"", data) if kind == "structured" else data)
    draft = None
    if kind == "structured" and found.text.startswith("{\\rtf"):
        path = path.with_name(f"{path.stem or 'document'}.rtf")
    if kind == "structured":
        try:
            draft = _guarded(kind, "read_structured", path, found.text)
        except Unreadable as e:
            if "needs the package" in e.message:
                raise
            kind, found = "text", found._replace(told=(*found.told, f"{e.message}: read as plain text"))
    elif kind == "code" and path.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        draft = _guarded("conversation", "read_messages", path, found.text)
    elif kind == "markdown":
        draft = _guarded("conversation", "read_stamped", path, found.text)
    elif kind == "html":
        draft = _guarded("conversation", "read_page", path, found.text)
    elif kind in ("text", "tables", "subtitles"):
        draft = _guarded("text", "read_subtitles", path, found.text) if kind != "tables" else None
        reader = "tables" if kind == "tables" else "conversation"
        draft = draft or _guarded(reader, f"read_{reader}", path, found.text)
    if draft is None:
        kind = "text" if kind in ("tables", "subtitles") else kind
        draft = _read_by(kind, f"read_{kind}", path, found.text)
    return draft._replace(told=(*found.told, *draft.told))


def _read_by(kind: str, function: str, path: pathlib.PurePath, *content: Any) -> Draft:
    draft = _guarded(kind, function, path, *content)
    assert draft is not None
    return draft


def _guarded(kind: str, function: str, path: pathlib.PurePath, *content: Any) -> Draft | None:
    """Read with a reader whose own mistakes are Unreadable, too: files come from anywhere."""
    try:
        return getattr(importlib.import_module(_MODULES[function]), function)(path, *content)  # type: ignore[no-any-return]
    except ModuleNotFoundError as e:
        raise Unreadable(f"reading {path.suffix or kind} needs the package {e.name!r}: pip install 'batos[documents]'") from None
    except (BatosError, MemoryError):
        raise
    except RecursionError:
        raise Unreadable(f"it is nested too deep to be read as {kind}") from None
    except Exception as e:
        raise Unreadable(f"it cannot be read as {kind} ({type(e).__name__}: {str(e)[:200]}); is the file whole?") from e
