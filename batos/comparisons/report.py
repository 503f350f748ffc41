"""Report of a comparison: how far it is, its figures and its pairs. Also the next pair for a user who judges without knowing the sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batos.comparisons import figures, judging, records
from batos.comparisons.records import BASE, CHANGED
from batos.errors import InvalidInput
from batos.objects import Root, UvmObject

SHOWN_CHARS = 600_000
"""Greatest number of characters of all answers together in a report; where there are more, each is cut."""
_LEAST_SHOWN = 400
_UNDER_WAY = (records.WAITING, records.RUNNING)


def summary(record: UvmObject, *, is_at: bool) -> dict[str, Any]:
    """Return a comparison in a few facts.

    :param is_at: True if a daemon works at it.
    """
    told = records.described(record)
    spec, pairs = told["spec"], records.pairs_of(record)
    state, reason = told["state"], told["reason"]
    if state in _UNDER_WAY and not (is_at or records.elsewhere(record._p_jar.root(), record)):
        state, reason = records.STOPPED, "the daemon ended in the middle of it"
    complete = {number: pair for number, pair in pairs.items() if "left_out" not in pair}
    winners = _winners(record, spec["judge"], complete)
    return {
        "id": told["id"], "state": state, "reason": reason, "words": spec["words"], "persona": spec["variant"]["persona"],
        "judge": spec["judge"], "rules": spec["rules"], "pairs": len(spec["items"]), "done": len(pairs),
        "left_out": len(pairs) - len(complete), "unjudged": sum(number not in winners for number in complete),
        "budget": spec["budget"], "cost": records.cost_of(record), "estimate": spec["estimate"], "begun": told["begun"],
        "ended": None if state in _UNDER_WAY else told["ended"], "promoted": told["promoted"] or None, "note": told["note"],
        "verdict": figures.figures(complete, winners, told["seed"])["verdict"],
    }  # fmt: skip


def report(record: UvmObject, *, is_at: bool) -> dict[str, Any]:
    """Return all of a comparison: its facts, `figures`, and `compared`, its pairs. Of a pair that its user has still to judge the sides are
    hidden."""
    told, pairs = records.described(record), records.pairs_of(record)
    judge = told["spec"]["judge"]
    complete = {number: pair for number, pair in pairs.items() if "left_out" not in pair}
    winners, judged = _winners(record, judge, complete), records.judgements_of(record, judge)
    open_ones = {number for number in complete if judge == records.USER and number not in winners}
    found = figures.figures(complete, winners, told["seed"], open_ones)
    found["settled"] = sum(judging.settled(pair) is not None for pair in complete.values())
    found["disagreed"] = sum(len(set(one.get("orders", ()))) > 1 for one in judged.values())
    each = max(_LEAST_SHOWN, SHOWN_CHARS // max(1, 2 * len(pairs)))
    shown = []
    for number, pair in pairs.items():
        row: dict[str, Any] = {"number": number, "brief": pair["brief"], "mission": pair.get("mission")}
        if "left_out" in pair:
            shown.append({**row, "left_out": pair["left_out"]})
            continue
        hidden = number in open_ones
        row |= {} if hidden else {BASE: _cut(pair[BASE], each), CHANGED: _cut(pair[CHANGED], each), "winner": winners.get(number)}
        why = judged.get(number, {}).get("why") or (_settled_words(pair) if judging.settled(pair) else "")
        shown.append({**row, "hidden": hidden, "why": why})
    return {**summary(record, is_at=is_at), "figures": found, "compared": shown, "variant": told["spec"]["variant"]}


def _cut(side: Mapping[str, Any], chars: int) -> dict[str, Any]:
    """Return a side with at most `chars` characters of its text."""
    text = side["text"]
    return {**side, "text": text if len(text) <= chars else text[: chars - 1] + "…"}


def _settled_words(pair: Mapping[str, Any]) -> str:
    return "both say the same" if not (pair[BASE]["failed"] or pair[CHANGED]["failed"]) else "a side failed"


def _winners(record: UvmObject, judge: str, pairs: Mapping[int, Mapping[str, Any]]) -> dict[int, str | None]:
    """Return who won each judged pair, or a tie; None where its judge could not tell."""
    judged = records.judgements_of(record, judge)
    found: dict[int, str | None] = {}
    for number, pair in pairs.items():
        if (itself := judging.settled(pair)) is not None:
            found[number] = itself
        elif number in judged:
            found[number] = judged[number]["winner"]
    return found


def next_pair(record: UvmObject) -> dict[str, Any] | None:
    """Return the first pair that its user has still to judge, with the answers as `left` and `right`; None if there is none."""
    told, pairs = records.described(record), records.pairs_of(record)
    judged = records.judgements_of(record, records.USER)
    open_ones = [n for n, pair in pairs.items() if "left_out" not in pair and judging.settled(pair) is None]
    number = next((n for n in open_ones if n not in judged), None)
    if number is None:
        return None
    pair, left = pairs[number], judging.left_side(told["seed"], number)
    sides = {"left": pair[left]["text"], "right": pair[CHANGED if left == BASE else BASE]["text"]}
    return {"number": number, "brief": pair["brief"], **sides, "judged": sum(n in judged for n in open_ones), "of": len(open_ones)}


def judge(root: Root, id: str, number: int, verdict: str) -> None:
    """System transaction: keep a user's judgement of a pair.

    :param verdict: left, right or tie.
    :raises InvalidInput: for a pair that needs no judge, or that is not there.
    """
    record = records.record_of(root, id)
    pair = records.pairs_of(record).get(number)
    if pair is not None and "left_out" not in pair and (itself := judging.settled(pair)):
        raise InvalidInput(f"pair {number} needs no judge: {_settled_words(pair)} ({itself})")
    told = records.described(record)
    records.keep_judgement(root, id, records.USER, number, {"winner": judging.winner_of(verdict, told["seed"], number), "verdict": verdict})
    if told["spec"]["judge"] != records.USER:
        records.amend(root, id, {"judge": records.USER, "rules": []})
