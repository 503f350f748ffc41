"""Who is let in to the console, and from where: token, session, Host, Origin, headers; and what happens to its socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from structlog.testing import capture_logs

from batos.app.kernel import Kernel
from batos.config import Settings
from batos.console.access import TOKEN_NAME, Access, token_of
from batos.console.app import GET, POST
from batos.console.login import HEADERS, cookie_of
from batos.doors.server import WebAddress, web_address
from batos.errors import ConfigError, EndpointError
from tests.support.console import Seat, http_client, seated, served
from tests.support.missions import FakeInference

ROOT = Path(__file__).parents[2]
ACCESS = Access("t" * 43, "127.0.0.1", 5780, 3600)
OWN = {"host": "127.0.0.1:5780"}


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with served(tmp_path) as kernel:
        yield kernel


@pytest.fixture
async def stranger(kernel: Kernel) -> AsyncIterator[httpx.AsyncClient]:
    assert kernel.console is not None
    async with http_client(kernel.console.address) as client:
        yield client


# --- the token


def test_the_token_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    token = token_of(tmp_path / "data")
    path = tmp_path / "data" / TOKEN_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) >= 43
    assert token_of(tmp_path / "data") == token
    assert os.listdir(tmp_path / "data") == [TOKEN_NAME]


@pytest.mark.parametrize(("mode", "text"), [(0o644, "x" * 43), (0o600, "short"), (0o600, "")])
def test_a_token_that_others_could_read_or_guess_is_made_anew(tmp_path: Path, mode: int, text: str) -> None:
    path = tmp_path / TOKEN_NAME
    path.write_text(text)
    path.chmod(mode)
    with capture_logs() as lines:
        token = token_of(tmp_path)
    assert token != text
    assert [line["event"] for line in lines] == ["console_token_replaced"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_behind_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x" * 43)
    (tmp_path / TOKEN_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=TOKEN_NAME):
        token_of(tmp_path)


async def test_a_stranger_is_asked_for_the_token_everywhere(stranger: httpx.AsyncClient) -> None:
    for path in GET:
        answer = await stranger.get(path)
        assert answer.status_code == 401
        assert TOKEN_NAME in answer.text
    for path in POST:
        answer = await stranger.post(path, data={"id": "m1"}, headers={"Origin": str(stranger.base_url).rstrip("/")})
        assert answer.status_code == 401
    assert (await stranger.get("/?token=wrong")).status_code == 401
    assert (await stranger.get("/static/console.css")).status_code == 200
    assert (await stranger.get("/static/../app.py")).status_code in (401, 404)
    assert (await stranger.get("/static/%2e%2e/app.py")).status_code == 404


@pytest.mark.parametrize(
    "other", ['prefs={"theme":"dark"}', "theme=dark mode", "tab", 't[0]=a"b', "a/b=1", "naïve=1", "=1", "path=/", "a=1;"]
)
def test_a_cookie_of_another_program_of_this_machine_does_not_hide_ours(other: str) -> None:
    for sent in (f"{other}; batos_5780=ours", f"batos_5780=ours; {other}"):
        assert cookie_of(Headers({"cookie": sent}), "batos_5780") == "ours"
    assert cookie_of(Headers({"cookie": other}), "batos_5780") == cookie_of(Headers({}), "batos_5780") == ""


async def test_the_link_sets_a_cookie_and_leaves_the_address_bar(kernel: Kernel, stranger: httpx.AsyncClient) -> None:
    assert kernel.console is not None
    token = kernel.console.link.rpartition("=")[2]
    answer = await stranger.get("/mission", params={"id": "a b", "token": token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/mission?id=a+b")
    cookie = answer.headers["set-cookie"].lower()
    for words in ("httponly", "samesite=strict", "path=/", "max-age=604800"):
        assert words in cookie
    assert token not in cookie
    assert token not in str(kernel.info())


async def test_the_token_can_be_pasted_and_the_session_left(kernel: Kernel, stranger: httpx.AsyncClient) -> None:
    assert kernel.console is not None
    origin = {"Origin": kernel.console.address}
    assert (await stranger.post("/login", data={"token": "no"}, headers=origin)).status_code == 401
    token = kernel.console.link.rpartition("=")[2]
    assert (await stranger.post("/login", data={"token": f" {token}\n"}, headers=origin)).status_code == 303
    assert (await stranger.get("/")).status_code == 200
    copied = dict(stranger.cookies)
    assert (await stranger.post("/logout", headers=origin)).status_code == 303
    assert not dict(stranger.cookies)
    stranger.cookies.update(copied)
    assert (await stranger.get("/")).status_code == 401


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "///evil.example"])
async def test_the_link_leads_to_no_other_site(kernel: Kernel, path: str) -> None:
    assert kernel.console is not None
    host, _, port = kernel.console.address.removeprefix("http://").partition(":")
    token = kernel.console.link.rpartition("=")[2]
    text = await _raw(host, int(port), f"GET {path}?token={token} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n")
    assert "evil" not in text.partition("\r\n\r\n")[0], text


async def _raw(host: str, port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request.encode())
    await writer.drain()
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text


# --- Host and Origin


@pytest.mark.parametrize(
    ("method", "headers", "fits"),
    [
        ("GET", OWN, True),
        ("GET", {"host": "localhost:5780"}, True),
        ("GET", {"host": "LOCALHOST:5780"}, True),
        ("GET", {}, False),
        ("GET", {"host": "rebound.example:5780"}, False),
        ("GET", {"host": "127.0.0.1"}, False),
        ("GET", {"host": "127.0.0.1:5781"}, False),
        ("GET", {"host": "127.0.0.1:5780.evil.example"}, False),
        ("GET", {**OWN, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, True),
        ("GET", {**OWN, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, False),
        ("GET", {**OWN, "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}, False),
        ("GET", {**OWN, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, True),
        ("GET", {**OWN, "origin": "http://127.0.0.1:8000"}, False),
        ("POST", {**OWN, "origin": "http://127.0.0.1:5780"}, True),
        ("POST", {**OWN, "origin": "http://127.0.0.1:5780", "sec-fetch-site": "same-origin"}, True),
        ("POST", {**OWN, "sec-fetch-site": "same-origin"}, True),
        ("POST", OWN, False),
        ("POST", {**OWN, "origin": "null"}, False),
        ("POST", {**OWN, "origin": "https://127.0.0.1:5780"}, False),
        ("POST", {**OWN, "origin": "http://evil.example"}, False),
        ("POST", {**OWN, "origin": "http://127.0.0.1:5780", "sec-fetch-site": "same-site"}, False),
        ("POST", {**OWN, "sec-fetch-site": "none"}, False),
        ("POST", {**OWN, "sec-fetch-site": "cross-site"}, False),
        ("DELETE", {**OWN, "origin": "http://127.0.0.1:5780"}, False),
        ("OPTIONS", OWN, False),
    ],
)
def test_requests_of_other_origins_are_refused(method: str, headers: dict[str, str], fits: bool) -> None:
    assert (ACCESS.refusal(method, headers) == "") is fits


async def test_a_session_is_no_use_to_a_foreign_page_or_name(seat: Seat) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {}):
        answer = await seat.client.post("/submit", data={"id": "x1", "brief": "steal"}, headers=headers)
        assert answer.status_code == 403
    answer = await seat.client.get("/", headers={"Host": "rebound.example:80"})
    assert answer.status_code == 421
    assert "steal" not in await seat.see("/")


async def test_every_answer_carries_the_headers(seat: Seat, stranger: httpx.AsyncClient) -> None:
    answers = [await seat.client.get(path) for path in ("/", "/nothing", "/mission?id=no", "/static/console.js")]
    answers += [await stranger.get("/"), await stranger.get("/", headers={"Host": "x"})]
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "server" not in answer.headers
    assert "default-src 'self'" in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_no_page_has_a_script_a_style_or_a_source_of_its_own() -> None:
    """The policy would refuse them: they would not work."""
    templates = list((ROOT / "batos" / "console" / "templates").glob("*.html"))
    assert len(templates) > 8
    for path in templates:
        text = path.read_text("utf-8")
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:|\|\s*safe\b|Markup|autoescape false", text), (
            path.name
        )
        assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}, path.name


# --- forms


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"id=x1&brief=" + b"a" * 3000, "application/x-www-form-urlencoded", 413),
        (b'{"brief": 1}', "application/json", 400),
        (b"brief=%ff&id=x1", "application/x-www-form-urlencoded", 400),
        ("brief=\u00e9".encode(), "application/x-www-form-urlencoded", 400),
        (b"brief", "application/x-www-form-urlencoded", 400),
        (b"", "application/x-www-form-urlencoded", 400),
        (b"brief=hello", "application/x-www-form-urlencoded", 400),
        (b"brief=hello&id=a%00b", "application/x-www-form-urlencoded", 400),
        (b"brief=&id=x1", "application/x-www-form-urlencoded", 400),
        (b"brief=hello&id=x1&persona=nobody", "application/x-www-form-urlencoded", 404),
        (b"brief=hello&id=x1&priority=high", "application/x-www-form-urlencoded", 400),
    ],
)
async def test_a_bad_form_gets_a_page_that_says_so(tmp_path: Path, content: bytes, kind: str, status: int) -> None:
    async with served(tmp_path, console_form_bytes=2048) as kernel, seated(kernel) as seat:
        headers = {"Origin": str(seat.client.base_url).rstrip("/"), "Content-Type": kind}
        answer = await seat.client.post("/submit", content=content, headers=headers)
        assert answer.status_code == status, answer.text
        assert 'role="alert"' in answer.text
        assert "Traceback" not in answer.text
        assert kernel.image.facts()["accepted"] == 0


# --- the socket


def at(address: str, setting: str = "console.listen") -> WebAddress:
    """The address at which a server with these settings listens."""
    section, _, name = setting.partition(".")
    found = web_address(Settings(**{"console": {"enabled": "on"}, section: {"enabled": "on", name: address}}), setting)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "address", ["0.0.0.0:5780", "192.168.1.2:80", "[::]:80", "example.org:80", "127.0.0.1", "127.0.0.1:x", ":80", "127.0.0.1:65536"]
)
def test_only_loopback_is_served(address: str) -> None:
    for setting in ("console.listen", "doors.listen"):
        with pytest.raises(EndpointError, match=rf"{setting}|loopback"):
            at(address, setting)


def test_addresses_of_loopback() -> None:
    assert [at(one)[1:3] for one in ("127.0.0.1:80", "localhost:0", "[::1]:9", "127.9.9.9:1")] == [
        ("127.0.0.1", 80), ("127.0.0.1", 0), ("::1", 9), ("127.9.9.9", 1)]  # fmt: skip
    assert Access("t" * 43, "::1", 9, 60).hosts == {"[::1]:9", "localhost:9"}
    assert Access("t" * 43, "127.0.0.1", 80, 60).refusal("POST", {"host": "localhost", "origin": "http://localhost"}) == ""


_FORM = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 4096\r\n\r\n"
_LOGIN = "POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n" + _FORM


@pytest.mark.parametrize("drips", [False, True])
@pytest.mark.parametrize("begun", ["", "GET / HTTP/1.1\r\nHost: {host}\r\nX: ", _LOGIN + "token=a", _LOGIN.replace("/login", "/")])
async def test_who_says_nothing_more_loses_his_place(begun: str, drips: bool, tmp_path: Path) -> None:
    """However many bytes still come, one by one."""
    async with served(tmp_path, console_request_s=0.2) as kernel, asyncio.timeout(90):
        assert kernel.console is not None
        host = kernel.console.address.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(begun.format(host=host).encode())
        gone = asyncio.ensure_future(reader.read())
        while not gone.done():
            if drips and not writer.is_closing():
                writer.write(b"a")
            await asyncio.wait([gone], timeout=0.02)
        with contextlib.suppress(ConnectionError):
            gone.result()
        writer.close()


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(EndpointError, match=rf"{address}: .*console\.listen"):
            async with served(tmp_path, console_listen=address):
                pass
    assert os.listdir(tmp_path) == [TOKEN_NAME], "that is known before an image is made"


async def test_the_address_is_free_again_where_the_start_fails(tmp_path: Path) -> None:
    async with served(tmp_path) as kernel:
        assert kernel.console is not None
        address = kernel.console.address.removeprefix("http://")
    for _ in range(2):
        with pytest.raises(EndpointError, match="no-such-folder"):
            async with served(tmp_path, console_listen=address, listen=(f"ipc://{tmp_path}/no-such-folder/s",)):
                pass


async def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r"the console needs jinja2.*pip install 'batos\[console\]'"):
        async with served(tmp_path):
            pass
    async with served(tmp_path, console="auto", doors={"enabled": "on", "listen": "127.0.0.1:0"}) as kernel:
        assert kernel.console is None
        assert kernel.doors is not None
        async with http_client(kernel.doors.address) as client:
            assert (await client.get("/", headers={"Accept": "text/html"})).status_code == 401


async def test_without_the_setting_nothing_is_served(tmp_path: Path) -> None:
    async with served(tmp_path, console="off") as kernel:
        assert kernel.console is None
        assert kernel.info()["console"] is None
    assert not (tmp_path / TOKEN_NAME).exists()


async def test_the_end_of_the_console_is_not_the_end_of_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(self: Any) -> None:
        raise RuntimeError("the web server fell over")

    monkeypatch.setattr("batos.console.connections.WebServer.main_loop", dies)
    inference = FakeInference()
    with capture_logs() as lines:
        async with served(tmp_path, inference) as kernel:
            new, _ = await kernel.scheduler.submit("m1", "Plan the day", {})
            assert new
            assert kernel.console is not None
            with contextlib.suppress(httpx.HTTPError):
                async with http_client(kernel.console.address) as client:
                    await client.get("/")
            await kernel.scheduler.quiet()
            assert kernel.scheduler.facts()["COMPLETE"] == 1
    assert [line["part"] for line in lines if line["event"] == "background_failed"] == ["doors"]


async def test_a_page_that_fails_says_so_and_tells_nothing(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr("batos.console.api_client.Asker.ask", broken)
    with capture_logs() as lines:
        text = await seat.see("/", 500)
    assert "secret" not in text
    assert [line["event"] for line in lines] == ["a page failed"]
