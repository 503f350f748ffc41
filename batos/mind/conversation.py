"""Conversations: a mission may follow another one, and then sees what was asked and answered before."""

from __future__ import annotations

import json
from typing import Any

from batos.image import ledger
from batos.mind.evidence import unmarked

_HEAD = "Earlier in this conversation:"
_CUT = "…"


def told(root: Any, mission: Any, *, missions: int, chars: int) -> str:
    """What was said before a mission, oldest first, as a text for its prompts; "" if it follows none.

    :param missions: how far back at most.
    :param chars: how many characters at most; the newest go first, and the last that fits in part is cut.
    """
    said: list[str] = []
    seen = {mission.id}
    left = chars
    before = mission.context
    while before is not None and before not in seen and len(said) < missions and left > 0:
        seen.add(before)
        earlier = ledger.mission_of(root, before)
        text = f"User: {earlier.brief}\nAnswer: {_answer(earlier)}"
        said.append(text if len(text) <= left else text[: max(0, left - 1)] + _CUT)
        left -= len(text)
        before = earlier.context
    return "\n".join((_HEAD, *reversed(said))) if said else ""


def with_brief(conversation: str, brief: str) -> str:
    """A brief as the prompts of a follow-up show it."""
    return f"{conversation}\n\nNow the user says: {brief}" if conversation else brief


def _answer(mission: Any) -> str:
    if mission.state != ledger.COMPLETE or not mission.result:
        return "(none)"
    result = json.loads(mission.result)
    text = str(result.get("text", ""))
    return unmarked(text) if result.get("citations") else text
