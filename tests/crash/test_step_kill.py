"""kill -9 between any two steps of a session: the changes are there with the mission that goes on, or nothing of it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.image import ledger
from batos.testing import ScriptedOllama
from tests.support import daemon_child
from tests.support.crash import on_disk
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned

DURABLE = ("after the commit of the changes, before its sync", "before the mission is attempted")


def state(root: Any) -> tuple[str, bool, str]:
    """State of the mission, whether the changes are recorded, and the persona's slot."""
    known = ledger.ledger_of(root).missions
    return known["m1"].state, "m1.step1" in known, root["lobby"].alfred.core_mission


@pytest.mark.parametrize("point", daemon_child.STEP_POINTS)
def test_killed_between_any_two_steps_of_a_session(tmp_path: Path, point: str) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        with daemon(tmp_path, ollama_host=server.host) as running, Peer(running.endpoint) as peer:
            peer.ask("submit", id="m1", brief="Plan a party", persona="robin", depth="direct", deadline_s=1e-6)
            assert peer.result("m1")["state"] == "FAILED"
            assert running.terminate() == 0
        _, _, was = before = on_disk(tmp_path, state)
        assert before[:2] == ("FAILED", False)
        process = Daemon(tmp_path, program=(daemon_child.__file__, point, "1"), ollama_host=server.host)
        with Peer(process.started().endpoint) as peer:
            assert peer.ask("step.open", id="m1", session="s")["error"]["code"] == "deadline"
            peer.send("step.edit", session="s", kind="slot", target="alfred.core_mission", value="To keep the house.")
            if point != "before a change in the mirror":
                assert peer.reply()["changed"]
                peer.send("step.continue", session="s", note="the deadline was too short")
            assert process.ended(END_S) == -9
        there = on_disk(tmp_path, state)
        if point in DURABLE:
            assert there[1:] == (True, "To keep the house.")
            assert there[0] != "FAILED"
        else:
            assert there == before, "nothing of it"
        with daemon(tmp_path, ollama_host=server.host) as running, Peer(running.endpoint) as peer:
            assert peer.ask("step.show")["sessions"] == [], "the session is gone"
            assert peer.result("m1")["type"] == "result"
            if point in DURABLE:
                assert peer.ask("undo", id="m1.step1")["objects"]
            assert running.terminate() == 0
        assert on_disk(tmp_path, state)[2] == was
