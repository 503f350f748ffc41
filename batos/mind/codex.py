"""The codex: the definition of each persona, read from a TOML file and checked.

Errors name the line of a key: `tomllib` gives lines for bad syntax only, and the schema is checked after it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from batos.bridge.profiles import Voice
from batos.errors import ConfigError


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """Return the line (from 1) on which the value at `path` begins, or the nearest value around it that exists.

    A key is on the line at which the text, cut off there, first has it. So the text is parsed again for each line: slow, and only for
    an error message.

    :param text: valid TOML.
    :param path: keys and indexes of arrays, as in pydantic's errors.
    """
    lines = text.splitlines(keepends=True)
    whole = tomllib.loads(text)
    steps = list(path)
    while steps and not _has(whole, steps):
        steps.pop()
    if not steps:
        return None
    after = 0  # the last line up to which the text is valid and does not have the value
    for number in range(1, len(lines) + 1):
        cut = "".join(lines[:number])
        if _within(cut, steps):
            return _first_with_text(lines, after, number)
        if _parsed(cut) is not None or _parsed(cut + "]") is not None:
            after = number
    return None


def _within(cut: str, steps: list[str | int]) -> bool:
    # With a closing bracket, a text that stops in the middle of an array has the items so far.
    return any((found := _parsed(cut + end)) is not None and _has(found, steps) for end in ("", "]"))


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _has(value: Any, steps: list[str | int]) -> bool:
    for step in steps:
        if not (step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int) and step < len(value)):
            return False
        value = value[step]
    return True


def _first_with_text(lines: list[str], after: int, upto: int) -> int:
    for number in range(after + 1, upto):
        if lines[number - 1].strip() and not lines[number - 1].lstrip().startswith("#"):
            return number
    return upto


BASE_MODEL = "base"
"""Role of the model from which a profile makes its personas: it serves a persona without a model of its own."""
RESERVED = frozenset({"name", "comment", "genesis", "traits", "personas", "psm", "incarnation", "lobby"})
"""Slots of the lobby that personas must not replace, since they live there, too."""

Text = Annotated[str, Field(min_length=1, max_length=4000)]


def _pattern(value: str) -> str:
    try:
        re.compile(value, re.IGNORECASE)
    except re.error as e:
        raise ValueError(f"is not a valid regular expression: {e}") from None
    return value


def _selector(value: str) -> str:
    if not value.isidentifier() or not value.endswith("_") or value.startswith("_"):
        raise ValueError("is not a keyword selector: write a name that ends in '_', such as sage_facet_")
    return value


def _name(value: str) -> str:
    if value in RESERVED:
        raise ValueError(f"the image already has another object named {value!r}; give the persona another name")
    return value


def _all_different(value: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for text in value:
        if text in seen:
            raise ValueError(f"has {text[:60]!r} twice")
        seen.add(text)
    return value


class Trigger(BaseModel):
    """One sign in a brief that speaks for a persona."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    pattern: Annotated[Text, AfterValidator(_pattern)]
    weight: float = Field(gt=0, le=100)
    says: Text


class PersonaCodex(BaseModel):
    """One persona as the codex has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    core_mission: Text
    core_method: Text
    pillars: tuple[Text, ...] = Field(min_length=1, max_length=16)
    model: Text = BASE_MODEL
    temperature: float | None = Field(None, ge=0, le=2)
    """Temperature for models that no profile made; the models of a profile have it in their Modelfiles."""
    grounded: bool = False
    """True if its answers keep to what memory says, where memory says anything."""
    depth: Literal["auto", "direct", "facets", "council"] = "auto"
    """Depth of its thought about a brief, where the mission does not say."""
    flavour: Literal["auto", "full", "light", "off"] = "auto"
    """Flavour: the share of its pillars and protocols in its answers, where the mission does not say."""
    raises: tuple[Text, ...] = Field((), max_length=16)
    """Which part of the Composite Entropy Metric each of its protocols raises."""
    training_data: Text | None = None
    """Material that an expert of this persona learns from."""
    triggers: tuple[Trigger, ...] = Field((), max_length=64)
    exemplars: Annotated[tuple[Text, ...], Field(max_length=512), AfterValidator(_all_different)] = ()
    protocols: dict[Annotated[str, AfterValidator(_selector)], Text] = Field(default_factory=dict, max_length=64)


class Routing(BaseModel):
    """Routing of a brief to its persona.

    The score of a persona is `t / (T + doubt) + likeness * a`. `t` is the weight of its triggers in the brief, `T` that of all personas'
    triggers. `a` is the mean cosine of the brief to the `nearest` ones of the persona's exemplars.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    internal: str = ""
    """Persona that gets the system's own missions; empty: they are routed as all others."""
    fallback: str = ""
    """Persona that gets a brief that matches none; empty: the first persona of the file."""
    doubt: Annotated[float, Field(gt=0, le=1000)] = 4.0
    likeness: Annotated[float, Field(ge=0, le=1000)] = 2.0
    nearest: Annotated[int, Field(ge=1, le=64)] = 3


class Codex(BaseModel):
    """All personas, by their lower-case names, in the order of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    personas: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$"), AfterValidator(_name)], PersonaCodex] = Field(
        min_length=1, max_length=64
    )
    routing: Routing = Routing()


def voices(codex: Codex) -> dict[str, Voice]:
    """Return, for each persona with a role of its own, the model settings from the codex; the role is the persona's name."""
    return {
        name: Voice(name, _system(name, persona), persona.temperature)
        for name, persona in codex.personas.items()
        if persona.model.lower() == name
    }


def _system(name: str, persona: PersonaCodex) -> str:
    pillars = "; ".join(persona.pillars)
    return f"You are {name.upper()}. {persona.core_mission} Your method: {persona.core_method} You work in the spirit of: {pillars}."


def with_roles(codex: Codex, personas: Collection[str]) -> Codex:
    """Return the codex with a separate model role for each of these personas, since the user names a model for each."""
    changed = {name: one.model_copy(update={"model": name}) for name, one in codex.personas.items() if name in personas}
    return codex.model_copy(update={"personas": {**codex.personas, **changed}}) if changed else codex


def load_codex(path: str | Path | None = None) -> Codex:
    """Return the codex in `path`, or the one shipped with BAT OS.

    :raises ConfigError: naming file, line, key and fault.
    """
    where = str(path) if path else "the shipped codex"
    try:
        text = Path(path).read_text("utf-8") if path else resources.files("batos.mind").joinpath("codex.toml").read_text("utf-8")
    except OSError as e:
        raise ConfigError(f"cannot read the codex {where}: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise ConfigError(f"the codex {where} is not valid TOML: {e}") from None
    return read_codex(text, where)


def read_codex(text: str, where: str) -> Codex:
    """Return the codex in a text.

    :param where: its name, for messages.
    :raises ConfigError: naming line, key and fault.
    """
    try:
        codex = Codex.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"the codex {where} is not valid TOML: {e}") from None
    except ValidationError as e:
        faults = e.errors()
        more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
        raise _wrong(where, text, faults[0]["loc"], faults[0]["msg"] + more) from None
    for role in ("internal", "fallback"):
        named = getattr(codex.routing, role)
        if named and named not in codex.personas:
            raise _wrong(where, text, ("routing", role), f"{named!r} is not a persona; there are: {', '.join(codex.personas)}")
    return codex


def _wrong(where: str, text: str, loc: Sequence[Any], fault: str) -> ConfigError:
    path = [step for step in loc if step != "[key]"]  # pydantic's mark for an invalid key
    line = line_of(text, path)
    at = f", line {line}" if line else ""
    return ConfigError(f"the codex {where}{at}, key {'.'.join(map(str, path))}: {fault}")
