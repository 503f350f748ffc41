"""Payloads: parse bytes into a request, or raise the error that says what is wrong with them.

JSON is read more strictly than by `json.loads`, and never ends in an unexpected Python error. Refused are:

* bytes that are not strict UTF-8;
* anything but one object;
* duplicate keys;
* NaN and infinities (also `1e999`);
* lone surrogates;
* integers of more digits than Python converts;
* nesting deeper than the limit.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

from batos.config import Settings, nearest
from batos.errors import InvalidRequest, MalformedMessage, MessageTooLarge, UnknownField, UnknownOp
from batos.wire.admin_schemas import Accepting
from batos.wire.endpoints import WireLimits
from batos.wire.fields import NAME_CHARS, MissionId, Ref, Request, unlike
from batos.wire.schemas import OPS, AnswerRequest, Image, SendRequest, SubmitRequest, TaughtExample

# An escape of a surrogate half. Strict UTF-8 cannot encode lone surrogates, so only a text with such an escape can hold one.
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def decode(payload: bytes, *, depth: int) -> dict[str, Any]:
    """Return the JSON object in `payload`.

    :param depth: deepest nesting of objects and arrays; the outermost object is level 1.
    :raises MalformedMessage: with the fault, and its place if that is known.
    """
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as e:
        raise MalformedMessage(f"not UTF-8: {e.reason} at byte {e.start}") from None
    try:
        value, end = _STRICT.raw_decode(text) if text[:1] == "{" else (None, -1)
        if end != len(text):  # blanks around the object, or invalid JSON
            value = _STRICT.decode(text)
    except json.JSONDecodeError as e:
        raise MalformedMessage(f"not valid JSON: {e.msg} at character {e.pos}") from None
    except RecursionError:
        raise MalformedMessage(f"nested deeper than {depth} levels") from None
    except ValueError:
        raise MalformedMessage("a number has more digits than can be read") from None
    if not isinstance(value, dict):
        raise MalformedMessage("a message is one JSON object")
    if payload.count(b"{") + payload.count(b"[") > depth:  # text with fewer brackets than levels cannot be too deep
        _check_depth(value, depth)
    if "\\u" in text and _SURROGATE_ESCAPE.search(text):
        _check_surrogates(value)
    return value


def decode_leniently(payload: bytes) -> dict[str, Any]:
    """Return the readable part of a message that `decode` refused; empty if there is none. Only used to name the refused request."""
    try:
        value = _LENIENT.decode(payload.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def encode(message: dict[str, Any]) -> bytes:
    """Return `message` as bytes for the wire. A lone surrogate becomes `?`: one character must not cost the whole reply.

    :raises ValueError: for NaN, infinities, circular references and integers of too many digits.
    :raises TypeError: for values that JSON does not have.
    :raises RecursionError: for values nested too deep.
    """
    return _ENCODER.encode(message).encode("utf-8", "replace")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedMessage(f"the key {twice[:64]!r} is there twice")
    return made


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise MalformedMessage(f"the number {literal[:32]} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedMessage(f"{name} is not valid JSON")


def _int_or_zero(literal: str) -> int:
    return int(literal) if len(literal) < 32 else 0


def _check_depth(value: Any, depth: int) -> None:
    level = [value]
    for _ in range(depth):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise MalformedMessage(f"nested deeper than {depth} levels")


def _check_surrogates(value: Any) -> None:
    try:
        _ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedMessage("a lone surrogate is not a valid character") from None


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder(parse_int=_int_or_zero)


_FIELDS = {op: tuple(field.alias or name for name, field in model.model_fields.items()) for op, model in OPS.items()}
_NAMES = {op: frozenset(names) for op, names in _FIELDS.items()}

_OPS_TOLD = 24
_UNIONS = ("ref", "at", "a", "b")
"""Fields that accept several types. Pydantic reports an error for each type, as if the types were fields of the field."""
_NESTED: dict[str, type[BaseModel]] = {"examples": TaughtExample, "accept": Accepting, "images": Image}


class PayloadLimits(NamedTuple):
    """Limits for `parse_request`: bytes of a payload and of a brief, levels of JSON."""

    message_bytes: int
    message_depth: int
    brief_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> PayloadLimits:
        """Return the limits that the settings hold."""
        wire = WireLimits.of(settings)
        return cls(wire.message_bytes, wire.message_depth, settings.missions.brief_bytes)


class RefusedPayload(Exception):
    """Error: a payload is not a request; with the marks by which its sender recognises it."""

    def __init__(self, error: InvalidRequest, ref: str | int | None = None, mission: str | None = None) -> None:
        super().__init__(error.message)
        self.error, self.ref, self.mission = error, ref, mission


def parse_request(payload: bytes, limits: PayloadLimits) -> Request:
    """Return the request in `payload`.

    :raises Refused: with the InvalidRequest that says why, and `ref` and `id` of the message if they could be read.
    """
    if len(payload) > limits.message_bytes:
        raise RefusedPayload(MessageTooLarge(f"a message of {len(payload)} bytes; at most {limits.message_bytes} are taken"))
    fields: dict[str, Any] | None = None
    try:
        fields = decode(payload, depth=limits.message_depth)
        return _validate(fields, limits)
    except InvalidRequest as e:
        if fields is None:
            fields = decode_leniently(payload)
        raise RefusedPayload(e, *_marks(fields)) from None


def _validate(fields: dict[str, Any], limits: PayloadLimits) -> Request:
    op = fields.get("op")
    if not isinstance(op, str):
        raise InvalidRequest("the message has no `op`" if op is None else "`op` is a string")
    names = _NAMES.get(op)
    if names is None:
        raise UnknownOp(_no_op(op))
    if not names.issuperset(fields):
        name = min(fields.keys() - names)[:64]
        raise UnknownField(f"{op} has no field {name!r}; it has {', '.join(_FIELDS[op])}")
    try:
        request: Request = _validator(op)(fields)
    except ValidationError as e:
        raise InvalidRequest(f"{op}: {_first(e)}") from None
    if isinstance(request, SubmitRequest):
        _check_brief(request.brief, limits.brief_bytes)
        _check_size("instructions", request.instructions, limits.brief_bytes)
    elif isinstance(request, AnswerRequest):
        if _is_blank(request.text):
            raise InvalidRequest("answer: the text is empty; say what the answer is")
    elif isinstance(request, SendRequest):
        _check_keywords(request.kwargs)
    return request


@functools.cache
def _validator(op: str) -> Callable[[dict[str, Any]], Request]:
    """Return the function that `model_validate` of the operation's schema calls, built when the operation is first asked for."""
    validate: Callable[[dict[str, Any]], Request] = OPS[op].__pydantic_validator__.validate_python
    return validate


def _no_op(op: str) -> str:
    """Return the message about an op that is none: with those that are meant, else with as many as it has room for."""
    there = nearest(op[:64], OPS)
    told = there or f"; there are {', '.join(list(OPS)[:_OPS_TOLD])} and {len(OPS) - _OPS_TOLD} more"
    return f"no op {op[:64]!r}{told}; docs/wire.md has them all"


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False)
    loc, kind, text = found[0]["loc"], found[0]["type"], _text(found[0])
    if loc and loc[0] in _UNIONS:
        loc, text = loc[:1], _of_union([one for one in found if one["loc"][:1] == loc[:1]])
    text = text.removeprefix("Value error, ")
    if not loc:  # a rule about several fields; its message names them
        return text
    if kind == "missing":
        return f"`{_path(loc)}` is missing"
    if kind == "extra_forbidden":
        return f"`{_path(loc[:-1])}` has no field {str(loc[-1])[:64]!r}; it has {', '.join(_NESTED[str(loc[0])].model_fields)}"
    return f"`{_path(loc)}`: {text[:1].lower()}{text[1:]}"


def _text(error: Any) -> str:
    """Return the fault in words: pydantic reports patterns as they are, of lengths only the allowed ones, and of a choice not the value."""
    text, kind, value = str(error["msg"]), error["type"], error["input"]
    if kind == "string_pattern_mismatch":
        return unlike(error["ctx"]["pattern"], value)
    if kind in ("string_too_short", "too_short") and not value:
        thing, part = ("text", "characters") if kind == "string_too_short" else ("list", "entries")
        return f"the {thing} is empty; the least number of {part} is {error['ctx']['min_length']}"
    if kind == "literal_error" and isinstance(value, str):
        return f"{value[:64]!r} is not a choice; allowed are {error['ctx']['expected']}"
    return f"{text}, not {len(value)}" if kind == "string_too_long" else text


def _of_union(errors: list[Any]) -> str:
    """Return the fault of a value that may have several types: the fault for its own type, else the list of types."""
    limit = next((_text(one) for one in errors if not one["type"].endswith("_type")), None)
    return limit or str(errors[0]["msg"]) + "".join(f", or {one['msg'].removeprefix('Input should be ')}" for one in errors[1:])


def _path(loc: tuple[str | int, ...]) -> str:
    """Return the place of a fault in a request: `examples[0].args`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part[:64]}" for part in loc).removeprefix(".")


def _check_brief(brief: str, limit: int) -> None:
    if _is_blank(brief):
        raise InvalidRequest("submit: the brief is empty; say what the mission is")
    _check_size("a brief", brief, limit)


def _check_size(what: str, text: str, limit: int) -> None:
    # A character has at most four bytes. So only long texts need to be encoded to be measured.
    if len(text) * 4 > limit and (size := len(text.encode())) > limit:
        raise MessageTooLarge(f"submit: {what} of {size} bytes; at most {limit} are taken (setting `missions.brief_bytes`)")


def _is_blank(text: str) -> bool:
    """Return True if a text has no visible character: only spaces, control characters and marks without width."""
    return not any(char.isprintable() and not char.isspace() for char in text)


def _check_keywords(kwargs: dict[str, Any]) -> None:
    # Checked here, not in the schema: pydantic would list every invalid key of a hundred thousand.
    for name in kwargs:
        if not (name.isidentifier() and len(name) <= NAME_CHARS):
            raise InvalidRequest(f"send: `kwargs`: {name[:64]!r} is not a valid name of an argument")


def _marks(fields: dict[str, Any]) -> tuple[str | int | None, str | None]:
    """Return `ref` and `id` of a refused message, each only if it is fit to be echoed."""
    try:
        ref = _Marks.model_validate({"ref": fields.get("ref")}).ref
    except ValidationError:
        ref = None
    try:
        mission = _Marks.model_validate({"id": fields.get("id")}).id
    except ValidationError:
        mission = None
    return ref, mission


class _Marks(BaseModel):
    model_config = ConfigDict(strict=True, defer_build=True)

    ref: Ref | None = None
    id: MissionId | None = None
