"""An Ollama whose answers take the same time each time: it stands before a real one, for measuring what is added to an answer.

A chat is answered by the real server once and its lines are kept; from then on they are sent as they came, but by the clock: the first
after `FIRST_S`, the others `EVERY_S` apart, counted from the request. A real server's own answers to one and the same request differ by
some 5 % on a shared machine, fifty times what is to be measured. Everything else is passed on. A process of its own:
`python bench/pacing.py HOST:PORT` prints its port and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys

FIRST_S, EVERY_S = 0.06, 0.01
Held = dict[bytes, list[bytes]]
_DROPPED = frozenset(["host", "content-length", "transfer-encoding", "connection", "accept-encoding"])


async def serve(host: str) -> None:
    """Answer until standard input ends."""
    held: Held = {}
    server = await asyncio.start_server(lambda reader, writer: connection(host, held, reader, writer), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


async def connection(host: str, held: Held, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The requests of one client, one after the other."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            begun = asyncio.get_running_loop().time()
            method, path, _ = head[0].split(" ")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            sent = {name: value for name, value in fields.items() if name not in _DROPPED}
            if path == "/api/chat" and json.loads(body).get("stream"):
                await chat(host, held, body, sent, writer, begun)
            else:
                status, kind, answer = await asyncio.to_thread(passed_on, host, method, path, body, sent)
                writer.write(f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client is done
    finally:
        writer.close()


async def chat(host: str, held: Held, body: bytes, fields: dict[str, str], writer: asyncio.StreamWriter, begun: float) -> None:
    """A chat's lines by the clock."""
    if body not in held:
        _, _, answer = await asyncio.to_thread(passed_on, host, "POST", "/api/chat", body, fields)
        held[body] = answer.splitlines(keepends=True)
        begun = asyncio.get_running_loop().time()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number, line in enumerate(held[body]):
        await asyncio.sleep(begun + FIRST_S + number * EVERY_S - asyncio.get_running_loop().time())
        writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
    writer.write(b"0\r\n\r\n")


def passed_on(host: str, method: str, path: str, body: bytes, fields: dict[str, str]) -> tuple[int, str, bytes]:
    """The real server's answer, whole: status, kind and text."""
    link = http.client.HTTPConnection(host, timeout=300)
    try:
        link.request(method, path, body, fields)
        answer = link.getresponse()
        return answer.status, answer.getheader("Content-Type", "application/json"), answer.read()
    finally:
        link.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
