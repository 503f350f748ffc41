"""Tests of what is read while nothing is under way, and of what is read once."""

from __future__ import annotations

import asyncio
import importlib
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


NOT_AT_START = (
    "numpy", "batos.forge.candidate_search", "batos.synthesis.idiom_costs", "batos.memory.embedding_worker", "prometheus_client",
    "batos.guardian.examination", "batos.guardian.rules", "batos.guardian.effects",  # with the first audit
    "batos.sandbox.program_cache", "batos.sandbox.rewriter", "batos.sandbox.stdlib",  # with the first method
    "batos.wire.client", "batos.wire.sync_client",  # with the first other kernel
    "batos.wire.replies", "batos.wire.mission_replies", "batos.wire.image_replies", "batos.wire.admin_replies",  # of clients and documents
    "difflib", "pickletools", "ZODB.scripts.repozo", "urllib.request", "httpx", "ollama", "rich", "typer",
)  # fmt: skip
"""Modules that the import of the daemon leaves out: each comes where it is first used."""


def _printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_importing_the_kernel_leaves_out_what_few_daemons_use() -> None:
    assert _printed(f"import sys, batos.app.kernel; print([name for name in {NOT_AT_START} if name in sys.modules])") == "[]"


def test_importing_the_kernel_builds_the_validator_of_no_operation() -> None:
    code = (
        "import batos.app.kernel; from batos.wire.schemas import OPS; print([op for op, kind in OPS.items() if kind.__pydantic_complete__])"
    )
    assert _printed(code) == "[]"


def test_what_the_import_leaves_out_comes_with_its_first_use() -> None:
    code = """
import sys, batos.app.kernel
from batos.guardian import PersistenceGuardian
from batos.sandbox import unsupported
from batos.wire import Accepted, Client, ClientKeys, SyncClient
source = "def greet(self):\\n    return 1\\n"
assert PersistenceGuardian().audit(source, "greet").accepted
assert unsupported(source) == []
print([name in sys.modules for name in ("batos.guardian.rules", "batos.sandbox.rewriter", "batos.wire.client", "batos.wire.sync_client")])
"""
    assert _printed(code) == "[True, True, True, True]"


def test_importing_the_kernel_loads_the_trees_that_every_image_uses_and_no_others() -> None:
    code = "import sys, batos.app.kernel; print(sorted(n[8:-5] for n in sys.modules if n.startswith('BTrees._') and n.endswith('BTree')))"
    assert _printed(code) == "['LL', 'LO', 'OL', 'OO', 'fs']"


def test_a_family_of_trees_that_waits_is_there_for_whoever_names_it() -> None:
    code = """
import pickle, sys, threading, types, batos.image
from zope.interface import providedBy
import BTrees
from BTrees import Interfaces, family32, family64
for family in (family32, family64):
    for name in ("IO", "II", "IF", "IU", "UO", "UU", "UF", "UI", "OO", "OI", "OU"):
        module = getattr(family, name)
        assert name == "OO" or module.family is family, module
        kind = module.TreeSet
        assert sys.modules[kind.__module__] is module and getattr(BTrees, kind.__module__[7:]) is module, kind
        made = kind(["a"] if name[0] == "O" else [3, 1])
        assert list(pickle.loads(pickle.dumps(made))) == list(made), kind
        assert type(module) is types.ModuleType and Interfaces.IMerge in providedBy(module).flattened(), module
        assert "TreeSet" in module.__all__ and not hasattr(module, "nonsense") and not hasattr(module, "__file__")
"""
    assert _printed(code + "print('right')") == "right"


def test_the_first_use_of_a_family_by_several_threads_at_once_loads_it_once() -> None:
    code = """
import pickle, sys, threading, batos.image
record = b"cBTrees.QQBTree\\nQQTreeSet\\n."  # as a record names a class
found, together = [], threading.Barrier(8)
def use():
    together.wait()
    found.append(pickle.loads(record))
threads = [threading.Thread(target=use) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
print(len(found), len(set(found)))
"""
    assert _printed(code) == "8 1"


@pytest.mark.parametrize("package", ["batos.sandbox", "batos.wire"])
def test_a_package_that_loads_late_has_no_other_names(package: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        importlib.import_module(package).nonsense  # noqa: B018


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
        await asyncio.wait_for(done.wait(), 90)
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
