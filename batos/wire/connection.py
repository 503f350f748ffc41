"""Connection to a daemon: send requests with a `ref`, match the replies, and retry if none comes.

`Handshakes` follows libzmq's events, because libzmq silently retries a handshake that a daemon never accepts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, Self

import structlog
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from batos import config
from batos.config import MIB
from batos.errors import Busy, DaemonUnavailable, EndpointError, InvalidRequest, KeyRefused, MessageTooLarge, from_wire
from batos.wire.endpoints import to_connect
from batos.wire.keys import ClientKeys

_HEARD = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)
_HANG_UPS = 3  # connections that the daemon may close during a handshake with keys: it could not read what was meant for another


class Handshakes:
    """Monitor of one socket's handshakes: their failures, the use of another try, and the established connection. In a running loop."""

    def __init__(self, socket: zmq.asyncio.Socket, endpoint: str, *, with_keys: bool, on_refused: Callable[[KeyRefused], None]) -> None:
        """
        :param on_refused: called once, with the error.
        """
        self._refused: asyncio.Future[KeyRefused] = asyncio.get_running_loop().create_future()
        self._socket, self._endpoint, self._with_keys, self._on_refused = socket, endpoint, with_keys, on_refused
        self._monitor: Any = socket.get_monitor_socket(_HEARD)
        self._hang_ups = self._made = 0
        self._there = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start to monitor the handshakes."""
        self._task = asyncio.create_task(self._hear())

    def way(self) -> int:
        """Return the number of the connection that takes the next request: the established one, else the next."""
        return self._made if self._there else self._made + 1

    def stands(self, way: int) -> bool:
        """Return True if a connection is established: a reply cannot come on any other."""
        return self._there and way == self._made

    def check(self) -> None:
        """
        :raises KeyRefused: if the daemon does not let this client in.
        """
        if self._refused.done():
            raise self._refused.result()

    async def unless_refused(self, work: asyncio.Future[Any]) -> None:
        """Wait for some work, which is cancelled where it cannot end.

        :raises KeyRefused: if the daemon does not let this client in.
        """
        try:
            await asyncio.wait([work, self._refused], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.check()
        finally:
            work.cancel()

    async def stop(self) -> None:
        """Hear no more; before the socket is closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.close()

    def close(self) -> None:
        """Let go of the events' socket."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)

    async def _hear(self) -> None:
        while not self._refused.done():
            event = parse_monitor_message(await self._monitor.recv_multipart())
            why = self._why(event["event"], event["value"])
            if why is not None:
                error = KeyRefused(f"{self._endpoint} {why}")
                self._refused.set_result(error)
                self._on_refused(error)

    def _why(self, event: int, value: int) -> str | None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._hang_ups, self._made, self._there = 0, self._made + 1, True
        elif event == zmq.EVENT_DISCONNECTED:
            self._there = False
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return "does not know this client's key; put its public key into the daemon's folder of clients (wire.client_keys)"
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            if self._with_keys:
                return "uses no keys; leave wire.client_key and wire.server_key out"
            return "lets in only clients with keys; name yours in wire.client_key, and the daemon's public one in wire.server_key"
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and self._with_keys:
            self._hang_ups += 1
            if self._hang_ups >= _HANG_UPS:
                return "hangs up: most likely its key differs from wire.server_key, or it uses no keys"
        return None


log = structlog.get_logger("batos.client")

MESSAGE_BYTES = MIB  # the daemon's default limit

_TRIES = 2  # tries of a request within its time
_EVENTS_KEPT = 4096  # events kept for a watch whose reader is slow; beyond that, all but the final event are dropped
_LINGER_MS = 200
_PING_MS, _SILENCE_MS = 15_000, 60_000  # equal to the daemon's; only a missing answer to pings reveals a machine that was switched off


class Connection:
    """Connection that `batos.wire.client.Client` uses: an async context manager.

    :param endpoint: endpoint of the daemon; default: the first of the setting `wire.listen`, from environment and `batos.toml` as for the
        command line. That is a local socket of this user, unless they say otherwise. The default keys then come from the settings, too.
    :param timeout_s: seconds to wait for an answer that is not delayed on purpose.
    :param message_bytes: largest message to send; the daemon's setting of that name, if it was changed.
    :param keys: keys to authenticate with, if the daemon requires keys (`ClientKeys.load`).
    """

    def __init__(
        self,
        endpoint: str | None = None,
        timeout_s: float = 10.0,
        *,
        message_bytes: int = MESSAGE_BYTES,
        keys: ClientKeys | None = None,
    ) -> None:
        if endpoint is None:
            settings = config.load()
            endpoint, keys = to_connect(settings.endpoints[0]), keys or ClientKeys.of(settings)
        self.endpoint = endpoint
        self._keys = keys
        self.timeout_s = timeout_s
        self._message_bytes = message_bytes
        self._refs = itertools.count(1)
        self._streams: dict[int, _Stream] = {}
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, _PING_MS)  # for ipc:// too: an SSH tunnel may be behind it
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS)
        if self.endpoint.startswith("tcp://["):
            self._socket.setsockopt(zmq.IPV6, 1)
        if self._keys is not None:
            self._keys.use(self._socket)
        self._handshakes = Handshakes(self._socket, self.endpoint, with_keys=self._keys is not None, on_refused=self._refuse)
        try:
            self._socket.connect(self.endpoint)
        except zmq.ZMQError as e:
            self._handshakes.close()
            self._context.destroy(linger=0)
            raise EndpointError(f"no endpoint: {self.endpoint!r} ({e.strerror}); write tcp://HOST:PORT or ipc://PATH") from None
        self._reader = asyncio.create_task(self._read())
        self._handshakes.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None
            await self._handshakes.stop()
            self._socket.close()
            await asyncio.to_thread(self._context.term)

    async def _follow(self, op: str, **fields: Any) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the replies to a request that is answered by many, as they come; it is asked again after a silence."""
        with self._stream(op, **fields) as stream:
            begun = silent = False
            while True:
                try:
                    async with asyncio.timeout(self.timeout_s):
                        if stream.due:
                            await self._send(stream)
                        event = await stream.replies.get()
                except TimeoutError:
                    if silent:
                        raise self._unavailable(self.timeout_s * 2) from None
                    # A repeated request means the same watch: a daemon that still has it reports the mission's current state.
                    silent = stream.due = True
                    continue
                silent = False
                if begun and event.get("code") == Busy.code:
                    continue  # the daemon is stopping; repeat the request after a silence
                yield _checked(event)
                begun = True

    async def _ask(self, op: str, *, hold_s: float = 0.0, **fields: Any) -> dict[str, Any]:
        """Send one request and return its first reply; an error reply is raised. `hold_s`: time it may be held back on purpose."""
        begun = asyncio.get_running_loop().time()
        with self._stream(op, **fields) as stream:
            for _ in range(_TRIES):
                with contextlib.suppress(TimeoutError):
                    return _checked(await self._reply(stream, hold_s))
        raise self._unavailable(round(asyncio.get_running_loop().time() - begun, 1))

    async def _reply(self, stream: _Stream, hold_s: float) -> dict[str, Any]:
        """Send a request. Return its next reply. Wait out a long delay in short intervals while the connection lasts.

        :raises TimeoutError: if no reply can come any more.
        """
        now = asyncio.get_running_loop().time
        spell_s = min(hold_s, self.timeout_s) + self.timeout_s / _TRIES
        end, way = now() + hold_s + self.timeout_s / _TRIES, self._handshakes.way()
        async with asyncio.timeout(spell_s):
            await self._send(stream)
        while True:
            try:
                async with asyncio.timeout(min(spell_s, end - now())):
                    return await stream.replies.get()
            except TimeoutError:
                if now() >= end or not self._handshakes.stands(way):
                    raise

    @contextlib.contextmanager
    def _stream(self, op: str, **fields: Any) -> Iterator[_Stream]:
        """Open a request with a new `ref`, and a queue for the replies that carry it."""
        if self._reader is None:
            raise RuntimeError("a Client is used inside `async with Client(...) as client:`")
        ref = next(self._refs)
        stream = _Stream(_payload({"op": op, "ref": ref, **{name: value for name, value in fields.items() if value is not None}}))
        self._handshakes.check()
        if len(stream.payload) > self._message_bytes:
            raise MessageTooLarge(f"{op}: a message of {len(stream.payload)} bytes; at most {self._message_bytes} are taken")
        self._streams[ref] = stream
        try:
            yield stream
        finally:
            del self._streams[ref]

    async def _send(self, stream: _Stream) -> None:
        stream.due = False
        sending = asyncio.ensure_future(self._socket.send(stream.payload))  # already a future: `ensure_future` only tells the type checker
        if not sending.done():  # else a socket without a peer (after a refusal) would hold the request until its timeout
            await self._handshakes.unless_refused(sending)
        sending.result()

    async def _read(self) -> None:
        while True:
            payload = await self._socket.recv()
            try:
                reply = json.loads(payload)
            except (ValueError, RecursionError):
                reply = None
            if isinstance(reply, dict) and isinstance(reply.get("ref"), str | int | None):
                self._dispatch(reply)
            else:
                log.warning("no reply of a BAT OS daemon", endpoint=self.endpoint, bytes=len(payload))

    def _dispatch(self, reply: dict[str, Any]) -> None:
        stream = self._streams.get(reply.pop("ref", None))
        if stream is None and reply.get("type") == "error" and self._streams:
            # The message was too large: the daemon stopped reading before its `ref`.
            stream = max(self._streams.values(), key=lambda open_one: len(open_one.payload))
        if stream is not None:  # else this answers a request that was sent twice or given up
            stream.put(reply)

    def _refuse(self, error: KeyRefused) -> None:
        """Fail all open requests: the daemon answers none."""
        for stream in self._streams.values():
            stream.put({"type": "error", **error.to_wire()})

    def _unavailable(self, waited_s: float) -> DaemonUnavailable:
        return DaemonUnavailable(f"no daemon answers at {self.endpoint} (waited {waited_s:g} s); start one with `batos run`")


class _Stream:
    """One request and the replies to it."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.due = True  # waits to be sent
        self.replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._dropped = 0

    def put(self, reply: dict[str, Any]) -> None:
        """Keep a reply; events are dropped and counted while they are not taken."""
        if self.replies.qsize() >= _EVENTS_KEPT and reply.get("type") in ("state", "token", "revised", "progress", "model", "file"):
            self._dropped += 1 + reply.get("dropped", 0)
            return
        if self._dropped:
            reply["dropped"] = self._dropped + reply.get("dropped", 0)
            self._dropped = 0
        self.replies.put_nowait(reply)


def _payload(request: dict[str, Any]) -> bytes:
    try:
        return json.dumps(request, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError) as e:
        raise InvalidRequest(f"{request['op']}: {_unwritable(request, e)}") from None


def _unwritable(request: dict[str, Any], error: Exception) -> str:
    """Return why JSON cannot express the value. Replace messages of Python that describe only its internals."""
    words = f"cannot be written as JSON: {error}"
    if isinstance(error, UnicodeEncodeError):
        words = "has an invalid character, such as a byte that is not UTF-8"
    elif "JSON compliant" in str(error):
        words = "has infinity or NaN in it, which JSON does not allow"
    for name, value in request.items():
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError, RecursionError):
            return f"`{name}` {words}"
    return words


def _checked(reply: dict[str, Any]) -> dict[str, Any]:
    if reply.get("type") == "error":
        raise from_wire(reply)
    return reply
