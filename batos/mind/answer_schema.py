"""Structured answers: a mission may bring a JSON schema, and its answer is then a JSON value that satisfies it.

Checking a schema may take for ever: a pattern that backtracks, references that double. So a schema that is not plain is checked in a child
process with a limit (`batos.mind.json_schema`): one mission's schema cannot delay other missions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from batos.bridge.model_output import strip_fences
from batos.errors import InvalidInput, MessageTooLarge
from batos.isolation import ChildStopped, IsolatedChild
from batos.mind import json_schema

SCHEMA_BYTES = 16 * 1024  # greatest number of bytes of a schema: Ollama makes a grammar of it, which takes seconds at this size
CHECK_S = 5.0  # seconds of processor time for the check of an answer against a schema
CHECK_BYTES = 1 << 29  # bytes of memory for this check
_PLAIN = frozenset(
    (
        "$comment", "$schema", "$id", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format",
        "type", "enum", "const", "required", "properties", "items", "additionalProperties", "minLength", "maxLength", "minItems",
        "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minProperties", "maxProperties",
    )
)  # fmt: skip
"""Keywords whose check looks at each value once."""


def check_schema(schema: Any) -> None:
    """See that a schema is one (JSON Schema 2020-12), and small enough.

    :raises InvalidInput: saying where it is not.
    :raises MessageTooLarge: above `SCHEMA_BYTES`.
    """
    import jsonschema

    if not isinstance(schema, dict) or not schema:
        raise InvalidInput("`schema` is a JSON schema: an object that is not empty")
    try:
        if (size := len(json.dumps(schema))) > SCHEMA_BYTES:
            raise MessageTooLarge(f"`schema` takes {size} bytes; at most {SCHEMA_BYTES} are taken")
        jsonschema.Draft202012Validator.check_schema(schema)
        _follow_references(schema)
    except jsonschema.SchemaError as e:
        raise InvalidInput(f"`schema` is not a valid JSON schema: at {json_schema.path_of(e)}: {e.message}") from None
    except OverflowError as e:  # from the count of a repetition in a pattern
        raise InvalidInput(f"`schema` is not a valid JSON schema: {e}") from None
    except RecursionError:
        raise InvalidInput("`schema` is nested too deep") from None


async def read(text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
    """Return the value in a model's answer, and why it does not keep the schema; None if it does."""
    try:
        value = json.loads(strip_fences(text))
        # raises for values that JSON cannot hold: NaN, 1e999, half of a surrogate pair
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as e:
        return None, f"it is not valid JSON ({e})"
    if _is_plain(schema):
        return value, json_schema.problem_of(value, schema)
    child = IsolatedChild(json_schema.__name__, memory=CHECK_BYTES)
    try:
        return value, (await child.ask([value, schema], seconds=CHECK_S))[0]
    except ChildStopped as e:
        limit = {"time": f"{CHECK_S:g} s", "memory": f"{CHECK_BYTES >> 20} MiB"}.get(e.reason)
        why = f" ({e.detail or e.reason})" if limit is None else f" ({limit}): a pattern or reference in it takes too long for this answer"
        return value, f"it could not be checked against the schema{why}"
    finally:
        await child.close()


def _is_plain(schema: Any) -> bool:
    """Return True if a schema uses only keywords that look at each value once."""
    if not isinstance(schema, dict):
        return True
    parts = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return schema.keys() <= _PLAIN and all(map(_is_plain, parts))


def _follow_references(schema: dict[str, Any]) -> None:
    """See that each reference leads to a place in the schema itself.

    :raises InvalidInput: naming the one that does not.
    """
    from referencing import Registry, exceptions
    from referencing.jsonschema import DRAFT202012

    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except exceptions.Unresolvable as e:
            raise InvalidInput(f"`schema` has a reference that cannot be followed: {e}") from None


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for item in part:
            yield from _references(item)
