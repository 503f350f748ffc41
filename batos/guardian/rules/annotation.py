"""annotation: types in the signature are names."""

from __future__ import annotations

import ast

from batos.guardian.allowlist import MODULES, TYPES
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject, FunctionNode

ID = "annotation"
_KNOWN = TYPES | MODULES["typing"] | MODULES["collections"] | {"datetime", "date", "timedelta", "Decimal", "UvmObject"}


def check_function(subject: AuditSubject, node: FunctionNode) -> None:
    """Check the return annotation of a definition."""
    if node.returns is not None:
        _check(subject, node.returns)


def check_annotated(subject: AuditSubject, node: ast.arg | ast.AnnAssign) -> None:
    """Check the annotation of a parameter or a variable."""
    if node.annotation is not None:
        _check(subject, node.annotation)


def _check(subject: AuditSubject, node: ast.expr) -> None:
    pending: list[ast.AST] = [node]
    count = 0
    while pending:
        part = pending.pop()
        count += 1
        if count > subject.limits.depth or not _is_type(subject, part):
            subject.refuse(ID, part, "an annotation is more than the name of a type", "Use a builtin type or leave the annotation out.")
            return
        if isinstance(part, ast.Subscript):
            pending += (part.value, part.slice)
        elif isinstance(part, (ast.Tuple, ast.List)):
            pending += part.elts
        elif isinstance(part, ast.BinOp):
            pending += (part.left, part.right)


def _is_type(subject: AuditSubject, node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _KNOWN or node.id in subject.members
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.attr in MODULES.get(node.value.id, ())
    if isinstance(node, ast.Constant):
        return node.value is None or node.value is Ellipsis or (isinstance(node.value, str) and len(node.value) <= subject.limits.name)
    return isinstance(node, (ast.Subscript, ast.Tuple, ast.List)) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr))


RULE = Rule(
    ID,
    asks="Annotations are names of builtin types or of `typing`, with square brackets, commas and `|`.",
    why="Annotations are evaluated when a method is installed.",
    accepted='def words(self, text: str, most: int | None = None) -> "list[str]":\n    return text.split()[:most]',
    refused="def words(self, text: print('now')):\n    return text.split()",
    nodes={
        ast.FunctionDef: check_function,
        ast.AsyncFunctionDef: check_function,
        ast.arg: check_annotated,
        ast.AnnAssign: check_annotated,
    },
)
