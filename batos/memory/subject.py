"""What a question is about: its words without those that only ask, in the languages of Western Europe; and whether it asks at all.

The index stems and stops English only. Here is decided whether a passage speaks to a question, so that "wie", "mon" or "dónde" must not
count as words that it has to hold.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from batos.memory.words import STOP, words

_TOKEN = re.compile(r"[^\W_]+")
_OPENING = 4  # words with which something is looked up
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
    """What a question is about."""

    words: tuple[str, ...]
    """Index terms that an answer must hold."""
    figured: tuple[str, ...]
    """Terms of what a figure tells as well."""
    asks: bool
    """Whether it asks or looks something up; a plan or a text to write does not."""
    own: bool
    """Whether it is about who asks: "my", "ich", "nous"."""
    names: bool = False
    """Whether it asks what something is called."""


def subject_of(text: str) -> Subject:
    """What a text is about, as a question."""
    lists, said = _lists(), _TOKEN.findall(text)
    language = _language_of(said)
    asking = lists.asking.get(language, frozenset())  # English ones are no terms
    bare = [(word, at) for at, token in enumerate(said) if token.casefold() not in asking for word in words(token)]
    figured = tuple(dict.fromkeys(word for word, _ in bare if word in lists.figured))
    about = [(word, at) for word, at in bare if word not in figured]
    particular = [word for word, at in about if not (word in lists.naming or (at < _OPENING and word in lists.lookup))]
    chosen = tuple(dict.fromkeys(particular or [word for word, _ in about]))
    asks = "?" in text or "？" in text or _OPENS.match(text) is not None
    names = bool(particular) and any(
        bool(_NAMING.fullmatch(token.casefold())) or word in lists.naming for token in said for word in words(token) or [""]
    )
    return Subject(chosen, figured, asks, any(token.casefold() in lists.own[language] for token in said), names)


def contents_of(text: str) -> set[str]:
    """The index terms of a text that say something, in whatever of these languages it is."""
    return set(words(text)) - _lists().all_


def asks_what_was_answered(text: str) -> bool:
    """Whether a text asks for what the system itself said, or what was talked about with it: "what did you say about …"."""
    return _ANSWERED.search(text[:2000]) is not None


def _language_of(said: Sequence[str]) -> str:
    """The language of a question by the words that ask, by its code: that which has most of them."""
    found = [token.casefold() for token in said[:400]]
    counts = {language: sum(token in spelled for token in found) for language, spelled in _lists().asking.items()}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] > sum(token in STOP for token in found) else "en"


class _Lists(NamedTuple):
    lookup: frozenset[str]
    naming: frozenset[str]
    figured: frozenset[str]
    asking: dict[str, frozenset[str]]
    """By language, as they are spelled."""
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
