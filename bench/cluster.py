"""Several kernels on one image, killed and stopped at random: what is lost, doubled or paid for twice, and how soon others go on.

    python bench/cluster.py --engine postgres --missions 200
    python bench/cluster.py --engine zeo --missions 200 --seed 7 --json
    python bench/cluster.py --kernels 2 --faults none --pace 0 --think 0.5 1 --missions 60    # how fast, beside --kernels 1
    python bench/cluster.py --faults all --writes 0.3    # the server goes away, too, and a third of the missions write one persona
    python bench/cluster.py --acts 0.6                   # more than half of the missions order at a shop

Real daemons (`batos run`), each with a scripted Ollama of its own, on a PostgreSQL or a ZEO that the bench starts. Clients submit to any of
them. Meanwhile kernels are killed (SIGKILL, and started again) or stopped for 0.5, 1.5 or 3 leases (SIGSTOP), one at a time; with
`--faults all` the server is stopped, too, in order or as in a crash, and started at once, after 2 or after 10 seconds. Then the
image is read: each acknowledged mission must be COMPLETE, once by its history, and once in memory, its journal must have each inference
once, and no model may have been asked for what was in the journal already, but by a kernel that was stopped between the look at the owner
and the sending. A mission that writes adds its name to a slot of ROBIN's: each must be there once. A mission that acts orders at a shop,
which counts what it sells: half of them by a key (class `keyed`), half without one (class `acts`). Nothing may be sold twice, and a mission
may not be COMPLETE without its sale. Without a key nobody can know whether an interrupted act happened: its mission then asks its user, and
counts as a doubt. In the end the bench answers as the shop knows it, and these missions go on, too. `taken_*_s`: from the kill of a kernel
until another has taken up the first, and the last, of its missions. `taken_stopped_*_s`: the same from a stop (a stop that is shorter than
the lease leads to no takeover). The exit code is 1 where a promise is broken. The last line is JSON.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import itertools
import json
import pathlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import zmq

from batos.image import effects, journal, kernels, ledger
from batos.image.storage import open_database
from batos.memory.records import MISSION
from batos.memory.store import library_of
from batos.objects import Method
from batos.testing import ScriptedOllama
from batos.testing.script import default_answer
from tests.support import kernel_child
from tests.support.counting_shop import CountingShop
from tests.support.crash import BRIEFS, completions, keys_of
from tests.support.daemon import Daemon, Peer, done, provisioned, until
from tests.support.http_world import serving
from tests.support.servers import Postgres, Zeo, postgres_server, zeo_server

CLIENTS = 4
REPLY_MS = 2500
END_S = 180.0
TALLY = "tally_"
KEYED, PLAIN = "keyed", "plain"
"""Connections to the shop, and its paths."""
CALL_S = 5.0
"""Seconds that a call of the shop may take."""
LATE_S = 0.3
"""Seconds by which a request may have left after its answer was journaled by another kernel, and still have crossed it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("postgres", "zeo"), default="postgres")
    parser.add_argument("--kernels", type=int, default=3)
    parser.add_argument("--missions", type=int, default=200)
    parser.add_argument("--lease", type=float, default=2.0, help="seconds (image.lease_s)")
    parser.add_argument("--faults", choices=("all", "both", "kills", "stops", "none"), default="both")
    parser.add_argument("--writes", type=float, default=0.0, help="share of the missions that all write one persona")
    parser.add_argument("--acts", type=float, default=0.0, help="share of the missions that order at a shop")
    parser.add_argument("--shop", type=float, nargs=2, default=(0.2, 2.0), help="least and most seconds of an order")
    parser.add_argument("--pause", type=float, nargs=2, default=(1.5, 4.0), help="least and most seconds between two faults")
    parser.add_argument("--pace", type=float, default=2.5, help="most seconds that a client rests between two missions")
    parser.add_argument("--think", type=float, nargs=2, default=(0.05, 0.3), help="least and most seconds of an inference")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--json", action="store_true", help="only the last line")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batos-cluster-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, True)
        server: Postgres | Zeo = stack.enter_context(postgres_server() if args.engine == "postgres" else zeo_server())
        found = stack.enter_context(Run(folder, server, args)).measured()
    if not args.json:
        for name, value in found.items():
            print(f"{name:>24}  {value}")
    print(json.dumps(found))
    sys.exit(1 if found["broken"] else 0)


class Run:
    """One run: the kernels, their Ollamas, the clients and the faults."""

    def __init__(self, folder: pathlib.Path, server: Postgres | Zeo, args: argparse.Namespace) -> None:
        self._folder, self._server, self._uri, self._args = folder, server, server.image(), args
        self._chance = random.Random(args.seed)
        self._asked: list[tuple[float, int, dict[str, Any]]] = []
        self._acknowledged: dict[str, float] = {}
        self._refused: collections.Counter[str] = collections.Counter()
        self._waits: list[float] = []
        self._logs: list[tuple[int, list[dict[str, Any]]]] = []
        self._kernels: dict[int, Daemon] = {}
        self._faults: list[tuple[float, float, int, str, str]] = []  # from, until, kernel, what, its name then
        self._ollamas: list[ScriptedOllama] = []
        self._lock = threading.Lock()
        self._shop = CountingShop(random.Random(args.seed), tuple(args.shop))
        self._serving = contextlib.ExitStack()
        acting = random.Random(args.seed).sample(range(args.missions), round(args.missions * args.acts))
        self._acting = {f"m{n}": (KEYED, PLAIN)[k % 2] for k, n in enumerate(acting)}

    def __enter__(self) -> Run:
        self._serving.enter_context(serving(self._shop.server))
        for k in range(self._args.kernels):
            ollama = ScriptedOllama()
            ollama.__enter__()
            self._ollamas.append(ollama)
            ollama.say(lambda request, k=k: self._answer(k, request))
            provisioned(ollama)
        return self

    def __exit__(self, *_: object) -> None:
        for kernel in self._kernels.values():
            if kernel.process.poll() is None:
                kernel.process.send_signal(signal.SIGCONT)
                kernel.kill()
        for ollama in self._ollamas:
            ollama.__exit__(None, None, None)
        self._serving.close()

    def _answer(self, k: int, request: dict[str, Any]) -> str:
        with self._lock:
            self._asked.append((time.time(), k, request))
            pause = self._chance.uniform(*self._args.think)
        time.sleep(pause)
        return default_answer(request)

    def _start(self, k: int) -> None:
        kernel = Daemon(
            self._folder / f"k{k}",
            program=(kernel_child.__file__,),  # nothing is armed: it keeps to its scripted Ollama, however late that answers
            image=self._uri,
            ollama_host=self._ollamas[k].host,
            concurrent_missions=4,
            inference_concurrency=4,
            mission_attempts=100,
            remember="on",
            remember_pause_s=0.3,
            partial_tokens=100_000,
            **{"image.kernels": "many", "image.kernel_name": f"k{k}", "image.lease_s": self._args.lease, "image.look_s": 0.15},
        )
        self._logs.append((k, kernel.log))
        self._kernels[k] = kernel.started()

    def _connect(self) -> None:
        """Connect all kernels to the shop, with and without its keys."""
        place, first = f"http://127.0.0.1:{self._shop.server.server_port}", self._kernels[0]
        for name, more in ((KEYED, ("--key-header", "Idempotency-Key")), (PLAIN, ())):
            done(first, "tools", "add", name, "--http", place, *more, "--seconds", str(CALL_S), "--on", "*")
            done(first, "allow", f"{name}.post")
        for kernel in self._kernels.values():
            with Peer(kernel.endpoint) as peer:
                until(lambda peer=peer: {KEYED, PLAIN} <= {one["name"] for one in peer.ask("tools")["connections"]}, "the shop")

    def measured(self) -> dict[str, Any]:
        """Return the figures of the run."""
        for k in range(self._args.kernels):
            self._start(k)
        with self._image() as write:
            write(_prepare)
        if self._acting:
            self._connect()
        began = time.time()
        over = threading.Event()
        clients = [threading.Thread(target=self._client, args=(c, over)) for c in range(CLIENTS)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients) and time.time() - began < END_S + self._args.missions:
            self._fault()
        over.set()
        for client in clients:
            client.join(30)
        sent_s = time.time() - began
        with self._image() as root_of:
            end = time.time() + END_S
            while root_of(self._unfinished) and time.time() < end:
                time.sleep(0.3)
            took_s = time.time() - began
            doubts = root_of(self._doubts)
            self._answer_doubts(doubts)
            while (left := root_of(self._unfinished)) and time.time() < end:
                time.sleep(0.3)
            while len(root_of(_remembered)) < len(self._acknowledged) - len(left) and time.time() < end:
                time.sleep(0.3)
            time.sleep(2 * self._args.lease)  # what a kernel does that was stopped comes by then
            for kernel in self._kernels.values():
                kernel.terminate()
            return {**self._figures(root_of, left, sent_s, took_s), "doubts": len(doubts)}

    def _client(self, c: int, over: threading.Event) -> None:
        chance, mine = random.Random(self._args.seed * 100 + c), [f"m{n}" for n in range(c, self._args.missions, CLIENTS)]
        briefs, writing = list(BRIEFS), [f"m{n}" for n in range(round(self._args.missions * self._args.writes))]
        while mine and not over.is_set():
            k = chance.randrange(self._args.kernels)
            try:
                with Peer(self._kernels[k].endpoint) as peer:
                    peer.socket.setsockopt(zmq.RCVTIMEO, REPLY_MS)
                    while mine and not over.is_set():
                        began = time.monotonic()
                        if path := self._acting.get(mine[0]):
                            order = {"path": f"/{path}", "body": {"for": mine[0]}}
                            reply = peer.ask("send", id=mine[0], target=f"tools.{path}", selector="post_", args=[order])
                        elif mine[0] in writing:
                            reply = peer.ask("send", id=mine[0], target="robin", selector=TALLY, args=[mine[0]])
                        else:
                            reply = peer.ask("submit", id=mine[0], brief=briefs[int(mine[0][1:]) % 3].format(id=mine[0]))
                        if reply["type"] != "accepted":
                            self._refused[str(reply.get("code"))] += 1
                            break
                        self._waits.append(time.monotonic() - began)
                        self._acknowledged[mine.pop(0)] = time.time()
                        time.sleep(chance.uniform(0, self._args.pace))
                        if chance.random() < 0.2:
                            break
            except (zmq.Again, zmq.ZMQError, OSError):
                time.sleep(0.05)

    def _fault(self) -> None:
        args, chance = self._args, self._chance
        if args.faults == "none":
            time.sleep(0.5)
            return
        time.sleep(chance.uniform(*args.pause))
        if args.faults == "all" and chance.random() < 0.25:
            at = time.time()
            self._server.stop(chance.choice(("fast", "immediate")))
            time.sleep(chance.choice((0, 2, 10)))
            self._server.start()
            self._faults.append((at, time.time(), -1, "server", ""))
            return
        k = chance.randrange(args.kernels)
        kernel, name = self._kernels[k], self._name(k)
        at = time.time()
        if args.faults == "kills" or (args.faults in ("all", "both") and chance.random() < 0.5):
            kernel.kill()
            time.sleep(chance.uniform(0.2, 3))
            self._start(k)
            self._faults.append((at, time.time(), k, "kill", name))
        else:
            kernel.process.send_signal(signal.SIGSTOP)
            time.sleep(args.lease * chance.choice((0.5, 1.5, 3)))
            kernel.process.send_signal(signal.SIGCONT)
            self._faults.append((at, time.time(), k, "stop", name))

    def _name(self, k: int) -> str:
        """Return the name under which a kernel registered last, by its log."""
        names = [line["kernel"] for line in self._kernels[k].log if line.get("event") == "kernel_registered"]
        return names[-1] if names else ""

    @contextlib.contextmanager
    def _image(self) -> Iterator[Any]:
        db = open_database(self._uri, cache_size=20_000, pool_size=7)

        def read(function: Any) -> Any:
            with db.transaction() as connection:
                return function(connection.root())

        try:
            yield read
        finally:
            db.close()

    def _unfinished(self, root: Any) -> list[str]:
        missions = ledger.ledger_of(root).missions
        doubts = self._doubts(root)
        left = [id for id in self._acknowledged if id not in missions or missions[id].state not in ledger.FINAL]
        return [id for id in left if id not in doubts]

    def _doubts(self, root: Any) -> set[str]:
        """Return the missions that ask whether their act happened."""
        missions = ledger.ledger_of(root).missions
        asking = [id for id in self._acknowledged if id in missions and ledger.describe(missions[id]).open_question]
        return {id for id in asking if any(one.state not in effects.ENDED for one in effects.load(root, id))}

    def _answer_doubts(self, ids: set[str]) -> None:
        """Answer, at any kernel, what the shop knows."""
        for id, kernel in zip(ids, itertools.cycle(self._kernels.values()), strict=False):
            with Peer(kernel.endpoint) as peer:
                reply = peer.ask("answer", id=id, text=effects.HAPPENED if self._shop.sold[id] else effects.AGAIN)
                if reply["type"] == "error":
                    raise SystemExit(f"{id} is not answered: {reply}")

    def _facts(self, root: Any, id: str) -> str:
        """Return what the image and the logs of the kernels say of a mission."""
        mission = ledger.ledger_of(root).missions.get(id)
        if mission is None:
            return "it is not in the image"
        record = ledger.describe(mission)
        acts = [(one.tool, one.state, one.attempts, one.why) for one in effects.load(root, id)]
        lines = sorted(
            (line for _, log in self._logs for line in log if line.get("mission") == id), key=lambda line: str(line.get("timestamp"))
        )
        told = [f"{str(line.get('timestamp'))[14:22]} {line.get('event')}" for line in lines[-12:]]
        return f"{record.state} at {record.kernel!r}, attempt {record.attempts}, {record.open_question}, {acts}, {told}"

    def _figures(self, root_of: Any, left: list[str], sent_s: float, took_s: float) -> dict[str, Any]:
        missions = {id: root_of(lambda root, id=id: ledger.record_of(root, id)) for id in self._acknowledged if id not in left}
        sold = self._shop.sold
        states = collections.Counter(one.state for one in missions.values())
        often = {id: n for id, n in root_of(completions).items() if n > 1}
        entries = root_of(lambda root: [(one.key, one.occurrence, one.at, id) for id in missions for one in journal.load(root, id)])
        twice = [f"{id} {key.hex()[:8]}" for (id, key, _), n in _counted(entries).items() if n > 1]
        again, crossed = self._asked_again({key: at for key, _, at, _ in entries})
        (first, last), (stopped_first, stopped_last) = self._taken("kill"), self._taken("stop")
        asked, remembered = len(self._asked), root_of(_remembered)
        broken = [
            *(f"{id} is lost or unfinished: {root_of(lambda root, id=id: self._facts(root, id))}" for id in left),
            *(f"{id} is {one.state}" for id, one in missions.items() if one.state != ledger.COMPLETE),
            *(f"{id} was completed {n} times" for id, n in often.items()),
            *(f"{entry} is in the journal more than once" for entry in twice),
            *(f"{id} is {remembered[id]} times in memory" for id in missions if remembered[id] != 1),
            *(f"{id} wrote {n} times" for id, n in self._written(root_of, missions).items() if n != 1),
            *(f"{id} bought {n} times" for id, n in sold.items() if n > 1),
            *(f"{id} is COMPLETE, and bought nothing" for id in self._unsold(missions)),
            *(f"{key} was asked for {late:.2f} s after it was journaled" for key, late in again),
        ]
        return {
            "engine": self._args.engine,
            "kernels": self._args.kernels,
            "lease_s": self._args.lease,
            "seed": self._args.seed,
            "faults": dict(collections.Counter(what for *_, what, _ in self._faults)),
            "acknowledged": len(self._acknowledged),
            "refused": dict(self._refused),
            "states": dict(states),
            "acts": sum(id in self._acknowledged for id in self._acting),
            "acts_asked": sum(self._shop.asked.values()),
            "acts_done": len(sold),
            "acts_twice": sum(n > 1 for n in sold.values()),
            "acts_lost": len(self._unsold(missions)),
            "asked": asked,
            "distinct": len({key for key, *_ in entries}),
            "asked_though_journaled": len(again),
            "crossed_by_a_stop": crossed,
            "accept_s": _spread(self._waits),
            "sent_s": round(sent_s, 1),
            "took_s": round(took_s, 1),
            "missions_per_s": round(len(missions) / took_s, 2),
            "taken_first_s": _spread(first),
            "taken_last_s": _spread(last),
            "taken_stopped_first_s": _spread(stopped_first),
            "taken_stopped_last_s": _spread(stopped_last),
            "registered": root_of(lambda root: root[kernels.KERNELS].epoch),
            "terms": root_of(lambda root: kernels.lead_of(root)[1]),
            "pending_left": root_of(lambda root: len(root["ledger"].pending)),
            "events": self._events(),
            "broken": broken,
        }

    def _written(self, root_of: Any, missions: dict[str, Any]) -> dict[str, int]:
        """Return how often each mission that writes is in the persona's slot."""
        written = collections.Counter(root_of(lambda root: root["lobby"].robin.tallied))
        writers = (id for id, one in missions.items() if one.message and id not in self._acting)
        return {id: written[id] for id in {*writers, *written}}

    def _unsold(self, missions: dict[str, Any]) -> list[str]:
        """Return the missions that are COMPLETE, and whose order was not sold."""
        return [id for id, one in missions.items() if id in self._acting and one.state == ledger.COMPLETE and not self._shop.sold[id]]

    def _asked_again(self, at: dict[bytes, float]) -> tuple[list[tuple[str, float]], int]:
        """Return what was asked for after it was journaled, and the number of those that a stopped kernel had looked at before."""
        found, crossed = [], 0
        for k, ollama in enumerate(self._ollamas):
            mine = [(t, request) for t, of, request in self._asked if of == k]
            for (t, _), key in zip(mine, keys_of([request for _, request in mine], ollama), strict=True):
                if key in at and t - at[key] > LATE_S:
                    if any(of == k and what == "stop" and until - 0.1 <= t <= until + 2 for _, until, of, what, _ in self._faults):
                        crossed += 1
                    else:
                        found.append((key.hex()[:8], t - at[key]))
        return found, crossed

    def _taken(self, fault: str) -> tuple[list[float], list[float]]:
        """Return for each fault of a kind how soon another took up the first, and the last, of the missions of the kernel that it struck.

        A kernel that stood still for less than the lease has its name still at its next fault: what follows that belongs to that one.
        """
        first, last = [], []
        taken = [line for _, log in self._logs for line in log if line.get("event") == "mission_taken_up"]
        for at, _, k, what, name in self._faults:
            over = min((then for then, _, of, _, _ in self._faults if of == k and then > at), default=float("inf"))
            times = [_time(line) - at for line in taken if line.get("was") == name and at < _time(line) < over]
            if what == fault and times:
                first.append(min(times))
                last.append(max(times))
        return first, last

    def _events(self) -> dict[str, int]:
        told = ("mission_taken_up", "mission_overtaken", "kernel_gone", "kernel_stood_down", "conflict", "look_failed", "lead_taken")
        lines = [line for _, log in self._logs for line in log]
        counted = collections.Counter(str(line.get("event")) for line in lines)
        bad = collections.Counter(f"{line.get('event')}!" for line in lines if line.get("level") in ("error", "critical"))
        return {**{name: counted[name] for name in told if counted[name]}, **bad}


def _prepare(root: Any) -> None:
    """Give ROBIN a slot, and a method that adds a name to it."""
    robin = root["lobby"].robin
    robin.tallied = ()
    robin._slots[TALLY] = Method(TALLY, f"def {TALLY}(self, id):\n    self.tallied = self.tallied + (id,)\n    return id\n")


def _remembered(root: Any) -> collections.Counter[str]:
    """Return how often each mission is in memory."""
    found = library_of(root).documents.values()
    return collections.Counter(str(document.mission) for document in found if document.kind == MISSION)


def _counted(entries: list[tuple[bytes, int, float, str]]) -> collections.Counter[tuple[str, bytes, int]]:
    return collections.Counter((id, key, occurrence) for key, occurrence, _, id in entries)


def _time(line: dict[str, Any]) -> float:
    return datetime.datetime.fromisoformat(line["timestamp"].replace("Z", "+00:00")).timestamp()


def _spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "most": round(ordered[-1], 3),
        "of": len(ordered),
    }


if __name__ == "__main__":
    main()
