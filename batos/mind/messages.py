"""Sending: `await send(obj, selector, *args, **kwargs)`."""

from __future__ import annotations

import inspect
from typing import Any

from batos.errors import MessageNotUnderstood
from batos.objects import Intent, Method, Primitive, UvmObject, find


async def send(obj: UvmObject, selector: str, *args: Any, **kwargs: Any) -> Any:
    """Send a message to an object, inside the unit of work that the object belongs to.

    A Primitive goes to host code, which may be a coroutine; a data slot answers its value.

    :raises MessageNotUnderstood: for a selector that no slot answers, and for an Intent or a Method, which need the
        synthesis of methods and its sandbox.
    """
    held = find(obj, selector)
    if held is None or isinstance(held[1], Intent | Method):
        raise MessageNotUnderstood(obj, selector)
    value = held[1]
    if isinstance(value, Primitive):
        answer = value(obj, *args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer
    if args or kwargs:
        raise TypeError(f"slot {selector!r} of {obj!r} holds data and takes no arguments")
    return value
