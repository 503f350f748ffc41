"""The subject of one audit: a source text and all facts found about it. The rules write into it."""

from __future__ import annotations

import ast

from batos.guardian.policy import AuditLimits, Policy
from batos.guardian.verdict import Finding, Severity

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class AuditSubject:
    """Source under audit, with the facts and findings so far."""

    def __init__(self, source: str, selector: str, policy: Policy, limits: AuditLimits) -> None:
        self.source = source
        self.selector = selector
        self.policy = policy
        self.limits = limits
        self.findings: dict[tuple[str, int, int], Finding] = {}
        self.tree: ast.Module | None = None
        self.method: FunctionNode | None = None
        # collected in the walk
        self.loads: dict[str, ast.Name] = {}
        """names that are read, with the first node that does"""
        self.bound: set[str] = set()
        """names that the method binds in any way and any scope"""
        self.stored: set[str] = set()
        """those of them that are bound otherwise than by an import"""
        self.called: set[int] = set()
        """ids of the nodes that are called"""
        self.cleared: set[int] = set()
        """ids of nodes that an earlier check vouches for"""
        self.modules: dict[str, str] = {}
        """local names of imported modules"""
        self.members: dict[str, tuple[str, str]] = {}
        """local names of what was imported from modules: module and member"""
        self.dotted: list[ast.Attribute] = []
        """attributes that are read from a name"""
        self.wholes: dict[str, ast.Name] = {}
        """names that are read otherwise, with the first node that does"""
        self.raised: set[str] = set()
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.sends: set[str] = set()
        # found by the effect analysis
        self.unflagged: list[tuple[ast.AST | None, ast.AST | None]] = []
        """ways out (None: the end) without the flag, each with the write"""
        self.late: list[tuple[ast.AST | None, ast.AST | None]] = []
        """ways out with something done after the flag, each with that statement"""

    def refuse(self, rule: str, at: ast.AST | int | None, reason: str, hint: str, severity: Severity = "error") -> None:
        """Note a finding; `at` is a node, or a line. The first reason at a place stands."""
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
        """Module and member, if a node names a function of an imported module."""
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
