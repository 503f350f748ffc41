"""The Persistence Guardian: source text in, verdict out. Nothing is run, read or written."""

from __future__ import annotations

import ast
from collections.abc import Collection, Set

from batos.config import Settings
from batos.guardian.effects import analyse
from batos.guardian.policy import DEFAULT, AuditLimits, Policy, ToolTable, policy_named
from batos.guardian.rules import CHECKS, RULES, shape
from batos.guardian.rules import source as rules_source
from batos.guardian.rules.syntax import CHILDREN, refuse_node
from batos.guardian.subject import AuditSubject
from batos.guardian.verdict import Contract, Verdict

_ON_TEXT = tuple(rule.text for rule in RULES if rule.text)
_ON_METHOD = tuple(rule.method for rule in RULES if rule.method)


class PersistenceGuardian:
    """Audits generated source before it is installed: for the image's integrity and for errors that say what to do. The safety of the host
    never depends on it (SECURITY.md)."""

    def __init__(self, settings: Settings | None = None, reaching: Collection[str] = ()) -> None:
        """
        :param reaching: selectors of messages that change more than their receiver.
        """
        self.limits = AuditLimits.of(settings or Settings.model_validate({}))
        self._reaching = frozenset(reaching)

    def audit(
        self,
        source: str | bytes,
        selector: str,
        policy: Policy | str = DEFAULT,
        *,
        tools: ToolTable | None = None,
    ) -> Verdict:
        """Return the verdict on a source, for installation under a selector.

        :param source: the text of one function definition; bytes must be UTF-8.
        :param policy: a policy, or its name: `default`, `strict`, `default+tools`.
        :param tools: tools that there are; None: it is not known which there are, and which of them only read.
        :return: the verdict. No source makes this raise: every fault of a source is a finding.
        :raises ValueError: for a policy that does not exist.
        """
        policy = policy_named(policy) if isinstance(policy, str) else policy
        return _verdict(examine(source, selector, policy, self.limits, tools), self._reaching)


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


def _named(subject: AuditSubject) -> set[str]:
    """Return the selectors that the method can send by a name in its text: attributes, and strings such as that of a `getattr`."""
    nodes = () if subject.method is None else tuple(ast.walk(subject.method))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _verdict(subject: AuditSubject, reaching: Set[str]) -> Verdict:
    contract: Contract = {
        "reads": tuple(sorted(subject.reads)),
        "writes": tuple(sorted(subject.writes)),
        "sends": tuple(sorted(subject.sends)),
        "reaches": tuple(sorted({f"{tool.name}={tool.kind}" if tool.kind else tool.name for tool in subject.tool_calls.values()})),
        "needs_grant": tuple(sorted(_named(subject) & reaching)) if reaching else (),
        "imports": tuple(sorted({*subject.modules.values(), *(module for module, _ in subject.members.values())})),
        "raises": tuple(sorted(subject.raised)),
    }
    return Verdict(subject.selector, subject.source, subject.policy.name, subject.sorted_findings(), contract)
