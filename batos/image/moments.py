"""Moments of the image: the whole of it as it was at a time, or just after a transaction.

A moment is a number (seconds since the epoch) or the id of a transaction (16 hex digits, as `history` lists them); both are included.
History goes back to the last pack.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator
from typing import Any

import ZODB
from persistent.timestamp import TimeStamp
from ZODB.POSException import POSKeyError
from ZODB.utils import p64, u64

from batos.errors import HistoryGone, ImageError, InvalidInput

Moment = float | str
_NEAR = 256  # ids, 14 ns each: further off than a datetime's microseconds are
_LAST_YEAR = 9900  # an id counts minutes since 1900 in 32 bits: soon after, it would begin again from there
Snapshot = Callable[..., contextlib.AbstractContextManager[Any]]
"""`LivingImage.snapshot`, or what takes its place where no daemon runs."""


def require_history(db: ZODB.DB) -> None:
    """
    :raises ImageError: for a storage that keeps no history: it would answer with the present.
    """
    if not db.supportsUndo():
        raise ImageError("this storage keeps no history; use file://, or postgres:// with keep_history=1")


def tid_of(db: ZODB.DB, moment: Moment) -> bytes:
    """The transaction id up to which the moment sees.

    :raises InvalidInput: for what is no moment.
    """
    try:
        tid = bytes.fromhex(moment) if isinstance(moment, str) else _stamp(moment)
    except (ValueError, OverflowError, OSError):  # the last, of nanoseconds: no year that the system knows
        tid = b""
    if len(tid) != 8:
        raise InvalidInput(f"{moment!r} is no moment: give seconds since the epoch, or the id of a transaction (16 hex digits)")
    return min(tid, bytes(db.lastTransaction()))


@contextlib.contextmanager
def looking_at(db: ZODB.DB, snapshot: Snapshot, moment: Moment | None) -> Iterator[Any]:
    """The root as of that moment, for reading; None: as of now.

    :raises HistoryGone: for a moment before the last pack, or before there was an image.
    :raises ImageError: for a storage that keeps no history.
    """
    if moment is None:
        with snapshot() as root:
            yield root
        return
    require_history(db)
    tid = tid_of(db, moment)
    try:
        with snapshot(at=tid) as root:
            if "lobby" not in root:
                raise HistoryGone(f"there was no image yet at {when(tid)}")
            yield root
    except POSKeyError:
        raise _gone(db, tid) from None


def _gone(db: ZODB.DB, tid: bytes) -> HistoryGone:
    """Why there is nothing to be seen at a moment: the image is younger, or that was packed."""
    with contextlib.closing(db.storage.iterator()) as transactions:
        first = next(iter(transactions), None)
    if first is None or first.status == "p":
        return HistoryGone(
            f"the image as of {when(tid)} is not kept any more, or there was none: history goes back to the last pack (`history_days`)"
        )
    if tid < first.tid:
        return HistoryGone(f"there was no image yet at {when(tid)}; it began at {when(first.tid)}")
    return HistoryGone(f"the image as of {when(tid)} is not whole: history goes back to the last pack (`history_days`)")


def seconds_of(tid: bytes) -> float:
    """When a transaction was committed, in seconds since the epoch."""
    return float(TimeStamp(tid).timeTime())


def when(tid: bytes) -> str:
    """The moment of a transaction, for messages: in UTC."""
    return datetime.datetime.fromtimestamp(seconds_of(tid), datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _stamp(seconds: float) -> bytes:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    if moment.year > _LAST_YEAR:
        return b"\xff" * 8
    stamp = TimeStamp(moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second + moment.microsecond / 1e6)
    found = max(0, u64(stamp.raw()) - _NEAR)
    for step in (1 << bit for bit in reversed(range(_NEAR.bit_length()))):  # the last whose time is told as this one, or earlier
        if seconds_of(p64(found + step)) <= seconds:
            found += step
    return p64(found)  # type: ignore[no-any-return]
