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


def path_of(error: Any) -> str:
    """Return the place in a value that an error of jsonschema is about."""
    return "".join(f"[{part!r}]" for part in error.absolute_path) or "the top"
