"""Models of the user's own, of six architectures, on a real Ollama: what BAT OS asks of them works, and nothing of another family's
leaks into it. Their weights are made here (see `tests.support.tiny_models`), so that it is known what each says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ollama import AsyncClient

from batos.bridge import capabilities, installed_models
from batos.bridge.admission import Fairness
from batos.bridge.client import OllamaInference, connect
from batos.bridge.hosts import ManagedHost
from batos.bridge.inference import ChatReply, ChatRequest
from batos.bridge.profiles import PERSONA_PREFIX, Voice, load_profile, on_model, with_personas
from batos.bridge.provisioning import Provisioner
from batos.bridge.residency import Residency
from tests.support.tiny_models import KINDS, created

MARKS = tuple(load_profile("embedded").options["stop"])
OPTIONS = {"num_ctx": 512, "num_predict": 24, "num_thread": 1, "temperature": 0.0, "seed": 1}
SCHEMA = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
SYSTEM, ANSWER = "You are ROBIN.", "Hello there, <|im_end|> you."
THINKS = {"qwen3", "qwen3-parsed", "gpt-oss"}
LOUD = {"qwen3-parsed", "gpt-oss"}
"""Those that think whether they are told to or not."""
TOOLS = {"qwen3", "qwen3-parsed", "llama3.2", "gpt-oss", "olmo3"}


@dataclass
class Model:
    """One of them, and the place that it is at."""

    kind: str
    name: str
    client: AsyncClient
    place: ManagedHost
    folder: Path

    async def ask(self, **more: Any) -> ChatReply:
        options = tuple(sorted({**OPTIONS, **more.pop("options", {})}.items()))
        heard: list[str] = []
        request = ChatRequest(self.name, SYSTEM, "Say hello.", options=options, **more)
        reply = await self.place.chat(request, deadline_s=60, on_text=heard.append)
        assert "".join(heard) == reply.text
        return reply


@pytest.fixture(scope="module")
def names(ollama_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The models by kind, made once."""
    with created(ollama_host, tmp_path_factory.mktemp("tiny"), KINDS) as made:
        yield made


@pytest.fixture(params=KINDS)
async def model(request: pytest.FixtureRequest, ollama_host: str, names: dict[str, str], tmp_path: Path) -> AsyncIterator[Model]:
    name = names[request.param]
    async with connect(ollama_host) as client:
        inference = OllamaInference(ollama_host, 2, OPTIONS)
        residency = Residency(client, 6_900_000_000, OPTIONS, Fairness(64, 600))
        place = ManagedHost(inference, residency, Provisioner(client, on_model("own", name, context=512, answer=24), tmp_path), marks=MARKS)
        yield Model(request.param, name, client, place, tmp_path)
        await place.close()


async def test_an_answer_streams_and_ends_where_the_model_ends_it(model: Model) -> None:
    """With the stop marks of another profile, the mark of which it says, and `think` on: none of it is the model's business."""
    reply = await model.ask(options={"stop": MARKS, "think": True})
    assert reply.done_reason == "stop"
    assert reply.text.strip() == (ANSWER if model.kind != "qwen3" else "Hello there,")  # its own template has that mark
    assert (reply.thinking.strip() == "hm") == (model.kind in LOUD)


async def test_thoughts_never_land_in_the_answer(model: Model) -> None:
    for think in ({}, {"think": True}, {"think": False}):
        reply = await model.ask(options=think)
        assert "hm" not in reply.text
        assert "channel" not in reply.text


async def test_what_it_can_do_is_found_out_once(model: Model) -> None:
    kept: dict[str, Any] = {}
    model.place.known.keep = lambda making, record: kept.update({making: record})
    can = await model.place.probe(model.name)
    assert can is not None
    assert (can.thinks, can.tools, can.vision, can.chats) == (model.kind in THINKS, model.kind in TOOLS, KINDS[model.kind].sees, True)
    assert can.silenced == (model.kind not in LOUD)
    assert can.probed == set(capabilities.ALL_PROBES)
    assert (can.parameters or 0) > 6_000_000
    assert can.context == 4096
    assert len(kept) == 1
    asked = []
    model.place.chat = lambda *a, **k: asked.append(a)  # type: ignore[method-assign,assignment]
    assert await model.place.probe(model.name) == can
    assert asked == []


async def test_a_schema_is_kept_to(model: Model) -> None:
    for think in ({}, {"think": False}):
        reply = await model.ask(schema=SCHEMA, options={"num_predict": 200, **think})
        assert isinstance(json.loads(reply.text)["sure"], bool), reply


async def test_the_context_is_as_it_was_asked_for(model: Model) -> None:
    digest, rows = await model.place.digest(model.name), []
    while not rows:  # once it has answered, it may have made room for another test's model before the list comes
        await model.ask()
        rows = [row for row in (await model.client.ps()).models if row.digest == digest]
    (row,) = rows
    assert row.context_length == (2048 if KINDS[model.kind].sees else OPTIONS["num_ctx"])  # Ollama gives no less to one that sees


async def test_a_personas_model_says_who_speaks_and_nothing_else(model: Model) -> None:
    profile = with_personas(
        on_model("own", model.name, context=512, answer=24), {"robin": Voice("robin", SYSTEM, 0.25)}, {"robin": model.name}
    )
    made = profile.personas["robin"]
    provisioner = Provisioner(model.client, profile.model_copy(update={"models": profile.models[:1]}), model.folder)
    states = {status.name: status for status in await provisioner.ensure()}
    assert states[made].state == "created"
    assert made.startswith(PERSONA_PREFIX)
    base, own = [await installed_models.show_model(model.client, name) for name in (model.name, made)]
    assert base is not None
    assert own is not None
    for same in ("template", "capabilities"):
        assert own.get(same) == base.get(same)
    assert own["system"] == SYSTEM
    kind = KINDS[model.kind]
    assert ("RENDERER" in own["modelfile"], "PARSER" in own["modelfile"]) == (bool(kind.renderer), bool(kind.parser))
    stops = {line.split(maxsplit=1)[1].strip('"') for line in own["parameters"].splitlines() if line.startswith("stop")}
    assert stops == set(kind.parameters.get("stop", ()))
    assert "temperature" in own["parameters"]
    assert {status.state for status in await provisioner.ensure()} == {"present"}


async def test_it_is_told_among_the_models_of_its_ollama(model: Model) -> None:
    (one,) = [one for one in await installed_models.list_models(model.client) if one.name == model.name]
    assert one.cache == 2 * 2 * 64 * 2  # two layers, two heads of 32: keys and values of 16 bits
    assert one.unfit(10**12).startswith("it is not larger than the model that comes with BAT OS")
    assert not replace(one, can=replace(one.can, parameters=10**9)).unfit(10**12)
