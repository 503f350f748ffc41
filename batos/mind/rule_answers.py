"""Direct answers: quote passages from memory, or call a taught method, instead of thinking. By rule.

A passage fits a brief if it holds the brief's subject (`batos.memory.tokenizer`). Those parts of it (sentences, lines or list items) are
quoted whole that hold most of the subject. A part that only asks, or only announces a list, hands its share on to the next. If no passage
fits, nothing is quoted: a search finds the nearest passage for any question.

A method answers a brief such as "Convert 50 Fahrenheit to Celsius": `celsius_`, if a user taught its purpose. It is called if the brief
says nothing but that purpose, in the same order, and has exactly the values that the method takes. The purpose is its intent and its
selector. A brief with a remainder, with another possible meaning, or that would change anything is doubtful, and is thought about.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from batos.errors import MethodError
from batos.image import history, taught_examples
from batos.image.mission_record import FROM_OTHERS
from batos.memory.chunking import ITEM, sentences
from batos.memory.tokenizer import Subject, contents_of, subject_of
from batos.methods.runtime import parameters_of, takes
from batos.mind import answer_checks
from batos.mind.attempt import Attempt
from batos.mind.brief_analysis import AUTO, kind_of
from batos.mind.evidence import RecalledPassage, invented
from batos.mind.inference import ThinkingLimits
from batos.mind.messages import send
from batos.objects import Example, Method, UvmObject
from batos.synthesis.specification import KINDS
from batos.synthesis.specification import kind_of as plain_values_kind_of

FITS = 0.6
"""Least share of the subject's words in a passage that is quoted."""
_FITS_OWN = 0.5
"""The same share for a question about the user: notes and statements of the user are mostly about the user."""
_BESIDE = 0.75
"""Least share of the best passage's words in a further passage that is quoted."""
_PASSAGES, _PARTS = 3, 3
"""Greatest number of quoted passages, and of parts of one passage that contain different words of the brief."""
_ITEMS = 20  # greatest number of items of a list that is quoted whole
_AGAIN = 0.5  # weight of a word that the title or another part contains already
_WHOLE = 600  # greatest number of characters of a passage that is quoted whole if only its title names the subject
_KIN, _KIN_SHARE = 4, 0.65  # related words share at least this many letters, and this share of the longer word
_FIGURE = re.compile(r"\d")
_HEADING = re.compile(r"#{1,6} ")
_HEARSAY = re.compile(r"[?？]\W{0,5}$")
_ANNOUNCES = re.compile(r"[:：]\W{0,5}$")
_CELLS, _LINE = 2, 1000  # least number of separators of a table row, and its greatest number of characters
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
_OWNED = re.compile(r"([^\W\d_]{2,40})['’]s((?: [\w-]{1,30}){1,3})")


class Quote(NamedTuple):
    """Words of a passage, as they stand there."""

    n: int
    """Number of the passage, from 1."""
    text: str


def can_quote(brief: str, found: Sequence[RecalledPassage]) -> bool:
    """Return True if a passage can be quoted to answer a brief."""
    return bool(quotes(brief, found))


def asks_for_fact(brief: str, found: Sequence[RecalledPassage]) -> bool:
    """Return True if a brief asks for a fact in a passage, so that its answer must keep to that passage.

    It must be a question, not a plan or a text to write. A subject of one word counts only if it is a name, or the question is about the
    user, a time or a place.
    """
    subject = subject_of(brief)
    if not subject.asks or not can_quote(brief, found):
        return False
    if kind_of(brief)[0] is True and not any(len(subject.words) > 1 and share == 1 for _, share in _fitting(subject, found)):
        return False
    several = len(subject.words) + len(subject.figured) > 1
    return several or subject.own or subject.names or _PLACED.match(brief) is not None or _names(brief, subject)


def departs_from(text: str, brief: str, found: Sequence[RecalledPassage]) -> bool:
    """Return True if an answer departs from the passages for a brief.

    It has none of the words that they add to the brief, or it has figures or names that neither they nor the brief have.
    """
    new = contents_of(" ".join(quote.text for quote in quotes(brief, found))) - contents_of(brief)
    return not _contained_words(new, contents_of(text)) or bool(invented(text, found, brief))


def quotes(brief: str, found: Sequence[RecalledPassage]) -> list[Quote]:
    """Return the quotes that hold most of a brief's subject; empty if no passage fits."""
    subject = subject_of(brief)
    fitting = _fitting(subject, found)
    if not fitting:
        return []
    most = max(share for _, share in fitting)
    wants, owners = wanted_by(brief), {word for owner in _OWNED.finditer(brief) for word in _words(owner[1])}
    chosen = [n for n, share in fitting if share >= _BESIDE * most]
    return [Quote(n, text) for n in chosen if (text := _answering(subject, wants, owners, found[n - 1]))][:_PASSAGES]


def quotes_text(quoted: Iterable[Quote]) -> str:
    """Return quotes as an answer, in quotation marks, each with the number of its passage."""
    return "\n".join(f"“{quote.text}” [{quote.n}]" for quote in quoted)


def _fitting(subject: Subject, found: Sequence[RecalledPassage]) -> list[tuple[int, float]]:
    """Return the numbers of the passages that fit, in their order, with how much of the subject each holds."""
    shares = [(n, _share(subject, one)) for n, one in enumerate(found, 1) if one.quotable]
    return [(n, share) for n, share in shares if share >= (_FITS_OWN if subject.own else FITS)]


def _share(subject: Subject, passage: RecalledPassage) -> float:
    """Return the share of a subject that a passage holds, title and headings included: 0 to 1."""
    asked = [*subject.words, *subject.figured]
    if not asked:
        return 0.0
    said = set(_words(passage.text))
    held = _contained_words(asked, said | set(_words(f"{passage.title} {passage.about}")))
    if subject.words and not _contained_words(subject.words, said) and not held.issuperset(subject.words):
        return 0.0
    if _FIGURE.search(passage.text):
        held |= set(subject.figured)
    return len(held) / len(asked)


def _answering(subject: Subject, wants: Sequence[re.Pattern[str]], owners: set[str], passage: RecalledPassage) -> str:
    """Return the parts of a passage that answer, unchanged; empty if the passage lacks the wanted kind of fact.

    :param owners: words of those whose thing is asked about: "Anna's birthday".
    """
    if not _has(wants, passage.text):
        return ""
    parts = list(_parts(passage.text))
    if len(parts) > 1 and parts[-1].endswith("…"):
        parts.pop()  # the prompt's limit cut the passage there
    left = set(subject.words) - _contained_words(subject.words, set(_words(f"{passage.title} {passage.about}")))
    held = _handed_on(parts, set(subject.words))
    of_others = {at for at, part in enumerate(parts) if _is_of_another(part, subject, owners)}
    held = [set() if at in of_others else one for at, one in enumerate(held)]
    if of_others and not any(held):
        return ""
    if not any(held):  # only the title names the subject
        return passage.text if len(passage.text) <= _WHOLE else "\n".join(_parts_within_limit(parts))
    if not any(one & left for one in held):
        left = set(subject.words)  # the title names the subject of all parts: look for the words in the text as well
    taken: set[int] = set()
    whole = len(left)
    while left and len(taken) < _PARTS:
        if wants and 2 * len(left) <= whole and _has(wants, *(parts[at] for at in taken)):
            break  # the wanted fact is there, with most of the question's words
        weights = [len(one & left) + _AGAIN * len(one - left) + _wanted(subject, wants, parts[at]) for at, one in enumerate(held)]
        best = max((at for at in range(len(parts)) if held[at] & left), key=weights.__getitem__, default=None)
        if best is None:
            break
        taken.add(best)
        left -= held[best]
    # the parts lack words or the wanted fact: the next part may have them
    if (left and not wants) or not _has(wants, *(parts[at] for at in taken)):
        taken |= {at + 1 for at in taken if at + 1 < len(parts) and at + 1 not in of_others}
    if not _has(wants, *(parts[at] for at in taken)):
        return ""
    listed = {at + 1 + more for at in taken if _ANNOUNCES.search(parts[at]) for more in range(_items_after(parts, at + 1))}
    back = {_antecedent(parts, at) for at in taken} - taken
    shown = sorted(taken | listed | back)
    return _joined(passage.text, [parts[at] for at in shown])


def _antecedent(parts: Sequence[str], at: int) -> int:
    """Return the index of the part that names what a part speaks of; a part that does not begin with a pronoun names it itself."""
    while at and _POINTS_BACK.match(parts[at]):
        at -= 1
    return at


def _is_of_another(part: str, subject: Subject, owners: set[str]) -> bool:
    """Return True if a part names another owner of what is asked: "Ben's birthday" for "Anna's birthday", or "my birthday"."""
    if not (owners or subject.own):
        return False
    whose = [set(_words(owned[1])) for owned in _OWNED.finditer(part) if _contained_words(subject.words, set(_words(owned[2])))]
    return bool(whose) and not any(_contained_words(owners, one) for one in whose)


def _handed_on(parts: Sequence[str], left: set[str]) -> list[set[str]]:
    """Return for each part which of these words it holds.

    The words of a question count for the part after it. Those of a part count for the next one if that begins with a pronoun.
    """
    held = [set() if _HEADING.match(part) else _contained_words(left, set(_words(part))) for part in parts]
    for at, part in enumerate(parts[:-1]):
        if _HEARSAY.search(part):
            held[at + 1] |= held[at]
            held[at] = set()
        elif _POINTS_BACK.match(parts[at + 1]):
            held[at + 1] |= held[at]
    return held


def _wanted(subject: Subject, wants: Sequence[re.Pattern[str]], part: str) -> float:
    """Return a bonus, a part of a word's value, if the part contains the wanted fact: a date, a price, or any number."""
    return 0.5 if (wants and _has(wants, part)) or (subject.figured and _FIGURE.search(part)) else 0.0


def _has(wants: Sequence[re.Pattern[str]], *parts: str) -> bool:
    return all(any(want.search(part) for part in parts) for want in wants)


def wanted_by(brief: str) -> list[re.Pattern[str]]:
    """Return the patterns that an answer to a brief must match, by its question words: dates and times, prices, or telephone numbers."""
    return [answer for question, answer in _WANTS if question.search(brief)]


def _items_after(parts: Sequence[str], at: int) -> int:
    """Return the number of list items that follow."""
    count = 0
    while at + count < len(parts) and count < _ITEMS and ITEM.match(parts[at + count]):
        count += 1
    return count


def _parts_within_limit(parts: Sequence[str]) -> Iterator[str]:
    left = _WHOLE
    for part in parts:
        if len(part) > left:
            return
        left -= len(part)
        yield part


def _joined(text: str, shown: Sequence[str]) -> str:
    """Return parts as one text, on separate lines where the passage separates them."""
    joined, at = "", 0
    for part in shown:
        begin = text.index(part, at)
        joined += ("\n" if "\n" in text[at:begin] else " ") * bool(joined) + part
        at = begin + len(part)
    return joined


def _parts(text: str) -> Iterator[str]:
    """Yield the sentences of a text, its lines where these end on purpose, and items of lists whole."""
    begun: tuple[int, int] | None = None
    for start, end in _rows_whole(text, sentences(text, "text")):
        if begun is not None and "\n" not in text[begun[1] : start]:  # the part continues the list item
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
    """Yield the spans, but each row of a table by itself and whole: "Tante Gesa;2. August;Teekanne"."""
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


def _contained_words(asked: Iterable[str], said: set[str]) -> set[str]:
    """Return the words that a text contains in any form: "allergic" matches "allergy", "Zahnarzt" matches "Zahnarzttermin"."""
    return {word for word in asked if word in said or any(_same_stem(word, one) for one in said)}


def _same_stem(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if len(short) < _KIN or one[0].isdigit():
        return False
    if len(short) > _KIN and (long.startswith(short) or long.endswith(short)):
        return True
    shared = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return shared >= max(_KIN, _KIN_SHARE * len(long))


def _names(brief: str, subject: Subject) -> bool:
    """Return True if the one word that a question is about is a name: with a capital, not at the beginning, and without an article."""
    for match in re.finditer(r"(?<=\w )(\w+)", brief):
        before = brief[: match.start()].split()[-1].casefold()
        if match[1][0].isupper() and set(_words(match[1])) & set(subject.words) and not _ARTICLES.fullmatch(before):
            return True
    return False


_ARTICLES = re.compile("an?|the|eine?|eine[nmr]|der|die|das|den|dem|une?|les?|la|el|l[oa]s|uno|il|gli|os?|as|uma?|de|het|een")


def _words(text: str) -> list[str]:
    from batos.memory.tokenizer import words  # late import: it loads the index

    return words(text)


_CHARS = 2000  # greatest number of characters of a brief that calls a method
_LEAST = 2  # least number of words of the purpose in the brief
_SHARE = 0.5  # least share of the purpose's words in the brief
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_VALUE = re.compile(
    r"(?P<items>\[[^\[\]]*\])|\"(?P<double>[^\"]*)\"|“(?P<curly>[^“”]*)”|(?<!\w)'(?P<single>[^']*)'(?!\w)|`(?P<ticks>[^`]*)`"
    r"|(?<![^\s(,;])(?P<number>-?\d+(?:\.\d+)?)(?=$|[\s)?!;]|[.,](?:\s|$))"
)
_ASKING = """
    a an the of to in into as is are be please can could you would will i me my it its this that these what what's which for from with and
    by on at do does many much there have has hi hello thanks convert compute calculate determine find give tell show say get return returns
    result value equal equals make put work out
"""
_BARE = frozenset(_ASKING.split())
"""Words that ask for something without naming it. `how` counts only before `many` and `much`."""
_HERE, _TO, _FROM = "valuehere", "to", "from"  # marks; the first replaces a value, and no brief contains it
_WAYS = {"to": _TO, "into": _TO, "in": _TO, "as": _TO, "from": _FROM}
_ARTICLES_CALLING = ("a", "an", "the", "degrees", "degree")
_KIND_NAMES = "number numbers text texts string strings list lists items item value values argument given"
_KIND_WORDS = frozenset(_KIND_NAMES.split())
_JOINED = re.compile(r"(?:,|;|(?:,\s*)?and|&)?", re.IGNORECASE)  # text between values


class AnsweringCall(NamedTuple):
    """A message that answers a brief."""

    target: UvmObject
    selector: str
    args: tuple[Any, ...]

    def told(self) -> dict[str, Any]:
        """Return the call as in a result."""
        return {"target": history.oid_of(self.target), "name": self.target.name, "selector": self.selector, "args": list(self.args)}


_NOT_A_USER = {"system", *FROM_OTHERS}  # origins of briefs whose words call no method


class _Reading(NamedTuple):
    """A brief as words and values."""

    said: tuple[str, ...]
    values: tuple[Any, ...]
    listed: bool
    """True if the values have only commas and `and` between them."""


def method_call_for(lobby: UvmObject, attempt: Attempt, brief: str) -> AnsweringCall | None:
    """Return the only call that a mission's brief can mean; None if there is none, or several are possible."""
    mission = attempt.mission
    asked_otherwise = any(getattr(mission, name) not in (None, AUTO) for name in ("schema", "context", "persona", "depth"))
    asked_otherwise = asked_otherwise or bool(mission.images)  # a method sees no picture
    if ThinkingLimits.of(attempt.settings).call_methods == "off" or mission.origin in _NOT_A_USER or asked_otherwise or len(brief) > _CHARS:
        return None
    readings = list(_readings(brief))  # readings first: most briefs contain no values
    calls = [
        AnsweringCall(holder, method.selector, args)
        for holder, method, taught, intent in (_methods(lobby) if readings else ())
        for said, values, listed in readings
        if _is_for(said, method.selector, intent) and (args := _arguments(method, taught, values, listed)) is not None and method.intact()
    ]
    return calls[0] if len(calls) == 1 else None


async def answer_by_method(call: AnsweringCall) -> tuple[str, Any] | None:
    """Return the answer of a call, as text and as a value; None if the call fails, or its answer has no text."""
    try:
        value = history.whole(await send(call.target, call.selector, *call.args))
    except MethodError:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return None if value is None or answer_checks.fault_of(text) else (text, value)


def _methods(lobby: UvmObject) -> Iterator[tuple[UvmObject, Method, Sequence[Example], str]]:
    """Yield the vouched methods of the lobby and the personas that change nothing, with their examples and intents."""
    root = lobby._p_jar.root()
    personas = (lobby._slots.get(name) for name in lobby.personas)
    for holder in (lobby, *(one for one in personas if isinstance(one, UvmObject))):
        for method in list(holder._slots.values()):
            if isinstance(method, Method):
                contract, came = dict(method.contract), dict(method.provenance)
                taught, intent = taught_examples.examples_of(root, holder, method.selector)
                intent = intent or came.get("intent", "")
                if (taught or intent) and not (contract.get("writes") or contract.get("sends") or came.get("open")):
                    yield holder, method, taught, intent


def _readings(brief: str) -> Iterator[_Reading]:
    """Yield the ways to read a brief: with the values in it, or with the text behind a colon as one value."""
    values: list[Any] = []
    gaps, said, end = [], "", 0
    for match in _VALUE.finditer(brief):
        value = _value(match)
        if values:
            gaps.append(brief[end : match.start()])
        values.append(value)
        said += f"{brief[end : match.start()]} {_HERE} "
        end = match.end()
    said += brief[end:]
    if values and not re.search(r"\d", said):  # remaining digits belong to a date, a unit or a sum, not to a plain number
        yield _Reading(_words_with_marks(said), tuple(values), all(_JOINED.fullmatch(gap.strip()) for gap in gaps))
    head, colon, rest = brief.partition(":")
    if colon and rest[:1].isspace() and rest.strip() and not _VALUE.search(brief) and not re.search(r"\d", head):
        yield _Reading(_words_with_marks(head), (rest.strip(),), True)


def _value(match: re.Match[str]) -> Any:
    kind, text = str(match.lastgroup), match[str(match.lastgroup)]
    if kind not in ("items", "number"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _words_with_marks(text: str) -> tuple[str, ...]:
    """Return the words of a text; a value has a mark in its place."""
    plain = re.sub(r"\bhow (?=many|much)", "", text, flags=re.IGNORECASE)
    return tuple(word.lower().replace("’", "'") for word in _WORD.findall(plain))


def _is_for(said: Sequence[str], selector: str, intent: str) -> bool:
    """Return True if a brief says the purpose of a method, and nothing else."""
    if re.search(r"\d", intent):  # the purpose may hold for that number only
        return False
    told = _words_with_marks(intent)
    sources = [list(filter(None, map(_term, words_of))) for words_of in (told, _words_with_marks(selector.replace("_", " ")))]
    purpose = {term for source in sources for term in source}
    if any(word not in _BARE and word not in _KIND_WORDS and word != _HERE and _term(word) not in purpose for word in said):
        return False
    matched = [term for term in dict.fromkeys(map(_term, said)) if term in purpose]
    for source in sources:
        order = [source.index(term) for term in matched if term in source]
        if order != sorted(order):
            return False
    return len(matched) >= _LEAST and len(matched) >= _SHARE * len(purpose) and _same_way(said, told)


def _same_way(said: Sequence[str], intent: Sequence[str]) -> bool:
    """Return True if a brief and an intent convert between the same things.

    A value stands before its unit, which is the unit that the intent converts from, or that the brief names first.
    """
    asked, meant = _directions(said), _directions(intent)
    if any(asked[term] != meant[term] for term in asked.keys() & meant.keys()):
        return False
    at = said.index(_HERE) if _HERE in said else len(said)
    of = next((term for term in map(_term, said[at + 1 :]) if term), None)
    sources = {term for term, way in meant.items() if way == _FROM}
    first = next(filter(None, map(_term, said)), None)
    return of is None or (of in sources if sources else of == first and meant.get(of) != _TO)


def _directions(told: Sequence[str]) -> dict[str, str]:
    """Return the direction of each term of a text that follows a word of direction."""
    ways = ((_term(word), _WAYS.get(before)) for before, word in itertools.pairwise(one for one in told if one not in _ARTICLES_CALLING))
    return {term: way for term, way in ways if term and way}


def _term(word: str) -> str | None:
    """Return the stem of a word; None for a word that is not part of a purpose."""
    if word == _HERE or word in _BARE or word in _KIND_WORDS:
        return None
    from batos.memory.tokenizer import words  # late import: it loads the index

    return next(iter(words(word)), None)


def _arguments(method: Method, taught: Sequence[Example], values: tuple[Any, ...], listed: bool) -> tuple[Any, ...] | None:
    """Return the arguments of a call, if the values of the brief fit the method's parameters in exactly one way."""
    parameters = parameters_of(method.source)
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in parameters):
        return None
    needed = [one for one in parameters if one.default is one.empty]
    if not taught and any(one.name.rstrip("0123456789") not in KINDS for one in needed):  # the types of the parameters are unknown
        return None
    if len(needed) == 1 and len(values) > 1 and listed and takes(method.source, taught, [list(values)], {}):
        return None if takes(method.source, taught, [values[0]], {}) else (list(values),)
    if len(values) != len(needed):
        return None
    if len({plain_values_kind_of(value) for value in values}) == len(values):
        fitting = [given for given in itertools.permutations(values) if takes(method.source, taught, given, {})]
    else:
        fitting = [values] if listed and takes(method.source, taught, values, {}) else []
    return fitting[0] if len(fitting) == 1 else None
