"""Connections whose stream is read in batches: real sockets, real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpcore
import pytest

from batos.bridge import streams
from batos.bridge.breaker import Policy
from batos.bridge.client import OllamaInference, connect
from batos.bridge.connection import HELD_BYTES, LAST_CHUNK, Backend, Connection
from batos.bridge.types import ChatRequest
from batos.errors import InferenceFailed
from batos.testing import ScriptedOllama
from batos.testing.handler import Handler

HOUR = 3600.0
HELLO = ChatRequest("robin:embedded", "", "Say hello to the cat")


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, and what its server has of it."""
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *of: accepted.set_result(of), "127.0.0.1", 0)
    connection = await Backend().connect_tcp(*server.sockets[0].getsockname())
    reader, writer = await accepted
    yield connection, reader, writer
    await connection.aclose()
    writer.close()
    server.close()
    await server.wait_closed()


async def holds(connection: Connection, count: int) -> None:
    while len(connection._held) < count:
        await asyncio.sleep(0)


async def test_what_comes_is_heard_at_once_until_it_is_gathered(
    ends: tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    connection, reader, writer = ends
    await connection.write(b"ask")
    assert await reader.readexactly(3) == b"ask"
    writer.write(b"one")
    assert await connection.read(100) == b"one"
    connection.gather(HOUR)
    reading = asyncio.create_task(connection.read(100))
    for count, piece in enumerate((b"a", b"b", b"c"), 1):
        writer.write(piece)
        await holds(connection, count)
    assert not reading.done()
    writer.write(LAST_CHUNK)
    assert await reading == b"abc" + LAST_CHUNK
    reading = asyncio.create_task(connection.read(100))
    writer.write(b"next")
    await holds(connection, 4)
    connection.gather(0)
    assert await reading == b"next"


async def test_what_is_gathered_is_heard_when_its_time_has_come(
    ends: tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    connection, _, writer = ends
    connection.gather(0.01)
    for piece in (b"a", b"b"):
        writer.write(piece)
        assert await connection.read(100) == piece
    writer.write(b"cd")
    await holds(connection, 2)
    assert await connection.read(1) == b"c"
    assert await connection.read(1) == b"d"


async def test_the_end_of_a_connection_is_heard_at_once(ends: tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    connection, _, writer = ends
    assert not connection.get_extra_info("is_readable")
    connection.gather(HOUR)
    reading = asyncio.create_task(connection.read(100))
    writer.write(b"half")
    await holds(connection, 4)
    writer.close()
    assert await reading == b"half"
    assert await connection.read(100) == b""
    assert connection.get_extra_info("is_readable")


async def test_what_nobody_reads_stays_with_its_sender(ends: tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    connection, _, writer = ends
    sent = bytes(HELD_BYTES * 40)
    writing = asyncio.create_task(send(writer, sent))
    await holds(connection, HELD_BYTES)
    assert not writing.done()
    got = 0
    while got < len(sent):
        got += len(await connection.read(65536))
    await writing
    assert len(connection._held) == 0


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def test_a_long_upload_waits_for_its_reader(ends: tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    connection, reader, _ = ends
    sent = bytes(16 << 20)
    with pytest.raises(httpcore.WriteTimeout):
        await connection.write(sent, timeout=0.01)
    writing = asyncio.create_task(connection.write(b"end"))
    assert len(await reader.readexactly(len(sent) + 3)) == len(sent) + 3
    await writing


async def test_times_and_faults_are_the_clients_own(ends: tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    connection, _, writer = ends
    with pytest.raises(httpcore.ReadTimeout):
        await connection.read(1, timeout=0.01)
    writer.transport.abort()
    assert await connection.read(1) == b""
    await connection.aclose()
    with pytest.raises(httpcore.WriteError):
        await connection.write(b"more")
    with pytest.raises(httpcore.ConnectError):
        await Backend().connect_tcp("127.0.0.1", 1, timeout=10)


async def test_ours_are_asked_through_them_and_those_with_encryption_are_not(scripted: ScriptedOllama) -> None:
    async with connect(scripted.host) as client:
        reply = await client._client.get("/api/version")
        assert isinstance(reply.extensions["network_stream"], Connection)
    async with connect(f"https://{scripted.host}") as client:
        assert not isinstance(client._client._transport._pool._network_backend, Backend)  # type: ignore[attr-defined]


async def test_who_leaves_in_the_middle_of_an_answer_stops_it(scripted: ScriptedOllama) -> None:
    scripted.say("one two three four")
    scripted.fail("stall")
    inference, heard = OllamaInference(scripted.host), asyncio.Event()
    chat = asyncio.create_task(inference.chat(HELLO, deadline_s=60, on_text=lambda text: heard.set()))
    await heard.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    await asyncio.to_thread(scripted.wait_abandoned)
    assert (await inference.chat(HELLO, deadline_s=10)).text == "one two three four"
    await inference.close()


@pytest.mark.parametrize("line", [b"[]", b'"x"', b"{}", b'{"message": 5}', b'{"message": {"content": 5}}', b'{"done": true}', b"{", b""])
async def test_what_is_no_part_of_an_answer(line: bytes) -> None:
    class Odd(Handler):
        def _stream(self, parts: object, **more: object) -> None:
            self._raw(200, line + b"\n", "application/x-ndjson")

    class Server(ScriptedOllama):
        handler = Odd

    with Server() as server:
        inference = OllamaInference(server.host, policy=Policy(inference_retries=0))
        with pytest.raises(InferenceFailed) as failed:
            await inference.chat(HELLO, deadline_s=10)
        await inference.close()
    assert failed.value.cause == "malformed"


async def test_parts_come_however_the_bytes_are_cut(scripted: ScriptedOllama) -> None:
    scripted.say("<think>Hm, ünter uns. </think>Schöne Grüße,\u2028日本語\u0085!")
    asked = {"model": "robin:embedded", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    async with connect(scripted.host) as client:
        heard = [part async for part in streams.parts(client._client, asked)]
    assert "".join(part.text for part in heard).endswith("Schöne Grüße,\u2028日本語\u0085!")
    assert [part.done is None for part in heard] == [True] * (len(heard) - 1) + [False]
