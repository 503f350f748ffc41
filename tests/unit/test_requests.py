"""Requests, their examples, and the methods that are put together for them: one table (`tests.support.synthesis_cases`)."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batos.objects import Example
from batos.synthesis.specification import same
from tests.support.synthesis import asked, body, made
from tests.support.synthesis_cases import REQUESTS, Request


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


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: f"{one.intent} {[name for name, _ in one.examples[0].kwargs]}")
async def test_what_is_put_together(request_: Request) -> None:
    intent, examples, first, among, most, known, sends = request_
    found = [source for _, source in await made(asked(intent, *examples, **request_.methods), *known, most=most)]
    assert found
    for source in found:
        assert all(holds(source, example, sends) for example in examples), source
    assert first is None or body(found[0]) == first
    assert among is None or any(source.endswith(among) for source in found)
    assert not sends or all(any(f"self.{selector}(" in source for selector in sends) for source in found)


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
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    came = [
        subprocess.run(
            [sys.executable, "-c", script], env={**env, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "77")
    ]
    assert came[0] == came[1]
    assert "sorted(" in came[0]
