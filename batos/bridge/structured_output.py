r"""Structured output: JSON schemas that Ollama can turn into grammars, JSON in a model's text, and answers parsed into pydantic models.

llama.cpp's converter knows a part of JSON Schema and fails badly on the rest. A pattern with `\d`, or one that repeats something more than
2,000 times, kills Ollama's runner with everything else that it was doing. Others are refused as invalid schemas. With `[^x]` or `.` in a
pattern, or a quote in a property's name, its grammar produces text that is not JSON. So everything that is not known to be safe is left out
of what is sent. The caller checks the answer against the whole schema. Tried on 0.17.4 and 0.21.0 (`tests/contract`).

JSON is found between other words, and closed if only its end is missing.

Answers of a given form: a model's JSON read into a pydantic model, with repair that ends.

One function for whatever wants one (mind, memory, synthesis). It knows nothing of Ollama: it is given something that can be asked, which
in a mission is `mind.attempt.Attempt.chat` and so the journal.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from batos.bridge.model_output import strip_fences, without_thought
from batos.errors import InferenceFailed

MOST = 2000  # greatest number of repetitions: MAX_REPETITION_THRESHOLD of llama.cpp
LARGEST = 2**53  # largest bound: the converter's integers end here
_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
_FORMATS = frozenset(("date", "time", "date-time", "uuid"))
_COUNTS = frozenset(("minLength", "maxLength", "minItems", "maxItems"))
_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
_CHOICES = frozenset(("anyOf", "oneOf"))
_NAMED = frozenset(("$defs", "definitions"))
_NOTES = frozenset(("title", "description"))
_NAME = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]+')
"""Matches names of properties that the converter writes unchanged."""
_REF = re.compile(r"#/[A-Za-z0-9_$./-]+")
_SHORT = {"d": "0-9", "w": "A-Za-z0-9_"}
_LITERAL = r"""[^\\^$.|?*+()\[\]{}"\x00-\x1f\x7f\ud800-\udfff]"""
_CLASS = rf"""\[(?:{_LITERAL}|[.|?*+(){{}}$]|\\[dw.\-+*?|/])+\]"""
_TOKEN = re.compile(rf"""(?P<class>{_CLASS})|\\(?P<short>[dw])|\\(?P<plain>[.\-+*?|/(){{}}$:@_])
    |(?P<open>\((?:\?:)?)|(?P<as_is>{_LITERAL}|[|)])
    |(?P<times>[?*+]|\{{(?P<least>\d+)(?:,(?P<most>\d*))?\}})(?![?+*{{])""", re.VERBOSE | re.DOTALL)  # fmt: skip
"""Matches a part of a pattern that the converter reads as JSON Schema does."""


_NOT_NAMES = frozenset(("$ref", "$defs"))  # the converter takes a property of such a name for the keyword
_ANY = {"type": ["string", "number", "boolean", "object", "array", "null"]}
"""Schema of any value. The converter takes an empty one for that of an object."""
_JOINED = ("$ref", "anyOf", "oneOf", "allOf", "properties")
"""Keywords of which the converter heeds only one in a schema; with `properties` beside another it forbids what the other allows."""
_DECIDING = frozenset((*_JOINED, "type", "const", "enum", "additionalProperties", "items", "prefixItems"))
"""Keywords of which the converter needs one."""
_MORE = frozenset(("if", "dependentSchemas", "dependentRequired", "patternProperties"))
"""Keywords, of which no grammar is made, that may ask for other properties than those that a schema names."""
_EXPANSIONS = 100  # greatest number of references in a schema that are replaced by what they lead to
_REF_DEPTH = 10  # greatest number of references in a row that are followed


def grammar_schema(schema: Any) -> Any:
    """Return the schema, or a copy without the parts that have no grammar; None for None."""
    return schema if schema is None else _Converted(schema).of(schema)


class _Converted:
    """Conversion of a schema, and of the schemas in it, to what is sent."""

    def __init__(self, root: Any) -> None:
        self._root, self._left = root, _EXPANSIONS
        self._within: list[str] = []  # references that are expanded around the present schema

    def of(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, dict):
            return dict(_ANY)
        depth = len(self._within)
        kept = dict(self._kept(self._merged(schema)))
        del self._within[depth:]
        return kept if kept.keys() & _DECIDING else {**kept, **_ANY}

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema with those that it combines in one, as far as that is right; else a schema that allows more."""
        if self._is_open(schema):
            schema = {name: value for name, value in schema.items() if name not in ("anyOf", "oneOf")}
        combined = [name for name in _JOINED if name in schema]
        beside = schema.keys() - {"$ref", *_NAMED, *_NOTES, "$schema", "$id", "$comment", "default", "examples"}
        if combined in ([], ["properties"], ["anyOf"], ["oneOf"]) or (combined == ["$ref"] and not beside):
            return schema
        merged: dict[str, Any] = {}
        if not self._merge(schema, merged) or len({"anyOf", "oneOf", "properties"} & merged.keys()) > 1:
            own = {name: value for name, value in schema.items() if name not in ("$ref", "anyOf", "oneOf", "allOf")}
            is_object = "properties" in merged and "type" not in own
            merged = {**own, "additionalProperties": True} if "properties" in own else {**own, "type": "object"} if is_object else own
        elif merged.get("additionalProperties") is False and "properties" in merged:
            del merged["additionalProperties"]  # it is about one of the parts alone
        return {**{name: schema[name] for name in _NAMED if name in schema}, **merged}

    def _is_open(self, schema: dict[str, Any]) -> bool:
        """Return True if a choice in a schema only says which properties there are, which no grammar can say of a part."""
        ways = next((schema[name] for name in ("anyOf", "oneOf") if name in schema), None)
        if "properties" not in schema or not isinstance(ways, list):
            return False
        return any(isinstance(one, dict) and one.keys() <= {"required"} for one in ways)

    def _merge(self, schema: Any, merged: dict[str, Any], deep: int = 0) -> bool:
        """Add what a schema says to `merged`. Return False if two things that it says cannot be one."""
        if not isinstance(schema, dict):
            return schema is True
        for name, value in schema.items():
            if name in _NAMED or name in ("title", "description", "$schema", "$id", "$comment", "default", "examples"):
                continue
            if name == "$ref":
                if deep >= _REF_DEPTH or not self._left or value in self._within:
                    return False
                self._left -= 1
                self._within.append(value)
                fits = self._merge(self._target(value), merged, deep + 1)
            elif name == "allOf":
                fits = isinstance(value, list) and all(self._merge(one, merged, deep) for one in value)
            elif name == "properties":
                held = merged.setdefault("properties", {})
                fits = isinstance(value, dict) and all(held.setdefault(key, one) == one for key, one in value.items())
            elif name == "required":
                merged["required"] = [*merged.get("required", ()), *(value if isinstance(value, list) else ())]
                fits = True
            else:
                fits = merged.setdefault(name, value) == value
            if not fits:
                return False
        return True

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not _REF.fullmatch(reference):
            return None
        found = self._root
        for step in reference.split("/")[1:]:
            found = found.get(step) if isinstance(found, dict) else None
        return found

    def _kept(self, schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        if any(not _NAME.fullmatch(name) or name in _NOT_NAMES for name in _names(schema.get("properties"))):
            yield "type", "object"  # an object with any names: a grammar without these properties would forbid them
            return
        for name, value in schema.items():
            if (kept := self._keyword(name, value, schema)) is not _LEFT:
                yield name, kept
        if "properties" in schema and not _MORE.isdisjoint(schema) and "additionalProperties" not in schema:
            yield "additionalProperties", True

    def _keyword(self, name: str, value: Any, schema: dict[str, Any]) -> Any:
        """Return the value to send for a keyword; `_LEFT` to leave the keyword out."""
        keeps = False
        if name == "properties" or name in _NAMED:
            return {key: self.of(one) for key, one in value.items()} if isinstance(value, dict) else _LEFT
        if name in _CHOICES:
            return (
                [self.of(one) for one in value]
                if isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
                else _LEFT
            )
        if name == "prefixItems":
            return [self.of(one) for one in value] if isinstance(value, list) and value else _LEFT
        if name == "items":
            return self.of(value) if isinstance(value, dict) and "prefixItems" not in schema else _LEFT
        if name == "additionalProperties":
            if "patternProperties" in schema and value is not True:
                return _LEFT  # a grammar has no patterns of names: it would allow no other name
            return value if isinstance(value, bool) else self.of(value) if isinstance(value, dict) else _LEFT
        if name == "pattern":
            return _LEFT if not isinstance(value, str) or (safe := grammar_pattern(value)) is None else safe
        if name == "type":
            types = value if isinstance(value, list) else [value]
            keeps = bool(types) and all(isinstance(one, str) and one in _TYPES for one in types)
        elif name == "required":
            keeps = isinstance(value, list) and all(isinstance(one, str) and one in _names(schema.get("properties")) for one in value)
        elif name == "enum":
            keeps = isinstance(value, list) and bool(value)
        elif name in _COUNTS:
            keeps = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
        elif name in _BOUNDS:
            keeps = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
        elif name == "format":
            keeps = isinstance(value, str) and value in _FORMATS
        elif name == "$ref":
            keeps = isinstance(value, str) and _REF.fullmatch(value) is not None
        else:
            keeps = name == "const" or (name in _NOTES and isinstance(value, str))
        return value if keeps else _LEFT


_LEFT = object()


def _names(properties: Any) -> list[str]:
    return list(properties) if isinstance(properties, dict) else []


def grammar_pattern(text: str) -> str | None:
    """Return a pattern in the words of the converter; None if it has none for it, or would take them for something else."""
    if len(text) < 3 or not (text.startswith("^") and text.endswith("$")):
        return None
    body, made, at = text[1:-1], ["^"], 0
    groups: list[bool] = []  # for each open group: True if it contains a repetition
    countable = repeated = False  # for the last token: it can be repeated; it contains a repetition
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None:
            return None
        at, found, before = token.end(), token.groupdict(), countable
        countable = True
        if found["class"] is not None:
            made.append(_in_class(found["class"]))
        elif found["short"] is not None:
            made.append(f"[{_SHORT[found['short']]}]")
        elif found["plain"] is not None:
            made.append(f"[{found['plain']}]")
        elif found["open"] is not None:
            made.append("(")
            groups.append(False)
            countable = False
        elif found["times"] is not None:
            most = [int(times) for times in (found["least"], found["most"]) if times]
            nested = repeated and made[-1] == ")" and found["times"] != "?"  # a nested repetition: matching could take exponential time
            if not before or nested or any(times > MOST for times in most) or (len(most) == 2 and most[0] > most[1]):
                return None
            made.append(found["times"])
            countable, groups = False, [True] * len(groups)
        elif found["as_is"] in (")", "|"):
            if not groups or made[-1] in ("(", "|"):
                return None
            repeated = groups.pop() if found["as_is"] == ")" else repeated
            made.append(found["as_is"])
            countable = found["as_is"] == ")"
        else:
            made.append(found["as_is"])
    return "".join((*made, "$")) if not groups else None


def _in_class(text: str) -> str:
    """Return the characters of a class; a `-` that is not a range goes to its end."""
    inner = re.sub(r"\\([dw])", lambda found: _SHORT[found[1]], text[1:-1]).replace(r"\-", "\0")
    inner = re.sub(r"\\(.)", r"\1", inner)
    if inner.startswith("-") or (inner.endswith("-") and len(inner) > 1):
        inner = inner.strip("-") + "\0"
    return f"[{inner.replace(chr(0), '')}{'-' if chr(0) in inner else ''}]"


_CLOSERS = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder(parse_constant=lambda name: _refuse(name))


def json_values(text: str) -> Iterator[tuple[Any, str]]:
    """Yield possible JSON values of a model's text, likeliest first, each with the repair needed to read it (empty: none).

    They are: the whole text; the text without thought and fence; its first object or array, whatever surrounds it; the same closed at
    the end.
    """
    seen: list[Any] = []
    for repair, found in _read(text):
        for value in found:
            if value not in seen:
                seen.append(value)
                yield value, repair


def _read(text: str) -> Iterator[tuple[str, list[Any]]]:
    # In order: nearly all texts match the first one.
    yield "", _whole(text)
    bare = without_thought(text)[0].strip()
    yield "thought", _whole(bare)
    fenced = strip_fences(bare)
    yield "fence", _whole(fenced)
    yield "surroundings", _first(fenced)
    yield "surroundings", _first(bare)
    yield "end", _closed(fenced)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def _sound(value: Any) -> Any:
    """Return the value, if it can be written as UTF-8: half a surrogate pair cannot, and neither the image nor the wire take it."""
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _whole(text: str) -> list[Any]:
    try:
        return [_sound(json.loads(text, parse_constant=_refuse))]
    except (ValueError, RecursionError):  # RecursionError: endless brackets
        return []


def _first(text: str) -> list[Any]:
    """Return the first object or array in a text."""
    for at, letter in enumerate(text):
        if letter in _CLOSERS:
            try:
                return [_sound(_DECODER.raw_decode(text, at)[0])]
            except ValueError:
                continue
            except RecursionError:
                return []
    return []


def _closed(text: str) -> list[Any]:
    """Return a text that breaks off, with the missing brackets added, if every value in it is complete.

    Half a string, or a number that might have gone on, is not complete: guessing its end would mean answering in the model's place.
    """
    at = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=-1)
    if at < 0:
        return []
    text, open_, in_string, escaped = text[at:].rstrip(), [], False, False
    for letter in text:
        if in_string:
            in_string, escaped = escaped or letter != '"', letter == "\\" and not escaped
        elif letter == '"':
            in_string = True
        elif letter in _CLOSERS:
            open_.append(_CLOSERS[letter])
        elif open_ and letter == open_[-1]:
            open_.pop()
    if in_string or not open_ or text[-1].isdigit():
        return []
    return _whole(text.removesuffix(",") + "".join(reversed(open_)))


Form = TypeVar("Form", bound=BaseModel)
Ask = Callable[[str, dict[str, Any] | None], Awaitable[str]]
"""Asks a model: takes a prompt and a JSON schema (None: no constraint), and returns the text of the answer."""

FAULTS_SHOWN = 4  # greatest number of faults of an answer in the next prompt
SHOWN_CHARS = 600  # greatest number of characters of the refused answer in the next prompt


@dataclass(frozen=True, slots=True)
class Structured(Generic[Form]):
    """A value and how it came about: the text that it was read from, how often the model was asked, what had to be repaired.

    `repaired` is empty for a text that was right as it stood, else `thought`, `fence`, `surroundings` or `end` (see `json_text`).
    """

    value: Form
    text: str
    asked: int
    repaired: str = ""


@functools.lru_cache(maxsize=256)
def _schema_of(form: type[BaseModel]) -> dict[str, Any]:
    return form.model_json_schema()


async def structured(ask: Ask, prompt: str, form: type[Form], *, repairs: int, raw_chars: int) -> Structured[Form]:
    """Return an answer to `prompt` of the form `form`.

    What can be put right without the model is. Else the model is asked again, with what was wrong. The last time, if there are two or more,
    it is asked without a schema and with the schema's words instead. Constrained output may loop or never end (ollama#15502, ollama#18567).
    A schema that Ollama refuses is left out at once.

    :param repairs: greatest number of further requests.
    :param raw_chars: characters of each refused answer that the failure keeps.
    :raises InferenceFailed: with cause `malformed` and all answers as `raw` in its context; or as `ask` raises it.
    """
    schema: dict[str, Any] | None = _schema_of(form)
    words = json.dumps(schema, ensure_ascii=False)
    refused: list[str] = []
    fault = ""
    for left in range(repairs, -1, -1):
        if left == 0 and repairs > 1:
            schema = None
        text = ""
        try:
            text = await ask(_prompt(prompt, words, schema, refused, fault), schema)
        except InferenceFailed as e:
            if schema is None or not left or not _about_the_schema(e):
                raise
            schema, fault = None, ""
            continue
        found, fault = read_structured(text, form)
        if found is not None:
            return Structured(found[0], text, repairs - left + 1, found[1])
        refused.append(text)
    raise InferenceFailed(
        f"no answer was a {form.__name__}, in {len(refused)} tries; the last time {fault}",
        cause="malformed",
        raw=[text[:raw_chars] for text in refused],
    )


def read_structured(text: str, form: type[Form]) -> tuple[tuple[Form, str] | None, str]:
    """Return the value in a model's text and the repairs made, or None and the fault."""
    fault = ""
    for value, repair in json_values(text):
        try:
            return (form.model_validate(value), repair), ""
        except ValidationError as e:
            fault = fault or _fault(e)
    return None, fault or ("it was not JSON" if text.strip() else "it was empty")


def _about_the_schema(failure: InferenceFailed) -> bool:
    """Return True if Ollama could make no grammar of a schema: it says so in words only (ollama/llm/server.go)."""
    return failure.cause in ("refused", "server_error") and any(word in failure.message for word in ("schema", "grammar", "format"))


def _fault(error: ValidationError) -> str:
    shown = [f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in error.errors()[:FAULTS_SHOWN]]
    return "; ".join(shown)


def _prompt(prompt: str, words: str, schema: dict[str, Any] | None, refused: list[str], fault: str) -> str:
    if refused and refused[-1].strip():
        prompt += f"\n\nYour last answer was refused ({fault}):\n{refused[-1][:SHOWN_CHARS]}\n\nAnswer again."
    if schema is None:
        prompt += f"\n\nAnswer with nothing but one JSON object of this JSON schema:\n{words}"
    return prompt
