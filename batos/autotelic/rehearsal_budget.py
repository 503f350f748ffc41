"""Budget of one rehearsal, and the inferences it has paid for: kept in the image, so that nothing is paid twice.

It is a journal of its own, beside those of the missions: the cost of a rehearsal is no mission's cost. The time limit of a piece of
work that waits for others has two parts: its own time is limited, and so is its waiting, each by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from batos.autotelic import changes, schema
from batos.autotelic.change_preparation import NotYet
from batos.bridge.admission import Ticket, session
from batos.bridge.inference import ChatRequest, Inference
from batos.config.limits import Limits, limit
from batos.errors import BatosSignal, InferenceFailed
from batos.image import journal
from batos.image.journal import JournalEntry
from batos.image.living_image import LivingImage
from batos.mind.inference import JournalPlace
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


AFTER_USERS = (True, 0)
"""Rank of a rehearsal's inferences: that of system missions."""


class Unknown(BatosSignal):
    """Signal that a thought in a mirror needs what is not available there, so that its outcome is unknown."""

    def __init__(self, why: str, *, passes: bool = False) -> None:
        """
        :param passes: True if it may be available later: with a larger allowance, or when the model's host answers again.
        """
        super().__init__(why)
        self.passes = passes


class Allowance(NamedTuple):
    """Limits of what thoughts in mirrors may pay for inferences that no journal has."""

    inferences: int
    tokens: int
    """Read and written."""
    deadline_s: float
    """Seconds for one inference: the setting `inference.deadline_s`."""
    model_s: float = math.inf
    """Seconds of model time, without loads."""


class Payments(Protocol):
    """Store of the inferences that a purse has paid for; it outlives the daemon."""

    @property
    def name(self) -> str:
        """Return what pays, for messages: `the rehearsal of change 3`."""
        ...

    def load(self) -> dict[str, journal.InferenceRecord]:
        """Return what was paid for before, by key."""
        ...

    async def keep(self, key: str, paid: journal.InferenceRecord) -> None:
        """Return once a paid inference is durable."""
        ...


class Purse:
    """Pays for inferences of thoughts in mirrors, within an allowance."""

    def __init__(
        self,
        inference: Inference,
        payments: Payments,
        allowance: Allowance,
        *,
        quiet: Callable[[], Awaitable[None]],
        on_paid: Callable[[journal.InferenceRecord], None] = lambda paid: None,
    ) -> None:
        """
        :param quiet: returns when no user's mission is under way or waits.
        :param on_paid: hears of each inference that a model was asked for.
        """
        self._inference, self._payments, self._allowance = inference, payments, allowance
        self._quiet, self._on_paid = quiet, on_paid
        self._paid = payments.load()

    @property
    def inferences(self) -> int:
        """Return the number of paid inferences, over restarts."""
        return len(self._paid)

    @property
    def tokens(self) -> int:
        """Return their cost, in tokens read and written."""
        return sum(one.prompt_tokens + one.answer_tokens for one in self._paid.values())

    @property
    def model_s(self) -> float:
        """Return the model time that they took, in seconds, without loads."""
        return sum(one.total_ms - one.load_ms for one in self._paid.values()) / 1000

    @property
    def is_empty(self) -> bool:
        """Return True if the allowance is spent."""
        allowance = self._allowance
        return self.inferences >= allowance.inferences or self.tokens >= allowance.tokens or self.model_s >= allowance.model_s

    async def pay(self, mission: str, request: ChatRequest, place: JournalPlace, label: str) -> journal.InferenceRecord:
        """Return an answer that the mission's journal lacks. An inference that was paid for once is not paid for again.

        :raises Unknown: if the allowance is spent, or the service fails in a way that may pass.
        :raises InferenceFailed: as the model failed.
        """
        key = f"{mission} {place.key.hex()} {place.occurrence}"
        if (known := self._paid.get(key)) is not None:
            return known
        await self._quiet()
        if (known := self._paid.get(key)) is not None:
            return known
        if self.is_empty:
            raise Unknown(f"{self._payments.name} has spent what it may", passes=True)
        try:
            with session(Ticket(AFTER_USERS, 0)):
                reply = await self._inference.chat(request, deadline_s=self._allowance.deadline_s)
        except InferenceFailed as e:
            if e.may_retry:
                raise Unknown(e.message, passes=True) from e
            raise
        paid = journal.InferenceRecord(
            place.key, place.occurrence, reply.text, reply.model, reply.digest[:16], reply.prompt_tokens, reply.answer_tokens,
            round(reply.load_ms, 1), round(reply.total_ms, 1), reply.done_reason, journal.now(), place.parts, label,
        )  # fmt: skip
        self._paid[key] = paid
        self._on_paid(paid)
        await self._payments.keep(key, paid)
        return paid


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
