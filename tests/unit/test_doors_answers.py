"""What comes of a turn: leave for tools given in the chat, calls of tools as reasoning, citations, images."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.image import grants
from batos.memory.records import Passage, Section, Shelf
from batos.memory.store import library_of
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolCall, ToolDefinition
from batos.tools.toolbox import Toolbox
from tests.support.doors import assistant, chat_client, completion, events, kernel_with_doors, said, user
from tests.support.missions import FakeInference, answer, give
from tests.support.pictures import png

WRITE = ToolDefinition(
    name="write_note",
    description="Write a note to a file.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string", "description": "file"}, "text": {"type": "string", "description": "text of the note"}},
        "required": ["path", "text"],
    },
    kind="idempotent",
    untrusted=False,
)
MILLER = "Its last miller was Joaquim Fernandes, who kept a diary of every tide."
TIDE = "The tide mill at Olhao was built in 1840 and ground maize until 1975."


class Desk:
    """A place where notes are written."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []

    async def tools(self) -> Sequence[ToolDefinition]:
        return [WRITE]

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        async def send(delivery: Delivery) -> Any:
            self.written.append((arguments["path"], arguments["text"]))
            return {"written": arguments["path"]}

        return ToolCall(connection="desk", tool=tool, arguments=arguments, send=send, seconds=5, target="desk")

    async def close(self) -> None:
        pass


class Recalls:
    """Memory, as far as missions see it."""

    async def recall(self, question: str) -> Sequence[int]:
        return [1, 2]


async def with_desk(kernel: Kernel, folder: Path) -> Desk:
    """Give a kernel the connection `desk`."""
    desk, held = Desk(), kernel.attempt_services.toolbox
    assert held is not None
    box = Toolbox(kernel.image, ConnectorServices(secret=str, folder=folder), held.state, lambda spec, services: desk)
    await box.add(ConnectionSpec("desk", "http", "https://desk.example"))
    give(kernel, toolbox=box)
    return desk


def note(path: str, text: str) -> dict[str, str]:
    """A turn that asks for a note."""
    return user(f"Write a note to the file {path} with the text '{text}'")


# --- leave


async def test_leave_for_a_folder_is_given_in_the_chat_and_serves_the_next_turns(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path) as kernel, chat_client(kernel) as client:
        desk = await with_desk(kernel, tmp_path)
        turn = [note("plans/todo.txt", "buy tea")]
        asked = await completion(client, *turn)
        assert "desk.write_note" in said(asked)
        assert "buy tea" in said(asked), "the literal payload"
        assert "plans/*" in said(asked), "what `always` would let"
        assert desk.written == []
        turn += [assistant(said(asked)), user("Yes, always in this folder.")]
        done = await completion(client, *turn)
        assert done["mission"] == asked["mission"]
        assert desk.written == [("plans/todo.txt", "buy tea")]
        assert said(await completion(client, *turn)) == said(done), "the same turn again"
        assert len(desk.written) == 1
        turn += [assistant(said(done)), note("plans/more.txt", "call Kim")]
        assert "May this mission" not in said(await completion(client, *turn))
        assert desk.written[1:] == [("plans/more.txt", "call Kim")]
        elsewhere = await completion(client, note("secrets/keys.txt", "call Kim"))
        assert "May this mission" in said(elsewhere), "only in that folder"
        (made,) = [one.grant for one in kernel.image.read(grants.all_grants, 0.0) if one.grant.mission == ""]
        assert (made.pattern, "plans/*" in made.args) == ("desk.write_note", True)


@pytest.mark.parametrize(("words", "written"), [("Yes, please", 1), ("no, not now", 0), ("no, never", 0)])
async def test_an_answer_in_the_words_of_a_chat_decides(tmp_path: Path, words: str, written: int) -> None:
    async with kernel_with_doors(tmp_path) as kernel, chat_client(kernel) as client:
        desk = await with_desk(kernel, tmp_path)
        turn = note("todo.txt", "buy tea")
        asked = await completion(client, turn)
        await completion(client, turn, assistant(said(asked)), user(words))
        assert len(desk.written) == written


async def test_what_is_no_answer_is_asked_again_and_then_answered(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path) as kernel, chat_client(kernel) as client:
        desk = await with_desk(kernel, tmp_path)
        turn = [note("todo.txt", "buy tea")]
        turn += [assistant(said(await completion(client, *turn))), user("What would it write?")]
        again = said(await completion(client, *turn))
        assert "is not an answer to this" in again
        assert desk.written == []
        turn += [assistant(again), user("Okay, just once")]
        await completion(client, *turn)
        assert desk.written == [("todo.txt", "buy tea")]


async def test_calls_of_tools_are_told_as_reasoning(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path) as kernel, chat_client(kernel) as client:
        await with_desk(kernel, tmp_path)
        await kernel.image.system(grants.add, grants.GrantRecord(0, grants.ALLOW, "desk.*"), 1.0)
        body = {"model": "batos", "messages": [note("todo.txt", "buy tea")], "stream": True}
        found = events((await client.post("/v1/chat/completions", json=body)).text)
        thought = "".join(one["choices"][0]["delta"].get("reasoning_content", "") for one in found)
        assert "desk.write_note" in thought
        assert "buy tea" in thought
        lines = (await client.post("/api/chat", json={**body, "messages": [note("more.txt", "buy milk")], "think": True})).text
        assert "desk.write_note" in lines


# --- citations


async def with_memory(kernel: Kernel) -> None:
    """Give a kernel notes about a mill."""

    def store(root: Any) -> None:
        section = Section(1, 1, 1, 2, 2, b"", "", 0, True)
        facts = {"title": "Mills", "source": "/notes/mills.md", "sources": ("/notes/mills.md",), "digest": b"d", "complete": True}
        library_of(root).put(root, 1, facts, [Shelf(section, (Passage(TIDE), Passage(MILLER)))], None, [1])

    await kernel.image.system(store)
    give(kernel, memory=Recalls())


async def test_citations_are_annotations_with_their_place(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path) as kernel, chat_client(kernel) as client:
        await with_memory(kernel)
        told = await completion(client, user("Look up who kept a diary of the tide"))
        (one,) = told["choices"][0]["message"]["annotations"]
        cited = one["url_citation"]
        assert (one["type"], cited["url"], cited["title"]) == ("url_citation", "file:///notes/mills.md", "Mills")
        assert said(told)[cited["start_index"] : cited["end_index"]] == "[2]"
        body = {"model": "batos", "messages": [user("Look up who kept a diary of the tide")], "stream": True}
        found = [each["choices"][0] for each in events((await client.post("/v1/chat/completions", json=body)).text)]
        assert [each["delta"]["annotations"] for each in found if "annotations" in each["delta"]] == [[one]]
        assert found[-1]["finish_reason"] == "stop"


# --- images


@pytest.mark.parametrize("way", ["openai", "ollama"])
async def test_an_image_reaches_the_inference_as_it_was_sent(tmp_path: Path, way: str) -> None:
    inference = FakeInference()
    inference.say = lambda request: answer(request) if request.schema is not None else "A square of many colours lies there."
    picture = base64.b64encode(png(16, 16)).decode()
    async with kernel_with_doors(tmp_path, inference) as kernel, chat_client(kernel) as client:
        reply = await asked_about(client, way, picture)
        assert reply.status_code == 200, reply.text
        seen: list[ChatRequest] = [one for one in inference.asked if one.images]
        assert seen
        assert all(one.images == ((picture,),) for one in seen)


async def asked_about(client: httpx.AsyncClient, way: str, picture: str) -> httpx.Response:
    """The reply to a turn with a picture."""
    text = "What do you see in this picture?"
    if way == "ollama":
        return await client.post("/api/chat", json={"model": "batos", "stream": False, "messages": [{**user(text), "images": [picture]}]})
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}]
    return await client.post("/v1/chat/completions", json={"model": "batos", "messages": [{"role": "user", "content": content}]})
