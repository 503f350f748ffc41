"""What is done about a host that fails: asked again at once a few times, then left alone until it answers again.

Closed, the breaker lets everything through. After some failures in a row it opens: inferences are refused at once, and nothing but a
question for the version goes to the host, once in a while (half open). The first answer closes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from batos.config import Settings
from batos.errors import InferenceFailed

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of the same names: how often and how soon a request is made again, and when a host is left alone."""

    inference_retries: int = 2
    inference_backoff_s: float = 0.2
    breaker_failures: int = 3
    breaker_probe_s: float = 1.0

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        """As the settings have it."""
        return cls(settings.inference_retries, settings.inference_backoff_s, settings.breaker_failures, settings.breaker_probe_s)


class Breaker:
    """The breaker of one host. It counts what a dead host does: no connection, no answer in time, a stream that breaks.

    An error that Ollama reports is a sign of life: it is about a model, and asking for the version would not show it.
    """

    def __init__(self, host: str, answers: Callable[[], Awaitable[bool]], policy: Policy) -> None:
        """
        :param answers: the probe: whether the host answers a cheap question.
        """
        self._host, self._answers, self._policy = host, answers, policy
        self._failures = 0
        self._since = 0.0
        self._why = ""
        self._closed = asyncio.Event()
        self._closed.set()
        self._probing: asyncio.Task[None] | None = None
        self.opened = 0

    @property
    def open(self) -> bool:
        """Whether the host is left alone."""
        return not self._closed.is_set()

    @property
    def open_s(self) -> float:
        """Seconds since it opened; 0 while it is closed."""
        return time.monotonic() - self._since if self.open else 0.0

    def check(self, model: str) -> None:
        """Let an inference through.

        :raises InferenceFailed: with cause `breaker` while it is open.
        """
        if self.open:
            raise InferenceFailed(
                f"Ollama at {self._host} has not answered for {self.open_s:.0f} s ({self._why}); it is asked again by itself",
                cause="breaker",
                model=model,
            )

    def failed(self, why: str) -> None:
        """The host failed."""
        self._failures += 1
        if self._failures >= self._policy.breaker_failures:
            self.lost(why)

    def lost(self, why: str) -> None:
        """The host does not answer, that much is known: open, if it is not."""
        if self.open:
            return
        self._closed.clear()
        self._since, self._why = time.monotonic(), why
        self.opened += 1
        if self._probing is None or self._probing.done():  # else it was closed and is open again between two of its looks
            self._probing = asyncio.create_task(self._probe(), name=f"probe of {self._host}")
        log.warning("ollama does not answer; what needs it waits", host=self._host, why=why)

    def answered(self) -> None:
        """The host gave an answer, if only to say what is wrong."""
        self._failures = 0
        if self.open:
            log.info("ollama answers again", host=self._host, after_s=round(self.open_s, 1))
            self._closed.set()

    async def closed(self) -> None:
        """Return when it is closed."""
        await self._closed.wait()

    async def stop(self) -> None:
        """End the probing."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])

    async def _probe(self) -> None:
        while self.open:
            await asyncio.sleep(self._policy.breaker_probe_s)
            if self.open and await self._answers():
                self.answered()

    def facts(self) -> dict[str, Any]:
        """What `info` says of it."""
        away = {"away_s": round(self.open_s, 1), "why": self._why} if self.open else {}
        return {"answers": not self.open, "outages": self.opened, **away}
