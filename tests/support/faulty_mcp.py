"""An MCP server, without any SDK, that does what is asked of it and what servers should not do. Run by path.

    python faulty_mcp.py stdio|http modern|legacy [FAULT]

WORLD names a file to which each act is appended. Over HTTP the port is told in the first line of the standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WAY, ERA = sys.argv[1], sys.argv[2]
FAULT = sys.argv[3] if len(sys.argv) > 3 else ""
MODERN = "2026-07-28"
FORM = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "enum": ["red", "blue"], "default": "red"}},
    "required": ["size"],
}
Tell = Callable[[dict[str, Any]], None]
_cancelled: dict[Any, threading.Event] = {}
_answers: dict[Any, Any] = {}
_answered = threading.Condition()
_more: list[str] = []


def world(line: str) -> None:
    with open(os.environ["WORLD"], "a") as file:
        file.write(line + "\n")


def tool(name: str, properties: dict[str, Any] | None = None, **hints: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": f"It is {name}. More.", "inputSchema": schema, **({"annotations": hints} if hints else {})}


def tools() -> list[dict[str, Any]]:
    number, text = {"type": "number"}, {"type": "string"}
    pay = tool("pay", {"amount": number}, idempotentHint=True)
    pay["outputSchema"] = {"type": "object", "properties": {"paid": number}, "required": ["paid"]}
    return [
        tool("echo", {"text": text}, readOnlyHint=True, openWorldHint=False), pay, tool("slow", {"seconds": number}), tool("die"),
        tool("junk"), tool("flood"), tool("big", {"mib": number}), tool("never"), tool("endless"), tool("fail"), tool("progress"),
        tool("ask"), tool("page"), tool("media"), tool("grow"), tool("wrong"), tool("sample"), tool("order", {"name": text, "key": text}),
        tool("seen", {"name": text}), tool("there", {"name": text}), tool("trade", {"name": text, "key": text}),
        *(tool(name) for name in _more),
    ]  # fmt: skip


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


def whole(result: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "complete", **result} if ERA == "modern" else result


def ask(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Ask for a form in the way of the era; return the response to it, or the result that asks."""
    question = {"mode": "form", "message": "Which cake?", "requestedSchema": FORM}
    if ERA == "modern":
        given = request["params"].get("inputResponses")
        if request["params"].get("requestState") not in (None, f"state-{os.getpid()}"):
            raise ValueError("the state is not valid")
        if given is None:
            asked = {"cake": {"method": "elicitation/create", "params": question}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": f"state-{os.getpid()}"}
        return dict(given["cake"])
    mine = f"ask-{request['id']}"
    tell({"jsonrpc": "2.0", "id": mine, "method": "elicitation/create", "params": question})
    with _answered:
        _answered.wait_for(lambda: mine in _answers, 20)
        return dict(_answers.pop(mine))


def call(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Return the result of a call."""
    name, given = request["params"]["name"], request["params"].get("arguments") or {}
    stop = _cancelled.setdefault(request["id"], threading.Event())
    if name == "echo":
        return text(given["text"])
    if name == "pay":
        world(f"pay {given['amount']}")
        return text("paid", structuredContent={"paid": given["amount"]})
    if name == "order":
        world(f"order {given['name']} {given.get('key', '')}")
        return text("ordered")
    if name == "trade":  # it takes its time, and goes on when who asked is gone
        world(f"asked-{given['name']}")
        time.sleep(0.3)
        if not given.get("key") or given["key"] not in Path(os.environ["WORLD"]).read_text().split():
            world(f"traded {given['name']} {given.get('key', '')}")
        time.sleep(0.3)
        return text("traded")
    if name in ("seen", "there"):
        lines = Path(os.environ["WORLD"]).read_text().split() if os.path.exists(os.environ["WORLD"]) else []
        found = given["name"] in lines
        if name == "there" and given["name"] == "text":
            return text("false")
        return text("", structuredContent={"result": found if name == "there" else given["name"] if found else None})
    if name in ("slow", "never"):
        world(f"{name} begins")
        if stop.wait(given.get("seconds", 3600)):
            world(f"{name} cancelled")
        return text("slept")
    if name == "die":
        world("die")
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "junk" and WAY == "stdio":
        os.write(1, b'this is no JSON\n{"nor": "this"}\n\xff\xfe\n' * 100)
    if name == "flood" and WAY == "stdio":
        while True:
            os.write(1, b"noise\n" * 1000)
    if name == "big":
        return text("x" * int(given["mib"] * (1 << 20)))
    if name == "fail":
        world("fail")
        return text("out of cake", isError=True)
    if name == "progress":
        token = request["params"]["_meta"]["progressToken"]
        for at in (1, 2, 3):
            progress = {"progressToken": token, "progress": at, "total": 3, "message": f"layer {at}"}
            tell({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            time.sleep(0.3)
        return text("baked")
    if name == "ask":
        response = ask(request, tell)
        if "inputRequests" in response:
            return response
        if response["action"] == "accept":
            world(f"bake {response['content']['size']} {response['content']['color']}")
        return text(f"it was {response['action']}")
    if name == "media":
        blocks: list[dict[str, Any]] = [
            {"type": "text", "text": "look"},
            {"type": "image", "mimeType": "image/png", "data": "QUJDRA=="},
            {"type": "resource", "resource": {"uri": "note://1", "mimeType": "text/plain", "text": "inner text"}},
            {"type": "resource_link", "uri": "note://2", "name": "other"},
        ]
        return {"content": blocks}
    if name == "grow":
        _more.append(f"grown{len(_more)}")
        for subscriber, subscription in list(_subscribers):
            meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": subscription}} if subscription is not None else {}
            subscriber({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta})
        return text("grown")
    if name == "wrong":
        return {"content": "not a list"}
    if name == "sample":
        asked = {"x": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
    return text(f"{name} done")


_subscribers: list[tuple[Tell, Any]] = []


def answer(request: dict[str, Any], tell: Tell) -> dict[str, Any] | None:
    """Return the answer to a message; None where there is none."""
    method, mine = request.get("method"), request.get("id")
    if method is None:
        with _answered:
            _answers[mine] = request.get("result", {})
            _answered.notify_all()
        return None
    if method == "notifications/cancelled":
        _cancelled.setdefault(request["params"]["requestId"], threading.Event()).set()
    if mine is None:
        return None
    info = {"name": "faulty", "version": "1"}
    found: dict[str, Any] | None = None
    if method == "server/discover" and ERA == "modern":
        found = {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}, "ttlMs": 0, "cacheScope": "private"}
    elif method == "initialize" and ERA == "legacy":
        if WAY == "stdio":
            _subscribers.append((tell, None))
        found = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}
    elif method == "tools/list":
        found = {"tools": tools(), **({"ttlMs": 0, "cacheScope": "private"} if ERA == "modern" else {})}
    elif method == "subscriptions/listen" and ERA == "modern":
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": mine}, "notifications": {"toolsListChanged": True}}
        tell({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": meta})
        _subscribers.append((tell, mine))
        _cancelled.setdefault(mine, threading.Event()).wait()
        return None
    elif method == "tools/call":
        params = request["params"]
        if params["name"] == "page" and not os.path.exists(os.environ["WORLD"] + ".page"):
            page = {"mode": "url", "message": "Log in first.", "url": "https://shop.example/login", "elicitationId": "1"}
            return {"jsonrpc": "2.0", "id": mine, "error": {"code": -32042, "message": "a page first", "data": {"elicitations": [page]}}}
        try:
            found = call(request, tell)
        except ValueError as e:
            return {"jsonrpc": "2.0", "id": mine, "error": {"code": -32602, "message": str(e)}}
    if found is None:
        return {"jsonrpc": "2.0", "id": mine, "error": {"code": -32601, "message": f"there is no {method}"}}
    return {"jsonrpc": "2.0", "id": mine, "result": whole(found)}


def over_stdio() -> None:
    lock = threading.Lock()

    def tell(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def serve(request: dict[str, Any]) -> None:
        if (told := answer(request, tell)) is not None:
            tell(told)

    for line in sys.stdin:
        threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
    if FAULT == "stays":
        time.sleep(3600)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._whole(405, b"")

    do_DELETE = do_GET

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = request.get("params", {}).get("name")
        streams = request.get("method") == "subscriptions/listen" or name in ("ask", "progress", "endless", "never", "slow", "die")
        if name == "flood":  # and not where a server floods its standard output
            self.send_response(307)
            self.send_header("Location", "http://169.254.169.254/mcp")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if name == "wrong" and FAULT == "500":
            world("wrong")
            self._whole(500, b"<h1>oh</h1>", "text/html")
            return
        if not streams:
            told = answer(request, lambda message: None)
            self._whole(202 if told is None else 200, b"" if told is None else json.dumps(told).encode())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            if name == "endless":
                world("endless")
                while True:
                    self.wfile.write(b": still\n\n")
                    time.sleep(0.01)
            if name == "never":
                self._until_gone()
                return
            told = answer(request, self._tell)
            if told is not None:
                self._tell(told)
        except (BrokenPipeError, ConnectionError):
            if name in ("endless", "slow"):
                world(f"{name} cancelled")
        self.close_connection = True

    def _until_gone(self) -> None:
        world("never begins")
        self.connection.recv(1)
        world("never cancelled")
        self.close_connection = True

    def _tell(self, message: dict[str, Any]) -> None:
        self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        self.wfile.flush()

    def _whole(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)


def main() -> None:
    if FAULT == "refuses":
        sys.exit("it does not want to start")
    if FAULT == "mute":
        time.sleep(3600)
    if WAY == "stdio":
        over_stdio()
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
