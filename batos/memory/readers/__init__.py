"""Readers: from the bytes of a file to a draft of a document. One module a kind; what a file is, its name and content say.

A reader raises `Unreadable` with what is wrong and what to do, whatever the bytes are.
"""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable
from typing import Any

from batos.errors import BatosError, Unreadable
from batos.memory.drafts import Draft
from batos.memory.readers import charset

_SUFFIXES = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
    **dict.fromkeys(
        (
            ".py", ".pyi", ".js", ".mjs", ".ts", ".tsx", ".jsx", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".java", ".kt", ".go", ".rs",
            ".rb", ".php", ".swift", ".scala", ".sh", ".bash", ".zsh", ".sql", ".lua", ".pl", ".r", ".jl", ".hs", ".ml", ".ex", ".exs",
            ".erl", ".clj", ".el", ".lisp", ".css", ".scss", ".toml", ".yaml", ".yml", ".json", ".ini", ".cfg", ".xml", ".make", ".cmake",
            ".st",
        ),
        "code",
    ),
}  # fmt: skip
_TEXTS = (".txt", ".text", ".log", ".rst", ".org", ".adoc", ".tex", ".csv", ".tsv", ".srt", ".vtt", "")
SUFFIXES = frozenset((*_SUFFIXES, *_TEXTS))
"""Ends of the names of files that are read out of a folder. A file that is named itself is read whatever its name."""


def read(name: str, data: bytes, going: Callable[[], object] = lambda: None) -> Draft:
    """What a file says.

    :param name: its path, or any name: only the last part and its suffix matter.
    :param going: called now and then where that takes long; what it raises ends it.
    :raises Unreadable: for what is no text, broken, or encrypted.
    """
    path = pathlib.PurePath(name)
    kind = kind_of(path.suffix.lower(), data)
    if kind == "pdf":
        return _reader("pdf").read(path, data, going)
    text = charset.decoded(data)
    if kind == "text" and (found := _reader("conversation").read(path, text)) is not None:
        return found
    return _reader(kind).read(path, text)


def kind_of(suffix: str, data: bytes) -> str:
    """Which reader a file is for: what its first bytes say goes before what its name says."""
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"%PDF-"):
        return "pdf"
    if suffix == ".pdf":
        raise Unreadable("its name says PDF, its content does not: it begins with other bytes than %PDF-; is it a download that failed?")
    kind = _SUFFIXES.get(suffix, "text")
    return "html" if kind == "text" and head[:15].lower().startswith((b"<!doctype html", b"<html")) else kind


class _Guarded:
    """A reader whose own mistakes are Unreadable too: files come from anywhere."""

    def __init__(self, kind: str) -> None:
        try:
            self._module = importlib.import_module(f"batos.memory.readers.{kind}")
        except ModuleNotFoundError as e:
            raise Unreadable(f"reading {kind} needs the package {e.name!r}: pip install 'batos[documents]'") from None
        self._kind = kind

    def read(self, path: pathlib.PurePath, *content: Any) -> Draft:
        try:
            return self._module.read(path, *content)  # type: ignore[no-any-return]
        except (BatosError, MemoryError):
            raise
        except RecursionError:
            raise Unreadable(f"it is nested too deep to be read as {self._kind}") from None
        except Exception as e:
            raise Unreadable(f"it cannot be read as {self._kind} ({type(e).__name__}: {str(e)[:200]}); is the file whole?") from e


def _reader(kind: str) -> _Guarded:
    return _Guarded(kind)
