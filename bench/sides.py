"""The two sides of a comparison, on one real Ollama: a mission of a kernel, and the same words to the same model by a bare client."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ollama import AsyncClient

from batos.app.kernel import Kernel
from batos.bridge.client import connect
from batos.bridge.ollama_server import OllamaService
from batos.config import Settings, load
from batos.image import ledger

TEMPERATURE = 0.2  # of the bare call
_ask = AsyncClient.chat  # as it is before `Overheard` listens


@dataclass(frozen=True)
class Said:
    """An answer. `first_s` and `seconds`: from the question to its first piece, and to its end."""

    text: str
    seconds: float
    first_s: float
    depth: str = ""  # that a mission was thought at, where its record says so
    tokens: int = 0  # that the model wrote, of a bare call
    error: str = ""  # the code of a mission that FAILED: it has said nothing


@dataclass(frozen=True)
class Sides:
    """A running kernel and a bare client of its Ollama. `model` is what the client asks: what the personas are made of."""

    kernel: Kernel
    client: AsyncClient
    model: str
    depth: str = ""

    async def mission(self, id: str, brief: str, earlier: tuple[dict[str, str], ...] = ()) -> Said:
        """Have a brief thought, as a client of the daemon would; what was said `earlier` is the mission that it follows."""
        options: dict[str, Any] = {"depth": self.depth} if self.depth else {}
        if earlier:
            options["context"] = await self._earlier(id, earlier)
        ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        first: list[float] = []

        def hear(event: dict[str, Any]) -> None:
            if event["type"] == "token" and not first:
                first.append(time.perf_counter() - begun)
            if event["type"] == "result" and not ended.done():
                ended.set_result(event)

        stop = self.kernel.events.watch(id, hear)
        begun = time.perf_counter()
        try:
            await self.kernel.scheduler.submit(id, brief, options)
            event = await ended
        finally:
            stop()
        seconds = time.perf_counter() - begun
        result, error = event.get("result") or {}, event.get("error") or {}
        depth, code = str(result.get("depth", "")), str(error.get("code", ""))
        return Said(result.get("text", ""), seconds, first[0] if first else seconds, depth, error=code)

    async def _earlier(self, id: str, earlier: tuple[dict[str, str], ...]) -> str:
        """The conversation before a mission, as missions that have ended; the id of the last."""
        before = None
        for turn, (asked, answered) in enumerate(zip(earlier[::2], earlier[1::2], strict=True)):
            own = f"{id}-before{turn}"
            await self.kernel.image.system(_told, own, asked["content"], answered["content"], before)
            before = own
        assert before is not None
        return before

    async def direct(self, brief: str, earlier: tuple[dict[str, str], ...] = (), *, seed: int = 0) -> Said:
        """Ask the model itself: no system message, the kernel's `num_ctx` and `num_predict`."""
        own = {name: value for name, value in self.kernel.substrate.options.items() if name in ("num_ctx", "num_predict", "num_thread")}
        messages = [*earlier, {"role": "user", "content": brief}]
        return await self.call(model=self.model, messages=messages, options={**own, "temperature": TEMPERATURE, "seed": seed})

    async def call(self, **arguments: Any) -> Said:
        """Ask by the bare client, streamed."""
        pieces: list[str] = []
        first, tokens, begun = 0.0, 0, time.perf_counter()
        async for part in await _ask(self.client, **{**arguments, "stream": True}):
            if part.message.content:
                first = first or time.perf_counter() - begun
                pieces.append(part.message.content)
            tokens = part.eval_count or 0
        seconds = time.perf_counter() - begun
        return Said("".join(pieces), seconds, first or seconds, tokens=tokens)


def _told(root: Any, id: str, brief: str, answer: str, before: str | None) -> None:
    ledger.accept(root, id, brief, {} if before is None else {"context": before}, False)
    ledger.complete(ledger.mission_of(root, id), {"text": answer}, None)
    ledger.settle(root, id)


class Overheard:
    """What a kernel in this process asks its Ollama, while the block lasts: the arguments of each streamed chat, and its last part.

    :param fixed: options that every chat gets, whatever it asks for.
    """

    def __init__(self, **fixed: Any) -> None:
        self.fixed = fixed
        self.asked: list[dict[str, Any]] = []
        self.ended: list[Any] = []

    def __enter__(self) -> Overheard:
        async def chat(client: AsyncClient, *args: Any, **named: Any) -> Any:
            asked = inspect.signature(_ask).bind(client, *args, **named).arguments
            del asked["self"]
            if not asked.get("stream"):  # a probe, no answer of a mission
                return await _ask(client, **asked)
            asked["options"] = {**(asked.get("options") or {}), **self.fixed}
            self.asked.append(asked)
            stream = await _ask(client, **asked)

            async def parts() -> AsyncIterator[Any]:
                async for part in stream:
                    if part.done:
                        self.ended.append(part)
                    yield part

            return parts()

        AsyncClient.chat = chat  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *failure: object) -> None:
        AsyncClient.chat = _ask  # type: ignore[method-assign]

    def clear(self) -> None:
        """Forget what was asked so far."""
        self.asked.clear()
        self.ended.clear()

    @property
    def read_s(self) -> float:
        """Seconds that the server spent reading prompts."""
        return sum((part.prompt_eval_duration or 0) / 1e9 for part in self.ended)

    @property
    def read_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(part.prompt_eval_count or 0 for part in self.ended)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which Ollama, which model, and where."""
    parser.add_argument("--model", default="", help="that all personas speak with; default: the profile's")
    parser.add_argument("--profile", default="embedded")
    parser.add_argument("--host", default="", help="address of an Ollama that runs; default: one of its own")
    parser.add_argument("--threads", type=int, default=0, help="the setting num_thread, for both sides; 0: the profile's")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for Ollama's models and the image, 600 MB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")


@contextlib.asynccontextmanager
async def server(args: argparse.Namespace) -> AsyncIterator[tuple[str, Path]]:
    """Address of the Ollama that `args` name, or of one that lasts as long as the block, and a folder that lasts as long."""
    folder = Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    try:
        if args.host:
            yield args.host, folder
            return
        service = OllamaService(load({"data": folder, "ollama_host": "127.0.0.1:1"}, environ={}))  # nobody answers there: one of its own
        try:
            yield await service.start(), folder
        finally:
            await service.stop()
    finally:
        shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def sides(host: str, folder: Path, args: argparse.Namespace, depth: str = "", **more: Any) -> AsyncIterator[Sides]:
    """A kernel with an image of its own, and a bare client.

    Missions see nothing of one another (`remember` is off), and the model has nothing else to do meanwhile: `autotelic` and `curate` are
    off, and there are no experts to build.

    :param depth: that missions ask for; "": they ask for none.
    :raises SystemExit: where this version of BAT OS knows no depth, or no setting `model`.
    """
    if depth and "depth" not in ledger.DEFAULTS:
        raise SystemExit("--depth: missions of this version have no depth; leave it out")
    if args.model and "model" not in Settings.model_fields and "inference" not in Settings.model_fields:
        raise SystemExit("--model: this version has no setting 'model'; give a --profile")
    (experts := folder / "lora_staging").mkdir(parents=True)
    wanted: dict[str, Any] = {
        "data": folder, "ollama_host": host, "profile": args.profile, "autotelic": "off", "curate": "off", "remember": "off",
        "lora_staging": str(experts),
        "num_thread": args.threads, **({"model": args.model} if args.model else {}), **more,
    }  # fmt: skip
    kernel = await Kernel.start(load(wanted, environ={}), listen=False)
    try:
        await kernel.models_settled()
        async with connect(host) as client:
            yield Sides(kernel, client, args.model or kernel.profile.base, depth)
    finally:
        await kernel.stop()
