"""OpenAI's Responses interface: turns that follow others, the events of a stream, responses of known missions."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatReply, ChatRequest
from batos.console.api_client import Asker
from batos.doors.access import DoorLimits
from batos.errors import InferenceFailed
from tests.support.doors import assistant, chat_client, kernel_with_doors, user
from tests.support.missions import WAIT_S, FakeInference, answer
from tests.support.pictures import png

TEA = "Which tea shall I drink in the evening?"
STEP = "Take one small step and look where it led."
Fields = dict[str, Any]


@pytest.fixture
def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with kernel_with_doors(tmp_path, inference) as made:
        yield made


@pytest.fixture
async def client(kernel: Kernel) -> AsyncIterator[httpx.AsyncClient]:
    async with chat_client(kernel) as made:
        yield made


async def responded(client: httpx.AsyncClient, given: Any, status: int = 200, **more: Any) -> Fields:
    """The body of a whole response."""
    reply = await client.post("/v1/responses", json={"model": "batos", "input": given, **more})
    assert reply.status_code == status, reply.text
    told: Fields = reply.json()
    return told


def text_of(response: Fields) -> str:
    """The text of a response's message."""
    (message,) = [one for one in response["output"] if one["type"] == "message"]
    return str(message["content"][0]["text"])


async def heard(client: httpx.AsyncClient, given: Any, **more: Any) -> list[Fields]:
    """The events of a streamed response, each under its own name, in the order of their numbers."""
    reply = await client.post("/v1/responses", json={"model": "batos", "input": given, "stream": True, **more})
    assert reply.headers["content-type"].startswith("text/event-stream"), reply.text
    return events_of(reply.text)


def events_of(body: str) -> list[Fields]:
    """The events of a stream."""
    found = []
    for block in body.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            name, data = lines
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    return found


async def rows(kernel: Kernel) -> dict[str, Fields]:
    """The missions of users, by their ids."""
    found = await Asker(kernel.transport.dispatcher, kernel.settings).ask("missions", system=False)
    return {one["id"]: one for one in found["missions"]}


def mission_of(response: Fields) -> str:
    """The mission of a response that answers no question."""
    return str(response["id"]).removeprefix("resp_")


# --- whole


async def test_a_turn_is_a_response(client: httpx.AsyncClient) -> None:
    told = await responded(client, TEA, metadata={"of": "me"}, instructions="Be brief")
    assert (told["object"], told["status"], told["model"], text_of(told)) == ("response", "completed", "batos", STEP)
    assert (told["error"], told["incomplete_details"], told["metadata"], told["instructions"]) == (None, None, {"of": "me"}, "Be brief")
    assert told["store"] is True, "a mission is kept"
    reasoning, message = told["output"]
    assert "SYNTHESIZING" in reasoning["summary"][0]["text"]
    assert (message["role"], message["status"]) == ("assistant", "completed")
    usage = told["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"] > 0
    assert await responded(client, TEA, metadata={"of": "you"}, instructions="Be brief") == {
        **told, "created_at": pytest.approx(told["created_at"], abs=60), "metadata": {"of": "you"}, "output": [message],
    }, "sent again: the same mission"  # fmt: skip


async def test_input_of_items_is_a_conversation_and_its_images_are_the_missions(
    kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference
) -> None:
    inference.say = lambda request: answer(request) if request.schema is not None else "A square of many colours lies there."
    picture = base64.b64encode(png(16, 16)).decode()
    told = await responded(
        client,
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"id": "rs_1", "type": "reasoning", "summary": []},
            {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi.", "annotations": []}]},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What do you see in this picture?"},
                    {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{picture}"},
                ],
            },
        ],
    )
    row = (await rows(kernel))[mission_of(told)]
    assert "User: Hello\nAssistant: Hi.\n\nThe user says now:\nWhat do you see in this picture?" in row["brief"]
    assert any(one.images for one in inference.asked)


async def test_a_schema_is_the_missions(client: httpx.AsyncClient) -> None:
    schema = {"type": "object", "properties": {"tea": {"type": "string"}}, "required": ["tea"]}
    form = {"format": {"type": "json_schema", "name": "tea", "schema": schema, "strict": True}}
    told = await responded(client, TEA, text=form)
    assert json.loads(text_of(told)) == {"tea": "what of tea"}
    assert told["text"]["format"]["name"] == "tea"
    again = (await client.get(f"/v1/responses/{told['id']}")).json()
    assert json.loads(text_of(again)) == {"tea": "what of tea"}


async def test_a_plain_model_responds_and_keeps_nothing(kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference) -> None:
    told = await responded(client, [user("One"), assistant("Two"), user("Three")], model="batos:plain", max_output_tokens=9)
    assert (told["store"], text_of(told)) == (False, STEP)
    (request,) = inference.asked
    assert (request.turns, dict(request.options)["num_predict"]) == ((("One", "Two"),), 9)
    assert await rows(kernel) == {}
    assert (await client.get(f"/v1/responses/{told['id']}")).status_code == 404
    refused = await responded(client, "Four", 404, previous_response_id=told["id"])
    assert "send `input` whole" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("given", "more", "words"),
    [
        ([{"role": "user", "content": [{"type": "input_file", "file_data": "x"}]}], {}, "input_file"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.org/a.png"}]}], {}, "fetches none"),
        ([{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}], {}, "input_image"),
        ([{"type": "function_call_output", "call_id": "c", "output": "1"}], {}, "tools of their own"),
        ([{"type": "item_reference", "id": "msg_1"}], {}, "item_reference"),
        ([{"role": "robot", "content": "Hello"}], {}, "robot"),
        ("Hello", {"conversation": "conv_1"}, "conversation"),
        ("Hello", {"prompt": {"id": "p"}}, "prompt"),
        ("Hello", {"text": {"format": {"type": "grammar"}}}, "text.format"),
        ("Hello", {"model": "batos:plain", "background": True}, "background"),
        ("", {}, "no text"),
        ([], {}, "nothing to answer"),
    ],
)
async def test_what_is_not_taken_is_refused_in_words(
    kernel: Kernel, client: httpx.AsyncClient, given: Any, more: Fields, words: str
) -> None:
    assert words in (await responded(client, given, 400, **more))["error"]["message"]
    assert await rows(kernel) == {}


# --- what a turn follows


async def test_the_next_turn_follows_the_response_that_it_names(kernel: Kernel, client: httpx.AsyncClient) -> None:
    first = await responded(client, TEA)
    second = await responded(client, "And in the morning?", previous_response_id=first["id"])
    third = await responded(client, "And at noon?", previous_response_id=second["id"], instructions="Be brief")
    branch = await responded(client, [user("At sea?")], previous_response_id=first["id"])
    found = await rows(kernel)
    assert [found[mission_of(one)].get("context") for one in (first, second, third, branch)] == [
        None, mission_of(first), mission_of(second), mission_of(first),
    ]  # fmt: skip
    assert found[mission_of(second)]["brief"] == "And in the morning?"
    assert found[mission_of(third)]["brief"] == "Instructions for this conversation:\nBe brief\n\nThe user says now:\nAnd at noon?"
    assert second["previous_response_id"] == first["id"]
    missing = await responded(client, "And then?", 404, previous_response_id="resp_nothing")
    assert "nothing" in missing["error"]["message"]


async def test_a_question_is_a_response_and_the_turn_that_names_it_answers(tmp_path: Path, inference: FakeInference) -> None:
    def say(request: ChatRequest) -> str:
        if request.schema is None:
            return f"Noted: {'by the window' if 'by the window' in str(request) else 'nothing'}."
        asks = {"question_to_the_user": "At what time, and where?"} if "question_to_the_user" in request.schema["properties"] else {}
        return json.dumps({**json.loads(answer(request)), **asks})

    inference.say = say
    async with kernel_with_doors(tmp_path, inference, limits=(DoorLimits(plan_questions=True),)) as kernel, chat_client(kernel) as client:
        first = await responded(client, "Help me to find a restaurant for Friday")
        assert text_of(first) == "At what time, and where?"
        second = await responded(client, "At eight, by the window", previous_response_id=first["id"])
        assert (second["id"], text_of(second)) == (f"{first['id']}.1", "Noted: by the window.")
        asked = len(inference.asked)
        again = await responded(client, "At eight, by the window", previous_response_id=first["id"])
        assert (text_of(again), len(inference.asked)) == (text_of(second), asked), "the same turn again"
        other = await responded(client, "At nine", 400, previous_response_id=first["id"])
        assert "was answered already" in other["error"]["message"]
        third = await responded(client, "And for Sunday?", previous_response_id=second["id"])
        assert (await rows(kernel))[mission_of(third)]["context"] == mission_of(first)
        for known in (first, second):
            assert text_of((await client.get(f"/v1/responses/{known['id']}")).json()) == text_of(known)


# --- streams


async def test_a_stream_tells_each_step_in_its_order(client: httpx.AsyncClient) -> None:
    found = await heard(client, TEA)
    kinds = [one["type"] for one in found]
    assert [kind for at, kind in enumerate(kinds) if not kind.endswith(".delta") or kinds[at - 1] != kind] == [
        "response.created", "response.in_progress",
        "response.output_item.added", "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "response.output_item.done",
        "response.output_item.added", "response.content_part.added", "response.output_text.delta",
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.completed",
    ]  # fmt: skip
    deltas = "".join(one["delta"] for one in found if one["type"] == "response.output_text.delta")
    last = found[-1]["response"]
    assert deltas.strip() == text_of(last) == STEP
    assert [one["type"] for one in last["output"]] == ["reasoning", "message"]
    assert {one["response"]["id"] for one in found if "response" in one} == {last["id"]}
    assert found[0]["response"]["status"] == "in_progress"
    assert last["usage"]["total_tokens"] > 0
    indexes = [(one["output_index"], one["item_id"]) for one in found if "item_id" in one]
    assert all(last["output"][index]["id"] == item for index, item in indexes)


async def test_a_stream_of_a_plain_model_has_only_the_message(client: httpx.AsyncClient) -> None:
    found = await heard(client, TEA, model="batos:plain")
    assert found[-1]["type"] == "response.completed"
    assert [one["type"] for one in found[-1]["response"]["output"]] == ["message"]


async def test_a_failure_is_an_event_and_a_status(client: httpx.AsyncClient, inference: FakeInference) -> None:
    inference.fail_when = lambda request: InferenceFailed("the model is broken", cause="bad_request", model=request.model)
    found = await heard(client, TEA)
    last = found[-1]
    assert (last["type"], last["response"]["status"], last["response"]["error"]["code"]) == ("response.failed", "failed", "server_error")
    looked = (await client.get(f"/v1/responses/{last['response']['id']}")).json()
    assert (looked["status"], looked["error"]) == ("failed", last["response"]["error"])
    refused = await responded(client, "And then?", 400, previous_response_id=looked["id"])
    assert "failed" in refused["error"]["message"]
    reply = await client.post("/v1/responses", json={"model": "batos", "input": TEA})
    assert (reply.status_code, reply.headers["x-should-retry"]) == (500, "false")


class CutShort(FakeInference):
    """A model that always comes to its greatest length."""

    async def chat(self, request: ChatRequest, **more: Any) -> ChatReply:
        return dataclasses.replace(await super().chat(request, **more), done_reason="length")


async def test_an_answer_that_came_to_its_greatest_length_is_incomplete(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path, CutShort()) as kernel, chat_client(kernel) as client:
        last = (await heard(client, TEA, model="batos:plain"))[-1]
        assert last["type"] == "response.incomplete"
        for told in (last["response"], await responded(client, TEA, model="batos:plain")):
            assert (told["status"], told["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
            assert told["output"][-1]["status"] == "incomplete"


async def test_a_stop_is_an_event_and_the_response_goes_on(tmp_path: Path, inference: FakeInference) -> None:
    inference.hold()
    async with kernel_with_doors(tmp_path, inference, limits=(DoorLimits(beat_s=0.05),)) as kernel, chat_client(kernel) as client:
        async with client.stream("POST", "/v1/responses", json={"model": "batos", "input": TEA, "stream": True}) as reply:
            lines = reply.aiter_lines()
            async with asyncio.timeout(WAIT_S):
                async for line in lines:
                    if line.startswith(":"):  # it beats while nothing comes
                        break
            stopping = asyncio.create_task(kernel.doors.stop())  # type: ignore[union-attr]
            rest = [line async for line in lines]
        await stopping
        inference.release()
    last = json.loads([line for line in rest if line.startswith("data: ")][-1].removeprefix("data: "))
    assert (last["type"], last["code"]) == ("error", "busy")
    assert "send the same turn again" in last["message"]


# --- known missions


async def test_what_goes_on_in_the_background_is_looked_at_heard_and_cancelled(client: httpx.AsyncClient, inference: FakeInference) -> None:
    inference.hold()
    begun = await responded(client, TEA, background=True)
    assert (begun["status"], begun["background"], begun["output"]) == ("in_progress", True, [])
    path = f"/v1/responses/{begun['id']}"
    assert (await client.get(path)).json()["status"] == "in_progress"
    async with client.stream("GET", path, params={"stream": "true"}) as reply:
        inference.release()
        found = events_of((await reply.aread()).decode())
    assert (found[-1]["type"], text_of(found[-1]["response"])) == ("response.completed", STEP)
    assert text_of((await client.get(path)).json()) == STEP
    assert (await client.post(f"{path}/cancel")).json()["status"] == "completed", "it has ended"
    inference.hold()
    other = await responded(client, "And at sea?", background=True)
    cancelled = await client.post(f"/v1/responses/{other['id']}/cancel")
    inference.release()
    assert cancelled.json()["status"] == "cancelled", cancelled.text
    assert (await client.get(f"/v1/responses/{other['id']}")).json()["status"] == "cancelled"


@pytest.mark.parametrize(("path", "status"), [("resp_none", 404), ("resp_none.1", 404), ("resp_%20", 400), ("resp_none/cancel", 404)])
async def test_an_unknown_response_is_said_to_be_none(client: httpx.AsyncClient, path: str, status: int) -> None:
    reply = await client.get(f"/v1/responses/{path}")
    assert (reply.status_code, bool(reply.json()["error"]["message"])) == (status, True)
    assert (await client.post("/v1/responses/resp_none/cancel")).status_code == 404


async def test_events_that_were_told_are_not_kept(client: httpx.AsyncClient) -> None:
    told = await responded(client, TEA)
    reply = await client.get(f"/v1/responses/{told['id']}", params={"stream": "true", "starting_after": 3})
    assert (reply.status_code, "starting_after" in reply.json()["error"]["message"]) == (400, True)
