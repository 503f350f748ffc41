"""Events of missions: each transition and each piece of text, for watchers; and hooks that other layers fill.

The hooks return proposals of a system mission after its thought, and rule-based answers before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from batos.objects import UvmObject

Event = dict[str, Any]
Watcher = Callable[[Event], None]
_RESTING = ("COMPLETE", "FAILED", "PAUSED", "NEEDS_INPUT", "PROVISIONING")  # states in which a cycle does nothing


class Events:
    """Publishes the events of missions to their watchers. On the loop's thread; a watcher must not block."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Watcher]] = {}
        self._listeners: dict[str, list[Watcher]] = {}

    def watch(self, mission: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with every event of a mission, until the returned function is called."""
        self._watchers.setdefault(mission, []).append(watcher)

        def stop() -> None:
            watchers = self._watchers.get(mission, [])
            if watcher in watchers:
                watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(mission, None)

        return stop

    def listen(self, kind: str, watcher: Watcher) -> None:
        """Call `watcher` with every event of a kind (`state`, `token`, `result` ...), of every mission."""
        self._listeners.setdefault(kind, []).append(watcher)

    def heard(self, mission: str, kind: str) -> bool:
        """Return True if there is a listener for events of this kind of this mission."""
        return mission in self._watchers or kind in self._listeners

    def publish(self, mission: str, event: Event) -> None:
        """Tell the watchers."""
        for watcher in (*self._watchers.get(mission, ()), *self._listeners.get(event["type"], ())):
            watcher(event)


class TextBatch:
    """Gathers the pieces of a text as they come, and passes on what came within `every_s` seconds as one, with their number."""

    def __init__(self, tell: Callable[[str, int], None], every_s: float) -> None:
        self._tell, self._every_s = tell, every_s
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, piece: str) -> None:
        """Hear a piece."""
        self._pieces.append(piece)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self.flush)

    def flush(self) -> None:
        """Pass on the collected text; call it when the text has ended, in any way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            text, count = "".join(self._pieces), len(self._pieces)
            self._pieces.clear()
            self._tell(text, count)


class Durations:
    """Tells a hearer of each state that a cycle leaves, with the seconds it was in it."""

    def __init__(self, events: Events, hear: Callable[[str, float], None]) -> None:
        self._hear = hear
        self._since: dict[tuple[str, str], tuple[str, float]] = {}
        events.listen("state", self._moved)
        events.listen("result", self._ended)

    def __len__(self) -> int:
        """Return the cycles that are followed now."""
        return len(self._since)

    def _moved(self, event: Event) -> None:
        key = (event["id"], event["cycle"])
        before = self._since.pop(key, None)
        if before is not None:
            self._hear(before[0], max(0.0, event["elapsed_s"] - before[1]))
        if event["state"] not in _RESTING:
            self._since[key] = event["state"], event["elapsed_s"]

    def _ended(self, event: Event) -> None:
        for key in [key for key in self._since if key[0] == event["id"]]:
            del self._since[key]


Propose = Callable[[Any, UvmObject, UvmObject], Awaitable[dict[str, Any]]]
"""From the image's root, the mission and its cycle: facts for the mission's result. It may ask the current attempt's model."""

Ruled = Callable[[Any, UvmObject, UvmObject], Awaitable[dict[str, Any] | None]]
"""From the image's root, a mission of the system's own and the persona that has it: its whole result, `text` and what else there is, where
no model is to think it through; else None."""


async def nothing_ruled(root: Any, mission: UvmObject, persona: UvmObject) -> dict[str, Any] | None:
    """Return no rule-based answer, so that a model thinks. The default hook."""
    return None


async def nothing_proposed(root: Any, mission: UvmObject, cycle: UvmObject) -> dict[str, Any]:
    """Return no proposals. The default hook."""
    return {}
