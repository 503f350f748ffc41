"""Deliveries: requests to hooks, each of which becomes one mission.

delivery ─ proof ─ repetition? ─ body ─ conditions ─ brief ─ rate ─ `Scheduler.submit(id of the delivery)` ─ mission

What knows no secret learns nothing: not even whether there is such a hook.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import structlog

from batos.concurrency import in_helper
from batos.config.limits import Limits, limit
from batos.errors import Busy, HookRefused, InvalidInput, MessageTooLarge
from batos.image.living_image import LivingImage
from batos.tools.secrets import SecretStore
from batos.triggers import hooks
from batos.triggers.bodies import parsed_body
from batos.triggers.hooks import ORIGIN, KeptHook
from batos.triggers.signatures import HookDelivery, is_proved, new_secret
from batos.triggers.templates import field_of, filled

log = structlog.get_logger("batos.hooks")
_MINUTE_S = 60.0
_PAUSED_AGAIN_S = 300
_TELL_S = 10.0
_NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class HookLimits(Limits):
    """Limits of the hooks."""

    body_bytes: int = limit(512 * 1024, ge=1024, le=16 * 1024 * 1024)
    """Largest body in bytes."""
    repeat_s: float = limit(600.0, ge=1, le=7 * 86400)
    """Seconds in which the same body counts as sent again, where its sender gives it no name."""


class SubmitMission(Protocol):
    """Accepts a mission, as `batos.missions.scheduler.Scheduler.submit` does."""

    def __call__(
        self, id: str, brief: str, options: dict[str, Any], first: Callable[[Any], object] | None = None, /
    ) -> Awaitable[tuple[bool, Any]]: ...


class Delivered(NamedTuple):
    """The fate of a delivery."""

    mission: str = ""
    """empty where it became none"""
    known: bool = False
    """True: the mission was there before"""
    why: str = ""
    """why it became none"""


class Deliveries:
    """Those of one daemon. On the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        submit: SubmitMission,
        secrets: SecretStore,
        limits: HookLimits,
        brief_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        :param brief_bytes: most bytes of a brief.
        """
        self._image, self._submit, self._secrets, self._now = image, submit, secrets, now
        self._limits, self._brief_bytes = limits, brief_bytes
        self._nobody = new_secret()
        self._turns: dict[str, asyncio.Lock] = {}
        self._made: dict[str, deque[float]] = {}
        self._refused, self._told_at = 0, -math.inf

    async def take(self, delivery: HookDelivery) -> Delivered:
        """Take a delivery in. When this returns, its mission survives `kill -9`.

        :raises HookRefused: if it does not prove that it knows the hook's secret.
        :raises MalformedMessage: if its body cannot be read; InvalidInput: if it lacks a field of the brief.
        :raises MessageTooLarge: if the body, or the brief, is too long.
        :raises Busy: above the hook's rate, while the hook is paused, or while the queue is full; `again_s` in its context.
        """
        if len(delivery.body) > self._limits.body_bytes:
            raise MessageTooLarge(f"the body has {len(delivery.body)} bytes; at most {self._limits.body_bytes} are taken")
        held = await self._proved(delivery)
        async with self._turns.setdefault(delivery.hook, asyncio.Lock()):  # of two that are the same, the second finds the first's mission
            mission, known = self._image.read(hooks.known_mission, held, delivery, self._now(), self._limits.repeat_s)
            if known:
                return Delivered(mission, known=True)
            if held.paused:
                raise Busy(
                    f"the hook {held.spec.name!r} is paused; `batos hooks resume {held.spec.name}` lets it go on", again_s=_PAUSED_AGAIN_S
                )
            if delivery.headers.get("x-github-event") == "ping":
                return Delivered(why="a ping; the signature is right")
            body = await in_helper(parsed_body, delivery.body, delivery.kind)
            if not hooks.holds(body, held.spec.when):
                return Delivered(why=f"not all of these hold: {', '.join(held.spec.when)}")
            brief, at, options = self._brief(held, body), self._now(), held.spec.terms.options(ORIGIN)
            made = self._counted(held)
            new, _ = await self._submit(mission, brief, options, lambda root: hooks.note(root, held, mission, at))
            made.append(time.monotonic())
        log.info("hook_called", name=held.spec.name, mission=mission)
        return Delivered(mission, known=not new)

    async def _proved(self, delivery: HookDelivery) -> KeptHook:
        """Return the hook of a delivery that knows its secret."""
        held = self._image.read(hooks.find, delivery.hook)
        secret = ""
        try:  # also for a hook that is not there: it takes as long to refuse
            secret = await in_helper(self._secrets.get, hooks.secret_name(delivery.hook if held is not None else _NOBODY))
        except InvalidInput as e:
            if held is not None:
                log.warning("hook_without_secret", name=held.spec.name, why=e.message, hint=f"batos hooks roll {held.spec.name}")
        proved = is_proved(delivery, secret or self._nobody, self._now())
        if held is None or not secret or not proved:
            self._note_refusal(delivery.hook)
            raise HookRefused(
                "there is no such hook, or the signature or token is missing or wrong. Sign the raw body (X-Hub-Signature-256, or "
                "webhook-signature with a time of now), or send the secret (Authorization: Bearer SECRET, or ?token=SECRET)"
            )
        return held

    def _note_refusal(self, name: str) -> None:
        """Log refusals, a few at a time: any peer that reaches the address could fill the log."""
        self._refused += 1
        if time.monotonic() - self._told_at >= _TELL_S:
            log.warning("hook_refused", name=name[:40], times=self._refused)
            self._refused, self._told_at = 0, time.monotonic()

    def _brief(self, held: KeptHook, body: Any) -> str:
        brief = filled(held.spec.brief, lambda path: field_of(body, path))
        if (size := len(brief.encode("utf-8", "replace"))) > self._brief_bytes:
            most = f"at most {self._brief_bytes} are allowed (missions.brief_bytes)"
            raise MessageTooLarge(f"the brief would have {size} bytes, and {most}: name smaller fields in it")
        return brief

    def _counted(self, held: KeptHook) -> deque[float]:
        """Return the times of a hook's missions in the last minute.

        :raises Busy: above its rate.
        """
        now = time.monotonic()
        made = self._made.setdefault(held.spec.name, deque())
        while made and made[0] <= now - _MINUTE_S:
            made.popleft()
        if len(made) >= held.spec.rate:
            again_s = max(1, math.ceil(made[-held.spec.rate] + _MINUTE_S - now))
            raise Busy(
                f"the hook {held.spec.name!r} makes at most {held.spec.rate} missions a minute; send this again in {again_s} s",
                again_s=again_s,
                rate=held.spec.rate,
            )
        return made
