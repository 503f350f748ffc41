"""Expressions that are computed in the daemon's own process, kept from becoming too much.

What an idiom does is a constant; what it is given is not. `c * int(n)` of the text `x20240208` is 20 MB, of a few digits more all memory
that there is. So what multiplies, raises to a power, shifts, fills up or counts is done by functions that refuse what nobody would keep.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any

LONGEST = 100_000
"""Items or characters, numbers that are counted through, and bits of a number, at most."""
_COUNTED = 1_000  # of which number a factorial, or a number of choices, may be
_FEW = 1_000  # a constant by which anything may be multiplied
_MATTERS = re.compile(r"\*|<<|range\(|just\(|center\(|zfill\(|expandtabs\(|pow\(|factorial\(|comb\(|perm\(|prod\(|:[^}]*\{")
"""What tells that there is something to bound in an expression; most have nothing of it."""
_FILLING = ("ljust", "rjust", "center", "zfill", "expandtabs")
_COUNTING = ("factorial", "comb", "perm")


def compiled(text: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that an expression of ours is.

    :param names: what it may use beside the builtins.
    :return: raises `OverflowError` where something would become too much.
    """
    tree = ast.parse(text, mode="eval")
    if _MATTERS.search(text):
        tree = ast.fix_missing_locations(_Bounding().visit(tree))
    made: Callable[..., Any] = eval(compile(tree, "<idiom>", "eval"), {**names, **_IN_PLACE})  # noqa: S307 - idioms are constants
    return made


def times(left: Any, right: Any) -> Any:
    """`left * right`."""
    if isinstance(left, int) and isinstance(right, int):
        _check(left.bit_length() + right.bit_length())
    for held, often in ((left, right), (right, left)):
        if isinstance(held, Sized) and isinstance(often, int):
            _check(len(held) * often)
    return left * right


def power(base: Any, exponent: Any, *modulus: Any) -> Any:
    """`base ** exponent`, and `pow`."""
    if isinstance(base, int) and isinstance(exponent, int) and not modulus:
        _check(base.bit_length() * exponent)
    return pow(base, exponent, *modulus)


def product(values: Iterable[Any], *, start: Any = 1) -> Any:
    """`math.prod`."""
    return functools.reduce(times, values, start)


def _shifted(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check(left.bit_length() + right)
    return left << right


def _range(*given: Any) -> range:
    found = range(*given)
    if found:
        _check((found[-1] - found[0]) // found.step)
    return found


def _filled(held: Any, name: str, *given: Any) -> Any:
    return getattr(held, name)(*map(_width, given))


def _counted(module: Any, name: str, *given: Any) -> Any:
    if any(isinstance(one, int) and one > _COUNTED for one in given):
        raise OverflowError(f"{name} of more than {_COUNTED}")
    return getattr(module, name)(*given)


def _width(given: Any) -> Any:
    if isinstance(given, int):
        _check(given)
    return given


def _check(size: int) -> None:
    if size > LONGEST:
        raise OverflowError(f"more than {LONGEST}")


_IN_PLACE = {
    "range": _range, "pow": power, "_times": times, "_power": power, "_shifted": _shifted, "_product": product, "_filled": _filled,
    "_counted": _counted, "_width": _width,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {ast.Mult: "_times", ast.Pow: "_power", ast.LShift: "_shifted"}


class _Bounding(ast.NodeTransformer):
    """Puts the functions above where operators and methods stand."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = _OPERATORS.get(type(node.op))
        if name is None or (name == "_times" and (_is_few(node.left) or _is_few(node.right))):
            return node
        return _call(name, node.left, node.right)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        held, name = node.func.value, node.func.attr
        if name in _FILLING and not all(isinstance(one, ast.Constant) for one in node.args):
            return _call("_filled", held, ast.Constant(name), *node.args)
        if name in _COUNTING:
            return _call("_counted", held, ast.Constant(name), *node.args)
        if name == "prod":
            node.func = ast.Name("_product", ast.Load())
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.format_spec, ast.JoinedStr):
            for part in node.format_spec.values:
                if isinstance(part, ast.FormattedValue):
                    part.value = _call("_width", part.value)
        return node


def _is_few(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) <= _FEW


def _call(name: str, *given: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(given), [])
