"""What all requests have in common, and the roles in which clients ask."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict

from batos.wire.fields import Ref

Role = Literal["read", "submit", "operate"]
"""What a client may do: look at everything; also give missions and steer them; also all else. Each may what those before it may."""
ROLES: tuple[Role, ...] = get_args(Role)


class Request(BaseModel):
    """Base of all requests. `ref` is the client's own mark; every reply to the request echoes it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    least_role: ClassVar[Role] = "operate"
    """What its sender has to be at least. An op that does not say is for operators."""
    operating: ClassVar[tuple[str, ...]] = ()
    """Fields with which the op changes what it else only shows: then its sender has to be an operator."""

    op: str
    ref: Ref | None = None

    @property
    def role(self) -> Role:
        """The least role in which this request may be made."""
        return "operate" if any(getattr(self, field) for field in self.operating) else self.least_role

    @property
    def named(self) -> tuple[str, ...]:
        """The files and folders of the daemon's machine that it names, to be read or written."""
        return ()

    @property
    def waits(self) -> bool:
        """Whether its answer may be held back on purpose, so that many may be open at a time."""
        return False

    @property
    def mission(self) -> str | None:
        """Id of the mission it is about, if it is about one."""
        return getattr(self, "id", None)
