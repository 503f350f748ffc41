"""Doors as a chat client meets them: a whole kernel, its server on a free port of loopback, and an HTTP client in the same loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import httpx

from batos.app.kernel import Kernel
from batos.console.access import token_of
from batos.console.api_client import Asker
from tests.support.console import http_client
from tests.support.missions import FakeInference, settings


@contextlib.asynccontextmanager
async def kernel_with_doors(
    folder: Path, inference: FakeInference | None = None, limits: tuple[Any, ...] = (), **more: Any
) -> AsyncIterator[Kernel]:
    """A kernel that serves its doors.

    :param more: settings; those of the section `doors` as `doors_NAME`.
    """
    doors = {"enabled": "on", "listen": "127.0.0.1:0"} | {
        n.removeprefix("doors_"): more.pop(n) for n in list(more) if n.startswith("doors_")
    }
    given = {"listen": (f"ipc://{folder}/s",), "linger_s": 0.5, "remember": "off", "depth": "direct", **more}
    made = settings(folder, doors=doors, limits=limits, **given)
    kernel = await Kernel.start(made, inference=inference or FakeInference())
    try:
        yield kernel
    finally:
        await kernel.stop()


def door_token(kernel: Kernel) -> str:
    """The token of a kernel's doors."""
    return token_of(kernel.settings.data)


@contextlib.asynccontextmanager
async def chat_client(kernel: Kernel, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the token."""
    assert kernel.doors is not None
    async with http_client(
        kernel.doors.address, timeout=60, headers={"Authorization": f"Bearer {door_token(kernel)}", **headers}
    ) as client:
        yield client


def user(text: str) -> dict[str, str]:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    """An answer, as clients send it back."""
    return {"role": "assistant", "content": text}


async def completion(
    client: httpx.AsyncClient, *messages: dict[str, Any], status: int = 200, model: str = "batos", **more: Any
) -> dict[str, Any]:
    """The body of a whole chat completion; `headers` among the fields are sent as headers."""
    headers = more.pop("headers", None)
    reply = await client.post("/v1/chat/completions", json={"model": model, "messages": messages, **more}, headers=headers)
    assert reply.status_code == status, reply.text
    told: dict[str, Any] = reply.json()
    return {**told, "mission": reply.headers.get("x-batos-mission")}


def said(reply: dict[str, Any]) -> str:
    """The text of a completion."""
    return str(reply["choices"][0]["message"]["content"])


def events(body: str) -> list[dict[str, Any]]:
    """The events of a stream, which must have its end."""
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def accepted(kernel: Kernel) -> list[str]:
    """The ids of the missions that users gave."""
    found = await Asker(kernel.transport.dispatcher, kernel.settings).ask("missions", system=False)
    return [one["id"] for one in found["missions"]]


class Served:
    """A kernel with doors on a loop of its own, for requests from a thread."""

    def __init__(self, folder: Path, *limits: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self._life = contextlib.AsyncExitStack()
        inference = FakeInference()
        inference.embedder = lambda text: [float(len(text)), 1.0]
        self.kernel: Kernel = self.run(self._life.enter_async_context(kernel_with_doors(folder, inference, limits=limits)))
        assert self.kernel.doors is not None
        self.client = httpx.Client(
            base_url=self.kernel.doors.address, headers={"Authorization": f"Bearer {door_token(self.kernel)}"}, timeout=60
        )

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.client.close()
        self.run(self._life.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
