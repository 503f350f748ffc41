"""Where the daemon may listen: loopback TCP and local sockets, and with keys anywhere. Anything else is refused, with the remedy."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket as sockets

import zmq

from batos.errors import EndpointError

_TCP = re.compile(r"tcp://(\[[^\]]+\]|[^:\[\]]+):(\d{1,5}|\*)")
_IPC = "ipc://"


def normalised(endpoint: str, *, guarded: bool = False) -> str:
    """`endpoint` as libzmq binds it: `localhost` becomes an address.

    :param guarded: only clients with keys are let in, so that other machines may reach it: `tcp://*:PORT`, an address, an interface.
    :raises EndpointError: for another transport, a malformed address, or one that other machines can reach without keys.
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
            f"will not listen at {endpoint!r}: other machines could reach it, and without CURVE keys anybody there could use it; "
            "make keys (`batos keys new`) and name them in curve_secret, or listen at tcp://127.0.0.1:PORT and come through an SSH tunnel"
        )
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def to_connect(endpoint: str) -> str:
    """Where a client of this machine finds a daemon that listens at `endpoint`: every address of it is loopback, too."""
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
    if endpoint.startswith(_IPC) and _answers(endpoint[len(_IPC) :]):
        raise _taken(endpoint)  # libzmq would unlink the other daemon's socket file and take its place
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as e:
        if e.errno == errno.EADDRINUSE:
            raise _taken(endpoint) from None
        raise EndpointError(f"cannot listen at {endpoint}: {e.strerror}; choose another --listen") from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def check(endpoint: str, *, guarded: bool = False) -> None:
    """See that `bind` would have an endpoint now, and let go of it again.

    :raises EndpointError: as `bind`.
    """
    endpoint = normalised(endpoint, guarded=guarded)
    if endpoint.startswith(_IPC):  # to bind it would leave its file
        if _answers(endpoint[len(_IPC) :]):
            raise _taken(endpoint)
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
        return False  # `*`, the name of an interface, a host name: what they come to is not ours to know


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
