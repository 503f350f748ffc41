"""Bodies of requests: read within their limits, checked, and made conversations.

Fields that a door does not use are passed over, as the servers do whose interfaces these are: clients send many.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from batos.doors.access import DoorLimits
from batos.doors.turns import ChatWords, digest
from batos.errors import InvalidInput, MessageTooLarge
from batos.wire import payloads

_IN_THREAD = 256 * 1024  # bytes above which a body is read in a thread
_OF_DELIVERY = ("stream", "stream_options", "keep_alive", "metadata", "user", "think", "background", "store", "include")
_NAME_CHARS = 512
Model = Annotated[str, Field(min_length=1, max_length=_NAME_CHARS)]


class Body(BaseModel):
    """Body of a request, or a part of one. Fields that it does not name are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _ImageUrl(Body):
    url: str


class _Part(Body):
    type: str = "text"
    text: str | None = None
    image_url: _ImageUrl | str | None = None


class _Message(Body):
    role: str
    content: str | list[_Part] | None = None
    images: list[str] | None = None  # Ollama's: each in base64


class _StreamOptions(Body):
    include_usage: bool | None = None


class _JsonSchema(Body):
    name: str = ""
    form: dict[str, Any] | None = Field(None, alias="schema")


class _ResponseFormat(Body):
    type: str
    json_schema: _JsonSchema | None = None


B = TypeVar("B", bound=Body)


class CompletionBody(Body):
    """Body of `/v1/chat/completions`."""

    model: Model
    messages: Annotated[list[_Message], Field(min_length=1)]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    response_format: _ResponseFormat | None = None
    n: Literal[1] | None = None
    metadata: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None

    @property
    def schema_wanted(self) -> dict[str, Any] | None:
        """Return the JSON schema of the answer, None for text.

        :raises InvalidInput: for a format that is not known.
        """
        wanted = self.response_format
        if wanted is None or wanted.type == "text":
            return None
        if wanted.type == "json_object":
            return {"type": "object"}
        if wanted.type == "json_schema" and wanted.json_schema is not None and wanted.json_schema.form is not None:
            return wanted.json_schema.form
        raise InvalidInput(f"response_format: {wanted.type[:64]!r}: write text, json_object, or json_schema with its schema")

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of an inference by Ollama's names."""
        limit = self.max_completion_tokens or self.max_tokens
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        given = {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed, "num_predict": limit, "stop": stop}
        return {name: value for name, value in given.items() if value is not None}


class _TextFormat(Body):
    type: str
    name: str | None = None
    form: dict[str, Any] | None = Field(None, alias="schema")


class _TextConfig(Body):
    format: _TextFormat | None = None


class _InputItem(Body):
    type: str | None = None
    role: str | None = None
    content: str | list[_Part] | None = None


class ResponseBody(Body):
    """Body of `/v1/responses`."""

    model: Model
    input: str | list[_InputItem] = ""
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(max_length=_NAME_CHARS)] | None = None
    stream: bool | None = None
    background: bool | None = None
    text: _TextConfig | None = None
    metadata: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    user: str | None = None
    conversation: Any = None
    prompt: Any = None

    def words(self, limits: DoorLimits) -> list[ChatWords]:
        """Return the conversation that the request holds; the reasoning that a door sent to the client is left out.

        :raises InvalidInput: for what is not taken.
        """
        if self.conversation is not None or self.prompt is not None:
            what = "conversation" if self.conversation is not None else "prompt"
            raise InvalidInput(f"{what}: none are kept here; send `input`, and `previous_response_id` for the turn before")
        items = [_InputItem(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        for one in items:
            if one.type not in (None, "message", "reasoning"):
                why = "missions call tools of their own" if "call" in str(one.type) else "send messages"
                raise InvalidInput(f"input: an item of type {str(one.type)[:64]!r} is not taken; {why}")
        said = [_Message(role=one.role or "", content=one.content) for one in items if one.type != "reasoning"]
        system = [ChatWords("system", self.instructions)] if self.instructions else []
        return [*system, *conversation_of(said, limits)]

    @property
    def schema_wanted(self) -> dict[str, Any] | None:
        """Return the JSON schema of the answer, None for text.

        :raises InvalidInput: for a format that is not known.
        """
        wanted = None if self.text is None else self.text.format
        if wanted is None or wanted.type == "text":
            return None
        if wanted.type == "json_object":
            return {"type": "object"}
        if wanted.type == "json_schema" and wanted.form is not None:
            return wanted.form
        raise InvalidInput(f"text.format: {wanted.type[:64]!r}: write text, json_object, or json_schema with its schema")

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of an inference by Ollama's names."""
        given = {"temperature": self.temperature, "top_p": self.top_p, "num_predict": self.max_output_tokens}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def told(self) -> dict[str, Any]:
        """Return the fields that a response tells back."""
        return self.model_dump(exclude={"input", "conversation", "prompt"}, exclude_none=True, by_alias=True)


class OllamaBody(Body):
    """Body of `/api/chat`, and of `/api/generate`, which has a `prompt` in the place of `messages`."""

    model: Model
    messages: list[_Message] = Field(default_factory=list)
    prompt: str = ""
    system: str | None = None
    images: list[str] | None = None
    stream: bool | None = None
    think: bool | str | None = None
    format: Literal["json", ""] | dict[str, Any] | None = None
    options: dict[str, Any] | None = None

    @property
    def schema_wanted(self) -> dict[str, Any] | None:
        """Return the JSON schema of the answer, None for text."""
        return {"type": "object"} if self.format == "json" else (self.format or None)

    @property
    def sampling(self) -> dict[str, Any]:
        """Return the options that an inference takes; those of another type than theirs are left out."""
        given, kinds = self.options or {}, {"temperature": (int, float), "top_p": (int, float), "seed": int, "num_predict": int}
        fit = {name: given[name] for name, kind in kinds.items() if isinstance(given.get(name), kind) and given[name] is not True}  # type: ignore[arg-type]
        stop = given.get("stop")
        stops = [stop] if isinstance(stop, str) else stop
        return {**fit, "stop": stops} if isinstance(stops, list) and stops and all(isinstance(one, str) for one in stops) else fit


class ShowBody(Body):
    """Body of `/api/show`."""

    model: str = ""
    name: str = ""


async def body_of(request: Request, limits: DoorLimits) -> dict[str, Any]:
    """Return the JSON object in a request's body.

    :raises MessageTooLarge: past the limit of its bytes; what is above is not read.
    :raises MalformedMessage: for a body that is not a JSON object.
    """
    taken = bytearray()
    async for piece in request.stream():
        taken += piece
        if len(taken) > limits.body_bytes:
            raise MessageTooLarge(f"a request of more than {limits.body_bytes} bytes; send smaller images, or a shorter conversation")
    if len(taken) > _IN_THREAD:
        return await asyncio.to_thread(payloads.decode, bytes(taken), depth=limits.depth)
    return payloads.decode(bytes(taken), depth=limits.depth)


def checked_body(kind: type[B], fields: dict[str, Any]) -> B:
    """Return a body of a kind.

    :raises InvalidInput: saying which field is wrong.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as e:
        found = e.errors(include_url=False)[0]
        place = ".".join(str(part)[:64] for part in found["loc"])
        raise InvalidInput(f"`{place}`: {found['msg'][:1].lower()}{found['msg'][1:200]}") from None


def conversation_of(messages: list[_Message], limits: DoorLimits) -> list[ChatWords]:
    """Return the messages of a conversation.

    :raises InvalidInput: for too many of them, or content that is neither text nor an image.
    """
    if len(messages) > limits.messages:
        raise InvalidInput(f"a conversation of {len(messages)} messages; at most {limits.messages} are taken")
    return [_words(one) for one in messages]


def _words(message: _Message) -> ChatWords:
    role = {"developer": "system", "function": "tool"}.get(message.role, message.role)
    if role not in ("system", "user", "assistant", "tool"):
        raise InvalidInput(f"role: {message.role[:64]!r} is not known; write system, user, assistant or tool")
    if not isinstance(message.content, list):
        return ChatWords(role, message.content or "", tuple(message.images or ()))
    texts: list[str] = []
    images: list[str] = []
    for part in message.content:
        if part.type in ("text", "input_text", "output_text") and part.text is not None:
            texts.append(part.text)
        elif part.type in ("image_url", "input_image") and part.image_url is not None:
            images.append(_image(part.image_url if isinstance(part.image_url, str) else part.image_url.url))
        elif part.type != "refusal":
            if part.type in ("file", "input_file"):
                raise InvalidInput(f"{part.type}: files are not taken; send their text, or let the memory read them (`batos ingest`)")
            raise InvalidInput(f"content: a part of type {part.type[:64]!r} is not taken; send text, or image_url with a data: URL")
    return ChatWords(role, "\n".join(texts), tuple(images))


def _image(url: str) -> str:
    head, comma, data = url.partition(",")
    if not (head.startswith("data:image/") and head.endswith(";base64") and comma):
        raise InvalidInput("image_url: send the image itself, as data:image/png;base64,…; the daemon fetches none from an address")
    return data


def content_digest(fields: dict[str, Any]) -> str:
    """Return the digest of a request: the same for the same question, in whichever way its answer is sent."""
    return digest({name: value for name, value in fields.items() if name not in _OF_DELIVERY})
