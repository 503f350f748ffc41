"""Fields of requests: names, moments and limits with their allowed values; the base class of requests, and the roles of clients. Words
for the field `left_out` of results.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from batos.config.validators import MODEL_NAME, SPEAKER

REF_CHARS = 256
NAME_CHARS = 128
WAIT_S_LIMIT = 60.0
PRIORITY_LIMIT = 100
DEADLINE_S_LIMIT = 7 * 86400
PAGE_LIMIT = 1000
DAYS_LIMIT = 36_500
QUESTION_CHARS = 8192
HITS_LIMIT = 100
WHY_CHARS = 2000
IMAGES_LIMIT = 64
IMAGE_NAME_CHARS = 256

_INT64 = 2**63
_SHOWN = 64
_SECONDS = 2**33
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ID = r"^[A-Za-z0-9._:@/-]+$"
_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_NEED = r"^(vision|tools|thinking|auto|context:[1-9][0-9]{0,8}k?)$"
_PATH = r"^[^\x00]+$"
_TID = r"^[0-9a-f]{16}$"
_DIGEST = r"^[0-9a-f]{64}$"
_CONNECTION = r"^[A-Za-z][A-Za-z0-9_-]*$"
_TOOL = r"^[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_.:/-]+)?$"
_KEY = r"^[0-9a-f]+$"

WORDS = {
    _ID: (r"[A-Za-z0-9._:@/-]", "an id is 1 to 128 of the letters A-Z a-z, the digits 0-9 and . _ : @ / -"),
    _NAME: (r"\w", f"a name is 1 to {NAME_CHARS} of the letters A-Z a-z, the digits 0-9 and _, with no digit first"),
    MODEL_NAME: (r"[A-Za-z0-9._:@/\[\]-]", "a model's name is 1 to 512 of the letters A-Z a-z, the digits 0-9 and . _ : @ / [ ] -"),
    SPEAKER: (r"[A-Za-z0-9._:@/\[\]=-]", "write the name of a model or profile, such as qwen3:8b, or robin=qwen3:8b for one persona"),
    _NEED: (r"[a-z0-9:]", "a need is vision, tools, thinking, context:TOKENS (such as context:32k), or auto"),
    _PATH: (r"[^\x00]", "a path cannot have this character"),
    _DIGEST: (r"[0-9a-f]", "a digest is SHA-256 as 64 of the digits 0-9 a-f"),
    _CONNECTION: (r"[A-Za-z0-9_-]", "a name is 1 to 40 of the letters A-Z a-z, the digits 0-9 and _ -, a letter first"),
    _TOOL: (r"[A-Za-z0-9_.:/-]", "write CONNECTION or CONNECTION.TOOL, such as notes.write"),
    _KEY: (r"[0-9a-f]", "an effect's key is 4 to 32 of the digits 0-9 a-f"),
    _TID: (r"[0-9a-f]", "a moment is seconds since 1970, as a number, or the id of a transaction, 16 of the digits 0-9 a-f"),
}
"""Maps each pattern to the characters that it allows and to its explanation for error messages."""


def _day(text: str) -> str:
    try:
        if _DAY.fullmatch(text):
            datetime.date.fromisoformat(text)
            return text
    except ValueError:
        pass
    raise ValueError(f"{text[:32]!r} is not a valid day: write 2026-05-31")


def unlike(pattern: str, text: str) -> str:
    """Return the reason why a text does not match a pattern of `WORDS`."""
    fine, words = WORDS[pattern]
    bad = re.sub(fine, "", text, flags=re.ASCII)[:1]
    shown = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    return f"{shown} has {bad!r} in it; {words}" if bad else f"{shown} does not fit; {words}"


def _whole(value: Any) -> Any:
    """Refuse other types: Python takes true and 1.0 for 1, and so would a choice of numbers."""
    if type(value) is not int:
        raise ValueError("input should be 1 or -1")
    return value


MissionId = Annotated[str, StringConstraints(pattern=_ID, min_length=1, max_length=128)]
Ref = Annotated[str, StringConstraints(max_length=REF_CHARS)] | Annotated[int, Field(ge=-_INT64, lt=_INT64)]
Persona = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Target = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Need = Annotated[str, StringConstraints(pattern=_NEED, min_length=1, max_length=24)]
Name = Annotated[str, StringConstraints(pattern=_NAME, min_length=1, max_length=NAME_CHARS)]
Speaker = Annotated[str, StringConstraints(pattern=SPEAKER, min_length=1, max_length=512)]
ModelName = Annotated[str, StringConstraints(pattern=MODEL_NAME, min_length=1, max_length=512)]
Folder = Annotated[str, StringConstraints(pattern=_PATH, min_length=1, max_length=4096)]
Day = Annotated[str, AfterValidator(_day)]
ConnectionName = Annotated[str, StringConstraints(pattern=_CONNECTION, min_length=1, max_length=40)]
ToolName = Annotated[str, StringConstraints(pattern=_TOOL, min_length=1, max_length=160)]
EffectKey = Annotated[str, StringConstraints(pattern=_KEY, min_length=4, max_length=32)]
Digest = Annotated[str, StringConstraints(pattern=_DIGEST)]
Moment = Annotated[str, StringConstraints(pattern=_TID)] | Annotated[float, Field(ge=0, le=_SECONDS, allow_inf_nan=False)]
"""Id of a transaction, or seconds since 1970."""
Deadline = Annotated[float, Field(gt=0, le=DEADLINE_S_LIMIT, allow_inf_nan=False)]
Priority = Annotated[int, Field(ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT)]
Rating = Annotated[Literal[1, -1], BeforeValidator(_whole)]
Words = Annotated[str, StringConstraints(max_length=1000)]
Limit = Annotated[int, Field(ge=1, le=PAGE_LIMIT)]
State = Literal[
    "ACCEPTED", "PAUSED", "NEEDS_INPUT", "PROVISIONING", "IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE", "FAILED",
]  # fmt: skip
ChangeState = Literal["proposed", "refused", "promoted", "kept", "undone", "disabled"]
"""State of a change that the autotelic loop made to the system."""
Number = Annotated[int, Field(ge=1, lt=2**31)]


Role = Literal["read", "submit", "operate"]
"""Role of a client. `read` looks at everything. `submit` also gives and steers missions. `operate` may do all else as well."""
ROLES: tuple[Role, ...] = get_args(Role)


class Request(BaseModel):
    """Base of all requests. `ref` is the client's own mark; every reply to the request echoes it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    least_role: ClassVar[Role] = "operate"
    """The least role that may send the operation. An operation without its own value is for operators."""
    operating: ClassVar[tuple[str, ...]] = ()
    """Fields by which the operation changes what it otherwise only shows. A request with one of these fields needs the role `operate`."""

    op: str
    ref: Ref | None = None

    @property
    def role(self) -> Role:
        """Return the least role in which this request may be made."""
        return "operate" if any(getattr(self, field) for field in self.operating) else self.least_role

    @property
    def named(self) -> tuple[str, ...]:
        """Return the files and folders of the daemon's machine that it names, to be read or written."""
        return ()

    @property
    def waits(self) -> bool:
        """Return True if the answer may be delayed on purpose, so that many may be open at a time."""
        return False

    @property
    def mission(self) -> str | None:
        """Return the id of the mission that the request is about; None if it is about none."""
        return getattr(self, "id", None)


_LEFT_OUT = {"tools": "tools' answers"}


def left_out_words(left_out: Mapping[str, int]) -> str:
    """Return the line about what a model did not read (`left_out` of a result): the number of characters, by part."""
    parts = ", ".join(f"{count} characters of the {_LEFT_OUT.get(part, part)}" for part, count in left_out.items())
    return f"left out, since all was longer than the model reads at a time: {parts}"
