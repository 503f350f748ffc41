"""How often missions that act in the world do it once, whenever their daemon is killed, and what a call costs.

The tasks are the 200 of `multi_turn_base` of the Berkeley Function Calling Leaderboard (`bfcl-eval`, see bench/tool_choice.py): its classes
are an HTTP API (bench/agency_world.py) in a process of its own, which the daemon reaches by `tool_add` of kind openapi. A scripted model
with native tool calling asks for the known calls, one mission a turn. The daemon is killed (SIGKILL) every few seconds and started on the
same image; where an effect is in doubt and asks, the user looks into the world's own log and says the truth.

Told are: `equal`, the tasks whose states equal those of the known calls after every turn, by BFCL's own check; `doubled` and `lost`,
calls that were carried out more or less often than they are known, for calls that change something; `kills`, and how many of them came
while a request was under way (`cut_off`: effects sent more than once or asked about); `repeated_with_key`, requests that the world had
carried out before and knew by their key; `asked`, questions about effects.

`--overhead N` measures instead: N pairs of a call through an effect (its commits included) and of the same request by a bare client on a
kept connection, and the commits before and after a call.

    python bench/agency.py --json
    python bench/agency.py --overhead 300 --json
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from agency_world import canonical, known_tasks, looks
from tool_choice import BUILD, unpacked

from batos import logs
from batos.errors import BatosError, Busy, DaemonUnavailable, InvalidInput, MissionFailed, MissionPending, UnknownMission, UnknownTool
from batos.image import ledger
from batos.image.identity import ActingState
from batos.image.living_image import LivingImage
from batos.testing import ScriptedOllama
from batos.testing.ollama import EMBEDDED
from batos.testing.script import default_answer, user_text
from batos.tools import connections
from batos.tools.definitions import ConnectionSpec, ConnectorServices, ToolCall
from batos.tools.effects import Effects
from batos.tools.toolbox import Toolbox
from batos.wire import Client

SPEAKER = "speaker:8b"
TURN = re.compile(r"\[t(\d+)-(\d+)\]")
CALL_S = 2.0  # of the connections: the time after which the world surely does no more of a request that was cut off
START_S, TASK_S = 90.0, 300.0
SHOW_S = 0.5  # an Ollama takes its time to say what a model can do, which a mission may be taken up before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200, help="so many, spread over all")
    parser.add_argument("--only", default="", metavar="N,N", help="these tasks, by number")
    parser.add_argument("--kills", default="2-6", metavar="FROM-TO", help="seconds from a start to its kill; none: no kills")
    parser.add_argument("--lanes", type=int, default=3, help="daemons, each with an image and tasks of its own, that run beside each other")
    parser.add_argument("--slow", type=float, default=0.3, help="most seconds of the world before it carries out a request, and after")
    parser.add_argument("--overhead", type=int, default=0, metavar="N", help="measure N calls in the place of the tasks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=BUILD / "bfcl", help="folder of the unpacked package")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the image")
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    args = parser.parse_args()
    logs.configure("error", "json")
    sys.path.insert(0, str(unpacked(args.data)))
    print(json.dumps(asyncio.run(overhead(args) if args.overhead else measure(args))))


@contextlib.asynccontextmanager
async def world_of(args: argparse.Namespace, slow: float) -> AsyncIterator[str]:
    """URL of a world that lasts as long as the block."""
    script = Path(__file__).with_name("agency_world.py")
    words = [sys.executable, str(script), str(args.data), "--slow", str(slow), "--seed", str(args.seed)]
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.wait()


# --- the model


class KnownCalls:
    """A scripted model: it asks for the known calls of the turn that its prompt names, one or two at a time, and ends."""

    def __init__(self, tasks: dict[int, dict[str, Any]], seed: int) -> None:
        self._tasks, self._chance = tasks, random.Random(seed)

    def answer(self, request: dict[str, Any]) -> str:
        """Answer a chat with tools: the calls whose results the prompt does not show yet."""
        asked = user_text(request)
        if (named := TURN.search(asked)) is None:
            return default_answer(request)
        task, turn = int(named[1]), int(named[2])
        shown = len(re.findall(rf"^</t{task}\.\w+>$", asked, re.MULTILINE))
        left = self._tasks[task]["calls"][turn][shown:]
        calls = [{"name": f"t{task}_{name}", "arguments": arguments} for name, arguments in left[: self._chance.choice((1, 1, 2))]]
        return "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls) or "It is done."


@contextlib.contextmanager
def model_of(tasks: dict[int, dict[str, Any]], seed: int) -> Iterator[ScriptedOllama]:
    """A scripted Ollama whose models use tools, as long as the block lasts."""
    with ScriptedOllama([*EMBEDDED, SPEAKER]) as server:
        server.give_tools(SPEAKER)
        server.fail("slow", None, path="/api/show", seconds=SHOW_S)
        known = KnownCalls(tasks, seed)
        server.say(known.answer, when=lambda request: bool(request.get("tools")))
        server.say("It is done, as the results say.")
        yield server


# --- the daemon, and who kills it


class Mortal:
    """A daemon that is killed at random times and started again, while `run` runs."""

    def __init__(self, folder: Path, host: str, seed: int, **more: Any) -> None:
        """
        :param more: settings in place of those here; None leaves one at its default.
        """
        folder.mkdir()
        self.endpoint = f"ipc://{folder / 'b.sock'}"
        self.kills = 0
        self.log: list[tuple[float, str]] = []
        """When it was killed, and when it answered again: seconds since the epoch."""
        self._chance = random.Random(seed)
        (folder / "staging").mkdir()
        given = {
            "autonomy.mode": "off", "inference.host": host, "inference.model": SPEAKER, "inference.staging": folder / "staging",
            "missions.attempts": 100, "memory.remember": "off", "memory.curate": "off", "tools.rounds": 16, "tools.offered": 64,
            "daemon.log_format": "json", **more,
        }  # fmt: skip
        settings = [word for name, value in given.items() if value is not None for word in ("--set", f"{name}={value}")]
        self._words = [sys.executable, "-m", "batos", "run", "--data", str(folder / "data"), "--listen", self.endpoint, *settings]
        self._log = (folder / "daemon.log").open("wb")
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = await asyncio.create_subprocess_exec(*self._words, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(BatosError):
                async with Client(self.endpoint, timeout_s=1) as client:
                    await client.info()
                self.log.append((time.time(), "the daemon answers"))
                return
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise SystemExit(f"the daemon does not start; see {self._log.name}")

    async def run(self, least: float, most: float) -> None:
        """Kill it and start it again, for ever."""
        while True:
            await asyncio.sleep(self._chance.uniform(least, most))
            await self.kill()
            self.kills += 1
            await self.start()

    async def kill(self) -> None:
        """Kill it; return when it is gone."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self.log.append((time.time(), "the daemon is killed"))
            await self._process.wait()


# --- the user


@dataclass
class Tally:
    """What came of the tasks."""

    equal: int = 0
    unlike: list[str] = field(default_factory=list)
    asked: int = 0
    sent_again: int = 0
    counts: collections.Counter[str] = field(default_factory=collections.Counter)


class User:
    """Who submits the turns of a task, answers truthfully, and compares what came of it."""

    def __init__(self, mortal: Mortal, world: str, tally: Tally) -> None:
        self._mortal, self._world, self.tally = mortal, world, tally
        self._web = httpx.AsyncClient(timeout=60)
        self.log: list[tuple[float, str]] = []
        """What was asked and answered: seconds since the epoch."""

    async def close(self) -> None:
        """End the connection to the world."""
        await self._web.aclose()

    async def insist(self, what: Any) -> Any:
        """Return what a request to the daemon is answered, however often it dies over it."""
        while True:
            try:
                async with Client(self._mortal.endpoint, timeout_s=3) as client:
                    return await what(client)
            except (DaemonUnavailable, Busy, MissionPending):
                await asyncio.sleep(0.05)

    async def play(self, number: int, task: dict[str, Any]) -> None:
        """Have a task done; note what came of it."""
        name, fault, url, begun = f"t{number}", "", f"{self._world}/tasks/{number}/openapi.json", time.time()
        journal: list[tuple[float, str]] = []
        await self.insist(lambda client: _added(client, name, url))
        for turn, question in enumerate(task["question"]):
            text = " ".join(str(one["content"]) for one in question)
            id, brief = f"{name}-{turn}", f"[{name}-{turn}] {text}"
            await self.insist(lambda client, id=id, brief=brief: client.submit(brief, id=id, persona="robin", depth="direct"))
            failed = await self._ended(id, number, turn, task)
            told = (await self._web.post(f"{self._world}/control/{number}", json={"turn": turn})).json()
            if not told["valid"] or failed:
                fault = fault or f"task {number}, turn {turn}: {failed or told['differences']}"
            effects = (await self.insist(lambda client, id=id: client.effects(id)))["effects"]
            self.tally.sent_again += sum(one["attempts"] > 1 for one in effects)
            journal += [(one["at"], f"{id} effect {json.dumps(one, ensure_ascii=False)}") for one in effects]
        astray = await self._count(number, task)
        await self.insist(lambda client: _removed(client, name))
        if fault or astray:
            print(await self._story(number, begun, journal, f"{fault or 'equal'}; {astray or 'nothing doubled or lost'}"), file=sys.stderr)
        if fault:
            self.tally.unlike.append(fault)
        else:
            self.tally.equal += 1

    async def _ended(self, id: str, number: int, turn: int, task: dict[str, Any]) -> str:
        """Wait for a mission's end, and answer what it asks; return why it failed, if so."""
        deadline = time.monotonic() + TASK_S
        while time.monotonic() < deadline:
            with contextlib.suppress(MissionPending, DaemonUnavailable, Busy, UnknownMission):
                async with Client(self._mortal.endpoint, timeout_s=3) as client:
                    status = await client.status(id)
                    for one in status.get("questions", ()):
                        if one["answer"] is None:
                            said = await self._truth(client, id, one["question"], number, turn, task)
                            self.log.append((time.time(), f"{id} is about to answer {said!r} to {one['question']!r}"))
                            await client.answer(id, said, one["number"])
                            self.tally.asked += 1
                    try:
                        await client.result(id, timeout_s=0.3)
                        return ""
                    except MissionFailed as e:
                        return e.message
        return f"no end within {TASK_S:g} s"

    async def _truth(self, client: Client, id: str, question: str, number: int, turn: int, task: dict[str, Any]) -> str:
        """Look into the world's log: what was carried out more often than the turns before asked for has happened."""
        doubts = (await client.effects(id, doubt=True))["effects"]
        one = next((one for one in doubts if f"[{one['key'][:8]}]" in question), None)
        if one is None:
            raise SystemExit(f"mission {id} asks what no effect in doubt explains: {question}")
        call = (one["tool"].partition(".")[2], canonical(one["arguments"]))
        done = [tuple(each) for each in (await self._web.get(f"{self._world}/control/{number}")).json()["done"]]
        before = sum((name, canonical(arguments)) == call for known in task["calls"][:turn] for name, arguments in known)
        return "happened" if done.count(call) > before else "again"

    async def _story(self, number: int, begun: float, journal: list[tuple[float, str]], fault: str) -> str:
        """Return all that happened to a task, by time: what shows why it went wrong."""
        world = (await self._web.get(f"{self._world}/control/{number}")).json()["log"]
        lines = [*journal, *self._mortal.log, *self.log, *((at, " ".join(("the world:", *what))) for at, *what in world)]
        told = [f"{at - begun:8.3f} {line}" for at, line in sorted(lines) if at >= begun - 1]
        return "\n".join((f"--- task {number}: {fault}", *told, "---"))

    async def _count(self, number: int, task: dict[str, Any]) -> str:
        """Note what was done more or less often than is known; return it as text, empty if there is none."""
        facts = (await self._web.get(f"{self._world}/control/{number}")).json()
        done = collections.Counter((name, said) for name, said in facts["done"] if not looks(name))
        known = collections.Counter((name, canonical(given)) for turn in task["calls"] for name, given in turn if not looks(name))
        self.tally.counts["doubled"] += (done - known).total()
        self.tally.counts["lost"] += (known - done).total()
        self.tally.counts["calls"] += sum(map(len, task["calls"]))
        self.tally.counts["acting_calls"] += known.total()
        self.tally.counts["repeated_with_key"] += facts["requests"].get("repeated with their key", 0)
        self.tally.counts["looked_and_changed"] += len(facts["looked_and_changed"])
        kinds = {"doubled": done - known, "lost": known - done}
        return "; ".join(f"{kind}: {' '.join(one)}" for kind, counter in kinds.items() for one in counter.elements())


async def _added(client: Client, name: str, url: str) -> None:
    try:
        if not await _is_there(client, name):
            await client.tool_add(name, "openapi", url, {"seconds": CALL_S})
    except InvalidInput:
        if not await _is_there(client, name):  # else an earlier request was carried out, after its sender had given up
            raise


async def _removed(client: Client, name: str) -> None:
    with contextlib.suppress(UnknownTool):  # an earlier request was carried out, after its sender had given up
        await client.tool_remove(name)


async def _is_there(client: Client, name: str) -> bool:
    return name in {one["name"] for one in (await client.tools())["connections"]}


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The figures of the tasks."""
    tasks = known_tasks(args.data)
    chosen = [int(one) for one in args.only.split(",")] if args.only else list(tasks)[:: max(1, len(tasks) // args.tasks)][: args.tasks]
    folder, tally, begun = Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir)), Tally(), time.monotonic()
    with model_of(tasks, args.seed) as model:
        async with world_of(args, args.slow) as world, asyncio.TaskGroup() as lanes:
            for lane in range(args.lanes):
                mortal = Mortal(folder / str(lane), model.host, args.seed * 1000 + lane)
                own = {number: tasks[number] for number in chosen[lane :: args.lanes]}
                lanes.create_task(_lane(mortal, User(mortal, world, tally), own, args))
    shutil.rmtree(folder)
    line: dict[str, Any] = {"bench": "agency", "tasks": len(chosen), "equal": tally.equal, "unlike": tally.unlike, **tally.counts}
    return line | {
        "sent_again": tally.sent_again, "asked": tally.asked, "kills_between_s": args.kills, "slow_s": args.slow, "lanes": args.lanes,
        "seed": args.seed, "seconds": round(time.monotonic() - begun),
    }  # fmt: skip


async def _lane(mortal: Mortal, user: User, tasks: dict[int, dict[str, Any]], args: argparse.Namespace) -> None:
    killing = None
    await mortal.start()
    try:
        await user.insist(lambda client: client.tool_grant("allow", "*", leaks=True))
        if args.kills != "none":
            least, _, most = args.kills.partition("-")
            killing = asyncio.create_task(mortal.run(float(least), float(most or least)))
        for number, task in tasks.items():
            await user.play(number, task)
            if killing is not None and killing.done():
                killing.result()  # it did not start any more
            if not args.json:
                tally = user.tally
                print(f"task {number}: {tally.equal} equal, {len(tally.unlike)} unlike, {tally.asked} asked", flush=True)
    finally:
        if killing is not None:
            killing.cancel()
            await asyncio.wait([killing])
        user.tally.counts["kills"] += mortal.kills
        await mortal.kill()
        await user.close()


# --- what a call costs


class Granting:
    """A caller of effects whom everything is allowed."""

    def __init__(self) -> None:
        self._counts: collections.Counter[tuple[str, str]] = collections.Counter()

    async def allow(self, call: ToolCall) -> str:
        """Allow it."""
        return "the bench"

    def ask(self, question: str) -> str:
        """Fail: nothing is asked here."""
        raise SystemExit(f"a call asks: {question}")

    def tied(self) -> str:
        """Never."""
        return ""

    def label(self) -> str:
        """The same for all."""
        return "1 DELEGATING robin tool"

    def counts(self) -> collections.Counter[tuple[str, str]]:
        """Calls so far."""
        return self._counts

    def tell(self, name: str, line: str) -> None:
        """Hear nothing."""

    def permits(self, call: ToolCall, arguments: Mapping[str, Any]) -> bool:
        """Permit it."""
        return True


OVERHEAD_TASK, CALLS_A_MISSION = 50, 10
MEASURED = {"acts": ("setHeadlights", "POST", {"mode": "on"}), "reads": ("displayCarStatus", "GET", {"option": "fuel"})}


async def overhead(args: argparse.Namespace) -> dict[str, Any]:
    """Median milliseconds of a call and of the bare request, in pairs, and the fsyncs before and after a call's request."""
    line: dict[str, Any] = {"bench": "agency overhead", "pairs": args.overhead}
    with tempfile.TemporaryDirectory(prefix="batos-bench-", dir=args.dir) as folder:
        line["floor_append_fsync_ms"] = _floor_ms(Path(folder))
        image = await LivingImage.open(f"file://{folder}/image.fs", steps=(connections.install,))
        async with world_of(args, 0.0) as world, httpx.AsyncClient() as bare:
            services = ConnectorServices(secret=str, folder=Path(folder))
            box = Toolbox(image, services, ActingState("bench"))
            await box.add(ConnectionSpec("car", "openapi", f"{world}/tasks/{OVERHEAD_TASK}/openapi.json"))
            for kind, (tool, method, arguments) in MEASURED.items():
                url = f"{world}/tasks/{OVERHEAD_TASK}/VehicleControlAPI/{tool}"
                sent = {"params": arguments} if method == "GET" else {"json": arguments}
                pairs, before, after = [], 0, 0
                for at in range(args.overhead):
                    if at % CALLS_A_MISSION == 0:
                        mission = f"{kind}-{at}"
                        await image.system(ledger.accept, mission, "the bench", {}, True)
                        effects = Effects(image, mission, "bench", Granting())
                        await box.close()  # a new connector: one may only send so many requests a minute
                        await effects.perform(f"car.{tool}", arguments, _watched(box, image, f"car.{tool}", arguments, []))
                    begun = time.perf_counter()
                    (await bare.request(method, url, **sent)).raise_for_status()
                    between = time.perf_counter()
                    fsyncs: list[int] = [image.committer.stats["rounds"]]
                    await effects.perform(f"car.{tool}", arguments, _watched(box, image, f"car.{tool}", arguments, fsyncs))
                    ended = time.perf_counter()
                    pairs.append((between - begun, ended - between))
                    before, after = before + fsyncs[1] - fsyncs[0], after + image.committer.stats["rounds"] - fsyncs[1]
                line[kind] = {
                    "bare_ms": _median_ms(one for one, _ in pairs),
                    "call_ms": _median_ms(one for _, one in pairs),
                    "overhead_ms": _median_ms(call - alone for alone, call in pairs),
                    "fsyncs_before": before / args.overhead,
                    "fsyncs_after": after / args.overhead,
                }
            await box.close()
        await image.close()
    return line


def _watched(box: Toolbox, image: LivingImage, name: str, arguments: dict[str, Any], fsyncs: list[int]) -> Any:
    """A way to prepare a call that notes the fsyncs so far when its request is sent."""

    async def prepare() -> ToolCall:
        call = await box.prepare(name, arguments)

        async def send(delivery: Any) -> Any:
            fsyncs.append(image.committer.stats["rounds"])
            return await call.send(delivery)

        return dataclasses.replace(call, send=send)

    return prepare


def _floor_ms(folder: Path) -> float:
    """Median milliseconds of an append of 1 KiB with its fsync."""
    times = []
    with (folder / "floor").open("wb", buffering=0) as file:
        for _ in range(200):
            begun = time.perf_counter()
            file.write(b"x" * 1024)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begun)
    return _median_ms(times)


def _median_ms(seconds: Iterable[float]) -> float:
    return round(statistics.median(seconds) * 1000, 2)


if __name__ == "__main__":
    main()
