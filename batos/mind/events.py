"""Events of missions, as clients watch them: each transition and each piece of text.

Also the interfaces by which a mission of the system's own proposes a change; who makes proposals is another layer's business.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from batos.bus import EventBus, MissionEnded, StateEntered
from batos.objects import Root, UvmObject

Event = dict[str, Any]
Watcher = Callable[[Event], None]
_TYPED = {"state": StateEntered, "result": MissionEnded}
_FINAL = ("COMPLETE", "FAILED")
_ENDS_KEPT = 4096  # ends that were told and are not told once more
_RESTING = ("COMPLETE", "FAILED", "PAUSED", "NEEDS_INPUT", "PROVISIONING")  # states in which a cycle does nothing


class Events:
    """Publishes the events of missions to their watchers, and transitions and ends of missions on the daemon's bus.

    Where several kernels serve one image, what another one wrote is `report`ed, and what it tells of a thought under way is `relay`ed.
    Watchers hear of a mission's end once, from the first kernel that tells it. All methods are called on the loop's thread; a watcher must
    not block.
    """

    def __init__(self, bus: EventBus | None = None) -> None:
        """
        :param bus: receives `StateEntered` and `MissionEnded`; None: no events are sent, as in a rehearsal.
        """
        self._bus = bus or EventBus()
        self._watchers: dict[str, list[Watcher]] = {}
        self._listeners: dict[str, list[Watcher]] = {}
        self._followed: dict[str, list[Watcher]] = {}
        self._told: OrderedDict[str, None] | None = None

    def tell_once(self) -> None:
        """Remember the ends that watchers heard of: other kernels may report them, too."""
        self._told = OrderedDict()

    def is_told(self, mission: str) -> bool:
        """Return True if watchers heard of the end of a mission a short while ago."""
        return self._told is not None and mission in self._told

    def reopened(self, mission: str) -> None:
        """Forget that watchers heard of the end of a mission: its user has continued it, so it ends once more."""
        if self._told is not None:
            self._told.pop(mission, None)

    def watch(self, mission: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with every event of a mission, until the returned function is called."""
        return _joined(self._watchers, mission, watcher)

    def listen(self, kind: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with every event of a kind (`state`, `token`, `result` ...), of every mission, until the returned function is
        called. Of a thought under way at another kernel it hears what others asked for."""
        return _joined(self._listeners, kind, watcher)

    def follow(self, kind: str, watcher: Watcher) -> Callable[[], None]:
        """Listen as `listen` does, also to thoughts under way at other kernels, whose events are brought here for it."""
        stops = (_joined(self._listeners, kind, watcher), _joined(self._followed, kind, watcher))

        def stop() -> None:
            for one in stops:
                one()

        return stop

    def follow_with(self, origin: Callable[[str], str]) -> Callable[[str, Watcher], Callable[[], None]]:
        """Return `follow` for events that also name the origin of their mission.

        :param origin: returns the origin of a mission.
        """
        known = functools.lru_cache(_ENDS_KEPT)(origin)
        return lambda kind, watcher: self.follow(kind, lambda event: watcher({**event, "origin": known(event["id"])}))

    def heard(self, mission: str, kind: str) -> bool:
        """Return True if a client or a part of the daemon receives events of this kind of this mission."""
        return mission in self._watchers or kind in self._listeners or (kind in _TYPED and self._bus.is_heard(_TYPED[kind]))

    def is_watched(self, mission: str) -> bool:
        """Return True if this mission has watchers."""
        return mission in self._watchers

    def is_followed(self, kinds: Collection[str]) -> bool:
        """Return True if one of these kinds of events of all missions has followers."""
        return not self._followed.keys().isdisjoint(kinds)

    def publish(self, mission: str, event: Event) -> None:
        """Call the watchers of the mission and the watchers of this kind of event; then publish on the bus."""
        kind = event["type"]
        if kind in _TYPED and event["state"] in _FINAL and self.is_told(mission):
            return
        self.relay(mission, event)
        if kind == "state" and self._bus.is_heard(StateEntered):
            self._bus.publish(StateEntered(mission, event["cycle"], event["state"], event["elapsed_s"]))
        elif kind == "result":
            self._publish_end(mission, event, here=True)

    def relay(self, mission: str, event: Event) -> None:
        """Call only the watchers of the mission and the watchers of this kind of event."""
        for watcher in (*self._watchers.get(mission, ()), *self._listeners.get(event["type"], ())):
            watcher(event)

    def report(self, mission: str, event: Event) -> None:
        """Publish what another kernel wrote about a mission: a state in which it waits, a question, its end. Watchers do not hear of an end
        twice."""
        if self.is_told(mission):
            return
        self.relay(mission, event)
        if event["type"] == "result":
            self._publish_end(mission, event, here=False)
        elif event["type"] == "state" and event["state"] not in _FINAL and self._bus.is_heard(StateEntered):
            self._bus.publish(StateEntered(mission, "", event["state"], 0.0))

    def _publish_end(self, mission: str, event: Event, *, here: bool) -> None:
        if self._told is not None:
            self._told[mission] = None
            if len(self._told) > _ENDS_KEPT:
                self._told.popitem(last=False)
        error = event.get("error")
        self._bus.publish(MissionEnded(mission, event["state"], event.get("persona"), error["code"] if error else None, here))


def _joined(table: dict[str, list[Watcher]], key: str, watcher: Watcher) -> Callable[[], None]:
    """Add a watcher under a key; return the function that takes it away, which may be called again."""
    table.setdefault(key, []).append(watcher)

    def stop() -> None:
        watchers = table.get(key, [])
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            table.pop(key, None)

    return stop


class TextBatch:
    """Pieces of a text as they come: those of `every_s` seconds are passed on as one, with their number."""

    def __init__(self, tell: Callable[[str, int], None], every_s: float) -> None:
        self._tell, self._every_s = tell, every_s
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, piece: str) -> None:
        """Add a piece."""
        self._pieces.append(piece)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self.flush)

    def flush(self) -> None:
        """Pass on the pieces that are there; to be called when the text has ended, however it ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            text, count = "".join(self._pieces), len(self._pieces)
            self._pieces.clear()
            self._tell(text, count)


class Durations:
    """Seconds that cycles spend in each state."""

    def __init__(self, bus: EventBus, hear: Callable[[str, float], None]) -> None:
        """
        :param hear: takes each state that a cycle leaves, and the seconds it was in it.
        """
        self._hear = hear
        self._since: dict[tuple[str, str], tuple[str, float]] = {}
        bus.subscribe(StateEntered, self._entered)
        bus.subscribe(MissionEnded, self._ended)

    def __len__(self) -> int:
        """Return the number of cycles that are followed now."""
        return len(self._since)

    def _entered(self, event: StateEntered) -> None:
        key = (event.mission, event.cycle)
        before = self._since.pop(key, None)
        if before is not None:
            self._hear(before[0], max(0.0, event.elapsed_s - before[1]))
        if event.state not in _RESTING:
            self._since[key] = event.state, event.elapsed_s

    def _ended(self, event: MissionEnded) -> None:
        for key in [key for key in self._since if key[0] == event.mission]:
            del self._since[key]


Propose = Callable[[Any, UvmObject, UvmObject], Awaitable[dict[str, Any]]]
"""Takes the image's root, the mission and its cycle, and returns facts for the mission's result. It may ask the current attempt's model."""

Ruled = Callable[[Any, UvmObject, UvmObject], Awaitable[dict[str, Any] | None]]
"""Takes the image's root, a system mission and its persona, and returns the whole result with its `text`, if a rule decides it. None: a
model thinks the mission through.
"""


async def nothing_ruled(root: Root, mission: UvmObject, persona: UvmObject) -> dict[str, Any] | None:
    """Return None: without rules, a model thinks each mission through."""
    return None


async def nothing_proposed(root: Root, mission: UvmObject, cycle: UvmObject) -> dict[str, Any]:
    """Return no facts: the loop makes no proposals."""
    return {}
