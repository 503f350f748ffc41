"""A method with tools, as a user has it written: taught, sent, refused by its user, and without the leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batos.testing import ScriptedOllama
from tests.support.daemon import Daemon, Peer, batos, daemon, done, provisioned, until

NOTE = (
    "def note_(self, text):\n"
    "    try:\n"
    "        self.tools.my_notes.append('log.txt', text + chr(10))\n"
    "    except PermissionError as e:\n"
    "        return 'not noted: ' + str(e)\n"
    "    return 'noted: ' + text\n"
)


def answered(running: Daemon, id: str, text: str) -> dict[str, Any]:
    """The result of a mission whose question is answered."""
    with Peer(running.endpoint) as peer:
        until(lambda: peer.ask("status", id=id).get("question"))
        done(running, "answer", id, text)
        return peer.result(id)


def test_a_note_is_written_once_after_a_question_and_a_refusal_reaches_the_method(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(NOTE, when="You write one method")
        with daemon(tmp_path / "data", ollama_host=server.host) as running:
            done(running, "tools", "add", "my-notes", "--folder", f"{place}:rw")
            taught = done(running, "teach", "brick", "note_", "-e", '["tea"] -> "tea"', "--intent", "note a line", "--tools", "--watch")
            assert taught["state"] == "COMPLETE", taught
            assert list(place.iterdir()) == [], "a lesson tries nothing outside"
            assert "self.tools.my_notes.append(path, text)" in str(server.chats[-1])
            done(running, "send-to", "brick", "note_", "tea", "--id", "m1")
            assert answered(running, "m1", "once")["result"]["value"] == "noted: tea"
            assert (place / "log.txt").read_text() == "tea\n"
            done(running, "send-to", "brick", "note_", "milk", "--id", "m2")
            refused = answered(running, "m2", "no")
            assert refused["result"]["value"].startswith("not noted: my-notes.append is not called: ")
            assert (place / "log.txt").read_text() == "tea\n"
            assert running.terminate() == 0


def test_without_the_leave_the_guardian_refuses_it(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(NOTE, when="You write one method")
        with daemon(tmp_path, ollama_host=server.host) as running:
            code, said = batos(running, "send-to", "brick", "note_", "tea", "--watch")
            assert (code, said["error"]["code"]) == (1, "method_refused")
            assert "needs the capability 'tools', which was not granted" in said["error"]["message"]
