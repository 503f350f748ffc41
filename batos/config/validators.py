"""Checks of values of settings, beyond kinds and bounds, and the forms in which a value may be written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator

POLICIES, CAPABILITIES = ("strict", "default"), ("files", "network", "tools")
"""Policies and capabilities of the guardian that `methods.policy` may name. The guardian is in a layer above, so a test compares these
values with the guardian's own."""

_FILE = "file://"

MODEL_NAME = r"^[A-Za-z0-9._:@/\[\]-]+$"
"""Pattern of a model's name, with an optional registry, tag and digest."""

SPEAKER = r"^([a-z][a-z0-9_]{0,31}=)?[A-Za-z0-9._:@/\[\]-]+$"
"""Pattern of an entry of `inference.model`: `MODEL` for all personas, or `robin=MODEL` for one."""

_PATH_PART, _MESSAGE = re.compile(r"[A-Za-z0-9_-]{1,128}"), re.compile(r"[A-Za-z0-9_*]{1,128}")


class SettingsSection(BaseModel):
    """The base of a section of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number: Python takes true for 1, but the user meant something else."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation in (int, float):
            raise ValueError("true and false are not numbers; write a number")
        return value


def named(value: Any) -> Any:
    """Refuse an empty folder (from a shell variable that is not set, for example): it would mean the working folder."""
    if value == "":
        raise ValueError("'' names no folder; the working folder is .")
    return value


def at_home(value: str) -> str:
    """Replace a leading ~ of a path by the user's home folder. Keep a slash at the end, which a `Path` would cut."""
    try:
        Path(value).expanduser()
    except RuntimeError:  # Python's own message does not help a user who mistyped a user name
        raise ValueError("that user has no home folder; write the path without ~") from None
    return os.path.expanduser(value)


def at_home_in_uri(value: str) -> str:
    """Replace a leading ~ of the path of a file:// URI; else the image would go into a folder named ~."""
    return _FILE + at_home(value.removeprefix(_FILE)) if value.startswith(_FILE + "~") else value


def absolute(value: Path) -> Path:
    """Make a path absolute, with ~ replaced."""
    return Path(at_home(str(value))).absolute()


def several(value: Any) -> Any:
    """Split a text at commas and spaces."""
    if not isinstance(value, str):
        return value
    parts = value.replace(",", " ").split()
    if value and not parts:
        raise ValueError("there is nothing between the commas; name at least one, or leave it out")
    return parts


def model_names(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an entry that is not the name of a model."""
    for name in value:
        if not re.fullmatch(MODEL_NAME, name):
            raise ValueError(f"{name!r} is not a valid name of a model; write llama3.2:3b, or several with commas between them")
    return value


def speakers(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an entry that names no model, a persona that is named twice, and two models for all personas."""
    heard = set()
    for entry in value:
        persona = entry.rpartition("=")[0]
        if not re.fullmatch(SPEAKER, entry):
            raise ValueError(f"{entry!r} does not name a model; write qwen3:8b for all personas, or robin=qwen3:8b for one persona")
        if persona in heard:
            whose = f"for {persona!r}" if persona else "for all personas"
            raise ValueError(f"there are two models {whose}; name one, and others as robin=qwen3:8b")
        heard.add(persona)
    return value


def messages(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an entry that is not a message to an object."""
    for entry in value:
        path, _, message = entry.rpartition(".")
        if not (all(map(_PATH_PART.fullmatch, path.split("."))) and _MESSAGE.fullmatch(message)):
            raise ValueError(
                f"{entry!r} is not a message to an object; write its path, a dot and the message, with * for any characters of the "
                "message: tools.shop.list_*"
            )
    return value


def absolute_folders(value: tuple[str, ...]) -> tuple[str, ...]:
    """Replace ~ in each path, and refuse a relative one."""
    folders = tuple(map(at_home, value))
    for folder in folders:
        if not os.path.isabs(folder):
            raise ValueError(f"{folder!r} is not an absolute path; write one that begins with / or ~")
    return folders


def sequences(value: Any) -> Any:
    """Read a text as one sequence, or as a JSON array of sequences: these may hold anything, line ends and commas too."""
    if not isinstance(value, str):
        return value
    if not value.startswith("["):
        return [value]
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as e:
        raise ValueError(f'a value that begins with [ must be a JSON array of texts, such as ["[", "END"] ({e})') from None


def not_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an empty sequence."""
    if "" in value:
        raise ValueError("an empty sequence would end every answer before it begins")
    return value


def guardian_policy(value: str) -> str:
    """Refuse a policy or capability that the guardian does not know; else the daemon would fail only at its first method."""
    policy, *granted = value.split("+")
    for kind, name, known in (("policy", policy, POLICIES), *(("capability", name, CAPABILITIES) for name in granted)):
        if name not in known:
            raise ValueError(f"no {kind} {name!r}; there are {', '.join(known)}")
    return value


DataFolder = Annotated[Path, BeforeValidator(named), AfterValidator(absolute)]
"""A folder that must be named. It becomes an absolute path."""
HomePath = Annotated[str, AfterValidator(at_home)]
"""A file or folder. A leading ~ stands for a user's home."""
ImageUri = Annotated[str, AfterValidator(at_home_in_uri)]
"""A URI of an image. In a file:// URI ~ stands for a user's home."""
Several = Annotated[tuple[str, ...], BeforeValidator(several)]
"""Texts, given as a list or as one text with commas or spaces."""
ModelNames = Annotated[tuple[str, ...], BeforeValidator(several), AfterValidator(model_names)]
"""Names of models, given as a list or as one text."""
Speakers = Annotated[tuple[str, ...], BeforeValidator(several), AfterValidator(speakers)]
"""Models that personas speak with, given as a list or as one text."""
Messages = Annotated[tuple[str, ...], BeforeValidator(several), AfterValidator(messages)]
"""Messages to objects, given as a list or as one text."""
Folders = Annotated[tuple[str, ...], BeforeValidator(several), AfterValidator(absolute_folders)]
"""Folders, given as a list or as one text. They become absolute paths."""
Sequences = Annotated[tuple[str, ...], BeforeValidator(sequences), AfterValidator(not_empty)]
"""Sequences that end an answer."""
GuardianPolicy = Annotated[str, AfterValidator(guardian_policy)]
"""A policy of the guardian, with its capabilities: `default+files`."""
