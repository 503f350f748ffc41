"""What the tests that kill a daemon share: a client under load, a slow service of models, and a look at what is on disk."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import zmq

from batos.image import LivingImage, history, journal, ledger
from batos.image.storage import open_database
from batos.testing import ScriptedOllama
from batos.testing.script import default_answer
from tests.support.daemon import END_S, REPLY_S, Peer, daemon, provisioned

BRIEFS = {
    "I feel stuck, and this is mission {id}": 5,  # ROBIN's: plan, three facets, answer
    "Look up mission {id}": 4,  # BABS's
    "How do I build mission {id}?": 5,  # BRICK's
}
SETTINGS = {"mission_attempts": 100, "concurrent_missions": 3, "inference_concurrency": 4}
"""Attempts are counted over crashes, so that a mission which kills the daemon is given up; here it is the test that kills."""


class Sender(threading.Thread):
    """A client that submits missions one after the other until told to stop, and notes which were acknowledged."""

    def __init__(self, endpoint: str, first: int, chance: random.Random, *, watch: bool = False) -> None:
        super().__init__()
        self._watch = watch
        self._endpoint, self._first, self._chance = endpoint, first, chance
        self.asked: dict[str, str] = {}  # all that was sent: it may be in the ledger or not
        self.acknowledged: list[str] = []
        self.enough = threading.Event()
        self.over = threading.Event()

    def run(self) -> None:
        with Peer(self._endpoint) as peer:
            peer.socket.setsockopt(zmq.RCVTIMEO, 50)
            for number in range(self._first, self._first + 6):
                id = f"m{number}"
                self.asked[id] = self._chance.choice(list(BRIEFS)).format(id=id)
                peer.send("submit", id=id, brief=self.asked[id], watch=self._watch)
                while True:
                    try:
                        reply = peer.reply()
                    except zmq.Again:
                        if self.over.is_set():
                            return
                        continue
                    if reply["type"] in ("accepted", "error"):
                        break
                if reply.get("code") == "image":  # it is ending, since its image failed: what it refuses was not accepted
                    return
                assert reply["type"] == "accepted", reply
                self.acknowledged.append(id)
                self.enough.set()
            if self._watch:
                self.over.wait(END_S)  # to hear of the ends


@contextmanager
def slow_ollama(chance: random.Random) -> Iterator[ScriptedOllama]:
    """Slow enough that a kill finds it at work, each time at another point."""

    def answer(request: dict[str, Any]) -> str:
        time.sleep(chance.uniform(0.0, 0.06))
        return default_answer(request)

    with ScriptedOllama() as server:
        server.say(answer)
        yield provisioned(server)


def keys_of(requests: list[dict[str, Any]], server: ScriptedOllama) -> list[bytes]:
    """The key under which the journal keeps the answer to each request. One that continues a partial text has the key of the first."""
    first: dict[tuple[str, str], bytes] = {}
    keys = []
    for request in requests:
        said = {message["role"]: message["content"] for message in request["messages"][:2]}
        system, user = said.get("system", ""), said["user"]
        digest = server.models[request["model"]].digest
        key = journal.key_of(journal.content_of(digest, system, user, request.get("format"), request["options"]))
        keys.append(first.setdefault((system, user), key))
    return keys


def chats(server: ScriptedOllama) -> list[dict[str, Any]]:
    """The requests that came in whole: a kill cuts some off on their way."""
    return [chat for chat in server.chats if chat]


def on_disk(folder: Path, read: Callable[[Any], Any], name: str = "live_image.fs") -> Any:
    """What a function of the root finds in the image of a daemon that is no more; the file is not touched."""
    db = open_database(f"file://{folder / name}", cache_size=1000, pool_size=7, read_only=True)
    try:
        with db.transaction() as connection:
            return read(connection.root())
    finally:
        db.close()


def journaled(root: Any) -> set[bytes]:
    return {entry.key for id in ledger.ledger_of(root).missions for entry in journal.load(root, id)}


def completions(root: Any, ids: Iterable[str] | None = None) -> dict[str, int]:
    """How often each of these missions, or of all, was completed, by the history of its record."""
    missions = ledger.ledger_of(root).missions
    notes = {id: history.revisions(root._p_jar.db(), missions[id]._p_oid, 1000) for id in (missions if ids is None else ids)}
    return {id: sum(entry["note"].startswith("COMPLETE") for entry in found) for id, found in notes.items()}


def provision(folder: Path, server: ScriptedOllama) -> None:
    """A first start, to its report: the models are as the Modelfiles say, and their digests, which are in the keys, stay."""
    with daemon(folder, ollama_host=server.host) as running:
        deadline = time.monotonic() + REPLY_S
        while "BAT OS" not in running.report:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert running.terminate() == 0


class ScriptedFleet(ScriptedOllama):
    """Plans are answered at once, the facets' inferences stay in flight until `let_go`."""

    def __enter__(self) -> ScriptedFleet:
        super().__enter__()
        provisioned(self)
        self._go, self._flying = threading.Event(), threading.Semaphore(0)
        self.say(self._answer)
        return self

    def _answer(self, request: dict[str, Any]) -> str:
        if not request.get("format"):
            self._flying.release()
            self._go.wait(REPLY_S)
        return default_answer(request)

    def wait_in_flight(self, count: int) -> None:
        for _ in range(count):
            assert self._flying.acquire(timeout=REPLY_S)

    def let_go(self) -> None:
        self._go.set()


T = TypeVar("T")
KILLS = int(os.environ.get("CRASH_N") or 10)
SEED = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(2**32))


def sampled(cases: Iterable[T], group: Callable[[T], object], first: int = 0) -> list[T]:
    """Return all cases in `make crash`; elsewhere one of each group.

    :param first: which case of the first group; of the next group it is the next one, and so on around.
    """
    groups: dict[object, list[T]] = {}
    for case in cases:
        groups.setdefault(group(case), []).append(case)
    if os.environ.get("CRASH_ALL"):
        return list(itertools.chain(*groups.values()))
    return [among[n % len(among)] for n, among in enumerate(groups.values(), first)]


def thinned(cases: Iterable[T], of: int = 2) -> list[T]:
    """Return all cases in `make crash`; elsewhere the first and each `of`-th after it: of steps in a row, one among neighbours."""
    every = list(cases)
    return every if os.environ.get("CRASH_ALL") else every[::of]


def prepare(folder: Path, what: Callable[[LivingImage], Any]) -> None:
    """Do something to the image of a daemon that is not at work."""

    async def work() -> None:
        image = await LivingImage.open(f"file://{folder / 'live_image.fs'}")
        try:
            await what(image)
        finally:
            await image.close()

    asyncio.run(work())
