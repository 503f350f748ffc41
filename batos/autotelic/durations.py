"""How long cycles stay in their states, from the events of missions."""

from __future__ import annotations

from collections.abc import Callable

from batos.mind.events import Event, Events

_RESTING = ("COMPLETE", "FAILED", "PAUSED", "NEEDS_INPUT", "PROVISIONING")


class Durations:
    """Tells a hearer of each state that a cycle leaves, with the seconds it was in it."""

    def __init__(self, events: Events, hear: Callable[[str, float], None]) -> None:
        self._hear = hear
        self._since: dict[tuple[str, str], tuple[str, float]] = {}
        events.listen("state", self._moved)
        events.listen("result", self._ended)

    def __len__(self) -> int:
        """The cycles that are followed now."""
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
