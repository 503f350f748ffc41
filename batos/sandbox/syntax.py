"""Syntax checks before a method is rewritten: each construct that the interpreter cannot run is refused with a hint that a model can use.

Nothing here recurses: a tree may be deeper than the stack.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NoReturn

_SAFE_CALLS = {"list", "dict", "set", "str", "sorted", "tuple", "int", "float", "len", "range", "zip", "enumerate", "sum", "round", "abs"}
_SAFE_VALUES = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.JoinedStr, ast.Constant, ast.Tuple, ast.Compare)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body that are not inside a function or class within it."""
    todo: list[ast.AST] = list(getattr(function, "body", []))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, SCOPES):
            todo.extend(ast.iter_child_nodes(node))


def is_generator(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function))


def is_built_in(value: ast.AST) -> bool:
    """Return True if an expression is certainly a value of a builtin type, so that a message to it is not a send."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _SAFE_CALLS
    return isinstance(value, _SAFE_VALUES)


def bound_names(tree: ast.AST) -> set[str]:
    """Return every name that the method binds in any way but by an import."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            found.update(_other_bindings(node))
    return found


def built_in_names(tree: ast.AST) -> set[str]:
    """Return the names that hold values of builtin types only, in any scope. Messages to them need no check at run time."""
    good: dict[str, int] = {}
    bound: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_built_in(node.value):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    good[target.id] = good.get(target.id, 0) + 1
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            good[node.target.id] = good.get(node.target.id, 0) + 1
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] = bound.get(node.id, 0) + 1
        else:
            for name in _other_bindings(node):
                bound[name] = bound.get(name, 0) + 2
    return {name for name, count in bound.items() if good.get(name) == count}


def _other_bindings(node: ast.AST) -> list[str]:
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    if isinstance(node, ast.MatchMapping) and node.rest:
        return [node.rest]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return []


def reads_of(tree: ast.AST, receiver: str) -> tuple[str, ...]:
    """Return the slots that the text reads of `receiver`. They are worth sending along."""
    return tuple(
        sorted(
            {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == receiver
                and node.attr[:3] != "_p_"  # not a slot: the host knows about changes without `self._p_changed = True`
            }
        )
    )


def list_names(tree: ast.AST) -> set[str]:
    """Return the names that a method binds to an evident list, anywhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_list(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _is_list(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("list", "sorted")
    return isinstance(value, ast.List | ast.ListComp)


PREFIX = "_b_"
"""Prefix of the names of the prelude and its helpers. A method's own names may not begin with it."""

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


class UnsupportedNode(Exception):
    """One thing that cannot be run."""

    def __init__(self, line: int, column: int, hint: str) -> None:
        super().__init__(hint)
        self.line, self.column, self.hint = line, column, hint


def refuse(node: ast.AST, hint: str) -> NoReturn:
    raise UnsupportedNode(getattr(node, "lineno", 1), getattr(node, "col_offset", 0), hint)


def reserved(node: ast.AST, name: str) -> None:
    """Refuse an attribute that no method may reach."""
    if name.startswith(_RESERVED) or name == "_slots":
        refuse(node, f"{name!r} is a reserved name: a method reads, writes and sends to slots")


def unsupported_nodes(tree: ast.Module) -> Iterator[UnsupportedNode]:
    """Yield every refusal that can be seen from the nodes alone, in no order."""
    method = tree.body[0]
    bound = bound_names(tree)
    if getattr(method, "decorator_list", None):
        yield _of(method, "decorators on a method: leave them out")
    if getattr(method, "name", "").startswith(_RESERVED):
        yield _of(method, "the selector is a reserved name")
    for node in ast.walk(tree):
        hint = _hint_for(node, bound)
        if hint is not None:
            yield _of(node.target if isinstance(node, ast.comprehension) else node, hint)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_generator(node):
            yield from _of_generator(node)


def _of(node: ast.AST, hint: str) -> UnsupportedNode:
    return UnsupportedNode(getattr(node, "lineno", 1), getattr(node, "col_offset", 0), hint)


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
    return name.startswith(("__", PREFIX)) and name != "__"  # `__` alone is a throw-away name, like `_`


def _of_generator(function: ast.AST) -> Iterator[UnsupportedNode]:
    """Yield refusals for a generator. It becomes a function that fills a list: it must end, and nothing can be sent into it."""
    nodes = list(own_nodes(function))
    statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Yield | ast.YieldFrom) and id(node) not in statements:
            yield _of(node, "the value of `yield`: collect results in a list and return it")
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value and not _leaves(node):
            yield _of(node, "a generator without an end: return a list of as many as are needed")


def _leaves(loop: ast.While) -> bool:
    return any(isinstance(node, ast.Break | ast.Return | ast.Raise) for node in ast.walk(loop))
