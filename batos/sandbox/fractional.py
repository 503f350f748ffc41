"""Order and truth of fractions: the interpreter asks no class for either.

Where a method imports fractions, its comparisons, conditions and sorts go through functions that know them. Without that, a
comparison would raise, and a fraction of 0 would count as true.
"""

from __future__ import annotations

import ast
from typing import Any

from batos.sandbox import scopes

SUPPLIED = frozenset({"fractions.chain", "fractions.truth", "fractions.by", "fractions.either", "fractions.both"})
_SIGNS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ORDER = {"<", "<=", ">", ">="}


def imported(tree: ast.Module) -> bool:
    """Whether a method can make fractions."""
    return any(
        (isinstance(node, ast.Import) and any(alias.name == "fractions" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "fractions")
        for node in ast.walk(tree)
    )


def known(tree: ast.Module) -> ast.Module:
    """The method with its comparisons, conditions and sorts as calls of what is `SUPPLIED`."""
    made: ast.Module = _Known(scopes.bound_names(tree)).visit(tree)
    return ast.fix_missing_locations(made)


class _Known(ast.NodeTransformer):
    def __init__(self, bound: set[str]) -> None:
        self._bound = bound

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        match node:
            case ast.If() | ast.While() | ast.Assert() | ast.IfExp():
                node.test = _truth(node.test)
            case ast.comprehension():
                node.ifs = [_truth(test) for test in node.ifs]
            case ast.UnaryOp(op=ast.Not()):
                node.operand = _truth(node.operand)
            case ast.Compare():
                return _compared(node)
            case ast.Call(func=ast.Name(id=name)) if name not in self._bound:
                return _called(node, name)
            case ast.Call(func=ast.Attribute(attr="sort"), args=[]):
                _keyed(node)
            case ast.BoolOp() if not any(isinstance(part, ast.NamedExpr) for part in ast.walk(node)):
                return _chosen(node)
        return node


def _compared(node: ast.Compare) -> ast.expr:
    signs = [_SIGNS.get(type(op), "") for op in node.ops]
    if "" in signs or not _ORDER & set(signs):
        return node
    return _call("chain", node, ast.Constant(" ".join(signs)), node.left, *node.comparators)


def _called(node: ast.Call, name: str) -> ast.expr:
    first = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if name == "bool" and first is not None:
        return _call("truth", node, first)
    if name in ("any", "all") and isinstance(first, ast.GeneratorExp | ast.ListComp):
        first.elt = _truth(first.elt)
    if name in ("sorted", "min", "max"):
        _keyed(node)
    return node


def _keyed(node: ast.Call) -> None:
    if all(keyword.arg for keyword in node.keywords):
        keys = [keyword for keyword in node.keywords if keyword.arg == "key"] or [ast.keyword("key", ast.Constant(None))]
        keys[0].value = _call("by", node, keys[0].value)
        node.keywords = [*(keyword for keyword in node.keywords if keyword.arg != "key"), *keys]


def _chosen(node: ast.BoolOp) -> ast.expr:
    """`a or b` as a value; as a condition it is one of conditions (`_truth`)."""
    if all(isinstance(value, ast.Compare | ast.Constant | ast.UnaryOp) for value in node.values):
        return node
    nothing = ast.arguments([], [], None, [], [], None, [])
    later = [ast.Lambda(nothing, value) for value in node.values[1:]]
    return _call("either" if isinstance(node.op, ast.Or) else "both", node, node.values[0], *later)


def _truth(node: ast.expr) -> ast.expr:
    """A condition: what is a truth value already stays."""
    if isinstance(node, ast.BoolOp):
        node.values = [_truth(value) for value in node.values]
    elif not isinstance(node, ast.Compare | ast.Constant) and not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return _call("truth", node, node)
    return node


def _call(name: str, at: ast.AST, *args: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(ast.Name(f"_b_fractions_{name}", ast.Load()), list(args), []), at)
