"""A daemon's wire side on a thread of its own: a real listener, with scripted replies behind it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from structlog.testing import capture_logs

from batos.cli import main
from batos.config import Settings
from batos.errors import BatosError
from batos.wire.fields import Request
from batos.wire.listener import Listener
from batos.wire.outbox import ClientHandle

Reply = dict[str, Any] | list[dict[str, Any]] | BatosError
Script = dict[str, Reply | Callable[[Request], Reply]]


class Daemon:
    """Answers each op by its script: one reply, several, or an error."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.endpoint = ""
        self.watchers: list[ClientHandle] = []
        self.heard = threading.Event()  # a watch was answered as far as the script goes

    async def handle(self, request: Request, client: ClientHandle) -> None:
        self.requests.append(request)
        scripted = self.script[request.op]
        reply = scripted(request) if callable(scripted) else scripted
        if isinstance(reply, BatosError):
            raise reply
        for one in reply if isinstance(reply, list) else [reply]:
            client.send({"id": request.mission, **one} if request.mission else dict(one))
        if request.op == "watch":
            self.watchers.append(client)
            self.heard.set()


@contextlib.contextmanager
def daemon(script: Script) -> Iterator[Daemon]:
    """A scripted daemon on a free loopback port."""
    scripted = Daemon(script)
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        listener = Listener(["tcp://127.0.0.1:*"], Settings(folders=("/",)), scripted)
        await listener.start()
        scripted.endpoint = listener.bound[0]
        started.set()
        await stop.wait()
        await listener.stop()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    with capture_logs():
        thread.start()
        assert started.wait(60)
    try:
        with capture_logs():  # the listener's; a process of its own would write them elsewhere
            yield scripted
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def batos(script: Script, *words: str) -> tuple[int, list[Any]]:
    with daemon(script) as scripted:
        return main([*words, "--connect", scripted.endpoint]), scripted.requests
