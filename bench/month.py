"""A month with one user: what the expert for methods learns from what it wrote for him, day by day, on a real Ollama.

The table is that of the base, of the expert that is shipped, and of what it is after more use. Ends with one JSON line.

The user has a few kinds of tasks (families that no training of ours has seen), and puts some each day, as in life the same kinds come
again with other names, words and figures. With each he teaches one example. What is refused he teaches a second example, the day after,
and asks again. He rates what answered wrong with -1; nobody writes a method by hand. At set days `batos train methods --from-image`
is run on his image, a few minutes long, and the daemon builds the new version. Before the first day and after each training the
figures are taken, in images of their own: on tasks of his kinds that he never put, and on families that nobody ever used, which show
what is learned beyond them, or forgotten.

    python bench/month.py                      # 30 days, trainings after days 15 and 30 of 3 minutes: an hour (`make month`)
    python bench/month.py --days 6 --minutes 2 --kinds 4 --others 6 --json

`first_try` and `within_bound` are as in bench/synthesis.py. The expert is a copy of the one in `lora_staging`; that stays as it is.
Training needs the extra `training` in this Python; what it proves once takes some minutes, `--proved` spares them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from synthesis import Made, build_expert, first_try, one_task, within_bound

from batos import logs
from batos.app.kernel import Kernel
from batos.bridge.lora.staging import staging_folder
from batos.bridge.ollama_server import OllamaService
from batos.config import Settings, load
from batos.image import history, ledger, taught_examples
from batos.synthesis.families import BLIND, Family, families
from batos.training.dataset import Prover, tasks_of
from batos.training.methods import NAME
from batos.training.tasks import Task

LIFE, MEASURED = 1000, 2000  # seeds of tasks that the user puts, and of those that measure
BAR = 40  # characters of a bar that says 100 %


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--tasks-a-day", type=int, default=2)
    parser.add_argument("--kinds", type=int, default=12, help="families that the user's tasks are of")
    parser.add_argument("--each", type=int, default=2, help="tasks of each of his kinds that measure")
    parser.add_argument("--others", type=int, default=12, help="families that nobody uses, one task each")
    parser.add_argument("--base-tasks", type=int, default=4, help="of those that measure, for the base model, which takes long to fail")
    parser.add_argument("--trainings", type=int, default=2, help="how many, evenly over the days")
    parser.add_argument("--minutes", type=float, default=3, help="of one training")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--staging", default="", help="folder of the expert that it begins with; that of the checkout if left out")
    parser.add_argument("--proved", default="", help="proved.json of an earlier training of seed 1 (DATA/training/method-writer)")
    parser.add_argument("--curve", default="", help="file for the curve as text")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for Ollama's models, the images and the training, 600 MB")
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    args = parser.parse_args()
    logs.configure("error", "json")
    folder = Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    try:
        print(json.dumps(asyncio.run(Month(folder, args).run())))
    finally:
        shutil.rmtree(folder)


class Month:
    """One simulated month, in a data folder of its own."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self.folder, self.args = folder, args
        self.rng = random.Random(args.seed)
        held_out = [family for family in families() if family.part == "test" and family.group not in BLIND]
        unseen = self.rng.sample(held_out, args.kinds + args.others)
        kinds, others = unseen[: args.kinds], unseen[args.kinds :]
        self.put = self._put(kinds)
        known = {task.prompt(example=True) for task in self.put}
        fresh = [tasks_of(family, 4 * args.each, args.seed + MEASURED) for family in kinds]
        self.mine = [task for tasks in fresh for task in [one for one in tasks if one.prompt(example=True) not in known][: args.each]]
        self.theirs = [task for family in others for task in tasks_of(family, 1, args.seed + MEASURED)]
        self.again: list[tuple[str, Task]] = []
        self.points: list[dict[str, Any]] = []

    def _put(self, kinds: Sequence[Family]) -> list[Task]:
        """The tasks of the month, day after day: each kind once before one comes again."""
        count = self.args.days * self.args.tasks_a_day
        rounds = -(-count // len(kinds))
        drawn = [tasks_of(family, rounds, self.args.seed + LIFE) for family in kinds]
        return [task for n in range(rounds) for tasks in self.rng.sample(drawn, len(drawn)) for task in tasks[n : n + 1]][:count]

    async def run(self) -> dict[str, Any]:
        args = self.args
        staging = self.folder / "lora_staging"
        shutil.copytree(staging_folder(args.staging, self.folder) / NAME, staging / NAME)
        if args.proved:
            (work := self.folder / "training" / NAME).mkdir(parents=True)
            shutil.copy(args.proved, work / "proved.json")
        service = OllamaService(load({"data": self.folder, "ollama_host": "127.0.0.1:1"}, environ={}))  # nobody answers there
        host = await service.start()
        self.settings = Settings(
            data=self.folder, ollama_host=host, autotelic="off", remember="off", lora_staging=str(staging), lora_settle_s=0,
            concurrent_missions=1,
        )  # fmt: skip
        try:
            async with Prover(self.settings) as self.prover:
                base = await self._figures("base", 0, [*self.mine, *self.theirs][: args.base_tasks], writer="plain")
                self._say(f"base: {first_try(base):.0%} at the first try, {within_bound(base):.0%} within the bound, of {len(base)}")
                await self._measure(0, [])
                trained = {round(args.days * (n + 1) / args.trainings) for n in range(args.trainings)}
                begun = 1
                for day in sorted(trained):
                    lived = await self._live(range(begun, day + 1))
                    begun = day + 1
                    await self._train(day)
                    await self._measure(day, lived)
        finally:
            await service.stop()
        self._tell_curve()
        return {
            "bench": "month", "base_tasks": len(base), "base_first_try": first_try(base), "base_within_bound": within_bound(base),
            "seed": args.seed, "days": args.days, "missions": len(self.put), "kinds": args.kinds, "others": args.others,
            "mine": len(self.mine), "minutes": args.minutes, "curve": self.points,
        }  # fmt: skip

    # --- days

    async def _live(self, days: range) -> list[Made]:
        """The user's missions of some days, in his image."""
        found = []
        kernel = await Kernel.start(self.settings, listen=False)
        try:
            await build_expert(kernel)
            for day in days:
                today = self.put[(day - 1) * self.args.tasks_a_day : day * self.args.tasks_a_day]
                again, self.again = self.again, []
                for name, task in again:
                    found.append(await self._ask_again(kernel, name, task))
                for number, task in enumerate(today):
                    name = f"d{day}x{number}"
                    found.append(await self._asked(kernel, name, task))
                    if not found[-1].tries and len(task.trials) > 1:
                        self.again.append((name, task))
                self._say(f"day {day}: {len(today)} tasks, {len(again)} again; {_counted(found)} so far since the last training")
        finally:
            await kernel.stop()
        return found

    async def _asked(self, kernel: Kernel, name: str, task: Task) -> Made:
        made = await one_task(kernel, name, task, self.prover, example=True)
        if made.tries and not made.right:
            await kernel.image.system(ledger.rate, name, -1, "that is wrong")
        return made

    async def _ask_again(self, kernel: Kernel, name: str, task: Task) -> Made:
        """The same message to the same object, with a second example."""
        more = task.trials[0]
        await kernel.image.system(_teach, name, task.selector, more.to_json())
        made = await one_task(kernel, f"{name}again", task, self.prover, example=True, target=name)
        if made.tries and not made.right:
            await kernel.image.system(ledger.rate, f"{name}again", -1, "that is wrong")
        return made

    async def _train(self, day: int) -> None:
        words = [
            sys.executable, "-m", "batos", "train", "methods", "--from-image", "--minutes", str(self.args.minutes),
            "--data", str(self.folder), "--set", f"lora_staging={self.settings.lora_staging}",
        ]  # fmt: skip
        self._say(f"day {day}: training, {self.args.minutes:g} minutes")
        child = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={**os.environ, "HF_HUB_OFFLINE": "1"}
        )
        said, _ = await child.communicate()
        if child.returncode:
            raise SystemExit(f"the training failed:\n{said.decode()}")

    # --- figures

    async def _measure(self, day: int, lived: Sequence[Made]) -> None:
        mine, theirs = await self._figures("mine", day, self.mine), await self._figures("theirs", day, self.theirs)
        about = tomllib.loads((Path(self.settings.lora_staging) / NAME / "expert.toml").read_text("utf-8"))
        self.points.append({
            "day": day, "version": about["version"], "from_image": about["lineage"]["figures"].get("from_image", 0) if day else 0,
            "asked": len(lived), "kept": sum(one.tries > 0 for one in lived), "right": sum(one.right for one in lived),
            "mine_first_try": first_try(mine), "mine_within_bound": within_bound(mine),
            "others_first_try": first_try(theirs), "others_within_bound": within_bound(theirs),
        })  # fmt: skip
        self._say(f"day {day}: {json.dumps(self.points[-1])}")

    async def _figures(self, what: str, day: int, tasks: Sequence[Task], writer: str = "expert") -> list[Made]:
        image = f"file://{self.folder}/{what}-{day}.fs"
        kernel = await Kernel.start(self.settings.model_copy(update={"image": image, "synthesis_model": writer}), listen=False)
        try:
            await build_expert(kernel)
            return [await one_task(kernel, f"t{n}", task, self.prover, example=True) for n, task in enumerate(tasks)]
        finally:
            await kernel.stop()

    def _tell_curve(self) -> None:
        lines = ["day  examples  his kinds, first try                                  others, first try"]
        for point in self.points:
            bars = "  ".join(
                f"{'#' * round(BAR * point[name]):<{BAR}} {point[name]:>4.0%}" for name in ("mine_first_try", "others_first_try")
            )
            lines.append(f"{point['day']:<4} {point['from_image']:<8}  {bars}")
        lines.append("")
        lines.append("day  version  asked  kept  right  his: first try  within bound  others: first try  within bound")
        for point in self.points:
            shares = [point[name] for name in ("mine_first_try", "mine_within_bound", "others_first_try", "others_within_bound")]
            counted = f"{point['day']:<4} {point['version']:<8} {point['asked']:<6} {point['kept']:<5} {point['right']:<6}"
            lines.append(counted + " {:<15.0%} {:<13.0%} {:<18.0%} {:.0%}".format(*shares))
        text = "\n".join(lines)
        self._say(text)
        if self.args.curve:
            Path(self.args.curve).write_text(text + "\n", "utf-8")

    def _say(self, words: str) -> None:
        if not self.args.json:
            print(words, flush=True)


def _teach(root: Any, path: str, selector: str, example: dict[str, Any]) -> None:
    """System transaction: one more example."""
    taught_examples.teach(root, history.resolve(root, path)._p_oid, selector, [example], "", 16)


def _counted(found: Sequence[Made]) -> str:
    return f"{sum(one.tries > 0 for one in found)} of {len(found)} kept, {sum(one.right for one in found)} right"


if __name__ == "__main__":
    main()
