"""What many methods do on the same calls, in few runs of the sandbox: compiled and run one by one they would take 30 ms each.

They become functions of one method, with a record in the place of the receiver's slots; so they can neither send nor see anything else.
"""

from __future__ import annotations

import ast
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


class Call(NamedTuple):
    """A call of a method, and the slots of its receiver. Plain values only, which are never changed."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    slots: Mapping[str, Any] = {}


async def did(sources: Sequence[str], calls: Sequence[Call], run: Run, *, limit: int) -> list[tuple[str, ...]]:
    """What each method does on each call: the `repr` of its answer and of the slots after it; "" where that is not known, as it fails.

    :param sources: of methods that pass the guardian and send nothing, but what `run` has (`Aside`).
    :param limit: bytes that the source of one method may have (setting method_bytes).
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
            told = await run(together(rows, helpers), [*given])
        except MethodUnsupported:  # one is enough for that
            able = [n for n, row in enumerate(rows) if not unsupported(row)]
            told = await run(together([rows[n] for n in able], helpers), [*given])
    except (MethodError, SandboxFailed) as e:
        log.info("side_by_side_failed", error=e.message, methods=len(rows))
        return None
    known = dict(zip(able, map(tuple, told), strict=False))
    return [known.get(n, ("",) * len(given)) for n in range(len(rows))]


def read(text: str) -> Did:
    """A text of `did`, or of a trial, in plain values."""
    if (found := held(text)) is None:
        return None
    value, slots = found
    return history.uncut(value), {name: history.uncut(one) for name, one in slots.items()}


def held(text: str) -> Did:
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


def together(sources: Sequence[str], helpers: Mapping[str, str] = {}) -> str:
    """The source of one method that does what all of these do, one after the other, on each of the calls that it is given.

    :param helpers: see `Aside`.
    """
    functions = [_function(source, f"method{n}_", helpers) for n, source in enumerate(sources)]
    names = ", ".join(function.name for function in functions)
    before = [_function(source, name, {}) for name, source in helpers.items()]
    body = "\n".join(_indented(ast.unparse(function)) for function in (*before, *functions))
    return f"{_BEGIN}{body}{_END.replace('METHODS', names)}"


def plain(source: str) -> bool:
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
