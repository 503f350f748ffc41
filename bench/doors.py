"""A turn through the doors beside Ollama's own `/v1` on the same model, and what the server costs at rest. Ends with one JSON line.

`turns`: pairs in alternation, streamed, at depth `direct`: `POST /v1/chat/completions` of the doors, and of Ollama with the very messages
that the mission sends its model, to a model with the very options (made for it: `/v1` takes few). Temperature is 0 and the seed is one, so
that both write the same (`same` counts the pairs in which they did); before each the model reads something else, so that neither finds its
prompt read. Seconds to the end and to the first piece of the answer, by a client in a process of its own, the same for both sides.

`at_once`: so many turns of different words at one time, through the doors and to Ollama. `lost`: turns without a whole answer. `mixed`:
turns whose mission has another brief than was asked, or another answer than was told.

`idle`: three daemons in turns, each a process of its own: without doors, with doors that nobody calls, with doors that were called.
Mebibytes that are the process's own (private memory), and milliseconds of processor time in `--idle` seconds at rest; medians of the
rounds, and what the doors take beyond the first.

    python bench/doors.py --pairs 12 --json
    python bench/doors.py --only idle --idle 60 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
from ollama import AsyncClient
from sides import Overheard, arguments, server

from batos import logs
from batos.app.kernel import Kernel
from batos.bridge.client import connect
from batos.config import load
from batos.console.access import token_of
from batos.console.api_client import Asker

MADE = "doors-bench"  # the model with the options of a mission
BRIEFS = (
    "What should I look at when I buy a second-hand bicycle?",
    "Write a thank-you note to my aunt, who gave me a set of watercolours.",
    "What is the difference between weather and climate?",
    "Plan a rainy Sunday at home with two children.",
    "How does a refrigerator make things cold?",
    "Name three things that help to fall asleep.",
)
THINGS = (
    "kettle", "bicycle", "lantern", "violin", "compass", "umbrella", "ladder", "kite", "anchor", "pencil", "mirror", "candle", "barrel",
    "whistle", "hammer", "basket", "blanket", "telescope", "spoon", "wheel",
)  # fmt: skip
START_S = 120.0
REST_MS = 10.0  # processor time in a second of a daemon that does nothing but look around
Say = Callable[[str], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--at-once", type=int, default=20, metavar="N", help="turns at one time")
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS", help="time at rest of each daemon")
    parser.add_argument("--rounds", type=int, default=3, help="of `idle`")
    parser.add_argument("--only", default="turns,at_once,idle", help="parts to run")
    parser.add_argument("--client", action="store_true", help="ask what standard input says: the client's process")
    arguments(parser)
    args = parser.parse_args()
    logs.configure("error", "json")
    if args.client:
        asyncio.run(client())
    else:
        print(json.dumps(asyncio.run(measure(args))))


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    say: Say = (lambda words: None) if args.json else lambda words: print(words, flush=True)
    line: dict[str, Any] = {"bench": "doors"}
    async with server(args) as (host, folder):
        if "turns" in args.only or "at_once" in args.only:
            async with Pair.begun(host, folder, args) as pair:
                if "turns" in args.only:
                    line["turns"] = await turns(pair, args.pairs, say)
                    say(json.dumps(line["turns"]))
                if "at_once" in args.only:
                    line["at_once"] = await at_once(pair, args.at_once)
                    say(json.dumps(line["at_once"]))
        if "idle" in args.only:
            line["idle"] = await idle(host, folder, args, say)
    return line


# --- the client


async def client() -> None:
    """Make the requests of each line of standard input at the same time; answer with one line."""
    async with httpx.AsyncClient(timeout=600, limits=httpx.Limits(max_connections=None)) as http:
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await asyncio.gather(*(_asked(http, **one) for one in json.loads(line)))), flush=True)


async def _asked(http: httpx.AsyncClient, url: str, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
    """Stream one completion; return its text, its mission, whether it was whole, and the seconds to its first piece and its end."""
    begun = time.perf_counter()
    first, pieces, whole = 0.0, list[str](), False
    async with http.stream("POST", f"{url}/v1/chat/completions", headers=headers, json={**body, "stream": True}) as reply:
        async for line in reply.aiter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                whole = True
                continue
            told = json.loads(line.removeprefix("data: "))
            if text := "".join(one["delta"].get("content") or "" for one in told.get("choices", ())):
                first = first or time.perf_counter() - begun
                pieces.append(text)
        seconds, mission = time.perf_counter() - begun, reply.headers.get("x-batos-mission")
    return {"text": "".join(pieces).strip(), "mission": mission, "whole": whole, "seconds": seconds, "first_s": first or seconds}


class Pair:
    """A kernel with doors, its Ollama, and the client that asks both."""

    def __init__(self, kernel: Kernel, host: str, bare: AsyncClient, heard: Overheard, process: asyncio.subprocess.Process) -> None:
        assert kernel.doors is not None
        self.kernel, self.heard, self._bare, self._process = kernel, heard, bare, process
        self._doors = {"url": kernel.doors.address, "headers": {"Authorization": f"Bearer {token_of(kernel.settings.data)}"}}
        self._ollama = {"url": host if "://" in host else f"http://{host}", "headers": {}}

    @classmethod
    @contextlib.asynccontextmanager
    async def begun(cls, host: str, folder: Path, args: argparse.Namespace) -> AsyncIterator[Pair]:
        (experts := folder / "lora_staging").mkdir(parents=True)
        wanted: dict[str, Any] = {
            "data": folder, "ollama_host": host, "profile": args.profile, "autotelic": "off", "curate": "off", "remember": "off",
            "lora_staging": str(experts), "num_thread": args.threads, "depth": "direct", "listen": (f"ipc://{folder}/wire.sock",),
            "doors.enabled": "on", "doors.listen": "127.0.0.1:0", **({"model": args.model} if args.model else {}),
        }  # fmt: skip
        words = [sys.executable, __file__, "--client"]
        process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**24)
        try:
            with Overheard(seed=args.seed, temperature=0.0) as heard:
                kernel = await Kernel.start(load(wanted, environ={}))
                try:
                    await kernel.models_settled()
                    async with connect(host) as bare:
                        yield cls(kernel, host, bare, heard, process)
                finally:
                    await kernel.stop()
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def ask(self, side: str, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Have the client make requests at the same time.

        :param side: `doors` or `ollama`.
        """
        at = self._doors if side == "doors" else self._ollama
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([{**at, "body": body} for body in asked]).encode() + b"\n")
        await self._process.stdin.drain()
        told: list[dict[str, Any]] = json.loads(await self._process.stdout.readline())
        return told

    async def make_model(self, call: dict[str, Any]) -> None:
        """Make the model that answers Ollama's side: that of a mission's call, with its options."""
        options = {name: value for name, value in call["options"].items() if name != "think"}
        await self._bare.create(MADE, from_=call["model"], parameters=options)

    async def forget_prompts(self, call: dict[str, Any]) -> None:
        """Have the model of a call read something else, in each place that Ollama keeps a prompt in. It is loaded then."""
        other = {"messages": [{"role": "user", "content": "Count."}], "format": None, "options": {**call["options"], "num_predict": 1}}
        places = max(1, self.kernel.settings.inference.concurrency)
        await asyncio.gather(*(self._bare.chat(**{**call, **other, "stream": False}) for _ in range(places)))

    async def remove_model(self) -> None:
        """Remove the model of Ollama's side."""
        await self._bare.delete(MADE)


def _of_ollama(call: dict[str, Any]) -> dict[str, Any]:
    """Return the request to Ollama's `/v1` that is a mission's call."""
    messages = [{"role": one["role"], "content": one["content"]} for one in call["messages"]]
    return {"model": MADE, "messages": messages, "temperature": 0, "seed": call["options"]["seed"]}


def _of_doors(brief: str, number: int) -> dict[str, Any]:
    """Return the request to the doors; its number, which a mission passes over, makes it a turn of its own."""
    return {"model": "batos", "messages": [{"role": "user", "content": brief}], "seed": number}


# --- turns


async def turns(pair: Pair, count: int, say: Say) -> dict[str, Any]:
    """Return the medians of both sides, and of their ratios."""
    taken: dict[str, list[dict[str, Any]]] = {"doors": [], "ollama": []}
    same = 0
    for number in range(count):
        brief = BRIEFS[number % len(BRIEFS)]
        pair.heard.clear()
        await pair.ask("doors", [_of_doors(brief, 2 * number)])  # to know what its mission asks
        call = pair.heard.asked[0]
        await pair.make_model(call)
        for side in ("doors", "ollama") if number % 2 else ("ollama", "doors"):
            await pair.forget_prompts(call if side == "doors" else {**call, "model": MADE})
            (told,) = await pair.ask(side, [_of_doors(brief, 2 * number + 1) if side == "doors" else _of_ollama(call)])
            taken[side].append(told)
        same += taken["doors"][-1]["text"] == taken["ollama"][-1]["text"]
        say(f"{number + 1}/{count}: " + ", ".join(f"{side} {told[-1]['seconds']:.2f} s" for side, told in taken.items()))
    await pair.remove_model()
    both = list(zip(taken["doors"], taken["ollama"], strict=True))
    return {
        "model": call["model"], "pairs": count, "same": same,
        **{f"{side}_s": round(statistics.median(one["seconds"] for one in told), 3) for side, told in taken.items()},
        "ratio": round(statistics.median(ours["seconds"] / bare["seconds"] for ours, bare in both), 3),
        **{f"{side}_first_ms": round(1e3 * statistics.median(one["first_s"] for one in told), 1) for side, told in taken.items()},
        "first_more_ms": round(1e3 * statistics.median(ours["first_s"] - bare["first_s"] for ours, bare in both), 1),
    }  # fmt: skip


# --- at once


async def at_once(pair: Pair, count: int) -> dict[str, Any]:
    """Return the seconds of many turns at one time on both sides, and how many were lost or mixed."""
    briefs = [f"Say in one sentence what a {THINGS[n % len(THINGS)]} is for ({n})." for n in range(count)]
    await pair.ask("doors", [_of_doors(BRIEFS[0], 999)])
    await pair.forget_prompts(pair.heard.asked[-1])
    pair.heard.clear()
    begun = time.perf_counter()
    told = await pair.ask("doors", [_of_doors(brief, 1000 + n) for n, brief in enumerate(briefs)])
    doors_s, calls = time.perf_counter() - begun, list(pair.heard.asked)
    asker = Asker(pair.kernel.transport.dispatcher, pair.kernel.settings)
    lost = mixed = 0
    for brief, one in zip(briefs, told, strict=True):
        lost += not (one["whole"] and one["text"])
        known = await asker.ask("status", id=one["mission"]) if one["mission"] else {}
        answer = str((known.get("result") or {}).get("text", "")).strip()
        mixed += known.get("brief") != brief or not one["text"].endswith(answer)
    await pair.make_model(calls[0])
    await pair.forget_prompts({**calls[0], "model": MADE})
    begun = time.perf_counter()
    bare = await pair.ask("ollama", [_of_ollama(call) for call in calls[:count]])
    ollama_s = time.perf_counter() - begun
    await pair.remove_model()
    return {
        "turns": count, "lost": lost, "mixed": mixed, "inferences": len(calls), "doors_s": round(doors_s, 2),
        "ollama_s": round(ollama_s, 2), "ratio": round(doors_s / ollama_s, 3),
        "ollama_lost": sum(not (one["whole"] and one["text"]) for one in bare),
    }  # fmt: skip


# --- at rest


async def idle(host: str, folder: Path, args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Return what daemons take at rest, without doors, with doors, and with doors that were called."""
    taken: dict[str, list[tuple[float, float]]] = {"off": [], "on": [], "called": []}
    for number in range(args.rounds):
        for name in list(taken) if number % 2 else list(taken)[::-1]:
            taken[name].append(await asyncio.to_thread(_at_rest, host, folder / f"{name}-{number}", args, name))
            say(f"{name}: {taken[name][-1][0]:.1f} MiB, {taken[name][-1][1]:.0f} ms")
    line: dict[str, Any] = {"rounds": args.rounds, "seconds": args.idle}
    for name, all in taken.items():
        line[f"{name}_mib"] = round(statistics.median(mib for mib, _ in all), 1)
        line[f"{name}_cpu_ms"] = round(statistics.median(cpu for _, cpu in all), 1)
    for name in ("on", "called"):
        line[f"{name}_more_mib"] = round(line[f"{name}_mib"] - line["off_mib"], 1)
        line[f"{name}_more_cpu_ms"] = round(line[f"{name}_cpu_ms"] - line["off_cpu_ms"], 1)
    return line


def _at_rest(host: str, folder: Path, args: argparse.Namespace, name: str) -> tuple[float, float]:
    """Run a daemon; return its memory in MiB, and the milliseconds of processor time that it takes at rest."""
    folder.mkdir(parents=True)
    set_to = {
        "inference.host": host, "inference.profile": args.profile, "inference.staging": str(folder / "lora_staging"),
        "autonomy.mode": "off", "daemon.log_format": "json", "doors.enabled": "off" if name == "off" else "on",
        "doors.listen": "127.0.0.1:0",
    }  # fmt: skip
    words = [sys.executable, "-m", "batos", "run", "--data", str(folder), "--listen", f"ipc://{folder}/s"]
    words += [word for key, value in set_to.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryFile() as log:
        daemon = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)
        try:
            info = _info(folder, daemon)
            _settled(daemon.pid)
            if name == "called":
                headers = {"Authorization": f"Bearer {token_of(folder)}"}
                httpx.get(f"{info['doors']}/v1/models", headers=headers, timeout=60).raise_for_status()
                _settled(daemon.pid)
            before = _cpu_ms(daemon.pid)
            time.sleep(args.idle)
            return _own_mib(daemon.pid), _cpu_ms(daemon.pid) - before
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)


def _settled(pid: int) -> None:
    """Return when a process rests: five seconds in a row of hardly any processor time."""
    quiet, until = 0, time.monotonic() + START_S
    while quiet < 5 and time.monotonic() < until:
        before = _cpu_ms(pid)
        time.sleep(1)
        quiet = quiet + 1 if _cpu_ms(pid) - before <= REST_MS else 0


def _info(folder: Path, daemon: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the facts about a daemon, once it has started."""
    from batos.errors import BatosError
    from batos.wire import SyncClient

    until = time.monotonic() + START_S
    while True:
        assert daemon.poll() is None, f"the daemon ended with {daemon.returncode}"
        try:
            with SyncClient(f"ipc://{folder}/s", timeout_s=2) as client:
                info: dict[str, Any] = client.info()
                return info
        except BatosError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _own_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
