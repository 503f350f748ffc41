"""Ollama client: inferences through `ollama.AsyncClient` and nothing else.

Every chat streams, has `num_ctx`, `num_predict` and a deadline, and is stopped when it loops. Every fault becomes one `InferenceFailed`
with its cause. Cancelling the caller closes the stream, and Ollama stops generating.

A text longer than the embedder's context is embedded in parts, and gets the mean of their vectors.

Role marks of chat templates are defused in texts from elsewhere (notes, briefs, web pages, earlier answers). Ollama makes a control token
of each mark in a message of any author. So a note could end the user's turn and speak as the system. A blank inside the mark leaves its
letters readable, and makes it plain text.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import re
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from batos.bridge import addresses, structured_output
from batos.bridge.failures import Breaker, RetryPolicy, inference_failures
from batos.bridge.inference import ChatReply, ChatRequest, EmbeddedTexts
from batos.bridge.model_output import StreamedAnswer, leaves_open, strip_fences
from batos.bridge.modelfile import tagged
from batos.concurrency import ShortFirst
from batos.errors import ConfigError, InferenceFailed

if TYPE_CHECKING:
    from ollama import AsyncClient, ChatResponse

Ask = Callable[[list[str]], Awaitable[list[list[float]]]]


async def embed_whole(ask: Ask, texts: Sequence[str]) -> list[list[float]]:
    """Return one vector for each text, in order.

    :param ask: makes the vectors of a batch, and raises `InferenceFailed` with cause `too_long` where one is too long. The batch is
        then halved until that text is alone, and the text until its parts are short enough: few batches hold one.
    """
    try:
        return await ask(list(texts))
    except InferenceFailed as e:
        if e.cause != "too_long" or (len(texts) == 1 and len(texts[0]) < 2):
            raise
    if len(texts) > 1:
        half = len(texts) // 2
        return [*await embed_whole(ask, texts[:half]), *await embed_whole(ask, texts[half:])]
    parts = _halves(texts[0])
    return [_mean(await embed_whole(ask, parts), [len(part) for part in parts])]


def _halves(text: str) -> list[str]:
    """Return two halves of the text, split at the space nearest to the middle, or in the middle if it has no space."""
    middle = len(text) // 2
    spaces = [at for at in (text.rfind(" ", 1, middle), text.find(" ", middle, len(text) - 1)) if at > 0]
    cut = min(spaces, key=lambda at: abs(at - middle), default=middle)
    return [text[:cut], text[cut:]]


def _mean(vectors: list[list[float]], weights: list[int]) -> list[float]:
    """Return the direction of the weighted sum, of length 1."""
    total = [sum(x * w for x, w in zip(column, weights, strict=True)) for column in zip(*vectors, strict=True)]
    length = math.sqrt(sum(x * x for x in total))
    return [x / length for x in total] if length > 0 else vectors[0]


_NAMED = (
    "s", "bos", "eos", "pad", "unk", "mask", "sep", "cls", "sop", "eop", "start_of_turn", "end_of_turn", "start_of_image",
    "end_of_image", "image_soft_token", "tool_call", "tool_response", "tools", "repo_name", "reponame", "file_sep", "filename",
    "gh_stars", "issue_start", "issue_comment", "issue_closed", "jupyter_start", "jupyter_text", "jupyter_code", "jupyter_output",
    "jupyter_script", "empty_output", "fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "commit_before", "commit_msg",
    "commit_after", "end_of_utterance", "fake_token_around_image", r"unused\d{1,4}", r"reserved_\d{1,4}", r"extra_id_\d{1,4}",
    r"SPECIAL_\d{1,4}", r"extra_\d{1,4}", r"[A-Z_]{2,24}_TOKEN", r"(?:start|end)_function_\w{1,20}", r"fim-\w{3,8}",
    r"(?:hy|longcat)_\w{1,24}", r"seed:\w{1,24}", r"\[\w{3,8}▁of▁\w{4,12}\]",
)  # fmt: skip
"""Names within `<…>` and `</…>`: Llama 2, Gemma, StarCoder and SmolLM, Qwen and Hermes, T5, Mistral, Command, Hunyuan, LongCat, Seed."""
_BRACKETED = (
    "INST", "SYSTEM_PROMPT", "AVAILABLE_TOOLS", "TOOL_CALLS", "TOOL_RESULTS", "TOOL_CONTENT", "MODEL_SETTINGS", "ARGS", "CALL_ID",
    "IMG", "IMG_BREAK", "IMG_END", "AUDIO", "BEGIN_AUDIO", "PREFIX", "MIDDLE", "SUFFIX", "gMASK", "sMASK", "MASK", "CLS", "SEP", "UNK",
    "PAD", "BOS", "EOS", r"img-\d+",
)  # fmt: skip
"""Names within `[…]` and `[/…]`: Mistral, GLM, BERT. Ollama itself writes `[img-0]` in place of a picture."""
_MARK = re.compile(
    r"<(?=[|\uff5c](?![|\uff5c])[^\s<>]{1,64}>"  # <|im_start|>, <|channel>, and DeepSeek's form with wide bars
    r"|(?![|\uff5c])[^\s<>]{1,64}[|\uff5c]>"  # <channel|>
    r"|</?SYS>>"
    rf"|/?(?:{'|'.join(_NAMED)})>)"
    rf"|\[(?=/?(?:{'|'.join(_BRACKETED)})\])"
    r"|\](?=~!?b[\[\]])|\[(?=e~\[)"  # MiniMax
)


def break_control_marks(text: str) -> str:
    """Return a text in which no mark of a template is one: `<|im_end|>` is `< |im_end|>`."""
    return _MARK.sub(lambda found: f"{found[0]} ", text)


__all__ = ["OllamaInference", "connect", "strip_fences", "tagged", "version_of"]

T = TypeVar("T")

CONNECT_S = 10.0
PROBE_S = 3.0  # seconds for a server to answer with its version
QUESTION_TEXTS = 2  # greatest number of texts that one question embeds; such requests go before batches of documents
EMBED_BATCH = 32  # texts in one request: a cancelled or failed batch loses little
DIGEST_TTL_S = 1.0  # seconds for which a cached digest is valid
DEFAULT_OPTIONS: Mapping[str, Any] = {"num_ctx": 2048, "num_predict": 160}
DRAIN_S = 0.5  # seconds for a stream to end after its last part
DEAD = ("unreachable", "timeout", "truncated")  # causes that count against the host; any other cause is an answer of a live host
AT_ONCE = ("unreachable", "server_error")  # causes after which a retry may succeed at once
_ALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]
"""TCP keep-alive options. A machine that is switched off during a pull sends nothing more; without them the pull would wait forever."""


def connect(host: str) -> AsyncClient:
    """Return a client for the Ollama at `host` (as in OLLAMA_HOST: host, host:port or a URL).

    :raises ConfigError: if that is not a valid address, or the environment gives it an unusable proxy, certificate or key.
    """
    import httpx

    address = addresses.parse(host)
    addresses.check_key()
    carrier = addresses.transport(address, _ALIVE)
    timeout = httpx.Timeout(None, connect=CONNECT_S)
    try:
        return _whole_chats()(address.url, timeout=timeout, trust_env=False, transport=carrier, auth=address.user)
    except (ValueError, httpx.InvalidURL) as e:
        raise ConfigError(f"setting 'inference.host' or 'inference.hosts', or OLLAMA_HOST: {host!r} is not a valid address ({e})") from None


_TOOLS: ContextVar[tuple[Mapping[str, Any], ...]] = ContextVar("tools", default=())


@functools.cache
def _whole_chats() -> type[AsyncClient]:
    """Return a client whose chats are complete or refused.

    Ollama silently cuts the front of a prompt that exceeds the context, also during the answer, unless a request forbids it. The client's
    `chat` has no arguments for that.
    """
    from batos.bridge.client_library import AsyncClient, ResponseError

    class WholeChats(AsyncClient):
        async def chat(self, *args: Any, tools: Sequence[Mapping[str, Any]] = (), **more: Any) -> Any:  # type: ignore[override]
            """Chat, with the tools sent as they are: the library's own type drops nested properties, `anyOf` and `$ref`."""
            token = _TOOLS.set(tuple(tools))
            try:
                return await super().chat(*args, **more)
            finally:
                _TOOLS.reset(token)

        async def _request(self, cls: Any, *args: Any, stream: bool = False, **more: Any) -> Any:
            if args[1:2] == ("/api/chat",):
                tools = {"tools": list(_TOOLS.get())} if _TOOLS.get() else {}
                more["json"] = {**more["json"], **tools, "truncate": False, "shift": False}
                if stream:
                    return self._received(cls, *args, **more)
            return await super()._request(cls, *args, stream=stream, **more)

        async def _received(self, cls: Any, *args: Any, **more: Any) -> AsyncGenerator[list[Any], None]:
            """Yield the parts of a chat as they are received. Those with text and nothing else are not validated field by field: they
            come for each token, and are only looked at here."""
            async with self._client.stream(*args, **more) as reply:
                if reply.is_error:
                    await reply.aread()
                    raise ResponseError(reply.text, reply.status_code)
                rest = b""
                received = reply.aiter_bytes() if "content-encoding" in reply.headers else cast("AsyncIterator[bytes]", reply.stream)
                async for data in received:
                    *lines, rest = (rest + data).split(b"\n")
                    for parts in _whole_parts(cls, lines):
                        yield parts
                for parts in _whole_parts(cls, [rest]):
                    yield parts

    return WholeChats


class TextPart(NamedTuple):
    """Part of a streamed answer that has text, and nothing else of interest."""

    content: str
    thinking: str


def _whole_parts(cls: Callable[..., ChatResponse], lines: Sequence[bytes]) -> Iterator[list[ChatResponse | TextPart]]:
    """Yield the parts of some lines together, also those before one that fails.

    :raises: as `_part`.
    """
    parts: list[ChatResponse | TextPart] = []
    try:
        for line in lines:
            if line.strip():
                parts.append(_part(cls, line))
    except Exception:
        if parts:
            yield parts
        raise
    if parts:
        yield parts


def _part(cls: Callable[..., ChatResponse], line: bytes) -> ChatResponse | TextPart:
    """Return one part of a stream.

    :raises ResponseError: for an error that Ollama reports.
    :raises ValueError, TypeError, AttributeError: if it is not a part of a chat.
    """
    from batos.bridge.client_library import ResponseError

    part = json.loads(line)
    if error := part.get("error"):
        raise ResponseError(error)
    message = part.get("message")
    if part.get("done") is False and type(message) is dict and "tool_calls" not in message:
        text = TextPart(message.get("content", ""), message.get("thinking", ""))
        if type(text.content) is str and type(text.thinking) is str:
            return text
    return cls(**part)


async def version_of(client: AsyncClient, within_s: float = PROBE_S) -> str | None:
    """Return the version of a client's Ollama; None if none answers in that time."""
    import httpx

    try:
        async with asyncio.timeout(within_s):
            # AsyncClient has no call for the version: use its address and connections.
            reply = await client._client.get("/api/version")
            return str(reply.raise_for_status().json()["version"])
    except (TimeoutError, httpx.HTTPError, OSError, ValueError, KeyError, TypeError):
        return None


class OllamaInference:
    """`batos.bridge.inference.Inference` on one Ollama.

    A request that fails before its first token is made again at once, a few times. A host that goes on failing is left alone until it
    answers (see `breaker`). What that does not mend is for the caller: another host, or a later attempt.

    :param host: address of the server.
    :param concurrency: chats under way at the same time; the others wait their turn, and the deadline of each counts from
        its turn. Embeddings have a turn of their own, one at a time: they take milliseconds, and do not wait for chats.
    :param defaults: options for requests that name none; `num_ctx` and `num_predict` are always sent.
    :param digest_ttl_s: seconds for which a cached digest is valid.
    """

    def __init__(
        self,
        host: str,
        concurrency: int = 2,
        defaults: Mapping[str, Any] | None = None,
        policy: RetryPolicy | None = None,
        *,
        digest_ttl_s: float = DIGEST_TTL_S,
    ) -> None:
        self.host, self._digest_ttl_s = host, digest_ttl_s
        self.under_way = 0
        self._client = connect(host)
        self._turns = asyncio.Semaphore(concurrency)
        self._embedding = ShortFirst()
        self._defaults = {**DEFAULT_OPTIONS, **(defaults or {})}
        self._policy = policy or RetryPolicy()
        self.breaker = Breaker(host, self._answers, self._policy)
        self._digests: dict[str, str] = {}
        self._digests_at = float("-inf")  # time of the last request for digests
        self._changed_at = float("-inf")
        self._listing = asyncio.Lock()
        self._open_ended: dict[str, bool] = {}

    def adopt(self, defaults: Mapping[str, Any]) -> None:
        """Send other options with requests that name none."""
        self._defaults = {**DEFAULT_OPTIONS, **defaults}

    async def close(self) -> None:
        """Close the connections."""
        await self.breaker.stop()
        await self._client.close()  # type: ignore[no-untyped-call]

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        """See `Inference.chat`."""
        with self._counted():
            async with self._turns:
                started = time.monotonic()
                heard = StreamedAnswer(on_text)
                async with self._within(deadline_s, request.model, lambda: f"{heard.length} characters had come", lambda: heard.parts > 0):
                    digest = await self.digest(request.model)
                    if request.digest and digest != request.digest:
                        raise InferenceFailed(
                            f"{request.model} at {self.host} was made anew", cause="model_changed", model=request.model
                        )  # fmt: skip
                    if request.begun and not await self.continues(request.model):
                        request = replace(request, begun="", begun_tokens=0)
                    heard = StreamedAnswer(on_text, request.begun)
                    done = await self._again(request.model, lambda: self._listen(request, heard), lambda: heard.parts > 0)
        text, thinking = heard.answer()
        took_ms = (time.monotonic() - started) * 1e3
        reply = ChatReply(text, request.model, digest, thinking=thinking, total_ms=took_ms, calls=tuple(heard.calls))
        if done is None:  # the stream was cut: only the last part has the server's figures, so count each part as one token
            return replace(reply, answer_tokens=heard.parts, done_reason="cut")
        return replace(
            reply,
            prompt_tokens=done.prompt_eval_count or 0,
            answer_tokens=done.eval_count or 0,
            load_ms=(done.load_duration or 0) / 1e6,
            prompt_eval_ms=(done.prompt_eval_duration or 0) / 1e6,
            eval_ms=(done.eval_duration or 0) / 1e6,
            done_reason=done.done_reason or "stop",
        )

    async def _listen(self, request: ChatRequest, heard: StreamedAnswer) -> ChatResponse | None:
        """Hear the answer to its end: its last part, or None if it was cut."""
        # aclosing: leaving the block for any reason closes the connection, and the server stops the generation.
        async with contextlib.aclosing(self._parts(request, heard)) as stream:
            async for part in stream:
                if isinstance(part, TextPart):
                    well = heard.hear(*part)
                else:
                    well = heard.hear(part.message.content or "", part.message.thinking or "")
                    calls = part.message.tool_calls or ()
                    heard.calls += [(call.function.name, json.dumps(dict(call.function.arguments))) for call in calls]
                    if part.done:
                        heard.end()
                        await _drain(stream)
                        return part
                if not well:
                    return None
        raise InferenceFailed(
            f"the stream of {request.model} ended after {heard.length} characters, before the model was done",
            cause="truncated",
            model=request.model,
        )

    async def _parts(self, request: ChatRequest, heard: StreamedAnswer) -> AsyncGenerator[ChatResponse | TextPart, None]:
        request.before_sent()
        with inference_failures(self.host, request.model, lambda: heard.parts > 0):
            stream = cast("AsyncGenerator[list[ChatResponse | TextPart], None]", await self._client.chat(**self._arguments(request)))
            async with contextlib.aclosing(stream):
                async for parts in stream:
                    for part in parts:
                        yield part

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "system", "content": break_control_marks(request.system)}] if request.system else []
        images = [{"images": list(of)} if of else {} for of in request.images] or [{}] * (len(request.turns) + 1)
        for (said, answered), seen in zip(request.turns, images, strict=False):
            messages += [
                {"role": "user", "content": break_control_marks(said), **seen},
                {"role": "assistant", "content": break_control_marks(answered)},
            ]
        messages.append({"role": "user", "content": break_control_marks(request.user), **images[-1]})
        options = {**self._defaults, **dict(request.options)}
        if request.begun:
            messages.append({"role": "assistant", "content": break_control_marks(request.begun)})
            options["num_predict"] = max(1, options["num_predict"] - request.begun_tokens)
        return {
            "model": request.model,
            "messages": messages,
            "stream": True,
            "think": options.pop("think", None),  # Ollama takes `think` outside of the options
            "format": structured_output.grammar_schema(request.schema),
            "options": options,
            **({"tools": list(request.tools)} if request.tools else {}),
        }

    async def continues(self, model: str) -> bool:
        """See `Inference.continues`: whether the model's template leaves a last message of the assistant open."""
        digest = await self.digest(model)
        if digest not in self._open_ended:
            async with self._within(CONNECT_S, model, lambda: "asked for its template"):
                shown = await self._request(model, lambda: self._client.show(model))
            self._open_ended[digest] = leaves_open(shown.template or "")
        return self._open_ended[digest]

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """See `Inference.embed`. A text longer than the model's context gets the mean of its parts: nothing is cut silently.

        :param deadline_s: time for each batch of `EMBED_BATCH` texts.
        """
        found = EmbeddedTexts()

        async def ask(some: list[str]) -> list[list[float]]:
            vectors = await self._embed_batch(model, some, deadline_s)
            found.tokens += vectors.tokens
            return vectors

        with self._counted():
            for at in range(0, len(texts), EMBED_BATCH):
                found.extend(await embed_whole(ask, texts[at : at + EMBED_BATCH]))
        return found

    async def _embed_batch(self, model: str, batch: list[str], deadline_s: float) -> EmbeddedTexts:
        turn = self._embedding.turn(short=len(batch) <= QUESTION_TEXTS)
        async with turn, self._within(deadline_s, model, lambda: f"{len(batch)} texts to embed"):
            reply = await self._request(model, lambda: self._client.embed(model, batch, truncate=False))
        if len(reply.embeddings) != len(batch):
            raise InferenceFailed(
                f"{model} answered {len(batch)} texts with {len(reply.embeddings)} vectors", cause="malformed", model=model
            )
        return EmbeddedTexts([list(vector) for vector in reply.embeddings], reply.prompt_eval_count or 0)

    async def digest(self, model: str) -> str:
        """See `Inference.digest`. A digest is believed for `digest_ttl_s`, then asked for again."""
        known = await self.digests(model)
        if tagged(model) not in known:
            raise InferenceFailed(f"Ollama at {self.host} has no model {model!r}", cause="model_missing", model=model)
        return known[tagged(model)]

    async def digests(self, model: str) -> Mapping[str, str]:
        """Return the digests of the server's models, by name; asked for again after `digest_ttl_s`, or where `model` is not among them.

        :raises InferenceFailed: if the server does not say.
        """
        name, now = tagged(model), time.monotonic()

        def is_old() -> bool:
            oldest = now if name not in self._digests else now - self._digest_ttl_s
            return self._digests_at < max(self._changed_at, oldest)

        if is_old():
            # One request serves all that ask at the same time. The limit of each counts from here, as if it asked by itself.
            async with self._within(CONNECT_S, model, lambda: "asked for its digest", cause="unreachable"), self._listing:
                if is_old():
                    asked_at = time.monotonic()
                    listed = await self._request(model, self._client.list)
                    if asked_at >= self._digests_at:  # otherwise a later request was answered first
                        self._digests = {tagged(m.model): m.digest for m in listed.models if m.model and m.digest}
                        self._digests_at = asked_at
        return self._digests

    def models_changed(self) -> None:
        """Invalidate digests from earlier requests: a model was rebuilt, and answers of the new one must not be stored under the old
        digest.
        """
        self._changed_at = time.monotonic()
        self._listing = asyncio.Lock()  # the next caller does not wait for a list that was asked for before

    # --- time limits, failures, and the state of the host

    @property
    def models_seen(self) -> Mapping[str, str]:
        """Return the digests of the server's models as they were last heard of, by name."""
        return self._digests

    async def _answers(self) -> bool:
        return await version_of(self._client) is not None

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    @contextlib.asynccontextmanager
    async def _within(
        self, deadline_s: float, model: str, how_far: Callable[[], str], begun: Callable[[], bool] = lambda: False, cause: str = "timeout"
    ) -> AsyncIterator[None]:
        self.breaker.check(model)
        try:
            async with asyncio.timeout(deadline_s) as timer:
                yield
        except TimeoutError:
            if not timer.expired():  # the timeout comes from the listener
                raise
            late = f"{model} at {self.host} was not done within {deadline_s:g} s ({how_far()})"
            if not begun():
                self.breaker.failed(late)
            raise InferenceFailed(late, cause=cause, model=model) from None

    async def _request(self, model: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return a request with one answer."""

        async def once() -> T:
            with inference_failures(self.host, model):
                return await ask()

        return await self._again(model, once)

    async def _again(self, model: str, ask: Callable[[], Awaitable[T]], begun: Callable[[], bool] = lambda: False) -> T:
        """Send a request, and retry at once if the cause allows it and no token has come. Report the results to the breaker."""
        pause = self._policy.inference_backoff_s
        for left in range(self._policy.inference_retries, -1, -1):
            try:
                reply = await ask()
            except InferenceFailed as e:
                self._heard_of(e)
                if begun() or e.cause not in AT_ONCE or not left or self.breaker.open:
                    raise
                await asyncio.sleep(pause)
                pause *= 2
            else:
                self.breaker.answered()
                return reply
        raise AssertionError("the last try returns or raises")

    def _heard_of(self, failure: InferenceFailed) -> None:
        if failure.cause == "model_missing":
            self._digests.clear()
        if failure.cause in DEAD:
            self.breaker.failed(failure.message)
        else:
            self.breaker.answered()


async def _drain(stream: AsyncGenerator[Any, None]) -> None:
    """Read a stream to its very end: only then its connection serves again, and the next chat need not open one, which takes 1 ms."""
    with contextlib.suppress(TimeoutError, InferenceFailed):  # the answer is complete: a failure now costs only the connection
        async with asyncio.timeout(DRAIN_S):
            async for _ in stream:
                pass
