"""Capabilities of models: as Ollama claims them (`/api/show`), as probes find them, and as missions need them.

Results of probes hold for all models that share weights, adapters, template, renderer and parser: a persona's model can do what its base
can. Such a set is named by its *making*, a digest of these.

In words, a mission's need is `vision`, `tools`, `thinking` or `context:32k` (k is 1,024 tokens). `auto` beside them lets the mission's own
plan name needs. A request is reduced to what its model can take before it is sent; the request itself, from which the journal's key is
made, stays.

Probes are tiny requests, sent where the claim is not enough. The model's words do not matter, only the form of the answer:

* `think`: it thinks when told to, and answers at once when told not to. Some models cannot be silenced.
* `format`: its answers keep to a schema. Ollama drops the schema while it believes that the model still thinks. With a parser of its own
  for thoughts and `think` off, that is until the end (0.17.4, server/routes.go).
* `tools`, `images`: Ollama accepts them for this model.
* `context`: it is loaded with the requested context; found out where the model is loaded, see `ManagedHost.probe`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import structlog

from batos.bridge import modelfile
from batos.bridge.inference import ChatReply, ChatRequest
from batos.bridge.profiles import EXPERT_MARK
from batos.errors import InferenceFailed, InvalidInput, ModelfileError

KNOWN_LIMIT = 64
"""Number of builds of models whose probed capabilities are kept, the newest."""
CLAIMS_LIMIT = 1024
"""Number of models whose claims are cached: an Ollama has about ten models, and each may be rebuilt many times."""
PLAIN = "{{ .Prompt }}"
"""Template of a model without a chat template: the model continues a text, and does not answer messages."""
SPEED_TOKENS = 16
"""Least number of tokens of an answer for a measurement of speed."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a model. None: unknown.

    :ivar parameters: number of parameters. `context`: maximum tokens that it reads and writes. `quantization`: as Ollama names it.
    :ivar chats: True if it answers messages; an embedder does not, nor a model without a chat template.
    :ivar thinks: True if it can think before it answers. `silenced`: True if it answers at once when told to.
    :ivar format: True if its answers keep to a given JSON schema.
    :ivar remote: True if it is a model of a service elsewhere, to which every request is sent, and not of this Ollama.
    :ivar speed: tokens written in a second, as last measured.
    :ivar probed: capabilities that were probed, and not only claimed.
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
        """Return the probed values as plain values, without those that `/api/show` gives at any time."""
        found = {name: getattr(self, name) for name in ("thinks", "silenced", "tools", "vision", "format", "context")}
        kept: dict[str, Any] = {name: value for name, value in found.items() if _SOURCE[name] in self.probed}
        return {**kept, "probed": sorted(self.probed), **({"speed": self.speed} if self.speed else {})}

    def with_record(self, record: Mapping[str, Any]) -> Capabilities:
        """Return a copy with the probed values of `record`, which `to_record` made."""
        known = {f.name for f in fields(self)}
        found: dict[str, Any] = {name: value for name, value in record.items() if name in known}
        return replace(self, **{**found, "probed": frozenset(found.get("probed", ()))})

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object, without unknown values."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: sorted(value) if name == "probed" else value for name, value in told.items() if value not in (None, "")}


_SOURCE = {"thinks": "think", "silenced": "think", "tools": "tools", "vision": "images", "format": "format", "context": "context"}
"""Capability -> the probe that measures it."""


def figure(info: Mapping[str, Any], name: str) -> Any:
    """Return a figure of the model's architecture, out of `model_info`."""
    return info.get(f"{info.get('general.architecture')}.{name}")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def writes_for_chats(shown: Mapping[str, Any]) -> bool:
    """Return True if a model marks speakers: it has a chat template, or a renderer in place of one."""
    made = shown_modelfile(shown)
    return bool(made is not None and made.renderer) or str(shown.get("template") or "").strip() not in ("", PLAIN)


def shown_modelfile(shown: Mapping[str, Any]) -> modelfile.Modelfile | None:
    """Return the Modelfile that `/api/show` tells; None if it cannot be read."""
    try:
        return modelfile.parse_modelfile(str(shown.get("modelfile") or ""))
    except ModelfileError:
        return None


def making_of(made: modelfile.Modelfile) -> str:
    """Return the name of what decides what a model can do.

    :param made: the Modelfile in `/api/show`, with the paths of blobs.
    """
    blobs = [path.replace("\\", "/").rpartition("/")[2] for path in (made.from_, *made.also_from, *made.adapters)]
    return hashlib.sha256(json.dumps([blobs, made.template, made.renderer, made.parser]).encode()).hexdigest()


def content_of(shown: Mapping[str, Any]) -> str:
    """Return the name of what decides the answers of a model. It is equal on two Ollamas that have the same files, though the digests of
    their manifests may differ. A manifest may name the absolute path of a file that it came from. An expert is named by its recipe: its
    weights may be computed on each machine. "" if the Modelfile cannot be read.

    :param shown: answer of `/api/show`.
    """
    made = shown_modelfile(shown)
    if made is None:
        return ""
    recipe = EXPERT_MARK.search(str(shown.get("license") or ""))
    files = making_of(made) if recipe is None else [making_of(replace(made, from_="", also_from=(), adapters=())), recipe[3]]
    said = [files, made.system, sorted(made.parameters.items()), made.messages]
    return hashlib.sha256(json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(slots=True)
class KnownCapabilities:
    """Capabilities of models, by digest. Answers from memory.

    :ivar keep: called with a making and its record after a probe.
    """

    keep: Callable[[str, dict[str, Any]], object] = lambda making, record: None
    _making: dict[str, str] = field(default_factory=dict)
    _claims: dict[str, Capabilities] = field(default_factory=dict)
    _records: dict[str, dict[str, Any]] = field(default_factory=dict)
    _templates: dict[str, str] = field(default_factory=dict)
    _contents: dict[str, str] = field(default_factory=dict)

    def recall(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Load the stored results of probes."""
        self._records.update((making, dict(record)) for making, record in records)

    def note(self, digest: str, shown: Mapping[str, Any]) -> None:
        """Store what `/api/show` says about the model of a digest."""
        made = shown_modelfile(shown)
        while len(self._claims) >= CLAIMS_LIMIT:
            oldest = next(iter(self._claims))
            for kept in (self._making, self._claims, self._templates, self._contents):
                del kept[oldest]
        self._making[digest] = digest if made is None else making_of(made)
        self._claims[digest] = Capabilities.claimed(shown)
        self._templates[digest] = str(shown.get("template") or "")
        self._contents[digest] = content_of(shown) or digest

    def content(self, digest: str) -> str:
        """Return the content of the model of a digest (`content_of`); "" until its Ollama was asked."""
        return self._contents.get(digest, "")

    def knows(self, digest: str) -> bool:
        """Return True if Ollama has reported the capabilities of the model of a digest."""
        return digest in self._claims

    def of(self, digest: str) -> Capabilities | None:
        """Return the capabilities of the model with that digest; None until its Ollama was asked."""
        claims = self._claims.get(digest)
        return None if claims is None else claims.with_record(self._records.get(self._making[digest], {}))

    def writes(self, digest: str, mark: str) -> bool:
        """Return True if a mark is in the model's chat template, or the template is unknown."""
        return mark in self._templates.get(digest, mark)

    def found(self, digest: str, more: Capabilities) -> None:
        """Store the probed capabilities of the model of a digest, for all models of the same build."""
        making = self._making.get(digest, digest)
        self._records[making] = record = more.to_record()
        self.keep(making, record)

    def measured(self, digest: str, tokens: int, milliseconds: float) -> None:
        """Record how long an answer took to write."""
        if tokens < SPEED_TOKENS or milliseconds <= 0 or (can := self.of(digest)) is None:
            return
        speed = round(tokens / milliseconds * 1000, 1)
        first = can.speed is None
        record = self._records.setdefault(self._making[digest], can.to_record())
        record["speed"] = speed
        if first:  # keep the first figure; later figures live as long as the daemon
            self.keep(self._making[digest], record)


AUTO_NEEDS = "auto"
Ability = Literal["vision", "tools", "thinking"]
ABILITIES: dict[Ability, str] = {"vision": "sees images", "tools": "can use tools", "thinking": "thinks before it answers"}
"""Ability -> what a model with it does."""
PROBES: dict[Ability, str] = {"vision": "images", "tools": "tools", "thinking": "think"}
"""Ability -> the probe that measures it."""
CONTEXT = re.compile(r"context:([1-9][0-9]{0,8})(k?)", re.IGNORECASE)
CONTEXT_LIMIT = 2**24
"""Greatest number of tokens that a need may name: above the context of any model."""
_KILO = 1024


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of a mission. Falsy if there are none.

    :ivar context: tokens to read and write at once; 0: the default context is enough.
    """

    vision: bool = False
    tools: bool = False
    thinking: bool = False
    context: int = 0

    @classmethod
    def parse(cls, words: Iterable[str]) -> Needs:
        """Read needs in words; `auto` among them counts as none.

        :raises InvalidInput: for a word that is none.
        """
        abilities, context = set(), 0
        for word in words:
            if (found := CONTEXT.fullmatch(word)) is not None:
                context = max(context, int(found[1]) * (_KILO if found[2] else 1))
            elif word in ABILITIES:
                abilities.add(word)
            elif word != AUTO_NEEDS:
                known = f"{', '.join(ABILITIES)}, context:TOKENS (such as context:32k), {AUTO_NEEDS}"
                raise InvalidInput(f"{word[:64]!r} is not a valid need; there are: {known}")
        if context > CONTEXT_LIMIT:
            raise InvalidInput(f"a context of {context} tokens; at most {CONTEXT_LIMIT} may be asked for")
        return cls(**dict.fromkeys(abilities, True), context=context)

    def __or__(self, other: Needs) -> Needs:
        """Return both together."""
        abilities = {name: getattr(self, name) or getattr(other, name) for name in ABILITIES}
        return Needs(**abilities, context=max(self.context, other.context))

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in ABILITIES) or self.context > 0

    @property
    def abilities(self) -> list[Ability]:
        """Return the abilities that are needed."""
        return [name for name in ABILITIES if getattr(self, name)]

    def words(self) -> list[str]:
        """Return the needs as words that `parse` reads."""
        return [*self.abilities, *([f"context:{self.context}"] if self.context else [])]

    def told(self) -> str:
        """Return in words the abilities of a model that meets these needs."""
        parts = [ABILITIES[name] for name in self.abilities]
        parts += [f"reads {self.context:,} tokens at once"] if self.context else []
        return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))

    def covers(self, other: Needs) -> bool:
        """Return True if a model that meets these needs also meets the others."""
        return self | other == self

    def lacking(self, can: Capabilities) -> Needs:
        """Return the needs that a model does not meet. An unknown context is taken to be enough."""
        has = {"vision": can.vision, "tools": can.tools, "thinking": can.thinks}
        lacks = {name: True for name in self.abilities if not has[name]}
        return Needs(**lacks, context=self.context if can.context is not None and can.context < self.context else 0)

    @property
    def probes(self) -> set[str]:
        """Return the probes that check whether a model meets the needs. Loading the model checks its context."""
        return {PROBES[name] for name in self.abilities}


THOUGHT_TOKENS = 2048
"""Extra tokens for a model that thinks first. Without them the thought could use up the tokens of the answer."""
AS_WORDS = "Answer with nothing but one JSON object of this JSON schema:"


def fitted_request(request: ChatRequest, can: Capabilities | None, marks: Sequence[str], writes: Callable[[str], bool]) -> ChatRequest:
    """Return the request as it is sent.

    `think` goes only to a model that can think. It is False unless the request asks for thought. A model that cannot be silenced is left
    to think, and gets extra tokens for that. Stop marks of the profile's template go only to models whose template has them. A schema
    that a model does not keep to is put in words.

    :param can: capabilities of the model; None: unknown, then nothing is changed.
    :param marks: stop marks of the profile's template; stop marks named by the user are always sent.
    :param writes: returns True if the model's own template has a mark.
    """
    if can is None:
        return request
    options: dict[str, Any] = dict(request.options)
    if marks and tuple(options.get("stop", ())) == tuple(marks):
        options["stop"] = tuple(mark for mark in marks if writes(mark))
        if not options["stop"]:
            del options["stop"]
    if not can.thinks:
        options.pop("think", None)
    else:  # by default Ollama lets the model think, which may use up the tokens of the answer
        options["think"] = bool(options.get("think")) or not can.silenced
    if options.get("think") and "num_predict" in options:
        answer, context = options["num_predict"], options.get("num_ctx", 0)
        options["num_predict"] = max(answer, min(answer + THOUGHT_TOKENS, context // 2))
    if options != dict(request.options):
        request = replace(request, options=tuple(sorted(options.items())))
    if request.schema is not None and not can.format:
        words = json.dumps(request.schema, ensure_ascii=False)
        request = replace(request, schema=None, user=f"{request.user}\n\n{AS_WORDS}\n{words}")
    return request


log = structlog.get_logger(__name__)

Ask = Callable[[ChatRequest], Awaitable[ChatReply]]
PROBE_TOKENS = 48
ASKED_PROBES = ("think", "format", "tools", "images")
ALL_PROBES = (*ASKED_PROBES, "context")
_QUESTION = "Say yes."
_SCHEMA = {"type": "object", "properties": {"answer": {"type": "string", "enum": ["yes"]}}, "required": ["answer"]}
_TOOL = {
    "type": "function",
    "function": {
        "name": "say",
        "description": "Says a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
_IMAGE = (  # a white square of 32 pixels
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJklEQVR42u3NMQ0AAAwDoPo33arYsQQMkB6LQCAQCAQCgUAg+BIMi1X0ptsIcT0AAAAASUVORK5CYII="
)


async def probe(ask: Ask, model: str, claims: Capabilities, wanted: Collection[str], options: Mapping[str, Any]) -> Capabilities:
    """Probe the wanted capabilities that were not probed yet.

    :param ask: does an inference.
    :param claims: capabilities known so far.
    :param options: options of every inference, with which the model is loaded.
    :raises InferenceFailed: if the Ollama is unavailable, or does not answer in time: then nothing is learned.
    """
    found = claims
    for name in ASKED_PROBES:
        if name in wanted and name not in found.probed:
            found = await _PROBES[name](_asking(ask, model, options), found)
            found = replace(found, probed=found.probed | {name})
            log.info("probed", model=model, probe=name, **{k: v for k, v in found.to_wire().items() if k != "probed"})
    return found


async def load_model(ask: Ask, model: str, options: Mapping[str, Any]) -> None:
    """Load a model with the options of every inference.

    :raises InferenceFailed: as `probe`.
    """
    await _asking(ask, model, options)(think=None)


def tiny_request(model: str, options: Mapping[str, Any]) -> ChatRequest:
    """Return a request that a model answers with hardly anything."""
    given = {name: value for name, value in options.items() if name != "think"}
    return ChatRequest(model, "", _QUESTION, options=tuple(sorted({**given, "num_predict": 1, "seed": 1}.items())))


Say = Callable[..., Awaitable[ChatReply | None]]


def _asking(ask: Ask, model: str, options: Mapping[str, Any]) -> Say:
    """Return a way to ask the model something tiny; it answers None if Ollama refuses the request."""

    async def say(*, think: bool | None = None, **more: Any) -> ChatReply | None:
        given = {**options, "num_predict": PROBE_TOKENS, "seed": 1, **({} if think is None else {"think": think})}
        if think is None:
            given.pop("think", None)
        try:
            return await ask(ChatRequest(model, "", _QUESTION, options=tuple(sorted(given.items())), **more))
        except InferenceFailed as e:
            if e.cause in ("refused", "server_error"):
                return None
            raise

    return say


async def _think(say: Say, found: Capabilities) -> Capabilities:
    if not found.thinks:
        return found
    if await say(think=True) is None:  # Ollama rejects `think` for this model
        return replace(found, thinks=False)
    quiet = await say(think=False)
    return replace(found, silenced=quiet is not None and not quiet.thinking)


async def _format(say: Say, found: Capabilities) -> Capabilities:
    think = False if found.thinks and found.silenced else None
    reply = await say(think=think, schema=_SCHEMA)
    if reply is None:
        return replace(found, format=False)
    text = reply.text.strip()
    if reply.done_reason == "length" and (text.startswith("{") or (not found.silenced and not text)):
        return found  # the answer was cut: its start fits the schema, or all of it was thought, and the schema applies to the answer only
    try:
        return replace(found, format=isinstance(json.loads(text), dict))
    except ValueError:
        return replace(found, format=False)


async def _tools(say: Say, found: Capabilities) -> Capabilities:
    think = False if found.thinks else None
    return replace(found, tools=found.tools and await say(think=think, tools=(_TOOL,)) is not None)


async def _images(say: Say, found: Capabilities) -> Capabilities:
    think = False if found.thinks else None
    return replace(found, vision=found.vision and await say(think=think, images=((_IMAGE,),)) is not None)


_PROBES: dict[str, Callable[[Say, Capabilities], Awaitable[Capabilities]]] = {
    "think": _think,
    "format": _format,
    "tools": _tools,
    "images": _images,
}
