"""One server for browsers and for clients: who gets what at one address, what opens what, and what is loaded when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from batos.app.kernel import Kernel
from batos.console.access import TOKEN_NAME, Sessions, token_of
from batos.console.connections import ConnectionSlot, ConnectionSlots
from batos.doors.access import HEADERS
from batos.errors import EndpointError
from tests.support.console import http_client, seated, served, stream
from tests.support.doors import chat_client, door_token, kernel_with_doors, user

ROOT = Path(__file__).parents[2]
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
DOORS = {"enabled": "on", "listen": "127.0.0.1:0"}
INTERFACES = (
    ("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/api/version"), ("GET", "/api/tags"), ("POST", "/api/chat"),
    ("POST", "/api/generate"), ("POST", "/api/show"), ("GET", "/v1/nothing"), ("GET", "/api"),
)  # fmt: skip


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with kernel_with_doors(tmp_path) as kernel:
        yield kernel


@pytest.fixture
async def client(kernel: Kernel) -> AsyncIterator[httpx.AsyncClient]:
    async with chat_client(kernel) as client:
        yield client


# --- one address


async def test_a_browser_sees_the_console_where_a_client_sees_ollama(kernel: Kernel, client: httpx.AsyncClient) -> None:
    assert kernel.console is not None
    assert kernel.doors is not None
    assert kernel.console.address == kernel.doors.address == kernel.info()["console"] == kernel.info()["doors"]
    assert (await client.get("/")).text == "Ollama is running"
    async with http_client(kernel.doors.address) as stranger:
        asked = await stranger.get("/", headers=BROWSER)
        assert (asked.status_code, 'name="token"' in asked.text) == (401, True)
        assert (await stranger.get("/")).json()["error"], "a client is told in its own form"
        assert (await stranger.get("/static/console.css")).status_code == 200
    async with seated(kernel) as seat, stream(seat, "/events") as rows:
        assert "<title>Missions" in (await seat.client.get("/", headers=BROWSER)).text
        id = await seat.gave("Plan the day")
        await rows.until("complete")
        assert "Plan the day" in await seat.see("/mission", id=id)
        seen = await client.post("/v1/chat/completions", json={"model": "batos", "messages": [user("And the night?")]})
        await rows.until("And the night?")
    assert seen.status_code == 200


@pytest.mark.parametrize(("method", "path"), INTERFACES)
async def test_a_session_opens_no_interface(kernel: Kernel, method: str, path: str) -> None:
    """A page of another site has whatever a browser sends by itself, and no more."""
    async with seated(kernel) as seat:
        own = str(seat.client.base_url).rstrip("/")
        for more in ({}, {"Origin": own}, {"Origin": own, "Sec-Fetch-Site": "same-origin", **BROWSER}):
            sent = await seat.client.request(method, path, json={"model": "batos", "messages": [user("Steal")]}, headers=more)
            assert (sent.status_code, sent.headers["content-type"]) == (401, "application/json")
        assert "Steal" not in await seat.see("/")


@pytest.mark.parametrize("path", ["/", "/mission?id=no", "/object", "/events", "/login", "/nothing"])
async def test_a_key_opens_no_page(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path, headers=BROWSER)).status_code == 401


async def test_a_token_in_the_path_leads_to_no_page_and_leaves_by_no_referrer(kernel: Kernel) -> None:
    token = door_token(kernel)
    async with http_client(kernel.doors.address) as stranger:  # type: ignore[union-attr]
        for path, status in (("/", 200), ("", 200), ("/v1/models", 200), ("/mission?id=no", 404), ("/static/console.css", 404)):
            answer = await stranger.get(f"/token/{token}{path}", headers=BROWSER)
            assert answer.status_code == status, path
            assert "<html" not in answer.text
            assert "set-cookie" not in answer.headers
            assert token not in answer.text
            assert answer.headers["referrer-policy"] == "no-referrer"


async def test_every_answer_of_an_interface_has_its_headers(kernel: Kernel, client: httpx.AsyncClient) -> None:
    chat = {"model": "batos", "messages": [user("Plan the day")], "stream": True}
    answers = [await client.get("/v1/models"), await client.get("/v1/nothing"), await client.post("/v1/chat/completions", json=chat)]
    answers += [await client.get("/v1/models", headers=more) for more in ({"Authorization": ""}, {"Host": "x"}, {"Origin": "null"})]
    assert [one.status_code for one in answers] == [200, 404, 200, 401, 421, 403]
    for answer in answers:
        assert set(HEADERS.items()) - {("Cache-Control", "no-store")} <= {(name, answer.headers.get(name)) for name in HEADERS}
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in answer.headers


# --- addresses and settings


async def test_one_server_may_have_two_addresses(tmp_path: Path) -> None:
    async with served(tmp_path, doors=DOORS) as kernel:
        assert kernel.console is not None
        assert kernel.doors is not None
        assert kernel.console.address != kernel.doors.address
        for address in (kernel.console.address, kernel.doors.address):
            async with http_client(address, headers={"Authorization": f"Bearer {door_token(kernel)}"}) as client:
                assert (await client.get("/api/tags")).status_code == 200
                assert (await client.get("/", headers={**BROWSER, "Origin": address})).status_code == 401
                assert (await client.get("/", headers={"Origin": "http://127.0.0.1:1"})).status_code == 403


@pytest.mark.parametrize(("console", "served_at"), [("auto", 1), ("on", 0)])
async def test_a_taken_address(tmp_path: Path, console: str, served_at: int) -> None:
    """Where both are there if they can be, a start goes on; where the console is asked for, it does not, but at an address of its own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        doors = {"enabled": "auto", "listen": listen}
        if console == "on":
            with pytest.raises(EndpointError, match=rf"{listen}.*doors\.listen"):
                async with served(tmp_path, console=console, console_listen="", doors=doors):
                    pass
        else:
            async with served(tmp_path, console=console, console_listen="", doors=doors) as kernel:
                assert (kernel.doors, kernel.console, kernel.info()["console"]) == (None, None, None)
        async with served(tmp_path, console=console, doors=doors) as kernel:
            assert kernel.console is not None
            assert kernel.info()["doors"] == kernel.console.address, "the server is there, and with it all that it serves"


async def test_each_may_be_off_and_the_console_off_with_the_doors_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path, console="off") as kernel, chat_client(kernel) as client:
        assert kernel.info()["console"] is None
        assert (await client.get("/", headers=BROWSER)).text == "Ollama is running"
        assert (await client.get("/static/console.css")).status_code == 404
    async with served(tmp_path, console="auto") as kernel:
        assert kernel.doors is None
    async with served(tmp_path, console_listen="", doors={"enabled": "off", "listen": "127.0.0.1:0"}) as kernel:
        assert kernel.info()["doors"] is None
        async with http_client(kernel.console.address, headers={"Authorization": f"Bearer {door_token(kernel)}"}) as client:  # type: ignore[union-attr]
            assert (await client.get("/v1/models")).status_code == 401


# --- the token


async def test_the_token_is_there_from_the_start(kernel: Kernel) -> None:
    assert (kernel.settings.data / TOKEN_NAME).stat().st_mode & 0o777 == 0o600
    assert kernel.console is not None
    assert kernel.console.token == door_token(kernel)


def test_the_token_that_the_console_had_is_that_of_the_server_now(tmp_path: Path) -> None:
    former = tmp_path / "console.token"
    former.write_text("f" * 43 + "\n")
    former.chmod(0o600)
    session = Sessions(tmp_path, "f" * 43, 60, 8).begin()
    assert token_of(tmp_path) == "f" * 43
    assert Sessions(tmp_path, token_of(tmp_path), 60, 8).is_open(session), "nobody is asked for the token again"
    assert not former.exists()


def test_a_token_that_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    own = token_of(tmp_path)
    former = tmp_path / "console.token"
    former.write_text("f" * 43)
    former.chmod(0o600)
    assert token_of(tmp_path) == own
    (tmp_path / TOKEN_NAME).unlink()
    assert token_of(tmp_path) not in (own, "f" * 43)
    former.write_text("g" * 43)
    former.chmod(0o644)
    (tmp_path / TOKEN_NAME).unlink()
    with capture_logs() as lines:
        assert token_of(tmp_path) != "g" * 43, "others could read it"
    assert [line["event"] for line in lines] == ["console_token_replaced"]


# --- places, and times


def test_browsers_and_clients_take_no_seat_of_each_other() -> None:
    places = ConnectionSlots(8, 1, 2)
    a, b, c, d = (ConnectionSlot(places, lambda: None) for _ in range(4))
    assert a.sit("page")
    assert not b.sit("page")
    assert b.sit("client")
    assert c.sit("client")
    assert not d.sit("client")
    assert not c.sit("page"), "it keeps the seat that it has"
    assert not d.sit("client")
    a.leave()
    assert c.sit("page")
    assert d.sit("client"), "the one that it had is free"


async def test_a_client_with_the_token_has_the_time_that_its_limit_says(tmp_path: Path) -> None:
    body = json.dumps({"model": "batos"}).encode()
    async with kernel_with_doors(tmp_path, console_request_s=0.2) as kernel, asyncio.timeout(90):
        assert kernel.doors is not None
        host, _, port = kernel.doors.address.removeprefix("http://").partition(":")

        async def begun(token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /api/show HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:4])
            return reader, writer

        reader, writer = await begun(door_token(kernel))
        stranger, other = await begun("no")
        with contextlib.suppress(ConnectionError):
            await stranger.read()  # ended by the server, when the time of strangers is over
        other.close()
        writer.write(body[4:])
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer


# --- what is loaded


LOADS = """
import asyncio, sys, tempfile
from pathlib import Path
from tests.support.doors import chat_client, kernel_with_doors
from tests.support.console import seated

async def loads(folder):
    said = []
    async with kernel_with_doors(folder) as kernel:
        said.append([name for name in ("starlette", "uvicorn", "jinja2", "batos.console.app") if name in sys.modules])
        async with chat_client(kernel) as client:
            await client.get("/api/tags")
            said.append([name for name in ("starlette", "uvicorn", "jinja2", "batos.console.app") if name in sys.modules])
        async with seated(kernel) as seat:
            await seat.see("/")
            said.append([name for name in ("jinja2", "batos.console.app") if name in sys.modules])
    print(said)

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(loads(Path(folder)))
"""


def test_the_server_is_loaded_with_the_first_connection_and_the_pages_with_the_first_page() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, timeout=120, cwd=ROOT, check=True)
    said: Any = done.stdout.splitlines()[-1]
    assert said == "[[], ['starlette', 'uvicorn'], ['jinja2', 'batos.console.app']]"
