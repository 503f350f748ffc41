"""ScriptedOllama: an Ollama server without models.

    with ScriptedOllama() as server:
        server.say("four", when="two and two")
        server.fail("cut", times=1)
        inference = OllamaInference(server.host)

It speaks real HTTP on a loopback socket, in Ollama's wire format; answers and faults follow a script.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import select
import socket
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from batos.testing.models import DETAILS, MADE_AT, Model, Runners, base, build, sha256, tagged
from batos.testing.script import Answer, Fault, FaultKind, Script, WaitKind, When, embedding, parted, pieces, stopped

TOKEN_NS = 1_000_000  # nanoseconds that a token claims to take
LOAD_NS = 400_000_000  # nanoseconds that loading claims to take
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
IMAGE_TOKENS = 256  # tokens of the prompt that an image takes
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF")
"""First bytes of the images that an Ollama can decode."""
EMBED_CONTEXT = 510  # words that an embedder reads at a time
NO_ROOM = "write /models/blobs/sha256-0: no space left on device"
STATUS: dict[str, tuple[int, dict[str, Any]]] = {
    "status_404": (404, {"error": "model not found"}),
    "status_500": (500, {"error": "the model runner ended unexpectedly"}),
    "overtaken": (500, {"error": "stat /models/manifests/library/another/latest: no such file or directory"}),  # see batos.bridge.failures
    "layer_gone": (500, {"error": "open /models/blobs/sha256-0: no such file or directory"}),
    "status_503": (503, {"error": "server busy, please try again. maximum pending requests exceeded"}),
}


class ScriptedHandler(BaseHTTPRequestHandler):
    """One connection."""

    owner: ScriptedOllama
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def finish(self) -> None:
        self.owner.connections.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet: `owner.requests` is the log."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_HEAD(self) -> None:
        self.owner.record("HEAD", self.path, b"")
        self._empty(200 if self.path.removeprefix("/api/blobs/") in self.owner.blobs else 404)

    def do_POST(self) -> None:
        self._answer(self._body())

    def do_DELETE(self) -> None:
        self._answer(self._body())

    # --- one request

    def _answer(self, body: bytes) -> None:
        if self.path.startswith("/api/blobs/"):
            return self._blob(body, self.owner.script.fault_for("/api/blobs", {}))
        request = self.owner.record(self.command, self.path, body)
        if body and not request and body.strip() != b"{}":
            return self._json(400, {"error": "unexpected EOF"})
        fault = self.owner.script.fault_for(self.path, request)
        if fault is not None and self._early(fault):
            return None
        serve = {
            "/api/version": self._version, "/api/tags": self._tags, "/api/ps": self._ps, "/api/show": self._show,
            "/api/create": self._create, "/api/pull": self._pull, "/api/copy": self._copy, "/api/delete": self._delete,
            "/api/embed": self._embed, "/api/generate": self._generate,
        }  # fmt: skip
        if fault is not None and fault.kind == "full":
            return self._stream([{"status": "creating new layer"}, {"error": NO_ROOM}])
        if self.path == "/api/chat":
            return self._chat(request, fault)
        if self.path not in serve:
            return self._json(404, {"error": "404 page not found"})
        return serve[self.path](request)

    def _early(self, fault: Fault) -> bool:
        """Play a fault that comes before any answer. Return False if the answer plays the fault itself, or follows it."""
        if fault.kind == "refuse":
            self.close_connection = True
            # reset the connection instead of closing it in order
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
        elif fault.kind in STATUS:
            self._json(*STATUS[fault.kind])
        elif fault.kind == "junk":
            self._raw(200, b"<html>this is no JSON\n", "application/x-ndjson")
        elif fault.kind == "hang":
            self._wait("good")
        elif fault.kind == "slow":
            return not (self._wait("release") if fault.seconds is None else self._wait("seconds", fault.seconds))
        else:
            return False
        return True

    def _chat(self, request: dict[str, Any], fault: Fault | None) -> None:
        name = tagged(str(request.get("model", "")))
        if (model := self.owner.models.get(name)) is None:
            return self._json(404, {"error": f"model '{request.get('model')}' not found"})
        if not self._wait("held"):
            return None
        loaded = self.owner.runners.use(name, model, request.get("options"))
        if not request.get("messages"):
            return self._json(200, _part(name, "", done=True, done_reason="load"))
        template = model.template
        if request.get("think") and ".Thinking" not in template:
            return self._json(400, {"error": f'"{name}" does not support thinking'})
        if request.get("tools") and "tools" not in model.can:
            return self._json(400, {"error": f'"{name}" does not support tools'})
        if (refusal := _unseen(request, sees="vision" in model.can)) is not None:
            return self._json(*refusal)
        try:
            answer = self.owner.script.answer_for(request)
        except LookupError:  # an unknown type or $ref
            return self._json(500, {"error": "invalid JSON schema in format"})
        answer, calls = _called(answer) if request.get("tools") else (answer, [])
        last = request["messages"][-1]
        if last.get("role") == "assistant" and ".Response" in template.replace("$.Messages", ".Response"):
            answer = answer.removeprefix(str(last.get("content", "")))  # the model continues the text it was given
        elif request.get("think", True) and template.rstrip().endswith("<think>"):
            answer = "<think>" + answer
        options = request.get("options") or {}
        tokens = pieces(stopped(answer, options.get("stop") or ()))
        limit = int(options.get("num_predict", -1))
        cut = 0 <= limit < len(tokens)
        tokens = tokens[:limit] if cut else tokens
        asked = sum(len(pieces(str(m.get("content", "")))) + IMAGE_TOKENS * len(m.get("images") or ()) for m in request["messages"])
        if (context := int(options.get("num_ctx", 0))) and request.get("truncate") is False and asked >= context:
            return self._json(400, {"error": "the input length exceeds the context length"})
        if context and request.get("shift") is False and asked + len(tokens) > context:
            tokens, cut = tokens[: context - asked], True
        parts = _parted(name, "".join(tokens), ".Thinking" in template and request.get("think", True))
        for call in calls:
            parts.append(_part(name, ""))
            parts[-1]["message"]["tool_calls"] = [{"function": call}]
        end = _part(
            name, "", done=True, done_reason="length" if cut else "stop", total_duration=len(tokens) * TOKEN_NS,
            load_duration=LOAD_NS if loaded else TOKEN_NS,
            prompt_eval_count=asked, prompt_eval_duration=TOKEN_NS, eval_count=len(tokens), eval_duration=len(tokens) * TOKEN_NS,
        )  # fmt: skip
        half = parts[: max(1, len(parts) // 2)]
        if fault is not None and fault.kind == "cut":
            self._stream(half, whole=False)
        elif fault is not None and fault.kind == "stall":
            self._stream(half, whole=False, stall=True)
        elif fault is not None and fault.kind == "error":
            self._stream([*half, {"error": "an error was encountered while running the model: unexpected EOF"}])
        elif request.get("stream", True):
            self._stream([*parts, end])
        else:
            for part in parts:
                for name, text in part["message"].items():
                    if name != "role":
                        end["message"][name] = end["message"].get(name, type(text)()) + text
            self._json(200, end)
        return None

    def _embed(self, request: dict[str, Any]) -> None:
        name = tagged(str(request.get("model", "")))
        if (model := self.owner.models.get(name)) is None:
            return self._json(404, {"error": f"model '{request.get('model')}' not found"})
        given = request.get("input", [])
        texts = [given] if isinstance(given, str) else given
        if request.get("truncate") is False and any(len(pieces(str(t))) > EMBED_CONTEXT for t in texts):
            return self._json(400, {"error": "the input length exceeds the context length"})
        self.owner.runners.use(name, model, request.get("options"))
        vectors = [embedding(str(t)) for t in texts]
        return self._json(
            200, {"model": name, "embeddings": vectors, "total_duration": 1, "load_duration": 1, "prompt_eval_count": len(texts)}
        )

    def _generate(self, request: dict[str, Any]) -> None:
        """Load a model, or unload it with `keep_alive` 0. Requests with a prompt are not supported."""
        name = tagged(str(request.get("model", "")))
        if (model := self.owner.models.get(name)) is None:
            return self._json(404, {"error": f"model '{request.get('model')}' not found"})
        if request.get("keep_alive") == 0:
            self.owner.runners.drop(model)
        elif self._wait("held"):
            self.owner.runners.use(name, model, request.get("options"))
        else:
            return None
        reason = "unload" if request.get("keep_alive") == 0 else "load"
        return self._json(200, {"model": name, "created_at": MADE_AT, "response": "", "done": True, "done_reason": reason})

    # --- models

    def _version(self, _: dict[str, Any]) -> None:
        self._json(200, {"version": self.owner.version})

    def _tags(self, _: dict[str, Any]) -> None:
        self._json(200, {"models": [self._listed(n, m.digest) for n, m in list(self.owner.models.items())]})

    def _ps(self, _: dict[str, Any]) -> None:
        extra, contexts = {"size_vram": 0, "expires_at": "2036-01-01T00:00:00Z"}, self.owner.runners.contexts()
        there = self.owner.runners.listed().items()
        self._json(200, {"models": [{**self._listed(n, m.digest), **extra, "context_length": contexts.get(n, 0)} for n, m in there]})

    def _show(self, request: dict[str, Any]) -> None:
        model = self.owner.models.get(tagged(str(request.get("model", ""))))
        if model is None:
            return self._json(404, {"error": f"model '{request.get('model')}' not found"})
        return self._json(200, model.shown())

    def _create(self, request: dict[str, Any]) -> None:
        try:
            model = build(request, self.owner.models, self.owner.blobs)
        except LookupError as e:
            return self._stream([{"status": "parsing"}, {"error": e.args[0]}])
        self.owner.models[tagged(str(request["model"]))] = model
        if request.get("stream") is False:
            return self._json(200, {"status": "success"})
        return self._stream([{"status": "creating new layer"}, {"status": "writing manifest"}, {"status": "success"}])

    def _pull(self, request: dict[str, Any]) -> None:
        name = tagged(str(request["model"]))
        begin: dict[str, Any] = {"status": "pulling manifest"}
        if name not in self.owner.pullable:
            return self._stream([begin, {"error": "pull model manifest: file does not exist"}])
        self.owner.models[name] = self.owner.pulled.get(name) or base(name)
        layer = {"status": "pulling layer", "digest": "sha256:" + self.owner.models[name].weights, "total": 2}
        return self._stream([begin, {**layer, "completed": 1}, {**layer, "completed": 2}, {"status": "success"}])

    def _copy(self, request: dict[str, Any]) -> None:
        model = self.owner.models.get(tagged(str(request["source"])))
        if model is None:
            return self._json(404, {"error": f"model '{request['source']}' not found"})
        self.owner.models[tagged(str(request["destination"]))] = model
        return self._empty(200)

    def _delete(self, request: dict[str, Any]) -> None:
        name = tagged(str(request["model"]))
        model = self.owner.models.pop(name, None)
        if model is not None and name in self.owner.runners.listed():
            self.owner.runners.drop(model)
        if model is None:
            return self._json(404, {"error": f"model '{request['model']}' not found"})
        return self._empty(200)

    def _blob(self, body: bytes, fault: Fault | None) -> None:
        self.owner.record(self.command, self.path, b"")
        if fault is not None and (fault.kind == "full" or self._early(fault)):
            return self._json(500, {"error": NO_ROOM}) if fault.kind == "full" else None
        digest, actual = self.path.removeprefix("/api/blobs/"), f"sha256:{sha256(body)}"
        if digest != actual:
            return self._json(400, {"error": f'digest mismatch, expected "{digest}", got "{actual}"'})
        self.owner.blobs[digest] = b""  # only its presence counts
        return self._empty(201)

    def _listed(self, name: str, digest: str) -> dict[str, Any]:
        size = self.owner.runners.sizes.get(name, 1)
        return {"name": name, "model": name, "modified_at": MADE_AT, "size": size, "digest": digest, "details": DETAILS}

    # --- bytes

    def _wait(self, kind: WaitKind, seconds: float = 0) -> bool:
        """Wait as the script says; False when the client left, or the server ends."""
        on = self.owner.script.wait(kind, self._gone, seconds)
        if not on:
            self.close_connection = True
            self.owner.note_abandoned()
        return on

    def _gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        if not readable:
            return False
        with contextlib.suppress(OSError):
            return not self.connection.recv(1, socket.MSG_PEEK)
        return True

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _json(self, code: int, value: dict[str, Any]) -> None:
        self._raw(code, json.dumps(value).encode(), "application/json; charset=utf-8")

    def _empty(self, code: int) -> None:
        self._raw(code, b"", "text/plain")

    def _raw(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, parts: Iterable[dict[str, Any]], *, whole: bool = True, stall: bool = False) -> None:
        """Chunked NDJSON; without its end where it is not `whole`, and without anything more until the client leaves with `stall`."""
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in parts:
                line = json.dumps(part).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            if stall:
                self._wait("good")
            if whole:
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True
        except ConnectionError:
            self.close_connection = True
            self.owner.note_abandoned()


def _part(model: str, content: str, *, done: bool = False, **more: Any) -> dict[str, Any]:
    return {"model": model, "created_at": MADE_AT, "message": {"role": "assistant", "content": content}, "done": done, **more}


def _called(answer: str) -> tuple[str, list[dict[str, Any]]]:
    """Return an answer without its calls of tools, and the calls."""
    calls = [json.loads(found) for found in _CALL.findall(answer)]
    return _CALL.sub("", answer), [{"name": call["name"], "arguments": call["arguments"]} for call in calls]


def _parted(model: str, text: str, thinks: bool) -> list[dict[str, Any]]:
    """Return the parts of a stream; thought apart from answer where the model `thinks`."""
    thought, answer = parted(text) if thinks else ("", text)
    parts = [_part(model, "") for _ in pieces(thought)]
    for part, piece in zip(parts, pieces(thought), strict=True):
        part["message"]["thinking"] = piece
    return [*parts, *(_part(model, piece) for piece in pieces(answer))]


def _unseen(request: dict[str, Any], *, sees: bool) -> tuple[int, dict[str, Any]] | None:
    """Return the refusal of a request's images; None if they are accepted.

    The reader of the request refuses images that are not base64; a model that sees refuses those that cannot be decoded. A model that
    does not see is given `[img-0]` in their place, and reports nothing.
    """
    for message in request["messages"]:
        for number, image in enumerate(message.get("images") or ()):
            try:
                data = base64.b64decode(image, validate=True)
            except ValueError:
                return 400, {"error": f"illegal base64 data at input byte {number}"}
            if sees and not data.startswith(_IMAGES):
                return 500, {"error": "Failed to create new sequence: failed to process inputs: image: unknown format\n"}
    return None


def _listed(name: str, digest: str) -> dict[str, Any]:
    return {"name": name, "model": name, "modified_at": MADE_AT, "size": 1, "digest": digest, "details": DETAILS}


EMBEDDED = ("smollm2:embedded", "minilm:embedded", "robin:embedded", "brick:embedded", "babs:embedded", "alfred:embedded")
VERSION = "0.21.0"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request that came in; `body` is its JSON, empty if it had none."""

    method: str
    path: str
    body: dict[str, Any]


class ScriptedOllama:
    """The server. A context manager; safe to script from any thread while it runs.

    :param models: names of models that are there from the beginning; those of the profile `embedded` if left out.
    :param pullable: names that `pull` can have; any other cannot be found.
    """

    handler: type[ScriptedHandler] = ScriptedHandler  # the handler of each connection

    def __init__(self, models: Iterable[str] = EMBEDDED, *, pullable: Iterable[str] = ()) -> None:
        self.script = Script()
        self.models: dict[str, Model] = {tagged(m): base(m) for m in models}
        self.blobs: dict[str, bytes] = {}
        self.pullable = {tagged(m) for m in pullable}
        self.pulled: dict[str, Model] = {}
        """Results of pulls by name. The pull of any other name gives a model like those that are there from the beginning."""
        self.requests: list[Recorded] = []
        self.abandoned = 0
        self.connections: set[socket.socket] = set()
        self.runners = Runners()
        self._came = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self._give_back_port: Callable[[], object] = bool

    def __enter__(self) -> ScriptedOllama:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._give_back_port()

    @property
    def host(self) -> str:
        """Return `127.0.0.1:port`. It stays the same after `stop` and `start`."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Return True if the server listens."""
        return self._server is not None

    @property
    def version(self) -> str:
        """Return the version that the server claims."""
        return VERSION

    def start(self) -> None:
        """Listen; a server that was stopped comes back on its port, with its models."""
        if not self._port:
            self._keep_port()
        self._server = _Server(("127.0.0.1", self._port), type("BoundHandler", (self.handler,), {"owner": self}))
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="scripted-ollama", daemon=True)
        self._thread.start()

    def _keep_port(self) -> None:
        """Choose a port, and keep it for as long as this exists: while the server is stopped, the system gives it to no other program.

        A socket that is bound and does not listen keeps it. Where no other socket may be bound beside that one, nothing does.
        """
        if sys.platform != "linux":
            return
        with socket.socket() as keeping:
            keeping.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeping.bind(("127.0.0.1", 0))
            self._port = keeping.getsockname()[1]
            self._give_back_port = weakref.finalize(self, os.close, keeping.detach())

    def stop(self) -> None:
        """Stop listening and end the requests under way: the server is down, connections are refused."""
        server, self._server = self._server, None
        if server is None:
            return
        self.script.close()
        server.shutdown()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):  # the client closed it first
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()  # waits for the threads of requests
        if self._thread is not None:
            self._thread.join()
        self.script.reopen()

    def give_sight(self, *names: str) -> None:
        """Give vision to installed models, and to models made of them from now on."""
        for name in map(tagged, names):
            self.models[name] = replace(self.models[name], can=(*self.models[name].can, "vision"))

    def give_tools(self, *names: str) -> None:
        """Let installed models use tools, and models made of them from now on."""
        for name in map(tagged, names):
            self.models[name] = replace(self.models[name], can=(*self.models[name].can, "tools"))

    # --- the script

    def say(self, answer: Answer, when: When = None, times: int | None = None) -> None:
        """Answer chats with a text, or with the result of a function of the request.

        `<think>…</think>` before an answer is split off if the model's template knows `.Thinking`, as Ollama does. Each
        `<tool_call>{"name": …, "arguments": …}</tool_call>` becomes a call where the request offers tools.

        :param when: a part of any message's text, or a function of the request; None: every chat.
        :param times: number of uses; None: always. Rules are tried in the order of these calls.
        """
        self.script.say(answer, when, times)

    def fail(
        self, kind: FaultKind, times: int | None = 1, when: When = None, *, path: str = "/api/chat", seconds: float | None = None
    ) -> None:
        """Fail requests to `path`.

        * `refuse`: the connection is closed without an answer;
        * `status_404`, `status_500`, `status_503`: as Ollama answers;
        * `junk`: the answer is not JSON;
        * `hang`: no answer;
        * `slow`: the first token comes after `seconds`, else at `release`;
        * in the middle of an answer, `cut`: the stream breaks off; `stall`: it stops without an end; `error`: it brings an error;
        * `full`: the disk is full, which a create or a pull reports in its stream, an upload (path `/api/blobs`) at once.
        """
        self.script.fail(Fault(kind, seconds), path, when, times)

    def clear(self) -> None:
        """Forget all answers and faults."""
        self.script.clear()

    def hold(self) -> None:
        """Keep chats waiting before their first token, until `release`."""
        self.script.hold()

    def release(self) -> None:
        """Release held and slow chats."""
        self.script.release()

    # --- the record of requests

    @property
    def counts(self) -> Counter[str]:
        """Return the number of requests by path."""
        with self._came:
            return Counter(r.path for r in self.requests)

    @property
    def uploads(self) -> int:
        """Return the number of uploaded files."""
        with self._came:
            return sum(r.method == "POST" and r.path.startswith("/api/blobs/") for r in self.requests)

    @property
    def chats(self) -> list[dict[str, Any]]:
        """Return the bodies of all chat requests, in order."""
        with self._came:
            return [r.body for r in self.requests if r.path == "/api/chat"]

    def wait_for(self, path: str = "/api/chat", count: int = 1, timeout_s: float = 60) -> None:
        """Block until `count` requests to `path` have come in all.

        :raises TimeoutError: when they have not.
        """
        self._wait(lambda: sum(r.path == path for r in self.requests) >= count, f"{count} requests to {path}", timeout_s)

    def wait_abandoned(self, count: int = 1, timeout_s: float = 60) -> None:
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

    def process_request(self, request: Any, client_address: Any) -> None:
        """Note a connection before its thread runs: `stop` ends all that are noted, and waits for their threads."""
        self.RequestHandlerClass.owner.connections.add(request)  # type: ignore[attr-defined]
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that leaves, as in many tests; show anything else, as a fault of this server."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
