"""Real chat clients, run in their own environment: `chat_clients.py openai|responses|ollama|litellm ADDRESS TOKEN`. Prints JSON.

Nothing of BAT OS is imported: openai-python, ollama-python and LiteLLM are what is installed there.
"""

from __future__ import annotations

import json
import sys
from typing import Any

QUESTION = "Which tea shall I drink in the evening?"
EMBEDDER = "minilm:embedded"


def through_openai(address: str, token: str) -> dict[str, Any]:
    """What openai-python makes of the doors."""
    import openai

    client = openai.OpenAI(base_url=f"{address}/v1", api_key=token, timeout=60)
    messages: Any = [{"role": "user", "content": QUESTION}]
    told: dict[str, Any] = {"models": [one.id for one in client.models.list()]}
    whole = client.chat.completions.create(model="batos", messages=messages)
    told["whole"], told["tokens"] = whole.choices[0].message.content, whole.usage and whole.usage.total_tokens
    pieces, usage = [], None
    for chunk in client.chat.completions.create(model="batos", messages=messages, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
    told |= {"streamed": "".join(pieces), "usage": usage and usage.total_tokens}
    live, thoughts = [], []
    other: Any = [{"role": "user", "content": "And which one at sea?"}]
    for chunk in client.chat.completions.create(model="batos", messages=other, stream=True):
        live += [choice.delta.content or "" for choice in chunk.choices]
        thoughts += [getattr(choice.delta, "reasoning_content", None) or "" for choice in chunk.choices]
    told |= {"live": "".join(live), "thought": "".join(thoughts)}
    with client.chat.completions.stream(model="batos", messages=messages) as stream:
        told["helper"] = stream.get_final_completion().choices[0].message.content
    followed = [*messages, {"role": "assistant", "content": told["whole"]}, {"role": "user", "content": "And in the morning?"}]
    raw = client.chat.completions.with_raw_response.create(model="batos", messages=followed)
    told["followed"] = raw.headers["x-batos-mission"]
    told["again"] = [
        client.chat.completions.with_raw_response.create(model="batos", messages=followed).headers["x-batos-mission"] for _ in range(2)
    ]
    schema = {"type": "object", "properties": {"tea": {"type": "string"}}, "required": ["tea"], "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "tea", "strict": True, "schema": schema}}
    told["value"] = client.chat.completions.create(model="batos", messages=messages, response_format=form).choices[0].message.content
    vectors = client.embeddings.create(model=EMBEDDER, input=["tea", "coffee"])
    plain = client.embeddings.create(model=EMBEDDER, input="tea", encoding_format="float")
    told |= {"vectors": [len(one.embedding) for one in vectors.data], "embed_tokens": vectors.usage.prompt_tokens}
    told["packed"] = max(abs(a - b) for a, b in zip(vectors.data[0].embedding, plain.data[0].embedding, strict=True))
    try:
        client.chat.completions.create(model="gpt-9", messages=messages)
    except openai.NotFoundError as e:
        told["missing"] = [e.status_code, e.code]
    try:
        openai.OpenAI(base_url=f"{address}/v1", api_key="wrong").models.list()
    except openai.AuthenticationError as e:
        told["stranger"] = [e.status_code, e.code]
    return told


def through_responses(address: str, token: str) -> dict[str, Any]:
    """What openai-python makes of the Responses interface."""
    import openai
    from pydantic import BaseModel

    class Tea(BaseModel):
        tea: str

    client = openai.OpenAI(base_url=f"{address}/v1", api_key=token, timeout=60)
    whole = client.responses.create(model="batos", input="Which tea at night?", instructions="Be brief", metadata={"of": "me"})
    told: dict[str, Any] = {"whole": whole.output_text, "status": whole.status, "tokens": whole.usage and whole.usage.total_tokens}
    told["types"] = [one.type for one in whole.output]
    events = list(client.responses.create(model="batos", input="Which tea at sea?", stream=True))
    told["streamed"] = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    told["events"] = list(dict.fromkeys(one.type for one in events))
    told["unknown"] = sorted({type(one).__name__ for one in events if not type(one).__name__.startswith("Response")})
    with client.responses.stream(model="batos", input="Which tea at noon?") as stream:
        snapshots = [one.snapshot for one in stream if one.type == "response.output_text.delta"]
        final = stream.get_final_response()
    told |= {"helper": final.output_text, "snapshot": snapshots[-1]}
    told["parsed"] = client.responses.parse(model="batos", input="Which tea of all?", text_format=Tea).output_parsed.tea
    raw = client.responses.with_raw_response.create(model="batos", input="Why?", previous_response_id=whole.id)
    told |= {"followed": raw.headers["x-batos-mission"], "before": raw.parse().previous_response_id, "first": whole.id}
    told["retrieved"] = client.responses.retrieve(whole.id).output_text
    told["replayed"] = "".join(
        one.delta for one in client.responses.retrieve(whole.id, stream=True) if one.type == "response.output_text.delta"
    )
    told["cancelled"] = client.responses.cancel(whole.id).status
    try:
        client.responses.create(model="batos", input="Why?", previous_response_id="resp_nothing")
    except openai.NotFoundError as e:
        told["missing"] = [e.status_code, e.code]
    try:
        client.responses.create(model="batos", input=[{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}])
    except openai.BadRequestError as e:
        told["refused"] = e.message
    return told


def through_ollama(address: str, token: str) -> dict[str, Any]:
    """What ollama-python makes of the doors."""
    import ollama

    client = ollama.Client(address, headers={"Authorization": f"Bearer {token}"}, timeout=60)
    messages = [{"role": "user", "content": QUESTION}]
    told: dict[str, Any] = {"models": [one.model for one in client.list().models], "loaded": len(client.ps().models)}
    told["capabilities"] = client.show("batos").capabilities
    told["whole"] = client.chat("batos", messages).message.content
    parts = list(client.chat("batos", messages, stream=True, think=True))
    told["streamed"] = "".join(part.message.content or "" for part in parts)
    told["thought"] = "".join(part.message.thinking or "" for part in parts)
    told["done"] = parts[-1].done_reason
    told["generated"] = client.generate("batos", QUESTION).response
    embedded = client.embed(EMBEDDER, ["tea", "coffee"])
    told |= {"vectors": [len(one) for one in embedded.embeddings], "embed_tokens": embedded.prompt_eval_count}
    told["embedding"] = len(client.embeddings(EMBEDDER, "tea").embedding)
    try:
        client.chat("llama9", messages)
    except ollama.ResponseError as e:
        told["missing"] = e.status_code
    try:
        ollama.Client(f"{address}/token/wrong").list()
    except ollama.ResponseError as e:
        told["stranger"] = e.status_code
    told["in_path"] = len(ollama.Client(f"{address}/token/{token}").list().models)
    return told


def through_litellm(address: str, token: str) -> dict[str, Any]:
    """What LiteLLM makes of the doors, by OpenAI's interface and by Ollama's."""
    import os

    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
    import litellm

    told: dict[str, Any] = {}
    for name, model, base in (("openai", "openai/batos", f"{address}/v1"), ("ollama", "ollama_chat/batos", address)):
        given: dict[str, Any] = {"model": model, "api_base": base, "api_key": token, "timeout": 60}
        given["messages"] = [{"role": "user", "content": f"{QUESTION} ({name})"}]
        whole = litellm.completion(**given)
        pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**given, stream=True)]
        told[name] = [whole.choices[0].message.content, "".join(pieces)]
    return told


if __name__ == "__main__":
    name, *given = sys.argv[1:]
    print(
        json.dumps(
            {"openai": through_openai, "responses": through_responses, "ollama": through_ollama, "litellm": through_litellm}[name](*given)
        )
    )
