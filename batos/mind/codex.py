"""The codex: what each persona is, read from a file and checked."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from batos.errors import ConfigError

Text = Annotated[str, Field(min_length=1, max_length=4000)]


def _pattern(value: str) -> str:
    try:
        re.compile(value, re.IGNORECASE)
    except re.error as e:
        raise ValueError(f"is no regular expression: {e}") from None
    return value


def _selector(value: str) -> str:
    if not value.isidentifier() or not value.endswith("_") or value.startswith("_"):
        raise ValueError("is no keyword selector: a name that ends in '_', such as sage_facet_")
    return value


class Trigger(BaseModel):
    """One sign in a brief that speaks for a persona."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    pattern: Annotated[str, AfterValidator(_pattern)]
    weight: float = Field(gt=0, le=100)
    says: Text


class PersonaCodex(BaseModel):
    """One persona as the codex has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    core_mission: Text
    core_method: Text
    pillars: tuple[Text, ...] = Field(min_length=1, max_length=16)
    model: Text
    triggers: tuple[Trigger, ...] = ()
    exemplars: tuple[Text, ...] = ()
    protocols: dict[Annotated[str, AfterValidator(_selector)], Text] = {}


class Codex(BaseModel):
    """All personas, by their lower-case names, in the order of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    personas: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")], PersonaCodex] = Field(min_length=1, max_length=64)


def load_codex(path: str | Path | None = None) -> Codex:
    """The codex in `path`, or the one shipped with BAT OS.

    :raises ConfigError: naming file, key and fault.
    """
    where = str(path) if path else "the shipped codex"
    try:
        text = Path(path).read_text("utf-8") if path else resources.files("batos.mind").joinpath("codex.toml").read_text("utf-8")
        return Codex.model_validate(tomllib.loads(text))
    except OSError as e:
        raise ConfigError(f"cannot read the codex {where}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"the codex {where} is no valid TOML: {e}") from None
    except ValidationError as e:
        first = e.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"the codex {where}, key {key}: {first['msg']}") from None
