"""The client of the conformance suite of MCP: what it is told to do, done by the connector, by a user who consents to all. Run by path.

    python conformance_client.py URL

MCP_CONFORMANCE_SCENARIO names what to do, MCP_CONFORMANCE_CONTEXT has credentials. The suite's servers are on ports of this machine that it
does not tell beforehand, so they are in reach here, whichever they are.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from batos.errors import ToolFailed
from batos.tools import mcp_client
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, InputRequired, ToolDefinition
from batos.tools.egress import ReachableOrigins, WebOrigin

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
LOGINS = 4  # after which a user gives up


class LoopbackReach(ReachableOrigins):
    """Every port of this machine is in reach."""

    async def addresses(self, host: str, port: int) -> list[str]:
        assert host in ("localhost", "127.0.0.1"), host
        return await ReachableOrigins(private=[WebOrigin("http", host, port)]).addresses(host, port)


async def consenting(connector: mcp_client.McpConnector) -> list[ToolDefinition]:
    """The tools, after as many logins as it takes."""
    for _ in range(LOGINS):
        try:
            return list(await connector.tools())
        except ToolFailed as e:
            page = re.search(r"open (http\S+) and", e.message)
            if page is None:
                raise
            await asyncio.to_thread(lambda url=page[1]: urllib.request.urlopen(url).read())
            await connector.logged_in()
    raise ToolFailed("too many logins")


async def call(connector: mcp_client.McpConnector, tool: ToolDefinition) -> Any:
    """Call a tool, and answer what it asks by its defaults."""
    pending = answer = ""
    while True:
        prepared = await connector.prepare(tool, ARGUMENTS.get(tool.name, {}))
        try:
            return await prepared.send(Delivery("key", print, pending, answer))
        except InputRequired as e:
            pending, answer = e.pending, "yes"


async def main(url: str) -> None:
    mcp_client.ReachableOrigins = LoopbackReach  # type: ignore[misc]
    login: dict[str, str] = {}
    if SCENARIO == "auth/basic-cimd":
        login = {"metadata_url": "https://conformance-test.local/client-metadata.json"}
    if CONTEXT.get("client_id"):
        login = {"client_id": CONTEXT["client_id"], "client_secret": CONTEXT.get("client_secret", "")}
    if SCENARIO.startswith("auth/client-credentials"):
        login["grant"] = "client_credentials"
    with tempfile.TemporaryDirectory() as folder:
        connector = mcp_client.McpConnector(
            ConnectionSpec("suite", "mcp", url, {"login": login}), ConnectorServices(secret=str, folder=Path(folder))
        )
        try:
            for last in (False, False, True):
                try:
                    for tool in await consenting(connector):
                        print(tool.name, await call(connector, tool))
                    break
                except ToolFailed as e:
                    print(e.message)
                    if last or "log in" not in e.message:
                        raise
        finally:
            await connector.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
