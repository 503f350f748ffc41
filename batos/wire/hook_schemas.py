"""Schemas of requests about hooks. See `batos.wire.schemas`."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StringConstraints

from batos.wire.fields import ConnectionName, Persona, Priority, Request, Role

HookName = ConnectionName
Template = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
Depth = Literal["auto", "direct", "facets", "council"]
_Host = Annotated[str, StringConstraints(min_length=1, max_length=260)]
_Condition = Annotated[str, StringConstraints(min_length=3, max_length=500)]
_Header = Annotated[str, StringConstraints(max_length=2000)]


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the body is bytes in base64") from None
    return text


class HooksRequest(Request):
    """The hooks; or one of them, with its brief and its last missions."""

    least_role: ClassVar[Role] = "read"
    op: Literal["hooks"]
    name: HookName | None = None


class HookAddRequest(Request):
    """A hook: a brief that becomes a mission when another program calls. The reply has its secret."""

    op: Literal["hook_add"]
    name: HookName
    brief: Template
    persona: Persona | None = None
    depth: Depth | None = None
    priority: Priority = 0
    rate: Annotated[int, Field(ge=1, le=1000)] = 60
    hosts: Annotated[list[_Host], Field(max_length=16)] = Field(default_factory=list)
    when: Annotated[list[_Condition], Field(max_length=16)] = Field(default_factory=list)


class HookPauseRequest(Request):
    """Refuse deliveries of a hook until it is resumed."""

    op: Literal["hook_pause"]
    name: HookName


class HookResumeRequest(Request):
    """Take deliveries of a hook again."""

    op: Literal["hook_resume"]
    name: HookName


class HookRemoveRequest(Request):
    """Remove a hook and its secret. Its missions stay."""

    op: Literal["hook_remove"]
    name: HookName


class HookRollRequest(Request):
    """Give a hook another secret, which the reply has; the one before does not count any more."""

    op: Literal["hook_roll"]
    name: HookName


class HookDeliverRequest(Request):
    """A delivery to a hook, as it came over HTTP: it has to prove that it knows the hook's secret, whichever client passes it on."""

    least_role: ClassVar[Role] = "submit"
    op: Literal["hook_deliver"]
    name: Annotated[str, StringConstraints(max_length=200)]
    body: Annotated[str, AfterValidator(_base64)]
    kind: _Header = ""
    headers: Annotated[dict[Annotated[str, StringConstraints(max_length=64)], _Header], Field(max_length=32)] = Field(default_factory=dict)
    token: _Header = ""
