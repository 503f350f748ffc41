"""What BAT OS relies on of an Ollama server, asked of the real one and of its double alike."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ollama import AsyncClient, ResponseError
from pydantic import BaseModel, Field

from batos.bridge.client import OllamaInference, connect
from batos.bridge.inference import ChatRequest, Inference
from batos.bridge.model_builder import upload_blob
from batos.bridge.modelfile import parse_modelfile
from batos.bridge.ollama_server import version_at
from batos.bridge.profiles import load_profile
from batos.bridge.structured_output import structured
from batos.concurrency import cancel_and_wait
from batos.errors import InferenceFailed
from batos.testing import ScriptedOllama

MODEL = "robin:embedded"
SCHEMA = {
    "type": "object",
    "properties": {"sub_queries": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3}},
    "required": ["sub_queries"],
}


THINKING = """{{ range .Messages }}<|im_start|>{{ .Role }}
{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
<think>"""


class Party(BaseModel):
    name: str = Field(max_length=40)
    guests: int
    cake: bool


@pytest.fixture(params=["scripted", "real"])
def host(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "real":
        yield request.getfixturevalue("ollama_host")
        return
    with ScriptedOllama() as server:
        yield server.host


@pytest.fixture
async def inference(host: str) -> AsyncIterator[OllamaInference]:
    made = OllamaInference(host, 2)
    yield made
    await made.close()


@pytest.fixture
async def client(host: str) -> AsyncIterator[AsyncClient]:
    async with connect(host) as made:
        yield made


@pytest.fixture
async def own(client: AsyncClient) -> AsyncIterator[str]:
    """A name for a model of the test's own, removed afterwards."""
    name = f"contract-{uuid.uuid4().hex[:8]}:test"
    yield name
    with contextlib.suppress(ResponseError):  # the test did not make it
        await client.delete(name)


def ask(user: str, **more: object) -> ChatRequest:
    options = {"num_ctx": 2048, "num_predict": 24, "seed": 1, "temperature": 0.0, **dict(more.pop("options", {}))}  # type: ignore[call-overload]
    return ChatRequest(MODEL, "You are ROBIN.", user, options=tuple(sorted(options.items())), **more)  # type: ignore[arg-type]


async def test_version(host: str) -> None:
    version = await version_at(host)
    assert version
    assert version[0].isdigit()


async def test_chat_streams_what_it_answers(inference: OllamaInference) -> None:
    assert isinstance(inference, Inference)
    heard: list[str] = []
    reply = await inference.chat(ask("What is a cat?"), deadline_s=60, on_text=heard.append)
    assert reply.text
    assert "".join(heard) == reply.text
    assert len(heard) > 1
    assert reply.model == MODEL
    assert reply.digest == await inference.digest(MODEL)
    assert reply.prompt_tokens > 0
    assert 0 < reply.answer_tokens <= 24
    assert reply.total_ms > 0
    assert reply.load_ms >= 0
    assert reply.prompt_eval_ms > 0
    assert reply.eval_ms > 0


async def test_num_predict_ends_an_answer(inference: OllamaInference) -> None:
    reply = await inference.chat(ask("Tell me a long story about a cat.", options={"num_predict": 3}), deadline_s=60)
    assert reply.done_reason == "length"
    assert reply.answer_tokens == 3


async def test_a_seed_repeats_an_answer(inference: OllamaInference) -> None:
    request = ask("Name a colour.", options={"temperature": 0.8, "seed": 5, "num_predict": 8})
    assert (await inference.chat(request, deadline_s=60)).text == (await inference.chat(request, deadline_s=60)).text


async def test_a_schema_makes_json_of_its_form(inference: OllamaInference) -> None:
    reply = await inference.chat(ask("Plan a party for a cat.", schema=SCHEMA, options={"num_predict": 200}), deadline_s=100)
    assert reply.done_reason == "stop"
    queries = json.loads(reply.text)["sub_queries"]
    assert 2 <= len(queries) <= 3
    assert all(isinstance(q, str) for q in queries)


async def test_a_schema_with_bounds_beyond_any_grammar_is_answered(inference: OllamaInference) -> None:
    """The runner would die of it."""
    words = {"type": "array", "items": {"type": "string", "maxLength": 5000}, "maxItems": 9000}
    schema = {"type": "object", "properties": {"words": words, "name": {"type": "string", "pattern": "^a{1,3000}$"}}, "required": ["words"]}
    reply = await inference.chat(ask("Say hello.", schema=schema, options={"num_predict": 12}), deadline_s=100)
    assert reply.text.lstrip().startswith("{")


def of(**name: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        of(type="string", pattern=r"^\d{4}-\d{2}-\d{2}$"),
        of(type="string", pattern=r"^[\w.-]{1,9}@[\w-]{1,9}\.(com|org)$"),
        of(type="string", pattern=r"^\S+$", maxLength=20),
        of(type="string", pattern="[a-z]+", maxLength=20),
        of(type="string", pattern="^[^@]+@[^@]+$", maxLength=20),
        of(type="string", pattern="^(a+)+$", maxLength=20),
        of(type="array", prefixItems=[{"type": "integer"}, {"type": "boolean"}], items=False),
        of(type="integer", minimum=1, maximum=2**53 + 1),
        of(type="string", format="email", maxLength=20),
        {"type": "object", "properties": {'a"b': {"type": "string"}, "": {"type": "string"}}, "additionalProperties": False},
    ],
    ids=range(10),
)
async def test_no_schema_is_refused_or_kills_a_runner(inference: OllamaInference, schema: dict[str, Any]) -> None:
    request = ChatRequest(MODEL, "", "Say something.", schema, (("num_predict", 48), ("temperature", 0.0)))
    reply = await inference.chat(request, deadline_s=60)
    assert reply.text.lstrip().startswith("{")
    assert (await inference.chat(ask("Hello", options={"num_predict": 1}), deadline_s=60)).answer_tokens == 1, "its runner lives"


async def test_a_prompt_that_is_longer_than_the_context_is_refused_and_not_cut(inference: OllamaInference) -> None:
    request = ChatRequest(MODEL, "", "apple " * 3000, None, (("num_ctx", 2048), ("num_predict", 8)))
    with pytest.raises(InferenceFailed) as failed:
        await inference.chat(request, deadline_s=60)
    assert failed.value.context["cause"] == "too_long"


async def test_an_answer_ends_where_the_context_does(inference: OllamaInference) -> None:
    """It would go on without the front of the prompt, and say nothing."""
    told = " ".join(f"word{n}" for n in range(40))
    request = ChatRequest(
        MODEL, "", f"Say this again and again: {told}", None, (("num_ctx", 256), ("num_predict", 2000), ("temperature", 0.0))
    )
    reply = await inference.chat(request, deadline_s=120)
    assert reply.prompt_tokens + reply.answer_tokens <= 257


async def test_embeddings_are_unit_vectors_in_order(inference: OllamaInference) -> None:
    profile = load_profile("embedded")
    texts = ["the cat sat on the mat", "quarterly revenue fell", "the cat sat on the mat"] + [f"text {i}" for i in range(40)]
    vectors = await inference.embed(profile.embedder, texts, deadline_s=60)
    assert len(vectors) == len(texts)
    assert all(len(v) == profile.dimensions for v in vectors)
    assert sum(x * x for x in vectors[0]) == pytest.approx(1, abs=1e-3)
    assert sum(a * b for a, b in zip(vectors[0], vectors[2], strict=True)) == pytest.approx(1, abs=1e-3)
    assert sum(a * b for a, b in zip(vectors[0], vectors[1], strict=True)) < 0.9
    assert await inference.embed(profile.embedder, [], deadline_s=60) == []


@pytest.mark.parametrize("call", ["chat", "embed", "digest"])
async def test_a_missing_model_is_named_as_the_cause(inference: OllamaInference, call: str) -> None:
    name = "no-such-model"
    asked = {
        "chat": lambda: inference.chat(ChatRequest(name, "", "hello"), deadline_s=30),
        "embed": lambda: inference.embed(name, ["hello"], deadline_s=30),
        "digest": lambda: inference.digest(name),
    }[call]
    with pytest.raises(InferenceFailed, match=name) as failed:
        await asked()
    assert failed.value.cause == "model_missing"
    assert not failed.value.may_retry


async def test_chats_go_on_side_by_side(inference: OllamaInference) -> None:
    replies = await asyncio.gather(*(inference.chat(ask(f"Say {n}.", options={"num_predict": 4}), deadline_s=60) for n in range(4)))
    assert all(r.text for r in replies)


async def test_create_show_list_copy_delete(client: AsyncClient, own: str) -> None:
    async for _ in await client.create(
        own, from_="smollm2:embedded", system='You are "Own".\nBe brief.', parameters={"temperature": 0.25, "stop": ["END", "\n\n"]},
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}], stream=True,
    ):  # fmt: skip
        pass
    shown = parse_modelfile((await client.show(own)).modelfile or "")
    base = parse_modelfile((await client.show("smollm2:embedded")).modelfile or "")
    assert shown.from_ == base.from_
    assert shown.system == 'You are "Own".\nBe brief.'
    assert shown.parameters["temperature"] == 0.25
    assert shown.messages == (("user", "hi"), ("assistant", "hello"))
    assert shown.template == base.template

    await client.copy(own, own + "-copy")
    digests = {m.model: m.digest for m in (await client.list()).models}
    assert digests[own] == digests[own + "-copy"]
    await client.delete(own + "-copy")
    assert own + "-copy" not in {m.model for m in (await client.list()).models}
    with pytest.raises(ResponseError) as gone:
        await client.delete(own + "-copy")
    assert gone.value.status_code == 404


async def test_same_arguments_make_the_same_digest(client: AsyncClient, own: str) -> None:
    digests = []
    for system in ("one", "one", "two"):
        async for _ in await client.create(own, from_="smollm2:embedded", system=system, stream=True):
            pass
        digests.append(next(m.digest for m in (await client.list()).models if m.model == own))
    assert digests[0] == digests[1] != digests[2]


async def test_create_from_a_file_that_was_not_uploaded(client: AsyncClient, own: str) -> None:
    with pytest.raises(ResponseError, match="no such file"):
        async for _ in await client.create(own, files={"a.gguf": "sha256:" + "0" * 64}, stream=True):
            pass


async def test_a_blob_must_have_its_digest(client: AsyncClient, tmp_path: Path) -> None:
    file = tmp_path / "part"
    file.write_bytes(uuid.uuid4().bytes)
    digest = await upload_blob(client, file)
    assert digest == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert await upload_blob(client, file) == digest
    with pytest.raises(ResponseError, match="digest mismatch"):
        await client._request_raw("POST", "/api/blobs/sha256:" + "0" * 64, content=b"other")


async def test_pulling_what_cannot_be_had(client: AsyncClient) -> None:
    with pytest.raises(ResponseError, match="pull model manifest"):
        async for _ in await client.pull("127.0.0.1:1/nobody/nothing:none", insecure=True, stream=True):
            pass


async def test_a_model_in_use_is_resident(inference: OllamaInference, client: AsyncClient) -> None:
    request, found = ask("Say something about the sea.", options={"num_predict": 500}), {}
    while MODEL not in found:  # an answer that ended before the list came may have made room for another test's model: ask again
        begun = asyncio.Event()
        chat = asyncio.create_task(inference.chat(request, deadline_s=200, on_text=lambda _, begun=begun: begun.set()))
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait({chat, waiting}, return_when=asyncio.FIRST_COMPLETED)
        found = {model.model: model for model in (await client.ps()).models}
        ended = chat.done()
        for task in (chat, waiting):
            await cancel_and_wait(task)
        if ended:
            await chat
    assert found[MODEL].digest == await inference.digest(MODEL)
    assert found[MODEL].size


async def test_an_answer_that_was_begun_goes_on_where_it_stopped(inference: OllamaInference) -> None:
    options = (("num_ctx", 2048), ("num_predict", 32), ("seed", 1), ("temperature", 0.0))
    request = ChatRequest(MODEL, "You are kind.", "Say something about the sea.", options=options)
    heard: list[str] = []
    whole = await inference.chat(request, deadline_s=60, on_text=heard.append)
    begun = "".join(heard[: len(heard) * 3 // 4])
    rest: list[str] = []
    again = await inference.chat(replace(request, begun=begun, begun_tokens=len(heard) * 3 // 4), deadline_s=60, on_text=rest.append)
    assert again.text == begun + "".join(rest)
    assert again.text == whole.text  # greedy: the same tokens follow
    assert 0 < again.answer_tokens <= whole.answer_tokens - len(heard) * 3 // 4 + 1


async def test_a_template_that_closes_the_answer_begins_it_anew(inference: OllamaInference, client: AsyncClient, own: str) -> None:
    await client.create(own, from_=MODEL, template="{{ range .Messages }}{{ .Content }} {{ end }}")
    request = ChatRequest(own, "", "Say something about the sea.", options=(("num_ctx", 2048), ("num_predict", 12), ("temperature", 0.0)))
    whole = await inference.chat(request, deadline_s=60)
    again = await inference.chat(replace(request, begun="Something else entirely,", begun_tokens=4), deadline_s=60)
    assert again.text == whole.text


# --- thought, stop sequences, forms


async def test_a_model_that_thinks_says_so_apart(inference: OllamaInference, client: AsyncClient, own: str) -> None:
    """Its template opens the thought; one that is never closed is no answer."""
    await client.create(own, from_="smollm2:embedded", template=THINKING)
    request = replace(ask("What is a cat?"), model=own)
    heard: list[str] = []
    reply = await inference.chat(request, deadline_s=60, on_text=heard.append)
    assert reply.thinking
    assert (reply.text, heard) == ("", [])
    assert reply.answer_tokens > 0
    reply = await inference.chat(replace(request, options=(*request.options, ("think", False))), deadline_s=60)
    assert reply.text
    assert reply.thinking == ""


async def test_a_model_that_cannot_think_refuses(inference: OllamaInference) -> None:
    with pytest.raises(InferenceFailed, match="does not support thinking") as failed:
        await inference.chat(ask("What is a cat?", options={"think": True}), deadline_s=60)
    assert failed.value.cause == "refused"
    assert (await inference.chat(ask("What is a cat?", options={"think": False}), deadline_s=60)).text


async def test_thought_that_a_model_writes_into_its_answer(inference: OllamaInference) -> None:
    open_ended = await inference.chat(ask("What is a cat?", begun="<think>Let me see"), deadline_s=60)
    assert open_ended.thinking.startswith("Let me see")
    assert open_ended.text == ""
    closed = await inference.chat(ask("What is a cat?", begun="<think>Easy.</think>\n\nA cat"), deadline_s=60)
    assert closed.thinking == "Easy."
    assert closed.text.startswith("A cat")


async def test_an_answer_ends_before_a_stop_sequence(inference: OllamaInference) -> None:
    whole = await inference.chat(ask("What is a cat?"), deadline_s=60)
    stop = whole.text.split()[3]
    ended = await inference.chat(ask("What is a cat?", options={"stop": ["never said", stop]}), deadline_s=60)
    assert ended.text == whole.text[: whole.text.index(stop)]
    assert ended.done_reason == "stop"


async def test_an_answer_of_a_form(inference: OllamaInference) -> None:
    async def asked(prompt: str, schema: dict[str, object] | None) -> str:
        return (await inference.chat(ask(prompt, schema=schema, options={"num_predict": 100}), deadline_s=60)).text

    found = await structured(asked, "Plan a party for a cat, as JSON.", Party, repairs=2, raw_chars=400)
    assert isinstance(found.value, Party)
    assert found.asked >= 1


async def test_a_schema_that_is_none_is_left_out_of_the_next_try(inference: OllamaInference) -> None:
    class Odd(BaseModel):
        name: str

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return {"type": "object", "properties": {"name": {"$ref": "#/$defs/nothing"}}}

    asked: list[bool] = []

    async def ask_model(prompt: str, schema: dict[str, object] | None) -> str:
        asked.append(schema is not None)
        return (await inference.chat(ask(prompt, schema=schema), deadline_s=60)).text

    with pytest.raises(InferenceFailed) as failed:
        await structured(ask_model, "Hello", Odd, repairs=1, raw_chars=400)
    assert failed.value.cause == "malformed"
    assert asked == [True, False]


# --- models that go, and creates that fail


async def test_a_model_deleted_while_it_is_loaded(inference: OllamaInference, client: AsyncClient, own: str) -> None:
    """What is under way comes to its end; what comes after is told that there is no such model."""
    await client.copy(MODEL, own)
    request = replace(ask("What is a cat?"), model=own)
    begun = asyncio.Event()
    chat = asyncio.create_task(inference.chat(request, deadline_s=60, on_text=lambda text: begun.set()))
    await begun.wait()
    await client.delete(own)
    assert (await chat).text
    with pytest.raises(InferenceFailed) as failed:
        await inference.chat(request, deadline_s=60)
    assert failed.value.cause == "model_missing"
    # `ps` tells nothing of it: a real Ollama lists a runner by the name that loaded it, and copies share it until it goes


async def test_a_create_from_a_base_that_cannot_be_had(client: AsyncClient, own: str) -> None:
    with pytest.raises(ResponseError, match="pull model manifest"):
        async for _ in await client.create(own, from_="127.0.0.1:1/nobody/nothing:none", stream=True):
            pass
    assert own not in {m.model for m in (await client.list()).models}
