"""How missions end: COMPLETE, FAILED with what is kept of it, or out of time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog

from batos.config import Settings
from batos.errors import BatosError, DeadlineExceeded, ImageDamaged, ImageFailed, MethodRefused
from batos.image import ledger, unwritten
from batos.image.living import LivingImage
from batos.mind.thinking import Thinking

log = structlog.get_logger("batos.mind")
Record = dict[str, Any]


class Endings:
    """Records and tells ends. `outcomes` counts them."""

    def __init__(
        self, image: LivingImage, settings: Settings, release: Callable[[str], None], on_signal: Callable[[BaseException], None]
    ) -> None:
        """
        :param release: frees the mission's place: before its end is published, so that whoever hears of it finds the place free.
        :param on_signal: hears of a storage in which nothing can be recorded.
        """
        self._image, self.settings, self._release, self._on_signal = image, settings, release, on_signal
        self.outcomes = {"COMPLETE": 0, "FAILED": 0}
        self.waiting: set[str] = set()
        """Missions that wait for room on the disk, so that something can be recorded of them."""
        self._changed = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Why something could not be recorded, as far as that is known still."""
        return self._image.committer.trouble or f"its disk was full; it is tried again within {self.settings.disk_retry_s:g} s"

    async def until(self, id: str, *, waits: bool) -> None:
        """Return once a mission waits for room on the disk, or once it does not."""
        while (id in self.waiting) is not waits:
            await self._changed.wait()

    def _waits(self, id: str, waits: bool) -> None:
        if waits is not (id in self.waiting):
            (self.waiting.add if waits else self.waiting.discard)(id)
            self._changed.set()
            self._changed = asyncio.Event()

    def complete(self, record: Record, attempt: Thinking, result: Record) -> None:
        """A mission ended well, and that is on disk."""
        self.outcomes["COMPLETE"] += 1
        attempt.state = ledger.COMPLETE
        log.info("complete", mission=record["id"], persona=result.get("persona"), inferences=attempt.paid, replayed=attempt.tally.replayed)
        self._release(record["id"])
        attempt.publish("state")
        attempt.publish("result", result=result)

    async def fail(self, record: Record, attempt: Thinking, error: BatosError, *, final: bool) -> bool:
        """Record the failure of an attempt; whether the mission is over."""
        id, wire = record["id"], error.to_wire()
        context = {"state": attempt.reached, "persona": attempt.persona, "attempt": record["attempts"], "paid": attempt.paid}
        context["class"] = type((type(error) is BatosError and error.__cause__) or error).__name__
        if record["message"]:
            message = json.loads(record["message"])
            context |= {"target": message["target"], "selector": message["selector"]}
        if isinstance(error, MethodRefused):
            kept = error.source.encode("utf-8", "replace")[: self.settings.failure_source_bytes].decode("utf-8", "ignore")
            context["method"] = {"selector": error.selector, "source": kept, "reasons": list(error.reasons)}
        try:
            over = await self.recorded(id, ledger.fail, id, wire, context, final)
        except ImageDamaged as e:  # what is damaged is the mission's own record, or the ledger's: all that is left is to say so
            log.error("failure_not_recorded", mission=id, error=e.message)
            over, wire, final = None, e.to_wire(), True
        if over is not None and over["state"] == ledger.COMPLETE:  # its commit was under way when the error came, and reached the disk
            self.complete(record, attempt, over["result"] or {})
            return True
        if over is not None:  # it was cancelled while another failure was being recorded
            wire, final = over["error"], True
        told = {name: value for name, value in context.items() if name != "method"}
        if "cause" in (wire.get("context") or {}):
            told["cause"] = wire["context"]["cause"]
        log.warning("failed" if final else "attempt_failed", mission=id, **told, code=wire["code"], error=wire["message"])
        if final:
            self.failed(record, attempt, wire)
        return final

    async def recorded(self, id: str, function: Callable[..., Any], *args: Any) -> Any:
        """A system transaction of a mission, tried again until it is recorded where the disk is full: else nobody would look after
        the mission before the next start, and whoever watches it would wait as long.

        :raises ImageFailed: where the disk does not write for another reason: that does not pass while the daemon waits for it.
        """
        try:
            while True:
                try:
                    return await self._image.system(function, *args, mission=id)
                except OSError as e:
                    if unwritten.refusal(e) is None:
                        failed = ImageFailed(
                            f"nothing can be recorded of mission {id!r}: {e}; look at the disk, then start the daemon again"
                        )
                        self._on_signal(failed)
                        raise failed from e
                    if id not in self.waiting:
                        log.error("waits_for_room", mission=id, error=repr(e), retry_s=self.settings.disk_retry_s)
                    self._waits(id, True)
                await asyncio.sleep(self.settings.disk_retry_s)
        finally:
            self._waits(id, False)

    def failed(self, record: Record, attempt: Thinking, wire: Record) -> None:
        """A mission ended FAILED, and that is on disk.

        :param wire: the error as the wire shows it.
        """
        self.outcomes["FAILED"] += 1
        self._release(record["id"])
        if attempt.state != ledger.FAILED:  # else its cycle has said so
            attempt.state = ledger.FAILED
            attempt.publish("state", error=wire)
        attempt.publish("result", error=wire)


class Deadlines:
    """Own deadlines of missions that wait: they count from the acceptance, also over restarts. A timer and its record stay no longer
    than the mission waits."""

    def __init__(self, expire: Callable[[Record], None]) -> None:
        self._expire = expire
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def begin(self, record: Record) -> None:
        """This mission waits from now on, or again."""
        self.end(record["id"])
        if record["deadline_s"] is not None:
            left = record["accepted"] + record["deadline_s"] - time.time()
            self._timers[record["id"]] = asyncio.get_running_loop().call_later(max(0.0, left), self._expire, record)

    def end(self, id: str) -> None:
        """It does not wait any more."""
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()


@contextlib.asynccontextmanager
async def in_time(record: Record, attempt: Thinking, limit_s: float) -> AsyncIterator[None]:
    """See that the block is done in time: an own deadline counts from the acceptance, also over restarts, the default from here.

    :param limit_s: the default.
    :raises DeadlineExceeded: when it was not; with cause `unreachable` where no Ollama answers.
    """
    left = limit_s
    if record["deadline_s"] is not None:
        left = float(record["accepted"] + record["deadline_s"] - time.time())
    late = f"mission {record['id']!r} was not finished in time (attempt {record['attempts']})"
    if left <= 0:
        raise DeadlineExceeded(late)
    try:
        async with asyncio.timeout(left) as timer:
            yield
    except TimeoutError:
        if not timer.expired():  # a time-out inside the thought: a fault of its own
            raise
        if outage := attempt.outage():
            raise DeadlineExceeded(f"{late}: {outage}", cause="unreachable") from None
        raise DeadlineExceeded(late) from None
