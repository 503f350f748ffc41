"""MCP servers over standard streams and HTTP, in both eras: one of our own that misbehaves on request, and real ones."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from batos.errors import EgressFailed, EgressRefused, InvalidInput, ToolFailed
from batos.image.effects import ACTS, IDEMPOTENT, KEYED, READS, VERIFIABLE
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, InputRequired, ToolCall, ToolDefinition, ToolLimits
from batos.tools.definitions import check_definitions as checked
from batos.tools.effects import end_process, process_start
from batos.tools.mcp_client import McpConnector
from batos.tools.mcp_transport import StdioTransport

ROOT = Path(__file__).parents[2]
FAULTY = ROOT / "tests" / "support" / "faulty_mcp.py"
LEAVER = ROOT / "tests" / "support" / "group_leaver.py"
CHILD = ROOT / "tests" / "support" / "faulty_child.py"
BOTH = ("stdio", "http")
ERAS = ("modern", "legacy")


@dataclass
class Kitchen:
    """A faulty server, the connector to it, and the world in which it acts."""

    folder: Path
    way: str
    era: str
    place: str
    connector: McpConnector
    changes: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def world(self) -> list[str]:
        path = self.folder / "world"
        return path.read_text().splitlines() if path.exists() else []

    async def prepare(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        tools = {tool.name: tool for tool in await self.connector.tools()}
        return await self.connector.prepare(tools.get(name, ToolDefinition(name=name)), arguments)

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, pending: str = "", answer: str = "") -> Any:
        call = await self.prepare(name, arguments or {})
        return await call.send(Delivery("the-key", self.told.append, pending, answer))

    async def seen(self, line: str) -> None:
        await until(lambda: line in self.world)


async def until(look: Callable[[], Any], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not look():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.01)


Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts kitchens: `await start(way, era, fault, limits=…, **options)`."""
    kitchens: list[Kitchen] = []
    servers: list[asyncio.subprocess.Process] = []

    async def started(way: str, era: str, fault: str = "", *, limits: ToolLimits | None = None, **options: Any) -> Kitchen:
        words = [sys.executable, str(FAULTY), way, era, fault]
        environment = {"WORLD": str(tmp_path / "world")}
        if way == "http":
            server = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, env={**os.environ, **environment})
            servers.append(server)
            assert server.stdout is not None
            place = f"http://127.0.0.1:{int(await server.stdout.readline())}/mcp"
        else:
            place, options = " ".join(f"'{word}'" for word in words), {"env": environment, **options}
        changes: list[str] = []
        services = ConnectorServices(
            secret={"token": "s3cret"}.__getitem__, folder=tmp_path, limits=limits or ToolLimits(), changed=changes.append
        )
        kitchen = Kitchen(tmp_path, way, era, place, McpConnector(ConnectionSpec("f", "mcp", place, options), services), changes)
        kitchens.append(kitchen)
        return kitchen

    yield started
    for kitchen in kitchens:
        await kitchen.connector.close()
    for server in servers:
        if server.returncode is None:
            server.kill()
        await server.wait()


@pytest.fixture(params=[f"{way} {era}" for way in BOTH for era in ERAS])
async def kitchen(request: pytest.FixtureRequest, start: Start) -> Kitchen:
    found: Kitchen = await start(*request.param.split())
    return found


async def test_it_lists_tools_and_calls_them(kitchen: Kitchen) -> None:
    tools = await kitchen.connector.tools()
    checked("f", tools, ToolLimits())
    echo = next(tool for tool in tools if tool.name == "echo")
    assert echo.line() == "echo(text?): It is echo"
    assert echo.kind == ACTS  # its user does not trust the server
    assert await kitchen.call("echo", {"text": "hi"}) == "hi"
    assert await kitchen.call("pay", {"amount": 3}) == {"paid": 3}
    assert kitchen.world == ["pay 3"]
    await asyncio.gather(*(kitchen.call("echo", {"text": str(at)}) for at in range(20)))


async def test_what_is_no_text_is_told_by_type_and_size(kitchen: Kitchen) -> None:
    told = await kitchen.call("media")
    assert told == "look\n[image image/png, 4 bytes]\n[note://1]\ninner text\n[link to other: note://2]"


async def test_progress_is_told(kitchen: Kitchen) -> None:
    await kitchen.call("progress")
    assert kitchen.told[-1] == "layer 3 (3 of 3)"


async def test_a_tools_own_failure_leaves_nothing_open(kitchen: Kitchen) -> None:
    with pytest.raises(ToolFailed, match="out of cake") as failure:
        await kitchen.call("fail")
    assert not failure.value.sure
    with pytest.raises(ToolFailed, match="not valid") as failure:
        await kitchen.call("wrong")
    assert not failure.value.sure
    with pytest.raises(ToolFailed) as failure:
        await kitchen.call("sample")  # servers get no model
    assert not failure.value.sure


async def test_a_form_is_the_users_question_and_a_bad_answer_is_asked_again(kitchen: Kitchen) -> None:
    with pytest.raises(InputRequired, match=r"Which cake\?.*size: integer.*color.*one of red, blue") as asked:
        await kitchen.call("ask")
    with pytest.raises(InputRequired, match="'many' is not valid for 'size'") as again:
        await kitchen.call("ask", pending=asked.value.pending, answer="size: many")
    with pytest.raises(InputRequired, match="no field 'sugar'") as third:
        await kitchen.call("ask", pending=again.value.pending, answer='{"sugar": 1}')
    assert kitchen.world == []
    said = await kitchen.call("ask", pending=third.value.pending, answer="size: 3\ncolor = blue")
    assert said == "it was accept"
    assert kitchen.world == ["bake 3 blue"]


async def test_a_form_is_filled_with_its_defaults_and_may_be_declined(kitchen: Kitchen) -> None:
    with pytest.raises(InputRequired) as asked:
        await kitchen.call("ask")
    assert await kitchen.call("ask", pending=asked.value.pending, answer="decline") == "it was decline"
    assert kitchen.world == []
    assert await kitchen.call("ask", pending=asked.value.pending, answer='{"size": 2}') == "it was accept"
    assert kitchen.world == ["bake 2 red"]


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_survives_the_server(start: Start, era: str) -> None:
    """The server that comes after it does not know the state of the one before."""
    kitchen = await start("stdio", era)
    with pytest.raises(InputRequired) as asked:
        await kitchen.call("ask")
    await kitchen.connector.close()
    assert await kitchen.call("ask", pending=asked.value.pending, answer="size: 4") == "it was accept"
    assert kitchen.world == ["bake 4 red"]


async def test_a_page_to_open_is_told_and_comes_before_the_call(kitchen: Kitchen) -> None:
    with pytest.raises(InputRequired, match=r"https://shop\.example/login") as asked:
        await kitchen.call("page")
    with pytest.raises(ToolFailed, match="did not open") as refused:
        await kitchen.call("page", pending=asked.value.pending, answer="decline")
    assert refused.value.sure
    (kitchen.folder / "world.page").touch()
    assert await kitchen.call("page", pending=asked.value.pending, answer="done") == "page done"


async def test_a_call_that_is_given_up_is_cancelled_and_the_connection_lives_on(kitchen: Kitchen) -> None:
    first = await kitchen.prepare("slow", {"seconds": 60})
    sending = asyncio.ensure_future(first.send(Delivery("k")))
    await kitchen.seen("slow begins")
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    if (kitchen.way, kitchen.era) != ("http", "modern"):  # there the server notices when it writes
        await kitchen.seen("slow cancelled")
    assert await kitchen.call("echo", {"text": "on"}) == "on"
    assert (await kitchen.prepare("echo", {"text": ""})).process == first.process


async def test_a_server_that_dies_in_a_call_leaves_it_open(kitchen: Kitchen) -> None:
    with pytest.raises(EgressFailed) as failure:
        await kitchen.call("die")
    assert failure.value.sent
    assert kitchen.world == ["die"]  # once: it is not sent again
    if kitchen.way == "stdio":
        assert await kitchen.call("echo", {"text": "again"}) == "again"
    else:
        with pytest.raises(ToolFailed, match="cannot be reached") as gone:
            await kitchen.call("echo", {"text": "again"})
        assert gone.value.sure


async def test_junk_on_the_standard_output_is_passed_over_and_a_flood_of_it_ends_the_connection(start: Start) -> None:
    kitchen = await start("stdio", "modern")
    assert await kitchen.call("junk") == "junk done"
    with pytest.raises(EgressFailed, match="floods its standard output") as failure:
        await kitchen.call("flood")
    assert failure.value.sent
    assert await kitchen.call("echo", {"text": "on"}) == "on"


async def test_a_large_result_is_refused_and_a_larger_message_not_even_read(kitchen: Kitchen) -> None:
    with pytest.raises(ToolFailed, match="answered 2097152 bytes; at most 1048576") as failure:
        await kitchen.call("big", {"mib": 2})
    assert not failure.value.sure
    begun = time.monotonic()
    with pytest.raises(EgressFailed, match="a message larger than 4194304 bytes") as larger:
        await kitchen.call("big", {"mib": 20})
    assert larger.value.sent
    assert time.monotonic() - begun < 10
    assert await kitchen.call("echo", {"text": "on"}) == "on"


@pytest.mark.parametrize("era", ERAS)
async def test_a_stream_that_never_ends_is_left_and_the_next_call_goes(start: Start, era: str) -> None:
    kitchen = await start("http", era)
    call = await kitchen.prepare("endless", {})
    sending = asyncio.ensure_future(call.send(Delivery("k")))
    await kitchen.seen("endless")
    await asyncio.wait({sending}, timeout=0.5)
    assert not sending.done(), "it has no end"
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert kitchen.world[0] == "endless"
    assert await kitchen.call("echo", {"text": "on"}) == "on"


async def test_a_redirect_elsewhere_is_not_followed(start: Start) -> None:
    kitchen = await start("http", "modern")
    with pytest.raises(ToolFailed, match="not followed") as failure:
        await kitchen.call("flood")
    assert failure.value.sure


async def test_a_status_500_leaves_the_call_open(start: Start) -> None:
    kitchen = await start("http", "modern", "500")
    with pytest.raises(EgressFailed, match="status 500: <h1>oh</h1>") as failure:
        await kitchen.call("wrong")
    assert failure.value.sent
    assert kitchen.world == ["wrong"]


async def test_changed_tools_are_noticed(kitchen: Kitchen) -> None:
    before = await kitchen.connector.tools()
    await kitchen.call("grow")
    if (kitchen.way, kitchen.era) == ("http", "legacy"):
        await kitchen.connector.close()  # without a stream of the server's own it is seen at the next connection
        await kitchen.prepare("echo", {"text": ""})
    else:
        await until(lambda: kitchen.changes)
    after = await kitchen.connector.tools()
    assert {tool.name for tool in after} - {tool.name for tool in before} == {"grown0"}


async def test_tools_that_differ_at_the_next_connection_are_told(start: Start) -> None:
    kitchen = await start("http", "legacy")
    echo = next(tool for tool in await kitchen.connector.tools() if tool.name == "echo")
    await kitchen.call("grow")
    await kitchen.connector.close()
    await kitchen.connector.prepare(echo, {"text": ""})
    assert kitchen.changes == ["f"]


@pytest.mark.parametrize(
    ("fault", "limits", "words"),
    [
        ("refuses", ToolLimits(), "it ended with status 1; its last words were: it does not want to start"),
        ("mute", ToolLimits(connect_s=0.5), "did not say what it offers within 0.5 s"),
    ],
)
async def test_a_server_that_does_not_start_is_told_with_its_words(start: Start, fault: str, limits: ToolLimits, words: str) -> None:
    kitchen = await start("stdio", "modern", fault, limits=limits)
    with pytest.raises(ToolFailed, match=words) as failure:
        await kitchen.connector.tools()
    assert failure.value.sure


async def test_a_program_that_is_missing_is_told(tmp_path: Path) -> None:
    services = ConnectorServices(secret=str, folder=tmp_path)
    connector = McpConnector(ConnectionSpec("f", "mcp", "no-such-program --now"), services)
    with pytest.raises(ToolFailed, match="'no-such-program' is not a program on PATH"):
        await connector.tools()
    with pytest.raises(InvalidInput, match="close its quotes"):
        await McpConnector(ConnectionSpec("f", "mcp", "echo 'x"), services).tools()


async def test_a_server_starts_with_the_environment_that_its_user_names(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_SECRET", "not for servers")
    kitchen = await start("stdio", "modern", env={"WORLD": "/nowhere", "KEY": "{secret:token}"})
    call = await kitchen.prepare("echo", {"text": ""})
    pid, _, began = call.process.partition(" ")
    assert process_start(int(pid)) == began
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().strip("\0").split("\0")
    environment = dict(line.split("=", 1) for line in lines)
    assert set(environment) - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "WORLD", "KEY"}
    assert environment["KEY"] == "s3cret"


async def test_an_idle_server_ends_and_the_next_call_starts_it(start: Start) -> None:
    kitchen = await start("stdio", "modern", limits=ToolLimits(idle_s=0.2))
    first = await kitchen.prepare("echo", {"text": ""})
    await until(lambda: not process_start(int(first.process.split()[0])))
    assert await first.send(Delivery("k")) == ""  # prepared before it ended
    assert (await kitchen.prepare("echo", {"text": ""})).process != first.process


async def test_closing_ends_a_server_that_does_not_want_to(start: Start) -> None:
    kitchen = await start("stdio", "modern", "stays")
    call = await kitchen.prepare("echo", {"text": ""})
    await kitchen.connector.close()
    await until(lambda: process_start(int(call.process.split()[0])) != call.process.split()[1])


async def test_the_process_that_a_call_names_is_the_one_that_a_doubt_ends(start: Start) -> None:
    kitchen = await start("stdio", "modern")
    call = await kitchen.prepare("never", {})
    sending = asyncio.ensure_future(call.send(Delivery("k")))
    await kitchen.seen("never begins")
    end_process(call.process)
    with pytest.raises(EgressFailed, match="ended by SIGKILL") as failure:
        await sending
    assert failure.value.sent


async def test_classes_come_from_the_user_or_from_a_server_that_he_trusts(start: Start) -> None:
    table = {
        "order": {"class": "keyed", "key": "key"},
        "slow": "idempotent",
        "pay": {"class": "verifiable", "look": "seen", "undo": "order"},
    }
    kitchen = await start("stdio", "modern", trust=True, classes=table)
    tools = {tool.name: tool for tool in await kitchen.connector.tools()}
    kinds = {name: tools[name].kind for name in ("echo", "order", "slow", "pay", "die")}
    assert kinds == {"echo": READS, "order": KEYED, "slow": IDEMPOTENT, "pay": VERIFIABLE, "die": ACTS}
    assert not tools["echo"].outward
    assert tools["pay"].undo == "order"
    assert await kitchen.call("order", {"name": "cake"}) == "ordered"
    assert kitchen.world == ["order cake the-key"]
    looking = await kitchen.connector.prepare(tools["pay"], {"name": "cake"})
    assert looking.look is not None
    assert await looking.look() == {"result": "cake"}
    missing = await kitchen.connector.prepare(tools["pay"], {"name": "pie"})
    assert missing.look is not None
    assert await missing.look() is None
    assert missing.target == "f"


async def test_a_look_that_answers_false_says_that_it_did_not_happen(start: Start) -> None:
    kitchen = await start("stdio", "modern", classes={"pay": {"class": "verifiable", "look": "there"}})
    pay = next(tool for tool in await kitchen.connector.tools() if tool.name == "pay")
    call = await kitchen.connector.prepare(pay, {"name": "cake"})
    assert call.look is not None
    assert await call.look() is None
    await kitchen.call("order", {"name": "cake", "key": "k"})
    assert await call.look() == {"result": True}
    said = await kitchen.connector.prepare(pay, {"name": "text"})
    assert said.look is not None
    assert await said.look() is None


@pytest.mark.parametrize(
    ("place", "options", "words"),
    [
        ("x", {"colour": 1}, "the option 'colour' of f is not valid; allowed are env"),
        ("x", {"classes": {"t": "sometimes"}}, "the class of f.t is not valid"),
        ("x", {"classes": {"t": "verifiable"}}, "name the reading tool"),
        ("x", {"classes": {"t": "keyed"}}, "name the argument"),
        ("x", {"env": "A=1"}, "the option 'env' is not valid"),
        ("x", {"seconds": -1}, "f: the option seconds is -1; allowed is a number above 0, at most 86400"),
        ("x", {"seconds": float("nan")}, "the option seconds is nan"),
        ("x", {"seconds": "soon"}, "the option seconds is 'soon'"),
        ("http://127.0.0.1:1/", {"env": {"A": "1"}}, "`env` is for a server that is started"),
        ("http://me:pw@127.0.0.1:1/", {}, "carries a name or password"),
    ],
)
def test_options_that_are_not_valid_are_refused(tmp_path: Path, place: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidInput, EgressRefused), match=words):
        McpConnector(ConnectionSpec("f", "mcp", place, options), ConnectorServices(secret=str, folder=tmp_path))


async def test_an_earlier_server_in_the_middle_of_a_call_dies_with_the_daemon(tmp_path: Path) -> None:
    """Also what it started: a shell runs the server here, as npx and uvx do; and what left its process group, as a browser may."""
    world, stray = tmp_path / "world", tmp_path / "stray"
    inner = f"{sys.executable} {FAULTY} stdio modern"
    leaves = f"{sys.executable} {LEAVER} {stray}"
    command = f"/bin/sh -c '{leaves}; {inner}; true'"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CHILD), str(tmp_path), command, "never", "{}"),
        stdout=subprocess.PIPE, env={**os.environ, "WORLD": str(world), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    group = await _group_of(child)
    await until(lambda: world.exists() and "never begins" in world.read_text())
    assert len(_members(group)) == 3, "the launcher, the shell and the server"
    left = int(stray.read_text())
    assert os.getpgid(left) != group
    child.kill()
    await child.wait()
    await until(lambda: not _members(group) and not Path(f"/proc/{left}").exists())


async def test_what_left_a_servers_process_group_ends_with_the_connection(tmp_path: Path) -> None:
    stray = tmp_path / "stray"
    transport = StdioTransport("s", ["/bin/sh", "-c", f"{sys.executable} {LEAVER} {stray}; cat"], {}, most=1000)
    async with transport as (read, write), read, write:
        await until(lambda: stray.exists() and stray.read_text() != "")
        left = int(stray.read_text())
        assert Path(f"/proc/{left}").exists()
    assert not Path(f"/proc/{left}").exists()
    assert not _members(int(transport.process.split()[0]))


async def _group_of(child: asyncio.subprocess.Process) -> int:
    """The process group of the server that a child calls, once the call is under way."""
    assert child.stdout is not None
    while line := await child.stdout.readline():
        if line.startswith(b"process "):
            return int(line.split()[1])
    raise AssertionError("the child ended")


def _members(group: int) -> list[int]:
    """The live processes of a group."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(place.parent.name))
    return found


# --- real servers

MCP = ROOT / "build" / "mcp"
NODE = MCP / "npm" / "node_modules"
SERVERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "time": ("servers/bin/mcp-server-time --local-timezone UTC", "get_current_time", {"timezone": "Asia/Tokyo"}, "Asia/Tokyo"),
    "git": ("servers/bin/mcp-server-git --repository {folder}", "git_status", {"repo_path": "{folder}"}, "branch"),
    "fetch": ("servers/bin/mcp-server-fetch --ignore-robots-txt --allow-private-ips", "fetch", {"url": "{page}"}, "a page of cake"),
    "sqlite": ("servers_old/bin/mcp-server-sqlite --db-path {folder}/t.db", "list_tables", {}, "[]"),
    "filesystem": ("node server-filesystem {folder}", "read_text_file", {"path": "{folder}/note.txt"}, "remember the cake"),
    "memory": ("node server-memory", "read_graph", {}, "entities"),
    "everything": ("node server-everything", "echo", {"message": "hello"}, "hello"),
}
"""By name: the command, a tool, its arguments, and what is in its answer."""


def command_of(name: str, folder: Path) -> str:
    """The command that starts a real server; its test is skipped where the machine does not have it."""
    first, _, rest = SERVERS[name][0].partition(" ")
    if first == "node":
        package, _, rest = rest.partition(" ")
        program = NODE / "@modelcontextprotocol" / package / "dist" / "index.js"
        node = shutil.which("node")
        if node is None or not program.exists():
            pytest.skip(f"{package} is not here: `make mcp-servers` installs it where the machine has node and npm")
        start = f"{node} {program}"
    else:
        if not (MCP / first).exists():
            pytest.skip(f"{first} is not here: `make mcp-servers` installs it")
        start = str(MCP / first)
    return f"{start} {rest.format(folder=folder)}".strip()


@pytest.fixture
async def page() -> AsyncIterator[str]:
    """A page on this machine."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await reader.readline()).strip():
            pass
        body = b"<html><body><p>a page of cake</p></body></html>"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a note, under version control."""
    found = tmp_path / "there"
    found.mkdir()
    (found / "note.txt").write_text("remember the cake")
    subprocess.run(["git", "init", "--quiet", str(found)], check=True)
    return found


@pytest.mark.parametrize("name", SERVERS)
async def test_a_real_server_lists_and_calls(name: str, folder: Path, page: str, tmp_path: Path) -> None:
    place = command_of(name, folder)
    _, tool, arguments, within = SERVERS[name]
    connector = McpConnector(ConnectionSpec(name, "mcp", place, {"trust": True}), ConnectorServices(secret=str, folder=tmp_path))
    try:
        tools = {found.name: found for found in await connector.tools()}
        checked(name, list(tools.values()), ToolLimits())
        given = {key: value.format(folder=folder, page=page) for key, value in arguments.items()}
        call = await connector.prepare(tools[tool], given)
        assert within in json.dumps(await call.send(Delivery("k")))
        assert tools[tool].kind == (ACTS if name == "sqlite" else READS)  # that one has no annotations
    finally:
        await connector.close()
    assert not _members(int(call.process.split()[0]))


@pytest.mark.parametrize("name", SERVERS)
async def test_a_real_server_ends_with_its_daemon_that_was_killed(name: str, folder: Path, page: str, tmp_path: Path) -> None:
    place = command_of(name, folder)
    _, tool, arguments, _ = SERVERS[name]
    if name == "everything":
        tool, arguments = "trigger-long-running-operation", {"duration": 60, "steps": 5}  # killed in the middle of a call
    given = json.dumps(
        {key: value.format(folder=folder, page=page) if isinstance(value, str) else value for key, value in arguments.items()}
    )
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CHILD), str(tmp_path), place, tool, json.dumps(given)),
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    group = await _group_of(child)
    assert _members(group)
    child.kill()
    await child.wait()
    await until(lambda: not _members(group), 30)  # the call that it is killed in would take a minute
