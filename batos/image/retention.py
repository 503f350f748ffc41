"""Retention: the journals of old missions lose their texts and keep what they cost.

Missions are dealt with in the order of their acceptance, a few in one system transaction, so that no commit waits long.
One that has not ended holds up those behind it until it has.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from batos.image import journal
from batos.image.ledger import FINAL, MILESTONE, ledger_of, numbered
from batos.image.living import LivingImage

RUN_LIMIT = 20_000  # missions in one run
_BATCH = 32  # missions in one system transaction


async def retain(image: LivingImage, days: float, limit: int = RUN_LIMIT) -> dict[str, int]:
    """Drop the texts of journals older than `days`, the age counted from the mission's acceptance.

    :returns: `missions` dealt with, and `dropped`, of how many there was anything to drop.
    """
    before = time.time() - days * 86400
    dealt = dropped = 0
    while dealt < limit:
        missions = await asyncio.to_thread(image.read, due, before)
        for i in range(0, len(missions), _BATCH):
            dropped += await image.system(drop, missions[i : i + _BATCH])
        dealt += len(missions)
        if len(missions) < MILESTONE:
            break
    return {"missions": dealt, "dropped": dropped}


def due(root: Any, before: float) -> list[tuple[int, str]]:
    """Number and id of the next missions to deal with: at most a stretch, none if the next is too young or goes on."""
    found = []
    for mission in numbered(root, ledger_of(root).costs.retained, MILESTONE):
        if mission.accepted >= before or mission.state not in FINAL:
            break
        found.append((mission.number, mission.id))
    return found


def drop(root: Any, missions: list[tuple[int, str]]) -> int:
    """System transaction: deal with these missions, which follow each other; of how many there was anything to drop."""
    ledger = ledger_of(root)
    ledger.costs.retained = max(ledger.costs.retained, missions[-1][0])
    return sum(journal.drop_texts(journal.of(ledger.missions[id])) for _, id in missions)
