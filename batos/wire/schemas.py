"""What a client may ask: one pydantic model an op, and `parse_request`, which turns a payload into one of them.

Schemas are strict (no number in a string's place, no boolean in a number's) and closed (a field the op does not have is refused).
The same rules in prose, with examples that are tested: `docs/wire.md`.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from batos.config import Settings
from batos.errors import InvalidRequest, MessageTooLarge, UnknownField, UnknownOp
from batos.wire import strict_json

REF_CHARS = 256
NAME_CHARS = 128
WAIT_S_LIMIT = 60.0
PRIORITY_LIMIT = 100
DEADLINE_S_LIMIT = 7 * 86400
PAGE_LIMIT = 1000
DAYS_LIMIT = 36_500
QUESTION_CHARS = 8192
HITS_LIMIT = 100

_INT64 = 2**63
_SECONDS = 2**33
_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _day(text: str) -> str:
    datetime.date.fromisoformat(text)  # a ValueError says what is wrong with it
    return text


MissionId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:@/-]+$", min_length=1, max_length=128)]
Ref = Annotated[str, StringConstraints(max_length=REF_CHARS)] | Annotated[int, Field(ge=-_INT64, lt=_INT64)]
Persona = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Target = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Name = Annotated[str, StringConstraints(pattern=_NAME, min_length=1, max_length=NAME_CHARS)]
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:@/\[\]-]+$", min_length=1, max_length=512)]
Folder = Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", min_length=1, max_length=4096)]
Day = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_day)]
Moment = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")] | Annotated[float, Field(ge=0, le=_SECONDS, allow_inf_nan=False)]
"""Id of a transaction, or seconds since the epoch."""
Deadline = Annotated[float, Field(gt=0, le=DEADLINE_S_LIMIT, allow_inf_nan=False)]
Priority = Annotated[int, Field(ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT)]
Limit = Annotated[int, Field(ge=1, le=PAGE_LIMIT)]
State = Literal["ACCEPTED", "PAUSED", "NEEDS_INPUT", "IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE", "FAILED"]


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
    why: Annotated[str, StringConstraints(max_length=2000)] = ""


class Method(Request):
    """What an object holds under a selector: the versions of a method, its examples, its intent."""

    op: Literal["method"]
    target: Target
    selector: Name


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


class Failures(Request):
    """The failed attempts that fit, the newest first."""

    op: Literal["failures"]
    id: MissionId | None = None
    code: Name | None = None
    selector: Name | None = None
    limit: Limit = 50


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
    "method": Method, "teach": Teach, "revert": Revert, "pause": Pause, "resume": Resume, "answer": Answer, "rate": Rate,
    "show": Show, "history": History, "diff": Diff, "ls": Ls, "missions": Missions, "failures": Failures,
    "replay": Replay, "undo": Undo, "fork": Fork, "pack": Pack, "backup": Backup,
    "info": Info, "models": Models, "experts": Experts, "personas": Personas,
    "ingest": Ingest, "memory": Memory, "search": Search,
}  # fmt: skip
_FIELDS = {op: tuple(field.alias or name for name, field in model.model_fields.items()) for op, model in OPS.items()}
_NAMES = {op: frozenset(names) for op, names in _FIELDS.items()}


class Limits(NamedTuple):
    """What `parse_request` measures against: bytes of a payload and of a brief, levels of JSON."""

    message_bytes: int
    message_depth: int
    brief_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(settings.message_bytes, settings.message_depth, settings.brief_bytes)


class Refused(Exception):
    """A payload that is no request, with the marks by which its sender knows which one it was."""

    def __init__(self, error: InvalidRequest, ref: str | int | None = None, mission: str | None = None) -> None:
        super().__init__(error.message)
        self.error, self.ref, self.mission = error, ref, mission


def parse_request(payload: bytes, limits: Limits) -> Request:
    """The request in `payload`.

    :raises Refused: with the InvalidRequest that says why, and `ref` and `id` of the message if they could be read.
    """
    if len(payload) > limits.message_bytes:
        raise Refused(MessageTooLarge(f"a message of {len(payload)} bytes; at most {limits.message_bytes} are taken"))
    fields: dict[str, Any] | None = None
    try:
        fields = strict_json.decode(payload, depth=limits.message_depth)
        return _validate(fields, limits)
    except InvalidRequest as e:
        if fields is None:
            fields = strict_json.decode_leniently(payload)
        raise Refused(e, *_marks(fields)) from None


def _validate(fields: dict[str, Any], limits: Limits) -> Request:
    op = fields.get("op")
    if not isinstance(op, str):
        raise InvalidRequest("the message has no `op`" if op is None else "`op` is a string")
    model = OPS.get(op)
    if model is None:
        raise UnknownOp(f"no op {op[:64]!r}; there are {', '.join(OPS)}")
    if unknown := fields.keys() - _NAMES[op]:
        name = min(unknown)[:64]
        raise UnknownField(f"{op} has no field {name!r}; it has {', '.join(_FIELDS[op])}")
    try:
        request = model.model_validate(fields)
    except ValidationError as e:
        raise InvalidRequest(f"{op}: {_first(e)}") from None
    if isinstance(request, Submit):
        _check_brief(request.brief, limits.brief_bytes)
    elif isinstance(request, Send):
        _check_keywords(request.kwargs)
    return request


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    text = str(found["msg"]).removeprefix("Value error, ")
    if not found["loc"]:  # a rule about several fields, which names them
        return text
    field = str(found["loc"][0])
    if found["type"] == "missing":
        return f"`{field}` is missing"
    return f"`{field}`: {text[:1].lower()}{text[1:]}"


def _check_brief(brief: str, limit: int) -> None:
    if not brief.strip():
        raise InvalidRequest("submit: the brief is empty; say what the mission is")
    # four bytes a character at most: only long ones need to be encoded to be measured
    if len(brief) * 4 > limit and (size := len(brief.encode())) > limit:
        raise MessageTooLarge(f"submit: a brief of {size} bytes; at most {limit} are taken (setting `brief_bytes`)")


def _check_keywords(kwargs: dict[str, Any]) -> None:
    # here and not in the schema: pydantic would list every bad key of a hundred thousand
    for name in kwargs:
        if not (name.isidentifier() and len(name) <= NAME_CHARS):
            raise InvalidRequest(f"send: `kwargs`: {name[:64]!r} is no name of an argument")


def _marks(fields: dict[str, Any]) -> tuple[str | int | None, str | None]:
    """`ref` and `id` of a refused message, each only if it is fit to be echoed."""
    try:
        ref = _Marks.model_validate({"ref": fields.get("ref")}).ref
    except ValidationError:
        ref = None
    try:
        mission = _Marks.model_validate({"id": fields.get("id")}).id
    except ValidationError:
        mission = None
    return ref, mission


class _Marks(BaseModel):
    model_config = ConfigDict(strict=True)

    ref: Ref | None = None
    id: MissionId | None = None
