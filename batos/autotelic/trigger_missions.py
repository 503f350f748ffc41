"""The alarms: triggers that fired, in the image. Each becomes one system mission, and is quiet until its measurement has recovered.

The firing is durable before the mission is accepted. A mission that is then missing from the ledger, after a kill or because of a full
queue, is enqueued at the next look. So each is enqueued exactly once, whatever happens between. One at a time: while one of these
missions has not ended, nothing fires.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import structlog

from batos.autotelic import schema, telemetry, triggers
from batos.autotelic.rule_proposals import learned
from batos.autotelic.telemetry import Bucket
from batos.autotelic.triggers import Entropy, Measurement, Seen, TriggerLimits
from batos.concurrency import in_helper
from batos.image.living_image import LivingImage
from batos.objects import Root

log = structlog.get_logger("batos.autotelic")

BRIEF = (
    "self_improvement {trigger}: measured, in the last {hours:.0f} hours where it says nothing else: {words} "
    "Find what most likely lies behind it, and name the one change that would help most."
)
KEPT = 256  # greatest number of triggers that are quiet at the same time


class Fired(NamedTuple):
    """A trigger that fired and has not recovered. Stored as a plain tuple."""

    trigger: str
    key: str
    mission: str
    at: float
    words: str


class Spans(NamedTuple):
    """Spans that triggers compare: `TriggerLimits.recent_s` and `window_s`, with `SensesLimits.keys` rows a table."""

    recent_s: float
    window_s: float
    keys: int


class TriggerMonitor:
    """Looks at the measurements and fires. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        limits: TriggerLimits,
        spans: Spans,
        *,
        submit: Callable[[str, str], Awaitable[Any]],
        since: Callable[[float], Awaitable[list[Bucket]]],
        entropy: Callable[[], Entropy],
        now: Callable[[], float] = time.time,
    ) -> None:
        """:param submit: accepts a system mission from an id and a brief.
        :param since: returns the buckets of the telemetry since a time.
        :param entropy: returns the state of the entropy metric.
        """
        self._image, self._limits, self._spans = image, limits, spans
        self._submit, self._since, self._entropy, self.now = submit, since, entropy, now
        self._looking = asyncio.Lock()  # two concurrent looks would both see triggers that are not quiet yet

    async def check(self) -> Fired | None:
        """Forget recovered triggers, and fire the most urgent one that is not quiet. Return the fired trigger.

        :raises BatosError: if its mission could not be accepted; it is enqueued at the next look.
        """
        async with self._looking:
            return await self._check()

    async def _check(self) -> Fired | None:
        for one in self._image.read(_fired):
            if not self._image.read(schema.is_known_mission, one.mission):
                await self._enqueue(one)
        buckets = await self._since(0.0)
        seen = await in_helper(self._image.read, self._seen, buckets, self._entropy())
        found = list(triggers.measured(seen, self._limits))
        fired = self._image.read(_fired)
        quiet = {(one.trigger, one.key) for one in fired}
        if over := _recovered(quiet, found):
            await self._image.system(let_fire_again, sorted(over))
            log.info("triggers_recovered", triggers=[" ".join(filter(None, one)) for one in sorted(over)])
        due = next((one for one in found if one.fires and (one.trigger, one.key) not in quiet), None)
        if due is None or len(fired) >= KEPT or self._image.read(_is_under_way):
            return None
        new: Fired = Fired(*await self._image.system(fire, due.trigger, due.key, due.words, self.now()))
        log.info("trigger_fired", trigger=new.trigger, key=new.key, mission=new.mission, measured=new.words)
        await self._enqueue(new)
        return new

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`: alarms that fired and have not recovered, and the number ever fired."""
        return {"fired": [one._asdict() for one in self._image.read(_fired)], "ever": self._image.read(_ever)}

    async def _enqueue(self, fired: Fired) -> None:
        brief = BRIEF.format(trigger=fired.trigger, hours=self._spans.window_s / 3600, words=fired.words)
        await self._submit(fired.mission, brief)

    def _seen(self, root: Root, buckets: Sequence[Bucket], entropy: Entropy) -> Seen:
        now, spans = self.now(), self._spans
        window = [bucket for bucket in buckets if bucket["ended"] > now - spans.window_s]
        recent = [bucket for bucket in window if bucket["ended"] > now - spans.recent_s]
        sizes = [bucket["levels"].get("image_bytes", 0) for bucket in window] or [0]
        return Seen(
            now=now,
            recent=telemetry.summed_buckets(recent, spans.keys),
            before=telemetry.summed_buckets(window[: len(window) - len(recent)], spans.keys),
            window=telemetry.summed_buckets(window, spans.keys),
            whole=telemetry.summed_buckets(buckets, spans.keys),
            bytes_then=sizes[0],
            bytes_now=sizes[-1],
            entropy=entropy,
            personas=tuple(root["lobby"].personas),
            methods=telemetry.used_methods(root),
            learned=sum(learned(root)) if self._limits.syntheses else 0,
        )


def _recovered(quiet: set[tuple[str, str]], found: Sequence[Measurement]) -> set[tuple[str, str]]:
    """Return the quiet triggers whose measurement is low again, or is missing if that means the same."""
    there = {(one.trigger, one.key): one for one in found}
    return {one for one in quiet if (there[one].recovered if one in there else one[0] not in triggers.STAYS)}


def _fired(root: Root) -> list[Fired]:
    return sorted((Fired(*row) for row in schema.part_of(root, "triggers").fired.values()), key=lambda one: one.at)


def _is_under_way(root: Root) -> bool:
    """Return True if the mission of the trigger that fired last has not ended."""
    return schema.is_pending_mission(root, schema.part_of(root, "triggers").last)


def _ever(root: Root) -> int:
    return int(schema.part_of(root, "triggers").ever)


def fire(root: Root, trigger: str, key: str, words: str, at: float) -> tuple[Any, ...]:
    """System transaction: record that a trigger fired, with the id of its mission."""
    held = schema.part_of(root, "triggers")
    held.ever += 1
    held.last = f"self_improvement-{held.ever}-{trigger}"
    held.fired[f"{trigger} {key}"] = row = (trigger, key, held.last, at, words)
    return row


def let_fire_again(root: Root, over: Sequence[tuple[str, str]]) -> None:
    """System transaction: re-enable triggers."""
    fired = schema.part_of(root, "triggers").fired
    for trigger, key in over:
        fired.pop(f"{trigger} {key}", None)
