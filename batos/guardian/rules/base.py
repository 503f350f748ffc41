"""Rule: one requirement of the guardian, with its documentation and its checks."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batos.guardian.policy import ToolTable
    from batos.guardian.subject import AuditSubject

NodeCheck = Callable[["AuditSubject", Any], None]
SubjectCheck = Callable[["AuditSubject"], None]


@dataclass(frozen=True)
class Rule:
    """One thing that the guardian asks of a source, with its documentation. A rule that has no check is applied elsewhere
    (the parser, the effect analysis) and reported under its id."""

    id: str
    asks: str
    """The requirement of the rule, in one sentence."""
    why: str
    accepted: str
    """A source that keeps the rule. Its selector is the name of its function."""
    refused: str
    """A source that breaks this rule and no other."""
    text: SubjectCheck | None = None
    """Check of the text before it is parsed. None if the rule has no such check."""
    nodes: Mapping[type[ast.AST], NodeCheck] = field(default_factory=dict)
    """Checks by the kind of node. A parent is checked before its children."""
    method: SubjectCheck | None = None
    """Check called once, after all nodes. None if the rule has no such check."""
    policy: str = "default"
    """The policy by which the examples are accepted and refused."""
    tools: ToolTable | None = None
    """The tools of the examples."""
