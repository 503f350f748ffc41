"""A console as a browser meets it: a whole kernel, its web server on a free port of loopback, and an HTTP client in the same loop."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from batos.app.kernel import Kernel
from tests.support.missions import WAIT_S, FakeInference, settings


def http_client(address: str = "", **more: Any) -> httpx.AsyncClient:
    """A client of what is served without TLS: it reads no certificates, which would take 25 ms each time."""
    return httpx.AsyncClient(base_url=address, verify=False, **more)


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
    async with http_client(kernel.console.address, timeout=30) as client:
        answer = await client.get(kernel.console.link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        yield Seat(kernel, client)


class Stream:
    """A live page's events, one after the other."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The data of the next event of one of these kinds."""
        async with asyncio.timeout(WAIT_S):
            kind = ""
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind in kinds:
                    found: dict[str, Any] = json.loads(value)
                    return found
        raise AssertionError(f"the stream ended without {kinds}")

    async def until(self, words: str) -> str:
        """The HTML of the row that says these words."""
        while True:
            for _, row in (await self.next("rows"))["rows"]:
                if words in row:
                    return str(row)

    async def ended(self) -> None:
        async with asyncio.timeout(WAIT_S):
            async for _ in self._lines:
                pass


@contextlib.asynccontextmanager
async def stream(seat: Seat, path: str) -> AsyncIterator[Stream]:
    async with seat.client.stream("GET", path) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer.aiter_lines())


HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&lt;{{ 1913 * 7 }}"


def seen(page: str) -> str:
    """What a reader sees of a page, about."""
    body = page.partition("<main")[2].partition("</main>")[0]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))
