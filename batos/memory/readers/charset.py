"""Character sets: decode bytes to text, and detect bytes that are not text.

In this order: a byte order mark; well-formed UTF-8; the declared encoding; UTF-8 with some bad bytes; then a guess, by charset-normalizer
among encodings in use, and by the letters of languages where several encodings of Latin letters would do. Doubts are reported.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from typing import NamedTuple

from batos.errors import Unreadable

WORD_CHARS = 100_000
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_HEAD = 65536  # bytes at the beginning, the middle and the end of a file that decide on its encoding
_JUNK_SHARE = 0.01  # share of control characters above which the bytes are not text
_WORD = re.compile(rf"[!-~]{{{WORD_CHARS},}}")
_GUESSED = 1 << 18  # bytes that the guess looks at
_MULTIBYTE = re.compile(r"[^\x00-\x7f\ufffd]")
_WHOLE = 3  # UTF-8 requires this many well-formed characters for each malformed one

_DECLARED_HEAD = 4096
_DECLARED = (
    re.compile(rb"<\?xml[ \t][^>]{0,200}?encoding[ \t]*=[ \t]*[\"']([\w.:-]{2,40})"),
    re.compile(rb"<meta[^>]{0,400}?charset[ \t]*=[ \t]*[\"']?[ \t]*([\w.:-]{2,40})", re.IGNORECASE),
    re.compile(rb"^[ \t\f]*(?:#|//|\"|;|%|/\*)[^\n]{0,80}?coding[:=][ \t]*([\w.-]{2,40})", re.MULTILINE),
    re.compile(rb"@charset[ ]\"([\w.:-]{2,40})\""),
    re.compile(rb"{\\rtf1?[^\n]{0,80}?\\ansicpg(\d{3,5})"),
)
"""Patterns that find the declared encoding in XML, HTML, source code and CSS."""
_AS_BROWSERS = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932",
    "euc_kr": "cp949", "johab": "cp949", "big5": "big5hkscs", "tis-620": "cp874", "iso8859-11": "cp874",
}  # fmt: skip
"""Declared encodings -> the encodings that browsers use for them (the WHATWG's encoding standard)."""
_CJK = ("gb18030", "big5", "cp932", "euc_jp", "cp949")
_LATIN = ("cp1252", "cp1250", "iso8859_2", "cp1254", "cp1257")
_OLD = ("cp850", "mac_roman")
_CYRILLIC = ("cp1251", "koi8_r")
_IN_USE = [*_LATIN, *_CYRILLIC, *_CJK, "cp1253", "cp1255", "cp1256", "cp874"]
_LETTERS = {
    "cp1252": ("äöüß", "àâæçéèêëîïôœùûüÿ", "áéíñóúü¿¡", "ãáàâçéêíóõôú", "åäöæøé", "áðéíóúýþæö", "àèéìíîòóù", "éëïóöü"),
    "cp1250": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž", "äöüß"),
    "iso8859_2": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž"),
    "cp1254": ("âçğıiöşûüî",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
}
_LETTERS |= dict.fromkeys(_OLD, _LETTERS["cp1252"])  # fmt: skip
"""Encoding -> letters beyond ASCII of the languages that use it."""
_USUAL = {
    "gb18030": rb"[\xa1-\xa9\xb0-\xd7][\xa1-\xfe]", "big5": rb"[\xa1-\xc6][\x40-\xfe]", "cp949": rb"[\xa1-\xc8][\xa1-\xfe]",
    "cp932": rb"[\x81-\x83\x88-\x97][\x40-\xfc]", "euc_jp": rb"[\xa1-\xa5\xb0-\xcf][\xa1-\xfe]",
}  # fmt: skip
"""Encoding -> the most usual two-byte characters: punctuation, kana, syllables, and ideographs of the first level."""
_POINTS = re.compile("[\u05b0-\u05c7]")
_TURNED = re.compile("[а-яё][А-ЯЁ]")  # a capital after a small letter: a sign of the wrong Cyrillic encoding
_HIGH, _ALONE = re.compile(rb"[\x80-\xff]"), re.compile(rb"(?<![\x80-\xff])[\x80-\xff]{1,2}(?![\x80-\xff])")
_SIGNS = ("Sc", "So", "Sm", "No", "Cc")
# signs that follow words, follow numbers, or stand between them: m², Acme®, 1º, a×b
_BEHIND_WORDS, _BEHIND_NUMBERS, _BETWEEN = "®™©¹²³", "ªº", "×÷°"
# least share of bytes beyond ASCII in runs of one or two among ASCII letters: in other encodings they come in longer runs
_LATIN_SHARE = 0.8


class Decoded(NamedTuple):
    """Decoded text, with its doubts in words."""

    text: str
    told: tuple[str, ...] = ()


def decoded(data: bytes, declared: str = "") -> Decoded:
    """Return the text, with line feeds alone at the ends of its lines.

    :param declared: encoding declared outside of the file.
    :raises Unreadable: if the data is not text, but control characters.
    """
    found = _decoded(data, known(declared) if declared else "")
    return found._replace(text=found.text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", ""))


def check_words(text: str) -> None:
    """
    :raises Unreadable: for a single word of 100,000 characters.
    """
    if _WORD.search(text):
        raise Unreadable(f"it has a word of more than {WORD_CHARS} characters: this is data, not text")


def known(name: str) -> str:
    """Return Python's name of a declared encoding; empty if there is none."""
    name = name.strip().strip("\"'").lower()
    name = f"cp{name}" if name.isdecimal() else name.removeprefix("x-")
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""
    return _AS_BROWSERS.get(found, found) if codecs.lookup(found)._is_text_encoding else ""


def _decoded(data: bytes, declared: str) -> Decoded:
    for bom, name in _BOMS:
        if data.startswith(bom):
            return _by(data, name)
    head = data[:_HEAD]
    if (wide := _two_bytes(data)) is not None:
        return wide
    middle = len(data) // 2
    if any(map(_is_junk, (head, data[middle : middle + _HEAD], data[-_HEAD:]))):
        raise Unreadable("it is binary data and not text; only text, documents, pages and code are read")
    declared = declared or _declared(data[:_DECLARED_HEAD])
    if declared.startswith(("iso2022", "hz", "utf-7")) and (found := _strictly(data, declared)) is not None:
        return Decoded(found)  # other readers see plain ASCII
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        return _not_utf8(data, declared, cut_off=e.end == len(data) and "unexpected end" in e.reason)
    return Decoded(_strictly(data, "iso2022_jp_2") or text) if b"\x1b$" in head else Decoded(text)


def _is_junk(part: bytes) -> bool:
    """Return True if there are more control characters than in a text."""
    return len(_CONTROL.findall(part)) > len(part) * _JUNK_SHARE


def _not_utf8(data: bytes, declared: str, *, cut_off: bool) -> Decoded:
    if declared and not declared.startswith("utf") and (found := _strictly(data, declared)) is not None:
        return Decoded(found)
    if cut_off:  # the sample ends in the middle of a character
        return Decoded(data.decode("utf-8", "ignore"))
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    if len(_MULTIBYTE.findall(text)) >= _WHOLE * bad:
        return Decoded(text, (f"{bad} bytes in it are not valid UTF-8: each shows as \ufffd in its text",))
    if declared and not declared.startswith("utf"):
        text = data.decode(declared, "replace")
        return Decoded(text, (f"it declares {declared}, of which {text.count(chr(0xFFFD))} bytes are not valid: each shows as \ufffd",))
    name = _guess(data)
    text = data.decode(name, "replace")
    bad = text.count("\ufffd")
    lost = f", in which {bad} bytes are not valid" if bad else ""
    return Decoded(text, (f"it does not declare its encoding, and is not valid UTF-8: read as {name}, by guess{lost}",))


def _declared(head: bytes) -> str:
    """Return the encoding that a file declares; empty if it declares none, or an unknown one."""
    for pattern in _DECLARED:
        found = pattern.search(head)
        if found and (name := known(found[1].decode("ascii", "replace"))):
            return name
    return ""


def _strictly(data: bytes, name: str) -> str | None:
    try:
        return data.decode(name)
    except (UnicodeDecodeError, LookupError, ValueError):
        return None


def _by(data: bytes, name: str) -> Decoded:
    try:
        return Decoded(data.decode(name))
    except UnicodeDecodeError as e:
        text = data.decode(name, "replace")
        bad = text.count("\ufffd")
        if bad * 10 > len(text):
            raise Unreadable(f"it begins as {name} but is not: {e.reason} at byte {e.start}") from None
        return Decoded(text, (f"{bad} characters in it are not valid in {name}: each shows as \ufffd in its text",))


# --- UTF-16 without a mark


def _two_bytes(data: bytes) -> Decoded | None:
    """Return the text, if it is one of two bytes a character without a mark."""
    head = data[:_HEAD]
    if not head or (b"\x00" not in head and not _CONTROL.search(head)):
        return None
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > len(head) // 5 and min(even, odd) <= len(head) // 100:  # Latin letters
        return _by(data, "utf-16-be" if even > odd else "utf-16-le")
    if len(data) % 2 or (not _is_junk(head) and _begins_as_utf8(head)):
        return None  # pairs of letters and line feeds are valid ideographs, too
    shares = {name: _plausible(head[: len(head) & ~1], name) for name in ("utf-16-le", "utf-16-be")}
    name = max(shares, key=lambda one: shares[one])
    if shares[name] < 0.95 or (text := _strictly(data, name)) is None:
        return None
    return Decoded(text, (f"it says nowhere how it is encoded: read as {name}, by guess",))


def _begins_as_utf8(head: bytes) -> bool:
    """Return True if the head is well-formed UTF-8, except for a last character that is cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _plausible(head: bytes, name: str) -> float:
    """Return the share of characters that occur in texts, and not in random bytes; 0 if the data is not UTF-16."""
    text = _strictly(head, name)
    if text is None:
        text = _strictly(head[:-2], name) or ""  # the sample ends in the middle of a surrogate pair
    if not text or text.isascii():
        return 0.0
    return sum(_is_usual(ord(char)) for char in text) / len(text)


def _is_usual(code: int) -> bool:
    return code in (9, 10, 13) or any(
        low <= code <= high
        for low, high in ((0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x6FF), (0x900, 0xEFF), (0x2010, 0x2030), (0x3000, 0x30FF),
                          (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF01, 0xFF9F))
    )  # fmt: skip


# --- guessing


def _guess(data: bytes) -> str:
    """Return the encoding that data most likely has."""
    from charset_normalizer import from_bytes  # late import: most files need no guess

    part = data[:_GUESSED]
    if len(part) < len(data):
        part = part[: part.rfind(b"\n") + 1] or part  # whole lines only: a character may have two bytes
    if sum(map(len, _ALONE.findall(part))) >= _LATIN_SHARE * len(_HIGH.findall(part)):
        shares = {name: _share_of_letters(part, name) for name in (*_LATIN, *_OLD)}
        if max(shares.values()) > 0.5:
            return max(shares, key=lambda name: shares[name])
    found = [one for one in from_bytes(part, cp_isolation=_IN_USE) if _may_be(part, str(one.encoding), str(one))]
    if not found:
        return _cyrillic(part) or "cp1252"
    best = min(one.chaos for one in found)
    likely = [name for one in found if one.chaos <= best + 0.05 for name in one.could_be_from_charset]
    first = str(found[0].encoding)
    if first == "big5" and "gb18030" in likely:
        return "gb18030"
    if first not in _LATIN:
        return first
    return max((name for name in _LATIN if name in likely), key=lambda name: _share_of_letters(part, name), default=first)


def _may_be(part: bytes, name: str, text: str) -> bool:
    """Return True if a text consists of characters that are usual in its encoding."""
    if name in _USUAL:
        return 2 * len(re.findall(_USUAL[name], part, re.DOTALL)) >= 0.5 * len(_HIGH.findall(part))
    return name != "cp1255" or len(_POINTS.findall(text)) * 10 < len(text)


def _cyrillic(part: bytes) -> str:
    """Return the Cyrillic encoding in which capitals stand where capitals do, if there is one."""
    texts = {name: part.decode(name, "replace") for name in _CYRILLIC}
    shares = {name: len(re.findall("[а-яё]", text)) - 3 * len(_TURNED.findall(text)) for name, text in texts.items()}
    name = max(shares, key=lambda one: shares[one])
    return name if shares[name] * 2 >= len(_HIGH.findall(part)) else ""


def _share_of_letters(part: bytes, name: str) -> float:
    """Return the share of the letters beyond ASCII that belong to one language of an encoding. A character between two letters must be a
    letter, and a sign touches others only where it is usual.
    """
    text = f" {part.decode(name, 'replace')} "
    letters = []
    for at, char in enumerate(text):
        if char > "\x7f" and not _is_usual_sign(text, at):
            near = text[at - 1].isalpha() + text[at + 1].isalpha()
            within, sign = near == 2 and char not in "’·", unicodedata.category(char) in _SIGNS
            if char.isalpha() or char == "\ufffd" or within or (near and sign):
                letters.append(char.lower())
    if not letters:
        return 1.0
    return max(sum(char in alphabet for char in letters) for alphabet in _LETTERS[name]) / len(letters)


def _is_usual_sign(text: str, at: int) -> bool:
    """Return True if a sign touches letters or numbers as it does in texts; in other encodings it may be a letter."""
    before, char, after = text[at - 1], text[at], text[at + 1]
    if char in _BEHIND_WORDS and before.isalpha() and after.isascii() and not after.isalpha():
        return char != "³" or before == "m" or not text[at - 2 : at - 1].isalpha()
    if char in _BEHIND_NUMBERS and not after.isalpha():
        return before.isdecimal() or before in "Nn"
    if char in "µ©":  # as in "µm" and "©Acme"
        return not before.isalpha() and (after.isupper() if char == "©" else after.isalpha())
    return char in _BETWEEN
