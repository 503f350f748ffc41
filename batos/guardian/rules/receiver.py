"""self: the receiver stays the receiver."""

from __future__ import annotations

import ast

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject, FunctionNode

ID = "self"
HINT = "Use another name."


def _refuse(subject: AuditSubject, node: ast.AST, name: str | None) -> None:
    if name == "self":
        subject.refuse(ID, node, "self is bound anew", HINT)


def check_name(subject: AuditSubject, node: ast.Name) -> None:
    """Any binding or deletion of the name."""
    if not isinstance(node.ctx, ast.Load):
        _refuse(subject, node, node.id)


def check_parameter(subject: AuditSubject, node: ast.arg) -> None:
    """Refuse a parameter called self, beside the method's first."""
    assert subject.method is not None
    arguments = subject.method.args
    if node is not (arguments.posonlyargs + arguments.args + [node])[0]:
        _refuse(subject, node, node.arg)


def check_function(subject: AuditSubject, node: FunctionNode) -> None:
    """Refuse an inner function called self."""
    if node is not subject.method:
        _refuse(subject, node, node.name)


def check_bound(subject: AuditSubject, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> None:
    """`except … as self`, `case self`."""
    _refuse(subject, node, node.name)


def check_rest(subject: AuditSubject, node: ast.MatchMapping) -> None:
    """`case {**self}`."""
    _refuse(subject, node, node.rest)


def check_nonlocal(subject: AuditSubject, node: ast.Nonlocal) -> None:
    """`nonlocal self`."""
    for name in node.names:
        _refuse(subject, node, name)


def check_import(subject: AuditSubject, node: ast.Import | ast.ImportFrom) -> None:
    """`import … as self`."""
    for alias in node.names:
        _refuse(subject, node, alias.asname or alias.name)


def check_subscript(subject: AuditSubject, node: ast.Subscript) -> None:
    """Refuse an index on self: an object of the image is not a mapping."""
    if isinstance(node.value, ast.Name) and node.value.id == "self":
        subject.refuse(ID, node, "self has no items", "Name the slot: self.name.")


RULE = Rule(
    ID,
    asks="`self` is bound by the method's first parameter and by nothing else, and has slots, not items.",
    why="A method that binds `self` anew writes or flags another object than the reader thinks.",
    accepted="def follow(self):\n    other = self.peer\n    return other.name()",
    refused="def follow(self):\n    self = self.peer\n    return self.name()",
    nodes={
        ast.Name: check_name,
        ast.arg: check_parameter,
        ast.FunctionDef: check_function,
        ast.AsyncFunctionDef: check_function,
        ast.ExceptHandler: check_bound,
        ast.MatchAs: check_bound,
        ast.MatchStar: check_bound,
        ast.MatchMapping: check_rest,
        ast.Nonlocal: check_nonlocal,
        ast.Import: check_import,
        ast.ImportFrom: check_import,
        ast.Subscript: check_subscript,
    },
)
