"""parse: a source is Python."""

from __future__ import annotations

import ast
import warnings

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "parse"
_FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def parse(subject: AuditSubject) -> None:
    """Parse and compile the text. Some sources parse and do not compile: `break` outside a loop, `nonlocal x` without an x."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(subject.source)
            compile(subject.source, "<method>", "exec", dont_inherit=True)
    except _FAILURES as error:
        _report(subject, error)
    else:
        subject.tree = tree


def _report(subject: AuditSubject, error: BaseException) -> None:
    line = getattr(error, "lineno", None) or 0
    if isinstance(error, SyntaxError):
        what = error.msg
    elif isinstance(error, (RecursionError, MemoryError)):
        what = "the source is nested too deeply"
    else:
        what = str(error)
    subject.refuse(ID, line, f"this is not Python: {what}", "Answer with one complete function definition and nothing else.")


RULE = Rule(
    ID,
    asks="A source parses and compiles as Python.",
    why="Nothing can be said about text that is no program.",
    accepted="def one(self):\n    return 1",
    refused="def one(self):\n    return (1",
)
