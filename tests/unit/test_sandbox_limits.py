"""Limits one by one, killed workers, cancelled missions, and a loop that never waits."""

# ruff: noqa: E501  the sources of methods

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from batos.concurrency import in_helper
from batos.errors import MethodFailed, SandboxFailed, SandboxLimit
from batos.objects import UvmObject
from batos.resources import charged_task
from batos.sandbox import Activity, Sandbox
from tests.support.sandbox import NOW, STALLED, Heartbeat, Sends, call, obj, settings, slots

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    small = settings(sandbox_time_s=0.3, sandbox_memory=32 * MIB, sandbox_host_calls=100, sandbox_nodes=10_000, sandbox_text_bytes=MIB)
    async with Sandbox(small) as running:
        yield running


def body(text: str) -> str:
    return f"def m(self):\n    self.n = 1\n    {text}\n"


PAST = {
    "while True: pass": {"time"},
    "x = [i for i in range(10 ** 9)]": {"memory", "time"},
    "x = 'x' * 10 ** 10": {"memory"},
    "x = 3\n    for i in range(40): x = x * x": {"memory", "time"},
    "for i in range(200): hasattr(self, 'nothing' + str(i))": {"host_calls"},
    "return list(range(20_000))": {"result"},
    "return 'x' * (2 * 1024 * 1024)": {"result"},
    "self.xs = list(range(20_000))": {"result"},
    "a = ['x']\n    for i in range(40): a = [a, a]\n    return a": {"time", "memory", "result"},
}


CATCHING = {
    "try": "try:\n        {}\n    except Exception:\n        self.n = 2",
    "suppress": "from contextlib import suppress\n    with suppress(Exception):\n        {}",
}


@pytest.mark.parametrize("caught_by", CATCHING)
@pytest.mark.parametrize("text", PAST)
async def test_each_limit_is_named_and_cannot_be_caught(sandbox: Sandbox, text: str, caught_by: str) -> None:
    target = obj(body(CATCHING[caught_by].format(text.replace("\n", "\n    "))), n=0)
    async with Heartbeat() as heart:
        with pytest.raises(SandboxLimit) as caught:
            await call(Sends(sandbox), target, "m")
    assert caught.value.limit in PAST[text]
    assert slots(target) == {"n": 0}
    assert heart.gap < STALLED
    assert await call(Sends(sandbox), obj("def m(self):\n    return 1\n"), "m") == 1


async def test_slots_that_share_one_value_count_each(sandbox: Sandbox) -> None:
    source = "def m(self):\n    big = list(range(2000))\n    for i in range(30):\n        setattr(self, 's' + str(i), big)\n"
    target = obj(source)
    async with Heartbeat() as heart:
        with pytest.raises(SandboxLimit) as caught:
            await call(Sends(sandbox), target, "m")
    assert (caught.value.limit, slots(target), heart.gap < STALLED) == ("result", {}, True)


async def test_what_a_method_holds_of_the_image_is_limited(sandbox: Sandbox) -> None:
    target = obj("def m(self):\n    return [len(k.xs) for k in self.kids]\n", kids=[obj(xs=list(range(4000))) for _ in range(4)])
    with pytest.raises(SandboxLimit, match="than a method may hold"):
        await call(Sends(sandbox), target, "m")


async def test_just_below_the_limits_a_method_runs(sandbox: Sandbox) -> None:
    target = obj(
        "def m(self):\n    for i in range(90):\n        hasattr(self, 'n' + str(i))\n    self.xs = list(range(4000))\n    return 'x' * 900_000\n"
    )
    assert len(await call(Sends(sandbox), target, "m")) == 900_000
    assert len(target.xs) == 4000


LONG = [
    "def m(self):\n    return 1\n" + "    self.a += self.b\n" * 380,
    "def m(self):\n    return 1\n" + "    any(x.a for x in y)\n" * 300,
    "def m(self):\n    return 1\n    x" + " is x" * 1500 + "\n",
]


@pytest.mark.parametrize("source", LONG, ids=range(len(LONG)))
async def test_a_long_source_is_made_ready_off_the_loop(sandbox: Sandbox, source: str) -> None:
    async with Heartbeat() as heart:
        assert await call(Sends(sandbox), obj(source), "m") == 1
    assert heart.gap < STALLED


async def test_recursion_is_an_error_that_a_method_may_catch(sandbox: Sandbox) -> None:
    target = obj(
        "def m(self):\n    def f(n):\n        return f(n + 1)\n    try:\n        f(0)\n    except RecursionError:\n        return 'deep'\n"
    )
    assert await call(Sends(sandbox), target, "m") == "deep"


async def test_the_time_of_a_mission_is_limited() -> None:
    async with Sandbox(settings(sandbox_total_s=0.2)) as sandbox:
        sends = Sends(sandbox)
        target = obj("def m(self):\n    x = 0\n    for i in range(10 ** 5):\n        x += i\n    return x\n")
        sends.activity.seconds = 0.1999
        with pytest.raises(SandboxLimit) as caught:
            await call(sends, target, "m")
        assert caught.value.limit == "time"


class HostsShare(Activity):
    """Knows of no worker's time: a limit that is met here is met by what the daemon computes."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, 0.0 if name == "seconds" else value)


def burn(o: UvmObject | None = None) -> None:
    """Compute for a while, as a search or a scan does."""
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        pass


async def burn_in_helper(o: UvmObject) -> None:
    await in_helper(burn)


async def burn_in_tasks(o: UvmObject) -> None:
    async def part() -> None:
        await asyncio.sleep(0)
        burn()

    await asyncio.gather(charged_task(part()), charged_task(part()))


MUCH_FOR_LITTLE = {
    "a primitive": "for i in range(100): self.burn()",
    "a primitive's helper threads": "for i in range(100): self.burn_in_helper()",
    "a primitive's tasks": "for i in range(100): self.burn_in_tasks()",
    "a method in between": "for i in range(100): self.between()",
    "arguments": "xs = [str(i) for i in range(2_000)]\n    for i in range(2_000): self.see(xs)",
    "answers": "for i in range(2_000): self.answer()",
    "slots that are refused": "for i in range(2_000):\n        try: self.big\n        except ValueError: pass",
    "slots that changed": "self.rows\n    for i in range(2_000): self.change()",
    "writes": "for i in range(2_000):\n        self.xs = [[i, j] for j in range(300)]\n        self.see(i)",
}


@pytest.mark.parametrize("text", MUCH_FOR_LITTLE.values(), ids=MUCH_FOR_LITTLE)
async def test_what_the_daemon_computes_for_a_method_is_limited_and_cannot_be_caught(text: str) -> None:
    rows = [[i, [i, str(i)]] for i in range(400)]

    def change(o: UvmObject) -> None:
        o.rows[0] = o.rows[0] + 1 if isinstance(o.rows[0], int) else 0

    limits = settings(sandbox_total_s=0.3, sandbox_host_calls=10_000, sandbox_sends=10_000, sandbox_time_s=60)
    async with Sandbox(limits) as sandbox:
        sends = Sends(
            sandbox,
            burn=burn, burn_in_helper=burn_in_helper, burn_in_tasks=burn_in_tasks, change=change,
            see=lambda o, xs: None, answer=lambda o: rows,
        )  # fmt: skip
        sends.activity = HostsShare(sends, "a mission", NOW)
        source = body(CATCHING["try"].format(text.replace("\n", "\n    ")))
        target = obj(source, "def between(self):\n    self.burn()\n", n=0, xs=[], rows=rows, big=[[i] for i in range(5_000)])
        with pytest.raises(SandboxLimit, match=r"have computed for .* the daemon for what they read, wrote and sent") as caught:
            await call(sends, target, "m")
        assert caught.value.limit == "time"
        assert slots(target)["n"] == 0


async def test_what_a_method_waits_for_is_not_limited() -> None:
    async with Sandbox(settings(sandbox_total_s=0.3)) as sandbox:

        async def wait(o: UvmObject) -> None:
            others = asyncio.ensure_future(other_work())  # of somebody else's, which the daemon does meanwhile
            await asyncio.gather(others, asyncio.to_thread(time.sleep, 0.6))

        async def other_work() -> None:
            for _ in range(30):
                burn()
                await asyncio.sleep(0)

        assert await call(Sends(sandbox, wait=wait), obj("def m(self):\n    self.wait()\n    return 1\n"), "m") == 1


async def test_arguments_past_the_limits_do_not_enter(sandbox: Sandbox) -> None:
    target = obj("def m(self, x=None):\n    return len(self.xs)\n", xs=list(range(20_000)))
    with pytest.raises(MethodFailed, match="more data"):
        await call(Sends(sandbox), target, "m", list(range(20_000)))
    with pytest.raises(MethodFailed, match="more data"):
        await call(Sends(sandbox), target, "m")


COMPUTES = "def computes(self):\n    self.n = 1\n    self.begin()\n    while True:\n        pass\n"


def pids(sandbox: Sandbox) -> list[int]:
    children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "pid=,comm="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in children.splitlines() if line.split()[1] == "monty"]


async def test_a_worker_killed_while_it_computes_or_waits_is_replaced(sandbox: Sandbox) -> None:
    async def kill(o: UvmObject) -> int:
        for pid in pids(sandbox):
            os.kill(pid, signal.SIGKILL)
        return 1

    target = obj("def waits(self):\n    self.n = 1\n    return self.kill()\n", COMPUTES, n=0)
    with pytest.raises(SandboxFailed, match="died"):
        await call(Sends(sandbox, kill=kill), target, "waits")
    begun = asyncio.Event()
    running = asyncio.ensure_future(call(Sends(sandbox, begin=lambda o: begun.set()), target, "computes"))
    await asyncio.wait_for(begun.wait(), 90)
    await kill(target)
    with pytest.raises(SandboxFailed, match="died"):
        await running
    await kill(target)  # idle ones, and those made ready: nobody notices
    assert await call(Sends(sandbox), obj("def m(self):\n    return 1\n"), "m") == 1
    assert slots(target) == {"n": 0}


async def test_a_stopped_worker_is_killed(sandbox: Sandbox) -> None:
    begun = asyncio.Event()
    running = asyncio.ensure_future(call(Sends(sandbox, begin=lambda o: begun.set()), obj(COMPUTES), "computes"))
    await begun.wait()
    for pid in pids(sandbox):
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises((SandboxLimit, SandboxFailed)):
        await running
    for pid in pids(sandbox):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("selector", ["computes", "waits"])
async def test_a_cancelled_mission_frees_its_workers(selector: str) -> None:
    """At once, and not at the end of the time that a method has."""
    waiting = asyncio.Event()

    async def wait(o: UvmObject) -> None:
        waiting.set()
        await asyncio.Event().wait()

    target = obj(
        COMPUTES,
        "def waits(self):\n    self.n = 1\n    self.inner()\n",
        "def inner(self):\n    self.n = 2\n    self.wait()\n",
        n=0,
    )
    async with Sandbox(settings(sandbox_time_s=600)) as sandbox:
        for _ in range(3):
            waiting.clear()
            running = asyncio.ensure_future(call(Sends(sandbox, wait=wait, begin=lambda o: waiting.set()), target, selector))
            await waiting.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert slots(target) == {"n": 0}
        assert await call(Sends(sandbox), obj("def m(self):\n    return 1\n"), "m") == 1


EXIT = """
import asyncio
from batos.config import Settings
from batos.objects import Method, UvmObject
from batos.sandbox import Activity, Sandbox
import datetime
async def main():
    async with Sandbox(Settings()) as sandbox:
        activity = Activity(None, "s", datetime.datetime.now(datetime.UTC))
        print(await sandbox.run(UvmObject(), Method("m", "def m(self):\\n    return 42\\n"), activity=activity))
asyncio.run(main())
"""


async def test_the_interpreter_exits_clean_after_close() -> None:
    async def once() -> None:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", EXIT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert (*await child.communicate(), child.returncode) == (b"42\n", b"", 0)

    for _ in range(2):
        await asyncio.gather(*(once() for _ in range(4)))


async def test_a_closed_sandbox_says_so(sandbox: Sandbox) -> None:
    other = Sandbox(settings())
    with pytest.raises(SandboxFailed, match="not running"):
        await call(Sends(other), obj("def m(self):\n    return 1\n"), "m")
    await other.start()
    await other.start()
    await other.close()
    await other.close()


async def test_no_run_sees_another_runs_globals(sandbox: Sandbox) -> None:
    target = obj("def m(self, known=[]):\n    known.append(1)\n    import random\n    random.seed(1)\n    return len(known)\n")
    assert [await call(Sends(sandbox), target, "m") for _ in range(4)] == [1, 1, 1, 1]


async def test_the_worker_has_no_environment_and_no_files(sandbox: Sandbox) -> None:
    seen: list[tuple[bytes, list[str]]] = []

    async def look(o: UvmObject) -> None:
        for pid in pids(sandbox):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError), open(f"/proc/{pid}/environ", "rb") as f:
                seen.append((f.read(), [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]))

    await call(Sends(sandbox, look=look), obj("def m(self):\n    self.look()\n"), "m")
    assert seen
    for environment, files in seen:
        assert environment == b""
        assert all(name.startswith(("pipe:", "socket:", "/dev/null", "anon_inode:")) for name in files), files
