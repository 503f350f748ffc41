"""JSON schema validation of a value, for `batos.mind.answer_schema`, in this process or in a child. Imports little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def serve(request: Any, data: bytes) -> Iterator[str | None]:
    """Answer a request of the parent process: a value and a schema."""
    yield problem_of(*request)


def problem_of(value: Any, schema: dict[str, Any]) -> str | None:
    """Return the first violation of a schema, with its place and reason; None if the value is valid."""
    import jsonschema
    import referencing

    # An empty registry: references never cause a download.
    validator = jsonschema.Draft202012Validator(schema, registry=referencing.Registry())
    try:
        problem = next(iter(sorted(validator.iter_errors(value), key=lambda e: list(map(str, e.path)))), None)
    except RecursionError:
        return "its references lead into one another without end"
    except OverflowError:  # from integers with hundreds of digits, which JSON may contain
        return "a number in it is too large to be checked against the schema"
    return None if problem is None else f"at {path_of(problem)}: {problem.message[:200]}"


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
    except (TypeError, ValueError, AttributeError, KeyError) as e:  # keywords of a wrong form
        return f"its schema is not valid: {type(e).__name__}: {str(e)[:200]}"


def _without_patterns(schema: Any, named: bool = False) -> Any:
    """Return a schema without patterns.

    :param named: True if the keys are names of properties.
    """
    if isinstance(schema, dict):
        kept = ((name, value) for name, value in schema.items() if named or name not in ("pattern", "patternProperties"))
        return {name: _without_patterns(value, not named and name in ("properties", "$defs", "definitions")) for name, value in kept}
    return [_without_patterns(one) for one in schema] if isinstance(schema, list) else schema


def path_of(error: Any) -> str:
    """Return the place in a value that an error of jsonschema is about."""
    return "".join(f"[{part!r}]" for part in error.absolute_path) or "the top"
