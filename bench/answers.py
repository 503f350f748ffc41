"""How often a mission answers right where its own model, asked directly, does: each task both ways, in turns, in the same run.

Ends with one JSON line.

`right`: of 160 closed tasks (`bench/tasks.py`), by their checks, on the half that is open and on the one that is held back; `only_mission`
and `only_direct`: tasks that one side alone had right; `p`: McNemar's, exact and two-sided. A task is a mission of a kernel, and a call of
the model that the personas are made of: temperature 0.2, the same `num_ctx` and `num_predict`, no system message. What was said before a
follow-up is the same on both sides. Of the half that is held back only counts are told, and no answer is kept.

    python bench/answers.py --tasks 24 --half open
    python bench/answers.py --depth direct --answers /tmp/answers.jsonl      # what was said, of the open half, to look at

`--open`: open briefs instead. Told are answers that are `garbage` (why) or `cut` off. With `--sheets FOLDER` the answers are written for
judges, who do not see which is whose (`bench/judge.py` says how).

    python bench/answers.py --open --use judged --sheets /tmp/sheets
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import judge
from checks import cut_off, garbage, right
from sides import Said, Sides, arguments, server, sides
from tasks import CLOSED, HALVES, OPEN, Task, load, some

from batos import logs

SIDES = ("mission", "direct")
Pair = dict[str, Said]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=0, help="so many, of all kinds alike; 0: all")
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--depth", default="", help="of the missions; default: they ask for none")
    parser.add_argument("--open", action="store_true", help="open briefs instead of closed tasks")
    parser.add_argument("--use", choices=("garbage", "judged", "both"), default="both", help="which of the open briefs")
    parser.add_argument("--sheets", type=Path, help="folder for the answers to open briefs, for judges")
    parser.add_argument("--answers", type=Path, help="file for what was said, of the half that is not held back")
    arguments(parser)
    args = parser.parse_args()
    logs.configure("error", "json")
    print(json.dumps(asyncio.run(measure(args)), ensure_ascii=False))


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    say: Callable[[str], None] = (lambda words: None) if args.json else lambda words: print(words, flush=True)
    tasks = load(OPEN if args.open else CLOSED, args.half)
    if args.open:
        tasks = [task for task in tasks if args.use in ("both", task.use)]
    tasks = some(tasks, args.tasks, args.seed)
    async with server(args) as (host, folder), sides(host, folder, args, args.depth) as both:
        pairs = await asked(both, tasks, args, say)
        line = {"bench": "answers", "model": both.model, "depth": args.depth or None, "seed": args.seed, "tasks": len(tasks)}
    line |= {f"{name}_s": round(statistics.median(pair[name].seconds for pair in pairs), 2) for name in SIDES}
    if depths := collections.Counter(pair["mission"].depth for pair in pairs if pair["mission"].depth):
        line["depths"] = dict(depths)
    if errors := collections.Counter(pair["mission"].error for pair in pairs if pair["mission"].error):
        line["failed"] = dict(errors)
    if args.open:
        line["open"] = {name: health([(task, pair[name].text) for task, pair in zip(tasks, pairs, strict=True)]) for name in SIDES}
        if args.sheets:
            told = [
                (task.id, task.half, task.brief, {name: pair[name].text for name in SIDES}) for task, pair in zip(tasks, pairs, strict=True)
            ]
            judge.write_sheets(args.sheets, told, random.Random(args.seed))
            say(f"for judges: {args.sheets}")
        return line
    for half in HALVES:
        found = [(task, pair) for task, pair in zip(tasks, pairs, strict=True) if task.half == half]
        line[half] = score([{name: is_right(task, pair[name]) for name in SIDES} for task, pair in found])
        if half == "open":
            line["open_kinds"] = by_kind(found)
        say(f"{half}: {line[half]}")
    return line


async def asked(both: Sides, tasks: list[Task], args: argparse.Namespace, say: Callable[[str], None]) -> list[Pair]:
    """Each task on both sides, the one first that was second before."""
    await both.direct("Good morning.")  # loads the model
    pairs: list[Pair] = []
    for number, task in enumerate(tasks):
        pair: Pair = {}
        for name in SIDES if number % 2 else SIDES[::-1]:
            if name == "mission":
                pair[name] = await both.mission(task.id, task.brief, task.earlier)
            else:
                pair[name] = await both.direct(task.brief, task.earlier, seed=args.seed * 1000 + number)
        pairs.append(pair)
        say(_row(number, len(tasks), task, pair))
        if args.answers and task.half == "open":
            with args.answers.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"id": task.id, **{name: pair[name].text for name in SIDES}}, ensure_ascii=False) + "\n")
    return pairs


def _row(number: int, count: int, task: Task, pair: Pair) -> str:
    if task.half == "open" and task.check:
        marks = ", ".join(f"{name} {'right' if is_right(task, pair[name]) else 'wrong'}" for name in SIDES)
    else:
        marks = "held back" if task.half != "open" else "answered"
    if pair["mission"].error:
        marks += f", mission FAILED: {pair['mission'].error}"
    return f"{number + 1}/{count} {task.id}: {marks}; " + ", ".join(f"{name} {pair[name].seconds:.1f} s" for name in SIDES)


def is_right(task: Task, said: Said) -> bool:
    """Whether an answer stands its task's check."""
    return right(task.check, said.text, task.brief)


def score(rows: list[dict[str, bool]]) -> dict[str, Any]:
    """How many each side had right, and whether the difference may be chance."""
    mission, direct = (sum(row[name] for row in rows) for name in SIDES)
    only_mission = sum(row["mission"] and not row["direct"] for row in rows)
    only_direct = sum(row["direct"] and not row["mission"] for row in rows)
    return {
        "n": len(rows), "mission": mission, "direct": direct, "only_mission": only_mission, "only_direct": only_direct,
        "p": round(mcnemar(only_mission, only_direct), 4),
    }  # fmt: skip


def mcnemar(one: int, other: int) -> float:
    """McNemar's exact p, two-sided: the chance that pairs which differ fall as unevenly as this, where neither side is better."""
    differ = one + other
    tail = sum(math.comb(differ, k) for k in range(min(one, other) + 1)) / 2**differ
    return min(1.0, 2 * tail)


def by_kind(found: list[tuple[Task, Pair]]) -> dict[str, str]:
    """How many of each kind the mission had right, the direct call, of how many."""
    told = {}
    for kind in sorted({task.kind for task, _ in found}):
        own = [(task, pair) for task, pair in found if task.kind == kind]
        mission, direct = (sum(is_right(task, pair[name]) for task, pair in own) for name in SIDES)
        told[kind] = f"{mission}:{direct} of {len(own)}"
    return told


def health(answers: list[tuple[Task, str]]) -> dict[str, Any]:
    """How many answers to open briefs are garbage or cut off."""
    why: collections.Counter[str] = collections.Counter()
    bad = cut = 0
    for task, text in answers:
        found = garbage(text, task.brief)
        why.update(found)
        bad += bool(found)
        cut += cut_off(text)
    return {"n": len(answers), "garbage": bad, "cut": cut, "why": dict(why)}


if __name__ == "__main__":
    main()
