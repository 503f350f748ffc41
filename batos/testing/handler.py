"""The HTTP side of a scripted Ollama: Ollama's paths and shapes, chunked NDJSON, and the faults."""

from __future__ import annotations

import base64
import contextlib
import json
import select
import socket
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from batos.testing.answers import embedding, parted, pieces, stopped
from batos.testing.models import DETAILS, MADE_AT, base, build, sha256, tagged
from batos.testing.script import Fault, WaitKind

if TYPE_CHECKING:
    from batos.testing.scripted import ScriptedOllama

TOKEN_NS = 1_000_000  # what a token claims to cost
LOAD_NS = 400_000_000  # what loading claims to cost
IMAGE_TOKENS = 256  # that an image takes of the prompt
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF")
"""How the images begin that an Ollama can decode."""
EMBED_CONTEXT = 510  # words that an embedder reads at a time
NO_ROOM = "write /models/blobs/sha256-0: no space left on device"
STATUS: dict[str, tuple[int, dict[str, Any]]] = {
    "status_404": (404, {"error": "model not found"}),
    "status_500": (500, {"error": "the model runner ended unexpectedly"}),
    "overtaken": (500, {"error": "stat /models/manifests/library/another/latest: no such file or directory"}),  # see batos.bridge.overtaken
    "layer_gone": (500, {"error": "open /models/blobs/sha256-0: no such file or directory"}),
    "status_503": (503, {"error": "server busy, please try again. maximum pending requests exceeded"}),
}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    owner: ScriptedOllama
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.owner.connections.add(self.connection)

    def finish(self) -> None:
        self.owner.connections.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: `owner.requests` is the log."""

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
        """Play a fault that comes before any answer; False where the answer itself plays it, or goes on after it."""
        if fault.kind == "refuse":
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not a goodbye
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
        if name not in self.owner.models:
            return self._json(404, {"error": f"model '{request.get('model')}' not found"})
        if not self._wait("held"):
            return None
        loaded = self.owner.runners.use(name, self.owner.models[name], request.get("options"))
        if not request.get("messages"):
            return self._json(200, _part(name, "", done=True, done_reason="load"))
        template = self.owner.models[name].template
        if request.get("think") and ".Thinking" not in template:
            return self._json(400, {"error": f'"{name}" does not support thinking'})
        if (refusal := _unseen(request, sees="vision" in self.owner.models[name].can)) is not None:
            return self._json(*refusal)
        try:
            answer = self.owner.script.answer_for(request)
        except LookupError:  # a type or a $ref that there is not
            return self._json(500, {"error": "invalid JSON schema in format"})
        last = request["messages"][-1]
        if last.get("role") == "assistant" and ".Response" in template.replace("$.Messages", ".Response"):
            answer = answer.removeprefix(str(last.get("content", "")))  # it goes on where the text stops
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
                        end["message"][name] = end["message"].get(name, "") + text
            self._json(200, end)
        return None

    def _embed(self, request: dict[str, Any]) -> None:
        name = tagged(str(request.get("model", "")))
        if name not in self.owner.models:
            return self._json(404, {"error": f"model '{request.get('model')}' not found"})
        given = request.get("input", [])
        texts = [given] if isinstance(given, str) else given
        if request.get("truncate") is False and any(len(pieces(str(t))) > EMBED_CONTEXT for t in texts):
            return self._json(400, {"error": "the input length exceeds the context length"})
        self.owner.runners.use(name, self.owner.models[name], request.get("options"))
        vectors = [embedding(str(t)) for t in texts]
        return self._json(
            200, {"model": name, "embeddings": vectors, "total_duration": 1, "load_duration": 1, "prompt_eval_count": len(texts)}
        )

    def _generate(self, request: dict[str, Any]) -> None:
        """Without a prompt only: loading, and unloading with `keep_alive` 0."""
        name = tagged(str(request.get("model", "")))
        if name not in self.owner.models:
            return self._json(404, {"error": f"model '{request.get('model')}' not found"})
        if request.get("keep_alive") == 0:
            self.owner.runners.drop(self.owner.models[name])
        elif self._wait("held"):
            self.owner.runners.use(name, self.owner.models[name], request.get("options"))
        else:
            return None
        reason = "unload" if request.get("keep_alive") == 0 else "load"
        return self._json(200, {"model": name, "created_at": MADE_AT, "response": "", "done": True, "done_reason": reason})

    # --- models

    def _version(self, _: dict[str, Any]) -> None:
        self._json(200, {"version": self.owner.version})

    def _tags(self, _: dict[str, Any]) -> None:
        self._json(200, {"models": [self._listed(n, m.digest) for n, m in self.owner.models.items()]})

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
        self.owner.blobs[digest] = b""  # that it is there is all that counts
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


def _parted(model: str, text: str, thinks: bool) -> list[dict[str, Any]]:
    """The parts of a stream; thought apart from answer where the model `thinks`."""
    thought, answer = parted(text) if thinks else ("", text)
    parts = [_part(model, "") for _ in pieces(thought)]
    for part, piece in zip(parts, pieces(thought), strict=True):
        part["message"]["thinking"] = piece
    return [*parts, *(_part(model, piece) for piece in pieces(answer))]


def _unseen(request: dict[str, Any], *, sees: bool) -> tuple[int, dict[str, Any]] | None:
    """How images are refused: those that are no base64 by whoever reads the request, those that cannot be decoded by a model that sees. One
    that does not see is given `[img-0]` in their place, and says nothing of it."""
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
