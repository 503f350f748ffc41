"""A console as a browser meets it: a whole kernel, its web server on a free port of loopback, and an HTTP client in the same loop."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from batos.app.kernel import Kernel
from tests.unit.mind_support import FakeInference, settings


class Seat:
    """A browser with a session."""

    def __init__(self, kernel: Kernel, client: httpx.AsyncClient) -> None:
        self.kernel, self.client = kernel, client

    async def see(self, path: str, status: int = 200, **query: Any) -> str:
        """The HTML of a page."""
        answer = await self.client.get(path, params=query or None)
        assert answer.status_code == status, answer.text
        return answer.text

    async def post(self, path: str, **fields: Any) -> httpx.Response:
        """Send a form, as a page of the console does."""
        return await self.client.post(path, data=fields, headers={"Origin": str(self.client.base_url).rstrip("/")})

    async def gave(self, brief: str, **fields: Any) -> str:
        """Give a mission; its id."""
        page = await self.see("/")
        id = re.search(r'name="id" value="([0-9a-f-]{36})"', page)
        assert id is not None
        answer = await self.post("/submit", id=id[1], brief=brief, **fields)
        assert answer.status_code == 303, answer.text
        assert parse_qs(urlsplit(answer.headers["location"]).query)["id"] == [id[1]]
        return id[1]


@contextlib.asynccontextmanager
async def served(folder: Path, inference: FakeInference | None = None, **more: Any) -> AsyncIterator[Kernel]:
    """A kernel that serves its console."""
    given = {"console": "on", "console_listen": "127.0.0.1:0", "listen": (f"ipc://{folder}/s",), "linger_s": 0.5, "remember": "off", **more}
    kernel = await Kernel.start(settings(folder, **given), inference=inference or FakeInference())
    try:
        yield kernel
    finally:
        await kernel.stop()


@contextlib.asynccontextmanager
async def seated(kernel: Kernel) -> AsyncIterator[Seat]:
    """A browser that came by the link."""
    assert kernel.console is not None
    async with httpx.AsyncClient(base_url=kernel.console.address, timeout=30) as client:
        answer = await client.get(kernel.console.link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        yield Seat(kernel, client)
