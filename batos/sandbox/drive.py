"""The turns of one run: each on the loop's own thread while they are short, else on a helper thread, which the loop awaits.

A turn that was taken to be short and is not is cut off: its worker is killed, and another does the run again up to there, off the
loop, with the answers that the first one got. A run follows from its program, its arguments and these answers alone, so nothing is
asked or done twice.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from batos import processor
from batos.errors import SandboxFailed
from batos.sandbox.activity import Activity
from batos.sandbox.programs import Loaded
from batos.sandbox.watch import Overdue
from batos.sandbox.workers import Session, Workers

_REPEATED = 16  # answers that are kept, to be given again; a run with more is not cut off any more

Answer = Callable[[Any], Any]
"""Resumes a snapshot, and answers the next."""


class Drive:
    """A run in a worker. `begin` and `answer` give what it stands still with: a snapshot, or its end."""

    def __init__(self, workers: Workers, session: Session, loaded: Loaded, activity: Activity) -> None:
        self._workers, self._session, self._loaded, self._activity = workers, session, loaded, activity
        self._begin: Callable[[], Any] | None = None
        self._answers: list[tuple[Any, Answer]] | None = []

    async def begin(self, feed: Callable[[Session], Any]) -> Any:
        """The first turn: `feed` gives a worker's session its code."""
        self._begin = functools.partial(feed, self._session)
        return await self._turn(self._begin)

    async def answer(self, snapshot: Any, answer: Answer) -> Any:
        """The next turn."""
        if self._answers is not None and len(self._answers) < _REPEATED:
            self._answers.append((_question(snapshot), answer))
        else:
            self._answers = None
        return await self._turn(functools.partial(answer, snapshot))

    async def _turn(self, call: Callable[[], Any]) -> Any:
        pace, begun = self._loaded.pace, time.perf_counter()
        charged = processor.charge(None)  # what the client computes in a turn is in its time
        try:
            if self._answers is not None and pace.short:
                return await self._session.short_turn(call)
            return await self._session.turn(call)
        except Overdue:
            pace.cut()
            return await self._again()
        finally:
            took = time.perf_counter() - begun
            pace.took(took)
            self._activity.seconds += took
            processor.charge(charged)

    async def _again(self) -> Any:
        assert self._begin is not None
        answers, self._answers = self._answers or [], None
        await self._workers.load(self._session, self._loaded.image)
        snapshot = await self._session.turn(self._begin)
        for question, answer in answers:
            if _question(snapshot) != question:
                raise SandboxFailed(f"{self._loaded.program.selector}: done again, the run went another way")
            snapshot = await self._session.turn(functools.partial(answer, snapshot))
        return snapshot


def _question(snapshot: Any) -> tuple[Any, ...]:
    return type(snapshot), getattr(snapshot, "object_id", None), getattr(snapshot, "function_name", None)
