"""A place: one Ollama with all that the daemon keeps of it: how it stands, its models, its memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from batos.bridge import probes
from batos.bridge.breaker import Breaker
from batos.bridge.capabilities import Capabilities, Known
from batos.bridge.client import OllamaInference
from batos.bridge.fitting import fitted
from batos.bridge.names import tagged
from batos.bridge.provision import Provisioner
from batos.bridge.residency import Residency, ResidentInference
from batos.bridge.types import ChatReply, ChatRequest
from batos.errors import InferenceFailed

PROBE_S = 120.0  # for one tiny inference, the loading of the model included
LOOK_S = 0.25  # between two looks whether who waits for a model waits for an Ollama


class Place(ResidentInference):
    """An `Inference` on one Ollama: each takes its turn in that one's memory.

    `under_way` counts the chats that were given to it, those that wait for their turn included.
    """

    def __init__(
        self,
        inference: OllamaInference,
        residency: Residency,
        provisioner: Provisioner,
        known: Known | None = None,
        marks: Sequence[str] = (),
    ) -> None:
        """
        :param known: what is known of models.
        :param marks: stop marks of the profile's own template.
        """
        super().__init__(inference, residency)
        self._ollama = inference
        self.residency, self.provisioner, self.known, self.marks = residency, provisioner, known or Known(), tuple(marks)
        provisioner.changed = inference.models_changed
        residency.hear = self.known.note
        self._probing = asyncio.Lock()
        self.under_way = 0

    @property
    def host(self) -> str:
        """Its address."""
        return self._ollama.host

    @property
    def breaker(self) -> Breaker:
        """Whether it answers."""
        return self._ollama.breaker

    @property
    def models_seen(self) -> Mapping[str, str]:
        """See `OllamaInference.models_seen`."""
        return self._ollama.models_seen

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        self.under_way += 1
        try:
            digest = await self.digest(request.model)
            await self._look_closer(request, digest, deadline_s)
            reply = await super().chat(
                fitted(request, self.known.of(digest), self.marks, partial(self.known.writes, digest)),
                deadline_s=deadline_s,
                on_text=on_text,
            )
            self.known.measured(digest, reply.answer_tokens, reply.eval_ms)
            return reply
        finally:
            self.under_way -= 1

    def adopt(self, options: Mapping[str, Any], marks: Sequence[str]) -> None:
        """Think with other options from now on: those of another profile."""
        self._ollama.adopt(options)
        self.residency.options = dict(options)
        self.marks = tuple(marks)

    async def probe(
        self, model: str, wanted: Collection[str] = probes.ALL, deadline_s: float = PROBE_S, options: Mapping[str, Any] | None = None
    ) -> Capabilities | None:
        """Find out of a model what is not found out yet, and keep it; what it can do, None where its Ollama does not say.

        :param options: with which it is loaded; None: as every model here is.
        :raises InferenceFailed: where it is not there, or not to be reached.
        """
        digest = await self.digest(model)
        async with self._probing:
            can = self.known.of(digest)
            if can is None or can.probed.issuperset(wanted):
                return can
            ask = partial(super().chat, deadline_s=deadline_s)
            found = await probes.probe(ask, model, can, wanted, self.residency.options if options is None else options)
            if "context" in wanted and "context" not in can.probed:
                found = await self._with_context(ask, model, digest, found)
            self.known.found(digest, found)
        return self.known.of(digest)

    async def takes(self, model: str, context: int, options: Mapping[str, Any], deadline_s: float = PROBE_S) -> bool:
        """Load a model with a context; whether its Ollama gives it as much. True where that Ollama does not say.

        :raises InferenceFailed: where it cannot be loaded.
        """
        digest = await self.digest(model)
        async with self._probing:
            await super().chat(probes.tiny(model, {**options, "num_ctx": context}), deadline_s=deadline_s)
            await self.residency.refresh()
            given = self.residency.context_of(digest)
        return given is None or given >= context

    async def _with_context(self, ask: probes.Ask, model: str, digest: str, found: Capabilities) -> Capabilities:
        """What was found out of a model, with the context that it has where Ollama gives it less than it was asked for."""
        await probes.load(ask, model, self.residency.options)
        await self.residency.refresh()
        given, asked = self.residency.context_of(digest), self.residency.options.get("num_ctx")
        if given is None or asked is None:
            return found
        return replace(found, context=given if given < asked else found.context, probed=found.probed | {"context"})

    async def _look_closer(self, request: ChatRequest, digest: str, deadline_s: float) -> None:
        """Find out what the request needs of a model that may think before it answers: only there claims are not to be relied on."""
        can = self.known.of(digest)
        if can is None or not can.thinks:
            return
        wanted = {"think"} | ({"format"} if request.schema is not None else set())
        if not can.probed.issuperset(wanted):
            with contextlib.suppress(InferenceFailed):  # the request itself will meet what was in the way
                await self.probe(request.model, wanted, deadline_s, {**self.residency.options, **dict(request.options)})

    async def digest(self, model: str) -> str:
        """See `Inference.digest`. What the model takes in memory is learnt with it: see `crowded`."""
        digest = await super().digest(model)
        if self.residency.load_of(model) is None or not self.known.knows(digest):
            await self.residency.learn(model, digest)
        return digest

    async def has(self, model: str) -> bool:
        """Whether it is known to have a model now."""
        try:
            return tagged(model) in await self._ollama.digests(model)
        except InferenceFailed:
            return False

    async def made(self, model: str) -> None:
        """Take note that a model was made here: its digest may be another, and what it takes in memory."""
        self._ollama.models_changed()
        await self.residency.learn_all([model])

    def crowded(self, model: str) -> bool:
        """Whether what is in use in its memory would have to leave for the model."""
        load, gate = self.residency.load_of(model), self.residency.gate
        return load is not None and any(gate.conflict(load, other) for other in gate.in_use)

    async def look_after(self, again_s: float, speaking: Callable[[], Iterable[str]], once: asyncio.Event) -> None:
        """Bring the profile's models about, for ever: what cannot be had, now or later, is tried again.

        :param again_s: pause before that, unless the Ollama did not answer: then it is when it does.
        :param speaking: the models whose loads the grouping wants to know.
        :param once: set when each model is there or was found not to be had.
        """
        while True:
            if not all(status.ready for status in self.provisioner.status()):
                await self.provisioner.ensure()
                await self.residency.learn_all(speaking())
                once.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await self.provisioner.unreached.wait()
            if self.provisioner.unreached.is_set():
                self.provisioner.unreached.clear()
                self.breaker.lost(next((s.detail for s in self.provisioner.status() if s.cause == "unreachable"), "it did not answer"))
                await self.breaker.closed()

    async def close(self) -> None:
        """End what is under way here, and the connections."""
        await self.residency.close()
        await self.provisioner.close()
        await self._ollama.close()


class Places:
    """Which of several places has a model that is to be used, or will have it.

    :param wait_s: how long a model is waited for where none of those that could have it answers.
    """

    def __init__(self, places: Sequence[Place], wait_s: float) -> None:
        self._places, self._wait_s = places, wait_s

    async def ready(self, model: str) -> None:
        """Return when a model is there, at one place at least.

        :raises ProvisioningFailed: when it can be had nowhere; the first place says why.
        :raises InferenceFailed: with cause `breaker` when the wait was too long.
        """
        if any(place.provisioner.is_ready(model) for place in self._places):
            return
        wanted = [place for place in self._places if place.provisioner.knows(model)]
        if not wanted:  # of no profile: one that has it will do, else it is pulled, once
            if any(await asyncio.gather(*(place.has(model) for place in self._places))):
                return
            wanted = [self._places[0]]
        await self._first(model, wanted)

    async def heal(self, model: str) -> None:
        """Bring back a model that was there and is gone; returns when one place has it, or none can."""
        wanted = [place for place in self._places if place.provisioner.knows(model)] or self._places[:1]
        tasks = [asyncio.create_task(place.provisioner.heal(model)) for place in wanted]
        try:
            for healed in asyncio.as_completed(tasks):
                if (await healed).ready:
                    return
        finally:
            _cancel(tasks)  # the work itself goes on

    async def _first(self, model: str, wanted: Sequence[Place]) -> None:
        waits = {asyncio.create_task(place.provisioner.ready(model)): place for place in wanted}
        away_s, clock = 0.0, asyncio.get_running_loop().time
        try:
            while True:
                looked = clock()
                await asyncio.wait([task for task in waits if not task.done()], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                ends = [task.exception() for task in waits if task.done()]
                failures = [failure for failure in ends if failure is not None]
                if len(failures) < len(ends):
                    return
                pending = [place for task, place in waits.items() if not task.done()]
                away = all(place.breaker.open for place in pending)
                if failures and away:  # who is away may never come back
                    raise failures[0]
                away_s = away_s + clock() - looked if away else 0.0
                if away_s > self._wait_s:
                    pending[0].breaker.check(model)  # says for how long
        finally:
            _cancel(waits)


def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # looked at: nobody waits for it any more
