"""loop: every loop and every recursion has a way out. Reachability is the flow analysis's part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batos.guardian.allowlist import COPIES, ENDLESS, MUTATORS
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "loop"
HINT = "Give the loop a condition that changes in its body, or a `break` or `return` that can be reached."
_LOOPS = (ast.For, ast.While)
_OUT = (ast.Return, ast.Raise)
_COLLECTORS = (COPIES | {"sum", "max", "min", "any", "all"}) - {"iter", "enumerate", "zip"}


def check_while(subject: AuditSubject, node: ast.While) -> None:
    """Refuse a condition on things that the body does not change."""
    names: set[str] = set()
    for part in ast.walk(node.test):
        if isinstance(part, (ast.Call, ast.Subscript, ast.Await, ast.NamedExpr)):
            return
        if isinstance(part, ast.Name):
            names.add(part.id)
    if not names or _has_exit(node.body):
        return
    for part in (inner for statement in node.body for inner in ast.walk(statement)):
        if isinstance(part, (ast.Call, ast.Await, ast.Nonlocal, ast.Subscript)):
            return  # the statement may change the loop's condition, or raise
        if isinstance(part, ast.Name) and part.id in names and not isinstance(part.ctx, ast.Load):
            return
        if isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load) and part.attr != "_p_changed":
            return
    subject.refuse(ID, node, "the loop's condition never changes", HINT)


def check_for(subject: AuditSubject, node: ast.For) -> None:
    """Endless iterators, and lists that grow while they are walked."""
    if _has_exit(node.body):
        return
    if is_endless(subject, node.iter):
        subject.refuse(ID, node, "the loop runs over an iterator without end", HINT)
    walked = ast.dump(node.iter)
    for statement in node.body:
        grown = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
        if isinstance(grown, ast.Attribute) and grown.attr in ("append", "extend", "insert") and ast.dump(grown.value) == walked:
            subject.refuse(ID, node, "the list grows as fast as it is walked", "Walk over a copy: for item in list(items).")


def check_comprehension(subject: AuditSubject, node: ast.comprehension) -> None:
    """Refuse a comprehension over an endless iterator: it has no other exit."""
    if is_endless(subject, node.iter):
        subject.refuse(ID, node.iter, "a comprehension runs over an iterator without end", "Use range(n), or itertools.islice.")


def check_call(subject: AuditSubject, node: ast.Call) -> None:
    """list(count())."""
    function = node.func
    if not isinstance(function, ast.Name) or function.id not in _COLLECTORS or function.id in subject.bound:
        return
    if len(node.args) == 1 and is_endless(subject, node.args[0]):
        subject.refuse(ID, node, "an iterator without end is collected", "Use range(n), or itertools.islice.")


def is_endless(subject: AuditSubject, node: ast.expr) -> bool:
    """Return True if an expression is an endless iterator: count(), cycle(items), repeat(x), also enumerated."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name) and node.func.id == "iter" and len(node.args) == 2:
        first, sentinel = node.args
        return isinstance(first, ast.Name) and first.id in ("int", "str", "list", "dict") and isinstance(sentinel, ast.Constant)
    if isinstance(node.func, ast.Name) and node.func.id in ("enumerate", "map", "filter") and node.args:
        return is_endless(subject, node.args[0 if node.func.id == "enumerate" else -1])
    found = subject.function_of(node.func)
    return found is not None and found[0] == "itertools" and found[1] in ENDLESS and not (found[1] == "repeat" and len(node.args) > 1)


def _has_exit(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, _OUT) for node in _own(body, loops=True)) or any(
        isinstance(node, ast.Break) for node in _own(body, loops=False)
    )


def _own(body: list[ast.stmt], *, loops: bool) -> Iterator[ast.AST]:
    """Yield the statements of a loop's body, without those of inner functions, and of inner loops if `loops` is False."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (not loops and isinstance(node, _LOOPS)):
            if isinstance(node, _LOOPS):
                pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)


def raises_its_way_out(node: ast.While) -> bool:
    """Return True if the body may raise an error that ends the loop: next(), pop(), an item, a send."""
    return any(
        isinstance(part, ast.Subscript)
        or (isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "next")
        or (isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in MUTATORS | {"index"})
        for statement in node.body
        for part in ast.walk(statement)
    )


RULE = Rule(
    ID,
    asks="Every loop has a reachable way out. That is a break, a return or an expected error in `while True`, a condition that the body "
    "changes, or an iterator that ends. No method only sends itself.",
    why="Such a method runs until its worker is killed.",
    accepted="def steps(self, n):\n    count = 0\n    while True:\n        if n <= 1:\n            return count\n        n //= 2\n"
    "        count += 1",
    refused="def steps(self, n):\n    count = 0\n    while True:\n        count += n",
    nodes={ast.While: check_while, ast.For: check_for, ast.comprehension: check_comprehension, ast.Call: check_call},
)
