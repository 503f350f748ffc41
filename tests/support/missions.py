"""A mind on a real image on disk, with an inference that the test has in its hand in Ollama's place."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatReply, ChatRequest
from batos.config import Settings
from batos.errors import BatosError, InferenceFailed
from batos.image import ledger
from batos.image.mission_record import MissionRecord

WAIT_S = 90  # for what must come; a test that waits this long has failed
DIGEST = "d" * 64


class FakeInference:
    """Answers at once, by rule; has no embedder until it is given one. `hold` keeps chats waiting, `fail_when` fails those that fit."""

    def __init__(self) -> None:
        self.asked: list[ChatRequest] = []
        self.answered = 0
        self.digests: dict[str, str] = {}
        self.fail_when: Callable[[ChatRequest], BatosError | None] = lambda request: None
        self.embedder: Callable[[str], list[float]] | None = None
        self.embedded: list[str] = []
        self.say: Callable[[ChatRequest], str] = answer
        self._open = asyncio.Event()
        self._open.set()
        self._came = asyncio.Condition()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def came(self, count: int) -> None:
        """Return when `count` chats have been asked for in all."""
        async with asyncio.timeout(WAIT_S), self._came:
            await self._came.wait_for(lambda: len(self.asked) >= count)

    def asked_about(self, words: str) -> list[ChatRequest]:
        return [request for request in self.asked if words in request.user]

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        request.before_sent()
        self.asked.append(request)
        async with self._came:
            self._came.notify_all()
        await self._open.wait()
        failure = self.fail_when(request)
        if failure is not None:
            raise failure
        text = self.say(request)
        if on_text is not None:
            for word in text.split(" "):
                on_text(word + " ")
        self.answered += 1
        return ChatReply(text, request.model, await self.digest(request.model), 7, len(text.split()), 0.5, 2.0)

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        self.embedded.extend(texts)
        if self.embedder is None:
            raise InferenceFailed("there is no embedder here", cause="model_missing", model=model)
        return [self.embedder(text) for text in texts]

    async def digest(self, model: str) -> str:
        return self.digests.get(model, DIGEST)


def answer(request: ChatRequest) -> str:
    """A plan where a schema asks for one, else a sane answer."""
    if request.schema is not None:
        return json.dumps({name: f"what of {name}" for name in request.schema["properties"]})
    return "Take one small step and look where it led."


def settings(folder: Path, **more: Any) -> Settings:
    """Settings of a quick, quiet daemon."""
    given = {
        "autotelic": "off",
        "lora_staging": str(folder / "lora_staging"),
        "retry_backoff_s": 0,
        "shutdown_s": 5,
        "synthesis_ahead_s": 0,
        "doors": {"enabled": "off"},
    }
    return Settings(data=folder, **{**given, **more})


class Narrow(FakeInference):
    """A model whose context holds so many characters; it refuses what is longer, as Ollama does."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context, self.refused = context, 0
        self.fail_when = self.too_long

    def too_long(self, request: ChatRequest) -> InferenceFailed | None:
        if length(request) <= self.context:
            return None
        self.refused += 1
        return InferenceFailed("the input length exceeds the context length", cause="too_long", model=request.model)


def length(request: ChatRequest) -> int:
    return len(request.system) + len(request.user) + sum(len(said) + len(answered) for said, answered in request.turns)


@contextlib.asynccontextmanager
async def mind(folder: Path, inference: FakeInference, **more: Any) -> AsyncIterator[Kernel]:
    """A kernel without endpoints."""
    kernel = await Kernel.start(settings(folder, **more), inference=inference, listen=False)
    try:
        yield kernel
    finally:
        await kernel.stop()


def give(kernel: Kernel, **services: Any) -> None:
    """Let attempts that begin from now on, and replays, work with these services in the place of the kernel's own."""
    given = dataclasses.replace(kernel.attempt_services, **services)
    kernel.attempt_services = kernel.scheduler.services = kernel.replays.services = given


async def written(kernel: Kernel) -> None:
    """Return when what was deferred so far is in the image."""
    kernel.image.committer.flush()
    await kernel.image.system(lambda root: None)


class Listened:
    """The events of one mission, from now on."""

    def __init__(self, kernel: Kernel, id: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._ended = asyncio.Event()
        kernel.events.watch(id, self._hear)

    def _hear(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["type"] == "result":
            self._ended.set()

    @property
    def states(self) -> list[str]:
        return [event["state"] for event in self.events if event["type"] == "state"]

    async def end(self) -> dict[str, Any]:
        """The result event, when it comes."""
        async with asyncio.timeout(WAIT_S):
            await self._ended.wait()
        return next(event for event in self.events if event["type"] == "result")


async def submit(kernel: Kernel, id: str, brief: str = "Plan the day", **options: Any) -> Listened:
    """Submit a mission and listen to it."""
    heard = Listened(kernel, id)
    new, _ = await kernel.scheduler.submit(id, brief, options)
    assert new
    return heard


async def audited(kernel: Kernel) -> MissionRecord:
    """The record of the last self_audit, once one was accepted."""
    async with asyncio.timeout(WAIT_S):
        while not (last := kernel.info()["autotelic"]["heartbeat"]["last"]):
            await kernel.image.system(lambda root: None)
    return kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, last)))  # type: ignore[no-any-return]


async def replayed(kernel: Kernel, inference: FakeInference, id: str = "m1") -> dict[str, Any]:
    """A replay, which asks no model and leaves no trace."""
    await kernel.image.system(lambda root: None)  # with it comes what was deferred
    asked, tid = len(inference.asked), kernel.image.db.lastTransaction()
    found = await kernel.replays.replay(id)
    await kernel.image.system(lambda root: None)
    assert len(inference.asked) == asked
    assert kernel.image.db.lastTransaction() == tid
    return found


TWO = "I feel so lonely and sad since she left. Then plan a small dinner for four friends."
