"""Stepped run: a mission thought again from its beginning, state by state, in one doomed unit of work of a mirror.

A cycle that reaches a state waits there until it may go on. Cycles that think at the same time wait each in its own state. They go on in
the order in which they came, so that the numbers of their transitions are those in which they are shown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from transaction.interfaces import TransientError
from ZODB.POSException import POSKeyError

from batos.errors import BatosError, BatosSignal, HistoryGone
from batos.image.living_image import LivingImage
from batos.image.unit_of_work import Unit
from batos.mind.attempt import Attempt
from batos.mind.inference import NeedAnswer, PromptTooLong, as_error
from batos.missions.execution import Attempts
from batos.objects import UvmObject


class Transition(NamedTuple):
    """A cycle in a state whose behaviour has not run yet. Number 0 is the beginning, before any cycle."""

    number: int
    cycle: str
    """Number of the cycle; empty at the beginning."""
    after: int
    """Number of states that the cycle was in before."""
    state: str
    persona: str


Stop = Callable[[Transition], bool]


def never(transition: Transition) -> bool:
    """Return False: the mission is thought to its end."""
    return False


class SteppedRun:
    """One thinking again. It is a `batos.mind.cycle_stepper.CycleStepper`."""

    def __init__(self, image: LivingImage, attempt: Attempt) -> None:
        """
        :param image: the mirror.
        """
        self.attempt, self._image = attempt, image
        self.transitions = [Transition(0, "", 0, "IDLE", "")]
        self.cycles: list[UvmObject | None] = [None]
        """The cycle of each transition."""
        self.standing = 0
        """Number of the transition at which it stands."""
        self.result: dict[str, Any] | None = None
        self.error: Exception | None = None
        self.question: NeedAnswer | None = None
        self.cycle: UvmObject | None = None
        """The mission's own cycle, once it has ended well."""
        self._broken: UvmObject | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._changed = asyncio.Event()
        self._life = contextlib.AsyncExitStack()
        self._task: asyncio.Task[None] | None = None
        self.unit: Unit | None = None
        attempt.stepper = self

    # --- the cycles

    async def arrive(self, cycle: UvmObject, after: int) -> None:
        """See `CycleStepper`."""
        number = len(self.transitions)
        state = str(cycle._slots["state*"].name)
        self.transitions.append(Transition(number, str(cycle.number), after, state, str(cycle.persona.name)))
        self.cycles.append(cycle)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, place))
        self._changed.set()
        await place

    def failed(self, cycle: UvmObject) -> None:
        """See `CycleStepper`: the innermost cycle fails first."""
        self._broken = self._broken or cycle

    # --- going on

    @property
    def has_ended(self) -> bool:
        """Return True if the mission was thought to its end, whatever that is."""
        return self._task is not None and self._task.done()

    async def enter(self) -> None:
        """Open the unit of work."""
        self.unit = await self._life.enter_async_context(self._image.unit())
        self.unit.doom()

    async def go(self, stop: Stop) -> None:
        """Go on until a transition fits, or to the end."""
        if self._task is None:
            self._task = asyncio.create_task(self._think(), name=f"step {self.attempt.id}")
        else:
            self._release()
        while not self.has_ended:
            if self._waiting:
                number = self._waiting[0][0]
                self.standing = number
                if stop(self.transitions[number]):
                    return
                self._release()
                continue
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait([self._task, changed], return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
        self.standing = self._last()

    def _release(self) -> None:
        if self._waiting:
            place = self._waiting.popleft()[1]
            if not place.done():
                place.set_result(None)

    def _last(self) -> int:
        """Return the last transition of the cycle that failed; of the mission's own cycle where none did."""
        cycle = self._broken
        if cycle is None:
            cycle = next((one for one in self.cycles if one is not None), None)
        return max((n for n, one in enumerate(self.cycles) if one is cycle), default=0) if cycle is not None else 0

    async def _think(self) -> None:
        attempts = Attempts(self._image, conflict_retries=1)
        assert self.unit is not None
        try:
            self.result, self.cycle = await attempts.think_in(self.unit, self.attempt)
        except NeedAnswer as need:
            self.question = need
        except PromptTooLong as found:
            self.error = found.cause
        except BatosSignal as signal:  # a model to be provided, a method that another mission writes
            self.error = BatosError(f"the mission waits here: {type(signal).__name__} {signal}".strip())
        except POSKeyError as e:
            self.error = HistoryGone(
                f"a record of the image as it was is no longer kept ({e}); open the session again: it then sees the present"
            )
        except TransientError as e:
            self.error = BatosError(f"{type(e).__name__}: {e}")
        except Exception as e:
            self.error = as_error(e)

    async def close(self) -> None:
        """End the thinking and its unit of work."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        self.attempt.making.release()
        await self._life.aclose()
