"""Tasks as people put them: what three authors would ask an agent for, who had seen neither the project nor one another's.

Each line of everyday.jsonl has the words, the object's slots, a method, and calls of it: the first is the example that the user shows, the
others are never shown.
"""

from __future__ import annotations

import json
from pathlib import Path

from batos.training.tasks import Task, examples_of

FILE = Path(__file__).parent / "everyday.jsonl"
AUTHORS = ("home", "work", "many")
"""One who asks what people at home and in small offices would, one what developers would, one what many kinds of people would."""


def everyday(author: str) -> list[Task]:
    """The tasks of an author, in his order."""
    lines = map(json.loads, FILE.read_text("utf-8").splitlines())
    return [_task(told) for told in lines if told["author"] == author]


def _task(told: dict[str, object]) -> Task:
    selector, intent, source, before, calls = (told[name] for name in ("selector", "intent", "source", "slots", "calls"))
    assert isinstance(selector, str)
    assert isinstance(intent, str)
    assert isinstance(source, str)
    assert isinstance(before, dict)
    assert isinstance(calls, list)
    shown, *trials = examples_of(source, selector, ((call[0], before | (call[1] if len(call) > 1 else {})) for call in calls))
    call, author = trials[-1], str(told["author"])
    return Task(
        selector, "everyday", author, "", selector, intent, call.args, dict(call.kwargs), dict(call.slots), {}, shown, tuple(trials), source
    )  # fmt: skip
