"""Requests, their examples, and the methods that are put together for them: the table `tests/data/synthesis_requests.jsonl`.

A line of it has the words of a request, `intent`, and its `examples`. Each source that is found does what the examples say. What else a
line may say:

first    body of the source that is taken first, its lines joined by `; `
among    end of a source that is one of those that are found
never    texts that no source has that is found; there may be none
nothing  true if no source is found
most     values that are computed at most, 20,000 if nothing is said
known    other methods that are known: purpose and source
sends    sources of the receiver's other methods, by their selectors
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batos.objects import Example, Method
from batos.synthesis.specification import same
from tests.support.synthesis import asked, body, entry, made

ROOT = Path(__file__).parents[2]
REQUESTS = [json.loads(line) for line in (ROOT / "tests" / "data" / "synthesis_requests.jsonl").read_text("utf-8").splitlines()]


def holds(source: str, example: Example, sends: dict[str, str]) -> bool:
    """Tell whether a method does in CPython what an example says: its answer, and what its slots become."""
    space: dict[str, Any] = {}
    for one in (source, *sends.values()):
        exec(one, space)
    receiver = SimpleNamespace(**copy.deepcopy(dict(example.slots)))
    for selector in sends:
        setattr(receiver, selector, space[selector].__get__(receiver))
    args, kwargs = copy.deepcopy((example.args, dict(example.kwargs)))
    answered = space["m_"](receiver, *args, **kwargs)
    return same(answered, example.result) and all(same(getattr(receiver, name), value) for name, value in example.after)


def named(told: dict[str, Any]) -> str:
    """Name a line of the table: its words, the names of its arguments, and what is to come of it."""
    return f"{told['intent']} {list(told['examples'][0].get('kwargs', {}))}{' nothing' if told.get('nothing') else ''}"


@pytest.mark.parametrize("told", REQUESTS, ids=named)
async def test_what_is_put_together(told: dict[str, Any]) -> None:
    examples, sends = [Example.from_json(one) for one in told["examples"]], told.get("sends", {})
    what = asked(told["intent"], *examples, **{selector: Method(selector, source) for selector, source in sends.items()})
    known = [entry(one["purpose"], one["source"]) for one in told.get("known", ())]
    found = [source for _, source in await made(what, *known, most=told.get("most", 20_000))]
    assert "nothing" not in told or not found
    assert found or "nothing" in told or "never" in told
    for source in found:
        assert all(holds(source, example, sends) for example in examples), source
        assert not any(text in source for text in told.get("never", ())), source
        assert not sends or any(f"self.{selector}(" in source for selector in sends), source
    assert "first" not in told or body(found[0]) == told["first"]
    assert "among" not in told or any(source.endswith(told["among"]) for source in found)


@pytest.mark.long
def test_it_is_the_same_in_each_process() -> None:
    script = """
import asyncio
from batos.objects import Example
from batos.synthesis.handbook import words_in
from batos.synthesis.idiom_costs import priced
from batos.synthesis.word_costs import channel, pieces_of
from tests.support.synthesis import ROWS, SHORT, asked, made
print(asyncio.run(made(asked("the sorted names of the city 'Rome'", Example((ROWS,), (), ["Abe", "Ann"])), SHORT)))
words = sorted(words_in("the longest word of each line, sorted"))
print(channel().explains(words, pieces_of("max(it_, key=len)", ())))
print([cost for held in priced(frozenset(words)).values() for cost, _ in held])
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    came = [
        subprocess.run(
            [sys.executable, "-c", script], env={**env, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "77")
    ]
    assert came[0] == came[1]
    assert "sorted(" in came[0]
