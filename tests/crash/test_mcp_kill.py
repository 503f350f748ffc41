"""A daemon that is killed while an MCP client waits for a mission: the same call means the same mission, and nothing is paid twice."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from batos.console.access import token_of
from batos.testing import ScriptedOllama
from tests.support.daemon import ROOT, Peer, daemon, provisioned
from tests.support.mcp_clients import ERAS, called, mcp_client
from tests.support.servers import free_port

CALL: dict[str, Any] = {"brief": "Plan a quiet evening for two", "key": "evening"}


@pytest.mark.parametrize("era", ERAS)
async def test_over_http_the_call_is_made_again(tmp_path: Path, scripted: ScriptedOllama, era: str) -> None:
    provisioned(scripted)
    given: dict[str, Any] = {"doors.enabled": "on", "doors.listen": f"127.0.0.1:{free_port()}", "depth": "facets", "remember": "off"}
    address = f"http://{given['doors.listen']}"
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host, **given) as running:
        token = token_of(tmp_path)
        answered = False
        with contextlib.suppress(Exception):  # the SDK's client has several, in groups
            async with mcp_client(address, token, era) as client:
                call = asyncio.create_task(client.call_tool("submit", CALL))
                await asyncio.to_thread(scripted.wait_for, "/api/chat")
                running.kill()
                await call
                answered = True
        assert not answered
    begun = len(scripted.chats)
    scripted.release()
    with daemon(tmp_path, ollama_host=scripted.host, **given) as running, Peer(running.endpoint) as peer:
        async with mcp_client(address, token, era) as client:
            told = await called(client, "submit", **CALL)
        assert told["text"]
        assert [one["id"] for one in peer.ask("missions", system=False)["missions"]] == [told["id"]]
        asked = [str(one["messages"]) for one in scripted.chats[begun:]]
        assert len(set(asked)) == len(asked), "no inference was asked for twice"
        running.kill()
    paid = len(scripted.chats)
    with daemon(tmp_path, ollama_host=scripted.host, **given):
        async with mcp_client(address, token, era) as client:
            assert await called(client, "submit", **CALL) == told
    assert len(scripted.chats) == paid, "what was answered is answered from its mission"


@pytest.mark.parametrize("era", ERAS)
async def test_over_stdio_the_waiting_call_lives_through_the_restart(tmp_path: Path, scripted: ScriptedOllama, era: str) -> None:
    provisioned(scripted)
    listen = f"tcp://127.0.0.1:{free_port()}"
    given: dict[str, Any] = {"listen": listen, "depth": "facets", "remember": "off", "ollama_host": scripted.host}
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "batos", "mcp", "--connect", listen], env={"PYTHONPATH": str(ROOT)}, cwd=str(ROOT)
    )
    scripted.hold()
    with daemon(tmp_path, **given) as running:
        async with Client(program, mode=era) as client:
            call = asyncio.create_task(called(client, "submit", **CALL))
            await asyncio.to_thread(scripted.wait_for, "/api/chat")
            running.kill()
            begun = len(scripted.chats)
            scripted.release()
            with daemon(tmp_path, **given) as again, Peer(again.endpoint) as peer:
                told = await call
                assert told["text"]
                assert await called(client, "submit", **CALL) == told
                assert [one["id"] for one in peer.ask("missions", system=False)["missions"]] == [told["id"]]
                asked = [str(one["messages"]) for one in scripted.chats[begun:]]
                assert len(set(asked)) == len(asked), "no inference was asked for twice"
