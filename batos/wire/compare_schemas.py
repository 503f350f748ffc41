"""Schemas of requests about comparisons side by side. See `batos.wire.schemas`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from batos.wire.fields import WAIT_S_LIMIT, WHY_CHARS, Limit, MissionId, Number, Persona, Request, Role, Words

CODEX_CHARS = 200_000
COMPARED_LIMIT = 200
CompareJudge = Literal["me", "alfred", "rules"]
CompareId = Annotated[MissionId, StringConstraints(max_length=64)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
_Brief = Annotated[str, StringConstraints(min_length=1, max_length=65_536)]
_Rules = Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=1000)]], Field(max_length=16)]
_Cost = Annotated[int, Field(ge=0, le=1_000_000_000)]
_Minutes = Annotated[float, Field(gt=0, le=7 * 1440, allow_inf_nan=False)]


class ComparedBrief(BaseModel):
    """A given brief of a comparison, and where rules judge, what is expected of its answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)
    brief: _Brief
    depth: Literal["auto", "direct", "facets", "council"] | None = None
    flavour: Literal["auto", "full", "light", "off"] | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    exact: _Text | None = None
    contains: Annotated[list[_Text], Field(max_length=32)] = Field(default_factory=list)


class CompareStartRequest(Request):
    """A variant of a persona is compared with what there is; with `dry` it is only said what that would be, and cost."""

    op: Literal["compare.start"]
    id: CompareId
    persona: Persona
    other: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    codex: Annotated[str, StringConstraints(min_length=1, max_length=CODEX_CHARS)] | None = None
    changed: Annotated[dict[Annotated[str, StringConstraints(min_length=1, max_length=160)], _Text], Field(max_length=32)] = Field(
        default_factory=dict
    )
    missions: Annotated[int, Field(ge=0, le=COMPARED_LIMIT)] | None = None
    match: Words | None = None
    briefs: Annotated[list[ComparedBrief], Field(max_length=COMPARED_LIMIT)] = Field(default_factory=list)
    judge: CompareJudge = "me"
    rules: _Rules = Field(default_factory=list)
    inferences: _Cost | None = None
    tokens: _Cost | None = None
    minutes: _Minutes | None = None
    dry: bool = False

    @model_validator(mode="after")
    def _something(self) -> CompareStartRequest:
        if self.other is None and self.codex is None and not self.changed:
            raise ValueError("`other`, `codex` or `changed` says what is compared with what there is")
        if self.other is not None and self.codex is not None:
            raise ValueError("`other` or `codex`, not both")
        return self


class CompareListRequest(Request):
    """The comparisons, the last begun first."""

    least_role: ClassVar[Role] = "read"
    op: Literal["compare.list"]
    limit: Limit = 50


class CompareShowRequest(Request):
    """A comparison with its figures and pairs; with `wait_s`, when something has happened to one that is under way."""

    least_role: ClassVar[Role] = "read"
    op: Literal["compare.show"]
    id: CompareId
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_LIMIT, allow_inf_nan=False)] = 0.0

    @property
    def waits(self) -> bool:
        return self.wait_s > 0


class CompareNextRequest(Request):
    """The next pair that its user has to judge, without saying which side is which."""

    least_role: ClassVar[Role] = "read"
    op: Literal["compare.next"]
    id: CompareId


class CompareJudgeRequest(Request):
    """A user's judgement of a pair; the reply has the next one."""

    op: Literal["compare.judge"]
    id: CompareId
    number: Number
    verdict: Literal["left", "right", "tie"]


class CompareStopRequest(Request):
    """Stop a comparison; what it has paid for stays."""

    op: Literal["compare.stop"]
    id: CompareId


class CompareResumeRequest(Request):
    """Let a comparison go on, with a larger budget or another judge where that is said."""

    op: Literal["compare.resume"]
    id: CompareId
    judge: CompareJudge | None = None
    rules: _Rules = Field(default_factory=list)
    inferences: _Cost | None = None
    tokens: _Cost | None = None
    minutes: _Minutes | None = None


class ComparePromoteRequest(Request):
    """Make the variant what there is, in one transaction that can be undone. With `anyway`, also where pairs are not judged yet, or the
    variant is not found better."""

    op: Literal["compare.promote"]
    id: CompareId
    note: Annotated[str, StringConstraints(min_length=1, max_length=WHY_CHARS)]
    anyway: bool = False


class CompareRemoveRequest(Request):
    """Forget a comparison that is not under way."""

    op: Literal["compare.remove"]
    id: CompareId
