"""Small real LoRA adapters for SmolLM2-135M, made by the tests themselves, and the folders in which they are staged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from batos.bridge.lora import adapters

ROOT = Path(__file__).parents[2]
SHIPS_LOG = ROOT / "examples" / "experts" / "ships-log"
HIDDEN, KV, FEED, LAYERS, HEADS, HEADS_KV = 576, 192, 1536, 30, 9, 3
SHAPES = {
    "q_proj": (HIDDEN, HIDDEN), "k_proj": (HIDDEN, KV), "v_proj": (HIDDEN, KV), "o_proj": (HIDDEN, HIDDEN),
    "gate_proj": (HIDDEN, FEED), "up_proj": (HIDDEN, FEED), "down_proj": (FEED, HIDDEN),
}  # fmt: skip
INFO = {
    "general.architecture": "llama", "llama.block_count": LAYERS, "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": FEED, "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": HEADS_KV,
}  # fmt: skip
BASE = adapters.AdapterBase.of(INFO)


def weights(
    projections: tuple[str, ...] = ("v_proj",), layers: int = 2, rank: int = 2, scale: float = 0.02, seed: int = 0, kind: Any = np.float32
) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a PEFT adapter, under PEFT's names."""
    chance, found = np.random.default_rng(seed), {}
    for layer in range(layers):
        for name in projections:
            into, out = SHAPES[name]
            where = f"base_model.model.model.layers.{layer}.{'self_attn' if name[0] in 'qkvo' else 'mlp'}.{name}"
            found[f"{where}.lora_A.weight"] = (chance.standard_normal((rank, into)) * scale).astype(kind)
            found[f"{where}.lora_B.weight"] = (chance.standard_normal((out, rank)) * scale).astype(kind)
    return found


def peft(folder: Path, tensors: dict[str, np.ndarray[Any, Any]] | None = None, **config: Any) -> Path:
    """Write a PEFT adapter into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct", **config}
    save_file(weights() if tensors is None else tensors, folder / adapters.WEIGHTS)
    (folder / adapters.CONFIG).write_text(json.dumps(given))
    return folder


def about(folder: Path, **facts: Any) -> Path:
    """Write an expert.toml; a value of None leaves the key out."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"persona": "babs", "name": "knowledge-weaver", "version": 1, "base": "smollm2:embedded", **facts}
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items() if value is not None]
    (folder / "expert.toml").write_text("\n".join(lines) + "\n")
    return folder


def stage(
    staging: Path, folder: str = "weaver", *, seed: int = 0, tensors: Any = None, config: dict[str, Any] | None = None, **facts: Any
) -> Path:
    """A whole expert in the staging folder."""
    return about(peft(staging / folder, weights(seed=seed) if tensors is None else tensors, **(config or {})), **facts)


def stage_ships_log(staging: Path) -> Path:
    """The expert that is shipped as an example."""
    return Path(shutil.copytree(SHIPS_LOG, staging / "ships-log"))
