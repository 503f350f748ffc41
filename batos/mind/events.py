"""Events of missions: each transition and each piece of text, to whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
Watcher = Callable[[Event], None]


class Events:
    """Publishes the events of missions to their watchers. On the loop's thread; a watcher must not block."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Watcher]] = {}
        self._everything: list[Watcher] = []

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

    def watch_all(self, watcher: Watcher) -> None:
        """Call `watcher` with every event of every mission."""
        self._everything.append(watcher)

    def watched(self, mission: str) -> bool:
        """Whether anybody hears the events of this mission."""
        return bool(self._everything) or mission in self._watchers

    def publish(self, mission: str, event: Event) -> None:
        """Tell the watchers."""
        for watcher in (*self._watchers.get(mission, ()), *self._everything):
            watcher(event)
