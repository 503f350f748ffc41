"""What the image bears: acceptance, restart, and how long the loop is held up. Prints one JSON line.

python bench/image.py --dir /dev/shm
python bench/image.py --dir /dev/shm --only accept,restart
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from kernel import BRIEF, Instant, floors

from batos import logs
from batos.app.kernel import Kernel
from batos.concurrency import in_helper
from batos.config import load
from batos.daemon import calm_collector
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.image.packing import pack
from batos.image.scrubber import Walk
from batos.objects import UvmObject

PARTS = ("accept", "socket", "restart", "million", "stalls")
ROUNDS = 7  # the machine's own speed varies by half: each in turns with its floor
ACCEPTED, SENT = 10_000, 5000  # missions a round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the images")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts to run: {', '.join(PARTS)}")
    parser.add_argument("--objects", type=int, default=1_000_000, help="objects of the large image")
    args = parser.parse_args()
    logs.configure("error", "json")
    os.makedirs(args.dir, exist_ok=True)
    line: dict[str, Any] = {"bench": "image"}
    with scratch(args.dir) as folder:
        line.update(floors(folder))
    for part in args.only.split(","):
        with scratch(args.dir) as folder:
            line.update(asyncio.run(globals()[f"measure_{part}"](folder, args)))
    print(json.dumps(line))


@contextlib.contextmanager
def scratch(parent: str) -> Any:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batos-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


async def measure_accept(folder: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    """Missions accepted a second at the image, with 1 and with 100 outstanding, under random ids, as clients choose them.

    With 100 in turns with the floor: plain ZODB, committing as many objects of the same text in groups of 100. The median of
    the rounds, the best, CPU time (this process's, microseconds a mission), and the median of the ratios of each round to its floor.
    """
    image = await LivingImage.open(f"file://{folder / 'live_image.fs'}")
    calm_collector()  # as the daemon does

    async def accepted(outstanding: int, count: int) -> float:
        todo = iter([str(uuid.uuid4()) for _ in range(count)])

        async def client() -> None:
            for id in todo:
                await image.system(ledger.accept, id, BRIEF, {}, False)

        begun = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(outstanding)))
        return count / (time.perf_counter() - begun)

    alone = [await accepted(1, 1000) for _ in range(3)]
    plain = Plain(folder)
    rates, floors, cpu = [], [], []
    for _ in range(ROUNDS):
        floors.append(plain.stored(ACCEPTED, 100))
        begun = time.process_time()
        rates.append(await accepted(100, ACCEPTED))
        cpu.append((time.process_time() - begun) / ACCEPTED * 1e6)
    plain.close()
    await image.close()
    return {
        "accepted_per_s_1": round(statistics.median(alone)),
        **spread("accepted_per_s_100", rates, floors),
        "floor_zodb_per_s_100": round(statistics.median(floors)),
        "accepted_cpu_us_100": round(statistics.median(cpu), 1),
    }


class Plain:
    """ZODB without anything around it."""

    def __init__(self, folder: pathlib.Path) -> None:
        import transaction
        import ZODB
        from BTrees.OOBTree import OOBTree

        self._db = ZODB.DB(str(folder / "plain.fs"))
        self._tm = transaction.TransactionManager(explicit=True)
        self._connection = self._db.open(transaction_manager=self._tm)
        self._tm.begin()
        self._connection.root()["all"] = OOBTree()
        self._tm.commit()
        self._count = 0

    def stored(self, count: int, group: int) -> float:
        """Objects stored a second, so many in one commit."""
        from persistent.mapping import PersistentMapping

        begun = time.perf_counter()
        for at in range(self._count, self._count + count, group):
            self._tm.begin()
            tree = self._connection.root()["all"]
            for i in range(at, at + group):
                tree[f"m{i:08}"] = PersistentMapping(brief=BRIEF)
            self._tm.commit()
        self._count += count
        return count / (time.perf_counter() - begun)

    def close(self) -> None:
        self._connection.close()
        self._db.close()


def spread(name: str, rates: list[float], floors: list[float]) -> dict[str, float]:
    """Median and best of the rounds, and the median of their ratios to the floors beside them."""
    ratios = [rate / floor for rate, floor in zip(rates, floors, strict=True)]
    return {
        name: round(statistics.median(rates)),
        f"{name}_best": round(max(rates)),
        f"{name}_to_floor": round(statistics.median(ratios), 2),
    }


async def measure_socket(folder: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    """Missions accepted a second through the socket, 100 outstanding; client and daemon in two processes.

    In turns with the floor: the same client, the same messages, and in the daemon's process a ROUTER that answers each at once.
    """
    accepting, echoing = (f"ipc://{folder / name}.sock" for name in ("bench", "echo"))
    # A mission that waits: the queue is paused by inferences that do not end, so that only acceptance is measured.
    flags = {
        "data": folder,
        "concurrent_missions": 1,
        "autotelic": "off",
        "listen": [accepting],
        "queue_limit": 1_000_000,
        "shutdown_s": 0.1,
    }
    kernel = await Kernel.start(load(flags, environ={}), inference=Stuck())
    calm_collector()  # as the daemon does
    with echo(echoing):
        program = (sys.executable, "-c", CLIENT, accepting, echoing, str(ROUNDS), str(SENT), BRIEF)
        process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
    await kernel.stop()
    rates, floors = json.loads(out)
    return {**spread("accepted_per_s_socket_100", rates, floors), "floor_echo_per_s_100": round(statistics.median(floors))}


CLIENT = """
import json, sys, time, zmq
accepting, echoing, rounds, count, brief = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
context = zmq.Context()

def connected(endpoint):
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)
    return socket

def rate(socket, name):
    sent = got = 0
    begun = time.perf_counter()
    while got < count:
        while sent < count and sent - got < 100:
            socket.send(json.dumps({"op": "submit", "id": f"s{name}-{sent}", "brief": brief}).encode())
            sent += 1
        reply = json.loads(socket.recv())
        assert reply["type"] == "accepted", reply
        got += 1
    return count / (time.perf_counter() - begun)

daemon, echo = connected(accepting), connected(echoing)
turns = [(rate(echo, n), rate(daemon, n)) for n in range(rounds)]
print(json.dumps([[d for _, d in turns], [e for e, _ in turns]]))
"""


@contextlib.contextmanager
def echo(endpoint: str) -> Iterator[None]:
    """A ROUTER on this loop that answers whatever comes with an acceptance, and does nothing else."""
    import zmq

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)
    reply = json.dumps({"type": "accepted", "id": "s0-1000", "state": "ACCEPTED"}).encode()

    def pump() -> None:
        while socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            routing_id, _ = socket.recv_multipart()
            socket.send_multipart((routing_id, reply))

    fd, loop = int(socket.getsockopt(zmq.FD)), asyncio.get_running_loop()
    loop.add_reader(fd, pump)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        context.destroy(linger=0)


class Stuck(Instant):
    """An inference that never ends."""

    async def chat(self, request: Any, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> Any:
        await asyncio.Event().wait()


class Noticing(Instant):
    """Notes when the first inference is asked for."""

    first: float | None = None

    async def chat(self, request: Any, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> Any:
        if self.first is None:
            self.first = time.perf_counter()
        return await super().chat(request, deadline_s=deadline_s, on_text=on_text)


async def measure_restart(folder: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    """From the start of the kernel to the first inference of a resumed mission: 100,000 objects, 50 pending.

    What a process does once is left out, as imports are: a kernel before this one ends a mission. `bench/kernel.py` has the imports.
    """
    await fill(folder, 100_000, pending=50)
    chosen = {"autotelic": "off", "concurrent_missions": 50}
    kernel = await Kernel.start(load({**chosen, "data": folder / "empty"}, environ={}), inference=Instant(), listen=False)
    await kernel.scheduler.submit("first", BRIEF, {})
    await kernel.scheduler.quiet()
    await kernel.stop()
    settings, noticing = load({**chosen, "data": folder}, environ={}), Noticing()
    begun = time.perf_counter()
    kernel = await Kernel.start(settings, inference=noticing, listen=False)
    await kernel.scheduler.quiet()
    await kernel.stop()
    assert noticing.first is not None
    assert kernel.scheduler.outcomes["COMPLETE"] == 50
    return {"restart_to_first_step_s": round(noticing.first - begun, 3)}


async def measure_million(folder: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    """Opening a large image with its index, and serving the first mission."""
    await fill(folder, args.objects)
    settings = load({"data": folder, "autotelic": "off"}, environ={})
    begun = time.perf_counter()
    kernel = await Kernel.start(settings, inference=Instant(), listen=False)
    opened = time.perf_counter() - begun
    await kernel.scheduler.submit("first", BRIEF, {})
    await kernel.scheduler.quiet()
    served = time.perf_counter() - begun
    await kernel.stop()
    size = (folder / "live_image.fs").stat().st_size
    return {"large_objects": args.objects, "large_open_s": round(opened, 3), "large_first_mission_s": round(served, 3), "large_bytes": size}


async def fill(folder: pathlib.Path, objects: int, pending: int = 0) -> None:
    """An image with so many objects besides its own, and missions that wait."""
    kernel = await Kernel.start(load({"data": folder, "autotelic": "off"}, environ={}), inference=Instant(), listen=False)
    image = kernel.image
    made = 0
    while made < objects:
        made += await image.system(_grow, made, min(10_000, objects - made))
    for i in range(pending):
        await image.system(ledger.accept, f"p{i}", BRIEF, {}, False)
    await kernel.stop()


def _grow(root: Any, begin: int, count: int) -> int:
    from BTrees.IOBTree import IOBTree

    lobby = root["lobby"]
    if "bench" not in lobby._slots:
        lobby.bench = IOBTree()
    for i in range(begin, begin + count):
        lobby.bench[i] = UvmObject(**{"parent*": lobby.genesis}, name=f"o{i}", n=i, text="x" * 24, seen=False)
    return count


def _grow_large(root: Any) -> None:
    root["lobby"].many = tuple(UvmObject(n=i) for i in range(20_000))


async def measure_stalls(folder: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    """How late a 1 ms ticker of the loop is (ms, p99): quiet, at 100 commits a second, while packing 200,000 objects, and
    while the self-audit walks them, among them one with 20,000 references."""
    await fill(folder, 200_000)
    image = await LivingImage.open(f"file://{folder / 'live_image.fs'}")
    figures: dict[str, float] = {}

    async def quiet() -> None:
        await asyncio.sleep(3)

    async def commits() -> None:
        for i in range(300):
            async with image.unit() as unit:
                for k in range(10):
                    unit.root["lobby"].bench[(i * 10 + k) % 1000].seen = i
            await asyncio.sleep(0.01)

    async def packing() -> None:
        path = folder / "live_image.fs"
        begun = time.perf_counter()
        work = asyncio.create_task(asyncio.to_thread(pack, image.db, path, time.time(), threading.Event()))
        while not work.done():
            async with image.unit() as unit:
                unit.root["lobby"].bench[7].seen = time.time()
            await asyncio.sleep(0.01)
        await work
        figures["pack_s"] = round(time.perf_counter() - begun, 1)

    async def walking() -> None:
        await image.system(_grow_large)
        walk = Walk(image.db)
        while not walk.rounds:
            await in_helper(walk.step, 500, 8 << 20)
        assert walk.damaged == {}

    for name, work in (("quiet", quiet), ("commits", commits), ("packing", packing), ("walking", walking)):
        late = await ticked(work)
        figures[f"stall_p99_ms_{name}"] = round(late[int(len(late) * 0.99)] * 1e3, 2)
        figures[f"stall_max_ms_{name}"] = round(late[-1] * 1e3, 2)
    await image.close()
    return figures


async def ticked(work: Callable[[], Awaitable[None]]) -> list[float]:
    late: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            late.append(max(0.0, time.perf_counter() - due))

    ticker = asyncio.create_task(tick())
    await work()
    ticker.cancel()
    return sorted(late)


if __name__ == "__main__":
    main()
