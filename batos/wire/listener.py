"""The ROUTER socket of the daemon: requests in, replies out, and nothing that a peer sends or fails to read stops it.

One turn (`_pump`): send what is queued, then read a bounded batch. Each good request becomes a task of its own that calls
the handler; a bad one is answered at once. The socket is used on the loop's thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Container, Sequence
from typing import Protocol

import structlog
import zmq

from batos.config import Settings
from batos.errors import BatosError, BatosSignal, Busy, KeyRefused, RoleRefused
from batos.wire import strict_json
from batos.wire.authority import Authority
from batos.wire.endpoints import bind, prepare
from batos.wire.inbox import Inbox, Message
from batos.wire.keys import DOMAIN, Gate
from batos.wire.outbox import ClientHandle, Outbox, Peer
from batos.wire.parsing import Limits, Refused, parse_request
from batos.wire.schemas import Request

log = structlog.get_logger("batos.wire")

_BATCH_FRAMES = 256  # read in one turn; then the rest of the daemon has its turn
_REFUSAL_ROOM = 8  # messages up to this many times the limit are read, to be answered too_large; above, libzmq hangs up
_READ_AHEAD = 16  # messages that libzmq reads for us per connection
_SEND_AHEAD = 256  # replies that libzmq takes from us per connection


class Handler(Protocol):
    """Who answers requests."""

    async def handle(self, request: Request, client: ClientHandle) -> None:
        """Answer `request` through `client`, now or later.

        A BatosError raised here becomes the error reply; any other exception the error reply `internal`.
        """


class Listener:
    """Listens at `endpoints` and hands requests to `handler`. `bound` holds the endpoints it really got."""

    def __init__(self, endpoints: Sequence[str], settings: Settings, handler: Handler) -> None:
        self.bound: list[str] = []
        self._endpoints = endpoints
        self._settings = settings
        self._limits = Limits.of(settings)
        self._handler = handler
        self._working: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, asyncio.Task[None]] = {}
        self._serials = itertools.count()
        self._scheduled = False
        self._stopping = False
        self._socket: zmq.Socket[bytes] | None = None
        self._gate: Gate | None = None

    async def start(self) -> None:
        """Bind every endpoint and begin to read.

        :raises EndpointError: if one of them cannot be bound or may not be; then none is.
        :raises ConfigError: if the daemon's key cannot be used.
        """
        self._gate = Gate(self._settings) if self._settings.curve_secret else None
        self._authority = Authority(self._settings, None if self._gate is None else self._gate.clients)
        for endpoint in self._endpoints:
            prepare(endpoint)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = context.socket(zmq.ROUTER)
        try:
            self._configure(socket)
            if self._gate is not None:
                self._gate.open(context, socket, self._looked)
            bound = [bind(socket, endpoint, guarded=self._gate is not None) for endpoint in self._endpoints]
        except BaseException:
            self._close_gate()
            context.destroy(linger=0)
            raise
        self._context, self._socket, self.bound = context, socket, bound
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox(socket, self._settings.message_bytes, with_keys=self._gate is not None)
        self._outbox = Outbox(socket, self._settings, self._schedule)
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._pump)
        self._schedule()  # the descriptor tells of changes only
        log.info("listening", endpoints=self.bound, keys=self._gate is not None)

    async def stop(self) -> None:
        """Take no more requests, finish those under way, let replies leave, close; `linger_s` in all, and a little for libzmq."""
        if self._socket is None or self._stopping:
            return
        self._stopping = True
        end = self._loop.time() + self._settings.linger_s
        # no unbind: libzmq would close the accepted connections with it, and the last replies would have nowhere to go
        await self._finish(end)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                await self._outbox.drained()
        self._loop.remove_reader(self._fd)
        self._outbox.close()
        left_s = max(end - self._loop.time(), min(self._settings.linger_s, 0.2))
        socket, self._socket = self._socket, None
        socket.close(linger=int(left_s * 1000))
        self._close_gate()
        await asyncio.to_thread(self._context.term)

    def _configure(self, socket: zmq.Socket[bytes]) -> None:
        settings = self._settings
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),  # tell of peers that are gone or do not read, instead of dropping in silence
            (zmq.ROUTER_HANDOVER, 0),  # nobody takes over the routing id of a connected client
            (zmq.ZAP_DOMAIN, DOMAIN.encode()),
            (zmq.MAXMSGSIZE, _REFUSAL_ROOM * settings.message_bytes),
            (zmq.RCVHWM, _READ_AHEAD),
            (zmq.SNDHWM, _SEND_AHEAD),
            (zmq.HANDSHAKE_IVL, int(settings.handshake_s * 1000)),
            (zmq.HEARTBEAT_IVL, int(settings.ping_s * 1000)),
            (zmq.HEARTBEAT_TIMEOUT, int(settings.silence_s * 1000)),
        ):
            socket.setsockopt(option, value)

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()

    def _looked(self, known: Container[bytes]) -> None:
        """The folder of clients was looked at: who is not in it any more hears nothing more."""
        if gone := self._outbox.shut_out(known):
            log.warning("clients_shut_out", connections=gone, hint="their keys were taken out of curve_clients")

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if self._socket is None:
            return
        self._outbox.flush()
        if self._stopping or len(self._working) >= self._settings.requests_at_once:
            self._socket.getsockopt(zmq.EVENTS)  # else the descriptor stays readable and the loop spins
            return
        for message in self._inbox.read(_BATCH_FRAMES):
            self._take(message)
        if not self._inbox.drained:
            self._schedule()

    def _take(self, message: Message) -> None:
        peer = self._outbox.peer(message.routing_id, message.key)
        if peer is None:
            busy = {"type": "error", **Busy("too many clients at once; try again later").to_wire()}
            self._outbox.send_now(strict_json.encode(busy), message.routing_id, message.enveloped)
        elif not self._outbox.stuck(peer):  # what cannot be answered is not begun
            self._answer(message, peer)

    def _answer(self, message: Message, peer: Peer) -> None:
        client = ClientHandle(self._outbox, peer, enveloped=message.enveloped, operates=self._authority.operates(message))
        if message.problem is not None:
            client.refuse(message.problem)
            return
        try:
            request = parse_request(message.payload, self._limits)
        except Refused as e:
            client.ref = e.ref
            client.refuse(e.error, e.mission)
            return
        client.ref = request.ref
        try:
            self._authority.check(request, message)
        except (KeyRefused, RoleRefused) as e:
            client.refuse(e, request.mission)
            return
        if request.waits and len(self._waiting) >= self._settings.waits_limit:
            client.refuse(Busy("too many clients wait for results; try again later, or use `watch`"), request.mission)
            return
        tasks = self._waiting if request.waits else self._working
        serial = next(self._serials)
        bounds = self._authority.bounds(request, message)
        tasks[serial] = self._loop.create_task(self._serve(serial, request, client, bounds))

    async def _serve(self, serial: int, request: Request, client: ClientHandle, bounds: bool) -> None:
        try:
            if bounds:
                await self._authority.check_paths(request)
            await self._handler.handle(request, client)
        except BatosError as e:
            client.refuse(e, request.mission)
        except asyncio.CancelledError:
            stopping = Busy("the daemon is stopping; ask again when it is back")
            client.refuse(stopping if self._stopping else BatosError("the request was given up"), request.mission)
            raise
        except Exception:
            log.exception("a request failed", op=request.op, id=request.mission)
            client.refuse(BatosError("something went wrong inside the daemon; its log says what"), request.mission)
        except BatosSignal as signal:  # such as ImageFailed, for whoever runs the loop
            told = {"message": "a request ended in a signal", "exception": signal, "task": asyncio.current_task()}
            self._loop.call_exception_handler(told)
        finally:  # here, as a callback of the task would be one more turn of the loop for each
            if len(self._working) >= self._settings.requests_at_once:
                self._schedule()  # reading was paused
            self._working.pop(serial, None)
            self._waiting.pop(serial, None)

    async def _finish(self, end: float) -> None:
        """Let the requests under way come to their end until `end`; those that wait for something are told to come again."""
        for task in self._waiting.values():
            task.cancel()
        if under_way := [*self._working.values(), *self._waiting.values()]:
            _, late = await asyncio.wait(under_way, timeout=max(0.0, end - self._loop.time()))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)
