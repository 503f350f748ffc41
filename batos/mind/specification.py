"""What a method shall do, by its examples, as the search for it takes it: in plain values, taken from the objects of the image."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batos.image.examples import Example
from batos.mind import edits, prompting, side_by_side
from batos.mind.amending import Wanted
from batos.mind.plain_values import is_plain
from batos.mind.side_by_side import Call
from batos.objects import Method, SlotDict, SlotList, UvmObject, find, lookup_order

_TITLES = ("name", "comment")  # of the object: where the words say "name", they mean another
_LARGE = 4000  # characters of a slot's value


def wanted(
    obj: UvmObject,
    selector: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    intent: str,
    examples: Sequence[Example],
    slots: Sequence[tuple[str, Any]] = (),
) -> Wanted:
    """What a method shall do, by its examples.

    :param slots: that the object has for the call that asks for the method, beside its own.
    """
    shown = tuple(dict.fromkeys(name for one in examples for name, _ in (*one.slots, *one.after)))
    values = [value for one in examples for value in (*one.args, *dict(one.kwargs).values(), *dict(one.slots).values())]
    known = edits.Known(
        f"{intent}\n{selector.replace('_', ' ')}",
        (),
        shown,
        {name for one in examples for name, _ in one.after},
        tuple(sorted({field for value in values for field in edits.fields_of(value)})),
    )
    state = _held(obj, known.speaks_of)
    helpers = _helpers(obj, selector, intent)
    known = known._replace(slots=tuple(dict.fromkeys((*state, *shown))), sends=tuple(helpers))
    shown_calls = [Call(one.args, dict(one.kwargs), {**state, **dict(one.slots)}) for one in examples]
    calls = [
        *shown_calls,
        *([Call(tuple(args), dict(kwargs), {**state, **dict(slots)})] if all(map(is_plain, (*args, *kwargs.values()))) else []),
    ]
    return Wanted(known, list(zip(shown_calls, examples, strict=True)), calls, helpers)


def _helpers(obj: UvmObject, selector: str, intent: str) -> dict[str, str]:
    """The sources of messages that the words name, of those that are functions of what they are given."""
    named = {name: find(obj, name) for name in prompting.sends_spoken_of(obj, selector, intent)}
    held = {name: found[1] for name, found in named.items() if found is not None}
    return {
        name: one.source for name, one in held.items() if name != "think_" and isinstance(one, Method) and side_by_side.plain(one.source)
    }


def _held(obj: UvmObject, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The slots of an object that are wanted and hold what JSON has, inherited ones too; none that is large: each edit gets its own."""
    found: dict[str, Any] = {}
    seen: set[str] = set(_TITLES)
    for holder in lookup_order(obj):
        for name, value in holder._slots.items():
            if name in seen or name[-1] == "*" or not wanted(name):
                continue
            seen.add(name)
            with contextlib.suppress(ValueError, RecursionError):
                if len(repr(plain := _as_json(value))) <= _LARGE:
                    found[name] = plain
    return found


def _as_json(value: Any) -> Any:
    """A slot's value, with nothing in it cut or told otherwise than it is.

    :raises ValueError: for what is large, or of no form of JSON's.
    """
    if isinstance(value, SlotList | SlotDict | list | dict) and len(value) > _LARGE:
        raise ValueError("large")
    if isinstance(value, SlotList | list):
        return [_as_json(one) for one in value]
    if isinstance(value, SlotDict | dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(one) for key, one in value.items()}
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(type(value).__name__)
