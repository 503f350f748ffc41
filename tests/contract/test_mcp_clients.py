"""The MCP server of a real daemon, as the SDK's client meets it: over HTTP, and over stdio by `batos mcp` as a program; in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from batos.console.access import token_of
from batos.testing import ScriptedOllama
from batos.wire.fields import State
from tests.support import forked
from tests.support.daemon import END_S, ROOT, Peer, daemon, provisioned
from tests.support.mcp_clients import ERAS, AnsweringUser, called, mcp_client, refused, text_of

ANSWER = "A cup of mint tea, since it has no caffeine and lets you sleep."
TEA = "Which tea shall I drink in the evening?"
WAYS = ("http", "stdio")
NODE = ROOT / "build" / "mcp" / "npm" / "node_modules"
DOORS: dict[str, Any] = {"doors.enabled": "on", "doors.listen": "127.0.0.1:0", "doors.send": "memory.remember_ tools.notes.write_"}


class Place(NamedTuple):
    """A daemon, and the Ollama behind it."""

    endpoint: str
    address: str
    token: str
    peer: Peer
    folder: Path
    server: ScriptedOllama


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "notes").mkdir()
    with ScriptedOllama() as server:
        provisioned(server).say(ANSWER)
        with daemon(folder, ollama_host=server.host, depth="direct", **DOORS) as running, Peer(running.endpoint) as peer:
            added = peer.ask("tool_add", name="notes", kind="folder", place=f"{folder}/notes", options={"writable": True})
            assert added["type"] == "tools", added
            yield Place(running.endpoint, peer.ask("info")["doors"], token_of(folder), peer, folder, server)


def program(endpoint: str) -> StdioServerParameters:
    """`batos mcp` as a client starts it."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "batos", "mcp", "--connect", endpoint], env={"PYTHONPATH": str(ROOT)}, cwd=str(ROOT)
    )


@contextlib.asynccontextmanager
async def client_of(place: Place, way: str, era: str, **more: Any) -> AsyncIterator[Client]:
    if way == "http":
        async with mcp_client(place.address, place.token, era, **more) as client:
            yield client
    else:
        async with Client(program(place.endpoint), mode=era, **more) as client:
            yield client


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", WAYS)
async def test_tools_missions_and_memory(place: Place, way: str, era: str) -> None:
    heard: list[str | None] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        place.server.release()

    place.server.hold()  # till progress was heard: a mission that has ended tells none
    async with client_of(place, way, era) as client:
        assert client.protocol_version == ("2026-07-28" if era == "auto" else "2025-11-25")
        assert client.server_info is not None
        assert client.server_info.name == "batos"
        assert [one.name for one in (await client.list_tools()).tools] == [
            "submit", "result", "answer", "missions", "search", "remember", "send",
        ]  # fmt: skip
        key = f"{way} {era}"
        result = await client.call_tool("submit", {"brief": f"{TEA} ({key})", "key": key}, progress_callback=progress)
        assert text_of(result) == ANSWER
        assert any(str(one).split(" ")[0] in get_args(State) for one in heard)
        again = await called(client, "submit", brief=f"{TEA} ({key})", key=key)
        assert again["id"] == result.structured_content["id"]
        assert (await called(client, "remember", text=f"The key of {key} is under the stone."))["state"] == "COMPLETE"
        assert any(key in one["text"] for one in (await called(client, "search", question=f"Where is the key of {key}?"))["passages"])
        assert (await called(client, "send", target="memory", message="remember_", args=[f"Sent by {key}"]))["state"] == "COMPLETE"
        assert "role_refused" in await refused(client, "send", target="robin", message="forget_")
        assert again["id"] in [one["id"] for one in (await called(client, "missions"))["missions"]]
    rows = [one for one in place.peer.ask("missions")["missions"] if one["brief"] == f"{TEA} ({key})"]
    assert [one["origin"] for one in rows] == ["client"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", WAYS)
async def test_the_clients_user_gives_leave_to_a_tool(place: Place, way: str, era: str) -> None:
    user = AnsweringUser("once", "no")
    async with client_of(place, way, era, elicitation_callback=user) as client:
        for name in (f"{way}-{era}-one.txt", f"{way}-{era}-two.txt"):
            put = {"target": "tools.notes", "message": "write_", "kwargs": {"path": name, "text": "rain"}, "key": name}
            if "one" in name:
                assert (await called(client, "send", **put))["state"] == "COMPLETE"
            else:
                assert "no" in await refused(client, "send", **put)
            assert "notes.write" in user.asked[-1]
            assert name in user.asked[-1], "the literal payload"
    assert len(user.asked) == 2
    assert (place.folder / "notes" / f"{way}-{era}-one.txt").read_text() == "rain"
    assert not (place.folder / "notes" / f"{way}-{era}-two.txt").exists()


@pytest.mark.parametrize("way", WAYS)
def test_the_sdk_for_typescript(place: Place, way: str, tmp_path: Path) -> None:
    node = next(iter(sorted(NODE.glob("node-linux-*/bin/node"))), None)
    if node is None or not (NODE / "@modelcontextprotocol" / "sdk").exists():
        pytest.skip("the SDK for TypeScript is not here: `make mcp-servers` installs it where the machine has npm")
    script = tmp_path / "client.mjs"
    script.write_text((ROOT / "tests" / "support" / "mcp_client.mjs").read_text())
    (tmp_path / "node_modules").symlink_to(NODE.resolve())
    where = [f"{place.address}/mcp", place.token] if way == "http" else [sys.executable, "-m", "batos", "mcp", "--connect", place.endpoint]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([node, script, way, *where], env=environment, capture_output=True, text=True, timeout=2 * END_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["server"]["name"] == "batos"
    hints = dict(told["tools"])
    assert (hints["search"]["readOnlyHint"], hints["submit"]["destructiveHint"]) == (True, True)
    assert (told["answer"], told["same"], told["sent"], told["refused"]) == (ANSWER, True, "COMPLETE", True)
    (asked,) = told["asked"]
    assert "notes.write" in asked
    assert (place.folder / "notes" / f"node-{way}.txt").read_text() == "rain"


async def test_nothing_but_the_protocol_is_written_to_standard_output(place: Place) -> None:
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize",
         "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "missions", "arguments": {}}},
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BATOS_DAEMON__LOG_LEVEL": "debug", "PYTHONWARNINGS": "default"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batos", "mcp", "--connect", place.endpoint, env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, limit=2**24,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(END_S):
        for frame in frames:
            process.stdin.write(json.dumps(frame).encode() + b"\n")
        process.stdin.write(b"no JSON\n")
        told = [json.loads(await process.stdout.readline()) for _ in range(2)]
        process.stdin.close()  # the client leaves
        rest = await process.stdout.read()
        assert await process.wait() == 0
    assert sorted(one["id"] for one in told) == [1, 2]
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())


def test_where_no_daemon_runs_it_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "batos", "mcp", "--connect", f"ipc://{tmp_path}/nobody"]
    done = forked.run(command, env=environment, capture_output=True, text=True, timeout=END_S, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (3, "")
    assert "batos run" in done.stderr


def test_without_the_sdk_it_says_so(place: Place) -> None:
    code = f"import sys; sys.modules['mcp'] = None; from batos.cli import main; sys.exit(main(['mcp', '--connect', {place.endpoint!r}]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=END_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'batos[mcp]'" in done.stderr


def test_the_sdk_is_loaded_with_the_first_request_to_the_path(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from tests.support.doors import chat_client, kernel_with_doors
async def main():
    async with kernel_with_doors(Path({str(tmp_path)!r})) as kernel, chat_client(kernel) as client:
        await client.get("/v1/models")
        before = {{"mcp", "mcp_types", "httpx2"}} & set(sys.modules)
        await client.post("/mcp", json={{}})
        assert not before and "mcp" in sys.modules, before
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=2 * END_S)
    assert done.returncode == 0, done.stderr
