"""HTTP connections: where a request may go, what a reply means, and that no secret is seen."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.errors import EgressFailed, EgressRefused, InvalidInput, ToolFailed
from batos.image.effects import ACTS, IDEMPOTENT, KEYED, READS, VERIFIABLE
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolLimits, check_definitions
from batos.tools.http import HttpConnector
from batos.tools.http_sending import url_beneath

SECRET = "s3cret+value/with=signs"


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


@dataclass
class Shop:
    """A server on this machine that notes its requests and answers as it is told."""

    port: int = 0
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    answer: Callable[[str, int], Reply] = lambda path, times: Reply()

    @property
    def place(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := (await reader.readline()).decode():
                head: dict[str, str] = {}
                while row := (await reader.readline()).decode().strip():
                    name, _, value = row.partition(":")
                    head[name.lower()] = value.strip()
                body = await reader.readexactly(int(head.get("content-length", 0)))
                method, path, _ = line.split(" ", 2)
                self.asked.append((method, path, head, body))
                reply = self.answer(path, len(self.asked))
                lines = [f"HTTP/1.1 {reply.status} X", f"Content-Length: {len(reply.body)}"]
                lines += [f"{name}: {value}" for name, value in reply.headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else reply.body))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    made = Shop()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


def secret(name: str) -> str:
    if name != "shop":
        raise InvalidInput(f"the secret {name} is missing; `batos secrets set {name}`")
    return SECRET


def connector(place: str, limits: ToolLimits | None = None, **options: Any) -> HttpConnector:
    services = ConnectorServices(secret=secret, folder=Path("/nowhere"), limits=limits or ToolLimits(call_s=5))
    return HttpConnector(ConnectionSpec("shop", "http", place, options), services)


async def call(made: HttpConnector, name: str, told: Callable[[str], None] = lambda line: None, **arguments: Any) -> Any:
    tool = next(one for one in await made.tools() if one.name == name)
    ready = await made.prepare(tool, arguments)
    try:
        return await ready.send(Delivery("key-1", told))
    finally:
        await made.close()


async def test_the_tools_have_the_classes_of_their_methods() -> None:
    made = connector("https://api.example.org/v1")
    tools = await made.tools()
    check_definitions("shop", tools, ToolLimits())
    assert {tool.name: tool.kind for tool in tools} == {
        "get": READS, "head": READS, "put": IDEMPOTENT, "delete": IDEMPOTENT, "post": ACTS, "patch": ACTS,
    }  # fmt: skip


async def test_a_request_carries_path_query_body_and_its_result_says_all(shop: Shop) -> None:
    shop.answer = lambda path, times: Reply(201, b'{"id": 7}')
    found = await call(connector(f"{shop.place}/v1"), "post", path="/orders", query={"tags": ["a", "b"], "dry": False}, body={"sku": "tea"})
    assert found == {"status": 201, "body": {"id": 7}, "url": f"{shop.place}/v1/orders?tags=a&tags=b&dry=false"}
    method, path, head, body = shop.asked[0]
    assert (method, path, json.loads(body)) == ("POST", "/v1/orders?tags=a&tags=b&dry=false", {"sku": "tea"})
    assert head["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("links", "following"),
    [
        ('<{place}/orders?page=3>; rel="next", <{place}/orders?page=9>; rel="last"', "{place}/orders?page=3"),
        ("</orders?after=a%2Cb&key={secret}>; rel=next", "{place}/orders?after=a%2Cb&key={{secret:shop}}"),
        ('<{place}/orders?page=1>; rel="prev"', None),
        ("nothing of the kind", None),
        ("<" * 70_000, None),
    ],
)
async def test_a_page_that_follows_is_told(shop: Shop, links: str, following: str | None) -> None:
    shop.answer = lambda path, times: Reply(200, b"[1, 2]", {"Link": links.replace("{secret}", SECRET).format(place=shop.place)})
    made = connector(shop.place, headers={"Authorization": "Bearer {secret:shop}"})
    found = await call(made, "get", path="/orders")
    assert found.get("next") == (following and following.format(place=shop.place))


async def test_the_key_goes_into_the_header_that_the_api_names(shop: Shop) -> None:
    made = connector(shop.place, key_header="Idempotency-Key")
    assert next(tool.kind for tool in await made.tools() if tool.name == "post") == KEYED
    await call(made, "post", path="/orders")
    assert shop.asked[0][2]["idempotency-key"] == "key-1"


async def test_a_secret_is_sent_and_seen_nowhere(shop: Shop) -> None:
    made = connector(shop.place, headers={"Authorization": "Bearer {secret:shop}"}, query={"api_key": "{secret:shop}"})
    get = next(one for one in await made.tools() if one.name == "get")
    ready = await made.prepare(get, {"path": "/me"})
    assert "{secret:shop}" in ready.payload
    assert SECRET not in ready.payload
    shop.answer = lambda path, times: Reply(200, json.dumps({"you": shop.asked[-1][2]["authorization"], "at": path}).encode())
    found = await ready.send(Delivery(""))
    assert shop.asked[0][2]["authorization"] == f"Bearer {SECRET}"
    assert urllib.parse.parse_qs(shop.asked[0][1].partition("?")[2]) == {"api_key": [SECRET]}
    text = json.dumps(found)
    assert "Bearer {secret:shop}" in text
    assert SECRET not in text
    assert urllib.parse.quote_plus(SECRET) not in text
    shop.answer = lambda path, times: Reply(400, f"bad key {SECRET} {path}".encode(), {"Content-Type": "text/plain"})
    with pytest.raises(ToolFailed) as failed:
        await ready.send(Delivery(""))
    assert "bad key {secret:shop}" in failed.value.message
    assert SECRET not in failed.value.message
    assert urllib.parse.quote_plus(SECRET) not in failed.value.message
    await made.close()


async def test_a_missing_secret_is_said_before_anything_leaves(shop: Shop) -> None:
    with pytest.raises(InvalidInput, match="batos secrets set other"):
        await call(connector(shop.place, headers={"X-Key": "{secret:other}"}), "post", path="/orders")
    assert shop.asked == []


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "x"}, {"cookie": "a=b"}, {"X-Api-Key": "x"}, {"Host": "other"}, {"X-HTTP-Method-Override": "DELETE"},
     {"X-A": "a\r\nX-B: b"}, {"X A": "b"}, {"Content-Length": "3"}, {"x-shop": "mine"}],
)  # fmt: skip
async def test_headers_that_are_not_the_callers_are_refused(shop: Shop, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        await call(connector(shop.place, headers={"X-Shop": "ours"}), "get", path="/", headers=headers)
    assert shop.asked == []


OUT = [
    "../x", "/a/../../x", "/%2e%2e/x", "/%252e%252e/x", "/..;a/x", "//evil.example/x", "http://evil.example/", "/a%2fb", "/a%252Fb",
    "/a\\..\\b", "/a%5cb", "/a\r\nX: y", "/a%0d%0ab", "/a?b=c", "/a#b", "/%zz", "/\uff0e\uff0e/x", "/a\u2215..\uff0fb", "//user:pw@host/",
    "/\\host",
    "/./x", "/\x00", "/\ud800",
]  # fmt: skip


@pytest.mark.parametrize("path", OUT)
async def test_a_path_that_could_lead_out_of_the_base_is_refused(shop: Shop, path: str) -> None:
    with pytest.raises(InvalidInput, match="beneath"):
        await call(connector(f"{shop.place}/v1"), "get", path=path)
    assert shop.asked == []


@given(
    st.one_of(
        st.text(max_size=30), st.lists(st.sampled_from(["..", ".", "/", "%2e", "%2f", "\\", "@", ":", "a", ";", "%25", "//"])).map("".join)
    )
)
def test_whatever_a_path_is_it_stays_beneath_the_base_or_is_refused(path: str) -> None:
    base = "https://api.example.org/v1"
    try:
        url = url_beneath(base, path)
    except InvalidInput:
        return
    plain = url
    for _ in range(6):
        split = urllib.parse.urlsplit(plain)
        assert (split.scheme, split.netloc) == ("https", "api.example.org")
        assert urllib.parse.urljoin("https://api.example.org/", split.path).startswith("https://api.example.org/v1")
        parts = urllib.parse.unquote(url).partition("api.example.org")[2].replace("\\", "/").split("/")
        assert ".." not in parts
        assert parts[1] == "v1"
        plain = urllib.parse.unquote(plain).partition("?")[0].partition("#")[0]


@pytest.mark.parametrize("place", ["ftp://x", "http://u:p@host", "api.example.org", "http://", "http://h/a?b", "http://h/../a"])
def test_a_place_that_is_not_an_origin_is_refused(place: str) -> None:
    with pytest.raises(InvalidInput):
        connector(place)


@pytest.mark.parametrize(
    "options",
    [{"heders": {}}, {"headers": {"A": 1}}, {"headers": {"A\n": "x"}}, {"seconds": 0}, {"seconds": True}, {"private": "yes"},
     {"classes": {"get": "safe"}},
     {"classes": {"fetch": "reads"}}, {"classes": {"post": "keyed"}}, {"classes": {"post": "verifiable"}},
     {"look": {"post": "put"}}, {"undo": {"post": "no"}}],
)  # fmt: skip
def test_an_option_that_is_not_valid_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        connector("http://127.0.0.1:1", **options)


async def test_options_name_classes_looks_and_undoes() -> None:
    made = connector("http://127.0.0.1:1", classes={"post": "verifiable"}, look={"post": "get"}, undo={"post": "delete"}, private="results")
    post = next(tool for tool in await made.tools() if tool.name == "post")
    assert (post.kind, post.look, post.undo, post.private) == (VERIFIABLE, "get", "delete", True)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 422, 451])
async def test_a_refusal_of_the_server_surely_did_nothing(shop: Shop, status: int) -> None:
    shop.answer = lambda path, times: Reply(status, b'{"error": "no tea"}')
    with pytest.raises(ToolFailed, match="no tea") as failed:
        await call(connector(shop.place), "post", path="/orders")
    assert failed.value.sure
    assert failed.value.context["status"] == status


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503])
async def test_some_replies_leave_open_if_an_act_happened_and_it_is_not_repeated(shop: Shop, status: int) -> None:
    shop.answer = lambda path, times: Reply(status, b"", {"Retry-After": "0"})
    with pytest.raises(EgressFailed) as failed:
        await call(connector(shop.place), "post", path="/orders")
    assert failed.value.sent
    assert len(shop.asked) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_a_reading_request_is_sent_again(shop: Shop, status: int) -> None:
    shop.answer = lambda path, times: Reply(status, b"", {"Retry-After": "0"}) if times < 3 else Reply(200, b"[1]")
    lines: list[str] = []
    assert (await call(connector(shop.place), "get", lines.append, path="/"))["body"] == [1]
    assert len(shop.asked) == 3
    assert len(lines) == 2
    assert str(status) in lines[0]


async def test_a_wait_longer_than_the_time_is_told_at_once(shop: Shop) -> None:
    shop.answer = lambda path, times: Reply(429, b"", {"Retry-After": "3600"})
    with pytest.raises(ToolFailed, match="3600"):
        await call(connector(shop.place), "get", path="/")
    assert len(shop.asked) == 1


async def test_too_many_requests_are_waited_for_where_a_repetition_is_harmless(shop: Shop) -> None:
    shop.answer = lambda path, times: Reply(429, b"", {"Retry-After": "0"}) if times < 2 else Reply()
    assert (await call(connector(shop.place), "put", path="/a", body="x"))["status"] == 200
    assert len(shop.asked) == 2


@pytest.mark.parametrize(("status", "sure"), [(301, False), (302, False), (303, False), (307, True), (308, True)])
async def test_an_act_is_not_redirected(shop: Shop, status: int, sure: bool) -> None:
    shop.answer = lambda path, times: Reply(status, b"", {"Location": "/elsewhere"})
    with pytest.raises(ToolFailed, match="/elsewhere") as failed:
        await call(connector(shop.place), "post", path="/orders")
    assert failed.value.sure == sure
    assert len(shop.asked) == 1


async def test_a_redirect_of_a_read_stays_with_the_named_server(shop: Shop) -> None:
    shop.answer = lambda path, times: Reply(302, b"", {"Location": "http://127.0.0.1:1/"})
    with pytest.raises(EgressRefused):
        await call(connector(shop.place), "get", path="/")
    assert len(shop.asked) == 1


@pytest.mark.parametrize("place", ["/admin", "/v10", "/v1/../admin", "/v1/%2e%2e/admin", "https://127.0.0.1:1/v1", "//127.0.0.1:1/v1"])
async def test_a_redirect_of_a_read_stays_beneath_the_base(shop: Shop, place: str) -> None:
    shop.answer = lambda path, times: Reply(302, b"", {"Location": place})
    with pytest.raises(EgressRefused, match=r"not beneath .*/v1, for which the connection is|reachable are"):
        await call(connector(f"{shop.place}/v1"), "get", path="/a")
    assert len(shop.asked) == 1


@pytest.mark.parametrize("place", ["/v1", "/v1/", "/v1/b%2Fc?x=../y", "b"])
async def test_a_redirect_beneath_the_base_is_followed(shop: Shop, place: str) -> None:
    shop.answer = lambda path, times: Reply(302, b"", {"Location": place}) if path.endswith("/a") else Reply()
    assert (await call(connector(f"{shop.place}/v1"), "get", path="/a"))["status"] == 200


async def test_a_redirect_of_a_read_is_judged_as_a_call_of_its_own(shop: Shop) -> None:
    shop.answer = lambda path, times: Reply(302, b"", {"Location": "/v1/secret?a=1&b=2&b=3"}) if path.endswith("/open") else Reply()
    made, asked = connector(f"{shop.place}/v1"), list[Any]()

    def permits(arguments: Mapping[str, Any]) -> bool:
        asked.append(arguments)
        return False

    tool = next(one for one in await made.tools() if one.name == "get")
    ready = await made.prepare(tool, {"path": "/open", "headers": {"Accept": "text/plain"}})
    with pytest.raises(EgressRefused, match=r"/v1/open' redirects to .*/v1/secret.*which is not followed: the grants do not allow"):
        await ready.send(Delivery("key", permits=permits))
    assert asked == [{"path": "/secret", "query": {"a": "1", "b": ["2", "3"]}, "headers": {"Accept": "text/plain"}}]
    assert (await ready.send(Delivery("key")))["url"].endswith("/v1/secret?a=1&b=2&b=3")
    assert [path for path in shop.asked if "secret" in str(path)] != []
    await made.close()


async def test_a_public_name_does_not_come_to_reach_this_machine(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rebound(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr("batos.tools.egress.system_addresses", rebound)
    with pytest.raises(EgressRefused, match="not public"):
        await call(connector(f"http://api.example.org:{shop.port}"), "get", path="/")
    assert shop.asked == []
    await call(connector(f"http://api.example.org:{shop.port}", private=True), "get", path="/")
    assert len(shop.asked) == 1


async def test_nobody_there_surely_did_nothing(unused_tcp_port_factory: Callable[[], int]) -> None:
    with pytest.raises(EgressFailed) as failed:
        await call(connector(f"http://127.0.0.1:{unused_tcp_port_factory()}"), "post", path="/")
    assert not failed.value.sent


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        (b"\x89PNG\x00", "image/png", {"type": "image/png", "bytes": 5}),
        (b"caf\xe9", "text/plain; charset=latin-1", "caf\u00e9"),
        (b"plain", "", "plain"),
        (b"{broken", "application/json", "{broken"),
        (b'{"a": NaN}', "application/json", {"a": "NaN"}),
        (b'"\\ud800"', "application/json", "?"),
        (b"[" * 50_000, "application/json", "[" * 50_000),
    ],
)
async def test_bodies_become_json_or_text_or_are_told(shop: Shop, body: bytes, kind: str, found: Any) -> None:
    shop.answer = lambda path, times: Reply(200, body, {"Content-Type": kind} if kind else {})
    assert (await call(connector(shop.place), "get", path="/"))["body"] == found


async def test_a_large_answer_of_an_act_is_cut_and_the_act_is_not_in_doubt(shop: Shop) -> None:
    shop.answer = lambda path, times: Reply(200, json.dumps(["x" * 3000]).encode())
    found = await call(connector(shop.place, ToolLimits(call_s=5, result_bytes=2000)), "post", path="/")
    assert found["status"] == 200
    assert found["body"]["bytes"] == 3004
    assert len(json.dumps(found)) < 2000


async def test_a_flood_is_cut_off(shop: Shop) -> None:
    shop.answer = lambda path, times: Reply(200, b"x" * 20_000)
    with pytest.raises(EgressFailed, match="larger"):
        await call(connector(shop.place, ToolLimits(call_s=5, result_bytes=2000)), "get", path="/")
