"""wait: a method does not sleep, and awaits only what it sends."""

from __future__ import annotations

import ast

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "wait"


def check_sleep(subject: AuditSubject) -> None:
    """`time.sleep`."""
    for node in subject.dotted:
        if node.attr == "sleep" and subject.module_of(node.value):
            subject.refuse(ID, node, "a method does not wait", "Leave the pause out.")


def check_import(subject: AuditSubject, node: ast.ImportFrom) -> None:
    """Refuse `from time import sleep`."""
    if any(alias.name == "sleep" for alias in node.names):
        subject.refuse(ID, node, "a method does not wait", "Leave the pause out.")


def check_async(subject: AuditSubject, node: ast.AsyncFunctionDef) -> None:
    """`async def` is for the method itself, where it awaits something."""
    if node is not subject.method:
        subject.refuse(ID, node, "an inner function is async", "Write a plain def; sends need no await.")
    elif not subject.policy.awaits:
        subject.refuse(ID, node, f"the policy {subject.policy.name} allows no async def", "Write a plain def; sends need no await.")
    elif not any(isinstance(inner, ast.Await) for inner in ast.walk(node)):
        subject.refuse(ID, node, "an async def that awaits nothing", "Write a plain def.")


def check_await(subject: AuditSubject, node: ast.Await) -> None:
    """`await self.selector(...)`."""
    if not (isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)):
        subject.refuse(
            ID, node, "await is used on something other than a send", "Await only sends, as in await self.think(text), or leave await out."
        )


RULE = Rule(
    ID,
    asks="A method never sleeps; `async def` is allowed for the method itself where it awaits sends (not under the policy `strict`).",
    why="Sends are awaited by the daemon whether or not the method says so; anything else that waits holds up a worker.",
    accepted="async def ask(self, text):\n    return await self.think(text)",
    refused="async def ask(self, text):\n    return text",
    nodes={
        ast.ImportFrom: check_import,
        ast.AsyncFunctionDef: check_async,
        ast.Await: check_await,
    },
    method=check_sleep,
)
