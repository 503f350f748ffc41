"""What a training begins with: the base's weights as a file, a work folder of its own, and the image as it is now."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from batos.bridge.choice import profile_of
from batos.bridge.processes import claim
from batos.bridge.profiles import BaseModelSource
from batos.config import Settings
from batos.errors import ConfigError, ImageError, InvalidInput
from batos.training.lora import Point


def base_of(settings: Settings) -> tuple[BaseModelSource, Path]:
    """The base model of the profile, and the file of its weights.

    :raises ConfigError: where they are not to be had as a file, or the extra is missing.
    """
    source = profile_of(settings).models[0]
    try:
        paths = [path for path in source.paths().values() if path.suffix == ".gguf"] if source.package else []
    except FileNotFoundError as e:
        raise ConfigError(f"{e}: `make models` installs it") from None
    if not paths:
        raise ConfigError(f"the base of the profile {settings.profile!r} is no GGUF file of a package; train with --set profile=embedded")
    for module in ("torch", "transformers", "accelerate", "safetensors", "gguf"):
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"{module} is missing: pip install 'batos[training]'")
    return source, paths[0]


@contextlib.contextmanager
def alone(work: Path) -> Iterator[None]:
    """Nobody else trains in a work folder meanwhile: each would write its state over the other's.

    :raises InvalidInput: if somebody does.
    """
    lock = claim(work / "lock")
    if lock is None:
        raise InvalidInput(f"another training goes on in {work}; wait until it has ended, or train in another data folder (--data)")
    with lock:
        yield


def known_versions(root: Any, persona: str, name: str) -> list[int]:
    """The versions of an expert that an image knows, those included of which it has no model any more."""
    from batos.image import experts

    return [int(one["version"]) for one in experts.describe(root) if (one["persona"], one["expert"]) == (persona, name)]


def versions_in(image: str, persona: str, name: str, tell: Callable[[str], object]) -> list[int]:
    """As `known_versions`, of the image of a URI; none where there is none yet, or it cannot be read, which is told."""
    from batos.image.storage import file_path

    if not image or ((path := file_path(image)) is not None and not path.exists()):
        return []
    try:
        with reading(image) as (root, _):
            return known_versions(root, persona, name)
    except ImageError as e:
        tell(f"which versions of {name} there were cannot be seen: {e.message}")
        return []


@contextlib.contextmanager
def reading(image: str) -> Iterator[tuple[Any, str]]:
    """The root of an image as it is now, to be read, and its revision; a daemon may have it open."""
    from batos.image.storage import check_format, open_database
    from batos.image.unit import snapshot

    db: Any = open_database(image, cache_size=2000, pool_size=2, read_only=True)
    try:
        with snapshot(db) as root:
            check_format(root, image)
            yield root, db.lastTransaction().hex()
    finally:
        db.close()


def line(point: Point, done: float) -> str:
    """How far a training is, in words."""
    checked = "" if point.validation is None else f", validation {point.validation:.4f}"
    return f"step {point.step}, {done:.0%}, loss {point.loss:.4f}{checked}"
