"""Loopback addresses of this machine, and the names by which a browser may ask for one.

For a browser, a page of a foreign name that resolves to 127.0.0.1 (DNS rebinding) has the same origin as the server there. But it sends
its own name as `Host`, and is recognised by that.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Mapping

from batos.errors import EndpointError

_PORTS = 65535
_HTTP = 80  # the port that browsers omit from Host and Origin


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def names_of(host: str, port: int) -> frozenset[str]:
    """Return the valid values of `Host`, in lower case, for a loopback address asked for by itself or as localhost."""
    name = bracketed(host)
    own = {f"{name}:{port}", f"localhost:{port}"}
    return frozenset(own | {name, "localhost"} if port == _HTTP else own)


def is_foreign(headers: Mapping[str, str], names: Collection[str]) -> bool:
    """Return True if a page of another site wants to read, by headers that no page can forge. Following a link does not count.

    :param headers: by lower-case names.
    :param names: valid values of `Host`.
    """
    origin = headers.get("origin")
    if origin is not None and origin.removeprefix("http://") not in names:
        return True
    navigates = headers.get("sec-fetch-mode", "navigate") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and not navigates


def address_of(address: str, setting: str, what: str) -> tuple[str, int]:
    """Return host and port of a setting.

    :param setting: its name, such as `console.listen`; `what`: what is served there, in words.
    :raises EndpointError: if the setting is invalid, or other machines could reach the address.
    """
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        found = None
    if found is None or not (port.isascii() and port.isdecimal() and int(port) <= _PORTS):
        raise EndpointError(f"setting {setting}: {address!r} is not a valid host:port; name 127.0.0.1:PORT")
    if not found.is_loopback:
        raise EndpointError(
            f"{what} served on loopback only, and {address!r} can be reached by other machines. Name 127.0.0.1:PORT in the setting "
            f"{setting}, and come from elsewhere through an SSH tunnel"
        )
    return str(found), int(port)


def bound(host: str, port: int, setting: str, what: str) -> socket.socket:
    """Return a socket that listens at a loopback address. Connections wait there until it is served.

    :param setting: the name of the setting that has the address; `what`: who listens, in words.
    :raises EndpointError: if the address is taken.
    """
    # Pass the protocol: asyncio switches Nagle's delay of 40 ms off only for sockets that name TCP.
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as e:
        listening.close()
        raise EndpointError(
            f"{what} cannot listen at {bracketed(host)}:{port}: {e.strerror}; stop who does, or name another port in the setting {setting}"
        ) from None
    return listening
