"""Inference: requests, answers and the protocol between the parts that ask for an inference and those that do it.

These are pure values and one protocol. Mind, memory and the benches depend on this module only, so that they can be given
`bridge.client.OllamaInference` or any other implementation.

An inference waits for its model: before provisioning has ended it waits, and a model that vanished is provided again.

Pictures are recognised by their first bytes: the formats that Ollama reads (PNG, JPEG, WebP), and the size in pixels. Nothing is decoded
here. The size matters because a file of a few bytes may claim to be a square of 60,000 pixels, and decoding it takes 14 GB. No library is
used: those that read headers only are no smaller than this code, and those that decode do too much.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from batos.errors import InferenceFailed, InvalidInput


def _nothing() -> None:
    """Let a request leave."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One inference: everything that decides its answer.

    `schema` is a JSON schema for the answer. `options` are Ollama's (`num_ctx`, `num_predict`, `temperature`, `seed`, `stop` ...) as pairs
    sorted by name. `think` among them makes the model think before it answers.

    `begun` is the beginning of the answer, kept from an interrupted attempt, and `begun_tokens` its cost: the model continues it if its
    template allows. It is not part of the answer's key.

    `turns` are the conversation so far, as pairs of a user's message and its answer, the oldest first.

    `digest`, if given, is that of the model which must answer: it is part of the answer's key. `shown` names pictures by their digests,
    for each turn and at the end for the user's message: they are part of the key. `images` are the same in base64, as they are sent.
    `tools` are offered to the model, in the form of Ollama's API; they are part of the key.

    `before_sent` is called each time just before the request leaves, when its turn has come; what it raises is raised. It is not part of
    the answer's key.
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
    before_sent: Callable[[], object] = field(default=_nothing, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """An answer with its cost. `text` is the whole answer, including its earlier partial text. `digest` is that of the model that answered.
    `thinking` is the model's thought and never part of `text`; its tokens count as tokens of the answer.

    Times in milliseconds, as Ollama gives them: loading the model, reading the prompt, writing; `total_ms` is what the caller waited.

    `done_reason` is Ollama's (`stop`: the model ended; `length`: `num_predict` ended it), or `cut` where the bridge ended a
    runaway generation.

    `calls` are those of offered tools that the model asks for. They are pairs of a tool's name and its arguments as a JSON object, not yet
    checked against the tool's schema.
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
    calls: tuple[tuple[str, str], ...] = ()


class EmbeddedTexts(list[list[float]]):
    """Vectors of texts, in order, with the tokens that were read for them."""

    def __init__(self, vectors: Iterable[list[float]] = (), tokens: int = 0) -> None:
        super().__init__(vectors)
        self.tokens = tokens


@runtime_checkable
class Inference(Protocol):
    """Something that thinks. `bridge.client.OllamaInference` is the real one."""

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        """Answer `request`; `on_text` gets each piece of text as it arrives.

        :raises InferenceFailed: with its cause; cancelling the caller stops the generation on the server.
        """
        ...

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """Return one vector for each text, in order: `EmbeddedTexts` where the tokens are known.

        :raises InferenceFailed: with its cause.
        """
        ...

    async def continues(self, model: str) -> bool:
        """Return True if the model continues an answer that was begun (`ChatRequest.begun`); otherwise it begins again."""
        ...

    async def digest(self, model: str) -> str:
        """Return the content digest of a model.

        :raises InferenceFailed: with cause `model_missing` where there is no such model.
        """
        ...


T = TypeVar("T")
Ensure = Callable[[str], Awaitable[object]]


class ReadyInference:
    """An `Inference` in front of another one."""

    def __init__(self, inference: Inference, *, ready: Ensure, heal: Ensure) -> None:
        """
        :param ready: returns when a model is there; raises ProvisioningFailed if the model is not available.
        :param heal: brings back a model that was there and is gone.
        """
        self._inference, self._ready, self._heal = inference, ready, heal

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        return await self._with(request.model, lambda: self._inference.chat(request, deadline_s=deadline_s, on_text=on_text))

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        return await self._with(model, lambda: self._inference.embed(model, texts, deadline_s=deadline_s))

    async def continues(self, model: str) -> bool:
        return await self._with(model, lambda: self._inference.continues(model))

    async def digest(self, model: str) -> str:
        return await self._with(model, lambda: self._inference.digest(model))

    async def _with(self, model: str, ask: Callable[[], Awaitable[T]]) -> T:
        await self._ready(model)
        try:
            return await ask()
        except InferenceFailed as e:
            if e.cause != "model_missing":
                raise
        await self._heal(model)  # the model is gone, for example deleted by hand
        await self._ready(model)
        return await ask()


FORMATS = "PNG, JPEG and WebP"
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_ANIMATED = 0x02
_OTHERS = (
    (0, b"GIF8", "a GIF"), (0, b"BM", "a BMP"), (0, b"II*\0", "a TIFF"), (0, b"MM\0*", "a TIFF"), (4, b"ftypheic", "a HEIC"),
    (4, b"ftypheix", "a HEIC"), (4, b"ftypmif1", "a HEIF"), (4, b"ftypavif", "an AVIF"), (0, b"%PDF", "a PDF"), (0, b"<svg", "an SVG"),
    (0, b"<?xml", "an XML file"),
)  # fmt: skip
"""Image formats that Ollama does not read: offset and bytes of the signature, and the name of the format."""


class PictureLook(NamedTuple):
    """Header of a picture: its media type, and its size in pixels."""

    type: str
    width: int
    height: int


def picture_look(data: bytes) -> PictureLook:
    """Return format and size of a picture.

    :raises InvalidInput: for what Ollama cannot read: another format, one that breaks off before it says its size, one that moves.
    """
    for name, find in (("png", _png), ("jpeg", _jpeg), ("webp", _webp)):
        size = find(data)
        if size is not None:
            if min(size) < 1:
                raise InvalidInput(f"this {name.upper()} is broken: it does not say its size; save it anew")
            return PictureLook(f"image/{name}", *size)
    there = next((f"it is {name}" for at, mark, name in _OTHERS if data[at : at + len(mark)] == mark), "its format is not known")
    raise InvalidInput(f"models take {FORMATS}, and the content of this picture is none of these: {there}; convert it")


_NO_SIZE = (0, 0)


def _png(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_PNG):
        return None
    if data[12:16] != b"IHDR" or len(data) < 24:
        return _NO_SIZE
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _jpeg(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_JPEG):
        return None
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if mark == 0xFF:  # a fill byte
            at += 1
        elif 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):  # start of a frame
            frame = data[at + 5 : at + 9]
            return (int.from_bytes(frame[2:], "big"), int.from_bytes(frame[:2], "big")) if len(frame) == 4 else _NO_SIZE
        elif mark == 0x01 or 0xD0 <= mark <= 0xD7:  # markers without a length
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return _NO_SIZE


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    kind, body = data[12:16], data[20:30]
    if len(body) < 10:
        return _NO_SIZE
    if kind == b"VP8X":
        if body[0] & _ANIMATED:
            raise InvalidInput("this WebP is animated, and models take still pictures only; save one of its frames")
        return int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
    if kind == b"VP8L" and body[0] == 0x2F:
        bits = int.from_bytes(body[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        return int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF
    return _NO_SIZE
