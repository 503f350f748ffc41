"""The specification of a method, and the context of a search for it.

A specification holds what the request says in words, the taught examples and the calls to compare methods on, all as plain
values. A search context adds what a search works with: a runner that executes candidates, an auditor, and a budget. Plain values
have kinds, after which arguments are named, and an equality of their own.
"""

from __future__ import annotations

import contextlib
import keyword
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from batos.objects.json_form import Example

_HUGE = 10**15  # a float above this has no decimal form with so many digits
_DIGITS = 3  # digits of a number that rarely matches by chance


class RequestFacts(NamedTuple):
    """The vocabulary of a request: names and words that a method for it may use.

    :ivar told: the purpose in words, and on a line of its own the words of the selector.
    :ivar slots: names of the receiver's slots.
    :ivar shown: slots that occur in the examples.
    :ivar changed: slots that the examples change.
    :ivar fields: keys of records in the examples.
    :ivar sends: messages that the words name and that may be sent.
    """

    told: str
    slots: Collection[str]
    shown: Collection[str] = ()
    changed: Collection[str] = ()
    fields: Collection[str] = ()
    sends: Collection[str] = ()

    def speaks_of(self, slot: str) -> bool:
        """Return True if the words or an example mention a slot."""
        return slot in self.shown or self.names(slot)

    def names(self, slot: str) -> bool:
        """Return True if the words contain the name of a slot, or a part of it between underscores."""
        words = set(re.split(r"[\W_]+", self.told.lower()))
        return any(part in words for part in slot.lower().split("_"))


class MethodCall(NamedTuple):
    """A call of a method, with the slots of its receiver. All values are plain and are never changed."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    slots: Mapping[str, Any] = {}


class Specification(NamedTuple):
    """The behaviour that is wanted of a method, in plain values.

    :ivar selector: the name of the method.
    :ivar examples: each example with its call.
    :ivar calls: the calls of the examples, then the call that asked for the method, where it has plain arguments.
    :ivar helpers: sources of the pure methods that may be sent, by selector.
    """

    selector: str
    known: RequestFacts
    examples: Sequence[tuple[MethodCall, Example]]
    calls: Sequence[MethodCall]
    helpers: Mapping[str, str] = {}

    @property
    def tells(self) -> bool:
        """Return True if at least one example is specific enough to repair a method by."""
        return any(tells(example) for _, example in self.examples)


def tells(example: Example) -> bool:
    """Return True for a specific example: it changes slots, or its answer is none of the inputs and few methods give it."""
    if example.after:
        return True
    result = example.result
    if result is None or isinstance(result, bool) or result in ("", [], {}):
        return False
    if isinstance(result, int | float) and abs(result) < _HUGE and len(f"{abs(result):.10g}".replace(".", "").lstrip("0")) < _DIGITS:
        return False
    given = (*example.args, *dict(example.kwargs).values(), *dict(example.slots).values())
    return not any(type(one) is type(result) and one == result for value in given for one in _parts(value))


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and everything inside it, keys too."""
    yield value
    if isinstance(value, Mapping):
        yield from value
    for one in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _parts(one)


class Runner(Protocol):
    """An executor of candidate methods, such as `batos.synthesis.batch_runner.BatchRunner`."""

    async def outcomes(self, sources: Sequence[str], calls: Sequence[MethodCall]) -> list[tuple[str, ...]]:
        """Return for each source its outcome on each call: the `repr` of the answer and of the slots after it, or "" for a failure."""


@dataclass(frozen=True)
class SearchBudget:
    """Limits of one search. A limit of 0 switches that kind of search off.

    :ivar edits: edits of a draft that are tried.
    :ivar adaptations: ways to call known methods that are tried.
    :ivar parts: values that are computed while methods are composed of parts.
    """

    edits: int = 0
    adaptations: int = 0
    parts: int = 0


@dataclass(frozen=True)
class SearchContext:
    """Everything that the functions of a search share.

    :ivar auditor: returns True for a source that the guardian accepts. It is called in a helper thread.
    """

    spec: Specification
    runner: Runner
    auditor: Callable[[str], bool]
    budget: SearchBudget

    def about(self, spec: Specification) -> SearchContext:
        """Return the same context for another specification."""
        return replace(self, spec=spec)

    async def run_examples(self, candidates: Sequence[tuple[float, str]]) -> list[tuple[tuple[float, str], tuple[str, ...]]]:
        """Run candidates on the calls of the examples.

        :param candidates: sources with their costs.
        :return: each candidate with its outcomes.
        """
        calls = [call for call, _ in self.spec.examples]
        return list(zip(candidates, await self.runner.outcomes([text for _, text in candidates], calls), strict=True))


_BY_TYPE = {str: "text", bool: "flag", int: "number", float: "number", list: "items", dict: "record"}
KINDS = frozenset(_BY_TYPE.values())
"""Kinds of arguments. A parameter with such a name takes that kind."""


def signature(selector: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the first line of a method for such a message: `def add_(self, number, number2):`."""
    return f"def {selector}({', '.join(('self', *arguments(args, kwargs)))}):"


def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a message by the names of the parameters. Keyword arguments that are not valid Python names are left out."""
    found: dict[str, Any] = {}
    for value in args:
        name = kind_of(value)
        found[name if name not in found else f"{name}{sum(known.rstrip('0123456789') == name for known in found) + 1}"] = value
    return found | {name: value for name, value in kwargs.items() if name.isidentifier() and not keyword.iskeyword(name)}


def kind_of(value: Any) -> str:
    """Return the kind of an argument, by its type."""
    return _BY_TYPE.get(type(value), "other")


def parameters(selector: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the kinds of a method's parameters behind `self`: `number` also for `number2`."""
    return [name.rstrip("0123456789") for name in arguments(args, kwargs)]


def is_plain(value: Any) -> bool:
    """Return True for a JSON value without references to objects."""
    if isinstance(value, dict):
        return "oid" not in value and all(isinstance(key, str) for key in value) and all(map(is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def same(one: Any, other: Any) -> bool:
    """Return True if two values are equal as JSON. Numbers are compared to nine digits; 1 is not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        with contextlib.suppress(OverflowError):  # an integer that is too large for a float
            return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {*map(str, one)} == {*map(str, other)} and all(same(value, _by_text(other, key)) for key, value in one.items())
    return bool(one == other)


def _by_text(mapping: Mapping[Any, Any], key: Any) -> Any:
    return next(value for name, value in mapping.items() if str(name) == str(key))
