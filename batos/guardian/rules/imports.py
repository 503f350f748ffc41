"""import: harmless modules only, and of each only what it is imported for."""

from __future__ import annotations

import ast

from batos.guardian.allowlist import CAPABILITIES, MODULES, SUPPLIED, import_hint
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "import"


def check_import(subject: AuditSubject, node: ast.Import) -> None:
    """`import a, b as c`."""
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        subject.bind(name, imported=True)
        if _may(subject, node, alias.name):
            if "." in alias.name and not alias.asname:
                _shorten(subject, alias.name)
            if name in subject.modules and subject.modules[name] != alias.name:
                subject.stored.add(name)  # one name for two modules counts as neither
            subject.modules[name] = alias.name


def _shorten(subject: AuditSubject, module: str) -> None:
    """After `import a.b` write `a.b.c` as `a.c` in the tree, once: one name then stands for the module, as everywhere else."""
    name, _, inner = module.partition(".")
    if name in subject.modules:
        return
    assert subject.method is not None
    for node in ast.walk(subject.method):
        held = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(held, ast.Attribute) and held.attr == inner and isinstance(held.value, ast.Name) and held.value.id == name:
            node.value = held.value  # type: ignore[attr-defined]


def check_from(subject: AuditSubject, node: ast.ImportFrom) -> None:
    """Check `from a import b as c`."""
    module = node.module or ""
    if not node.level and all(f"{module}.{alias.name}" in SUPPLIED for alias in node.names):  # `from urllib import parse`
        names = [ast.alias(f"{module}.{alias.name}", alias.asname or alias.name) for alias in node.names]
        check_import(subject, ast.copy_location(ast.Import(names), node))
        return
    for alias in node.names:
        subject.bind(alias.asname or alias.name, imported=True)
    if node.level:
        subject.refuse(ID, node, "relative imports are not allowed", "Import a module by its full name, or do without it.")
    elif _may(subject, node, module):
        for alias in node.names:
            check_member(subject, node, module, alias.name)
            name = alias.asname or alias.name
            if subject.members.get(name, (module, alias.name)) != (module, alias.name):
                subject.stored.add(name)  # one name for two things counts as neither
            subject.members[name] = (module, alias.name)


def check_attribute(subject: AuditSubject, node: ast.Attribute) -> None:
    """Record a read from a name. It is only known after all imports whether the name is a module."""
    if isinstance(node.value, ast.Name):
        subject.cleared.add(id(node.value))
        if isinstance(node.ctx, ast.Load):
            subject.dotted.append(node)


def check_name(subject: AuditSubject, node: ast.Name) -> None:
    """Record a name that is read as a whole."""
    if id(node) not in subject.cleared and isinstance(node.ctx, ast.Load):
        subject.wholes.setdefault(node.id, node)


def check_members(subject: AuditSubject) -> None:
    """Check reads from imported modules: `json.dumps`, and not `json.codecs`."""
    for node in subject.dotted:
        assert isinstance(node.value, ast.Name)
        module = subject.modules.get(node.value.id)
        if module:
            check_member(subject, node, module, node.attr)
    for name in subject.modules:
        if name in subject.wholes:
            reason = f"the module {name} is used as a value"
            subject.refuse(ID, subject.wholes[name], reason, f"Write {name}.member where it is needed.")


def check_member(subject: AuditSubject, node: ast.AST, module: str, member: str) -> None:
    """Refuse what a module has beside what it is imported for."""
    members = MODULES.get(module)
    if members is not None and member not in members and member != "sleep":
        subject.refuse(ID, node, f"{module}.{member} is not available to methods", f"{module} offers {', '.join(sorted(members))}.")


def _may(subject: AuditSubject, node: ast.AST, module: str) -> bool:
    policy = subject.policy
    if module in MODULES:
        if not policy.imports:
            subject.refuse(ID, node, f"the policy {policy.name} allows no imports", "Do without the import.")
        return policy.imports
    family = module.partition(".")[0]
    for capability, modules in CAPABILITIES.items():
        if family in modules:
            return capability in policy.capabilities  # otherwise the capability's own rule refuses the module
    subject.refuse(ID, node, f"the module {module} may not be imported", import_hint(module))
    return False


RULE = Rule(
    ID,
    asks="A method imports only modules of the list, by name, and uses of each only the members of the list; the policy `strict` allows "
    "none.",
    why="Modules reach the process (os, sys, gc), leak others without an underscore (json.codecs.builtins, re.enum.sys), or are missing "
    "in the "
    "sandbox.",
    accepted="def pack(self):\n    import json\n    return json.dumps({'name': self.name})",
    refused="def pack(self):\n    import os\n    return os.getpid()",
    nodes={ast.Import: check_import, ast.ImportFrom: check_from, ast.Attribute: check_attribute, ast.Name: check_name},
    method=check_members,
)
