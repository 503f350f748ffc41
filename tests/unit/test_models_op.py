"""The `models` op at the desk: the list, asking for what is missing, and hearing of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from batos.app.kernel import Kernel
from batos.config import load
from batos.errors import InvalidRequest
from batos.testing import ScriptedOllama
from batos.wire.client import Client
from tests.support.daemon import provisioned
from tests.support.wire import raw, receive

MODELS = {"smollm2:embedded", "minilm:embedded", "robin:embedded", "brick:embedded", "babs:embedded", "alfred:embedded"}


@pytest.fixture
async def client(tmp_path: Path, scripted: ScriptedOllama) -> AsyncIterator[Client]:
    provisioned(scripted)
    scripted.pullable |= {"big:8b"}
    settings = load(
        {"data": str(tmp_path), "listen": ("tcp://127.0.0.1:*",), "ollama_host": scripted.host, "autotelic": "off", "shutdown_s": 1},
        environ={},
    )
    kernel = await Kernel.start(settings)
    try:
        async with Client(kernel.endpoints[0]) as made:
            yield made
    finally:
        await kernel.stop()


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [e["type"] for e in events if e["type"] != "progress"]


async def test_the_list_and_some_of_it(client: Client) -> None:
    reply = await client.models(ensure=True)
    assert {m["name"] for m in reply["models"]} == MODELS
    assert all(m["state"] in ("present", "created") for m in reply["models"])
    assert [m["name"] for m in (await client.models(["robin:embedded"]))["models"]] == ["robin:embedded"]
    assert (await client.models())["under_way"] is False


async def test_what_is_missing_comes_with_its_steps(client: Client, scripted: ScriptedOllama) -> None:
    await client.models(ensure=True)
    del scripted.models["robin:embedded"]
    events = [e async for e in client.watch_models(["robin:embedded", "big:8b"], ensure=True)]
    assert events[0]["watching"]
    asked = {(e["name"], e["state"]) for e in events if e["type"] == "model" and e["name"] != "smollm2:embedded"}  # but for the base
    assert asked == {("robin:embedded", "created"), ("big:8b", "pulled")}
    layers = [(e["completed"], e["total"]) for e in events if e.get("layer")]
    assert layers == [(1, 2), (2, 2)]
    assert kinds(events)[0] == kinds(events)[-1] == "models"
    assert {m["name"]: m["state"] for m in events[-1]["models"]} == {"robin:embedded": "created", "big:8b": "pulled"}
    assert "big:8b" in {m["name"] for m in (await client.models())["models"]}


async def test_what_cannot_be_had_is_said(client: Client) -> None:
    [model] = (await client.models(["nowhere:1"], ensure=True))["models"]
    assert (model["state"], "file does not exist" in model["detail"]) == ("failed", True)
    assert "(then ask again), or run `ollama pull nowhere:1`" in model["remedy"]
    assert {m["name"] for m in (await client.models())["models"]} == MODELS  # a name that was mistyped is not tried for ever


async def test_a_watch_ends_when_all_is_quiet(client: Client, scripted: ScriptedOllama) -> None:
    await client.models(ensure=True)
    scripted.fail("slow", times=1, path="/api/pull")
    pulling = asyncio.create_task(client.models(["big:8b"], ensure=True))
    await asyncio.to_thread(scripted.wait_for, "/api/pull", 1)
    watch = client.watch_models()
    first = await anext(watch)
    assert (first["under_way"], first["watching"]) == (True, True)
    scripted.release()
    rest = [e async for e in watch]
    assert rest[-1]["type"] == "models"
    assert rest[-1]["under_way"] is False
    assert (await pulling)["models"][0]["state"] == "pulled"


async def test_a_client_that_leaves_does_not_stop_a_pull(client: Client, scripted: ScriptedOllama) -> None:
    scripted.fail("slow", times=1, path="/api/pull")
    async with Client(client.endpoint) as other:
        watch = other.watch_models(["big:8b"], ensure=True)
        await anext(watch)
        await asyncio.to_thread(scripted.wait_for, "/api/pull", 1)
        await watch.aclose()
    scripted.release()
    assert (await client.models(["big:8b"], ensure=True))["models"][0]["state"] in ("pulled", "present")
    assert scripted.counts["/api/pull"] == 1


async def test_asked_twice_under_one_mark_it_is_one_watch(client: Client, scripted: ScriptedOllama) -> None:
    """As a client does that heard nothing for a while."""
    await client.models(ensure=True)
    scripted.fail("slow", times=1, path="/api/pull")
    async with raw(zmq.DEALER, client.endpoint) as dealer:
        request = {"op": "models", "names": ["big:8b"], "ensure": True, "watch": True, "ref": "one"}
        await dealer.send_json(request)
        first = await receive(dealer)
        await asyncio.to_thread(scripted.wait_for, "/api/pull", 1)
        await dealer.send_json(request)
        again = await receive(dealer)
        while again["type"] != "models":  # a step may come between
            again = await receive(dealer)
        assert (first["watching"], again["watching"]) == (True, True)
        scripted.release()
        rest = [await receive(dealer)]
        while rest[-1]["type"] != "models":
            rest.append(await receive(dealer))
        await dealer.send_json({"op": "models", "ref": "after"})  # nothing else was to come under the mark
        while rest[-1]["ref"] != "after":
            rest.append(await receive(dealer))
    assert kinds(rest[:-1]).count("model") == 1
    assert kinds(rest[:-1]).count("models") == 1


@pytest.mark.parametrize("name", ["", "a b", "x" * 513, "a\n"])
async def test_names_that_are_none(client: Client, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await client.models([name], ensure=True)


async def test_a_message_waits_for_no_pull_where_no_expert_is_to_come(
    tmp_path: Path, scripted: ScriptedOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the handbook knows needs no model, and a pull may take longer than the mission has."""
    provisioned(scripted)
    (tmp_path / "staging").mkdir()
    given = {"data": str(tmp_path), "ollama_host": scripted.host, "autotelic": "off", "lora_staging": str(tmp_path / "staging")}
    kernel = await Kernel.start(load(given, environ={}), listen=False)
    try:
        monkeypatch.setattr(kernel.substrate, "settled", asyncio.Event().wait)  # as while a model is pulled
        async with asyncio.timeout(90):
            await kernel.methods.writer_known()
    finally:
        await kernel.stop()
