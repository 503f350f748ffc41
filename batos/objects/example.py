"""Examples of a message: a call and what it must answer, in plain values."""

from __future__ import annotations

from typing import Any, NamedTuple


class Example(NamedTuple):
    """One example: the arguments, the answer, and the receiver's slots before and after the call.

    :ivar slots: slots that the receiver has before the call. Where the example says none, the receiver's own count.
    :ivar after: slots that the receiver must have after the call.
    """

    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    result: Any = None
    slots: tuple[tuple[str, Any], ...] = ()
    after: tuple[tuple[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the example as a JSON object. Empty fields are left out, but never the result."""
        told = {"args": list(self.args), "kwargs": dict(self.kwargs), "slots": dict(self.slots), "after": dict(self.after)}
        return {**{name: value for name, value in told.items() if value}, "result": self.result}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Example:
        """Return the example that `to_json` described."""
        pairs = {name: tuple((told.get(name) or {}).items()) for name in ("kwargs", "slots", "after")}
        return cls(args=tuple(told.get("args") or ()), result=told.get("result"), **pairs)
