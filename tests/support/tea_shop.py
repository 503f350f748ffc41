"""A small shop on loopback with an OpenAPI document, that the project has not seen."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.daemon import Daemon
from tests.support.http_world import QuietHandler


def json_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


class TeaShop:
    """A shop on loopback with a document, which notes what it is asked, and does something else when that comes."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        self.lists = 0
        self.on_list: Callable[[], None] | None = None
        self.on_order: Callable[[], None] | None = None
        self.on_document: Callable[[], None] | None = None
        self.documents = 0
        self.teas: list[dict[str, Any]] = [{"sku": "sencha", "price": 9.5}, {"sku": "assam", "price": 4}]
        shop = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                if self.path == "/openapi.json":
                    shop.documents += 1
                    if (then := shop.on_document) is not None:
                        shop.on_document = None
                        return then()
                    return self.answer(200, shop.document())
                shop.lists += 1
                if (then := shop.on_list) is not None:
                    shop.on_list = None
                    return then()  # nobody hears an answer
                return self.answer(200, shop.teas)

            def do_POST(self) -> None:
                shop.orders.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                if (then := shop.on_order) is not None:
                    shop.on_order = None
                    return then()
                return self.answer(201, {"id": len(shop.orders)})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"

    def document(self) -> dict[str, Any]:
        tea = {"type": "object", "properties": {"sku": {"type": "string"}, "price": {"type": "number"}}}
        order = {
            "type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1}}
        }  # fmt: skip
        made = {"type": "object", "properties": {"id": {"type": "integer"}}}
        listed = {"operationId": "listTeas", "responses": {"200": json_of({"type": "array", "items": tea})}}
        ordered = {"operationId": "order", "requestBody": {"required": True, **json_of(order)}, "responses": {"201": json_of(made)}}
        return {
            "openapi": "3.1.0", "info": {"title": "tea", "version": "1"}, "servers": [{"url": self.origin}],
            "paths": {"/teas": {"get": listed}, "/orders": {"post": ordered}},
        }  # fmt: skip


def killed_at_its_order(folder: Path, shop: TeaShop, settings: dict[str, Any]) -> None:
    """Start a daemon whose mission goes on by itself, and kill it at the mission's order, however soon that comes."""
    started, running = threading.Event(), list[Daemon]()

    def kill() -> None:
        assert started.wait(60)
        running[0].process.kill()

    shop.on_order = kill
    running.append(Daemon(folder, **settings))
    started.set()
    assert running[0].ended() == -signal.SIGKILL, running[0].noise
