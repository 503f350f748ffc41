"""Schemas of requests: one pydantic model for each operation.

Schemas are strict (no number in a string's place, no boolean in a number's). They are closed (a field that the operation does not have is
refused). The same rules in prose, with examples that are tested: `docs/wire.md`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from batos.wire.admin_schemas import (
    Accepting,
    BackupRequest,
    ChangesRequest,
    CurateRequest,
    ExpertsRequest,
    ForkRequest,
    InfoRequest,
    IngestRequest,
    MemoryRequest,
    MetricsRequest,
    ModelsRequest,
    PackRequest,
    PersonasRequest,
    SearchRequest,
    UndoChangeRequest,
    UndoRequest,
)
from batos.wire.compare_schemas import (
    CompareJudgeRequest,
    CompareListRequest,
    CompareNextRequest,
    ComparePromoteRequest,
    CompareRemoveRequest,
    CompareResumeRequest,
    CompareShowRequest,
    CompareStartRequest,
    CompareStopRequest,
)
from batos.wire.fields import (
    IMAGE_NAME_CHARS,
    IMAGES_LIMIT,
    WAIT_S_LIMIT,
    WHY_CHARS,
    Deadline,
    Digest,
    Limit,
    MissionId,
    Moment,
    Name,
    Need,
    Persona,
    Priority,
    Rating,
    Request,
    Role,
    State,
    Target,
    Words,
)
from batos.wire.folder_schemas import (
    FolderAddRequest,
    FolderPauseRequest,
    FolderRemoveRequest,
    FolderResumeRequest,
    FolderRunRequest,
    FoldersRequest,
)
from batos.wire.hook_schemas import (
    HookAddRequest,
    HookDeliverRequest,
    HookPauseRequest,
    HookRemoveRequest,
    HookResumeRequest,
    HookRollRequest,
    HooksRequest,
)
from batos.wire.kernel_schemas import KernelsRequest
from batos.wire.notice_schemas import (
    NoticeAddRequest,
    NoticeLogRequest,
    NoticePauseRequest,
    NoticeRemoveRequest,
    NoticeResumeRequest,
    NoticeSettleRequest,
    NoticesRequest,
    NoticeTestRequest,
)
from batos.wire.schedule_schemas import (
    ScheduleAddRequest,
    SchedulePauseRequest,
    ScheduleRemoveRequest,
    ScheduleResumeRequest,
    ScheduleRunRequest,
    SchedulesRequest,
)
from batos.wire.step_schemas import (
    StepCloseRequest,
    StepContinueRequest,
    StepEditRequest,
    StepEvalRequest,
    StepGoRequest,
    StepOpenRequest,
    StepShowRequest,
)
from batos.wire.tool_schemas import (
    EffectSettleRequest,
    EffectsRequest,
    ToolAcceptRequest,
    ToolAddRequest,
    ToolDescribeRequest,
    ToolGrantRequest,
    ToolGrantsRequest,
    ToolOfferRequest,
    ToolOffersRequest,
    ToolRemoveRequest,
    ToolsRequest,
    ToolsResumeRequest,
    ToolTestRequest,
    ToolUngrantRequest,
    ToolWithdrawRequest,
)

__all__ = [
    "OPS", "Accepting", "AnswerRequest", "BackupRequest", "CancelRequest", "ChangesRequest", "CompareJudgeRequest", "CompareListRequest",
    "CompareNextRequest", "ComparePromoteRequest", "CompareRemoveRequest", "CompareResumeRequest", "CompareShowRequest",
    "CompareStartRequest", "CompareStopRequest", "CurateRequest", "DiffRequest", "EffectSettleRequest", "EffectsRequest",
    "ExpertsRequest", "FailuresRequest", "FolderAddRequest", "FolderPauseRequest", "FolderRemoveRequest", "FolderResumeRequest",
    "FolderRunRequest", "FoldersRequest", "ForkRequest", "GrantRequest", "HistoryRequest", "HookAddRequest", "HookDeliverRequest",
    "HookPauseRequest", "HookRemoveRequest", "HookResumeRequest", "HookRollRequest", "HooksRequest", "Image", "ImageRequest",
    "InfoRequest", "IngestRequest", "KernelsRequest", "LsRequest", "MemoryRequest", "MethodRequest", "MethodsRequest", "MetricsRequest",
    "MissionsRequest", "ModelsRequest", "NoticeAddRequest", "NoticeLogRequest", "NoticePauseRequest", "NoticeRemoveRequest",
    "NoticeResumeRequest", "NoticeSettleRequest", "NoticeTestRequest", "NoticesRequest", "PackRequest", "PauseRequest",
    "PersonasRequest", "RateRequest",
    "ReplayRequest", "Request", "ResultRequest", "ResumeRequest", "RevertRequest", "ScheduleAddRequest", "SchedulePauseRequest",
    "ScheduleRemoveRequest", "ScheduleResumeRequest", "ScheduleRunRequest", "SchedulesRequest", "SearchRequest", "SendRequest",
    "ShowRequest", "StatusRequest", "StepCloseRequest", "StepContinueRequest", "StepEditRequest", "StepEvalRequest", "StepGoRequest",
    "StepOpenRequest", "StepShowRequest", "SubmitRequest", "TaughtExample", "TeachRequest", "ToolAcceptRequest", "ToolAddRequest",
    "ToolDescribeRequest", "ToolGrantRequest", "ToolGrantsRequest", "ToolOfferRequest", "ToolOffersRequest", "ToolRemoveRequest",
    "ToolTestRequest", "ToolUngrantRequest", "ToolWithdrawRequest", "ToolsRequest", "ToolsResumeRequest", "UndoChangeRequest",
    "UndoRequest", "UploadRequest", "WatchRequest",
]  # fmt: skip


class _MissionRequest(Request):
    least_role: ClassVar[Role] = "submit"
    id: MissionId
    deadline_s: Deadline | None = None
    priority: Priority = 0  # a higher priority goes first; every user mission goes before the system's own missions
    watch: bool = False


class Image(BaseModel):
    """Image of a brief, by its content."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    digest: Digest
    name: Annotated[str, StringConstraints(max_length=IMAGE_NAME_CHARS)] = ""


class SubmitRequest(_MissionRequest):
    """A mission: a brief in words."""

    op: Literal["submit"]
    brief: str
    persona: Persona | None = None
    context: MissionId | None = None  # the mission that this one follows
    instructions: str = ""  # how to answer; each mission of a conversation has them, and the model is told them once
    form: dict[str, Any] | None = Field(None, alias="schema")  # JSON schema of the answer
    may_ask: bool = False  # True if the mission may ask its user a question
    depth: Literal["auto", "direct", "facets", "council"] | None = None
    flavour: Literal["auto", "full", "light", "off"] | None = None
    needs: Annotated[list[Need], Field(max_length=8)] = Field(default_factory=list)  # capabilities that the mission's model must have
    images: Annotated[list[Image], Field(max_length=IMAGES_LIMIT)] = Field(default_factory=list)  # images that were uploaded before


class UploadRequest(Request):
    """A part of an image that a mission is to have; without `data`, how much of it is there."""

    least_role: ClassVar[Role] = "submit"
    op: Literal["upload"]
    digest: Digest
    bytes: Annotated[int, Field(ge=1, lt=2**31)]
    offset: Annotated[int, Field(ge=0, lt=2**31)] = 0
    data: str = ""  # in base64


class ImageRequest(Request):
    """A part of an image of a mission, from a byte on: as much as a message holds."""

    least_role: ClassVar[Role] = "read"
    op: Literal["image"]
    id: MissionId
    digest: Digest
    offset: Annotated[int, Field(ge=0, lt=2**31)] = 0


class SendRequest(_MissionRequest):
    """A mission: a message to an object of the image."""

    op: Literal["send"]
    target: Target
    selector: Name
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    may_ask: bool = False  # see `may_ask` of `submit`
    write: bool = False  # True if a method may be written and kept for a selector that no method answers yet
    tools: bool = False  # True if the method that is written for it may use tools


class StatusRequest(Request):
    """Report the state of a mission."""

    least_role: ClassVar[Role] = "read"
    op: Literal["status"]
    id: MissionId


class ResultRequest(Request):
    """The mission's result; if it has none after `wait_s` seconds, its status."""

    least_role: ClassVar[Role] = "read"
    op: Literal["result"]
    id: MissionId
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_LIMIT, allow_inf_nan=False)] = 0.0

    @property
    def waits(self) -> bool:
        return self.wait_s > 0


class WatchRequest(Request):
    """Report the state of a mission, then its events, then its result."""

    least_role: ClassVar[Role] = "read"
    op: Literal["watch"]
    id: MissionId


class CancelRequest(Request):
    """End a mission that has not ended; it is FAILED with the code `cancelled`."""

    least_role: ClassVar[Role] = "submit"
    op: Literal["cancel"]
    id: MissionId


class PauseRequest(Request):
    """The mission rests until it is resumed; what it paid for stays."""

    least_role: ClassVar[Role] = "submit"
    op: Literal["pause"]
    id: MissionId


class ResumeRequest(Request):
    """Let a paused mission go on."""

    least_role: ClassVar[Role] = "submit"
    op: Literal["resume"]
    id: MissionId


class AnswerRequest(Request):
    """The answer to a question of the mission: the open one, or that of `number`."""

    least_role: ClassVar[Role] = "submit"
    op: Literal["answer"]
    id: MissionId
    text: Annotated[str, StringConstraints(min_length=1)]
    number: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class RateRequest(Request):
    """Rate a mission that has ended; a later rating replaces an earlier one."""

    least_role: ClassVar[Role] = "submit"
    op: Literal["rate"]
    id: MissionId
    rating: Rating
    why: Annotated[str, StringConstraints(max_length=WHY_CHARS)] = ""


class MethodRequest(Request):
    """Report the method of an object under a selector: its versions, its examples, its intent."""

    least_role: ClassVar[Role] = "read"
    op: Literal["method"]
    target: Target
    selector: Name
    at: Moment | None = None


class MethodsRequest(Request):
    """The generated methods of the image, or those that one object holds itself."""

    least_role: ClassVar[Role] = "read"
    op: Literal["methods"]
    target: Target | None = None
    at: Moment | None = None


class TaughtExample(BaseModel):
    """Expected answer of a message: a trial case for the method that is written for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    slots: dict[str, Any] = Field(default_factory=dict)
    after: dict[str, Any] = Field(default_factory=dict)
    result: Any = None


class TeachRequest(_MissionRequest):
    """Examples for a message; the mission sees that a method keeps them."""

    least_role: ClassVar[Role] = "operate"
    op: Literal["teach"]
    target: Target
    selector: Name
    examples: Annotated[list[TaughtExample], Field(min_length=1, max_length=64)]
    intent: Annotated[str, StringConstraints(max_length=2000)] = ""
    tools: bool = False  # True if the method may use tools


class RevertRequest(_MissionRequest):
    """An earlier version of a method brought back."""

    least_role: ClassVar[Role] = "operate"
    op: Literal["revert"]
    target: Target
    selector: Name
    version: Annotated[int, Field(ge=0, le=1_000_000)] | None = None


class GrantRequest(_MissionRequest):
    """Let a generated method send a message that changes more than its receiver, or take that back."""

    least_role: ClassVar[Role] = "operate"
    op: Literal["grant"]
    target: Target
    selector: Name
    message: Name  # the selector that the method may send, such as `forget_`
    revoke: bool = False


class ShowRequest(Request):
    """Show an object of the image: its slots, its methods and its parents."""

    least_role: ClassVar[Role] = "read"
    op: Literal["show"]
    target: Target
    at: Moment | None = None


class HistoryRequest(Request):
    """List the transactions that changed an object, the newest first."""

    least_role: ClassVar[Role] = "read"
    op: Literal["history"]
    target: Target
    limit: Limit = 50


class DiffRequest(Request):
    """Report the differences of an object between `a` and `b` (default: now)."""

    least_role: ClassVar[Role] = "read"
    op: Literal["diff"]
    target: Target
    a: Moment
    b: Moment | None = None


class LsRequest(Request):
    """List the slots of an object; default: the lobby."""

    least_role: ClassVar[Role] = "read"
    op: Literal["ls"]
    target: Target | None = None
    at: Moment | None = None


class MissionsRequest(Request):
    """List missions, the newest first."""

    least_role: ClassVar[Role] = "read"
    op: Literal["missions"]
    state: State | None = None
    limit: Limit = 50
    at: Moment | None = None
    before: MissionId | None = None
    words: Words | None = None
    system: bool = True  # True if system missions are listed, too


class FailuresRequest(Request):
    """The failed attempts that fit, the newest first."""

    least_role: ClassVar[Role] = "read"
    op: Literal["failures"]
    id: MissionId | None = None
    code: Name | None = None
    selector: Name | None = None
    limit: Limit = 50
    at: Moment | None = None


class ReplayRequest(Request):
    """A finished mission thought through again from its journal, without any model."""

    least_role: ClassVar[Role] = "read"
    op: Literal["replay"]
    id: MissionId
    prompts: bool = False

    @property
    def waits(self) -> bool:
        return True


OPS: dict[str, type[Request]] = {
    "submit": SubmitRequest, "upload": UploadRequest, "image": ImageRequest,
    "status": StatusRequest, "result": ResultRequest, "watch": WatchRequest,
    "cancel": CancelRequest, "send": SendRequest, "method": MethodRequest, "methods": MethodsRequest, "teach": TeachRequest,
    "revert": RevertRequest, "grant": GrantRequest, "pause": PauseRequest, "resume": ResumeRequest, "answer": AnswerRequest,
    "rate": RateRequest, "show": ShowRequest, "history": HistoryRequest, "diff": DiffRequest, "ls": LsRequest,
    "missions": MissionsRequest, "failures": FailuresRequest, "replay": ReplayRequest, "undo": UndoRequest, "changes": ChangesRequest,
    "undo_change": UndoChangeRequest, "fork": ForkRequest, "pack": PackRequest, "backup": BackupRequest, "info": InfoRequest,
    "metrics": MetricsRequest, "models": ModelsRequest, "experts": ExpertsRequest, "personas": PersonasRequest, "ingest": IngestRequest,
    "memory": MemoryRequest, "curate": CurateRequest, "search": SearchRequest, "tools": ToolsRequest, "tool_add": ToolAddRequest,
    "tool_describe": ToolDescribeRequest,
    "tool_test": ToolTestRequest, "tool_accept": ToolAcceptRequest, "tool_remove": ToolRemoveRequest, "tools_resume": ToolsResumeRequest,
    "tool_offer": ToolOfferRequest, "tool_offers": ToolOffersRequest, "tool_withdraw": ToolWithdrawRequest,
    "tool_grant": ToolGrantRequest, "tool_grants": ToolGrantsRequest, "tool_ungrant": ToolUngrantRequest, "effects": EffectsRequest,
    "effect_settle": EffectSettleRequest, "schedules": SchedulesRequest, "schedule_add": ScheduleAddRequest,
    "schedule_pause": SchedulePauseRequest, "schedule_resume": ScheduleResumeRequest, "schedule_remove": ScheduleRemoveRequest,
    "schedule_run": ScheduleRunRequest, "notices": NoticesRequest, "notice_add": NoticeAddRequest, "notice_pause": NoticePauseRequest,
    "notice_resume": NoticeResumeRequest, "notice_remove": NoticeRemoveRequest, "notice_test": NoticeTestRequest,
    "notice_settle": NoticeSettleRequest, "notice_log": NoticeLogRequest, "hooks": HooksRequest, "hook_add": HookAddRequest,
    "hook_pause": HookPauseRequest,
    "hook_resume": HookResumeRequest, "hook_remove": HookRemoveRequest, "hook_roll": HookRollRequest, "hook_deliver": HookDeliverRequest,
    "folders": FoldersRequest, "folder_add": FolderAddRequest, "folder_pause": FolderPauseRequest, "folder_resume": FolderResumeRequest,
    "folder_remove": FolderRemoveRequest, "folder_run": FolderRunRequest, "compare.start": CompareStartRequest,
    "compare.list": CompareListRequest, "compare.show": CompareShowRequest, "compare.next": CompareNextRequest,
    "compare.judge": CompareJudgeRequest, "compare.stop": CompareStopRequest, "compare.resume": CompareResumeRequest,
    "compare.promote": ComparePromoteRequest, "compare.remove": CompareRemoveRequest,
    "step.open": StepOpenRequest, "step.show": StepShowRequest,
    "step.go": StepGoRequest, "step.edit": StepEditRequest, "step.eval": StepEvalRequest, "step.continue": StepContinueRequest,
    "step.close": StepCloseRequest, "kernels": KernelsRequest,
}  # fmt: skip
