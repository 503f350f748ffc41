"""Residency: the models in Ollama's memory, the order of eviction, and the memory budget.

Sizes are measured (`ps`) and compared with a budget. A load that was never measured counts with the size of its files. Models that Ollama
holds for other programs count too, and are left alone.

Preloading loads the model that is likely to be needed next, in a pause. It never delays a real request.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from batos.bridge import modelfile
from batos.bridge.admission import AdmissionGate, Fairness, Load
from batos.bridge.client import CONNECT_S
from batos.bridge.failures import retry_on_race
from batos.bridge.inference import ChatReply, ChatRequest, Inference
from batos.bridge.installed_models import show_model
from batos.bridge.modelfile import tagged
from batos.concurrency import Background, cancel_and_wait
from batos.config.limits import Limits, limit
from batos.errors import ModelfileError

if TYPE_CHECKING:
    from ollama import AsyncClient

log = structlog.get_logger(__name__)

TRUST_S = 30.0  # seconds for which a used load is assumed to be in memory: Ollama keeps it for minutes
UNLOAD_S = 10.0  # seconds for a model to leave the memory
PRELOAD_S = 300.0  # seconds for a preload, for which no request waits
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ResidencyLimits(Limits):
    """Limits of the choice which models are loaded, and for whom."""

    group_missions: int = limit(64, ge=1, le=4096)
    """Number of waiting missions in a block (2, 4, 8 ...), within which missions on a loaded model go first; 1: strict order of arrival."""
    group_wait_s: float = limit(120.0, ge=0, le=86_400)
    """Greatest number of seconds for which missions on a loaded model go first; 0: never."""
    preload_idle_s: float = limit(1.0, ge=0, le=86_400)
    """Seconds without an inference after which the likely next model is loaded; 0: never."""


class Residency:
    """The memory of one Ollama.

    :param client: a client of that Ollama (`bridge.client.connect`).
    :param budget: bytes that models may take.
    :param options: default options of inferences.
    """

    def __init__(self, client: AsyncClient, budget: int, options: Mapping[str, Any], fairness: Fairness) -> None:
        self._client, self._budget, self.options = client, budget, dict(options)
        self._clock = fairness.clock
        self.gate = AdmissionGate(fairness, self.fits, self._rest)
        self.hear: Callable[[str, Mapping[str, Any]], object] = lambda digest, shown: None
        """Takes a digest and the answer of `/api/show` for its model, before the model is loaded."""
        self._made: dict[str, modelfile.Modelfile | None] = {}  # digest of a model -> its Modelfile
        self._bytes: dict[str, int] = {}  # digest of a model -> bytes of its files
        self._known: dict[str, Load] = {}  # name of a model -> its load with the options of every chat
        self._digests: dict[str, str] = {}  # name of a model -> its last known digest
        self._contexts: dict[str, int] = {}  # digest of a model in memory -> its context, as last reported
        self._files: dict[Load, int] = {}
        self._measured: dict[Load, int] = {}
        self._names: dict[Load, str] = {}
        self._resident: dict[str, Load] = {}  # weights -> load
        self._latest: dict[tuple[str, tuple[str, ...]], Load] = {}  # weights and adapters -> load
        self._coming: set[Load] = set()  # requested loads on which no inference has ended yet
        self._foreign = 0
        self._used: dict[Load, float] = {}
        self._used_at: dict[Load, float] = {}
        self._loads: Counter[Load] = Counter()
        self._unloads = self._preloads = 0
        self.preloader: Preloader | None = None
        self._warned: set[Load] = set()
        self._one_change = asyncio.Lock()
        self._background = Background()

    async def close(self) -> None:
        """End the work that was started here."""
        if self.preloader is not None:
            await self.preloader.stop()
        await self._background.stop()

    # --- known facts

    def load_of(self, model: str) -> Load | None:
        """Return the load of a model; None as long as that is not known."""
        return self._known.get(tagged(model))

    def digest_of(self, model: str) -> str:
        """Return the last known digest of a model; empty if it is unknown."""
        return self._digests.get(tagged(model), "")

    def context_of(self, digest: str) -> int | None:
        """Return the context of the model of a digest in memory, as Ollama last reported it. None if the model is not in memory or its
        context is not reported.
        """
        return self._contexts.get(digest)

    def size(self, load: Load) -> int:
        """Return the bytes that a load takes: as measured, else the size of its files, else 0."""
        return self._measured.get(load, self._files.get(load, 0))

    def fits(self, loads: Set[Load]) -> bool:
        """Return True if these loads fit within the budget together."""
        return sum(map(self.size, loads)) <= self._budget

    @property
    def resident_weights(self) -> frozenset[str]:
        """Return the names of the files of weights that are assumed to be in memory."""
        return frozenset(self._resident)

    def is_resident(self, load: Load) -> bool:
        """Return True if a load is assumed to be in memory."""
        return self._resident.get(load.weights) == load

    async def learn(self, model: str, digest: str, sent: Mapping[str, Any] | None = None) -> Load:
        """Return the load of a model for a request with these options; the default is the options of every chat.

        :param digest: digest of the model, as `Inference.digest` returns it.
        """
        if digest not in self._made:
            await self._look_at(model, digest)
        made = self._made.get(digest)
        # A model without a readable Modelfile is a load of its own: that is safe, and at worst groups too few missions.
        usual = Load(digest) if made is None else Load.of(made, self.options)
        load = usual if made is None or sent is None else Load.of(made, sent)
        self._known[tagged(model)], self._digests[tagged(model)] = usual, digest
        for one in (usual, load):
            self._names[one], self._files[one] = model, self._bytes.get(digest, 0)
        return load

    async def learn_all(self, models: Iterable[str]) -> None:
        """Learn the loads of those models that Ollama has."""
        wanted = {tagged(model) for model in models}
        with self._tolerant("list the models"):
            async with asyncio.timeout(CONNECT_S):
                listed = await retry_on_race(self._client.list)
            for model in listed.models:
                if model.model and tagged(model.model) in wanted and model.digest:
                    await self.learn(model.model, model.digest)

    async def _look_at(self, model: str, digest: str) -> None:
        with self._tolerant("look at a model", model=model):
            async with asyncio.timeout(CONNECT_S):
                shown = await retry_on_race(lambda: show_model(self._client, model))
                self._bytes = {m.digest: int(m.size or 0) for m in (await retry_on_race(self._client.list)).models if m.digest}
            if shown is None:  # the model is gone: the next request asks again
                return
            self.hear(digest, shown)
            try:
                self._made[digest] = modelfile.parse_modelfile(str(shown.get("modelfile") or ""))
            except ModelfileError as e:
                log.warning("unreadable Modelfile in Ollama", model=model, error=e.message)
                self._made[digest] = None

    # --- an inference

    @contextlib.asynccontextmanager
    async def turn(self, load: Load) -> AsyncIterator[None]:
        """Wait for the turn of an inference on this load and make room for it; the block is the inference."""
        if self.preloader is not None:
            await self.preloader.give_way(load)
        async with self.gate.turn(load):
            loads = await self._prepare(load)
            try:
                yield
            except BaseException:
                self._used.pop(load, None)  # ask Ollama again whether the load is in memory
                raise
            finally:
                self._coming.discard(load)
            self._note_used(load)
            if loads:
                self._measure_later(load)

    def preload_with(self, preloader: Preloader) -> None:
        """Preload models in pauses from now on. A pause since the last inference counts."""
        self.preloader = preloader
        if self._used_at and self.gate.idle:
            preloader.rest()

    def _rest(self) -> None:
        if self.preloader is not None:
            self.preloader.rest()

    def _note_used(self, load: Load) -> None:
        self._used[load], self._used_at[load] = self._clock(), time.time()

    async def _prepare(self, load: Load) -> bool:
        """Make room for a load that is not in memory. Return True if it was not."""
        if self.is_resident(load) and self._clock() - self._used.get(load, float("-inf")) < TRUST_S:
            return False
        async with self._one_change:
            await self._refresh()
            if self.is_resident(load):
                self._note_used(load)
                return False
            await self._make_room(load)
            self._coming.add(load)
            self._came(load)
            return True

    def _came(self, load: Load) -> None:
        self._resident[load.weights] = self._latest[load.weights, load.adapters] = load
        self._used[load] = self._clock()
        self._loads[load] += 1

    async def _make_room(self, load: Load) -> None:
        """Unload the least recently used loads until the load fits; loads in use stay."""
        if self.size(load) > self._budget and load not in self._warned:
            self._warned.add(load)
            log.warning(
                "a model is larger than the memory budget; it is loaded anyway",
                model=self._names[load],
                bytes=self.size(load),
                memory_budget_bytes=self._budget,
            )
        victims, _ = self.victims(load, self.gate.in_use)
        for victim in victims:
            await self._unload(victim)

    def victims(self, load: Load, kept: Set[Load]) -> tuple[list[Load], bool]:
        """Return the loads that would have to leave for another, the least recently used first, and whether that one fits then.

        :param kept: loads that must not be evicted.
        """
        others = [other for weights, other in self._resident.items() if weights != load.weights]
        needed = self.size(load) + sum(map(self.size, others)) + self._foreign
        leaving = []
        for other in sorted(others, key=lambda other: self._used.get(other, float("-inf"))):
            if needed <= self._budget:
                break
            if other not in kept:
                leaving.append(other)
                needed -= self.size(other)
        return leaving, needed <= self._budget

    async def preload(self, load: Load, kept: Set[Load]) -> None:
        """Load a model that is not needed yet. If the call is cancelled, its state is unknown, and is asked for before use.

        :param kept: loads that must not be unloaded for it.
        """
        async with self._one_change:
            await self._refresh()
            victims, fits = self.victims(load, kept)
            if self.is_resident(load) or not fits:
                return
            for victim in victims:
                await self._unload(victim)
            with self._tolerant("preload a model", model=self._names[load]):
                self._resident.pop(load.weights, None)
                async with asyncio.timeout(PRELOAD_S):
                    await self._client.generate(self._names[load], options=dict(load.options))
                self._came(load)
                self._preloads += 1
            await self._refresh()

    async def _unload(self, load: Load) -> None:
        """Make Ollama unload a load, and wait until its memory is free; not if it is needed again by now."""
        if load in self.gate.in_use:
            return
        name, gone = self._names[load], False
        with self._tolerant("unload a model", model=name):
            async with asyncio.timeout(UNLOAD_S):
                await self._client.generate(name, keep_alive=0)
            gone = await self._wait_gone(load)
        if gone:
            self._unloads += 1
            log.info("unloaded", model=name, bytes=self.size(load))
        else:
            log.warning("a model stays in memory", model=name, bytes=self.size(load))

    async def _wait_gone(self, load: Load) -> bool:
        """Return True if a load leaves the memory within `UNLOAD_S`; False at once if an inference needs it again."""
        until = asyncio.get_running_loop().time() + UNLOAD_S
        while True:
            await self._ask()
            if not self.is_resident(load):
                return True
            if load in self.gate.in_use or asyncio.get_running_loop().time() > until:
                return False
            await asyncio.sleep(POLL_S)

    def _measure_later(self, load: Load) -> None:
        async def measure() -> None:
            async with self._one_change:
                await self._refresh()
                await self._make_room(load)  # a load may take more memory than its files

        self._background.start(measure(), "residency-measure", "residency")

    # --- Ollama

    async def refresh(self) -> None:
        """Ask Ollama which models are in memory."""
        async with self._one_change:
            await self._refresh()

    async def _refresh(self) -> None:
        with self._tolerant("ask what is in memory"):
            await self._ask()

    async def _ask(self) -> None:
        coming = {load.weights: load for load in self._coming}
        async with asyncio.timeout(CONNECT_S):
            listed = await self._client.ps()
        there = {}
        self._foreign = 0
        self._contexts = {row.digest: row.context_length for row in listed.models if row.digest and row.context_length}
        for row in listed.models:
            load = self._recognised(row.digest or "")
            if load is None:
                self._foreign += int(row.size or 0)
                continue
            there[load.weights] = load
            self._measured[load] = int(row.size or 0)
        # A load in progress is not listed, though it may be there now; and a model that it displaces is listed still.
        self._resident = there | coming | {load.weights: load for load in self._coming}

    def _recognised(self, digest: str) -> Load | None:
        """Return the load of a model that Ollama lists; Ollama does not say with which options it was loaded."""
        made = self._made.get(digest)
        if made is None:
            known = Load(digest)
            return known if known in self._names else None
        usual = Load.of(made, self.options)
        return self._latest.get((usual.weights, usual.adapters), usual)

    @contextlib.contextmanager
    def _tolerant(self, doing: str, **about: Any) -> Iterator[None]:
        """Log a failure without failing the inference, which reaches the same Ollama and reports the cause."""
        import httpx

        from batos.bridge.client_library import ResponseError

        try:
            yield
        except (
            ResponseError,
            ConnectionError,
            httpx.HTTPError,
            TimeoutError,
            ValueError,
            TypeError,
        ) as e:  # the last two: an answer with a wrong form
            log.warning("could not " + doing, error=str(e) or repr(e), **about)

    # --- queries

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info` about the memory; sizes in bytes."""
        return {
            "budget": self._budget,
            "bytes": sum(map(self.size, self._resident.values())),
            "foreign_bytes": self._foreign,
            "resident": sorted(self._names[load] for load in self._resident.values()),
            "loads": self._loads.total(),
            "unloads": self._unloads,
            "preloads": self._preloads,
            "waiting": self.gate.waiting,
        }

    def about(self, model: str) -> dict[str, Any]:
        """Return the facts for `models` about one model: models that share weights and adapters share these facts."""
        load = self.load_of(model)
        if load is None:
            return {}
        return {
            "resident": self.is_resident(load),
            "bytes": self.size(load),
            "measured": load in self._measured,
            "last_used": self._used_at.get(load),
            "loads": self._loads[load],
        }


class ResidentInference:
    """An `Inference` in front of another one: each takes its turn, and room is made for its model."""

    def __init__(self, inference: Inference, residency: Residency) -> None:
        self._inference, self._residency = inference, residency

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        digest = await self._inference.digest(request.model)
        load = await self._residency.learn(request.model, digest, {**self._residency.options, **dict(request.options)})
        async with self._residency.turn(load):
            return await self._inference.chat(request, deadline_s=deadline_s, on_text=on_text)

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        load = await self._residency.learn(model, await self._inference.digest(model), {})  # this request has no options
        async with self._residency.turn(load):
            return await self._inference.embed(model, texts, deadline_s=deadline_s)

    async def continues(self, model: str) -> bool:
        return await self._inference.continues(model)

    async def digest(self, model: str) -> str:
        return await self._inference.digest(model)


class Expected(NamedTuple):
    """Names of models: `needed` by missions that wait, in their order; `likely` to be needed after those, the likeliest first."""

    needed: list[str]
    likely: list[str]


class Preloader:
    """Preloader: loads the likely next model when no inference has been under way for a while."""

    def __init__(self, residency: Residency, idle_s: float, expected: Callable[[], Expected]) -> None:
        """
        :param idle_s: seconds without an inference before anything is preloaded.
        """
        self._residency, self._idle_s, self._expected = residency, idle_s, expected
        self._background = Background()
        self.task: asyncio.Task[None] | None = None
        self._loading: Load | None = None

    def rest(self) -> None:
        """Begin to wait for a long enough pause, because no inference is under way."""
        if self.task is None or self.task.done():
            self.task = self._background.start(self._run(), "preload")

    async def give_way(self, load: Load) -> None:
        """Cancel the preload for an arriving inference, unless the inference needs that load."""
        if self._loading != load:
            await self.stop()

    async def stop(self) -> None:
        """Stop the preload. Return when it has ended."""
        if self.task is not None and not self.task.done():
            await cancel_and_wait(self.task)

    async def settled(self) -> None:
        """Wait until the models that were expected in this pause are loaded, or given up."""
        await self._background.drain()

    async def _run(self) -> None:
        await asyncio.sleep(self._idle_s)
        tried: set[Load] = set()
        try:
            while self._residency.gate.idle and (chosen := self._choose(tried)) is not None:
                self._loading, kept = chosen
                tried.add(self._loading)
                await self._residency.preload(self._loading, kept)
        finally:
            self._loading = None

    def _choose(self, tried: Set[Load]) -> tuple[Load, set[Load]] | None:
        """Return the load to preload next, and the loads that must stay for it: in use, needed by waiting missions, or likelier."""
        residency, (needed, likely) = self._residency, self._expected()
        waited_for = [load for model in needed if (load := residency.load_of(model))]
        kept = {*residency.gate.in_use, *waited_for}
        for load in [*waited_for, *(load for model in likely if (load := residency.load_of(model)))]:
            thrown_out = any(load.evicts(other) and residency.is_resident(other) for other in kept)
            if not (residency.is_resident(load) or load in tried or thrown_out) and residency.victims(load, kept)[1]:
                return load, kept
            kept.add(load)
        return None
