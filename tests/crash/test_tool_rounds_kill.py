"""kill -9 of a daemon between two rounds of tool use. The mission goes on as it began: each call that its model wants is made once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from batos.testing.script import user_text
from tests.support.daemon import Daemon, Peer, daemon, provisioned, until
from tests.support.http_world import QuietHandler, serving

SPEAKER = "speaker:8b"
SETTINGS = {"inference.model": SPEAKER, "crash_limit": 100, "tools.call_s": 4, "memory.remember": "off", "memory.curate": "off"}
NOTES = ("tea", "milk", "bread")


class Board:
    """A board on loopback that keeps its notes in order."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        board = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                board.notes.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
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
        peer.ask("submit", id="m1", brief="Write tea, milk and bread on the board.", persona="robin", depth="direct")
        running.ended()
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
            until(lambda: peer.ask("status", id="m1")["state"] in ("DELEGATING", "COMPLETE"))
        server.clear()
        answers(server, model)
        server.release()
        assert ended(running)["state"] == "COMPLETE"
    assert board.notes == list(NOTES)


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
            until(lambda: peer.ask("status", id="m1")["state"] in ("DELEGATING", "COMPLETE"))
        server.clear()
        answers(server, model)
        server.release()
        assert ended(running)["state"] == "COMPLETE"
    assert board.notes == list(NOTES)
