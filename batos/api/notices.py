"""Requests about notices. What sends them is loaded with the first channel."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import structlog

from batos.api.dispatcher import handles
from batos.api.memory import LeaderGate
from batos.concurrency import Lifetime
from batos.errors import InvalidInput
from batos.image import notice_channels, notices
from batos.image.living_image import LivingImage
from batos.image.notice_channels import ChannelSpec, KeptChannel
from batos.image.notices import ChannelState
from batos.image.record_watch import RecordWatch
from batos.objects import Root
from batos.tools.secrets import SecretStore
from batos.wire import schemas
from batos.wire.outbox import Recipient

if TYPE_CHECKING:
    from batos.notices.courier import Courier, CourierParts

log = structlog.get_logger("batos.notices")
Reply = dict[str, Any]
_QUEUE = 50
"""Waiting notices that are shown one by one."""


class NoticeRequests:
    """The courier of a daemon, which begins with the first channel; handlers of the requests about notices."""

    def __init__(
        self,
        image: LivingImage,
        secrets: SecretStore,
        tied: Callable[[], str],
        parts: Callable[[], CourierParts],
        leader: LeaderGate,
        known: Callable[[str], str],
    ) -> None:
        """
        :param tied: returns why nothing may be done outside; "" where it may.
        :param parts: makes what the courier works with, when it begins.
        :param leader: refuses what only the kernel that leads can do.
        :param known: returns a persona's name as the image has it; raises UnknownPersona.
        """
        self._leader, self._known = leader, known
        self._image, self._secrets, self._tied, self._parts = image, secrets, tied, parts
        self._made: Courier | None = None
        self._begin: Callable[[Courier], None] = lambda courier: None
        self._changes = RecordWatch(notice_channels.holder, notice_channels.each, notice_channels.channel)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send notices as long as the block lasts."""
        async with Lifetime() as life:
            self._begin = lambda courier: life.background(courier.run(), "notices")
            if self._made is not None:
                self._begin(self._made)
            elif self._image.read(notice_channels.channels):
                self._courier()
            yield
            self._begin = lambda courier: None

    def look(self, root: Root) -> None:
        """See what other kernels changed, while this one leads."""
        if self._changes.changed(root):
            self._courier().stir()

    def _courier(self) -> Courier:
        if self._made is None:
            from batos.notices.courier import Courier  # late: programs, HTTP and time zones are needed for notices only

            self._made = Courier(self._parts())
            self._begin(self._made)
        return self._made

    @handles(schemas.NoticesRequest)
    async def channels(self, request: schemas.NoticesRequest, client: Recipient) -> Reply:
        """Return the channels, or one of them whole.

        :raises InvalidInput: if there is none of that name.
        """
        if request.name is None:
            return self._listed()
        return self._told(self._image.read(notice_channels.channel, request.name))

    @handles(schemas.NoticeAddRequest)
    async def add(self, request: schemas.NoticeAddRequest, client: Recipient) -> Reply:
        """Add a channel; return it.

        :raises InvalidInput: if a part of it is not valid.
        :raises UnknownPersona: if it is to tell of a persona that does not exist.
        :raises ToolFailed: if its program, or apprise, is not there.
        """
        from batos.notices.quiet_hours import QuietHours  # late: see `_courier`
        from batos.notices.transports import check_channel, parted_place
        from batos.schedules.times import local_zone

        zone = request.zone or local_zone()
        given = ChannelSpec(
            request.name,
            request.way,
            request.place,
            dict(request.options),
            tuple(fact for fact in notice_channels.FACTS if fact in (request.on or notice_channels.USUAL)),
            self._known(request.persona) if request.persona else "",
            request.origin or "",
            request.quiet or "",
            zone,
            request.once,
        )
        place, secret = parted_place(given)
        spec = given._replace(place=place)
        QuietHours(spec.quiet, zone)
        parts = self._parts()
        await check_channel(given, parts.services)
        there = self._image.read(notice_channels.find_channel, spec.name)
        if secret and (there is None or there.spec == spec):
            self._secrets.set(_secret_of(spec.name), secret)  # before the channel: one without its secret could tell nothing
        made = await self._image.system(notices.add_channel, spec, time.time(), mission="operator")
        log.info("channel_added", name=spec.name, way=spec.way, on=list(spec.on))
        self._courier().stir()
        return self._told(made)

    @handles(schemas.NoticePauseRequest)
    async def pause(self, request: schemas.NoticePauseRequest, client: Recipient) -> Reply:
        """Let a channel rest; return it."""
        return self._told(await self._image.system(notice_channels.set_paused, request.name, True, mission="operator"))

    @handles(schemas.NoticeResumeRequest)
    async def resume(self, request: schemas.NoticeResumeRequest, client: Recipient) -> Reply:
        """Let a channel go on; return it."""
        made = await self._image.system(notice_channels.set_paused, request.name, False, mission="operator")
        self._courier().stir()
        return self._told(made)

    @handles(schemas.NoticeRemoveRequest)
    async def remove(self, request: schemas.NoticeRemoveRequest, client: Recipient) -> Reply:
        """Remove a channel, and the secret that was kept for it; return those that are left."""
        held = self._image.read(notice_channels.channel, request.name)
        await self._image.system(notices.remove_channel, request.name, mission="operator")
        if f"{{secret:{_secret_of(request.name)}}}" in held.spec.place:
            with contextlib.suppress(InvalidInput):  # it is gone already
                self._secrets.remove(_secret_of(request.name))
        log.info("channel_removed", name=request.name)
        return self._listed()

    @handles(schemas.NoticeTestRequest)
    async def test(self, request: schemas.NoticeTestRequest, client: Recipient) -> Reply:
        """Send a message to a channel now; return what became of it.

        :raises InvalidInput: if it cannot be sent now.
        """
        self._leader.require_lead("test a channel")
        self._image.read(notice_channels.channel, request.name)
        message = await self._courier().test(request.name, request.id)
        return {"type": "notice_log", "messages": [notices.to_wire(message)]}

    @handles(schemas.NoticeSettleRequest)
    async def settle(self, request: schemas.NoticeSettleRequest, client: Recipient) -> Reply:
        """Settle the messages that failed or are in doubt; return the channels, and the number of messages.

        :raises InvalidInput: if there is no channel of that name, and no such message to one.
        """
        settled = await self._image.system(notices.settle, request.name or "", mission="operator")
        return {**self._listed(), "settled": settled}

    @handles(schemas.NoticeLogRequest)
    async def log(self, request: schemas.NoticeLogRequest, client: Recipient) -> Reply:
        """Return the last messages, the newest first; also of a channel that was removed.

        :raises InvalidInput: if there is no channel of that name, and no message to one.
        """
        found = self._image.read(notices.messages, request.name or "", request.limit)
        if request.name is not None and not found:
            self._image.read(notice_channels.channel, request.name)
        return {"type": "notice_log", "messages": [notices.to_wire(one) for one in found]}

    def _listed(self) -> Reply:
        untold = self._image.read(lambda root: sum(1 for _ in notices.untold(root, time.time())))
        told = [self._line(one) for one in self._image.read(notices.states)]
        return {"type": "notices", "channels": told, "untold": untold, "tied": self._tied()}

    def _told(self, one: KeptChannel) -> Reply:
        """Return one channel, whole, with the first notices that wait for it."""
        held = self._image.read(notices.state_of, one)
        queue = [{"fact": one.fact, "subject": one.subject, "at": one.at, "title": one.title} for _, one in held.waiting[:_QUEUE]]
        line = {**self._line(held), "options": dict(one.spec.options), "queue": queue}
        return {"type": "notices", "channels": [line], "untold": 0, "tied": self._tied()}

    def _line(self, held: ChannelState) -> Reply:
        spec = held.channel.spec
        last = self._image.read(notices.messages, spec.name, 1)
        due = math.inf if self._tied() else self._courier().due(held)
        return {
            "name": spec.name,
            "way": spec.way,
            "place": spec.place,
            "on": list(spec.on),
            "persona": spec.persona or None,
            "origin": spec.origin or None,
            "quiet": spec.quiet or None,
            "zone": spec.zone,
            "once": spec.once,
            "paused": held.channel.paused,
            "waiting": len(held.waiting) + held.more,
            "next": None if due == math.inf else due,
            "last": notices.to_wire(last[0]) if last else None,
        }


def _secret_of(name: str) -> str:
    from batos.notices.transports import secret_of  # late: see `NoticeRequests._courier`

    return secret_of(name)
