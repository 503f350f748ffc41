"""What an inference is, for the parts that want one and the parts that do one.

Pure values and one protocol: mind, memory and the benches depend on this module only, so that they can be given
`bridge.client.OllamaInference` or anything else that answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One inference: everything that decides its answer.

    `schema` is a JSON schema that the answer must have the form of; `options` are Ollama's (`num_ctx`, `num_predict`,
    `temperature`, `seed`, `stop` ...) as pairs sorted by name; `think` among them says whether the model thinks before it answers.

    `begun` is the beginning of the answer, kept from an attempt that was interrupted, and `begun_tokens` what it took: the
    model goes on from there where its template can. It is no part of what the answer is keyed by.

    `turns` are what was said before, as pairs of what the user said and what was answered, the oldest first.

    `digest`, where it is given, is that of the model which must answer: the answer is keyed by it.

    `shown` names pictures by their digests, of each turn and at the end of what the user says: what the answer is keyed by. `images` are
    the same in base64, as they are sent. `tools` are offered to the model, as Ollama's API has them; they are no part of the key yet.
    """

    model: str
    system: str
    user: str
    schema: dict[str, Any] | None = None
    options: tuple[tuple[str, Any], ...] = ()
    begun: str = ""
    begun_tokens: int = 0
    digest: str = ""
    turns: tuple[tuple[str, str], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    images: tuple[tuple[str, ...], ...] = ()
    shown: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ChatReply:
    """An answer with what it cost; `text` is the whole of it, what was begun before included. `digest` is that of the model
    that answered. `thinking` is what the model thought before, never part of `text`; its tokens count among the answer's.

    Times in milliseconds, as Ollama gives them: loading the model, reading the prompt, writing; `total_ms` is what the caller waited.

    `done_reason` is Ollama's (`stop`: the model ended; `length`: `num_predict` ended it), or `cut` where the bridge ended a
    runaway generation.
    """

    text: str
    model: str
    digest: str = ""
    prompt_tokens: int = 0
    answer_tokens: int = 0
    load_ms: float = 0.0
    total_ms: float = 0.0
    done_reason: str = "stop"
    prompt_eval_ms: float = 0.0
    eval_ms: float = 0.0
    thinking: str = ""


@runtime_checkable
class Inference(Protocol):
    """Something that thinks. `bridge.client.OllamaInference` is the real one."""

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        """Answer `request`; `on_text` gets each piece of text as it comes.

        :raises InferenceFailed: with its cause; cancelling the caller stops the generation on the server.
        """
        ...

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """One vector for each text, in order.

        :raises InferenceFailed: with its cause.
        """
        ...

    async def continues(self, model: str) -> bool:
        """Whether the model goes on with an answer that was begun (`ChatRequest.begun`); where not, it begins anew."""
        ...

    async def digest(self, model: str) -> str:
        """The content digest of a model.

        :raises InferenceFailed: with cause `model_missing` where there is no such model.
        """
        ...
