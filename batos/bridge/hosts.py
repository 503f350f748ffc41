"""One `Inference` over several Ollama hosts, or over the only one.

The least busy host that has the model does the work, unless what is in use there would have to leave its memory; one that fails before the
first token hands over to the next. When none answers, what is asked for waits until one does.

An answer is keyed by the digest of its model, and a mission must not see that change from one thought to the next. So each name is held to
one digest: that of the first host that had it, for as long as any host has it or may have it when it comes back. A host with other
weights under the name counts as not having the model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from batos.bridge.breaker import Breaker
from batos.bridge.names import tagged
from batos.bridge.types import ChatReply, ChatRequest, Inference
from batos.errors import InferenceFailed

T = TypeVar("T")
AWAY = ("unreachable", "breaker")
LACKS = ("model_missing", "model_changed")


class Host(Inference, Protocol):
    """One of them: `bridge.client.OllamaInference`, or a `bridge.place.Place`."""

    @property
    def host(self) -> str:
        """Its address."""
        ...

    @property
    def under_way(self) -> int:
        """Chats that it was given and that are not at their end."""
        ...

    @property
    def breaker(self) -> Breaker:
        """Whether it answers."""
        ...

    @property
    def models_seen(self) -> Mapping[str, str]:
        """The digests of its models as they were last heard of, by name."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


H = TypeVar("H", bound=Host)


class Hosts(Generic[H]):
    """See the module.

    :param hosts: the first is the one on which experts are built.
    :param crowded: whether what is in use at a host would have to leave for a model.
    :param wait_s: how long an inference waits where no host answers that could do it.
    :param switch_s: how long, where one answers that has other weights under the model's name.
    :param look_s: how often it looks meanwhile, at the least.
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
        self._held: dict[str, str] = {}  # a model's name to its digest

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

    # --- which host

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
                self._held.pop(tagged(model), None)  # the next attempt may think with what is there
                raise failure
            await self._wait(until)
            failed = dict.fromkeys(self._hosts)

    async def _choose(self, model: str, digest: str, failed: dict[H, InferenceFailed | None]) -> H | None:
        """The least busy host that has the model and has not failed yet; notes in `failed` why the others cannot."""
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
        """The digest that the model's name is held to."""
        name = tagged(model)
        held = self._held.get(name, "")
        there = held in found.values() or any(host.models_seen.get(name) == held for host in away)
        if found and not (held and there):
            held = self._held[name] = next(iter(found.values()))
        return held

    async def _have(self, model: str, hosts: dict[H, InferenceFailed | None]) -> dict[H, str | InferenceFailed]:
        """What each host that has not failed yet has under a model's name: a digest, or why it has none."""
        asked = [host for host, failure in hosts.items() if failure is None]

        async def look(host: H) -> str | InferenceFailed:
            try:
                host.breaker.check(model)  # its last list may be young enough to be believed
                return await host.digest(model)
            except InferenceFailed as e:
                return e

        if len(asked) == 1:  # no task for it: that is a tenth of a millisecond of each chat
            return {asked[0]: await look(asked[0])}
        return dict(zip(asked, await asyncio.gather(*map(look, asked)), strict=True))

    def _why(self, failed: dict[H, InferenceFailed | None]) -> InferenceFailed:
        """Why no host can: one that tried says it best; what the first lacks is made anew there; else an outage is waited for."""
        failures = [failure for failure in failed.values() if failure is not None]
        tried = [failure for failure in failures if failure.cause not in (*AWAY, *LACKS)]
        if not tried and failures[0].cause != "model_missing":
            tried = [failure for failure in failures if failure.cause in AWAY]
        return (tried or failures)[0]

    # --- outages

    async def _wait(self, until: float) -> None:
        """Return when a host answers again, or it is time to look."""
        left = min(max(0.0, until - time.monotonic()), self._look_s)  # not all that are away need be left alone yet
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
        """That no host answers, and for how long; empty where one does."""
        if not all(host.breaker.open for host in self._hosts):
            return ""
        return "no Ollama answers: " + ", ".join(f"{host.host} for {host.breaker.open_s:.0f} s" for host in self._hosts)

    def facts(self) -> list[dict[str, Any]]:
        """What `info` says of each host."""
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
