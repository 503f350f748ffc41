"""Events of missions, as clients watch them: each transition and each piece of text.

Also the interfaces by which a mission of the system's own proposes a change; who makes proposals is another layer's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from batos.bus import EventBus, MissionEnded, StateEntered
from batos.objects import Root, UvmObject

Event = dict[str, Any]
Watcher = Callable[[Event], None]
_TYPED = {"state": StateEntered, "result": MissionEnded}
_RESTING = ("COMPLETE", "FAILED", "PAUSED", "NEEDS_INPUT", "PROVISIONING")  # states in which a cycle does nothing


class Events:
    """Publishes the events of missions to their watchers, and transitions and ends of missions on the daemon's bus.

    All methods are called on the loop's thread; a watcher must not block.
    """

    def __init__(self, bus: EventBus | None = None) -> None:
        """
        :param bus: receives `StateEntered` and `MissionEnded`; None: no events are sent, as in a rehearsal.
        """
        self._bus = bus or EventBus()
        self._watchers: dict[str, list[Watcher]] = {}
        self._listeners: dict[str, list[Watcher]] = {}

    def watch(self, mission: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with every event of a mission, until the returned function is called."""
        return _joined(self._watchers, mission, watcher)

    def listen(self, kind: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with every event of a kind (`state`, `token`, `result` ...), of every mission, until the returned function is
        called."""
        return _joined(self._listeners, kind, watcher)

    def heard(self, mission: str, kind: str) -> bool:
        """Return True if a client or a part of the daemon receives events of this kind of this mission."""
        return mission in self._watchers or kind in self._listeners or (kind in _TYPED and self._bus.is_heard(_TYPED[kind]))

    def publish(self, mission: str, event: Event) -> None:
        """Call the watchers of the mission and the watchers of this kind of event; then publish on the bus."""
        kind = event["type"]
        for watcher in (*self._watchers.get(mission, ()), *self._listeners.get(kind, ())):
            watcher(event)
        if kind == "state" and self._bus.is_heard(StateEntered):
            self._bus.publish(StateEntered(mission, event["cycle"], event["state"], event["elapsed_s"]))
        elif kind == "result":
            error = event.get("error")
            self._bus.publish(MissionEnded(mission, event["state"], event.get("persona"), error["code"] if error else None))


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
