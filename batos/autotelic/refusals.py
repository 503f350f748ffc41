"""What the guardian refuses again and again of the same message: the rule's own words become part of what the message is for.

A model that writes anything is told why earlier tries failed; an expert, which is asked in few words, is not, and what it is told
of a purpose is all that a mission can change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from batos.autotelic.proposals import Proposal
from batos.errors import BatosError, CovenantViolationError, MethodRefused
from batos.image import examples, history, ledger
from batos.mind.prompting import purpose
from batos.objects import Intent, find

LOOKED_AT = 64  # failures, the newest first
AGAIN = 2  # missions that failed by the same rule before it is told
RULES = 3  # that one purpose names
_CHARS = 160  # of what is told of one rule
_FINDING = re.compile(r"line \d+: (?P<reason>.+) \[(?P<rule>[\w-]+)\]\. (?P<hint>.+)", re.DOTALL)


class _Refused(NamedTuple):
    """One message, and how often missions failed because no method for it could be kept."""

    holder: str
    """The oid of the object that has it, or is to have it."""
    selector: str
    rule: str


def intents(root: Any) -> Iterator[Proposal]:
    """What may help: an Intent that says what the guardian said, for the message that was refused most often first."""
    counted: Counter[_Refused] = Counter()
    said: dict[_Refused, str] = {}
    for row in ledger.failures(root, limit=LOOKED_AT):
        for one, words in _read(root, row):
            counted[one] += 1
            said.setdefault(one, words)
    for one, times in counted.most_common():
        if times < AGAIN:
            return
        text = _taught(root, one, said[one])
        if text:
            why = f"{times} missions FAILED because the guardian refused {one.selector} by the rule {one.rule}; so it is told before"
            yield Proposal("intent", f"{one.holder}.{one.selector}", text, why)


def _read(root: Any, row: dict[str, Any]) -> list[tuple[_Refused, str]]:
    """The rules by which the message of a mission that failed was refused, each once, with what the guardian said."""
    context = row["context"]
    method = context.get("method")
    if not method or not row["final"] or row["error"]["code"] not in (MethodRefused.code, CovenantViolationError.code):
        return []
    if method["selector"] != context.get("selector"):  # it was refused for a message that was sent inside
        return []
    try:
        target = history.resolve(root, context["target"])
    except BatosError:  # it is gone
        return []
    found = find(target, method["selector"])
    holder = target if found is None else found[0]
    if (oid := history.oid_of(holder)) is None or (found is not None and not isinstance(found[1], Intent)):  # it is understood by now
        return []
    rules: dict[_Refused, str] = {}
    for reason in method["reasons"]:
        if (match := _FINDING.fullmatch(reason)) is not None:
            hint = match["hint"].partition(". ")[0].rstrip(".")
            rules.setdefault(_Refused(oid, method["selector"], match["rule"]), f"{match['reason']}: {hint}"[:_CHARS])
    return list(rules.items())


def _taught(root: Any, one: _Refused, words: str) -> str:
    """The purpose with what is to be minded; empty where that would change nothing."""
    holder = history.resolve(root, one.holder)
    held = holder._slots.get(one.selector)
    text = held.text if isinstance(held, Intent) else ""
    if examples.of(root, holder, one.selector)[1] or words in text or text.count(_MIND) >= RULES:  # what a user said of it goes first
        return ""
    return f"{text or purpose(one.selector, '')}{_MIND}{words}."


_MIND = ". Mind: "
