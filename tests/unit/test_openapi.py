"""OpenAPI documents: what becomes of their operations, and what is said of broken ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from batos.errors import EgressRefused, InvalidInput, ToolFailed
from batos.image.effects import ACTS, IDEMPOTENT, KEYED, READS
from batos.tools import openapi_document
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolDefinition, ToolLimits, check_definitions
from batos.tools.openapi import OpenApiConnector
from batos.tools.toolbox import check_arguments

BASE = "https://api.example.org/v1"


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": paths, **more}


def tools_of(paths: dict[str, Any], **more: Any) -> dict[str, ToolDefinition]:
    made = openapi_document.read(document(paths, **more), BASE).tools
    check_definitions("api", made, ToolLimits())
    for one in made:
        Draft202012Validator.check_schema(one.parameters)
    return {one.name: one for one in made}


def with_body(schema: Any, media: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media: {"schema": schema}}}, **more}


def test_an_operation_becomes_a_tool_with_flat_parameters() -> None:
    body = {
        "type": "object",
        "required": ["sku"],
        "properties": {"sku": {"type": "string"}, "id": {"type": "integer"}, "no": {"readOnly": True}},
    }
    parameters = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "dry", "in": "query", "schema": {"type": "boolean", "nullable": True}},
        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
        {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}},
    ]
    made = tools_of(
        {"/shops/{id}/orders": {"parameters": parameters, "post": with_body(body, operationId="order/make", summary="Order tea.")}}
    )
    tool = made["order_make"]
    assert tool.parameters["properties"] == {
        "id": {"type": "string"}, "dry": {"type": ["boolean", "null"]}, "sku": {"type": "string"}, "body_id": {"type": "integer"},
    }  # fmt: skip
    assert tool.parameters["required"] == ["id", "sku"]
    assert (tool.kind, tool.description, tool.details["key_header"]) == (KEYED, "Order tea.", "Idempotency-Key")


def test_classes_follow_the_method_and_names_are_free() -> None:
    made = tools_of(
        {"/a": {"get": {"operationId": "x"}, "put": {"operationId": "x"}, "delete": {}, "post": {"operationId": "x"}, "head": {}}}
    )
    assert {name: tool.kind for name, tool in made.items()} == {"x": READS, "x_2": IDEMPOTENT, "delete_a": IDEMPOTENT, "x_3": ACTS}


def test_references_and_allof_are_resolved_and_circles_are_cut() -> None:
    schemas = {
        "Named": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        "Node": {"allOf": [{"$ref": "#/components/schemas/Named"}, {"properties": {"next": {"$ref": "#/components/schemas/Node"}}}]},
        "Loop": {"$ref": "#/components/schemas/Loop"},
    }
    body = {"type": "object", "properties": {"node": {"$ref": "#/components/schemas/Node"}, "loop": {"$ref": "#/components/schemas/Loop"}}}
    properties = tools_of({"/a": {"post": with_body(body)}}, components={"schemas": schemas})["post_a"].parameters["properties"]
    assert properties["node"] == {"type": "object", "properties": {"next": {}, "name": {"type": "string"}}, "required": ["name"]}
    assert properties["loop"] == {}


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=10, max_size=10),
    st.sampled_from(["properties", "allOf", "anyOf", "items", "$ref"]),
)
def test_any_graph_of_references_is_read_within_its_bound(edges: list[list[int]], word: str) -> None:
    def node(targets: list[int]) -> dict[str, Any]:
        refs = [{"$ref": f"#/components/schemas/S{target}"} for target in targets]
        if not refs:
            return {"type": "string"}
        by_word = {"properties": {f"p{number}": ref for number, ref in enumerate(refs)}, "items": refs[0], "$ref": refs[0]["$ref"]}
        return {word: by_word.get(word, refs)}

    schemas = {f"S{number}": node(targets) for number, targets in enumerate(edges)}
    found = openapi_document.read(
        document({"/a": {"post": with_body({"$ref": "#/components/schemas/S0"})}}, components={"schemas": schemas}), BASE
    )
    assert "$ref" not in json.dumps(found.tools[0].parameters)
    Draft202012Validator.check_schema(found.tools[0].parameters)
    assert found.nodes <= 2 * openapi_document.NODES


ITEM = {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}, "id": {"readOnly": True}}}
SHARED = {"$ref": "#/components/schemas/Item"}


def takes(schema: dict[str, Any], arguments: dict[str, Any], required: bool = True) -> bool:
    """Return True if an operation with such a body takes these arguments."""
    body = {"required": required, "content": {"application/json": {"schema": schema}}}
    (tool,) = tools_of({"/orders": {"post": {"requestBody": body}}}, components={"schemas": {"Item": ITEM}}).values()
    try:
        check_arguments("api.order", tool, arguments)
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize(
    "schema",
    [
        {**ITEM, "required": ["sku", "id"]},
        {"allOf": [SHARED, {"required": ["sku", "id", "gone"]}]},
        {"allOf": [{"required": ["sku"]}, SHARED]},
        {"allOf": [SHARED], "required": ["sku"]},
        {"allOf": [{"allOf": [{"required": ["sku"]}]}, {"allOf": [SHARED]}]},
        {**SHARED, "required": ["sku"]},
    ],
)
def test_what_a_body_requires_is_kept_wherever_its_schema_says_so(schema: dict[str, Any]) -> None:
    assert not takes(schema, {})
    assert not takes(schema, {"count": 1})
    assert takes(schema, {"sku": "tea"})
    assert takes(schema, {}, required=False), "a body that is not required may be left out whole"
    assert not takes(schema, {"count": 1}, required=False), "and is whole where a field of it is given"
    assert takes(schema, {"count": 1, "sku": "tea"}, required=False)


def test_the_required_fields_of_a_body_that_may_be_left_out_come_together() -> None:
    schema = {"properties": {name: {"type": "string"} for name in "abcd"}, "required": ["a", "b", "c"]}
    for names, fits in (("", True), ("d", False), ("a", False), ("ab", False), ("bcd", False), ("abc", True), ("abcd", True)):
        assert takes(schema, dict.fromkeys(names, "x"), required=False) is fits, names
    many = {"properties": {f"p{n}": {} for n in range(280)}, "required": [f"p{n}" for n in range(250)]}
    body = {"requestBody": {"content": {"application/json": {"schema": many}}}}
    assert len(json.dumps(tools_of({"/a": {"post": body}})["post_a"].parameters)) < 20_000


@pytest.mark.parametrize("word", ["oneOf", "anyOf"])
def test_one_of_several_required_fields_has_to_be_there(word: str) -> None:
    either = {word: [{"required": ["sku"]}, {"type": "object", "required": ["count"]}]}
    for schema in ({**ITEM, **either}, {"allOf": [SHARED, either]}, {"allOf": [either], "properties": ITEM["properties"]}):
        assert not takes(schema, {"body": {}})
        assert takes(schema, {"body": {"sku": "tea"}})
        assert takes(schema, {"body": {"count": 1}})
        assert takes(schema, {"body": {"sku": "tea", "count": 1}}) is (word == "anyOf")
    both = {"allOf": [{**ITEM, **either}, {word: [{"required": ["count"]}]}]}
    assert not takes(both, {"body": {"sku": "tea"}})
    assert takes(both, {"body": {"count": 1}})


def test_what_the_fields_of_two_parts_require_is_merged() -> None:
    street = {"type": "object", "properties": {"street": {}, "town": {}}}
    schema = {"allOf": [{"properties": {"at": street}}, {"properties": {"at": {"required": ["street"]}}}]}
    assert not takes(schema, {"at": {}})
    assert takes(schema, {"at": {"street": "x"}})
    free = {"properties": {"at": {"type": "object", "required": ["street"]}}}
    assert not takes(free, {"at": {}}), "an object of free fields has to have it, too"


def test_definitions_that_a_schema_brings_along_are_found() -> None:
    def refers(to: str, **more: Any) -> dict[str, Any]:
        return {"$ref": to, **more}

    def thing(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties}

    target = thing(name={"type": "string"}, near=refers("#/$defs/Target"))
    night = {"$id": "https://obs.example/night", "$defs": {"Target": target}, **thing(seen=refers("#/$defs/Target"))}
    top = refers("#/definitions/Top", definitions={"Top": thing(a={"type": "integer"})})
    both = thing(night=refers("#/components/schemas/Night"), other=refers("#/$defs/Other"))
    both["$defs"] = {"Other": {"type": "boolean"}, "Target": {"type": "null"}}
    answer = {"200": {"content": {"application/json": {"schema": refers("#/components/schemas/Night")}}}}
    paths = {"/nights": {"get": {"responses": answer}}, "/own": {"post": with_body(top)}, "/both": {"post": with_body(both)}}
    made = tools_of(paths, openapi="3.1.0", components={"schemas": {"Night": night}})
    result = made["get_nights"].result
    assert result is not None
    assert result["properties"]["body"]["properties"]["seen"]["properties"] == {"name": {"type": "string"}, "near": {}}
    assert made["post_own"].parameters["properties"] == {"a": {"type": "integer"}}
    parts = made["post_both"].parameters["properties"]
    assert parts["other"] == {"type": "boolean"}
    assert parts["night"]["properties"]["seen"]["type"] == "object", "the innermost definition of that name counts"
    nowhere = openapi_document.read(document({"/a": {"post": with_body(refers("#/$defs/Gone"))}, "/b": {"get": {}}}), BASE)
    assert "the reference '#/$defs/Gone' leads nowhere" in nowhere.left_out[0]


def test_reading_is_linear_in_the_number_of_operations() -> None:
    schemas = {
        f"S{n}": {"type": "object", "properties": {f"p{m}": {"$ref": f"#/components/schemas/S{(n * 7 + m) % 40}"} for m in range(8)}}
        for n in range(40)
    }

    def nodes(count: int) -> int:
        paths = {f"/things{n}/{{id}}": {"post": with_body({"$ref": f"#/components/schemas/S{n % 40}"})} for n in range(count)}
        found = openapi_document.read(document(paths, components={"schemas": schemas}), BASE)
        assert len(found.tools) == count
        check_definitions("api", found.tools, ToolLimits(tools=2000))
        return found.nodes

    few, many = nodes(120), nodes(1200)
    assert many == 10 * few
    assert many <= 1200 * 2 * openapi_document.NODES


def test_swagger_2_is_read() -> None:
    body = {"in": "body", "name": "it", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
    old = {
        "swagger": "2.0", "host": "api.example.org", "basePath": "/v1", "schemes": ["https"],
        "definitions": {"Pet": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "paths": {"/pets": {"post": {"parameters": [body], "responses": {"200": {"schema": {"$ref": "#/definitions/Pet"}}}},
                            "get": {"parameters": [{"in": "query", "name": "tags", "type": "array", "items": {"type": "string"}}]}}},
    }  # fmt: skip
    assert openapi_document.servers(old, "") == [BASE]
    get, post = openapi_document.read(old, BASE).tools
    assert post.parameters["properties"] == {"name": {"type": "string"}}
    assert post.result is not None
    assert post.result["properties"]["body"]["properties"] == {"name": {"type": "string"}}
    assert get.parameters["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}


def test_what_cannot_be_sent_is_left_out_and_told() -> None:
    found = openapi_document.read(document({"/a": {"post": with_body({}, "multipart/form-data"), "get": {}}}), BASE)
    assert [tool.name for tool in found.tools] == ["get_a"]
    assert "multipart/form-data" in found.left_out[0]


def test_operations_whose_method_is_not_sent_are_named() -> None:
    found = openapi_document.read(document({"/a": {"get": {}, "head": {}, "options": {}, "trace": {}, "x-own": {}}}), BASE)
    assert [tool.name for tool in found.tools] == ["get_a"]
    assert [one.partition(":")[0] for one in found.left_out] == ["HEAD /a", "OPTIONS /a", "TRACE /a"]
    assert found.left_out[0] == "HEAD /a: its method is HEAD, which is not sent; GET, PUT, DELETE, POST, PATCH are"


def test_one_broken_operation_does_not_take_the_others_away() -> None:
    lost = {"get": with_body({"$ref": "#/components/schemas/None"})}
    split = {"get": {"$ref": "resources/b.yml"}}
    found = openapi_document.read(document({"/a": lost, "/b": split, "/c": {"get": {}}}), BASE)
    assert [tool.name for tool in found.tools] == ["get_c"]
    assert "GET /a: the reference '#/components/schemas/None' leads nowhere" in found.left_out[0]
    assert "GET /b" in found.left_out[1]
    assert "bundle" in found.left_out[1]


def test_a_result_whose_schema_is_broken_does_not_keep_a_call_from_being_made() -> None:
    answers = ({"content": {"application/json": {"schema": {"$ref": "#/nowhere"}}}}, {"$ref": "#/nowhere"})
    made = tools_of({f"/{at}": {"get": {"responses": {"200": answer}}} for at, answer in enumerate(answers)})
    assert [tool.result for tool in made.values()] == [None, None]


def test_what_an_operation_says_is_its_summary_and_its_description() -> None:
    long = {"summary": "Get Credits", "description": "Get the cast of a film."}
    twice = {"summary": "Get the cast", "description": "Get the cast of a film."}
    made = tools_of({"/a": {"get": long}, "/b": {"get": twice}, "/c": {"get": {"summary": "Only this."}}})
    assert [tool.description for tool in made.values()] == [
        "Get Credits: Get the cast of a film.", "Get the cast of a film.", "Only this.",
    ]  # fmt: skip


def test_a_description_that_is_a_part_of_the_name_is_told_with_the_path() -> None:
    made = tools_of(
        {
            "/stock": {
                "get": {"operationId": "findAllUsingGET", "summary": "findAll"}, "post": {"operationId": "saveStock", "summary": "save"},
            },
            "/orders/{id}": {"get": {"operationId": "order", "summary": "Order"}, "put": {"operationId": "set", "summary": "Sets one."}},
        }
    )  # fmt: skip
    assert [one.description for one in made.values()] == ["findAll: GET /stock", "save", "Order", "Sets one."]


@pytest.mark.parametrize("named", ["https://internal.example/", "//internal.example"])
def test_a_path_that_names_the_documents_own_server_goes_where_its_user_said(named: str) -> None:
    own = {"servers": [{"url": "https://internal.example"}]}
    other = {"servers": [{"url": "https://files.example"}]}
    given = document({"/a": {"get": {}, **own}, "/b": {"get": other}}, servers=[{"url": named}])
    found = openapi_document.read(given, BASE)
    assert [tool.name for tool in found.tools] == ["get_a"]
    assert found.left_out == ("GET /b: it has a server of its own, https://files.example",)


KEY = {"type": "apiKey", "in": "header", "name": "X-Key"}
SECURED = [
    ({"shop-key": KEY}, "--header 'X-Key: {secret:shop-key}'", {"headers": ["x-key"]}),
    ({"1": {**KEY, "in": "query", "name": "key"}}, """--option 'query={"key": "{secret:key_1}"}'""", {"skipped": ["key"]}),
    ({"c": {**KEY, "in": "cookie", "name": "sid"}}, "--header 'Cookie: sid={secret:c}'", {"headers": ["Cookie"]}),
    ({"b": {"type": "http", "scheme": "bearer"}}, "--header 'Authorization: Bearer {secret:b}'", {"headers": ["Authorization"]}),
    ({"b": {"type": "http", "scheme": "Basic"}}, "Basic {secret:b}' (the secret is USER:PASSWORD", {"headers": ["authorization"]}),
    ({"o": {"type": "oauth2", "flows": {}}}, "Bearer {secret:o}' (the secret is an access token)", {"headers": ["authorization"]}),
]


@pytest.mark.parametrize(("schemes", "said", "given"), SECURED)
@pytest.mark.parametrize("old", [False, True])
def test_a_secret_that_operations_need_is_told_until_it_is_given(
    schemes: dict[str, Any], said: str, given: dict[str, list[str]], old: bool
) -> None:
    if old and "bearer" not in said.lower():
        schemes = {name: {**one, "type": "basic"} if one["type"] == "http" else one for name, one in schemes.items()}
    where = {"securityDefinitions": schemes} if old and "bearer" not in said.lower() else {"components": {"securitySchemes": schemes}}
    needed = [{name: []} for name in schemes]
    paths = {"/a": {"get": {"parameters": [{"name": "key", "in": "query", "required": True}]}}, "/b": {"get": {"security": []}}}
    told = openapi_document.read(document(paths, security=needed, **where), BASE)
    assert len(told.notes) == 1
    assert told.notes[0].startswith("1 of 2 operations ask for a secret: ")
    assert said in told.notes[0]
    in_query = any(one.get("in") == "query" for one in schemes.values())
    assert ("key" in told.tools[0].parameters["properties"]) is not in_query  # a key is not a model's to give
    assert openapi_document.read(document(paths, security=needed, **where), BASE, **given).notes == ()  # type: ignore[arg-type]


def test_a_secret_is_told_where_a_document_only_describes_it_and_not_where_one_may_do_without() -> None:
    schemes = {"components": {"securitySchemes": {"k": KEY, "t": {"type": "http", "scheme": "bearer"}}}}
    assert "X-Key: {secret:k}" in openapi_document.read(document({"/a": {"get": {}}}, **schemes), BASE).notes[0]
    optional = document({"/a": {"get": {}}}, security=[{}, {"k": []}], **schemes)
    assert openapi_document.read(optional, BASE).notes == ()
    both = openapi_document.read(document({"/a": {"get": {"security": [{"k": [], "t": []}]}}}, **schemes), BASE).notes
    assert "{secret:k}' and t, given by --header 'Authorization: Bearer {secret:t}'" in both[0]


def test_headers_and_cookies_that_operations_require_are_told_until_the_connection_gives_them() -> None:
    def needs(place: str, name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "in": place, "required": True, "schema": {"type": "string"}, **more}

    paths: dict[str, Any] = {
        "/a": {"get": {"parameters": [needs("header", "X-Site"), needs("cookie", "session")]}},
        "/b": {"parameters": [needs("header", "X-Site")], "get": {"parameters": [needs("header", "Accept")]}, "put": {}},
        "/c": {"get": {"parameters": [needs("header", "X-Trace", required=False), needs("header", "X-Key")]}},
        "/d": {"post": {"parameters": [needs("header", "Idempotency-Key"), needs("header", "X'; rm -rf /")]}},
    }
    schemes = {"components": {"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X-Key"}}}, "security": []}
    told = openapi_document.read(document(paths, **schemes), BASE).notes
    assert told == (
        "3 of 5 operations need the header X-Site, given by --header 'X-Site: VALUE'",
        "1 of 5 operations need the cookie session, given by --header 'Cookie: session=VALUE'",
    )
    assert openapi_document.read(document(paths, **schemes), BASE, headers=["x-site", "cookie"]).notes == ()


def test_a_documents_words_cannot_become_a_command_of_the_shell_into_which_an_option_is_pasted() -> None:
    schemes = {"k'; reboot; '": {**KEY, "name": "X'`reboot`|sh"}, "$(reboot)": {**KEY, "in": "query", "name": "k'|sh|'"}}
    given = document({"/a": {"get": {}}}, security=[{name: [] for name in schemes}], components={"securitySchemes": schemes})
    told = openapi_document.read(given, BASE).notes[0]
    assert "a way that is not known here" in told
    assert not set("'`$;|") & set(told.removeprefix("1 of 1 operations ask for a secret: "))


def test_a_small_text_that_stands_for_a_huge_document_is_refused() -> None:
    layers = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 20)}]\n" for n in range(1, 12))
    with pytest.raises(InvalidInput, match="aliases stand for"):
        openapi_document.parsed(b"openapi: 3.0.0\npaths: {}\nl0: &l0 x\n" + layers.encode(), "/doc.yaml")
    with pytest.raises(InvalidInput, match="aliases stand for inf"):
        openapi_document.parsed(b"openapi: 3.0.0\npaths: {}\na: &a [*a]\n", "/doc.yaml")


def test_an_operation_with_too_many_parameters_is_left_out() -> None:
    def listed(count: int) -> dict[str, Any]:
        return {"get": {"parameters": [{"name": f"p{n}", "in": "query", "schema": {"type": "string"}} for n in range(count)]}}

    most = openapi_document.PARAMETERS
    found = openapi_document.read(document({"/a": listed(most), "/b": listed(most + 1)}), BASE)
    assert [tool.name for tool in found.tools] == ["get_a"]
    assert "at most 500" in found.left_out[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "neither valid"), (b"a: [", "neither valid"), (b"just words", "not an OpenAPI document"),
        (b"[1]", "not an OpenAPI document"),
        (b'{"openapi": "4.0"}', "4.0"), (b'{"info": {}}', "version"), (b'{"openapi": "3.1.0", "paths": []}', "paths"),
        (b'{"openapi": ' + b"[" * 100_000, "nested too deep"),
    ],
)  # fmt: skip
def test_what_is_not_a_document_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        openapi_document.parsed(data, "/doc.json")


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ({"/a": 1}, "/a"), ({"/a": {"get": 1}}, "GET /a"), ({"a": {}}, "does not begin"),
        ({"/a": {"get": {"parameters": [{"name": "x"}]}}}, "GET /a"), ({"/a": {"get": {"parameters": 3}}}, "GET /a"),
        ({"/a": {"post": with_body({"$ref": "#/nowhere"})}}, "nowhere"), ({"/a": {"post": with_body({"$ref": "other.yaml#/X"})}}, "bundle"),
        ({"/a": {"get": {"parameters": [{"$ref": "#/paths/~1a/get/parameters/0"}]}}}, "itself"),
    ],
)  # fmt: skip
def test_a_broken_document_is_refused_with_its_place(paths: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        openapi_document.read(document(paths), BASE)


def test_servers_are_relative_to_the_document_and_have_variables() -> None:
    one = {"servers": [{"url": "/v{n}", "variables": {"n": {"default": "2"}}}]}
    assert openapi_document.servers(one, "https://a.org/docs/api.json") == ["https://a.org/v2"]
    with pytest.raises(InvalidInput, match="option server"):
        openapi_document.servers({"servers": [{"url": "https://{x}.org"}]}, "")


class _Api(ThreadingHTTPServer):
    """An API on this machine that gives its document and notes its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, str, bytes]] = []
        self.document: bytes = b""

    @property
    def place(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Api

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        at_document = self.path == "/openapi.yaml"
        if not at_document:
            self.server.asked.append((self.command, self.path, self.headers.get("Idempotency-Key", ""), body))
        answer = self.server.document if at_document else b'{"ok": true}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def api() -> Iterator[_Api]:
    with _Api() as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


YAML = b"""
openapi: 3.1.0
servers: [{url: /v1}]
paths:
  /items/{id}:
    post:
      operationId: change
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
        - {name: tags, in: query, explode: false, schema: {type: array, items: {type: string}}}
        - {name: f, in: query, style: deepObject, schema: {type: object}}
        - {name: Idempotency-Key, in: header}
      requestBody: {content: {application/json: {schema: {type: object, properties: {id: {type: integer}}}}}}
      responses: {200: {description: ok, content: {application/json: {schema: {type: object}}}}}
"""


def connector(place: str, **options: Any) -> OpenApiConnector:
    def secret(name: str) -> str:
        raise InvalidInput(f"the secret {name} is missing")

    return OpenApiConnector(ConnectionSpec("api", "openapi", place, options), ConnectorServices(secret=secret, folder=Path("/nowhere")))


async def test_a_call_goes_where_its_arguments_belong(api: _Api) -> None:
    api.document = YAML
    made = connector(f"{api.place}/openapi.yaml")
    (tool,) = await made.tools()
    assert tool.kind == KEYED
    arguments = {"id": "a b?c", "tags": ["x", "y"], "f": {"min": 3}, "body_id": 7}
    found = await (await made.prepare(tool, arguments)).send(Delivery("key-9"))
    assert found["body"] == {"ok": True}
    assert api.asked == [("POST", "/v1/items/a%20b%3Fc?tags=x%2Cy&f%5Bmin%5D=3", "key-9", b'{"id": 7}')]
    for value in ("", "..", "a/b", "../x", "%2e%2e", "\\", "a%2fb"):
        with pytest.raises(InvalidInput):
            await made.prepare(tool, {"id": value})
    await made.close()


EMPTY, TEXT, LIST, OBJECT = "", "blue", ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("matrix", False, EMPTY, ";color"),
        ("matrix", False, TEXT, ";color=blue"),
        ("matrix", False, LIST, ";color=blue,black,brown"),
        ("matrix", False, OBJECT, ";color=R,100,G,200,B,150"),
        ("matrix", True, EMPTY, ";color"),
        ("matrix", True, TEXT, ";color=blue"),
        ("matrix", True, LIST, ";color=blue;color=black;color=brown"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
        ("label", False, TEXT, ".blue"),
        ("label", False, LIST, ".blue,black,brown"),
        ("label", False, OBJECT, ".R,100,G,200,B,150"),
        ("label", True, TEXT, ".blue"),
        ("label", True, LIST, ".blue.black.brown"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("simple", False, TEXT, "blue"),
        ("simple", False, LIST, "blue,black,brown"),
        ("simple", False, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, TEXT, "blue"),
        ("simple", True, LIST, "blue,black,brown"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
        ("matrix", False, 3, ";color=3"),
        ("label", False, 3, ".3"),
        ("simple", False, ["a,b", "c;d=e"], "a%2Cb,c%3Bd%3De"),
        ("matrix", True, {"a=b": "c;d"}, ";a%3Db=c%3Bd"),
    ],
)
async def test_a_parameter_stands_in_a_path_in_the_style_that_the_document_says(
    api: _Api, style: str, explode: bool, value: Any, written: str
) -> None:
    about = {"name": "color", "in": "path", "required": True, "style": style, "explode": explode, "schema": {}}
    api.document = json.dumps(document({"/y{color}/z": {"get": {"parameters": [about]}}}, servers=[{"url": "/"}])).encode()
    made = connector(f"{api.place}/openapi.yaml")
    (tool,) = await made.tools()
    await (await made.prepare(tool, {"color": value})).send(Delivery(""))
    assert [path for _, path, _, _ in api.asked] == [f"/y{written}/z"]
    await made.close()


@pytest.mark.parametrize("style", ["matrix", "label", "simple"])
@pytest.mark.parametrize("explode", [True, False])
@pytest.mark.parametrize("value", [".", "..", "../x", "a/b", "\\", ["a", "b/c"], {"a/b": "c"}, {"a": "../c"}])
async def test_no_style_lets_a_value_lead_to_another_path(api: _Api, style: str, explode: bool, value: Any) -> None:
    about = {"name": "v", "in": "path", "required": True, "style": style, "explode": explode, "schema": {}}
    api.document = json.dumps(document({"/y/{v}": {"get": {"parameters": [about]}}}, servers=[{"url": "/"}])).encode()
    made = connector(f"{api.place}/openapi.yaml")
    (tool,) = await made.tools()
    with pytest.raises(InvalidInput, match="cannot be a part of a path"):
        await made.prepare(tool, {"v": value})
    await made.close()


async def test_another_origin_has_to_be_named(api: _Api) -> None:
    api.document = json.dumps(document({"/a": {"get": {}}}, servers=[{"url": "https://other.example/v1"}])).encode()
    with pytest.raises(EgressRefused, match="option server"):
        await connector(f"{api.place}/openapi.yaml").tools()
    (tool,) = await connector(f"{api.place}/openapi.yaml", server="https://other.example/v1").tools()
    assert tool.details["base"] == "https://other.example/v1"


async def test_a_file_needs_its_server_named(api: _Api, tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_bytes(YAML)
    with pytest.raises(InvalidInput, match="option server"):
        await connector(str(file)).tools()
    assert [tool.name for tool in await connector(str(file), server=f"{api.place}/v1").tools()] == ["change"]
    with pytest.raises(ToolFailed, match="cannot be read"):
        await connector(str(tmp_path / "gone.yaml"), server=api.place).tools()


async def test_a_file_may_name_a_public_server_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document({"/a": {"get": {}}}, servers=[{"url": "https://api.example/v1"}])))
    (tool,) = await connector(str(file)).tools()
    assert tool.details["base"] == "https://api.example/v1"
    for private in ("http://127.0.0.1:9/v1", "http://localhost/v1", "http://169.254.169.254/", "http://[::1]/"):
        file.write_text(json.dumps(document({"/a": {"get": {}}}, servers=[{"url": private}])))
        with pytest.raises(InvalidInput, match="option server"):
            await connector(str(file)).tools()


async def test_a_tool_that_was_changed_to_another_server_is_not_called(api: _Api) -> None:
    api.document = YAML
    made = connector(f"{api.place}/openapi.yaml")
    (tool,) = await made.tools()
    other = ToolDefinition.of({**tool.to_wire(), "details": {**tool.details, "base": "https://evil.example"}})
    with pytest.raises(EgressRefused):
        await made.prepare(other, {"id": "1"})
