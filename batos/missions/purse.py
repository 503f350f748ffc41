"""Purse: pays for the inferences of thoughts in mirrors, which no journal has, within an allowance.

What was paid for outlives the daemon (`Payments`), so that nothing is paid twice. Its inferences come after those of users' missions.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from batos.bridge.admission import Ticket, session
from batos.bridge.inference import ChatRequest, Inference
from batos.errors import BatosSignal, InferenceFailed
from batos.image import journal
from batos.mind.inference import JournalPlace

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
        self._under_way = 0
        self._ended = asyncio.Event()

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
        while self._under_way and self.inferences + self._under_way >= self._allowance.inferences:  # facets ask at the same time
            await self._ended.wait()
        if (known := self._paid.get(key)) is not None:
            return known
        if self.is_empty:
            raise Unknown(f"{self._payments.name} has spent what it may", passes=True)
        self._under_way += 1
        try:
            paid = await self._asked(request, place, label)
            self._paid[key] = paid
        finally:
            self._under_way -= 1
            self._ended.set()
            self._ended = asyncio.Event()
        self._on_paid(paid)
        await self._payments.keep(key, paid)
        return paid

    async def _asked(self, request: ChatRequest, place: JournalPlace, label: str) -> journal.InferenceRecord:
        try:
            with session(Ticket(AFTER_USERS, 0)):
                reply = await self._inference.chat(request, deadline_s=self._allowance.deadline_s)
        except InferenceFailed as e:
            if e.may_retry:
                raise Unknown(e.message, passes=True) from e
            raise
        return journal.InferenceRecord(
            place.key, place.occurrence, reply.text, reply.model, reply.digest[:16], reply.prompt_tokens, reply.answer_tokens,
            round(reply.load_ms, 1), round(reply.total_ms, 1), reply.done_reason, journal.now(), place.parts, label,
        )  # fmt: skip
