"""Inferences on an Ollama server, through `ollama.AsyncClient` and nothing else.

Every chat streams, has `num_ctx`, `num_predict` and a deadline, and is cut when it runs away. Whatever goes wrong becomes one
`InferenceFailed` with its cause. Cancelling the caller closes the stream, and Ollama stops generating.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from batos.bridge.text import RunawayWatch, leaves_open, strip_fences
from batos.bridge.types import ChatReply, ChatRequest
from batos.errors import ConfigError, InferenceFailed

if TYPE_CHECKING:
    from ollama import AsyncClient, ChatResponse

__all__ = ["OllamaInference", "connect", "strip_fences", "tagged"]

CONNECT_S = 10.0
EMBED_BATCH = 32  # texts in one request: a cancelled or failed batch loses little
DIGEST_TTL_S = 1.0  # how long a digest is believed without asking again
DEFAULT_OPTIONS: Mapping[str, Any] = {"num_ctx": 2048, "num_predict": 160}
_LOOPBACK = ("127.", "localhost", "[::1]", "0.0.0.0")  # noqa: S104 - compared with, never bound


def connect(host: str) -> AsyncClient:
    """A client for the Ollama at `host` (as in OLLAMA_HOST: host, host:port or a URL).

    :raises ConfigError: where that is no address.
    """
    import httpx
    from ollama import AsyncClient

    bare = host.partition("://")[2] or host
    try:
        # A proxy named in the environment is never meant for the machine itself.
        return AsyncClient(host, timeout=httpx.Timeout(None, connect=CONNECT_S), trust_env=not bare.startswith(_LOOPBACK))
    except (ValueError, httpx.InvalidURL) as e:
        raise ConfigError(f"setting 'ollama_host': {host!r} is no address ({e}); give host:port or a URL") from None


def tagged(name: str) -> str:
    """A model's name with its tag, as Ollama lists it: `robin` is `robin:latest`."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


class OllamaInference:
    """`bridge.types.Inference` on a real Ollama.

    :param host: address of the server.
    :param concurrency: chats under way at the same time; the others wait their turn, and the deadline of each counts from
        its turn. Embeddings have a turn of their own, one at a time: they take milliseconds, and do not wait for chats.
    :param defaults: options for requests that name none; `num_ctx` and `num_predict` are always sent.
    """

    def __init__(self, host: str, concurrency: int = 2, defaults: Mapping[str, Any] | None = None) -> None:
        self.host = host
        self._client = connect(host)
        self._turns = asyncio.Semaphore(concurrency)
        self._embedding = asyncio.Semaphore(1)
        self._defaults = {**DEFAULT_OPTIONS, **(defaults or {})}
        self._digests: dict[str, str] = {}
        self._digests_at = float("-inf")
        self._open_ended: dict[str, bool] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        """See `Inference.chat`."""
        async with self._turns:
            started = time.monotonic()
            heard = RunawayWatch()
            try:
                async with asyncio.timeout(deadline_s):
                    digest = await self.digest(request.model)
                    if request.begun and not await self.continues(request.model):
                        request = replace(request, begun="", begun_tokens=0)
                    heard.feed(request.begun)
                    done, kept, parts = await self._listen(request, heard, on_text)
            except TimeoutError:
                raise _too_late(request.model, self.host, deadline_s, f"{len(heard.text)} characters had come") from None
        reply = ChatReply(text=kept, model=request.model, digest=digest, total_ms=(time.monotonic() - started) * 1e3)
        if done is None:  # cut: the server's own figures come with the last part only; a part is a token
            return replace(reply, answer_tokens=parts, done_reason="cut")
        return replace(
            reply,
            prompt_tokens=done.prompt_eval_count or 0,
            answer_tokens=done.eval_count or 0,
            load_ms=(done.load_duration or 0) / 1e6,
            done_reason=done.done_reason or "stop",
        )

    async def _listen(
        self, request: ChatRequest, heard: RunawayWatch, on_text: Callable[[str], None] | None
    ) -> tuple[ChatResponse | None, str, int]:
        """The last part (None where the answer was cut), the text, and how many parts came."""
        parts = 0
        # aclosing: leaving the block for any reason closes the connection, which is what stops the generation.
        async with contextlib.aclosing(self._parts(request)) as stream:
            async for part in stream:
                parts += 1
                piece = part.message.content or ""
                if piece and on_text:
                    on_text(piece)
                kept = heard.feed(piece)
                if part.done:
                    return part, heard.text, parts
                if kept is not None:
                    return None, kept, parts
        raise InferenceFailed(
            f"the stream of {request.model} ended after {len(heard.text)} characters, before the model was done",
            cause="truncated",
            model=request.model,
        )

    async def _parts(self, request: ChatRequest) -> AsyncGenerator[ChatResponse, None]:
        begun = False
        with self._failures(request.model, lambda: begun):
            stream = cast("AsyncGenerator[ChatResponse, None]", await self._client.chat(**self._arguments(request)))
            async with contextlib.aclosing(stream):
                async for part in stream:
                    begun = True
                    yield part

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        messages = [{"role": "user", "content": request.user}]
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        options = {**self._defaults, **dict(request.options)}
        if request.begun:
            messages.append({"role": "assistant", "content": request.begun})
            options["num_predict"] = max(1, options["num_predict"] - request.begun_tokens)
        return {
            "model": request.model,
            "messages": messages,
            "stream": True,
            "format": request.schema,
            "options": options,
        }

    async def continues(self, model: str) -> bool:
        """See `Inference.continues`: whether the model's template leaves a last message of the assistant open."""
        digest = await self.digest(model)
        if digest not in self._open_ended:
            try:
                async with asyncio.timeout(CONNECT_S):
                    with self._failures(model):
                        template = (await self._client.show(model)).template or ""
            except TimeoutError:
                raise _too_late(model, self.host, CONNECT_S, "asked for its template") from None
            self._open_ended[digest] = leaves_open(template)
        return self._open_ended[digest]

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """See `Inference.embed`. A text longer than the model's context is cut by Ollama at its end.

        :param deadline_s: time for each batch of `EMBED_BATCH` texts.
        """
        vectors: list[list[float]] = []
        for at in range(0, len(texts), EMBED_BATCH):
            batch = list(texts[at : at + EMBED_BATCH])
            async with self._embedding:
                try:
                    async with asyncio.timeout(deadline_s):
                        with self._failures(model):
                            reply = await self._client.embed(model, batch)
                except TimeoutError:
                    raise _too_late(model, self.host, deadline_s, f"{len(batch)} texts to embed") from None
            if len(reply.embeddings) != len(batch):
                raise InferenceFailed(
                    f"{model} answered {len(batch)} texts with {len(reply.embeddings)} vectors", cause="malformed", model=model
                )
            vectors.extend(list(v) for v in reply.embeddings)
        return vectors

    async def digest(self, model: str) -> str:
        """See `Inference.digest`. A digest is believed for `DIGEST_TTL_S`, then asked for again."""
        name = tagged(model)
        if name not in self._digests or time.monotonic() - self._digests_at > DIGEST_TTL_S:
            try:
                async with asyncio.timeout(CONNECT_S):
                    with self._failures(model):
                        listed = await self._client.list()
            except TimeoutError:
                raise _too_late(model, self.host, CONNECT_S, "asked for its digest") from None
            self._digests = {m.model: m.digest for m in listed.models if m.model and m.digest}
            self._digests_at = time.monotonic()
        if name not in self._digests:
            raise InferenceFailed(f"Ollama at {self.host} has no model {model!r}", cause="model_missing", model=model)
        return self._digests[name]

    @contextlib.contextmanager
    def _failures(self, model: str, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Turn what a request to the server raises into `InferenceFailed`; `begun`: whether a part of the answer has come."""
        import httpx
        from ollama import ResponseError

        try:
            yield
        except ResponseError as e:
            if e.status_code == 404:
                self._digests.clear()
            raise InferenceFailed(f"Ollama at {self.host}, model {model}: {e.error}", cause=_cause(e), model=model) from e
        except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout) as e:
            raise InferenceFailed(f"no Ollama answers at {self.host}: {e}", cause="unreachable", model=model) from e
        except httpx.HTTPError as e:
            cause = "truncated" if begun() else "unreachable"
            raise InferenceFailed(f"the connection to Ollama at {self.host} broke: {e!r}", cause=cause, model=model) from e
        except (ValueError, TypeError, AttributeError) as e:
            # json and pydantic raise ValueError; a line that is JSON but no object fails inside the client with the others.
            raise InferenceFailed(f"Ollama at {self.host} sent what is no answer: {e}", cause="malformed", model=model) from e


def _too_late(model: str, host: str, deadline_s: float, how_far: str) -> InferenceFailed:
    return InferenceFailed(f"{model} at {host} was not done within {deadline_s:g} s ({how_far})", cause="timeout", model=model)


def _cause(error: Any) -> str:
    """The cause behind an error that Ollama itself reported; inside a stream it has no status (-1)."""
    status = int(error.status_code)
    if status == 404:
        return "model_missing"
    return "refused" if 400 <= status < 500 else "server_error"
