"""From a training to an expert that the LoRA factory takes: a folder with the adapter, its config and `expert.toml`."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batos.bridge import adapters
from batos.training import curve
from batos.training.lora import PROJECTIONS, Trainer

NAME = "method-writer"


@dataclass(frozen=True)
class Lineage:
    """Where an expert came from.

    :ivar data: digest of its examples.
    :ivar figures: what was counted and measured.
    """

    data: str
    seed: int
    image_revision: str = ""
    figures: dict[str, float] = field(default_factory=dict)


def next_version(folder: Path) -> int:
    """The version after the one that a folder of an expert holds; 1 where it holds none."""
    try:
        return int(tomllib.loads((folder / "expert.toml").read_text("utf-8"))["version"]) + 1
    except FileNotFoundError:
        return 1


def export(trainer: Trainer, folder: Path, *, persona: str, version: int, base: str, known_as: str, lineage: Lineage) -> Path:
    """Write the expert. What was in the folder before is written over; the curve lies beside it, as text and picture.

    The factory takes a folder when it has not changed for a while, so it never sees half of one.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    plan = trainer.plan
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": plan.rank, "lora_alpha": plan.alpha, "lora_dropout": 0.0, "bias": "none",
        "target_modules": list(PROJECTIONS), "base_model_name_or_path": known_as,
        "layers_to_transform": list(range(plan.first_layer, trainer.layers)),
    }  # fmt: skip
    partial = folder / f".{adapters.WEIGHTS}.partial"
    save_file(trainer.tensors(), partial, {"format": "pt"})
    partial.chmod(0o644)  # as the files beside it: the daemon may be another user's
    os.replace(partial, folder / adapters.WEIGHTS)
    (folder / adapters.CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    (folder / "curve.txt").write_text(curve.as_text(trainer.curve))
    curve.as_png(trainer.curve, folder / "curve.png")
    (folder / "expert.toml").write_text(_about(persona, version, base, plan.minutes, lineage))
    return folder


def _about(persona: str, version: int, base: str, minutes: float, lineage: Lineage) -> str:
    figures = ", ".join(f"{name} = {value}" for name, value in lineage.figures.items())
    facts: dict[str, Any] = {
        "persona": persona, "name": NAME, "version": version, "base": base, "role": "methods",
        "comment": f"Writes methods. Trained by `batos train methods` in {minutes:g} minutes on a CPU; docs/training.md.",
    }  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}" for name, value in facts.items()]
    lines += ["", "[lineage]", f"image_revision = {json.dumps(lineage.image_revision)}", f"data = {json.dumps(lineage.data)}"]
    return "\n".join([*lines, f"seed = {lineage.seed}", f"figures = {{ {figures} }}"]) + "\n"
