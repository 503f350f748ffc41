"""Endpoints that the daemon may listen at: loopback TCP and local sockets, and with keys any address. Others are refused, with a remedy."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket as sockets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq

from batos.config import MIB, local_endpoint
from batos.config.limits import Limits, limit
from batos.errors import EndpointError

_TCP = re.compile(r"tcp://(\[[^\]]+\]|[^:\[\]]+):(\d{1,5}|\*)")
_IPC = "ipc://"
_EVERYWHERE = ("tcp://*:", "tcp://0.0.0.0:", "tcp://[::]:")
MACHINE = "ipc:///run/batos/wire.sock"
"""The endpoint of a daemon that `batos service install` set up for the whole machine. Root can open it."""


@dataclass(frozen=True, slots=True)
class WireLimits(Limits):
    """Limits of the wire: messages, connections and clients."""

    message_bytes: int = limit(MIB, ge=1024, le=64 * MIB)
    """Largest size of a message in bytes, all frames together."""
    message_depth: int = limit(32, ge=2, le=512)
    """Deepest nesting of the JSON in a message; the outermost object is level 1."""
    client_queue: int = limit(1024, ge=8, le=1_000_000)
    """Replies that may wait for one client. Beyond that, events are dropped."""
    client_queue_bytes: int = limit(16 * MIB, ge=1024, le=1024 * MIB)
    """Bytes of replies that may wait for one client. Beyond that, events are dropped."""
    clients: int = limit(4096, ge=1, le=1_000_000)
    """Largest number of clients that have waiting replies or watch missions."""
    watches: int = limit(256, ge=1, le=100_000)
    """Largest number of missions that one client may watch."""
    outbox_bytes: int = limit(256 * MIB, ge=1024, le=65536 * MIB)
    """Bytes of replies that may wait for all blocked clients together."""
    requests: int = limit(1024, ge=1, le=100_000)
    """Requests answered at the same time. Beyond that, the daemon pauses reading."""
    waits: int = limit(10_000, ge=1, le=1_000_000)
    """`result` requests that may wait at the same time. The daemon answers further ones with `busy`."""
    handshake_s: float = limit(5.0, gt=0, le=60)
    """Seconds for the handshake of a new connection."""
    ping_s: float = limit(15.0, ge=0.1, le=600)
    """Seconds between two pings of a connection."""
    silence_s: float = limit(60.0, ge=0.1, le=3600)
    """Seconds of silence after a ping until a connection counts as dead."""
    linger_s: float = limit(1.0, ge=0, le=60)
    """Seconds for sending the last replies at shutdown. With 0, the daemon does not wait for them."""
    key_check_s: float = limit(1.0, ge=0.05, le=3600)
    """Seconds between two checks of the key folder. A check closes the connections of a client whose key was removed."""
    probe_s: float = limit(2.0, gt=0, le=60)
    """Seconds to wait for an answer when checking whether a daemon listens."""


def normalised(endpoint: str, *, guarded: bool = False) -> str:
    """Return `endpoint` in the form that libzmq binds: `localhost` becomes an address.

    :param guarded: True if only clients with keys are admitted. Then other machines may reach the endpoint: `tcp://*:PORT`, an address, an
    interface.
    :raises EndpointError: for another transport, a malformed address, or an address that other machines can reach without keys.
    """
    if endpoint.startswith(_IPC) and len(endpoint) > len(_IPC):
        return endpoint
    match = _TCP.fullmatch(endpoint)
    if match is None:
        raise EndpointError(f"no endpoint: {endpoint!r}; write tcp://127.0.0.1:PORT or ipc://PATH")
    host, port = match[1].strip("[]"), match[2]
    if port != "*" and int(port) > 65535:
        raise EndpointError(f"no endpoint: {endpoint!r}; ports go up to 65535")
    if host == "localhost":
        host = "127.0.0.1"
    if not guarded and not _is_loopback(host):
        raise EndpointError(
            f"will not listen at {endpoint!r}: other machines could reach it, and without CURVE keys use it. "
            "Make keys (`batos keys new`), name them in wire.secret_key, or listen at tcp://127.0.0.1:PORT and come through an SSH tunnel"
        )
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def prepare(endpoint: str) -> None:
    """Create the folder of the default local socket, if it is missing; a user creates that of any other.

    :raises EndpointError: if it cannot be created, or others may write in it: the folder's owner could put another socket there.
    """
    if endpoint != local_endpoint():
        return
    folder = Path(endpoint.removeprefix(_IPC)).parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(folder)
    except OSError as e:
        raise EndpointError(f"cannot listen at {endpoint}: {folder}: {e.strerror}; choose another --listen") from None
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise EndpointError(
            f"will not listen at {endpoint}: others may write in {folder}; `chmod 700 {folder}`, or choose another --listen"
        )


def to_connect(endpoint: str) -> str:
    """Return the endpoint at which a client of this machine reaches a daemon that listens at `endpoint`; wildcards become loopback.

    A user without an own daemon gets the machine's daemon, if there is one. A socket that a killed daemon left does not count.
    """
    if endpoint == local_endpoint() and _is_there(MACHINE) and not _answers(endpoint.removeprefix(_IPC)):
        return MACHINE
    for everywhere, here in (("tcp://*:", "tcp://127.0.0.1:"), ("tcp://0.0.0.0:", "tcp://127.0.0.1:"), ("tcp://[::]:", "tcp://[::1]:")):
        if endpoint.startswith(everywhere):
            return here + endpoint.removeprefix(everywhere)
    return endpoint


def bind(socket: zmq.Socket[bytes], endpoint: str, *, guarded: bool = False) -> str:
    """Bind `socket`; the endpoint it really got, with a port chosen by the system filled in.

    :raises EndpointError: naming endpoint, cause and remedy.
    """
    endpoint = normalised(endpoint, guarded=guarded)
    if endpoint.startswith("tcp://["):
        socket.setsockopt(zmq.IPV6, 1)
    if endpoint.startswith(_IPC):
        _check_free(endpoint)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as e:
        if e.errno == errno.EADDRINUSE:
            raise _taken(endpoint) from None
        raise EndpointError(f"cannot listen at {endpoint}: {e.strerror}; choose another --listen") from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def check(endpoint: str, *, guarded: bool = False) -> None:
    """Check that `bind` could bind an endpoint now, and release it again.

    :raises EndpointError: as in `bind`.
    """
    endpoint = normalised(endpoint, guarded=guarded)
    if endpoint.startswith(_IPC):  # an ipc socket may leave its file behind, so do not bind to it
        _check_free(endpoint)
        return
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        with context.socket(zmq.ROUTER) as probe:
            bind(probe, endpoint, guarded=guarded)
    finally:
        context.destroy(linger=0)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # `*`, the name of an interface, or a host name: only the system can resolve it


def _is_there(endpoint: str) -> bool:
    return os.path.exists(endpoint.removeprefix(_IPC))


def _check_free(endpoint: str) -> None:
    """Check that libzmq destroys nothing when it binds a local socket: it unlinks any file with that name.

    :raises EndpointError: if there is another daemon's socket, or a file that is not a socket.
    """
    path = endpoint[len(_IPC) :]
    if not path.startswith("@"):
        try:
            kind = os.lstat(path).st_mode
        except OSError:
            return  # nothing listens there; if the address is blocked, bind reports why
        if not stat.S_ISSOCK(kind):
            what = "a link" if stat.S_ISLNK(kind) else "a folder" if stat.S_ISDIR(kind) else "a file"
            raise EndpointError(
                f"will not listen at {endpoint}: {path} is {what} and not a socket; nothing is replaced, choose another --listen"
            )
    if _answers(path):
        raise _taken(endpoint)


def _answers(path: str) -> bool:
    address = "\0" + path[1:] if path.startswith("@") else path
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


def _taken(endpoint: str) -> EndpointError:
    return EndpointError(f"{endpoint} is taken by another process, maybe another BAT OS daemon; stop it, or choose another --listen")


def to_tell(bound: Sequence[str], host: str) -> str:
    """Return the endpoint at which another machine reaches a daemon best, of those that it listens at. That is one of a network, else the
    first; empty if there is none.

    :param host: name of this machine, for an endpoint at all its addresses.
    """
    told = [next((f"tcp://{host}:" + one.removeprefix(every) for every in _EVERYWHERE if one.startswith(every)), one) for one in bound]
    outside = [one for one in told if (match := _TCP.fullmatch(one)) is not None and not _is_loopback(match[1].strip("[]"))]
    return next(iter((*outside, *told)), "")
