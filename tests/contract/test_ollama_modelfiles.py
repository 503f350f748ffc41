"""Modelfiles on a real Ollama: what `show` writes is read, what is read makes the same model, files are built once a content."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ollama import AsyncClient

from batos.bridge.client import connect
from batos.bridge.downloads import DiskSpace
from batos.bridge.model_builder import BuiltModels, ModelBuilder, blob_digest, recipe_from_modelfile
from batos.bridge.modelfile import Modelfile, parse_modelfile
from batos.bridge.profiles import Profile, load_profile
from batos.bridge.provisioning import Provisioner

BASE = "smollm2:embedded"
WIDTH = 576  # of SmolLM2-135M
MODELS = (BASE, "minilm:embedded", "robin:embedded", "brick:embedded", "babs:embedded", "alfred:embedded")
TEXTS = [
    'You are "Robin".\nBe kind.',
    "one line",
    'ends in "quotes"',
    '"begins" with them\nand goes on',
    " blanks \n around ",
    "tab\tand\r\nCRLF",
    "猫 and 🐈\n",
]


class Own:
    """A client with names for models of the test's own; it counts uploads."""

    def __init__(self, client: AsyncClient) -> None:
        self.client, self.mark, self.uploads = client, uuid.uuid4().hex[:8], 0
        client._client.event_hooks["request"].append(self._count)

    def __call__(self, name: str) -> str:
        return f"{name}-{self.mark}:test"

    async def _count(self, request: Any) -> None:
        self.uploads += request.method == "POST" and request.url.path.startswith("/api/blobs/")

    async def facts(self, name: str) -> dict[str, Any]:
        """All that `show` says: ShowResponse lacks some of it."""
        facts: dict[str, Any] = (await self.client._request_raw("POST", "/api/show", json={"model": name})).json()
        return facts

    async def shown(self, name: str) -> Modelfile:
        return parse_modelfile((await self.client.show(name)).modelfile or "")

    async def digest(self, name: str) -> str:
        return next(m.digest or "" for m in (await self.client.list()).models if m.model == name)

    async def create(self, name: str, made: Modelfile, folder: Path) -> None:
        recipe = recipe_from_modelfile(made, folder)
        builder = ModelBuilder(self.client, BuiltModels(), DiskSpace(), lambda step: None)
        await builder.build(name, recipe, await builder.digests(name, recipe), "")


@pytest.fixture
async def own(ollama_host: str) -> AsyncIterator[Own]:
    async with connect(ollama_host) as client:
        made = Own(client)
        yield made
        for model in (await client.list()).models:
            if model.model and made.mark in model.model:
                await client.delete(model.model)


def adapter(folder: Path, scale: float = 1.0) -> Path:
    """A LoRA adapter of rank 2 on one projection, as PEFT writes it."""
    folder.mkdir()
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    chance = np.random.default_rng(1)
    tensors = {
        name.format(part): chance.standard_normal(shape).astype("<f4") * scale for part, shape in (("A", (2, WIDTH)), ("B", (WIDTH, 2)))
    }
    header, data = {}, b""
    for key, tensor in tensors.items():
        header[key] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}))
    return folder


@pytest.mark.parametrize("model", MODELS)
async def test_show_of_the_embedded_models_is_read(own: Own, model: str) -> None:
    shown = await own.facts(model)
    made = await own.shown(model)
    assert parse_modelfile(made.render()) == made
    assert (made.template, made.system or "") == (shown["template"], shown.get("system", ""))
    assert "/blobs/sha256-" in made.from_
    assert made.parameters["num_thread"] == 1


@pytest.mark.parametrize("text", TEXTS)
async def test_what_is_shown_is_what_was_said(own: Own, tmp_path: Path, text: str) -> None:
    mark = own.mark  # no layer is another model's, too: with that one Ollama would remove it from under this one
    text = f"{text[:1]}{mark}{text[1:]}"
    said = Modelfile(
        BASE,
        system=text,
        template=f"{{{{- range .Messages }}}}<|im_start|>{mark} " + '{{ .Role }}\n"{{ .Content }}"\n{{ end }}"',
        parameters={"temperature": 0.25, "seed": int(mark[:7], 16), "use_mmap": True, "stop": ["END", 'a "b"\n', "###"], "num_thread": 1},
        messages=(("user", text), ("assistant", "Yes."), ("system", 'a\n"b"')),
        licenses=(f"Apache-2.0 {mark}", f"second\n{text}"),
        renderer="qwen3-coder",
        parser="qwen3-coder",
        requires="0.14.0",
    )
    name = own("said")
    await own.create(name, said, tmp_path)
    shown = await own.shown(name)
    assert dataclasses.replace(shown, from_=BASE, requires="0.14.0") == said  # Ollama does not write REQUIRES; it says it apart
    assert (await own.facts(name))["requires"] == "0.14.0"
    assert parse_modelfile(shown.render()) == shown
    again = own("again")
    await own.create(again, dataclasses.replace(shown, from_=BASE, requires="0.14.0"), tmp_path)
    assert await own.digest(again) == await own.digest(name)


async def test_an_adapter_is_shown_and_built_once(own: Own, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    adapter(folder / "lora")
    (folder / "robin.Modelfile").write_text(f"FROM {BASE}\nADAPTER ./lora\nSYSTEM hi\n")
    source = load_profile("embedded").models[0]
    name = own("robin")
    profile = Profile(name="own", models=(source,), embedder=BASE, dimensions=1, personas={"robin": name}, options={})

    async def start() -> str:
        built = BuiltModels(tmp_path / "built.json")
        return {s.name: s.state for s in await Provisioner(own.client, profile, tmp_path, built=built).ensure()}[name]

    assert await start() == "created"
    shown = await own.shown(name)
    assert len(shown.adapters) == 1
    assert parse_modelfile(shown.render()) == shown
    first, uploads = await own.digest(name), own.uploads
    assert [await start(), await start()] == ["present", "present"]
    assert own.uploads == uploads
    shutil.rmtree(folder / "lora")
    adapter(folder / "lora", scale=0.5 + int(own.mark, 16) * 1e-12)  # this Ollama may have the files of an earlier run
    assert await start() == "created"
    assert await own.digest(name) != first
    assert own.uploads == uploads + 1  # its config is there
    reply = await own.client.chat(name, messages=[{"role": "user", "content": "Hi"}], options={"num_predict": 2})
    assert reply.done


async def test_weights_from_a_file_and_from_a_folder(own: Own, tmp_path: Path) -> None:
    smol, mini = load_profile("embedded").models
    [(name, weights)] = smol.paths().items()
    (tmp_path / name).symlink_to(weights)
    (tmp_path / "mini").mkdir()
    for file, path in mini.paths().items():
        (tmp_path / "mini" / file).parent.mkdir(exist_ok=True)
        (tmp_path / "mini" / file).symlink_to(path)
    await own.create(own("file"), parse_modelfile(f"FROM ./{name}\nPARAMETER num_thread 1\n"), tmp_path)
    assert (await own.shown(own("file"))).from_.endswith(blob_digest(weights).replace(":", "-"))
    await own.create(own("folder"), parse_modelfile("FROM ./mini\nPARAMETER num_thread 1\n"), tmp_path)
    vectors = [(await own.client.embed(m, "a cat")).embeddings[0] for m in (own("folder"), mini.name)]
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-4)


async def test_other_weights_rebuild_base_and_persona(own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgraded package: here, one that has MiniLM's files where SmolLM2's were."""
    smol, mini = load_profile("embedded").models
    base, robin = own("base"), own("robin")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "robin.Modelfile").write_text(f"FROM {base}\nSYSTEM hi\n")
    old = smol.model_copy(update={"name": base, "template": None, "parameters": {}})
    new = mini.model_copy(update={"name": base, "parameters": {}})

    async def start(source: Any) -> set[str]:
        profile = Profile(name="own", models=(source,), embedder=base, dimensions=1, personas={"robin": robin}, options={})
        built = BuiltModels(tmp_path / "built.json")
        return {s.state for s in await Provisioner(own.client, profile, tmp_path, built=built).ensure()}

    assert await start(old) == {"created"}
    assert await start(old) == {"present"}
    before = await own.shown(robin)
    assert await start(new) == {"created"}
    assert await start(new) == {"present"}
    assert (await own.shown(robin)).from_ == (await own.shown(base)).from_ != before.from_
