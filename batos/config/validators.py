"""What settings are held against when they are read, beyond kinds and bounds; and what may be written for them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ValidationInfo, field_validator, model_validator

POLICIES, CAPABILITIES = ("strict", "default"), ("files", "network")
"""Of the setting `guardian_policy`: what the guardian has. It stands above this layer; a test holds both against each other."""

FILES = (
    "data",
    "modelfiles",
    "codex",
    "lora_staging",
    "backup_folder",
    "curve_secret",
    "curve_clients",
    "curve_client",
    "curve_server",
    "embedder_folder",
)
"""Settings that name a file or folder, in which ~ is a user's home."""

_FILE = "file://"

MODEL_NAME = r"^[A-Za-z0-9._:@/\[\]-]+$"
"""What the name of a model looks like, with its registry, tag and digest if it has them."""

SPEAKER = r"^([a-z][a-z0-9_]{0,31}=)?[A-Za-z0-9._:@/\[\]-]+$"
"""What names who speaks: a model for all personas, or `robin=MODEL` for one."""

ORDERED = (("chunk_smallest", "chunk_largest"),)
"""Settings of which the first cannot be more than the second."""

PARTS = (("trigger_recent_s", "trigger_window_s"),)
"""Settings of which the first is a part of the second, and compared with the rest: there has to be one."""


class ValidatedSettings(BaseModel):
    """What `batos.config.Settings` is checked by."""

    @field_validator("*", mode="before")
    @classmethod
    def _number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python takes true for 1: one that was written for a number was meant for something else."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation in (int, float):
            raise ValueError("true and false are no numbers; write one")
        return value

    @field_validator("data", mode="before", check_fields=False)
    @classmethod
    def _named(cls, value: Any) -> Any:
        """An empty name, of a shell variable that is not set, say, would be the working folder."""
        if value == "":
            raise ValueError("'' names no folder; the working folder is .")
        return value

    @field_validator(*FILES, mode="after", check_fields=False)
    @classmethod
    def _home(cls, value: Path | str) -> Path | str:
        try:
            Path(value).expanduser()
        except RuntimeError:  # what Python raises, which is no word for whoever mistyped a name
            raise ValueError("there is no such user's home; write the path without ~") from None
        return value if isinstance(value, Path) else os.path.expanduser(value)  # a Path would cut a slash from the end of a key

    @field_validator("image", mode="after", check_fields=False)
    @classmethod
    def _home_of_image(cls, value: str) -> str:
        """Nothing after this expands it, and the image would go into a folder of the name ~."""
        return _FILE + str(cls._home(value.removeprefix(_FILE))) if value.startswith(_FILE + "~") else value

    @field_validator("data", mode="after", check_fields=False)
    @classmethod
    def _expand(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("listen", "ollama_hosts", "autotelic_models", "folders", "model", mode="before", check_fields=False)
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = value.replace(",", " ").split()
        if value and not parts:
            raise ValueError("there is nothing between the commas; name at least one, or leave it out")
        return parts

    @field_validator("autotelic_models", mode="after", check_fields=False)
    @classmethod
    def _models(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(MODEL_NAME, name):
                raise ValueError(f"{name!r} is no name of a model; write llama3.2:3b, or several with commas between them")
        return value

    @field_validator("model", mode="after", check_fields=False)
    @classmethod
    def _speakers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Each persona once, and one model for all of them at most."""
        heard = set()
        for entry in value:
            persona = entry.rpartition("=")[0]
            if not re.fullmatch(SPEAKER, entry):
                raise ValueError(f"{entry!r} names no model; write qwen3:8b for all personas, or robin=qwen3:8b for one of them")
            if persona in heard:
                whose = f"for {persona!r}" if persona else "for all personas"
                raise ValueError(f"there are two models {whose}; name one, and others as robin=qwen3:8b")
            heard.add(persona)
        return value

    @field_validator("folders", mode="after", check_fields=False)
    @classmethod
    def _folders(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        named = tuple(str(cls._home(folder)) for folder in value)
        for folder in named:
            if not os.path.isabs(folder):
                raise ValueError(f"{folder!r} is no absolute path; write one that begins with / or ~")
        return named

    @field_validator("stop", mode="before", check_fields=False)
    @classmethod
    def _sequences(cls, value: Any) -> Any:
        """A text is one sequence, or a JSON array of them: they may hold anything, line ends and commas too."""
        if not isinstance(value, str):
            return value
        if not value.startswith("["):
            return [value]
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as e:
            raise ValueError(f'what begins with [ is a JSON array of texts, such as ["[", "END"], and this is none ({e})') from None

    @field_validator("stop", mode="after", check_fields=False)
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("an empty sequence would end every answer before it begins")
        return value

    @field_validator("guardian_policy", mode="after", check_fields=False)
    @classmethod
    def _policy(cls, value: str) -> str:
        """One that the guardian knows: else the daemon would come as far as its methods before it fails."""
        policy, *granted = value.split("+")
        for kind, name, known in (("policy", policy, POLICIES), *(("capability", name, CAPABILITIES) for name in granted)):
            if name not in known:
                raise ValueError(f"no {kind} {name!r}; there are {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for low, high in ORDERED:
            if (least := getattr(self, low)) > (most := getattr(self, high)):
                raise ValueError(f"{low} ({least}) is more than {high} ({most}); lower {low}, or raise {high}")
        for part, whole in PARTS:
            if (its := getattr(self, part)) >= (most := getattr(self, whole)):
                why = f"{part} ({its}) is not less than {whole} ({most}): nothing is left to compare it with"
                raise ValueError(f"{why}; lower {part}, or raise {whole}")
        return self
