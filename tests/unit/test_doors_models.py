"""Models of the doors: their names, experts that are asked directly, and embeddings."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.app.kernel import Kernel
from batos.doors.access import DoorLimits
from batos.image import model_registry
from tests.support.doors import chat_client, completion, kernel_with_doors, said, user
from tests.support.missions import FakeInference

EXPERT = "babs:ships-log-v1"
EMBEDDER = "minilm:embedded"


@pytest.fixture
def inference() -> FakeInference:
    made = FakeInference()
    made.embedder = lambda text: [float(len(text)), 0.5]
    return made


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with kernel_with_doors(tmp_path, inference, limits=(DoorLimits(texts=3),)) as made:
        yield made


@pytest.fixture
async def client(kernel: Kernel) -> AsyncIterator[httpx.AsyncClient]:
    async with chat_client(kernel) as made:
        yield made


async def stage(kernel: Kernel, *, built: bool) -> None:
    facts = {"model": EXPERT, "persona": "babs", "expert": "ships-log", "version": 1, "base": "other", "content": "c", "folder": "f"}
    await kernel.image.system(model_registry.intend_expert, facts)
    if built:
        await kernel.image.system(model_registry.note_built, EXPERT, "d", "r", "adapter", "")


async def test_experts_that_are_built_and_the_embedder_are_listed(kernel: Kernel, client: httpx.AsyncClient) -> None:
    async def openai() -> list[str]:
        return [one["id"] for one in (await client.get("/v1/models")).json()["data"]]

    await stage(kernel, built=False)
    assert f"batos:{EXPERT}" not in await openai()
    await stage(kernel, built=True)
    assert {f"batos:{EXPERT}", EMBEDDER, "batos:babs"} <= set(await openai())
    tags = {one["name"]: one for one in (await client.get("/api/tags")).json()["models"]}
    assert tags[EMBEDDER]["capabilities"] == ["embedding"]
    assert "completion" in tags[f"batos:{EXPERT}"]["capabilities"]
    shown = (await client.post("/api/show", json={"model": EMBEDDER})).json()
    assert shown["capabilities"] == ["embedding"]


async def test_an_expert_is_asked_directly(kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference) -> None:
    missing = await completion(client, user("Ahoy?"), model=f"batos:{EXPERT}", status=404)
    assert "batos:plain" in missing["error"]["message"], "it says which there are"
    await stage(kernel, built=True)
    told = await completion(client, user("Ahoy?"), model=f"batos:{EXPERT}")
    assert said(told)
    (asked,) = inference.asked
    assert (asked.model, asked.user, told["mission"]) == (EXPERT, "Ahoy?", None)


async def test_the_embedder_answers_no_chat(client: httpx.AsyncClient) -> None:
    refused = await completion(client, user("Hello"), model=EMBEDDER, status=400)
    assert "/v1/embeddings" in refused["error"]["message"]


async def test_embeddings_are_floats_or_base64(client: httpx.AsyncClient) -> None:
    given = {"model": EMBEDDER, "input": ["a", "bcd"]}
    told = (await client.post("/v1/embeddings", json=given)).json()
    assert [(one["index"], one["embedding"]) for one in told["data"]] == [(0, [1.0, 0.5]), (1, [3.0, 0.5])]
    packed = (await client.post("/v1/embeddings", json={**given, "encoding_format": "base64", "dimensions": 2})).json()
    assert [struct.unpack("<2f", base64.b64decode(one["embedding"])) for one in packed["data"]] == [(1.0, 0.5), (3.0, 0.5)]
    assert (await client.post("/v1/embeddings", json={**given, "input": "four"})).json()["data"][0]["embedding"] == [4.0, 0.5]


@pytest.mark.parametrize(
    ("changed", "status", "words"),
    [
        ({"dimensions": 1}, 400, "dimensions"),
        ({"input": [1, 2]}, 400, "send the text"),
        ({"input": [[1], [2]]}, 400, "send the text"),
        ({"input": ""}, 400, "empty"),
        ({"input": []}, 400, "empty"),
        ({"input": ["a", "b", "c", "d"]}, 400, "at most 3"),
        ({"model": "text-embedding-3-small"}, 404, EMBEDDER),
        ({"model": "batos"}, 404, EMBEDDER),
        ({"encoding_format": "hex"}, 400, "encoding_format"),
    ],
)
async def test_what_embeddings_do_not_take_is_said(client: httpx.AsyncClient, changed: dict[str, Any], status: int, words: str) -> None:
    reply = await client.post("/v1/embeddings", json={"model": EMBEDDER, "input": "a", **changed})
    assert (reply.status_code, words in reply.json()["error"]["message"]) == (status, True), reply.text


async def test_ollama_embeds(client: httpx.AsyncClient) -> None:
    told = (await client.post("/api/embed", json={"model": EMBEDDER, "input": ["ab", "c"]})).json()
    assert told["embeddings"] == [[2.0, 0.5], [1.0, 0.5]]
    assert (await client.post("/api/embed", json={"model": EMBEDDER, "input": "ab"})).json()["embeddings"] == [[2.0, 0.5]]
    assert (await client.post("/api/embed", json={"model": EMBEDDER})).json()["embeddings"] == [], "a client loads the model"
    assert (await client.post("/api/embeddings", json={"model": EMBEDDER, "prompt": "abc"})).json() == {"embedding": [3.0, 0.5]}
    refused = await client.post("/api/embed", json={"model": "batos", "input": "a"})
    assert (refused.status_code, EMBEDDER in refused.json()["error"]) == (404, True)
