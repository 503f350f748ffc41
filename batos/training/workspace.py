"""The workspace of a training: the base's weights as a file, a work folder, and the image as it is now. Also the loss curve and the
expert's folder.

The folder of an expert has the adapter, its config and `expert.toml`, as the LoRA factory takes it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batos import private_files
from batos.bridge.lora import adapters
from batos.bridge.lora.adapters import Unfit
from batos.bridge.lora.staging import ABOUT, read_about
from batos.bridge.ollama_server import exclusive_lock
from batos.bridge.profiles import BaseModelSource
from batos.bridge.selection import configured_profile
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import ConfigError, ImageError, InvalidInput
from batos.training.lora import Point, Trainer

WIDTH, HEIGHT, MARGIN = 640, 320, 24
INK, TRAINED, CHECKED = (60, 60, 60), (31, 119, 180), (214, 39, 40)
Colour = tuple[int, int, int]


def curve_as_text(curve: Sequence[Point]) -> str:
    """Return one line for each point: step, minutes, loss, and the validation loss where it was measured."""
    lines = ["step  minutes  loss    validation"]
    for point in curve:
        checked = "" if point.validation is None else f"{point.validation:.4f}"
        lines.append(f"{point.step:<5} {point.seconds / 60:<8.1f} {point.loss:.4f}  {checked}".rstrip())
    return "\n".join(lines) + "\n"


def curve_as_png(curve: Sequence[Point]) -> bytes:
    """Return a picture of the loss over steps, as a PNG: training in blue, validation in red."""
    picture = [[(255, 255, 255)] * WIDTH for _ in range(HEIGHT)]
    steps = max((point.step for point in curve), default=1)
    top = max((max(point.loss, point.validation or 0) for point in curve), default=1) or 1

    def place(step: int, loss: float) -> tuple[int, int]:
        return MARGIN + step * (WIDTH - 2 * MARGIN) // steps, HEIGHT - MARGIN - round(loss / top * (HEIGHT - 2 * MARGIN))

    _line(picture, [(MARGIN, MARGIN), (MARGIN, HEIGHT - MARGIN), (WIDTH - MARGIN, HEIGHT - MARGIN)], INK)
    _line(picture, [place(point.step, point.loss) for point in curve], TRAINED)
    _line(picture, [place(point.step, point.validation) for point in curve if point.validation is not None], CHECKED)
    return _png(picture)


def _line(picture: list[list[Colour]], points: Sequence[tuple[int, int]], colour: Colour) -> None:
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        for i in range(length := max(abs(to_x - x), abs(to_y - y), 1)):
            picture[y + (to_y - y) * i // length][x + (to_x - x) * i // length] = colour


def _png(picture: list[list[Colour]]) -> bytes:
    """Return the bytes of a PNG file (W3C PNG, 2003: 8 bits a sample, RGB, no filter)."""
    rows = b"".join(b"\0" + bytes(itertools.chain.from_iterable(row)) for row in picture)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


@dataclass(frozen=True, slots=True)
class TrainingLimits(Limits):
    """Limits of the training of a persona's voice."""

    save_s: float = limit(60.0, gt=0, le=86_400)
    """Seconds between two saved states from which a training can resume."""
    missions: int = limit(12, ge=2, le=1_000_000)
    """Number of missions rated +1 that the training of a persona's voice needs."""
    held_out: float = limit(0.25, gt=0, lt=1)
    """Share of the missions that is kept out of the training and measures its result."""
    chars: int = limit(6000, ge=200, le=1_000_000)
    """Largest length in characters of a prompt with its answer that a voice learns."""
    answers: int = limit(6, ge=0, le=1000)
    """Number of answers of the new voice and of the plain model whose entropy is compared. With 0, no answers are compared."""
    entropy: float = limit(0.05, ge=0, le=1)
    """Largest fall of the answers' entropy with which a new voice is accepted."""


@dataclass(frozen=True)
class Expert:
    """The description of an expert, apart from its weights.

    :ivar name: with persona and version, the name of its model.
    :ivar role: `voice` or `methods`.
    :ivar does: its job, in a sentence.
    :ivar on_choice: True if it speaks only once it is chosen.
    """

    persona: str
    name: str
    role: str
    does: str
    on_choice: bool = False


@dataclass(frozen=True)
class TrainingLineage:
    """The origin of an expert.

    :ivar data: digest of its examples.
    :ivar missions: ids of the missions that it learned from.
    :ivar figures: counts and measurements.
    """

    data: str
    seed: int
    image_revision: str = ""
    missions: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)


def check_place(folder: Path) -> None:
    """See that an expert can be put into a folder, before anything is trained.

    :raises ConfigError: if not.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"no expert can be put into {folder}: {there} is not a folder; set inference.staging to another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(
            f"no expert can be put into {folder}: {there} is not ours to write; see its owner and mode, or set inference.staging"
        )
    try:
        private_files.fit(folder)
    except private_files.Exposed as e:
        raise ConfigError(f"no expert can be put into {folder}: {e.why}") from None


def next_version(folder: Path, expert: Expert, known: Iterable[int] = ()) -> int:
    """Return the version after all known ones of an expert, since no version is made twice. Known are those in its folder, in folders
    beside it (the loop puts its trainings there), and those in the image.

    :raises InvalidInput: where its own folder holds an expert.toml that cannot be read.
    """
    found = [*known]
    for one in (folder, *(path for path in sorted(folder.parent.glob("[!.]*")) if path != folder)):
        try:
            about = read_about(one / ABOUT)
        except (Unfit, OSError) as e:
            if one == folder and (one / ABOUT).exists():
                raise InvalidInput(f"{one}: {e}; mend it, or move the folder away") from None
            continue
        if (about.persona.lower(), about.name) == (expert.persona.lower(), expert.name):
            found.append(about.version)
    return 1 + max(found, default=0)


def export(trainer: Trainer, folder: Path, expert: Expert, base: BaseModelSource, lineage: TrainingLineage, version: int) -> Path:
    """Write a version of an expert. What was in the folder before is written over; the curve lies beside it, as text and picture.

    The factory takes a folder when it has not changed for a while, so it never sees half of one.
    """
    from safetensors.torch import save_file

    private_files.folder(folder)
    plan = trainer.plan
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": plan.rank, "lora_alpha": plan.alpha, "lora_dropout": 0.0, "bias": "none",
        "target_modules": list(plan.projections), "base_model_name_or_path": base.known_as[0] if base.known_as else base.name,
        "layers_to_transform": list(range(plan.first_layer, trainer.layers)),
    }  # fmt: skip
    partial = folder / f".{adapters.WEIGHTS}.partial"
    private_files.renew(partial).close()
    save_file(trainer.tensors(), partial, {"format": "pt"})
    os.replace(partial, folder / adapters.WEIGHTS)
    private_files.write(folder / adapters.CONFIG, json.dumps(config, indent=2) + "\n")
    private_files.write(folder / "curve.txt", curve_as_text(trainer.curve))
    private_files.write(folder / "curve.png", curve_as_png(trainer.curve))
    private_files.write(folder / ABOUT, about_expert(expert, version, base.name, trainer.seconds / 60, lineage))
    return folder


def about_expert(expert: Expert, version: int, base: str, minutes: float, lineage: TrainingLineage) -> str:
    """Return the text of `expert.toml`."""
    figures = ", ".join(f"{name} = {value}" for name, value in lineage.figures.items())
    facts: dict[str, Any] = {
        "persona": expert.persona, "name": expert.name, "version": version, "base": base, "role": expert.role,
        "on_choice": expert.on_choice,
        "comment": f"{expert.does} Trained in {minutes:.1f} minutes on a CPU; docs/training.md.",
    }  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}" for name, value in facts.items()]
    lines += ["", "[lineage]", f"image_revision = {json.dumps(lineage.image_revision)}", f"data = {json.dumps(lineage.data)}"]
    if lineage.missions:
        lines.append(f"missions = {json.dumps(list(lineage.missions))}")
    return "\n".join([*lines, f"seed = {lineage.seed}", f"figures = {{ {figures} }}"]) + "\n"


def base_of(settings: Settings) -> tuple[BaseModelSource, Path]:
    """Return the base model of the profile, and the file of its weights.

    :raises ConfigError: if the weights are not available as a file, or the extra is missing.
    """
    source = configured_profile(settings).models[0]
    try:
        paths = [path for path in source.paths().values() if path.suffix == ".gguf"] if source.package else []
    except FileNotFoundError as e:
        raise ConfigError(f"{e}: `make models` installs it") from None
    if not paths:
        raise ConfigError(
            f"the base of the profile {settings.inference.profile!r} is not a GGUF file of a package; train with --set profile=embedded"
        )
    for module in ("torch", "transformers", "accelerate", "safetensors", "gguf"):
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"{module} is missing: pip install 'batos[training]'")
    return source, paths[0]


@contextlib.contextmanager
def alone(work: Path) -> Iterator[None]:
    """Keep other processes from training in the same work folder meanwhile: each would overwrite the other's state.

    :raises InvalidInput: if another process trains there.
    """
    lock = exclusive_lock(work / "lock")
    if lock is None:
        raise InvalidInput(f"another training goes on in {work}; wait until it has ended, or train in another data folder (--data)")
    with lock:
        yield


def known_versions(root: Any, persona: str, name: str) -> list[int]:
    """Return the versions of an expert that an image knows, including those without a model."""
    from batos.image import model_registry

    return [int(one["version"]) for one in model_registry.describe_experts(root) if (one["persona"], one["expert"]) == (persona, name)]


def versions_in(image: str, persona: str, name: str, tell: Callable[[str], object]) -> list[int]:
    """Return `known_versions` of the image of a URI. Return none for a missing image; for one that cannot be read too, with a warning."""
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
    """Yield the root of an image as it is now, for reading, and its revision. A daemon may have it open."""
    from batos.image.storage import check_format, open_database
    from batos.image.unit_of_work import snapshot

    db: Any = open_database(image, cache_size=2000, pool_size=2, read_only=True)
    try:
        with snapshot(db) as root:
            check_format(root, image)
            yield root, db.lastTransaction().hex()
    finally:
        db.close()


def line(point: Point, done: float) -> str:
    """Return the progress of a training in words."""
    checked = "" if point.validation is None else f", validation {point.validation:.4f}"
    return f"step {point.step}, {done:.0%}, loss {point.loss:.4f}{checked}"
