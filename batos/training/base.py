"""What a training begins with: the base's weights as a file, and the image as it is now."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batos.bridge.profiles import BaseModelSource, load_profile
from batos.config import Settings
from batos.errors import ConfigError
from batos.training.lora import Point


def base_of(settings: Settings) -> tuple[BaseModelSource, Path]:
    """The base model of the profile, and the file of its weights.

    :raises ConfigError: where they are not to be had as a file, or the extra is missing.
    """
    source = load_profile(settings.profile).models[0]
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
