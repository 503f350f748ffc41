"""What a method that is put together of parts must compute: its answer, or what a slot becomes, and then its answer."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from batos.mind import answers, edits, prompting
from batos.mind.amending import Wanted
from batos.mind.handbook.entries import words_in
from batos.mind.reuse import Asked
from batos.mind.side_by_side import Call
from batos.mind.tidy import tidied

_ADDED = words_in("add added put append grow grows more plus with both then")
_PARTS: tuple[tuple[str, Callable[[Any, Any], Any], frozenset[str]], ...] = (
    ("X + {}", lambda end, given: end - given, _ADDED),
    ("X - {}", lambda end, given: given - end, words_in("minus less left rest remain remaining without take off subtract shrink")),
    ("{} - X", lambda end, given: end + given, words_in("minus less without over than above difference")),
)
"""A number and what else a number is made of: how that is computed from what is wanted and it, and words that speak of it."""
_PART = 0.5
_OTHER = 1.3  # what an answer costs that is not the first of those that pass: the plainest


class Goal(NamedTuple):
    """A value that is wanted of each example.

    :ivar slot: that it becomes; "" where it is the answer.
    :ivar ends: what may be answered then, as expressions, with what each costs; "" is nothing.
    :ivar around: what it is made of that is computed: `self.budget - {}`.
    :ivar words: that speak of this, and `cost`, what it costs besides.
    """

    values: Sequence[Any]
    slot: str = ""
    ends: Sequence[tuple[float, str]] = ()
    around: str = "{}"
    words: frozenset[str] = frozenset()
    cost: float = 0.0

    def sources(self, request: Asked, text: str, before: Sequence[str] = ()) -> Iterator[tuple[float, str]]:
        """Methods that compute it by an expression, and what their end costs.

        :param before: lines that come before it.
        """
        text = self.around.replace("{}", f"({text})")
        head = f"def {request.selector}({', '.join(('self', *request.names))}):"
        if not self.slot:
            yield from _written(0.0, [head, *before, f"return {text}"])
        for cost, end in self.ends:
            lines = [head, *before, f"self.{self.slot} = {text}", "self._p_changed = True", *([f"return {end}"] if end else [])]
            yield from _written(cost, lines)


def goals(what: Wanted, request: Asked) -> Iterator[Goal]:
    """What the examples want computed, as a whole, and what is left of it where a number or a list that is given is one part of it; none
    where they change several slots, or none of them in all."""
    if (whole := _whole(what, request)) is None:
        return
    yield whole
    for name, kind in request.kinds.items():
        given = [read(name, call) for call, _ in what.examples]
        if kind == "number" and all(type(one) in (int, float) for one in (*given, *whole.values)):
            for around, left, words in _PARTS:
                with contextlib.suppress(OverflowError):  # a number that is larger than any float
                    yield _part(whole, around.replace("X", name), [left(*one) for one in zip(whole.values, given, strict=True)], words)
        if kind == "items" and all(isinstance(one, list) for one in (*given, *whole.values)):
            both = list(zip(whole.values, given, strict=True))
            if all(end[: len(begin)] == begin for end, begin in both):
                yield _part(whole, f"{name} + {{}}", [end[len(begin) :] for end, begin in both], _ADDED)


def read(name: str, call: Call) -> Any:
    """What a method reads by an expression of `Asked.kinds`."""
    owner, _, slot = name.partition(".")
    return call.slots.get(slot) if slot else prompting.arguments(call.args, call.kwargs).get(owner)


def _part(whole: Goal, around: str, values: Sequence[Any], words: frozenset[str]) -> Goal:
    return whole._replace(values=values, around=around, words=words, cost=_PART)


def _whole(what: Wanted, request: Asked) -> Goal | None:
    wanted = [example for _, example in what.examples]
    if not what.known.changed:
        return Goal([one.result for one in wanted])
    slot, *others = sorted(what.known.changed)
    left = [(dict(one.slots) | dict(one.after)).get(slot) for one in wanted]
    if others or not edits.sayable(slot) or any(value is None for value in left):
        return None
    if all(one.result is None for one in wanted):
        return Goal(left, slot, ((0.0, ""),))
    ends = dict.fromkeys(answers.of_left(slot, left, wanted, request.names))
    return Goal(left, slot, tuple((_OTHER if n else 0.0, end) for n, end in enumerate(ends)))


def _written(cost: float, lines: Sequence[str]) -> Iterator[tuple[float, str]]:
    try:
        tree = ast.parse("\n    ".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    text = edits.unparsed(tidied(tree))
    if text is not None:
        yield cost, text
