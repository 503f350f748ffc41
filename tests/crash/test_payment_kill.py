"""A daemon that is killed in the middle of a payment to a shop that takes two seconds: the shop has one order."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import END_S, Peer, daemon
from tests.support.http_world import QuietHandler, serving

PAYMENT_S = 2.0
CALL_S = PAYMENT_S + 5.0
"""Seconds that the payer allows for a payment: more than the shop takes, and than passes until the payer is killed."""


class Till:
    """A shop without idempotency keys, that takes its time and goes on when the payer is gone."""

    def __init__(self) -> None:
        self.orders: list[Any] = []
        self.asked, self.left, self.paid = threading.Event(), threading.Event(), threading.Event()
        till = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                till.asked.set()
                till.left.wait(END_S)  # for the payer, however long that takes on a busy machine
                time.sleep(PAYMENT_S)
                till.orders.append(order)
                till.paid.set()
                with contextlib.suppress(OSError):  # nobody hears the answer
                    self.answer(201)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def till() -> Iterator[Till]:
    made = Till()
    with serving(made.server):
        yield made


@pytest.mark.parametrize("truth", ["happened", "again"])
def test_a_payment_is_made_once(tmp_path: Path, scripted: ScriptedOllama, till: Till, truth: str) -> None:
    payment = {"path": "/orders", "body": {"sku": "tea", "euros": 20}}
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        options = {"seconds": CALL_S}
        assert peer.ask("tool_add", name="till", kind="http", place=till.origin, options=options)["type"] != "error"
        sent = peer.ask("send", id="pay", target="tools.till", selector="call_", args=["post", payment], write=True)
        assert sent["type"] == "accepted", sent
        assert till.asked.wait(END_S)
        assert till.orders == []
        running.kill()
        till.left.set()
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        question = _question(peer)
        assert "till.post" in question["question"]
        assert till.paid.is_set(), "its user is asked when the shop can do no more of it"
        assert len(till.orders) == 1
        told = peer.ask("answer", id="pay", text=truth, number=question["number"])
        assert told["type"] == "status", told
        assert peer.result("pay")["state"] == "COMPLETE"
        (effect,) = peer.ask("effects", mission="pay")["effects"]
    assert effect["state"] == ("SETTLED" if truth == "happened" else "DONE")
    assert till.orders == [payment["body"]] * (1 if truth == "happened" else 2), "a second one only where its user says so"


def test_a_payment_that_its_user_denied_is_not_made_a_second_time(tmp_path: Path, scripted: ScriptedOllama, till: Till) -> None:
    """Its class lets it be sent again by itself; the deny came after the request had left, and before the daemon was killed."""
    payment = {"path": "/orders", "body": {"sku": "tea", "euros": 20}}
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        options = {"seconds": CALL_S, "classes": {"post": "idempotent"}}
        assert peer.ask("tool_add", name="till", kind="http", place=till.origin, options=options)["type"] != "error"
        peer.ask("send", id="pay", target="tools.till", selector="call_", args=["post", payment], write=True)
        assert till.asked.wait(END_S)
        assert peer.ask("tool_grant", verdict="deny", pattern="till.*")["type"] == "tool_grants"
        running.kill()
        till.left.set()
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        question = _question(peer)
        assert "it is not sent again: grant 1 denies it" in question["question"]
        peer.ask("answer", id="pay", text="leave", number=question["number"])
        assert peer.result("pay")["state"] == "COMPLETE"
    assert till.orders == [payment["body"]]


def _question(peer: Peer) -> dict[str, Any]:
    """The open question of the payment, once it is asked."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        for one in peer.ask("status", id="pay").get("questions", ()):
            if one["answer"] is None:
                return dict(one)
        time.sleep(0.05)
    raise AssertionError("it asks nothing")
