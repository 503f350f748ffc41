"""Streamable HTTP to an MCP server: the SDK's transport over a guarded client, as in `batos.tools.egress`.

The address that is checked is the address that is connected to. A request that fails is answered here, by an error of the protocol that
says how it failed and whether it had left. Raised instead, the failure would end the connection and every other call on it. Nothing is
compressed, and no answer is larger than the bound.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import httpcore
import httpcore2
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from batos.errors import BatosError, EgressRefused
from batos.tools.egress import ReachableOrigins
from batos.tools.mcp_transport import Streams

HTTP_ERROR = -32010
"""Code, of those that implementations may define, for an HTTP status that carries no error of the protocol; `data` has the status."""
_CONNECT_S = 10.0
_HEAD_BYTES = 4096  # of the body of an error
_DROPPED = ("content-length", "content-encoding", "content-type", "transfer-encoding")


class HttpTransport:
    """The transport of one connection over HTTP, used once."""

    def __init__(self, url: str, *, headers: Mapping[str, str], reach: ReachableOrigins, auth: httpx2.Auth | None, most: int) -> None:
        """
        :param reach: servers that may be connected to, the authorization server included.
        :param most: bytes of one message.
        """
        self.process, self.why = "", ""
        self.ended: Callable[[], None] = lambda: None  # its requests end one by one
        self._url, self._most = url, most
        self._guarded = GuardedTransport(reach, most)
        self._client = httpx2.AsyncClient(
            transport=self._guarded,
            headers={**headers, "user-agent": "batos", "accept-encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(None, connect=_CONNECT_S, pool=_CONNECT_S),
            trust_env=False,
        )
        self._stack = AsyncExitStack()

    @property
    def refused(self) -> str:
        """Return the protocol's method of the request that was last refused for want of a login; empty where it had none."""
        return self._guarded.refused

    async def __aenter__(self) -> Streams:
        await self._stack.enter_async_context(self._client)
        inner = streamable_http_client(self._url, http_client=self._client, max_sse_event_size=self._most)
        streams: Any = await self._stack.enter_async_context(inner)
        return streams  # type: ignore[no-any-return]

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to allowed addresses only. A failure is an answer, of status 599, with an error of the protocol as its body."""

    def __init__(self, reach: ReachableOrigins, most: int) -> None:
        self._most = most
        self.refused = ""
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(), max_connections=20, keepalive_expiry=30, retries=0, network_backend=_Backend(reach)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        sent = _Trace()
        core = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions={**request.extensions, "trace": sent.trace},
        )
        try:
            answer = await self._pool.handle_async_request(core)
        except (BatosError, OSError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as e:
            why = e.message if isinstance(e, BatosError) else f"{type(e).__name__} {e}".strip()
            return _refusal(599, {}, CONNECTION_CLOSED, f"{request.method} {request.url} failed: {why}", {"sent": sent.begun})
        headers = httpx2.Headers(answer.headers)
        stream = _Bounded(answer, None if "text/event-stream" in headers.get("content-type", "") else self._most)
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            await answer.aclose()
            return _refusal(599, {}, CONNECTION_CLOSED, f"{request.url} sent a compressed answer, which was not asked for", {"sent": True})
        if answer.status in (401, 403):
            self.refused = _method(request)
        place = headers.get("location")
        if 300 <= answer.status < 400 and place and _origin(request.url.join(place)) != _origin(request.url):
            await answer.aclose()
            where = {"status": answer.status}
            return _refusal(599, {}, HTTP_ERROR, f"{request.url} redirects to {place[:200]}, which is not followed; name that URL", where)
        if answer.status >= 400 and _method(request):
            return await self._error(request, answer, headers, stream)
        return httpx2.Response(answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions)

    async def _error(
        self, request: httpx2.Request, answer: httpcore2.Response, headers: httpx2.Headers, stream: _Bounded
    ) -> httpx2.Response:
        """Return an answer whose status is an error; its body is an error of the protocol, one made of the status where it has none."""
        body = b""
        try:
            async for part in stream:
                body += part
                if len(body) > self._most:
                    break
        except httpx2.StreamError:
            pass
        finally:
            await answer.aclose()
        kept = {name: value for name, value in headers.items() if name.lower() not in _DROPPED}
        try:
            told = json.loads(body)
            if isinstance(told, dict) and isinstance(told.get("error"), dict):
                return httpx2.Response(answer.status, headers={**kept, "content-type": "application/json"}, content=body)
        except (ValueError, RecursionError):
            pass
        text = " ".join(body[:_HEAD_BYTES].decode("utf-8", "replace").split())[:200]
        said = f"{request.url} answered with status {answer.status}" + (f": {text}" if text else "")
        return _refusal(answer.status, kept, HTTP_ERROR, said, {"status": answer.status})

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Trace:
    """Notes whether a request has begun to leave."""

    def __init__(self) -> None:
        self.begun = False

    async def trace(self, event: str, _: Any) -> None:
        if event.endswith("send_request_headers.started"):
            self.begun = True


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends with an error which the SDK tells the call that it belongs to, instead of one that ends the connection."""

    def __init__(self, answer: httpcore2.Response, most: int | None) -> None:
        self._answer, self._most = answer, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for part in self._answer.aiter_stream():
                size += len(part)
                if self._most is not None and size > self._most:
                    raise httpx2.StreamError(f"a message larger than {self._most} bytes")
                yield part
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError) as e:
            raise httpx2.StreamError(f"the answer broke off ({type(e).__name__} {e})") from None

    async def aclose(self) -> None:
        await self._answer.aclose()


class _Backend(httpcore2.AsyncNetworkBackend):
    """Opens connections to the addresses that were checked."""

    def __init__(self, reach: ReachableOrigins) -> None:
        self._inner, self._reach = httpcore2.AnyIOBackend(), reach

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await self._reach.addresses(host, port)
        except httpcore.ConnectError as e:
            raise httpcore2.ConnectError(str(e)) from None
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout=_CONNECT_S, socket_options=socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as e:
                failure = e
        raise failure

    async def connect_unix_socket(self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None) -> Any:
        raise EgressRefused("a Unix socket is not reached through a connection")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def _method(request: httpx2.Request) -> str:
    try:
        return str(json.loads(request.content)["method"])
    except (ValueError, TypeError, KeyError, RuntimeError):
        return ""


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _refusal(status: int, headers: Mapping[str, str], code: int, message: str, data: Mapping[str, Any]) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": dict(data)}}
    return httpx2.Response(status, headers={**headers, "content-type": "application/json"}, content=json.dumps(body).encode())
