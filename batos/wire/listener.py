"""The ROUTER socket of the daemon: requests in, replies out. Nothing that a peer sends or fails to read stops it.

One turn (`_pump`) sends the queued replies, then reads a bounded batch. Each good request becomes a task of its own that calls the
handler; a bad one is answered at once. The socket is used on the loop's thread only.

Frames become messages in bounded memory and bounded steps, whatever peers send. The library libzmq limits the bytes of one frame only, so
frames are counted and added up here. Those of a message that is too large are dropped as they arrive.

`Authority` holds the rights of a message's sender: its role, and the folders that it may name. A sender is identified by facts that it
cannot choose. They are the CURVE key of its connection, or the user who opened a local socket, as the kernel reports. Over TCP without
keys, the only known fact is that the sender is on this machine. `docs/wire.md` lists each operation's role.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog
import zmq

from batos.config import Settings
from batos.errors import (
    BatosError,
    BatosSignal,
    Busy,
    InvalidRequest,
    KeyRefused,
    MalformedMessage,
    MessageTooLarge,
    PathRefused,
    RoleRefused,
)
from batos.wire import payloads
from batos.wire.admin_schemas import BackupRequest
from batos.wire.endpoints import WireLimits, bind, prepare
from batos.wire.fields import ROLES, Request, Role
from batos.wire.keys import DOMAIN, Clients, KeyGate, KnownClient
from batos.wire.outbox import ClientHandle, Outbox, Peer
from batos.wire.payloads import PayloadLimits, RefusedPayload, parse_request

log = structlog.get_logger("batos.wire")

_NOW, _MORE = int(zmq.DONTWAIT), int(zmq.RCVMORE)
_FRAMES_KEPT = 3  # routing id, empty delimiter of a REQ, payload


class Message(NamedTuple):
    """One message as it arrived. `problem` says why it cannot be a request."""

    routing_id: bytes
    enveloped: bool  # True if the sender is a REQ socket or behaves like one
    payload: bytes
    problem: InvalidRequest | None = None
    key: bytes = b""  # the public key of the client; empty if the socket asks for no keys
    address: str = ""  # the host of the client; for a local socket `localhost:UID:GID:PID` of the process that opened it


class Inbox:
    """Messages that arrive at `socket`, at most `WireLimits.message_bytes` each.

    A message that did not come by ZMTP/3 is dropped. Earlier versions take any bytes for frames, a browser's, too. libzmq refuses them as
    the listener configures it; this is a second, independent check. Only ZMTP/3 tells the type of the sender's socket.
    """

    def __init__(self, socket: zmq.Socket[bytes], message_bytes: int, *, with_keys: bool = False) -> None:
        """
        :param with_keys: whether the socket asks for keys; then each message has the one of its sender.
        """
        self._socket = socket
        self._limit = message_bytes
        self._with_keys = with_keys
        self.drained = False  # True if the last `read` emptied the socket
        self._start()

    def _start(self) -> None:
        self._kept: list[bytes] = []
        self._count = 0
        self._bytes = 0
        self._key, self._address, self._spoken = b"", "", True

    def read(self, frames: int) -> Iterator[Message]:
        """Yield the messages that are complete after at most `frames` more frames; never blocks."""
        self.drained = False
        receive, option = self._socket.recv, self._socket.getsockopt
        for _ in range(frames):
            try:
                if not self._count:
                    self._begin(receive(_NOW, copy=False))
                    continue  # a routing id is never the last frame
                self._take(receive(_NOW))
            except zmq.Again:
                self.drained = True
                return
            if not option(_MORE):
                message, spoken = self._message(), self._spoken
                self._start()
                if spoken:
                    yield message
                else:
                    log.warning("foreign_bytes", why="a connection spoke a protocol before ZMTP/3; its message is dropped")

    def _begin(self, frame: zmq.Frame) -> None:
        """Take a routing id, and note what its connection is known by."""
        self._kept.append(frame.bytes)
        self._count = 1
        self._spoken = bool(_told(frame, "Socket-Type"))
        self._address = _told(frame, "Peer-Address")
        if self._with_keys:  # a message without a key is refused like one with an unknown key
            self._key = _told(frame, "User-Id").encode()

    def _take(self, frame: bytes) -> None:
        self._count += 1
        self._bytes += len(frame)
        if self._count <= _FRAMES_KEPT:
            self._kept.append(frame if self._bytes <= self._limit else b"")

    def _message(self) -> Message:
        if self._count == 2 and self._bytes <= self._limit:  # the common case
            return Message(self._kept[0], False, self._kept[1], None, self._key, self._address)
        routing_id, *frames = self._kept
        enveloped = self._count > 2 and self._kept[1] == b""
        return Message(routing_id, enveloped, frames[-1] if frames else b"", self._problem(enveloped), self._key, self._address)

    def _problem(self, enveloped: bool) -> InvalidRequest | None:
        if self._bytes > self._limit:
            return MessageTooLarge(f"a message of {self._bytes} bytes; at most {self._limit} are taken (setting `message_bytes`)")
        if self._count > _FRAMES_KEPT:
            return MessageTooLarge(f"a message of {self._count - 1} frames; it is one JSON object in one frame")
        if self._count == _FRAMES_KEPT and not enveloped:
            return MalformedMessage("a message is one JSON object in one frame, after an empty one at most, as a REQ sends it")
        return None


def _told(frame: zmq.Frame, what: str) -> str:
    """Return a property of the connection by which a frame came; "" if libzmq has none of that name."""
    try:
        return str(frame.get(what))
    except zmq.ZMQError:
        return ""


_LOCAL = "localhost"  # libzmq's name for the host of a local socket; no numeric address reads like this


class Authority:
    """Decides on each request, by its sender. On the loop's thread."""

    def __init__(self, settings: Settings, clients: Clients | None = None) -> None:
        """
        :param clients: the admitted keys, if the socket asks for keys.
        """
        self._clients = clients
        self._local_role: Role = settings.wire.role
        self._backups = settings.backups
        self._folders = (settings.data, settings.backups, *map(Path, settings.wire.folders))
        self._own = os.getuid()

    def check(self, request: Request, message: Message) -> None:
        """Check that a sender may make a request.

        :raises KeyRefused: if the sender's key was removed from the folder of clients after it connected.
        :raises RoleRefused: if the sender's role does not allow the request.
        """
        if self._clients is not None and message.key not in self._clients:
            # Libzmq checks a key once per connection and cannot close a single connection.
            raise KeyRefused("this client's key was taken out of the daemon's folder of clients (wire.client_keys)")
        if ROLES.index(request.role) > ROLES.index(role := self._role(message)):
            raise RoleRefused(_refusal(request, role, with_keys=self._clients is not None))

    def operates(self, message: Message) -> bool:
        """Return True if a message is from an operator."""
        return self._role(message) == ROLES[-1]

    def bounds(self, request: Request, message: Message) -> bool:
        """Return True if the paths that a request names must be checked: see `check_paths`."""
        return bool(request.named) and not self._is_own(message)

    async def check_paths(self, request: Request) -> None:
        """See that all that a request names is in folders that may be named, wherever links lead.

        :raises PathRefused: naming the first that is not.
        """
        for named in request.named:
            path = self._backups / named if isinstance(request, BackupRequest) else Path(named)
            if not await asyncio.to_thread(_is_within, path, self._folders):
                raise PathRefused(
                    f"{request.op}: {named!r} is in no folder that this client may name. Allowed are the data folder and what the "
                    f"daemon's setting `wire.folders` lists: put {os.fspath(path.parent)!r} there, or ask as the daemon's own user at ipc://"
                )

    def _role(self, message: Message) -> Role:
        if self._is_own(message):
            return "operate"
        return self._local_role if self._clients is None else self._clients.role(message.key)

    def _is_own(self, message: Message) -> bool:
        """Return True if a message came by a local socket that the daemon's user or root opened: that user could act without the daemon."""
        host, *ids = message.address.split(":")
        return host == _LOCAL and len(ids) == 3 and ids[0].isdecimal() and int(ids[0]) in (self._own, 0)


def _refusal(request: Request, role: Role, *, with_keys: bool) -> str:
    needs = f"{request.op} needs the role {request.role}"
    if with_keys:
        return f"{needs}, and this client's key has the role {role}; beside the daemon, `batos keys role NAME {request.role}` changes that"
    return (
        f"{needs}, and clients without keys have the role {role} here. Ask as the daemon's own user at its ipc:// endpoint, or raise the "
        "daemon's setting `wire.role`"
    )


def _is_within(path: Path, folders: tuple[Path, ...]) -> bool:
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in folders)


_BATCH_FRAMES = 256  # frames read in one turn of the loop; then other tasks get their turn
_REFUSAL_ROOM = 8  # messages up to this multiple of the limit are read and answered with too_large; libzmq hangs up above it
_READ_AHEAD = 16  # messages that libzmq reads ahead per connection
_SEND_AHEAD = 256  # replies that libzmq buffers per connection


class RequestHandler(Protocol):
    """Handler of requests."""

    async def handle(self, request: Request, client: ClientHandle) -> None:
        """Answer `request` through `client`, now or later.

        A BatosError raised here becomes the error reply; any other exception the error reply `internal`.
        """


class Listener:
    """Listens at `endpoints` and hands requests to `handler`. `bound` holds the endpoints it really got."""

    def __init__(self, endpoints: Sequence[str], settings: Settings, handler: RequestHandler) -> None:
        self.bound: list[str] = []
        self._endpoints = endpoints
        self._settings, self._wire = settings, WireLimits.of(settings)
        self._limits = PayloadLimits.of(settings)
        self._handler = handler
        self.working: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, asyncio.Task[None]] = {}
        self._serials = itertools.count()
        self._scheduled = False
        self._stopping = False
        self._socket: zmq.Socket[bytes] | None = None
        self._gate: KeyGate | None = None

    async def start(self) -> None:
        """Bind every endpoint and begin to read.

        :raises EndpointError: if an endpoint cannot be bound or is not allowed; then none is bound.
        :raises ConfigError: if the daemon's key cannot be used.
        """
        self._gate = KeyGate(self._settings) if self._settings.wire.secret_key else None
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
        self._inbox = Inbox(socket, self._wire.message_bytes, with_keys=self._gate is not None)
        self.outbox = Outbox(socket, self._settings, self._schedule)
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._pump)
        self._schedule()  # the descriptor signals changes only
        log.info("listening", endpoints=self.bound, keys=self._gate is not None)

    async def stop(self) -> None:
        """Take no more requests, finish those under way, let replies leave, close: `WireLimits.linger_s`, and a little for libzmq."""
        if self._socket is None or self._stopping:
            return
        self._stopping = True
        end = self._loop.time() + self._wire.linger_s
        # Do not unbind: libzmq would also close the accepted connections, and the last replies would be lost.
        await self._finish(end)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                await self.outbox.drained()
        self._loop.remove_reader(self._fd)
        self.outbox.close()
        left_s = max(end - self._loop.time(), min(self._wire.linger_s, 0.2))
        socket, self._socket = self._socket, None
        socket.close(linger=int(left_s * 1000))
        self._close_gate()
        await asyncio.to_thread(self._context.term)

    @property
    def wire_key(self) -> str:
        """Return the public key of this daemon; empty where it asks for no keys."""
        return "" if self._gate is None else self._gate.public

    def admit_kernels(self, keys: Mapping[str, str]) -> None:
        """Let in the other kernels of the image, to read, and no kernel that was let in before.

        :param keys: their names, by public key.
        """
        if self._gate is not None:
            self._gate.clients.kernels = {key.encode(): KnownClient(name, ROLES[0]) for key, name in keys.items() if key}

    def _configure(self, socket: zmq.Socket[bytes]) -> None:
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),  # report peers that are gone or do not read, instead of dropping messages silently
            (zmq.ROUTER_HANDOVER, 0),  # no client may take over the routing id of a connected client
            (zmq.ZAP_DOMAIN, DOMAIN.encode()),
            (zmq.MAXMSGSIZE, _REFUSAL_ROOM * self._wire.message_bytes),
            (zmq.RCVHWM, _READ_AHEAD),
            (zmq.SNDHWM, _SEND_AHEAD),
            (zmq.HANDSHAKE_IVL, int(self._wire.handshake_s * 1000)),
            (zmq.HEARTBEAT_IVL, int(self._wire.ping_s * 1000)),
            (zmq.HEARTBEAT_TIMEOUT, int(self._wire.silence_s * 1000)),
        ):
            socket.setsockopt(option, value)

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()

    def _looked(self, known: Container[bytes]) -> None:
        """Close clients whose keys are no longer in the folder, after a look into it."""
        if gone := self.outbox.shut_out(known):
            log.warning("clients_shut_out", connections=gone, hint="their keys were taken out of wire.client_keys")

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if self._socket is None:
            return
        self.outbox.flush()
        if self._stopping or len(self.working) >= self._wire.requests:
            self._socket.getsockopt(zmq.EVENTS)  # else the descriptor stays readable and the loop spins
            return
        for message in self._inbox.read(_BATCH_FRAMES):
            self._take(message)
        if not self._inbox.drained:
            self._schedule()

    def _take(self, message: Message) -> None:
        peer = self.outbox.peer(message.routing_id, message.key)
        if peer is None:
            busy = {"type": "error", **Busy("too many clients at once; try again later").to_wire()}
            self.outbox.send_now(payloads.encode(busy), message.routing_id, message.enveloped)
        elif not self.outbox.stuck(peer):  # a request that cannot be answered is not started
            self._answer(message, peer)

    def _answer(self, message: Message, peer: Peer) -> None:
        client = ClientHandle(self.outbox, peer, enveloped=message.enveloped, operates=self._authority.operates(message))
        if message.problem is not None:
            client.refuse(message.problem)
            return
        try:
            request = parse_request(message.payload, self._limits)
        except RefusedPayload as e:
            client.ref = e.ref
            client.refuse(e.error, e.mission)
            return
        client.ref = request.ref
        try:
            self._authority.check(request, message)
        except (KeyRefused, RoleRefused) as e:
            client.refuse(e, request.mission)
            return
        if request.waits and len(self._waiting) >= self._wire.waits:
            client.refuse(Busy("too many clients wait for results; try again later, or use `watch`"), request.mission)
            return
        tasks = self._waiting if request.waits else self.working
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
            client.refuse(BatosError("the daemon failed inside; its log says why"), request.mission)
        except BatosSignal as signal:  # for example ImageFailed: the owner of the loop handles it
            told = {"message": "a request ended in a signal", "exception": signal, "task": asyncio.current_task()}
            self._loop.call_exception_handler(told)
        finally:  # not in a callback of the task, which would cost each request one more turn of the loop
            if len(self.working) >= self._wire.requests:
                self._schedule()  # reading was paused
            self.working.pop(serial, None)
            self._waiting.pop(serial, None)

    async def _finish(self, end: float) -> None:
        """Let the requests under way finish until `end`. Cancel requests that wait; their clients ask again."""
        for task in self._waiting.values():
            task.cancel()
        if under_way := [*self.working.values(), *self._waiting.values()]:
            _, late = await asyncio.wait(under_way, timeout=max(0.0, end - self._loop.time()))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)
