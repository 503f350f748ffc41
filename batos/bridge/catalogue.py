"""The catalogue: models that are not here and can be had, with what they are said to do and take. Nothing is asked or pulled.

What comes with BAT OS is in `catalogue.toml` beside this module; a user's own is a file of that name in the data folder. What a registry
of the user's has is listed by `batos.bridge.registries`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from batos.bridge.candidates import UNKNOWN_CACHE, Candidate
from batos.bridge.capabilities import Capabilities
from batos.bridge.names import tagged
from batos.errors import ConfigError

CATALOGUE = "catalogue.toml"
CATALOGUE_FILE = Path(__file__).with_name(CATALOGUE)
ENTRIES_LIMIT = 2048
"""Models that one file may name."""


class _Entry(BaseModel):
    """A model of a catalogue file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int = Field(gt=0)
    parameters: int = Field(gt=0)
    context: int = Field(gt=0)
    cache: int = Field(UNKNOWN_CACHE, gt=0)
    can: tuple[Literal["vision", "tools", "thinking"], ...] = ()


class _File(BaseModel):
    """A catalogue file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: str = ""
    source: str = ""
    models: dict[str, _Entry] = Field({}, max_length=ENTRIES_LIMIT)


class Offer(NamedTuple):
    """A model that can be had.

    :ivar source: where from, in words.
    """

    model: Candidate
    source: str


def offers(data: Path) -> list[Offer]:
    """The models of the shipped catalogue, and of the user's own in the folder `data`, which go before those of the same name.

    :raises ConfigError: where the user's own file is not well formed.
    """
    own = data / CATALOGUE
    found = {offer.model.name: offer for offer in _read(CATALOGUE_FILE)}
    if own.is_file():
        found |= {offer.model.name: offer for offer in _read(own)}
    return list(found.values())


def _read(path: Path) -> list[Offer]:
    try:
        read = _File.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as e:
        raise ConfigError(f"cannot read the catalogue in {path}: {e}") from None
    source = (read.source or f"the catalogue in {path}") + (f", as of {read.as_of}" if read.as_of else "")
    return [Offer(_model(name, entry), source) for name, entry in read.models.items()]


def _model(name: str, entry: _Entry) -> Candidate:
    can = Capabilities(
        parameters=entry.parameters,
        context=entry.context,
        vision="vision" in entry.can,
        tools="tools" in entry.can,
        thinks="thinking" in entry.can,
    )
    return Candidate(tagged(name), "", entry.bytes, entry.cache, can)
