"""kill -9 of a daemon whose generated method uses a tool: while it asks, and while the world acts on its call. It acts once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import Peer, daemon, done, last_asked, provisioned, question_of, result_of
from tests.support.http_world import QuietHandler, serving

METHOD = (
    "def note_(self, text):\n"
    "    before = self.tools.board.get(path='/notes')['body']['notes']\n"
    "    said = self.tools.board.post(path='/notes', body={'text': text})\n"
    "    self.noted = text\n"
    "    self._p_changed = True\n"
    "    return [len(before), said.get('happened', said.get('status'))]\n"
)


QUICK = {"crash_limit": 100, "tools.call_s": 4}  # what was cut off may go on for so long, which a restart waits for


class Board:
    """A board on loopback that counts its notes, and does something else when one comes."""

    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.when_one_comes: Callable[[], None] | None = None
        board = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                note, key = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), self.headers.get("Idempotency-Key")
                if key is None or key not in board.keys:
                    board.notes.append(note)
                board.keys.append(key)
                if (then := board.when_one_comes) is not None:
                    board.when_one_comes = None
                    then()
                    return  # nobody hears an answer
                self.answer(201, {"note": len(board.notes)})

            def do_GET(self) -> None:
                self.answer(200, {"notes": board.notes})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    with serving(made.server):
        yield made


@pytest.fixture
def writer() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(METHOD, when="You write one method")
        yield server


def writes(server: ScriptedOllama) -> int:
    return sum(1 for chat in server.chats if chat and chat["messages"][0]["content"].startswith("You write one method"))


def test_killed_while_it_asks_and_while_the_world_acts_it_acts_once(tmp_path: Path, writer: ScriptedOllama, board: Board) -> None:
    settings: dict[str, Any] = {"ollama_host": writer.host, **QUICK}
    with daemon(tmp_path, **settings) as running:
        done(running, "tools", "add", "board", "--http", board.origin, "--private")
        done(running, "allow", "board.get", "--leaks")
        done(running, "send-to", "brick", "note_", "tea", "--tools", "--write", "--id", "m1")
        assert "board.post" in question_of(running, "m1")
        running.kill()
    assert board.notes == [], "neither the trial nor the question wrote anything"
    with daemon(tmp_path, **settings) as running:
        board.when_one_comes = running.process.kill
        last_asked(running, "answer", id="m1", text="once")
    assert len(board.notes) == 1
    with daemon(tmp_path, **settings) as running:
        assert "board.post" in (asked := question_of(running, "m1"))
        assert "may have happened" in asked
        done(running, "answer", "m1", "happened")
        ended = result_of(running, "m1")
        assert (ended["state"], ended["result"]["value"]) == ("COMPLETE", [0, True])
        assert (board.notes, writes(writer)) == ([{"text": "tea"}], 1)
        versions = done(running, "method", "brick", "note_")["versions"]
        assert [one["provenance"]["policy"] for one in versions] == ["default+tools"]
        assert [one["tool"] for one in done(running, "effects", "m1")["effects"]] == ["board.get", "board.post"]
        assert running.terminate() == 0


def test_what_takes_a_key_is_sent_again_without_a_question(tmp_path: Path, writer: ScriptedOllama, board: Board) -> None:
    settings: dict[str, Any] = {"ollama_host": writer.host, **QUICK}
    with daemon(tmp_path, **settings) as running:
        done(running, "tools", "add", "board", "--http", board.origin, "--private", "--key-header", "Idempotency-Key")
        done(running, "allow", "board.*", "--leaks")
        board.when_one_comes = running.process.kill
        last_asked(running, "send", id="m1", target="brick", selector="note_", args=["tea"], write=True, tools=True)
    with daemon(tmp_path, **settings) as running:
        ended = result_of(running, "m1")
        assert (ended["state"], ended["result"]["value"]) == ("COMPLETE", [0, 201])
        assert (board.notes, writes(writer)) == ([{"text": "tea"}], 1)
        assert len(set(board.keys)) == 1
        assert len(board.keys) == 2


READS_ONLY = "def size_(self, text):\n    return self.tools.board.get(path='/notes')['status'] if text == 'all' else len(text)\n"
ALSO_WRITES = (
    "def size_(self, text):\n    if text == 'all':\n        return self.tools.board.post(path='/notes', body={})['status']\n"
    "    return len(text) + 2\n"
)


def test_killed_while_it_asks_if_a_version_may_reach_more_it_asks_again_and_is_written_once(tmp_path: Path, board: Board) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(READS_ONLY, when="You write one method", times=1)
        server.say(ALSO_WRITES, when="You write one method")
        settings: dict[str, Any] = {"ollama_host": server.host, **QUICK}
        with daemon(tmp_path, **settings) as running:
            done(running, "tools", "add", "board", "--http", board.origin, "--private")
            with Peer(running.endpoint) as peer:
                peer.ask("send", id="m1", target="brick", selector="size_", args=["tea"], write=True, tools=True)
                assert peer.result("m1")["result"]["value"] == 3
            (row,) = done(running, "methods", "brick")["methods"]
            assert row["reaches"] == ["board.get=reads"]
            done(running, "teach", "brick", "size_", "-e", '["tea"] -> 5', "--tools", "--id", "m2")
            asked = question_of(running, "m2")
            assert "May a new version of 'size_' of BRICK reach tools that version 1 does not: board.post (acts)?" in asked
            running.kill()
        with daemon(tmp_path, **settings) as running:
            assert question_of(running, "m2") == asked
            assert [one["version"] for one in done(running, "method", "brick", "size_")["versions"]] == [1]
            done(running, "answer", "m2", "yes")
            assert result_of(running, "m2")["state"] == "COMPLETE"
            newest, oldest = done(running, "method", "brick", "size_")["versions"]
            assert newest["contract"]["reaches"] == ["board.post=acts"]
            assert oldest["contract"]["reaches"] == ["board.get=reads"]
            assert (writes(server), board.notes) == (2, [])
            assert running.terminate() == 0
