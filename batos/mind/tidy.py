"""What is made of parts, as one would write it: `[x for x in sorted(...)][0]` is `min(...)`."""

from __future__ import annotations

import ast

ITEM = "item"
"""What one of several is called."""


def tidied(tree: ast.Module) -> ast.Module:
    """The same in fewer words; it changes the tree. The first of those that are so is nothing where none is."""
    _Tidy().visit(tree)
    return ast.fix_missing_locations(tree)


class _Tidy(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not (isinstance(node.slice, ast.Constant) and type(node.slice.value) is int and node.slice.value == 0):
            return node
        match node.value:
            case ast.Call(func=ast.Name("sorted")) as call:
                return _first(call) or node
            case ast.ListComp(
                elt=elt, generators=[ast.comprehension(target=ast.Name(id=name), iter=ast.Call(func=ast.Name("sorted")) as call, ifs=[])]
            ) if name == ITEM and _once(elt) and (first := _first(call)) is not None:
                whole: ast.expr = _Instead(first).visit(elt)
                return whole
            case ast.ListComp(elt=elt, generators=[ast.comprehension(ifs=[_, *_])] as each):
                return ast.Call(ast.Name("next", ast.Load()), [ast.GeneratorExp(elt, each), ast.Constant(None)], [])
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult):
            node.left, node.right = _number(node.left), _number(node.right)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        if (over := _as_they_are(node)) is None:
            return node
        return over if _is_call(over, "sorted") else ast.Call(ast.Name("list", ast.Load()), [over], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _OF_ALL and node.args:
            first = node.args[0]
            if isinstance(first, ast.GeneratorExp) and (over := _as_they_are(first)) is not None:
                node.args[0] = over
            elif isinstance(first, ast.Call) and _is_call(first, "list") and len(first.args) == 1 and not first.keywords:
                node.args[0] = first.args[0]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword | None:
        self.generic_visit(node)
        if node.arg == "key" and isinstance(node.value, ast.Lambda) and [one.arg for one in node.value.args.args] == [ITEM]:
            match node.value.body:
                case ast.Name(id=name) if name == ITEM:
                    return None
                case ast.Call(func=ast.Name("len") as func, args=[ast.Name(id=name)], keywords=[]) if name == ITEM:
                    node.value = func
        return node


_OF_ALL = ("sorted", "sum", "max", "min", "set", "list", "tuple", "any", "all")
"""What goes through all of what it is given, whatever kind of that."""


def _number(node: ast.expr) -> ast.expr:
    """A factor, without the nought by which an idiom makes sure that it is a number, and no text to be repeated."""
    match node:
        case ast.BinOp(left=one, op=ast.Add(), right=ast.Constant(value=int() as nought)) if nought == 0 and not isinstance(nought, bool):
            return one
    return node


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _as_they_are(node: ast.ListComp | ast.GeneratorExp) -> ast.expr | None:
    """What it goes through, if it has all items of that as they are."""
    match node.elt, node.generators:
        case ast.Name(id=one), [ast.comprehension(target=ast.Name(id=other), iter=over, ifs=[])] if one == other:
            return over
    return None


def _once(elt: ast.expr) -> bool:
    """Whether the item stands in it once, and for itself."""
    names = [one for one in ast.walk(elt) if isinstance(one, ast.Name) and one.id == ITEM]
    inner = any(isinstance(one, ast.Lambda | ast.comprehension) for one in ast.walk(elt))
    return len(names) == 1 and not inner


def _first(call: ast.Call) -> ast.Call | None:
    """The first of what is sorted; of what is equal, the first there is, both ways. None where it is sorted in another way."""
    falling = [one.value for one in call.keywords if one.arg == "reverse"]
    if any(not (isinstance(one, ast.Constant) and one.value is True) for one in falling):
        return None
    keywords = [one for one in call.keywords if one.arg != "reverse"]
    return ast.Call(ast.Name("max" if falling else "min", ast.Load()), call.args, keywords)


class _Instead(ast.NodeTransformer):
    """An expression in the item's place."""

    def __init__(self, one: ast.expr) -> None:
        self._one = one

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._one if node.id == ITEM else node
