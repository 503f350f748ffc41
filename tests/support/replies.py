"""Strict check of replies: each field that the daemon sends is one that `batos.wire.replies` describes, and has its type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from batos.wire.replies import REPLIES

_SHOWN = 300  # characters of a value that a failed check shows


def checked(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a reply that is as the reference says; any other one fails the test."""
    kind = reply.get("type")
    assert kind in REPLIES, f"no reply has the type {kind!r} in batos.wire.replies: {str(reply)[:_SHOWN]}"
    try:
        _validator(kind)([reply])
    except ValidationError as e:
        faults = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}, not {str(one['input'])[:_SHOWN]}" for one in e.errors()]
        raise AssertionError(f"the reply {kind!r} is not as batos.wire.replies says: {'; '.join(faults)}") from None
    return reply


@functools.cache
def _validator(kind: str) -> Callable[[Any], Any]:
    # a list, since pydantic takes no configuration for a TypedDict that is not inside another type
    strict = ConfigDict(strict=True, extra="forbid")
    return TypeAdapter(list[REPLIES[kind]], config=strict).validator.validate_python  # type: ignore[misc]
