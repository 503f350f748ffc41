"""kill -9 between any two transitions: of a mission's cycle, of cycles inside it, to FAILED; and around a question, an answer, a pause.

After each the next daemon goes on: the mission ends once, as it should, and no inference that was in the journal is asked for again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batos.image import ledger
from batos.mind import plans
from batos.testing import ScriptedOllama
from batos.testing.script import default_answer
from tests.support import daemon_child
from tests.support.crash import SETTINGS, chats, completions, journaled, keys_of, on_disk, provision
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned

ONE = "I feel stuck, and this is mission {id}"
TWO = "I feel so lonely and sad in mission {id}. Then plan a small dinner for the friends of {id}."
QUESTION = "How many guests?"


def answer(request: dict[str, Any]) -> str:
    text = default_answer(request)
    schema = request.get("format")
    if isinstance(schema, dict) and plans.QUESTION in schema.get("properties", {}):
        return json.dumps(json.loads(text) | {plans.QUESTION: QUESTION})
    return text


def wordless(request: dict[str, Any]) -> str:
    """A plan, and then nothing."""
    return default_answer(request) if request.get("format") else ""


@contextmanager
def served(folder: Path, say: Callable[[dict[str, Any]], str] = answer) -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        server.say(say)
        provisioned(server)
        provision(folder, server)
        yield server


@contextmanager
def dying(folder: Path, step: str, number: int, server: ScriptedOllama) -> Iterator[Peer]:
    """A client of a daemon that dies at the `number`th time that it comes to a step; at the end it must have died."""
    process = Daemon(folder, program=(daemon_child.__file__, step, str(number)), ollama_host=server.host, **SETTINGS)
    try:
        with Peer(process.started().endpoint) as peer:
            yield peer
            assert process.ended(END_S) == -9, f"it did not come to {step} {number}"
    finally:
        if process.process.poll() is None:
            process.kill()


def asked_again(server: ScriptedOllama, since: int, known: set[bytes]) -> list[str]:
    """What was asked for since then, though the journal had it."""
    requests = chats(server)
    keys = keys_of(requests, server)
    return [requests[i]["messages"][1]["content"] for i in range(since, len(keys)) if keys[i] in known]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("brief", "moves", "inferences"), [(ONE, 4, 5), (TWO, 12, 11)], ids=["one cycle", "cycles in a cycle"])
def test_killed_before_each_transition(tmp_path: Path, brief: str, moves: int, inferences: int) -> None:
    with served(tmp_path) as server:
        kills = []
        for number in range(1, moves + 1):
            id = f"m{number}"
            with dying(tmp_path, "a transition", number, server) as peer:
                peer.send("submit", id=id, brief=brief.format(id=id))
            kills.append((number, len(chats(server)), on_disk(tmp_path, journaled)))
            with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
                assert peer.result(id)["state"] == "COMPLETE", number
                assert running.terminate() == 0
        for number, since, known in kills:
            assert asked_again(server, since, known) == [], f"killed before transition {number}"
        done = on_disk(tmp_path, completions)
        assert len(done) == moves
        assert set(done.values()) == {1}
        assert len(set(keys_of(chats(server), server))) == inferences * moves
        assert on_disk(tmp_path, lambda root: list(ledger.ledger_of(root).pending)) == []


def test_killed_before_the_transition_to_failed(tmp_path: Path) -> None:
    with served(tmp_path, wordless) as server:
        with dying(tmp_path, "a transition", 3, server) as peer:  # DECOMPOSING, DELEGATING, FAILED: no facet says anything
            peer.send("submit", id="m1", brief=ONE)
        since, known = len(chats(server)), on_disk(tmp_path, journaled)
        assert on_disk(tmp_path, ledger.failures) == []
        with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
            assert peer.result("m1")["error"]["code"] == "quality_refused"
        assert asked_again(server, since, known) == []
        (failure,) = on_disk(tmp_path, ledger.failures)
        assert (failure["attempt"], failure["final"]) == (1, True), "the attempt that the kill ended had paid for something"


@pytest.mark.timeout(400)
def test_killed_around_a_question_and_its_answer(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for number, step in enumerate(("a question is recorded", "a question was recorded", "an answer is recorded")):
            id = f"m{number}"
            with dying(tmp_path, step, 1, server) as peer:
                peer.send("submit", id=id, brief=ONE.format(id=id), may_ask=True, watch=True)
                if step == "an answer is recorded":
                    while peer.reply()["type"] != "needs_input":
                        pass
                    peer.send("answer", id=id, text="twelve")
            known = on_disk(tmp_path, journaled)
            since = len(chats(server))
            with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
                with Peer(running.endpoint) as watching:
                    watching.send("watch", id=id)
                    while (reply := watching.reply()).get("state") != "NEEDS_INPUT":
                        assert reply["type"] != "result", reply
                assert peer.ask("answer", id=id, text="twelve")["type"] == "status"
                assert peer.result(id)["state"] == "COMPLETE"
                assert running.terminate() == 0
            assert asked_again(server, since, known) == [], step
            assert len(on_disk(tmp_path, lambda root, id=id: ledger.describe(ledger.mission_of(root, id)).questions)) == 1


def test_killed_before_a_pause_is_recorded_it_was_not_paused(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.hold()
        with dying(tmp_path, "a pause is recorded", 1, server) as peer:
            assert peer.ask("submit", id="m1", brief=ONE)["type"] == "accepted"
            peer.send("pause", id="m1")
        server.release()
        with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
            assert peer.result("m1")["state"] == "COMPLETE"
