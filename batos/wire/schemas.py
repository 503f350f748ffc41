"""What a client may ask: one pydantic model an op.

Schemas are strict (no number in a string's place, no boolean in a number's) and closed (a field the op does not have is refused).
The same rules in prose, with examples that are tested: `docs/wire.md`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from batos.wire.fields import (
    DAYS_LIMIT,
    HITS_LIMIT,
    NAME_CHARS,
    PAGE_LIMIT,
    QUESTION_CHARS,
    WAIT_S_LIMIT,
    WHY_CHARS,
    ChangeState,
    Day,
    Deadline,
    Folder,
    Limit,
    MissionId,
    ModelName,
    Moment,
    Name,
    Number,
    Persona,
    Priority,
    Ref,
    State,
    Target,
)


class Request(BaseModel):
    """Base of all requests. `ref` is the client's own mark; every reply to the request echoes it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    op: str
    ref: Ref | None = None

    @property
    def waits(self) -> bool:
        """Whether its answer may be held back on purpose, so that many may be open at a time."""
        return False

    @property
    def mission(self) -> str | None:
        """Id of the mission it is about, if it is about one."""
        return getattr(self, "id", None)


class _MissionRequest(Request):
    id: MissionId
    deadline_s: Deadline | None = None
    priority: Priority = 0  # higher goes first; user missions go before the system's own whatever it is
    watch: bool = False


class Submit(_MissionRequest):
    """A mission: a brief in words."""

    op: Literal["submit"]
    brief: str
    persona: Persona | None = None
    context: MissionId | None = None  # the mission that this one follows
    form: dict[str, Any] | None = Field(None, alias="schema")  # JSON schema of the answer
    may_ask: bool = False  # whether the mission may ask its user a question


class Send(_MissionRequest):
    """A mission: a message to an object of the image."""

    op: Literal["send"]
    target: Target
    selector: Name
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)


class Status(Request):
    op: Literal["status"]
    id: MissionId


class Result(Request):
    """The mission's result; if it has none after `wait_s` seconds, its status."""

    op: Literal["result"]
    id: MissionId
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_LIMIT, allow_inf_nan=False)] = 0.0

    @property
    def waits(self) -> bool:
        return self.wait_s > 0


class Watch(Request):
    op: Literal["watch"]
    id: MissionId


class Cancel(Request):
    op: Literal["cancel"]
    id: MissionId


class Pause(Request):
    """The mission rests until it is resumed; what it paid for stays."""

    op: Literal["pause"]
    id: MissionId


class Resume(Request):
    op: Literal["resume"]
    id: MissionId


class Answer(Request):
    """The answer to a question of the mission: the open one, or that of `number`."""

    op: Literal["answer"]
    id: MissionId
    text: Annotated[str, StringConstraints(min_length=1)]
    number: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class Rate(Request):
    """What the user thinks of a mission that has ended; a later rating takes the place of an earlier one."""

    op: Literal["rate"]
    id: MissionId
    rating: Literal[1, -1]
    why: Annotated[str, StringConstraints(max_length=WHY_CHARS)] = ""


class Method(Request):
    """What an object holds under a selector: the versions of a method, its examples, its intent."""

    op: Literal["method"]
    target: Target
    selector: Name
    at: Moment | None = None


class Methods(Request):
    """The generated methods of the image, or those that one object holds itself."""

    op: Literal["methods"]
    target: Target | None = None
    at: Moment | None = None


class Example(BaseModel):
    """What a message shall answer: trial cases of the method that is written for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    slots: dict[str, Any] = Field(default_factory=dict)
    after: dict[str, Any] = Field(default_factory=dict)
    result: Any = None


class Teach(_MissionRequest):
    """Examples for a message; the mission sees that a method keeps them."""

    op: Literal["teach"]
    target: Target
    selector: Name
    examples: Annotated[list[Example], Field(min_length=1, max_length=64)]
    intent: Annotated[str, StringConstraints(max_length=2000)] = ""


class Revert(_MissionRequest):
    """An earlier version of a method brought back."""

    op: Literal["revert"]
    target: Target
    selector: Name
    version: Annotated[int, Field(ge=0, le=1_000_000)] | None = None


class Show(Request):
    op: Literal["show"]
    target: Target
    at: Moment | None = None


class History(Request):
    op: Literal["history"]
    target: Target
    limit: Limit = 50


class Diff(Request):
    """What is another in an object at `b` (left out: now) than it was at `a`."""

    op: Literal["diff"]
    target: Target
    a: Moment
    b: Moment | None = None


class Ls(Request):
    """What an object holds; left out, the lobby."""

    op: Literal["ls"]
    target: Target | None = None
    at: Moment | None = None


class Missions(Request):
    op: Literal["missions"]
    state: State | None = None
    limit: Limit = 50
    at: Moment | None = None


class Failures(Request):
    """The failed attempts that fit, the newest first."""

    op: Literal["failures"]
    id: MissionId | None = None
    code: Name | None = None
    selector: Name | None = None
    limit: Limit = 50
    at: Moment | None = None


class Replay(Request):
    """A finished mission thought through again from its journal, without any model."""

    op: Literal["replay"]
    id: MissionId

    @property
    def waits(self) -> bool:
        return True


class Pack(Request):
    """History older than `days` goes; left out, the setting `history_days` says how much stays."""

    op: Literal["pack"]
    days: Annotated[float, Field(ge=0, le=DAYS_LIMIT, allow_inf_nan=False)] | None = None

    @property
    def waits(self) -> bool:
        return True


class Undo(Request):
    """What a mission did is taken back, or with `redo` done again; with `cascade` what depends on it, too. `dry`: it is only said."""

    op: Literal["undo"]
    id: MissionId
    redo: bool = False
    cascade: bool = False
    dry: bool = False
    expect: Annotated[list[MissionId], Field(max_length=PAGE_LIMIT)] | None = None

    @property
    def waits(self) -> bool:
        return True

    @model_validator(mode="after")
    def _one_by_one(self) -> Undo:
        if self.redo and self.cascade:
            raise ValueError("what was undone in a cascade is done again one by one, the oldest first: `redo` without `cascade`")
        return self


class Changes(Request):
    """The changes that the loop proposed and made of its own accord, the newest first; or one of them, whole."""

    op: Literal["changes"]
    number: Number | None = None
    state: ChangeState | None = None
    limit: Limit = 50


class UndoChange(Request):
    """A change that the loop made of its own accord is taken back; `why` is kept with it. `dry`: it is only said."""

    op: Literal["undo_change"]
    number: Number
    why: Annotated[str, StringConstraints(max_length=WHY_CHARS)] = ""
    dry: bool = False

    @property
    def waits(self) -> bool:
        return True


class Fork(Request):
    """The whole image as it was at a moment (left out: as it is) into a folder of the daemon's machine, by its absolute path."""

    op: Literal["fork"]
    folder: Folder
    at: Moment | None = None

    @property
    def waits(self) -> bool:
        return True


class Backup(Request):
    """A backup into a folder of the daemon's machine, relative to `backups` in its data folder."""

    op: Literal["backup"]
    folder: Folder | None = None
    full: bool = False

    @property
    def waits(self) -> bool:
        return True


class Experts(Request):
    """The LoRA experts and the personas' voices: after a look into the staging folder, after a choice, or as they are."""

    op: Literal["experts"]
    scan: bool = False
    persona: Persona | None = None
    voice: Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARS)] | None = None

    @property
    def waits(self) -> bool:
        return self.scan

    @model_validator(mode="after")
    def _both_or_none(self) -> Experts:
        if (self.persona is None) != (self.voice is None):
            raise ValueError("`persona` and `voice` come together")
        return self


class Ingest(Request):
    """Files, and folders of them, of the daemon's machine are read into the memory; `follow` are folders that it watches from now on."""

    op: Literal["ingest"]
    paths: Annotated[list[Folder], Field(max_length=PAGE_LIMIT)] = Field(default_factory=list)
    follow: Annotated[list[Folder], Field(max_length=PAGE_LIMIT)] = Field(default_factory=list)
    watch: bool = False

    @property
    def waits(self) -> bool:
        return self.watch

    @model_validator(mode="after")
    def _something(self) -> Ingest:
        if not (self.paths or self.follow):
            raise ValueError("`paths` or `follow` names at least one file or folder")
        return self


class Memory(Request):
    """What the memory holds: figures, with `documents` the newest of those, or after one was forgotten or a folder left alone."""

    op: Literal["memory"]
    documents: Limit | None = None
    forget: Folder | None = None
    unfollow: Folder | None = None
    archives: Limit | None = None
    restore: Folder | None = None
    pin: Folder | None = None
    unpin: Folder | None = None

    @model_validator(mode="after")
    def _one(self) -> Memory:
        if sum(one is not None for one in (self.forget, self.unfollow, self.restore, self.pin, self.unpin)) > 1:
            raise ValueError("one of `forget`, `unfollow`, `restore`, `pin` and `unpin` at a time")
        return self


class Curate(Request):
    """The memory's curator looks for what may be archived, and archives it; `dry`: it only looks."""

    op: Literal["curate"]
    dry: bool = False

    @property
    def waits(self) -> bool:
        return True


class Search(Request):
    """The passages of the memory that answer a question best, of those that fit; `since` and `until` are days, both included."""

    op: Literal["search"]
    question: Annotated[str, StringConstraints(min_length=1, max_length=QUESTION_CHARS)]
    k: Annotated[int, Field(ge=1, le=HITS_LIMIT)] = 10
    explain: bool = False
    kind: Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARS)] | None = None
    source: Folder | None = None
    speaker: Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARS)] | None = None
    since: Day | None = None
    until: Day | None = None


class Info(Request):
    op: Literal["info"]


class Metrics(Request):
    """The counts and states that Prometheus reads, as data."""

    op: Literal["metrics"]


class Models(Request):
    """The models; with `ensure`, those that are missing are brought about first."""

    op: Literal["models"]
    ensure: bool = False
    names: Annotated[list[ModelName], Field(max_length=PAGE_LIMIT)] = Field(default_factory=list)
    watch: bool = False

    @property
    def waits(self) -> bool:
        return self.ensure or self.watch


class Accepting(BaseModel):
    """Where the codex is to have its way: in one slot of a persona; without a slot in all that the image holds otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    persona: Persona
    slot: Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARS)] | None = None


class Personas(Request):
    """The personas, as they are, or after the codex's value was accepted."""

    op: Literal["personas"]
    accept: Accepting | None = None


OPS: dict[str, type[Request]] = {
    "submit": Submit, "status": Status, "result": Result, "watch": Watch, "cancel": Cancel, "send": Send,
    "method": Method, "methods": Methods, "teach": Teach, "revert": Revert,
    "pause": Pause, "resume": Resume, "answer": Answer, "rate": Rate,
    "show": Show, "history": History, "diff": Diff, "ls": Ls, "missions": Missions, "failures": Failures,
    "replay": Replay, "undo": Undo, "changes": Changes, "undo_change": UndoChange, "fork": Fork, "pack": Pack, "backup": Backup,
    "info": Info, "metrics": Metrics, "models": Models, "experts": Experts, "personas": Personas,
    "ingest": Ingest, "memory": Memory, "curate": Curate, "search": Search,
}  # fmt: skip
