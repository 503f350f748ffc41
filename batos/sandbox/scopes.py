"""Looking at a method's tree before it is rewritten. Nothing here recurses: a tree may be deeper than the stack."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_SAFE_CALLS = {"list", "dict", "set", "str", "sorted", "tuple", "int", "float", "len", "range", "zip", "enumerate", "sum", "round", "abs"}
_SAFE_VALUES = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.JoinedStr, ast.Constant, ast.Tuple, ast.Compare)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body that are not inside a function or class within it."""
    todo: list[ast.AST] = list(getattr(function, "body", []))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, SCOPES):
            todo.extend(ast.iter_child_nodes(node))


def is_generator(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function))


def is_built_in(value: ast.AST) -> bool:
    """Whether an expression is certainly a value of a builtin type, so that a message to it is no send."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _SAFE_CALLS
    return isinstance(value, _SAFE_VALUES)


def bound_names(tree: ast.AST) -> set[str]:
    """Every name that the method binds in any way but by an import."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            found.update(_other_bindings(node))
    return found


def built_in_names(tree: ast.AST) -> set[str]:
    """Names that only ever hold values of builtin types, in whatever scope: messages to them need no check at run time."""
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
    """Slots that the text reads of `receiver`: worth sending along."""
    return tuple(
        sorted(
            {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == receiver
                and node.attr[:3] != "_p_"  # no slot's name: `self._p_changed = True` says what the host knows anyway
            }
        )
    )


def list_names(tree: ast.AST) -> set[str]:
    """Names that are bound to what can be seen to be a list, somewhere in a method."""
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
