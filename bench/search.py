"""What the search for a method finds by itself: known methods, and those put together of parts. No model is asked, and nothing is kept.

Ends with one JSON line.

Each task is a request with one example, as `bench/synthesis.py` has them; the hidden trials say which of what passes the example is right.
Of the handbook's own families (`train`) those are searched that are plain, without the methods of any shape that is searched.

    python bench/search.py                                        # all tasks for validation
    python bench/search.py --part train --skip 300 --tasks 100    # of the handbook's, in an order that does not change
    python bench/search.py --pools here.jsonl                     # and what passed, a line a task

Figures are shares of the tasks that can be searched: those whose example says no more than true, false or nothing cannot (`constant`), nor
can those that name a message which is no function. `found`: something right is among what passes. `first`: the likeliest is right.
`at_once`: it would be taken before a model is asked, and is right; `at_once_wrong`: is not. `seconds` are those of the median search.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from batos import logs
from batos.config import Settings, load
from batos.forge import candidate_search, method_prompts
from batos.guardian import PersistenceGuardian
from batos.image import taught_examples
from batos.objects import Method, UvmObject
from batos.sandbox import Activity, Sandbox, unsupported
from batos.synthesis import adaptation, batch_runner, composer, handbook, ranking, word_costs
from batos.synthesis.batch_runner import BatchRunner
from batos.synthesis.handbook import entries
from batos.synthesis.specification import SearchBudget, SearchContext
from batos.training.dataset import Prover, generate
from batos.training.tasks import Task

PLAIN = ("thinking", "composed", "products")  # what the groups of the handbook's families begin with that are not
JUDGED = 12  # of the groups that do the same elsewhere, the likeliest


class Searched(NamedTuple):
    """What a search found.

    :ivar pool: of what does the same elsewhere its share of the weight, what the cheapest costs, the first source, and if it is right.
    """

    task: Task
    chance: float
    seconds: float
    pool: Sequence[tuple[float, float, str, bool]]

    @property
    def found(self) -> bool:
        return any(right for *_, right in self.pool)

    @property
    def first(self) -> bool:
        return bool(self.pool) and self.pool[0][-1]


class Searcher:
    """Searches for tasks that are in no image. An async context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._guardian = settings, PersistenceGuardian(settings)
        self._sandbox, self._prover = Sandbox(settings), Prover(settings)

    async def __aenter__(self) -> Searcher:
        await self._sandbox.start()
        await self._prover.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._prover.__aexit__(*error)
        await self._sandbox.close()

    async def search(self, task: Task) -> Searched | None:
        """What is found; None where nothing may be searched for."""
        if taught_examples.all_constant([task.shown]):
            return None
        target, told, settings = task.target(), {"intent": task.intent, "examples": [task.shown]}, self._settings
        spec = candidate_search.specification_of(target, task.selector, task.args, dict(task.kwargs), **told)
        named = [one for one in method_prompts.sends_spoken_of(target, task.selector, task.intent) if one != "think_"]
        if set(named) - {*spec.helpers}:
            return None
        runner, begun = (
            BatchRunner(self._run, source_bytes=settings.method_bytes, helpers=spec.helpers, supports=_supports),
            time.monotonic(),
        )
        known = [] if named else tuple(handbook.handbook().alike(spec.known.told, without=spec.known.slots))
        budget = SearchBudget(adaptations=settings.synthesis_reuse, parts=settings.synthesis_parts)
        context = SearchContext(spec, runner, lambda text: self._guardian.audit(text, task.selector).accepted, budget)
        near = await adaptation.adapted_passing(context, known, within=candidate_search.KNOWN)
        made = await composer.composed(context, known)
        passed = (*((cost + candidate_search.ELSEWHERE, text) for cost, text in near), *made)
        passed = word_costs.priced(passed, spec.known.told, without=spec.known.slots)
        groups = await ranking.able(context, passed, about=ranking.ABOUT)
        seconds = time.monotonic() - begun
        pool = []
        for share, group in ranking.by_best(groups)[:JUDGED]:
            source = group.sources[0]
            right = (await self._prover.judge(task, source)).right
            pool.append((share, group.cost, source, right))
        chance = candidate_search.chance(pool[0][0], pool[0][1], spec) if pool else 0.0
        return Searched(task, chance, seconds, pool)

    async def _run(self, text: str, given: list[Any]) -> Any:
        activity = Activity(self._sends, "search", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        return await self._sandbox.run(UvmObject(), Method(batch_runner.SELECTOR, text), [given], activity=activity)

    async def _sends(self, *message: Any, **more: Any) -> Any:
        raise AssertionError("methods that run side by side send nothing")


def _supports(source: str) -> bool:
    return not unsupported(source)


def tasks_of(args: argparse.Namespace) -> list[Task]:
    """The tasks, in an order that does not change with how many are wanted."""
    held = [task for task in generate(args.part, args.seed, each=1) if args.part != "train" or not task.group.startswith(PLAIN)]
    random.Random(args.seed).shuffle(held)
    return held[args.skip :][: args.tasks or None]


def leave_out(shapes: set[str]) -> None:
    """Have a handbook without methods of these shapes. Before it is read: what is made of it is cached."""
    held = tuple(one for one in entries() if one.shape not in shapes)
    handbook.entries = word_costs.entries = lambda: held


async def measure(args: argparse.Namespace, folder: str) -> list[Searched]:
    tasks = tasks_of(args)
    leave_out({task.shape for task in tasks})
    found = []
    async with Searcher(load({"data": folder}, environ={})) as searcher:
        for number, task in enumerate(tasks, 1):
            if (one := await searcher.search(task)) is None:
                continue
            found.append(one)
            what = "first" if one.first else "found" if one.found else "wrong" if one.pool else "nothing"
            if not args.json:
                print(f"{number}/{len(tasks)} {task.family}: {what}, {one.chance:.2f}, {one.seconds:.1f} s", flush=True)
            if args.pools:
                with args.pools.open("a", encoding="utf-8") as file:
                    told = {
                        "family": task.family,
                        "group": task.group,
                        "intent": task.intent,
                        "selector": task.selector,
                        "source": task.source,
                    }
                    told |= {"shown": task.shown.to_json(), "chance": one.chance, "seconds": one.seconds, "pool": one.pool}
                    file.write(json.dumps(told, ensure_ascii=False) + os.linesep)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="validation", choices=("train", "validation", "test", "far"))
    parser.add_argument("--skip", type=int, default=0, help="tasks that are left out first")
    parser.add_argument("--tasks", type=int, default=0, help="tasks, one a family; 0: all")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--pools", type=Path, help="file of JSON lines to which is added what passed")
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    args = parser.parse_args()
    logs.configure("error", "json")
    with tempfile.TemporaryDirectory(prefix="batos-bench-") as folder:
        found = asyncio.run(measure(args, folder))
    taken = [one for one in found if one.chance >= candidate_search.AT_ONCE]

    def share(held: Sequence[Any]) -> float:
        return round(len(held) / max(1, len(found)), 4)

    print(json.dumps({
        "bench": "search", "part": args.part, "tasks": len(found), "found": share([one for one in found if one.found]),
        "first": share([one for one in found if one.first]), "at_once": share([one for one in taken if one.first]),
        "at_once_wrong": share([one for one in taken if not one.first]),
        "seconds": round(statistics.median([one.seconds for one in found] or [0.0]), 2),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
