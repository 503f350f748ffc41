"""Schemas of requests about stepping: see `batos.wire.schemas`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from batos.wire.fields import WHY_CHARS, MissionId, Name, Request, Target

Session = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Place = Annotated[str, StringConstraints(min_length=1, max_length=200)] | Annotated[int, Field(ge=0, lt=2**31)]
"""Number of a transition, name of a state, or one of the words `next`, `end`, `failure`."""
Inferences = Annotated[int, Field(ge=0, le=1000)]
EditKind = Literal["slot", "prompt", "method", "facet", "intent", "model", "answer", "cycle", "reply"]


class StepOpenRequest(Request):
    """Think a mission again, in a mirror of the image as it was, up to the place where it failed or to `at`. Or run one method."""

    op: Literal["step.open"]
    session: Session | None = None  # a name of the client's; the same again returns the session as it stands
    id: MissionId | None = None
    target: Target | None = None
    selector: Name | None = None
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    at: Place | None = None
    inferences: Inferences = 0

    @property
    def waits(self) -> bool:
        return True

    @model_validator(mode="after")
    def _one(self) -> StepOpenRequest:
        if (self.id is None) == (self.target is None) or (self.target is None) != (self.selector is None):
            raise ValueError("either `id` names a mission, or `target` and `selector` a message")
        return self


class StepShowRequest(Request):
    """Report where a session stands; with a field, one thing in whole beside it. Without `session`, the sessions that are open."""

    op: Literal["step.show"]
    session: Session | None = None
    target: Target | None = None
    inference: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    run: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    line: Annotated[int, Field(ge=1, lt=2**31)] | None = None


class StepGoRequest(Request):
    """Go on to another place. Inferences that the journal does not have are paid for, at most `inferences`."""

    op: Literal["step.go"]
    session: Session
    to: Place = "next"
    inferences: Inferences = 0

    @property
    def waits(self) -> bool:
        return True


class StepEditRequest(Request):
    """Change something in the mirror; or, with `drop`, take the change of that number back."""

    op: Literal["step.edit"]
    session: Session
    kind: EditKind | None = None
    target: Annotated[str, StringConstraints(max_length=512)] = ""
    value: Any = None
    remove: bool = False
    drop: Annotated[int, Field(ge=1, lt=2**31)] | None = None

    @model_validator(mode="after")
    def _one(self) -> StepEditRequest:
        if (self.kind is None) == (self.drop is None):
            raise ValueError("either `kind` says what is changed, or `drop` which change is taken back")
        return self


class StepEvalRequest(Request):
    """Evaluate an expression where the session stands, or send a message there. Nothing of it is kept."""

    op: Literal["step.eval"]
    session: Session
    expression: Annotated[str, StringConstraints(max_length=20_000)] | None = None
    target: Target | None = None
    selector: Name | None = None
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    inferences: Inferences = 0

    @property
    def waits(self) -> bool:
        return True

    @model_validator(mode="after")
    def _one(self) -> StepEvalRequest:
        if (self.expression is None) == (self.selector is None):
            raise ValueError("either `expression`, or `selector` and `target`")
        return self


class StepContinueRequest(Request):
    """Take the changes over into the image, as one transaction, and let the mission go on. `dry`: only tell what would be done."""

    op: Literal["step.continue"]
    session: Session
    note: Annotated[str, StringConstraints(max_length=WHY_CHARS)] = ""
    anyway: bool = False
    dry: bool = False

    @property
    def waits(self) -> bool:
        return True


class StepCloseRequest(Request):
    """Drop a session and its mirror."""

    op: Literal["step.close"]
    session: Session
