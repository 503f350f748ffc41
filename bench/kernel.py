"""What a mission costs beside its inferences.

An instant inference (5 calls a mission: decompose, three facets at once, synthesize; 400-byte answers) takes the
bridge's place; everything else is real and durable. Prints one JSON line.

    python bench/kernel.py --missions 2000 --concurrency 1 --dir /dev/shm

With `--http TOKENS` the inferences come over HTTP: an Ollama without models, in a process of its own, streams answers of that many
tokens, one at a time, to the whole bridge. `cpu_ms_of_client` is what a bare `ollama.AsyncClient` takes for the same streams.

    python bench/kernel.py --http 60 --missions 60 --concurrency 4 --dir /dev/shm
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

FACETS = ("sage_facet_", "still_point_facet_", "plain_facet_")
BRIEF = "I feel stuck: why is that?"  # ROBIN's, who has three facets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missions", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the image; a RAM disk shows the cost without the disk")
    parser.add_argument("--wire", action="store_true", help="send the missions through a socket (in this process) instead of the scheduler")
    parser.add_argument("--http", type=int, default=0, metavar="TOKENS", help="stream answers of so many tokens over HTTP")
    parser.add_argument("--pace", type=float, default=0.01, metavar="SECONDS", help="between two tokens of a stream")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--traced", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.http, args.pace)
        return
    os.makedirs(args.dir, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    try:
        if args.traced:
            asyncio.run(missions(folder, args.missions, args.concurrency, wire=False))
            return
        if args.http:
            print(json.dumps(over_http(folder, args)))
            return
        line = {"missions": args.missions, "concurrency": args.concurrency, "wire": args.wire, **imports()}
        line.update(floors(folder))
        line.update(asyncio.run(missions(folder, args.missions, args.concurrency, wire=args.wire)))
        line.update(fsyncs(args, line.pop("commits_per_mission")))
        print(json.dumps(line))
    finally:
        shutil.rmtree(folder)


def imports() -> dict[str, Any]:
    """Time and memory of `import batos.app.kernel` in a fresh process; the best of three."""
    code = (
        "import time; t = time.perf_counter(); import batos.app.kernel; t = time.perf_counter() - t\n"
        "kib = next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS'))\n"
        "print(t, kib / 1024)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split() for _ in range(3)]
    return {"import_s": round(min(float(t) for t, _ in runs), 3), "rss_mb_after_import": round(min(float(m) for _, m in runs), 1)}


def floors(folder: pathlib.Path) -> dict[str, float]:
    """What the disk and ZODB cost alone, in the same run: microseconds, medians."""
    import transaction
    import ZODB
    from persistent.mapping import PersistentMapping

    with (folder / "raw").open("wb", buffering=0) as f:

        def append() -> None:
            f.write(b"x" * 400)
            os.fsync(f.fileno())

        raw = median_us(append)
    db = ZODB.DB(str(folder / "floor.fs"))
    tm = transaction.TransactionManager(explicit=True)
    connection = db.open(transaction_manager=tm)

    def commit() -> None:
        tm.begin()
        connection.root()["floor"] = PersistentMapping(text="x" * 400)
        tm.commit()

    bare = median_us(commit)
    connection.close()
    db.close()
    return {"floor_append_fsync_us": raw, "floor_zodb_commit_us": bare}


def median_us(work: Callable[[], None], rounds: int = 500) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return round(sorted(times)[rounds // 2] * 1e6, 1)


PROSE = (
    "What keeps a person where they are is seldom one thing. A habit that once helped has gone on after its reason ended, and the days "
    "are full enough that nobody asks it to leave. Look at last week and name three hours that felt like your own: what were you doing, "
    "and who was there? Begin with one of them. Make it a little larger, tell somebody that you mean to, and see after ten days whether "
    "the rest still seems as heavy as before."
)
PLAN = json.dumps({name: f"{name}: {PROSE[at : at + 96]}" for at, name in zip((0, 130, 260), FACETS, strict=True)})
ANSWER = PROSE[:400]


class Instant:
    """An inference that answers at once, with 400 bytes."""

    async def chat(self, request: Any, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> Any:
        from batos.bridge.inference import ChatReply

        return ChatReply(PLAN if request.schema else ANSWER, request.model, "0" * 64, 120, 100, 0.1, 1.0)

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        return [[float(text.count(letter)) + 1 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    async def digest(self, model: str) -> str:
        return "0" * 64


def serve(tokens: int, pace: float) -> None:
    """Be an Ollama that streams answers at a pace, until the standard input ends."""
    from batos.testing.ollama import ScriptedHandler, ScriptedOllama

    class Paced(ScriptedHandler):
        def _stream(self, parts: Iterable[dict[str, Any]], **more: Any) -> None:
            super()._stream((part for part in parts if not time.sleep(pace)), **more)

    class Server(ScriptedOllama):
        handler = Paced

    with Server() as server:
        server.say(PLAN, when=lambda request: bool(request.get("format")))
        server.say(" ".join(f"word{i:03}" for i in range(tokens)))
        print(server.host, flush=True)
        sys.stdin.read()


def over_http(folder: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    """Processor time of missions whose answers are streamed over HTTP, and of a bare client for as many streams."""
    command = [sys.executable, __file__, "--serve", "--http", str(args.http), "--pace", str(args.pace)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        host = server.stdout.readline().strip()
        found = asyncio.run(missions(folder, args.missions, args.concurrency, wire=False, host=host))
        bare = asyncio.run(streams(host, args.missions, args.concurrency))
    keep = ("missions_per_s", "cpu_ms_per_mission")
    told = {"missions": args.missions, "concurrency": args.concurrency, "tokens": args.http, "pace_s": args.pace}
    return {**told, **{name: found[name] for name in keep}, "cpu_ms_of_client": bare}


async def streams(host: str, count: int, concurrency: int) -> float:
    """Milliseconds of processor time that a bare client takes for the five streams of a mission."""
    from ollama import AsyncClient

    client = AsyncClient(host)
    todo = iter(range(5 * count))

    async def listen() -> None:
        for i in todo:
            form = None if i % 5 else {"type": "object"}
            request = {"model": "robin:embedded", "messages": [{"role": "user", "content": BRIEF}], "format": form}
            async for _part in await client.chat(**request, stream=True):
                pass

    cpu = time.process_time()
    await asyncio.gather(*(listen() for _ in range(concurrency)))
    return round((time.process_time() - cpu) / count * 1e3, 3)


async def first_mission(kernel: Any) -> None:
    """Think a mission that does not count."""
    ended = asyncio.Event()
    stop = kernel.events.watch("first", lambda event: ended.set() if event["type"] == "result" else None)
    await kernel.scheduler.submit("first", BRIEF, {})
    await ended.wait()
    stop()


async def missions(folder: pathlib.Path, count: int, concurrency: int, *, wire: bool, host: str = "") -> dict[str, Any]:
    from batos import logs
    from batos.app.kernel import Kernel
    from batos.config import load
    from batos.daemon import calm_collector

    logs.configure("error", "json")
    endpoint = f"ipc://{folder / 'bench.sock'}"
    flags: dict[str, Any] = {"data": folder, "concurrent_missions": concurrency, "autotelic": "off", "listen": [endpoint]}
    if host:
        flags |= {"ollama_host": host, "profile": "embedded", "inference.concurrency": min(64, 3 * concurrency)}
    kernel = await Kernel.start(load(flags, environ={}), inference=None if host else Instant(), listen=wire)
    if host:  # models are made at the first start, and what a first mission loads is loaded once
        await first_mission(kernel)
    calm_collector()  # as the daemon does
    image = folder / "live_image.fs"
    before, commits = image.stat().st_size, _commits(kernel)
    todo = iter(range(count))

    async def in_process() -> None:
        for i in todo:
            ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            stop = kernel.events.watch(f"m{i:08}", lambda event, ended=ended: event["type"] == "result" and ended.set_result(event))
            await kernel.scheduler.submit(f"m{i:08}", BRIEF, {})
            event = await ended
            stop()
            check(event["result"])

    async def through_socket() -> None:
        from batos.wire import Client

        async with Client(endpoint) as client:
            for i in todo:
                await client.submit(BRIEF, id=f"m{i:08}")
                check(await client.result(f"m{i:08}"))

    def check(result: dict[str, Any]) -> None:
        assert result["usage"]["inferences"] == 5, result
        assert tuple(result["facets"]) == FACETS, result

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*((through_socket if wire else in_process)() for _ in range(concurrency)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    made = {name: value - commits[name] for name, value in _commits(kernel).items()}
    await kernel.stop()
    size = image.stat().st_size - before
    return {
        "missions_per_s": round(count / wall, 1),
        "cpu_ms_per_mission": round(cpu / count * 1e3, 3),
        "bytes_per_mission": round(size / count),
        "bytes_per_mission_packed": round((packed_size(image) - before) / count),
        "commits_per_mission": round(sum(made.values()) / count, 2),
    }


def _commits(kernel: Any) -> dict[str, int]:
    return {name: kernel.image.committer.stats[name] for name in ("rounds",)}


def packed_size(image: pathlib.Path) -> int:
    import ZODB

    db = ZODB.DB(str(image))
    db.pack()
    db.close()
    return image.stat().st_size


def fsyncs(args: argparse.Namespace, commits: float) -> dict[str, Any]:
    """fsyncs a mission, by strace of a second, smaller run; the commits counted in this one where there is no strace."""
    if shutil.which("strace") is None or args.wire:
        return {"fsyncs_per_mission": commits, "fsyncs_by": "counted commits"}
    few, many = (_traced(args, count) for count in (args.concurrency, args.concurrency + min(args.missions, 500)))
    return {"fsyncs_per_mission": round((many - few) / min(args.missions, 500), 2), "fsyncs_by": "strace"}


def _traced(args: argparse.Namespace, count: int) -> int:
    with tempfile.NamedTemporaryFile("r") as out:
        command = [
            sys.executable,
            __file__,
            "--traced",
            "--missions",
            str(count),
            "--concurrency",
            str(args.concurrency),
            "--dir",
            args.dir,
        ]
        subprocess.run(["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", out.name, *command], check=True)
        return len(re.findall(r"\b(?:fsync|fdatasync)\(", out.read()))


if __name__ == "__main__":
    main()
