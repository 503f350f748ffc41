"""Schemas of requests about tools: connections, grants, effects. See `batos.wire.schemas`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from batos.wire.fields import ConnectionName, EffectKey, Limit, MissionId, Number, Persona, Request, Role, ToolName

PLACE_CHARS = 8192
MACHINE_CHARS = 255
CONSTRAINT_CHARS = 8192
DAILY_LIMIT = 10**15
ConnectionKind = Literal["mcp", "openapi", "http", "folder", "program", "web"]
Verdict = Literal["deny", "ask", "allow"]
Settlement = Literal["happened", "again", "leave"]


class ToolsRequest(Request):
    """The connections with their tools; or one of them, or one tool, whole."""

    least_role: ClassVar[Role] = "read"
    op: Literal["tools"]
    name: ToolName | None = None


class ToolAddRequest(Request):
    """A connection, through which missions act outside. Its place is asked for its tools, which are pinned."""

    op: Literal["tool_add"]
    name: ConnectionName
    kind: ConnectionKind
    place: Annotated[str, StringConstraints(max_length=PLACE_CHARS)] = ""
    options: dict[str, Any] = Field(default_factory=dict)
    on: Annotated[str, StringConstraints(min_length=1, max_length=MACHINE_CHARS)] | None = None

    @property
    def waits(self) -> bool:
        return True

    @property
    def named(self) -> tuple[str, ...]:
        """Return the file, folder or program of the daemon's machine that the connection reaches, and the folders of that program."""
        if "://" in self.place.split(" ", 1)[0] or self.kind in ("http", "web") or not self.place:
            return ()
        if self.kind in ("folder", "openapi"):
            return (self.place,)
        return (program_of(self.place), *folders_of(self.options))


def folders_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the folders that the options of a program open to it. What is not a list of paths is left to the connector to refuse."""
    given = options.get("folders")
    return tuple(one.removesuffix(":ro").removesuffix(":rw") for one in given if isinstance(one, str)) if isinstance(given, list) else ()


def program_of(command: str) -> str:
    """Return the program of a command line."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []  # the connector says what is wrong with it
    return words[0] if words else command


class ToolDescribeRequest(Request):
    """A description that is not a schema, read: the usage of a program (its command), or a text (a URL or a file). Nothing is connected by
    it."""

    op: Literal["tool_describe"]
    kind: Literal["usage", "text"]
    source: Annotated[str, StringConstraints(min_length=1, max_length=PLACE_CHARS)]
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def waits(self) -> bool:
        return True

    @property
    def named(self) -> tuple[str, ...]:
        """Return the file or program of the daemon's machine that it reads, and the folders of that program."""
        if self.kind == "usage":
            return (program_of(self.source), *folders_of(self.options))
        return () if "://" in self.source else (self.source,)


class ToolTestRequest(Request):
    """Ask a connection's place for its tools anew. Those that are new or different are suspended."""

    op: Literal["tool_test"]
    name: ConnectionName

    @property
    def waits(self) -> bool:
        return True


class ToolAcceptRequest(Request):
    """Pin the tools of a connection as they are offered now."""

    op: Literal["tool_accept"]
    name: ConnectionName


class ToolRemoveRequest(Request):
    """Remove a connection. What was done through it stays done."""

    op: Literal["tool_remove"]
    name: ConnectionName


class ToolOfferRequest(Request):
    """A place that may be proposed where a message wants a connection that is not there. Nothing is asked or started."""

    op: Literal["tool_offer"]
    name: ConnectionName
    line: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    kind: ConnectionKind
    place: Annotated[str, StringConstraints(max_length=PLACE_CHARS)] = ""
    options: dict[str, Any] = Field(default_factory=dict)


class ToolOffersRequest(Request):
    """The places that may be proposed."""

    least_role: ClassVar[Role] = "read"
    op: Literal["tool_offers"]


class ToolWithdrawRequest(Request):
    """Take a place off the list of those that may be proposed."""

    op: Literal["tool_withdraw"]
    name: ConnectionName


class ToolsResumeRequest(Request):
    """Let an image act that was copied, restored or replaced. What it had not ended asks its user from then on."""

    op: Literal["tools_resume"]


class ToolGrantRequest(Request):
    """A grant: which mission may call which tool, or may not, or asks first."""

    op: Literal["tool_grant"]
    verdict: Verdict
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    persona: Persona | None = None
    of_mission: MissionId | None = Field(None, alias="mission")
    args: Annotated[str, StringConstraints(max_length=CONSTRAINT_CHARS)] = ""
    until: Annotated[str, StringConstraints(min_length=1, max_length=40)] | None = None
    uses: Annotated[int, Field(ge=1, le=DAILY_LIMIT)] | None = None
    bytes: Annotated[int, Field(ge=1, le=DAILY_LIMIT)] | None = None
    leaks: bool = False
    system: bool = False

    @model_validator(mode="after")
    def _only_an_allow(self) -> ToolGrantRequest:
        narrowing = [name for name in ("uses", "bytes", "leaks", "system") if getattr(self, name)]
        if self.verdict != "allow" and narrowing:
            raise ValueError(f"only the verdict `allow` goes with `{narrowing[0]}`; this one is `{self.verdict}`")
        return self


class ToolGrantsRequest(Request):
    """The grants, in the order in which they were made."""

    least_role: ClassVar[Role] = "read"
    op: Literal["tool_grants"]


class ToolUngrantRequest(Request):
    """Remove a grant. What was done by its leave stands."""

    op: Literal["tool_ungrant"]
    number: Number


class EffectsRequest(Request):
    """List what missions did outside: of all, the newest first, of one mission, or only what is in doubt."""

    least_role: ClassVar[Role] = "read"
    op: Literal["effects"]
    of_mission: MissionId | None = Field(None, alias="mission")
    doubt: bool = False
    limit: Limit = 50


class EffectSettleRequest(Request):
    """Say what became of an effect in doubt: it happened, it is to be done again, or it is left."""

    op: Literal["effect_settle"]
    key: EffectKey
    how: Settlement
