"""Scope: the mission, cycle, trial and run on whose behalf code works, where arguments cannot carry them.

A generated method sends a message, a Primitive answers it and asks a model, and the model's host gives turns. Between these are the
database, the sandbox and user code, which know nothing of missions. So these facts travel in one context variable, which asyncio copies
into every task created inside (as `trio.lowlevel.current_task`). Facts that can be arguments are arguments.

    with scope.enter(cycle=cycle):      # inside, `scope.current().cycle` is this cycle; all other fields are as outside
        ...

A scope is frozen: entering one never affects other tasks. This module is below all its users and does not know their classes. Each
field names the module that owns it, and only that module sets it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Hashable
from typing import Any, NamedTuple


class Scope(NamedTuple):
    """Facts about the task. Outside of missions each has its default."""

    attempt: Any = None
    """The attempt at a mission: a `batos.mind.attempt.Attempt`. None outside of missions."""
    cycle: Any = None
    """The innermost cycle that runs: a `UvmObject` (`batos.mind.psm`). None outside of cycles."""
    trial: Any = None
    """The counters of the current trial: a `batos.mind.inference.AttemptTally`. None outside of trials, where results are kept."""
    writing: tuple[Hashable, ...] = ()
    """Keys of the methods that are being written in this context, the outermost first. The trial of one may need another
    (`batos.methods.runtime.Making`)."""
    drafts: tuple[Any, ...] = ()
    """Methods on trial in this context, each with the id of the object that would hold it (`batos.forge.trials.Draft`). The trial of one
    may send another."""
    ticket: Any = None
    """The mission's place in the queue for models: a `batos.bridge.admission.Ticket`. Memory uses it to embed a question on behalf of the
    mission that asks; memory itself knows no missions. None outside of missions."""
    run: Any = None
    """The method run on whose behalf host code works: a `batos.sandbox.Invocation`. A send in that run is one level deeper. None outside of
    runs."""

    lead: Any = None
    """The lead under which work runs that one kernel alone does: a `batos.image.fence.Fence`. None for all other work, and where one daemon
    has its image to itself."""

    @property
    def in_trial(self) -> bool:
        """Return True where a method is tried, and nothing that is done is kept."""
        return self.trial is not None


_scope: contextvars.ContextVar[Scope] = contextvars.ContextVar("batos_scope", default=Scope())  # noqa: B039 - it is a tuple


def current() -> Scope:
    """Return the scope of the code that calls this."""
    return _scope.get()


def enter(**facts: Any) -> Entering:
    """Enter a scope that differs from the current one in these fields of `Scope`, for the block and the tasks that it creates.

    :raises ValueError: for a name that is none of these fields.
    """
    return Entering(_scope.get()._replace(**facts))


def begin(attempt: Any) -> Entering:
    """Enter the scope of an attempt. Of the scope around it only the ticket stays: nothing of a mission in which this one was given."""
    return Entering(Scope(attempt=attempt, ticket=_scope.get().ticket))


class Entering:
    """A context manager that enters a scope; each run of a method enters one, so it costs no generator."""

    __slots__ = ("_scope", "_token")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __enter__(self) -> Scope:
        self._token = _scope.set(self._scope)
        return self._scope

    def __exit__(self, *_: object) -> None:
        _scope.reset(self._token)
