"""Tests of what is read while nothing is under way, and of what is read once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from batos.concurrency import once
from batos.config import Settings
from batos.forge import machine
from tests.support.methods import give, sent
from tests.support.missions import FakeInference, mind, submit


def test_a_thread_that_asks_meanwhile_waits_for_what_another_comes_to() -> None:
    begun, asks, go, runs = threading.Event(), threading.Event(), threading.Event(), []

    @once
    def read() -> object:
        runs.append(threading.get_ident())
        begun.set()
        assert go.wait(30)
        return object()

    def ask() -> object:
        asks.set()
        return read()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(read)
        assert begun.wait(30)
        second = pool.submit(ask)
        assert asks.wait(30)
        go.set()
        assert first.result(30) is second.result(30) is read()
    assert len(runs) == 1


def test_what_fails_is_tried_again() -> None:
    values: list[Callable[[], int]] = [lambda: 1 // 0, lambda: 3]

    @once
    def read() -> int:
        return values.pop(0)()

    with pytest.raises(ZeroDivisionError):
        read()
    assert read() == 3


ROOT = Path(__file__).parents[2]


async def yes() -> bool:
    return True


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read, in place of the real things."""
    found: list[str] = []
    monkeypatch.setattr("gc.freeze", lambda: None)  # other tests count what is collected
    monkeypatch.setattr(machine, "WARM_UP_KNOWN", [lambda: found.append("known")])
    monkeypatch.setattr(machine, "WARM_UP_PARTS", [lambda: found.append("parts")])
    return found


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, ["quiet", "known", "quiet", "parts"]),
        ({"synthesis_parts": 0}, ["quiet", "known"]),
        ({"synthesis_reuse": 0}, ["quiet", "known", "quiet", "parts"]),
        ({"synthesis_reuse": 0, "synthesis_parts": 0}, []),
        ({"synthesis_ahead_s": 0}, []),
    ],
)
async def test_it_reads_what_is_used_and_looks_before_each_step_whether_anything_is_under_way(
    given: dict[str, Any], read: list[str], came: list[str]
) -> None:
    async def quiet() -> None:
        came.append("quiet")

    await machine.warm_up(Settings(**{"synthesis_ahead_s": 0.001, **given}), quiet, yes)
    assert came == read


async def test_it_reads_nothing_while_a_mission_is_under_way(came: list[str]) -> None:
    over = asyncio.Event()

    async def quiet() -> None:
        came.append("quiet")
        await over.wait()

    reading = asyncio.create_task(machine.warm_up(Settings(synthesis_ahead_s=0.001), quiet, yes))
    while not came:
        await asyncio.sleep(0)
    assert came == ["quiet"]
    over.set()
    await reading
    assert came == ["quiet", "known", "quiet", "parts"]


async def test_where_no_expert_writes_methods_nothing_is_read(came: list[str]) -> None:
    async def quiet() -> None:
        came.append("quiet")

    async def no() -> bool:
        return False

    await machine.warm_up(Settings(synthesis_ahead_s=0.001), quiet, no)
    assert came == []


def test_importing_the_kernel_brings_neither_numpy_nor_what_lessons_are_made_of() -> None:
    heavy = ("numpy", "batos.forge.candidate_search", "batos.synthesis.idiom_costs", "batos.memory.embedding_worker", "prometheus_client")
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, batos.app.kernel; print([name for name in {heavy} if name in sys.modules])"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout.strip() == "[]"


async def test_a_daemon_that_has_no_expert_for_methods_reads_nothing_ahead(tmp_path: Path, came: list[str]) -> None:
    async with mind(tmp_path, FakeInference()) as running:
        assert not running.image.read(machine.is_warm_up_wanted, "expert")
        assert not running.image.read(machine.is_warm_up_wanted, "plain")


async def test_a_daemon_reads_it_ahead_where_objects_were_sent_messages(
    tmp_path: Path, came: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    monkeypatch.setattr("batos.image.model_registry.speaks_methods", lambda root: "an expert")
    async with mind(tmp_path, FakeInference()) as kernel:
        await give(kernel)
        await (await submit(kernel, "brief")).end()
        assert not kernel.image.read(machine.is_warm_up_wanted, "expert")  # briefs alone need no methods
        await sent(kernel, "message", "thing", "slot_names")
        assert kernel.image.read(machine.is_warm_up_wanted, "expert")
    monkeypatch.setattr(machine, "give_memory_back", lambda: loop.call_soon_threadsafe(done.set))
    async with mind(tmp_path, FakeInference(), synthesis_ahead_s=0.01):
        await asyncio.wait_for(done.wait(), 30)
    assert came == ["known", "parts"]


OTHER_WRITER = """
import asyncio, sys, tempfile
from pathlib import Path

read = []
sys.addaudithook(lambda event, given: read.append(str(given[0])) if event == "open" else None)
from batos.image.taught_examples import teach
from tests.support.missions import FakeInference, mind
from tests.support.methods import give, sent, writing

async def main(folder):
    inference = FakeInference()
    writing(inference, "def add_(self, number):\\n    return number - 1\\n", "def add_(self, number):\\n    return number + 1\\n")
    async with mind(folder, inference, synthesis_ahead_s=0.01) as kernel:
        await give(kernel)
        example = {"args": [31], "result": 32}
        await kernel.image.system(lambda root: teach(root, root["lobby"].thing._p_oid, "add_", [example], "add one", 9))
        end = await sent(kernel, "m1", "thing", "add_", 7)
    assert end["result"]["value"] == 8, end
    print([one for one in read if "synthesis" in one and one.endswith(".txt")])

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
"""


def test_a_daemon_whose_writer_is_no_expert_reads_none_of_the_tables() -> None:
    """Also where it writes a method after a refusal, by an example."""
    told = subprocess.run([sys.executable, "-c", OTHER_WRITER], check=True, capture_output=True, text=True, cwd=ROOT)
    assert told.stdout.splitlines()[-1] == "[]"
