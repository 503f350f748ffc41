"""The Persistence Guardian: source text in, verdict out. Nothing is run, read or written."""

from __future__ import annotations

import ast
from collections.abc import Collection, Set

from batos.config import Settings
from batos.guardian.policy import DEFAULT, AuditLimits, Policy, ToolTable, policy_named
from batos.guardian.subject import AuditSubject
from batos.guardian.verdict import Contract, Verdict


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
        from batos.guardian.examination import examine  # late: it loads the rules

        policy = policy_named(policy) if isinstance(policy, str) else policy
        return _verdict(examine(source, selector, policy, self.limits, tools), self._reaching)


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
