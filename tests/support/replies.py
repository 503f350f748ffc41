"""Strict check of replies: each field that a daemon sends is one that `batos.wire.replies` describes, and has its type.

`Peer` of `tests.support.daemon` checks each reply at once. Kernels in the process of the tests only keep what they answer, and `conftest`
has it checked at the end of each test: an error within a handler would only be one more reply, and a check there would take time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from batos.api import dispatcher
from batos.console.api_client import Asker
from batos.wire.outbox import ClientHandle
from batos.wire.replies import ANSWERED, EVENTS, REPLIES

_SHOWN = 300  # characters of a value that a failed check shows
_kept: dict[tuple[str, str], None] = {}  # operation and reply, as JSON
_served: set[int] = set()  # ids of clients of kernels; others are those of scripted handlers


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


def keep_replies() -> None:
    """Have each kernel of this process keep what its handlers answer and send to sockets, and `Asker` its replies, for `check_kept`."""
    found, ask, send = dispatcher.handlers_of, Asker.ask, ClientHandle.send

    def handlers_of(service: object) -> dict[type[Any], dispatcher.Handler]:
        return {request: _keeping(handler, request) for request, handler in found(service).items()}

    async def keeping(self: Asker, op: str, **fields: Any) -> dict[str, Any]:
        reply = await ask(self, op, **fields)
        _keep(reply, op)
        return reply

    def sending(self: ClientHandle, reply: dict[str, Any], *, event: bool = False) -> None:
        if id(self) in _served:
            _keep(reply, "")
        send(self, reply, event=event)

    dispatcher.handlers_of, Asker.ask, ClientHandle.send = handlers_of, keeping, sending  # type: ignore[method-assign]


def check_kept() -> None:
    """Check the replies that were kept since the last call."""
    kept = list(_kept)
    _kept.clear()
    _served.clear()
    for op, reply in kept:
        checked(json.loads(reply), op)


def _keeping(handler: dispatcher.Handler, request: type[Any]) -> dispatcher.Handler:
    (op,) = get_args(request.model_fields["op"].annotation)

    async def handle(request: Any, client: Any) -> dict[str, Any] | None:
        _served.add(id(client))
        reply = await handler(request, client)
        if reply is not None:
            _keep(reply, op)
        return reply

    return handle


def _keep(reply: dict[str, Any], op: str) -> None:
    _kept[op, json.dumps(reply)] = None  # as a client gets it: tuples are arrays
