"""From bytes to text: which characters they are, and whether they are any."""

from __future__ import annotations

import codecs
import re

from batos.errors import Unreadable

_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_HEAD = 65536  # bytes at its beginning, its middle and its end by which it is judged
_STRETCH = 1 << 20
_JUNK_SHARE = 0.01  # of control characters, past which it is no text
WORD_CHARS = 100_000
_WORD = re.compile(rf"[!-~]{{{WORD_CHARS},}}")


def decoded(data: bytes) -> str:
    """The text, with line feeds alone at the ends of its lines.

    :raises Unreadable: for what is no text: control characters, or a single word of 100,000 characters.
    """
    text = _decoded(data).replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    # in stretches: others get their turn between them
    if any(_WORD.search(text, begin, begin + _STRETCH + WORD_CHARS) for begin in range(0, len(text), _STRETCH)):
        raise Unreadable(f"it has a word of more than {WORD_CHARS} characters: this is data, not text")
    return text


def _decoded(data: bytes) -> str:
    for bom, name in _BOMS:
        if data.startswith(bom):
            return _by(data, name)
    head = data[:_HEAD]
    if head and b"\x00" in head:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        if max(even, odd) > len(head) // 5 and min(even, odd) <= len(head) // 100:  # Latin letters in two bytes each
            return _by(data, "utf-16-be" if even > odd else "utf-16-le")
    middle = len(data) // 2
    if any(len(_CONTROL.findall(part)) > len(part) * _JUNK_SHARE for part in (head, data[middle : middle + _HEAD], data[-_HEAD:])):
        raise Unreadable("it is no text but binary data; only text, Markdown, HTML, PDF and code are read")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        if data[: e.start].isascii() or e.start < len(data) * 0.9:
            return data.decode("cp1252", "replace")  # what old Windows programs wrote, and all that is like it
        return data.decode("utf-8", "replace")  # a file cut off, or one bad byte near its end


def _by(data: bytes, name: str) -> str:
    try:
        return data.decode(name)
    except UnicodeDecodeError as e:
        raise Unreadable(f"it begins as {name} but is not: {e.reason} at byte {e.start}") from None
