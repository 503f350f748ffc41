"""Tools of a real daemon, from the command line: a connection is added, called, granted, looked at, tested and removed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.daemon import END_S, ROOT, Daemon, daemon
from tests.support.http_world import QuietHandler, serving


class Shop:
    """A shop on loopback that counts its orders."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []
        shop = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                shop.orders.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                shop.tokens.append(self.headers.get("Authorization"))
                self.answer(201, {"order": len(shop.orders)})

            def do_GET(self) -> None:
                self.answer(200, {"orders": shop.orders})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    with serving(made.server):
        yield made


def run(running: Daemon, *words: str, given: str = "", connect: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "batos", *words, "--json", *(["--connect", running.endpoint] if connect else [])]
    return forked.run(command, capture_output=True, text=True, timeout=END_S, cwd=ROOT, input=given, check=False)


def ask(running: Daemon, *words: str, **more: Any) -> Any:
    """What the command line says, as JSON."""
    done = run(running, *words, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_connection_is_added_called_granted_and_removed(tmp_path: Path, scripted: ScriptedOllama, shop: Shop) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running:
        header = ("--header", "Authorization: Bearer {secret:SHOP}")
        added = ask(running, "tools", "add", "shop", "--http", shop.origin, "--private", *header)["connections"][0]
        assert added["missing"] == ["SHOP"]
        assert {tool["name"]: tool["class"] for tool in added["tools"]}["get"] == "reads"
        order = json.dumps({"path": "/orders", "body": {"sku": "tea"}})
        refused = run(running, "tools", "call", "shop.post", order)
        assert refused.returncode == 1
        assert "batos secrets set SHOP" in refused.stdout
        assert shop.orders == []

        data = ("--data", ask(running, "info")["data"])
        ask(running, "secrets", "set", "SHOP", *data, given="s3cret", connect=False)
        called = ask(running, "tools", "call", "shop.post", order)
        assert (called["state"], shop.orders, shop.tokens) == ("COMPLETE", [{"sku": "tea"}], ["Bearer s3cret"])

        (done,) = ask(running, "effects")["effects"]
        assert (done["tool"], done["state"], done["mission"]) == ("shop.post", "DONE", called["id"])
        assert ask(running, "effects", called["id"])["effects"][0]["key"] == done["key"]
        assert "s3cret" not in json.dumps(ask(running, "effects", called["id"]))
        assert "s3cret" not in json.dumps(ask(running, "tools", "show", "shop"))

        granted = ask(running, "allow", "shop.post", "--uses", "2/day", "--args", "path=/orders")["grants"][0]
        assert granted["text"].startswith("allow shop.post")
        listed = {tool["name"]: tool["verdict"] for tool in ask(running, "tools")["connections"][0]["tools"]}
        assert listed["get"] == listed["delete"] == "ask", "an address of this machine is private: what it says could leak"
        reads = ask(running, "allow", "shop.get", "--leaks")["grants"][0]
        listed = {tool["name"]: tool["verdict"] for tool in ask(running, "tools")["connections"][0]["tools"]}
        assert (listed["get"], listed["delete"]) == ("allow", "ask")
        assert [one["number"] for one in ask(running, "grants")["grants"]] == [granted["number"], reads["number"]]
        assert [one["number"] for one in ask(running, "grants", "remove", str(granted["number"]))["grants"]] == [reads["number"]]

        assert ask(running, "tools", "test", "shop")["connections"][0]["changes"] == ""
        assert run(running, "effects", "settle", done["key"], "--leave").returncode == 4, "it is in no doubt"
        assert ask(running, "info")["tools"] | {"open": []} == {
            "connections": 1, "tools": len(added["tools"]), "suspended": [], "open": [], "in_doubt": 0, "tied": "",
        }  # fmt: skip
        assert ask(running, "tools", "remove", "shop")["connections"] == []
        assert ask(running, "effects")["effects"][0]["key"] == done["key"], "what was done is still told"
        assert run(running, "tools", "call", "shop.post", order).returncode != 0
        assert len(shop.orders) == 1


def test_a_connection_that_cannot_be_made_adds_nothing(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running:
        wrong = run(running, "tools", "add", "notes", "--folder", str(tmp_path / "gone"))
        assert wrong.returncode == 4
        assert "gone" in wrong.stdout
        assert run(running, "tools", "add", "shop", "--http", "ftp://shop.example").returncode == 4
        assert ask(running, "tools")["connections"] == []


def test_a_folder_is_written_and_what_was_done_survives_a_restart(tmp_path: Path, scripted: ScriptedOllama) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    data = tmp_path / "data"
    data.mkdir()
    with daemon(data, ollama_host=scripted.host) as running:
        tools = ask(running, "tools", "add", "notes", "--folder", f"{notes}:rw")["connections"][0]["tools"]
        assert "write" in {tool["name"] for tool in tools}
        called = ask(running, "tools", "call", "notes.write", json.dumps({"path": "a.txt", "text": "milk"}))
        assert called["state"] == "COMPLETE"
        assert (notes / "a.txt").read_text() == "milk"
    with daemon(data, ollama_host=scripted.host) as running:
        assert [one["name"] for one in ask(running, "tools")["connections"]] == ["notes"]
        assert ask(running, "effects", called["id"])["effects"][0]["state"] == "DONE"
        read = ask(running, "tools", "call", "notes.read", json.dumps({"path": "a.txt"}))
        assert "milk" in json.dumps(read["result"])
