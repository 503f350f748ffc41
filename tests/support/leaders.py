"""Whole daemons' minds as kernels of one image in one process, and the lead taken from one of them at a step of its work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.image import kernels
from batos.image.fence import Fence
from tests.support.kernels import WAIT_S, until
from tests.support.missions import FakeInference, settings

LEASE_S, LOOK_S = 5.0, 0.05
BEFORE, AFTER = "before", "after"


@contextlib.asynccontextmanager
async def daemon(uri: str, data: Path, inference: FakeInference | None = None, *, host: str = "k", **more: Any) -> AsyncIterator[Kernel]:
    """A kernel of several on this machine, without endpoints."""
    given = {"image": {"uri": uri, "kernels": "many", "kernel_name": host, "lease_s": LEASE_S, "look_s": LOOK_S}}
    data.mkdir(exist_ok=True)
    started = settings(data, **{**more, **given})
    kernel = await Kernel.start(started, inference=inference or FakeInference(), listen=False)
    try:
        yield kernel
    finally:
        await kernel.stop()


async def leads(kernel: Kernel) -> None:
    """Return when a kernel leads, and its work as the leader has begun."""
    await until(lambda: kernel.membership.leads and kernel.lead.is_led, "lead")


class Seizure:
    """Takes the lead from a kernel before a step of its work is committed, or after, and has it declared gone.

    Its commits stand still there for longer than its lease, until the other has done the work. Then it wakes, and goes on.
    """

    def __init__(self, holder: Kernel, taker: Kernel, step: str, when: str, done: Callable[[], object]) -> None:
        """
        :param step: beginning of the step's name: that of a system transaction, with the mission of an accept; or the note of a unit.
        :param done: returns whether the taker has done the work of the step.
        """
        self._holder, self._taker, self._step, self._when, self._is_done = holder, taker, step, when, done
        self._loop = asyncio.get_running_loop()
        self.begun = self.done = False
        committer = holder.image.committer
        for method, name_of in (("_try_group", self._of_group), ("_unit", self._of_unit)):
            setattr(committer, method, self._around(getattr(committer, method), name_of))

    def _around(self, real: Callable[[Any], None], names: Callable[[Any], list[str]]) -> Callable[[Any], None]:
        def seizing(work: Any) -> None:
            due = not self.begun and any(name.startswith(self._step) for name in names(work))
            self.begun |= due
            if due and self._when == BEFORE:
                self._take()
            real(work)
            if due and self._when == AFTER:
                self._take()

        return seizing

    @staticmethod
    def _of_group(group: list[Any]) -> list[str]:
        found = []
        for job in group:
            fenced = getattr(job.function, "__func__", None) in (Fence.run, Fence.run_or_drop)
            function, args = (job.args[0], job.args[1:]) if fenced else (job.function, job.args)
            found.append(f"{function.__qualname__} {args[0] if args else ''}")
        return found

    @staticmethod
    def _of_unit(commit: Any) -> list[str]:
        return [f"{commit.tm.get().user}"]

    def _take(self) -> None:
        """Called on the committer's thread of the holder, which stands still meanwhile."""
        asyncio.run_coroutine_threadsafe(self._taken(), self._loop).result(WAIT_S)
        self.done = True

    async def _taken(self) -> None:
        await self._taker.image.system(_seize, self._holder.membership.name, self._taker.membership.name)
        await leads(self._taker)
        await until(self._is_done, f"{self._step}, done by the other")


def _seize(root: Any, holder: str, taker: str) -> None:
    root[kernels.KERNELS].runs[holder].gone = kernels.SILENT
    assert kernels.take_lead(root, taker)
