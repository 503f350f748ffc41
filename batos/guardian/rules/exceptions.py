"""exception: errors are caught by name, and say no more than their message."""

from __future__ import annotations

import ast

from batos.guardian.allowlist import words
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "exception"
_READABLE = words("args colno doc end errno lineno msg pos reason start strerror value")


def check_handler(subject: AuditSubject, node: ast.ExceptHandler) -> None:
    """Which errors a handler catches, and what it reads from them."""
    kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    for kind in kinds:
        if kind is None or (isinstance(kind, ast.Name) and kind.id == "BaseException"):
            subject.refuse(ID, node, "a handler catches everything", "Name what it catches: except ValueError, or except Exception.")
        elif not (isinstance(kind, ast.Name) or (isinstance(kind, ast.Attribute) and subject.module_of(kind.value))):
            subject.refuse(ID, kind, "a handler's kind of error is computed", "Name the kinds: except (KeyError, ValueError).")
    if len(node.body) == 1 and isinstance(node.body[0], ast.Pass) and isinstance(node.type, ast.Name) and node.type.id == "Exception":
        subject.warn(ID, node, "every error is silently dropped", "Name the error that is expected.")
    if node.name:
        _check_reads(subject, node)


def _check_reads(subject: AuditSubject, handler: ast.ExceptHandler) -> None:
    for statement in handler.body:
        for node in ast.walk(statement):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == handler.name):
                continue
            if node.attr not in _READABLE and node.attr[0] != "_":
                subject.refuse(ID, node, f"{node.attr!r} of an error leads to objects", "Use str(error), or error.args.")


def check_obj(subject: AuditSubject, node: ast.Attribute) -> None:
    """`AttributeError.obj` hands out the object itself, under whatever name the error goes."""
    if node.attr == "obj" and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
        subject.refuse(ID, node, "'obj' of an error is the object itself", "Use str(error); call a slot otherwise than obj.")


def check_raise(subject: AuditSubject, node: ast.Raise) -> None:
    """Record the raised error for the contract, and check it: the sandbox carries one argument of an error."""
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    if isinstance(raised, ast.Name) and (raised.id.endswith(("Error", "Exception")) or raised.id == "StopIteration"):
        subject.raised.add(raised.id)
    if isinstance(node.exc, ast.Call) and len(node.exc.args) > 1:
        subject.warn(ID, node, "an error with several arguments keeps only its text", "Raise it with one text.")


RULE = Rule(
    ID,
    asks="Handlers name what they catch, and neither bare `except` nor `BaseException` is caught; of an error only its message and the "
    "like are read.",
    why="What stops a method (time, memory, cancellation) must not be swallowed; `AttributeError.obj` and tracebacks hand out live "
    "objects.",
    accepted="def number(self, text):\n    try:\n        return int(text)\n    except ValueError as error:\n        return str(error)",
    refused="def number(self, text):\n    try:\n        return int(text)\n    except:\n        return 0",
    nodes={ast.ExceptHandler: check_handler, ast.Raise: check_raise, ast.Attribute: check_obj},
)
