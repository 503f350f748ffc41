"""A message to a connection that is not there, with the daemon killed at question, adding and sending: each happens once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import Peer, batos, daemon, done, last_asked, provisioned, question_of, result_of
from tests.support.http_world import serving
from tests.support.tea_shop import TeaShop, killed_at_its_order

QUICK = {"crash_limit": 100, "tools.call_s": 4}  # what was cut off may go on for so long, which a restart waits for


@pytest.fixture
def shop() -> Iterator[TeaShop]:
    made = TeaShop()
    with serving(made.server):
        yield made


@pytest.fixture
def writer() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        provisioned(server)
        yield server


def test_killed_at_the_question_the_adding_and_the_sending_each_happens_once(tmp_path: Path, writer: ScriptedOllama, shop: TeaShop) -> None:
    settings: dict[str, Any] = {"ollama_host": writer.host, **QUICK}
    with daemon(tmp_path, **settings) as running:
        done(running, "tools", "offer", "teas", "--openapi", f"{shop.origin}/openapi.json", "--line", "A shop that sells tea.")
        listed = done(running, "tools", "offers")["offers"]
        assert [(one["name"], one["origin"]) for one in listed] == [("teas", "listed"), ("web", "shipped")]
        with Peer(running.endpoint) as peer:
            sent = peer.ask("send", id="m1", target="tools.tea_shop", selector="order_", args=["assam"])
            assert sent["type"] == "accepted", sent
        asked = question_of(running, "m1")
        assert f"{shop.origin}/openapi.json" in asked
        assert shop.documents == 0, "nothing is asked before the answer"
        running.kill()
    with daemon(tmp_path, **settings) as running:
        assert question_of(running, "m1") == asked
        shop.on_document = running.process.kill
        last_asked(running, "answer", id="m1", text="yes")
    assert (shop.documents, shop.orders) == (1, [])
    killed_at_its_order(tmp_path, shop, settings)
    assert shop.documents == 2, "the place is asked again, since nothing was added"
    with daemon(tmp_path, **settings) as running:
        assert "may have happened" in question_of(running, "m1")
        done(running, "answer", "m1", "happened")
        assert result_of(running, "m1")["state"] == "COMPLETE"
        assert shop.orders == [{"sku": "assam"}], "sent once"
        assert shop.documents == 2, "added once"
        assert [one["name"] for one in done(running, "tools")["connections"]] == ["tea_shop"]
        assert running.terminate() == 0


def test_a_program_that_its_user_allowed_is_found_by_message_and_run_once(tmp_path: Path, writer: ScriptedOllama) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    with daemon(tmp_path / "data", ollama_host=writer.host) as running:
        words = ("--program", "wc -l {file}", "--class", "run=reads", "--option", f'folders=["{folder}:ro"]')
        done(running, "tools", "offer", "counter", *words, "--line", "Counts the lines of a file.")
        code, said = batos(running, "send-to", "tools.line_counter", "count_lines_", str(folder / "a.txt"))
        assert code == 0, said
        assert "wc -l {file}" in question_of(running, said["id"])
        done(running, "answer", said["id"], "yes")
        ended = result_of(running, said["id"])
        assert ended["state"] == "COMPLETE", ended
        assert "2 " in str(ended["result"]["value"])
        assert done(running, "tools", "withdraw", "counter")["offers"][0]["origin"] == "shipped"
        asked = len(writer.chats)
        assert running.terminate() == 0
    assert not any(chat and chat["messages"][0]["content"].startswith("You write one method") for chat in writer.chats[:asked])


def test_a_server_of_the_protocol_is_started_only_after_the_answer(tmp_path: Path, writer: ScriptedOllama) -> None:
    world = tmp_path / "world"
    server = Path(__file__).parents[1] / "support" / "faulty_mcp.py"
    with daemon(tmp_path / "data", ollama_host=writer.host) as running:
        words = ("--mcp", f"{sys.executable} {server} stdio modern", "--env", f"WORLD={world}", "--line", "Echoes and pays.")
        done(running, "tools", "offer", "clerk", *words)
        code, said = batos(running, "send-to", "tools.paying_clerk", "pay_", '{"amount": 7}')
        assert code == 0, said
        asked = question_of(running, said["id"])
        assert 'pay_({"amount": 7})' in asked
        assert str(server) in asked
        assert not any(entry.get("event") == "connection_added" for entry in running.log)
        done(running, "answer", said["id"], "yes")
        ended = result_of(running, said["id"])
        assert ended["state"] == "COMPLETE", ended
        assert [one["state"] for one in ended["result"]["tools"]] == ["DONE"], "the leave for this very message was given with the answer"
        assert "pay" in world.read_text()
        assert running.terminate() == 0
