"""Schemas of requests about the image, the memory and the models as a whole: see `batos.wire.schemas`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from batos.wire.fields import (
    DAYS_LIMIT,
    HITS_LIMIT,
    NAME_CHARS,
    PAGE_LIMIT,
    QUESTION_CHARS,
    WHY_CHARS,
    ChangeState,
    Day,
    Folder,
    Limit,
    MissionId,
    ModelName,
    Moment,
    Number,
    Persona,
    Request,
    Role,
    Speaker,
)


class PackRequest(Request):
    """History older than `days` goes; left out, the setting `image.history_days` says how much stays."""

    op: Literal["pack"]
    days: Annotated[float, Field(ge=0, le=DAYS_LIMIT, allow_inf_nan=False)] | None = None

    @property
    def waits(self) -> bool:
        return True


class UndoRequest(Request):
    """Undo the changes of a mission, or with `redo` apply them again; with `cascade` dependent changes, too. `dry`: report only."""

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
    def _one_by_one(self) -> UndoRequest:
        if self.redo and self.cascade:
            raise ValueError("what was undone in a cascade is done again one by one, the oldest first: `redo` without `cascade`")
        return self


class ChangesRequest(Request):
    """The changes that the loop proposed and made of its own accord, the newest first; or one of them, whole."""

    least_role: ClassVar[Role] = "read"
    op: Literal["changes"]
    number: Number | None = None
    state: ChangeState | None = None
    limit: Limit = 50


class UndoChangeRequest(Request):
    """A change that the loop made of its own accord is taken back; `why` is kept with it. `dry`: it is only said."""

    op: Literal["undo_change"]
    number: Number
    why: Annotated[str, StringConstraints(max_length=WHY_CHARS)] = ""
    dry: bool = False

    @property
    def waits(self) -> bool:
        return True


class ForkRequest(Request):
    """Copy the whole image as it was at a moment (default: now) into a folder of the daemon's machine, given by its absolute path."""

    op: Literal["fork"]
    folder: Folder
    at: Moment | None = None

    @property
    def waits(self) -> bool:
        return True

    @property
    def named(self) -> tuple[str, ...]:
        return (self.folder,)


class BackupRequest(Request):
    """A backup into a folder of the daemon's machine, relative to `backups` in its data folder."""

    op: Literal["backup"]
    folder: Folder | None = None
    full: bool = False

    @property
    def waits(self) -> bool:
        return True

    @property
    def named(self) -> tuple[str, ...]:
        return () if self.folder is None else (self.folder,)


class ExpertsRequest(Request):
    """The LoRA experts and the personas' voices: after a look into the staging folder, after a choice, or as they are."""

    least_role: ClassVar[Role] = "read"
    operating: ClassVar[tuple[str, ...]] = ("scan", "persona", "voice")
    op: Literal["experts"]
    scan: bool = False
    persona: Persona | None = None
    voice: Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARS)] | None = None

    @property
    def waits(self) -> bool:
        return self.scan

    @model_validator(mode="after")
    def _both_or_none(self) -> ExpertsRequest:
        if (self.persona is None) != (self.voice is None):
            raise ValueError("`persona` and `voice` come together")
        return self


class IngestRequest(Request):
    """Read files, and the files of folders, of the daemon's machine into the memory.

    `follow` are folders that it watches from now on; `exclude` are ignore patterns, as in `.gitignore`, for the folders.
    """

    op: Literal["ingest"]
    paths: Annotated[list[Folder], Field(max_length=PAGE_LIMIT)] = Field(default_factory=list)
    follow: Annotated[list[Folder], Field(max_length=PAGE_LIMIT)] = Field(default_factory=list)
    exclude: Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]], Field(max_length=100)] = Field(default_factory=list)
    watch: bool = False

    @property
    def waits(self) -> bool:
        return self.watch

    @property
    def named(self) -> tuple[str, ...]:
        return (*self.paths, *self.follow)

    @model_validator(mode="after")
    def _something(self) -> IngestRequest:
        if not (self.paths or self.follow):
            raise ValueError("`paths` or `follow` names at least one file or folder")
        return self


class MemoryRequest(Request):
    """Report the memory: figures, and with `documents` the newest documents; optionally after one change, such as `forget`."""

    least_role: ClassVar[Role] = "read"
    operating: ClassVar[tuple[str, ...]] = ("forget", "unfollow", "restore", "pin", "unpin")
    op: Literal["memory"]
    documents: Limit | None = None
    forget: Folder | None = None
    unfollow: Folder | None = None
    archives: Limit | None = None
    restore: Folder | None = None
    pin: Folder | None = None
    unpin: Folder | None = None

    @model_validator(mode="after")
    def _one(self) -> MemoryRequest:
        if sum(one is not None for one in (self.forget, self.unfollow, self.restore, self.pin, self.unpin)) > 1:
            raise ValueError("one of `forget`, `unfollow`, `restore`, `pin` and `unpin` at a time")
        return self


class CurateRequest(Request):
    """The memory's curator looks for what may be archived, and archives it; `dry`: it only looks."""

    op: Literal["curate"]
    dry: bool = False

    @property
    def waits(self) -> bool:
        return True


class SearchRequest(Request):
    """The passages of the memory that answer a question best, of those that fit; `since` and `until` are days, both included."""

    least_role: ClassVar[Role] = "read"
    op: Literal["search"]
    question: Annotated[str, StringConstraints(min_length=1, max_length=QUESTION_CHARS)]
    k: Annotated[int, Field(ge=1, le=HITS_LIMIT)] = 10
    explain: bool = False
    kind: Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARS)] | None = None
    source: Folder | None = None
    speaker: Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARS)] | None = None
    since: Day | None = None
    until: Day | None = None

    @model_validator(mode="after")
    def _in_order(self) -> SearchRequest:
        if self.since is not None and self.until is not None and self.since > self.until:
            raise ValueError(f"nothing lies between `since` {self.since} and `until` {self.until}: `until` is the earlier day")
        return self


class InfoRequest(Request):
    """Report the daemon: its version, its image, its models and what it does now."""

    least_role: ClassVar[Role] = "read"
    op: Literal["info"]


class MetricsRequest(Request):
    """The counts and states that Prometheus reads, as data."""

    least_role: ClassVar[Role] = "read"
    op: Literal["metrics"]


class ModelsRequest(Request):
    """The models. With `ensure`, those that are missing are brought about first. With `use`, another one thinks from now on. With `fit`,
    what there is to think with, those of `names` after a trial."""

    least_role: ClassVar[Role] = "read"
    operating: ClassVar[tuple[str, ...]] = ("ensure", "use", "fit")
    op: Literal["models"]
    ensure: bool = False
    use: Speaker | None = None
    fit: bool = False
    names: Annotated[list[ModelName], Field(max_length=PAGE_LIMIT)] = Field(default_factory=list)
    watch: bool = False

    @property
    def waits(self) -> bool:
        return self.ensure or self.watch or self.fit or self.use is not None


class Accepting(BaseModel):
    """Slot of a persona that is to take the value of the codex; without a slot, all slots in which the image differs."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    persona: Persona
    slot: Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARS)] | None = None


class PersonasRequest(Request):
    """The personas, as they are, or after the codex's value was accepted."""

    least_role: ClassVar[Role] = "read"
    operating: ClassVar[tuple[str, ...]] = ("accept",)
    op: Literal["personas"]
    accept: Accepting | None = None
