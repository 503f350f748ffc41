"""Metrics over HTTP, for Prometheus on this machine: where they are served, who may read them, how many at a time, and for how long."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog

from batos.errors import EndpointError
from batos.loopback import bracketed, is_foreign, names_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = structlog.get_logger("batos")

READERS = 8  # at the same time; one more cuts off the one that came first
READ_S = 10.0  # for a reader to say what it wants, and to take it
_THREADS = 4 * READERS  # those that are still at work for readers that were cut off among them; who comes then is turned away

Environ = dict[str, Any]
App = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class Exporter:
    """Serves a registry from a thread of its own until `stop`."""

    def __init__(self, registry: CollectorRegistry, address: str) -> None:
        """
        :param address: host:port, on loopback; port 0 picks one.
        :raises EndpointError: where that is no loopback address, or it is taken.
        """
        from prometheus_client import make_wsgi_app

        host, port = loopback(address)
        try:
            self._server = _Server(host, port)
        except OSError as e:
            raise EndpointError(f"metrics cannot be served at {address}: {e.strerror}; name another port in the setting metrics") from None
        self.address = f"{bracketed(host)}:{self._server.server_port}"
        self._server.set_app(_guarded(make_wsgi_app(registry), host, self._server.server_port))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the address."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _guarded(app: App, host: str, port: int) -> App:
    """An application that answers only to its own name, and to no page of another site."""
    names = names_of(host, port)

    def answer(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
        if headers.get("host", "").lower() not in names:
            status, why = "421 Misdirected Request", f"Metrics are read at {bracketed(host)}:{port} or localhost:{port} only.\n"
        elif is_foreign(headers, names):
            status, why = "403 Forbidden", "A page of another site made this request.\n"
        else:
            return app(environ, start)
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [why.encode()]

    return answer


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: Prometheus comes every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each reader, as long as there are few."""

    daemon_threads = True
    request_queue_size = 128  # with five, one that comes in a crowd would wait for seconds
    allow_reuse_port = False  # a port that is taken is to be told of

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._lock = threading.Lock()
        self._readers: dict[socket.socket, float] = {}  # since when; the first to come are first
        self._at_work = 0
        super().__init__((host, port), _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Tell whether there is a thread for one more reader."""
        with self._lock:
            return self._at_work < _THREADS

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a reader in a thread."""
        with self._lock:
            while len(self._readers) >= READERS:
                self._cut_off(next(iter(self._readers)))
            self._readers[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a reader, in its thread."""
        with self._lock:
            self._at_work += 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._at_work -= 1

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._readers.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off who is slow; called twice a second."""
        with self._lock:
            for request, since in list(self._readers.items()):
                if time.monotonic() - since > READ_S:
                    self._cut_off(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell the log of what failed; a reader that went away, or was cut off, is no failure."""
        if not isinstance(sys.exception(), OSError):
            log.exception("metrics_not_served")

    def _cut_off(self, request: socket.socket) -> None:
        """End a connection; its thread, which waits for it, closes it."""
        del self._readers[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


def loopback(address: str) -> tuple[str, int]:
    """Host and port of the setting metrics.

    :raises EndpointError: where they are none, or other machines could reach them.
    """
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        if not 0 <= int(port) <= 65535:
            raise ValueError(port)
        if not ipaddress.ip_address(host).is_loopback:
            raise EndpointError(f"metrics are served on loopback only; {address!r} is not: name 127.0.0.1:PORT in the setting metrics")
        return host, int(port)
    except ValueError:
        raise EndpointError(f"setting metrics: {address!r} is no host:port; name 127.0.0.1:PORT") from None
