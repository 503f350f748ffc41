"""Retention: the journals of old missions lose their texts and keep what they cost; their pictures go, too.

Missions are dealt with in the order of their acceptance, a few in one system transaction, so that no commit waits long.
One that has not ended is passed over, and dealt with when it has: it may be paused, or wait for an answer, for ever. So is one from
the future: a clock was wrong when it was accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, NamedTuple

from batos.errors import ImageDamaged
from batos.image import journal, pictures
from batos.image.chain import next_numbered, of_numbers
from batos.image.ledger import FINAL, MILESTONE, ledger_of
from batos.image.living import LivingImage

RUN_LIMIT = 20_000  # missions in one run
_BATCH = 32  # missions in one system transaction


class Due(NamedTuple):
    """What a look at the next missions came to."""

    missions: list[tuple[int, str]]
    """Number and id of those to deal with: at most a stretch, and those passed over that are due by now."""
    mark: tuple[int, tuple[int, ...]]
    """How far that is: the number of the last mission, and those of the ones before it that are passed over."""


async def drop_uploads(image: LivingImage, hours: float) -> int:
    """Let go of pictures that were uploaded for a mission which never came, so many hours ago; how many."""
    dropped, before = 0, time.time() - hours * 3600
    while await asyncio.to_thread(image.read, pictures.unheld, before):
        dropped += await image.system(pictures.forget_unheld, before)
    return dropped


async def retain(image: LivingImage, days: float, limit: int = RUN_LIMIT) -> dict[str, int]:
    """Drop the texts of journals older than `days`, the age counted from the mission's acceptance.

    :returns: `missions` dealt with, and `dropped`, of how many there was anything to drop.
    """
    now = time.time()
    dealt = dropped = 0
    first = True
    while dealt < limit:
        missions, mark = await asyncio.to_thread(image.read, due, now - days * 86400, now, first)
        first = False
        for i in range(0, len(missions), _BATCH):
            dropped += await image.system(drop, missions[i : i + _BATCH])
        dealt += len(missions)
        if not await image.system(move, mark):
            break
    return {"missions": dealt, "dropped": dropped}


def due(root: Any, before: float, now: float, again: bool) -> Due:
    """The next missions to deal with; those behind one that is too young are not looked at.

    :param again: look once more at those that were passed over.
    """
    until, passed_over = _mark(root)
    early = of_numbers(root, passed_over) if again else []
    missions: list[tuple[int, str]] = []
    waiting = [] if again else list(passed_over)
    for mission in (*early, *next_numbered(root, until, MILESTONE)):
        if mission.number > until and before <= mission.accepted <= now:
            break
        if mission.state in FINAL and mission.accepted < before:
            missions.append((mission.number, mission.id))
        else:
            waiting.append(mission.number)
        until = max(until, mission.number)
    return Due(missions, (until, tuple(waiting)))


def drop(root: Any, missions: list[tuple[int, str]]) -> int:
    """System transaction: deal with these missions; of how many there was anything to drop."""
    ledger, dropped = ledger_of(root), 0
    for _, id in missions:
        with contextlib.suppress(ImageDamaged):  # it stays as it is, and the self-audit tells of it
            mission = ledger.missions[id]
            released = pictures.release(root, mission)
            dropped += journal.drop_texts(journal.of(mission)) or released
    return dropped


def move(root: Any, mark: tuple[int, tuple[int, ...]]) -> bool:
    """System transaction: note how far retention is; whether it was not there already."""
    if _mark(root) == mark:
        return False
    costs = ledger_of(root).costs
    costs.retained, costs.passed_over = mark
    return True


def _mark(root: Any) -> tuple[int, tuple[int, ...]]:
    costs = ledger_of(root).costs
    return costs.retained, tuple(costs.passed_over)
