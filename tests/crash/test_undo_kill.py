"""kill -9 between any two steps of an undo: all of it is there, or nothing of it; asked for again, it is done once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.image import ledger
from batos.memory.store import library_of
from batos.testing import ScriptedOllama
from tests.support import daemon_child
from tests.support.crash import on_disk, thinned
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned
from tests.support.memory import consistent

NOTE = "The key is under the third stone of the garden wall."
DURABLE = ("after its commit, before its sync", "before searches hear of it", "before it is told")


def state(root: Any) -> tuple[bool, list[str], int]:
    """Whether it is undone, the notes that there are, failures; after a look whether all parts of the memory agree."""
    library = library_of(root)
    consistent(library)
    notes = [one.mission for one in library.documents.values() if one.kind == "note"]
    return ledger.mission_of(root, "m1").undone is not None, notes, len(ledger.failures(root))


def found(peer: Peer) -> bool:
    return any(NOTE in hit["text"] for hit in peer.ask("search", question="where is the key?")["hits"])


@pytest.mark.parametrize("point", thinned(daemon_child.UNDO_POINTS))
def test_killed_between_any_two_steps_of_an_undo(tmp_path: Path, point: str) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        with daemon(tmp_path, ollama_host=server.host) as running, Peer(running.endpoint) as peer:
            for id, text in (("m1", NOTE), ("m2", "The lamp is in the shed.")):
                peer.ask("send", id=id, target="memory", selector="remember_", args=[text])
                assert peer.result(id)["state"] == "COMPLETE"
            assert found(peer)
            assert running.terminate() == 0
        before = on_disk(tmp_path, state)
        assert before == (False, ["m1", "m2"], 0)
        process = Daemon(tmp_path, program=(daemon_child.__file__, point, "1"), ollama_host=server.host)
        with Peer(process.started().endpoint) as peer:
            peer.send("undo", id="m1")
            assert process.ended(END_S) == -9
        there = on_disk(tmp_path, state)
        assert there == ((True, ["m2"], 0) if point in DURABLE else before), "all of it, or nothing"
        with daemon(tmp_path, ollama_host=server.host) as running, Peer(running.endpoint) as peer:
            assert found(peer) is (point not in DURABLE)
            told = peer.ask("undo", id="m1")
            assert (told["type"], "already" in told) == ("undo", point in DURABLE)
            assert not found(peer)
            assert peer.ask("undo", id="m1", redo=True)["documents"]["back"]
            assert found(peer)
            assert running.terminate() == 0
        assert on_disk(tmp_path, state)[1] == ["m1", "m2"]
