"""Three ways together: what one transaction did to an object is taken back, or done again, in the object as it is now.

A *state* is a dict of parts: the slots of an object, the items of a dict, the members of a set; what has no parts is one part, `WHOLE`.
Between `base` and `mine` lies the change; a part that it touched must now be as in `base` (or be as in `mine` already), else it *clashes*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from persistent import Persistent

from batos.objects import SlotDict, SlotSet, UvmObject

State = dict[Any, Any]
WHOLE = "(all of it)"
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()


def parts(kind: type, raw: Any) -> State:
    """The state that a stored one (`__getstate__`) of an object of that class stands for."""
    if issubclass(kind, UvmObject):
        return {name.decode("utf-8", "surrogatepass") if isinstance(name, bytes) else name: value for name, value in raw.items()}
    if issubclass(kind, SlotDict):
        return dict(raw["data"])
    if issubclass(kind, SlotSet):
        return dict.fromkeys(raw["data"], True)
    return {WHOLE: raw}


def put(obj: Persistent, was: State, now: State) -> None:
    """Change an object from one state to the other, in its open transaction."""
    changed = [part for part in {**was, **now} if not same(was.get(part, MISSING), now.get(part, MISSING))]
    if isinstance(obj, SlotSet):
        for item in changed:
            (obj.add if item in now else obj.discard)(item)
    elif isinstance(obj, UvmObject | SlotDict):
        held: Any = obj._slots if isinstance(obj, UvmObject) else obj
        for name in changed:
            if name in now:
                held[name] = now[name]
            else:
                del held[name]
    elif changed:
        obj.__setstate__(now[WHOLE])
        obj._p_changed = True


def merged(base: State, mine: State, theirs: State) -> tuple[State, list[Any]]:
    """`theirs` with the change from `base` to `mine`, and the parts that clash, which stay as they are."""
    found, clashes = dict(theirs), []
    for part in {**base, **mine}:
        was, wanted, now = (state.get(part, MISSING) for state in (base, mine, theirs))
        if same(was, wanted) or same(now, wanted):
            continue
        if not same(now, was):
            clashes.append(part)
        elif wanted is MISSING:
            del found[part]
        else:
            found[part] = wanted
    return found, clashes


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same, type for type: 1 is not True. Other objects are the same if they are one."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Persistent):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def references(value: Any) -> Iterator[Persistent]:
    """The persistent objects that a value holds."""
    if isinstance(value, Persistent):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from references(key)
            yield from references(item)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from references(item)
