"""Batch execution: many methods on the same calls, in few runs of the sandbox. One by one each would take 30 ms.

The methods become functions inside one method, with a record in place of the receiver's slots. So they can neither send nor see anything
else. The module also mutates calls (`variations`), to compare methods that pass the same examples.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import structlog

from batos.errors import MethodError, MethodUnsupported, SandboxFailed
from batos.objects.json_form import uncut
from batos.synthesis.specification import MethodCall

log = structlog.get_logger("batos.mind")

SELECTOR = "side_by_side_"
_ROWS = 40
"""Greatest number of methods in one run."""
_AGAIN = 6
"""Greatest number of further runs, each with half of the methods, after a method met a limit. Then the rest of that run has no result."""
_EACH = 12
"""Bytes that the runner adds to each line of a method, with the names of its slots."""
_CHARS = 4000  # greatest number of characters of a method's result that the runner returns
SLOTS = "slots_"
_BEGIN = f"""def {SELECTOR}(self, calls):
    def fresh_(value):
        if type(value) is list:
            return [fresh_(one) for one in value]
        if type(value) is dict:
            return {{key: fresh_(one) for key, one in value.items()}}
        return value
"""
_END = f"""
    found_ = []
    for method_ in [METHODS]:
        texts_ = []
        for args_, kwargs_, {SLOTS} in calls:
            {SLOTS} = fresh_({SLOTS})
            try:
                value_ = method_({SLOTS}, *fresh_(args_), **fresh_(kwargs_))
                text_ = repr((value_, {SLOTS}))
            except Exception:
                text_ = ""
            texts_.append(text_ if len(text_) < {_CHARS} else "")
        found_.append(texts_)
    return found_
"""

Run = Callable[[str, list[Any]], Awaitable[Any]]
"""Runs a source of the selector `SELECTOR` in a sandbox with one argument, and returns its answer."""
CallOutcome = tuple[Any, dict[str, Any]] | None
"""The answer of a method and the slots after the call. None if the method failed or the result is unknown."""


class BatchRunner:
    """An executor of many methods in few runs of the sandbox."""

    def __init__(
        self,
        run: Run,
        *,
        source_bytes: int,
        helpers: Mapping[str, str] = MappingProxyType({}),
        supports: Callable[[str], bool] = lambda source: True,
    ) -> None:
        """
        :param source_bytes: the limit of one method's source (`AuditLimits.bytes`).
        :param helpers: sources of the messages that methods may send, by selector. Each is pure (`is_pure`).
        :param supports: returns False for a source that the sandbox cannot compile.
        """
        self._run, self._source_bytes, self._helpers, self._supports = run, source_bytes, helpers, supports

    async def outcomes(self, sources: Sequence[str], calls: Sequence[MethodCall]) -> list[tuple[str, ...]]:
        """Return for each source its outcome on each call: the `repr` of the answer and of the slots after it, or "" for a failure.

        :param sources: methods that the guardian accepts, and that send nothing but the helpers.
        """
        given = [[list(one.args), dict(one.kwargs), dict(one.slots)] for one in calls]
        found: list[tuple[str, ...]] = []
        again = _AGAIN
        waiting = [list(rows) for rows in _parted(sources, self._source_bytes - sum(map(len, self._helpers.values())))][::-1]
        while waiting:
            rows = waiting.pop()
            came = await self._batch(rows, given)
            if came is None and again > 1 and len(rows) > 1:  # one method is enough to cause this: run the other methods without it
                again -= 2
                waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
            else:
                found += came or [("",) * len(calls)] * len(rows)
        return found

    async def _batch(self, rows: Sequence[str], given: Sequence[Any]) -> list[tuple[str, ...]] | None:
        """Return the outcomes of one batch, or None where one of its methods met a limit."""
        able = list(range(len(rows)))
        try:
            try:
                told = await self._run(batch_source(rows, self._helpers), [*given])
            except MethodUnsupported:  # one method is enough to cause this
                able = [n for n, row in enumerate(rows) if self._supports(row)]
                told = await self._run(batch_source([rows[n] for n in able], self._helpers), [*given])
        except (MethodError, SandboxFailed) as e:
            log.info("side_by_side_failed", error=e.message, methods=len(rows))
            return None
        known = dict(zip(able, map(tuple, told), strict=False))
        return [known.get(n, ("",) * len(given)) for n in range(len(rows))]


def read_outcome(text: str) -> CallOutcome:
    """Return an outcome text of `BatchRunner.outcomes`, or of a trial, in JSON values."""
    if (found := outcome_values(text)) is None:
        return None
    value, slots = found
    return uncut(value), {name: uncut(one) for name, one in slots.items()}


def outcome_values(text: str) -> CallOutcome:
    """Return an outcome text in the original values: a set stays a set."""
    try:
        value, slots = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # no text, or not a literal
        return None
    return value, slots


def _parted(sources: Sequence[str], limit: int) -> Iterator[Sequence[str]]:
    """Yield batches of sources, each short enough to be one method of `limit` bytes."""
    rows: list[str] = []
    room = 0
    for source in sources:
        size = len(source.encode()) + _EACH * (source.count("\n") + 2)
        if rows and (size > room or len(rows) == _ROWS):
            yield rows
            rows = []
        room = (room if rows else limit - len(_BEGIN) - len(_END)) - size
        rows.append(source)
    if rows:
        yield rows


def batch_source(sources: Sequence[str], helpers: Mapping[str, str] = {}) -> str:
    """Return the source of one method that runs all of these on each of the calls that it is given.

    :param helpers: see `BatchRunner`.
    """
    functions = [_function(source, f"method{n}_", helpers) for n, source in enumerate(sources)]
    names = ", ".join(function.name for function in functions)
    before = [_function(source, name, {}) for name, source in helpers.items()]
    body = "\n".join(_indented(ast.unparse(function)) for function in (*before, *functions))
    return f"{_BEGIN}{body}{_END.replace('METHODS', names)}"


def is_pure(source: str) -> bool:
    """Return True if a method does not use its receiver and has no `while` loop: a function of its arguments that ends."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    uses = any(isinstance(node, ast.Name) and node.id == "self" for node in nodes)
    return not uses and not any(isinstance(node, ast.While | ast.AsyncFunctionDef | ast.Await) for node in nodes)


def _function(source: str, name: str, helpers: Collection[str]) -> ast.FunctionDef:
    method = _Slots(helpers).visit(ast.parse(source)).body[0]
    assert isinstance(method, ast.FunctionDef)
    (method.args.posonlyargs or method.args.args)[0].arg, method.name = SLOTS, name
    return ast.fix_missing_locations(method)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


class _Slots(ast.NodeTransformer):
    """Replaces the receiver's slots by entries of a record, and messages by functions."""

    def __init__(self, helpers: Collection[str]) -> None:
        self._helpers = helpers

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Attribute(value=ast.Name("self"), attr=name) if name in self._helpers:
                node.func, node.args = ast.Name(name, ast.Load()), [ast.Name(SLOTS, ast.Load()), *node.args]
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if all(isinstance(target, ast.Attribute) and target.attr == "_p_changed" for target in node.targets):
            return ast.Pass()
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Subscript(ast.Name(SLOTS, ast.Load()), ast.Constant(node.attr), node.ctx)
        return node


_SEED = 5  # a fixed seed: each replay varies the same calls in the same way
_DATES = ("2024-02-29", "2023-12-31", "2025-07-04", "2022-01-09")
_TIMES = ("00:05", "23:59", "12:00", "09:30")
_OFTEN, _SELDOM = 0.7, 0.5  # shares of arguments and of slots that a variation changes
_WITHIN = 0.3  # share of changed values that become a part of another value, so that a search finds its target there
_PARTS = 40  # greatest number of parts of another value


def variations(calls: Sequence[MethodCall], count: int) -> list[MethodCall]:
    """Return mutated calls: numbers nearby, texts with other or doubled words, lists and records with more or fewer entries.

    A searched value sometimes becomes a part of another one, so that the search succeeds. The ways to change a value take turns.

    :param count: number of variations. The same calls give the same variations in each process.
    """
    rng = random.Random(_SEED)
    found = []
    for number in range(count):
        call = rng.choice(calls)
        given = [*call.args, *call.kwargs.values(), *call.slots.values()]
        shares = [_OFTEN] * (len(call.args) + len(call.kwargs)) + [_SELDOM] * len(call.slots)
        other = [at for at, share in enumerate(shares) if rng.random() < share] or ([rng.randrange(len(given))] if given else [])
        new = [_other(at, given, number + at, rng) if at in other else value for at, value in enumerate(given)]
        args, rest = new[: len(call.args)], iter(new[len(call.args) :])
        found.append(MethodCall(args, dict(zip(call.kwargs, rest, strict=False)), dict(zip(call.slots, rest, strict=False))))
    return found


def _other(at: int, given: Sequence[Any], turn: int, rng: random.Random) -> Any:
    """Return a replacement of one input: a part of the other inputs of its kind, or a mutation of it."""
    value = given[at]
    if type(value) in (str, int) and rng.random() < _WITHIN:
        parts = [one for n, held in enumerate(given) if n != at for one in itertools.islice(_parts(held), _PARTS)]
        if alike := [one for one in parts if type(one) is type(value) and one != value]:
            return rng.choice(alike)
    return _changed(value, turn, rng)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a value that may be searched for in it."""
    match value:
        case str():
            yield from (one for one in (*value.split(), *re.findall(r"[^\W_]", value)) if one)
        case list():
            yield from (one for one in value if isinstance(one, str | int))
            yield len(value)
            for one in value:
                if isinstance(one, Mapping):
                    yield from (held for held in one.values() if isinstance(held, str | int))
        case Mapping():
            yield from value
            yield from (one for one in value.values() if isinstance(one, str | int))


def _changed(value: Any, turn: int, rng: random.Random) -> Any:
    """Return a mutation of a value, of the same kind.

    :param turn: selects the way in which it changes.
    """
    match value:
        case bool():
            return not value
        case int():
            return _at(turn, value + 1, value - 1, 2 * value + 3, 10 * value + 9, -value, 0, value + 7)
        case float():
            return _at(turn, value + 1.5, -value, 2 * value)
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            return _at(turn, *_DATES)
        case str() if re.fullmatch(r"\d\d:\d\d", value):
            return _at(turn, *_TIMES)
        case str():
            words = value.split(" ")
            less, more, turned = " ".join(words[1:]), f"{value} {words[0] or 'a'}", " ".join(reversed(words))
            twice, doubled, between = f"{value} {value}", " ".join(word * 2 for word in words), " ".join([words[0], words[-1], *words[1:]])
            return _at(turn, doubled, value.upper(), more, value[1:], value[::-1], between, turned, value + "x", less, twice, value.title())
        case list() if value:
            at = rng.randrange(len(value))
            other = [*value[:at], _changed(value[at], rng.randrange(_PARTS), rng), *value[at + 1 :]]
            return _at(turn, other, value[::-1], [*value, value[at]], value[1:], other, [*value, *value], [value[at], *value])
        case Mapping() if value:
            key, same = rng.choice(list(value)), rng.choice(list(value.values()))
            if turn % 4 == 0:
                return {name: held for name, held in value.items() if name != key}
            if turn % 4 == 1 and type(same) is type(value[key]):
                return {**value, key: same}
            return {**value, key: _changed(value[key], rng.randrange(_PARTS), rng)}
    return value


def _at(turn: int, *ways: Any) -> Any:
    return ways[turn % len(ways)]
