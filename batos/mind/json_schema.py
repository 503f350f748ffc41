"""JSON schema validation of a value, for `batos.mind.answer_schema`, in this process or in a child. Imports little."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any


def serve(request: Any, data: bytes) -> Iterator[str | None]:
    """Answer a request of the parent process: a value and a schema."""
    yield problem_of(*request)


def problem_of(value: Any, schema: dict[str, Any]) -> str | None:
    """Return the first violation of a schema, with its place and reason; None if the value is valid."""
    import referencing

    # An empty registry: references never cause a download.
    validator = _validator()(schema, registry=referencing.Registry())
    try:
        problem = next(iter(sorted(validator.iter_errors(value), key=lambda e: list(map(str, e.path)))), None)
    except RecursionError:
        return "its references lead into one another without end"
    except OverflowError:  # from integers with hundreds of digits, which JSON may contain
        return "a number in it is too large to be checked against the schema"
    return None if problem is None else f"at {path_of(problem)}: {problem.message[:200]}"


def _multiple_of(validator: Any, factor: Any, value: Any, schema: Any) -> Iterator[Any]:
    """Check `multipleOf` by decimal numbers, as they are written: 19.99 is a multiple of 0.01, though not in binary fractions.

    :raises OverflowError: for an integer that is too large for the kind of the factor.
    """
    import jsonschema

    if validator.is_type(value, "number") and _exact(value, factor) % _exact(factor, factor):
        yield jsonschema.ValidationError(f"{value!r} is not a multiple of {factor!r}")


def _exact(number: Any, kind: Any) -> Fraction:
    if isinstance(kind, float):
        float(number)  # raises where it is too large
    return Fraction(number) if isinstance(number, int) else Fraction(str(number))


@functools.cache
def _validator() -> Any:
    import jsonschema

    return jsonschema.validators.extend(  # type: ignore[no-untyped-call]
        jsonschema.Draft202012Validator, {"multipleOf": _multiple_of}
    )


def problem_with(value: Any, schema: Any) -> str | None:
    """Return the first violation of a schema of strangers, or why it cannot be checked; None if the value is valid.

    Its patterns are left out: one that backtracks takes for ever.
    """
    import jsonschema
    import referencing.exceptions

    try:
        return problem_of(value, _without_patterns(schema))
    except (referencing.exceptions.Unresolvable, jsonschema.SchemaError, jsonschema.exceptions.UnknownType) as e:
        return f"its schema is not valid: {str(e).splitlines()[0][:200]}"
    except (TypeError, ValueError, AttributeError, KeyError, ArithmeticError, RecursionError) as e:  # keywords of a wrong form
        return f"its schema is not valid: {type(e).__name__}: {str(e)[:200]}"


_PATTERNS = ("pattern", "patternProperties")
_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
_TURNED = ("not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems")
"""Keywords that may refuse a value because a schema in them has lost a pattern, and so takes more."""


def _without_patterns(schema: Any) -> Any:
    """Return a schema without patterns, that takes all values which it takes with them."""
    return _loosened(schema, named=False) if _has_pattern(schema, named=False) else schema


def _has_pattern(schema: Any, *, named: bool) -> bool:
    if isinstance(schema, dict):
        here = not named and any(name in schema for name in _PATTERNS)
        return here or any(_has_pattern(value, named=not named and name in _NAMED) for name, value in schema.items())
    return isinstance(schema, list) and any(_has_pattern(one, named=False) for one in schema)


def _loosened(schema: Any, *, named: bool) -> Any:
    """Return a schema without patterns, and without what they could turn into its opposite.

    :param named: True if the keys are names of properties.
    """
    if isinstance(schema, list):
        return [_loosened(one, named=False) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if named:
        return {name: _loosened(value, named=False) for name, value in schema.items()}
    left_out = {*_PATTERNS, *_TURNED, *(("additionalProperties",) if "patternProperties" in schema else ())}
    kept = {name: _loosened(value, named=name in _NAMED) for name, value in schema.items() if name not in (*left_out, "enum", "const")}
    kept |= {name: schema[name] for name in ("enum", "const") if name in schema}
    if "oneOf" in kept:  # without their patterns several may take a value
        kept["allOf"] = [*(kept.get("allOf") or []), {"anyOf": kept.pop("oneOf")}]
    return kept


def path_of(error: Any) -> str:
    """Return the place in a value that an error of jsonschema is about."""
    return "".join(f"[{part!r}]" for part in error.absolute_path) or "the top"
