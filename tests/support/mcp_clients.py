"""Clients of the MCP server: the SDK's own, over HTTP, in both eras."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult

from batos.app.kernel import Kernel
from tests.support.doors import door_token

ERAS = ("auto", "legacy")
"""Modes of the SDK's client: 2026-07-28, found out by asking the server, and the handshake of the eras before."""


@contextlib.asynccontextmanager
async def mcp_client(address: str, token: str, era: str, **more: Any) -> AsyncIterator[Client]:
    """A client of the doors at an address.

    :param more: options of the SDK's client.
    """
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http), mode=era, **more) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def kernel_client(kernel: Kernel, era: str, **more: Any) -> AsyncIterator[Client]:
    """A client of a kernel's doors."""
    assert kernel.doors is not None
    async with mcp_client(kernel.doors.address, door_token(kernel), era, **more) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    """The text of a result."""
    return "".join(one.text for one in result.content if one.type == "text")


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    value: dict[str, Any] = result.structured_content
    return value


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a call that must fail."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return text_of(result)


class AnsweringUser:
    """A user who is asked by the client, and what they say: a text, or an action without one."""

    def __init__(self, *said: str | ElicitResult) -> None:
        self._said = list(said)
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        assert params.requested_schema["required"] == ["answer"]
        self.asked.append(params.message)
        said = self._said.pop(0)
        return said if isinstance(said, ElicitResult) else ElicitResult(action="accept", content={"answer": said})
