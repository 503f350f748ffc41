"""Tools and the connections that offer them: a connection reaches one place outside, and each of its tools does one kind of thing there.

A connector is the code of one kind of connection. It asks the place for its tools, and makes a call ready to be sent. What is done with
a call, so that it happens once, is `batos.tools.effects`; who may make it is `batos.tools.grants`.
"""

from __future__ import annotations

import hashlib
import json
import keyword
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from batos.config import shown
from batos.config.limits import Limits, limit
from batos.errors import InvalidInput
from batos.image.effects import ACTS, CLASSES, READS

KINDS = ("mcp", "openapi", "http", "folder", "program", "web")
"""Kinds of connections."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}\Z")
TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,99}\Z")
_LINE_CHARS, _HEAD_CHARS, _SENTENCE_LEAST, _OPTIONAL = 80, 160, 24, 2
_READING = re.compile(r"(?:gets?|retrieves?|returns?|fetch(?:es)?) (?:(?:the|an?) )?(?:list of )?(?:the )?", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s")
_HIDDEN = re.compile(r"[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """One tool of a connection, as it is pinned when its user adds the connection."""

    name: str
    description: str = ""
    """in the words of the place that offers it: data, never an instruction"""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON schema of an object"""
    result: Mapping[str, Any] | None = None
    """JSON schema of the result, where the place declares one"""
    kind: str = ACTS
    """one of `batos.image.effects.CLASSES`"""
    untrusted: bool = True
    """True if a result may hold text of strangers"""
    private: bool = False
    """True if a result may hold what belongs to the user alone"""
    outward: bool = True
    """True if a call carries its arguments out of this machine, or changes something there or here"""
    look: str = ""
    """name of the reading tool of the same connection that tells, with the same arguments, whether a call happened"""
    undo: str = ""
    """name of the tool of the same connection that takes a call back, with the arguments and result of the call"""
    details: Mapping[str, Any] = field(default_factory=dict)
    """facts that the connector needs to send a call (method, path, …)"""

    def pin(self) -> str:
        """Return the digest of all that the place says of the tool: another digest is another tool."""
        said = [self.name, self.description, self.parameters, self.result, self.kind, self.details]
        return hashlib.sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def line(self) -> str:
        """Return one line for a model: the name, the required parameters and a few others, and the first sentence of the description.

        It is short: a catalogue of 54 operations is to cost a prompt at most 1,200 tokens (`bench/operations.py`).
        """
        required = list(self.parameters.get("required") or ())
        others = [f"{name}?" for name in self.parameters.get("properties") or {} if name not in required]
        shown = others if len(others) <= _OPTIONAL else [*others[: _OPTIONAL - 1], "…"]
        sentence = self.purpose()
        head = f"{self.name}({', '.join([*required, *shown])})"[:_HEAD_CHARS]
        room = max(_SENTENCE_LEAST, _LINE_CHARS - len(head) - 2)
        return f"{head}: {sentence if len(sentence) <= room else sentence[: room - 1].rstrip() + '…'}".rstrip(": ")

    def purpose(self) -> str:
        """Return the first sentence of the description: without a title that says the same, and without the verb of what only reads."""
        sentence = _SENTENCE.split(" ".join(self.description.split()), maxsplit=1)[0]
        title, _, said = sentence.partition(": ")
        sentence = said if len(said) > len(title) else sentence
        if self.kind == READS and (begin := _READING.match(sentence)):
            sentence = sentence[begin.end() :] or sentence
        return sentence.rstrip(".")

    def to_wire(self) -> dict[str, Any]:
        """Return the definition as JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def of(cls, wire: Mapping[str, Any]) -> ToolDefinition:
        """Return the definition of which `to_wire` was the form; fields of a newer version are left out."""
        return cls(**{name: value for name, value in wire.items() if name in cls.__dataclass_fields__})


class ConnectionSpec(NamedTuple):
    """A connection as its user made it."""

    name: str
    kind: str
    """one of `KINDS`"""
    place: str
    """command line, URL, origin or path"""
    options: Mapping[str, Any] = {}
    """Options, by kind (JSON values). Values of `headers` and `env` may name secrets: `{secret:NAME}`."""
    on: str = ""
    """machine that it belongs to, by the name of its kernel; `*`: all; empty: not said (`batos.tools.machines`)"""


@dataclass(frozen=True, slots=True)
class ToolLimits(Limits):
    """Bounds of connections and their tools."""

    connect_s: float = limit(20.0, gt=0, le=600)
    """until a server has started and said what it offers"""
    call_s: float = limit(60.0, gt=0, le=86_400)
    """for one call, where the connection does not say otherwise; the setting `tools.call_s`"""
    result_bytes: int = limit(1 << 20, ge=1, le=1 << 30)
    """of one result"""
    message_bytes: int = limit(4 << 20, ge=1, le=1 << 30)
    """of one message of a server"""
    tools: int = limit(2000, ge=1, le=100_000)
    """of one connection"""
    definition_bytes: int = limit(256 << 10, ge=1, le=1 << 24)
    """of one tool's definition"""
    definitions_bytes: int = limit(16 << 20, ge=1, le=1 << 30)
    """of all definitions of one connection"""
    idle_s: float = limit(300.0, gt=0, le=86_400)
    """after which a server's process without calls is ended; a call starts it anew"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorServices:
    """Parts of the daemon that connectors work with."""

    secret: Callable[[str], str]
    """Returns a secret by its name. Raises `InvalidInput`, which says how to set it."""
    folder: Path
    """A folder beside the image, mode 0700, for what a connector keeps (tokens, files as they were before)."""
    limits: ToolLimits = ToolLimits()
    changed: Callable[[str], None] = lambda name: None
    """Hears that the tools of a connection may have changed."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One sending of a call."""

    key: str
    """the effect's key, the same whenever this call is sent"""
    tell: Callable[[str], None] = lambda line: None
    """Hears how far it is, in one line."""
    pending: str = ""
    """remainder of an earlier sending that asked (`InputRequired.pending`)"""
    answer: str = ""
    """the user's answer to its question"""
    leave: Callable[[], None] = lambda: None
    """Is called just before the first byte leaves, in any thread; what it raises is raised: then nothing may leave."""
    permits: Callable[[Mapping[str, Any]], bool] = lambda arguments: True
    """Returns True if the same call with these arguments needs no question: a server may say that what is asked for is elsewhere."""


class InputRequired(Exception):
    """A tool asks its user before it goes on; what it was asked for has not happened yet."""

    def __init__(self, question: str, pending: str) -> None:
        """
        :param question: for the user.
        :param pending: what the next sending needs to go on, as text.
        """
        super().__init__(question)
        self.question, self.pending = question, pending


NOT_GRANTED = "the grants do not allow a call with that address without a question; make it as a call of its own"
"""Why a redirect is not followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool, ready to be sent."""

    connection: str
    tool: ToolDefinition
    arguments: Mapping[str, Any]
    send: Callable[[Delivery], Awaitable[Any]]
    """Sends it once and returns a result that JSON can hold.

    A `ToolFailed` that is `sure` and an `EgressFailed` that was not sent mean that it surely did not happen. A `ToolFailed` that is not
    `sure` is the tool's own answer, after which nothing is open. `InputRequired` asks the user. Any other error leaves open whether it
    happened.
    """
    seconds: float = 60.0
    target: str = ""
    """the thing that it changes, so that a later change of the same is noticed"""
    look: Callable[[], Awaitable[Any]] | None = None
    """Looks whether it happened: returns what came of it, or None if it surely did not. Any error: it is not known."""
    process: str = ""
    """the process of this machine that carries it out, as `PID START` (`batos.tools.effects.process_start`)"""
    payload: str = ""
    """the request as it leaves, for the user's eyes, without secrets; empty: the arguments say it all"""
    key: str = ""
    """the effect's key; empty before the call belongs to one"""

    @property
    def name(self) -> str:
        """Return `CONNECTION.TOOL`."""
        return f"{self.connection}.{self.tool.name}"


class Connector(Protocol):
    """The code of one connection. It lives as long as the connection is used and is remade after an error that ends it."""

    async def tools(self) -> Sequence[ToolDefinition]:
        """Ask the place for its tools.

        :raises ToolFailed, EgressFailed, EgressRefused: if it cannot be asked.
        """

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a call ready to be sent, whose arguments fit the tool's schema. What is needed for it is started or connected here, so that
        a failure of that surely is not an act.

        :raises InvalidInput: if the arguments do not fit after all.
        :raises ToolFailed: if the place cannot be reached.
        """

    async def close(self) -> None:
        """End all that belongs to the connection."""


def check_definitions(connection: str, found: Sequence[ToolDefinition], limits: ToolLimits) -> None:
    """Refuse definitions that could not be kept, shown or called.

    :raises InvalidInput: with the tool and what is wrong with it.
    """
    if len(found) > limits.tools:
        raise InvalidInput(f"{connection} offers {len(found)} tools; at most {limits.tools} are allowed")
    names: set[str] = set()
    total = 0
    for tool in found:
        if not TOOL_NAME.match(tool.name) or tool.name in names:
            why = "appears twice" if tool.name in names else "is not a valid name (letters, digits, _ . : / -, at most 100)"
            raise InvalidInput(f"{connection}: the tool name {tool.name[:120]!r} {why}")
        names.add(tool.name)
        if tool.kind not in CLASSES:
            raise InvalidInput(f"{connection}.{tool.name}: the class {tool.kind!r} is not valid; allowed are {', '.join(CLASSES)}")
        size = len(json.dumps(tool.to_wire()))
        if size > limits.definition_bytes:
            raise InvalidInput(f"{connection}.{tool.name}: its definition has {size} bytes; at most {limits.definition_bytes} are allowed")
        total += size
        if hidden := _HIDDEN.search(json.dumps([tool.description, tool.parameters], ensure_ascii=False)):
            code = f"U+{ord(hidden[0]):04X}"
            raise InvalidInput(f"{connection}.{tool.name}: its definition holds the hidden character {code}, which a reader would not see")
        if not _is_object_schema(tool.parameters):
            raise InvalidInput(f"{connection}.{tool.name}: its parameters are not a JSON schema of an object")
    if total > limits.definitions_bytes:
        raise InvalidInput(f"{connection}: its definitions have {total} bytes; at most {limits.definitions_bytes} are allowed")
    for tool in found:
        for role, other in (("look", tool.look), ("undo", tool.undo)):
            if other and other not in names:
                raise InvalidInput(f"{connection}.{tool.name} names {other!r} as its {role}, which the connection does not offer")


def _is_object_schema(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    named = isinstance(properties, Mapping) and all(isinstance(one, Mapping | bool) for one in properties.values())
    return named and isinstance(required, list) and all(isinstance(one, str) for one in required)


def identifier(name: str) -> str:
    """Return a name of a connection, a tool or a parameter as a method writes it: other characters are `_`, a keyword ends with one."""
    plain = _NOT_WORD.sub("_", name)
    return f"{plain}_" if keyword.iskeyword(plain) else plain


def named(wanted: str, names: Iterable[str]) -> str | None:
    """Return the one of these names that a method means; None if there is none, or more than one that it could mean."""
    there = list(names)
    if wanted in there:
        return wanted
    found = [name for name in there if identifier(name) == wanted]
    return found[0] if len(found) == 1 else None


_NOT_WORD = re.compile(r"[^A-Za-z0-9_]")


def seconds_of(spec: ConnectionSpec, usual: float) -> float:
    """Return the time of one call, in seconds, from the option `seconds`.

    :param usual: where the connection does not say.
    :raises InvalidInput: if it is not a number above 0, at most a day.
    """
    seconds = spec.options.get("seconds", usual)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
        raise InvalidInput(f"{spec.name}: the option seconds is {shown(seconds)}; allowed is a number above 0, at most 86400")
    return float(seconds)


def with_secrets(text: str, secret: Callable[[str], str]) -> str:
    """Return a text with each `{secret:NAME}` replaced by the secret's value."""
    return _SECRET.sub(lambda found: secret(found[1]), text)


def secrets_in(spec: ConnectionSpec) -> list[str]:
    """Return the names of the secrets that a connection's place and options name."""
    return sorted(set(_SECRET.findall(f"{spec.place}\n{json.dumps(dict(spec.options), ensure_ascii=False)}")))


_SECRET = re.compile(r"\{secret:([A-Za-z][A-Za-z0-9_.-]{0,63})\}")
