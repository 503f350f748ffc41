"""files: no input or output without the capability."""

from __future__ import annotations

from batos.guardian.rules.base import Rule
from batos.guardian.rules.capability import checks

RULE = Rule(
    "files",
    asks="`open` and the modules that read and write files are used only where the policy grants the capability `files`.",
    why="A method has no authority of its own; files are reached by sending a message to an object that has it.",
    accepted="def load(self, text):\n    return text.splitlines()",
    refused='def load(self):\n    return open("notes.txt").read()',
    nodes=checks("files", "Take the text as an argument, or keep it in a slot of self."),
)
