"""Moments at which missions are seen as they were: just before the attempt that failed, or as the image is now."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import ZODB
from ZODB.POSException import POSError
from ZODB.utils import p64, u64

from batos.errors import HistoryGone
from batos.image import history, ledger, transaction_undo
from batos.image.history import when
from batos.image.living_image import LivingImage
from batos.objects import Root


class StepMoment(NamedTuple):
    """Moment as of which a mission is thought again."""

    before: bytes | None
    """The first transaction that is not seen; None: the image is seen as it is now."""
    said: str
    """The moment in words, and where it is not an earlier one, why."""


NOW = StepMoment(None, "the image as it is now")


def moment_of(image: LivingImage, root: Root, id: str) -> StepMoment:
    """Return the moment as of which a mission is thought again: that of its last attempt, where it has ended or failed."""
    mission, failures = ledger.mission_of(root, id), ledger.failures(root, id=id, limit=1)
    if not image.db.supportsUndo():
        return NOW._replace(said="the image as it is now: this storage keeps no history")
    before = b""
    if mission.state == ledger.COMPLETE:
        try:
            before = transaction_undo.commit_of(image.db, root, id)
        except HistoryGone:
            return NOW._replace(said="the image as it is now: as it was before this mission it is no longer kept (`image.history_days`)")
    elif failures:
        saw = failures[0]["context"].get("saw")  # an earlier version did not note it: then it is the moment of the failure itself
        before = bytes.fromhex(saw) if saw else p64(u64(history.tid_of(image.db, failures[0]["at"])) + 1)
    if not before:
        return NOW
    if not is_whole(image.db, before):
        return NOW._replace(said=f"the image as it is now: as it was ({when(before)}) it is no longer kept (`image.history_days`)")
    return StepMoment(before, f"the image as it was {when(before)}")


def is_whole(db: ZODB.DB, before: bytes) -> bool:
    """Return True if history reaches back to the image before a transaction: no pack has dropped what only that moment had."""
    try:
        history.require_history(db)
        transactions: Any = db.storage.iterator(before)
        with contextlib.closing(transactions):
            after = next(iter(transactions), None)
    except (POSError, NotImplementedError, AttributeError):
        return True  # a server that does not tell; a record that is gone is met where it is read
    return after is None or after.status != "p"
