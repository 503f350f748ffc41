"""Loop limits: how often a loop can go round, as far as its text says it.

A literal says it: `range(3)`, `orders[:10]`, `("tea", "milk")`, also inside `enumerate`, `sorted`, `zip` and the like. A name stands for
what was assigned to it: whether that is bounded, and stays so, is known when the whole method was followed (`Heap.is_limited`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from batos.guardian.subject import AuditSubject

_SAME = frozenset({"enumerate", "reversed", "sorted", "list", "tuple", "set", "frozenset", "iter"})
"""Builtins whose result has no more elements than their first argument."""
_OF_SECOND = frozenset({"map", "filter"})
_VIEWS = frozenset({"items", "keys", "values", "copy"})
_TEXTS = frozenset({"split", "splitlines"})
_COUNTED = {
    ("itertools", "islice"): 1,
    ("heapq", "nlargest"): 0,
    ("heapq", "nsmallest"): 0,
    ("random", "sample"): 1,
}
"""Functions of modules whose result has as many elements as an argument says, at most: with the number of that argument."""


class LoopLimits:
    """Limits of loops over expressions, in one method."""

    def __init__(self, subject: AuditSubject, read: Callable[[str], int]) -> None:
        """
        :param read: returns the objects that a name stands for.
        """
        self._subject, self._read = subject, read

    def of(self, node: ast.expr) -> int | None:
        """Return the containers whose length bounds the rounds over an expression, 0 if a literal does; None if nothing does."""
        match node:
            case ast.Constant(value=str() | bytes()):
                return 0
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return None if any(isinstance(one, ast.Starred) for one in elements) else 0
            case ast.Dict(keys=keys):
                return None if None in keys else 0
            case ast.Name(id=name):
                return self._read(name) or None
            case ast.NamedExpr(value=value):
                return self.of(value)
            case ast.IfExp(body=one, orelse=other):
                return self._all((one, other))
            case ast.BoolOp(values=values):
                return self._all(values)
            case ast.Subscript(value=value, slice=ast.Slice() as part):
                return 0 if _is_short(part) else self.of(value) if _is_forward(part) else None
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return self._all([part.iter for part in node.generators])
            case ast.Call(func=ast.Name(id=name), args=arguments) if name not in self._subject.bound:
                return self._of_builtin(name, arguments)
            case ast.Call(func=function, args=arguments):
                return self._of_method(node, function, arguments)
        return None

    def _all(self, nodes: Iterable[ast.expr]) -> int | None:
        """Return the limit where each of some expressions has one."""
        found = 0
        for node in nodes:
            limit = self.of(node)
            if limit is None:
                return None
            found |= limit
        return found

    def _of_builtin(self, name: str, arguments: list[ast.expr]) -> int | None:
        if name == "range":
            return 0 if self._is_short_range(arguments) else None
        if name in _SAME and arguments:
            return self.of(arguments[0])
        if name in _OF_SECOND and len(arguments) == 2:
            return self.of(arguments[1])
        if name == "zip" and arguments:  # it ends with the shortest
            return 0 if any(self.of(one) == 0 for one in arguments) else self._all(arguments)
        return None

    def _of_method(self, node: ast.Call, function: ast.expr, arguments: list[ast.expr]) -> int | None:
        member = self._subject.function_of(function)
        if member is not None:
            which = _COUNTED.get(member)
            if which is None or node.keywords or len(arguments) <= which:
                return None
            return 0 if all(number(one) is not None for one in (arguments[which:] if which else arguments[:1])) else None
        if not isinstance(function, ast.Attribute):
            return None
        if function.attr == "most_common":
            return 0 if arguments and number(arguments[0]) is not None else None
        if function.attr in _VIEWS and not arguments:
            return self.of(function.value)
        return 0 if function.attr in _TEXTS and isinstance(function.value, ast.Constant) else None

    def _is_short_range(self, arguments: list[ast.expr]) -> bool:
        """Return True if literals bound a range: all its arguments are literals, or it goes up to the smaller of a literal and another."""
        if all(number(one) is not None for one in arguments):
            return bool(arguments)
        stop = arguments[0] if len(arguments) == 1 else arguments[1]
        others = [one for one in arguments if one is not stop]
        return (
            isinstance(stop, ast.Call)
            and self._subject.is_builtin(stop.func, "min")
            and len(stop.args) > 1
            and any(number(one) is not None for one in stop.args)
            and all(number(one) is not None for one in others)
            and all((number(one) or 0) > 0 for one in others[1:])
        )


def number(node: ast.expr | None) -> int | None:
    """Return the value of an expression that is a literal whole number; None for another."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = number(operand)
            return None if found is None else -found
    return None


def _is_forward(part: ast.Slice) -> bool:
    return part.step is None or (number(part.step) or 0) > 0


def _is_short(part: ast.Slice) -> bool:
    """Return True if a slice has no more elements than its literals say: `[:3]`, `[-3:]`, `[2:5]`."""
    if not _is_forward(part):
        return False
    lower, upper = number(part.lower), number(part.upper)
    if upper is None:
        return part.upper is None and lower is not None and lower < 0
    return upper >= 0 or (lower is not None and lower < 0)
