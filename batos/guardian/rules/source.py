"""A source as text: its characters are what they look like, it is Python, and it is small enough to be audited."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

TEXT_ID = "text"
_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)|[\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\ud800-\udfff]"
)
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


def check(subject: AuditSubject) -> None:
    """Refuse characters that hide or reorder code, lone surrogates, and comments that ask for another encoding."""
    found = _CONTROL.search(subject.source)
    if found:
        line = subject.source.count("\n", 0, found.start()) + 1
        what = f"the character U+{ord(found[0]):04X}"
        subject.refuse(TEXT_ID, line, f"{what} hides or reorders code", "Leave it out, or write it as an escape such as \\x00 in a string.")
    for number, text in enumerate(subject.source.split("\n", 2)[:2], 1):
        cookie = _COOKIE.match(text)
        if cookie and cookie[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            subject.refuse(TEXT_ID, number, f"a comment asks for the encoding {cookie[1]}", "Leave the comment out; methods are UTF-8.")


TEXT_RULE = Rule(
    TEXT_ID,
    asks="A source holds no control characters but tabs and line feeds, no marks that reverse or hide text, and no lone surrogates.",
    why="What a reader sees and what the parser sees must be the same (Trojan Source, coding cookies).",
    accepted='def cheer(self):\n    return "schön \\u202e"',
    refused='def cheer(self):\n    return "\u202eschön"',
    text=check,
)


SYNTAX_ID = "parse"
_FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError, SystemError)
_PARSES = 5  # an interpreter counts the depth of trees for all threads as one, and may fail where two parse at once (CPython issue 106905)


def parse(subject: AuditSubject) -> None:
    """Parse and compile the text. Some sources parse and do not compile: `break` outside a loop, `nonlocal x` without an x."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parsed(subject.source)
            compile(subject.source, "<method>", "exec", dont_inherit=True)
    except _FAILURES as error:
        _report(subject, error)
    else:
        subject.tree = tree


def _parsed(source: str) -> ast.Module:
    """Parse a source, again where the interpreter miscounted its depth (CPython issue 106905)."""
    for _ in range(_PARSES - 1):
        with contextlib.suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


def _report(subject: AuditSubject, error: BaseException) -> None:
    line = getattr(error, "lineno", None) or 0
    if isinstance(error, SyntaxError):
        what = error.msg
    elif isinstance(error, (RecursionError, MemoryError)):
        what = "the source is nested too deeply"
    else:
        what = str(error)
    subject.refuse(SYNTAX_ID, line, f"this is not Python: {what}", "Answer with one complete function definition and nothing else.")


SYNTAX_RULE = Rule(
    SYNTAX_ID,
    asks="A source parses and compiles as Python.",
    why="Only a text that parses as a program can be checked.",
    accepted="def one(self):\n    return 1",
    refused="def one(self):\n    return (1",
)


SIZE_ID = "size"
HINT = "Split the work: move parts of it into methods of their own and send them."


def check_size(subject: AuditSubject) -> None:
    """Refuse a text of too many bytes, before anything else reads it. Nodes, depth and names are counted in the walk."""
    size = len(subject.source.encode("utf-8", "surrogatepass"))
    if size > subject.limits.bytes:
        subject.refuse(SIZE_ID, 0, f"the source has {size} bytes; at most {subject.limits.bytes} are allowed", HINT)


SIZE_RULE = Rule(
    SIZE_ID,
    asks="A source has at most 8192 bytes, 3000 nodes in its syntax tree, 60 levels of nesting and names of 64 characters. Its effects "
    "can be followed in 50,000 steps.",
    why="Parsers and compilers fail on deep or huge sources (SyntaxError, RecursionError, MemoryError); people do too.",
    accepted="def total(self, rows):\n    return sum(row[0] + row[1] for row in rows)",
    refused="def total(self, rows):\n    return rows" + "[0]" * 100,
    text=check_size,
)
