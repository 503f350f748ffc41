"""Live events of a page, as server-sent events: the rows of the missions page, and the events of one mission."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from batos.config import Settings
from batos.console.access import ConsoleLimits
from batos.console.api_client import Heard, Reply
from batos.errors import Busy
from batos.wire.endpoints import WireLimits

log = structlog.get_logger("batos.console")

P = TypeVar("P")
Read = TypeVar("Read", contravariant=True)
Rows = dict[str, str]
_UNHEARD_S = 2.0  # seconds without an event after which the rows are read again: a mission that waits in the queue sends none


class Feed:
    """Feed of changes to live pages. One task reads for all pages, and only while there are any. On the loop's thread."""

    def __init__(self, look: Callable[[], Awaitable[Rows]], settings: Settings, gone: Callable[[Heard], None] = lambda page: None) -> None:
        """
        :param look: returns the present rows: the HTML of each by the mission's id, newest first.
        :param gone: called with each page that was closed.
        """
        self._look, self._settings, self._gone = look, settings, gone
        self._touched = asyncio.Event()
        self._pages: dict[Heard, str] = {}  # page: its session
        self._followers: dict[Heard, Rows] = {}  # page: the rows that it received last
        self.reader: asyncio.Task[None] | None = None
        self._closed = False

    def touch(self, event: Reply) -> None:
        """Hear that something happened to some mission."""
        self._touched.set()

    def open(self, session: str) -> Heard:
        """Return a new live page of a session.

        :raises Busy: past `ConsoleLimits.pages`, and when the daemon stops.
        """
        if self._closed or len(self._pages) >= ConsoleLimits.of(self._settings).pages:
            raise Busy(f"{len(self._pages)} live pages are open; close one, or come again later")
        page = Heard(WireLimits.of(self._settings).client_queue)
        self._pages[page] = session
        return page

    def follow(self, page: Heard) -> None:
        """Tell a page of the rows, and of those that change."""
        self._followers[page] = {}
        self._touched.set()
        if self.reader is None:
            self.reader = asyncio.create_task(self._read(), name="console feed")

    def shut(self, page: Heard) -> None:
        """Close a live page."""
        page.close()
        self._gone(page)
        self._pages.pop(page, None)
        self._followers.pop(page, None)
        if not self._followers and self.reader is not None:
            self.reader.cancel()
            self.reader = None

    async def shut_ended(self, is_open: Callable[[str], bool]) -> None:
        """Close the pages of sessions that have ended.

        :param is_open: returns True if a session is open; called in another thread.
        """
        for session in set(self._pages.values()):
            if not await asyncio.to_thread(is_open, session):
                for page in [page for page, its in self._pages.items() if its == session]:
                    self.shut(page)

    def close(self) -> None:
        """End every page."""
        self._closed = True
        for page in list(self._pages):
            self.shut(page)

    async def messages(self, page: Heard) -> AsyncGenerator[bytes]:
        """Yield the messages of a page, and a ping when there are none, so that a closed page is noticed."""
        while True:
            try:
                async with asyncio.timeout(WireLimits.of(self._settings).ping_s):
                    reply = await page.next()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if reply is None:
                return
            yield message_of(reply["type"], reply)
            if reply["type"] == "result":
                return

    async def _read(self) -> None:
        while True:
            self._touched.clear()
            try:
                self._tell(await self._look())
            except Exception as e:  # the pages keep their rows; the next read may succeed
                log.warning("rows_not_read", error=repr(e))
            await asyncio.sleep(ConsoleLimits.of(self._settings).refresh_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_UNHEARD_S):
                    await self._touched.wait()

    def _tell(self, rows: Rows) -> None:
        for page, told in self._followers.items():
            changed = [[id, html] for id, html in rows.items() if told.get(id) != html]
            if changed and not page.full:
                page.send({"type": "rows", "rows": changed}, event=True)
                self._followers[page] = rows


def message_of(name: str, data: Any, id: str = "") -> bytes:
    """Return one server-sent event. JSON has no line ends, so that nothing in the data ends the message.

    :param id: the reader's place after it, which he names when he comes back; empty: none.
    """
    place = f"id: {id}\n" if id else ""
    return f"{place}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


class LiveFeed(Protocol[Read]):
    """Feed of live pages, or of other readers."""

    def messages(self, page: Read, /) -> AsyncGenerator[bytes]:
        """Yield the messages of a reader."""

    def shut(self, page: Read, /) -> None:
        """Hear that a reader has gone."""


class EventStream(StreamingResponse, Generic[P]):
    """The answer to a live page, or another reader of a feed; whatever ends it, the feed hears of that."""

    def __init__(self, feed: LiveFeed[P], page: P) -> None:
        super().__init__(feed.messages(page), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._feed, self._page = feed, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer until the mission has ended, the reader has gone, or the daemon stops."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.shut(self._page)
