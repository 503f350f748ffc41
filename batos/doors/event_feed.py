"""Feed of events: what happens to missions, as server-sent events at `/v1/events`, for those who show it or act on it.

A reader says which kinds of events he wants, and of which missions. What he does not read in time is dropped, and a `gap` says so. The last
events are kept in memory while there are readers, and some time after. A reader who comes back with `Last-Event-ID` gets what he missed, or
a `gap`. Nothing of it outlives the process.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from batos.config import nearest
from batos.config.limits import Limits, limit
from batos.console.live_events import EventStream, message_of
from batos.console.server import Listen
from batos.doors.routes import DoorServices, route
from batos.errors import Busy, InvalidInput

KEPT = ("state", "needs_input", "result")
"""Kinds of events that a reader gets where he names none, and that are kept for one who comes back."""
KINDS = (*KEPT, "tool", "provision", "revised", "token")
GAP = "gap"
"""Event that says that others may be missing."""
_RETRY_MS = 2000
_MISSIONS = 100  # that a reader may name


@dataclass(frozen=True, slots=True)
class FeedLimits(Limits):
    """Bounds of the feed of events."""

    readers: int = limit(32, ge=1, le=1000)
    """at the same time"""
    waiting: int = limit(1000, ge=10, le=100_000)
    """events that wait for one reader; of more the oldest are dropped"""
    kept: int = limit(1000, ge=1, le=100_000)
    """events that are kept for readers who come back"""
    resume_s: float = limit(600.0, ge=0, le=86_400)
    """seconds after the last reader has gone for which events are kept"""


@dataclass(eq=False)
class FeedReader:
    """One reader."""

    kinds: frozenset[str]
    missions: frozenset[str]
    """missions whose events he gets; empty: those of all"""
    waiting: deque[bytes]
    called: asyncio.Event = field(default_factory=asyncio.Event)
    lost: int = 0
    """events that were dropped since he last heard of it"""
    closed: bool = False

    def wants(self, event: dict[str, Any]) -> bool:
        """Return True if an event is for this reader."""
        return event["type"] in self.kinds and (not self.missions or event.get("id") in self.missions)

    def put(self, message: bytes) -> None:
        """Add a message; the oldest one goes where there is no room."""
        self.lost += len(self.waiting) == self.waiting.maxlen
        self.waiting.append(message)
        self.called.set()


class EventFeed:
    """The feed of one daemon. On the loop's thread. It hears nothing before its first reader."""

    def __init__(self, listen: Listen, limits: FeedLimits, beat_s: float) -> None:
        """
        :param listen: subscribes to a kind of events of all missions; returns the function that ends that.
        :param beat_s: seconds of silence after which a reader is shown that the feed goes on.
        """
        self._listen, self._limits, self._beat_s = listen, limits, beat_s
        self._readers: set[FeedReader] = set()
        self._stops: dict[str, Callable[[], None]] = {}
        self._run, self._number = secrets.token_hex(4), 0
        self._kept: deque[tuple[int, dict[str, Any]]] = deque(maxlen=limits.kept)
        self._rest: asyncio.TimerHandle | None = None
        self._closed = False

    def open(self, kinds: frozenset[str], missions: frozenset[str], last: str = "") -> FeedReader:
        """Return a new reader.

        :param last: the id of the last event that he got, as he names it when he comes back.
        :raises Busy: past `FeedLimits.readers`, and when the daemon stops.
        """
        if self._closed or len(self._readers) >= self._limits.readers:
            raise Busy(f"{len(self._readers)} readers have the feed of events open; end one, or come again later")
        reader = FeedReader(kinds, missions, deque(maxlen=self._limits.waiting))
        hears = "state" in self._stops
        self._readers.add(reader)
        self._hear()
        if last:
            self._resume(reader, last, hears)
        return reader

    def close(self) -> None:
        """End every reader."""
        self._closed = True
        for reader in list(self._readers):
            self.shut(reader)
        self._silence(())

    def shut(self, reader: FeedReader) -> None:
        """End a reader. May be called again."""
        reader.closed = True
        reader.called.set()
        self._readers.discard(reader)
        if not self._closed:
            self._hear()

    async def messages(self, reader: FeedReader) -> AsyncGenerator[bytes]:
        """Yield the messages of a reader until he is shut, and a comment in silence, so that one who has gone is noticed."""
        yield f"retry: {_RETRY_MS}\n: events of {', '.join(sorted(reader.kinds))}\n\n".encode()
        while not reader.closed:
            if reader.lost:
                lost, reader.lost = reader.lost, 0
                yield message_of(GAP, {"type": GAP, "lost": lost, "why": "you read too slowly"})
            while reader.waiting and not reader.lost:
                yield reader.waiting.popleft()
            reader.called.clear()
            if reader.waiting or reader.lost or reader.closed:
                continue
            try:
                async with asyncio.timeout(self._beat_s):
                    await reader.called.wait()
            except TimeoutError:
                yield b": still here\n\n"

    def _hear(self) -> None:
        """Subscribe to what readers want, and to nothing else; some time after the last one has gone, to nothing."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        wanted = set(KEPT).union(*(one.kinds for one in self._readers)) if self._readers else set(KEPT)
        self._silence(wanted)
        for kind in wanted - self._stops.keys():
            self._stops[kind] = self._listen(kind, self._heard)
        if not self._readers:
            self._rest = asyncio.get_running_loop().call_later(self._limits.resume_s, self._forget)

    def _forget(self) -> None:
        self._rest = None
        self._silence(())
        self._kept.clear()

    def _silence(self, wanted: set[str] | tuple[()]) -> None:
        for kind in [kind for kind in self._stops if kind not in wanted]:
            self._stops.pop(kind)()
        if not wanted and self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _heard(self, event: dict[str, Any]) -> None:
        id = ""
        if event["type"] in KEPT:
            self._number += 1
            id = self._id(self._number)
            self._kept.append((self._number, event))
        wanted = [reader for reader in self._readers if reader.wants(event)]
        if wanted:
            message = message_of(event["type"], event, id)
            for reader in wanted:
                reader.put(message)

    def _resume(self, reader: FeedReader, last: str, heard: bool) -> None:
        """Give a reader what he missed, or a gap.

        :param heard: True if events were heard since he left.
        """
        run, _, number = last.partition("-")
        oldest = self._kept[0][0] if self._kept else self._number + 1
        if run != self._run or not number.isdecimal() or not heard or not oldest - 1 <= int(number) <= self._number:
            told = {"type": GAP, "why": "the events after this id are not kept; `batos missions` has what came of missions"}
            reader.put(message_of(GAP, told, self._id(self._number)))
            return
        for place, event in self._kept:
            if place > int(number) and reader.wants(event):
                reader.put(message_of(event["type"], event, self._id(place)))

    def _id(self, number: int) -> str:
        return f"{self._run}-{number}"


def event_routes(services: DoorServices) -> Iterator[BaseRoute]:
    """Yield the route of the feed."""
    feed = EventFeed(services.listen, FeedLimits.of(services.settings), services.limits.beat_s)
    services.at_stop.append(feed.close)

    async def events(request: Request) -> Response:
        """Follow what happens to missions."""
        kinds = _named(request, "kinds")
        for kind in kinds:
            if kind not in KINDS:
                raise InvalidInput(f"kinds: {kind[:64]!r} is not a kind of events{nearest(kind, KINDS)}; allowed are {', '.join(KINDS)}")
        missions = _named(request, "mission")
        if len(missions) > _MISSIONS:
            raise InvalidInput(f"mission: {len(missions)} are named; at most {_MISSIONS} are allowed")
        last = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or ""
        return EventStream(feed, feed.open(kinds or frozenset(KEPT), missions, last[:100]))

    yield route("/v1/events", events, "GET")


def _named(request: Request, name: str) -> frozenset[str]:
    """Return the values of a parameter, which may be repeated, or be a list with commas."""
    return frozenset(one.strip() for value in request.query_params.getlist(name) for one in value.split(",") if one.strip())
