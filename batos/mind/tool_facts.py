"""Facts of a tool, as a catalogue compares it: its words, the things that it needs, and those that its results hold.

A thing is the last word of the name of an identifier, stemmed: `movie_id` needs a movie, and so does `{id}` behind `/movies/`. A result
holds things where an object in its schema has an identifier. These are the things that the field's name says, or those that have the same
fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.image.effects import READS
from batos.mind.brief_values import stem_of
from batos.tools.definitions import ToolDefinition

Kind = tuple[str, ...]
"""a thing: one stem"""
_REMEMBERED = 4096  # tools whose facts are kept
_DEPTH, _FIELDS = 6, 200  # of a result's schema
_TAKES = 0.3  # weight of a parameter's name
_ALIKE = 0.75  # least share of an object's fields that things of a kind have
_SPLIT = re.compile(r"[_\W]+|(?<=[a-z0-9])(?=[A-Z])")
_TITLE_END = re.compile(r"[.:]\s")
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_CURRENT_USER = re.compile(r"/(?:me|self|user)(?:/|\Z)|\b(?:current|authenticated|signed-in) user", re.IGNORECASE)
_IDENTIFIER = frozenset({"id", "ids", "uri", "uris", "uuid", "guid", "slug", "key", "number", "name", "ref"})
_HELD_BY = frozenset({"id", "uri", "uuid", "guid"})
_HOLDERS = frozenset({
    "result", "item", "data", "list", "entri", "hit", "valu", "record", "content", "bodi", "part", "element", "object", "row", "page",
})  # fmt: skip
"""Stems of fields that say nothing of what they hold"""
_SOUGHT = frozenset({"q", "query", "search", "term", "keyword", "keywords", "text", "name"})


class ToolFacts(NamedTuple):
    """Facts that a tool tells of itself."""

    words: Mapping[str, float]
    """stems of its name, path, description and parameters, with their weights"""
    answers: Mapping[str, float]
    """stems of the fields of its result, each with its share of a field's name"""
    title: frozenset[str]
    """stems of the first sentence of its description"""
    path: str
    path_words: frozenset[str]
    """stems of its path without placeholders; of its name where it has none"""
    segments: tuple[Kind, ...]
    """parts of its path without placeholders"""
    method: str
    acts: bool
    needs: tuple[Kind, ...]
    """things whose identifiers a call requires"""
    labels: tuple[str, ...]
    """a word for each of them"""
    holds: Mapping[tuple[str, ...], frozenset[str]]
    """fields of the things in a result, by the name of the field that holds them; () where it says nothing"""
    seeks: bool
    """True if it only reads, and takes a free text to look for"""
    own: bool
    """True if it is about who calls"""
    whole: bool
    """True if it answers the one thing that it needs last"""
    resource: tuple[str, ...]
    """Resource that it reads a part of: its path without the last word, and the names that it requires. () if it acts or has no path.
    `/ships/{id}` and `/ships/{id}/crew` are parts of one resource."""

    def about(self, kinds: set[Kind]) -> Kind | None:
        """Return which of some things it is about: the last one that its path names, else one that its title names."""
        found = [segment[-1:] for segment in self.segments if segment[-1:] in kinds]
        return found[-1] if found else next((kind for kind in sorted(kinds) if kind[0] in self.title), None)


def words_in(name: str) -> list[str]:
    """Return the words of an identifier or a text, in small letters."""
    return [word.lower() for word in _SPLIT.split(name) if word]


def title_of(tool: ToolDefinition) -> str:
    """Return the first sentence of a tool's description."""
    return _TITLE_END.split(tool.description, maxsplit=1)[0]


def facts_of(tool: ToolDefinition) -> ToolFacts:
    """Return what a tool says of itself; it is read once."""
    held = _KNOWN.get(id(tool))
    if held is None or held[0] is not tool:
        if len(_KNOWN) >= _REMEMBERED:
            _KNOWN.clear()
        held = _KNOWN[id(tool)] = (tool, _read(tool))
    return held[1]


_KNOWN: dict[int, tuple[ToolDefinition, ToolFacts]] = {}


def marks_of(facts: Sequence[ToolFacts], kinds: set[Kind]) -> dict[Kind, frozenset[str]]:
    """Return the fields that things of each kind have: in results of tools that answer one of them, and where a field has its name."""
    found: dict[Kind, set[str]] = {}
    for one in facts:
        for name, fields in one.holds.items():
            if name[-1:] in kinds:
                found.setdefault(name[-1:], set()).update(fields)
            elif not name and one.whole and one.needs:
                found.setdefault(one.needs[-1], set()).update(fields)
    return {kind: frozenset(fields) for kind, fields in found.items()}


def kinds_given(one: ToolFacts, kinds: set[Kind], marks: Mapping[Kind, frozenset[str]]) -> frozenset[Kind]:
    """Return the things whose identifiers a tool's result holds.

    :param marks: what `marks_of` says of all tools.
    """
    own = one.about(kinds)
    found: set[Kind] = set()
    for name, fields in one.holds.items():
        if name[-1:] in kinds:
            found.add(name[-1:])
            continue
        if not name and own is not None:
            found.add(own)
        alike = {kind: len(fields & known) / len(fields) for kind, known in marks.items() if len(fields & known) > 2}
        best = max(sorted(alike), key=lambda kind: (alike[kind], kind == own), default=None)
        if best is not None and alike[best] >= _ALIKE:
            found.add(best)
    return frozenset(found)


def _read(tool: ToolDefinition) -> ToolFacts:
    path = str(tool.details.get("path") or "")
    plain = _PLACEHOLDER.sub(" ", path)
    properties = tool.parameters.get("properties") or {}
    words = dict.fromkeys(_stems(words_in(f"{tool.name} {plain} {tool.description}")), 1.0)
    for name in properties:
        _heard(name, words, _TAKES)
    result = tool.result or {}
    holds: dict[tuple[str, ...], set[str]] = {}
    answers: dict[str, float] = {}
    for name in _walk((result.get("properties") or {}).get("body", result), (), holds, 0, [_FIELDS]):
        _heard(name, answers, 1.0)
    needs = list(_needs(tool, path))
    parts = [part for part in path.split("/") if part]
    segments = (_stems(words_in(part)) for part in parts if not part.startswith("{"))
    base = parts[:-1] if parts and not parts[-1].startswith("{") else parts
    resource = ("/".join(base), *sorted(tool.parameters.get("required") or ())) if parts and tool.kind == READS else ()
    return ToolFacts(
        words=words,
        answers=answers,
        title=frozenset(_stems(words_in(title_of(tool)))),
        path=path,
        path_words=frozenset(_stems(words_in(plain))) or frozenset(_stems(words_in(tool.name))),
        segments=tuple(segment for segment in segments if segment),
        method=str(tool.details.get("method") or ""),
        acts=tool.kind != READS,
        needs=tuple((stem,) for stem, _ in needs),
        labels=tuple(label for _, label in needs),
        holds={name: frozenset(fields) for name, fields in holds.items()},
        seeks=tool.kind == READS and any(name.lower() in _SOUGHT for name in properties),
        own=_CURRENT_USER.search(f"{path} {tool.description}") is not None,
        whole=path.endswith("}"),
        resource=resource,
    )


def _stems(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(stem for stem in map(stem_of, words) if stem)


def _heard(name: str, into: dict[str, float], weight: float) -> None:
    stems = _stems(words_in(name))
    for stem in stems:
        into[stem] = max(into.get(stem, 0.0), weight / len(stems))


def _walk(schema: Any, name: tuple[str, ...], holds: dict[tuple[str, ...], set[str]], depth: int, left: list[int]) -> Iterator[str]:
    """Yield the names of a schema's fields; put the fields of objects that have an identifier into `holds`.

    :param name: stems of the field that the schema is of.
    :param left: number of fields that may still be read.
    """
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return
    for part in (schema.get("items"), *(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        yield from _walk(part, name, holds, depth + 1, left)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    if any(words_in(field)[-1:] and words_in(field)[-1] in _HELD_BY for field in properties):
        holds.setdefault(name, set()).update(properties)
    for field, inner in properties.items():
        left[0] -= 1
        if left[0] < 0:
            return
        yield field
        stems = _stems(words_in(field))
        yield from _walk(inner, name if not stems or stems[-1] in _HOLDERS else stems, holds, depth + 1, left)


def _needs(tool: ToolDefinition, path: str) -> Iterator[tuple[str, str]]:
    """Yield the stem and the word of each thing whose identifier a call requires."""
    required = set(tool.parameters.get("required") or ())
    names = {one["argument"]: one["name"] for one in tool.details.get("sent") or ()}
    before: dict[str, str] = {}
    literal = ""
    for part in path.split("/"):
        before |= dict.fromkeys(_PLACEHOLDER.findall(part), literal)
        literal = part if part and not part.startswith("{") else literal
    for argument in tool.parameters.get("properties") or {}:
        name = str(names.get(argument, argument))
        words = words_in(name)
        if argument not in required or not words or words[-1] not in _IDENTIFIER:
            continue
        for said in (words[:-1], words_in(before.get(name, ""))):
            if stems := _stems(said):
                yield stems[-1], said[-1]
                break
