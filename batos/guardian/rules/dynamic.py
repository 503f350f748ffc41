"""dynamic: attributes by literal names, one-argument type, whole super sends."""

from __future__ import annotations

import ast

from batos.guardian.rules.attribute import RULE as ATTRIBUTE
from batos.guardian.rules.attribute import check_attribute
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "dynamic"


def check_call(subject: AuditSubject, node: ast.Call) -> None:
    """Calls of getattr, hasattr, type and super."""
    subject.called.add(id(node.func))
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call) and subject.is_builtin(function.value.func, "super"):
        subject.cleared.add(id(function.value))
    if not isinstance(function, ast.Name) or function.id in subject.bound:
        return
    if function.id in ("getattr", "hasattr"):
        _check_name(subject, node)
    elif function.id == "type" and (len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred)):
        subject.refuse(ID, node, "type is called to make a type", "Use a dict, or collections.namedtuple.")
    elif function.id == "type" and isinstance(node.args[0], ast.Call) and subject.is_builtin(node.args[0].func, "type"):
        subject.refuse(ID, node, "the type of a type is asked for", "Use type(value).__name__, or isinstance(value, kind).")
    elif function.id == "super" and (node.args or node.keywords or id(node) not in subject.cleared):
        subject.refuse(ID, node, "super is used other than super().selector(...)", "Write super().selector(arguments) as a whole.")


def _check_name(subject: AuditSubject, node: ast.Call) -> None:
    assert isinstance(node.func, ast.Name)
    name = node.args[1] if len(node.args) > 1 else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier()) or node.keywords:
        reason = f"{node.func.id} is called with a name that is not a literal"
        subject.refuse(ID, node, reason, f"Write the name as a literal: {node.func.id}(self, 'name'), or keep the values in one dict slot.")
        return
    # A literal name is checked like any other attribute.
    as_attribute = ast.Attribute(node.args[0], name.value, ast.Load())
    check_attribute(subject, ast.copy_location(as_attribute, node))
    if name.value == "format":
        subject.refuse(ATTRIBUTE.id, node, "a bound format method is no value", "Use an f-string.")
    if isinstance(node.args[0], ast.Name) and node.args[0].id in subject.modules:
        subject.refuse(ID, node, f"{node.func.id} of a module", "Write module.member.")


def check_getters(subject: AuditSubject) -> None:
    """`attrgetter` is what things are sorted by, and its names are literals."""
    assert subject.method is not None
    if not any(module == "operator" for module in (*subject.modules.values(), *(module for module, _ in subject.members.values()))):
        return
    keys = {id(part.value.func) for part in ast.walk(subject.method) if _is_key(part)}  # type: ignore[attr-defined]
    for node in ast.walk(subject.method):
        if isinstance(node, (ast.Name, ast.Attribute)) and subject.function_of(node) == ("operator", "attrgetter") and id(node) not in keys:
            subject.refuse(ID, node, "attrgetter is used other than key=attrgetter('name')", "Write a lambda: lambda item: item.name.")


def _is_key(node: ast.AST) -> bool:
    if not (isinstance(node, ast.keyword) and node.arg == "key" and isinstance(node.value, ast.Call)) or node.value.keywords:
        return False
    texts = [argument.value if isinstance(argument, ast.Constant) else None for argument in node.value.args]
    return bool(texts) and all(isinstance(text, str) and _is_public(text) for text in texts)


def _is_public(text: str) -> bool:
    return all(name.isidentifier() and name.isascii() and name[0] != "_" and name != "obj" for name in text.split("."))


RULE = Rule(
    ID,
    asks="`getattr` and `hasattr` take the name as a public literal; `type` takes one argument; `super` is written "
    "`super().selector(...)`, and `attrgetter` of operator `key=attrgetter('name')`.",
    why="Names that are made at run time get round every rule about names.",
    accepted="def title(self):\n    return getattr(self, 'title', None) or super().title()",
    refused="def read(self, name):\n    return getattr(self, name)",
    nodes={ast.Call: check_call},
    method=check_getters,
)
