"""Looking back, undoing and forking, as a user does it: real daemons and the command line."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.daemon import END_S, ROOT, Daemon, Peer, daemon, embedded, provisioned, sent

NOTE = "The key is under the third stone of the garden wall."


def batos(running: Daemon, *words: str) -> tuple[int, dict[str, Any]]:
    """A verb of the command line; its exit code and the document it printed. Hints go to standard error."""
    command = [sys.executable, "-m", "batos", *words, "--json", *(() if "--image" in words else ("--connect", running.endpoint))]
    done = forked.run(command, capture_output=True, text=True, timeout=END_S, cwd=ROOT)
    return done.returncode, json.loads(done.stdout)


def found(peer: Peer) -> list[str]:
    return [hit["text"] for hit in peer.ask("search", question="where is the key?")["hits"]]


def test_a_note_is_undone_looked_back_at_and_done_again(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        with daemon(tmp_path, ollama_host=server.host, remember="off") as running, Peer(running.endpoint) as peer:
            note = sent(peer, "m1", "memory", "remember_", NOTE, "Keys")["result"]["value"]["oid"]
            embedded(peer)
            code, revisions = batos(running, "history", note)
            assert (code, revisions["revisions"][0]["mission"]) == (0, "m1")
            tid = revisions["revisions"][0]["tid"]
            assert found(peer) == [NOTE]
            code, told = batos(running, "undo", "m1")
            assert (code, told["documents"]["gone"]) == (0, ["Keys"])
            assert NOTE not in found(peer)
            assert peer.ask("status", id="m1")["undone"]["with"] == "m1"
            assert peer.ask("show", target="m1")["record"]["undone"]["missions"] == 1
            assert batos(running, "show", note, "--at", tid)[1]["slots"]["title"] == "Keys"
            code, change = batos(running, "diff", "m1", tid)
            assert (code, [one["slot"] for one in change["changes"]]) == (0, ["undone"])
            assert batos(running, "undo", "m1")[1]["already"]
            assert batos(running, "undo", "m1", "--redo")[0] == 0
            assert found(peer) == [NOTE]
            assert [one["name"] for one in batos(running, "ls", "memory")[1]["entries"] if one["kind"] == "object"] == ["curator", "lived"]
            assert batos(running, "undo", "m-1")[1]["message"].startswith("no mission 'm-1' in this image (did you mean 'm1'?)")
            assert running.terminate() == 0
        code, told = batos(running, "show", "m1", "--at", tid, "--image", str(tmp_path / "live_image.fs"))
        assert (code, told["record"]["state"], "undone" in told["record"]) == (0, "COMPLETE", False)
        assert running.noise == []


def test_a_method_is_undone_with_what_was_built_on_it(tmp_path: Path) -> None:
    source = "def double_(self, number):\n    return number * 2\n"
    with ScriptedOllama() as server:
        provisioned(server).say(f"```python\n{source}```", when="double_")
        with daemon(tmp_path, ollama_host=server.host, remember="off") as running, Peer(running.endpoint) as peer:
            peer.ask("teach", id="t1", target="robin", selector="double_", examples=[{"args": [2], "result": 4}])
            assert peer.result("t1")["state"] == "COMPLETE"
            assert sent(peer, "s1", "robin", "double_", 21)["result"]["value"] == 42
            sent(peer, "r1", "robin", "revert_", "double_", 0)
            objects = peer.ask("undo", id="t1", dry=True)["objects"]
            assert [one["parts"] for one in objects] == [["examples of double_"]], "the method is as before t1 anyway"
            peer.ask("teach", id="t2", target="robin", selector="double_", examples=[{"args": [3], "result": 6}])
            assert peer.result("t2")["state"] == "COMPLETE"
            refused = peer.ask("undo", id="t1")
            assert (refused["code"], refused["context"]["missions"]) == ("undo_conflict", ["t2"]), refused
            shown = peer.ask("undo", id="t1", cascade=True, dry=True)
            assert [one["id"] for one in shown["missions"]] == ["t2", "t1"]
            assert batos(running, "undo", "t1", "--cascade", "--yes")[0] == 0
            assert "has no slot 'double_', and no user taught it" in peer.ask("method", target="robin", selector="double_")["message"]
            assert peer.ask("undo", id="t1", redo=True)["type"] == "undo"
            refused = peer.ask("undo", id="t2", redo=True)
            assert refused["code"] == "undo_conflict", "it found no method, and now there is one"
            assert sent(peer, "s2", "robin", "double_", 4)["result"]["value"] == 8
            assert running.terminate() == 0


def test_a_fork_is_a_mind_of_its_own_beside_the_daemon(tmp_path: Path) -> None:
    data, fork, early = (tmp_path / name for name in ("data", "fork", "early"))
    with ScriptedOllama() as server:
        provisioned(server)
        with daemon(data, ollama_host=server.host, remember="off") as running, Peer(running.endpoint) as peer:
            sent(peer, "m0", "memory", "remember_", "The lamp is in the shed.")
            tid = batos(running, "history", "m0", "--limit", "1")[1]["revisions"][0]["tid"]
            sent(peer, "m1", "memory", "remember_", NOTE)
            embedded(peer)
            answers: list[dict[str, Any]] = []
            forking = threading.Thread(target=lambda: answers.append(batos(running, "fork", str(fork))[1]))
            forking.start()
            for number in range(20):  # it serves meanwhile
                sent(peer, f"n{number}", "memory", "remember_", f"Note {number} about something else.")
            forking.join()
            assert answers[0]["image"] == str(fork / "live_image.fs")
            assert batos(running, "fork", str(early), "--at", tid)[1]["tid"] == tid
            code, refused = batos(running, "fork", str(fork))
            assert (code, refused["code"]) == (4, "image")
            with daemon(fork, ollama_host=server.host, remember="off") as second, Peer(second.endpoint) as other:
                assert NOTE in found(other)
                assert other.ask("undo", id="m1")["type"] == "undo"
                assert NOTE not in found(other)
                assert NOTE in found(peer), "the daemon's own image is another"
                sent(peer, "x", "memory", "remember_", "Both go on.")
                assert other.ask("status", id="x")["code"] == "unknown_mission"
                assert second.terminate() == 0
            with daemon(early, ollama_host=server.host, remember="off") as third, Peer(third.endpoint) as other:
                assert other.ask("status", id="m0")["state"] == "COMPLETE"
                assert other.ask("status", id="m1")["code"] == "unknown_mission"
                assert third.terminate() == 0
            assert running.terminate() == 0
