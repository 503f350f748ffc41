"""Tokenizer: the words of a text or question as the index knows them: folded to plain letters, without stop words, stemmed.

Questions and texts are treated alike, so that "Cafés" finds "café". English is stemmed (Snowball) and has a stop list that knows greetings
and contractions. Words of other languages are kept as they are, and scripts without spaces become pairs of characters, or single ones
where these are words. Words end where UAX #29 ends them: not at a vowel sign of Hindi or Thai, nor at a soft hyphen or another invisible
mark.

The subject of a question is its words without those that only ask, in the languages of Western Europe. The index stems and stops English
only. The subject decides whether a passage speaks to a question. So "wie", "mon" or "dónde" must not count as words that a passage needs.
"""

from __future__ import annotations

import re
import threading
import tomllib
import unicodedata
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

LONGEST = 40
"""Number of characters of a word that count: longer words are data, not language, and would fill the vocabulary."""
_KNOWN = 200_000
"""Size of the cache of stems. A full cache is emptied."""

_WORD = re.compile(r"[^\W_]+")
_PLAIN = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else 32 for code in range(256))
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
_WORDS_ALONE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\uac00-\ud7af]")
"""Matches ideographs and syllables, each of which can be a word."""
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0711\u0730-\u074a\u093c\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f]"
)
"""Marks that a search ignores: accents, points of Hebrew, vowels of Arabic, the dot of Hindi, voicing of kana. In other scripts marks are
letters.
"""

_LETTERS = {
    "ı": "i", "ł": "l", "ø": "o", "đ": "d", "ħ": "h", "œ": "oe", "æ": "ae",
    "ى": "ي", "ی": "ي", "ے": "ي", "ک": "ك", "ة": "ه", "ہ": "ه", "ۃ": "ه", "ۀ": "ه", "ە": "ه", "ٱ": "ا",
    "ൺ": "ണ്", "ൻ": "ന്", "ർ": "ര്", "ൽ": "ല്", "ൾ": "ള്", "ൿ": "ക്",
}  # fmt: skip
"""Letters -> those that the same words are written with as often: by another keyboard, in capitals, or in an older form of Unicode.

They are letters with strokes, ligatures, and the dotless i of Turkish. Letters of Arabic, Persian and Urdu have several forms, and so have
final consonants of Malayalam.
"""

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
"""Words that say nothing about the subject of a text."""


def words(text: str) -> list[str]:
    """Return the terms of a text under which it is indexed and searched, in order, repetitions included."""
    return list(filter(None, map(_STEMS.__getitem__, _split(text))))


def content_words(text: str) -> list[str]:
    """Return the words of a text that carry meaning, as `words` but not stemmed: for a model to read."""
    return [word for word in _split(text) if word not in STOP]


def _split(text: str) -> list[str]:
    if text.isascii():  # by bytes: most texts are ASCII, and this takes a third of the regular expression's time
        return text.encode().translate(_PLAIN).decode().split()
    found: list[str] = []
    for word in _folded(text).split():
        if word.isascii() or not _UNSPACED.search(word):
            found.append(word)
        else:
            found += _pairs(word)
    return found


_SARA_AM = re.compile("\u0e4d([\u0e48-\u0e4b])\u0e32")
"""Matches the Thai vowel am with its tone mark behind its first half, as PDF files often have it."""

_NASAL = re.compile("ङ्(?=[क-घ])|ञ्(?=[च-झ])|ण्(?=[ट-ढ])|न्(?=[त-ध])|म्(?=[प-भ])|ँ")
"""Matches the nasals of Hindi that many writers write as a dot."""


class _Folded(dict[int, str]):
    """Table from each character of a decomposed text (NFKD) to its plain form; filled as characters are met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if _ACCENTS.match(char) or category in ("Cf", "Me") or 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or code == 0x640:
            folded = ""  # selectors choose a form of a character; tatweel, the last one, only stretches a word on the page
        elif char in _LETTERS:
            folded = _LETTERS[char]
        elif category == "Nd":
            folded = str(unicodedata.decimal(char))
        else:
            folded = char.casefold() if char.isalnum() or category in ("Mn", "Mc") else " "  # bold letters of formulas have case only here
        self[code] = folded
        return folded


_FOLDED = _Folded()


def _folded(text: str) -> str:
    """Return the text without accents, ligatures, case (NFKD, Unicode's case folding) and invisible marks, with spaces between words."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    if "\u0e4d" in apart:
        apart = _SARA_AM.sub("\\1\u0e4d\u0e32", apart)
    if "\u0901" in apart or "\u094d" in apart:
        apart = _NASAL.sub("\u0902", apart)
    return unicodedata.normalize("NFC", apart.translate(_FOLDED))  # NFKD decomposes Korean syllables, too


def former(text: str) -> list[str]:
    """Return a question's terms as earlier versions of BAT OS indexed them, if they differ: words ended at vowel signs and invisible
    marks.
    """
    if text.isascii():
        return []
    apart = unicodedata.normalize("NFKD", text.casefold())
    plain = unicodedata.normalize("NFC", "".join(char for char in apart if not unicodedata.combining(char)))
    found = (part for word in _WORD.findall(plain) for part in (_pairs(word) if _UNSPACED.search(word) else [word]))
    known = set(words(text))
    return [term for term in dict.fromkeys(filter(None, map(_STEMS.__getitem__, found))) if term not in known]


def _pairs(word: str) -> list[str]:
    """Return the terms of a word with a script without spaces: overlapping pairs of characters, and characters that are words alone; the
    rest as words.
    """
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
        self._lock = threading.Lock()  # a stemmer keeps the current word as its state
        self._stemmer: Any = None

    def __missing__(self, word: str) -> str:
        if word in STOP:
            stem = ""
        else:
            with self._lock:
                if self._stemmer is None:
                    import snowballstemmer  # late import: it loads the stemmers of all languages

                    self._stemmer = snowballstemmer.stemmer("english")
                stem = self._stemmer.stemWord(word[:LONGEST])
        if len(self) >= _KNOWN:
            self.clear()
        self[word] = stem
        return stem


_STEMS = _Stems()


_TOKEN = re.compile(r"[^\W_]+")
_OPENING = 4  # number of first words among which a word such as "find" counts as a look-up
_NAMING = re.compile("heisst|heisse|heissen|appelle|llama|llamo|llaman|chiama|chiamo|chiamano|chama|chamam|heet|heten")
_OPENS = re.compile(
    r"\W{0,5}(?:(?:and|und|et|y|e|en) )?(?:what|who|whom|whose|when|where|which|how|why|is|are|was|were|do|does|did|can|has|have|am|"
    r"look up|look for|find|search|tell me|remind me|give me|name|list|show me|check|"
    r"was|wer|wen|wem|wessen|wann|wo|wohin|woher|wie|warum|welche\w?|wogegen|womit|wofür|nenne?|sage? mir|suche?|finde|erinnere? mich|"
    r"zeige? mir|"
    r"qui|que|quoi|quand|où|comment|pourquoi|quel\w*|combien|dis-moi|cherche|rappelle-moi|"
    r"qué|quién\w*|cuándo|dónde|cómo|cuál\w*|cuánt\w*|dime|busca|recuérdame|"
    r"che|chi|cosa|quando|dove|come|perché|qual\w*|quant\w*|dimmi|cerca|ricordami|"
    r"quem|onde|diz-me|lembra-me|wie|wat|wanneer|waar|hoe|welke?|hoeveel|zeg|zoek)\b",
    re.IGNORECASE,
)
_ANSWERED = re.compile(
    r"\byou (?:have |had )?(?:said|say|told|answered|suggested|recommended|wrote|mentioned|planned|explained|proposed|advised|called)\b"
    r"|\b(?:did|have|had|do|would) you (?:ever |just |already |not )?(?:say|said|tell|told|answer|suggest|recommend|write|written|mention|"
    r"explain|propose|advise|plan)"
    r"|\byour (?:last|earlier|previous|first|former|old) (?:answer|suggestion|advice|plan|reply|recommendation|idea|proposal)"
    r"|\b(?:i|we) (?:have |had )?(?:asked|talked|spoke|spoken|discussed|decided|agreed)\b"
    r"|\bdid (?:i|we) (?:ask|talk|speak|discuss|decide|agree)\b"
    r"|\b(?:hast|hattest) du\b.{0,80}\b(?:gesagt|geantwortet|vorgeschlagen|empfohlen|geschrieben|erklärt|geraten|erzählt)\b"
    r"|\bdu\b.{0,40}\b(?:gesagt|geantwortet|vorgeschlagen|empfohlen|geschrieben|erklärt|geraten) (?:hast|hattest)\b"
    r"|\bdeine?r? (?:letzte|frühere|vorige|erste)n? (?:antwort|empfehlung|rat|vorschlag|plan|idee)"
    r"|\bhaben wir\b.{0,60}\b(?:besprochen|geredet|beschlossen|gesprochen)\b"
    r"|\b(?:as-tu|avez-vous|tu (?:m['’])?(?:as|avais)|vous (?:m['’])?avez)\b.{0,40}"
    r"\b(?:dit|répondu|proposé|conseillé|recommandé|écrit|expliqué)\b"
    r"|\b(?:dijiste|respondiste|sugeriste|recomendaste|propusiste|escribiste|explicaste|aconsejaste|hablamos|acordamos)\b"
    r"|\b(?:hai|avevi)\b.{0,20}\b(?:detto|risposto|suggerito|consigliato|proposto|scritto|spiegato)\b"
    r"|\b(?:disseste|respondeste|recomendaste|propuseste|falámos|você (?:disse|respondeu|sugeriu|recomendou))\b"
    r"|\b(?:heb|had) (?:je|jij)\b.{0,60}\b(?:gezegd|geantwoord|voorgesteld|aangeraden|geschreven)\b",
    re.IGNORECASE,
)


class Subject(NamedTuple):
    """Subject of a question."""

    words: tuple[str, ...]
    """Index terms that an answer must hold."""
    figured: tuple[str, ...]
    """Terms for which a number in the text counts as well."""
    asks: bool
    """True if the text asks or looks something up; False for a plan or a text to write."""
    own: bool
    """True if it is about the asking user: "my", "ich", "nous"."""
    names: bool = False
    """True if it asks for the name of something."""


def subject_of(text: str) -> Subject:
    """Return the subject of a text read as a question."""
    lists, said = _lists(), _TOKEN.findall(text)
    language = _language_of(said)
    asking = lists.asking.get(language, frozenset())  # English asking words are not terms
    bare = [(word, at) for at, token in enumerate(said) if token.casefold() not in asking for word in words(token)]
    figured = tuple(dict.fromkeys(word for word, _ in bare if word in lists.figured))
    about = [(word, at) for word, at in bare if word not in figured]
    particular = [word for word, at in about if not (word in lists.naming or (at < _OPENING and word in lists.lookup))]
    chosen = tuple(dict.fromkeys(particular or [word for word, _ in about]))
    asks = "?" in text or "？" in text or _OPENS.match(text) is not None
    names = bool(particular) and any(
        _NAMING.fullmatch(token.casefold()) is not None or not lists.naming.isdisjoint(words(token)) for token in said
    )
    return Subject(chosen, figured, asks, any(token.casefold() in lists.own[language] for token in said), names)


def contents_of(text: str) -> set[str]:
    """Return the index terms of a text that say something, in whatever of these languages it is."""
    return set(words(text)) - _lists().all_


def asks_what_was_answered(text: str) -> bool:
    """Return True if a text asks for an earlier answer of the system, or an earlier conversation: "what did you say about …"."""
    return _ANSWERED.search(text[:2000]) is not None


def _language_of(said: Sequence[str]) -> str:
    """Return the language of a question by the words that ask, by its code: that which has most of them."""
    found = [token.casefold() for token in said[:400]]
    counts = {language: sum(token in spelled for token in found) for language, spelled in _lists().asking.items()}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] > sum(token in STOP for token in found) else "en"


class _Lists(NamedTuple):
    lookup: frozenset[str]
    naming: frozenset[str]
    figured: frozenset[str]
    asking: dict[str, frozenset[str]]
    """Language -> its asking words, as they are spelled."""
    own: dict[str, frozenset[str]]
    all_: frozenset[str]


@cache
def _lists() -> _Lists:
    table = tomllib.loads(resources.files("batos.memory").joinpath("asking.toml").read_text("utf-8"))
    lookup, naming, figured = (frozenset(words(table[name])) for name in ("lookup", "naming", "figured"))
    asking = {language: frozenset(listed.split()) for language, listed in table["asking"].items()}
    own = {language: frozenset(listed.split()) for language, listed in table["own"].items()}
    terms = frozenset(word for listed in table["asking"].values() for word in words(listed))
    return _Lists(lookup, naming, figured, asking, own, terms | lookup | naming)
