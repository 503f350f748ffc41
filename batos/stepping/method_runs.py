"""Runs of methods, as a session shows them: source, line, and the values of local variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batos.errors import InvalidInput, MethodFailed
from batos.mind.inference import as_error
from batos.objects.json_form import oid_of, plain
from batos.sandbox.tracing import RanLine, TracedRun


@dataclass(frozen=True)
class MethodRun:
    """One run, in plain values: the objects of the run are gone when it is looked at."""

    number: int
    selector: str
    receiver: str
    version: int
    source: str
    args: Any
    kwargs: Mapping[str, Any]
    value: Any
    error: dict[str, Any] | None
    line: int | None
    """Line of the source at which it failed, or the last one; None where that is not known."""
    lines: tuple[RanLine, ...] | None

    @classmethod
    def of(cls, number: int, run: TracedRun) -> MethodRun:
        """Return a run that has just ended."""
        error = as_error(run.error) if isinstance(run.error, Exception) else None
        line = run.lines[-1].line if run.lines else None
        if isinstance(error, MethodFailed):
            own = [at for selector, at in error.trace if selector == run.method.selector]
            line = own[-1] if own else line
        name = run.receiver._slots.get("name")
        receiver = name if isinstance(name, str) and name else oid_of(run.receiver) or "a new object"
        return cls(
            number, run.method.selector, receiver, run.method.version, run.method.source, plain(list(run.args)),
            {name: plain(value) for name, value in run.kwargs.items()}, plain(run.value),
            None if error is None else error.to_wire(), line, run.lines,
        )  # fmt: skip

    def row(self) -> dict[str, Any]:
        """Return the run as a row of a list."""
        told = {"number": self.number, "selector": self.selector, "object": self.receiver, "args": self.args, "line": self.line}
        return {**told, "error": self.error} if self.error is not None else {**told, "value": self.value}

    def whole(self, at: int | None) -> dict[str, Any]:
        """Return the run with its source, the lines that it came to, and the local variables at one of them.

        :param at: which of the lines that it came to, from 1; None: the last one.
        :raises InvalidInput: if it came to fewer.
        """
        told = {**self.row(), "kwargs": dict(self.kwargs), "version": self.version, "source": self.source}
        if self.lines is None:
            return {**told, "steps": [], "why": "its local variables cannot be had: its worker was ended in the middle of the run"}
        if at is not None and at > len(self.lines):
            raise InvalidInput(f"the run has {len(self.lines)} lines that are kept; there is no {at}")
        index = len(self.lines) if at is None else at
        told["steps"] = [one.line for one in self.lines]
        if self.lines:
            told |= {"step": index, "line": self.lines[index - 1].line, "locals": dict(self.lines[index - 1].values)}
        return told
