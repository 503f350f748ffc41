"""BAT OS beside LangGraph, DBOS and CrewAI: what a mission costs beside its inferences, and what is paid again after `kill -9`.

    make peers                       # installs them in an environment of their own, and runs this
    python bench/peers/run.py --peers build/peers/bin/python --missions 20 --json

A mission is one call that plans, three at once, one that puts them together. For its cost the calls are instant, and the contenders take
turns: each round is told, and the table has medians. For the kill they go to
one model over HTTP that writes at a steady pace and keeps account; it is no part of what is killed. All missions are under way when two
fifths of the calls have ended; within half a second the program is killed, started again as it was, and left alone. Where nothing comes
of that, it is started with the lines that its user has to write to go on (counted, from the contender's script). Once more with one
harmless line added to the program meanwhile. An undisturbed run with the same model, before, says what all that has to cost.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contenders import CONTENDERS, END_S, ROOT, Contender
from model import PacedOllama

CALLS = 5  # a mission
SOON_S = 0.5  # within which the kill comes
IDLE_S = 20  # for a program that was started again to ask the model anything by itself


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=str(ROOT / "build" / "peers" / "bin" / "python"), help="a Python that has the others installed")
    parser.add_argument("--missions", type=int, default=20, help="under way when the kill comes")
    parser.add_argument("--cost-missions", type=int, default=200, help="for the cost of a mission, in each round")
    parser.add_argument("--rounds", type=int, default=3, help="of the costs, in which all have their turn; the table has medians")
    parser.add_argument("--token-s", type=float, default=0.02, help="of the model: seconds a token")
    parser.add_argument("--kills", type=int, default=5, help="kills of each; the table has means")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for databases; a RAM disk shows the cost without the disk")
    parser.add_argument("--only", nargs="*", choices=[*CONTENDERS, ""], default=[], help="of the contenders")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    contenders = {name: CONTENDERS[name](args.peers) for name in args.only or CONTENDERS}
    with tempfile.TemporaryDirectory(prefix="peers-", dir=args.dir) as folder:
        costs = alternating(contenders, args.rounds, args.cost_missions, Path(folder))
    rows = {}
    for name, contender in contenders.items():
        with tempfile.TemporaryDirectory(prefix="peers-", dir=args.dir) as folder:
            rows[name] = {**costs[name], **measured(contender, args, Path(folder))}
        print(name, json.dumps(rows[name]), flush=True)
    print(table(rows))
    if args.json:
        print(json.dumps({"bench": "peers", "missions": args.missions, "kills": args.kills, "rows": rows}))


def alternating(contenders: Mapping[str, Contender], rounds: int, missions: int, folder: Path) -> dict[str, dict[str, Any]]:
    """By contender: the median of each cost, and all `rounds`. In each round all have their turn, one after the other, and the next one
    begins with another: so a quarter of an hour in which the machine is slow is everybody's."""
    names = list(contenders)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            place = folder / f"{number}-{names.index(name)}"
            found[name].append(contenders[name].cost(place, missions))
            shutil.rmtree(place, ignore_errors=True)
            print(f"round {number + 1}:", name, json.dumps(found[name][-1]), flush=True)
    return {
        name: {**{what: statistics.median(one[what] for one in each) for what in each[0]}, "rounds": each} for name, each in found.items()
    }


def measured(contender: Contender, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A row of the table, but for the costs."""
    row: dict[str, Any] = {"recovery_lines": contender.recovery_lines()}
    undisturbed = run(contender, folder / "whole", args, kill=False)
    assert not undisturbed["lost"], "the missions do not end, even undisturbed"
    row["calls"], row["tokens"] = undisturbed["calls"], undisturbed["tokens"]
    killed = [run(contender, folder / f"killed{i}", args, kill=True) for i in range(args.kills)]
    row["by_itself"] = all(one["by_itself"] for one in killed)
    row["lost"] = max(one["lost"] for one in killed)
    for name in ("repeated", "calls", "tokens", "first_call_s"):
        row[f"killed_{name}"] = statistics.fmean(one[name] for one in killed)
    row["paid_again"] = round(row["killed_tokens"] / row["tokens"] - 1, 3)
    changed = run(contender, folder / "changed", args, kill=True, change=True)
    row["changed_by_itself"], row["changed_lost"] = changed["by_itself"], changed["lost"]
    return row


def run(contender: Contender, folder: Path, args: argparse.Namespace, *, kill: bool, change: bool = False) -> dict[str, Any]:
    """All missions at once, with one kill or none.

    `repeated`: calls that had ended before the kill and were made again. `lost`: missions that never ended.
    """
    folder.mkdir()
    with PacedOllama(args.token_s) as model, contender.program(folder, model) as program:
        program.begin(args.missions)
        if not kill:
            lost = program.ended(args.missions)
            return {"calls": sum(model.begun.values()), "tokens": model.tokens, "lost": lost}
        share = args.missions * CALLS * 2 // 5
        assert model.wait(lambda: sum(model.finished.values()) >= share, END_S), "the missions do not go on"
        time.sleep(random.uniform(0, SOON_S))  # not just when a call has ended
        program.kill()
        ended, before = set(model.finished), model.begun.copy()
        if change:
            program.change()
        since = time.monotonic()
        program.again()
        by_itself = model.wait(lambda: model.begun != before, IDLE_S)
        first = time.monotonic() - since
        if not by_itself:
            program.kill()
            since = time.monotonic()
            program.recover(args.missions)
            model.wait(lambda: model.begun != before, IDLE_S)
            first = time.monotonic() - since
        lost = program.ended(args.missions)
        repeated = sum(model.begun[key] > before[key] for key in ended)
        return {
            "by_itself": by_itself, "lost": lost, "repeated": repeated, "calls": sum(model.begun.values()), "tokens": model.tokens,
            "first_call_s": round(first, 2),
        }  # fmt: skip


# --- the table


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The rows in Markdown: what a mission costs, and what a kill."""
    cost = {
        "": list(rows),
        "fsyncs": [row["fsyncs"] for row in rows.values()],
        "processor, ms": [row["cpu_ms"] for row in rows.values()],
        "missions/s, one by one": [row["missions_per_s"] for row in rows.values()],
        "50 at once": [row["missions_per_s_50"] for row in rows.values()],
        "bytes kept": [row["bytes"] for row in rows.values()],
    }
    kill = {
        "": list(rows),
        "goes on by itself": ["yes" if row["by_itself"] else "no" for row in rows.values()],
        "lines to write": [row["recovery_lines"] for row in rows.values()],
        "missions lost": [row["lost"] for row in rows.values()],
        "ended calls made again": [f"{row['killed_repeated']:.1f}" for row in rows.values()],
        "calls in all (needed)": [f"{row['killed_calls']:.0f} ({row['calls']})" for row in rows.values()],
        "tokens paid again": [f"{row['paid_again']:.1%}" for row in rows.values()],
        "first call after": [f"{row['killed_first_call_s']:.1f} s" for row in rows.values()],
        "one line changed": [_after_change(row) for row in rows.values()],
    }
    return f"{_markdown(cost)}\n\n{_markdown(kill)}"


def _after_change(row: dict[str, Any]) -> str:
    if row["changed_lost"]:
        return f"{row['changed_lost']} never end"
    return "goes on" if row["changed_by_itself"] else "by the lines"


def _markdown(columns: dict[str, list[Any]]) -> str:
    lines = [list(columns), ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


if __name__ == "__main__":
    main()
