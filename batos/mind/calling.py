"""Methods that answer a brief: "Convert 50 Fahrenheit to Celsius" calls `celsius_`, where somebody taught what that is for. By rule.

A method is called where the brief says nothing but what it is for, in the same order, and has just the values that it takes. Its purpose is
its intent and its selector. What is left over, could be meant otherwise, or would change anything is in doubt, and the brief is thought
about.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from batos.errors import MethodError
from batos.image import examples, history
from batos.image.examples import Example
from batos.mind import gate
from batos.mind.depth import AUTO
from batos.mind.messages import send
from batos.mind.parameters import parameters_of, takes
from batos.mind.plain_values import KINDS, kind_of
from batos.mind.thinking import Thinking
from batos.objects import Method, UvmObject

_CHARS = 2000  # of a brief; a longer one is no call
_LEAST = 2  # words of the purpose that the brief says
_SHARE = 0.5  # of the purpose's words that the brief says
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
"""Words that ask for something, and do not say for what. `how` is no such word but before `many` and `much`."""
_HERE, _TO, _FROM = "valuehere", "to", "from"  # a word that no brief has: where a value stood
_WAYS = {"to": _TO, "into": _TO, "in": _TO, "as": _TO, "from": _FROM}
_ARTICLES = ("a", "an", "the", "degrees", "degree")
_KIND_NAMES = "number numbers text texts string strings list lists items item value values argument given"
_KIND_WORDS = frozenset(_KIND_NAMES.split())
_JOINED = re.compile(r"(?:,|;|(?:,\s*)?and|&)?", re.IGNORECASE)  # what stands between values


class Call(NamedTuple):
    """A message that answers a brief."""

    target: UvmObject
    selector: str
    args: tuple[Any, ...]

    def told(self) -> dict[str, Any]:
        """As a result has it."""
        return {"target": history.oid_of(self.target), "name": self.target.name, "selector": self.selector, "args": list(self.args)}


class _Reading(NamedTuple):
    """A brief as words and values."""

    said: tuple[str, ...]
    values: tuple[Any, ...]
    listed: bool
    """Whether nothing but commas and `and` is between the values."""


def found(lobby: UvmObject, attempt: Thinking, brief: str) -> Call | None:
    """The one call that a mission's brief comes to; None where there is none, or more than one could be meant."""
    mission = attempt.mission
    asked_otherwise = any(mission[name] not in (None, AUTO) for name in ("schema", "context", "persona", "depth"))
    asked_otherwise = asked_otherwise or bool(mission.get("images"))  # a method sees no picture
    if attempt.settings.call_methods == "off" or mission["origin"] == "system" or asked_otherwise or len(brief) > _CHARS:
        return None
    readings = list(_readings(brief))  # first: most briefs have no values in them
    calls = [
        Call(holder, method.selector, args)
        for holder, method, taught, intent in (_methods(lobby) if readings else ())
        for said, values, listed in readings
        if _is_for(said, method.selector, intent) and (args := _arguments(method, taught, values, listed)) is not None and method.intact()
    ]
    return calls[0] if len(calls) == 1 else None


async def answer(call: Call) -> tuple[str, Any] | None:
    """What a call answers, as text and as a value; None where it fails, or answers nothing that can be told."""
    try:
        value = history.whole(await send(call.target, call.selector, *call.args))
    except MethodError:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return None if value is None or gate.fault_of(text) else (text, value)


def _methods(lobby: UvmObject) -> Iterator[tuple[UvmObject, Method, Sequence[Example], str]]:
    """The methods of the lobby and the personas that change nothing and that somebody vouches for, with what they were taught, and are
    for."""
    root = lobby._p_jar.root()
    personas = (lobby._slots.get(name) for name in lobby.personas)
    for holder in (lobby, *(one for one in personas if isinstance(one, UvmObject))):
        for method in list(holder._slots.values()):
            if isinstance(method, Method):
                contract, came = dict(method.contract), dict(method.provenance)
                taught, intent = examples.of(root, holder, method.selector)
                intent = intent or came.get("intent", "")
                if (taught or intent) and not (contract.get("writes") or contract.get("sends") or came.get("open")):
                    yield holder, method, taught, intent


def _readings(brief: str) -> Iterator[_Reading]:
    """The ways to read a brief: with the values in it; or with all that stands behind a colon as one text."""
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
    if values and not re.search(r"\d", said):  # what looks like a number and was not read as one is a date, a unit, a sum
        yield _Reading(_told(said), tuple(values), all(_JOINED.fullmatch(gap.strip()) for gap in gaps))
    head, colon, rest = brief.partition(":")
    if colon and rest[:1].isspace() and rest.strip() and not _VALUE.search(brief) and not re.search(r"\d", head):
        yield _Reading(_told(head), (rest.strip(),), True)


def _value(match: re.Match[str]) -> Any:
    kind, text = str(match.lastgroup), match[str(match.lastgroup)]
    if kind not in ("items", "number"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _told(text: str) -> tuple[str, ...]:
    """The words of a text; a value has a mark in its place."""
    plain = re.sub(r"\bhow (?=many|much)", "", text, flags=re.IGNORECASE)
    return tuple(word.lower().replace("’", "'") for word in _WORD.findall(plain))


def _is_for(said: Sequence[str], selector: str, intent: str) -> bool:
    """Whether a brief says what a method is for, and nothing else."""
    if re.search(r"\d", intent):  # it may be about that number alone
        return False
    told = _told(intent)
    sources = [list(filter(None, map(_term, words_of))) for words_of in (told, _told(selector.replace("_", " ")))]
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
    """Whether what is converted, and to what, is the same in a brief and an intent: a value stands before what it is one of, and that is
    what the intent converts from, or what the brief names first."""
    asked, meant = _ways(said), _ways(intent)
    if any(asked[term] != meant[term] for term in asked.keys() & meant.keys()):
        return False
    at = said.index(_HERE) if _HERE in said else len(said)
    of = next((term for term in map(_term, said[at + 1 :]) if term), None)
    sources = {term for term, way in meant.items() if way == _FROM}
    first = next(filter(None, map(_term, said)), None)
    return of is None or (of in sources if sources else of == first and meant.get(of) != _TO)


def _ways(told: Sequence[str]) -> dict[str, str]:
    """Of the terms of a text that stand behind a word of direction: which way it is."""
    ways = ((_term(word), _WAYS.get(before)) for before, word in itertools.pairwise(one for one in told if one not in _ARTICLES))
    return {term: way for term, way in ways if term and way}


def _term(word: str) -> str | None:
    """What a word has in common with its other forms; None for one that says nothing of a purpose."""
    if word == _HERE or word in _BARE or word in _KIND_WORDS:
        return None
    from batos.memory.words import words  # late: it brings the index

    return next(iter(words(word)), None)


def _arguments(method: Method, taught: Sequence[Example], values: tuple[Any, ...], listed: bool) -> tuple[Any, ...] | None:
    """The arguments of a call, where what the brief names is what the method takes, in one way only."""
    parameters = parameters_of(method.source)
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in parameters):
        return None
    needed = [one for one in parameters if one.default is one.empty]
    if not taught and any(one.name.rstrip("0123456789") not in KINDS for one in needed):  # nobody said what it takes
        return None
    if len(needed) == 1 and len(values) > 1 and listed and takes(method.source, taught, [list(values)], {}):
        return None if takes(method.source, taught, [values[0]], {}) else (list(values),)
    if len(values) != len(needed):
        return None
    if len({kind_of(value) for value in values}) == len(values):
        fitting = [given for given in itertools.permutations(values) if takes(method.source, taught, given, {})]
    else:
        fitting = [values] if listed and takes(method.source, taught, values, {}) else []
    return fitting[0] if len(fitting) == 1 else None
