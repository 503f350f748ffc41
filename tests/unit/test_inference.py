"""Inference against a scripted Ollama: every fault becomes one InferenceFailed with its cause."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from batos.bridge.client import DEFAULT_OPTIONS, OllamaInference, connect
from batos.bridge.client_library import AsyncClient
from batos.bridge.failures import RetryPolicy
from batos.bridge.inference import ChatRequest
from batos.bridge.modelfile import tagged
from batos.errors import ConfigError, InferenceFailed
from batos.testing import ScriptedOllama
from batos.testing.ollama import ScriptedHandler
from batos.testing.script import pieces

MODEL = "robin:embedded"
HELLO = ChatRequest(MODEL, "You are ROBIN.", "Say hello to the cat")


@pytest.fixture
async def inference(scripted: ScriptedOllama) -> AsyncIterator[OllamaInference]:
    """One that gives up at once; what it does about failing hosts is in test_breaker."""
    made = OllamaInference(scripted.host, 2, {"num_predict": 64}, RetryPolicy(inference_retries=0, breaker_failures=100))
    yield made
    await made.close()


async def test_what_is_sent(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    await inference.chat(ChatRequest(MODEL, "System.", "User.", schema, (("seed", 4), ("stop", ["END"]))), deadline_s=10)
    sent = scripted.chats[0]
    assert sent["messages"] == [{"role": "system", "content": "System."}, {"role": "user", "content": "User."}]
    assert sent["options"] == {"num_ctx": DEFAULT_OPTIONS["num_ctx"], "num_predict": 64, "seed": 4, "stop": ["END"]}
    assert sent["format"] == schema
    assert sent["stream"] is True


async def test_chats_share_a_connection(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    """Each is heard to the end of its stream; one that has to open its own pays a millisecond for it."""
    seen = set()
    for _ in range(3):
        await inference.chat(HELLO, deadline_s=10)
        seen |= set(scripted.connections)
    assert len(seen) == 1


async def test_a_list_that_is_older_than_a_change_is_not_believed(
    scripted: ScriptedOllama, inference: OllamaInference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for before the model was made anew, and came after."""
    listed, asked, heard = AsyncClient.list, asyncio.Event(), asyncio.Event()

    async def late(client: AsyncClient) -> Any:
        told = await listed(client)
        asked.set()
        await heard.wait()
        return told

    monkeypatch.setattr(AsyncClient, "list", late)
    first = asyncio.create_task(inference.digest(MODEL))
    await asked.wait()
    monkeypatch.setattr(AsyncClient, "list", listed)
    scripted.models[MODEL] = dataclasses.replace(scripted.models[MODEL], system="Another.")
    inference.models_changed()
    assert await inference.digest(MODEL) == scripted.models[MODEL].digest
    heard.set()
    await first
    assert await inference.digest(MODEL) == scripted.models[MODEL].digest


async def test_one_list_serves_all_that_ask_at_once(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    found = await asyncio.gather(*(inference.digest(MODEL) for _ in range(5)))
    assert set(found) == {scripted.models[MODEL].digest}
    assert scripted.counts["/api/tags"] == 1
    scripted.models["new:latest"] = dataclasses.replace(scripted.models[MODEL], system="New.")
    assert await inference.digest("new") == scripted.models["new:latest"].digest  # a name that the list lacks is asked for at once
    assert scripted.counts["/api/tags"] == 2


async def test_parts_of_a_stream_are_received_in_any_pieces() -> None:
    """Several in one, one in several, the last without the end of its line; only a line feed ends a line."""

    class Pieces(ScriptedHandler):
        def _stream(self, parts: Iterable[dict[str, Any]], **more: Any) -> None:
            data = b"\n".join(json.dumps(part, ensure_ascii=False).encode() for part in parts)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(data), 301):
                piece = data[at : at + 301]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

    class Server(ScriptedOllama):
        handler = Pieces

    text = " ".join(f"wört{i}\u0085\u2028" for i in range(40))
    with Server() as server:
        server.say(text)
        inference, heard = OllamaInference(server.host), list[str]()
        try:
            reply = await inference.chat(HELLO, deadline_s=10, on_text=heard.append)
        finally:
            await inference.close()
    assert reply.text == "".join(heard) == text
    assert reply.answer_tokens == len(pieces(text))


@pytest.mark.parametrize(
    "part",
    [
        {"message": {"role": "assistant", "content": 7}, "done": False},
        {"message": "seven", "done": False},
        {"message": {"role": "assistant", "content": "seven", "thinking": []}, "done": False},
        ["seven"],
    ],
)
async def test_a_part_of_another_form_is_malformed(part: Any) -> None:
    class Odd(ScriptedHandler):
        def _stream(self, parts: Iterable[dict[str, Any]], **more: Any) -> None:
            super()._stream([next(iter(parts)), part], **more)

    class Server(ScriptedOllama):
        handler = Odd

    with Server() as server:
        inference = OllamaInference(server.host)
        try:
            with pytest.raises(InferenceFailed) as failed:
                await inference.chat(HELLO, deadline_s=10)
        finally:
            await inference.close()
    assert failed.value.cause == "malformed"


async def test_without_a_system_message_the_model_keeps_its_own(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    await inference.chat(ChatRequest(MODEL, "", "User."), deadline_s=10)
    assert scripted.chats[0]["messages"] == [{"role": "user", "content": "User."}]


@pytest.mark.parametrize(
    ("kind", "cause", "may_retry"),
    [
        ("refuse", "unreachable", True),
        ("status_404", "model_missing", False),
        ("status_500", "server_error", True),
        ("status_503", "server_error", True),
        ("cut", "truncated", True),
        ("error", "server_error", True),
        ("junk", "malformed", False),
        ("hang", "timeout", True),
        ("slow", "timeout", True),
    ],
)
async def test_faults_of_a_chat(scripted: ScriptedOllama, inference: OllamaInference, kind: str, cause: str, may_retry: bool) -> None:
    scripted.fail(kind)  # type: ignore[arg-type]
    with pytest.raises(InferenceFailed) as failed:
        await inference.chat(HELLO, deadline_s=0.4 if cause == "timeout" else 10)
    assert failed.value.cause == cause
    assert failed.value.may_retry is may_retry
    assert failed.value.context["model"] == MODEL
    assert (await inference.chat(HELLO, deadline_s=10)).text  # the fault was for once: the client is as good as new


@pytest.mark.parametrize(
    ("kind", "cause"), [("refuse", "unreachable"), ("status_500", "server_error"), ("junk", "malformed"), ("hang", "timeout")]
)
async def test_faults_of_an_embedding(scripted: ScriptedOllama, inference: OllamaInference, kind: str, cause: str) -> None:
    scripted.fail(kind, path="/api/embed")  # type: ignore[arg-type]
    with pytest.raises(InferenceFailed) as failed:
        await inference.embed("minilm:embedded", ["a"], deadline_s=0.4 if cause == "timeout" else 10)
    assert failed.value.cause == cause


async def test_a_server_that_is_down_and_comes_back(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    assert (await inference.chat(HELLO, deadline_s=10)).text
    scripted.stop()
    for _ in range(2):
        with pytest.raises(InferenceFailed) as failed:
            await inference.chat(HELLO, deadline_s=10)
        assert failed.value.cause == "unreachable"
    scripted.start()
    assert (await inference.chat(HELLO, deadline_s=10)).text


async def test_an_error_inside_the_stream(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    scripted.say("one two three four")
    scripted.fail("cut")
    heard: list[str] = []
    with pytest.raises(InferenceFailed, match=r"broke|ended after") as failed:
        await inference.chat(HELLO, deadline_s=10, on_text=heard.append)
    assert failed.value.cause == "truncated"
    assert heard == ["one", " two"]


async def test_what_comes_together_with_an_error_is_heard_before_it() -> None:
    """Both lines arrive as one piece: the text counts as begun, and is not paid for again."""
    asked: list[str] = []
    said = [{"message": {"role": "assistant", "content": "one"}, "done": False}, {"error": "it broke"}]
    bodies = {
        "/api/tags": json.dumps({"models": [{"model": MODEL, "name": MODEL, "digest": "d"}]}),
        "/api/chat": "".join(json.dumps(line) + "\n" for line in said),
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        asked.append(path)
        body = bodies[path].encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        inference = OllamaInference(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        heard: list[str] = []
        try:
            with pytest.raises(InferenceFailed, match="it broke"):
                await inference.chat(HELLO, deadline_s=10, on_text=heard.append)
        finally:
            await inference.close()
    assert heard == ["one"]
    assert asked.count("/api/chat") == 1


async def test_cancelling_leaves_the_server(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    scripted.hold()
    chat = asyncio.create_task(inference.chat(HELLO, deadline_s=60))
    await asyncio.to_thread(scripted.wait_for)
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    await asyncio.to_thread(scripted.wait_abandoned)
    scripted.release()
    assert (await inference.chat(HELLO, deadline_s=10)).text


async def test_a_runaway_is_cut(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    scripted.say("Well. " + "I am here. " * 2000, when="loop")
    heard: list[str] = []
    reply = await inference.chat(ChatRequest(MODEL, "", "loop", options=(("num_predict", 9000),)), deadline_s=10, on_text=heard.append)
    assert reply.done_reason == "cut"
    assert reply.text in ("Well. I am here.", "Well. I am here. I am here.", "Well. I am here. I am")
    assert reply.answer_tokens == len(heard) < 200


async def test_no_more_chats_at_once_than_allowed(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    scripted.hold()
    chats = [asyncio.create_task(inference.chat(HELLO, deadline_s=60)) for _ in range(5)]
    await asyncio.to_thread(scripted.wait_for, "/api/chat", 2)
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(scripted.wait_for, "/api/chat", 3, 0.2)
    scripted.release()
    await asyncio.gather(*chats)
    assert len(scripted.chats) == 5


async def test_the_deadline_counts_from_an_inferences_turn(scripted: ScriptedOllama) -> None:
    inference = OllamaInference(scripted.host, 1)
    scripted.fail("slow", seconds=1.0, times=3)
    replies = await asyncio.gather(*(inference.chat(HELLO, deadline_s=2.9) for _ in range(3)))
    assert len(replies) == 3
    await inference.close()


async def test_thought_is_no_part_of_the_answer(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    """Whether the server parts it, since the template knows thinking, or the model writes it into its answer."""
    scripted.say("<think>They greet me. </think>\n\nHello, cat.")
    for template in (scripted.models[MODEL].template, "{{ .Thinking }} {{ .Response }}"):
        scripted.models[MODEL] = dataclasses.replace(scripted.models[MODEL], template=template)
        heard: list[str] = []
        reply = await inference.chat(HELLO, deadline_s=10, on_text=heard.append)
        assert (reply.text, reply.thinking.strip()) == ("Hello, cat.", "They greet me.")
        assert "".join(heard) == reply.text


async def test_thought_that_never_ends_is_no_answer(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    scripted.say("<think>Well, well")
    reply = await inference.chat(HELLO, deadline_s=10)
    assert (reply.text, reply.thinking) == ("", "Well, well")
    scripted.clear()
    scripted.say("<think>" + "I wonder. " * 2000)
    scripted.models[MODEL] = dataclasses.replace(scripted.models[MODEL], template="{{ .Thinking }} {{ .Response }}")
    reply = await inference.chat(dataclasses.replace(HELLO, options=(("num_predict", 9000),)), deadline_s=10)
    assert (reply.text, reply.done_reason) == ("", "cut")
    assert reply.thinking.startswith("I wonder.")
    assert len(reply.thinking) < 300


async def test_whether_to_think_is_an_option_of_ours(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    await inference.chat(dataclasses.replace(HELLO, options=(("think", False),)), deadline_s=10)
    assert scripted.chats[0]["think"] is False
    assert "think" not in scripted.chats[0]["options"]
    with pytest.raises(InferenceFailed, match="does not support thinking") as failed:
        await inference.chat(dataclasses.replace(HELLO, options=(("think", True),)), deadline_s=10)
    assert failed.value.cause == "refused"


async def test_what_the_server_says_of_the_time_it_took(inference: OllamaInference) -> None:
    reply = await inference.chat(HELLO, deadline_s=10)
    assert (reply.load_ms, reply.prompt_eval_ms) == (400, 1)
    assert reply.eval_ms == reply.answer_tokens > 0


async def test_only_the_model_that_the_answer_is_keyed_by_answers(inference: OllamaInference) -> None:
    digest = await inference.digest(MODEL)
    assert (await inference.chat(dataclasses.replace(HELLO, digest=digest), deadline_s=10)).digest == digest
    with pytest.raises(InferenceFailed, match="made anew") as failed:
        await inference.chat(dataclasses.replace(HELLO, digest="f" * 64), deadline_s=10)
    assert (failed.value.cause, failed.value.may_retry) == ("model_changed", True)


async def test_a_fault_of_the_listener_is_its_own(inference: OllamaInference) -> None:
    def broken(text: str) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await inference.chat(HELLO, deadline_s=10, on_text=broken)


async def test_a_model_made_anew_has_a_new_digest(scripted: ScriptedOllama) -> None:
    inference = OllamaInference(scripted.host, digest_ttl_s=0)
    before = await inference.digest(MODEL)
    async with connect(scripted.host) as client:
        async for _ in await client.create(MODEL, from_="smollm2:embedded", system="other", stream=True):
            pass
    assert await inference.digest(MODEL) != before
    await inference.close()


async def test_a_machine_that_vanished_is_noticed_by_its_silence(scripted: ScriptedOllama) -> None:
    """A pull has no deadline: without this, one from a machine that was switched off would be waited for for ever."""
    async with connect(scripted.host) as client:
        reply = await client._client.get("/api/version")
        held = reply.extensions["network_stream"].get_extra_info("socket")
        assert held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_names_and_addresses() -> None:
    assert [tagged(n) for n in ("a", "a:b", "127.0.0.1:5000/ns/a", "127.0.0.1:5000/ns/a:b")] == [
        "a:latest", "a:b", "127.0.0.1:5000/ns/a:latest", "127.0.0.1:5000/ns/a:b",
    ]  # fmt: skip
    same = ("SmolLM2", "library/smollm2:latest", " registry.ollama.ai/Library/smollm2", "https://registry.ollama.ai/library/SMOLLM2:Latest")
    assert {tagged(name) for name in same} == {"smollm2:latest"}
    other = ("hf.co/library/x", "library/ns/x", "localhost:5000/library/x", "ollama.com/library/x", "x/library")
    assert [tagged(name) for name in other] == [f"{name}:latest" for name in other]
    for bad in ("127.0.0.1:notaport", "http://[::1"):
        with pytest.raises(ConfigError, match=r"inference\.host"):
            connect(bad)
