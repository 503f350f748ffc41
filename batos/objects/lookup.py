"""Delegation: where a message that an object does not answer itself is looked for.

Own slots first, then the parents, depth first, left to right, each object once (Self: Ungar and Smith, OOPSLA 1987).
Cycles and diamonds are harmless. A ghost's `__dict__` is empty, so an empty one is activated before it is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batos.objects.uvm import UvmObject

MISSING: Any = object()
_STEPS = 32  # parents looked at without a set of those seen; a longer way, or a cycle, takes the careful one


def parents_of(obj: UvmObject) -> tuple[UvmObject, ...]:
    """The parents of `obj`: the objects in its slots named `…*`, in the order of the slots."""
    slots = obj.__dict__
    if not slots:
        obj._p_activate()
    found: tuple[Any, ...] = ()
    for name in slots:
        if name[-1:] == "*":
            value = slots[name]
            found += value if type(value) is tuple else (value,)
    for parent in found:
        if not hasattr(type(parent), "_p_activate"):
            raise _no_parent(obj, parent)
    return found


def _no_parent(obj: UvmObject, parent: object) -> TypeError:
    # No AttributeError, which would make `hasattr` say that all is well.
    return TypeError(f"a parent slot of {obj!r} holds a {type(parent).__name__}; it holds a UvmObject or a tuple of them")


def lookup_order(obj: UvmObject) -> list[UvmObject]:
    """`obj` and all it inherits from, in the order of lookup."""
    seen, order, stack = set(), [], [obj]
    while stack:
        current = stack.pop()
        if id(current) not in seen:
            seen.add(id(current))
            order.append(current)
            stack.extend(reversed(parents_of(current)))
    return order


def find(obj: UvmObject, name: str) -> tuple[UvmObject, Any] | None:
    """The object that holds slot `name` for `obj`, and the slot's value; None if nothing does."""
    slots = obj.__dict__
    if not slots:
        obj._p_activate()
    if name in slots:
        return obj, slots[name]
    return _find_inherited(obj, name)


def understands(obj: UvmObject, name: str) -> bool:
    """Whether `obj` or a parent has slot `name`. Runs no code of any object."""
    return find(obj, name) is not None


def inherited(obj: UvmObject, name: str) -> Any:
    """The value that the parents of `obj` hold for `name`, or MISSING. The quick way of `find`, for attribute access."""
    current: Any = obj
    slots = obj.__dict__
    waiting: tuple[Any, ...] = ()  # a diamond's end may be looked at twice: that costs less than to remember what was seen
    for _ in range(_STEPS):
        parent: Any = None
        for key in slots:
            if "*" in key:  # only ever at its end; of the ways to ask the quickest
                if parent is not None:
                    parent = parents_of(current)
                    break
                parent = slots[key]
        if type(parent) is tuple:
            waiting = parent + waiting
            parent = None
        if parent is None:
            if not waiting:
                return MISSING
            parent, waiting = waiting[0], waiting[1:]
        try:
            slots = parent.__dict__
        except AttributeError:
            raise _no_parent(current, parent) from None
        if not slots:
            parent._p_activate()
        if name in slots:
            return slots[name]
        current = parent
    careful = _find_inherited(obj, name)
    return MISSING if careful is None else careful[1]


def _find_inherited(obj: UvmObject, name: str) -> tuple[UvmObject, Any] | None:
    seen = {id(obj)}
    stack = list(reversed(parents_of(obj)))
    while stack:
        holder = stack.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        slots = holder.__dict__
        if not slots:
            holder._p_activate()
        if name in slots:
            return holder, slots[name]
        stack.extend(reversed(parents_of(holder)))
    return None
