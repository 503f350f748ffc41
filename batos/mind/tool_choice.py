"""Tool choice: the calls of offered tools that a brief asks for, or none, and why.

Offered are a few of the tools (`offered`, `batos.mind.tool_catalogue`). Then one of two drivers chooses:

* native: a model that can use tools is given them in its own form, and asks for one call or several. Operations that read parts of one
  resource are one function there, whose argument `operation` says which is called (`offered_lines`);
* by schema, for any other model. Each offered tool is rated by its likeness to the brief and by the arguments that rules read from the
  brief (`batos.mind.argument_reader`). A model is asked, constrained by their schemas, for required arguments that the rules leave open.

No tool fits if the best one is too unlike, or a required argument stays open. Every call that is chosen fits its tool's schema, but for
patterns, which the tool's place checks. A call that failed comes back once, with its error; the same call is not chosen again.

Nothing here waits for anything but the embedder and the model that it is given, and nothing is stored. A mission that must choose the same
after a restart records the choice (`ToolChoice.to_wire`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from batos.bridge.inference import ChatReply
from batos.bridge.structured_output import json_values
from batos.errors import InferenceFailed
from batos.mind import prompts
from batos.mind.argument_reader import (
    ArgumentReading,
    Path,
    candidates,
    merged,
    named_share,
    parameters_of,
    read_arguments,
    resolved,
)
from batos.mind.brief_values import frame_of, stem_of, words_of
from batos.mind.json_schema import problem_with
from batos.mind.tool_catalogue import CLAUSE, TITLE, ToolCatalogue, catalogue_of, clauses_of, names_in
from batos.mind.tool_facts import Kind, facts_of, title_of
from batos.tools.definitions import ToolDefinition

OFFERED, READ, CALLS = 8, 3, 8
"""Tools that are offered by default; tools for which arguments are read; greatest number of calls that are taken from one answer."""
COMPARED = 128
"""Tools whose likeness to a brief is looked at, where there are more: those that share most words with it."""
FIT = 0.53
"""Least fitness of a tool that is called: its likeness, more for evident arguments and words of its name, less for open arguments"""
LIKE = 0.22
"""Least likeness of a tool that is called, whatever its arguments"""
_EVIDENT, _NAMED, _OPEN = 0.2, 0.15, 0.5  # weights of these shares
_FRAME, _FRAME_WORDS = 0.9, 3  # weight of the likeness of a brief without its values, and the least number of its words
_UNLIKE = 0.25  # distance from the most alike tool past which arguments are not read
_GAP = "\n…\n"  # between the beginning and the end of a text that is only compared
_TEXT_CHARS, _ANSWER_CHARS, _ABOUT_CHARS, _MEANING_CHARS = 2000, 300, 160, 80
_SCHEMA_DEPTH, _SCHEMA_PARTS = 8, 400
_NAME = re.compile(r"[^A-Za-z0-9_-]+")
OPERATION = "operation"
"""Name of the argument that says which tool a function of several tools calls, unless a tool has a parameter of that name."""

Likeness = Callable[[Sequence[str], Sequence[str]], Awaitable[list[list[float]] | None]]
"""Returns the cosine of each text of the first to each of the second; None if no embedder answers (`batos.mind.text_likeness`)."""
Ask = Callable[[str, dict[str, Any] | None], Awaitable[str]]
"""Asks a model: takes a prompt and a JSON schema, returns the text of the answer."""
AskWithTools = Callable[[str, tuple[dict[str, Any], ...]], Awaitable[ChatReply]]
"""Asks a model that can use tools: takes a prompt and the tools in Ollama's form."""


class ToolOffer(NamedTuple):
    """A tool that a mission may call."""

    name: str
    """`CONNECTION.TOOL`"""
    tool: ToolDefinition

    @property
    def about(self) -> str:
        """Return what the tool says of itself, as an embedder compares it."""
        words = re.sub(r"[_\W]+|(?<=[a-z0-9])(?=[A-Z])", " ", self.tool.name).strip()
        return f"{words}: {' '.join(self.tool.description.split())}"[:600]


class ChosenCall(NamedTuple):
    """A call of a tool; the arguments fit the tool's schema."""

    name: str
    arguments: dict[str, Any]


class FailedCall(NamedTuple):
    """An earlier call of the same brief, and why it failed."""

    call: ChosenCall
    error: str


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The calls that a brief asks for; none where no tool fits."""

    calls: tuple[ChosenCall, ...]
    why: str
    """reason in words, for the mission's record"""
    missing: tuple[str, ...] = ()
    """Required arguments that neither the brief nor the model tells, where that is all that a call lacks: the user may be asked."""
    each: bool = False
    """True if each call is one to be made, also where the mission made the same one before. Records of earlier versions do not say it."""

    def to_wire(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        return {"calls": [call._asdict() for call in self.calls], "why": self.why, "missing": list(self.missing), "each": self.each}

    @classmethod
    def of(cls, wire: Mapping[str, Any]) -> ToolChoice:
        """Return the choice of which `to_wire` was the form."""
        return cls(
            tuple(ChosenCall(**call) for call in wire["calls"]), wire["why"], tuple(wire.get("missing", ())), wire.get("each", False)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceServices:
    """Parts of the daemon that a choice is made with; any of them may be missing."""

    likeness: Likeness | None = None
    ask: Ask | None = None
    ask_with_tools: AskWithTools | None = None
    """Given where the mission's model can use tools by itself (`Capabilities.tools`)."""


async def offered(
    text: str, tools: Sequence[ToolOffer], k: int = OFFERED, likeness: Likeness | None = None
) -> list[tuple[ToolOffer, float]]:
    """Return `k` tools for a text, the most alike first, each with its likeness. These tools are most like the text, share its words, do
    what it asks for, and are needed by one another (`batos.mind.tool_catalogue`).
    """
    rated = await _rated(text, tools, k, likeness)
    chosen = list(range(len(rated.tools)))
    if rated.held is not None:
        chosen = rated.held.taken(rated.text, rated.near, max(0, k), rated.plausible)
    return sorted(((rated.tools[at], rated.alike[at]) for at in chosen), key=lambda pair: -pair[1])


async def offered_lines(
    text: str, tools: Sequence[ToolOffer], k: int = OFFERED, likeness: Likeness | None = None
) -> list[tuple[ToolOffer, ...]]:
    """Return the tools that are offered in `k` lines. They are chosen as by `offered`, but tools that read parts of one resource share a
    line, so that there are more of them (`ToolCatalogue.lines`). Where there are at most `k` tools, each has its own line."""
    rated = await _rated(text, tools, k, likeness)
    if rated.held is None:
        lines = [[at] for at in range(len(rated.tools))]
    else:
        owners = [offer.name.partition(".")[0] for offer in rated.tools]
        lines = rated.held.lines(rated.text, rated.near, max(0, k), owners, rated.plausible)
    lines.sort(key=lambda line: -max(rated.alike[at] for at in line))
    return [tuple(rated.tools[at] for at in line) for line in lines]


class _Rated(NamedTuple):
    """Tools that may be offered, and what speaks for each."""

    text: str
    tools: Sequence[ToolOffer]
    alike: Sequence[float]
    """likeness of each to the text"""
    near: Sequence[float] = ()
    """the same, or to a clause of it"""
    held: ToolCatalogue | None = None
    """None where all of them are offered"""
    plausible: dict[Kind, float] | None = None


async def _rated(text: str, tools: Sequence[ToolOffer], k: int, likeness: Likeness | None) -> _Rated:
    if not tools:
        return _Rated(text, (), ())
    text = prompts.without_middle(text, _TEXT_CHARS, _GAP)  # what is asked for is at the beginning or at the end
    if len(tools) > COMPARED:
        tools = [tools[at] for at in catalogue_of([offer.tool for offer in tools]).by_words(text, COMPARED)]
    frame, clauses = frame_of(text), clauses_of(text)
    asked = [text, *([frame] if len(frame.split()) >= _FRAME_WORDS else [])]
    rows = None if likeness is None else await likeness([*asked, *clauses], [offer.about for offer in tools])
    if rows is None:
        alike = near = [_shared(text, offer) for offer in tools]
    else:  # a long value would hide what is asked for
        alike = [max(whole, _FRAME * frame) for whole, frame in zip(rows[0], rows[len(asked) - 1], strict=True)]
        near = alike
    if len(tools) <= k:
        return _Rated(text, tools, alike)
    held = catalogue_of([offer.tool for offer in tools])
    if likeness is not None and rows is not None:
        near = await _nearer(alike, rows[len(asked) :], [*asked, *clauses], held, likeness)
    return _Rated(text, tools, alike, near, held, await _plausible(text, held, likeness))


async def _nearer(
    alike: Sequence[float], rows: Sequence[Sequence[float]], asked: Sequence[str], held: ToolCatalogue, likeness: Likeness
) -> list[float]:
    """Return the likeness of each tool to a whole brief or to a clause of it, by what it says or by its title."""
    titles = await likeness(asked, [title_of(tool) for tool in held.tools]) or []
    return [
        max(one, CLAUSE * max((row[at] for row in rows), default=0.0), TITLE * max((row[at] for row in titles), default=0.0))
        for at, one in enumerate(alike)
    ]


async def _plausible(text: str, held: ToolCatalogue, likeness: Likeness | None) -> dict[Kind, float] | None:
    """Return which things the names in a brief may be; None where it names nothing that can be looked for."""
    names = names_in(text)
    if not names or not held.lookups:
        return None
    labels = [held.labels[kind] for kind in held.lookups]
    return held.plausibility(names, None if likeness is None else await likeness([name.text for name in names], labels))


def _shared(text: str, offer: ToolOffer) -> float:
    """Return the likeness of a tool by words alone: the share of its words that the text has, as far as a cosine would be."""
    said = {word.stem for word in words_of(prompts.without_middle(text, _TEXT_CHARS, _GAP)) if word.stem}
    about = {stem for stem in map(stem_of, re.findall(r"[^\W_]+", offer.about)) if stem}
    return min(1.0, 1.6 * len(said & about) / len(about) ** 0.5 / max(1.0, len(said) ** 0.5)) if about else 0.0


async def choose(
    text: str,
    offers: Sequence[ToolOffer],
    services: ChoiceServices,
    *,
    k: int = OFFERED,
    again: FailedCall | None = None,
    floor: float = FIT,
) -> ToolChoice:
    """Choose the calls that a text asks for.

    :param k: number of tools that are looked at.
    :param again: an earlier call for this text that failed: it is not chosen again, and the model reads its error.
    :param floor: least fitness of a tool that is called, if no model uses tools by itself. Below 0, the best tool is called, however unlike
        it is.
    :raises InferenceFailed: as the model's answer fails.
    """
    if services.ask_with_tools is not None and offers:
        return await _natively(text, await offered_lines(text, offers, k, services.likeness), services.ask_with_tools, again)
    best = await offered(text, offers, k, services.likeness)
    if not best:
        return ToolChoice((), "no tool is offered")
    return await _by_schema(text, best, services, again, floor)


# --- native tool calling


class ToolFunction(NamedTuple):
    """Function that a model is given: one tool, or several of which an argument says which is called."""

    name: str
    offers: tuple[ToolOffer, ...]
    which: str
    """the name of that argument; empty for one tool"""

    def form(self) -> dict[str, Any]:
        """Return it as Ollama takes it."""
        description, parameters = self.offers[0].tool.description, self._parameters(self.offers[0].tool)
        if self.which:
            said = "; ".join(f"{offer.tool.name}: {offer.tool.purpose()[:_ABOUT_CHARS]}" for offer in self.offers)
            description = f"One of several operations that read, as `{self.which}` says. {said}"
            parameters = self._joint()
        return {"type": "function", "function": {"name": self.name, "description": description, "parameters": parameters}}

    @staticmethod
    def _parameters(tool: ToolDefinition) -> dict[str, Any]:
        parameters = _without_references(tool.parameters, tool.parameters, 0)
        parameters.setdefault("type", "object")
        parameters.setdefault("properties", {})
        return parameters

    def _joint(self) -> dict[str, Any]:
        """Return the parameters of all tools, in few words; one that some do not take says whose it is."""
        properties: dict[str, Any] = {self.which: {"type": "string", "enum": [offer.tool.name for offer in self.offers]}}
        each = [self._parameters(offer.tool) for offer in self.offers]
        for name in dict.fromkeys(name for parameters in each for name in parameters["properties"]):
            takers = [at for at, parameters in enumerate(each) if name in parameters["properties"]]
            schema = dict(each[takers[0]]["properties"][name])
            said = str(schema.pop("description", ""))[:_MEANING_CHARS]
            if len(takers) < len(each):
                of = ", ".join(self.offers[at].tool.name for at in takers)
                said = f"Only of {of}. {said}".strip()
            properties[name] = {**schema, "description": said} if said else schema
        return {"type": "object", "properties": properties, "required": [self.which, *each[0].get("required", ())]}

    def chosen(self, arguments: dict[str, Any]) -> tuple[ToolOffer | None, dict[str, Any]]:
        """Return the tool that a call is of, and its own arguments; None where the call does not say which."""
        if not self.which:
            return self.offers[0], arguments
        named = arguments.get(self.which)
        offer = next((one for one in self.offers if named in (one.name, one.tool.name)), None)
        return offer, {name: value for name, value in arguments.items() if name != self.which}


def functions_of(lines: Sequence[tuple[ToolOffer, ...]]) -> dict[str, ToolFunction]:
    """Return the functions that a model is given for lines of tools (`offered_lines`), by their names."""
    found: dict[str, ToolFunction] = {}
    for offers in lines:
        name, which = _NAME.sub("_", offers[0].name), ""
        if len(offers) > 1:
            taken = {parameter for offer in offers for parameter in offer.tool.parameters.get("properties") or ()}
            which = next(one for one in (OPERATION, *(f"{OPERATION}_{n}" for n in range(len(taken) + 1))) if one not in taken)
            connection = offers[0].name.partition(".")[0]
            name = _NAME.sub("_", f"{connection}.{facts_of(offers[0].tool).resource[0] or 'read'}").strip("_")
        name = name[:60]
        name = name if name not in found else f"{name}_{len(found)}"
        found[name] = ToolFunction(name, offers, which)
    return found


async def _natively(text: str, lines: Sequence[tuple[ToolOffer, ...]], ask: AskWithTools, again: FailedCall | None) -> ToolChoice:
    functions = functions_of(lines)
    forms = tuple(one.form() for one in functions.values())
    prompt, faults = text, list[str]()
    if again is not None:
        prompt = f"{text}\n\n{_failure(again)}"
    for _ in range(2):
        reply = await ask(prompt, forms)
        calls, faults = _checked(reply.calls, functions)
        if calls and again is not None and again.call in calls:
            return ToolChoice((), f"the model asks for the call that failed: {again.error[:_ABOUT_CHARS]}")
        if calls and not faults:
            return ToolChoice(tuple(calls), f"the model asks for {', '.join(call.name for call in calls)}", each=True)
        if not reply.calls:
            return ToolChoice((), "the model asks for no tool")
        prompt = f"{text}\n\nYour last call was refused: {'; '.join(faults)}. Call again, or answer without a tool."
    return ToolChoice((), f"the model's calls do not fit: {'; '.join(faults)}")


def _checked(asked: Sequence[tuple[str, str]], functions: Mapping[str, ToolFunction]) -> tuple[list[ChosenCall], list[str]]:
    calls, faults = list[ChosenCall](), list[str]()
    for name, told in asked[:CALLS]:
        function = functions.get(name) or _named(name, functions)
        if function is None:
            faults.append(f"{name[:60]!r} is not a tool here; there are: {', '.join(functions)}")
            continue
        try:
            arguments = json.loads(told)
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            faults.append(f"the arguments of {name} are not a JSON object")
            continue
        offer, arguments = function.chosen(arguments)
        if offer is None:
            names = ", ".join(one.tool.name for one in function.offers)
            faults.append(f"{name}: {function.which!r} has to be one of {names}")
        elif (problem := _problem(arguments, offer.tool)) is not None:
            faults.append(f"{offer.tool.name if function.which else name}: {problem}")
        else:
            calls.append(ChosenCall(offer.name, arguments))
    if len(asked) > CALLS:
        faults.append(f"{len(asked)} calls at once; at most {CALLS} are allowed")
    return calls, faults


def _named(name: str, functions: Mapping[str, ToolFunction]) -> ToolFunction | None:
    """Return the function of one tool that a model calls by the tool's own name."""
    offers = (offer for function in functions.values() for offer in function.offers)
    found = next((offer for offer in offers if name in (offer.name, offer.tool.name, _NAME.sub("_", offer.name)[:60])), None)
    return None if found is None else ToolFunction(name, (found,), "")


def _without_references(root: Mapping[str, Any], schema: Any, depth: int, left: list[int] | None = None) -> dict[str, Any]:
    """Return a schema with its references in their places, to a bounded depth and size: Ollama drops references.

    :param left: number of schemas that may still be written out.
    """
    left = [_SCHEMA_PARTS] if left is None else left
    left[0] -= 1
    one = {key: value for key, value in resolved(root, schema).items() if key not in ("$defs", "definitions", "$schema", "$id")}
    if depth >= _SCHEMA_DEPTH or left[0] <= 0:
        return {key: one[key] for key in ("type", "description") if key in one}
    if isinstance(one.get("properties"), dict):
        one["properties"] = {key: _without_references(root, value, depth + 1, left) for key, value in one["properties"].items()}
    if isinstance(one.get("items"), dict):
        one["items"] = _without_references(root, one["items"], depth + 1, left)
    return one


# --- by schema


@dataclass(slots=True)
class _Candidate:
    offer: ToolOffer
    like: float
    reading: ArgumentReading
    named: float
    """share of the words of the tool's name that the brief has"""
    fitness: float = field(init=False)

    def __post_init__(self) -> None:
        needed = sum(one.required for one in parameters_of(self.offer.tool.parameters))
        open_ = len(self.reading.open) / needed if needed else 0.0
        self.fitness = self.like + _EVIDENT * self.reading.evident + _NAMED * self.named - _OPEN * open_


async def _by_schema(
    text: str, best: Sequence[tuple[ToolOffer, float]], services: ChoiceServices, again: FailedCall | None, floor: float
) -> ToolChoice:
    near = [(offer, like) for offer, like in best[:READ] if like >= best[0][1] - _UNLIKE]
    rated = [
        _Candidate(offer, like, await _read(text, offer, services.likeness), named_share(text, offer.tool.name)) for offer, like in near
    ]
    chosen = max(rated, key=lambda one: one.fitness)
    if again is not None:
        chosen = next((one for one in rated if one.offer.name == again.call.name), chosen)
    name, told = chosen.offer.name, f"likeness {chosen.like:.2f}, fitness {chosen.fitness:.2f}"
    if again is None and (chosen.fitness < floor or (chosen.like < LIKE and floor >= 0)):
        lacks = f"; the brief does not tell {_names(chosen.reading.open)}" if chosen.reading.open else ""
        return ToolChoice((), f"no tool fits: the best, {name}, has {told}; at least {LIKE} and {floor} are needed{lacks}")
    arguments, open_ = chosen.reading.arguments, chosen.reading.open
    if again is not None and again.call == (name, arguments):
        open_ = tuple(_blamed(chosen.offer.tool, again))
    by = "rules"
    if open_ and services.ask is not None:
        arguments = await _filled(text, chosen.offer.tool, arguments, open_, services.ask, again)
        by = f"rules, and the model for {_names(open_)}"
    problem = _problem(arguments, chosen.offer.tool)
    if problem is None and (no_url := _no_url(arguments)) is not None:
        return ToolChoice((), f"{name} fits ({told}), but the brief names no URL: {no_url!r} is none")
    if problem is not None:
        left = tuple(path for path in chosen.reading.open if not _told(arguments, path))
        return ToolChoice((), f"{name} fits ({told}), but its arguments do not: {problem}", tuple(".".join(path) for path in left))
    if again is not None and again.call == (name, arguments):
        return ToolChoice((), f"no other arguments for {name} than those that failed: {again.error[:_ABOUT_CHARS]}")
    return ToolChoice((ChosenCall(name, arguments),), f"{name}: {told}; arguments by {by}")


async def _read(text: str, offer: ToolOffer, likeness: Likeness | None) -> ArgumentReading:
    schema, about = offer.tool.parameters, f"{offer.tool.name} {offer.tool.description}"
    alike: dict[tuple[str, str], float] = {}
    taking = candidates(text, parameters_of(schema)) if likeness is not None else {}
    if likeness is not None and (texts := list(dict.fromkeys(one for found in taking.values() for one in found))):
        rows = await likeness(list(taking), texts)
        for label, row in zip(taking, rows or (), strict=False):
            alike |= {(label, one): cosine for one, cosine in zip(texts, row, strict=True)}
    return read_arguments(text, schema, about, alike)


async def _filled(
    text: str, tool: ToolDefinition, arguments: dict[str, Any], open_: Sequence[Path], ask: Ask, again: FailedCall | None
) -> dict[str, Any]:
    """Return the arguments with those that a model adds; they need not fit."""
    wanted = {".".join(one.path): one for one in parameters_of(tool.parameters) if one.path in set(open_)}
    properties = {name: _without_references(tool.parameters, one.schema, 0) for name, one in wanted.items()}
    for told in properties.values():
        if told.get("type") == "string" and "enum" not in told:
            told["maxLength"] = min(told.get("maxLength", _ANSWER_CHARS), _ANSWER_CHARS)
    lines = [f"- {name}: {told.get('description', '')[:_ABOUT_CHARS]}" for name, told in properties.items()]
    known = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()]
    prompt = "\n".join(
        (
            f"Request: {prompts.without_middle(text, _TEXT_CHARS)}",
            f"Tool: {tool.line()}",
            *([f"Known: {'; '.join(known)[:_TEXT_CHARS]}"] if known else []),
            *([_failure(again)] if again is not None else []),
            "Fill in from the request:",
            *lines,
            "Answer with one JSON object.",
        )
    )
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    try:
        answer = await ask(prompt, schema)
    except InferenceFailed as e:
        if e.cause not in ("refused", "server_error"):
            raise
        answer = await ask(prompt, None)  # a schema of which Ollama makes no grammar
    found = next((value for value, _ in json_values(answer) if isinstance(value, dict)), {})
    for name, one in wanted.items():
        value = found.get(name)
        if value is not None and value != "" and problem_with(value, properties[name]) is None:
            arguments = merged(arguments, one.path, value)
    return arguments


def _blamed(tool: ToolDefinition, again: FailedCall) -> list[Path]:
    """Return the parameters that an error names; all that a call gave where it names none."""
    given = [one for one in parameters_of(tool.parameters) if _told(again.call.arguments, one.path)]
    named = [one.path for one in given if re.search(rf"(?<!\w){re.escape(one.path[-1])}(?!\w)", again.error)]
    return named or [one.path for one in given]


def _told(arguments: Any, path: Path) -> bool:
    for name in path:
        if not isinstance(arguments, Mapping) or name not in arguments:
            return False
        arguments = arguments[name]
    return True


def _no_url(arguments: Mapping[str, Any]) -> str | None:
    """Return the value of an argument for a URL that cannot be one: a plain word, such as the one that a question is about."""
    given = (value for name, value in arguments.items() if name.casefold() in ("url", "uri") and isinstance(value, str))
    return next((value for value in given if not any(sign in value for sign in ".:/")), None)


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(".".join(path) for path in paths)


def _failure(again: FailedCall) -> str:
    said = json.dumps(again.call.arguments, ensure_ascii=False)[:_ANSWER_CHARS]
    return f"An earlier call of {again.call.name} with {said} failed: {again.error[:_ANSWER_CHARS]}"


def _problem(arguments: dict[str, Any], tool: ToolDefinition) -> str | None:
    """Return how arguments violate a tool's schema; a name that the schema does not have counts, unless it allows others."""
    schema = tool.parameters
    unknown = [name for name in arguments if name not in (schema.get("properties") or {})]
    if unknown and not schema.get("additionalProperties") and not schema.get("patternProperties"):
        return f"{unknown[0]!r} is not a parameter; there are: {', '.join(schema.get('properties') or ()) or 'none'}"
    return problem_with(arguments, dict(schema))
