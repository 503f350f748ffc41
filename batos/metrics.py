"""Metrics in the format of Prometheus, on a loopback port that the setting `wire.metrics` names.

Counters follow the events of the bus and the ends of inferences. Gauges of states (the image's size, the models in memory) are computed
when a reader asks. Names and units follow Prometheus' own practice (prometheus.io/docs/practices/naming): seconds, bytes, `_total` for
counters.

`Exporter` serves the metrics over HTTP to readers on this machine: a few at a time, each for a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog

from batos.bridge.inference import ChatReply, ChatRequest, Inference
from batos.bus import EventBus, MemoryQueried, MethodRan, MissionEnded, NoticeSent, SourceAudited, ToolCalled
from batos.errors import EndpointError, InferenceFailed
from batos.loopback import bracketed, is_foreign, names_of
from batos.mind.events import Durations

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.metrics_core import Metric

log = structlog.get_logger("batos")

READERS = 8  # readers at the same time; one more cuts off the oldest
_LOOK_S = 0.5  # seconds between two looks for slow readers, as long as there are readers
READ_S = 10.0  # seconds for a reader to send its request and receive the reply
_THREADS = 4 * READERS  # threads, including those that still serve readers that were cut off; further readers are turned away

Environ = dict[str, Any]
App = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class Exporter:
    """Serves a registry from a thread of its own until `stop`."""

    def __init__(self, registry: CollectorRegistry, address: str) -> None:
        """:param address: host:port, on loopback; port 0 picks one.
        :raises EndpointError: if that is not a loopback address, or it is taken.
        """
        from prometheus_client import make_wsgi_app

        host, port = loopback_address(address)
        try:
            self._server = _Server(host, port)
        except OSError as e:
            raise EndpointError(
                f"metrics cannot be served at {address}: {e.strerror}; name another port in the setting wire.metrics"
            ) from None
        self.address = f"{bracketed(host)}:{self._server.server_port}"
        self._server.set_app(_guarded(make_wsgi_app(registry), host, self._server.server_port))
        self._thread = threading.Thread(target=self._server.serve_until_ended, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the address."""
        self._server.end()
        self._thread.join()
        self._server.server_close()


def _guarded(app: App, host: str, port: int) -> App:
    """Return an application that answers only to its own name, and to no page of another site."""
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
    request_queue_size = 128  # with the default of five, a reader in a crowd would wait for seconds
    allow_reuse_port = False  # report a port that is taken
    timeout = 0  # of `handle_request`: a connection that is gone again is not waited for

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._lock = threading.Lock()
        self._readers: dict[socket.socket, float] = {}  # connection: its start; the oldest comes first
        self._at_work = 0
        self._ends, self._ended = socket.socketpair()
        super().__init__((host, port), _Handler)

    def serve_until_ended(self) -> None:
        """Answer readers until `end`; without readers the thread sleeps."""
        with selectors.DefaultSelector() as ready:
            ready.register(self, selectors.EVENT_READ)
            ready.register(self._ended, selectors.EVENT_READ)
            while self._ended not in (found := [key.fileobj for key, _ in ready.select(_LOOK_S if self._readers else None)]):
                if found:
                    self.handle_request()
                self.service_actions()

    def end(self) -> None:
        """End `serve_until_ended`, from another thread."""
        self._ends.close()

    def server_close(self) -> None:
        """Close the address."""
        super().server_close()
        self._ends.close()
        self._ended.close()

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
        """Close slow connections."""
        with self._lock:
            for request, since in list(self._readers.items()):
                if time.monotonic() - since > READ_S:
                    self._cut_off(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failure; a reader that left, or was cut off, is not a failure."""
        if not isinstance(sys.exception(), OSError):
            log.exception("metrics_not_served")

    def _cut_off(self, request: socket.socket) -> None:
        """End a connection; its thread, which waits for it, closes it."""
        del self._readers[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


def loopback_address(address: str) -> tuple[str, int]:
    """Return host and port of the setting `wire.metrics`.

    :raises EndpointError: if they are none, or other machines could reach them.
    """
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        if not 0 <= int(port) <= 65535:
            raise ValueError(port)
        if not ipaddress.ip_address(host).is_loopback:
            raise EndpointError(f"metrics are served on loopback only; {address!r} is not: name 127.0.0.1:PORT in the setting wire.metrics")
        return host, int(port)
    except ValueError:
        raise EndpointError(f"setting wire.metrics: {address!r} is not a valid host:port; name 127.0.0.1:PORT") from None


FACTS_S = 2.0  # seconds that a reader waits for the loop
_LONG = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)  # seconds: from a replayed state to an 8B model on a CPU


SENT = ("done", "failed", "doubt")
"""Outcomes of calls that left, or were to."""


class Metrics:
    """Counters and histograms of the daemon. All methods except `told` are called on the loop's thread."""

    def __init__(self, bus: EventBus) -> None:
        """
        :param bus: the source of the counted events.
        """
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self._registry = registry = CollectorRegistry()
        self._missions = Counter(
            "batos_missions",
            "Missions that ended here; of several kernels each counts those that it ended.",
            ["outcome", "persona"],
            registry=registry,
        )
        self._failures = Counter("batos_mission_failures", "Missions that FAILED, by code of the error.", ["code"], registry=registry)
        self._states = Histogram("batos_state_seconds", "Time in a state of the PSM.", ["state"], buckets=_LONG, registry=registry)
        self._inferences = Counter(
            "batos_inferences", "Inferences asked for; the outcome is ok, or the cause of the failure.", ["model", "outcome"],
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram("batos_inference_seconds", "Time of an inference.", ["model"], buckets=_LONG, registry=registry)
        self._tokens = Counter("batos_tokens", "Tokens of inferences; the kind is prompt or answer.", ["model", "kind"], registry=registry)
        self._reading = Counter(
            "batos_prompt_seconds",
            "Time in which models read prompts: little for many tokens that a model had read before, and Ollama counts these, too.",
            ["model"],
            registry=registry,
        )
        self._verdicts = Counter(
            "batos_guardian_verdicts", "Verdicts of the Persistence Guardian: accepted, refused.", ["verdict"], registry=registry
        )
        self._methods = Counter(
            "batos_method_runs", "Runs of generated methods; the outcome is ok or failed.", ["outcome"], registry=registry
        )
        self._retrievals = Counter(
            "batos_retrievals", "Questions to memory, by whether anything was found: yes, no.", ["found"], registry=registry
        )
        self._calls = Counter(
            "batos_tool_calls",
            "Calls of tools; outcomes: done, failed, doubt (it may have happened), asked, denied, replayed (the journal had it).",
            ["tool", "outcome"], registry=registry,
        )  # fmt: skip
        self._call_seconds = Histogram("batos_tool_seconds", "Time of a call of a tool.", ["tool"], buckets=_LONG, registry=registry)
        self._call_bytes = Counter("batos_tool_bytes", "Bytes of what tools answered.", ["tool"], registry=registry)
        self._notices = Counter(
            "batos_notices",
            "Sendings of messages that tell notices; the outcome is done, failed or doubt.",
            ["channel", "outcome"],
            registry=registry,
        )
        self._of = functools.cache(self._counters)  # as many as the registry keeps: a lookup takes longer than a count
        in_state = functools.cache(self._states.labels)
        self.durations = Durations(bus, lambda state, seconds: in_state(state).observe(seconds))
        bus.subscribe(SourceAudited, lambda audited: self._verdicts.labels("accepted" if audited.accepted else "refused").inc())
        bus.subscribe(MethodRan, lambda ran: self._methods.labels("ok" if ran.succeeded else "failed").inc())
        bus.subscribe(MemoryQueried, lambda asked: self._retrievals.labels("yes" if asked.hits else "no").inc())
        bus.subscribe(MissionEnded, self._ended)
        bus.subscribe(ToolCalled, self._called)
        bus.subscribe(NoticeSent, lambda sent: self._notices.labels(sent.channel, sent.outcome).inc())

    def show(self, facts: Callable[[], dict[str, Any]]) -> None:
        """Add the gauges of the daemon's state.

        :param facts: returns the reply to `info`; called on the loop's thread for each reader of the metrics.
        """
        self._registry.register(_Facts(facts, asyncio.get_running_loop()))

    def counted(self, inference: Inference) -> Inference:
        """Return `inference` with each chat counted."""
        return _Counted(inference, self)

    def paid(self, reply: ChatReply) -> None:
        """Count an inference that came to its end."""
        ok, seconds, reading, prompt, answer = self._of(reply.model)
        ok.inc()
        seconds.observe(reply.total_ms / 1000)
        reading.inc(reply.prompt_eval_ms / 1000)
        prompt.inc(reply.prompt_tokens)
        answer.inc(reply.answer_tokens)

    def _counters(self, model: str) -> tuple[Counter, Histogram, Counter, Counter, Counter]:
        return (
            self._inferences.labels(model, "ok"),
            self._seconds.labels(model),
            self._reading.labels(model),
            self._tokens.labels(model, "prompt"),
            self._tokens.labels(model, "answer"),
        )

    def failed(self, model: str, cause: str) -> None:
        """Count an inference that failed."""
        self._inferences.labels(model, cause).inc()

    def _ended(self, ended: MissionEnded) -> None:
        if not ended.here:
            return
        self._missions.labels(ended.state, ended.persona or "none").inc()
        if ended.state == "FAILED":
            self._failures.labels(ended.error_code).inc()

    def _called(self, called: ToolCalled) -> None:
        self._calls.labels(called.tool, called.outcome).inc()
        if called.outcome in SENT:
            self._call_seconds.labels(called.tool).observe(called.seconds)
            self._call_bytes.labels(called.tool).inc(called.bytes)

    def told(self) -> list[dict[str, Any]]:
        """Return every metric as data: `name`, `kind` (counter, gauge, histogram), `help`, and `samples` with `name`, `labels`, `value`.

        Call it outside of the loop's thread, which is asked for states.
        """
        return [
            {
                "name": metric.name,
                "kind": metric.type,
                "help": metric.documentation,
                "samples": [{"name": one.name, "labels": one.labels, "value": one.value} for one in _lasting(metric)],
            }
            for metric in self._registry.collect()
        ]

    def serve(self, address: str) -> Callable[[], None]:
        """Serve metrics at `address` (host:port, loopback only; port 0 picks one). Return the function that ends it.

        :raises EndpointError: if that is not a loopback address, or it is taken.
        """
        exporter = Exporter(self._registry, address)
        self.address = exporter.address
        return exporter.stop


def _lasting(metric: Metric) -> list[Any]:
    """Return its samples, without the moments at which its counters were made."""
    return [sample for sample in metric.samples if not sample.name.endswith("_created")]


class _Counted:
    """An `Inference` in front of another one."""

    def __init__(self, inference: Inference, metrics: Metrics) -> None:
        self._inference, self._metrics = inference, metrics

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        try:
            reply = await self._inference.chat(request, deadline_s=deadline_s, on_text=on_text)
        except InferenceFailed as e:
            self._metrics.failed(request.model, e.cause)
            raise
        self._metrics.paid(reply)
        return reply

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        return await self._inference.embed(model, texts, deadline_s=deadline_s)

    async def continues(self, model: str) -> bool:
        return await self._inference.continues(model)

    async def digest(self, model: str) -> str:
        return await self._inference.digest(model)


def _of_kernels(kernel: dict[str, Any] | None) -> Iterator[Metric]:
    """Yield the gauges of the kernels of an image; none where a daemon has it to itself."""
    from prometheus_client.core import GaugeMetricFamily

    if not kernel:
        return
    states = GaugeMetricFamily(
        "batos_kernels",
        "Kernels of the image, by state: works, leads, unfit, drains, gone. It is absent where a daemon has its image to itself.",
        labels=["state"],
    )
    for state, count in kernel["states"].items():
        states.add_metric([state], count)
    missions = GaugeMetricFamily("batos_kernel_missions", "Missions under way, by kernel.", labels=["kernel"])
    for name, count in kernel["missions"].items():
        missions.add_metric([name], count)
    yield from (states, missions)
    yield GaugeMetricFamily("batos_kernel_leads", "1 where this daemon leads the kernels, else 0.", value=int(kernel["leads"]))


class _Facts:
    """Gauges of the daemon's state, computed on the loop's thread for each reader."""

    def __init__(self, facts: Callable[[], dict[str, Any]], loop: asyncio.AbstractEventLoop) -> None:
        self._facts, self._loop = facts, loop

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        async def ask() -> dict[str, Any]:
            return self._facts()

        try:
            facts = asyncio.run_coroutine_threadsafe(ask(), self._loop).result(FACTS_S)
        except (TimeoutError, RuntimeError):  # the loop is busy or closed: show the counters anyway
            return
        image, missions = facts["image"], facts["missions"]
        yield GaugeMetricFamily("batos_uptime_seconds", "Time since the start.", value=facts["uptime_s"])
        yield GaugeMetricFamily("batos_effects_in_doubt", "Effects that have not ended.", value=facts["tools"]["in_doubt"])
        yield GaugeMetricFamily("batos_image_bytes", "Size of the image.", value=image["bytes"])
        yield GaugeMetricFamily("batos_image_objects", "Objects of the image.", value=image["objects"])
        for name, help in (("units", "Units of work committed."), ("aborts", "Units of work aborted."), ("conflicts", "Conflicts met.")):
            yield CounterMetricFamily(f"batos_{name}", help, value=image[name])
        yield CounterMetricFamily("batos_system_transactions", "System transactions committed.", value=image["system"])
        yield CounterMetricFamily("batos_syncs", "Rounds of the committer, each synced once.", value=image["rounds"])
        waiting = GaugeMetricFamily(
            "batos_missions_now",
            "Missions that have not ended, by what they do: running, queued, paused, needs_input, following.",
            labels=["doing"],
        )
        for name in ("running", "queued", "paused", "needs_input", "following"):
            waiting.add_metric([name], missions[name])
        yield waiting
        yield from _of_kernels(facts.get("kernel"))
        backups = facts["upkeep"]["backups"]
        yield CounterMetricFamily("batos_backup_failures", "Scheduled backups that failed.", value=backups["failed"])
        if backups["last"]:
            age = max(0.0, time.time() - backups["last"])
            yield GaugeMetricFamily("batos_backup_age_seconds", "Time since the last backup that was proved.", value=age)
        if (cem := facts["autotelic"].get("cem")) and cem["last"]:
            entropy = GaugeMetricFamily(
                "batos_entropy",
                "Entropy of the last mission; the parts are relevance, diversity, novelty, structure and cem.",
                labels=["part"],
            )
            for part in ("relevance", "diversity", "novelty", "structure", "cem"):
                entropy.add_metric([part], cem["last"][part])
            yield entropy
            yield GaugeMetricFamily("batos_entropy_rolling", "Mean composite entropy (cem) of the last missions.", value=cem["rolling"])
        if fired := facts["autotelic"].get("triggers"):
            yield CounterMetricFamily("batos_triggers", "Triggers of the loop that ever fired.", value=fired["ever"])
            yield GaugeMetricFamily("batos_triggers_quiet", "Triggers that fired and have not recovered.", value=len(fired["fired"]))
        if memory := facts["residency"]:
            yield GaugeMetricFamily("batos_models_resident_bytes", "Memory of the models that Ollama holds.", value=memory["bytes"])
            yield CounterMetricFamily("batos_model_loads", "Times that a model was loaded.", value=memory["loads"])
            yield CounterMetricFamily("batos_model_unloads", "Times that a model made room for another.", value=memory["unloads"])
