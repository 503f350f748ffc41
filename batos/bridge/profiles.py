"""Profiles: which models serve, where their weights come from, and which of them is whose voice."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from batos.errors import ConfigError

PROFILES_FILE = Path(__file__).with_name("profiles.toml")


class BaseModelSource(BaseModel):
    """A base model: taken from the files of an installed package, else pulled from the registry under its own name.

    `known_as`: names that adapters trained on it may give as their base; empty: any. `requantize`: the package's one file is a GGUF, and
    its matrices are written anew in such blocks before Ollama gets it (`batos.bridge.requantize`); empty: as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    package: str = ""
    root: str = ""
    files: tuple[str, ...] = ()
    requantize: Literal["", "q8_0"] = ""
    template: str | None = None
    parameters: dict[str, Any] = {}
    known_as: tuple[str, ...] = ()

    def paths(self) -> dict[str, Path]:
        """File of the package by its name in the model, without importing the package.

        :raises FileNotFoundError: naming the package that is not installed or the file that it lacks.
        """
        spec = importlib.util.find_spec(self.package)
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            raise FileNotFoundError(f"the package {self.package} is not installed")
        found = {name: Path(places[0], self.root, name) for name in self.files}
        if missing := [str(p) for p in found.values() if not p.is_file()]:
            raise FileNotFoundError(f"the package {self.package} has no file {missing[0]}")
        return found


class Profile(BaseModel):
    """One profile. `personas` maps a persona's role to its model; `options` are those of an inference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    models: tuple[BaseModelSource, ...]
    embedder: str
    dimensions: int = Field(gt=0)
    personas: dict[str, str]
    options: dict[str, Any]

    @model_validator(mode="after")
    def _embedder_is_a_model(self) -> Profile:
        if self.embedder not in {m.name for m in self.models}:
            raise ValueError(f"embedder {self.embedder!r} is none of the profile's models")
        return self

    def model_of(self, role: str) -> str:
        """The model of a persona's role, its name in any case; what is no role of this profile is a model's own name.

        The role `base` is the model that the personas of the profile are made of, as it is.
        """
        return self.personas.get(role.lower()) or (self.base if role == "base" else role)

    @property
    def base(self) -> str:
        """Name of the model that the personas are made of: the first that is not the embedder, if there is another."""
        return next((model.name for model in self.models if model.name != self.embedder), self.embedder)


def load_profile(name: str, path: Path = PROFILES_FILE) -> Profile:
    """The profile of that name.

    :raises ConfigError: for an unknown name, with the known ones, and for a profile that is not well formed.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ConfigError(f"cannot read the profiles in {path}: {e}") from None
    if name not in table:
        raise ConfigError(f"setting 'profile': there is no profile {name!r}; there are {', '.join(sorted(table))}")
    try:
        return Profile(name=name, **table[name])
    except (ValidationError, TypeError) as e:
        raise ConfigError(f"profile {name!r} in {path}: {e}") from None


def modelfiles_folder(override: str = "") -> Path:
    """The folder of Modelfiles (one folder a profile): the one named in the settings, else the one that came with BAT OS.

    :raises ConfigError: where there is none.
    """
    package = Path(__file__).parents[1]
    # Installed from a wheel they lie in the package; in a checkout beside it.
    places = [Path(override)] if override else [package / "modelfiles", package.parent / "modelfiles"]
    for place in places:
        if place.is_dir():
            return place
    raise ConfigError(f"setting 'modelfiles': no folder {places[-1]}")
