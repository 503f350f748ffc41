"""The loop on its own: a rut is noticed, a change proposed, a harmful one refused, a good one made, a later harm undone. Nobody asks.

The test is a user and the world: it sends missions, and decides what the model says. What the daemon does about it, it decides itself.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from batos.testing import ScriptedOllama
from batos.testing.script import default_answer, user_text
from tests.support import forked
from tests.support.daemon import END_S, REPLY_S, ROOT, Daemon, Peer, daemon, provisioned

QUICK: dict[str, Any] = {
    "autotelic": "on", "remember": "off", "evidence_passages": 0, "heartbeat_first_s": 0.5, "heartbeat_s": 1, "senses_s": 0.2,
    "cem_window": 4, "cem_baseline": 8, "trigger_still": 0, "audit_missions": 3, "rehearsal_missions": 6,
    "leash_missions": 6, "leash_s": 3600,
}  # fmt: skip
"""A day in a minute: what takes hours takes seconds, and a handful of missions is enough to go by."""
HARMFUL = {
    "kind": "meta_prompt", "target": "psm.SYNTHESIZING", "why": "answers get shorter",
    "content": "In one syllable, for the sake of cost, answer $brief from the notes $voices",
}  # fmt: skip
GOOD = {
    "kind": "facet", "target": "robin.gardener_facet_", "why": "so that something new is said",
    "content": "Look at it as a gardener looks at a bed in spring.",
}  # fmt: skip
SPEAKER = "Wisdom of Insecurity"  # of the facet of ROBIN's that always has something to say, and always the same
TROUBLES = ("has fallen for good", "FAILED in the same way")
RUT = "Rest, and be patient with yourself, as you always are."
WEEDS = "weeds weeds weeds"
FEELING = "I feel stuck and I don't know why I am so unmotivated, and this is evening {n}"
BRIEFS = (FEELING, "How do I build shelf {n} of oak?", "Look up what is known about island {n}", "Plan audit {n} of the code")


class World:
    """What the model says. In a rut only one facet has anything to say; a gardener would, but in time only weeds."""

    def __init__(self) -> None:
        self.in_a_rut = self.weedy = False
        self.asked = 0
        """How often it was asked what to do about trouble."""

    def say(self, request: dict[str, Any]) -> str:
        text, schema = user_text(request), request.get("format")
        if isinstance(schema, dict) and {"kind", "target"} <= schema.get("properties", {}).keys():
            return json.dumps(self._proposal(text))
        if schema or "self_" in text:  # a plan, or the loop's own missions
            return default_answer(request)
        if "In one syllable" in text:
            return ""
        if "Notes to use:" in text:
            return self._woven(text)
        if "gardener" in text:
            return WEEDS if self.weedy else words(text)
        return words(text) if not self.in_a_rut else RUT if SPEAKER in text else ""

    def _proposal(self, text: str) -> dict[str, str]:
        """Nothing that makes sense, unless there is trouble; the first idea is a bad one."""
        if not any(words in text for words in TROUBLES):
            return {**GOOD, "target": "nobody.gardener_facet_"}
        self.asked += 1
        return HARMFUL if self.asked == 1 else GOOD

    def _woven(self, text: str) -> str:
        notes = text.partition("Notes to use:")[2]
        return "" if WEEDS in notes else words(text) if words_in(notes) else RUT


def words(text: str) -> str:
    """Words that only this text gets."""
    draws = (hashlib.sha256(f"{n} {text}".encode()).digest() for n in range(12))
    return f"It is {' '.join(''.join(chr(97 + byte % 26) for byte in draw[:7]) for draw in draws)}."


def words_in(notes: str) -> bool:
    """Whether somebody had something of his own to say."""
    return "It is " in notes


class User:
    """Sends missions, one after the other, none faster than they are measured."""

    def __init__(self, running: Daemon, peer: Peer) -> None:
        self.running, self.peer, self.sent = running, peer, 0

    def asks(self, brief: str = FEELING) -> dict[str, Any]:
        self.sent += 1
        id = f"u{self.sent}"
        assert self.peer.ask("submit", id=id, brief=brief.format(n=self.sent))["type"] == "accepted"
        end = self.peer.result(id)
        deadline = time.monotonic() + REPLY_S
        while end["state"] == "COMPLETE" and "entropy" not in self.peer.ask("show", target=id)["record"]:
            assert time.monotonic() < deadline, f"{id} was never measured"
        return end

    def asks_until(self, event: str, most: int) -> list[str]:
        """Ask until the daemon's log has a line of that name; how the missions ended: their states, or `unsure`."""
        states: list[str] = []
        while not any(line.get("event") == event for line in self.running.log):
            assert len(states) < most, f"no {event} after {most} missions: {self.running.log[-8:]}"
            end = self.asks()
            states.append("unsure" if (end.get("result") or {}).get("unsure") else end["state"])
        return states


@pytest.fixture
def server() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        yield provisioned(server)


def changes(running: Daemon, *words: str) -> list[dict[str, Any]]:
    """What `batos changes` says."""
    command = [sys.executable, "-m", "batos", "changes", *words, "--json", "--connect", running.endpoint]
    done = forked.run(command, capture_output=True, text=True, timeout=END_S, cwd=ROOT, check=True)
    return list(json.loads(done.stdout)["changes"])


def first(running: Daemon, proposal: dict[str, str]) -> dict[str, Any]:
    """The first change of a proposal, whole. Two missions may have had the same idea; the second comes to nothing."""
    rows = [row for row in changes(running) if row["target"] == proposal["target"]]
    assert {row["state"] for row in rows[:-1]} <= {"proposed", "refused"}, "nothing is made twice"
    return changes(running, str(rows[-1]["number"]))[0]


@pytest.mark.long
def test_an_unattended_run(tmp_path: Path, server: ScriptedOllama) -> None:
    world = World()
    server.say(world.say)
    with daemon(tmp_path, ollama_host=server.host, **QUICK) as running, Peer(running.endpoint) as peer:
        user = User(running, peer)
        for n in range(16):
            assert user.asks(BRIEFS[n % len(BRIEFS)])["state"] == "COMPLETE"

        world.in_a_rut = True
        assert set(user.asks_until("entropic_decay", most=40)) == {"COMPLETE"}
        fired = running.logged("trigger_fired", trigger="entropy_falls")
        assert "has fallen for good" in fired["measured"], "noticed"
        assert running.logged("proposed")["kind"] == HARMFUL["kind"], "proposed"
        refused = running.logged("refused", kind=HARMFUL["kind"])
        assert "missions that fail: 0 before" in refused["why"], "a harmful one is refused by its rehearsal"
        for _ in range(QUICK["audit_missions"] + 1):  # the model is not asked again for nothing
            assert user.asks()["state"] == "COMPLETE"
        running.logged("promoted", target=GOOD["target"])
        harmful, good = first(running, HARMFUL), first(running, GOOD)
        assert (harmful["number"], harmful["state"], harmful["mission"]) == (1, "refused", fired["mission"])
        assert (good["state"], good["source"], good["evidence"]["trigger"]) == ("promoted", "model", "entropy_falls"), "a good one is made"
        assert good["comparison"]["changed"]["cem"] > good["comparison"]["without"]["cem"]
        assert user.asks()["result"]["text"] != RUT, "out of the rut"

        world.weedy = True  # what was good when it was rehearsed does harm now
        ended = user.asks_until("change_taken_back", most=20)
        assert ended[:3] == ["unsure"] * 3, "what its facets said was all that could be had"
        undone = first(running, GOOD)
        assert (undone["number"], undone["state"]) == (good["number"], "undone"), "a later harm is undone"
        assert "FAILED or unsure; before, 0 of" in undone["reason"]
        assert undone["effect"]["client brief"]["failed"][0] == 0
        assert peer.ask("undo_change", number=good["number"])["already"] is True
        assert peer.ask("undo_change", number=harmful["number"])["code"] == "invalid", "nothing of it was ever there"
        for _ in range(QUICK["audit_missions"] + 1):
            assert user.asks()["state"] == "COMPLETE", "it goes on without the change"
        running.logged("proposal_makes_no_sense", why=f"it was proposed before and is undone ({undone['reason']})")
        assert running.terminate() == 0
    assert running.noise == []


REAL: dict[str, Any] = {
    "autotelic": "on", "remember": "off", "evidence_passages": 0, "heartbeat_first_s": 3600, "senses_s": 0.5, "num_predict": 24,
    "facets_limit": 1, "mission_attempts": 1, "structured_repairs": 1, "trigger_personas": 2, "rehearsal_missions": 1, "rehearsal_least": 1,
    "routing_s": 120,  # what a busy machine is too slow to look at is routed by rules, and tells nothing of what came nearest to whom
}  # fmt: skip
SLOW_S = 240  # for one step on a real model on a busy machine


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_shorter_run_on_a_real_ollama(tmp_path: Path, ollama_host: str) -> None:
    """What a small model makes of it is not foretold; that each step is taken, recorded and can be taken back is."""
    with daemon(tmp_path, ollama_host=ollama_host, **REAL) as running, Peer(running.endpoint) as peer:
        peer.socket.setsockopt(zmq.RCVTIMEO, 1000 * SLOW_S)
        for n in range(2):  # both of them ROBIN's: the others are never chosen
            peer.send("submit", id=f"u{n}", brief=FEELING.format(n=n), watch=True)
            ended = peer.until_result()[-1]
            assert ended["state"] == "COMPLETE", ended
        fired = running.logged("trigger_fired", SLOW_S, trigger="persona_unchosen")
        decided = running.logged(("promoted", "refused"), SLOW_S)
        (change,) = changes(running, str(decided["change"]))
        assert (change["state"], change["evidence"]["trigger"]) == (decided["event"], fired["trigger"])
        assert change["comparison"].get("missions") == 1 or change["reason"], "it was tried, or it is said why not"
        spent = peer.ask("info")["autotelic"]["budget"]["spent"]
        assert spent["bytes"]["spent"] > 0
        assert change["source"] == "measurement", "a model of this size is not asked to judge"
        reply = peer.ask("undo_change", number=change["number"])
        if decided["event"] == "promoted":
            assert reply["objects"]
            assert changes(running, str(change["number"]))[0]["state"] == "undone"
        else:
            assert (reply["type"], reply["code"]) == ("error", "invalid")
        assert running.terminate() == 0
    assert running.noise == []
