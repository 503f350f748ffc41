"""kill -9 of a daemon under load at named points of a mission's way, each twice; and a sync that fails.

What is held against the promise each time: all that was acknowledged is there, nothing is done twice or in part, and only
what had been answered and not yet journaled is asked for again.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from batos.errors import EXIT_IMAGE_FAILED
from batos.image import ledger
from batos.testing import ScriptedOllama
from tests.support import daemon_child
from tests.support.crash import (
    BRIEFS,
    SETTINGS,
    ScriptedFleet,
    Sender,
    chats,
    completions,
    journaled,
    keys_of,
    on_disk,
    provision,
    slow_ollama,
)
from tests.support.daemon import END_S, Daemon, Peer, daemon

PASSES = {
    "before accept": (2, 5),
    "before commit": (1, 3),
    "after vote": (8, 17),
    "after commit, before sync": (7, 18),
    "after sync": (5, 16),
    "before accepted is told": (1, 4),
    "before result is told": (1, 2),
    "after the answer": (3, 8),
    "before the answer is journaled": (2, 7),
    "before it is settled": (1, 2),
}
"""At which pass it dies, counted once it has started."""


def dying(folder: Path, point: str, number: int, server: ScriptedOllama) -> Daemon:
    program = (daemon_child.__file__, point, f"+{number}")
    return Daemon(folder, program=program, ollama_host=server.host, **{**SETTINGS, "log_level": "info"})


def life(folder: Path, point: str, number: int, server: ScriptedOllama, first: int) -> tuple[Sender, int]:
    """One daemon, sent missions until it dies; the client that sent them, and the exit code."""
    process = dying(folder, point, number, server)
    try:
        sender = Sender(process.started().endpoint, first, random.Random(first), watch="result" in point)
        sender.start()
        try:
            code = process.ended(END_S)
        finally:
            sender.over.set()
            sender.join()
    finally:
        if process.process.poll() is None:
            process.kill()
    return sender, code


@pytest.mark.long
def test_killed_at_each_named_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, str] = {}
    acknowledged: list[str] = []
    kills: list[tuple[str, int, set[bytes]]] = []
    assert set(PASSES) == set(daemon_child.POINTS) - {"fsync fails"}
    with slow_ollama(random.Random(1)) as server:
        provision(tmp_path, server)
        for point, passes in PASSES.items():
            for number in passes:
                sender, code = life(tmp_path, point, number, server, len(asked))
                assert code == -9, (point, number, code)
                asked |= sender.asked
                acknowledged += sender.acknowledged
                kills.append((f"{point} {number}", len(chats(server)), on_disk(tmp_path, journaled)))
                found = on_disk(tmp_path, lambda root: set(ledger.ledger_of(root).missions))
                assert set(acknowledged) <= found <= set(asked), (point, number)
        with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
            for id in found:
                assert peer.result(id)["state"] == "COMPLETE", id
            assert running.terminate() == 0
        requests = chats(server)
        keys = keys_of(requests, server)
        for point, before, paid in kills:
            again = [requests[i]["messages"][1]["content"] for i in range(before, len(keys)) if keys[i] in paid]
            assert again == [], f"asked again after the kill {point}, though it was in the journal"
        needed = sum(BRIEFS[template] for id in found for template in BRIEFS if template.format(id=id) == asked[id])
        assert len(set(keys)) == needed, "each inference of each mission was asked for, and none beside"
        assert on_disk(tmp_path, journaled) == set(keys)
        assert on_disk(tmp_path, completions) == dict.fromkeys(found, 1)
        assert on_disk(tmp_path, lambda root: list(ledger.ledger_of(root).pending)) == []
    twice = len(keys) - len(set(keys))
    assert 2 * 2 <= twice <= len(kills) * SETTINGS["inference_concurrency"], "twice is asked only what a kill met under way"
    with capsys.disabled():
        print(f" {len(kills)} kills, {len(found)} missions, {len(keys)} inferences, {twice} under way at a kill asked again ", end="")


@pytest.mark.parametrize("sync", [1, 7])  # of those after the start: while models are still seen to, and amid missions
def test_a_sync_that_fails_is_the_end_and_is_never_tried_again(tmp_path: Path, sync: int) -> None:
    """Exit code 70; no second fsync; nobody was told what was not durable; the next start goes on."""
    with slow_ollama(random.Random(2)) as server:
        process = dying(tmp_path, "fsync fails", sync, server)
        sender = Sender(process.started().endpoint, 0, random.Random(2))
        sender.start()
        code = process.ended(END_S)
        sender.over.set()
        sender.join()
        assert code == EXIT_IMAGE_FAILED
        assert sum(entry.get("event") == "fsync failed" for entry in process.log) == 1
        assert any(entry.get("event") == "image_failed" for entry in process.log)
        with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
            found = {mission["id"] for mission in peer.ask("missions", limit=1000)["missions"]}
            assert set(sender.acknowledged) <= found
            for id in found:
                assert peer.result(id)["state"] == "COMPLETE"
        assert on_disk(tmp_path, completions) == dict.fromkeys(found, 1)


FLEET, FLYING = 25, 50  # missions, and inferences in flight: two facets each


def test_fifty_inferences_in_flight_at_the_kill(tmp_path: Path) -> None:
    """What each mission had paid for is not asked again; what was in flight is asked once more, and no more than that."""
    settings = {**SETTINGS, "concurrent_missions": FLEET, "inference_concurrency": FLYING}
    with ScriptedFleet() as server:
        # The missions come while their persona's model is still being made, and its old digest was heard a moment ago.
        server.fail("slow", path="/api/create", when=lambda request: "babs" in request["model"], seconds=0.5)
        with daemon(tmp_path, ollama_host=server.host, **settings) as running, Peer(running.endpoint) as peer:
            for number in range(FLEET):
                peer.send("submit", id=f"m{number}", brief=f"Look up mission {number}")
            for _ in range(FLEET):
                assert peer.reply()["type"] == "accepted"
            server.wait_in_flight(FLYING)
            running.kill()
        paid = on_disk(tmp_path, journaled)
        before = chats(server)
        server.let_go()
        with daemon(tmp_path, ollama_host=server.host, **settings) as running, Peer(running.endpoint) as peer:
            for number in range(FLEET):
                assert peer.result(f"m{number}")["state"] == "COMPLETE"
        keys = keys_of(chats(server), server)
        assert len(paid) == FLEET, "each had its plan"
        assert paid <= set(keys[: len(before)]), "kept under the digest of the model that answered"
        assert not paid & set(keys[len(before) :])
        assert len(set(keys)) == 4 * FLEET
        assert len(keys) == 4 * FLEET + FLYING, "those in flight, once more"
