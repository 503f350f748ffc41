"""Items of a comparison: recorded missions of a persona, and given briefs; and what they probably cost."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batos.autotelic.replay_selection import can_be_tried
from batos.comparisons.limits import CompareLimits
from batos.comparisons.variant import Variant
from batos.image import journal, ledger
from batos.objects import Root, UvmObject

_USUAL = (3.0, 900.0, 10.0)  # inferences, tokens and seconds of a mission where no recorded one tells


def recorded(root: Root, persona: str, match: str | None, count: int, looked_at: int) -> list[str]:
    """Return the ids of the newest missions that a persona has thought through and that can be thought through again, oldest first.

    :param match: words that are in their briefs, in any case; None: any brief.
    :param looked_at: number of missions that are looked at.
    """
    words = (match or "").casefold()
    fitting = (
        mission
        for mission in itertools.islice(ledger.newest_first(root), looked_at)
        if not mission.message
        and can_be_tried(mission)
        and words in str(mission.brief).casefold()
        and _persona_of(root, mission) == persona
    )
    return [str(mission.id) for mission in itertools.islice(fitting, count)][::-1]


def _persona_of(root: Root, mission: UvmObject) -> str:
    """Return the persona that a mission went to, in lower case; empty if that is not known."""
    told = (json.loads(mission.result) or {}).get("persona") if mission.result else None
    if told is None and (route := journal.route_of(root, str(mission.id))) is not None:
        told = json.loads(route)["persona"]
    return str(told or "").lower()


class _Cost(NamedTuple):
    inferences: float
    tokens: float
    seconds: float

    def times(self, factor: float) -> _Cost:
        return _Cost(*(part * factor for part in self))


def estimated(root: Root, variant: Variant, items: Sequence[Mapping[str, Any]], judge: str, limits: CompareLimits) -> dict[str, Any]:
    """Return what a comparison probably costs: `inferences`, `tokens`, `minutes`, and `large` where its user is to be asked first.

    A recorded mission costs nothing on the side of what there is, and what it cost then on the other side. A given brief costs the mean of
    the persona's missions on both sides. A direct brief costs the mean of an inference.
    """
    found = [_cost_of(root, ledger.mission_of(root, item["mission"])) for item in items if "mission" in item]
    others = found or [
        _cost_of(root, ledger.mission_of(root, id)) for id in recorded(root, variant.persona, None, limits.missions, limits.looked_at)
    ]
    mean = _Cost(*map(statistics.fmean, zip(*others, strict=True))) if others else _Cost(*_USUAL)
    once = mean.times(1 / max(1.0, mean.inferences))
    parts = [*found, *((once if item.get("depth") == "direct" else mean).times(2.0) for item in items if "mission" not in item)]
    if judge == "alfred":
        parts.append(once.times(2.0 * len(items)))
    total = _Cost(*map(sum, zip(*parts, strict=True)))
    large = total.inferences > limits.large or total.seconds / 60 > limits.large_minutes
    return {"inferences": round(total.inferences), "tokens": round(total.tokens), "minutes": round(total.seconds / 60, 1), "large": large}


def _cost_of(root: Root, mission: UvmObject) -> _Cost:
    """Return what a mission cost, of its result or of its journal."""
    usage = (json.loads(mission.result) or {}).get("usage") if mission.result else None
    if usage:
        return _Cost(usage["inferences"], usage["prompt_tokens"] + usage["answer_tokens"], usage["model_ms"] / 1000)
    entries = journal.load(root, str(mission.id))
    tokens = sum(one.prompt_tokens + one.answer_tokens for one in entries)
    return _Cost(len(entries), tokens, sum(one.total_ms for one in entries) / 1000)
