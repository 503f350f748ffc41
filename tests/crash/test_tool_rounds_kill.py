"""kill -9 of a daemon between two rounds of tool use, and within a call. The mission goes on as it began: each call that its model wants is
made once; while it waits for what was cut off, it says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from batos.testing.script import user_text
from tests.support.daemon import Daemon, Peer, batos, daemon, last_asked, provisioned, until
from tests.support.http_world import QuietHandler, serving

SPEAKER = "speaker:8b"
SETTINGS = {"inference.model": SPEAKER, "crash_limit": 100, "tools.call_s": 4, "memory.remember": "off", "memory.curate": "off"}
NOTES = ("tea", "milk", "bread")


class Board:
    """A board on loopback that keeps its notes in order."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.when_one_comes: Callable[[], None] | None = None
        board = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                board.notes.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
                if (then := board.when_one_comes) is not None:
                    board.when_one_comes = None
                    then()
                    return  # nobody hears an answer
                self.answer(201, {"note": len(board.notes)})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    with serving(made.server):
        yield made


class NoteModel:
    """A model that uses tools: it asks for one note after the other, and does something else before it asks for the second."""

    def __init__(self) -> None:
        self.before_second: Callable[[], None] | None = None

    def answer(self, request: dict[str, Any]) -> str:
        """Answer a chat with tools."""
        shown = user_text(request).count("</board.post>")
        if shown == 1 and (then := self.before_second) is not None:
            self.before_second = None
            then()
        calls = [{"name": "board_post", "arguments": {"path": "/notes", "body": {"text": text}}} for text in NOTES[shown : shown + 1]]
        return "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls) or "They are on the board."


@pytest.fixture
def model() -> NoteModel:
    return NoteModel()


@pytest.fixture
def server(model: NoteModel) -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as made:
        provisioned(made)
        made.models[SPEAKER] = made.models["robin:embedded"]
        made.give_tools(SPEAKER)
        answers(made, model)
        yield made


def answers(server: ScriptedOllama, model: NoteModel) -> None:
    """Say what the server's model answers."""
    server.say(model.answer, when=lambda request: bool(request.get("tools")))
    server.say("The notes are on the board.")


def killed_between_rounds(folder: Path, server: ScriptedOllama, model: NoteModel, board: Board) -> None:
    """Have a daemon begin the mission m1, and kill it after its first call, before its model has asked for the second."""
    with daemon(folder, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
        peer.ask("tool_add", name="board", kind="http", place=board.origin, options={"private": True})
        peer.ask("tool_grant", verdict="allow", pattern="*", leaks=True)
        model.before_second = running.process.kill
        last_asked(running, "submit", id="m1", brief="Write tea, milk and bread on the board.", persona="robin", depth="direct")
    assert board.notes == ["tea"]


def ended(running: Daemon) -> dict[str, Any]:
    with Peer(running.endpoint) as peer:
        return peer.result("m1")


def test_a_model_of_which_nothing_is_known_yet_after_a_start_goes_on_with_its_calls(
    tmp_path: Path, server: ScriptedOllama, model: NoteModel, board: Board
) -> None:
    """What a model can do is asked of its Ollama after a start; the mission does not take silence for a no."""
    killed_between_rounds(tmp_path, server, model, board)
    server.fail("slow", None, path="/api/show")
    with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running:
        with Peer(running.endpoint) as peer:
            # each look at what a model can do waits for 10 s, and a busy machine makes many, one after the other, while the mission is IDLE
            until(lambda: peer.ask("status", id="m1")["state"] in ("IDLE", "DELEGATING", "COMPLETE"), "it begins", 300)
        server.clear()
        answers(server, model)
        server.release()
        assert ended(running)["state"] == "COMPLETE"
    assert board.notes == list(NOTES)


@pytest.mark.timeout(600)
def test_a_mission_that_begins_before_anything_is_known_of_its_model_makes_all_its_calls(
    tmp_path: Path, server: ScriptedOllama, model: NoteModel, board: Board
) -> None:
    settings = {"ollama_host": server.host, **SETTINGS}
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
        peer.ask("tool_add", name="board", kind="http", place=board.origin, options={"private": True})
        peer.ask("tool_grant", verdict="allow", pattern="*", leaks=True)
        running.kill()
    server.fail("slow", None, path="/api/show")
    with daemon(tmp_path, **settings) as running:
        with Peer(running.endpoint) as peer:
            peer.ask("submit", id="m1", brief="Write tea, milk and bread on the board.", persona="robin", depth="direct")
            # each look at what a model can do waits for 10 s, and a busy machine makes many, one after the other, while the mission is IDLE
            until(lambda: peer.ask("status", id="m1")["state"] in ("IDLE", "DELEGATING", "COMPLETE"), "it begins", 300)
        server.clear()
        answers(server, model)
        server.release()
        assert ended(running)["state"] == "COMPLETE"
    assert board.notes == list(NOTES)


def test_a_mission_that_waits_for_a_call_that_was_cut_off_says_so_and_until_when(
    tmp_path: Path, server: ScriptedOllama, model: NoteModel, board: Board
) -> None:
    settings = {"ollama_host": server.host, **SETTINGS, "tools.call_s": 30}  # longer than a start takes, and a verb, on a busy machine
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
        peer.ask("tool_add", name="board", kind="http", place=board.origin, options={"private": True})
        peer.ask("tool_grant", verdict="allow", pattern="*", leaks=True)
        board.when_one_comes = running.process.kill
        last_asked(running, "submit", id="m1", brief="Write tea, milk and bread on the board.", persona="robin", depth="direct")
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
        until(lambda: peer.ask("status", id="m1").get("progress") or peer.ask("status", id="m1").get("question"))
        told = peer.ask("status", id="m1")["progress"]
        assert re.match(r"board.post: was cut off and may still be carried out until \d\d:\d\d:\d\d; then its user is asked$", told)
        assert batos(running, "status", "m1")[1]["progress"] == told
        until(lambda: peer.ask("status", id="m1").get("question"))
        asking = peer.ask("status", id="m1")
        assert "may have happened" in asking["question"]["question"]
        assert "progress" not in asking
        peer.ask("answer", id="m1", text="happened")
        assert ended(running)["state"] == "COMPLETE"
    assert board.notes == list(NOTES)
