"""Many methods in one run of the sandbox: each does what it does alone, whatever the others do."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from batos.errors import SandboxFailed
from batos.objects import Method
from batos.sandbox import Sandbox, unsupported
from batos.synthesis.batch_runner import SELECTOR, BatchRunner, Run
from batos.synthesis.specification import MethodCall
from tests.support.sandbox import Sends, obj, settings
from tests.support.synthesis import LIMIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(settings(sandbox_time_s=0.5)) as running:
        yield running


def in_the(sandbox: Sandbox, ran: list[str] | None = None) -> Run:
    async def run(source: str, given: list[Any]) -> Any:
        if ran is not None:
            ran.append(source)
        return await sandbox.run(obj(), Method(SELECTOR, source), [given], activity=Sends(sandbox).activity)

    return run


def runner(run: Run) -> BatchRunner:
    return BatchRunner(run, source_bytes=LIMIT, supports=lambda source: not unsupported(source))


def m(*lines: str, parameters: str = "items") -> str:
    return "\n    ".join((f"def m_(self, {parameters}):", *lines))


async def test_each_is_told_what_it_did_on_each_call(sandbox: Sandbox) -> None:
    sources = [
        m("return sorted(items)"),
        m("items.append(9)", "return items"),  # the next one gets the list as it was
        m("return items[7]"),
        m("import math", "return math.prod(items)"),
        m("self.doves = self.doves + len(items)", "self._p_changed = True", "return self.doves"),
        m("self.flock['a'].append(items[0])", "self._p_changed = True"),
        m("return self.geese"),
        m("return [x for x in items if str(x) == f'{x}']"),
        "def m_(self, /, items):\n    return self.doves",
    ]
    calls = [
        MethodCall([[3, 1]], {}, {"doves": 2, "flock": {"a": []}}),
        MethodCall([], {"items": [5, 4]}, {"doves": 7, "flock": {"a": [1]}}),
    ]
    found = await runner(in_the(sandbox)).outcomes(sources, calls)
    known = [[ast.literal_eval(text) if text else None for text in texts] for texts in found]
    one, two = calls[0].slots, calls[1].slots
    assert known == [
        [([1, 3], one), ([4, 5], two)],
        [([3, 1, 9], one), ([5, 4, 9], two)],
        [None, None],
        [(3, one), (20, two)],
        [(4, {**one, "doves": 4}), (9, {**two, "doves": 9})],
        [(None, {**one, "flock": {"a": [3]}}), (None, {**two, "flock": {"a": [1, 5]}})],
        [None, None],
        [([3, 1], one), ([5, 4], two)],
        [(2, one), (7, two)],
    ]
    assert calls[0].args == [[3, 1]]


async def test_what_meets_a_limit_costs_the_few_beside_it_only(sandbox: Sandbox) -> None:
    endless = m("for x in items:", "    items.append(x)", "return items")
    sources = [m(f"return len(items) + {n}") for n in range(60)]
    sources[3] = endless
    found = await runner(in_the(sandbox)).outcomes(sources, [MethodCall([[1]])])
    assert found[:5] == [("",)] * 5
    assert found[5:] == [(f"({n + 1}, {{}})",) for n in range(5, 60)], "halves were run again"


async def test_what_the_sandbox_cannot_run_costs_itself_only(sandbox: Sandbox) -> None:
    sources = [m("return 1"), m("import os", "return os"), m("class Bird(dict):", "    pass", "return Bird"), m("return 2")]
    found = await runner(in_the(sandbox)).outcomes(sources, [MethodCall([[1]])])
    assert found == [("(1, {})",), ("",), ("",), ("(2, {})",)]


async def test_they_are_parted_by_what_one_method_may_have(sandbox: Sandbox) -> None:
    ran: list[str] = []
    sources = [m(*(f"a{n} = {n}" for n in range(40)), f"return items + [{n}]") for n in range(30)]
    found = await runner(in_the(sandbox, ran)).outcomes(sources, [MethodCall([[]])])
    assert [ast.literal_eval(texts[0])[0] for texts in found] == [[n] for n in range(30)]
    assert len(ran) > 1
    assert all(len(source) <= LIMIT for source in ran)


async def test_no_worker_is_nothing_known() -> None:
    async def run(source: str, given: list[Any]) -> Any:
        raise SandboxFailed("no worker")

    assert await runner(run).outcomes([m("return 1")], [MethodCall([[]]), MethodCall([[]])]) == [("", "")]


async def test_nothing_is_run_for_nothing() -> None:
    async def run(source: str, given: list[Any]) -> Any:
        raise AssertionError

    assert await runner(run).outcomes([], [MethodCall([[]])]) == []
