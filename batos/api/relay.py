"""Relay: brings what a thought under way at another kernel tells (states, text, tools) to those who watch the mission here.

    look ─ missions of others that are watched here ─ one `watch` each at their kernels' endpoints ─ `Events.relay`

There is one connection to each kernel that is needed, and one subscription to a mission, however many clients watch it here. A subscription
ends with the mission or with its last watcher. Where another kernel takes the mission up, the subscription ends, too, and goes on there.
Before a kernel is believed, it is asked for its name: another daemon may listen at the same address of this machine. One that cannot be
reached costs only what is live: ends, questions and pauses come by the image (`batos.missions.mission_news`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from batos.concurrency import Background
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import BatosError, ConfigError, DaemonUnavailable, KeyRefused, UnknownMission
from batos.mind.events import Event, Events
from batos.wire.keys import ClientKeys, load_pair

if TYPE_CHECKING:
    from batos.wire.client import Client

log = structlog.get_logger("batos.cluster")

LIVE = ("state", "token", "tool", "provision", "revised")
"""Kinds of events that only the kernel which thinks a mission through knows."""
_BY_IMAGE = ("COMPLETE", "FAILED", "PAUSED", "NEEDS_INPUT")  # states that the image tells
_FACTS = ("state", "persona", "why", "progress", "place")  # of a status, that only that kernel knows
_KEY_S = 1.0  # seconds after which a kernel is tried again that does not know this one's key yet: it learns it with its next look
_STALE = 50  # watches of a connection that no client needs any more, and that only its end ends


@dataclass(frozen=True, slots=True)
class RelayLimits(Limits):
    """Limits of what is brought here from other kernels."""

    missions: int = limit(200, ge=1, le=256)
    """missions of one kernel that are followed at the same time"""
    answer_s: float = limit(2.0, gt=0, le=60)
    """seconds in which a kernel has to answer"""
    again_s: float = limit(10.0, gt=0, le=3600)
    """seconds until one that could not be reached is tried again"""
    idle_s: float = limit(60.0, gt=0, le=3600)
    """seconds for which an unused connection is kept"""


class KernelPlace(NamedTuple):
    """Address of a kernel."""

    name: str
    endpoint: str
    wire_key: str = ""
    """its public key, "" where it asks for none"""


class _Line:
    """Connection to one kernel, and the missions that are followed by it."""

    def __init__(self, place: KernelPlace) -> None:
        self.place = place
        self.client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self.follows: dict[str, asyncio.Task[None]] = {}
        self.live: dict[str, Event] = {}
        """Status of each mission whose events come."""
        self.asks: set[asyncio.Task[Event]] = set()
        self.stale = 0
        self.used = 0.0


class Relay:
    """Relay of one daemon. All methods are called on the loop's thread."""

    def __init__(self, events: Events, settings: Settings) -> None:
        self._events, self._settings, self._limits = events, settings, RelayLimits.of(settings)
        self._lines: dict[str, _Line] = {}
        self._tasks = Background()
        self._again_at: dict[str, float] = {}
        self.unreached: dict[str, str] = {}
        """Why a kernel could not be reached, by its name."""

    def look(self, owners: Mapping[str, str], places: Mapping[str, KernelPlace]) -> None:
        """Follow what is watched here and thought through elsewhere, and nothing else.

        :param owners: the kernels that think missions through, by mission.
        :param places: the other kernels that live, by name.
        """
        now = asyncio.get_running_loop().time()
        wanted = self._wanted(owners, places)
        for name, line in list(self._lines.items()):
            there = wanted.get(name, [])
            for id in line.follows.keys() - set(there):
                self._leave(line, id)
            if there:
                line.used = now
            if places.get(name) != line.place or line.stale > _STALE or now - line.used > self._limits.idle_s:
                self._close(name)
        for name, ids in wanted.items():
            if now < self._again_at.get(name, 0.0):
                continue
            line = self._line(places[name])
            for id in ids:
                if id not in line.follows:
                    line.follows[id] = self._tasks.start(self._follow(line, id), f"relay of {id}", "relay")
        for name in self.unreached.keys() - places.keys():
            del self.unreached[name]
            self._again_at.pop(name, None)

    def comes_live(self, id: str) -> bool:
        """Return True if the events of a mission come from its kernel now."""
        return any(id in line.live for line in self._lines.values())

    async def status(self, id: str, place: KernelPlace) -> Event:
        """Return what only its kernel knows of a mission: the state of its thought, its persona, its place in the queue there. Empty where
        that kernel cannot be reached, or does not answer in time."""
        if asyncio.get_running_loop().time() < self._again_at.get(place.name, 0.0):
            return {}
        line = self._line(place)
        asking = asyncio.create_task(_status(line, id))
        line.asks.add(asking)
        try:
            await asyncio.wait([asking], timeout=self._limits.answer_s)
        finally:
            line.asks.discard(asking)
            asking.cancel()
        return asking.result() if asking.done() and not asking.cancelled() else {}

    def facts(self) -> dict[str, Any]:
        """Return the number of missions whose events come from other kernels now, and why kernels cannot be reached, by name."""
        return {"missions": sum(len(line.live) for line in self._lines.values()), "unreached": dict(self.unreached)}

    async def stop(self) -> None:
        """End what is followed."""
        for name in list(self._lines):
            self._close(name)
        await self._tasks.drain()  # each was told to end: told twice, one would leave its socket open

    # --- lines

    def _wanted(self, owners: Mapping[str, str], places: Mapping[str, KernelPlace]) -> dict[str, list[str]]:
        """Return the missions to follow, by kernel: those with watchers first."""
        all_of_them = self._events.is_followed(LIVE)
        elsewhere = [(id, name) for id, name in owners.items() if name in places and not self._events.is_told(id)]
        wanted: dict[str, list[str]] = {}
        for watched in (True, False) if all_of_them else (True,):
            for id, name in elsewhere:
                if self._events.is_watched(id) is watched and len(wanted.setdefault(name, [])) < self._limits.missions:
                    wanted[name].append(id)
        return {name: ids for name, ids in wanted.items() if ids}

    def _line(self, place: KernelPlace) -> _Line:
        now = asyncio.get_running_loop().time()
        line = self._lines.get(place.name)
        if line is None or line.place != place:
            if line is not None:
                self._close(place.name)
            line = self._lines[place.name] = _Line(place)
            line.client.add_done_callback(lambda known: known.exception())  # an end without a waiting caller is not a fault
            line.task = self._tasks.start(self._hold(line), f"connection to {place.name}", "relay")
        line.used = now
        return line

    def _close(self, name: str) -> None:
        line = self._lines.pop(name)
        for id in list(line.follows):
            self._leave(line, id)
        for asking in line.asks:
            asking.cancel()
        if line.task is not None:
            line.task.cancel()
        if not line.client.done():
            line.client.set_exception(DaemonUnavailable(f"the connection to {name} was closed"))

    def _leave(self, line: _Line, id: str) -> None:
        line.live.pop(id, None)
        if (task := line.follows.pop(id, None)) is not None:
            line.stale += 1
            task.cancel()

    async def _hold(self, line: _Line) -> None:
        """Keep a connection until it is closed."""
        from batos.wire.client import Client  # late: a daemon that has its image to itself asks no other

        try:
            async with Client(line.place.endpoint, self._limits.answer_s, keys=self._keys(line.place)) as client:
                found = (await client.kernels())["name"]
                if found != line.place.name:
                    raise DaemonUnavailable(f"at {line.place.endpoint} answers {found or 'a daemon that is no kernel of this image'}")
                self.unreached.pop(line.place.name, None)
                self._again_at.pop(line.place.name, None)
                line.client.set_result(client)
                await asyncio.get_running_loop().create_future()
        except BatosError as e:
            self._fail(line, e)

    def _fail(self, line: _Line, error: BatosError) -> None:
        """Note that a kernel cannot be reached; what is watched here hears only what the image tells."""
        name, why = line.place.name, error.message
        if self.unreached.get(name) != why:
            log.warning("kernel_not_reached", kernel=name, why=why, effect="of its missions, watches here hear only what the image tells")
        pause_s = _KEY_S if isinstance(error, KeyRefused) else self._limits.again_s
        self.unreached[name], self._again_at[name] = why, asyncio.get_running_loop().time() + pause_s
        if not line.client.done():
            line.client.set_exception(error)
        if self._lines.get(name) is line:
            self._close(name)

    def _keys(self, place: KernelPlace) -> ClientKeys | None:
        """Return the keys for a kernel: this daemon's own pair, which the others know by the image.

        :raises ConfigError: if that kernel asks for keys, and this one has none.
        """
        if not place.wire_key:
            return None
        if not self._settings.wire.secret_key:
            raise ConfigError(f"kernel {place.name} asks for keys, and this daemon has none of its own; name them in wire.secret_key")
        return ClientKeys(load_pair(Path(self._settings.wire.secret_key)), place.wire_key.encode())

    # --- missions

    async def _follow(self, line: _Line, id: str) -> None:
        try:
            client = await asyncio.shield(line.client)
            async with contextlib.aclosing(client.watch(id)) as events:
                async for event in events:
                    self._tell(line, id, event)
        except UnknownMission:
            pass  # it was folded, or its kernel is another image's: the image tells what came of it
        except BatosError as e:
            if line.client.done() and line.client.exception() is None:
                self._fail(line, e)
        finally:
            line.live.pop(id, None)
            if line.follows.get(id) is asyncio.current_task():
                del line.follows[id]

    def _tell(self, line: _Line, id: str, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "status":
            line.live[id] = event
        elif kind == "result":
            line.live.pop(id, None)
            self._events.report(id, _state_of(event))
            self._events.report(id, event)
        elif kind in LIVE and event.get("state") not in _BY_IMAGE:
            self._events.relay(id, event)


async def _status(line: _Line, id: str) -> Event:
    try:
        told = await (await asyncio.shield(line.client)).status(id)
    except BatosError:
        return {}
    return {name: told[name] for name in _FACTS if told.get(name) is not None}


def _state_of(event: Event) -> Event:
    """Return the event of state that reports an end."""
    return {**{name: value for name, value in event.items() if name != "result"}, "type": "state"}
