"""Briefs that ask for a plan: several calls of tools, with a loop or a condition over what they answer."""

from __future__ import annotations

import re

_BRIEF_CHARS = 2000
_LOOPS = re.compile(
    r"\b(?:each|every|all|both|any of|one by one|those that|the ones|jede[rmns]?|alle[nrs]?|beide|chaque|tous|toutes|cada|todos|todas)\b",
    re.IGNORECASE,
)
_CONDITIONS = re.compile(r"\b(?:if|unless|otherwise|only when|in case|depending|wenn|falls|sonst|sinon|sino)\b", re.IGNORECASE)
_CHOICES = re.compile(
    r"\b(?:cheap|new|old|lat|earli|larg|small|high|low|long|short|great|few)est\b|\b(?:billigste|neueste|älteste|größte|kleinste)[nrs]?\b"
    r"|\b(?:more|less|fewer|greater|cheaper|older|newer|higher|lower|mehr|weniger|plus|moins|más|menos) (?:than|als|que)\b",
    re.IGNORECASE,
)
_THEN = re.compile(r"[.;,]\s|\s(?:and|then|und|dann|et|puis|y|luego)\s", re.IGNORECASE)


def asks_for_plan(brief: str) -> bool:
    """Return True if a brief asks for several calls with a loop or a condition over what they answer: two words of that kind (that go
    through results, choose by them, or make something depend on them), or one and more than one clause."""
    text = brief[:_BRIEF_CHARS]
    over = sum(bool(pattern.search(text)) for pattern in (_LOOPS, _CONDITIONS, _CHOICES))
    clauses = sum(len(part.split()) > 1 for part in _THEN.split(text))
    return over > 1 or (over == 1 and clauses > 1)
