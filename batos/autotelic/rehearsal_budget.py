"""Budget of one rehearsal, and the inferences it has paid for: kept in the image, so that nothing is paid twice.

It is a journal of its own, beside those of the missions: the cost of a rehearsal does not count for any mission. The time limit of a piece
of work that waits for others has two parts. Its own time is limited, and so is its waiting, each by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from batos.autotelic import changes, schema
from batos.autotelic.change_preparation import NotYet
from batos.config.limits import Limits, limit
from batos.image import journal
from batos.image.journal import JournalEntry
from batos.image.living_image import LivingImage
from batos.missions.purse import Purse as Purse
from batos.objects import Root


@dataclass(frozen=True, slots=True)
class RehearsalLimits(Limits):
    """Limits of the rehearsal of a proposed change."""

    missions: int = limit(8, ge=1, le=1000)
    """Greatest number of recorded missions in one rehearsal."""
    least: int = limit(3, ge=1, le=1000)
    """Least number of comparable missions in a rehearsal; with fewer the proposal is refused."""
    inferences: int = limit(48, ge=0, le=100_000)
    """Greatest number of inferences that one rehearsal may pay for, if the journal has no answer."""
    tokens: int = limit(30_000, ge=0, le=1_000_000_000)
    """Greatest number of tokens, read and written, for the inferences of one rehearsal."""
    limit_s: float = limit(1800.0, gt=0, le=7 * 86400)
    """Seconds for one rehearsal, and again for its waits for users' missions."""
    tries: int = limit(3, ge=1, le=100)
    """Greatest number of starts of a rehearsal, including those after restarts of the daemon."""
    costlier: float = limit(0.5, ge=0, le=100)
    """Share by which a mission may cost more tokens before the change counts as worse."""
    tasks: int = limit(10, ge=1, le=1000)
    """Number of the image's methods that a new expert for methods has to write, and of general tasks outside of any training."""
    alike: float = limit(0.5, gt=0, le=1)
    """Similarity by words, from 0 to 1, from which an answer counts as the one that a user has rated."""
    slower: float = limit(2.0, ge=1, le=1000)
    """Factor by which a mission may take longer with another model before the change counts as worse."""
    better: float = limit(0.01, ge=0, le=1)
    """Difference of entropy up to which a change counts as neither better nor worse."""


class WorkTime:
    """For one piece of work, which may wait in several tasks at once. On the loop's thread."""

    def __init__(self, limit_s: float, waiting_s: float | None = None) -> None:
        """
        :param limit_s: seconds for the work itself.
        :param waiting_s: seconds for all its waits; None: as many as `limit_s`.
        """
        # seconds left: while a rehearsal waits (True), and while it runs (False)
        self._left = {True: limit_s if waiting_s is None else waiting_s, False: limit_s}
        self._waiting = 0
        self._waits = False
        self._timer: asyncio.Timeout | None = None

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[WorkTime]:
        """See that the block, which is the work, is done in time.

        :raises TimeoutError: when its own time was up.
        :raises NotYet: when it has waited for as long.
        """
        timer = asyncio.timeout(self._left[False])
        try:
            async with timer:
                self._timer = timer
                try:
                    yield self
                finally:
                    self._timer = None
        except TimeoutError:
            if timer.expired() and self._waits:
                raise NotYet("those that it waits for left no time for it") from None
            raise

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the block as waiting and not as work."""
        self._waiting += 1
        self._turn()
        try:
            yield
        finally:
            self._waiting -= 1
            self._turn()

    def _turn(self) -> None:
        waits, timer = self._waiting > 0, self._timer
        if waits is self._waits or timer is None or timer.expired() or (end := timer.when()) is None:
            return
        now = asyncio.get_running_loop().time()
        self._left[self._waits] = end - now
        self._waits = waits
        timer.reschedule(now + self._left[waits])


class RehearsalPayments:
    """Payments of one change's rehearsal, in the image."""

    def __init__(self, image: LivingImage, number: int) -> None:
        """
        :param image: the living one, not a mirror: what was paid for is kept there.
        :param number: number of the change.
        """
        self._image, self._number = image, number

    @property
    def name(self) -> str:
        """See `Payments`."""
        return f"the rehearsal of change {self._number}"

    def load(self) -> dict[str, journal.InferenceRecord]:
        """See `Payments`."""
        prefix = f"{self._number} "
        return {key.removeprefix(prefix): paid for key, paid in self._image.read(_load, self._number).items()}

    async def keep(self, key: str, paid: journal.InferenceRecord) -> None:
        """See `Payments`."""
        await self._image.system(_keep, f"{self._number} {key}", paid)


def forget_payments(root: Root) -> None:
    """System transaction: delete inferences that were paid for changes which are decided now."""
    held = schema.part_of(root, "rehearsals")
    undecided = {one.number for one in changes.newest_first(root) if one.state == changes.PROPOSED}
    for key in [key for key in held.paid if int(key.split(" ", 1)[0]) not in undecided]:
        del held.paid[key]
    for number in [number for number in held.begun if number not in undecided]:
        del held.begun[number]


def begin_rehearsal(root: Root, number: int, limit: int) -> int | None:
    """System transaction: count a rehearsal before it starts. Return the number of rehearsals, or None above `limit`."""
    begun = schema.part_of(root, "rehearsals").begun
    count = int(begun.get(number, 0)) + 1
    if count > limit:
        return None
    begun[number] = count
    return count


def take_back_rehearsal(root: Root, number: int) -> None:
    """System transaction: do not count a rehearsal that was interrupted in good order or must be repeated."""
    begun = schema.part_of(root, "rehearsals").begun
    if number in begun:
        begun[number] = max(0, int(begun[number]) - 1)


def _keep(root: Root, key: str, paid: journal.InferenceRecord) -> None:
    schema.part_of(root, "rehearsals").paid[key] = JournalEntry(paid)


def _load(root: Root, number: int) -> dict[str, journal.InferenceRecord]:
    paid = schema.part_of(root, "rehearsals").paid
    return {key: entry.inference for key, entry in paid.items(f"{number} ", f"{number}!") if entry.intact()}
