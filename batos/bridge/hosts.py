"""One `Inference` over one or several Ollama hosts.

The least busy host that has the model does the work, unless that would evict models in use there. A host that fails before the first token
hands over to the next. If none answers, the request waits until one does.

An answer is keyed by the digest of its model, and a mission must not see that change between two thoughts. So each name is held to one
digest, that of the first host that had it. The name is held so for as long as any host has the digest or may have it when it comes back. A
host with other weights under the name counts as not having the model.

`ManagedHost` is one Ollama with everything that the daemon keeps for it: its breaker, its models, its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from batos.bridge import capabilities
from batos.bridge.capabilities import Capabilities, KnownCapabilities, fitted_request
from batos.bridge.client import OllamaInference
from batos.bridge.failures import Breaker
from batos.bridge.inference import ChatReply, ChatRequest, Inference
from batos.bridge.modelfile import tagged
from batos.bridge.provisioning import Provisioner
from batos.bridge.residency import Residency, ResidentInference
from batos.errors import InferenceFailed

T = TypeVar("T")
AWAY = ("unreachable", "breaker")
LACKS = ("model_missing", "model_changed")


class Host(Inference, Protocol):
    """One of them: `bridge.client.OllamaInference`, or a `bridge.place.Place`."""

    @property
    def host(self) -> str:
        """Return its address."""
        ...

    @property
    def under_way(self) -> int:
        """Return the number of chats under way."""
        ...

    @property
    def breaker(self) -> Breaker:
        """Return the circuit breaker of the host."""
        ...

    @property
    def models_seen(self) -> Mapping[str, str]:
        """Return the digests of its models as they were last heard of, by name."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


H = TypeVar("H", bound=Host)


class Hosts(Generic[H]):
    """Inference over several hosts: see the module.

    :param hosts: the first is the one on which experts are built.
    :param crowded: returns True if loads in use at a host would be evicted for a model.
    :param wait_s: seconds that an inference waits if no host that could do it answers.
    :param switch_s: seconds that it waits if one answers that has other weights under the model's name.
    :param look_s: maximum seconds between two looks meanwhile.
    """

    def __init__(
        self,
        hosts: Sequence[H],
        *,
        wait_s: float,
        switch_s: float,
        look_s: float = 1.0,
        crowded: Callable[[H, str], bool] = lambda host, model: False,
    ) -> None:
        self._hosts, self._crowded = list(hosts), crowded
        self._wait_s, self._switch_s, self._look_s = wait_s, switch_s, look_s
        self._held: dict[str, str] = {}  # name of a model -> its digest

    async def close(self) -> None:
        """Close the connections to all hosts."""
        for host in self._hosts:
            await host.close()

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        """See `Inference.chat`. `deadline_s` counts anew on each host."""
        begun = False

        def hear(text: str) -> None:
            nonlocal begun
            begun = True
            if on_text is not None:
                on_text(text)

        return await self._anywhere(
            request.model, lambda host: host.chat(request, deadline_s=deadline_s, on_text=hear), lambda: begun, request.digest
        )

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """See `Inference.embed`."""
        return await self._anywhere(model, lambda host: host.embed(model, texts, deadline_s=deadline_s))

    async def continues(self, model: str) -> bool:
        """See `Inference.continues`."""
        return await self._anywhere(model, lambda host: host.continues(model))

    async def digest(self, model: str) -> str:
        """See `Inference.digest`."""
        return await self._anywhere(model, lambda host: host.digest(model))

    # --- choice of a host

    async def _anywhere(
        self, model: str, ask: Callable[[H], Awaitable[T]], begun: Callable[[], bool] = lambda: False, digest: str = ""
    ) -> T:
        begun_at = time.monotonic()
        failed: dict[H, InferenceFailed | None] = dict.fromkeys(self._hosts)
        while True:
            host = await self._choose(model, digest, failed)
            if host is not None:
                try:
                    return await ask(host)
                except InferenceFailed as e:
                    if begun() or e.cause in ("refused", "too_long"):
                        raise
                    failed[host] = e
                continue
            failure = self._why(failed)
            if failure.cause not in AWAY:
                raise failure
            others = any(why is not None and why.cause == "model_changed" for why in failed.values())
            until = begun_at + (self._switch_s if others else self._wait_s)
            if time.monotonic() >= until:
                self._held.pop(tagged(model), None)  # the next attempt may use a version that is there
                raise failure
            await self._wait(until)
            failed = dict.fromkeys(self._hosts)

    async def _choose(self, model: str, digest: str, failed: dict[H, InferenceFailed | None]) -> H | None:
        """Return the least busy host that has the model and has not failed yet; notes in `failed` why the others cannot."""
        have = await self._have(model, failed)
        found = {host: of for host, of in have.items() if isinstance(of, str)}
        failed |= {host: of for host, of in have.items() if isinstance(of, InferenceFailed)}
        wanted = digest or self._hold(model, found, [host for host, why in failed.items() if why is not None and why.cause in AWAY])
        for host, of in found.items():
            if of != wanted:
                failed[host] = InferenceFailed(
                    f"{model} at {host.host} is {of[:12]}, and {wanted[:12]} is asked for", cause="model_changed", model=model
                )
        fit = [host for host, of in found.items() if of == wanted]
        return min(fit, key=lambda host: (self._crowded(host, model), host.under_way), default=None)

    def _hold(self, model: str, found: dict[H, str], away: list[H]) -> str:
        """Return the digest that the model's name is held to."""
        name = tagged(model)
        held = self._held.get(name, "")
        there = held in found.values() or any(host.models_seen.get(name) == held for host in away)
        if found and not (held and there):
            held = self._held[name] = next(iter(found.values()))
        return held

    async def _have(self, model: str, hosts: dict[H, InferenceFailed | None]) -> dict[H, str | InferenceFailed]:
        """Ask each host that has not failed yet for the model. Return for each a digest, or its failure."""
        asked = [host for host, failure in hosts.items() if failure is None]

        async def look(host: H) -> str | InferenceFailed:
            try:
                host.breaker.check(model)  # the host's cached list may be valid still
                return await host.digest(model)
            except InferenceFailed as e:
                return e

        if len(asked) == 1:  # one host needs no task: that saves a tenth of a millisecond of each chat
            return {asked[0]: await look(asked[0])}
        return dict(zip(asked, await asyncio.gather(*map(look, asked)), strict=True))

    def _why(self, failed: dict[H, InferenceFailed | None]) -> InferenceFailed:
        """Return the failure to report: that of a host that tried. Else it is that of the first host if it lacks the model, which it then
        rebuilds. Else it is the outage, which the caller waits for.
        """
        failures = [failure for failure in failed.values() if failure is not None]
        tried = [failure for failure in failures if failure.cause not in (*AWAY, *LACKS)]
        if not tried and failures[0].cause != "model_missing":
            tried = [failure for failure in failures if failure.cause in AWAY]
        return (tried or failures)[0]

    # --- outages

    async def _wait(self, until: float) -> None:
        """Return when a host answers again, or it is time to look."""
        # look before `until`: the breakers of unreachable hosts may be closed still
        left = min(max(0.0, until - time.monotonic()), self._look_s)
        closing = [asyncio.create_task(host.breaker.closed()) for host in self._hosts if host.breaker.open]
        try:
            if closing:
                await asyncio.wait(closing, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(left)
        finally:
            for task in closing:
                task.cancel()

    @property
    def outage(self) -> str:
        """Return in words that no host answers, and for how long; empty if one does."""
        if not all(host.breaker.open for host in self._hosts):
            return ""
        return "no Ollama answers: " + ", ".join(f"{host.host} for {host.breaker.open_s:.0f} s" for host in self._hosts)

    def facts(self) -> list[dict[str, Any]]:
        """Return the facts about each host for `info`."""
        return [
            {
                "host": host.host,
                **host.breaker.facts(),
                "under_way": host.under_way,
                "models": len(host.models_seen),
                "differs": sorted(n for n, d in self._held.items() if host.models_seen.get(n, d) != d),
            }
            for host in self._hosts
        ]


PROBE_S = 120.0  # seconds for one tiny inference, including the load of the model
LOOK_S = 0.25  # seconds between two checks whether a wait for a model is a wait for Ollama


class ManagedHost(ResidentInference):
    """An `Inference` on one Ollama: each takes its turn in that one's memory.

    `under_way` counts the chats that were given to it, those that wait for their turn included.
    """

    def __init__(
        self,
        inference: OllamaInference,
        residency: Residency,
        provisioner: Provisioner,
        known: KnownCapabilities | None = None,
        marks: Sequence[str] = (),
    ) -> None:
        """:param known: known capabilities of models.
        :param marks: stop marks of the profile's own template.
        """
        super().__init__(inference, residency)
        self._ollama = inference
        self.residency, self.provisioner, self.known, self.marks = residency, provisioner, known or KnownCapabilities(), tuple(marks)
        provisioner.changed = inference.models_changed
        residency.hear = self.known.note
        self._probing = asyncio.Lock()
        self.under_way = 0

    @property
    def host(self) -> str:
        """Return its address."""
        return self._ollama.host

    @property
    def breaker(self) -> Breaker:
        """Return the circuit breaker of the host."""
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
                fitted_request(request, self.known.of(digest), self.marks, partial(self.known.writes, digest)),
                deadline_s=deadline_s,
                on_text=on_text,
            )
            self.known.measured(digest, reply.answer_tokens, reply.eval_ms)
            return reply
        finally:
            self.under_way -= 1

    def adopt(self, options: Mapping[str, Any], marks: Sequence[str]) -> None:
        """Use the options of another profile from now on."""
        self._ollama.adopt(options)
        self.residency.options = dict(options)
        self.marks = tuple(marks)

    async def probe(
        self,
        model: str,
        wanted: Collection[str] = capabilities.ALL_PROBES,
        deadline_s: float = PROBE_S,
        options: Mapping[str, Any] | None = None,
    ) -> Capabilities | None:
        """Probe the capabilities of a model that were not probed yet, and keep them. Return them; None if its Ollama does not know the
        model.

        :param options: options to load it with; None: the usual ones.
        :raises InferenceFailed: if the model is missing, or its Ollama unreachable.
        """
        digest = await self.digest(model)
        async with self._probing:
            can = self.known.of(digest)
            if can is None or can.probed.issuperset(wanted):
                return can
            ask = partial(super().chat, deadline_s=deadline_s)
            found = await capabilities.probe(ask, model, can, wanted, self.residency.options if options is None else options)
            if "context" in wanted and "context" not in can.probed:
                found = await self._with_context(ask, model, digest, found)
            self.known.found(digest, found)
        return self.known.of(digest)

    async def takes(self, model: str, context: int, options: Mapping[str, Any], deadline_s: float = PROBE_S) -> bool:
        """Load a model with a context. Return True if its Ollama gives it the whole context, or does not report it.

        :raises InferenceFailed: if it cannot be loaded.
        """
        digest = await self.digest(model)
        async with self._probing:
            await super().chat(capabilities.tiny_request(model, {**options, "num_ctx": context}), deadline_s=deadline_s)
            await self.residency.refresh()
            given = self.residency.context_of(digest)
        return given is None or given >= context

    async def _with_context(self, ask: capabilities.Ask, model: str, digest: str, found: Capabilities) -> Capabilities:
        """Return the capabilities found by probes, with the real context if Ollama gives the model less than requested."""
        await capabilities.load_model(ask, model, self.residency.options)
        await self.residency.refresh()
        given, asked = self.residency.context_of(digest), self.residency.options.get("num_ctx")
        if given is None or asked is None:
            return found
        return replace(found, context=given if given < asked else found.context, probed=found.probed | {"context"})

    async def _look_closer(self, request: ChatRequest, digest: str, deadline_s: float) -> None:
        """Probe the capabilities that the request needs, if the model may think before it answers: only then claims are unreliable."""
        can = self.known.of(digest)
        if can is None or not can.thinks:
            return
        wanted = {"think"} | ({"format"} if request.schema is not None else set())
        if not can.probed.issuperset(wanted):
            with contextlib.suppress(InferenceFailed):  # the request itself will report the same failure
                await self.probe(request.model, wanted, deadline_s, {**self.residency.options, **dict(request.options)})

    async def digest(self, model: str) -> str:
        """See `Inference.digest`. What the model takes in memory is learnt with it: see `crowded`."""
        digest = await super().digest(model)
        if self.residency.load_of(model) is None or not self.known.knows(digest):
            await self.residency.learn(model, digest)
        return digest

    async def has(self, model: str) -> bool:
        """Return True if the host is known to have the model now."""
        try:
            return tagged(model) in await self._ollama.digests(model)
        except InferenceFailed:
            return False

    async def made(self, model: str) -> None:
        """Record that a model was built here: its digest and its memory may have changed."""
        self._ollama.models_changed()
        await self.residency.learn_all([model])

    def crowded(self, model: str) -> bool:
        """Return True if loading the model would evict loads that are in use."""
        load, gate = self.residency.load_of(model), self.residency.gate
        return load is not None and any(gate.conflict(load, other) for other in gate.in_use)

    async def look_after(self, again_s: float, speaking: Callable[[], Iterable[str]], once: asyncio.Event) -> None:
        """Provide the profile's models until cancelled; retry those that are not available.

        :param again_s: pause before that, unless the Ollama did not answer: then it is when it does.
        :param speaking: the models whose loads the grouping wants to know.
        :param once: set when each model is there or has failed.
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
        """End the work under way, and close the connections."""
        await self.residency.close()
        await self.provisioner.close()
        await self._ollama.close()


async def unless_away(waiting: Coroutine[Any, Any, object], away: Callable[[], object]) -> None:
    """Wait for a model, whatever comes of it, but no longer than it takes to find that no Ollama answers.

    :param away: returns a true value while none answers.
    """
    task = asyncio.create_task(waiting)
    try:
        while not (task.done() or away()):
            await asyncio.wait([task], timeout=LOOK_S)
    finally:
        _cancel([task])


class ManagedHosts:
    """Which of several places has a model that is to be used, or gets it.

    :param wait_s: seconds to wait for a model while no host that could have it answers.
    """

    def __init__(self, places: Sequence[ManagedHost], wait_s: float) -> None:
        self._places, self._wait_s = places, wait_s

    async def ready(self, model: str) -> None:
        """Return when a model is there, at one place at least.

        :raises ProvisioningFailed: if no host can have the model; the reason is that of the first host.
        :raises InferenceFailed: with cause `breaker` when the wait was too long.
        """
        if any(place.provisioner.is_ready(model) for place in self._places):
            return
        wanted = [place for place in self._places if place.provisioner.knows(model)]
        if not wanted:  # a model outside of the profile: any host that has it will do, else one host pulls it
            if any(await asyncio.gather(*(place.has(model) for place in self._places))):
                return
            wanted = [self._places[0]]
        await self._first(model, wanted)

    async def heal(self, model: str) -> None:
        """Restore a missing model. Return when one host has it, or none can have it."""
        wanted = [place for place in self._places if place.provisioner.knows(model)] or self._places[:1]
        tasks = [asyncio.create_task(place.provisioner.heal(model)) for place in wanted]
        try:
            for healed in asyncio.as_completed(tasks):
                if (await healed).ready:
                    return
        finally:
            _cancel(tasks)  # the provisioning itself continues

    async def _first(self, model: str, wanted: Sequence[ManagedHost]) -> None:
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
                if failures and away:  # an unreachable host may never come back
                    raise failures[0]
                away_s = away_s + clock() - looked if away else 0.0
                if away_s > self._wait_s:
                    pending[0].breaker.check(model)  # raises with the remaining time
        finally:
            _cancel(waits)


def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # retrieve the exception, which would be logged otherwise
