"""Examination of one source: all findings and facts of the rules and of the effect analysis.

It loads all rules, so the guardian imports it with the first audit: a daemon that audits no source keeps them out of its memory.
"""

from __future__ import annotations

import ast

from batos.guardian.effects import analyse
from batos.guardian.policy import AuditLimits, Policy, ToolTable
from batos.guardian.rules import CHECKS, RULES, shape
from batos.guardian.rules import source as rules_source
from batos.guardian.rules.syntax import CHILDREN, refuse_node
from batos.guardian.subject import AuditSubject

_ON_TEXT = tuple(rule.text for rule in RULES if rule.text)
_ON_METHOD = tuple(rule.method for rule in RULES if rule.method)


def examine(
    source: str | bytes,
    selector: str,
    policy: Policy,
    limits: AuditLimits,
    tools: ToolTable | None = None,
) -> AuditSubject:
    """Examine a source. Return all findings and facts."""
    text = source if isinstance(source, str) else source.decode("utf-8", "surrogateescape")
    subject = AuditSubject(text, selector, policy, limits, tools)
    for check in _ON_TEXT:
        check(subject)
        if rules_source.SIZE_ID in {finding.rule for finding in subject.findings.values()}:
            return subject  # too large for an audit
    rules_source.parse(subject)
    if subject.tree is not None:
        shape.find_method(subject)
    if subject.method is not None and _walk(subject, subject.method):
        for check in _ON_METHOD:
            check(subject)
        analyse(subject)
    return subject


def _walk(subject: AuditSubject, method: ast.AST) -> bool:
    """Show every node to the rules that ask for its kind, without recursion; False if there are too many or they are too deep."""
    nodes, limits = 0, subject.limits
    pending: list[tuple[ast.AST, int]] = [(method, 1)]
    while pending:
        node, depth = pending.pop()
        kind = type(node)
        children = CHILDREN.get(kind)
        if children is None:
            refuse_node(subject, node)
            continue
        nodes += 1
        if nodes > limits.nodes or depth > limits.depth:
            what = f"more than {limits.nodes} nodes" if nodes > limits.nodes else f"nesting deeper than {limits.depth}"
            subject.refuse(rules_source.SIZE_ID, node, f"the method's syntax tree has {what}", rules_source.HINT)
            return False
        for check in CHECKS[kind]:
            check(subject, node)
        for field in reversed(children):  # the last one pushed comes out first: nodes are visited in the order of the text
            child = getattr(node, field)
            if child.__class__ is list:
                pending += [(part, depth + 1) for part in reversed(child) if part is not None]
            elif child is not None:
                pending.append((child, depth + 1))
    return True
