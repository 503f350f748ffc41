"""A daemon that thinks with models of its user's own Ollama: by itself, by name, by another from now on; and what it leaves there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.model_management import remove_own_models
from batos.bridge.profiles import load_profile
from batos.config import load, load_with_sources
from batos.errors import InvalidInput, OllamaUnavailable
from batos.image import model_registry
from batos.testing import ScriptedOllama
from batos.wire.client import Client
from tests.support.daemon import provisioned
from tests.support.own_model import CHAT, THINKING, settings

BIG, BIGGER = "qwen3:8b", "llama3.3:70b"
Start = Callable[..., Awaitable[Kernel]]


@pytest.fixture
def server(scripted: ScriptedOllama) -> ScriptedOllama:
    """An Ollama with two models of its user's, of which one fits."""
    provisioned(scripted)
    for name, billions, template in ((BIG, 8, THINKING), (BIGGER, 70, CHAT)):
        info = (("general.parameter_count", billions * 10**9), ("llama.context_length", 32_768))
        weights = replace(scripted.models["robin:embedded"], template=template, can=("completion", "tools"), info=info)
        scripted.models[name] = replace(weights, weights=f"{billions:064x}")
    scripted.runners.sizes.update({BIG: 5 * 10**9, BIGGER: 40 * 10**9})
    scripted.say("Take one small step and look where it led.")
    return scripted


@pytest.fixture
async def start(tmp_path: Path, server: ScriptedOllama) -> AsyncIterator[Start]:
    running: list[Kernel] = []

    async def begin(**given: Any) -> Kernel:
        for kernel in running:
            await kernel.stop()
        running[:] = [await Kernel.start(settings(tmp_path, server, **given))]
        await running[0].models_settled()
        return running[0]

    yield begin
    for kernel in running:
        await kernel.stop()


async def answered(kernel: Kernel, persona: str = "robin") -> dict[str, Any]:
    async with Client(kernel.endpoints[0]) as client:
        accepted = await client.submit("What is courage?", persona=persona)
        return await client.result(accepted.id, timeout_s=60)


def voices(server: ScriptedOllama) -> set[str]:
    return {chat["model"] for chat in server.chats}


async def test_the_best_that_is_there_thinks_by_itself(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    info = kernel.info()
    assert (info["profile"], info["model"]) == ("own", BIG)
    assert BIG in info["why_model"]
    assert {m["name"]: m["state"] for m in info["models"]}["batos/robin:qwen3-8b"] == "created"
    assert (await answered(kernel))["text"]
    assert voices(server) == {"batos/robin:qwen3-8b"}
    made = server.models["batos/robin:qwen3-8b"]
    assert made.system.startswith("You are ROBIN. ")
    assert made.parameters["temperature"] == 0.8
    assert made.template == THINKING
    assert not any(request.path == "/api/pull" for request in server.requests)


async def test_what_is_sent_is_the_models_own(start: Start, server: ScriptedOllama) -> None:
    """No stop mark of another family, and no thought where nobody asked for one."""
    await answered(await start())
    for chat in server.chats:
        assert "stop" not in chat["options"]
        assert chat["think"] in (False, True)
    assert [chat["think"] for chat in server.chats[:2]] == [True, False]  # two tiny requests find out, once
    assert {chat["think"] for chat in server.chats[2:]} == {False}
    assert all(chat["options"]["num_ctx"] == 8192 for chat in server.chats)


async def test_what_was_found_out_is_known_after_a_restart(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    assert kernel.substrate.capabilities("robin") is not None
    await answered(kernel)
    can = kernel.substrate.capabilities("robin")
    assert can is not None
    assert "think" in can.probed
    assert (can.parameters, can.context, can.thinks, can.tools) == (8 * 10**9, 32_768, True, True)
    kernel = await start()
    assert kernel.image.read(model_registry.recall_capabilities)
    before = len(server.chats)
    await answered(kernel)
    assert {chat["think"] for chat in server.chats[before:]} == {False}


async def test_a_model_for_all_and_one_for_a_persona(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(model=f"{BIG},brick={BIGGER}")
    await answered(kernel, "robin")
    await answered(kernel, "brick")
    assert voices(server) == {"batos/robin:qwen3-8b", "batos/brick:llama3.3-70b"}


async def test_an_image_opens_with_whatever_profile_it_had(start: Start, server: ScriptedOllama) -> None:
    embedded: tuple[dict[str, Any], str] = {"profile": "embedded"}, "robin:embedded"
    for given, speaks in (embedded, ({}, "batos/robin:qwen3-8b"), embedded):
        kernel = await start(**given)
        assert (await answered(kernel))["text"]
        assert server.chats[-1]["model"] == speaks


async def test_another_model_from_now_on_and_back(start: Start, server: ScriptedOllama, tmp_path: Path) -> None:
    kernel = await start()
    async with Client(kernel.endpoints[0]) as client:
        with pytest.raises(InvalidInput, match=r"no model 'qwen3:9b' \(did you mean 'qwen3:8b'\?\); `batos models --fit`"):
            await client.use_model("qwen3:9b")
        with pytest.raises(InvalidInput, match="'robbin' is not a persona with its own model"):
            await client.use_model(f"robbin={BIG}")
        assert kernel.info()["model"] == BIG
        reply = await client.use_model(BIGGER)
        assert (reply["model"], reply["before"]) == (BIGGER, BIG)
        assert {m["state"] for m in reply["models"]} <= {"created", "present"}
        await answered(kernel)
        assert server.chats[-1]["model"] == "batos/robin:llama3.3-70b"
        assert kernel.reload(settings(tmp_path, server))["restart"] == []
        kernel = await start()
    assert kernel.info()["model"] == BIGGER
    _, sources = load_with_sources({"data": str(tmp_path)}, environ={})
    assert sources["inference.model"] == str(tmp_path / "chosen.toml")
    async with Client(kernel.endpoints[0]) as client:
        assert (await client.use_model("embedded"))["model"] == "smollm2:embedded"
        await answered(kernel)
        assert server.chats[-1]["model"] == "robin:embedded"
        await client.use_model(f"robin={BIG}")
        await answered(kernel)
        assert server.chats[-1]["model"] == "batos/robin:qwen3-8b"
        assert (await client.use_model("auto"))["model"] == BIG
    assert (await start()).info()["model"] == BIG
    assert (await start(model=BIGGER)).info()["model"] == BIGGER  # a flag goes before what was chosen


async def test_what_there_is_to_think_with(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    async with Client(kernel.endpoints[0]) as client:
        reply = await client.fit_models([BIG])
    rows = {row["name"]: row for row in reply["fit"]}
    assert rows.keys() == set(server.models)
    assert (rows[BIG]["in_use"], rows[BIG]["fits"], rows[BIG]["num_ctx"]) == (True, True, 8192)
    assert set(rows[BIG]["probed"]) == {"think", "format", "tools", "images", "context"}
    assert rows[BIGGER]["fits"] is False
    assert "inference.memory_bytes" in rows[BIGGER]["not_by_itself"]
    assert rows["robin:embedded"]["not_by_itself"] == "BAT OS made it, on another model"


async def test_a_model_that_auto_took_is_not_pulled_when_it_is_gone(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    server.pullable.add(BIG)
    del server.models[BIG], server.models["batos/robin:qwen3-8b"]
    async with Client(kernel.endpoints[0]) as client:
        states = {m["name"]: m for m in (await client.models(ensure=True))["models"]}
    assert states[BIG]["state"] == "failed"
    assert "the profile auto pulls nothing" in states[BIG]["detail"]
    assert server.counts["/api/pull"] == 0


async def test_what_was_made_is_taken_away_and_nothing_else(start: Start, server: ScriptedOllama, tmp_path: Path) -> None:
    kernel = await start()
    await kernel.stop()
    server.models["mine:1"] = server.models[BIG]
    server.models["alfred:embedded"] = replace(server.models["alfred:embedded"], system="changed by its user")
    before, wanted = set(server.models), settings(tmp_path, server)
    would = {one.name for one in await remove_own_models(wanted, dry=True)}
    assert set(server.models) == before
    assert {one.name for one in await remove_own_models(wanted)} == would
    assert would >= {"batos/robin:qwen3-8b", "batos/brick:qwen3-8b", "minilm:embedded"}
    assert {BIG, BIGGER, "mine:1", "alfred:embedded"} <= set(server.models)
    assert before - set(server.models) == would


async def test_nothing_is_taken_away_of_an_ollama_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(OllamaUnavailable, match=r"127\.0\.0\.1:9"):
        await remove_own_models(load({"data": str(tmp_path), "ollama_host": "127.0.0.1:9"}, environ={}))


def test_what_was_chosen_is_a_file_that_can_be_read(tmp_path: Path) -> None:
    from batos.config import choose

    choose(tmp_path, {"model": ("qwen3:8b", "robin=a:1")})
    choose(tmp_path, {"profile": "auto"})
    read = load({"data": str(tmp_path)}, environ={})
    assert (read.model, read.profile) == (("qwen3:8b", "robin=a:1"), "auto")
    assert load({"data": str(tmp_path)}, environ={"BATOS_MODEL": "b:2"}).model == ("b:2",)
    assert json.dumps(load_profile("embedded").options)  # plain values: they go over the wire
