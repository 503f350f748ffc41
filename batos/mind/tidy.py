"""What is made of parts, as one would write it: `[x for x in sorted(...)][0]` is `min(...)`."""

from __future__ import annotations

import ast

ITEM = "item"
"""What one of several is called."""


def tidied(tree: ast.Module) -> ast.Module:
    """The same in fewer words; it changes the tree."""
    _Tidy().visit(tree)
    return ast.fix_missing_locations(tree)


class _Tidy(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(
                value=ast.ListComp(elt=elt, generators=[ast.comprehension(iter=ast.Call(func=ast.Name("sorted")) as call)]),
                slice=ast.Constant(0),
            ) if sum(isinstance(one, ast.Name) and one.id == ITEM for one in ast.walk(elt)) == 1:
                whole: ast.expr = _Instead(_first(call)).visit(elt)
                return whole
            case ast.Subscript(value=ast.Call(func=ast.Name("sorted")) as call, slice=ast.Constant(0)):
                return _first(call)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        if not _same(node):
            return node
        over = node.generators[0].iter
        made = isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "sorted"
        return over if made else ast.Call(ast.Name("list", ast.Load()), [over], [])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        return node.generators[0].iter if _same(node) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(
                func=ast.Name("sorted" | "sum" | "max" | "min" | "set"), args=[ast.Call(func=ast.Name("list"), args=[over], keywords=[])]
            ):
                node.args = [over]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword | None:
        self.generic_visit(node)
        match node:
            case ast.keyword(arg="key", value=ast.Lambda(body=ast.Name(id="item"))):
                return None
            case ast.keyword(arg="key", value=ast.Lambda(body=ast.Call(func=ast.Name("len") as func, args=[ast.Name(id="item")]))):
                node.value = func
        return node


def _same(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """Whether it has its items as they are, all of them."""
    match node:
        case ast.ListComp(elt=ast.Name(id=one), generators=[ast.comprehension(target=ast.Name(id=other), ifs=[])]):
            return one == other
        case ast.GeneratorExp(elt=ast.Name(id=one), generators=[ast.comprehension(target=ast.Name(id=other), ifs=[])]):
            return one == other
    return False


def _first(call: ast.Call) -> ast.Call:
    """The first of what is sorted; of what is equal, the first there is, both ways."""
    falling = any(one.arg == "reverse" for one in call.keywords)
    keywords = [one for one in call.keywords if one.arg != "reverse"]
    return ast.Call(ast.Name("max" if falling else "min", ast.Load()), call.args, keywords)


class _Instead(ast.NodeTransformer):
    """An expression in the item's place."""

    def __init__(self, one: ast.expr) -> None:
        self._one = one

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._one if node.id == ITEM else node
