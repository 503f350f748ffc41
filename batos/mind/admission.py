"""What is looked at of a message before its mission is accepted: whether its receiver knows it, and whether the arguments fit.

What would fail anyway is refused at once, and costs no mission. A selector that is nearly one that is known is taken for a slip: else a
method would be written for it, and stay. Pure reads of the image.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batos.errors import InvalidInput
from batos.image import examples
from batos.image.history import resolve
from batos.mind.messages import BUILT_IN, called
from batos.mind.parameters import parameters_of
from batos.objects import Intent, Method, Primitive, UvmObject, find, lookup_order

_NAMED = 3  # names of what may have been meant
_LONG = 8  # letters from which two slips are looked for


def check(root: Any, target: str, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], write: bool = False) -> None:
    """Whether a message may become a mission.

    :param write: whether a method may be written for a selector that is nearly a known one.
    :raises UnknownTarget: if its receiver is not there.
    :raises InvalidInput: for arguments that do not fit, and for a selector that looks like a slip.
    """
    obj = resolve(root, target)
    held = find(obj, selector)
    if held is not None:
        _check_arguments(obj, selector, held[1], args, kwargs)
    elif not (write or selector in BUILT_IN or find(obj, "_doesNotUnderstand_") is not None):
        _check_name(root, obj, target, selector)


def near(word: str, names: Iterable[str]) -> list[str]:
    """Those of some selectors that differ from another one by a slip: a letter more, less, another or at its neighbour's place (two of them
    in a long name), by case or underscores, or by the order of the words. The nearest first."""
    plain = _plain(word)
    allowed = 2 if len(plain) >= _LONG else 1
    found = []
    for name in set(names) - {word}:
        other = _plain(name)
        if sorted(_parts(name)) == sorted(_parts(word)):
            found.append((0, name))
        elif min(len(plain), len(other)) > 2 * allowed and abs(len(plain) - len(other)) <= allowed:
            slips = _distance(plain, other)
            if slips <= allowed:
                found.append((slips, name))
    return [name for _, name in sorted(found)]


def _check_name(root: Any, obj: UvmObject, target: str, selector: str) -> None:
    taught, intent = examples.of(root, obj, selector)
    if taught or intent:
        return
    known = {name for one in lookup_order(obj) for name in one._slots if not name.endswith("*") and name[:1] != "_"}
    if meant := near(selector, known):
        names = ", ".join(map(repr, meant[:_NAMED]))
        raise InvalidInput(
            f"{called(obj)} has no slot {selector!r}, but {names}; say that, or have a method written for {selector!r} all the same: "
            f"`batos send-to {target} {selector} --write` (on the wire `write`)"
        )


def _check_arguments(obj: UvmObject, selector: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if isinstance(value, Intent):
        return
    if isinstance(value, Method):
        taken = inspect.Signature(parameters_of(value.source))
    elif isinstance(value, Primitive):
        try:
            signature = inspect.signature(value.resolve())
        except LookupError:  # its mission says so
            return
        taken = inspect.Signature(list(signature.parameters.values())[1:])
    else:
        taken = inspect.Signature()
        if args or kwargs:
            raise InvalidInput(f"slot {selector!r} of {called(obj)} holds data and takes no arguments")
    try:
        taken.bind(*args, **kwargs)
    except TypeError as e:
        given = ", ".join([*(json.dumps(one)[:40] for one in args), *(f"{name}=" for name in kwargs)]) or "none"
        raise InvalidInput(f"{selector!r} of {called(obj)} takes {_told(taken)}; given: {given}; {e}") from None


def _told(taken: inspect.Signature) -> str:
    """Parameters in words, those that may be left out in brackets."""
    names = (str(one.replace(annotation=one.empty, default=one.empty)) for one in taken.parameters.values())
    told = (name if one.default is one.empty else f"[{name}]" for name, one in zip(names, taken.parameters.values(), strict=True))
    return f"({', '.join(told)})" if taken.parameters else "no arguments"


def _plain(selector: str) -> str:
    return selector.replace("_", "").lower()


def _parts(selector: str) -> list[str]:
    return [part for part in selector.lower().split("_") if part]


def _distance(one: str, other: str) -> int:
    """Letters to be put in, left out, replaced or swapped with their neighbour (optimal string alignment)."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, its in enumerate(other, 1):
            cost = min(rows[-1][j] + 1, row[j - 1] + 1, rows[-1][j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == its:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
