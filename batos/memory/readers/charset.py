"""Character sets: decode bytes to text, and detect bytes that are not text.

Encodings are tried in this order:

* a byte order mark;
* well-formed UTF-8;
* the declared encoding, unless the bytes contradict it;
* UTF-8 with some bad bytes, or in some lines;
* a guess, by charset-normalizer among encodings in use, and by the letters of languages where several encodings of Latin letters would do.

Some bytes that are invalid in the best encoding are damage. Doubts are reported.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from batos.errors import Unreadable

if TYPE_CHECKING:
    from charset_normalizer import CharsetMatch

WORD_CHARS = 100_000
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_GAP = re.compile(rb"\x00{16,}+")  # a log that was cut while its program wrote on, or the end of a file after a crash
_GAPS = 4  # greatest number of such gaps in a text
_ARCHIVE = slice(257, 262)  # place of the mark of an archive of files (tar), which has gaps between texts
_COLORS = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]|\x1b\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)")
"""Matches what a program writes to a terminal for colors and places."""
_LOST = re.compile("[\x80-\x84\x86-\x9f]")
_AS_WINDOWS = {code: (char if (char := bytes([code]).decode("cp1252", "ignore")) else chr(code)) for code in range(0x80, 0xA0)}
"""Control characters that texts never have -> the signs of Windows that another program took for them."""
_TWICE = re.compile("[\xc2-\xf4][\x80-\xbf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]")
_FEWEST_TWICE = 3  # least number of such pairs in a text that was encoded twice
_HALVES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
_RUN = re.compile(rb"[\x80-\xff]++")
_KOREAN_MAIL = b"\x1b$)C"  # begins a text in ISO-2022-KR, whose shifts are control characters
_ESCAPES = ((b"\x1b$)C", "iso2022_kr"), (b"\x1b$", "iso2022_jp_2"))
"""Marks of encodings that have nothing but ASCII bytes."""
_HEAD = 65536  # bytes at the beginning, the middle and the end of a file that decide on its encoding
_JUNK_SHARE = 0.01  # share of control characters above which the bytes are not text
_WORD = re.compile(rf"(?<![!-~])[!-~]{{{WORD_CHARS},}}+")
_GUESSED = 1 << 18  # bytes that the guess looks at
_BAD_SHARE = 0.01  # share of bytes beyond ASCII that may be invalid in the encoding of a text: damage, and not another encoding
_CLEARER = 0.05  # an encoding in which some bytes are invalid must make so much more sense than one in which none is
_MULTIBYTE = re.compile(r"[^\x00-\x7f\ufffd]")
_FEWEST_BYTES = 2  # bytes that differ, at least, in the words of another writer
_SURE_SHARE = 0.9  # least share of letters of one language in lines that are another writer's
_MIXED, _MIXED_SHARE = 3, 0.1  # least number and share of the characters beyond ASCII in lines of UTF-8, if only some lines are
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
_OLD = ("cp850", "mac_roman", "cp852")
_CYRILLIC = ("cp1251", "koi8_u", "cp866", "iso8859_5", "mac_cyrillic")
_IN_USE = [*_LATIN, *_CYRILLIC, *_CJK, "cp1253", "cp1255", "cp1256", "iso8859_6", "cp874", "cp852"]
_LETTERS = {
    "cp1252": ("äöüß", "àâæçéèêëîïôœùûüÿ", "áéíñóúü¿¡", "ãáàâçéêíóõôú", "åäöæøé", "áðéíóúýþæö", "àèéìíîòóù", "éëïóöü"),
    "cp1250": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž", "äöüß"),
    "iso8859_2": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž"),
    "cp1254": ("âçğıiöşûüî",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
}
_LETTERS |= {"cp850": _LETTERS["cp1252"], "mac_roman": _LETTERS["cp1252"], "cp852": _LETTERS["cp1250"]}
"""Encoding -> letters beyond ASCII of the languages that use it."""
_USUAL = {
    "gb18030": rb"[\xa1-\xa9\xb0-\xd7][\xa1-\xfe]", "big5": rb"[\xa1-\xc6][\x40-\xfe]", "cp949": rb"[\xa1-\xc8][\xa1-\xfe]",
    "cp932": rb"[\x81-\x83\x88-\x97][\x40-\xfc]", "euc_jp": rb"[\xa1-\xa5\xb0-\xcf][\xa1-\xfe]",
}  # fmt: skip
"""Encoding -> the most usual two-byte characters: punctuation, kana, syllables, and ideographs of the first level."""
_PRIVATE = re.compile("[\ue000-\uf8ff]")
_POINTS = re.compile("[\u05b0-\u05c7]")
_THAI = re.compile("[\u0e01-\u0e5b]")
_THAI_MARK = re.compile("[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]")
_NOT_THAI = re.compile(
    "(?:^|[^\u0e01-\u0e4e])[\u0e31\u0e34-\u0e3a\u0e45\u0e47-\u0e4e]|[^\u0e24\u0e26]\u0e45|[\u0e40-\u0e44](?![\u0e01-\u0e2e])"
    "|[\u0e34-\u0e39][\u0e31\u0e34-\u0e39]|[\u0e01-\u0e4e][\u0e3f\u0e50-\u0e5b]"
)
"""Matches signs of Thai where they do not stand: marks without a letter, leading vowels that lead none, numbers within words."""
_TURNED = re.compile("[а-яё][А-ЯЁ]")  # a capital after a small letter: a sign of the wrong Cyrillic encoding
_UKRAINIAN = re.compile("[а-я][єіїґ]|[єіїґ][а-я]")
_FEW = 64  # bytes beyond ASCII up to which a text is a few words
_HIGH_WORD = re.compile(r"[^\W\d_]+|[^\x00-\x7f]")
_CYRILLIC_WORD = re.compile("[А-ЯЁЄІЇҐа-яёєіїґ][а-яёєіїґ]*|[А-ЯЁЄІЇҐ]+")
_VOWELS = frozenset("аеёиоуыэюяєії")
_VOWEL_SHARE = 0.3
_MORE_VOWELS = 1.1  # a text has so many times more vowels in its own encoding than in another one
_ASCII_WORD = re.compile("[A-Za-z]")
_LATIN_9 = re.compile("€|[a-z][œž]|[œž][a-z]")  # other signs than those of Latin 1: no text has its sign of currency
_WINDOWS = re.compile(rb"[\x80-\x9f]")
_HIGH, _ALONE = re.compile(rb"[\x80-\xff]"), re.compile(rb"(?<![\x80-\xff])[\x80-\xff]{1,2}(?![\x80-\xff])")
_SIGNS = ("Sc", "So", "Sm", "No", "Cc")
# signs that follow words, follow numbers, or stand between them: m², Acme®, 1º, a×b
_BEHIND_WORDS, _BEHIND_NUMBERS, _BETWEEN = "®™©¹²³", "ªº", "×÷°"
_FEWEST = 5  # bytes beyond ASCII that may contradict a declaration
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
    text = found.text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "").replace("\ufeff", "")
    if "\x1b" in text:
        text = _COLORS.sub("", text)
    if (once := _once(text)) is not None:
        return Decoded(once, (*found.told, "it was encoded twice: read as it was before"))
    return found._replace(text=text.translate(_AS_WINDOWS) if _LOST.search(text) else text)


def _once(text: str) -> str | None:
    """Return the text that was encoded as UTF-8, taken for Western letters, and encoded again. Return None for any other text: each of its
    letters beyond ASCII must belong to such a pair.
    """
    if len(_TWICE.findall(text)) < _FEWEST_TWICE:
        return None
    codes = {ord(char): code for code, char in _AS_WINDOWS.items()}
    try:
        return text.translate(codes).encode("latin-1").decode("utf-8")
    except UnicodeError:
        return None


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
    narrow = declared and not declared.startswith(("utf-16", "utf-32")) and b"\x00" not in head
    if not narrow and (wide := _four_bytes(data) or _two_bytes(data)) is not None:
        return wide
    if _KOREAN_MAIL in head:  # before the test for control characters, which shift its letters
        found = _strictly(data, "iso2022_kr")
        if (damaged := _in_seven_bits(data) if found is None else Decoded(found)) is not None:
            return damaged
    if 0 < len(_GAP.findall(data)) <= _GAPS and data[_ARCHIVE] != b"ustar":
        data = _GAP.sub(b"\n", data).lstrip(b"\n")
        head = data[:_HEAD]
    middle = len(data) // 2
    if any(map(_is_junk, (head, data[middle : middle + _HEAD], data[-_HEAD:]))):
        raise Unreadable("it is binary data and not text; only text, documents, pages and code are read")
    declared = declared or _declared(data[:_DECLARED_HEAD])
    if declared.startswith(("iso2022", "hz", "utf-7")) and (found := _strictly(data, declared)) is not None:
        return Decoded(found)  # other readers see plain ASCII
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        cut_off = e.end == len(data) and "unexpected end" in e.reason and not _ends_in_letter(data, e.start)
        return _not_utf8(data, declared, cut_off=cut_off)
    if b"~{" in head and (found := _strictly(data, "hz")) is not None and _is_of_one_kind(found):
        return Decoded(found)
    return Decoded(_strictly(data, "iso2022_jp_2") or text) if b"\x1b$" in head else Decoded(text)


def _ends_in_letter(data: bytes, start: int) -> bool:
    """Return True if the only byte beyond ASCII is the last one, and a small letter of another encoding, as in "café".

    Other bytes there begin a character of UTF-8 that is cut off.
    """
    return start == len(data) - 1 and data[start] >= 0xE0 and data[:start].isascii() and data[start - 1 : start].isalpha()


def _is_junk(part: bytes) -> bool:
    """Return True if there are more control characters than in a text."""
    return len(_CONTROL.findall(part)) > len(part) * _JUNK_SHARE


def _not_utf8(data: bytes, declared: str, *, cut_off: bool) -> Decoded:
    declared = "" if declared.startswith("utf") else declared
    guessed = _contradicting(data, declared) if declared else ""
    if guessed:
        text = data.decode(guessed, "replace")
        return Decoded(text, (f"it declares {declared}, which its bytes contradict: read as {guessed}, by guess",))
    if declared and (found := _strictly(data, declared)) is not None:
        return Decoded(found)
    if (read := _in_seven_bits(data)) is not None:
        return read
    if cut_off:  # the sample ends in the middle of a character
        return Decoded(data.decode("utf-8", "ignore"))
    if (mended := _strictly(_HALVES.sub(_joined, data).replace(b"\xc0\x80", b""), "utf-8")) is not None:
        return Decoded(mended)
    if (mixed := _by_whole_lines(data)) is not None:
        return mixed
    text = data.decode("utf-8", "replace")
    bad, whole = text.count("\ufffd"), len(_MULTIBYTE.findall(text))
    runs = [_strictly(run, "utf-8") is not None for run in _RUN.findall(_sample(data))]
    if whole >= _WHOLE * bad or (sum(runs) >= 2 and sum(runs) * 2 >= len(runs)):
        return Decoded(text, (f"{bad} bytes in it are not valid UTF-8: each shows as \ufffd in its text",))
    if (mixed := _by_lines(data, whole + bad)) is not None:
        return mixed
    if declared:
        text = data.decode(declared, "replace")
        return Decoded(text, (f"it declares {declared}, of which {text.count(chr(0xFFFD))} bytes are not valid: each shows as \ufffd",))
    name = _guess(data)
    text = data.decode(name, "replace")
    bad = text.count("\ufffd")
    lost = f", in which {bad} bytes are not valid" if bad else ""
    return Decoded(text, (f"it does not declare its encoding, and is not valid UTF-8: read as {name}, by guess{lost}",))


def _joined(found: re.Match[bytes]) -> bytes:
    """Return a character that is encoded in two halves, as some programs write those beyond the first 65,536."""
    return found[0].decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode()


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


def _in_seven_bits(data: bytes) -> Decoded | None:
    """Return the text of a file of ASCII bytes and escapes, in which a few other bytes are damage; None for any other."""
    name = next((name for mark, name in _ESCAPES if mark in data[:_HEAD]), "")
    if not name or len(_HIGH.findall(data)) > 1 + len(data) * _BAD_SHARE:
        return None
    text = _HIGH.sub(b"", data).decode(name, "replace")
    return Decoded(text, (f"some bytes in it are not valid in {name}: they are left out",)) if _MULTIBYTE.search(text) else None


def _by_whole_lines(data: bytes) -> Decoded | None:
    """Return the text of a file of several writers, in which each line beyond ASCII is either well-formed UTF-8 or has none of it.

    The lines that are not UTF-8 must be words: one byte that is repeated is damage.
    """
    lines = data.split(b"\n")
    others = [line for line in lines if _strictly(line, "utf-8") is None]
    runs = [run for line in others for run in _RUN.findall(line)]
    if len(runs) < _MIXED or len(set(b"".join(runs))) < _FEWEST_BYTES or any(_strictly(run, "utf-8") is not None for run in runs):
        return None
    valid = sum(len(_MULTIBYTE.findall(text)) for line in lines if (text := _strictly(line, "utf-8")))
    part = b"\n".join(others)
    name = _guess(part) if valid >= _MIXED else ""
    latin = name in (*_LATIN, *_OLD)
    if not name or (latin and _share_of_letters(_sample(part), name) < _SURE_SHARE) or (not latin and valid < len(runs) * _MIXED_SHARE):
        return None
    return _by_lines(data, valid)


def _by_lines(data: bytes, chars: int) -> Decoded | None:
    """Return the text of a file, some lines of which are UTF-8 and the others not: it has several writers. None for any other.

    :param chars: number of characters beyond ASCII, about.
    """
    lines = data.split(b"\n")
    texts = [_strictly(line, "utf-8") for line in lines]
    valid = sum(len(_MULTIBYTE.findall(text)) for text in texts if text)
    if valid < _MIXED or valid < chars * _MIXED_SHARE:
        return None
    name = _guess(b"\n".join(line for line, text in zip(lines, texts, strict=True) if text is None))
    said = (line.decode(name, "replace") if text is None else text for line, text in zip(lines, texts, strict=True))
    return Decoded("\n".join(said), (f"only some of its lines are valid UTF-8: the others were read as {name}, by guess",))


# --- UTF-16 and UTF-32 without a mark


def _four_bytes(data: bytes) -> Decoded | None:
    """Return the text, if it is one of four bytes a character without a mark."""
    if not data or len(data) % 4 or data[:_HEAD].count(0) * 2 < len(data[:_HEAD]):
        return None
    texts = (_strictly(data, name) for name in ("utf-32-le", "utf-32-be"))
    return next((Decoded(text) for text in texts if text is not None), None)


def _two_bytes(data: bytes) -> Decoded | None:
    """Return the text, if it is one of two bytes a character without a mark."""
    head = data[:_HEAD]
    if not head:
        return None
    if b"\x00" not in head and not _CONTROL.search(head):
        return _few_pairs(data)
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > len(head) // 5 and min(even, odd) <= len(head) // 100:  # Latin letters
        return _by(data, "utf-16-be" if even > odd else "utf-16-le")
    if len(data) % 2 or (not _is_junk(head) and _begins_as_utf8(head)):
        return _few_pairs(data)  # pairs of letters and line feeds are valid ideographs, too
    shares = {name: _plausible(head[: len(head) & ~1], name) for name in _PAIRS}
    name = max(shares, key=lambda one: (shares[one], *_order(head, one)))
    if shares[name] < 0.95 or (text := _strictly(data, name)) is None:
        return None
    return Decoded(text, (_BY_GUESS.format(name=name),))


_PAIRS = ("utf-16-le", "utf-16-be")
_BY_GUESS = "it says nowhere how it is encoded: read as {name}, by guess"
_LETTERS_OF_WORDS = re.compile(rb"[a-z]{3,}+|[A-Z]{3,}+")
_FEW_PAIRS = 128  # bytes up to which a text without control characters may be one of two bytes a character
_ODD = re.compile(
    r"[a-z][A-Z][^a-z]|[a-z]{2}[A-Z][^A-Za-z]|\w[^\w\s.,:;'’/@+&=()*-]\w|^[^\w\s\"'“„«(<#$*\[{/.@~-]"
    r"|[^\w\s.,:;!?\"'”“»)>%*\]}…/=-]$|[^\W\d_],[^\W\d_]|[a-zß-ž][A-ZÀ-Þ]$|[A-Za-z][^\x00-\u024f\W]|[^\x00-\u024f\W][A-Za-z]"
    r"|[\t\x80-\x9f]"
)
"""Matches signs within words, and others that do not stand in a text so."""


def _few_pairs(data: bytes) -> Decoded | None:
    """Return a few characters of two bytes each, none of which is a control character; None where the bytes may be text as they are.

    All characters must be common ones of one kind of writing, and the bytes must make no words in their own encoding.
    """
    if (
        not 4 <= len(data) <= _FEW_PAIRS
        or len(data) % 2
        or data.isalnum()
        or 4 * sum(map(len, _LETTERS_OF_WORDS.findall(data))) > len(data)
    ):
        return None
    texts = {name: text for name in _PAIRS if (text := _strictly(data, name)) and _is_of_one_kind(text)}
    if not texts:
        return None
    name = max(texts, key=lambda one: _order(data, one))
    plain = _strictly(data, "utf-8")
    if plain is not None and (not plain.isascii() or plain[0] == plain[-1]):
        return None
    if plain is None:
        plain = data.decode(_guess(data), "replace")
    spread = min(len(set(data[0::2])), len(set(data[1::2])))  # one kind of letters has few first bytes
    if (
        _ODD.search(plain)
        or (max(plain) > "\u2fff" and len(_common(plain)) < len(plain))
        or (len(data) >= 8 and spread == 1 and not plain.isascii())
    ):
        return Decoded(texts[name], (_BY_GUESS.format(name=name),))
    return None


def _order(data: bytes, name: str) -> tuple[int, int, int]:
    """Return how likely an order of bytes is: by common characters, blocks of characters, and those that part lines and words. A short
    text may be one of ideographs in either order.
    """
    text = data[: len(data) & ~1].decode(name, "ignore")
    return len(_common(text)), -len({ord(char) >> 8 for char in text}), sum(char in "\n\r\t .,，。、：:-" for char in text)


_LEVELS = (("gb2312", 0xD7), ("big5", 0xC6), ("euc_jp", 0xCF), ("euc_kr", 0xC8))
"""Encodings, each with the first byte of the last of its characters that are common; kana and syllables of Korean are."""
_MARKS_OF_CJK = "，。、：；！？「」『』（）《》〈〉…—·“”‘’ー～"


def _is_of_one_kind(text: str) -> bool:
    """Return True if the characters beyond ASCII are common ones of one language, or letters of one block."""
    beyond = "".join(char for char in text if char >= "\x80" and char not in _MARKS_OF_CJK)
    plain = all(char.isalnum() or char in " \n\r\t.,:;!?-()'\"" for char in text if char < "\x80")
    return (
        bool(beyond)
        and plain
        and (len({ord(char) >> 8 for char in beyond}) == 1 or any(map(beyond.__eq__, _levels(beyond))))
        and all(map(_is_common, beyond))
    )


def _levels(text: str) -> Iterator[str]:
    """Yield the common characters of a text in each language of ideographs and syllables."""
    for name, last in _LEVELS:
        yield "".join(char for char in text if 0xA0 < char.encode(name, "ignore").ljust(1, b"\0")[0] <= last)


def _common(text: str) -> str:
    return "".join(filter(_is_common, text))


def _is_common(char: str) -> bool:
    """Return True for ideographs of the first level, syllables of Korean in use, and letters of any kind."""
    if "\u4e00" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7a3":
        return any(_levels(char))
    return _is_usual(ord(char)) and (unicodedata.category(char)[0] in "LM" or char in _MARKS_OF_CJK or char in "।\u0e3f")


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


def _sample(data: bytes) -> bytes:
    """Return the bytes that a guess looks at: whole lines, because a character may have two bytes."""
    part = data[:_GUESSED]
    return part if len(part) == len(data) else part[: part.rfind(b"\n") + 1] or part


def _has_latin_letters(part: bytes) -> bool:
    """Return True if the bytes beyond ASCII stand alone or in pairs among ASCII letters."""
    return sum(map(len, _ALONE.findall(part))) >= _LATIN_SHARE * len(_HIGH.findall(part))


def _contradicting(data: bytes, declared: str) -> str:
    """Return the encoding that data has instead of the declared one; empty if the declared one may be right.

    Pages and mail declare Western letters by default: whole words beyond ASCII are not such, nor are signs within words. Ideographs of the
    wrong encoding are rare, or have no meaning.
    """
    part = _sample(data)
    text = part.decode(declared, "replace")
    if declared in _USUAL:
        wrong = not _may_be(part, declared, text) or len(_PRIVATE.findall(text)) * 50 > len(_MULTIBYTE.findall(text))
        return name if wrong and (name := _guess(data)) != declared else _latin_instead(part, text)
    if declared not in _LATIN and (other := _latin_instead(part, text) or _other_cyrillic(part, declared)):
        return other
    high = len(_HIGH.findall(part))
    if declared not in _LATIN or high < _FEWEST:
        return ""
    letters = sum(char.isalpha() for char in _MULTIBYTE.findall(text))
    if not _has_latin_letters(part) and letters * 3 >= high and (name := _guess(data)) not in (*_LATIN, *_OLD):
        return name
    shares = {name: _share_of_letters(part, name) for name in _LATIN}
    best = max(shares, key=lambda name: shares[name])
    return best if shares[declared] <= 0.5 and shares[best] >= 0.9 else ""


def _latin_instead(part: bytes, text: str) -> str:
    """Return the encoding of Western letters, if a text has letters of another script within words of ASCII letters instead."""
    strange = [at for at, char in enumerate(text) if char > "\u02af" and char.isalpha()]
    touching = sum(_ASCII_WORD.search(text[max(0, at - 1) : at + 2]) is not None for at in strange)
    if len(strange) < _MIXED or touching * 3 < 2 * len(strange):
        return ""
    shares = {name: _share_of_letters(part, name) for name in _LATIN}
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= _SURE_SHARE else ""


def _other_cyrillic(part: bytes, declared: str) -> str:
    """Return another Cyrillic encoding than the declared one, if capitals stand within words in that one, and vowels are few."""
    text = part.decode(declared, "replace") if declared in _CYRILLIC or declared == "koi8-r" else ""
    name = _cyrillic(part) if _TURNED.search(text) else ""
    other = part.decode(name, "replace") if name else ""
    vowels, letters = _vowels(other)
    if not name or _TURNED.search(other) or vowels < max(_VOWEL_SHARE * letters, _MORE_VOWELS * _vowels(text)[0]):
        return ""
    return _refined(part, name)


def _vowels(text: str) -> tuple[int, int]:
    """Return how many vowels of Cyrillic a text has, and how many letters."""
    letters = [char for char in text.lower() if "а" <= char <= "ї"]
    return sum(char in _VOWELS for char in letters), len(letters)


def _guess(data: bytes) -> str:
    """Return the encoding that data most likely has."""
    from charset_normalizer import from_bytes  # late import: most files need no guess

    part = _sample(data)
    if name := _few_cyrillic(part):
        return _refined(part, name)
    if _has_latin_letters(part):
        shares = {name: _share_of_letters(part, name) for name in (*_LATIN, *_OLD)}
        if max(shares.values()) > 0.5:
            return _refined(part, max(shares, key=lambda name: shares[name]))
    found = [one for one in from_bytes(part, cp_isolation=_IN_USE) if _may_be(part, str(one.encoding), str(one))]
    few = [] if found and found[0].encoding in _CJK else _damaged(part)  # nothing but such texts is valid in these from end to end
    damaged = min(few, key=_nonsense, default=None)
    if damaged is not None and (not found or _nonsense(damaged) + _CLEARER < min(map(_nonsense, found))):
        return _refined(part, str(damaged.encoding))
    if not found:
        return _refined(part, _cyrillic(part) or "cp1252")
    best = min(one.chaos for one in found)
    likely = [name for one in found if one.chaos <= best + 0.05 for name in one.could_be_from_charset]
    first = str(found[0].encoding)
    if first == "big5" and "gb18030" in likely:
        return "gb18030"
    if first not in _LATIN:
        return _refined(part, first)
    return _refined(part, max((name for name in _LATIN if name in likely), key=lambda name: _share_of_letters(part, name), default=first))


def _damaged(part: bytes) -> list[CharsetMatch]:
    """Return the encodings in which only a few bytes of a text are invalid, as they fit the rest of it."""
    from charset_normalizer import from_bytes

    most = 1 + int(len(_HIGH.findall(part)) * _BAD_SHARE)
    found: list[CharsetMatch] = []
    for name in _IN_USE:
        text = part.decode(name, "replace")
        if 0 < text.count("\ufffd") <= most:
            rest = text.replace("\ufffd", "").encode(name, "ignore")
            found += [one for one in from_bytes(rest, cp_isolation=[name]) if _may_be(rest, name, str(one))]
    return found


def _nonsense(one: CharsetMatch) -> float:
    """Return a number that is higher the less a text makes sense."""
    return one.chaos - one.coherence


def _refined(part: bytes, name: str) -> str:
    """Return a near relative of an encoding, if its other letters are in the text."""
    if name in _CYRILLIC:
        text = part.decode(name, "replace")
        if len(_TURNED.findall(text)) * 50 > len(text):
            name = _cyrillic(part) or name
        if name == "koi8_u" and not _UKRAINIAN.search(part.decode(name)):
            return "koi8_r"
    elif name == "cp1252" and not _WINDOWS.search(part):
        return "iso8859_15" if _LATIN_9.search(part.decode("iso8859_15")) else name
    return name


def _may_be(part: bytes, name: str, text: str) -> bool:
    """Return True if a text consists of characters that are usual in its encoding."""
    if name in _USUAL:
        return 2 * len(re.findall(_USUAL[name], part, re.DOTALL)) >= 0.5 * len(_HIGH.findall(part))
    if name == "cp874":
        return len(_NOT_THAI.findall(text)) * 25 < len(_THAI.findall(text)) < 12 * len(_THAI_MARK.findall(text)) + 12
    return name != "cp1255" or len(_POINTS.findall(text)) * 10 < len(text)


def _cyrillic(part: bytes) -> str:
    """Return the Cyrillic encoding in which capitals stand where capitals do, if there is one."""
    texts = {name: part.decode(name, "replace") for name in _CYRILLIC}
    shares = {name: len(re.findall("[а-яё]", text)) - 3 * len(_TURNED.findall(text)) for name, text in texts.items()}
    name = max(shares, key=lambda one: shares[one])
    return name if shares[name] * 2 >= len(_HIGH.findall(part)) else ""


def _few_cyrillic(part: bytes) -> str:
    """Return the Cyrillic encoding of one or a few words, which are too short for statistics; empty for any other text.

    All of their letters are beyond ASCII, capitals stand where capitals do, and vowels are as many as in Slavic languages. Greek or Hebrew
    words have fewer vowels.
    """
    if not 2 <= len(_HIGH.findall(part)) <= _FEW:
        return ""
    name = _cyrillic(part)
    words = [word for word in _HIGH_WORD.findall(part.decode(name, "replace")) if not word.isascii()] if name else []
    letters = "".join(words).lower()
    if not words or not all(map(_CYRILLIC_WORD.fullmatch, words)):
        return ""
    return name if sum(char in _VOWELS for char in letters) >= _VOWEL_SHARE * len(letters) else ""


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
