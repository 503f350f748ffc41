"""Targets of a composed method: the values that its answer and its slots must have.

Guards are preconditions of a change. Where one fails, the method answers False and changes nothing, as the handbook's methods do that
change a slot and answer true. Bands are answers that a request spells out for ranges of a number: `cold below 10, mild below 22, else hot`
becomes an idiom (`batos.synthesis.enumeration`).
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.synthesis import enumeration, mutations, repair, specification
from batos.synthesis.adaptation import SourceRequest
from batos.synthesis.enumeration import tidied
from batos.synthesis.handbook import words_in
from batos.synthesis.specification import MethodCall, Specification
from batos.synthesis.word_costs import Spoken, pairs

_Fails = Callable[[Any, Any], bool]
_IN: tuple[tuple[str, _Fails], ...] = (
    ("{given} not in {slot}", lambda held, given: given not in held),
    ("{given} in {slot}", lambda held, given: given in held),
)
_WITH: Mapping[str, Sequence[tuple[str, _Fails]]] = {
    "record": _IN, "items": _IN,
    "number": (
        ("{given} > {slot}", lambda held, given: given > held), ("{given} < {slot}", lambda held, given: given < held),
        ("{given} >= {slot}", lambda held, given: given >= held), ("{given} <= {slot}", lambda held, given: given <= held),
    ),
}  # fmt: skip
"""Preconditions by kind of slot: an expression of the slot and an argument, and a function that returns True where the change fails."""
_ALONE: Mapping[str, Sequence[tuple[str, _Fails]]] = {
    "flag": (("{slot}", lambda held, _: bool(held)), ("not {slot}", lambda held, _: not held)),
    "items": (("not {slot}", lambda held, _: not held),),
    "record": (("not {slot}", lambda held, _: not held),),
    "number": (("{slot} == 0", lambda held, _: held == 0),),
}
"""Preconditions by kind of slot that need no argument."""


def guards(slot: str, held: Sequence[Any], given: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield preconditions of a change that hold on all examples, as expressions of failure, the likeliest first.

    :param slot: the slot as it stands in a method: `self.total`.
    :param held: the slot before each example.
    :param given: the values of each argument.
    """
    kind = specification.kind_of(held[0])
    of = {"number"} if kind == "number" else _kinds(held)
    alike = {name: list(values) for name, values in given.items() if not of or of == {specification.kind_of(one) for one in values}}
    ways = [(one, name, values) for one in _WITH.get(kind, ()) for name, values in alike.items()]
    ways += [(one, "", [None] * len(held)) for one in _ALONE.get(kind, ())]
    for (template, fails), name, values in ways:
        try:
            if not any(fails(before, value) for before, value in zip(held, values, strict=True)):
                yield template.format(slot=slot, given=name)
        except TypeError:  # values of different kinds, such as a number and a text, or a list as a key
            continue


def _kinds(held: Sequence[Any]) -> set[str]:
    """Return the kinds of the items, or keys, of these values."""
    return {specification.kind_of(one) for values in held if isinstance(values, list | dict) for one in values}


_BOUNDS = {
    "<": "below under before less than smaller than", "<=": "up to until at most", ">=": "from at least", ">": "over above more than after",
}  # fmt: skip
_SIGNS = {
    name: sign for sign, names in _BOUNDS.items() for name in re.findall(r"(?:less|smaller|more) than|up to|at most|at least|\w+", names)
}
_BOUND = re.compile(rf"\b({'|'.join(sorted(_SIGNS, key=len, reverse=True))}) (-?[0-9]{{1,9}}(?:\.[0-9]{{1,6}})?)(?![\w.,:]*\d|[kKmM%]\b)")
_ANY_BOUND = re.compile(rf"\b(?:{'|'.join(_SIGNS)}) -?\d")
_ELSE = re.compile(r"\b(?:else|otherwise)\b:? *(.+)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_QUOTED = re.compile(r"""['"]([\w '-]+)['"]""")
_LINKING = frozenset(["for", "if", "when", "it", "is", "are", "of", "value", "values", "number", "numbers"])
_APART = re.compile(r"[,;:]|\band\b")
_MOST = 8  # greatest number of bands


class _Band(NamedTuple):
    said: str
    sign: str
    bound: str


def spelled(told: str) -> Iterator[Spoken]:
    """Yield idioms of a number that the words spell out as bands.

    :param told: the request in words.
    """
    found = _ELSE.search(told)
    if found is None:
        return
    bands, end = [], 0
    for bound in _BOUND.finditer(told, 0, found.start()):
        figure = repr(float(bound[2])) if "." in bound[2] else str(int(bound[2]))  # Python does not accept `09`
        bands.append(_Band(_APART.split(told[end : bound.start()])[-1].strip(), _SIGNS[bound[1]], figure))
        end = bound.end()
    # a bound is not a number, as in `13:00`
    if not 0 < len(bands) <= _MOST or len(bands) < len(_ANY_BOUND.findall(told, 0, found.start())):
        return
    last = found[1].strip()
    # the first phrase may have more words before it: "I need cold below 10"
    count = min((len(_words(one.said)) for one in bands[1:]), default=1)
    texts = [_text(one.said, count, at_end=True) for one in bands] + [_text(last, count, at_end=False)]
    if all(texts) and len(set(texts)) > 1:
        parts = [f"{text!r} if {{it}} {one.sign} {one.bound} else " for text, one in zip(texts, bands, strict=False)]
        words = words_in(" ".join((*texts, *(one.bound for one in bands))))
        yield Spoken(f"{''.join(parts)}{texts[-1]!r}", words)


def _text(said: str, count: int, *, at_end: bool) -> str:
    """Return the answer of a band: the quoted text, or `count` words at one end of the phrase."""
    if quoted := _QUOTED.findall(said):
        return str(quoted[-1] if at_end else quoted[0])
    words = _words(said)
    return " ".join(words[-count:] if at_end else words[:count])


def _words(said: str) -> list[str]:
    """Return the words of a phrase, without the last ones that link them to a number."""
    words = _WORD.findall(said)
    while words and words[-1] in _LINKING:
        words.pop()
    return words


_ADDED = words_in("add added put append grow grows more plus with both then")
_PARTS: tuple[tuple[str, Callable[[Any, Any], Any], frozenset[str]], ...] = (
    ("X + {}", lambda end, given: end - given, _ADDED),
    ("X - {}", lambda end, given: given - end, words_in("minus less left rest remain remaining without take off subtract shrink")),
    ("{} - X", lambda end, given: end + given, words_in("minus less without over than above difference")),
)
"""Sums and differences: the expression, the function that computes the other operand from the goal and an input, and the words that ask
for it.
"""
_OR = re.compile(r"(?<![\w-])['\"]?([\w-]++)['\"]? (?:or|else|otherwise|and otherwise)(?: else)? ['\"]?([\w-]+)")
_SAYS = {
    "len": words_in("many count number"), "sum": words_in("sum total"), "max": words_in("largest highest best"),
    "min": words_in("smallest lowest"),
}  # fmt: skip
"""Function that gives an answer -> words that ask for it."""
WHETHER = words_in("if when else otherwise whether answer say")
"""Words that ask for one of two answers, whatever the answers are."""
_PART = 0.5
_SEVERAL = 3  # greatest number of slots that one call changes
ANSWER = "answer"
"""Name of an answer that the method computes before slots change."""
_DONE, _UNGUARDED = "True", 1.0  # the answer that reports a changed slot, and its cost if the method changes the slot in every case
_LESS_LIKELY = 0.2  # added cost of each further precondition, in the order of likelihood
_OTHER = 1.3  # added cost of an answer that is not the first (plainest) one that passes


class Goal(NamedTuple):
    """Values that a method must compute, one of each example.

    :ivar slot: the slot that gets them; "" for the answer.
    :ivar ends: answers that may follow, as expressions with their costs; "" for none.
    :ivar around: the expression around the computed value: `self.budget - {}`.
    :ivar guards: preconditions of the change, where the answer is that it was made.
    :ivar words: words that speak of `around`.
    :ivar cost: the cost of `around`.
    :ivar also: further words, which it explains and which need not be said.
    """

    values: Sequence[Any]
    slot: str = ""
    ends: Sequence[tuple[float, str]] = ()
    guards: Sequence[str] = ()
    around: str = "{}"
    words: frozenset[str] = frozenset()
    cost: float = 0.0
    also: frozenset[str] = frozenset()

    @property
    def spoken(self) -> frozenset[str]:
        """Return the words that ask for the expression around the computed value. Words for the value itself are not among them."""
        return self.words | self.also if " if {} else " in self.around else frozenset()

    def sources(self, request: SourceRequest, text: str, before: Sequence[str] = ()) -> Iterator[tuple[float, str]]:
        """Yield methods that compute the goal by an expression, with the costs of their ends.

        :param before: lines that come before the expression.
        """
        text = self.around.replace("{}", f"({text})")
        imports = [f"import {one}" for one in _modules((*before, text))]
        head, before = f"def {request.selector}({', '.join(('self', *request.names))}):", [*imports, *before]
        if not self.slot:
            yield from _written(0.0, [head, *before, f"return {text}"])
        for cost, end in self.ends:
            lines = [*before, f"self.{self.slot} = {text}", "self._p_changed = True", *([f"return {end}"] if end else [])]
            yield from _written(cost + (_UNGUARDED if end == _DONE and self.guards else 0.0), [head, *lines])
            for n, guard in enumerate(self.guards if end == _DONE else ()):
                yield from _written(cost + _LESS_LIKELY * n, [head, f"if {guard}:", "    return False", *lines])


def goals(what: Specification, request: SourceRequest) -> Iterator[Goal]:
    """Yield the goal of the examples, then goals that are left of it once an input is one part of it.

    Yield none where the examples change several slots, or a slot in some examples only.
    """
    if (whole := _whole(what, request)) is None:
        return
    yield whole
    yield from _worded(whole, what.known.told)
    for name, kind in request.kinds.items():
        given = [value_read(name, call) for call, _ in what.examples]
        if kind == "number" and all(type(one) in (int, float) for one in (*given, *whole.values)):
            for around, left, words in _PARTS:
                with contextlib.suppress(OverflowError):  # a number that is too large for a float
                    yield _part(whole, around.replace("X", name), [left(*one) for one in zip(whole.values, given, strict=True)], words)
        if kind == "items" and all(isinstance(one, list) for one in (*given, *whole.values)):
            both = list(zip(whole.values, given, strict=True))
            if all(end[: len(begin)] == begin for end, begin in both):
                yield _part(whole, f"{name} + {{}}", [end[len(begin) :] for end, begin in both], _ADDED)


def targets(what: Specification, request: SourceRequest) -> list[Goal]:
    """Return one goal for each of several slots, and one for the answer, all computed from the state before the call.

    Return none where the examples do something else.
    """
    wanted = [example for _, example in what.examples]
    changed = sorted(what.known.changed)
    if not 0 < len(changed) <= _SEVERAL or not all(map(mutations.sayable, changed)):
        return []
    held = {slot: [(dict(one.slots) | dict(one.after)).get(slot) for one in wanted] for slot in changed}
    if any(value is None for values in held.values() for value in values):
        return []
    found = [Goal(values, slot) for slot, values in held.items()]
    ends = [end for slot, values in held.items() for end in repair.answers_from_slot(slot, values, wanted, request.names)]
    if all(one.result is None for one in wanted):
        ends = [""]
    for order in (changed, changed[::-1]) if len(changed) > 1 else ():
        if all([held[slot][n] for slot in order] == one.result for n, one in enumerate(wanted)):
            ends.append(f"[{', '.join(f'self.{slot}' for slot in order)}]")
    if ends:
        found[0] = found[0]._replace(ends=tuple((_OTHER if n else 0.0, end) for n, end in enumerate(dict.fromkeys(ends))))
        return found
    return [*found, Goal([one.result for one in wanted])]


def written_together(request: SourceRequest, texts: Sequence[tuple[Goal, str]]) -> Iterator[tuple[float, str]]:
    """Yield methods that compute several goals at once, from the state before the call, with the costs of their ends.

    :param texts: goals with their expressions.
    """
    slots = [(end.slot, text) for end, text in texts if end.slot]
    answer = [text for end, text in texts if not end.slot]
    imports = [f"import {one}" for one in _modules(text for _, text in texts)]
    lines = [f"def {request.selector}({', '.join(('self', *request.names))}):", *imports]
    if answer and not _plain(answer[0]):
        lines.append(f"{ANSWER} = {answer[0]}")
        answer = [ANSWER]
    lines.append(f"{', '.join(f'self.{slot}' for slot, _ in slots)} = {', '.join(f'({text})' for _, text in slots)}")
    lines.append("self._p_changed = True")
    for cost, end in [(0.0, answer[0])] if answer else texts[0][0].ends:
        yield from _written(cost, [*lines, *([f"return {end}"] if end else [])])


def _modules(texts: Iterable[str]) -> list[str]:
    return enumeration.modules_in("\n".join(texts))


def _plain(text: str) -> bool:
    """Return True if an expression reads no slot."""
    return "self." not in text


def _worded(whole: Goal, told: str) -> Iterator[Goal]:
    """Yield the conditions under which one of two words is the answer, as goals."""
    if not all(isinstance(one, str) for one in whole.values):
        return
    said = [pair for pair in _OR.findall(told) if pair[0] != pair[1]]
    given = {one.lower() for one in whole.values}
    for one, other in dict.fromkeys((*said, *pairs())):
        if given <= {one, other}:
            capital = all(value[:1].isupper() for value in whole.values)
            texts = [text.capitalize() if capital else text for text in (one, other)]
            if not set(whole.values) <= set(texts):
                continue
            words = words_in(f"{one} {other}")
            for yes, no in (texts, texts[::-1]):
                around = f"{yes!r} if {{}} else {no!r}"
                yield whole._replace(values=[value == yes for value in whole.values], around=around, words=words, cost=_PART, also=WHETHER)


def value_read(name: str, call: MethodCall) -> Any:
    """Return the value that a method reads by an expression of `SourceRequest.kinds`."""
    owner, _, slot = name.partition(".")
    return call.slots.get(slot) if slot else specification.arguments(call.args, call.kwargs).get(owner)


def _part(whole: Goal, around: str, values: Sequence[Any], words: frozenset[str]) -> Goal:
    return whole._replace(values=values, around=around, words=words, cost=_PART)


def _whole(what: Specification, request: SourceRequest) -> Goal | None:
    wanted = [example for _, example in what.examples]
    if not what.known.changed:
        return Goal([one.result for one in wanted])
    slot, *others = sorted(what.known.changed)
    left = [(dict(one.slots) | dict(one.after)).get(slot) for one in wanted]
    if others or not mutations.sayable(slot) or any(value is None for value in left):
        return None
    if all(one.result is None for one in wanted):
        return Goal(left, slot, ((0.0, ""),))
    ends = dict.fromkeys(repair.answers_from_slot(slot, left, wanted, request.names))
    if not ends:  # the answer is computed, too: see `targets`
        return None
    words = next((_SAYS.get(end.partition("(")[0], frozenset()) for end in ends), frozenset())
    of = f"self.{slot}"
    calls = [call for call, _ in what.examples]
    given = {name: [value_read(name, call) for call in calls] for name in request.names}
    may = tuple(guards(of, [value_read(of, call) for call in calls], given)) if _DONE in ends else ()
    return Goal(left, slot, tuple((_OTHER if n else 0.0, end) for n, end in enumerate(ends)), may, also=words)


def _written(cost: float, lines: Sequence[str]) -> Iterator[tuple[float, str]]:
    try:
        tree = ast.parse("\n    ".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    text = mutations.unparsed(tidied(tree))
    if text is not None:
        yield cost, text
