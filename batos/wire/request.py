"""What all requests have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from batos.wire.fields import Ref


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
