"""Values in a brief: numbers with their units, quotations, dates, names, phrases and lists, each with its place. By rule, without a model.

A value is copied as it stands; only numbers and dates are read. Words of four languages are known (`brief_values.toml`). What is marked by
its form (a number, a quotation, an address) is found in a text of any language.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

from batos.memory.tokenizer import STOP, words

NUMBER, QUOTED, DATE, TIME, CODE, NAME, PHRASE, LIST, FORMULA, REST, TOPIC = (
    "number", "quoted", "date", "time", "code", "name", "phrase", "list", "formula", "rest", "topic",
)  # fmt: skip
"""Kinds of values. A code is an address, a path, a file's name, or letters mixed with digits. A rest is what stands behind a colon, a topic
what stands behind "for" or "about" to the end of the brief."""
TEXT_LIMIT, VALUES_LIMIT, DIGITS = 3000, 80, 30
"""Greatest number of characters of a brief that is read, of the values that are found in it, and of the digits of a number."""
_FIGURE = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d|,\d)|\d+\.\d+|\d+,\d{1,2}(?![\d,])(?! ?,)|\d+|\.\d+"
_NUMBER = re.compile(
    rf"(?<![\w.^])(?P<sign>[-−+](?=[\d.$€£]))?(?P<money>[$€£¥₹])? ?(?P<figure>{_FIGURE})"
    r"(?:(?: ?[x×*] ?10 ?(?:\^|\*\*) ?|e)(?P<power>[-−+]?\d+))?(?P<ordinal>st|nd|rd|th)?(?![\d])",
    re.IGNORECASE,
)
_UNIT = re.compile(r"[ -]?(%|°\s?[CFK]?\b|[^\W\d_][^\s,;:?!()\[\]\"']{0,20})", re.IGNORECASE)
_QUOTED = re.compile(
    r"\"([^\"]{1,400})\"|“([^”]{1,400})”|„([^“”]{1,400})[“”]|«\s?([^»]{1,400}?)\s?»|`([^`]{1,400})`|「([^」]{1,400})」|‘([^’]{1,400})’(?!\w)"
    r"|(?<!\w)'((?:[^'\n]|(?<=\w)'(?=\w)){1,400}?)'(?!\w)"
)
_WORD = re.compile(r"[^\W_](?:[^\s,;:?!()\[\]{}\"“”„«»`=<>]*[^\W_])?(?:\.(?=[A-Z]\.)|(?<=[A-Z]\.[A-Z])\.)?|[&]")
_CODE = re.compile(
    r"https?://[^\s<>\"']{1,400}(?<![.,;:!?)])|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}|"
    r"(?<![\w./])(?:~?/|[A-Za-z]:[\\/])[\w.~/\\-]{1,300}(?<=\w)|"
    r"\b\d{1,12}[/-](?=[A-Za-z]{0,20}\d)[A-Z][A-Za-z\d-]{0,40}\b|"
    r"(?<![\w/\\-])(?:[\w.-]{1,100}[/\\]){0,12}[\w-]{1,100}\.(?:txt|md|csv|json|xml|ya?ml|toml|py|js|html?|pdf|docx?|xlsx?|png|jpe?g|gif|mp[34]|wav|zip|gz|log|db|sql)\b|"
    r"\b[A-Za-z](?=[^\W_]{0,60}_)\w{1,100}\b|"
    r"\b(?=[A-Za-z\d]{0,60}[A-Za-z])(?=[A-Za-z\d-]{0,60}\d)(?![\d.]{1,20}[A-Za-z/]{1,4}\b)[A-Za-z\d]{1,60}(?:-[A-Za-z\d]{1,60}){0,8}\b"
)
_TERM = r"(?:\d{0,12}(?:\.\d{1,12})?\*?(?:(?:sin|cos|tan|log|ln|exp|sqrt)\([^()]{1,30}\)|[a-z])(?:(?:\^|\*\*)[-\w().]{1,8}|[²³])?"
_FORMULA = re.compile(
    rf"(?:[a-z]\([a-z]\) ?= ?)?(?<![\w.'])(?=[^\s]{{0,40}}[a-z(\d]){_TERM}|\d{{1,12}}(?:\.\d{{1,12}})?)"
    rf"(?: ?[-+*/] ?{_TERM}(?![\w'])|\d{{1,12}}(?:\.\d{{1,12}})?(?![\w.]{{0,20}}[A-Za-z]))){{0,20}}"
)
_TOPIC = re.compile(
    r"\b(?:for|about|nach|über|sur|sobre|acerca de)\s+(?:(?:the|a|an|der|die|das|le|la|les|el|los|las)\s+)?([^\n.!?;]{3,200}?)[\s.?!]*$"
)
_ISO = re.compile(r"\b(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})\b|\b(\d{1,2})([-/.])(\d{1,2})\5(\d{4})\b")
_TIME = re.compile(
    r"\b\d{1,2}:\d{2}(?::\d{2})?(?:\s?[ap]\.?m\b\.?)?|\b\d{1,2}\s?(?:[ap]m\b|[ap]\.m\.|uhr\b)|\b(?:noon|midnight)\b", re.IGNORECASE
)
_BRACKETED = re.compile(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\{[^{}]*\}")
_TITLES = ("Mr", "Mrs", "Ms", "Dr", "Prof", "St", "No", "Nr", "Hr", "Fr", "Sr", "Sra", "Mme")
_ACCENTS = re.compile("[\u0300-\u036f]")


class Word(NamedTuple):
    """Word of a text, with its place."""

    text: str
    start: int
    end: int
    stem: str
    """Index term, "" for a word that says nothing."""

    @property
    def low(self) -> str:
        """Return the word in small letters without accents."""
        return folded(self.text)


class BriefValue(NamedTuple):
    """Value that a text holds."""

    kind: str
    start: int
    end: int
    value: Any
    """A number, a list of values, or the text as it stands."""
    unit: str = ""
    """Unit of a number: a name of the table, or the word behind it; `ordinal` for "2nd"."""
    parts: tuple[BriefValue, ...] = ()
    """Items of a list."""
    day: tuple[int, int, int] | None = None
    """Year, month and day of a date."""


class Vocabulary(NamedTuple):
    """Word lists of `brief_values.toml`."""

    opening: frozenset[str]
    within: frozenset[str]
    joining: frozenset[str]
    weak: frozenset[str]
    generic: frozenset[str]
    """Stems"""
    negations: frozenset[str]
    relative: frozenset[str]
    months: dict[str, int]
    numbers: dict[str, int]
    scales: dict[str, int]
    units: dict[str, str]
    """Spelling -> unit."""
    measures: dict[str, frozenset[str]]
    """Unit -> stems of the words of parameters that are measured in it."""
    spellings: dict[str, frozenset[str]]
    kinds: dict[str, frozenset[str]]
    """Kind of parameters -> words of their names."""


@cache
def vocabulary() -> Vocabulary:
    """Return the word lists."""
    table = tomllib.loads(resources.files("batos.mind").joinpath("brief_values.toml").read_text("utf-8"))
    months = {word: n for n, line in enumerate(table["months"].strip().splitlines(), 1) for word in line.split()}
    pairs = {unit: line.split("|") for unit, line in table["units"].items()}
    listed = {name: frozenset(told.split()) for name, told in table.items() if isinstance(told, str)}
    return Vocabulary(
        opening=listed["opening"],
        within=listed["within_names"],
        joining=listed["joining"],
        weak=listed["weak"],
        generic=frozenset(map(stem_of, listed["generic"])),
        negations=listed["negations"],
        relative=listed["relative_days"],
        months=months,
        numbers={word: int(n) for n, line in table["numbers"].items() for word in line.split()},
        scales={word: int(n) for n, line in table["scales"].items() for word in line.split()},
        units={word: unit for unit, (spelled, _) in pairs.items() for word in spelled.split()},
        measures={unit: frozenset(map(stem_of, measured.split())) for unit, (_, measured) in pairs.items()},
        spellings={unit: frozenset(spelled.split()) for unit, (spelled, _) in pairs.items()},
        kinds={kind: frozenset(line.split()) for kind, line in table["kinds"].items()},
    )


def folded(text: str) -> str:
    """Return a text in small letters without accents."""
    return text.lower() if text.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFD", text.casefold()))


@lru_cache(maxsize=8192)
def stem_of(word: str) -> str:
    """Return the index term of a word, "" for one that says nothing."""
    return next(iter(words(word)), "")


def words_of(text: str) -> list[Word]:
    """Return the words of a text."""
    return [Word(m[0], m.start(), m.end(), stem_of(m[0].removesuffix("'s").removesuffix("’s"))) for m in _WORD.finditer(text)]


def values_of(text: str) -> list[BriefValue]:
    """Return the values in a text, in their order; they may overlap: a list and its items, a date and its year."""
    return list(_values(text[:TEXT_LIMIT]))


@lru_cache(maxsize=64)  # a brief is read once for each tool
def _values(text: str) -> tuple[BriefValue, ...]:
    found = [*_bracketed(text), *_quotations(text), *_behind_colons(text), *_topics(text), *_dates(text), *_formulas(text)]
    found += [BriefValue(TIME, m.start(), m.end(), m[0]) for m in _TIME.finditer(text)]
    found += [BriefValue(CODE, m.start(), m.end(), m[0]) for m in _CODE.finditer(text) if not _number_of(m[0])]
    fixed = [value for value in found if value.kind in (QUOTED, LIST)]
    said = [word for word in words_of(text) if not _inside(word, fixed)]
    numbers = [value for value in _numbers(text) if not _inside(value, fixed)]
    dates = [value for value in found if value.kind in (DATE, TIME)]
    names = list(_names(text, said, numbers))
    phrases = list(_phrases(text, said, [*numbers, *dates]))
    found += [*numbers, *names, *phrases]
    found += _lists(text, [value for value in numbers if not _inside(value, dates)])
    found += _lists(text, _outermost([value for value in found if value.kind in (QUOTED, CODE, NAME, PHRASE)]))
    unique = {(value.kind, value.start, value.end): value for value in found}
    return tuple(sorted(unique.values(), key=lambda value: (value.start, -value.end))[:VALUES_LIMIT])


def frame_of(text: str) -> str:
    """Return a text without the values that its form marks: what it asks for, and not what with."""
    for value in values_of(text):
        if value.kind in (QUOTED, REST, TOPIC, CODE):
            text = text[: value.start] + " " * (value.end - value.start) + text[value.end :]
    return " ".join(text.split())


def _inside(value: Word | BriefValue, others: Iterable[BriefValue]) -> bool:
    return any(other.start <= value.start and value.end <= other.end and other is not value for other in others)


def _outermost(values: Sequence[BriefValue]) -> list[BriefValue]:
    """Return the values that lie in no other, in their order."""
    ranked = sorted(values, key=lambda value: (value.start, -value.end, value.kind != QUOTED))
    kept: list[BriefValue] = []
    for value in ranked:
        if not kept or value.start >= kept[-1].end:
            kept.append(value)
    return kept


def _bracketed(text: str) -> Iterator[BriefValue]:
    for match in _BRACKETED.finditer(text):
        try:
            value = json.loads(match[0].replace("'", '"'))
        except (ValueError, RecursionError):
            items = [part.strip().strip("'\"") for part in match[0][1:-1].split(",")]
            if match[0][0] == "{" or not all(items):
                continue
            value = items
        if isinstance(value, list) and value:
            yield BriefValue(LIST, match.start(), match.end(), value)
        elif isinstance(value, dict):
            yield BriefValue(CODE, match.start(), match.end(), value)


def _quotations(text: str) -> Iterator[BriefValue]:
    for match in _QUOTED.finditer(text):
        said = next(filter(None, match.groups()), "").strip()
        if said:
            yield BriefValue(QUOTED, match.start(), match.end(), said)


def _behind_colons(text: str) -> Iterator[BriefValue]:
    for match in re.finditer(r":\s+([^\s:][^:\n]{3,400}?)(?=\s*(?:\n|$))", text):
        yield BriefValue(REST, match.start(1), match.end(1), match[1].strip())


def _topics(text: str) -> Iterator[BriefValue]:
    said = _TOPIC.search(text)
    if said is not None:
        yield BriefValue(TOPIC, said.start(1), said.end(1), said[1])


def _formulas(text: str) -> Iterator[BriefValue]:
    for match in _FORMULA.finditer(text):
        said = match[0]
        if re.search(r"[a-z]", said) and re.search(r"[\^*²³]|[-+/] ?[\da-z]|\d[a-z]\b", said) and not re.fullmatch(r"[\d.]+ ?\w+", said):
            if re.fullmatch(r"[a-z]+(?: ?[-/] ?[a-z]+)*", said):  # a compound word
                continue
            yield BriefValue(FORMULA, match.start(), match.end(), said)


def _dates(text: str) -> Iterator[BriefValue]:
    for match in _ISO.finditer(text):
        if match[1]:
            day = (int(match[1]), int(match[2]), int(match[3]))
        else:
            first, second = int(match[4]), int(match[6])
            month_first = match[5] == "/" and first <= 12
            day = (int(match[7]), first, second) if month_first else (int(match[7]), second, first)
        if 1 <= day[1] <= 12 and 1 <= day[2] <= 31:
            yield BriefValue(DATE, match.start(), match.end(), match[0], day=day)
    lists = vocabulary()
    tokens = list(re.finditer(r"[^\W\d_]+|\d+", text))
    for at, token in enumerate(tokens):
        low = folded(token[0])
        if low in lists.relative and token[0] not in ("Mar",):
            begin = tokens[at - 1] if at and folded(tokens[at - 1][0]) in ("next", "last", "this", "nachsten") else token
            yield BriefValue(DATE, begin.start(), token.end(), text[begin.start() : token.end()])
        month = lists.months.get(low)
        if month is not None and (low != "may" or token[0] == "May") and low not in ("mar", "dec", "set"):
            yield from _around(text, tokens, at, month)


def _around(text: str, tokens: Sequence[re.Match[str]], at: int, month: int) -> Iterator[BriefValue]:
    """Yield the date whose month is the word at `at`: the day before or after it, then the year."""
    skipped = ("of", "de", "st", "nd", "rd", "th", "the")
    begin, end, day, year = tokens[at].start(), tokens[at].end(), 0, 0
    before = at - 1
    while before >= 0 and folded(tokens[before][0]) in skipped:
        before -= 1
    if (
        before >= 0
        and tokens[before][0].isdigit()
        and 1 <= int(tokens[before][0][:6]) <= 31
        and tokens[at].start() - tokens[before].end() < 9
    ):
        day, begin = int(tokens[before][0]), tokens[before].start()
    last = tokens[at]
    for token in tokens[at + 1 : at + 5]:
        if folded(token[0]) in skipped and token.start() - last.end() < 3:
            last = token
            continue
        if not token[0].isdigit() or token.start() - last.end() > 3 or len(token[0]) > 4:
            break
        figure = int(token[0])
        if len(token[0]) == 4 and not year:
            year, end, last = figure, token.end(), token
            break
        if not day and 1 <= figure <= 31:
            day, last = figure, token
            end = token.end() + (2 if text[token.end() : token.end() + 2].lower() in ("st", "nd", "rd", "th") else 0)
        else:
            break
    if day or year:
        yield BriefValue(DATE, begin, end, text[begin:end], day=(year, month, day) if day and year else None)


def _number_of(text: str) -> float | int | None:
    plain = text.replace("−", "-").lstrip("+")
    if re.fullmatch(r"-?\d+,\d{1,2}", plain):
        plain = plain.replace(",", ".")
    plain = plain.replace(",", "")
    if len(plain) > DIGITS:
        return None
    try:
        return int(plain) if re.fullmatch(r"-?\d+", plain) else float(plain)
    except ValueError:
        return None


def _numbers(text: str) -> Iterator[BriefValue]:
    lists = vocabulary()
    for match in _NUMBER.finditer(text):
        if text[match.end() :][:1] == "-" and re.match(r"-[A-Za-z]*\d", text[match.end() :]):
            continue  # part of a code
        value = _number_of(f"{match['sign'] or ''}{match['figure']}")
        if value is None:
            continue
        if match["power"]:
            try:
                value = float(f"{value}e{match['power'].replace('−', '-')}")
            except ValueError:
                continue
        end, unit = match.end(), "ordinal" if match["ordinal"] else lists.units.get(match["money"] or "", "")
        behind = _UNIT.match(text, end)
        if behind is not None and (scale := lists.scales.get(folded(behind[1]))) and (match["money"] or behind[1] not in ("K",)):
            value, end = value * scale, behind.end()
            behind = _UNIT.match(text, end)
        if behind is not None and not unit:
            spelled = folded(behind[1]).replace(" ", "").rstrip(".")
            unit = lists.units.get(spelled, "")
            if unit:
                end = behind.end() if text[behind.start()] != "-" else end
            elif text[end : end + 1].isalpha() and len(spelled) > 3:
                continue  # letters right behind it that are no unit: a code
            else:
                unit = spelled if spelled not in STOP else ""
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            continue
        yield BriefValue(NUMBER, match.start(), end, value, unit)
    for word in words_of(text):
        if (counted := lists.numbers.get(word.low)) is not None:
            behind = _UNIT.match(text, word.end)
            spelled = folded(behind[1]) if behind is not None else ""
            unit = lists.units.get(spelled, spelled if spelled not in STOP else "")
            yield BriefValue(NUMBER, word.start, word.end, counted, unit)


def _names(text: str, said: Sequence[Word], numbers: Sequence[BriefValue]) -> Iterator[BriefValue]:
    """Yield runs of capitalised words, and pairs of them that a comma joins."""
    lists, run = vocabulary(), list[Word]()
    runs: list[list[Word]] = []
    for at, word in enumerate(said):
        titled = bool(run) and run[-1].text in _TITLES and text[run[-1].end : word.start].strip(" ") == "."
        adjoins = bool(run) and (titled or text[run[-1].end : word.start].strip(" ") in ("", "'", "’"))
        first = at == 0 or bool(re.search(r"[.!?:\n]\s{0,9}$", text[: word.start]))
        capital = word.text[:1].isupper() and not (first and (word.low in lists.opening or word.low in STOP)) and word.low != "i"
        if at == 0 and capital and len(said) > 1 and said[1].text[:1].islower():  # most likely a verb
            capital = False
        inner = adjoins and (word.low in lists.within or word.text.isdigit())
        if (capital and (adjoins or not run)) or (inner and not capital and word.low != "for"):
            run.append(word)
        else:
            if run:
                runs.append(run)
            run = [word] if capital else []
    if run:
        runs.append(run)
    found = []
    for run in runs:
        while run and run[-1].text.islower():
            run.pop()
        while run and run[0].low in lists.opening and len(run) > 1:
            run.pop(0)
        if run:
            end = run[-1].end
            if text[end - 2 : end] in ("'s", "’s"):
                end -= 2
            elif text[end : end + 1] == "." and re.search(r"\b(?:Inc|Ltd|Corp|Co|Jr|Sr|[A-Z]\.[A-Z])$", text[:end]):
                end += 1
            found.append(BriefValue(NAME, run[0].start, end, text[run[0].start : end]))
    yield from found
    for at, one in enumerate(found):
        house = next((n for n in numbers if n.end <= one.start and not text[n.end : one.start].strip() and not n.unit.strip()), None)
        if house is not None:
            yield BriefValue(NAME, house.start, one.end, text[house.start : one.end])
        end = one.end
        for other in found[at + 1 : at + 5]:
            if text[end : other.start] not in (", ", ","):
                break
            end = other.end
            yield BriefValue(NAME, one.start, end, text[one.start : end])
            if house is not None:
                yield BriefValue(NAME, house.start, end, text[house.start : end])
    for one in found:  # a possessive ends one name and begins another
        for split in re.finditer(r"['’]s\s+", one.value):
            yield BriefValue(NAME, one.start, one.start + split.start(), one.value[: split.start()])
            yield BriefValue(NAME, one.start + split.end(), one.end, one.value[split.end() :])
        for split in re.finditer(r"\s{1,3}(?:vs\.?|v\.|y)\s{1,3}", one.value):
            yield BriefValue(NAME, one.start, one.start + split.start(), one.value[: split.start()])
            yield BriefValue(NAME, one.start + split.end(), one.end, one.value[split.end() :])


def _phrases(text: str, said: Sequence[Word], apart: Sequence[BriefValue]) -> Iterator[BriefValue]:
    """Yield runs of words between words that only join."""
    lists, run = vocabulary(), list[Word]()

    def ended() -> Iterator[BriefValue]:
        if run:
            end = run[-1].end
            end -= 2 if text[end - 2 : end] in ("'s", "’s") else 0
            yield BriefValue(PHRASE, run[0].start, end, text[run[0].start : end])

    for at, word in enumerate(said):
        if at == 1 and run and word.start - run[0].end == 1:  # the first word may be a verb
            yield from ended()
            run.clear()
        adjoins = bool(run) and not text[run[-1].end : word.start].strip(" ") and not run[-1].text.endswith(("'s", "’s"))
        plain = word.low in STOP or word.low in lists.weak or word.low in lists.joining or word.low in lists.negations
        if not run and word.low in lists.opening:
            plain = True
        if plain or _inside(word, apart):
            yield from ended()
            run.clear()
        elif adjoins or not run:
            run.append(word)
        else:
            yield from ended()
            run[:] = [word]
    yield from ended()
    for match in re.finditer(r"\b([^\W\d_]{4,}) (?:of|de|von|du|del) (?:the |la |el |der |des )?([^\W\d_]{4,}(?: [^\W\d_]{4,})?)", text):
        inner = [word for word in said if match.start() <= word.start and word.end <= match.end()]
        if inner and inner[0].stem and inner[0].low not in lists.opening and all(word.stem or word.low in lists.weak for word in inner):
            yield BriefValue(PHRASE, match.start(), match.end(), match[0])


_BETWEEN = re.compile(r"\s{0,3}(?:,|;)?\s{0,3}(?:(?:and|or|und|oder|et|ou|y|o|e|&|,|to)\b)?\s{0,3}(?:(?:the|a|an)\s{1,3})?")


def _lists(text: str, values: Sequence[BriefValue]) -> Iterator[BriefValue]:
    """Yield values that follow one another with nothing but a comma or a joining word between them."""
    run: list[BriefValue] = []
    for value in sorted(values, key=lambda value: value.start):
        between = text[run[-1].end : value.start] if run else ""
        joined = bool(run) and bool(between.strip()) and _BETWEEN.fullmatch(between) is not None and " to " not in f" {between.strip()} "
        if joined and (run[-1].kind == QUOTED) == (value.kind == QUOTED):
            run.append(value)
            continue
        if len(run) > 1:
            yield BriefValue(LIST, run[0].start, run[-1].end, [one.value for one in run], run[-1].unit, tuple(run))
        run = [value]
    if len(run) > 1:
        yield BriefValue(LIST, run[0].start, run[-1].end, [one.value for one in run], run[-1].unit, tuple(run))
