"""Tracing of methods: the lines that a run went through, and the values of its local variables at each.

A traced program notes them by itself, in the worker, so that a run makes no more requests than any other. The last lines are kept. What a
worker noted is read when the run has ended; a worker that was killed has taken it along.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from batos.objects import Method, UvmObject

RAN = "_b_ran"
"""Name in the worker under which the lines are kept."""
KEPT = 400
"""Number of lines of a run that are kept, the last ones."""
_LONG, _SHOWN, _ITEMS = 64, 300, 20

HELPER = f"""
{RAN} = []
def _b_shown(v):
    t = type(v)
    if t is _b_U:
        return 'an object of the image'
    if (t is list or t is tuple or t is str) and len(v) > {_LONG}:
        return repr(v[:{_ITEMS}])[:{_SHOWN}] + ' … ' + str(len(v)) + ' in all'
    if (t is dict or t is set) and len(v) > {_LONG}:
        return t.__name__ + ' with ' + str(len(v)) + ' items'
    return repr(v)[:{_SHOWN}]
def _b_at(n, seen):
    if len({RAN}) >= {KEPT}:
        {RAN}.pop(0)
    {RAN}.append((n, {{k: _b_shown(seen[k]) for k in seen if k[:3] != '_b_'}}))
""".strip()
"""Text that a traced program begins with."""


class RanLine(NamedTuple):
    """Line that a run came to, before it was carried out."""

    line: int
    """Number in the method's source, from 1."""
    values: Mapping[str, str]
    """Local variables, as Python shows them, long ones cut."""


@dataclass(frozen=True)
class TracedRun:
    """One run of a method."""

    receiver: UvmObject
    holder: UvmObject | None
    method: Method
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    value: Any
    error: BaseException | None
    lines: tuple[RanLine, ...] | None
    """The last lines that it came to, in order; None where they cannot be had: its worker died, or was stopped in the middle."""


TraceListener = Callable[[TracedRun], None]


def traced(tree: ast.Module) -> ast.Module:
    """Return a rewritten method that notes its lines; functions inside it do not."""
    for method in tree.body:
        if isinstance(method, ast.FunctionDef):
            method.body = _noted(method.body)
    return ast.fix_missing_locations(tree)


def read_lines(noted: Any) -> tuple[RanLine, ...]:
    """Return what a worker noted; what is not of that form is left out, since it is not trusted."""
    if not isinstance(noted, list):
        return ()
    fitting = (one for one in noted if isinstance(one, tuple) and len(one) == 2 and type(one[0]) is int and isinstance(one[1], dict))
    return tuple(RanLine(number, {str(name): str(shown) for name, shown in values.items()}) for number, values in fitting)


def _noted(body: list[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    before = 0
    for one in body:
        line = getattr(one, "lineno", 0)
        if line and line != before:
            note = ast.Call(ast.Name("_b_at", ast.Load()), [ast.Constant(line), ast.Call(ast.Name("locals", ast.Load()), [], [])], [])
            found.append(ast.copy_location(ast.Expr(ast.copy_location(note, one)), one))
        before = line
        found.append(one)
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                if inner := getattr(one, field, None):
                    setattr(one, field, _noted(inner))
            for part in (*getattr(one, "handlers", ()), *getattr(one, "cases", ())):
                part.body = _noted(part.body)
    return found
