"""Stepping through cycles of thought: who follows them from state to state, and slots that a user changed on the way."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

from batos.objects import UvmObject


class CycleStepper(Protocol):
    """Follower of an attempt's cycles from state to state, who may let them wait."""

    async def arrive(self, cycle: UvmObject, after: int) -> None:
        """Hear that a cycle is in a state whose behaviour has not run yet; the cycle goes on when this returns.

        :param after: number of states that the cycle was in before.
        """

    def failed(self, cycle: UvmObject) -> None:
        """Hear that an error leaves a cycle."""


def amend(cycle: UvmObject, amended: Iterable[tuple[str, str]]) -> None:
    """Give a cycle the slots that its user changed: slot, and value as JSON. What is a tuple stays one."""
    for slot, value in amended:
        new = json.loads(value)
        cycle._slots[slot] = as_tuples(new) if isinstance(cycle._slots.get(slot), tuple) else new


def as_tuples(value: Any) -> Any:
    """Return a JSON value with tuples in the place of lists."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
