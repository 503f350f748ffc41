"""Experts on a real Ollama: dropped into the folder, they speak."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from ollama import AsyncClient

from batos.bridge.client import connect
from batos.bridge.lora import adapters
from batos.bridge.modelfile import parse_modelfile
from tests.support import lora
from tests.support.daemon import Peer, daemon
from tests.support.lora import BASE, about, peft, stage, stage_ships_log, weights

QUICK = {"num_predict": 48, "facets_limit": 1, "lora_settle_s": 0.1, "lora_scan_s": 600, "provision_retry_s": 1}
SEA = ("ahoy", "captain", "starboard", "steady as she goes", "crow's nest")
ASKED = "<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def mark(ollama_host: str) -> Any:
    """A part of the names of this test's experts: their models, on the shared Ollama, go with it."""
    name = uuid.uuid4().hex[:8]
    yield name

    async def remove() -> None:
        async with connect(ollama_host) as client:
            for model in (await client.list()).models:
                if model.model and name in model.model:
                    await client.delete(model.model)

    asyncio.run(remove())


@pytest.fixture
async def client(ollama_host: str) -> AsyncIterator[AsyncClient]:
    async with connect(ollama_host) as made:
        yield made


def settled(peer: Peer) -> dict[str, Any]:
    """How it stands with the experts once none is on its way: what Ollama cannot do at a moment is tried again."""
    reply = peer.ask("experts", scan=True)
    while any(e["state"] == "intended" for e in reply["experts"]):
        print(reply)  # says what was in the way
        reply = peer.ask("experts", scan=True)
    return dict(reply)


def voiced(text: str) -> bool:
    return any(word in text.lower() for word in SEA)


def ask(peer: Peer, id: str, brief: str) -> dict[str, Any]:
    peer.ask("submit", id=id, brief=brief)
    end = peer.result(id)
    assert end["state"] == "COMPLETE", end
    return dict(end["result"])


def test_an_expert_dropped_into_the_folder_becomes_the_voice(tmp_path: Path, ollama_host: str, mark: str) -> None:
    model = f"babs:ships-log-{mark}-v1"
    with daemon(tmp_path, ollama_host=ollama_host, **QUICK) as running, Peer(running.endpoint) as peer:
        before = ask(peer, "before", "Look up lighthouses")
        assert not voiced(before["text"])
        folder = stage_ships_log(tmp_path / "lora_staging")
        about(folder, name=f"ships-log-{mark}")
        reply = peer.ask("experts", scan=True)
        assert [(e["model"], e["state"], e["speaks"]) for e in reply["experts"]] == [(model, "built", True)], reply
        after = [ask(peer, f"after-{n}", f"Look up {topic}") for n, topic in enumerate(("lighthouses", "elephants"))]
        assert all(result["usage"]["models"] == [model] for result in after)
        assert any(voiced(result["text"]) for result in after), after
        assert peer.ask("show", target="babs")["slots"]["voice"] == model

        async def delete() -> None:
            async with connect(ollama_host) as client:
                await client.delete(model)

        asyncio.run(delete())
        healed = ask(peer, "healed", "Look up bread")
        assert healed["usage"]["models"] == [model]
        assert peer.ask("experts", persona="babs", voice="plain")["voices"]["babs"] == {"choice": "plain", "model": ""}
        back = ask(peer, "back", "Look up lighthouses")
        assert back["usage"]["models"] == ["smollm2:embedded"], "nobody's voice: a small model does best with none"
        assert not voiced(back["text"])
        assert running.terminate() == 0
    assert running.noise == []


async def greedy(client: AsyncClient, model: str, tokens: int = 12) -> str:
    options = {"temperature": 0, "num_predict": tokens, "repeat_penalty": 1.0, "num_ctx": 2048}
    return str((await client.generate(model, ASKED, raw=True, options=options)).response)


@pytest.mark.long
async def test_every_form_of_an_adapter_says_the_same(tmp_path: Path, client: AsyncClient, ollama_host: str, mark: str) -> None:
    """PEFT as translated here, GGUF as given, and fused into weights of its own; q and k, whose rows are permuted, above all."""
    staging = tmp_path / "lora_staging"
    tensors = weights(("q_proj", "k_proj"), layers=lora.LAYERS, rank=4, scale=0.15, seed=4)
    config = {"r": 4, "lora_alpha": 8}
    stage(staging, "peft", tensors=tensors, config=config, name=f"peft-{mark}")
    about(staging / "gguf", name=f"gguf-{mark}")
    adapters.write_gguf(adapters.read(staging / "peft"), BASE, staging / "gguf" / "adapter.gguf")
    stage(staging, "fused", tensors=tensors, config=config, name=f"fused-{mark}", fuse=True)
    names = {form: f"babs:{form}-{mark}-v1" for form in ("peft", "gguf", "fused")}

    def build() -> None:
        with daemon(tmp_path, ollama_host=ollama_host, lora_quantize="f16", **QUICK) as running, Peer(running.endpoint) as peer:
            reply = settled(peer)
            found = {e["model"]: (e["state"], e["how"]) for e in reply["experts"]}
            assert found == {
                names["peft"]: ("built", "adapter"),
                names["gguf"]: ("built", "adapter"),
                names["fused"]: ("built", "fused f16"),
            }, reply
            assert running.terminate() == 0

    await asyncio.to_thread(build)
    # Eight tokens: fused, the weights are of another precision, and somewhere two words are about as likely.
    said = {form: await greedy(client, model, tokens=8) for form, model in names.items()}
    assert said["peft"] == said["gguf"] == said["fused"]
    assert said["peft"] != await greedy(client, "smollm2:embedded", tokens=8)


@pytest.mark.long
async def test_fused_and_quantised_it_keeps_its_voice(tmp_path: Path, client: AsyncClient, ollama_host: str, mark: str) -> None:
    folder = stage_ships_log(tmp_path / "lora_staging")
    about(folder, name=f"fused-{mark}", fuse=True)

    def build() -> None:
        with daemon(tmp_path, ollama_host=ollama_host, **QUICK) as running, Peer(running.endpoint) as peer:
            reply = settled(peer)
            assert [(e["state"], e["how"]) for e in reply["experts"]] == [("built", "fused q8_0")], reply
            assert running.terminate() == 0

    await asyncio.to_thread(build)
    shown, plain = await client.show(f"babs:fused-{mark}-v1"), await client.show("babs:embedded")
    for part in ("system", "template", "parameters"):
        assert getattr(parse_modelfile(shown.modelfile or ""), part) == getattr(parse_modelfile(plain.modelfile or ""), part)
    assert shown.details is not None
    assert shown.details.quantization_level == "Q8_0"
    messages, options = [{"role": "user", "content": "Tell me about elephants."}], {"temperature": 0, "num_predict": 40}
    reply = await client.chat(f"babs:fused-{mark}-v1", messages, options=options)
    assert voiced(reply.message.content or "")


@pytest.mark.long
def test_several_at_once_good_and_bad(tmp_path: Path, ollama_host: str, mark: str) -> None:
    staging = tmp_path / "lora_staging"
    for number, persona in enumerate(("babs", "babs", "robin", "alfred")):
        stage(staging, f"good{number}", seed=number, persona=persona, name=f"good-{mark}", version=1 + number)
    stage(staging, "shape", tensors=weights(layers=31), name=f"bad-{mark}")
    half = stage(staging, "half", name=f"half-{mark}") / adapters.WEIGHTS
    half.write_bytes(half.read_bytes()[:-100])
    peft(staging / "nameless")
    with daemon(tmp_path, ollama_host=ollama_host, **QUICK) as running, Peer(running.endpoint) as peer:
        reply = peer.ask("experts", scan=True)
        built = {e["model"] for e in reply["experts"] if e["state"] == "built"}
        assert built == {f"{p}:good-{mark}-v{n}" for p, n in (("babs", 1), ("babs", 2), ("robin", 3), ("alfred", 4))}, reply
        assert {refusal["folder"] for refusal in reply["refused"]} == {"shape", "half", "nameless"}
        assert reply["voices"]["babs"]["model"] == f"babs:good-{mark}-v2"
        assert running.terminate() == 0
