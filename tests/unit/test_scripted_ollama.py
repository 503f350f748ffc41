"""The scripted Ollama: its script, its holds, and what it says by itself."""

from __future__ import annotations

import json
import socket
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from batos.testing import ollama as double
from batos.testing.script import default_answer, embedding


def ask(server: ScriptedOllama, path: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(f"http://{server.host}{path}", None if body is None else json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


def chat(server: ScriptedOllama, user: str, **more: Any) -> str:
    message = {"model": "robin:embedded", "messages": [{"role": "user", "content": user}], "stream": False, **more}
    return str(ask(server, "/api/chat", message)["message"]["content"])


def test_rules_are_tried_in_order_and_used_up(scripted: ScriptedOllama) -> None:
    scripted.say("once", when="cat", times=1)
    scripted.say("cats", when="cat")
    scripted.say(lambda request: request["messages"][-1]["content"].upper(), when=lambda request: "dog" in str(request))
    assert [chat(scripted, "a cat"), chat(scripted, "a cat"), chat(scripted, "a dog")] == ["once", "cats", "A DOG"]
    assert chat(scripted, "a fish").startswith("You said: a fish")
    assert scripted.counts["/api/chat"] == len(scripted.chats) == 4
    scripted.clear()
    assert chat(scripted, "a cat").startswith("You said")


def test_faults_by_request(scripted: ScriptedOllama) -> None:
    scripted.fail("status_500", when="cat")
    assert chat(scripted, "a dog")
    with pytest.raises(urllib.error.HTTPError):
        chat(scripted, "a cat")
    assert chat(scripted, "a cat")


def test_held_chats_wait_for_their_release(scripted: ScriptedOllama) -> None:
    scripted.hold()
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(chat(scripted, "hi"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    scripted.wait_for("/api/chat", 3)
    assert got == []
    scripted.release()
    for thread in threads:
        thread.join()
    assert len(got) == 3


def test_waiting_for_what_does_not_come(scripted: ScriptedOllama) -> None:
    with pytest.raises(TimeoutError, match="1 requests to /api/pull"):
        scripted.wait_for("/api/pull", timeout_s=0.05)


def test_stopping_ends_what_is_held(scripted: ScriptedOllama) -> None:
    scripted.hold()
    failed = threading.Event()

    def client() -> None:
        try:
            chat(scripted, "hi")
        except OSError:
            failed.set()

    thread = threading.Thread(target=client)
    thread.start()
    scripted.wait_for()
    host = scripted.host
    scripted.stop()
    thread.join()
    assert failed.is_set()
    scripted.start()
    assert scripted.host == host
    scripted.release()
    assert chat(scripted, "hi")


def test_answers_have_the_form_of_the_schema() -> None:
    schema = {
        "$defs": {"Facet": {"enum": ["sage", "still_point"]}},
        "type": "object",
        "properties": {
            "facets": {"type": "array", "items": {"$ref": "#/$defs/Facet"}, "minItems": 3},
            "why": {"type": "string", "maxLength": 12},
            "long": {"type": "string", "minLength": 400},
            "score": {"type": "integer", "minimum": 3, "maximum": 5},
            "share": {"type": "number", "maximum": 0.5},
            "sure": {"type": "boolean"},
            "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "kind": {"const": "x"},
        },
    }
    request = {"messages": [{"role": "user", "content": "Why am I so unmotivated?"}], "format": schema}
    answer = json.loads(default_answer(request))
    assert answer.pop("why") == "why Why am I"
    assert len(answer.pop("long")) == 400
    assert answer == {"facets": ["sage"] * 3, "score": 3, "share": 0.5, "sure": True, "note": None, "kind": "x"}
    assert default_answer(request) == default_answer(request)


def test_embeddings_follow_the_words() -> None:
    def like(a: str, b: str) -> float:
        return sum(x * y for x, y in zip(embedding(a), embedding(b), strict=True))

    assert like("a cat on a mat", "a cat on a mat") == pytest.approx(1)
    assert like("a cat on a mat", "a cat on a sofa") > 0.5 > abs(like("a cat on a mat", "quarterly revenue fell"))
    assert like("", "") == pytest.approx(1)


def test_requests_that_ollama_refuses(scripted: ScriptedOllama) -> None:
    for path, body, code in (
        ("/api/chat", {"model": "nope", "messages": []}, 404), ("/api/nothing", {"a": 1}, 404), ("/api/show", {"model": "nope"}, 404),
    ):  # fmt: skip
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(scripted, path, body)
        assert refused.value.code == code
        refused.value.close()
    request = urllib.request.Request(f"http://{scripted.host}/api/chat", b"{")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    assert refused.value.code == 400
    refused.value.close()


NODE = {"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, {"name": "name", "children": []}),
        ({"properties": {"name": {"const": 1}, "children": {"type": "array", "items": {"$ref": "#"}}}}, {"name": 1, "children": []}),
        ({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]}, {"next": None}),
        ({"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}}, {"n": 1}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, {}),
        ({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}, {}),
    ],
)  # fmt: skip
def test_a_schema_that_refers_to_itself_has_an_end(schema: dict[str, Any], value: Any) -> None:
    assert json.loads(default_answer({"messages": [], "format": schema})) == value


def test_a_connection_whose_thread_has_not_begun_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, real, closing = threading.Event(), double._Server.process_request_thread, double._Server.server_close

    def late(self: Any, *args: Any) -> None:
        accepted.set()
        assert begin.wait(60)
        real(self, *args)

    def close(self: Any) -> None:
        begin.set()  # all that is known of has been ended
        closing(self)

    accepted = threading.Event()
    monkeypatch.setattr(double._Server, "process_request_thread", late)
    monkeypatch.setattr(double._Server, "server_close", close)
    with ScriptedOllama() as server, socket.create_connection(server.host.split(":")):
        assert accepted.wait(60)
        stopping = threading.Thread(target=server.stop, daemon=True)
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive(), "it waits for a client that says nothing"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no second socket may be bound to the port")
def test_nobody_is_given_the_port_of_a_server_that_is_stopped() -> None:
    with ScriptedOllama() as server:
        place = ("127.0.0.1", int(server.host.rpartition(":")[2]))
        server.stop()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(place)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place)
        server.start()
        socket.create_connection(place).close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(place)
        other.listen()


def test_models_come_and_go_while_they_are_listed_and_used(scripted: ScriptedOllama) -> None:
    class Growing(dict[str, int]):
        def get(self, name: str, default: Any = None) -> Any:
            scripted.models[f"{len(scripted.models)}:new"] = scripted.models["robin:embedded"]
            return super().get(name, default)

    scripted.runners.sizes = Growing()
    before = set(scripted.models)
    assert {one["name"] for one in ask(scripted, "/api/tags")["models"]} == before
    scripted.say(lambda request: str(scripted.models.pop("robin:embedded", None) is not None))
    assert chat(scripted, "Are you there?") == "True"
