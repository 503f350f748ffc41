"""Sending: `await send(obj, selector, *args, **kwargs)`."""

from __future__ import annotations

import inspect
from typing import Any

from batos.errors import InvalidInput, MessageNotUnderstood
from batos.objects import Intent, Method, Primitive, UvmObject, find

BUILT_IN = ("_clone_persistent_", "clone", "derive")
"""Messages that every object understands: it answers a new one, which lives as long as something refers to it."""


async def send(obj: UvmObject, selector: str, *args: Any, **kwargs: Any) -> Any:
    """Send a message to an object, inside the unit of work that the object belongs to.

    A Primitive goes to host code, which may be a coroutine; a data slot answers its value.

    :raises MessageNotUnderstood: for a selector that no slot answers, and for an Intent or a Method, which need the
        synthesis of methods and its sandbox.
    :raises InvalidInput: for arguments that do not fit.
    """
    held = find(obj, selector)
    if held is None and selector in BUILT_IN:
        return _copy(obj, selector, args, kwargs)
    if held is None or isinstance(held[1], Intent | Method):
        raise MessageNotUnderstood(obj, selector)
    value = held[1]
    if isinstance(value, Primitive):
        try:
            inspect.signature(value.resolve()).bind(obj, *args, **kwargs)
        except TypeError as e:
            raise InvalidInput(f"{selector!r} of {obj!r} was sent with the wrong arguments: {e}") from None
        answer = value(obj, *args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer
    if args or kwargs:
        raise InvalidInput(f"slot {selector!r} of {obj!r} holds data and takes no arguments")
    return value


def _copy(obj: UvmObject, selector: str, args: tuple[Any, ...], slots: dict[str, Any]) -> UvmObject:
    if args:
        raise InvalidInput(f"{selector!r} takes the slots of the new object by name, and no other arguments")
    try:
        new: UvmObject = getattr(obj, selector)(**slots)
    except (TypeError, ValueError) as e:
        raise InvalidInput(f"{selector!r} of {obj!r}: {e}") from None
    if obj._p_jar is not None:
        obj._p_jar.add(new)  # it has an id from now on
    return new
