"""Login to MCP servers over HTTP: its user's browser comes back to this machine, and what was obtained is kept for him alone."""

from __future__ import annotations

import asyncio
import json
import re
import stat
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from batos.errors import EgressFailed, InvalidInput, ToolFailed
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolDefinition
from batos.tools.mcp_client import McpConnector
from tests.support.authorization import LoginServer

BAKE = ToolDefinition(name="bake")


@pytest.fixture
async def server() -> AsyncIterator[LoginServer]:
    found = LoginServer()
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = listening.sockets[0].getsockname()[1]
    yield found
    listening.close()


@pytest.fixture
async def connected(server: LoginServer, tmp_path: Path) -> AsyncIterator[Callable[..., McpConnector]]:
    made: list[McpConnector] = []

    def connect(**options: object) -> McpConnector:
        spec = ConnectionSpec("shop", "mcp", f"{server.origin}/mcp", options)
        made.append(McpConnector(spec, ConnectorServices(secret=str, folder=tmp_path)))
        return made[-1]

    yield connect
    for one in made:
        await one.close()


async def page_of(connector: McpConnector) -> str:
    """The page that its user is told to open."""
    wanted = r"shop wants its user to log in: open http\S+ and then run `batos tools test shop`, or the same again"
    with pytest.raises(ToolFailed, match=wanted) as told:
        await connector.tools()
    assert told.value.sure
    found = re.search(r"open (http\S+) and", told.value.message)
    assert found is not None
    return found[1]


async def browse(page: str) -> str:
    return await asyncio.to_thread(lambda: urllib.request.urlopen(page).read().decode())


async def test_its_user_logs_in_once_and_what_was_obtained_is_kept_for_him_alone(
    server: LoginServer, connected: Callable[..., McpConnector], tmp_path: Path
) -> None:
    connector = connected()
    page = await page_of(connector)
    assert await page_of(connector) == page  # as long as it waits
    assert "logged in" in await browse(page)
    await connector.logged_in()
    assert [tool.name for tool in await connector.tools()] == ["bake"]
    call = await connector.prepare(BAKE, {})
    assert await call.send(Delivery("k")) == "baked"
    kept = tmp_path / "login-shop.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text())["tokens"]["access_token"] == "token-1"
    await connector.close()
    assert [tool.name for tool in await connected().tools()] == ["bake"]
    assert server.issued == 1


async def test_a_token_that_has_ended_is_renewed_after_a_restart(
    server: LoginServer, connected: Callable[..., McpConnector], tmp_path: Path
) -> None:
    first = connected()
    await browse(await page_of(first))
    await first.logged_in()
    await first.close()
    kept = tmp_path / "login-shop.json"
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "expires": 1.0}))
    server.valid.clear()
    assert [tool.name for tool in await connected().tools()] == ["bake"]
    assert server.asked.count("GET /authorize") == 1


async def test_a_call_that_is_refused_for_want_of_a_login_surely_did_not_happen_and_is_not_sent_later(
    server: LoginServer, connected: Callable[..., McpConnector]
) -> None:
    connector = connected()
    await browse(await page_of(connector))
    await connector.logged_in()
    call = await connector.prepare(BAKE, {})
    server.valid.clear()
    with pytest.raises(ToolFailed, match="log in again: run `batos tools test shop`") as refused:
        await call.send(Delivery("k"))
    assert refused.value.sure
    await browse(await page_of(connector))
    await connector.logged_in()
    assert [tool.name for tool in await connector.tools()] == ["bake"]
    assert server.calls == 0


async def test_calls_beside_a_refused_one_are_left_open(server: LoginServer, connected: Callable[..., McpConnector]) -> None:
    connector = connected()
    await browse(await page_of(connector))
    await connector.logged_in()
    calls = [await connector.prepare(BAKE, {}) for _ in range(2)]
    server.valid.clear()
    outcomes = await asyncio.gather(*(call.send(Delivery("k")) for call in calls), return_exceptions=True)
    assert all(isinstance(one, EgressFailed) and one.sent for one in outcomes), outcomes


async def test_a_login_goes_on_without_the_connector_that_asked_for_it(connected: Callable[..., McpConnector]) -> None:
    """The daemon opens a connector for `tools add` and `tools test`, and closes it with the error that tells the page."""
    first = connected()
    page = await page_of(first)
    await first.close()
    second = connected()
    assert await page_of(second) == page
    await second.close()
    await browse(page)
    third = connected()
    await third.logged_in()
    assert [tool.name for tool in await third.tools()] == ["bake"]


async def test_a_refused_login_is_told(server: LoginServer, connected: Callable[..., McpConnector]) -> None:
    server.refuses = True
    connector = connected()
    page = await page_of(connector)
    assert "refused" in await browse(page)
    await connector.logged_in()
    server.refuses = False
    await browse(await page_of(connector))  # it is asked anew
    await connector.logged_in()
    assert [tool.name for tool in await connector.tools()] == ["bake"]


async def test_another_page_of_the_browser_cannot_end_a_login(connected: Callable[..., McpConnector]) -> None:
    connector = connected()
    page = await page_of(connector)
    back = re.search(r"redirect_uri=http%3A%2F%2F127.0.0.1%3A(\d+)%2Fcallback", page)
    assert back is not None
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await browse(f"http://127.0.0.1:{back[1]}/callback?code=evil&state=guessed")
    await browse(page)
    await connector.logged_in()
    assert [tool.name for tool in await connector.tools()] == ["bake"]


async def test_a_header_of_the_users_takes_the_place_of_a_login(server: LoginServer, connected: Callable[..., McpConnector]) -> None:
    server.valid = {"mine"}
    assert [tool.name for tool in await connected(headers={"Authorization": "Bearer mine"}).tools()] == ["bake"]
    server.valid.clear()
    with pytest.raises(ToolFailed, match="status 401"):
        await connected(headers={"Authorization": "Bearer mine"}).tools()


@pytest.mark.parametrize("login", [{"colour": "red"}, {"grant": "client_credentials"}, {"grant": "magic"}, {"metadata_url": "http://x/"}])
async def test_login_options_that_are_not_valid_are_refused(connected: Callable[..., McpConnector], login: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="not valid"):
        await connected(login=login).tools()
