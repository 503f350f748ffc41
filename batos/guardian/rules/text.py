"""text: the characters of a source are what they look like."""

from __future__ import annotations

import re

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "text"
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
        subject.refuse(ID, line, f"{what} hides or reorders code", "Leave it out, or write it as an escape such as \\x00 in a string.")
    for number, text in enumerate(subject.source.split("\n", 2)[:2], 1):
        cookie = _COOKIE.match(text)
        if cookie and cookie[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            subject.refuse(ID, number, f"a comment asks for the encoding {cookie[1]}", "Leave the comment out; methods are UTF-8.")


RULE = Rule(
    ID,
    asks="A source holds no control characters but tabs and line feeds, no marks that reverse or hide text, and no lone surrogates.",
    why="What a reader sees and what the parser sees must be the same (Trojan Source, coding cookies).",
    accepted='def cheer(self):\n    return "schön \\u202e"',
    refused='def cheer(self):\n    return "\u202eschön"',
    text=check,
)
