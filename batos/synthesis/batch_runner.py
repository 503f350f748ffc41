"""What many methods do on the same calls, in few runs of the sandbox: compiled and run one by one they would take 30 ms each.

They become functions of one method, with a record in the place of the receiver's slots; so they can neither send nor see anything else.

Calls that are like a call: what tells whether two methods that pass an example do the same elsewhere, too.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from batos.errors import MethodError, MethodUnsupported, SandboxFailed
from batos.image import history
from batos.sandbox import unsupported

log = structlog.get_logger("batos.mind")

SELECTOR = "side_by_side_"
_ROWS = 40
"""Methods of one run at most."""
_AGAIN = 6
"""Further runs, of halves, where one of a run's methods meets a limit; then of none of those that were beside it is known what they do."""
_EACH = 12
"""Bytes that a line of a method takes in it besides, with what its slots are called there."""
_CHARS = 4000  # of what a method did that are told
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
"""Runs the source of a method of the selector `SELECTOR` in the sandbox, with one argument; its answer."""


class Aside:
    """Runs methods side by side that send messages, too: those that are plain functions."""

    def __init__(self, run: Run, helpers: Mapping[str, str]) -> None:
        """
        :param helpers: sources of what is sent, by selector; of methods that are `plain`.
        """
        self._run, self.helpers = run, helpers

    def __call__(self, text: str, given: list[Any]) -> Awaitable[Any]:
        return self._run(text, given)


Did = tuple[Any, dict[str, Any]] | None
"""What was answered, and the slots after it; None where that is not known."""


class MethodCall(NamedTuple):
    """A call of a method, and the slots of its receiver. Plain values only, which are never changed."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    slots: Mapping[str, Any] = {}


async def run_batch(sources: Sequence[str], calls: Sequence[MethodCall], run: Run, *, limit: int) -> list[tuple[str, ...]]:
    """What each method does on each call: the `repr` of its answer and of the slots after it; "" where that is not known, as it fails.

    :param sources: of methods that pass the guardian and send nothing, but what `run` has (`Aside`).
    :param limit: bytes that the source of one method may have.
    """
    given = [[list(one.args), dict(one.kwargs), dict(one.slots)] for one in calls]
    found: list[tuple[str, ...]] = []
    again = _AGAIN
    helpers = run.helpers if isinstance(run, Aside) else {}
    waiting = [list(rows) for rows in _parted(sources, limit - sum(map(len, helpers.values())))][::-1]
    while waiting:
        rows = waiting.pop()
        came = await _together(rows, given, run)
        if came is None and again > 1 and len(rows) > 1:  # one of them is enough for that: what do the others?
            again -= 2
            waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
        else:
            found += came or [("",) * len(calls)] * len(rows)
    return found


async def _together(rows: Sequence[str], given: Sequence[Any], run: Run) -> list[tuple[str, ...]] | None:
    """What each of a few does; None where one of them met a limit."""
    able, helpers = list(range(len(rows))), run.helpers if isinstance(run, Aside) else {}
    try:
        try:
            told = await run(batch_source(rows, helpers), [*given])
        except MethodUnsupported:  # one is enough for that
            able = [n for n, row in enumerate(rows) if not unsupported(row)]
            told = await run(batch_source([rows[n] for n in able], helpers), [*given])
    except (MethodError, SandboxFailed) as e:
        log.info("side_by_side_failed", error=e.message, methods=len(rows))
        return None
    known = dict(zip(able, map(tuple, told), strict=False))
    return [known.get(n, ("",) * len(given)) for n in range(len(rows))]


def read_outcome(text: str) -> Did:
    """A text of `did`, or of a trial, in plain values."""
    if (found := outcome_values(text)) is None:
        return None
    value, slots = found
    return history.uncut(value), {name: history.uncut(one) for name, one in slots.items()}


def outcome_values(text: str) -> Did:
    """A text of `did`, in the values that there were: a set is a set."""
    try:
        value, slots = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # nothing, or no plain value
        return None
    return value, slots


def _parted(sources: Sequence[str], limit: int) -> Iterator[Sequence[str]]:
    """In groups of which each makes one method that is not too long."""
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
    """The source of one method that does what all of these do, one after the other, on each of the calls that it is given.

    :param helpers: see `Aside`.
    """
    functions = [_function(source, f"method{n}_", helpers) for n, source in enumerate(sources)]
    names = ", ".join(function.name for function in functions)
    before = [_function(source, name, {}) for name, source in helpers.items()]
    body = "\n".join(_indented(ast.unparse(function)) for function in (*before, *functions))
    return f"{_BEGIN}{body}{_END.replace('METHODS', names)}"


def is_pure(source: str) -> bool:
    """Whether a method does nothing with its receiver, so that it is a function of what it is given; and has a `while` for nothing that
    goes on without end."""
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
    """The receiver's slots as entries of a record, and what is sent to it as functions."""

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


_SEED = 5  # the same calls vary the same way in each replay
_DATES = ("2024-02-29", "2023-12-31", "2025-07-04", "2022-01-09")
_TIMES = ("00:05", "23:59", "12:00", "09:30")
_OFTEN, _SELDOM = 0.7, 0.5  # shares of arguments and of slots that are changed
_WITHIN = 0.3  # and of changed ones that become a part of another value: what is looked for is there then
_PARTS = 40  # of another value, at most


def variations(calls: Sequence[MethodCall], count: int) -> list[MethodCall]:
    """So many calls, each made of one of these: numbers near it, texts with other words or some of them twice, lists and records with more
    or less in them, and what is looked for where it is to be found. Each way to change a value has its turn."""
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
    """Another value in place of one that is given: a part of the others that is of its kind, or one that is like it."""
    value = given[at]
    if type(value) in (str, int) and rng.random() < _WITHIN:
        parts = [one for n, held in enumerate(given) if n != at for one in itertools.islice(_parts(held), _PARTS)]
        if alike := [one for one in parts if type(one) is type(value) and one != value]:
            return rng.choice(alike)
    return _changed(value, turn, rng)


def _parts(value: Any) -> Iterator[Any]:
    """What may be looked for in a value."""
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
    """Another value of its kind.

    :param turn: says in which way it is changed.
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
