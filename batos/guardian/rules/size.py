"""size: a method is small enough to be looked at."""

from __future__ import annotations

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "size"
HINT = "Split the work: move parts of it into methods of their own and send them."


def check(subject: AuditSubject) -> None:
    """Refuse a text of too many bytes, before anything else reads it. Nodes, depth and names are counted in the walk."""
    size = len(subject.source.encode("utf-8", "surrogatepass"))
    if size > subject.limits.bytes:
        subject.refuse(ID, 0, f"the source has {size} bytes; at most {subject.limits.bytes} are allowed", HINT)


RULE = Rule(
    ID,
    asks="A source has at most 8192 bytes, 3000 nodes in its syntax tree, 60 levels of nesting and names of 64 characters, and its effects "
    "can be followed in 50,000 steps.",
    why="Parsers and compilers fail on deep or huge sources (SyntaxError, RecursionError, MemoryError); people do too.",
    accepted="def total(self, rows):\n    return sum(row[0] + row[1] for row in rows)",
    refused="def total(self, rows):\n    return rows" + "[0]" * 100,
    text=check,
)
