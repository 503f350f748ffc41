"""kill -9 at any moment: what was acknowledged completes by itself, once, and nothing that was paid for is asked again.

CRASH_N and CRASH_SEED in the environment say how often, and where chance begins: `make crash N=200`.
"""

from __future__ import annotations

import os
import random
import select
import socket
import time
from pathlib import Path

import pytest

from batos.image import ledger
from batos.testing import ScriptedOllama
from tests.support.crash import (
    BRIEFS,
    KILLS,
    SEED,
    SETTINGS,
    Sender,
    chats,
    completions,
    journaled,
    keys_of,
    on_disk,
    provision,
    slow_ollama,
)
from tests.support.daemon import END_S, REPLY_S, Peer, daemon


@pytest.mark.timeout(240 + 10 * KILLS)
def test_what_was_acknowledged_completes_once_after_any_kill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" CRASH_SEED={SEED} CRASH_N={KILLS} ", end="", flush=True)
    chance = random.Random(SEED)
    asked: dict[str, str] = {}
    acknowledged: list[str] = []
    kills: list[tuple[int, set[bytes]]] = []  # how many requests had come, and what was in the journal
    with slow_ollama(random.Random(SEED)) as server:
        settings = {"ollama_host": server.host, **SETTINGS}
        provision(tmp_path, server)
        for _ in range(KILLS):
            with daemon(tmp_path, **settings) as running:
                sender = Sender(running.endpoint, len(asked), chance)
                sender.start()
                try:
                    assert sender.enough.wait(REPLY_S)
                    _until(server, len(chats(server)) + chance.randrange(0, 8))
                    time.sleep(chance.uniform(0.0, 0.1))  # not to wait for anything: to kill at a random point
                finally:
                    running.kill()
                    sender.over.set()
                    sender.join()
            asked |= sender.asked
            acknowledged += sender.acknowledged
            kills.append((len(chats(server)), on_disk(tmp_path, journaled)))
        found = on_disk(tmp_path, lambda root: set(ledger.ledger_of(root).missions))  # a list over the wire has at most 1,000
        assert set(acknowledged) <= found <= set(asked), SEED
        with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
            for id in found:
                assert peer.result(id)["state"] == "COMPLETE", (SEED, id)
            assert running.terminate() == 0
        requests = chats(server)
        keys = keys_of(requests, server)
        for number, (before, paid) in enumerate(kills):
            again = [requests[i]["messages"][1]["content"] for i in range(before, len(keys)) if keys[i] in paid]
            assert again == [], f"seed {SEED}: asked again after kill {number}, though it was in the journal"
        needed = sum(BRIEFS[template] for id in found for template in BRIEFS if template.format(id=id) == asked[id])
        assert len(set(keys)) == needed, f"seed {SEED}: each inference of each mission was asked for, and none beside"
        assert on_disk(tmp_path, journaled) == set(keys)
        assert on_disk(tmp_path, completions) == dict.fromkeys(found, 1), SEED
        assert on_disk(tmp_path, lambda root: list(ledger.ledger_of(root).pending)) == []
    assert any(0 < len(paid) < needed for _, paid in kills), "the kills came in the middle"


def _until(server: ScriptedOllama, count: int) -> None:
    """Wait until so many chats have come: so that the kills come at all stages, however slow the machine is."""
    deadline = time.monotonic() + REPLY_S
    while len(chats(server)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


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
