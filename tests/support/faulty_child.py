"""A process that calls an MCP server and is killed meanwhile: a daemon, as the server sees it. Run by path.

    python faulty_child.py FOLDER COMMAND TOOL ARGUMENTS

It prints a line `process PID START` of the server's process once the call is under way.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolDefinition
from batos.tools.mcp_client import McpConnector


async def main(folder: str, command: str, tool: str, arguments: str) -> None:
    options = {"env": {name: os.environ[name] for name in ("WORLD", "NPM_CONFIG_CACHE") if name in os.environ}}
    connector = McpConnector(ConnectionSpec("child", "mcp", command, options), ConnectorServices(secret=str, folder=Path(folder)))
    await connector.tools()
    call = await connector.prepare(ToolDefinition(name=tool), json.loads(arguments))
    sending = asyncio.ensure_future(call.send(Delivery("key")))
    await asyncio.wait({sending}, timeout=float(os.environ.get("UNDER_WAY_S", "0.1")))
    print("process", call.process, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
