"""What must be so before a slot changes, where a method then answers that it did: it answers `False`, and changes nothing, where it is not.

All methods of the handbook that change a slot and answer true do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from batos.mind import plain_values

_Fails = Callable[[Any, Any], bool]
_IN: tuple[tuple[str, _Fails], ...] = (
    ("{given} not in {slot}", lambda held, given: given not in held),
    ("{given} in {slot}", lambda held, given: given in held),
)
_WITH: Mapping[str, Sequence[tuple[str, _Fails]]] = {
    "record": _IN, "items": _IN,
    "number": (
        ("{given} > {slot}", lambda held, given: given > held), ("{given} < {slot}", lambda held, given: given < held),
        ("{given} >= {slot}", lambda held, given: given >= held), ("{given} <= {slot}", lambda held, given: given <= held),
    ),
}  # fmt: skip
"""What keeps a slot of such a kind from changing, by what is given, and whether it does."""
_ALONE: Mapping[str, Sequence[tuple[str, _Fails]]] = {
    "flag": (("{slot}", lambda held, _: bool(held)), ("not {slot}", lambda held, _: not held)),
    "items": (("not {slot}", lambda held, _: not held),),
    "record": (("not {slot}", lambda held, _: not held),),
    "number": (("{slot} == 0", lambda held, _: held == 0),),
}
"""And by itself."""


def guards(slot: str, held: Sequence[Any], given: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """What may keep a slot from changing, as expressions, and did not on any example; the likeliest first.

    :param slot: as it stands in a method: `self.total`.
    :param held: what it held before, in each example.
    :param given: of each argument what it was.
    """
    kind = plain_values.kind_of(held[0])
    of = {"number"} if kind == "number" else _kinds(held)
    alike = {name: list(values) for name, values in given.items() if not of or of == {plain_values.kind_of(one) for one in values}}
    ways = [(one, name, values) for one in _WITH.get(kind, ()) for name, values in alike.items()]
    ways += [(one, "", [None] * len(held)) for one in _ALONE.get(kind, ())]
    for (template, fails), name, values in ways:
        try:
            if not any(fails(before, value) for before, value in zip(held, values, strict=True)):
                yield template.format(slot=slot, given=name)
        except TypeError:  # of another kind: a number and a text, or a list as a key
            continue


def _kinds(held: Sequence[Any]) -> set[str]:
    """Of which kinds the items, or keys, of these are."""
    return {plain_values.kind_of(one) for values in held if isinstance(values, list | dict) for one in values}
