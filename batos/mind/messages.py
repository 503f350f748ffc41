"""Sending: `await send(obj, selector, *args, **kwargs)`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from batos.errors import ImageDamaged, InvalidInput, MessageNotUnderstood
from batos.image.history import oid_of
from batos.mind import grants
from batos.mind.thinking import attempt_or_none
from batos.objects import Intent, Method, Primitive, UvmObject, find

BUILT_IN = ("_clone_persistent_", "clone", "derive")
"""Messages that every object understands: it answers a new one, which lives as long as something refers to it."""


async def send(obj: UvmObject, selector: str, *args: Any, **kwargs: Any) -> Any:
    """Send a message to an object, inside the unit of work that the object belongs to.

    A Primitive goes to host code, which may be a coroutine; a data slot answers its value; a Method runs in the sandbox. An
    Intent, or a selector that nothing answers, is written as a method first: that takes a mission.

    :raises MessageNotUnderstood: outside a mission, for what would have to be written or run in the sandbox; for a name that
        no method may have.
    :raises InvalidInput: for arguments that do not fit.
    :raises GrantNeeded: for a Primitive that changes more than its receiver, where a generated method sends it without a grant.
    :raises BatosError: as writing or running the method failed.
    """
    return await deliver(obj, selector, args, kwargs)


async def deliver(
    obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], /, *, start: tuple[UvmObject, ...] = ()
) -> Any:
    """As `send`, with the arguments as values.

    :param start: objects to look the selector up in, in order and with what they inherit, in place of `obj`; the receiver stays
        `obj` (a resend).
    """
    held = find(obj, selector) if not start else next(filter(None, (find(one, selector) for one in start)), None)
    if held is None and selector in BUILT_IN:
        return _copy(obj, selector, tuple(args), dict(kwargs))
    if held is None or isinstance(held[1], Intent | Method):
        return await _generated(obj, selector, args, kwargs, held, resent=bool(start))
    value = held[1]
    if isinstance(value, Primitive):
        grants.check(value, obj, selector, args, kwargs)
        try:
            inspect.signature(value.resolve()).bind(obj, *args, **kwargs)
        except TypeError as e:
            raise InvalidInput(f"{selector!r} of {obj!r} was sent with the wrong arguments: {e}") from None
        answer = value(obj, *args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer
    if args or kwargs:
        raise InvalidInput(f"slot {selector!r} of {obj!r} holds data and takes no arguments")
    return value


async def _generated(
    obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], held: tuple[UvmObject, Any] | None, *, resent: bool
) -> Any:
    attempt = attempt_or_none()
    if attempt is None or selector[:1] == "_" or (resent and held is None):
        raise MessageNotUnderstood(obj, selector)
    making = attempt.making
    if held is None and (own := find(obj, "_doesNotUnderstand_")) is not None:  # an object may answer for itself what it does not know
        return await deliver(obj, "_doesNotUnderstand_", (selector, *args), kwargs) if isinstance(own[1], Method | Primitive) else None
    if held is not None and isinstance(held[1], Method):
        holder, method = held
    else:
        method = await making.methods.forge(attempt, obj, selector, args, kwargs)
        found = find(obj, selector)
        holder = found[0] if found is not None else obj
    if not method.intact():
        raise ImageDamaged(
            f"the source of method {selector!r} of {obj!r} is not what was audited; `batos revert` brings back another version"
        )
    return await making.run(obj, holder, method, args, kwargs)


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


def called(obj: UvmObject) -> str:
    """An object in words: its name, if it has one."""
    name = obj._slots.get("name")
    return name if isinstance(name, str) and name else oid_of(obj) or repr(obj)
