"""Proposals: one change each of what the system is, as plain values, and the form in which a model is asked for one.

What there is to be changed, when a proposal of it makes sense, and how it is done is `batos.autotelic.kinds`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

TARGET_CHARS, WHY_CHARS = 200, 500


class Proposal(NamedTuple):
    """One change. `batos.autotelic.changes` records it."""

    kind: str
    """One of `kinds.KINDS`."""
    target: str
    """What it is about: a persona, a state, or an object and a selector, parted by a dot (`robin.sage_facet_`)."""
    content: Any
    """What is to be there, as a JSON value: mostly a text."""
    why: str
    """What it is expected to do."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object of a mission's result."""
        return self._asdict()

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Proposal:
        """The proposal that `to_json` described, or that a change's record has; what else is there is left out."""
        return cls(*(told[name] for name in cls._fields))


class Proposed(BaseModel):
    """What a model says when it is asked for a proposal: its JSON schema goes along."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    kind: str = Field(min_length=1, max_length=32)
    target: str = Field(min_length=1, max_length=TARGET_CHARS)
    content: str = Field(max_length=8000)
    why: str = Field(min_length=1, max_length=WHY_CHARS)

    @field_validator("kind", "target", "why", mode="before")
    @classmethod
    def _trimmed(cls, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    def proposal(self) -> Proposal:
        """As a proposal."""
        return Proposal(self.kind, self.target, self.content.strip(), self.why)
