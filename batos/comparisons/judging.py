"""Judging of pairs: by their user, who sees which is which only afterwards; by ALFRED, in both orders; by rules.

A pair whose sides say the same is a tie. A pair of which one side failed goes to the other side. No judge is asked about such pairs. ALFRED
is asked twice, with the sides in either order. Where his two answers differ, the pair is a tie, and the report counts it as a disagreement.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from batos.comparisons.records import BASE, CHANGED, TIE
from batos.errors import InferenceFailed, InvalidInput
from batos.mind import incarnation
from batos.mind.attempt import Attempt
from batos.objects import Root, UvmObject

ALFRED = "alfred"
LEFT, RIGHT = "left", "right"
VERDICTS = (LEFT, RIGHT, TIE)
RULES: Mapping[str, str] = {
    "schema": "the answer is of the mission's JSON schema",
    "exact": "the answer is the one that is expected: of the brief, or after a colon",
    "contains": "the answer holds the texts that are expected: of the brief, or one after a colon",
    "length": "the answer is shorter",
    "latency": "the answer took less model time",
    "tokens": "the answer took fewer tokens",
}
"""Rules by which pairs may be judged -> what speaks for a side."""
_LESS = {"length": "chars", "latency": "seconds", "tokens": "tokens"}
_SAME = 0.05  # share up to which two figures count as the same


def settled(pair: Mapping[str, Any]) -> str | None:
    """Return the side that wins without a judge, or a tie; None where a judge is needed."""
    base, changed = pair[BASE], pair[CHANGED]
    if base["failed"] or changed["failed"]:
        return TIE if base["failed"] and changed["failed"] else CHANGED if base["failed"] else BASE
    return TIE if base["text"].strip() == changed["text"].strip() else None


# --- by a user


def left_side(seed: int, number: int) -> str:
    """Return the side that is shown on the left: chance, but always the same for a seed and a pair."""
    return (BASE, CHANGED)[hashlib.sha256(f"{seed} {number}".encode()).digest()[0] & 1]


def winner_of(verdict: str, seed: int, number: int) -> str:
    """Return the side that a user preferred.

    :param verdict: left, right or tie.
    """
    if verdict == TIE:
        return TIE
    left = left_side(seed, number)
    return left if verdict == LEFT else BASE if left == CHANGED else CHANGED


# --- by rules


def check_rules(rules: Sequence[str]) -> None:
    """See that rules are known.

    :raises InvalidInput: for one that is not, or for none.
    """
    if not rules:
        raise InvalidInput(f"a judgement by rules needs rules, the most important first: {', '.join(RULES)}")
    for rule in rules:
        name, colon, text = rule.partition(":")
        if name not in RULES or (colon and (name not in ("exact", "contains") or not text)):
            raise InvalidInput(f"{rule!r} is not a valid rule; there are: {', '.join(RULES)}, and exact:TEXT, contains:TEXT")


def by_rules(rules: Sequence[str], pair: Mapping[str, Any]) -> dict[str, Any]:
    """Return the judgement of a pair by the first rule that tells its sides apart; a tie where none does."""
    for rule in rules:
        base, changed = (_points(rule, pair, pair[side]) for side in (BASE, CHANGED))
        if base is None or changed is None or base == changed:
            continue
        if rule in _LESS and abs(base - changed) <= _SAME * max(abs(base), abs(changed)):
            continue
        return {"winner": CHANGED if changed > base else BASE, "why": rule}
    return {"winner": TIE, "why": "no rule tells them apart"}


def _points(rule: str, pair: Mapping[str, Any], side: Mapping[str, Any]) -> float | None:
    """Return how well a side keeps a rule, the more the better; None where the rule says nothing about the pair."""
    name, _, own = rule.partition(":")
    if name in _LESS:
        return -float(side[_LESS[name]])
    if name == "schema":
        return None if side["fits"] is None else float(side["fits"])
    expected = (
        [own]
        if own
        else [pair["exact"]]
        if name == "exact" and pair.get("exact")
        else pair.get("contains", [])
        if name == "contains"
        else []
    )
    if not expected:
        return None
    text = " ".join(side["text"].split()).casefold()
    wanted = [" ".join(one.split()).casefold() for one in expected]
    return float(text == wanted[0]) if name == "exact" else float(sum(one in text for one in wanted))


# --- by ALFRED

_DESCRIBED = "Which of two answers to a request is better."


class JudgedBetter(BaseModel):
    """Answer of a model that is asked which of two answers is better: its JSON schema goes along."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False, "description": _DESCRIBED})

    better: Literal["first", "second", "tie"]
    why: str = Field(max_length=400)


class Judge(NamedTuple):
    """A persona that judges: its model's role, and its system message."""

    role: str
    system: str


def judge_in(root: Root) -> Judge:
    """Return ALFRED as a judge.

    :raises InvalidInput: if the image has no such persona.
    """
    persona = root["lobby"]._slots.get(ALFRED)
    if not isinstance(persona, UvmObject):
        raise InvalidInput("the image has no persona ALFRED that could judge; judge yourself (me), or by rules")
    return Judge(str(getattr(persona, "voice", "") or persona.model), incarnation.system_message(persona, "light"))


_ASKED = (
    "A request was answered twice.\n\nRequest: {brief}\n\nFirst answer:\n{first}\n\nSecond answer:\n{second}\n\n"
    "Which answer serves the one who asked better: first, second, or tie? Judge what is said, not how long it is. Say in one sentence why."
)


async def by_persona(judge: Judge, attempt: Attempt, pair: Mapping[str, Any], chars: int) -> dict[str, Any]:
    """Return the judgement of a pair by a persona that sees the sides in both orders.

    :param attempt: asks, in a mirror: its source pays.
    :param chars: greatest number of characters of an answer that it is shown.
    :raises Unknown: if that cannot be paid for.
    """
    said: list[tuple[str, str]] = []
    for first, second in ((BASE, CHANGED), (CHANGED, BASE)):
        prompt = _ASKED.format(brief=pair["brief"][:chars], first=pair[first]["text"][:chars], second=pair[second]["text"][:chars])
        try:
            found = await attempt.structured(judge.role, judge.system, prompt, JudgedBetter, part="judge", temperature=0.0)
        except InferenceFailed as e:
            return {"winner": None, "why": f"{e.code}: {e.message}"[:400]}
        better = {"first": first, "second": second}.get(found.value.better, TIE)
        said.append((better, found.value.why))
    (one, why), (other, _) = said
    if one != other:
        return {"winner": TIE, "why": "in the other order the judge said otherwise", "orders": [one, other]}
    return {"winner": one, "why": why, "orders": [one, other]}
