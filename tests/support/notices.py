"""What the tests of notices share: a world that counts what it is told, and a courier over a real image."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from batos.bus import EventBus, MissionEnded
from batos.image import LivingImage, ledger, notice_channels, notices
from batos.image.notice_channels import FACTS, ChannelSpec
from batos.image.notices import ChangeFact, NoticeMessage
from batos.notices.courier import Courier, CourierParts, NoticeLimits
from batos.schedules import book
from batos.tools.definitions import ConnectorServices
from tests.support.http_world import QuietHandler, serving

SOON = NoticeLimits(gather_s=0.0, most=1000, window_s=0.1, tries=4, backoff_s=0.01, longest_s=0.02, look_s=0.05, stop_s=0.0)


class World:
    """A server that counts the messages that it is sent."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[int] = []  # statuses of the next answers; 200 when there are none
        self.when: Callable[[], object] = bool  # called once a message has come, before it is answered
        world = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = world.answers.pop(0) if world.answers else 200
                if status < 400 or status >= 500:
                    world.heard.append(json.loads(body))
                    world.headers.append(dict(self.headers))
                    world.paths.append(self.path)
                world.when()
                with contextlib.suppress(OSError):
                    self.answer(status, {})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    @property
    def titles(self) -> list[str]:
        """Titles of what was heard, without the mark of a repetition; each key counts once, as a receiver counts."""
        seen = {one["key"]: one["title"].removeprefix("Perhaps told before: ") for one in self.heard}
        return list(seen.values())

    @property
    def told(self) -> list[str]:
        """Subjects of all notices that were heard, a repeated message once."""
        messages = {one["key"]: [notice["subject"] for notice in one["notices"]] for one in self.heard}
        return [subject for subjects in messages.values() for subject in subjects]


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A world that listens."""
    made = World()
    with serving(made.server):
        yield made


class PostOffice:
    """An image with channels, and a courier."""

    def __init__(self, image: LivingImage, folder: Path) -> None:
        self.image, self.bus, self.secrets = image, EventBus(), dict[str, str]()
        self.suspended, self.now = "", None
        self.changes: list[ChangeFact] = []
        self.services = ConnectorServices(secret=lambda name: self.secrets[name], folder=folder)

    async def add(self, name: str, way: str, place: str, **said: Any) -> None:
        """Add a channel of all facts."""
        await self.image.system(notices.add_channel, ChannelSpec(name, way, place, **{"on": FACTS, **said}), 1.0)

    async def accept(self, id: str, brief: str = "", **options: Any) -> None:
        """Accept a mission."""
        await self.image.system(ledger.accept, id, brief or f"Brief of {id}", options, True)

    async def end(self, id: str, text: str | None = "Its result.", code: str = "inference_failed") -> None:
        """End a mission as the scheduler does: with a text, or failed."""

        def over(root: Any) -> None:
            held = ledger.mission_of(root, id)
            if text is None:
                ledger.fail(root, id, {"code": code, "message": "the model is gone"}, {}, True)
            else:
                ledger.complete(held, {"text": text, "persona": "robin"}, None)

        await self.image.system(over)
        if text is not None:
            self.image.committer.defer(ledger.settle, id, False)
        self.bus.publish(MissionEnded(id, "COMPLETE" if text is not None else "FAILED", "robin", None))

    def parts(self, limits: NoticeLimits = SOON, **more: Any) -> CourierParts:
        given = {"now": self.now} if self.now is not None else {}
        return CourierParts(
            image=self.image, services=self.services, bus=self.bus, identity=lambda: "image", tied=lambda: self.suspended,
            pages=lambda: "http://127.0.0.1:5758", changes=lambda root: self.changes, limits=limits, **given, **more,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def courier(self, limits: NoticeLimits = SOON, **more: Any) -> AsyncIterator[Courier]:
        """A courier at work."""
        made = Courier(self.parts(limits, **more))
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def messages(self) -> list[NoticeMessage]:
        """All messages that are kept, the newest first."""
        return self.image.read(notices.messages)

    def waiting(self) -> int:
        """Number of notices that wait."""
        return sum(len(one.waiting) + one.more for one in self.image.read(notices.states))

    async def until(self, so: Callable[[], Any], pause_s: float = 0.01) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(90):
            while not so():
                await asyncio.sleep(pause_s)


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[PostOffice]:
    """An image on disk, with channels."""
    image = await LivingImage.open(f"file://{folder / 'live_image.fs'}", steps=(book.install, notice_channels.install))
    try:
        yield PostOffice(image, folder)
    finally:
        await image.close()
