"""What a generated method costs beside a plain call, and what the client's protocol makes it cost at least.

Medians, in milliseconds. "warm" is the latency of a call whose worker waits loaded, as it does a millisecond after the last
call; "floor" is what the client alone takes for the same round trips, measured in turns with it, and "to_floor" the median of
their ratios; "at once" is the same in an unbroken row of calls. Ends with one JSON line.

    python bench/sandbox.py
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from batos.config import Settings
from batos.daemon import calm_collector
from batos.errors import BatosError
from batos.objects import Method, UvmObject
from batos.sandbox import Activity, Sandbox
from batos.sandbox.membrane import Handles
from batos.sandbox.program_cache import Loaded

PURE = "def twice(self, n):\n    return n * 2\n"
READ_WRITE = "def bump(self, by):\n    self.count = self.count + by\n    self._p_changed = True\n    return self.count\n"
NESTED = "def outer(self, n):\n    return self.twice(n)\n"
ATTACKS = (
    "def m(self):\n    while True:\n        pass\n",
    "def m(self):\n    x = []\n    while True:\n        x = [x, x]\n",
    "def m(self):\n    x = 3\n    for i in range(40):\n        x = x * x\n    return x\n",
    "def m(self):\n    return list(range(300_000))\n",
    "def m(self):\n    return [{'k' + str(i): i} for i in range(30_000)]\n",
    "def m(self):\n    self.see([str(i) for i in range(100_000)])\n",
    "def m(self):\n    a = ['x']\n    for i in range(40):\n        a = [a, a]\n    return a\n",
    "def m(self):\n    return 'x' * 20_000_000\n",
    "def m(self):\n    for i in range(20_000):\n        hasattr(self, 'no' + str(i))\n",
    "def m(self):\n    self.rows = [[i] for i in range(2_500)]\n    for i in range(30):\n        self.twin()\n",
)


class Plain:
    """What `self` is in a plain call."""

    count = 0

    def twice(self, n: int) -> int:
        return n * 2


class Sends:
    """Sends to methods in slots, and nothing else."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.activity = Activity(self, "bench", datetime.datetime.now(datetime.UTC))

    async def __call__(
        self, obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], /, *, start: tuple[UvmObject, ...] = ()
    ) -> Any:
        held = getattr(obj, selector) if selector in obj._slots else None
        return await self.sandbox.run(obj, held, args, kwargs, activity=self.activity) if isinstance(held, Method) else held


async def timed(rounds: int, work: Callable[[], Awaitable[Any]], between: Callable[[], Awaitable[Any]] | None) -> float:
    times = []
    for _ in range(rounds):
        if between is not None:
            await between()
        begun = time.perf_counter()
        await work()
        times.append(time.perf_counter() - begun)
    return round(statistics.median(times) * 1e3, 4)


def plain_call(rounds: int) -> float:
    plain, times = Plain(), []
    for _ in range(rounds):
        begun = time.perf_counter()
        plain.twice(2)
        times.append(time.perf_counter() - begun)
    return round(statistics.median(times) * 1e3, 6)


def timed_calls(rounds: int, work: Callable[[], Any]) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return round(statistics.median(times) * 1e3, 4)


async def floors(sandbox: Sandbox, rounds: int) -> dict[str, float]:
    """What the client costs for nothing at all: a feed of `1`, one answer to a host call; and a checkout with a feed, by our threads."""

    async def checkout_and_feed() -> None:
        session = await sandbox.workers.session()
        await session.turn(lambda: session.monty.feed_start("1"))
        await session.leave()

    session = await sandbox.workers.session()
    found = {
        "checkout_and_feed_ms": await timed(rounds, checkout_and_feed, None),
        "floor_feed_ms": timed_calls(rounds, lambda: session.monty.feed_start("1")),
    }
    snapshot = session.monty.feed_start(f"for i in range({rounds + 1}): f(i)")

    def answer() -> None:
        nonlocal snapshot
        snapshot = snapshot.resume({"return_value": 1})

    found["floor_host_call_ms"] = timed_calls(rounds, answer)
    await session.leave()
    return found


class Floor:
    """The same work by the client alone: the same round trips to workers that wait with the same methods loaded, and nothing of
    ours around them, not even a thread. Measured in turns with the runs, since the clock of a machine that others use, too, varies."""

    def __init__(self, sandbox: Sandbox, obj: UvmObject, loaded: Mapping[str, Loaded]) -> None:
        self.sandbox, self.obj, self.loaded = sandbox, obj, loaded
        self.name = Sends(sandbox).activity.name

    @contextlib.asynccontextmanager
    async def worker(self, selector: str) -> AsyncIterator[Any]:
        loaded = self.loaded[selector]
        session = await self.sandbox.workers.take(loaded.key, loaded.image)
        yield session.monty
        self.sandbox.workers.give_back(session, loaded.key, loaded.image)

    def given(self) -> dict[str, Any]:
        return {"_b_given": [Handles(self.name).give(self.obj), 2]}

    async def no_host_call(self) -> float:
        """One feed: a handle and a number go in, a number comes out."""
        async with self.worker("twice") as monty:
            begun = time.perf_counter()
            monty.feed_start("twice(*_b_given)", inputs=self.given())
            return time.perf_counter() - begun

    async def read_and_write(self) -> float:
        """One feed: the slot's value goes in besides, and what is to be written comes out."""
        async with self.worker("bump") as monty:
            begun = time.perf_counter()
            given = {"_b_given": [*self.given()["_b_given"], {"count": 1}]}
            monty.feed_start("[_b_given[1] + 1, [[_b_given[0], 'count', 3]]]", inputs=given)
            return time.perf_counter() - begun

    async def nested_send(self) -> float:
        """A feed that stops at a host call, a feed to another worker, and the answer to the first."""
        async with self.worker("outer") as monty, self.worker("twice") as inner:
            begun = time.perf_counter()
            snapshot = monty.feed_start("_b_call(*_b_given)", inputs=self.given())
            answer = inner.feed_start("twice(*_b_given)", inputs=self.given())
            snapshot.resume({"return_value": answer.output})
            return time.perf_counter() - begun


async def in_turns(
    rounds: int, floor: Callable[[], Awaitable[float]], work: Callable[[], Awaitable[Any]], workers: Any
) -> dict[str, float]:
    """Medians of the floor and of the runs, a round of each in turns, and the median of their ratios."""
    floors, runs = [], []
    for _ in range(rounds):
        await workers.idle()
        floors.append(await floor())
        await workers.idle()
        begun = time.perf_counter()
        await work()
        runs.append(time.perf_counter() - begun)
    ratio = statistics.median(run / least for run, least in zip(runs, floors, strict=True))
    return {
        "warm_ms": round(statistics.median(runs) * 1e3, 4),
        "floor_ms": round(statistics.median(floors) * 1e3, 4),
        "to_floor": round(ratio, 2),
    }


async def stall(settings: Settings) -> dict[str, float]:
    """The longest time for which the loop did not run while methods did their worst, in milliseconds: by the clock, and as far
    as this process itself was computing (on a busy machine the loop waits for a core, too)."""
    clock = own = 0.0

    async def beat() -> None:
        nonlocal clock, own
        last = (time.perf_counter(), time.process_time())
        while True:
            await asyncio.sleep(0.001)
            now = (time.perf_counter(), time.process_time())
            gap = now[0] - last[0] - 0.001
            clock, own, last = max(clock, gap), max(own, min(gap, now[1] - last[1])), now

    async with Sandbox(settings.model_copy(update={"sandbox_time_s": 0.5})) as sandbox:
        calm_collector()  # as the daemon does
        heart = asyncio.ensure_future(beat())
        for source in ATTACKS:
            sends = Sends(sandbox)
            obj = UvmObject(see=1, twin=Method("twin", "def twin(self):\n    self.rows.append(1)\n"))
            with contextlib.suppress(BatosError):  # that it is stopped is the tests' matter; here it is for how long it was felt
                await sandbox.run(obj, Method("m", source), activity=sends.activity)
        heart.cancel()
    return {"stall_under_attack_ms": round(clock * 1e3, 1), "stall_by_own_work_ms": round(own * 1e3, 1)}


def audit(rounds: int) -> dict[str, float]:
    """What the guardian takes for a method, where there is one."""
    try:
        from batos.guardian import PersistenceGuardian
    except ImportError:
        return {}
    guardian, times = PersistenceGuardian(), []
    for _ in range(rounds):
        begun = time.perf_counter()
        guardian.audit(READ_WRITE, "bump")
        times.append(time.perf_counter() - begun)
    return {"guardian_audit_ms": round(statistics.median(times) * 1e3, 4)}


async def measured(rounds: int) -> dict[str, Any]:
    settings = Settings(sandbox_sends=10**7, sandbox_total_s=10_000)
    line: dict[str, Any] = {"rounds": rounds, "plain_call_ms": plain_call(rounds), **audit(rounds)}
    async with Sandbox(settings) as sandbox:
        line["walls"] = sandbox.walls
        line |= await floors(sandbox, rounds)
        slots = {m.selector: m for m in (Method(s[4:].partition("(")[0], s) for s in (PURE, READ_WRITE, NESTED))}
        obj, sends = UvmObject(count=0, **slots), Sends(sandbox)
        floor = Floor(sandbox, obj, {name: await sandbox.programs.get(method.source) for name, method in slots.items()})
        for name, selector in (("no_host_call", "twice"), ("read_and_write", "bump"), ("nested_send", "outer")):

            async def run(method: Method = slots[selector]) -> Any:
                return await sandbox.run(obj, method, [2], activity=sends.activity)

            await timed(20, run, sandbox.workers.idle)
            found = await in_turns(rounds, getattr(floor, name), run, sandbox.workers)
            line |= {f"{name}_{what}": value for what, value in found.items()}
            line[f"{name}_at_once_ms"] = await timed(rounds, run, None)
    line |= await stall(Settings())
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON line")
    args = parser.parse_args()
    line = asyncio.run(measured(args.rounds))
    if not args.json:
        for name, value in line.items():
            print(f"{name:32} {value}")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
