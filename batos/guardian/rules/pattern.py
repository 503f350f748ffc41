"""pattern: match statements look at shapes and builtin types, not at attributes."""

from __future__ import annotations

import ast

from batos.guardian.allowlist import words
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "pattern"
_KINDS = words("bool bytes dict float frozenset int list set str tuple")


def check_class(subject: AuditSubject, node: ast.MatchClass) -> None:
    """`case kind(...)`."""
    known = isinstance(node.cls, ast.Name) and node.cls.id in _KINDS
    if not known or node.kwd_attrs or len(node.patterns) > 1:
        subject.refuse(ID, node, "a class pattern reads attributes", "Match builtin types only, as `case int(n)`, or use isinstance.")


RULE = Rule(
    ID,
    asks="Class patterns are those of builtin types, with at most one positional pattern: `case int(n)`.",
    why="`case object(__class__=c)` reads attributes with no attribute in the syntax tree.",
    accepted="def size(self, value):\n    match value:\n        case int(n):\n            return n\n        case [first, *rest]:\n"
    "            return len(rest)\n    return 0",
    refused="def size(self, value):\n    match value:\n        case complex(real=r):\n            return r\n    return 0",
    nodes={ast.MatchClass: check_class},
)
