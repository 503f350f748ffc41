"""attribute: only public attributes that belong to values and objects."""

from __future__ import annotations

import ast
import re

from batos.guardian.allowlist import KIND_METHODS
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject, is_covenant

ID = "attribute"
# Frames, code objects, coroutines, classes: attributes that lead from a value to the interpreter. The sandbox has none of them.
_MACHINERY = re.compile(
    r"(gi|cr|ag|tb|co|func|im)_[a-z]+$|f_(back|globals|locals|builtins|code|lineno|lasti|trace)$|(mro|with_traceback|add_note)$"
)
_SENT = ("_clone_persistent_",)
_OF_NAMED_TUPLES = ("_asdict", "_fields", "_make", "_replace")


def check_covenant(subject: AuditSubject, node: ast.Assign) -> None:
    """Allow the one store of an underscore name: `self._p_changed = True`."""
    if is_covenant(node):
        subject.cleared.add(id(node.targets[0]))


def check_call(subject: AuditSubject, node: ast.Call) -> None:
    """`self._clone_persistent_()` is the message by which an object is cloned."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in _SENT:
        subject.cleared.add(id(node.func))


def check_attribute(subject: AuditSubject, node: ast.Attribute) -> None:
    """Any attribute, however it is used."""
    name = node.attr
    if name[0] == "_":
        if id(node) not in subject.cleared and not _is_type_name(subject, node) and not _is_named_tuples(subject, node):
            subject.refuse(ID, node, f"the attribute {name!r} is reserved: it begins with _", _hint(name))
    elif _MACHINERY.match(name):
        subject.refuse(ID, node, f"the attribute {name!r} leads into the interpreter", "Leave it out.")
    elif isinstance(node.value, ast.Call) and subject.is_builtin(node.value.func, "type"):
        subject.refuse(ID, node, "a type is asked for more than its name", f"Call it on the value: value.{name}(...).")
    elif not name.isascii() or len(name) > subject.limits.name:
        subject.refuse(ID, node, "an attribute's name is too long or not ASCII", "Use a short ASCII name.")
    elif isinstance(node.value, ast.Name) and node.value.id not in subject.bound:
        kind = node.value.id
        if kind in KIND_METHODS and name not in KIND_METHODS[kind]:
            subject.refuse(ID, node, f"{kind}.{name} is not available to methods", f"Call it on a value: value.{name}(...).")


def _is_type_name(subject: AuditSubject, node: ast.Attribute) -> bool:
    """`type(value).__name__`: the only question to a type that does no harm."""
    call = node.value
    return (
        node.attr == "__name__"
        and isinstance(node.ctx, ast.Load)
        and isinstance(call, ast.Call)
        and subject.is_builtin(call.func, "type")
        and len(call.args) == 1
    )


def _is_named_tuples(subject: AuditSubject, node: ast.Attribute) -> bool:
    """Return True for a method of named tuples that begins with an underscore to keep it apart from their fields."""
    has = subject.modules.values(), subject.members.values()
    known = "collections" in has[0] or ("collections", "namedtuple") in has[1]
    itself = isinstance(node.value, ast.Name) and node.value.id == "self"
    return known and node.attr in _OF_NAMED_TUPLES and isinstance(node.ctx, ast.Load) and not itself


def _hint(name: str) -> str:
    if "changed" in name:
        return "Write exactly `self._p_changed = True` as a statement of its own."
    if name == "__class__":
        return "Use isinstance(value, kind), or type(value).__name__ for its name."
    return "Use public slots and messages only."


RULE = Rule(
    ID,
    asks="Attributes do not begin with `_` and do not lead into frames, code or classes. Exceptions: the statement `self._p_changed = "
    "True`, the message `_clone_persistent_`, `type(value).__name__`, and `_replace`, `_asdict`, `_fields`, `_make` of named tuples. Of "
    "builtin types only harmless methods are taken (`str.lower`), of `type(value)` none.",
    why="Underscore names hold the machinery of persistence and of the interpreter: `_p_jar`, `__class__`, `__globals__`.",
    accepted="def kind(self, value):\n    return type(value).__name__",
    refused="def kind(self, value):\n    return value.__class__",
    nodes={ast.Assign: check_covenant, ast.Call: check_call, ast.Attribute: check_attribute},
)
