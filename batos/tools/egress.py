"""HTTP requests that leave this process on behalf of a mission: the address that is checked is the address that is connected to.

The check stands where a connection is opened, so that each redirect, retry and reused name passes it; TLS still verifies the name.
A name that resolves to one forbidden address among several is refused. Proxies of the environment are not used: a proxy would
resolve names itself. An answer is bounded in bytes and time. A failure says whether the request may have reached the server, which
decides what becomes of an effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import httpcore
import httpx

from batos.config import shown
from batos.errors import EgressFailed, EgressRefused

if TYPE_CHECKING:
    import ssl

PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
_MINUTE = 60.0
_FOLLOWED = ("GET", "HEAD")
_KEPT_HEADERS = (
    "accept",
    "accept-language",
    "user-agent",
)  # across origins: nothing else of the caller's goes to a server that he did not name
_METADATA = frozenset({"169.254.169.254", "fd00:ec2::254", "100.100.100.200"})  # of clouds: credentials for each caller
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Finds the addresses of a host."""


class WebOrigin(NamedTuple):
    """A server as browsers name it. `host` is in lower case, without brackets and without a dot at its end."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        """Return the origin as a URL has it, without the port that its scheme implies."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port != PORTS.get(self.scheme) else "")


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """Bounds of one request, and of all requests to one origin."""

    bytes: int = 1 << 20
    """of an answer's body, after it is decompressed"""
    seconds: float = 30.0
    """for the whole request, redirects included"""
    connect_s: float = 10.0
    """for one connection to be opened"""
    redirects: int = 5
    per_minute: int = 120
    """requests to one origin; more wait for their turn within `seconds`"""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer of a server. `url` is the one that answered, after redirects. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


def origin_of(url: str | httpx.URL) -> WebOrigin:
    """Return the origin of an http or https URL.

    :raises EgressRefused: if it is not such a URL, or carries a name and password.
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, TypeError) as e:
        raise EgressRefused(f"{shown(str(url))} is not a valid URL ({e}); give http://HOST/PATH or https://HOST/PATH") from None
    if parsed.scheme not in PORTS:
        if not parsed.scheme or not parsed.host:  # "localhost:8080" has the scheme "localhost"
            raise EgressRefused(f"{shown(str(url))} is not a valid URL; give http://HOST/PATH or https://HOST/PATH")
        raise EgressRefused(f"{shown(str(url))}: the scheme {parsed.scheme!r} is not allowed; allowed are http and https")
    if parsed.userinfo:
        raise EgressRefused(
            f"a URL for {parsed.host} carries a name or password; store it with `batos secrets set` and name it in the connection"
        )
    host = parsed.raw_host.decode("ascii").lower().rstrip(".").strip("[]")
    if not host:
        raise EgressRefused(f"{shown(str(url))} names no host")
    return WebOrigin(parsed.scheme, host, parsed.port or PORTS[parsed.scheme])


def is_public(address: str) -> bool:
    """Return True if an IP address belongs to the public internet, also where it wraps an IPv4 address (mapped, 6to4, Teredo, NAT64)."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        wrapped = [found.ipv4_mapped, found.sixtofour, found.teredo[1] if found.teredo else None]
        if found in _NAT64:
            wrapped.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
        if any(inner is not None and not is_public(str(inner)) for inner in wrapped):
            return False
        if found in _LOCAL_NAT64 or found.is_site_local or (found.is_reserved and found not in _NAT64):
            return False
        if found in _NAT64:
            return True
    return found.is_global and not found.is_multicast and str(found) not in _METADATA


class Egress:
    """A guarded HTTP client for one connection: it reaches the origins that its user named, and public ones where he allows any.

    Connections are kept open and belong to this client alone, so that none that was opened with more rights serves a request with fewer.
    """

    def __init__(
        self,
        origins: Iterable[WebOrigin] = (),
        *,
        private: Iterable[WebOrigin] = (),
        any_public: bool = False,
        limits: EgressLimits | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        """
        :param origins: servers that may be reached at public addresses.
        :param private: servers that may be reached wherever they are, this machine and its networks included.
        :param any_public: allow every origin whose addresses are public.
        :param resolve: finds addresses in place of the system, for tests.
        """
        self.limits = limits or EgressLimits()
        self._reach = ReachableOrigins(origins, private=private, any_public=any_public, resolve=resolve)
        self._backend = _GuardedBackend(self._reach, self.limits.connect_s)
        self._pools: dict[str, httpcore.AsyncConnectionPool] = {}
        self._turns: dict[WebOrigin, deque[float]] = {}

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        seconds: float | None = None,
        leave: Callable[[], None] = lambda: None,
        refusal: Callable[[str], str] = lambda url: "",
    ) -> HttpAnswer:
        """Send a request and read its whole answer. Redirects of GET and HEAD are followed, those of others are the answer.

        :param seconds: for this request, in place of the limit.
        :param leave: called once a connection is open, just before the request leaves on it; what it raises is raised.
        :param refusal: returns why a redirect to a URL is not followed; "" to follow it.
        :raises EgressRefused: if it, or a redirect of it, goes where it may not; of the request itself nothing was sent then.
        :raises EgressFailed: if no whole answer came.
        """
        sent = _Sent(leave)
        within = self.limits.seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(within):
                return await self._followed(method.upper(), url, dict(headers or {}), content, sent, refusal)
        except TimeoutError:
            if not sent.begun:
                why = "its server was not reached, or it waited for its turn; nothing was done"
                raise EgressFailed(f"{method} {shown(url)} did not leave within {within:g} s: {why}", sent=False) from None
            raise EgressFailed(f"{method} {shown(url)} got no whole answer within {within:g} s", sent=True) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as e:
            raise EgressFailed(f"{method} {shown(url)} failed: {type(e).__name__} {e}".rstrip(), sent=sent.begun) from None

    async def close(self) -> None:
        """Close the connections that are kept open."""
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.aclose()

    async def _followed(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, sent: _Sent, refusal: Callable[[str], str]
    ) -> HttpAnswer:
        origin = origin_of(url)
        for _ in range(self.limits.redirects + 1):
            answer = await self._once(method, url, origin, headers, content, sent)
            place = answer.headers.get("location")
            if not (300 <= answer.status < 400 and place and method in _FOLLOWED):
                return answer
            asked, url = url, str(httpx.URL(url).join(place))
            target = origin_of(url)
            if why := refusal(url):
                raise EgressRefused(f"{shown(asked)} redirects to {shown(url)}, which is not followed: {why}")
            if origin.scheme == "https" and target.scheme == "http":
                raise EgressRefused(f"{origin} redirects from https to {target}; this would send the request unencrypted")
            if target != origin:
                headers = {name: value for name, value in headers.items() if name.lower() in _KEPT_HEADERS}
            origin = target
        raise EgressFailed(f"{shown(url)}: more than {self.limits.redirects} redirects", sent=True)

    async def _once(
        self, method: str, url: str, origin: WebOrigin, headers: dict[str, str], content: bytes | None, sent: _Sent
    ) -> HttpAnswer:
        self._reach.check_origin(origin)
        await self._turn(origin)
        target = httpx.URL(url).copy_with(fragment=None)
        asked = httpx.Request(method, target, headers={"user-agent": "batos", **headers, "accept-encoding": "identity"}, content=content)
        core = httpcore.Request(
            method,
            httpcore.URL(scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path),
            headers=asked.headers.raw,
            content=asked.stream if content is not None else None,
            extensions={"trace": sent.trace, "timeout": {"connect": self.limits.connect_s}},
        )
        answer = await self._pool(origin.scheme).handle_async_request(core)
        try:
            found = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
            body = b"" if method == "HEAD" else await self._body(answer, found.get("content-encoding", ""), url)
        finally:
            await answer.aclose()
        return HttpAnswer(answer.status, found, body, url)

    async def _body(self, answer: httpcore.Response, encoding: str, url: str) -> bytes:
        unpack = _unpacker(encoding.strip().lower(), url)
        body = bytearray()
        async for part in answer.aiter_stream():
            body += unpack(part, self.limits.bytes + 1 - len(body))
            if len(body) > self.limits.bytes:
                raise EgressFailed(f"the answer of {shown(url)} is larger than {self.limits.bytes} bytes", sent=True)
        return bytes(body)

    async def _turn(self, origin: WebOrigin) -> None:
        turns = self._turns.setdefault(origin, deque(maxlen=self.limits.per_minute))
        now = time.monotonic()
        turn = max(now, turns[0] + _MINUTE) if len(turns) == self.limits.per_minute else now
        turns.append(turn)
        await asyncio.sleep(turn - now)

    def _pool(self, scheme: str) -> httpcore.AsyncConnectionPool:
        if scheme not in self._pools:
            self._pools[scheme] = httpcore.AsyncConnectionPool(
                ssl_context=_trust() if scheme == "https" else None,
                max_connections=10,
                keepalive_expiry=30,
                retries=0,
                network_backend=self._backend,
            )
        return self._pools[scheme]


class _Sent:
    """Notes whether a request has begun to leave."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave, self.begun = leave, False

    async def trace(self, event: str, _: Any) -> None:
        if event.endswith("send_request_headers.started"):
            self._leave()
            self.begun = True


class ReachableOrigins:
    """Origins that a client may reach, and the addresses at which it may."""

    def __init__(
        self,
        origins: Iterable[WebOrigin] = (),
        *,
        private: Iterable[WebOrigin] = (),
        any_public: bool = False,
        resolve: Resolve | None = None,
    ) -> None:
        """Parameters are those of `Egress`."""
        self._origins, self._private, self._any_public = frozenset(origins), frozenset(private), any_public
        self._resolve = resolve or system_addresses

    def check_origin(self, origin: WebOrigin) -> None:
        """
        :raises EgressRefused: if no grant reaches it.
        """
        if not (self._any_public or origin in self._origins or origin in self._private):
            there = ", ".join(sorted(map(str, self._origins | self._private))) or "none"
            raise EgressRefused(f"no connection reaches {origin}; reachable are: {there}")

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses to connect to.

        :raises EgressRefused: if the server may not be reached, or not where it is.
        :raises httpcore.ConnectError: if the host has no address.
        """
        name = host.lower().rstrip(".").strip("[]")
        private = any(one.host == name and one.port == port for one in self._private)
        if not (self._any_public or private or any(one.host == name and one.port == port for one in self._origins)):
            raise EgressRefused(f"no connection reaches {host}:{port}")
        addresses = list(await self._resolve(name, port))
        if not private and (forbidden := [address for address in addresses if not is_public(address)]):
            raise EgressRefused(
                f"{host} is at {', '.join(forbidden)}, which is not public; a connection of its own reaches it: "
                f"`batos tools add NAME --http ORIGIN --private`"
            )
        if private and name not in _METADATA and (metadata := _METADATA & set(addresses)):
            raise EgressRefused(f"{host} is at {', '.join(metadata)}, where a cloud keeps credentials")
        return addresses


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to allowed addresses only."""

    def __init__(self, reach: ReachableOrigins, connect_s: float) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._reach, self._connect_s = reach, connect_s

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in await self._reach.addresses(host, port):
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout=self._connect_s, local_address=local_address, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as e:
                failure = e
        raise failure

    async def connect_unix_socket(self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None) -> Any:
        raise EgressRefused("a Unix socket is not reached through a connection")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


async def system_addresses(host: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver has for a host.

    :raises httpcore.ConnectError: if it has none.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as e:
        raise httpcore.ConnectError(f"{host} has no address ({e})") from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _unpacker(encoding: str, url: str) -> Callable[[bytes, int], bytes]:
    """Return a function that decompresses a part of a body, to at most the given number of bytes."""
    if encoding in ("", "identity"):
        return lambda part, _: part
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise EgressFailed(f"the answer of {shown(url)} is encoded as {shown(encoding)}, which was not asked for", sent=True)
    machine = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def unpack(part: bytes, most: int) -> bytes:
        try:
            return machine.decompress(machine.unconsumed_tail + part, max(1, most))
        except zlib.error as e:
            raise EgressFailed(f"the answer of {shown(url)} is not valid {encoding} ({e})", sent=True) from None

    return unpack


def _trust() -> ssl.SSLContext:
    import ssl  # late: it loads the system's certificates

    return ssl.create_default_context()
