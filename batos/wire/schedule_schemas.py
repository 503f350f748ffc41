"""Schemas of requests about schedules. See `batos.wire.schemas`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from batos.wire.fields import ConnectionName, MissionId, Persona, Request, Role

ScheduleName = ConnectionName


class SchedulesRequest(Request):
    """The schedules; or one of them, with its brief and its last runs."""

    least_role: ClassVar[Role] = "read"
    op: Literal["schedules"]
    name: ScheduleName | None = None


class ScheduleAddRequest(Request):
    """A schedule: a brief that becomes a mission at the times that the words say."""

    op: Literal["schedule_add"]
    when: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    brief: Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
    zone: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    name: ScheduleName | None = None
    persona: Persona | None = None
    missed: Literal["once", "skip", "all"] = "once"
    stop_after: Annotated[int, Field(ge=1, le=20)] | None = None
    overlap: Literal["run", "skip"] = "run"


class SchedulePauseRequest(Request):
    """Let a schedule rest until it is resumed."""

    op: Literal["schedule_pause"]
    name: ScheduleName


class ScheduleResumeRequest(Request):
    """Let a schedule go on; times that passed meanwhile do not come back."""

    op: Literal["schedule_resume"]
    name: ScheduleName


class ScheduleRemoveRequest(Request):
    """Remove a schedule. Its missions stay."""

    op: Literal["schedule_remove"]
    name: ScheduleName


class ScheduleRunRequest(Request):
    """Make a mission of a schedule now; what is planned stays."""

    op: Literal["schedule_run"]
    name: ScheduleName
    id: MissionId
