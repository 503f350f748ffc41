"""Thinking: the inferences of one mission, taken from the journal where they were paid for, else asked and journaled.

Nothing is used before it is durable. While a cycle is replayed under the gate it may not wait for a model; then a
journal miss is a NeedInference, which leaves the gate, is paid outside, and the cycle is replayed again.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from batos.bridge.types import ChatReply, ChatRequest, Inference
from batos.config import Settings
from batos.errors import BatosSignal, InferenceFailed
from batos.image import journal
from batos.image.living import LivingImage
from batos.mind.events import Events
from batos.mind.router import Route


class NeedInference(BatosSignal):
    """A cycle under the gate needs an inference that the journal does not have."""

    def __init__(self, request: ChatRequest, key: bytes, occurrence: int) -> None:
        super().__init__(request.model)
        self.request, self.key, self.occurrence = request, key, occurrence


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
    ) -> None:
        """
        :param mission: the mission's record (`ledger.describe`).
        :param models: from a persona's role to the name of a model.
        :param options: Ollama's options of every inference (num_ctx, num_predict, ...).
        """
        self.mission, self.id = mission, str(mission["id"])
        self.settings, self.model_of, self.route = settings, models, route
        self._inference, self._image, self._events = inference, image, events
        self._options = {**options, "seed": int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:4], "big") >> 1}
        self._recorded: dict[tuple[bytes, int], journal.Inference] = {}
        self._failed: dict[tuple[bytes, int], InferenceFailed] = {}
        self._asked: dict[bytes, int] = {}
        self.begun = time.monotonic()
        self.gated = False
        self.state, self.persona, self.why = "IDLE", "", ""
        self.reached = "IDLE"  # the state of thought, also after it FAILED
        self.paid = self.replayed = 0
        self.used: list[journal.Inference] = []
        self.answer = ""  # of the last cycle that came to COMPLETE

    def recall(self) -> None:
        """Load what earlier attempts paid for."""
        self._recorded = {(e.key, e.occurrence): e for e in self._image.read(journal.load, self.id)}

    def restart(self, *, gated: bool) -> None:
        """Begin the cycle anew, from the journal."""
        self._asked.clear()
        self.used.clear()
        self.replayed = 0
        self.gated = gated
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
        key = journal.key_of(
            {"digest": await self._inference.digest(request.model), "system": system, "user": user, "schema": schema, "options": chosen}
        )
        occurrence = self._asked.get(key, 0)
        self._asked[key] = occurrence + 1
        known = self._recorded.get((key, occurrence))
        if known is not None:
            self.replayed += 1
        elif self.gated and (key, occurrence) in self._failed:
            raise self._failed[key, occurrence]
        elif self.gated:
            raise NeedInference(request, key, occurrence)
        else:
            known = await self.pay(request, key, occurrence, part)
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

    async def pay(self, request: ChatRequest, key: bytes, occurrence: int, part: str | None = "") -> journal.Inference:
        """Ask the model and journal its answer; returns when that is durable."""
        hear = None
        if part != "" and self._events.watched(self.id):

            def hear(text: str) -> None:
                self.publish("token", text=text, facet=part)

        reply = await self._inference.chat(request, deadline_s=self.settings.inference_deadline_s, on_text=hear)
        paid = journal.Inference(
            key, occurrence, reply.text, reply.model, reply.digest[:16], reply.prompt_tokens, reply.answer_tokens,
            round(reply.load_ms, 1), round(reply.total_ms, 1), reply.done_reason, journal.now(),
        )  # fmt: skip
        self._recorded[key, occurrence] = paid
        await self._image.system(journal.add, self.id, paid, mission=self.id)
        self.paid += 1
        return paid

    async def settle(self, need: NeedInference) -> None:
        """Pay what a replay under the gate needs; where that fails, the replay is where it fails: a cycle may do without it."""
        try:
            await self.pay(need.request, need.key, need.occurrence)
        except InferenceFailed as e:
            self._failed[need.key, need.occurrence] = e

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
