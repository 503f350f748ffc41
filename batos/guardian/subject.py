"""The subject of one audit: a source text and all facts found about it. The rules write into it."""

from __future__ import annotations

import ast
import keyword

from batos.guardian.policy import AuditLimits, Policy, ReachableTool, ToolTable
from batos.guardian.verdict import Finding, Severity

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
A_SELECTOR = "A selector is a public ASCII name: letters, digits and _, none of them _ first."


def is_selector(name: str) -> bool:
    """Return True if a method may have this name: a source with another name is never accepted."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


class AuditSubject:
    """Source under audit, with the facts and findings so far."""

    def __init__(
        self,
        source: str,
        selector: str,
        policy: Policy,
        limits: AuditLimits,
        tools: ToolTable | None = None,
    ) -> None:
        """
        :param tools: tools that there are; None: not known.
        """
        self.source = source
        self.selector = selector
        self.policy = policy
        self.limits = limits
        self.tools = tools
        self.findings: dict[tuple[str, int, int], Finding] = {}
        self.tree: ast.Module | None = None
        self.method: FunctionNode | None = None
        # filled by the walk through the tree
        self.loads: dict[str, ast.Name] = {}
        """Names that the method reads, each with the first node that reads it."""
        self.bound: set[str] = set()
        """Names that the method binds in any way and any scope."""
        self.stored: set[str] = set()
        """Names in `bound` that something other than an import binds."""
        self.called: set[int] = set()
        """Ids of the nodes that are called."""
        self.cleared: set[int] = set()
        """Ids of the nodes that an earlier check has accepted."""
        self.modules: dict[str, str] = {}
        """Modules by their local names."""
        self.members: dict[str, tuple[str, str]] = {}
        """Members of imported modules by their local names: module and member."""
        self.dotted: list[ast.Attribute] = []
        """Attribute nodes that read an attribute of a name."""
        self.wholes: dict[str, ast.Name] = {}
        """Names that are read without an attribute, each with the first such node."""
        self.raised: set[str] = set()
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.sends: set[str] = set()
        self.spelled: set[int] = set()
        """Ids of the nodes that are part of a call of a tool: `self.tools.CONNECTION.TOOL`."""
        self.tool_calls: dict[int, ReachableTool] = {}
        """Tools by the ids of the calls that call them."""
        # filled by the effect analysis
        self.unflagged: list[tuple[ast.AST | None, ast.AST | None]] = []
        """Ways out without the covenant's flag, each with its last unflagged write. None stands for the end of the method."""
        self.late: list[tuple[ast.AST | None, ast.AST | None]] = []
        """Ways out with a statement after the covenant's flag, each with that statement. None stands for the end of the method."""

    def refuse(self, rule: str, at: ast.AST | int | None, reason: str, hint: str, severity: Severity = "error") -> None:
        """Note a finding; `at` is a node or a line. Only the first finding at a place counts."""
        line = at if isinstance(at, int) else getattr(at, "lineno", 0)
        column = 0 if isinstance(at, int) else getattr(at, "col_offset", -1) + 1
        key = (rule, line, column)
        if key not in self.findings:
            self.findings[key] = Finding(rule, severity, line, column, reason, hint)

    def warn(self, rule: str, at: ast.AST | int | None, reason: str, hint: str) -> None:
        """Note something that does not refuse the source."""
        self.refuse(rule, at, reason, hint, "warning")

    def bind(self, name: str | None, *, imported: bool = False) -> None:
        """Note that the method binds a name."""
        if name:
            self.bound.add(name)
            if not imported:
                self.stored.add(name)

    def is_builtin(self, node: ast.AST, name: str) -> bool:
        """Return True if a node is the builtin of that name, and not a local variable of the same name."""
        return isinstance(node, ast.Name) and node.id == name and name not in self.bound

    def module_of(self, node: ast.AST) -> str | None:
        """Return the module that a node names, if it is an imported module that nothing else rebinds."""
        return self.modules.get(node.id) if isinstance(node, ast.Name) and node.id not in self.stored else None

    def function_of(self, node: ast.AST) -> tuple[str, str] | None:
        """Return module and member if a node names a function of an imported module."""
        if isinstance(node, ast.Attribute):
            module = self.module_of(node.value)
            return (module, node.attr) if module else None
        return self.members.get(node.id) if isinstance(node, ast.Name) and node.id not in self.stored else None

    def sorted_findings(self) -> tuple[Finding, ...]:
        """Return the findings in the order of the text."""
        return tuple(sorted(self.findings.values(), key=lambda finding: (finding.line, finding.column, finding.rule)))


def is_flag(node: ast.AST) -> bool:
    """Return True if a node is `self._p_changed` as a target."""
    return isinstance(node, ast.Attribute) and node.attr == "_p_changed" and isinstance(node.value, ast.Name) and node.value.id == "self"


def is_covenant(node: ast.AST) -> bool:
    """Return True if a statement is exactly `self._p_changed = True`."""
    return (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and is_flag(node.targets[0])
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
    )


def tool_of(node: ast.AST) -> tuple[str, str] | None:
    """Return connection and tool, as a method names them, if a node is `self.tools.CONNECTION.TOOL`."""
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr="tools"), attr=connection), attr=tool):
            return connection, tool
    return None
