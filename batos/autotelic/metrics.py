"""Metrics in the format of Prometheus, on a loopback port when the setting `metrics` names one.

What happens is counted as it happens, from the events of missions and from the inferences; what is a state (the image's
size, the models in memory) is asked for when somebody reads. Names and units follow Prometheus' own practice
(prometheus.io/docs/practices/naming): seconds, bytes, `_total` for what only grows.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from batos.autotelic.exporter import Exporter
from batos.bridge.types import ChatReply, ChatRequest, Inference
from batos.errors import InferenceFailed
from batos.mind.events import Durations, Event, Events

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram
    from prometheus_client.metrics_core import Metric

FACTS_S = 2.0  # a reader waits no longer for the loop
_LONG = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)  # seconds: from a replayed state to an 8B model on a CPU


class Metrics:
    """Counts and serves. Everything but the serving happens on the loop's thread."""

    def __init__(self, events: Events, facts: Callable[[], dict[str, Any]]) -> None:
        """
        :param facts: what `info` says; read when metrics are.
        """
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self._registry = registry = CollectorRegistry()
        self._missions = Counter(
            "batos_missions", "Missions that ended, by outcome and persona.", ["outcome", "persona"], registry=registry
        )
        self._failures = Counter("batos_mission_failures", "Missions that FAILED, by code.", ["code"], registry=registry)
        self._states = Histogram("batos_state_seconds", "Time in a state of the PSM.", ["state"], buckets=_LONG, registry=registry)
        self._inferences = Counter(
            "batos_inferences", "Inferences asked for, by model and outcome (ok, or the cause of its failure).", ["model", "outcome"],
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram("batos_inference_seconds", "Time of an inference.", ["model"], buckets=_LONG, registry=registry)
        self._tokens = Counter(
            "batos_tokens", "Tokens of inferences, by model and kind (prompt, answer).", ["model", "kind"], registry=registry
        )
        self._reading = Counter("batos_prompt_seconds", "Time in which models read prompts.", ["model"], registry=registry)
        self._verdicts = Counter("batos_guardian_verdicts", "Verdicts of the Persistence Guardian.", ["verdict"], registry=registry)
        self._methods = Counter("batos_method_runs", "Runs of generated methods, by outcome (ok, failed).", ["outcome"], registry=registry)
        self._retrievals = Counter(
            "batos_retrievals", "Questions to memory, by whether it had something to say.", ["found"], registry=registry
        )
        self._of = functools.cache(self._counters)  # as many as the registry keeps: to find them anew takes longer than to count
        in_state = functools.cache(self._states.labels)
        self.durations = Durations(events, lambda state, seconds: in_state(state).observe(seconds))
        registry.register(_Facts(facts, asyncio.get_running_loop()))
        events.listen("result", self._ended)

    def counted(self, inference: Inference) -> Inference:
        """The same inference, counted."""
        return _Counted(inference, self)

    def verdict(self, accepted: bool) -> None:
        """Count a verdict of the guardian."""
        self._verdicts.labels("accepted" if accepted else "refused").inc()

    def ran(self, holder: str, selector: str, ok: bool, taken: bool = True) -> None:
        """Count a run of a generated method."""
        self._methods.labels("ok" if ok else "failed").inc()

    def retrieved(self, hits: int) -> None:
        """Count a question to memory, and whether it had an answer."""
        self._retrievals.labels("yes" if hits else "no").inc()

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

    def _ended(self, event: Event) -> None:
        self._missions.labels(event["state"], event["persona"] or "none").inc()
        if event["state"] == "FAILED":
            self._failures.labels(event["error"]["code"]).inc()

    def told(self) -> list[dict[str, Any]]:
        """Every metric as data: `name`, `kind` (counter, gauge, histogram), `help`, and `samples` with `name`, `labels`, `value`.

        In another thread than the loop's, which is asked for what is a state.
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
        """Let metrics be read at `address` (host:port, loopback only; port 0 picks one); what ends it.

        :raises EndpointError: where that is no loopback address, or it is taken.
        """
        exporter = Exporter(self._registry, address)
        self.address = exporter.address
        return exporter.stop


def _lasting(metric: Metric) -> list[Any]:
    """Its samples, without the moments at which its counters were made."""
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


class _Facts:
    """What is a state and not a count, asked for on the loop's thread when somebody reads."""

    def __init__(self, facts: Callable[[], dict[str, Any]], loop: asyncio.AbstractEventLoop) -> None:
        self._facts, self._loop = facts, loop

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        async def ask() -> dict[str, Any]:
            return self._facts()

        try:
            facts = asyncio.run_coroutine_threadsafe(ask(), self._loop).result(FACTS_S)
        except (TimeoutError, RuntimeError):  # the loop is busy, or closed: what was counted is shown all the same
            return
        image, missions = facts["image"], facts["missions"]
        yield GaugeMetricFamily("batos_uptime_seconds", "Time since the start.", value=facts["uptime_s"])
        yield GaugeMetricFamily("batos_image_bytes", "Size of the image.", value=image["bytes"])
        yield GaugeMetricFamily("batos_image_objects", "Objects of the image.", value=image["objects"])
        for name, help in (("units", "Units of work committed."), ("aborts", "Units of work aborted."), ("conflicts", "Conflicts met.")):
            yield CounterMetricFamily(f"batos_{name}", help, value=image[name])
        yield CounterMetricFamily("batos_system_transactions", "System transactions committed.", value=image["system"])
        yield CounterMetricFamily("batos_syncs", "Rounds of the committer, each synced once.", value=image["rounds"])
        waiting = GaugeMetricFamily("batos_missions_now", "Missions that have not ended, by what they do.", labels=["doing"])
        for name in ("running", "queued", "paused", "needs_input", "following"):
            waiting.add_metric([name], missions[name])
        yield waiting
        backups = facts["upkeep"]["backups"]
        yield CounterMetricFamily("batos_backup_failures", "Scheduled backups that failed.", value=backups["failed"])
        if backups["last"]:
            age = max(0.0, time.time() - backups["last"])
            yield GaugeMetricFamily("batos_backup_age_seconds", "Time since the last backup that was proved.", value=age)
        if (cem := facts["autotelic"].get("cem")) and cem["last"]:
            entropy = GaugeMetricFamily("batos_entropy", "Entropy of the last mission, by part, and cem.", labels=["part"])
            for part in ("relevance", "diversity", "novelty", "structure", "cem"):
                entropy.add_metric([part], cem["last"][part])
            yield entropy
            yield GaugeMetricFamily("batos_entropy_rolling", "Mean composite entropy of the last missions.", value=cem["rolling"])
        if fired := facts["autotelic"].get("triggers"):
            yield CounterMetricFamily("batos_triggers", "Triggers of the loop that ever fired.", value=fired["ever"])
            yield GaugeMetricFamily("batos_triggers_quiet", "Triggers that fired and have not recovered.", value=len(fired["fired"]))
        if memory := facts["residency"]:
            yield GaugeMetricFamily("batos_models_resident_bytes", "Memory of the models that Ollama holds.", value=memory["bytes"])
            yield CounterMetricFamily("batos_model_loads", "Times that a model was loaded.", value=memory["loads"])
            yield CounterMetricFamily("batos_model_unloads", "Times that a model made room for another.", value=memory["unloads"])
