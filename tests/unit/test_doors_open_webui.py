"""Requests that Open WebUI made, recorded (tests/data/doors/open_webui.json), and the doors' answers to them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.app.kernel import Kernel
from batos.console.api_client import Asker
from tests.support.daemon import ROOT
from tests.support.doors import chat_client, events, kernel_with_doors

RECORDED: list[dict[str, Any]] = json.loads((ROOT / "tests" / "data" / "doors" / "open_webui.json").read_text())["requests"]
CHORES = ("title", "suggestions", "tags")


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with kernel_with_doors(tmp_path) as kernel:
        yield kernel


@pytest.fixture
async def client(kernel: Kernel) -> AsyncIterator[httpx.AsyncClient]:
    async with chat_client(kernel) as client:
        yield client


async def sent(client: httpx.AsyncClient, request: dict[str, Any], body: dict[str, Any] | None = None) -> httpx.Response:
    reply = await client.request(request["method"], request["path"], headers=request["headers"], json=body or request["body"])
    assert reply.status_code == 200, reply.text
    return reply


def recorded(what: str) -> dict[str, Any]:
    return next(one for one in RECORDED if one["what"] == what)


def told(reply: httpx.Response) -> str:
    """The text of a stream, whose form is checked."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = events(reply.text)
    assert {one["object"] for one in found} == {"chat.completion.chunk"}
    assert found[-1]["choices"][0]["finish_reason"] == "stop"
    deltas = [one["choices"][0]["delta"] for one in found]
    assert deltas[0]["role"] == "assistant"
    assert any("SYNTHESIZING" in one.get("reasoning_content", "") for one in deltas)
    return "".join(one.get("content", "") for one in deltas)


async def test_its_list_of_models(client: httpx.AsyncClient) -> None:
    listed = (await sent(client, recorded("models"))).json()
    assert listed["object"] == "list"
    assert {"batos", "batos:robin", "batos:plain"} <= {one["id"] for one in listed["data"]}


@pytest.mark.parametrize("request_", [one for one in RECORDED if one["what"] in CHORES], ids=lambda one: str(one["what"]))
async def test_its_chores_are_no_missions(kernel: Kernel, client: httpx.AsyncClient, request_: dict[str, Any]) -> None:
    reply = await sent(client, request_)
    assert reply.json()["choices"][0]["message"]["content"]
    assert "x-batos-mission" not in reply.headers
    assert (await Asker(kernel.transport.dispatcher, kernel.settings).ask("missions", system=False))["missions"] == []


async def test_its_turns_follow_each_other(kernel: Kernel, client: httpx.AsyncClient) -> None:
    first, after = recorded("turn"), recorded("next")
    reply = await sent(client, first)
    messages = [dict(one) for one in after["body"]["messages"]]
    assert [one["role"] for one in messages] == ["user", "assistant", "user"]
    messages[1]["content"] = told(reply)  # where the recorded answer stands
    second = await sent(client, after, {**after["body"], "messages": messages})
    assert told(second)
    status = await Asker(kernel.transport.dispatcher, kernel.settings).ask("status", id=second.headers["x-batos-mission"])
    assert status["context"] == reply.headers["x-batos-mission"]
    assert status["brief"] == messages[2]["content"]


async def test_regenerate_is_another_turn(client: httpx.AsyncClient) -> None:
    first, again = recorded("turn"), recorded("regenerate")
    assert first["body"] == again["body"], "nothing in the request tells one from the other"
    ids = [(await sent(client, one)).headers["x-batos-mission"] for one in (first, again)]
    assert ids[0] != ids[1]
