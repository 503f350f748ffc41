"""The parameters of a method's source, behind `self`."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from batos.image.examples import Example
from batos.mind.plain_values import KINDS, kind_of


def misfit(source: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Why a call does not fit a method's parameters; None if it does."""
    given = inspect.Signature(parameters_of(source))
    try:
        given.bind(*args, **kwargs)
    except TypeError as e:
        return f"it is called with {len(args)} arguments{''.join(f', {name}=' for name in kwargs)}: {e}"
    return None


def takes(source: str, taught: Sequence[Example], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call is one that a method is for: it fits the parameters, and gives each what is of a kind that this is for.

    That is what examples give it, and what it is named after (`plain_values.signature`); one of which nothing is known is for anything.

    :param taught: the examples of the method.
    """
    signature = inspect.Signature(parameters_of(source))
    kinds: dict[str, set[str]] = {name: {name.rstrip("0123456789")} & KINDS for name in signature.parameters}
    for one in taught:
        with contextlib.suppress(TypeError):  # it is of a method that had other parameters
            for name, value in signature.bind(*one.args, **dict(one.kwargs)).arguments.items():
                kinds[name].add(_kind(value))
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return False
    return all(not kinds[name] - {_NOTHING} or _kind(value) in (*kinds[name], _OTHER) for name, value in given.items())


_NOTHING, _OTHER = "nothing", "other"


def _kind(value: Any) -> str:
    return _NOTHING if value is None else kind_of(value)


def parameters_in(source: str) -> list[str]:
    """The parameters of a method's source behind `self`, in words."""
    return [str(parameter) for parameter in parameters_of(source)]


def parameters_of(source: str) -> list[inspect.Parameter]:
    """The parameters behind `self`, as the signature of the definition has them."""
    definition = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    spec, kinds = definition.args, inspect.Parameter
    positional = [*spec.posonlyargs, *spec.args]
    missing = len(positional) - len(spec.defaults)
    found = [kinds(arg.arg, kinds.POSITIONAL_OR_KEYWORD, default=kinds.empty if i < missing else None) for i, arg in enumerate(positional)][
        1:
    ]
    if spec.vararg:
        found.append(kinds(spec.vararg.arg, kinds.VAR_POSITIONAL))
    pairs = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    found += [kinds(arg.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else None) for arg, default in pairs]
    if spec.kwarg:
        found.append(kinds(spec.kwarg.arg, kinds.VAR_KEYWORD))
    return found
