"""What was tried against the wire by who may not use it: the bytes of browsers, protocols before ZMTP/3, other users, planted files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from batos.errors import EndpointError
from batos.wire import keys
from batos.wire.endpoints import bind, check
from batos.wire.listener import Inbox
from tests.support.wire import ask, listening, raw

COMMAND = json.dumps({"op": "missions", "limit": 1}).encode()
NOBODY = 65534
_MORE, _LAST = 1, 0


def frame(body: bytes, flags: int = _LAST) -> bytes:
    """As ZMTP/1.0 and 2.0 have short frames, but for where the flags stand."""
    return bytes([len(body) + 1, flags]) + body


def post(body: bytes, kind: str = "application/octet-stream", padding: int = 0) -> bytes:
    """A request as a browser sends it for a page of another origin."""
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1:5757\r\nUser-Agent: Mozilla/5.0 {'x' * padding}\r\nOrigin: http://evil.example\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def sled(alignment: int) -> bytes:
    """Frames that hold nothing, wherever one begins to read them; then the end of their message, and a clean one."""
    return bytes([_MORE]) * (600 + alignment) + bytes([1, _LAST]) + frame(COMMAND)


POSTS = {
    **{f"post, sled {at}, padding {pad}": post(sled(at), padding=pad) for at in (0, 1) for pad in range(0, 80, 13)},
    **{f"form as text/plain, {at}": post(b"x=" + sled(at) + b"\r\n", "text/plain") for at in (0, 1)},
    "form as multipart": post(
        b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\n" + sled(1) + b"\r\n--b--\r\n", "multipart/form-data; boundary=b"
    ),
}
OTHERS = {
    "get": b"GET /?" + COMMAND.hex().encode() + b" HTTP/1.1\r\nHost: 127.0.0.1:5757\r\n\r\n",
    "websocket": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:5757\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n" + sled(0),
    "zmtp 1.0": frame(b"") + frame(COMMAND),
    "zmtp 1.0 as a request": frame(b"") + frame(b"", _MORE) + frame(COMMAND),
    "zmtp 2.0": b"\xff" + bytes(7) + b"\x01\x7f\x01\x05" + b"\x00\x00" + bytes([0, len(COMMAND)]) + COMMAND,
    "a line of text": b"\r\n" + COMMAND + b"\r\n",
}


async def hung_up(endpoint: str, sent: bytes) -> None:
    """Send bytes, and wait until the other side has hung up."""
    kind, _, address = endpoint.partition("://")
    if kind == "ipc":
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(ConnectionError):
        writer.write(sent)
        await writer.drain()
        async with asyncio.timeout(90):
            while await reader.read(4096):
                pass
    writer.close()


@pytest.fixture(params=["tcp", "ipc", "keys"])
async def attacked(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, Any]]:
    """A listener of each kind, and who is asked behind it."""
    endpoint, settings = f"ipc://{tmp_path}/wire.sock" if request.param == "ipc" else "tcp://127.0.0.1:*", {}
    if request.param == "keys":
        secret, _ = keys.create(tmp_path / "own", "server")
        settings = {"curve_secret": str(secret), "curve_clients": str(tmp_path / "clients")}
    async with listening(endpoint=endpoint, data=tmp_path, **settings) as (listener, handler):
        yield listener.bound[0], handler


@pytest.mark.parametrize("bytes_of", [*POSTS, *OTHERS])
async def test_nothing_but_zmtp_3_reaches_the_dispatcher(attacked: tuple[str, Any], bytes_of: str) -> None:
    endpoint, handler = attacked
    await hung_up(endpoint, (POSTS | OTHERS)[bytes_of])
    assert handler.requests == []


async def test_who_speaks_zmtp_3_is_answered_after_all_that(tmp_path: Path) -> None:
    async with listening() as (listener, handler):
        for sent in (POSTS | OTHERS).values():
            await hung_up(listener.bound[0], sent)
        async with raw(zmq.DEALER, listener.bound[0]) as dealer:
            assert (await ask(dealer, {"op": "info"}))["type"] == "status"
        assert [request.op for request in handler.requests] == ["info"]


@contextlib.contextmanager
def bare_router() -> Any:
    """A ROUTER as libzmq makes it: what the attacks are made for."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.LINGER, 0)
    router.setsockopt(zmq.RCVTIMEO, 20_000)
    try:
        yield router, f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
    finally:
        context.destroy(linger=0)


def speak(endpoint: str, sent: bytes) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2])))
    peer.sendall(sent)
    return peer


def gets_through(sent: bytes) -> bool:
    """Whether a bare ROUTER takes the command in these bytes for a message; else it hangs up."""
    with bare_router() as (router, endpoint), speak(endpoint, sent) as peer:
        poller = zmq.Poller()
        poller.register(router, zmq.POLLIN)
        poller.register(peer, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(20_000))
            assert ready, "neither a message nor the end of the connection"
            if router in ready and COMMAND in router.recv_multipart():
                return True
            if peer.fileno() in ready and not peer.recv(4096):
                return False


def test_the_attacks_are_some_on_a_socket_that_nothing_guards() -> None:
    """So the tests above would fail of a listener without its walls. Which alignment is the right one follows from what goes before."""
    through = {name: gets_through(sent) for name, sent in POSTS.items() if "sled" in name}
    for padding in {name.rpartition(" ")[2] for name in through}:
        assert any(found for name, found in through.items() if name.endswith(f" {padding}")), padding
    assert any(gets_through(post(b"x=" + sled(at) + b"\r\n", "text/plain")) for at in (0, 1))
    assert gets_through(OTHERS["zmtp 1.0"])


@pytest.mark.parametrize("at", [0, 1])
def test_the_second_wall_stands_by_itself(at: int) -> None:
    """The inbox lets go of what such a connection says, on a socket where libzmq takes it."""
    with bare_router() as (router, endpoint), speak(endpoint, post(sled(at))), speak(endpoint, OTHERS["zmtp 1.0"]):
        inbox, context = Inbox(router, 1024), zmq.Context()
        honest = context.socket(zmq.DEALER)
        try:
            router.poll(20_000)
            read = list(inbox.read(1000))
            honest.connect(endpoint)
            honest.send(b"{}")
            while not read:
                router.poll(20_000)
                read += inbox.read(1000)
            assert [message.payload for message in read] == [b"{}"]
        finally:
            context.destroy(linger=0)


# --- local sockets


@pytest.mark.parametrize("kind", ["file", "folder", "link", "link to a socket"])
def test_a_local_socket_never_takes_the_place_of_what_is_none(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "there", tmp_path / "other"
    other.write_text("precious")
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(other)
    before = (path.lstat().st_ino, other.read_text())
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        for attempt in (lambda: check(f"ipc://{path}"), lambda: bind(router, f"ipc://{path}")):
            with pytest.raises(EndpointError, match="not a socket; nothing is replaced"):
                attempt()
    assert (path.lstat().st_ino, other.read_text()) == before


_AS_ANOTHER = """
import json, os, sys, zmq
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
socket = zmq.Context().socket(zmq.DEALER); socket.setsockopt(zmq.RCVTIMEO, 20000); socket.setsockopt(zmq.LINGER, 0)
socket.connect(sys.argv[1])
for op in sys.argv[3:]:
    socket.send(op.encode()); print(socket.recv().decode(), flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
async def test_another_user_at_a_socket_that_was_opened_up_has_the_local_role(tmp_path: Path) -> None:
    path = Path("/tmp") / f"batos-test-{os.getpid()}.sock"  # a folder that another user can look into
    ops = ['{"op": "info"}', '{"op": "pack"}', '{"op": "submit", "id": "m", "brief": "b"}']
    try:
        async with listening(endpoint=f"ipc://{path}", local_role="read") as (listener, handler):
            path.chmod(0o666)
            replies = {}
            for user in (NOBODY, 0):
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", _AS_ANOTHER, listener.bound[0], str(user), *ops, stdout=subprocess.PIPE
                )
                out, _ = await child.communicate()
                replies[user] = [json.loads(line) for line in out.splitlines()]
            assert [reply.get("code") for reply in replies[NOBODY]] == [None, "role_refused", "role_refused"]
            assert "wire.role" in replies[NOBODY][1]["message"]
            assert [reply["type"] for reply in replies[0]] == ["status"] * 3, "the daemon's own user may do all"
            assert [request.op for request in handler.requests] == ["info", "info", "pack", "submit"]
    finally:
        path.unlink(missing_ok=True)
