"""OpenAPI documents in several files, and the odd parts of real ones: what is read, what is sent, and what is not opened."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batos.errors import InvalidInput
from batos.tools import openapi_document, openapi_files
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolDefinition
from batos.tools.openapi import OpenApiConnector
from batos.tools.openapi_values import value_of

SPLIT = {
    "api.yaml": """
openapi: 3.1.0
servers: [{url: SERVER}]
paths:
  /items/{id}: {$ref: paths/item.yaml}
  /orders: {post: {$ref: 'paths/orders.json#/post'}}
components:
  schemas: {Name: {type: string, maxLength: 9}}
  securitySchemes: {key: {$ref: shared/security.yaml#/key}}
""",
    "paths/item.yaml": """
parameters: [{$ref: ../shared/parameters.yaml#/id}]
get: {operationId: item, responses: {200: {$ref: '../shared/answers.yaml#/item'}}}
""",
    "paths/orders.json": json.dumps(
        {
            "post": {
                "operationId": "order",
                "parameters": [{"$ref": "../shared/parameters.yaml#/id~1kind"}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "../shared/order.yaml"}}}},
            }
        }
    ),
    "shared/parameters.yaml": """
id: {name: id, in: path, required: true, schema: {type: integer}}
id/kind: {name: kind, in: query, schema: {$ref: ../api.yaml#/components/schemas/Name}}
""",
    "shared/answers.yaml": "item: {content: {application/json: {schema: {$ref: order.yaml}}}}",
    "shared/order.yaml": "{type: object, properties: {sku: {type: string}, next: {$ref: '#'}}}",
    "shared/security.yaml": "key: {type: apiKey, in: header, name: X-Key}",
}


class _Place(ThreadingHTTPServer):
    """A server of files, which notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, bytes]] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Place

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append((self.path, self.headers.get("Content-Type", ""), body))
        found = self.server.files.get(self.path.partition("?")[0], None if self.path.startswith("/docs") else b"{}")
        self.send_response(404 if found is None else 302 if found.startswith(b"http") else 200)
        if found is not None and found.startswith(b"http"):
            self.send_header("Location", found.decode())
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    do_POST = do_GET

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def place() -> Iterator[_Place]:
    with _Place() as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def written(folder: Path, files: dict[str, str], server: str = "https://api.example") -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("SERVER", server))
    return folder / "api.yaml"


def connector(where: Path | str, **options: Any) -> OpenApiConnector:
    services = ConnectorServices(secret=lambda name: "", folder=Path("/nowhere"))
    return OpenApiConnector(ConnectionSpec("api", "openapi", str(where), options), services)


async def tools_of(where: Path | str, **options: Any) -> tuple[dict[str, ToolDefinition], tuple[str, ...]]:
    made = connector(where, **options)
    found = await made.tools()
    return {tool.name: tool for tool in found}, made.notes


def check_split(tools: dict[str, ToolDefinition], notes: tuple[str, ...]) -> None:
    assert tools["item"].parameters["properties"] == {"id": {"type": "integer"}}
    assert tools["item"].result is not None
    assert tools["item"].result["properties"]["body"]["properties"] == {"sku": {"type": "string"}, "next": {}}
    assert tools["order"].parameters["properties"] == {"kind": {"type": "string", "maxLength": 9}, "sku": {"type": "string"}, "next": {}}
    assert [note for note in notes if "X-Key: {secret:key}" in note]


async def test_references_lead_to_files_beside_the_document(tmp_path: Path) -> None:
    check_split(*await tools_of(written(tmp_path, SPLIT)))


async def test_references_lead_to_documents_of_the_same_origin(place: _Place) -> None:
    place.files = {f"/docs/{name}": text.replace("SERVER", "/v1").encode() for name, text in SPLIT.items()}
    check_split(*await tools_of(f"{place.origin}/docs/api.yaml"))
    assert sorted(path for path, _, _ in place.asked) == sorted(place.files)  # each once


@pytest.mark.parametrize(
    ("ref", "why"),
    [
        ("../secret.yaml", "leads out of the document's folder"),
        ("a/../../secret.yaml", "leads out of the document's folder"),
        ("%2e%2e/secret.yaml", "leads out of the document's folder"),
        ("OUTSIDE/secret.yaml", "is not a relative path"),
        ("file://OUTSIDE/secret.yaml", "is not a relative path"),
        ("https://evil.example/x.yaml", "is not a relative path"),
        ("link.yaml", "by a link"),
        ("linked/secret.yaml", "by a link"),
        ("gone.yaml", "No such file"),
        ("folder", "leads to what is not a file"),
        ("broken.yaml", "cannot be read: "),
    ],
)
async def test_a_file_is_not_left_and_what_cannot_be_had_is_told_with_its_operation(tmp_path: Path, ref: str, why: str) -> None:
    (tmp_path / "secret.yaml").write_text("{get: {operationId: secret}}")
    folder = tmp_path / "docs"
    (folder / "folder").mkdir(parents=True)
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "broken.yaml").write_text("{a: [")
    text = json.dumps({"openapi": "3.0.0", "servers": [{"url": "SERVER"}], "paths": {
        "/a": {"get": {"operationId": "good"}}, "/b": {"get": {"$ref": ref.replace("OUTSIDE", str(tmp_path))}},
    }})  # fmt: skip
    tools, notes = await tools_of(written(folder, {"api.yaml": text}))
    assert list(tools) == ["good"]
    assert why in notes[0]
    assert "GET /b" in notes[0]


@pytest.mark.parametrize("ref", ["//evil.example/x.yaml", "https://evil.example/x.yaml", "http://127.0.0.1:1/x.yaml", "/docs/away.yaml"])
async def test_a_url_is_followed_on_its_own_origin_alone(place: _Place, ref: str) -> None:
    place.files = {
        "/docs/api.yaml": json.dumps({"openapi": "3.0.0", "paths": {
            "/a": {"get": {"operationId": "good"}}, "/b": {"get": {"$ref": ref}},
        }}).encode(),
        "/docs/away.yaml": b"http://127.0.0.1:1/x.yaml",
    }  # fmt: skip
    tools, notes = await tools_of(f"{place.origin}/docs/api.yaml")
    assert list(tools) == ["good"]
    assert "leads to another server" in notes[0] or "no connection reaches" in notes[0]


async def test_files_that_refer_to_each_other_without_end_are_read_once(tmp_path: Path) -> None:
    circle = {"a.yaml": "{$ref: b.yaml}", "b.yaml": "{$ref: a.yaml}"}
    paths = {"/a": {"get": {"operationId": "good"}}, "/b": {"get": {"$ref": "a.yaml"}}}
    tools, notes = await tools_of(written(tmp_path, {**circle, "api.yaml": json.dumps({
        "openapi": "3.0.0", "servers": [{"url": "https://api.example"}], "paths": paths,
    })}))  # fmt: skip
    assert list(tools) == ["good"]
    assert "leads to itself" in notes[0]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(1, 5))
def test_gathering_opens_each_file_once_and_no_more_than_are_allowed(count: int, each: int) -> None:
    opened: list[str] = []

    async def load(location: str) -> bytes:
        opened.append(location)
        at = int(location.rpartition("/f")[2])
        return json.dumps({"all": [{"$ref": f"f{(at * each + step) % count}"} for step in range(each)]}).encode()

    bound = openapi_files.PAGES
    openapi_files.PAGES = 20
    try:
        document: dict[str, Any] = {"paths": {"/": {"$ref": "f0"}}}
        found = asyncio.run(openapi_files.gathered(document, "https://a.example/doc", load))
    finally:
        openapi_files.PAGES = bound
    assert len(opened) == len(set(opened)) <= 20
    lost = [one for one in found.values() if isinstance(one, openapi_document.LostDocument)]
    assert len(opened) + len(lost) == len(found)


async def test_what_all_files_hold_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi_files, "BYTES", 1000)

    async def load(location: str) -> bytes:
        at = int(location.rpartition("/f")[2])
        return json.dumps({"$ref": f"f{at + 1}", "x": "x" * 300}).encode()

    found = await openapi_files.gathered({"$ref": "f0"}, "https://a.example/doc", load)
    assert len(found) == 4
    last = found["https://a.example/f3"]
    assert isinstance(last, openapi_document.LostDocument)
    assert "larger than 1000 bytes" in last.why


async def test_a_chain_of_files_is_followed_so_far_and_no_further() -> None:
    async def load(location: str) -> bytes:
        return json.dumps({"$ref": f"f{int(location.rpartition('/f')[2]) + 1}"}).encode()

    found = await openapi_files.gathered({"$ref": "f0"}, "https://a.example/doc", load)
    assert len(found) == openapi_files.LEVELS + 1
    assert isinstance(found[f"https://a.example/f{openapi_files.LEVELS}"], openapi_document.LostDocument)


def test_words_of_yaml_are_what_openapi_takes_them_for() -> None:
    text = b"{on: no, day: 2020-01-01, zip: 010, at: 12:30, yes: true, half: 1.5, big: 1e3, none: ~, count: 7, 200: ok}"
    assert value_of(text, "x") == {
        "on": "no", "day": "2020-01-01", "zip": "010", "at": "12:30", "yes": True, "half": 1.5, "big": 1000.0, "none": None, "count": 7,
        200: "ok",
    }  # fmt: skip


# --- odd parts of Swagger 2 and of OpenAPI 3.1


def swagger(operation: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"swagger": "2.0", "host": "api.example", "paths": {"/a": {"post": {"operationId": "a", **operation}}}, **more}


def read_one(document: dict[str, Any]) -> ToolDefinition:
    found = openapi_document.read(document, "https://api.example")
    assert not found.left_out, found.left_out
    return found.tools[0]


@pytest.mark.parametrize(
    ("facts", "server"),
    [
        ({"host": "a.example:8443", "basePath": "/v1", "schemes": ["http", "https"]}, "https://a.example:8443/v1"),
        ({"host": "a.example", "basePath": "v1", "schemes": ["ws", "http"]}, "http://a.example/v1"),
        ({"host": "a.example"}, "http://a.example"),  # the document's own scheme
        ({"basePath": "/v2"}, "http://b.example/v2"),
    ],
)
def test_where_a_swagger_document_says_that_its_server_is(facts: dict[str, Any], server: str) -> None:
    assert openapi_document.servers({"swagger": "2.0", **facts}, "http://b.example/docs/swagger.json") == [server]


def test_parameters_answers_and_schemas_of_swagger_may_be_references() -> None:
    tool = read_one(swagger(
        {"parameters": [{"$ref": "#/parameters/many"}, {"$ref": "#/parameters/it"}], "responses": {"201": {"$ref": "#/responses/made"}}},
        parameters={
            "many": {"name": "tags", "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": "pipes"},
            "it": {"name": "it", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Cat"}},
        },
        responses={"made": {"schema": {"$ref": "#/definitions/Cat"}}},
        definitions={
            "Pet": {"type": "object", "discriminator": "kind", "required": ["kind"], "properties": {"kind": {"type": "string"}}},
            "Cat": {"allOf": [{"$ref": "#/definitions/Pet"}, {"type": "object", "properties": {"lives": {"type": "integer"}}}]},
        },
    ))  # fmt: skip
    assert tool.parameters["properties"] == {
        "tags": {"type": "array", "items": {"type": "string"}}, "kind": {"type": "string"}, "lives": {"type": "integer"},
    }  # fmt: skip
    assert tool.parameters["required"] == ["kind"]
    assert tool.result is not None
    assert tool.result["properties"]["body"]["required"] == ["kind"]
    assert tool.details["sent"][0]["style"] == "pipeDelimited"


SENT = [
    ({"collectionFormat": "csv"}, [], "l=x%2Cy"),
    ({}, [], "l=x%2Cy"),
    ({"collectionFormat": "ssv"}, [], "l=x+y"),
    ({"collectionFormat": "tsv"}, [], "l=x%09y"),
    ({"collectionFormat": "multi"}, [], "l=x&l=y"),
]


@pytest.mark.parametrize(("format", "consumes", "sent"), SENT)
@pytest.mark.parametrize("place_of", ["query", "formData"])
async def test_lists_are_sent_as_swagger_says(
    place: _Place, tmp_path: Path, format: dict[str, Any], consumes: list[str], sent: str, place_of: str
) -> None:
    listed = {"name": "l", "in": place_of, "type": "array", "items": {"type": "string"}, **format}
    file = tmp_path / "api.json"
    file.write_text(json.dumps(swagger({"parameters": [listed]}, consumes=consumes)))
    made = connector(file, server=place.origin)
    (tool,) = await made.tools()
    await (await made.prepare(tool, {"l": ["x", "y"]})).send(Delivery("k"))
    [(path, _, body)] = place.asked
    assert (path.partition("?")[2] if place_of == "query" else body.decode()) == sent
    await made.close()


async def test_a_form_in_parts_is_sent_without_its_files(place: _Place, tmp_path: Path) -> None:
    given = [{"name": "title", "in": "formData", "type": "string", "required": True}, {"name": "picture", "in": "formData", "type": "file"}]
    file = tmp_path / "api.json"
    file.write_text(json.dumps(swagger({"parameters": given, "consumes": ["multipart/form-data"]})))
    made = connector(file, server=place.origin)
    (tool,) = await made.tools()
    assert list(tool.parameters["properties"]) == ["title"]
    await (await made.prepare(tool, {"title": 'a "b"\r\n--x'})).send(Delivery("k"))
    [(_, kind, body)] = place.asked
    boundary = kind.partition("boundary=")[2]
    assert body.decode() == f'--{boundary}\r\nContent-Disposition: form-data; name="title"\r\n\r\na "b"\r\n--x\r\n--{boundary}--\r\n'
    await made.close()


def test_a_form_that_needs_a_file_and_a_body_that_is_not_sent_are_told() -> None:
    needed = swagger({"parameters": [{"name": "f", "in": "formData", "type": "file", "required": True}]})
    assert "needs the file 'f'" in openapi_document.read(needed, "https://api.example").left_out[0]
    binary = {"parameters": [{"name": "b", "in": "body", "required": True, "schema": {}}], "consumes": ["application/octet-stream"]}
    assert "its body is application/octet-stream" in openapi_document.read(swagger(binary), "https://api.example").left_out[0]


def test_a_body_is_of_the_type_that_the_operation_takes() -> None:
    body = {"name": "b", "in": "body", "required": True, "schema": {"type": "object", "properties": {"x": {"type": "string"}}}}
    form = "application/x-www-form-urlencoded"
    for consumes, kind in (
        (["application/xml", "application/json"], "application/json"),
        (["text/plain"], "text/plain"),
        ([], "application/json"),
        ([form], form),
    ):
        assert read_one(swagger({"parameters": [body], "consumes": consumes})).details["body"]["type"] == kind


async def test_nested_fields_of_a_form_are_sent_as_its_encoding_says(place: _Place, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"meta": {"type": "object"}, "items": {"type": "array"}, "tags": {"type": "array"}}}
    encoding = {"meta": {"style": "deepObject", "explode": True}, "items": {"style": "deepObject", "explode": True}}
    content = {"application/x-www-form-urlencoded": {"schema": schema, "encoding": encoding}}
    file = tmp_path / "api.json"
    file.write_text(json.dumps({"openapi": "3.0.0", "paths": {"/a?v=2": {"post": {"requestBody": {"content": content}}}}}))
    made = connector(file, server=place.origin)
    (tool,) = await made.tools()
    given = {"meta": {"a": {"b": 1}}, "items": [{"price": "x"}], "tags": ["p", "q"]}
    await (await made.prepare(tool, given)).send(Delivery("k"))
    [(path, _, body)] = place.asked
    assert path == "/a?v=2"
    assert urllib.parse.unquote(body.decode()) == "meta[a][b]=1&items[0][price]=x&tags=p&tags=q"
    deep: Any = "x"
    for _ in range(40):
        deep = {"d": deep}
    with pytest.raises(InvalidInput, match="nested deeper"):
        await made.prepare(tool, {"meta": deep})
    await made.close()


def test_the_odd_parts_of_a_document_of_version_3_1() -> None:
    schema = {
        "type": "object",
        "$defs": {"Size": {"enum": ["s", "m"], "type": "string"}},
        "properties": {
            "kind": {"const": "order"}, "note": {"type": ["string", "null"], "examples": ["x"]}, "any": True, "never": False,
            "size": {"$ref": "#/components/schemas/Order/$defs/Size", "description": "the size"},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "pair": {"type": "array", "prefixItems": [{"type": "string"}]},
        },
    }  # fmt: skip
    document = {
        "openapi": "3.1.0", "webhooks": {"paid": {"post": {}}}, "components": {"schemas": {"Order": schema}},
        "paths": {"/o/{a}/{b}#v2": {
            "parameters": [{"name": "a", "in": "path", "schema": {"type": "integer"}}, {"name": "c", "in": "path"}],
            "post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}}},
        }},
    }  # fmt: skip
    tool = read_one(document)
    properties = tool.parameters["properties"]
    assert list(properties) == ["a", "b", "kind", "note", "any", "never", "size", "either", "pair"]
    assert (properties["kind"], properties["note"], properties["any"]) == ({"const": "order"}, {"type": ["string", "null"]}, {})
    assert properties["size"] == {"type": "string", "enum": ["s", "m"], "description": "the size"}
    assert properties["either"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert (tool.name, tool.details["path"]) == ("post_o_a_b_v2", "/o/{a}/{b}")


def test_a_document_of_webhooks_alone_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "webhooks": {"paid": {"post": {}}}}))
    with pytest.raises(InvalidInput, match="describes no operation"):
        asyncio.run(connector(file).tools())


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(InvalidInput, match="not a file"):
        openapi_files.file_bytes(str(tmp_path / "pipe.yaml"), str(tmp_path / "api.yaml"))
