"""The tasks that tell whether BAT OS answers as well as its model does: closed ones, each with its check, and open briefs.

Each line of answers.jsonl has a brief, what was said `earlier` in the conversation, a check (`bench/checks.py`), and texts that the check
must find `right` and `wrong`. Each line of open_briefs.jsonl has a brief and its use: `garbage` (counted by a program) or `judged`.
Their author had seen no prompt and no state of BAT OS. Half of each kind is `held_back`: nothing is tuned on it, and nobody reads it
to find out why an answer was wrong.
"""

from __future__ import annotations

import collections
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLOSED = Path(__file__).parent / "answers.jsonl"
OPEN = Path(__file__).parent / "open_briefs.jsonl"
HALVES = ("open", "held_back")
SEED = 36  # of the draw


@dataclass(frozen=True)
class Task:
    """A brief with what belongs to it; `earlier` is the conversation before it, as Ollama's messages."""

    id: str
    half: str
    kind: str
    language: str
    brief: str
    earlier: tuple[dict[str, str], ...] = ()
    check: dict[str, Any] = field(default_factory=dict)
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    use: str = ""


def load(path: Path, half: str = "both") -> list[Task]:
    """The tasks of a file, in its order; those of one half, or all."""
    told = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    lists = ("earlier", "right", "wrong")
    tasks = [Task(**{name: tuple(value) if name in lists else value for name, value in one.items()}) for one in told]
    return [task for task in tasks if half in ("both", task.half)]


def some(tasks: list[Task], count: int, seed: int) -> list[Task]:
    """So many of the tasks, from all kinds and both halves alike, drawn by chance; all where `count` is 0 or more than there are."""
    drawn = list(tasks)
    random.Random(seed).shuffle(drawn)
    before: collections.Counter[tuple[str, str]] = collections.Counter()
    ranked = []
    for task in drawn:
        ranked.append((before[task.kind, task.half], task))
        before[task.kind, task.half] += 1
    return [task for _, task in sorted(ranked, key=lambda pair: pair[0])][: count or None]


def draw_halves(ids: list[str], groups: list[str], seed: int = SEED) -> dict[str, str]:
    """The half of each task, half of each group to each: the draw that answers.jsonl and open_briefs.jsonl hold."""
    halves = {}
    for group in sorted(set(groups)):
        members = sorted(id for id, its in zip(ids, groups, strict=True) if its == group)
        back = set(random.Random(f"{seed} {group}").sample(members, len(members) // 2))
        halves.update({id: HALVES[id in back] for id in members})
    return halves
