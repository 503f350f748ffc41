"""Quoting: which sentences, lines or list items of the passages from memory answer a brief, word for word.

A passage fits a brief where it holds what that is about (`batos.memory.subject`). Of one that fits, those parts are quoted, whole, that
hold most of it; what only asks, or only announces a list, hands its part on to what comes after it. Where no passage fits, nothing is
quoted: memory has the nearest for any question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from batos.memory.sentences import ITEM, sentences
from batos.memory.subject import Subject, contents_of, subject_of
from batos.mind.depth import kind_of
from batos.mind.evidence import Passage, invented

FITS = 0.6
"""Share of what a brief is about that a passage must hold to be quoted."""
_FITS_OWN = 0.5
"""The same, for a question about who asks: his notes and what he said are mostly about himself."""
_BESIDE = 0.75
"""Share of what the best passage holds that another must hold to be quoted beside it."""
_PASSAGES, _PARTS = 3, 3
"""Passages that are quoted at most, and parts of one that hold different words of the brief."""
_ITEMS = 20  # of a list that is quoted whole
_AGAIN = 0.5  # of a word's worth for one that the title, or another part, has already
_WHOLE = 600  # characters of a passage that is quoted whole where its title alone says what it is about
_KIN, _KIN_SHARE = 4, 0.65  # letters that two words of a kind share at least, and the share of the longer one that they are
_FIGURE = re.compile(r"\d")
_HEADING = re.compile(r"#{1,6} ")
_HEARSAY = re.compile(r"[?？]\W{0,5}$")
_ANNOUNCES = re.compile(r"[:：]\W{0,5}$")
_CELLS, _LINE = 2, 1000  # marks between cells that a row has at least, and characters that it has at most
_DATES = (
    r"\d{1,2}(?:[:.h/]\d{2}|[.](?!\d)|st\b|nd\b|rd\b|th\b| ?(?:uhr|h\b|[ap]\.?m\b|o['’]clock|時|点|月|日))|\b(?:19|20)\d\d\b|"
    r"o['’]clock|half past|quarter (?:to|past)|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|spring|summer|autumn|winter|noon|midnight|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|today|tomorrow|yesterday|tonight|morning|evening|"
    r"januar|februar|märz|mai|juni|juli|oktober|dezember|frühling|frühjahr|sommer|herbst|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|"
    r"heute|morgen|gestern|abend|mittag|"
    r"janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre|printemps|été|automne|"
    r"hiver|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|demain|matin|soir|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|"
    r"octubre|noviembre|diciembre|lunes|martes|miércoles|jueves|viernes|sábado|domingo|mañana|tarde|noche|gennaio|febbraio|aprile|maggio|giugno|"
    r"luglio|settembre|ottobre|dicembre|lunedì|martedì|mercoledì|giovedì|venerdì|sabato|domenica|domani|mattina|sera|janeiro|março|junho|julho|"
    r"setembro|outubro|dezembro|segunda|terça|quarta|quinta|sexta|amanhã|maart|mei|augustus|maandag|dinsdag|woensdag|donderdag|vrijdag|zaterdag|"
    r"zondag|avond|[日月年週周]|day|week|month|year"
)
_WANTS = tuple(
    (re.compile(question, re.IGNORECASE), re.compile(answer, re.IGNORECASE))
    for question, answer in (
        (
            r"^\W{0,5}(?:(?:and|und|look up|find out|tell me|check|remind me|sag mir|schau nach,?|finde heraus,?|dis-moi|dime|dimmi) )?"
            r"(?:when|wann|quand|cuándo|wanneer|quando)\b|\b(?:what|which) (?:day|date|time|month|year)\b|"
            r"\bwie viel uhr\b|"
            r"\bquelle (?:heure|date)\b|\bqué (?:hora|fecha)\b|\bche ora\b",
            _DATES,
        ),
        (
            r"\b(?:costs?|price|kostet|kosten|preis|coûte|coûtent|prix|cuestan?|precio|costa|costano|prezzo|custam?|preço)\b",
            r"[€$£¥]|\b(?:euros?|eur|dollars?|pounds?|francs?|franken|cents?|chf|usd|gbp|kronen?|kr|free|gratis|kostenlos|gratuit)\b",
        ),
        (r"\b(?:phone|telephone|telefon\w*|téléphone|teléfono|handynummer|rufnummer)\b", r"\d[\d /().-]{3,}\d"),
    )
)
_PLACED = re.compile(r"\W{0,5}(?:when|where|wann|wo|wohin|quand|où|cuándo|dónde|quando|dov|dove|onde|wanneer|waar)\b", re.I)
_POINTS_BACK = re.compile(
    r"\W{0,5}(?:it|its|he|she|they|his|her|this|that|these|those|er|sie|es|dieser?|dieses|il|elle|ils|elles|él|ella|ellos|lui|lei|ele|ela|hij|zij)\b",
    re.I,
)


class Quote(NamedTuple):
    """Words of a passage, as they stand there."""

    n: int
    """The passage's number, from 1."""
    text: str


def fits(brief: str, found: Sequence[Passage]) -> bool:
    """Whether any passage can be quoted to answer a brief."""
    return bool(quotes(brief, found))


def asks_for_fact(brief: str, found: Sequence[Passage]) -> bool:
    """Whether a brief asks for what a passage holds, so that whoever answers it has to keep to that: a question, no plan or text to
    write; of one word only where that is a name, or the question is about the user, or when or where something is."""
    subject = subject_of(brief)
    if not subject.asks or not fits(brief, found):
        return False
    if kind_of(brief)[0] is True and not any(len(subject.words) > 1 and share == 1 for _, share in _fitting(subject, found)):
        return False
    several = len(subject.words) + len(subject.figured) > 1
    return several or subject.own or subject.names or _PLACED.match(brief) is not None or _names(brief, subject)


def leaves(text: str, brief: str, found: Sequence[Passage]) -> bool:
    """Whether an answer leaves what the passages say to a brief: it has none of the words that they add to it, or figures or names that
    neither they nor the brief have."""
    new = contents_of(" ".join(quote.text for quote in quotes(brief, found))) - contents_of(brief)
    return not _held(new, contents_of(text)) or bool(invented(text, found, brief))


def quotes(brief: str, found: Sequence[Passage]) -> list[Quote]:
    """What the passages say to a brief, those that hold most of it; empty where none fits."""
    subject = subject_of(brief)
    fitting = _fitting(subject, found)
    if not fitting:
        return []
    most = max(share for _, share in fitting)
    wants = wanted_by(brief)
    chosen = [n for n, share in fitting if share >= _BESIDE * most]
    return [Quote(n, text) for n in chosen if (text := _answering(subject, wants, found[n - 1]))][:_PASSAGES]


def told(quoted: Iterable[Quote]) -> str:
    """Quotes as an answer, in quotation marks, each with the number of its passage."""
    return "\n".join(f"“{quote.text}” [{quote.n}]" for quote in quoted)


def _fitting(subject: Subject, found: Sequence[Passage]) -> list[tuple[int, float]]:
    """The numbers of the passages that fit, in their order, with how much of the subject each holds."""
    shares = [(n, _share(subject, one)) for n, one in enumerate(found, 1) if one.quotable]
    return [(n, share) for n, share in shares if share >= (_FITS_OWN if subject.own else FITS)]


def _share(subject: Subject, passage: Passage) -> float:
    """How much of a subject a passage holds, title and headings included: 0 to 1."""
    asked = [*subject.words, *subject.figured]
    if not asked:
        return 0.0
    said = set(_words(passage.text))
    held = _held(asked, said | set(_words(f"{passage.title} {passage.about}")))
    if subject.words and not _held(subject.words, said) and not held.issuperset(subject.words):
        return 0.0
    if _FIGURE.search(passage.text):
        held |= set(subject.figured)
    return len(held) / len(asked)


def _answering(subject: Subject, wants: Sequence[re.Pattern[str]], passage: Passage) -> str:
    """The parts of a passage that answer, as they stand there; empty where it has nothing of the kind that is wanted."""
    if not _has(wants, passage.text):
        return ""
    parts = list(_parts(passage.text))
    if len(parts) > 1 and parts[-1].endswith("…"):
        parts.pop()  # it was cut there, to fit a prompt
    left = set(subject.words) - _held(subject.words, set(_words(f"{passage.title} {passage.about}")))
    held = _handed_on(parts, set(subject.words))
    if not any(held):  # its title alone says what it is about
        return passage.text if len(passage.text) <= _WHOLE else "\n".join(_as_far(parts))
    if not any(one & left for one in held):
        left = set(subject.words)  # the title says of all of them what it is about, and the text once more
    taken: set[int] = set()
    whole = len(left)
    while left and len(taken) < _PARTS:
        if wants and 2 * len(left) <= whole and _has(wants, *(parts[at] for at in taken)):
            break  # what is wanted is there, beside most of what it is asked of
        weights = [len(one & left) + _AGAIN * len(one - left) + _wanted(subject, wants, parts[at]) for at, one in enumerate(held)]
        best = max((at for at in range(len(parts)) if held[at] & left), key=weights.__getitem__, default=None)
        if best is None:
            break
        taken.add(best)
        left -= held[best]
    if (left and not wants) or not _has(wants, *(parts[at] for at in taken)):  # what is not said by their words may be said after them
        taken |= {at + 1 for at in taken if at + 1 < len(parts)}
    if not _has(wants, *(parts[at] for at in taken)):
        return ""
    listed = {at + 1 + more for at in taken if _ANNOUNCES.search(parts[at]) for more in range(_items_after(parts, at + 1))}
    back = {at - 1 for at in taken if at and at - 1 not in taken and _POINTS_BACK.match(parts[at])}
    shown = sorted(taken | listed | back)
    return _joined(passage.text, [parts[at] for at in shown])


def _handed_on(parts: Sequence[str], left: set[str]) -> list[set[str]]:
    """What each part holds of these words; what a question holds, the part after it holds in its place."""
    held = [set() if _HEADING.match(part) else _held(left, set(_words(part))) for part in parts]
    for at, part in enumerate(parts[:-1]):
        if _HEARSAY.search(part):
            held[at + 1] |= held[at]
            held[at] = set()
    return held


def _wanted(subject: Subject, wants: Sequence[re.Pattern[str]], part: str) -> float:
    """Part of a word's worth for what is of the kind that is asked for: a date, a price, or any figure."""
    return 0.5 if (wants and _has(wants, part)) or (subject.figured and _FIGURE.search(part)) else 0.0


def _has(wants: Sequence[re.Pattern[str]], *parts: str) -> bool:
    return all(any(want.search(part) for part in parts) for want in wants)


def wanted_by(brief: str) -> list[re.Pattern[str]]:
    """What an answer to a brief must have, by its question words: patterns of dates and times, prices, or telephone numbers."""
    return [answer for question, answer in _WANTS if question.search(brief)]


def _items_after(parts: Sequence[str], at: int) -> int:
    """How many items of a list follow."""
    count = 0
    while at + count < len(parts) and count < _ITEMS and ITEM.match(parts[at + count]):
        count += 1
    return count


def _as_far(parts: Sequence[str]) -> Iterator[str]:
    left = _WHOLE
    for part in parts:
        if len(part) > left:
            return
        left -= len(part)
        yield part


def _joined(text: str, shown: Sequence[str]) -> str:
    """Parts as one text: on lines of their own where the passage has them so."""
    joined, at = "", 0
    for part in shown:
        begin = text.index(part, at)
        joined += ("\n" if "\n" in text[at:begin] else " ") * bool(joined) + part
        at = begin + len(part)
    return joined


def _parts(text: str) -> Iterator[str]:
    """The sentences of a text, its lines where these end on purpose, and items of lists whole."""
    begun: tuple[int, int] | None = None
    for start, end in _rows_whole(text, sentences(text, "text")):
        if begun is not None and "\n" not in text[begun[1] : start]:  # goes on with the item
            begun = (begun[0], end)
            continue
        if begun is not None:
            yield text[begun[0] : begun[1]]
        begun = (start, end) if ITEM.match(text[start:end]) else None
        if begun is None:
            yield text[start:end]
    if begun is not None:
        yield text[begun[0] : begun[1]]


def _rows_whole(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans, but each row of a table by itself and whole: "Tante Gesa;2. August;Teekanne"."""
    done = 0
    for start, end in spans:
        if start < done:
            continue
        if end - start > _LINE // 2:
            yield start, end
            continue
        begin, close = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        close = len(text) if close < 0 else close
        if not all(map(_is_row, text[begin:close].split("\n"))):
            yield start, end
            continue
        for line in text[begin:close].split("\n"):
            yield begin, begin + len(line)
            begin += len(line) + 1
        done = close


def _is_row(line: str) -> bool:
    if len(line) > _LINE:
        return False
    return max(line.count(";"), line.count("\t"), line.count(",") - line.count(", ")) >= _CELLS


def _held(asked: Iterable[str], said: set[str]) -> set[str]:
    """Which words are said, in whatever form: "allergic" by "allergy", "Zahnarzt" by "Zahnarzttermin"."""
    return {word for word in asked if word in said or any(_kin(word, one) for one in said)}


def _kin(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if len(short) < _KIN or one[0].isdigit():
        return False
    if len(short) > _KIN and (long.startswith(short) or long.endswith(short)):
        return True
    shared = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return shared >= max(_KIN, _KIN_SHARE * len(long))


def _names(brief: str, subject: Subject) -> bool:
    """Whether the one word that a question is about is a name: with a capital, not at the beginning, and without an article."""
    for match in re.finditer(r"(?<=\w )(\w+)", brief):
        before = brief[: match.start()].split()[-1].casefold()
        if match[1][0].isupper() and set(_words(match[1])) & set(subject.words) and not _ARTICLES.fullmatch(before):
            return True
    return False


_ARTICLES = re.compile("an?|the|eine?|eine[nmr]|der|die|das|den|dem|une?|les?|la|el|l[oa]s|uno|il|gli|os?|as|uma?|de|het|een")


def _words(text: str) -> list[str]:
    from batos.memory.words import words  # late: it brings the index

    return words(text)
