"""Months of use in minutes: what becomes of the image, of memory, of each verb and of what is done in the background.

    python bench/soak.py --dir /dev/shm
    python bench/soak.py --missions 2000 --json

A daemon of its own, on a scripted stand-in for models that answers after some milliseconds, under load without a pause: briefs, follow-ups,
missions that are cancelled, messages that remember, ratings, undos, files that are read, searches. It is killed three times in the first
fifth, and once at the end. Upkeep, backups, curator and heartbeat come every few seconds, so that months of them come by. After a twentieth
of the missions and at the end the load pauses, what is due is waited for, and the image is packed. `--missions` scales it down; Ctrl-C ends
the load at the number that is reached, as if that had been asked for. The last line is JSON; the exit code is 1 where an aim is missed.

Other work on the machine does not count. The image of the first measure is kept, and at the end two daemons that were just started open
it and the last one: each verb is asked of both in turn, so that what slows the one slows the other. A stall is counted without the time
that the daemon's main thread, or the process that asks, was ready to run and had no processor (`/proc/PID/schedstat`); time that the
daemon's other threads take from it counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from batos.errors import BatosError, InvalidInput, MissionFailed
from batos.resources import one_arena
from batos.wire import Client

AIMS = {"stall_s": 0.25, "bytes_a_mission": 1024, "slower": 1.5, "memory": 1.15, "starved_s": 60.0}
FIRST = 20
"""The first measure is after one mission in so many."""
WORKERS = 16
SAMPLES, WARM = 40, 5
WAIT_S = 300.0
CHAT_S, TEXT_S = 0.004, 0.001
"""What the stand-in takes for an answer, and to embed a text; one batch at a time, as Ollama does it."""
DIMENSIONS = 256
RECORD_BYTES = 42 + 8
"""Of a record in the file, besides its data."""
UPKEEP_S, BACKUP_S = 15.0, 45.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missions", type=int, default=20_000)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the image; a RAM disk shows the cost without the disk")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--daemon", help=argparse.SUPPRESS)
    parser.add_argument("--kept", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--ping", help=argparse.SUPPRESS)
    parser.add_argument("--pid", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.daemon:
        asyncio.run(serve(pathlib.Path(args.daemon), args.kept))
    elif args.ping:
        ping(args.ping, args.pid)
    else:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="soak-", dir=args.dir))
        try:
            found = asyncio.run(Soak(folder, args.missions, args.seed, quiet=args.json).run())
        finally:
            None if os.environ.get("SOAK_KEEP") else shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(found))
        sys.exit(1 if found["missed"] else 0)


# --- the daemon


class StandIn:
    """An inference that takes its time and says something of its own to each prompt."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def chat(self, request: Any, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> Any:
        from batos.bridge.inference import ChatReply

        await asyncio.sleep(CHAT_S)
        chance = random.Random(zlib.crc32(request.user.encode("utf-8", "replace")))
        text = " ".join(word(chance) for _ in range(50)).capitalize() + "."
        if request.schema:
            text = json.dumps(dict.fromkeys(request.schema.get("properties", {}), text[:100]))
        return ChatReply(text, request.model, "0" * 64, 120, 60, 0.1, CHAT_S * 1e3)

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        async with self._turn:
            await asyncio.sleep(TEXT_S * len(texts))
        return [hashed(text) for text in texts]

    async def digest(self, model: str) -> str:
        return "0" * 64


def word(chance: random.Random) -> str:
    """One of some thousand words, few of which are used much, as in a language (Zipf)."""
    return WORDS[int(len(WORDS) ** chance.random()) - 1]


def vocabulary(count: int) -> list[str]:
    syllables = ("ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu", "za")
    chance = random.Random(1)
    return ["".join(chance.choices(syllables, k=chance.choice((2, 3, 4)))) for _ in range(count)]


WORDS = vocabulary(8000)


def hashed(text: str) -> list[float]:
    """A hashed bag of words."""
    row = [1e-3] * DIMENSIONS
    for one in text.lower().split():
        row[zlib.crc32(one.encode("utf-8", "replace")) % DIMENSIONS] += 1.0
    return row


async def serve(folder: pathlib.Path, kept: int) -> None:
    from batos import logs
    from batos.app.kernel import Kernel
    from batos.config import load
    from batos.daemon import calm_collector

    one_arena()  # as the daemon does

    logs.configure("error", "json")
    often = {"upkeep_s": UPKEEP_S, "upkeep_first_s": 5, "backup_every_h": BACKUP_S / 3600, "backup_first_s": 10, "backup_keep_fulls": 2}
    loop = {"heartbeat_s": 20, "heartbeat_first_s": 5, "senses_s": 5, "autotelic": "observe", "audit_missions": 1_000_000}
    memory = {
        "curate_s": 20,
        "curate_check_s": 2,
        "curate_age_days": 0,
        "curate_fresh_days": 0,
        "curate_tokens": 0,
        "curate_flush_s": 5,
        "dropped_rows": 200,
    }
    old = {"history_days": 0, "journal_days": 0, "missions_kept": kept, "mission_attempts": 20}
    flags = {"data": folder, "listen": [f"ipc://{folder.parent / 's'}"], **often, **loop, **memory, **old}
    kernel = await Kernel.start(load(flags, environ={}), inference=StandIn())
    calm_collector()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, kernel.request_stop)
    print("ready", flush=True)
    await kernel.ended()
    await kernel.stop()


def ping(endpoint: str, pid: int) -> None:
    """Ask one small thing after the other; a line for each that took long: when, how long, and that without waits for a processor."""
    import zmq

    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(endpoint)
    while True:
        waited, begun = waited_s(pid), time.monotonic()
        socket.send_json({"op": "ls", "target": "psm"})
        socket.recv()
        took = time.monotonic() - begun
        if took > AIMS["stall_s"] / 2:
            print(json.dumps([round(time.time(), 3), round(took, 3), round(max(0.0, took - waited_s(pid) + waited), 3)]), flush=True)
        time.sleep(0.02)


def waited_s(pid: int) -> float:
    """How long the main thread of a process, and this process, were ready to run and had no processor; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return sum(int(pathlib.Path(f"/proc/{one}/schedstat").read_text().split()[1]) for one in (pid, "self")) / 1e9
    return 0.0


# --- the load


class Soak:
    """One run."""

    def __init__(self, folder: pathlib.Path, missions: int, seed: int, *, quiet: bool) -> None:
        self.folder, self.count, self.chance, self.quiet = folder, missions, random.Random(seed), quiet
        self.kept = max(20, missions // (2 * FIRST))
        self.endpoint = f"ipc://{folder / 's'}"  # a socket's path has room for 107 characters
        self.client: Client
        self.process: subprocess.Popen[str]
        self.pinger: subprocess.Popen[str]
        self.stalls: list[tuple[float, float, float]] = []
        self.empty = 0
        self.ended = 0
        self.ids: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.under_load: defaultdict[str, list[float]] = defaultdict(list)
        self.rss: list[tuple[int, int]] = []
        self.watch = Starvation()
        self.open = asyncio.Event()
        self.busy, self.idle = 0, asyncio.Event()
        self.workers: list[asyncio.Task[None]] = []
        self.again: list[tuple[str, Callable[[str], Awaitable[Any]]]] = []
        """Missions that were sent when the daemon was killed."""

    async def run(self) -> dict[str, Any]:
        (self.folder / "data").mkdir()
        (self.folder / "then" / "data").mkdir(parents=True)
        (self.folder / "notes").mkdir()
        await self.begin()
        self.empty = await self.packed()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.enough)
        begun = time.monotonic()
        sampler = asyncio.create_task(self.sample())
        self.hire()
        for share in (0.25, 0.5, 0.75):
            await self.reached(share / FIRST)
            await self.kill()
        await self.reached(1 / FIRST)
        first = await self.measured(keep=True)
        then = self.ids[0], self.ids[-1]
        self.open.set()
        await self.reached(1)
        loaded_s = time.monotonic() - begun
        last = await self.measured()
        sampler.cancel()
        await self.dismiss()
        left = await self.left()
        restart_s = await self.kill()
        verbs = await self.compared(then)
        lost = await self.lost()
        await self.packed()
        await self.shut_pinger()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return self.told(first, last, verbs, left, lost, loaded_s, restart_s)

    def enough(self) -> None:
        """End the load here."""
        self.count = min(self.count, max(self.ended, self.count // FIRST))

    # --- the process

    async def begin(self) -> float:
        begun = time.monotonic()
        self.process = await self.daemon(self.folder / "data")
        self.client = await Client(self.endpoint, timeout_s=60).__aenter__()
        self.pinger = child("--ping", self.endpoint, "--pid", str(self.process.pid))
        self.open.set()
        return time.monotonic() - begun

    async def daemon(self, data: pathlib.Path) -> subprocess.Popen[str]:
        process = child("--daemon", str(data), "--kept", str(self.kept))
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        assert line == "ready\n", "the daemon did not start"
        return process

    async def kill(self) -> float:
        """SIGKILL, in the middle of everything, and a new start; how long that takes."""
        at_work = bool(self.workers)
        self.open.clear()
        await self.shut_pinger()
        self.process.kill()
        self.process.wait()
        await self.dismiss()
        with contextlib.suppress(BatosError):
            await self.client.__aexit__(None, None, None)
        took = await self.begin()
        if at_work:
            self.hire()
        return took

    def hire(self) -> None:
        self.workers = [asyncio.create_task(self.work()) for _ in range(WORKERS)]

    async def dismiss(self) -> None:
        """Let the workers go; what they had sent is noted."""
        for task in self.workers:
            task.cancel()
        if self.workers:
            await asyncio.wait(self.workers)
        self.workers, self.busy = [], 0
        self.idle.set()

    async def shut_pinger(self) -> None:
        """End it, and take over what it has noted."""
        self.pinger.kill()
        said, _ = await asyncio.to_thread(self.pinger.communicate)
        self.stalls += [tuple(json.loads(line)) for line in said.splitlines() if line.endswith("]")]

    # --- the load

    async def work(self) -> None:
        while True:
            await self.open.wait()
            self.busy += 1
            self.idle.clear()
            try:
                await self.step()
            except BatosError as e:  # an undo of what was based on, say
                self.refused[e.code] += 1
            self.busy -= 1
            if not self.busy:
                self.idle.set()

    async def step(self) -> None:
        if self.again:
            id, submit = self.again.pop()
            await self.mission(submit, id)
            return
        chance, what = self.chance, self.chance.random()
        if what < 0.80 or not self.ids:
            brief = f"{chance.choice(('Why', 'How', 'What if'))} {' '.join(word(chance) for _ in range(chance.randrange(5, 14)))}?"
            context = chance.choice(self.ids[-60:]) if self.ids and what < 0.09 else None
            await self.mission(lambda id: self.client.submit(brief, id=id, context=context), cancels=what > 0.76)
        elif what < 0.83:
            said = " ".join(word(chance) for _ in range(20))
            await self.mission(lambda id: self.client.send_message("memory", "remember_", [said], {}, id=id))
        elif what < 0.88:
            rating = 1 if chance.random() < 0.7 else -1
            await self.timed("rate", self.client.rate(chance.choice(self.ids[-200:]), rating))
        elif what < 0.89:
            await self.timed("undo", self.client.undo(chance.choice(self.ids[-20:])))
        elif what < 0.92:
            path = self.folder / "notes" / f"note{chance.randrange(10**9)}.md"
            path.write_text(f"# {word(chance)}\n\n" + "\n\n".join(" ".join(word(chance) for _ in range(60)) for _ in range(5)))
            await self.timed("ingest", self.client.ingest([str(path)]))
        elif what < 0.96:
            await self.timed("search", self.client.search(" ".join(word(chance) for _ in range(4)), 3))
        else:
            id = chance.choice(self.ids)
            await self.timed("status", self.client.status(id))

    async def mission(self, submit: Callable[[str], Awaitable[Any]], id: str = "", *, cancels: bool = False) -> None:
        """Give a mission and wait for its end; one that a kill cuts off is given again."""
        id = id or f"{self.chance.getrandbits(128):032x}"
        try:
            await self.timed("submit", submit(id))
            if cancels:
                await self.timed("cancel", self.client.cancel(id))
            await self.client.result(id, True, 60)
        except MissionFailed as e:
            self.outcomes[e.context.get("code", e.code)] += 1
        except asyncio.CancelledError:
            self.again.append((id, submit))
            raise
        else:
            self.outcomes["complete"] += 1
        self.ids.append(id)
        self.ended += 1

    async def timed(self, verb: str, work: Awaitable[Any]) -> Any:
        begun = time.perf_counter()
        try:
            return await work
        finally:
            self.under_load[verb].append(time.perf_counter() - begun)

    async def reached(self, share: float) -> None:
        """Return when this share of the missions has ended."""
        told, missions = self.ended, int(self.count * share)
        while self.ended < min(missions, self.count):
            assert self.process.poll() is None, "the daemon ended"
            await asyncio.sleep(0.05)
            if not self.quiet and self.ended - told >= max(100, self.count // 20):
                told = self.ended
                print(f"{self.ended} missions, {self.rss[-1][1] if self.rss else 0} KiB", flush=True)

    async def sample(self) -> None:
        while True:
            await self.open.wait()
            with contextlib.suppress(BatosError, OSError, StopIteration):
                info = await self.client.info()
                self.watch.take(info, time.time(), self.open.is_set())
                self.rss.append((self.ended, rss_kib(self.process.pid)))
            await asyncio.sleep(1.0)

    # --- measures

    async def measured(self, *, keep: bool = False) -> dict[str, Any]:
        """Stop the load, let what is due be done, and pack the image.

        :param keep: keep a copy of the image.
        """
        self.open.clear()
        await self.idle.wait()
        since = time.time()
        await self.until(lambda info: (info["upkeep"].get("retention") or {}).get("at", 0) > since + 1)
        for _ in range(50):  # what is old by now is put away, a round's worth at a time
            if not (await self.client.curate())["clusters"]:
                break
        await self.until(lambda info: info["memory"]["embedder"]["state"] == "ready" and not info["autotelic"]["cem"]["waiting"], 120)
        packed = await self.packed()
        if keep:
            for name in ("live_image.fs", "live_image.fs.blobs"):
                copy = shutil.copytree if (self.folder / "data" / name).is_dir() else shutil.copy2
                copy(self.folder / "data" / name, self.folder / "then" / "data" / name)
        return {"missions": self.ended, "bytes": packed, "blobs": self.blobs()}

    async def packed(self) -> int:
        for _ in range(600):
            with contextlib.suppress(BatosError):  # a backup is under way
                return int((await self.client.pack(0))["bytes_after"])
            await asyncio.sleep(0.2)
        raise AssertionError("no pack in two minutes")

    def blobs(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "data").glob("live_image.fs.blobs/**/*") if path.is_file())

    async def until(self, there: Callable[[dict[str, Any]], bool], wait_s: float = WAIT_S) -> bool:
        end = time.monotonic() + wait_s
        while not there(await self.client.info()):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.2)
        return True

    async def compared(self, then: tuple[str, str]) -> dict[str, tuple[float, float]]:
        """The median of each verb in milliseconds, of the image as it was at the first measure and as it is; asked in turn.

        :param then: the first mission and the last one of then.
        """
        process = await self.daemon(self.folder / "then" / "data")
        found = {}
        try:
            async with Client(f"ipc://{self.folder / 'then' / 's'}", timeout_s=60) as client:
                both = self.verbs(client, *then), self.verbs(self.client, self.ids[0], self.ids[-1])
                for name in both[0]:
                    times: tuple[list[float], list[float]] = [], []
                    for ask, took in ((one[name], took) for _ in range(WARM + SAMPLES) for one, took in zip(both, times, strict=True)):
                        begun = time.perf_counter()
                        with contextlib.suppress(InvalidInput):  # a rating of a cancelled one, say
                            await ask()
                        took.append(time.perf_counter() - begun)
                    found[name] = tuple(round(statistics.median(took[WARM:]) * 1e3, 2) for took in times)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        return found

    def verbs(self, client: Client, oldest: str, newest: str) -> dict[str, Callable[[], Awaitable[Any]]]:
        chance = random.Random(3)
        return {
            "status": lambda: client.status(newest),
            "result": lambda: outcome(client, newest),
            "show": lambda: client.show(newest),
            "status old": lambda: client.status(oldest),
            "show old": lambda: client.show(oldest),
            "missions": lambda: client.missions(limit=20),
            "missions COMPLETE": lambda: client.missions("COMPLETE", 20),
            "missions FAILED": lambda: client.missions("FAILED", 20),
            "missions PAUSED": lambda: client.missions("PAUSED", 20),
            "failures": lambda: client.failures(limit=20),
            "history": lambda: client.history(newest, 20),
            "ls": lambda: client.ls("robin"),
            "search": lambda: client.search(" ".join(word(chance) for _ in range(4))),
            "memory": lambda: client.memory(),
            "memory documents": lambda: client.memory(20),
            "info": client.info,
            "metrics": client.metrics,
            "personas": client.personas,
            "methods": client.methods,
            "changes": lambda: client.changes(limit=20),
            "rate": lambda: client.rate(newest, chance.choice((1, -1)), word(chance)),
            "send": lambda: sent(client, f"Why {word(chance)} {word(chance)}?"),
        }

    async def left(self) -> dict[str, Any]:
        """What is not done a minute after the load has ended."""
        end = time.monotonic() + AIMS["starved_s"]
        while time.monotonic() < end:
            memory, info = await self.client.memory(), await self.client.info()
            waiting = {**memory["waiting"], "entropy": info["autotelic"]["cem"]["waiting"], "missions": info["missions"]["queued"]}
            if not any(waiting.values()):
                break
            await asyncio.sleep(1.0)
        return {**waiting, "without_entropy": info["autotelic"]["cem"]["left_out"], "backup_failures": info["upkeep"]["backups"]["failed"]}

    async def lost(self) -> int:
        """How many of the missions that were acknowledged are not known as ended any more; a sample."""
        some = random.Random(5).sample(self.ids, min(500, len(self.ids)))
        return sum([(await self.client.status(id))["state"] not in ("COMPLETE", "FAILED") for id in some])

    def told(
        self,
        first: dict[str, Any],
        last: dict[str, Any],
        verbs: dict[str, tuple[float, float]],
        left: dict[str, Any],
        lost: int,
        loaded_s: float,
        restart_s: float,
    ) -> dict[str, Any]:
        parts = tally(self.folder / "data" / "live_image.fs", self.empty)
        fifth = [kib for ended, kib in self.rss if self.count / 5 <= ended < self.count * 2 / 5]
        end = [kib for ended, kib in self.rss if ended >= self.count * 4 / 5]
        slower = {name: round(took / max(before, 0.5), 2) for name, (before, took) in verbs.items()}
        found: dict[str, Any] = {
            "missions": self.count,
            "kept": self.kept,
            "missions_per_s": round(self.count / loaded_s, 1),
            "ended": dict(self.outcomes),
            "refused": dict(self.refused),
            "image_bytes": [first["bytes"], last["bytes"]],
            "blob_bytes": [first["blobs"], last["blobs"]],
            **{name: parts[name] for name in ("parts", "folded", "bytes_a_mission")},
            "rss_mb": [round(max(part, default=0) / 1024) for part in (fifth, end)],
            "memory": round(max(end, default=0) / max(fifth, default=1), 3),
            "verbs_ms": verbs,
            "slower": {name: by for name, by in slower.items() if by > AIMS["slower"]},
            "under_load_ms": {verb: spread(times) for verb, times in sorted(self.under_load.items())},
            "stalls": sum(own > AIMS["stall_s"] for *_, own in self.stalls),
            "stall_s": max((own for *_, own in self.stalls), default=0.0),
            "stall_with_machine_s": max((took for _, took, _ in self.stalls), default=0.0),
            "load": [round(one, 1) for one in os.getloadavg()],
            "starved_s": self.watch.longest,
            "left": left,
            "lost": lost,
            "restart_s": round(restart_s, 2),
        }
        missed = [name for name in ("stall_s", "bytes_a_mission", "memory") if found[name] > AIMS[name]]
        missed += [f"slower: {name}" for name in found["slower"]]
        missed += [f"starved: {name}" for name, took in self.watch.longest.items() if took > AIMS["starved_s"]]
        missed += [f"left: {name}" for name, count in left.items() if count]
        return {**found, "missed": missed + (["lost"] if lost else [])}


def tally(path: pathlib.Path, empty: int) -> dict[str, Any]:
    """What the bytes of a packed image are for; and how many there are of a folded mission, what all have in common counted in.

    :param empty: bytes of an image without missions.
    """
    from ZODB.utils import get_pickle_metadata

    from batos.image.storage import open_database
    from batos.memory.records import DIGEST, FAILURE, MISSION

    db = open_database(f"file://{path}", cache_size=100_000, pool_size=7, read_only=True)
    parts: Counter[str] = Counter()
    try:
        with db.transaction() as connection:
            ledger, library = connection.root()["ledger"], connection.root()["lobby"].memory.library

            def owner(document: Any) -> str:
                if document.kind not in (MISSION, FAILURE, DIGEST):
                    return "files and notes"
                if document.mission in ledger.missions:
                    return "kept missions"
                return "read in memory" if document.kind != DIGEST and document.sections else "folded missions"

            chunks = Counter(owner(chunk.document) for chunk in library.chunks.values())
            for record in (one for transaction in db.storage.iterator() for one in transaction if one.data):
                _, name = get_pickle_metadata(record.data)
                size = len(record.data) + RECORD_BYTES
                slots = {}
                if name == "UvmObject":
                    connection.get(record.oid)._p_activate()
                    slots = connection.get(record.oid).__dict__
                if name in ("StoredSegment", "Block", "Tail", "VectorLog"):
                    for kind, count in chunks.items():
                        parts[kind] += round(size * count / sum(chunks.values()))
                elif name in ("Journal", "JournalEntry", "Decision", "Recalled", "PartialText") or "brief" in slots:
                    parts["kept missions"] += size
                elif "document" in slots or "sources" in slots:
                    parts[owner(slots.get("document", connection.get(record.oid)))] += size
                else:
                    parts["folded missions"] += size
            folded = len(ledger.folded)
    finally:
        db.close()
    return {"parts": dict(parts), "folded": folded, "bytes_a_mission": round((parts["folded missions"] - empty) / max(1, folded))}


class Starvation:
    """How long each kind of background work had something to do and did nothing."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = dict.fromkeys(("vectors", "entropy", "heartbeat", "curator", "retention"), 0.0)
        self._since: dict[str, tuple[Any, float]] = {}

    def take(self, info: dict[str, Any], now: float, loaded: bool) -> None:
        memory, cem, beat = info["memory"], info["autotelic"]["cem"], info["autotelic"]["heartbeat"]
        vectors = memory["embedder"]["vectors"]
        self._standing("vectors", memory["chunks"] > vectors, vectors, now)
        self._standing("entropy", bool(cem["waiting"]), json.dumps(cem["last"]), now)
        self._late("heartbeat", now - (beat["due"] or now))
        self._standing("curator", not memory["curator"]["under_way"], json.dumps(memory["curator"]["last"]), now)
        self._standing("retention", True, (info["upkeep"].get("retention") or {}).get("at"), now)

    def _standing(self, name: str, waits: bool, figure: Any, now: float) -> None:
        before, since = self._since.get(name, (figure, now))
        if not waits or before != figure:
            since = now
        self._since[name] = figure, since
        self._late(name, now - since)

    def _late(self, name: str, by: float) -> None:
        self.longest[name] = round(max(self.longest[name], by), 1)


def child(*words: str) -> subprocess.Popen[str]:
    """This file, as a process of its own."""
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)


def rss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


async def outcome(client: Client, id: str) -> None:
    with contextlib.suppress(MissionFailed):
        await client.result(id, True, 60)


async def sent(client: Client, brief: str) -> None:
    accepted = await client.submit(brief)
    await outcome(client, accepted.id)


def spread(times: Sequence[float]) -> list[float]:
    """Median, the 99th of a hundred, the longest; milliseconds."""
    ordered = sorted(times)
    return [round(ordered[int(share * (len(ordered) - 1))] * 1e3, 1) for share in (0.5, 0.99, 1.0)]


if __name__ == "__main__":
    os.environ.pop("BATOS_LISTEN", None)
    main()
