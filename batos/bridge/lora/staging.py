"""Staging folder `lora_staging`: one folder for each expert, inspected without trust. It knows neither Ollama nor the image.

A folder is accepted when it has not changed for a while, its `expert.toml` is valid, and its files are plain files of its own. Its content
is then named by one digest, over its files and everything that decides the model made from them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import stat
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import batos
from batos import private_files
from batos.bridge.lora import adapters
from batos.bridge.lora.adapters import Adapter, Unfit

ABOUT = "expert.toml"
_ABOUT_BYTES = 256 * 1024
_TAG = 80  # greatest number of characters of a tag in Ollama (types/model/name.go)
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")

Signature = tuple[tuple[Any, ...], ...]
Figure = Annotated[float, Field(allow_inf_nan=False)] | int
Name = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,47}$")


class ExpertLineage(BaseModel):
    """Lineage of an expert: the missions it learned from, the methods concerned, and the revision of the image.

    For a training it also has the digest of the data, the seed and the figures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    missions: list[str] = []
    methods: list[str] = []
    image_revision: str = ""
    data: str = ""
    seed: int = 0
    figures: dict[str, Figure] = {}


class ExpertManifest(BaseModel):
    """Content of `expert.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    persona: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$")
    name: str = Name
    version: int = Field(ge=1, le=9999)
    base: str = Field(min_length=1, max_length=256)
    role: Literal["voice", "methods"] = "voice"
    fuse: bool = False
    on_choice: bool = False
    comment: str = Field("", max_length=4000)
    lineage: ExpertLineage = ExpertLineage()

    @property
    def model(self) -> str:
        """Return the model's name in Ollama: beside the persona's own."""
        return f"{self.persona.lower()}:{self.name}-v{self.version}"


class Staged(NamedTuple):
    """An expert as it lies in its folder, read and digested."""

    folder: Path
    about: ExpertManifest
    adapter: Adapter
    files: dict[str, str]
    """Name of each file that goes into the model -> its SHA-256 in hex."""
    content: str
    """Digest of all files that the author gave."""

    @property
    def model(self) -> str:
        return self.about.model

    def intact(self) -> bool:
        """Return True if the files still have their digests. Blocks."""
        return all(_digest(self.folder / name) == digest for name, digest in self.files.items())


class StagingRefusal(NamedTuple):
    """A folder that is not taken; `about` where it could be read. `waits`: not yet; `moving`: it is still being copied."""

    folder: str
    reason: str
    about: ExpertManifest | None = None
    waits: bool = False
    moving: bool = False


@dataclasses.dataclass(slots=True)
class _Seen:
    signature: Signature
    since: float
    found: Staged | StagingRefusal | None = None


class Staging:
    """Folder `lora_staging`. `look` blocks: call it in a thread, one call at a time.

    :param settle_s: seconds for which a folder must not have changed.
    :param limit: maximum number of folders.
    :param limit_bytes: maximum size of an adapter's file.
    """

    def __init__(self, path: Path, *, settle_s: float, limit: int, limit_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._settle, self._limit, self._limit_bytes, self._clock = settle_s, limit, limit_bytes, clock
        self._seen: dict[str, _Seen] = {}

    def look(self) -> list[Staged | StagingRefusal]:
        """Return the experts and refusals, in the order of the folders' names. An unchanged folder is not read again.

        :raises OSError: if the staging folder itself cannot be read.
        """
        names = sorted(entry.name for entry in os.scandir(self.path) if not entry.name.startswith(".") and entry.name != "README.md")
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        found = [self._one(name) for name in names[: self._limit]]
        return found + [StagingRefusal(name, f"more than {self._limit} folders") for name in names[self._limit :]]

    def _one(self, name: str) -> Staged | StagingRefusal:
        folder = self.path / name
        if not _FOLDER.match(name):
            shown = name.encode("utf-8", "replace").decode()  # a file name may contain any bytes
            return StagingRefusal(shown, "a folder's name is of letters, digits, '.', '_' and '-', at most 64")
        try:
            signature = _signature(folder)
            seen = self._seen.get(name)
            if seen is None or seen.signature != signature:
                seen = self._seen[name] = _Seen(signature, self._clock())
            if seen.found is None:
                if not self._settled(seen):
                    return StagingRefusal(name, "still being copied: it changed a moment ago", waits=True, moving=True)
                found = self._read(folder)
                if _signature(folder) != signature:
                    return StagingRefusal(name, "still being copied: it changed while it was read", waits=True, moving=True)
                seen.found = found
            return seen.found
        except Unfit as e:
            return StagingRefusal(name, str(e))
        except OSError as e:
            return StagingRefusal(name, f"cannot be read: {e.strerror or e}; see its owner and mode")

    def _settled(self, seen: _Seen) -> bool:
        """Return True if a folder has settled: by our own watching, or by its files' change times (which no copy sets back)."""
        newest = max((entry[-1] for entry in seen.signature), default=0)
        return self._clock() - seen.since >= self._settle or 0 <= newest <= time.time_ns() - int(self._settle * 1e9)

    def _read(self, folder: Path) -> Staged | StagingRefusal:
        about: ExpertManifest | None = None
        try:
            about = read_about(folder / ABOUT)
            adapter = adapters.read(folder)
            if len(about.model.partition(":")[2]) > _TAG:
                raise Unfit(f"{ABOUT}: name and version make a tag of more than {_TAG} characters")
            names = [adapter.file.name] if adapter.architecture else [adapters.WEIGHTS, adapters.CONFIG]
            for name in names:
                if (size := (folder / name).stat().st_size) > self._limit_bytes:
                    raise Unfit(f"{name} has {size} bytes; at most {self._limit_bytes} are taken")
            files = {name: _digest(folder / name) for name in names}
        except Unfit as e:
            return StagingRefusal(folder.name, str(e), about)
        content = content_digest({"files": files, "persona": about.persona.lower(), "base": about.base, "fuse": about.fuse})
        return Staged(folder, about, adapter, files, content)


def staging_folder(override: str, data: Path) -> Path:
    """Return the folder of experts. It is the one named in the settings, else that of the checkout BAT OS runs from, else one in the data
    folder.
    """
    if override:
        return Path(override)
    checkout = Path(batos.__file__).parents[1]
    if (checkout / "lora_staging").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / "lora_staging"
    folder = data / "lora_staging"
    private_files.make(folder)
    return folder


def scratch_folder(data: Path) -> Path:
    """Return an empty folder for temporary files. Files of a killed daemon are removed from it."""
    folder = data / "lora_scratch"
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def sorted_out(looked: list[Staged | StagingRefusal], built: Mapping[str, str]) -> tuple[list[Staged], list[StagingRefusal]]:
    """Return the experts to build, one for each name, and the refusals: two folders claim one name with different content.

    :param built: content of each model that was built already.
    """
    refused = [found for found in looked if isinstance(found, StagingRefusal)]
    claims: dict[str, list[Staged]] = {}
    for found in looked:
        if isinstance(found, Staged):
            claims.setdefault(found.model, []).append(found)
    staged = []
    for model, claimants in claims.items():
        right = built.get(model)
        if len({one.content for one in claimants}) > 1 and right not in {one.content for one in claimants}:
            folders = ", ".join(one.folder.name for one in claimants)
            why = f"{folders} all claim {model}, with different content; give each its own name or version"
            refused += [StagingRefusal(one.folder.name, why, one.about) for one in claimants]
            continue
        chosen = next((one for one in claimants if one.content == right), claimants[0])
        staged.append(chosen)
        for one in claimants:
            if one is not chosen:
                why = f"{model} is that of {chosen.folder.name}" + ("" if one.content == chosen.content else ", with another content")
                refused.append(StagingRefusal(one.folder.name, f"{why}; give it its own name or version"))
    return staged, refused


def read_about(path: Path) -> ExpertManifest:
    """Return the content of an `expert.toml`.

    :raises Unfit: naming the key and its line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_ABOUT_BYTES + 1)
        text = data.decode()
        values = tomllib.loads(text)
    except FileNotFoundError:
        raise Unfit(f"no {ABOUT}; it names persona, name, version and base") from None
    except (ValueError, RecursionError) as e:  # tomllib raises other ValueErrors, too, as for a number with too many digits
        raise Unfit(f"{ABOUT} is not valid TOML: {e}") from None
    if len(data) > _ABOUT_BYTES:
        raise Unfit(f"{ABOUT} has more than {_ABOUT_BYTES} bytes")
    try:
        return ExpertManifest.model_validate(values)
    except ValidationError as e:
        first = e.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise Unfit(f"{ABOUT}, {_place(text, str(first['loc'][-1]))}key {key}: {first['msg']}") from None


def same_base(said: str, base: str, known_as: tuple[str, ...]) -> bool:
    """Return True if a name means the base: its name in Ollama, or one under which it is known elsewhere."""
    names = {base, base.removesuffix(":latest"), *known_as}
    return said.lower() in {name.lower() for name in names}


def names_a_repository(name: str) -> bool:
    """Return True if a base named in an adapter's config is a repository (`owner/name`); a path says nothing."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", name)) and not name.startswith((".", "~"))


def content_digest(value: Any) -> str:
    """Return the SHA-256 of a plain value, in hex."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _place(text: str, key: str) -> str:
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*(\[\s*)?[\"']?{re.escape(key)}[\"']?\s*[=\]]", line):
            return f"line {number}, "
    return ""


def _signature(folder: Path) -> Signature:
    """Return a value that changes when anything in the folder does. Only a folder of plain files is read.

    :raises Unfit: if it contains a link, or anything else that is not a plain file.
    """
    mode = folder.lstat().st_mode
    if not stat.S_ISDIR(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "no folder"
        raise Unfit(f"{kind}; an expert is a folder with {ABOUT} and its adapter")
    found = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        facts = entry.stat(follow_symlinks=False)
        used = entry.name == ABOUT or entry.name.endswith((".safetensors", ".gguf", ".json"))
        if used and not stat.S_ISREG(facts.st_mode):
            kind = "a link; copy the file itself" if stat.S_ISLNK(facts.st_mode) else "not a plain file"
            raise Unfit(f"{entry.name} is {kind}")
        if used:
            found.append((entry.name, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
    return tuple(found)


def _digest(path: Path) -> str:
    # O_NOFOLLOW: a plain file may have become a link since the check.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
