"""Argument reader: fill a tool's parameters with values of a brief, by rule and without a model.

Each parameter is compared with each value that has its type. The comparison takes the words beside the value, its unit, the prepositions
before it, and the choices and examples that the schema names. Where an embedder was asked, the comparison takes the meaning, too. A beam
search takes the best assignment of all parameters together. A value fills one parameter, and values tend to stand in the order of the
parameters. An optional parameter is filled only where something speaks for it. Nothing is invented: each value is one of the brief, or one
that the schema names.
"""

from __future__ import annotations

import bisect
import itertools
import re
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

from batos.mind.brief_values import (
    CODE,
    DATE,
    FORMULA,
    LIST,
    NAME,
    NUMBER,
    PHRASE,
    QUOTED,
    REST,
    TEXT_LIMIT,
    TIME,
    TOPIC,
    BriefValue,
    Word,
    folded,
    stem_of,
    values_of,
    vocabulary,
    words_of,
)
from batos.mind.json_schema import problem_with

Path = tuple[str, ...]
DEPTH, PARAMETERS = 4, 40
"""Greatest depth of nested objects that are read, and greatest number of parameters."""
_BEAM, _OPTIONS = 48, 8  # states that the search keeps, values tried for one parameter
_REQUIRED, _OPTIONAL = -0.7, 1.0  # score of a required parameter without value; score that an optional one needs
_EVIDENT = 0.8  # score from which something speaks for a value besides its type
_ORDER = 0.25
_TEXT_LEAST = 0.0  # least score of a text: a poor one is worse than none, which a model may fill
_CHOICE_QUOTED = re.compile(r"(?<!\w)['\"‘“]([^'\"’”\n]{1,40})['\"’”](?!\w)")
_EXAMPLES = re.compile(
    r"(?:e\.g\.?,?|such as|for example,?|like|options?(?: include| are)?:?|one of|either|can be|could be)\s+([^.;()]{2,120})", re.I
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+")
_AS_DEFAULT = re.compile(r"default(?:s|ed)?(?: value)?(?: is| to|:|=| of)?\s*['\"]?([\w.+/-]+)", re.I)


class ReadParameter(NamedTuple):
    """Parameter of a tool, or of an object among its parameters."""

    path: Path
    schema: Mapping[str, Any]
    required: bool
    """True if it and all objects around it are required"""

    @property
    def kind(self) -> str:
        """Return its JSON type; "any" where the schema names none."""
        told = self.schema.get("type")
        if isinstance(told, list):
            told = next((one for one in told if one != "null"), None)
        return str(told or ("object" if self.schema.get("properties") else "string" if self.schema.get("enum") else "any"))

    @property
    def about(self) -> str:
        """Return its description."""
        return str(self.schema.get("description") or self.schema.get("title") or "")

    @property
    def words(self) -> list[str]:
        """Return the words of its name, folded."""
        return [folded(part) for part in _CAMEL.split(self.path[-1]) if part]

    @property
    def label(self) -> str:
        """Return name and description as one text, for an embedder."""
        return f"{' '.join(self.words)}: {self.about}"[:300]


class ArgumentReading(NamedTuple):
    """Arguments that a brief gives for a tool."""

    arguments: dict[str, Any]
    open: tuple[Path, ...]
    """Required parameters without a value"""
    evident: float
    """Share of the required parameters for whose value something speaks besides its type: 0 to 1; 0.5 where none is required"""


def parameters_of(schema: Mapping[str, Any]) -> list[ReadParameter]:
    """Return the parameters of a schema of an object, those of objects in it in their place."""
    return list(itertools.islice(_flat(schema, schema, (), True, 0), PARAMETERS))


def _flat(root: Mapping[str, Any], schema: Mapping[str, Any], path: Path, required: bool, depth: int) -> Iterator[ReadParameter]:
    needed = schema.get("required")
    names = needed if isinstance(needed, list) else []
    properties = schema.get("properties")
    for name, told in (properties if isinstance(properties, dict) else {}).items():
        one = resolved(root, told)
        inner = ReadParameter((*path, name), one, required and name in names)
        if inner.kind == "object" and one.get("properties") and depth < DEPTH:
            yield from _flat(root, one, inner.path, inner.required, depth + 1)
        else:
            yield inner


def resolved(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return a schema with its own reference or its first real alternative in its place; what cannot be followed is empty."""
    for _ in range(8):
        if not isinstance(schema, dict):
            return {}
        if isinstance(ref := schema.get("$ref"), str):
            found: Any = root if ref.startswith("#") else {}
            for part in filter(None, ref[1:].split("/")):
                found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
            schema = {**(found if isinstance(found, dict) else {}), **{k: v for k, v in schema.items() if k != "$ref"}}
            continue
        choices = next((schema[name] for name in ("anyOf", "oneOf") if isinstance(schema.get(name), list)), None)
        if choices and "type" not in schema:
            first = next((one for one in choices if isinstance(one, dict) and one.get("type") != "null"), {})
            schema = {**first, **{k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}}
            continue
        return schema
    return {}


def candidates(text: str, parameters: Sequence[ReadParameter]) -> dict[str, list[str]]:
    """Return, for the label of each parameter that takes free text, the texts of the brief that may fill it: for an embedder."""
    texts = [v.value for v in values_of(text) if v.kind in (QUOTED, NAME, PHRASE) and len(v.value) <= 100]
    open_ = [one for one in parameters if one.kind in ("string", "any") and not one.schema.get("enum")]
    return {one.label: list(dict.fromkeys(texts)) for one in open_}


def read_arguments(
    text: str, schema: Mapping[str, Any], about: str = "", alike: Mapping[tuple[str, str], float] | None = None
) -> ArgumentReading:
    """Fill a tool's parameters with values of a text.

    :param about: name and description of the tool.
    :param alike: cosine of a parameter's label and a candidate (`candidates`), where an embedder was asked.
    """
    parameters = parameters_of(schema)
    brief = _Brief(text, frozenset(filter(None, (stem_of(part) for part in _CAMEL.split(about)))), alike or {})
    takes = [_Taking(one, brief, parameters) for one in parameters]
    chosen = _assigned(takes)
    arguments: dict[str, Any] = {}
    for taking, fit in zip(takes, chosen, strict=True):
        value = fit.value if fit is not None else taking.otherwise()
        if value is not None and problem_with(value, {**taking.of.schema, **_definitions(schema)}) is None:
            arguments = merged(arguments, taking.of.path, value)
    together = _together(arguments, schema)
    open_ = tuple(one.path for one in parameters if (one.required or one.path in together) and not _has(arguments, one.path))
    needed = [(one, fit) for one, fit in zip(takes, chosen, strict=True) if one.of.required]
    sure = sum(fit is not None and fit.score >= _EVIDENT for _, fit in needed)
    return ArgumentReading(_complete(arguments, schema, schema), open_, sure / len(needed) if needed else 0.5)


def _together(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> set[Path]:
    """Return the arguments that those which are given ask for (`dependentRequired`), with what these ask for in turn."""
    asks, found, left = schema.get("dependentRequired"), set[Path](), list(arguments)
    while left and isinstance(asks, Mapping):
        for one in asks.get(left.pop()) or ():
            if (one,) not in found:
                found.add((one,))
                left.append(one)
    return found


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: schema[name] for name in ("$defs", "definitions") if name in schema}


def merged(arguments: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """Return arguments with a value at a path; objects on the way are copied or made."""
    name, *rest = path
    inner = arguments.get(name)
    return {**arguments, name: merged(inner if isinstance(inner, Mapping) else {}, tuple(rest), value) if rest else value}


def _has(arguments: Mapping[str, Any], path: Path) -> bool:
    for name in path:
        if not isinstance(arguments, Mapping) or name not in arguments:
            return False
        arguments = arguments[name]
    return True


def _complete(arguments: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without optional objects that lack something."""
    kept = {}
    required = set(schema.get("required") or ())
    for name, value in arguments.items():
        one = resolved(root, (schema.get("properties") or {}).get(name))
        if isinstance(value, dict) and one.get("properties"):
            value = _complete(value, one, root)
            if name not in required and not set(one.get("required") or ()) <= value.keys():
                continue
        kept[name] = value
    return kept


class _Fit(NamedTuple):
    """A value for a parameter."""

    score: float
    start: int
    end: int
    value: Any


@dataclass
class _Brief:
    """A text with what was found in it."""

    text: str
    tool: frozenset[str]
    alike: Mapping[tuple[str, str], float]
    words: list[Word] = field(init=False)
    values: list[BriefValue] = field(init=False)

    def __post_init__(self) -> None:
        self.words, self.values = words_of(self.text[:TEXT_LIMIT]), values_of(self.text)
        self._starts, self._ends = [word.start for word in self.words], [word.end for word in self.words]
        self.numbers = [value for value in self.values if value.kind == NUMBER]
        self.counts = {word.start for word in self.words if any(n.start < word.end and word.start < n.end for n in self.numbers)}
        self.series = {(part.start, part.end): value for value in self.values for part in value.parts if part.kind == NUMBER}
        self.figures = any(
            self.text[value.start : value.end][-1:].isdigit() or value.unit in ("percent", "dollar") for value in self.numbers
        )

    @cached_property
    def folded(self) -> str:
        """Return the text folded, of the same length where it is ASCII."""
        return folded(self.text)

    def counted(self, value: BriefValue) -> bool:
        """Return True if a text is the unit or the noun of a number."""
        return any(n.start < value.start and not self.text[min(n.end, value.start) : value.start].strip(" -") for n in self.numbers)

    def before(self, value: BriefValue, count: int) -> list[Word]:
        """Return the words before a value, the nearest first."""
        at = bisect.bisect_right(self._ends, value.start)
        return self.words[max(0, at - count) : at][::-1]

    def after(self, value: BriefValue, count: int) -> list[Word]:
        """Return the words after a value, the nearest first."""
        at = bisect.bisect_left(self._starts, value.end)
        return self.words[at : at + count]


class _Taking:
    """A parameter, and how well values of a brief fit it."""

    def __init__(self, of: ReadParameter, brief: _Brief, others: Sequence[ReadParameter]) -> None:
        self.of, self._brief = of, brief
        self._lists = vocabulary()
        self._name = [stem for stem in dict.fromkeys(map(stem_of, of.words)) if stem]
        shared = {stem for other in others if other is not of for stem in _stems(other.about)}
        names = {stem for other in others if other is not of for stem in map(stem_of, other.words)}
        self._named = names
        self._zoned = bool({"timezone", "tz"} & set(of.words)) or re.search(r"\b(?:iana|time ?zone)\b", of.about, re.I) is not None
        self._about = {stem: 0.15 if stem in shared or stem in names else 0.45 for stem in _stems(of.about) if stem not in self._name}
        self._kinds = {kind for kind, words in self._lists.kinds.items() if words.intersection(of.words)}
        self._choices = _choices(of)
        siblings = {word for other in others if other is not of for word in other.words}
        asks = {"city", "state"} <= _words(of.about) or {"city", "country"} <= _words(of.about) or "address" in _words(of.about)
        self._whole = asks and not siblings & {"state", "country"}

    def fits(self) -> list[_Fit]:
        """Return the values that fit, the best first."""
        kind = self.of.kind
        if kind == "boolean":
            return self._switches()
        found = list(self._chosen())
        if not self.of.schema.get("enum"):
            read = {"integer": self._number, "number": self._number, "array": self._list, "object": self._object}.get(kind, self._text)
            found += [fit for value in self._brief.values for fit in read(value)]
        if not self.of.required:
            found = [fit._replace(score=fit.score - _OPTIONAL) for fit in found]
        return sorted(found, key=lambda fit: (-fit.score, fit.start))[:_OPTIONS]

    def otherwise(self) -> Any:
        """Return the default of a required parameter that the brief does not tell."""
        if not self.of.required:
            return None
        if "default" in self.of.schema:
            return self.of.schema["default"]
        if "const" in self.of.schema:
            return self.of.schema["const"]
        enum = self.of.schema.get("enum")
        if isinstance(enum, list) and len(enum) == 1:
            return enum[0]
        if self.of.kind == "boolean":
            return False
        found = _AS_DEFAULT.search(self.of.about)
        return None if found is None else _as_kind(found[1].rstrip("."), self.of.kind)

    # --- the words beside a value

    def _cue(self, value: BriefValue) -> float:
        """Return how much the words beside a value speak for the parameter."""
        written = re.escape(self.of.path[-1]).replace("_", "[_ ]")
        head = self._brief.text[: value.start]
        if re.search(rf"(?<!\w){written}['\"]?\s{{0,3}}(?:=|:|is|of|as|to|ist|est|es)?\s{{0,3}}[$€£'\"]?$", head[-80:], re.I):
            return 2.5
        weights = {**self._about, **dict.fromkeys(self._name, 1.0)}
        best: dict[str, float] = {}
        value = self._brief.series.get((value.start, value.end), value)  # what stands before a series speaks for all of it
        for words, side in ((self._brief.before(value, 8), 1.0), (self._brief.after(value, 5), 0.85)):
            far, crossed = 0.0, 1.0
            last = value.start if side == 1.0 else value.end
            for word in words:
                gap = self._brief.text[word.end : last] if side == 1.0 else self._brief.text[last : word.start]
                last = word.start if side == 1.0 else word.end
                if re.search(r"[.;!?](?:\s|$)", gap):
                    break
                if "," in gap or word.low in ("and", "und", "et", "y"):
                    crossed *= 0.75
                if word.start in self._brief.counts:
                    crossed *= 0.35
                for stem, weight in weights.items():
                    if word.stem and _kin(word.stem, stem):
                        best[stem] = max(best.get(stem, 0.0), weight * side * crossed / (1 + 0.3 * far))
                far += 1.0 if word.stem else 0.35
        ranked = sorted(best.values(), reverse=True)
        return sum(share * 0.6**at for at, share in enumerate(ranked[:4]))

    # --- values by type

    def _number(self, value: BriefValue) -> Iterator[_Fit]:
        if value.kind != NUMBER:
            return
        read, score = self._figure(value), 0.3 + self._cue(value)
        if read is None:
            return
        stems = {*self._name, *self._about}
        if value.unit in self._lists.measures:
            told = self._lists.spellings[value.unit]
            if told.intersection(self.of.words) or any(_kin(stem_of(word), stem) for word in told for stem in stems if len(word) > 2):
                score += 0.9
            elif any(_kin(measured, stem) for measured in self._lists.measures[value.unit] for stem in self._name):
                score += 0.6
            elif any(_kin(measured, stem) for measured in self._lists.measures[value.unit] for stem in self._about):
                score += 0.2
            else:
                score -= 0.3
        counted = "count" in self._kinds and bool(value.unit) and value.unit not in self._lists.measures and value.unit != "ordinal"
        if counted:
            score += 0.8
        elif self._brief.text[value.start].isalpha():  # a number in words mostly belongs to the noun behind it
            score -= 1.0 if self._brief.figures else 0.0
        if (noun := stem_of(value.unit)) and any(_kin(noun, stem) for stem in self._name) and value.unit not in self._lists.measures:
            score += 0.6
        years = isinstance(read, int) and 1000 <= read <= 2100 and not value.unit
        if "year" in self.of.words or "date" in self._kinds:
            score += 1.0 if years else -0.6
        elif years and "years" in self.of.words:
            score -= 0.5
        if any(one.start <= value.start and value.end <= one.end for one in self._brief.values if one.kind in (DATE, TIME, FORMULA, CODE)):
            score -= 0.0 if years and "year" in self.of.words else 0.8
        yield _Fit(score, value.start, value.end, read)

    def _figure(self, value: BriefValue) -> Any:
        """Return a number as the parameter takes it; None if it cannot."""
        read: Any = value.value
        items = self.of.schema.get("items")
        integral = self.of.kind == "integer" or (isinstance(items, dict) and items.get("type") == "integer")
        if (
            value.unit == "percent"
            and not integral
            and not any(stem.startswith("percent") for stem in {*self._name, *_stems(self.of.about)})
        ):
            read = round(read / 100, 12)
        if integral:
            return int(read) if float(read).is_integer() else None
        return read

    def _list(self, value: BriefValue) -> Iterator[_Fit]:
        items = self.of.schema.get("items")
        items = items if isinstance(items, dict) else {}
        inner = ReadParameter(self.of.path, items, self.of.required).kind
        numeric = inner in ("integer", "number")
        if value.kind == LIST:
            parts = [self._item(part, inner) for part in value.parts] if value.parts else [_as_kind(one, inner) for one in value.value]
            if any(part is None for part in parts) or (numeric != all(isinstance(p, int | float) for p in parts)):
                return
            yield _Fit(0.7 + self._cue(value) + 0.1 * min(len(parts), 4), value.start, value.end, parts)
        elif numeric and value.kind == NUMBER and (read := self._figure(value)) is not None:
            yield _Fit(-0.2 + self._cue(value), value.start, value.end, [read])
        elif inner in ("string", "any"):
            for fit in self._text(value):
                yield fit._replace(score=fit.score - 0.2, value=[fit.value])

    def _item(self, part: BriefValue, inner: str) -> Any:
        if part.kind == NUMBER:
            read = self._figure(part)
            return read if inner in ("integer", "number") else None if read is None else str(read)
        return None if inner not in ("string", "any") else self._stripped(part)[2]

    def _object(self, value: BriefValue) -> Iterator[_Fit]:
        if isinstance(value.value, dict):
            yield _Fit(1.0, value.start, value.end, value.value)

    def _text(self, value: BriefValue) -> Iterator[_Fit]:
        if value.kind == LIST or isinstance(value.value, dict):
            return
        kinds, score = self._kinds, self._cue(value)
        start, end, said = self._stripped(value)
        if not said:
            return
        if self._zoned:
            if (zone := _zones().get(folded(str(said)).replace(" ", "_"))) is not None:
                yield _Fit(score + 1.6, start, end, zone)
            return
        moment = "moment" in kinds or self.of.schema.get("format") in ("date", "date-time", "time")
        if value.kind in (DATE, TIME):
            score += 1.6 if moment else -0.6
            said = dated(value, self.of) if value.kind == DATE else said
        elif moment:
            score -= 0.8
        if value.kind == NUMBER:
            score -= 0.7
            said = self._brief.text[value.start : value.end]
        elif value.kind == QUOTED:
            score += 0.9
        elif value.kind == CODE:
            score += 0.8
        elif value.kind == FORMULA:
            score += 1.5 if {"function", "equat", "express", "formula", "polynomi"} & {*self._name, *self._about} else -0.3
        elif value.kind == TOPIC:
            if "topic" not in kinds:
                return
            score += 0.8
        elif value.kind == REST:
            score += 0.3
        elif value.kind == NAME:
            score += 0.6
        if "code" in kinds:
            score += {CODE: 1.0, NAME: -0.6, PHRASE: -0.8}.get(value.kind, 0.0)
        elif "content" in kinds:
            score += {QUOTED: 0.8, REST: 0.8, NAME: -0.3}.get(value.kind, 0.0)
        if value.kind in (NAME, PHRASE) and self._brief.counted(value):
            score -= 0.6
        score += self._placed(value, kinds)
        stems = [word.stem for word in words_of(said) if word.stem]
        if value.kind == PHRASE and stems and all(stem in self._named for stem in stems):
            score -= 1.0  # it names another parameter
        if value.kind == NAME and len(stems) > 1 and any(_kin(stem, other) for stem in stems for other in self._name):
            score += 0.7
        elif stems and value.kind in (PHRASE, NAME):
            own = sum(any(_kin(stem, other) for other in (*self._brief.tool, *self._name)) for stem in stems)
            score -= (1.1 if value.kind == PHRASE else 0.5) * own / len(stems)
        if "place" in kinds and value.kind == NAME and self._whole:
            score += 0.3 * value.value.count(",")
        if value.kind == PHRASE and ({"place", "person"} & kinds) and not moment:
            score -= 0.6
        if (near := self._brief.alike.get((self.of.label, value.value))) is not None:
            score += 2.0 * (near - 0.25)
        if score >= _TEXT_LEAST:
            yield _Fit(score, start, end, said)

    def _placed(self, value: BriefValue, kinds: set[str]) -> float:
        """Return what the preposition before a text says of it."""
        before = self._brief.before(value, 2)
        word = next((one.low for one in before if one.low not in ("the", "a", "an", "city", "der", "la", "le", "el")), "")
        adjoins = bool(before) and not re.search(r"[.,;:!?]", self._brief.text[before[0].end : value.start])
        if not adjoins:
            return 0.0
        score = 0.0
        leaving, going = word in ("from", "von", "de", "desde", "depuis"), word in ("to", "into", "nach", "a", "vers", "hasta", "towards")
        if "source" in kinds or "target" in kinds:
            score += 0.9 * (("source" in kinds and leaving) + ("target" in kinds and going))
            score -= 0.7 * (("source" in kinds and going) + ("target" in kinds and leaving))
        if "place" in kinds:
            score += 0.6 if word in ("in", "at", "near", "nearby", "around", "bei", "en", "a", "for", "of", "to", "from", "within") else 0.0
        if "person" in kinds:
            score += 0.5 if word in ("by", "von", "par", "por", "of", "for", "to") else 0.0
            score += 0.4 if self._brief.text[value.end : value.end + 2] in ("'s", "’s") else 0.0
        if "place" not in kinds and word in ("in", "at", "near") and value.kind == NAME:
            score -= 0.5
        return score

    def _stripped(self, value: BriefValue) -> tuple[int, int, Any]:
        """Return a phrase without the words at its ends that name the parameter or the tool's own subject."""
        if value.kind not in (PHRASE, NAME):
            return value.start, value.end, value.value
        said = [word for word in self._brief.words if value.start <= word.start and word.end <= value.end + 2]
        naming = {*self._name, *self._about, *self._brief.tool} if value.kind == PHRASE else set()
        left, right = 0, len(said)
        while right - left > 1 and said[right - 1].stem and any(_kin(said[right - 1].stem, stem) for stem in naming):
            right -= 1
        while right - left > 1 and said[left].stem and any(_kin(said[left].stem, stem) for stem in naming):
            left += 1
        if (left, right) == (0, len(said)):
            return value.start, value.end, value.value
        start, end = said[left].start, min(said[right - 1].end, value.end)
        return start, end, self._brief.text[start:end]

    # --- choices and switches

    def _chosen(self) -> Iterator[_Fit]:
        """Yield the choices and examples of the schema that the brief names."""
        text = self._brief.folded
        strict = bool(self.of.schema.get("enum"))
        listed = self.of.kind == "array"
        several: list[_Fit] = []
        for choice in self._choices:
            spelled = folded(str(choice)).replace("_", " ").strip()
            if not spelled:
                continue
            value = [choice] if listed else choice
            exact = re.search(rf"(?<![\w.]){re.escape(spelled)}(?:e?s)?(?!\w)", text)
            if exact is not None:
                at = BriefValue(PHRASE, exact.start(), exact.end(), "")
                common = {stem for stem in map(stem_of, spelled.split()) if stem} <= self._brief.tool and not self.of.required
                score = 1.9 + 0.5 * self._cue(at) + 0.02 * len(spelled) - (1.2 if common else 0.0)
                fit = _Fit(score, exact.start(), exact.end(), value)
                several.append(fit)
                yield fit
                continue
            stems = [stem for stem in map(stem_of, re.findall(r"[^\W_]+", spelled)) if stem]
            hits = [next((word for word in self._brief.words if word.stem and _kin(word.stem, stem)), None) for stem in stems]
            if stems and all(hits):
                first, last = min(hit.start for hit in hits if hit), max(hit.end for hit in hits if hit)
                several.append(_Fit(1.4 if strict else 1.0, first, last, value))
                yield several[-1]
        if listed and len(several) > 1:
            several.sort(key=lambda fit: fit.start)
            apart = [fit for at, fit in enumerate(several) if all(fit.start >= one.end for one in several[:at])]
            best = max(fit.score for fit in apart)
            yield _Fit(best + 0.3, apart[0].start, apart[0].end, [fit.value[0] for fit in apart])

    def _switches(self) -> list[_Fit]:
        """Return True for a switch that the brief names, False for one that it denies."""
        stems = [stem for stem in self._name if stem not in self._lists.generic]
        fresh = [stem for stem in stems if stem not in self._brief.tool] or stems
        if not fresh:
            return []
        hits = [next((word for word in self._brief.words if word.stem and _kin(word.stem, stem)), None) for stem in fresh]
        if not all(hits):
            return []
        first = min(hit.start for hit in hits if hit)
        before = [word.low for word in self._brief.words if word.end <= first][-3:]
        denied = any(word in self._lists.negations for word in before)
        return [_Fit(1.5, -1, -1, not denied)]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", folded(text)))


@cache
def _zones() -> dict[str, str]:
    """Return the time zones of this machine's database, by their names and by the names of their cities."""
    zones = sorted(zoneinfo.available_timezones(), key=lambda zone: (-zone.count("/"), zone))
    return {folded(zone): zone for zone in zones} | {folded(zone.rpartition("/")[2]): zone for zone in zones if zone.count("/") == 1}


def named_share(text: str, name: str) -> float:
    """Return the share of the words of a tool's name that a text has in any form: 0 to 1."""
    stems = {stem for stem in map(stem_of, _CAMEL.split(name)) if stem}
    said = {word.stem for word in words_of(text[:TEXT_LIMIT]) if word.stem}
    return sum(any(_kin(stem, word) for word in said) for stem in stems) / len(stems) if stems else 0.0


def _stems(text: str) -> set[str]:
    return {stem for stem in (stem_of(part) for part in _CAMEL.split(text)) if stem and stem not in vocabulary().generic}


def _kin(one: str, other: str) -> bool:
    """Return True if two stems are those of related words: "vegan" and "vegetarian" are not, "temp" and "temperatur" are."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if len(short) < 3 or short[0].isdigit():
        return False
    if long.startswith(short):
        return len(short) >= 4 or len(long) <= 8
    shared = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return shared >= 5 and shared >= 0.7 * len(long)


def _choices(of: ReadParameter) -> list[Any]:
    """Return the values that a schema allows, or names as examples."""
    items = of.schema.get("items")
    enum = of.schema.get("enum") or (items.get("enum") if isinstance(items, dict) else None)
    if isinstance(enum, list):
        return enum[:200]
    if of.kind not in ("string", "array", "any"):
        return []
    found = [match.strip() for match in _CHOICE_QUOTED.findall(of.about)]
    for match in _EXAMPLES.finditer(of.about):
        found += [part.strip(" '\"") for part in re.split(r",|\bor\b|\band\b|/", match[1]) if 0 < len(part.strip(" '\"")) <= 30]
    lists = vocabulary()
    return [one for one in dict.fromkeys(found) if len(one) > 1 and folded(one) not in lists.weak and folded(one) not in ("etc", "default")]


def _as_kind(value: Any, kind: str) -> Any:
    """Return a plain value in a type of JSON; None if it is not of it."""
    if kind in ("integer", "number"):
        try:
            figure = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError):
            return None
        if figure is None or (kind == "integer" and not figure.is_integer()):
            return None
        return int(figure) if kind == "integer" or isinstance(value, int) else figure
    if kind == "boolean":
        return {"true": True, "false": False}.get(str(value).lower())
    if kind == "string":
        return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else None
    return value if kind in ("any", "array", "object") and not isinstance(value, str) else value if kind == "any" else None


def dated(value: BriefValue, of: ReadParameter) -> str:
    """Return a date in the form that a parameter asks for. The date stays as it stands where the parameter asks for no form, or the brief
    gives no whole date."""
    if value.day is None:
        return str(value.value)
    year, month, day = value.day
    form = of.about.lower()
    if of.schema.get("format") in ("date", "date-time") or re.search(r"y{4}[-/.]m{2}[-/.]d{2}|iso", form):
        mark = "/" if "yyyy/mm/dd" in form else "-"
        return f"{year:04}{mark}{month:02}{mark}{day:02}"
    if found := re.search(r"m{2}([-/.])d{2}[-/.]y{4}", form):
        return found[1].join((f"{month:02}", f"{day:02}", f"{year:04}"))
    if found := re.search(r"d{2}([-/.])m{2}[-/.]y{4}", form):
        return found[1].join((f"{day:02}", f"{month:02}", f"{year:04}"))
    parts = re.search(r"\b(year|month|day)\W(year|month|day)\W(year|month|day)\b", form)
    if parts is not None and len({*parts.groups()}) == 3:
        spelled = {"year": f"{year:04}", "month": f"{month:02}", "day": f"{day:02}"}
        return "-".join(spelled[part] for part in parts.groups())
    return str(value.value)


class _State(NamedTuple):
    score: float
    chosen: tuple[_Fit | None, ...]
    last: int


def _assigned(takes: Sequence[_Taking]) -> list[_Fit | None]:
    """Return a value for each parameter, or None, such that no part of the text is used twice."""
    states = [_State(0.0, (), -1)]
    for taking in takes:
        fits = taking.fits()
        reached: list[_State] = []
        for state in states:
            reached.append(_State(state.score + (_REQUIRED if taking.of.required else 0.0), (*state.chosen, None), state.last))
            for fit in fits:
                if fit.end > 0 and any(one is not None and one.start < fit.end and fit.start < one.end for one in state.chosen):
                    continue
                bonus = _ORDER if state.last >= 0 and fit.start > state.last else 0.0
                reached.append(_State(state.score + fit.score + bonus, (*state.chosen, fit), fit.start if fit.end > 0 else state.last))
        states = sorted(reached, key=lambda state: -state.score)[:_BEAM]
    return list(states[0].chosen)
