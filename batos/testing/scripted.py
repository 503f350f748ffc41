"""ScriptedOllama: an Ollama server without models. Real HTTP on a loopback socket, Ollama's wire shapes, answers by script.

with ScriptedOllama() as server:
    server.say("four", when="two and two")
    server.fail("cut", times=1)
    inference = OllamaInference(server.host)
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from http.server import ThreadingHTTPServer
from typing import Any

from batos.testing.handler import Handler
from batos.testing.models import Model, base, tagged
from batos.testing.runners import Runners
from batos.testing.script import Answer, Fault, FaultKind, Script, When

EMBEDDED = ("smollm2:embedded", "minilm:embedded", "robin:embedded", "brick:embedded", "babs:embedded", "alfred:embedded")
VERSION = "0.21.0"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request that came in; `body` is its JSON, empty where it had none."""

    method: str
    path: str
    body: dict[str, Any]


class ScriptedOllama:
    """The server. A context manager; safe to script from any thread while it runs.

    :param models: names of models that are there from the beginning; those of the profile `embedded` if left out.
    :param pullable: names that `pull` can have; any other cannot be found.
    """

    handler: type[Handler] = Handler  # of each connection

    def __init__(self, models: Iterable[str] = EMBEDDED, *, pullable: Iterable[str] = ()) -> None:
        self.script = Script()
        self.models: dict[str, Model] = {tagged(m): base(m) for m in models}
        self.blobs: dict[str, bytes] = {}
        self.pullable = {tagged(m) for m in pullable}
        self.pulled: dict[str, Model] = {}
        """By name, what comes of a pull; of any other, a model like those that are there from the beginning."""
        self.requests: list[Recorded] = []
        self.abandoned = 0
        self.connections: set[socket.socket] = set()
        self.runners = Runners()
        self._came = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0

    def __enter__(self) -> ScriptedOllama:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def host(self) -> str:
        """`127.0.0.1:port`; the same after `stop` and `start`."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    @property
    def version(self) -> str:
        """The version that the server claims."""
        return VERSION

    def start(self) -> None:
        """Listen; a server that was stopped comes back on its port, with its models."""
        self._server = _Server(("127.0.0.1", self._port), type("BoundHandler", (self.handler,), {"owner": self}))
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="scripted-ollama", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and end what is under way: the server is down, connections are refused."""
        server, self._server = self._server, None
        if server is None:
            return
        self.script.close()
        server.shutdown()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):  # its client was faster
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()  # waits for the threads of requests
        if self._thread is not None:
            self._thread.join()
        self.script.reopen()

    def give_sight(self, *names: str) -> None:
        """Let models that are there see; so do those that are made of them from then on."""
        for name in map(tagged, names):
            self.models[name] = replace(self.models[name], can=(*self.models[name].can, "vision"))

    # --- the script

    def say(self, answer: Answer, when: When = None, times: int | None = None) -> None:
        """Answer chats with a text, or with what a function makes of the request.

        `<think>…</think>` before an answer is parted from it where the model's template knows `.Thinking`, as Ollama does.

        :param when: a part of any message's text, or a function of the request; None: every chat.
        :param times: how often; None: always. Rules are tried in the order in which they were given.
        """
        self.script.say(answer, when, times)

    def fail(
        self, kind: FaultKind, times: int | None = 1, when: When = None, *, path: str = "/api/chat", seconds: float | None = None
    ) -> None:
        """Fail requests to `path`.

        `refuse`: the connection is closed without a word; `status_404`, `status_500`, `status_503`: as Ollama says it; `junk`: what
        comes is no JSON; `hang`: nothing comes; `slow`: the first token comes after `seconds`, else at `release`. In the middle of
        an answer, `cut`: the stream breaks off; `stall`: it goes on no more; `error`: it brings an error. `full`: the disk is, which a
        create or a pull says in its stream, an upload (path `/api/blobs`) at once.
        """
        self.script.fail(Fault(kind, seconds), path, when, times)

    def clear(self) -> None:
        """Forget all answers and faults."""
        self.script.clear()

    def hold(self) -> None:
        """Keep chats waiting before their first token, until `release`."""
        self.script.hold()

    def release(self) -> None:
        """Let held and slow chats go on."""
        self.script.release()

    # --- what happened

    @property
    def counts(self) -> Counter[str]:
        """Requests by path."""
        with self._came:
            return Counter(r.path for r in self.requests)

    @property
    def uploads(self) -> int:
        """How many files were uploaded."""
        with self._came:
            return sum(r.method == "POST" and r.path.startswith("/api/blobs/") for r in self.requests)

    @property
    def chats(self) -> list[dict[str, Any]]:
        """The bodies of all chat requests, in order."""
        with self._came:
            return [r.body for r in self.requests if r.path == "/api/chat"]

    def wait_for(self, path: str = "/api/chat", count: int = 1, timeout_s: float = 30) -> None:
        """Block until `count` requests to `path` have come in all.

        :raises TimeoutError: when they have not.
        """
        self._wait(lambda: sum(r.path == path for r in self.requests) >= count, f"{count} requests to {path}", timeout_s)

    def wait_abandoned(self, count: int = 1, timeout_s: float = 30) -> None:
        """Block until clients have left `count` requests before their end.

        :raises TimeoutError: when they have not.
        """
        self._wait(lambda: self.abandoned >= count, f"{count} abandoned requests", timeout_s)

    def _wait(self, until: Callable[[], bool], what: str, timeout_s: float) -> None:
        with self._came:
            if not self._came.wait_for(until, timeout_s):
                raise TimeoutError(f"waited {timeout_s} s for {what}")

    def record(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Note a request; answers its body (for the handler)."""
        try:
            parsed = json.loads(body) if body else {}
        except ValueError:
            parsed = {}
        known = parsed if isinstance(parsed, dict) else {}
        with self._came:
            self.requests.append(Recorded(method, path, known))
            self._came.notify_all()
        return known

    def note_abandoned(self) -> None:
        """Note that a client left (for the handler)."""
        with self._came:
            self.abandoned += 1
            self._came.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for them: no thread outlives a test
    allow_reuse_address = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is part of many tests; anything else is a fault of this server and must be seen."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
