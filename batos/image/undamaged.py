"""The missions, past those whose record is damaged."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from batos.errors import ImageDamaged
from batos.image.ledger import ledger_of
from batos.objects import UvmObject


def newest_first(root: Any) -> Iterator[UvmObject]:
    """As `ledger.newest_first`, past records that are damaged: who only looks for what is of use shall not fail of one of them.
    With one those before it are left out, down to a milestone."""
    held, number = ledger_of(root), sys.maxsize
    mission = held.newest.mission
    while mission is not None:
        try:
            number, before = mission.number, mission.before
        except ImageDamaged:
            try:
                number = held.milestones.maxKey(number - 2)  # the one before the damaged one, or an earlier one
            except ValueError:
                return
            mission = held.milestones[number]
            number += 1  # if this one is damaged too, the search goes on below it
            continue
        yield mission
        mission = before
