"""Conversations: a mission may follow another one, and then sees what was asked and answered before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from batos.image import ledger
from batos.mind.depth import kind_of
from batos.mind.evidence import unmarked

_HEAD = "Earlier in this conversation:"
_CUT = "…"
_NONE = "(none)"


def told(root: Any, mission: Any, *, missions: int, chars: int) -> str:
    """What was said before a mission, oldest first, as a text for its prompts; "" if it follows none.

    :param missions: how far back at most.
    :param chars: how many characters at most; the newest go first, and the last that fits in part is cut.
    """
    said: list[str] = []
    left = chars
    for earlier in _before(root, mission, missions):
        if left <= 0:
            break
        text = f"User: {earlier.brief}\nAnswer: {_answer(earlier) or _NONE}"
        said.append(text if len(text) <= left else text[: max(0, left - 1)] + _CUT)
        left -= len(text)
    return "\n".join((_HEAD, *reversed(said))) if said else ""


def turns(root: Any, mission: Any, *, missions: int, chars: int) -> tuple[tuple[str, str], ...]:
    """What was said before a mission, as a model is told of a conversation: briefs with their answers, the oldest first.

    The same bounds as for `told`, but each turn is whole, the newest in any case: so a follow-up's prompt begins with that of the turn
    before it, which the model has read already.
    """
    return tuple((earlier.brief, answer) for earlier, answer in _turns(root, mission, missions, chars))


def told_of(root: Any, mission: Any, *, missions: int, chars: int) -> tuple[str, ...]:
    """The ids of the missions that `turns` tells of, in its order."""
    return tuple(str(earlier.id) for earlier, _ in _turns(root, mission, missions, chars))


def _turns(root: Any, mission: Any, missions: int, chars: int) -> list[tuple[Any, str]]:
    """Earlier missions with their answers, the oldest first."""
    said: list[tuple[Any, str]] = []
    left = chars
    for earlier in _before(root, mission, missions):
        answer = _answer(earlier) or _NONE
        left -= len(earlier.brief) + len(answer)
        if left < 0 and said:
            break
        said.append((earlier, answer))
    return said[::-1]


def is_deep_before(root: Any, mission: Any) -> bool:
    """Whether the mission that this one follows was thought about in several ways; of one without a result, whether its brief asks so."""
    earlier = next(_before(root, mission, 1), None)
    if earlier is None:
        return False
    result = json.loads(earlier.result) if not isinstance(earlier, ledger.Line) and earlier.result else {}
    return bool(result["facets"]) if "facets" in result else bool(kind_of(earlier.brief)[0])


def _before(root: Any, mission: Any, limit: int) -> Iterator[Any]:
    """The missions that one follows, the last first."""
    seen, before = {mission.id}, mission.context
    while before is not None and before not in seen and len(seen) <= limit:
        seen.add(before)
        if (line := ledger.line_of(root, before)) is not None:  # its beginnings are all that is known, and nothing of what was before it
            yield line
            return
        earlier = ledger.mission_of(root, before)
        yield earlier
        before = earlier.context


def with_brief(conversation: str, brief: str) -> str:
    """A brief as the prompts of a follow-up show it."""
    return f"{conversation}\n\nNow the user says: {brief}" if conversation else brief


def _answer(mission: Any) -> str:
    if isinstance(mission, ledger.Line):
        return mission.came if mission.state == ledger.COMPLETE else ""
    if mission.state != ledger.COMPLETE or not mission.result:
        return ""
    result = json.loads(mission.result)
    text = str(result.get("text", ""))
    return unmarked(text) if result.get("citations") else text
