"""Application of the doors: its routes, and the way from a request to a mission or to a plain inference, and back."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from batos.concurrency import cancel_and_wait
from batos.config import Settings
from batos.console.api_client import Asker
from batos.doors import forms
from batos.doors.access import DoorLimits
from batos.doors.bodies import CompletionBody, OllamaBody, ShowBody, body_of, checked_body, content_digest, conversation_of
from batos.doors.missions import Answered, AnswerPart, TurnMissions
from batos.doors.turns import ChatTurn, ChatWords, PlainModel, PlainReply, is_chore
from batos.errors import BatosError, Busy, InvalidInput, UnknownPersona

log = structlog.get_logger("batos.doors")

NAME, PLAIN = "batos", "plain"
_LATEST = ":latest"
_NO_TASK = ("", "none", "null", "undefined")
_GONE = 499  # the client left before its answer: nobody reads it
Parts = AsyncIterator[AnswerPart | Answered]
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class PendingAnswer:
    """Answer that is on its way: of a mission, or of a plain inference."""

    id: str
    parts: Parts
    leave: Callable[[], object]
    headers: Mapping[str, str]


class AnswerStream(StreamingResponse):
    """Streamed answer that is left when its reader leaves, also before the first part was read."""

    def __init__(self, pending: PendingAnswer, content: AsyncIterator[bytes], media_type: str) -> None:
        super().__init__(content, media_type=media_type, headers={**forms.STREAM_HEADERS, **pending.headers})
        self._leave = pending.leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


class DoorApp:
    """Handlers of the doors' routes."""

    def __init__(self, asker: Asker, missions: TurnMissions, plain: PlainModel, settings: Settings) -> None:
        self._asker, self._missions, self._plain, self._limits = asker, missions, plain, DoorLimits.of(settings)

    def application(self) -> Starlette:
        """Return the application."""

        async def of_http(request: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            why = {404: "there is nothing at this path", 405: "this path does not take this method"}.get(error.status_code, error.detail)
            return refusal(request.scope["path"], error.status_code, why, "not_found" if error.status_code == 404 else None)

        def route(path: str, handler: Handler, *methods: str) -> Route:
            return Route(path, functools.partial(_served, handler), methods=list(methods))

        app = Starlette(
            routes=[
                route("/", self.greeting, "GET", "HEAD"),
                route("/v1/models", self.models, "GET"),
                route("/v1/models/{model:path}", self.model, "GET"),
                route("/v1/chat/completions", self.completions, "POST"),
                route("/api/version", self.version, "GET", "HEAD"),
                route("/api/tags", self.tags, "GET", "HEAD"),
                route("/api/ps", self.loaded, "GET"),
                route("/api/show", self.show, "POST"),
                route("/api/chat", self.ollama_chat, "POST"),
                route("/api/generate", self.ollama_generate, "POST"),
            ],
            exception_handlers={HTTPException: of_http},
        )
        app.router.redirect_slashes = False  # a redirect would lose a token in the path
        return app

    # --- models

    async def greeting(self, request: Request) -> Response:
        """Say what Ollama says: clients look for it."""
        return PlainTextResponse("Ollama is running")

    async def models(self, request: Request) -> Response:
        """List the models, as OpenAI does."""
        return JSONResponse({"object": "list", "data": [forms.model_entry(name) for name in await self._names()]})

    async def model(self, request: Request) -> Response:
        """Return one model, as OpenAI does."""
        return JSONResponse(forms.model_entry(await self._known(request.path_params["model"])))

    async def version(self, request: Request) -> Response:
        """Return the version of the Ollama that thinks here."""
        info = await self._asker.ask("info")
        return JSONResponse({"version": str((info.get("ollama") or {}).get("version") or forms.VERSION)})

    async def tags(self, request: Request) -> Response:
        """List the models, as Ollama does."""
        return JSONResponse({"models": [forms.listed_model(name) for name in await self._names()]})

    async def loaded(self, request: Request) -> Response:
        """List the models as loaded: they answer at once."""
        return JSONResponse({"models": [forms.loaded_model(name) for name in await self._names()]})

    async def show(self, request: Request) -> Response:
        """Describe one model, as Ollama does."""
        body = checked_body(ShowBody, await body_of(request, self._limits))
        return JSONResponse(forms.shown_model(await self._known(body.model or body.name)))

    async def _names(self) -> list[str]:
        personas = (await self._asker.ask("info"))["personas"]
        return [NAME, *(f"{NAME}:{str(name).lower()}" for name in personas), f"{NAME}:{PLAIN}"]

    async def _known(self, name: str) -> str:
        names = await self._names()
        found = name.casefold().removesuffix(_LATEST)
        if found not in names:
            raise UnknownPersona(f"the model {name[:64]!r} does not exist; there are {', '.join(names)}")
        return found

    # --- chats

    async def completions(self, request: Request) -> Response:
        """Answer a turn, as OpenAI does."""
        fields = await body_of(request, self._limits)
        body = checked_body(CompletionBody, fields)
        words = conversation_of(body.messages, self._limits)
        task = str((body.metadata or {}).get("task") or "")
        schema = body.schema_wanted
        asked = _Asked(request, fields, body.model, words, schema, body.options, task, streams=bool(body.stream))
        pending = await self._begun(asked)
        form = forms.CompletionForm(pending.id, body.model)
        if body.stream:
            usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            return AnswerStream(pending, _completion_stream(pending.parts, form, usage=usage), "text/event-stream")
        ended = await _whole(request, pending)
        if ended is None:
            return Response(status_code=_GONE)
        end, thought = ended
        if end.error is not None:
            return _failure(request.url.path, end.error)
        annotations = forms.annotations_of(end)
        whole = form.whole(end.text, forms.tokens_of(end), cut=end.cut, annotations=annotations, thought=thought)
        return JSONResponse(whole, headers=dict(pending.headers))

    async def ollama_chat(self, request: Request) -> Response:
        """Answer a turn, as Ollama's `/api/chat` does."""
        fields = await body_of(request, self._limits)
        body = checked_body(OllamaBody, fields)
        return await self._ollama(request, fields, body, conversation_of(body.messages, self._limits), generates=False)

    async def ollama_generate(self, request: Request) -> Response:
        """Answer a prompt, as Ollama's `/api/generate` does."""
        fields = await body_of(request, self._limits)
        body = checked_body(OllamaBody, fields)
        words = [ChatWords("system", body.system)] if body.system else []
        if body.prompt:
            words.append(ChatWords("user", body.prompt, tuple(body.images or ())))
        return await self._ollama(request, fields, body, words if body.prompt else [], generates=True)

    async def _ollama(
        self, request: Request, fields: dict[str, Any], body: OllamaBody, words: list[ChatWords], *, generates: bool
    ) -> Response:
        form = forms.OllamaForm(body.model, generates=generates, thinks=bool(body.think))
        streams = body.stream is not False
        if not words:  # a client loads the model before it asks
            await self._known(body.model)
            return JSONResponse({**form.part(), "done": True, "done_reason": "load"})
        asked = _Asked(request, fields, body.model, words, body.schema_wanted, body.sampling, "", streams=streams)
        pending = await self._begun(asked)
        if streams:
            return AnswerStream(pending, _ollama_stream(pending.parts, form), "application/x-ndjson")
        ended = await _whole(request, pending)
        if ended is None:
            return Response(status_code=_GONE)
        end, thought = ended
        if end.error is not None:
            return _failure(request.url.path, end.error)
        tokens = forms.tokens_of(end)
        told = form.end(
            end.text,
            tokens["prompt_tokens"],
            tokens["completion_tokens"],
            reason="length" if end.cut else "stop",
            thinking=thought if form.thinks else "",
        )
        return JSONResponse(told, headers=dict(pending.headers))

    async def _begun(self, asked: _Asked) -> PendingAnswer:
        """Begin the answer to a request: its mission is accepted, or its inference asked for, when this returns."""
        words = asked.words
        if not words or words[-1].role not in ("user", "tool"):
            raise InvalidInput("messages: the last one is the user's; there is nothing to answer")
        persona = _persona_of(asked.model)
        if persona == PLAIN or is_chore(words, _task_of(asked), asked.streams):
            return self._plainly(asked)
        if not words[-1].text.strip():
            raise InvalidInput("messages: the last one has no text; say what is wanted")
        following = await self._missions.accept(_turn_of(asked, persona))
        headers = {"X-Batos-Mission": following.mission}
        return PendingAnswer(following.mission, self._missions.parts(following), lambda: self._missions.leave(following), headers)

    def _plainly(self, asked: _Asked) -> PendingAnswer:
        parts: asyncio.Queue[AnswerPart | Answered] = asyncio.Queue()

        async def ask() -> None:
            try:
                reply = await self._plain.chat(
                    asked.words,
                    schema=asked.schema,
                    options=asked.options,
                    deadline_s=self._limits.plain_s,
                    on_text=lambda piece: parts.put_nowait(AnswerPart("text", piece)),
                )
                parts.put_nowait(_answered(reply))
            except BatosError as e:
                parts.put_nowait(Answered("", "", {}, error={"code": e.code, "message": e.message}))
            except Exception:
                log.exception("a plain inference failed")
                parts.put_nowait(Answered("", "", {}, error=_INTERNAL))

        task = asyncio.create_task(ask())

        async def told() -> Parts:
            try:
                while True:
                    try:
                        async with asyncio.timeout(self._limits.beat_s):
                            part = await parts.get()
                    except TimeoutError:
                        part = AnswerPart("beat")
                    yield part
                    if isinstance(part, Answered):
                        return
            finally:
                await cancel_and_wait(task)

        return PendingAnswer(uuid.uuid4().hex, told(), task.cancel, {})


@dataclass(frozen=True)
class _Asked:
    """Request for an answer, whichever interface it came by."""

    request: Request
    fields: dict[str, Any]
    model: str
    words: Sequence[ChatWords]
    schema: dict[str, Any] | None
    options: dict[str, Any]
    task: str
    streams: bool


_INTERNAL = {"code": BatosError.code, "message": "something went wrong inside; the daemon's log says what"}


async def _served(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except BatosError as e:
        return refusal(request.scope["path"], forms.status_of(e), e.message, None if isinstance(e, UnknownPersona) else e.code)
    except ClientDisconnect:  # the client left in the middle of its request and reads no answer
        return Response(status_code=400)
    except Exception:
        log.exception("a door failed", path=request.scope["path"])
        return refusal(request.scope["path"], 500, _INTERNAL["message"])


def refusal(path: str, status: int, why: str, code: str | None = None) -> Response:
    """Return the answer to a request that is refused, in the form of the interface to which its path belongs."""
    return forms.failed(status, why) if path.startswith("/api/") else forms.error_answer(status, why, code)


def _failure(path: str, error: dict[str, Any]) -> Response:
    return refusal(path, 503 if error["code"] == Busy.code else 500, str(error["message"]), str(error["code"]))


def _persona_of(model: str) -> str | None:
    """Return the persona in a model's name; None where the router chooses.

    :raises UnknownPersona: if it is no model of the doors.
    """
    name, _, persona = model.casefold().removesuffix(_LATEST).partition(":")
    if name != NAME or len(persona) > 64 or (":" in model and not persona and not model.casefold().endswith(_LATEST)):
        raise UnknownPersona(f"the model {model[:64]!r} does not exist; there are {NAME}, {NAME}:PERSONA and {NAME}:{PLAIN}")
    return persona or None


def _task_of(asked: _Asked) -> str:
    given = asked.request.headers.get("x-openwebui-task", "").strip()
    found = given if given and not given.startswith("{{") else asked.task
    return "" if found.casefold() in _NO_TASK else found


def _turn_of(asked: _Asked, persona: str | None) -> ChatTurn:
    headers = asked.request.headers
    name = ""
    if key := headers.get("idempotency-key"):
        name = f"key {key}"
    elif (message := headers.get("x-openwebui-message-id")) and not message.startswith("{{"):
        name = f"message {headers.get('x-openwebui-chat-id', '')} {message}"
    system = "\n\n".join(one.text for one in asked.words if one.role == "system")
    said = [one for one in asked.words if one.role != "system"]
    return ChatTurn(said[-1], tuple(said[:-1]), system, persona, asked.schema, name, content_digest(asked.fields))


def _answered(reply: PlainReply) -> Answered:
    usage = {"prompt_tokens": reply.prompt_tokens, "answer_tokens": reply.answer_tokens}
    return Answered("", reply.text, usage, cut=reply.cut)


async def _whole(request: Request, pending: PendingAnswer) -> tuple[Answered, str] | None:
    """Return the end of an answer with its thoughts; None if the client left before."""
    thoughts: list[str] = []

    async def read() -> Answered:
        async for part in pending.parts:
            if isinstance(part, Answered):
                return part
            if part.kind == "thought":
                thoughts.append(part.text)
        raise AssertionError("the last part is the end")

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    reading, leaving = asyncio.create_task(read()), asyncio.create_task(left())
    try:
        await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
        return (reading.result(), "".join(thoughts)) if reading.done() else None
    finally:
        await cancel_and_wait(reading)
        await cancel_and_wait(leaving)
        pending.leave()


async def _completion_stream(parts: Parts, form: forms.CompletionForm, *, usage: bool) -> AsyncIterator[bytes]:
    yield form.chunk({"role": "assistant", "content": ""})
    async for part in parts:
        if isinstance(part, AnswerPart):
            if part.kind == "beat":
                yield forms.BEAT
            else:
                yield form.chunk({"content" if part.kind == "text" else "reasoning_content": part.text})
            continue
        if part.error is not None:
            status = 503 if part.error["code"] == Busy.code else 500
            yield forms.event(forms.error_body(status, str(part.error["message"]), str(part.error["code"])))
            return  # without [DONE]: the answer is not whole
        if annotations := forms.annotations_of(part):
            yield form.chunk({"annotations": annotations})
        yield form.chunk({}, "length" if part.cut else "stop")
        if usage:
            yield form.usage(forms.tokens_of(part))
        yield forms.DONE


async def _ollama_stream(parts: Parts, form: forms.OllamaForm) -> AsyncIterator[bytes]:
    async for part in parts:
        if isinstance(part, AnswerPart):
            if part.kind == "text":
                yield forms.line(form.part(part.text))
            elif part.kind == "thought" and form.thinks:
                yield forms.line(form.part("", part.text))
            continue
        if part.error is not None:
            yield forms.line({"error": str(part.error["message"])})
            return
        tokens = forms.tokens_of(part)
        reason = "length" if part.cut else "stop"
        yield forms.line(form.end("", tokens["prompt_tokens"], tokens["completion_tokens"], reason=reason))
