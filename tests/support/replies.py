"""Strict check of replies: each field that a daemon sends is one that `batos.wire.replies` describes, and has its type.

`Peer` of `tests.support.daemon` checks each reply at once. In the process of the tests, kernels note what is wrong, and `conftest` fails
the test at its end: an error within a handler would only be one more reply.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from batos.api import dispatcher
from batos.console.api_client import Heard
from batos.wire.replies import ANSWERED, EVENTS, REPLIES

_SHOWN = 300  # characters of a value that a failed check shows
_faults: list[str] = []


def checked(reply: dict[str, Any], op: str = "") -> dict[str, Any]:
    """Return a reply that is as the reference says; any other one fails the test.

    :param op: the operation that it answers; empty: any. The events of a watch may come before the answer.
    """
    kind = reply.get("type")
    assert kind in REPLIES, f"no reply has the type {kind!r} in batos.wire.replies: {str(reply)[:_SHOWN]}"
    try:
        _validator(kind)([reply])
    except ValidationError as e:
        faults = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}, not {str(one['input'])[:_SHOWN]}" for one in e.errors()]
        raise AssertionError(f"the reply {kind!r} is not as batos.wire.replies says: {'; '.join(faults)}") from None
    assert op in ("", *ANSWERED[kind]) or kind in {"error", "result", *EVENTS}, f"the reply to {op!r} has the type {kind!r}: {reply}"
    return reply


@functools.cache
def _validator(kind: str) -> Callable[[Any], Any]:
    # a list, since pydantic takes no configuration for a TypedDict that is not inside another type
    strict = ConfigDict(strict=True, extra="forbid")
    return TypeAdapter(list[REPLIES[kind]], config=strict).validator.validate_python  # type: ignore[misc]


def check_kernels() -> None:
    """Have each kernel of this process note replies that are not as the reference says: those of handlers, and what `Heard` gets."""
    found, send = dispatcher.handlers_of, Heard.send

    def handlers_of(service: object) -> dict[type[Any], dispatcher.Handler]:
        return {request: _noting(handler, request) for request, handler in found(service).items()}

    def noting(self: Heard, reply: dict[str, Any], *, event: bool = False) -> None:
        _note(reply)
        send(self, reply, event=event)

    dispatcher.handlers_of, Heard.send = handlers_of, noting  # type: ignore[method-assign]


def fail_on_faults() -> None:
    """Fail if replies were noted since the last call."""
    faults = list(_faults)
    _faults.clear()
    assert not faults, "\n".join(faults)


def _noting(handler: dispatcher.Handler, request: type[Any]) -> dispatcher.Handler:
    (op,) = get_args(request.model_fields["op"].annotation)

    async def handle(*asked: Any) -> dict[str, Any] | None:
        reply = await handler(*asked)
        if reply is not None:
            _note(reply, op)
        return reply

    return handle


def _note(reply: dict[str, Any], op: str = "") -> None:
    try:
        checked(json.loads(json.dumps(reply)), op)  # as a client gets it: tuples are arrays
    except AssertionError as e:
        _faults.append(str(e))
