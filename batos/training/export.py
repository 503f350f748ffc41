"""From a training to an expert that the LoRA factory takes: a folder with the adapter, its config and `expert.toml`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batos import private_files
from batos.bridge import adapters
from batos.bridge.adapters import Unfit
from batos.bridge.experts import ABOUT, read_about
from batos.bridge.profiles import BaseModelSource
from batos.errors import ConfigError, InvalidInput
from batos.training import curve
from batos.training.lora import Trainer


@dataclass(frozen=True)
class Expert:
    """What an expert is, beside its weights.

    :ivar name: with persona and version, its model's name.
    :ivar role: `voice` or `methods`.
    :ivar does: what it does, in a sentence.
    :ivar on_choice: whether it speaks only once it is chosen.
    """

    persona: str
    name: str
    role: str
    does: str
    on_choice: bool = False


@dataclass(frozen=True)
class Lineage:
    """Where an expert came from.

    :ivar data: digest of its examples.
    :ivar missions: ids of those that it learned from.
    :ivar figures: what was counted and measured.
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
        raise ConfigError(f"no expert can be put into {folder}: {there} is no folder; set lora_staging to another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"no expert can be put into {folder}: {there} is not ours to write; see its owner and mode, or set lora_staging")
    try:
        private_files.fit(folder)
    except private_files.Exposed as e:
        raise ConfigError(f"no expert can be put into {folder}: {e.why}") from None


def next_version(folder: Path, expert: Expert, known: Iterable[int] = ()) -> int:
    """The version after all that there are of an expert, since none is ever made twice: in its folder, in those beside it, where the loop
    puts what it trained, and of those that are known.

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


def export(trainer: Trainer, folder: Path, expert: Expert, base: BaseModelSource, lineage: Lineage, version: int) -> Path:
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
    private_files.write(folder / "curve.txt", curve.as_text(trainer.curve))
    private_files.write(folder / "curve.png", curve.as_png(trainer.curve))
    private_files.write(folder / ABOUT, about(expert, version, base.name, trainer.seconds / 60, lineage))
    return folder


def about(expert: Expert, version: int, base: str, minutes: float, lineage: Lineage) -> str:
    """The text of `expert.toml`."""
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
