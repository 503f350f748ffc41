"""Rule: one requirement of the guardian, with its documentation and its checks."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batos.guardian.subject import AuditSubject

NodeCheck = Callable[["AuditSubject", Any], None]
SubjectCheck = Callable[["AuditSubject"], None]


@dataclass(frozen=True)
class Rule:
    """One thing that the guardian asks of a source, with its documentation. A rule that has no check is applied elsewhere
    (the parser, the effect analysis) and reported under its id."""

    id: str
    asks: str
    """what must hold, in one sentence"""
    why: str
    accepted: str
    """a source that keeps the rule; its selector is the name of its function"""
    refused: str
    """a source that breaks this rule and no other"""
    text: SubjectCheck | None = None
    """called with the text, before it is parsed"""
    nodes: Mapping[type[ast.AST], NodeCheck] = field(default_factory=dict)
    """called with each node of a kind, a parent before its children"""
    method: SubjectCheck | None = None
    """called once, when all nodes were seen"""
    policy: str = "default"
    """the policy by which the refused example is refused"""
