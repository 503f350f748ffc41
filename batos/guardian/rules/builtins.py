"""builtin: every name that is read is the method's own, an import, or a builtin of the list."""

from __future__ import annotations

import ast

from batos.guardian.allowlist import BANNED, BUILTINS, CAPABILITIES, MODULES, ONLY_CALLED
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "builtin"


def check_store(subject: AuditSubject, node: ast.Name) -> None:
    """Refuse a local name that hides a banned builtin: readers would confuse them."""
    if node.id in BANNED and not isinstance(node.ctx, ast.Load) and node.id not in ("id", "input", "dir", "vars", "help"):
        subject.refuse(ID, node, f"{node.id} may not be used as a name", "Choose another name.")
    elif node.id in ONLY_CALLED and (not isinstance(node.ctx, ast.Load) or id(node) not in subject.called):
        subject.refuse(ID, node, f"{node.id} may only be called", _CALLED[node.id])


def check_known(subject: AuditSubject) -> None:
    """Refuse names that are read but never bound."""
    for name, node in subject.loads.items():
        if name in subject.bound or name in BUILTINS or name[0] == "_" or (name == "open" and "open" in CAPABILITIES["files"]):
            continue
        if name in BANNED:
            subject.refuse(ID, node, f"{name} is not available to methods", BANNED[name])
        elif name in MODULES:
            subject.refuse(ID, node, f"{name} is not imported", f"Write `import {name}` as the first line of the body.")
        else:
            subject.refuse(ID, node, f"the name {name!r} is not defined", "Define it in the method, or take it as an argument.")


_CALLED = {
    "getattr": "Write `self.name`, or getattr(self, 'name', default).",
    "super": "Write super().selector(...) as a whole.",
}

RULE = Rule(
    ID,
    asks="Every name that is read is a parameter, a local name, an import, or a builtin of the list; `getattr` and `super` are only "
    "called.",
    why="eval, exec, setattr, globals and their like get round every other rule; an undefined name would fail only at run time.",
    accepted="def top(self, values):\n    return sorted(values, reverse=True)[:3]",
    refused="def top(self, text):\n    return eval(text)",
    nodes={ast.Name: check_store},
    method=check_known,
)
