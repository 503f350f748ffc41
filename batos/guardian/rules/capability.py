"""files, network: modules and builtins that need a granted capability."""

from __future__ import annotations

import ast

from batos.guardian.allowlist import CAPABILITIES, SUPPLIED
from batos.guardian.rules.base import NodeCheck, Rule
from batos.guardian.subject import AuditSubject


def _checks(capability: str, hint: str) -> dict[type[ast.AST], NodeCheck]:
    """Checks that refuse what `capability` opens, unless the policy grants it."""
    words = CAPABILITIES[capability]

    def refuse(subject: AuditSubject, node: ast.AST, word: str) -> None:
        if word in SUPPLIED:
            return  # the import rule has checked supplied members; they work in memory
        if word.partition(".")[0] in words and capability not in subject.policy.capabilities:
            subject.refuse(capability, node, f"{word} needs the capability {capability!r}, which was not granted", hint)

    def check_import(subject: AuditSubject, node: ast.Import) -> None:
        for alias in node.names:
            refuse(subject, node, alias.name)

    def check_from(subject: AuditSubject, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if not node.level and not all(f"{module}.{alias.name}" in SUPPLIED for alias in node.names):
            refuse(subject, node, module)

    def check_name(subject: AuditSubject, node: ast.Name) -> None:
        if node.id == "open" and isinstance(node.ctx, ast.Load):
            refuse(subject, node, node.id)

    return {ast.Import: check_import, ast.ImportFrom: check_from, ast.Name: check_name}


FILES = Rule(
    "files",
    asks="`open` and the modules that read and write files are used only where the policy grants the capability `files`.",
    why="A method has no authority of its own; files are reached by sending a message to an object that has it.",
    accepted="def load(self, text):\n    return text.splitlines()",
    refused='def load(self):\n    return open("notes.txt").read()',
    nodes=_checks("files", "Take the text as an argument, or keep it in a slot of self."),
)

NETWORK = Rule(
    "network",
    asks="Modules that open connections are imported only where the policy grants the capability `network`.",
    why="A method has no authority of its own; what comes from outside comes as an argument or by a message.",
    accepted='def host(self, url):\n    return url.split("/")[2]',
    refused="def fetch(self, url):\n    import urllib.request\n    return urllib.request.urlopen(url).read()",
    nodes=_checks("network", "Take what is needed as an argument, or send a message to an object that fetches it."),
)
