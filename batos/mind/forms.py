"""Answers of a form: a mission may bring a JSON schema, and its answer is then a JSON value that keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from batos.bridge.text import strip_fences
from batos.errors import InvalidInput, MessageTooLarge

SCHEMA_BYTES = 16 * 1024  # Ollama makes a grammar of it; one this large takes seconds


def check_schema(schema: Any) -> None:
    """See that a schema is one (JSON Schema 2020-12), and small enough.

    :raises InvalidInput: saying where it is not.
    :raises MessageTooLarge: above `SCHEMA_BYTES`.
    """
    import jsonschema

    if not isinstance(schema, dict) or not schema:
        raise InvalidInput("`schema` is a JSON schema: an object that is not empty")
    if (size := len(json.dumps(schema))) > SCHEMA_BYTES:
        raise MessageTooLarge(f"`schema` takes {size} bytes; at most {SCHEMA_BYTES} are taken")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        _follow_references(schema)
    except jsonschema.SchemaError as e:
        raise InvalidInput(f"`schema` is no JSON schema: at {_path(e)}: {e.message}") from None
    except RecursionError:
        raise InvalidInput("`schema` is nested too deep") from None


def read(text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
    """The value in a model's answer, and why it does not keep the schema; None if it does."""
    try:
        value = json.loads(strip_fences(text))
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # else it could never be told: NaN, 1e999, half a surrogate pair
    except (ValueError, RecursionError) as e:
        return None, f"it is no JSON ({e})"
    problem = next(iter(sorted(_validator(schema).iter_errors(value), key=lambda e: list(map(str, e.path)))), None)
    return value, None if problem is None else f"at {_path(problem)}: {problem.message[:200]}"


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


def _validator(schema: dict[str, Any]) -> Any:
    import jsonschema
    import referencing

    # An empty registry: nothing is fetched from anywhere for a reference.
    return jsonschema.Draft202012Validator(schema, registry=referencing.Registry())


def _path(error: Any) -> str:
    return "".join(f"[{part!r}]" for part in error.absolute_path) or "the top"
