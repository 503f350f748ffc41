"""The words of a text, as the index knows them: folded to plain letters, without stop words, stemmed.

Questions and texts go the same way, so that "Cafés" finds "café". English is stemmed (Snowball) and has a stop list that knows
greetings and contractions; other languages are found by their words as they are, and scripts without spaces by pairs of characters, and
by single ones where these are words. Words end where UAX #29 ends them: not at a vowel sign of Hindi or Thai, nor at a soft hyphen or
another mark that nobody sees.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from typing import Any

LONGEST = 40
"""Characters of a word that count: what is longer is data, not language, and would fill the vocabulary."""
_KNOWN = 200_000
"""Words whose stems are remembered; then all are forgotten, and come back with their next use."""

_WORD = re.compile(r"[^\W_]+")
_PLAIN = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else 32 for code in range(256))
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
_WORDS_ALONE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\uac00-\ud7af]")
"""Ideographs and syllables: one can be a word."""
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0711\u0730-\u074a\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f]"
)
"""Marks that a word is found without: accents, points of Hebrew, vowels of Arabic, voicing of kana. Those of others are letters."""

_STOP = """
    a about above after again against ain all also am an and any are aren as at be because been before being below between both but by
    can could couldn d did didn do does doesn doing don done down during each either else ever few for from further get gets getting
    go goes going gone gonna got gotten had hadn has hasn have haven having he her here hers herself him himself his how i if in into
    is isn it its itself just let like ll m ma many me might mine more most much must mustn my myself needn neither no nor not now o
    of off oh ok okay on once one only or other our ours ourselves out over own quite rather re really s same shall shan she should
    shouldn since so some such t than that the their theirs them themselves then there these they thing things this those through thus
    to too under until up upon us ve very via was wasn way we well were weren what whatever when whenever where wherever whether which
    while who whoever whom whose why will with within without won would wouldn y yeah yep yes yet you your yours yourself yourselves
    bye cheers dear goodbye hello hey hi please sure thank thanks welcome wow
"""
STOP = frozenset(_STOP.split())
"""Words that say nothing of what a text is about."""


def words(text: str) -> list[str]:
    """The terms of a text under which it is indexed and searched, in order, repetitions included."""
    return list(filter(None, map(_STEMS.__getitem__, _split(text))))


def content_words(text: str) -> list[str]:
    """The words of a text that carry meaning, as `words` but not stemmed: for a model to read."""
    return [word for word in _split(text) if word not in STOP]


def _split(text: str) -> list[str]:
    if text.isascii():  # by bytes: a third of what the expression takes, and most texts are so
        return text.encode().translate(_PLAIN).decode().split()
    found: list[str] = []
    for word in _folded(text).split():
        if word.isascii() or not _UNSPACED.search(word):
            found.append(word)
        else:
            found += _pairs(word)
    return found


class _Folded(dict[int, str]):
    """What becomes of each character of a text that was taken apart (NFKD); filled as characters are met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if _ACCENTS.match(char) or category in ("Cf", "Me") or 0xFE00 <= code <= 0xFE0F or code == 0x640:
            folded = ""  # tatweel, the last, only makes a word longer on the page
        elif category == "Nd":
            folded = str(unicodedata.decimal(char))
        else:
            folded = char if char.isalnum() or category in ("Mn", "Mc") else " "
        self[code] = folded
        return folded


_FOLDED = _Folded()


def _folded(text: str) -> str:
    """Without accents, ligatures, case (NFKD, Unicode's case folding) and marks that nobody sees, with spaces between words."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", apart.translate(_FOLDED))  # NFKD also takes Korean syllables to pieces


def former(text: str) -> list[str]:
    """The terms of a question under which earlier versions of BAT OS indexed texts, where they are others than now: they ended words at
    vowel signs, and at marks that nobody sees."""
    if text.isascii():
        return []
    apart = unicodedata.normalize("NFKD", text.casefold())
    plain = unicodedata.normalize("NFC", "".join(char for char in apart if not unicodedata.combining(char)))
    found = (part for word in _WORD.findall(plain) for part in (_pairs(word) if _UNSPACED.search(word) else [word]))
    known = set(words(text))
    return [term for term in dict.fromkeys(filter(None, map(_STEMS.__getitem__, found))) if term not in known]


def _pairs(word: str) -> list[str]:
    """A word with script that has no spaces: that script by overlapping pairs of characters and those that are words alone, the rest as
    words."""
    found: list[str] = []
    end = 0
    for run in _UNSPACED.finditer(word):
        found += [part for part in (word[end : run.start()],) if part]
        chars, end = run.group(), run.end()
        found += [chars[i : i + 2] for i in range(len(chars) - 1)] or [chars]
        found += _WORDS_ALONE.findall(chars) if len(chars) > 1 else []
    return [*found, word[end:]] if word[end:] else found


class _Stems(dict[str, str]):
    """Word -> its stem, or "" for a word that is not indexed. Stemming costs a hundred times what looking up does."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()  # a stemmer keeps the word it is at work on
        self._stemmer: Any = None

    def __missing__(self, word: str) -> str:
        if word in STOP:
            stem = ""
        else:
            with self._lock:
                if self._stemmer is None:
                    import snowballstemmer  # late: it brings all its languages

                    self._stemmer = snowballstemmer.stemmer("english")
                stem = self._stemmer.stemWord(word[:LONGEST])
        if len(self) >= _KNOWN:
            self.clear()
        self[word] = stem
        return stem


_STEMS = _Stems()
