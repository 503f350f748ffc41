"""What a method may not hold, because the sandbox's interpreter has no way to run it: each with a hint that a model can use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NoReturn

from batos.sandbox import scopes

PREFIX = "_b_"
"""Names of the prelude and of helpers begin so; a method's own may not."""

_NAMES = {
    "eval": "call what you mean by name",
    "exec": "write the statements themselves",
    "compile": "write the statements themselves",
    "open": "a method has no files; keep data in slots of self",
    "input": "take what you need as a parameter",
    "globals": "use slots of self",
    "locals": "use a dict",
    "vars": "name the slots you need",
    "dir": "name the slots you need",
    "memoryview": "use bytes",
    "breakpoint": "leave it out",
    "help": "leave it out",
    "exit": "return, or raise an exception",
    "quit": "return, or raise an exception",
}
_RESERVED = ("__", "_p_", "_v_", PREFIX)
_NODES: dict[type[ast.AST], str] = {
    ast.AsyncFor: "`async for`: use a plain `for`; messages are awaited by themselves",
    ast.AsyncWith: "`async with`: leave it out",
    ast.Global: "`global`: keep state in slots of self",
}
for _missing, _hint in (("TryStar", "`except*`: use `except`"), ("TypeAlias", "`type X = …`: leave it out")):
    if hasattr(ast, _missing):
        _NODES[getattr(ast, _missing)] = _hint


class Refusal(Exception):
    """One thing that cannot be run."""

    def __init__(self, line: int, column: int, hint: str) -> None:
        super().__init__(hint)
        self.line, self.column, self.hint = line, column, hint


def refuse(node: ast.AST, hint: str) -> NoReturn:
    raise Refusal(getattr(node, "lineno", 1), getattr(node, "col_offset", 0), hint)


def reserved(node: ast.AST, name: str) -> None:
    """Refuse an attribute that no method may reach."""
    if name.startswith(_RESERVED) or name == "_slots":
        refuse(node, f"{name!r} is a reserved name: a method reads, writes and sends to slots")


def unsupported_nodes(tree: ast.Module) -> Iterator[Refusal]:
    """Every refusal that can be seen from the nodes alone, in no order."""
    method = tree.body[0]
    bound = scopes.bound_names(tree)
    if getattr(method, "decorator_list", None):
        yield _of(method, "decorators on a method: leave them out")
    if getattr(method, "name", "").startswith(_RESERVED):
        yield _of(method, "the selector is a reserved name")
    for node in ast.walk(tree):
        hint = _hint_for(node, bound)
        if hint is not None:
            yield _of(node.target if isinstance(node, ast.comprehension) else node, hint)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and scopes.is_generator(node):
            yield from _of_generator(node)


def _of(node: ast.AST, hint: str) -> Refusal:
    return Refusal(getattr(node, "lineno", 1), getattr(node, "col_offset", 0), hint)


def _hint_for(node: ast.AST, bound: set[str]) -> str | None:
    if type(node) in _NODES:
        return _NODES[type(node)]
    if isinstance(node, ast.Name):
        if _is_reserved(node.id):
            return f"{node.id!r} is a reserved name"
        if node.id in _NAMES and node.id not in bound:
            return f"no {node.id!r} in a method: {_NAMES[node.id]}"
    if isinstance(node, ast.arg | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        name = node.arg if isinstance(node, ast.arg) else node.name
        if _is_reserved(name) and not (isinstance(node, ast.FunctionDef) and name.endswith("__")):
            return f"{name!r} is a reserved name"
    if isinstance(node, ast.ClassDef) and (node.bases or node.keywords):
        return "a class with a base: use plain dicts or tuples, and builtin exceptions such as ValueError"
    if getattr(node, "type_params", None):
        return "type parameters: leave them out"
    if isinstance(node, ast.comprehension):
        if node.is_async:
            return "`async for`: use a plain `for`"
        if any(isinstance(part, ast.Attribute) for part in ast.walk(node.target)):
            return "a slot as the target of a comprehension: use a local name"
    return None


def _is_reserved(name: str) -> bool:
    return name.startswith(("__", PREFIX)) and name != "__"  # which alone is a name to throw away, as `_` is


def _of_generator(function: ast.AST) -> Iterator[Refusal]:
    """A generator becomes a function that fills a list: it must end, and nothing can be sent into it."""
    nodes = list(scopes.own_nodes(function))
    statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Yield | ast.YieldFrom) and id(node) not in statements:
            yield _of(node, "the value of `yield`: collect results in a list and return it")
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value and not _leaves(node):
            yield _of(node, "a generator without an end: return a list of as many as are needed")


def _leaves(loop: ast.While) -> bool:
    return any(isinstance(node, ast.Break | ast.Return | ast.Raise) for node in ast.walk(loop))
