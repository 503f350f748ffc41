"""kill -9 between any two steps of a comparison: it goes on where it was, pays nothing twice, and is made so all of it or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import changes
from batos.comparisons import records
from batos.image import history
from batos.testing import ScriptedOllama
from tests.support import daemon_child
from tests.support.crash import chats, keys_of, on_disk, provision
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned

QUICK = {"autotelic": "off", "evidence_passages": 0, "remember": "off"}
BRIEFS = [{"brief": f"Why do I feel tired on {day}?", "depth": "direct", "flavour": "full"} for day in ("Monday", "Friday")]
ASKED: dict[str, Any] = {"id": "c1", "persona": "robin", "other": "brick", "briefs": BRIEFS, "judge": "rules", "rules": ["length"]}
PROMOTION_POINTS = ("before the commit of a change", "after the commit of a change, before its sync")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say("Go to bed.", when=lambda request: "You are BRICK" in request["messages"][0]["content"])
        yield server


def finished(peer: Peer) -> dict[str, Any]:
    """The comparison, once it is no longer under way."""
    while (told := peer.ask("compare.show", id="c1", wait_s=5))["state"] in ("waiting", "running"):
        pass
    return told


@pytest.mark.parametrize("point", daemon_child.COMPARE_POINTS)
def test_killed_between_any_two_steps_of_a_comparison(tmp_path: Path, server: ScriptedOllama, point: str) -> None:
    provision(tmp_path, server)
    before = len(chats(server))
    number = "2" if "kept" in point else "1"
    process = Daemon(tmp_path, program=(daemon_child.__file__, point, number), ollama_host=server.host, **QUICK)
    with Peer(process.started().endpoint) as peer:
        peer.send("compare.start", **ASKED)
        assert process.ended(END_S) == -9, process.noise
    with daemon(tmp_path, ollama_host=server.host, **QUICK) as running, Peer(running.endpoint) as peer:
        assert peer.ask("compare.start", **ASKED)["type"] == "comparison", "the same request again is the same comparison"
        peer.ask("compare.resume", id="c1")
        told = finished(peer)
        assert (told["state"], told["done"], told["unjudged"], told["cost"]["inferences"]) == ("done", 2, 0, 4)
        assert peer.ask("missions")["missions"] == []
        assert running.terminate() == 0
    asked = Counter(keys_of(chats(server)[before:], server))
    assert len(asked) == 4
    assert asked.total() <= 5, "only what was under way at the kill is asked for again"


@pytest.mark.parametrize("point", PROMOTION_POINTS)
def test_killed_in_the_middle_of_a_promotion(tmp_path: Path, server: ScriptedOllama, point: str) -> None:
    provision(tmp_path, server)
    asked = {**ASKED, "changed": {"core_mission": "To be kind."}, "other": None}
    process = Daemon(tmp_path, program=(daemon_child.__file__, point, "1"), ollama_host=server.host, **QUICK)
    with Peer(process.started().endpoint) as peer:
        peer.ask("compare.start", **{name: value for name, value in asked.items() if value is not None})
        assert finished(peer)["state"] == "done"
        peer.send("compare.promote", id="c1", note="kinder", anyway=True)
        assert process.ended(END_S) == -9, process.noise
    state, promoted, made = on_disk(tmp_path, standing)
    assert (promoted > 0, state == changes.KEPT) == (made, made), "all of it, or nothing"
    with daemon(tmp_path, ollama_host=server.host, **QUICK) as running, Peer(running.endpoint) as peer:
        assert peer.ask("compare.promote", id="c1", note="kinder", anyway=True)["change"] == 1
        assert running.terminate() == 0
    assert on_disk(tmp_path, standing) == (changes.KEPT, 1, True)


def standing(root: Any) -> tuple[str, int, bool]:
    """What the record of the change says, what the comparison's does, and whether the persona has the variant's slot."""
    recorded = changes.listed(root)
    assert len(recorded) == 1, "one change, however often it is asked for"
    robin = root["lobby"].robin
    made = sum(one["mission"] == "change:1" for one in history.revisions(root._p_jar.db(), robin._p_oid, 100))
    assert made == (robin.core_mission == "To be kind.")
    return recorded[0]["state"], records.record_of(root, "c1").promoted, bool(made)
