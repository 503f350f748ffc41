"""Personas over restarts of a real daemon: a codex that changes, an image that has lived, a mission that was killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from batos.image import journal
from batos.image.storage import open_database
from batos.image.unit_of_work import snapshot
from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.daemon import END_S, ROOT, Daemon, Peer, daemon

PENGUIN = """
[personas.penguin]
core_mission = "To stand still."
core_method = "Standing."
pillars = ["Patience"]
triggers = [{ pattern = '\\bice\\b', weight = 90.0, says = "speaks of ice" }]
exemplars = ["Is the ice thick enough?"]
[personas.penguin.protocols]
waddle_facet_ = "Go slowly."
"""
SHIPPED = (ROOT / "batos" / "mind" / "codex.toml").read_text("utf-8")
BRIEF = "I feel stuck on the ice"


def ask(running: Daemon, *words: str) -> Any:
    """What the command line says, as JSON."""
    command = [sys.executable, "-m", "batos", *words, "--connect", running.endpoint, "--json"]
    done = forked.run(command, capture_output=True, text=True, timeout=END_S, cwd=ROOT, check=True)
    return json.loads(done.stdout)


def logged(running: Daemon, event: str) -> dict[str, Any]:
    """The one line of that event, logged before missions were let in."""
    (line,) = [line for line in running.log if line["event"] == event]
    return line


def personas(running: Daemon) -> dict[str, Any]:
    return {persona["name"]: persona for persona in ask(running, "personas")["personas"]}


def test_a_codex_that_changes_while_the_image_lives(tmp_path: Path, scripted: ScriptedOllama) -> None:
    codex = tmp_path / "codex.toml"
    codex.write_text(SHIPPED + PENGUIN, "utf-8")
    settings = {"ollama_host": scripted.host, "codex": codex}
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
        penguin = personas(running)["penguin"]
        assert (penguin["routed"], penguin["model"], penguin["exemplars"]) == (True, "smollm2:embedded", 1)
        peer.send("submit", id="m1", brief=BRIEF, watch=True)
        assert peer.until_result()[-1]["result"]["persona"] == "PENGUIN"
        routing = ask(running, "status", "m1")["routing"]
        assert routing == ask(running, "show", "m1")["record"]["routing"]
        assert routing["persona"] == "penguin"
        assert "speaks of ice" in routing["why"]
        peer.send("submit", id="m2", brief=BRIEF, persona="babs", watch=True)
        peer.until_result()
        assert personas(running)["babs"]["learned"] == 1
        peer.send("submit", id="m3", brief=BRIEF, watch=True)
        assert peer.until_result()[-1]["result"]["persona"] == "BABS"
        assert running.terminate() == 0

    codex.write_text(SHIPPED + PENGUIN.replace("To stand still.", "To swim.").replace("Go slowly.", "Go fast."), "utf-8")
    with daemon(tmp_path, **settings) as running:
        changed = personas(running)
        assert changed["penguin"]["core_mission"] == "To swim."
        assert [way["text"] for way in changed["penguin"]["behaviour"] if way["selector"] == "waddle_facet_"] == ["Go fast."]
        assert changed["babs"]["learned"] == 1, "what it learned is not lost"
        assert logged(running, "incarnated")["changes"] == {"core_mission": "updated", "waddle_facet_": "updated"}
        assert running.terminate() == 0

    codex.write_text(SHIPPED, "utf-8")
    with daemon(tmp_path, **settings) as running:
        left = personas(running)["penguin"]
        assert (left["routed"], left["core_mission"]) == (False, "To swim.")
        assert "no longer in the codex" in left["kept"][0]["why"]
        assert logged(running, "codex_not_followed")["persona"] == "penguin"
        assert running.terminate() == 0

    codex.write_text(SHIPPED + PENGUIN.replace("core_method", "core_metod"), "utf-8")
    refused = forked.run(
        [sys.executable, "-m", "batos", "run", "--data", str(tmp_path), "--set", f"codex={codex}"],
        capture_output=True, text=True, timeout=END_S, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert refused.returncode == 2
    line = (SHIPPED + PENGUIN).splitlines().index("[personas.penguin]") + 1
    assert f"{codex}, line {line}, key personas.penguin.core_method" in refused.stderr


def test_a_killed_mission_is_thought_on_by_whom_it_was_given_to(tmp_path: Path, scripted: ScriptedOllama) -> None:
    """Killed after its plan was paid for; at the restart its persona has left the codex, and its trigger with it."""
    codex = tmp_path / "codex.toml"
    codex.write_text(SHIPPED + PENGUIN, "utf-8")
    settings = {"ollama_host": scripted.host, "codex": codex}
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
        scripted.fail("hang", times=None, when="Answer in at most five sentences")
        peer.send("submit", id="m1", brief=BRIEF, watch=True)
        while peer.reply().get("state") != "DELEGATING":
            pass
        running.kill()
    with_plan = len(scripted.chats)
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=1000, pool_size=4)
    try:
        with snapshot(db) as root:
            assert json.loads(str(journal.route_of(root, "m1")))["persona"] == "penguin"
            paid = len(journal.load(root, "m1"))
    finally:
        db.close()
    assert paid == 1
    codex.write_text(SHIPPED, "utf-8")
    scripted.clear()
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
        peer.send("watch", id="m1")
        result = peer.until_result()[-1]["result"]
        assert (result["persona"], result["facets"]) == ("PENGUIN", ["waddle_facet_", "plain_facet_"])
        assert result["usage"]["replayed"] == 1
        assert not [chat for chat in scripted.chats[with_plan:] if "Ways of thinking" in str(chat["messages"])], (
            "no plan was paid for again"
        )
        assert running.terminate() == 0
