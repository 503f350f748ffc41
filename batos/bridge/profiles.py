"""Profiles: the models that serve, the sources of their weights, and the model of each persona.

Shipped profiles are in `profiles.toml` beside this module; a user's own are in a file of that name in the data folder.

For a persona on a model of another author, BAT OS makes a Modelfile from the codex. It gives only the system message and the temperature:
template, stop marks, renderer and parser are those of the base model. All names begin with `PERSONA_PREFIX`, so that models made by BAT OS
in a user's Ollama are recognised, and can be removed.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from batos.bridge.modelfile import Modelfile, tagged
from batos.errors import ConfigError

PROFILES = "profiles.toml"
PROFILES_FILE = Path(__file__).with_name(PROFILES)
AUTO, EMBEDDED = "auto", "embedded"
"""Names of profiles: `auto` in the settings stands for the best available profile; `embedded` needs no further installation."""


class BaseModelSource(BaseModel):
    """Base model: taken from the files of an installed package, else pulled from the registry under its own name.

    `known_as`: names that adapters trained on it may give as their base; empty: any. `pulled`: True if it may be pulled when it is
    missing and no package has it. `requantize`: block type in which the matrices of the package's one GGUF file are rewritten before
    Ollama gets it (`batos.bridge.lora.gguf`); empty: unchanged.
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
    pulled: bool = True

    def paths(self) -> dict[str, Path]:
        """Return the files of the package by their names in the model, without an import of the package.

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
    """One profile. `personas` maps a persona's role to its model. `options` are those of an inference. `made` has the Modelfiles of roles
    for which there is none in the folder.

    `stop` among the options holds marks of the base's template: a model whose template has none of them is not sent them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    models: tuple[BaseModelSource, ...]
    embedder: str
    dimensions: int = Field(gt=0)
    personas: dict[str, str]
    options: dict[str, Any]
    direct: dict[str, Any] = {}
    """Options of an answer that is thought about in one inference: it may be longer than each of several."""
    plain: dict[str, Any] = {}
    """Options of an answer without a persona's voice: there is no Modelfile of a persona that says how warm it is."""
    made: dict[str, Modelfile] = {}

    @model_validator(mode="after")
    def _embedder_is_a_model(self) -> Profile:
        if self.embedder not in {m.name for m in self.models}:
            raise ValueError(f"embedder {self.embedder!r} is not one of the profile's models")
        return self

    def model_of(self, role: str) -> str:
        """Return the model of a persona's role, in any case; a name that is not a role of this profile is a model's own name.

        The role `base` is the plain model that the profile's personas are made of.
        """
        return self.personas.get(role.lower()) or (self.base if role == "base" else role)

    @property
    def base(self) -> str:
        """Return the name of the model that the personas are made of: the first model that is not the embedder, if there is one."""
        return next((model.name for model in self.models if model.name != self.embedder), self.embedder)


def load_profile(name: str, path: Path = PROFILES_FILE, own: Path | None = None) -> Profile:
    """Return the profile of that name.

    :param own: a file of the user's own, whose profiles go before those of the same name; it need not be there.
    :raises ConfigError: for an unknown name, with the known ones, and for a profile that is not well formed.
    """
    table = _read(path)
    where = dict.fromkeys(table, path)
    if own is not None and own.is_file():
        added = _read(own)
        table, where = {**table, **added}, {**where, **dict.fromkeys(added, own)}
    if name not in table:
        raise ConfigError(
            f"setting 'profile': {name!r} is not a profile; allowed are {', '.join(sorted({AUTO, *table}))}"
            + (f"; one of your own goes into {own}" if own is not None else "")
        )
    try:
        return Profile(name=name, **_completed(table[name], path == where[name]))
    except (ValidationError, TypeError) as e:
        raise ConfigError(f"profile {name!r} in {where[name]}: {e}") from None


def profile_names(own: Path) -> set[str]:
    """Return the names that the setting `inference.profile` may have, `auto` included.

    :raises ConfigError: if the user's own file cannot be read.
    """
    return {AUTO, *_read(PROFILES_FILE), *(_read(own) if own.is_file() else ())}


def own_profiles(data: Path) -> Path:
    """Return the file of a user's own profiles, in the data folder."""
    return data / PROFILES


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ConfigError(f"cannot read the profiles in {path}: {e}") from None


def _completed(said: Any, shipped: bool) -> Any:
    """Return a user's own profile, with the embedder of the shipped ones if it names none: the memory then keeps its vectors.

    :raises TypeError: if it is not a table.
    """
    if shipped or not isinstance(said, dict) or "embedder" in said:
        return said
    models = said.get("models", ())
    return {"personas": {}, "options": {}, **said, **_embedding(), "models": [*models, embedder_source().model_dump()]}


def _embedding() -> dict[str, Any]:
    profile = load_profile(EMBEDDED)
    return {"embedder": profile.embedder, "dimensions": profile.dimensions}


def embedder_source() -> BaseModelSource:
    """Return the source of the embedder in the shipped profiles."""
    profile = load_profile(EMBEDDED)
    return next(model for model in profile.models if model.name == profile.embedder)


@functools.cache
def shipped_profiles() -> frozenset[str]:
    """Return the names of the profiles that come with BAT OS."""
    return frozenset(_read(PROFILES_FILE))


@functools.cache
def shipped_names() -> frozenset[str]:
    """Return the models that BAT OS makes for these profiles, with their tags: models of personas, and bases from a package."""
    profiles = [load_profile(name) for name in shipped_profiles()]
    return frozenset(name for one in profiles for name in (*one.personas.values(), *(model.name for model in one.models if model.package)))


def on_model(
    name: str, model: str, *, context: int, answer: int, pulled: bool = True, thinks: bool = False, description: str = ""
) -> Profile:
    """Return a profile that thinks with a model of another author, and embeds as the shipped profiles do.

    :param context: tokens of an inference; `answer`: maximum tokens of its answer.
    :param pulled: True if the model may be pulled when it is missing.
    :param thinks: True if the model thinks before each answer.
    """
    return Profile(
        name=name,
        description=description,
        models=(BaseModelSource(name=model, pulled=pulled), embedder_source()),
        **_embedding(),
        personas={},
        options={"num_ctx": context, "num_predict": answer, "think": thinks},
    )


def modelfiles_folder(override: str = "") -> Path:
    """Return the folder of Modelfiles (one folder a profile): the one named in the settings, else the one that came with BAT OS.

    :raises ConfigError: if there is none.
    """
    package = Path(__file__).parents[1]
    # A wheel installs them in the package; in a checkout they are beside it.
    places = [Path(override)] if override else [package / "modelfiles", package.parent / "modelfiles"]
    for place in places:
        if place.is_dir():
            return place
    raise ConfigError(f"setting 'modelfiles': no folder {places[-1]}")


PERSONA_PREFIX = "batos/"
EXPERT_MARK = re.compile(r"BAT OS expert (\S+), content ([0-9a-f]{64}), recipe ([0-9a-f]{64})")
"""Matches the mark in the license of an expert's model: the expert's name, and the digest of its content."""
TAG_CHARS = 80  # greatest number of characters of a tag that Ollama accepts


@dataclass(frozen=True, slots=True)
class Voice:
    """Model settings of a persona from the codex: its role in a profile, its system message and its temperature.

    :ivar temperature: None: that of the base model.
    """

    role: str
    system: str
    temperature: float | None = None


def persona_model_name(persona: str, model: str) -> str:
    """Return the name of a persona's model: `batos/robin:qwen3-8b` is ROBIN's on `qwen3:8b`."""
    tag = re.sub(r"[^a-z0-9._-]+", "-", tagged(model).lower().removesuffix(":latest")).strip("-.")
    return f"{PERSONA_PREFIX}{persona}:{tag[-TAG_CHARS:].lstrip('-.')}"


def persona_modelfile(voice: Voice, model: str) -> Modelfile:
    """Return the Modelfile of a persona's model on `model`."""
    warmth = {} if voice.temperature is None else {"temperature": voice.temperature}
    return Modelfile(from_=model, system=voice.system, parameters=warmth)


def is_own_model(name: str) -> bool:
    """Return True if BAT OS made the model with that name: one of a persona, or one of a shipped profile."""
    return tagged(name).startswith(PERSONA_PREFIX) or tagged(name) in shipped_names()


def with_personas(profile: Profile, voices: Mapping[str, Voice], models: Mapping[str, str]) -> Profile:
    """Return a profile in which these personas speak with these models.

    :param models: a persona's name to the model that its own is made on.
    :param voices: of every persona in it.
    """
    personas, made = dict(profile.personas), dict(profile.made)
    for persona, model in models.items():
        voice = voices[persona]
        personas[voice.role] = persona_model_name(persona, model)
        made[voice.role] = persona_modelfile(voice, model)
    return profile.model_copy(update={"personas": personas, "made": made})
