"""Outbox: a bounded queue of replies for each client. Nothing ever waits for a client that does not read.

A reply is queued by its maker and sent by the listener's own turn of the loop. While a client does not read, its queue fills; then its
events are dropped, and the next message of the stream says how many. Replies stay, up to the limits. Everything here belongs to the
loop's thread.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Container
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import structlog
import zmq

from batos.config import Settings
from batos.errors import BatosError
from batos.wire import payloads
from batos.wire.endpoints import WireLimits

log = structlog.get_logger("batos.wire")

_NOW, _NOW_AND_MORE = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE)  # combining enum members costs more than sending
_RETRY_S = 0.01  # seconds between two tries to reach clients that did not read
_RETRIES = 64  # clients tried each time: thousands of dead readers must not slow the loop
_RETRIES_A_FLUSH = 4  # clients tried again with each flush: some readers were late only for a moment


class Recipient(Protocol):
    """Recipient of replies, as their makers see it: a client on the socket, or a part of this process that asks as one."""

    def send(self, reply: dict[str, Any], *, event: bool = False) -> None:
        """Take a reply; it never waits and never raises. On the loop's thread.

        :param event: whether it may be dropped when the recipient does not keep up.
        """

    @property
    def closed(self) -> bool:
        """Return True if no reader is left."""
        ...

    @property
    def operates(self) -> bool:
        """Return True if the client is an operator: it may change more than receivers, and grant that to methods."""
        ...

    @property
    def origin(self) -> str:
        """Return the origin of missions that this client gives: `client` or `console`."""
        ...

    @property
    def key(self) -> bytes:
        """Return the identifier that tells one client from another."""
        ...

    def __hash__(self) -> int: ...


class ClientHandle:
    """Address for the replies to one request: a client, and the `ref` by which it knows the request.

    Two handles are equal if their messages cannot be distinguished at the other end: watching twice under one `ref` is watching once.
    """

    __slots__ = ("_outbox", "_peer", "dropped", "enveloped", "operates", "ref")
    origin = "client"

    def __init__(self, outbox: Outbox, peer: Peer, *, enveloped: bool, ref: str | int | None = None, operates: bool = False) -> None:
        self._outbox = outbox
        self._peer = peer
        self.enveloped = enveloped
        self.ref = ref
        self.operates = operates
        self.dropped = 0  # events that this stream has lost since the client was last informed

    def send(self, reply: dict[str, Any], *, event: bool = False) -> None:
        """Queue `reply`; it never waits and never raises. To be called on the loop's thread.

        :param event: whether it may be dropped when the client does not read.
        """
        self._outbox.put(self, reply, event)

    def refuse(self, error: BatosError, mission: str | None = None) -> None:
        """Queue the error reply for `error`, naming the mission it is about."""
        self.send({"type": "error", **error.to_wire(), **({} if mission is None else {"id": mission})})

    @property
    def closed(self) -> bool:
        """Return True if the client is known to be gone. The daemon finds that out when it sends to the client."""
        return self._peer.closed or self._outbox.closed

    @property
    def key(self) -> bytes:
        """Return the identifier of the connected client. It proves nothing about its identity."""
        return self._peer.routing_id

    @property
    def peer(self) -> Peer:
        return self._peer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClientHandle):
            return NotImplemented
        return self._peer is other._peer and self.ref == other.ref and self.enveloped == other.enveloped

    def __hash__(self) -> int:
        return hash((id(self._peer), self.ref, self.enveloped))


class _Entry(NamedTuple):
    client: ClientHandle
    payload: bytes
    event: bool
    noted: int  # dropped events that this message reports


class Peer:
    """A connected client: its queue, and whether it reads. Alive as long as a request, a watch or a reply of its is."""

    __slots__ = ("__weakref__", "blocked", "bytes", "closed", "curve_key", "losing", "queue", "ready", "routing_id")

    def __init__(self, routing_id: bytes, curve_key: bytes = b"") -> None:
        self.routing_id = routing_id
        self.curve_key = curve_key
        self.queue: deque[_Entry] = deque()
        self.bytes = 0
        self.ready = False  # queued for the next flush
        self.blocked = False  # the peer did not take the last message that was tried
        self.losing = False  # replies were dropped, and the log reports it
        self.closed = False


class Outbox:
    """The queues of all clients of one ROUTER socket."""

    def __init__(self, socket: zmq.Socket[bytes], settings: Settings, wake: Callable[[], None]) -> None:
        """:param wake: asks the owner to call `flush` soon, and to read the socket after it: sending may swallow its read signal."""
        self._send = super(zmq.Socket, socket).send  # without the extra work for sockets of other kinds
        self._queue_limit = WireLimits.of(settings).client_queue
        self._queue_bytes = WireLimits.of(settings).client_queue_bytes
        self._total_bytes = WireLimits.of(settings).outbox_bytes
        self.clients_limit = WireLimits.of(settings).clients
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._peers: WeakValueDictionary[bytes, Peer] = WeakValueDictionary()
        self._ready: deque[Peer] = deque()
        self.blocked: deque[Peer] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.bytes = 0  # bytes of all queues together
        self.closed = False

    def peer(self, routing_id: bytes, curve_key: bytes = b"") -> Peer | None:
        """Return the client behind `routing_id`; None for a new one when there are as many as may be.

        :param curve_key: its public key, where the socket asks for keys. An id that comes back under another is another client.
        """
        peer = self._peers.get(routing_id)
        if peer is not None and peer.curve_key != curve_key:
            self._forget(peer)
        if peer is None or peer.closed:
            if len(self._peers) >= self.clients_limit:
                return None
            peer = self._peers[routing_id] = Peer(routing_id, curve_key)
        return peer

    def shut_out(self, known: Container[bytes]) -> int:
        """Let nothing more out to clients whose public keys are not among these, but what waits for them and they take now.

        :returns: how many they are.
        """
        gone = [peer for peer in self._peers.values() if peer.curve_key not in known]
        for peer in gone:
            self._drain(peer)  # the queue may contain a refusal
            self._forget(peer)
        return len(gone)

    def stuck(self, peer: Peer) -> bool:
        """Return True if another reply to this client could not be queued: it does not read, and its queue is full."""
        return peer.blocked and self._full(peer)

    def put(self, client: ClientHandle, reply: dict[str, Any], event: bool) -> None:
        """Queue a reply, or drop it if the client is gone or has too many waiting."""
        peer = client.peer
        if client.closed or not self._make_room(client, event):
            return
        payload = self._encoded(client, reply, event)
        if payload is None:
            return
        peer.queue.append(_Entry(client, payload, event, client.dropped))
        client.dropped = 0
        peer.bytes += len(payload)
        self.bytes += len(payload)
        self._idle.clear()
        if not peer.ready and not peer.blocked:
            peer.ready = True
            self._ready.append(peer)
            self._wake()

    def flush(self) -> None:
        """Send what the clients take now."""
        while self._ready:
            peer = self._ready.popleft()
            peer.ready = False
            self._drain(peer)
        self._try_blocked(_RETRIES_A_FLUSH)
        if not self.blocked:
            self._idle.set()
        elif self._retry is None and not self.closed:
            self._retry = self._loop.call_later(_RETRY_S, self._retry_blocked)

    def send_now(self, message: bytes, routing_id: bytes, enveloped: bool) -> None:
        """Try once to send to a client that has no queue; it is not kept."""
        try:
            self._transmit(routing_id, enveloped, message)
        except zmq.ZMQError as e:
            if e.errno not in (errno.EAGAIN, errno.EHOSTUNREACH):
                raise

    async def drained(self) -> None:
        """Wait until nothing is queued."""
        await self._idle.wait()

    def close(self) -> None:
        """Drop the queued replies; every handle is closed from now on."""
        self.closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for peer in (*self._ready, *self.blocked):
            self._forget(peer)
        self._ready.clear()
        self.blocked.clear()
        self._idle.set()

    def _full(self, peer: Peer) -> bool:
        return len(peer.queue) >= self._queue_limit or peer.bytes >= self._queue_bytes or (peer.blocked and self.bytes >= self._total_bytes)

    def _make_room(self, client: ClientHandle, event: bool) -> bool:
        peer = client.peer
        if not self._full(peer):
            return True
        if not peer.blocked:  # a burst of replies: the peer may still take them
            self._drain(peer)
            self._wake()
            if peer.closed or not self._full(peer):
                return not peer.closed
        if event:
            client.dropped += 1
            return False
        self._drop_events(peer)
        if not self._full(peer):
            return True
        if not peer.losing:
            peer.losing = True
            log.warning("replies dropped: a client does not read", client=peer.routing_id.hex(), queued=len(peer.queue), bytes=peer.bytes)
        return False

    def _drop_events(self, peer: Peer) -> None:
        kept: deque[_Entry] = deque()
        for entry in peer.queue:
            if entry.event:
                entry.client.dropped += 1 + entry.noted
                peer.bytes -= len(entry.payload)
                self.bytes -= len(entry.payload)
            else:
                kept.append(entry)
        peer.queue = kept

    def _encoded(self, client: ClientHandle, reply: dict[str, Any], event: bool) -> bytes | None:
        marks: dict[str, Any] = {} if client.ref is None else {"ref": client.ref}
        noted = {**reply, "dropped": client.dropped} if client.dropped else reply
        try:
            return payloads.encode({**noted, **marks} if marks else noted)
        except (ValueError, TypeError, RecursionError) as e:
            log.error("a reply cannot be written as JSON", type=reply.get("type"), id=reply.get("id"), error=str(e))
        if event:
            return None
        mission = {"id": reply["id"]} if isinstance(reply.get("id"), str) else {}
        refusal = {"type": "error", "code": BatosError.code, "message": "the reply cannot be written as JSON; see the daemon's log"}
        return payloads.encode({**refusal, **mission, **marks})

    def _drain(self, peer: Peer) -> None:
        """Send the queue of `peer` until it takes no more."""
        queue = peer.queue
        while queue:
            client, payload, _, _ = queue[0]
            try:
                self._transmit(peer.routing_id, client.enveloped, payload)
            except zmq.Again:
                if not peer.blocked:
                    peer.blocked = True
                    self.blocked.append(peer)
                return
            except zmq.ZMQError as e:
                if e.errno != errno.EHOSTUNREACH:
                    raise
                self._forget(peer)
                return
            queue.popleft()
            peer.bytes -= len(payload)
            self.bytes -= len(payload)
        peer.losing = False

    def _transmit(self, routing_id: bytes, enveloped: bool, payload: bytes) -> None:
        # Only the first frame can be refused. Once libzmq has taken it, the rest of the message follows.
        send = self._send
        send(routing_id, _NOW_AND_MORE)
        if enveloped:
            send(b"", _NOW_AND_MORE)
        send(payload, _NOW)

    def _retry_blocked(self) -> None:
        self._retry = None
        self._try_blocked(_RETRIES)
        self._wake()

    def _try_blocked(self, most: int) -> None:
        for _ in range(min(most, len(self.blocked))):
            peer = self.blocked.popleft()
            peer.blocked = False
            self._drain(peer)  # `_drain` queues the peer again if it still does not read

    def _forget(self, peer: Peer) -> None:
        """Drop everything queued for a client that is gone."""
        peer.closed = True
        peer.queue.clear()
        self.bytes -= peer.bytes
        peer.bytes = 0
        if self._peers.get(peer.routing_id) is peer:
            del self._peers[peer.routing_id]
