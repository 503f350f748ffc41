"""Thinking: the inferences of one mission, taken from the journal where they were paid for, else asked and journaled.

Nothing is used before it is durable. While a cycle is replayed under the gate it may not wait for a model; then a
journal miss is a NeedInference, which leaves the gate, is paid outside, and the cycle is replayed again.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from batos.bridge.types import ChatReply, ChatRequest, Inference
from batos.config import Settings
from batos.errors import BatosSignal, InferenceFailed
from batos.image import journal
from batos.image.living import LivingImage
from batos.mind.begun import Begun
from batos.mind.events import Events
from batos.mind.router import Route


class Place(NamedTuple):
    """Where in the journal an inference belongs: its content key, the how-manieth of that content, checksums of its parts."""

    key: bytes
    occurrence: int
    parts: bytes


class NeedInference(BatosSignal):
    """A cycle under the gate needs an inference that the journal does not have."""

    def __init__(self, request: ChatRequest, place: Place) -> None:
        super().__init__(request.model)
        self.request, self.place = request, place


class Thinking:
    """One attempt at one mission, as the states and primitives see it."""

    def __init__(
        self,
        mission: dict[str, Any],
        *,
        inference: Inference,
        image: LivingImage,
        events: Events,
        settings: Settings,
        models: Callable[[str], str],
        options: dict[str, Any],
        route: Callable[[dict[str, Any]], Route],
        on_paid: Callable[[journal.Inference], None] = lambda paid: None,
    ) -> None:
        """
        :param mission: the mission's record (`ledger.describe`).
        :param models: from a persona's role to the name of a model.
        :param options: Ollama's options of every inference (num_ctx, num_predict, ...).
        :param on_paid: hears of each inference that a model was asked for.
        """
        self.mission, self.id = mission, str(mission["id"])
        self.settings, self.model_of, self.route = settings, models, route
        self._inference, self._image, self._events = inference, image, events
        self._on_paid = on_paid
        self._options = {**options, "seed": int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:4], "big") >> 1}
        self._recorded: dict[tuple[bytes, int], journal.Inference] = {}
        self._failed: dict[tuple[bytes, int], InferenceFailed] = {}
        self._asked: dict[bytes, int] = {}
        self._begun = Begun(self.id, image, every_s=settings.partial_s, every_tokens=settings.partial_tokens)
        self.begun = time.monotonic()
        self.gated = False
        self.state, self.persona, self.why = "IDLE", "", ""
        self.reached = "IDLE"  # the state of thought, also after it FAILED
        self.paid = self.replayed = 0
        self.used: list[journal.Inference] = []
        self.answer = ""  # of the last cycle that came to COMPLETE

    def recall(self) -> None:
        """Load what earlier attempts paid for."""
        self._begun.recall()
        self._recorded = {(e.key, e.occurrence): e for e in self._image.read(journal.load, self.id)}

    @property
    def live_state(self) -> str:
        """The state as it is told while the mission is not final: a cycle that FAILED may be followed by another."""
        return self.reached if self.state in ("COMPLETE", "FAILED") else self.state

    def restart(self, *, gated: bool) -> None:
        """Begin the cycle anew, from the journal."""
        self._asked.clear()
        self.used.clear()
        self.replayed = 0
        self.gated = gated
        self.state = self.reached = "IDLE"
        if not gated:
            self._failed.clear()

    async def chat(
        self, role: str, system: str, user: str, *, schema: dict[str, Any] | None = None, part: str | None = None, **options: Any
    ) -> ChatReply:
        """One inference of this mission.

        :param role: the persona's role, or a model's name.
        :param part: the facet that speaks, for the events; None for the mission's own voice; "" for silence.
        :raises InferenceFailed: with its cause.
        """
        chosen = {**self._options, **options}
        request = ChatRequest(self.model_of(role), system, user, schema, tuple(sorted(chosen.items())))
        digest = await self._inference.digest(request.model)
        content = journal.content_of(digest, system, user, schema, chosen)
        key = journal.key_of(content)
        place = Place(key, self._asked.get(key, 0), journal.parts_of(content))
        self._asked[key] = place.occurrence + 1
        known = self.known(place)
        if known is not None:
            self.replayed += 1
        elif self.gated and place[:2] in self._failed:
            raise self._failed[place[:2]]
        elif self.gated:
            raise NeedInference(request, place)
        else:
            known = await self.pay(request, place, part)
        self.used.append(known)
        return ChatReply(
            known.text,
            known.model,
            known.digest,
            known.prompt_tokens,
            known.answer_tokens,
            known.load_ms,
            known.total_ms,
            known.done_reason,
        )

    def known(self, place: Place) -> journal.Inference | None:
        """The inference that was paid for already, if it was."""
        return self._recorded.get(place[:2])

    async def pay(self, request: ChatRequest, place: Place, part: str | None = "") -> journal.Inference:
        """Ask the model and journal its answer; returns when that is durable."""
        hear: Callable[[str], None] | None = None
        if part != "" and self._events.watched(self.id):

            def hear(text: str) -> None:
                self.publish("token", text=text, facet=part)

        begun, tokens = self._begun.of(place[:2])
        if begun and not await self._inference.continues(request.model):
            self._begun.drop(place[:2])
            begun = ""
        if begun:
            request = dataclasses.replace(request, begun=begun, begun_tokens=tokens)
            if hear is not None:
                hear(begun)
        if request.schema is None:  # the grammar of a schema begins at the beginning
            hear = self._begun.listener(place[:2], hear)
        reply = await self._inference.chat(request, deadline_s=self.settings.inference_deadline_s, on_text=hear)
        self._begun.drop(place[:2])
        paid = journal.Inference(
            place.key, place.occurrence, reply.text, reply.model, reply.digest[:16], reply.prompt_tokens, reply.answer_tokens + tokens,
            round(reply.load_ms, 1), round(reply.total_ms, 1), reply.done_reason, journal.now(), place.parts,
        )  # fmt: skip
        self._recorded[place[:2]] = paid
        self._on_paid(paid)
        await self._image.system(journal.add, self.id, paid, mission=self.id)
        self.paid += 1
        return paid

    async def settle(self, need: NeedInference) -> None:
        """Pay what a replay under the gate needs; where that fails, the replay is where it fails: a cycle may do without it."""
        try:
            await self.pay(need.request, need.place)
        except InferenceFailed as e:
            self._failed[need.place[:2]] = e

    def publish(self, kind: str, **facts: Any) -> None:
        """An event of this mission."""
        if not self._events.watched(self.id):
            return
        self._events.publish(
            self.id,
            {
                "type": kind,
                "id": self.id,
                "state": self.state,
                "persona": self.persona,
                "elapsed_s": round(time.monotonic() - self.begun, 4),
                **facts,
            },
        )

    def usage(self) -> dict[str, Any]:
        """What this mission's answer cost: inferences, tokens, model time in milliseconds."""
        return {
            "inferences": len(self.used),
            "replayed": self.replayed,
            "prompt_tokens": sum(e.prompt_tokens for e in self.used),
            "answer_tokens": sum(e.answer_tokens for e in self.used),
            "model_ms": round(sum(e.total_ms for e in self.used), 1),
            "models": sorted({e.model for e in self.used}),
        }


_current: contextvars.ContextVar[Thinking] = contextvars.ContextVar("batos_thinking")


@contextlib.contextmanager
def thinking(attempt: Thinking) -> Iterator[Thinking]:
    """Make `attempt` the current one for the primitives that run inside."""
    token = _current.set(attempt)
    try:
        yield attempt
    finally:
        _current.reset(token)


def current() -> Thinking:
    """The attempt in which this code runs; for primitives, whose arguments come from messages."""
    return _current.get()
