"""Chats of the doors: OpenAI's completions, Ollama's chat and generate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from batos.doors import forms
from batos.doors.answer_text import AnswerPart
from batos.doors.answers import GONE, Answers, AnswerStream, AskedAnswer, Parts, failure, whole_answer
from batos.doors.bodies import CompletionBody, OllamaBody, body_of, checked_body, conversation_of
from batos.doors.models import ModelNames
from batos.doors.routes import DoorServices, route
from batos.doors.turns import ChatWords
from batos.errors import Busy


class _Chats:
    def __init__(self, services: DoorServices) -> None:
        self._answers, self._names, self._limits = Answers(services), ModelNames(services), services.limits

    def routes(self) -> Iterator[BaseRoute]:
        yield route("/v1/chat/completions", self.completions, "POST")
        yield route("/api/chat", self.ollama_chat, "POST")
        yield route("/api/generate", self.ollama_generate, "POST")

    async def completions(self, request: Request) -> Response:
        """Answer a turn, as OpenAI does."""
        fields = await body_of(request, self._limits)
        body = checked_body(CompletionBody, fields)
        words = conversation_of(body.messages, self._limits)
        task = str((body.metadata or {}).get("task") or "")
        schema = body.schema_wanted
        asked = AskedAnswer(request, fields, body.model, words, schema, body.options, task, streams=bool(body.stream))
        pending = await self._answers.begun(asked)
        form = forms.CompletionForm(pending.id, body.model)
        if body.stream:
            usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            return AnswerStream(pending, _completion_stream(pending.parts, form, usage=usage), "text/event-stream")
        ended = await whole_answer(request, pending)
        if ended is None:
            return Response(status_code=GONE)
        end, thought = ended
        if end.error is not None:
            return failure(request.url.path, end.error)
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
            await self._names.known(body.model)
            return JSONResponse({**form.part(), "done": True, "done_reason": "load"})
        asked = AskedAnswer(request, fields, body.model, words, body.schema_wanted, body.sampling, "", streams=streams)
        pending = await self._answers.begun(asked)
        if streams:
            return AnswerStream(pending, _ollama_stream(pending.parts, form), "application/x-ndjson")
        ended = await whole_answer(request, pending)
        if ended is None:
            return Response(status_code=GONE)
        end, thought = ended
        if end.error is not None:
            return failure(request.url.path, end.error)
        tokens = forms.tokens_of(end)
        told = form.end(
            end.text,
            tokens["prompt_tokens"],
            tokens["completion_tokens"],
            reason="length" if end.cut else "stop",
            thinking=thought if form.thinks else "",
        )
        return JSONResponse(told, headers=dict(pending.headers))


def chat_routes(services: DoorServices) -> Iterator[BaseRoute]:
    """Yield the routes of chats."""
    yield from _Chats(services).routes()


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
