"""Schemas of requests about notices. See `batos.wire.schemas`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from batos.wire.fields import ConnectionName, Limit, MissionId, Persona, Request, Role
from batos.wire.tool_schemas import folders_of, program_of

ChannelName = ConnectionName
Fact = Literal["end", "failure", "question", "change", "doubt", "schedule"]


class NoticesRequest(Request):
    """The channels of notices; or one of them, with its options."""

    least_role: ClassVar[Role] = "read"
    op: Literal["notices"]
    name: ChannelName | None = None


class NoticeAddRequest(Request):
    """A channel: a place where the user wants to hear of some facts."""

    op: Literal["notice_add"]
    name: ChannelName
    way: Literal["program", "hook", "apprise"]
    place: Annotated[str, StringConstraints(min_length=1, max_length=8000)]
    options: dict[str, Any] = Field(default_factory=dict)
    on: Annotated[list[Fact], Field(min_length=1, max_length=6)] | None = None
    persona: Persona | None = None
    origin: Annotated[str, StringConstraints(min_length=1, max_length=32)] | None = None
    quiet: Annotated[str, StringConstraints(min_length=1, max_length=20)] | None = None
    zone: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    once: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """Return the program of the daemon's machine that the channel runs, and the folders of that program."""
        return (program_of(self.place), *folders_of(self.options)) if self.way == "program" else ()


class NoticePauseRequest(Request):
    """Let a channel rest until it is resumed; what it is to tell waits."""

    op: Literal["notice_pause"]
    name: ChannelName


class NoticeResumeRequest(Request):
    """Let a channel go on, with what waited."""

    op: Literal["notice_resume"]
    name: ChannelName


class NoticeRemoveRequest(Request):
    """Remove a channel, and the secret that was kept for it."""

    op: Literal["notice_remove"]
    name: ChannelName


class NoticeTestRequest(Request):
    """Send a message to a channel now; the same id again is the same message."""

    op: Literal["notice_test"]
    name: ChannelName
    id: MissionId

    @property
    def waits(self) -> bool:
        return True


class NoticeSettleRequest(Request):
    """Settle the messages that failed or are in doubt, of one channel or of all: the user has seen them."""

    op: Literal["notice_settle"]
    name: ChannelName | None = None


class NoticeLogRequest(Request):
    """The last messages, of one channel or of all, with what became of them."""

    least_role: ClassVar[Role] = "read"
    op: Literal["notice_log"]
    name: ChannelName | None = None
    limit: Limit = 50
