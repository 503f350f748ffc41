"""Option groups: options of a verb that belong together, as one parameter.

    @dataclass(frozen=True)
    class QuerySource(OptionGroup):
        image: FileFlag = None
        connect: Connect = None

    @app.command()
    @grouped
    def history(target: Target, source: QuerySource, as_json: Json = False) -> None: ...

The command line has `--image` and `--connect` in the place of `source`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints


class OptionGroup:
    """Base of option groups, which are frozen dataclasses. Each field has the type of an option, and a default."""


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with each parameter that is an option group replaced by the fields of that group, for typer to read."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[name] = kind
            types = get_type_hints(kind, include_extras=True)
            parameters += [parameter.replace(name=one.name, annotation=types[one.name], default=one.default) for one in fields(kind)]  # type: ignore[arg-type]
        else:
            parameters.append(parameter.replace(annotation=kind))

    @functools.wraps(verb)
    def flat(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        verb(**given, **made)

    del flat.__wrapped__  # typer would read the signature of that
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {one.name: one.annotation for one in parameters}
    return flat
