"""Turns of chats as missions: which mission a turn is, what it follows, what is told of it and how."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.console.api_client import Asker
from batos.doors.access import DoorLimits
from batos.doors.turns import is_answer, visible_text
from batos.errors import EndpointError, InferenceFailed
from tests.support.doors import assistant, chat_client, completion, events, kernel_with_doors, said, user
from tests.support.missions import WAIT_S, FakeInference, Narrow, answer

TABLE = "Help me to find a restaurant for Friday"
TEA = "Which tea shall I drink in the evening?"


@pytest.fixture
def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with kernel_with_doors(tmp_path, inference) as kernel:
        yield kernel


@pytest.fixture
async def client(kernel: Kernel) -> AsyncIterator[httpx.AsyncClient]:
    async with chat_client(kernel) as client:
        yield client


async def listed(kernel: Kernel) -> list[dict[str, Any]]:
    found = (await Asker(kernel.transport.dispatcher, kernel.settings).ask("missions", system=False))["missions"]
    return list(found)


async def test_a_turn_is_a_mission(kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference) -> None:
    told = await completion(client, user(TEA))
    assert said(told) == "Take one small step and look where it led."
    assert told["choices"][0]["finish_reason"] == "stop"
    assert told["usage"]["total_tokens"] == told["usage"]["prompt_tokens"] + told["usage"]["completion_tokens"] > 0
    assert "SYNTHESIZING" in told["choices"][0]["message"]["reasoning_content"]
    (mission,) = await listed(kernel)
    assert (mission["id"], mission["brief"], mission["state"]) == (told["mission"], TEA, "COMPLETE")


async def test_the_same_turn_again_is_the_same_mission(kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference) -> None:
    first, streamed = (
        await completion(client, user(TEA)),
        await client.post("/v1/chat/completions", json={"model": "batos", "messages": [user(TEA)], "stream": True}),
    )
    assert streamed.headers["x-batos-mission"] == first["mission"]
    assert "".join(one["choices"][0]["delta"].get("content", "") for one in events(streamed.text)) == said(first)
    assert len(await listed(kernel)) == 1
    assert len(inference.asked) == 1


async def test_a_name_of_its_own_makes_a_turn_another_one(kernel: Kernel, client: httpx.AsyncClient) -> None:
    ids = set()
    for headers in (
        {"Idempotency-Key": "a"},
        {"Idempotency-Key": "b"},
        {"X-OpenWebUI-Chat-Id": "c", "X-OpenWebUI-Message-Id": "1"},
        {"X-OpenWebUI-Chat-Id": "c", "X-OpenWebUI-Message-Id": "2"},
        {"Idempotency-Key": "a"},
        {"X-OpenWebUI-Chat-Id": "c", "X-OpenWebUI-Message-Id": "2"},
    ):
        ids.add((await completion(client, user(TEA), headers=headers))["mission"])
    assert len(ids) == len(await listed(kernel)) == 4
    other = await completion(client, user("Something else"), headers={"Idempotency-Key": "a"}, status=400)
    assert other["error"]["code"] == "id_taken"


async def test_after_a_time_the_same_words_are_another_turn(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path, limits=(DoorLimits(repeat_s=0),)) as kernel, chat_client(kernel) as client:
        first, second, third = [(await completion(client, user(TEA)))["mission"] for _ in range(3)]
    assert (second, third) == (f"{first}-2", f"{first}-3")


async def test_the_next_turn_follows_the_mission_before(kernel: Kernel, client: httpx.AsyncClient) -> None:
    first = await completion(client, user(TEA))
    kept = f'<details type="reasoning" done="true">\n<summary>Thought</summary>\n> IDLE\n</details>\n{said(first)}'
    second = await completion(client, user(TEA), assistant(kept), user("And in the morning?"))
    third = await completion(client, user(TEA), assistant(kept), user("And in the morning?"), assistant(said(second)), user("At noon?"))
    branch = await completion(client, user(TEA), assistant(said(first)), user("And at sea?"))
    rows = {one["id"]: one for one in await listed(kernel)}
    assert [rows[one["mission"]].get("context") for one in (first, second, third, branch)] == [
        None, first["mission"], second["mission"], first["mission"],
    ]  # fmt: skip
    assert rows[second["mission"]]["brief"] == "And in the morning?"


async def test_a_conversation_that_is_not_known_is_told_in_words(kernel: Kernel, client: httpx.AsyncClient) -> None:
    await completion(client, user(TEA))
    told = await completion(
        client, {"role": "system", "content": "Answer in rhymes."}, user(TEA), assistant("Another answer, by another model"), user("Why?")
    )
    (mission,) = [one for one in await listed(kernel) if one["id"] == told["mission"]]
    assert mission.get("context") is None
    assert mission["brief"] == (
        f"Instructions for this conversation:\nAnswer in rhymes.\n\nThe conversation so far:\nUser: {TEA}\n"
        "Assistant: Another answer, by another model\n\nThe user says now:\nWhy?"
    )


async def test_a_question_is_the_answer_and_the_next_turn_answers_it(tmp_path: Path, inference: FakeInference) -> None:
    def say(request: ChatRequest) -> str:
        if request.schema is None:
            return f"Noted: {'by the window' if 'by the window' in str(request) else 'nothing'}."
        asks = {"question_to_the_user": "At what time, and where?"} if "question_to_the_user" in request.schema["properties"] else {}
        return json.dumps({**json.loads(answer(request)), **asks})

    inference.say = say
    async with kernel_with_doors(tmp_path, inference, limits=(DoorLimits(plan_questions=True),)) as kernel, chat_client(kernel) as client:
        first = await completion(client, user(TABLE))
        assert said(first) == "At what time, and where?"
        assert first["choices"][0]["finish_reason"] == "stop"
        assert said(await completion(client, user(TABLE))) == said(first), "it asks until it is answered"
        turn = (user(TABLE), assistant(said(first)), user("At eight, by the window"))
        second = await completion(client, *turn)
        assert second["mission"] == first["mission"]
        assert said(second) == "Noted: by the window."
        asked = len(inference.asked)
        assert said(await completion(client, *turn)) == said(second), "the same turn again"
        assert len(inference.asked) == asked
        third = await completion(client, *turn, assistant(said(second)), user("Thank you. And for Sunday?"))
        rows = {one["id"]: one for one in await listed(kernel)}
        assert rows[third["mission"]]["context"] == first["mission"]


@pytest.mark.parametrize("how", ["prompt", "header", "metadata"])
async def test_chores_are_no_missions(kernel: Kernel, client: httpx.AsyncClient, how: str) -> None:
    text = "### Task:\nSuggest 3 follow-up questions" if how == "prompt" else "A title, please"
    more: dict[str, Any] = {
        "header": {"headers": {"X-OpenWebUI-Task": "title_generation"}},
        "metadata": {"metadata": {"task": "tags"}},
    }.get(how, {})
    assert said(await completion(client, user(text), **more)) == "Take one small step and look where it led."
    assert await listed(kernel) == []


LONG = " ".join(f"Line {n} was said." for n in range(400))


@pytest.mark.parametrize("door", ["/v1/chat/completions", "/api/chat"])
@pytest.mark.parametrize("long", ["history", "task"])
async def test_a_chore_that_is_longer_than_the_window_is_shortened_and_says_so(tmp_path: Path, door: str, long: str) -> None:
    inference = Narrow(2500)
    task = f"### Task:\nGenerate a title for this chat.\n{LONG if long == 'task' else ''}\nOnly the title, please"
    words = [user("First"), assistant(LONG), user("Then"), assistant("Yes"), user(task)] if long == "history" else [user(task)]
    async with kernel_with_doors(tmp_path, inference, num_ctx=1024) as kernel, chat_client(kernel) as client:
        with capture_logs() as logs:
            told = await client.post(door, json={"model": "batos", "stream": False, "think": True, "messages": words})
        assert told.status_code == 200, told.text
        assert await listed(kernel) == []
    message = told.json()["choices"][0]["message"] if door.startswith("/v1") else told.json()["message"]
    assert message["content"] == "Take one small step and look where it led."
    (left,) = [one for one in logs if one["event"] == "left_out"]
    part = "conversation" if long == "history" else "request"
    assert f"{left[part]} characters of the {part}" in message["reasoning_content" if door.startswith("/v1") else "thinking"]
    last = inference.asked[-1]
    assert dict(last.options)["num_ctx"] == 1024, "with another window than that of missions Ollama would load the model anew"
    assert last.user.startswith("### Task:\nGenerate a title")
    assert last.user.endswith("Only the title, please")
    if long == "history":
        assert last.turns == (("(Earlier messages of this conversation are left out.)\n\nThen", "Yes"),)
    else:
        assert "characters of the request are left out here" in last.user


async def test_a_chore_that_cannot_fit_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path, Narrow(100)) as kernel, chat_client(kernel) as client:
        told = await client.post("/v1/chat/completions", json={"model": "batos", "messages": [user(f"### Task:\n{LONG}")]})
    assert told.status_code == 500
    assert "inference.window" in told.json()["error"]["message"]


async def test_plain_is_the_model_itself(kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference) -> None:
    told = await client.post(
        "/v1/chat/completions",
        json={
            "model": "batos:plain", "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.25, "max_tokens": 9,
            "messages": [{"role": "system", "content": "Be brief"}, user("One"), assistant("Two"), user("Three")],
        },
    )  # fmt: skip
    found = events(told.text)
    assert (
        "".join(one["choices"][0]["delta"].get("content", "") for one in found[:-1]).strip() == "Take one small step and look where it led."
    )
    assert (found[-1]["choices"], found[-1]["usage"]["prompt_tokens"]) == ([], 7)
    (request,) = inference.asked
    assert (request.system, request.turns, request.user) == ("Be brief", (("One", "Two"),), "Three")
    assert dict(request.options)["temperature"] == 0.25
    assert dict(request.options)["num_predict"] == 9
    assert await listed(kernel) == []


async def test_a_stream_tells_states_pieces_usage_and_the_end(client: httpx.AsyncClient) -> None:
    told = await client.post(
        "/v1/chat/completions", json={"model": "batos", "stream": True, "stream_options": {"include_usage": True}, "messages": [user(TEA)]}
    )
    assert told.headers["content-type"].startswith("text/event-stream")
    *chunks, usage = events(told.text)
    deltas = [one["choices"][0]["delta"] for one in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert any("SYNTHESIZING" in delta.get("reasoning_content", "") for delta in deltas)
    assert "".join(delta.get("content", "") for delta in deltas).strip() == "Take one small step and look where it led."
    assert chunks[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert usage["choices"] == []


async def test_a_schema_is_the_missions(client: httpx.AsyncClient) -> None:
    schema = {"type": "object", "properties": {"tea": {"type": "string"}}, "required": ["tea"]}
    form = {"type": "json_schema", "json_schema": {"name": "tea", "strict": True, "schema": schema}}
    assert json.loads(said(await completion(client, user(TEA), response_format=form))) == {"tea": "what of tea"}
    wrong = await completion(client, user(TEA), response_format={"type": "json_schema", "json_schema": {"schema": {"type": 7}}}, status=400)
    assert "not a valid JSON schema" in wrong["error"]["message"]


async def test_a_reader_that_leaves_ends_nothing(kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference) -> None:
    inference.hold()
    body = {"model": "batos", "messages": [user(TEA)], "stream": True}
    async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        mission = reply.headers["x-batos-mission"]
        await inference.came(1)
    inference.release()
    told = await completion(client, user(TEA))
    assert told["mission"] == mission
    assert len(inference.asked) == 1


async def test_a_failure_is_told_and_the_same_words_are_tried_anew(client: httpx.AsyncClient, inference: FakeInference) -> None:
    inference.fail_when = lambda request: InferenceFailed("the model is broken", cause="bad_request", model=request.model)
    reply = await client.post("/v1/chat/completions", json={"model": "batos", "messages": [user(TEA)]})
    assert (reply.status_code, reply.headers["x-should-retry"]) == (500, "false")
    assert reply.json()["error"]["type"] == "server_error"
    streamed = await client.post("/v1/chat/completions", json={"model": "batos", "messages": [user(TEA)], "stream": True})
    last = [line for line in streamed.text.split("\n") if line.startswith("data: ")][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["message"]
    inference.fail_when = lambda request: None
    assert said(await completion(client, user(TEA))) == "Take one small step and look where it led."


async def test_missions_under_way_beat(tmp_path: Path, inference: FakeInference) -> None:
    inference.hold()
    async with kernel_with_doors(tmp_path, inference, limits=(DoorLimits(beat_s=0.05),)) as kernel, chat_client(kernel) as client:
        body = {"model": "batos", "messages": [user(TEA)], "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply, asyncio.timeout(WAIT_S):
            async for line in reply.aiter_lines():
                if line.startswith(":"):
                    inference.release()
                if line == "data: [DONE]":
                    return
    raise AssertionError("the stream has no end")


async def test_a_stop_tells_readers_to_come_again(tmp_path: Path, inference: FakeInference) -> None:
    inference.hold()
    async with kernel_with_doors(tmp_path, inference) as kernel, chat_client(kernel) as client:
        body = {"model": "batos", "messages": [user(TEA)], "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            await inference.came(1)
            stopping = asyncio.create_task(kernel.doors.stop())  # type: ignore[union-attr]
            text = (await reply.aread()).decode()
        await stopping
        inference.release()
    assert "send the same turn again" in text
    assert "[DONE]" not in text


# --- Ollama


async def test_ollama_lists_and_describes_the_models(client: httpx.AsyncClient) -> None:
    tags = (await client.get("/api/tags")).json()["models"]
    assert tags[0]["name"] == "batos:latest"
    assert "batos:robin" in [one["name"] for one in tags]
    shown = (await client.post("/api/show", json={"model": "batos:latest"})).json()
    assert "tools" in shown["capabilities"]
    assert shown["model_info"]["batos.context_length"] > 0
    version = (await client.get("/api/version")).json()["version"]
    assert all(part.isdecimal() for part in version.split("."))
    assert (await client.post("/api/show", json={"model": "llama3"})).status_code == 404


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_ollama_streams_lines(client: httpx.AsyncClient, path: str) -> None:
    asked = {"prompt": TEA} if path == "/api/generate" else {"messages": [user(TEA)]}
    reply = await client.post(path, json={"model": "batos", "think": True, **asked})
    assert reply.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in reply.text.splitlines()]
    texts = [one["response"] if path == "/api/generate" else one["message"]["content"] for one in lines]
    assert "".join(texts).strip() == "Take one small step and look where it led."
    assert [one["done"] for one in lines] == [False] * (len(lines) - 1) + [True]
    assert any("SYNTHESIZING" in str(one) for one in lines)
    whole = (await client.post(path, json={"model": "batos", "stream": False, **asked})).json()
    assert (whole["done"], whole["done_reason"]) == (True, "stop")
    loaded = (await client.post(path, json={"model": "batos"})).json()
    assert loaded["done_reason"] == "load"


async def test_images_are_those_of_the_mission(kernel: Kernel, client: httpx.AsyncClient) -> None:
    url = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}
    refused = await completion(client, {"role": "user", "content": [{"type": "text", "text": "What is it?"}, url]}, status=400)
    assert "fetches none" in refused["error"]["message"]
    wrong = base64.b64encode(b"GIF89a" + bytes(20)).decode()
    reply = await client.post("/api/chat", json={"model": "batos", "messages": [{**user("What is it?"), "images": [wrong]}]})
    assert (reply.status_code, "GIF" in reply.json()["error"]) == (400, True)


# --- words


def test_answers_are_recognised_in_what_clients_keep_of_them() -> None:
    assert is_answer("Take one\n step.", "Take one step.")
    assert is_answer("Take one", "Take one step."), "its reader left before the end"
    assert is_answer("A first try\n\n---\n\nTake one step.", "Take one step.")
    assert not is_answer("Take two", "Take one step.")
    assert not is_answer("", "Take one step.")
    assert not is_answer("Take one step.", "")
    assert visible_text('<details type="reasoning"><summary>s</summary>x</details>A <details><summary>kept</summary></details>') == (
        "A <details><summary>kept</summary></details>"
    )
    assert visible_text("<think>no</think>yes <think>open") == "yes <think>open"


# --- the socket


async def test_nothing_is_loaded_before_somebody_connects_and_a_taken_address_is_no_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        async with kernel_with_doors(tmp_path / "a", doors_enabled="auto", doors_listen=listen) as kernel:
            assert kernel.doors is None
            assert kernel.info()["doors"] is None
        with pytest.raises(EndpointError, match=r"doors\.listen"):
            async with kernel_with_doors(tmp_path / "b", doors_listen=listen):
                pass
    async with kernel_with_doors(tmp_path / "c") as kernel:
        assert not (tmp_path / "c" / "doors.turns").exists()
        async with chat_client(kernel) as client:
            assert (await client.get("/")).text == "Ollama is running"
        assert kernel.info()["doors"] == kernel.doors.address  # type: ignore[union-attr]


async def test_a_damaged_log_of_turns_costs_only_the_links(tmp_path: Path) -> None:
    (tmp_path / "doors.turns").write_bytes(b"no database" * 100)
    async with kernel_with_doors(tmp_path) as kernel, chat_client(kernel) as client:
        first = await completion(client, user(TEA))
        second = await completion(client, user(TEA), assistant(said(first)), user("Why?"))
        third = await completion(client, user(TEA), assistant(said(first)), user("Why?"), assistant(said(second)), user("And then?"))
        rows = {one["id"]: one for one in await listed(kernel)}
    assert rows[third["mission"]]["context"] == second["mission"]
