"""Courier of notices: one task that sees what waits in the outbox, and sends it to its channel as an effect.

outbox ─ words, call ready ─ INTENDED on disk ─ sent ─ outcome on disk ─┬ told
                                                                      └ sent again later, a bounded number of times

What a kill cut off is in doubt. It is sent once more, with the same key, and says that it may have arrived before. A channel that its
user wants to tell at most once leaves it in doubt instead. A message that surely did not arrive is sent again as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from batos import scope
from batos.bus import EventBus, FolderStopped, MissionEnded, NoticeSent, ScheduleStopped, StateEntered
from batos.config.limits import Limits, limit
from batos.errors import BatosError, EgressFailed, InvalidInput, LeadLost, ToolFailed
from batos.image import notice_channels, notices
from batos.image.effects import DONE, FAILED, IN_DOUBT, INTENDED
from batos.image.identity import identity_of
from batos.image.living_image import LivingImage
from batos.image.notice_channels import ChannelSpec, KeptChannel
from batos.image.notices import ChangeFact, ChannelState, NoticeMessage
from batos.image.ownership import LeaseLapsed
from batos.notices.messages import TEST, MessageWords, words_of, words_of_test
from batos.notices.quiet_hours import QuietHours
from batos.notices.transports import UNSENT, Transport, transport_of
from batos.objects import Root
from batos.tools.definitions import ConnectorServices, Delivery, ToolCall
from batos.tools.effects import end_process

log = structlog.get_logger("batos.notices")
_SHOWN = 400
_ASKS = "NEEDS_INPUT"
_OUTCOMES = {DONE: "done", FAILED: "failed", IN_DOUBT: "doubt"}
_UNSEALED = "the channel {name} was changed by something else than `batos notices`; remove it, and add it anew"
_NOT_TOLD = "it may have been told, and this channel tells nothing twice (--once)"


@dataclass(frozen=True, slots=True)
class NoticeLimits(Limits):
    """Bounds of notices."""

    gather_s: float = limit(1.0, ge=0, le=60)
    """seconds that a notice waits for others that come with it"""
    most: int = limit(6, ge=1, le=1000)
    """messages to one channel within `window_s`; more notices come together in the next one"""
    window_s: float = limit(600.0, gt=0, le=86_400)
    tries: int = limit(8, ge=1, le=100)
    """sendings of one message"""
    backoff_s: float = limit(30.0, gt=0, le=3600)
    """seconds before the second sending; each further one waits four times as long, `longest_s` at most"""
    longest_s: float = limit(4 * 3600.0, gt=0, le=86_400)
    look_s: float = limit(5.0, gt=0, le=600)
    """longest time between two looks at the outbox"""
    stop_s: float = limit(5.0, ge=0, le=60)
    """seconds for what is being sent when the daemon stops"""


@dataclass(frozen=True)
class CourierParts:
    """Parts of the daemon that a courier works with."""

    image: LivingImage
    services: ConnectorServices
    bus: EventBus
    identity: Callable[[], str]
    tied: Callable[[], str]
    """Returns why nothing may be done outside; "" where it may."""
    pages: Callable[[], str] = lambda: ""
    """Returns the address of the daemon's pages; "" where it serves none."""
    changes: Callable[[Root], list[ChangeFact]] = lambda root: []
    """Returns the last changes that the system made of its own accord: no transaction of theirs notes them."""
    limits: NoticeLimits = NoticeLimits()
    now: Callable[[], float] = time.time
    open: Callable[[ChannelSpec, ConnectorServices], Transport] = transport_of


class Courier:
    """Sends notices: `await run()` until cancelled. All methods are called on the loop's thread."""

    def __init__(self, parts: CourierParts) -> None:
        self._parts, self._image, self._limits, self._now = parts, parts.image, parts.limits, parts.now
        self._stirred = asyncio.Event()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._tests: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self._channels = self._image.kept(notice_channels.channels)
        self._states = self._image.kept(functools.partial(notices.states, last=parts.limits.most))
        self._changes = self._image.kept(parts.changes)
        self._noted: list[ChangeFact] = []
        self._unsettled = True  # the ends of missions are noted with the next commit
        parts.bus.subscribe(MissionEnded, self._ended)
        parts.bus.subscribe(StateEntered, self._entered)
        parts.bus.subscribe(ScheduleStopped, lambda stopped: self.stir())
        parts.bus.subscribe(FolderStopped, lambda stopped: self.stir())

    async def run(self) -> None:
        """Send what waits, and what comes. It may be run again, once it has ended."""
        self._stopping, self._unsettled = False, True
        try:
            copied = self._parts.tied()
            while True:
                self._stirred.clear()
                try:
                    if copied:
                        known = self._image.read(identity_of)
                        why, epoch = f"not told by this image: {copied}", "" if known is None else known.epoch
                        await self._image.system(notices.drop_all, why, epoch, mission="notices")
                        copied = ""
                    wait_s = await self._turn()
                except (BatosError, OSError) as e:  # a full disk, say: it waits
                    log.warning("notices_wait", error=str(e)[:_SHOWN])
                    wait_s = self._limits.look_s
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stirred.wait()
        finally:
            await self._end()

    def stir(self) -> None:
        """Look at the outbox now: a channel or something that waits has changed."""
        self._stirred.set()

    async def test(self, name: str, id: str) -> NoticeMessage:
        """Send a message to a channel now, whatever the hours, and whatever waits. Return what became of it.

        :param id: of the message; the same id again is the same message.
        :raises InvalidInput: if there is no such channel, it is paused, another message is on its way there, or the image may not act.
        """
        one = self._image.read(notice_channels.channel, name)
        key = notices.key_of(self._parts.identity(), name, id)
        if (task := self._tests.get(key)) is None:
            if (known := self._told(name, key)) is not None:
                return known
            task = self._begin_test(one, key)
        await asyncio.wait([task])
        if (known := self._told(name, key)) is None:
            raise InvalidInput(f"the channel {name!r} was changed meanwhile, or the disk is full; try again")
        return known

    def _begin_test(self, one: KeptChannel, key: str) -> asyncio.Task[None]:
        name, why = one.spec.name, ""
        if tied := self._parts.tied():
            why = tied
        elif one.paused:
            why = f"it is paused; `batos notices resume {name}` lets it go on"
        elif name in self._sending or self._image.read(notices.state_of, one).open is not None:
            why = f"another message is on its way there, or waits to be sent again; `batos notices log {name}` shows it"
        if why:
            raise InvalidInput(f"the channel {name!r} is not tested: {why}")
        words = words_of_test(name, self._parts.pages())
        message = NoticeMessage(key, name, INTENDED, words.to_json(), ((TEST, name),), self._now())
        return self._start(name, self._sent(one, message, (), last=True), key)

    def _told(self, name: str, key: str) -> NoticeMessage | None:
        return next((one for one in self._image.read(notices.messages, name) if one.key == key), None)

    def _start(self, name: str, work: Coroutine[Any, Any, None], test: str = "") -> asyncio.Task[None]:
        task = self._sending[name] = asyncio.create_task(work, name=f"notice {name}")
        if test:
            self._tests[test] = task
            task.add_done_callback(lambda task: self._tests.pop(test, None))
        task.add_done_callback(functools.partial(self._over, name))
        return task

    def due(self, held: ChannelState) -> float:
        """Return when the next message to a channel is due, in seconds since the epoch; infinite if none is."""
        spec, now = held.channel.spec, self._now()
        if held.channel.paused:
            return float("inf")
        if held.open is not None:
            wanted = now if held.open.state == INTENDED else min(held.open.again, now + self._limits.longest_s)
        elif held.waiting:
            first = min(one.at for _, one in held.waiting)
            wanted = min(first, now) + self._limits.gather_s
            recent = [at for at in held.sent if now - self._limits.window_s < at <= now]
            if len(recent) >= self._limits.most:
                wanted = max(wanted, recent[self._limits.most - 1] + self._limits.window_s)
        else:
            return float("inf")
        return QuietHours(spec.quiet, spec.zone).until(max(wanted, now))

    # --- one look

    async def _turn(self) -> float | None:
        """Begin what is due; return the seconds until the next look, None where there is nothing to look for."""
        if not self._channels():
            return None
        changes = self._changes()
        if self._unsettled or changes != self._noted:
            self._unsettled = False
            await self._image.system(notices.note_changes, changes, mission="notices")
            self._noted = changes
        if self._parts.tied() or self._stopping:
            return self._limits.look_s
        wait_s = self._limits.look_s
        for held in self._states():
            name = held.channel.spec.name
            if name in self._sending:
                continue
            left = self.due(held) - self._now()
            if left > 0:
                wait_s = min(wait_s, left)
                continue
            self._start(name, self._next(held))
        return wait_s

    def _ended(self, event: MissionEnded) -> None:
        self._unsettled = True
        self._stirred.set()

    def _entered(self, event: StateEntered) -> None:
        if event.state == _ASKS:
            self._stirred.set()

    def _over(self, name: str, task: asyncio.Task[None]) -> None:
        self._sending.pop(name, None)
        if not task.cancelled() and isinstance(task.exception(), LeadLost):
            log.info("notice_left_to_the_leader", channel=name)
        elif not task.cancelled() and (failure := task.exception()) is not None:
            log.error("notice_not_sent", channel=name, error=repr(failure)[:_SHOWN])
        else:
            self._stirred.set()  # else it is tried again with the next look

    async def _next(self, held: ChannelState) -> None:
        """Send the message of a channel that is due."""
        one, now = held.channel, self._now()
        if held.open is not None:
            await self._again(one, held.open)
            return
        taken = tuple(number for number, _ in held.waiting)
        told = [notice for _, notice in held.waiting]
        words = words_of(told, held.more, self._parts.pages())
        key = notices.key_of(self._parts.identity(), one.spec.name, *taken)
        facts = tuple((notice.fact, notice.subject) for notice in told)
        await self._sent(one, NoticeMessage(key, one.spec.name, INTENDED, words.to_json(), facts, now), taken)

    async def _again(self, one: KeptChannel, message: NoticeMessage) -> None:
        """Send a message again; first end what is left of a sending that was cut off."""
        if message.state == INTENDED:
            if message.process:
                end_process(message.process)
            why = "the system stopped"
            log.warning("notice_in_doubt", channel=one.spec.name, key=message.key, why=why)
            if one.spec.once or message.attempts >= self._limits.tries or message.facts[:1] == ((TEST, one.spec.name),):
                why = f"{why}; {_NOT_TOLD}" if one.spec.once else why
                await self._keep(message._replace(state=IN_DOUBT, again=0.0, why=why, ended=self._now()))
                return
            message = message._replace(repeats=True, why=why)
        await self._sent(one, message._replace(attempts=message.attempts + 1), ())

    async def _sent(self, one: KeptChannel, message: NoticeMessage, taken: tuple[int, ...], *, last: bool = False) -> None:
        """Send a message once, and record what became of it.

        :param last: True if it is not sent again, whatever becomes of it.
        """
        message = message._replace(at=self._now(), process="")
        transport: Transport | None = None
        try:
            call: ToolCall | None = None
            failure: BatosError | None = None
            try:
                if not self._image.read(notices.is_sealed, one.spec):
                    raise InvalidInput(_UNSEALED.format(name=one.spec.name))
                transport = self._parts.open(one.spec, self._parts.services)
                call = await transport.prepare(MessageWords.from_json(message.words), message.key, message.at, repeats=message.repeats)
                message = message._replace(process=call.process)
            except BatosError as e:
                failure = e
            intended = await self._image.system(notices.intend, message, taken, mission="notices")
            if intended is None:
                return
            state, why = (FAILED, failure.message) if call is None and failure is not None else await self._delivered(call, intended)
            await self._outcome(one, intended, state, why, last=last)
        finally:
            if transport is not None:
                with contextlib.suppress(Exception):
                    await transport.close()

    async def _delivered(self, call: ToolCall | None, message: NoticeMessage) -> tuple[str, str]:
        """Return what became of one sending: DONE, FAILED where it surely did not arrive, or IN_DOUBT; and why."""
        assert call is not None
        try:
            async with asyncio.timeout(call.seconds):
                await call.send(Delivery(message.key, leave=self._leave))
        except LeaseLapsed as e:  # nothing of it has left
            return FAILED, str(e)
        except ToolFailed as e:
            unsent = e.sure or e.context.get("exit") == UNSENT
            return (FAILED if unsent else IN_DOUBT), e.message  # a program that failed may have told it before
        except EgressFailed as e:
            return (IN_DOUBT if e.sent else FAILED), e.message
        except InvalidInput as e:
            return FAILED, e.message
        except TimeoutError:
            return IN_DOUBT, f"no answer within {call.seconds:g} s"
        except Exception as e:  # whatever it is, it may have been told
            return IN_DOUBT, e.message if isinstance(e, BatosError) else f"{type(e).__name__}: {e}"
        return DONE, ""

    def _leave(self) -> None:
        """Go on only if this kernel, which may have stood still, leads yet: else another one has told the message, or is about to.

        :raises LeadLost: if another leads.
        :raises LeaseLapsed: if another may.
        """
        lead = scope.current().lead
        if lead is not None and lead.db is self._image.db:
            self._image.read(lead.look)
        self._image.lease.check()

    async def _outcome(self, one: KeptChannel, message: NoticeMessage, state: str, why: str, *, last: bool) -> None:
        name, now, why = one.spec.name, self._now(), why[:_SHOWN]
        sent = NoticeSent(name, _OUTCOMES[state], len(message.facts))
        if state == DONE:
            log.info("notice_told", channel=name, key=message.key, notices=len(message.facts))
            await self._keep(message._replace(state=DONE, again=0.0, ended=now, why=""))
            self._parts.bus.publish(sent)
            return
        doubts = state == IN_DOUBT
        given_up = last or message.attempts >= self._limits.tries or (doubts and one.spec.once)
        if doubts and one.spec.once:
            why = f"{why}; {_NOT_TOLD}"
        pause = min(self._limits.longest_s, self._limits.backoff_s * 4 ** (message.attempts - 1))
        again = 0.0 if given_up else now + pause
        log.warning("notice_not_told", channel=name, key=message.key, state=state, why=why, again_s=None if given_up else pause)
        kept = message._replace(state=state, again=again, why=why, ended=now if given_up else 0.0, repeats=message.repeats or doubts)
        await self._keep(kept)
        self._parts.bus.publish(sent)

    async def _keep(self, message: NoticeMessage) -> None:
        await self._image.system(notices.end, message, mission="notices")

    async def _end(self) -> None:
        """Wait some seconds for what is being sent; what is cut off is in doubt at the next start."""
        self._stopping = True
        tasks = list(self._sending.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._limits.stop_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
