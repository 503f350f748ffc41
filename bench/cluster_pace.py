"""Missions a second of several kernels, each with an Ollama of its own, against one; and of one kernel on a server against a file.

Real daemons on one machine; the scripted Ollamas take some seconds for an inference, and two at a time, as an Ollama on a small machine
does. The load is submitted at once, in turns to all kernels. Prints one JSON line a run, and the ratios at the end.

    python bench/cluster_pace.py --missions 60 --seconds 1
    python bench/cluster_pace.py --real build/ollama/bin/ollama --missions 20    (real Ollamas, which share this machine's cores)
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from batos.testing import ScriptedOllama
from batos.wire import Client
from tests.support.daemon import Daemon, provisioned
from tests.support.servers import NOBODY, Postgres

BRIEF = "In which year was the treaty of {} signed?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missions", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1.0, help="of an inference of a scripted Ollama")
    parser.add_argument("--rounds", type=int, default=3, help="each kind is measured so often, in turns")
    parser.add_argument("--kernels", type=int, default=2)
    parser.add_argument("--real", metavar="OLLAMA", help="program of a real Ollama with the models of the profile `embedded`")
    args = parser.parse_args()
    kinds = {"file": ("file", 1), "postgres": ("postgres", 1), f"postgres x{args.kernels}": ("postgres", args.kernels)}
    best: dict[str, list[float]] = {kind: [] for kind in kinds}
    with database() as server:
        for _ in range(args.rounds):
            for kind, (engine, count) in kinds.items():
                found = run(args, None if engine == "file" else server, count)
                best[kind].append(found["missions_per_s"])
                print(json.dumps({"kind": kind, **found}), flush=True)
    median = {kind: sorted(rates)[len(rates) // 2] for kind, rates in best.items()}
    several = f"postgres x{args.kernels}"
    told = {
        "several_by_one": median[several] / median["postgres"],
        "postgres_slower_percent": 100 * (1 - median["postgres"] / median["file"]),
    }
    print(json.dumps({"median": median, **{name: round(value, 2) for name, value in told.items()}}))


@contextlib.contextmanager
def database() -> Iterator[Postgres]:
    """A PostgreSQL of its own."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    programs = places[-1].parent if places else Path(shutil.which("initdb") or "").parent
    folder = Path(tempfile.mkdtemp(prefix="batos-pace-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    server = Postgres(programs, folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def run(args: argparse.Namespace, server: Postgres | None, count: int) -> dict[str, Any]:
    """Measure one load."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="batos-bench-"))
        stack.callback(shutil.rmtree, folder)
        uri = None if server is None else server.image()
        daemons = []
        for at in range(count):
            host = stack.enter_context(scripted(args.seconds) if args.real is None else real(args.real, folder / f"ollama{at}"))
            own: dict[str, Any] = {"ollama_host": host, "missions.concurrent": 4, "image.lease_s": 5}
            if uri is not None:
                own |= {"image.uri": uri, "image.kernels": "many" if count > 1 else "one", "image.kernel_name": f"k{at}"}
            daemons.append(Daemon(folder / f"k{at}", **own))
            stack.callback(daemons[-1].kill)
        for daemon in daemons:
            daemon.started()
        return asyncio.run(load([daemon.endpoint for daemon in daemons], args.missions, fit=(count > 1 and daemons) or []))


@contextlib.contextmanager
def scripted(seconds: float) -> Iterator[str]:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say("It was signed in 1648.")
        server.fail("slow", times=None, seconds=seconds)
        yield server.host


@contextlib.contextmanager
def real(program: str, folder: Path) -> Iterator[str]:
    """A real Ollama on a port of its own, with the models of the tests' Ollama."""
    import socket

    from tests.support.ollama_fixture import FOLDER

    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "OLLAMA_HOST": host, "OLLAMA_MODELS": str(FOLDER / "models"), "OLLAMA_NOPRUNE": "1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve"], env=environment, stdout=log, stderr=log)
    try:
        yield host
    finally:
        process.terminate()
        process.wait()


async def load(endpoints: list[str], missions: int, fit: list[Daemon]) -> dict[str, Any]:
    """Submit missions, in turns to all kernels, and wait for all."""
    for daemon in fit:
        await asyncio.to_thread(daemon.logged, "kernel_fit")
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(endpoint)) for endpoint in endpoints]
        for one in clients:  # the models are loaded
            await one.result((await one.submit("Say hello.", depth="direct")).id)
        begun = time.monotonic()
        sent = [(at, await clients[at % len(clients)].submit(BRIEF.format(at), depth="direct")) for at in range(missions)]
        results = await asyncio.gather(*(clients[at % len(clients)].result(one.id) for at, one in sent))
        took = time.monotonic() - begun
    paid = sum(result["usage"]["inferences"] for result in results)
    return {"missions": missions, "seconds": round(took, 2), "missions_per_s": round(missions / took, 3), "inferences": paid}


if __name__ == "__main__":
    main()
