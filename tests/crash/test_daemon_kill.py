"""kill -9 at any moment: what was acknowledged completes by itself, once, and nothing that was paid for is asked again.

CRASH_N and CRASH_SEED in the environment say how often, and where chance begins: `make crash N=200`.
"""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from batos.image import history, journal, ledger
from batos.image.storage import open_database
from batos.testing import ScriptedOllama
from batos.testing.answers import default_answer
from tests.daemon import END_S, REPLY_S, Peer, daemon, provisioned

KILLS = int(os.environ.get("CRASH_N") or 10)
SEED = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(2**32))
BRIEFS = {
    "I feel stuck, and this is mission {id}": 5,  # ROBIN's: plan, three facets, answer
    "Look up mission {id}": 4,  # BABS's
    "How do I build mission {id}?": 5,  # BRICK's
}
SETTINGS = {"mission_attempts": 100, "concurrent_missions": 3, "inference_concurrency": 4}
"""Attempts are counted over crashes, so that a mission which kills the daemon is given up; here it is the test that kills."""


class Sender(threading.Thread):
    """A client that submits missions one after the other until told to stop, and notes which were acknowledged."""

    def __init__(self, endpoint: str, first: int, chance: random.Random) -> None:
        super().__init__()
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
                peer.send("submit", id=id, brief=self.asked[id])
                while True:
                    try:
                        reply = peer.reply()
                    except zmq.Again:
                        if self.over.is_set():
                            return
                        continue
                    break
                assert reply["type"] == "accepted", reply
                self.acknowledged.append(id)
                self.enough.set()


@contextmanager
def slow_ollama(chance: random.Random) -> Iterator[ScriptedOllama]:
    """Slow enough that a kill finds it at work, each time at another point."""

    def answer(request: dict[str, Any]) -> str:
        time.sleep(chance.uniform(0.0, 0.06))
        return default_answer(request)

    with ScriptedOllama() as server:
        server.say(answer)
        yield provisioned(server)


def key_of(request: dict[str, Any], server: ScriptedOllama) -> bytes:
    """The key under which the journal keeps the answer to a request."""
    system, user = (message["content"] for message in request["messages"])
    digest = server.models[request["model"]].digest
    return journal.key_of(
        {"digest": digest, "system": system, "user": user, "schema": request.get("format"), "options": request["options"]}
    )


def chats(server: ScriptedOllama) -> list[dict[str, Any]]:
    """The requests that came in whole: a kill cuts some off on their way."""
    return [chat for chat in server.chats if chat]


def on_disk(folder: Path, read: Callable[[Any], Any]) -> Any:
    """What a function of the root finds in the image of a daemon that is no more; the file is not touched."""
    db = open_database(f"file://{folder / 'live_image.fs'}", cache_size=1000, pool_size=7, read_only=True)
    try:
        with db.transaction() as connection:
            return read(connection.root())
    finally:
        db.close()


def journaled(root: Any) -> set[bytes]:
    return {entry.key for id in ledger.ledger_of(root).missions for entry in journal.load(root, id)}


def completions(root: Any) -> dict[str, int]:
    """How often each mission was completed, by the history of its record."""
    missions = ledger.ledger_of(root).missions
    notes = {id: history.revisions(root._p_jar.db(), mission._p_oid, 1000) for id, mission in missions.items()}
    return {id: sum(entry["note"].startswith("COMPLETE") for entry in found) for id, found in notes.items()}


@pytest.mark.timeout(90 + 10 * KILLS)
def test_what_was_acknowledged_completes_once_after_any_kill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" CRASH_SEED={SEED} CRASH_N={KILLS} ", end="", flush=True)
    chance = random.Random(SEED)
    asked: dict[str, str] = {}
    acknowledged: list[str] = []
    kills: list[tuple[int, set[bytes]]] = []  # how many requests had come, and what was in the journal
    with slow_ollama(random.Random(SEED)) as server:
        settings = {"ollama_host": server.host, **SETTINGS}
        for _ in range(KILLS):
            with daemon(tmp_path, **settings) as running:
                sender = Sender(running.endpoint, len(asked), chance)
                sender.start()
                try:
                    assert sender.enough.wait(REPLY_S)
                    time.sleep(chance.uniform(0.0, 0.4))  # not to wait for anything: to kill at a random point
                finally:
                    running.kill()
                    sender.over.set()
                    sender.join()
            asked |= sender.asked
            acknowledged += sender.acknowledged
            kills.append((len(chats(server)), on_disk(tmp_path, journaled)))
        with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
            found = {mission["id"] for mission in peer.ask("missions", limit=1000)["missions"]}
            assert set(acknowledged) <= found <= set(asked), SEED
            for id in found:
                assert peer.result(id)["state"] == "COMPLETE", (SEED, id)
            assert running.terminate() == 0
        requests = chats(server)
        keys = [key_of(chat, server) for chat in requests]
        for number, (before, paid) in enumerate(kills):
            again = [requests[i]["messages"][1]["content"] for i in range(before, len(keys)) if keys[i] in paid]
            assert again == [], f"seed {SEED}: asked again after kill {number}, though it was in the journal"
        needed = sum(BRIEFS[template] for id in found for template in BRIEFS if template.format(id=id) == asked[id])
        assert len(set(keys)) == needed, f"seed {SEED}: each inference of each mission was asked for, and none beside"
        assert on_disk(tmp_path, journaled) == set(keys)
        assert on_disk(tmp_path, completions) == dict.fromkeys(found, 1), SEED
        assert on_disk(tmp_path, lambda root: list(ledger.ledger_of(root).pending)) == []
    assert any(0 < len(paid) < needed for _, paid in kills), "the kills came in the middle"


def test_a_killed_daemon_leaves_no_ollama_behind(tmp_path: Path, ollama_binary: Path) -> None:
    """With the real binary: nobody answers at the given address, so the daemon starts its own."""
    with daemon(tmp_path, ollama_host="127.0.0.1:1") as running:
        child = next(entry for entry in running.log if entry.get("event") == "ollama started")
        descriptor = os.pidfd_open(child["pid"])
        try:
            running.kill()
            readable, _, _ = select.select([descriptor], [], [], END_S)
            assert readable, f"process {child['pid']} outlived its daemon"
        finally:
            os.close(descriptor)
    host, _, port = child["host"].partition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, int(port)))
    with daemon(tmp_path, ollama_host="127.0.0.1:1") as running, Peer(running.endpoint) as peer:
        assert peer.ask("info")["ollama"]["state"] == "running"
        child = next(entry for entry in running.log if entry.get("event") == "ollama started")
        assert running.terminate() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(child["pid"], 0)
