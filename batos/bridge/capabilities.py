"""Tells what a model can do: as its Ollama claims it (`/api/show`), and as it was found out. Pure values; asks nobody.

What is found out holds for all models that share weights, adapters, template, renderer and parser: a persona's model can do what its base
can. Such a set is named by its *making*, a digest of these.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from batos.bridge import modelfile
from batos.errors import ModelfileError

KNOWN_LIMIT = 64
"""Makings of which it is kept what was found out: the ones found out last."""
CLAIMS_LIMIT = 1024
"""Models whose claims are remembered: an Ollama has some ten, and each may be made anew many times."""
PLAIN = "{{ .Prompt }}"
"""The template of a model for which nobody wrote one: it goes on with a text, and answers nobody."""
SPEED_TOKENS = 16
"""Tokens of an answer from which its speed says something."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Says what a model can do. None: not known.

    :ivar parameters: how many it has. `context`: tokens that it reads and writes at most. `quantization`: as Ollama names it.
    :ivar chats: whether it answers messages; an embedder does not, nor a model without a chat template.
    :ivar thinks: whether it can think before it answers. `silenced`: whether it then answers at once where it is told to.
    :ivar format: whether an answer keeps to a JSON schema that it is given.
    :ivar remote: whether it is no model of this Ollama's but of a service elsewhere, to which all that it is asked is sent.
    :ivar speed: tokens that it writes in a second, as last measured.
    :ivar probed: what of this was found out, and is not only claimed.
    """

    parameters: int | None = None
    context: int | None = None
    quantization: str = ""
    chats: bool = True
    thinks: bool = False
    silenced: bool = True
    tools: bool = False
    vision: bool = False
    format: bool = True
    remote: bool = False
    speed: float | None = None
    probed: frozenset[str] = frozenset()

    @classmethod
    def claimed(cls, shown: Mapping[str, Any]) -> Capabilities:
        """Read what `/api/show` says. An Ollama that is too old to say what a model can do (before 0.6.4) says nothing of it."""
        info, details = shown.get("model_info") or {}, shown.get("details") or {}
        can = shown.get("capabilities")
        able = set(can or ())
        return cls(
            parameters=_count(info.get("general.parameter_count")),
            context=_count(figure(info, "context_length")),
            quantization=str(details.get("quantization_level") or ""),
            chats=(can is None or "completion" in able) and writes_for_chats(shown),
            thinks="thinking" in able,
            tools="tools" in able,
            vision="vision" in able,
            remote=bool(shown.get("remote_host") or shown.get("remote_model")),
        )

    def to_record(self) -> dict[str, Any]:
        """Give what was found out, as plain values: what `/api/show` says again at any time is left out."""
        found = {name: getattr(self, name) for name in ("thinks", "silenced", "tools", "vision", "format", "context")}
        kept: dict[str, Any] = {name: value for name, value in found.items() if _SOURCE[name] in self.probed}
        return {**kept, "probed": sorted(self.probed), **({"speed": self.speed} if self.speed else {})}

    def with_record(self, record: Mapping[str, Any]) -> Capabilities:
        """These, where they were not found out to be otherwise; `record` is what `to_record` made."""
        known = {f.name for f in fields(self)}
        found: dict[str, Any] = {name: value for name, value in record.items() if name in known}
        return replace(self, **{**found, "probed": frozenset(found.get("probed", ()))})

    def to_wire(self) -> dict[str, Any]:
        """As a JSON object; what is not known is left out."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: sorted(value) if name == "probed" else value for name, value in told.items() if value not in (None, "")}


_SOURCE = {"thinks": "think", "silenced": "think", "tools": "tools", "vision": "images", "format": "format", "context": "context"}
"""By capability, the probe that finds it out."""


def figure(info: Mapping[str, Any], name: str) -> Any:
    """A figure of the model's architecture, out of `model_info`."""
    return info.get(f"{info.get('general.architecture')}.{name}")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def writes_for_chats(shown: Mapping[str, Any]) -> bool:
    """Tell whether a model has words for who speaks: a chat template, or a renderer in place of one."""
    made = parsed(shown)
    return bool(made is not None and made.renderer) or str(shown.get("template") or "").strip() not in ("", PLAIN)


def parsed(shown: Mapping[str, Any]) -> modelfile.Modelfile | None:
    """The Modelfile that `/api/show` tells; None where it cannot be read."""
    try:
        return modelfile.parse(str(shown.get("modelfile") or ""))
    except ModelfileError:
        return None


def making_of(made: modelfile.Modelfile) -> str:
    """The name of what decides what a model can do.

    :param made: as `/api/show` tells it, with the paths of blobs.
    """
    blobs = [path.replace("\\", "/").rpartition("/")[2] for path in (made.from_, *made.also_from, *made.adapters)]
    return hashlib.sha256(json.dumps([blobs, made.template, made.renderer, made.parser]).encode()).hexdigest()


@dataclass(slots=True)
class Known:
    """Keeps what is known of models, by digest. Answers from memory.

    :ivar keep: is told what was found out of a making: it and its record.
    """

    keep: Callable[[str, dict[str, Any]], object] = lambda making, record: None
    _making: dict[str, str] = field(default_factory=dict)
    _claims: dict[str, Capabilities] = field(default_factory=dict)
    _records: dict[str, dict[str, Any]] = field(default_factory=dict)
    _templates: dict[str, str] = field(default_factory=dict)

    def recall(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Take up what was found out before."""
        self._records.update((making, dict(record)) for making, record in records)

    def note(self, digest: str, shown: Mapping[str, Any]) -> None:
        """Take note of what `/api/show` says of the model of a digest."""
        made = parsed(shown)
        while len(self._claims) >= CLAIMS_LIMIT:
            oldest = next(iter(self._claims))
            for kept in (self._making, self._claims, self._templates):
                del kept[oldest]
        self._making[digest] = digest if made is None else making_of(made)
        self._claims[digest] = Capabilities.claimed(shown)
        self._templates[digest] = str(shown.get("template") or "")

    def knows(self, digest: str) -> bool:
        """Tell whether its Ollama said what the model of a digest can do."""
        return digest in self._claims

    def of(self, digest: str) -> Capabilities | None:
        """What the model of a digest can do; None as long as its Ollama was not asked."""
        claims = self._claims.get(digest)
        return None if claims is None else claims.with_record(self._records.get(self._making[digest], {}))

    def writes(self, digest: str, mark: str) -> bool:
        """Whether a mark stands in the model's chat template; True where that is not known."""
        return mark in self._templates.get(digest, mark)

    def found(self, digest: str, more: Capabilities) -> None:
        """Keep what was found out of the model of a digest, for all of its making."""
        making = self._making.get(digest, digest)
        self._records[making] = record = more.to_record()
        self.keep(making, record)

    def measured(self, digest: str, tokens: int, milliseconds: float) -> None:
        """Note how long an answer took to write."""
        if tokens < SPEED_TOKENS or milliseconds <= 0 or (can := self.of(digest)) is None:
            return
        speed = round(tokens / milliseconds * 1000, 1)
        first = can.speed is None
        record = self._records.setdefault(self._making[digest], can.to_record())
        record["speed"] = speed
        if first:  # a figure to go by; what follows is known while the daemon runs
            self.keep(self._making[digest], record)
