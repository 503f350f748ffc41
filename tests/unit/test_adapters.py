"""What an adapter holds and whether it fits, from headers alone; and its translation to GGUF."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from batos.bridge.lora import adapters, gguf
from batos.bridge.lora.adapters import AdapterBase, Unfit
from tests.support import lora
from tests.support.lora import BASE, HEADS, HEADS_KV, INFO, peft, weights

ALL = tuple(lora.SHAPES)


def renamed(old: str, new: str) -> dict[str, Any]:
    return {name.replace(old, new): value for name, value in weights().items()}


def with_shape(name: str, half: str, shape: tuple[int, int]) -> dict[str, Any]:
    tensors = weights((name,), 1)
    return {key: np.zeros(shape, np.float32) if f"lora_{half}" in key else value for key, value in tensors.items()}


def test_one_of_each_projection_fits(tmp_path: Path) -> None:
    adapter = adapters.read(peft(tmp_path, weights(ALL)))
    adapters.check(adapter, BASE)
    assert (len(adapter.pairs), adapter.alpha) == (2 * 7, 4)
    assert adapter.base_name == "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (with_shape("v_proj", "B", (200, 2)), "layer 0, attn_v: the adapter has 576 in and 200 out, the base 576 and 192"),
        (with_shape("down_proj", "A", (2, 576)), "ffn_down: the adapter has 576 in and 576 out, the base 1536 and 576"),
        (renamed("layers.1", "layers.30"), "the base has 30 layers"),
        (renamed("v_proj", "qkv_proj"), "cannot be applied; adapt only q_proj"),
        (renamed("model.layers.0.self_attn.v_proj", "lm_head"), "cannot be applied"),
        (renamed("layers.1.self_attn.v_proj.lora_B", "layers.2.self_attn.v_proj.lora_B"), "do not belong together"),
        (with_shape("v_proj", "B", (192, 3)), "do not belong together"),
        ({"base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight": np.zeros((2, 4, 8), np.float32)}, "of the shape"),
        ({name: value.astype(np.int32) for name, value in weights().items()}, "not a matrix of F32"),
        ({}, "empty"),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, tensors: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        adapters.check(adapters.read(peft(tmp_path, tensors)), BASE)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"peft_type": "IA3"}, "only LORA"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"alpha_pattern": {"v_proj": 8}}, "alpha_pattern"),
        ({"lora_alpha": 0}, "lora_alpha is a number above 0"),
        ({"r": "two"}, "r is a number"),
    ],
)
def test_configs_that_cannot_be_applied(tmp_path: Path, config: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        adapters.read(peft(tmp_path, **config))


def test_a_rank_stabilised_adapter_is_scaled_by_the_root(tmp_path: Path) -> None:
    assert adapters.read(peft(tmp_path, r=4, lora_alpha=8, use_rslora=True)).alpha == 16


@pytest.mark.parametrize("stabilised", [True, False])
def test_each_projection_is_scaled_by_its_own_rank(tmp_path: Path, stabilised: bool) -> None:
    """As PEFT has it: alpha / rank, and alpha / sqrt(rank) where it is rank-stabilised; GGUF only knows the former, with one alpha."""
    given = {**weights(("v_proj",), 1, rank=2), **weights(("q_proj",), 1, rank=8)}
    folder = peft(tmp_path, given, r=2, lora_alpha=4, use_rslora=stabilised, rank_pattern={"q_proj": 8})
    adapter = adapters.read(folder)
    adapters.check(adapter, BASE)
    assert adapter.mixed is stabilised
    place = "base_model.model.model.layers.0.self_attn.{}.lora_{}.weight"
    applied = {name: adapter.alpha / a.shape[0] * (b @ a) for _, name, a, b in adapters.matrices(adapter, BASE)}
    for name, projection, rank in (("attn_v", "v_proj", 2), ("attn_q", "q_proj", 8)):
        a, b = given[place.format(projection, "A")], given[place.format(projection, "B")]
        if projection == "q_proj":
            b = adapters.permuted(b, HEADS)
        wanted = 4 / (math.sqrt(rank) if stabilised else rank) * (b @ a)
        assert np.allclose(applied[name], wanted, rtol=1e-5, atol=1e-7)


def test_what_is_not_there_or_is_there_twice(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match=r"no adapter: put adapter_model\.safetensors"):
        adapters.read(tmp_path)
    peft(tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    with pytest.raises(Unfit, match=r"no adapter_config\.json"):
        adapters.read(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{not json")
    with pytest.raises(Unfit, match="not valid JSON"):
        adapters.read(tmp_path)
    (tmp_path / "more.gguf").write_bytes(b"GGUF")
    with pytest.raises(Unfit, match="more than one adapter"):
        adapters.read(tmp_path)


def test_half_copied_files_are_known_by_their_headers(tmp_path: Path) -> None:
    file = peft(tmp_path) / adapters.WEIGHTS
    whole = file.read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(Unfit, match="not copied whole"):
            adapters.read(tmp_path)
    file.write_bytes(struct.pack("<Q", 1 << 60) + whole)
    with pytest.raises(Unfit, match="no safetensors file"):
        adapters.read(tmp_path)


def test_a_base_that_is_no_decoder_takes_none() -> None:
    with pytest.raises(Unfit, match="does not say its"):
        AdapterBase.of({"general.architecture": "bert", "bert.block_count": 6})


def test_heads_that_are_wider_than_hidden_by_heads() -> None:
    """As of Gemma and Qwen3, whose head size is a figure of its own."""
    base = AdapterBase.of({**INFO, "llama.attention.key_length": 128, "llama.attention.value_length": 96})
    assert (base.shapes["attn_q"], base.shapes["attn_k"], base.shapes["attn_v"]) == ((576, 1152), (576, 384), (576, 288))
    assert base.shapes["attn_output"] == (864, 576)


# --- translation


def rows_moved(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The permutation spelled out: in each head, row i of the first half and row i of the second come one after the other."""
    size = len(rows) // heads
    order = [head * size + half * size // 2 + i for head in range(heads) for i in range(size // 2) for half in (0, 1)]
    return rows[order]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_translated_to_gguf_it_is_the_same_adapter(tmp_path: Path, kind: Any) -> None:
    folder = peft(tmp_path / "peft", weights(ALL, kind=kind))
    (tmp_path / "gguf").mkdir()
    adapters.write_gguf(adapters.read(folder), BASE, tmp_path / "gguf" / "adapter.gguf")
    adapter = adapters.read(tmp_path / "gguf")
    adapters.check(adapter, BASE)
    assert (adapter.alpha, adapter.architecture) == (4, "llama")
    given, names = load_file(folder / adapters.WEIGHTS), {v: k for k, v in adapters._IN_GGUF.items()}
    for layer, name, a, b in adapters.matrices(adapter, BASE):
        where = next(k for k in given if f"layers.{layer}." in k and f"{names[name]}.lora_A" in k)
        other = given[where.replace("lora_A", "lora_B")].astype(np.float32)
        heads = {"attn_q": HEADS, "attn_k": HEADS_KV}.get(name)
        assert np.array_equal(a, given[where].astype(np.float32))
        assert np.array_equal(b, rows_moved(other, heads) if heads else other)


def test_bfloat16_is_read(tmp_path: Path) -> None:
    file = peft(tmp_path) / adapters.WEIGHTS
    tensors = {name: value.astype("<f4").view("<u4") >> 16 for name, value in weights().items()}
    header, data = {}, b""
    for name, value in tensors.items():
        raw = value.astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    _, _, a, b = next(iter(adapters.matrices(adapters.read(tmp_path), BASE)))
    full = weights()
    for found, given in zip((a, b), list(full.values())[:2], strict=True):
        assert np.allclose(found, given, rtol=1 / 128)


def test_numbers_that_are_none_are_found_when_they_are_read(tmp_path: Path) -> None:
    tensors = weights()
    next(iter(tensors.values()))[0, 0] = np.nan
    with pytest.raises(Unfit, match="NaN"):
        adapters.write_gguf(adapters.read(peft(tmp_path, tensors)), BASE, tmp_path / "x.gguf")


def test_architectures_that_are_not_translated(tmp_path: Path) -> None:
    strange = BASE._replace(architecture="phi3")
    with pytest.raises(Unfit, match=r"convert_lora_to_gguf\.py"):
        adapters.check(adapters.read(peft(tmp_path)), strange)


def test_a_gguf_adapter_of_another_architecture_or_no_adapter_at_all(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    file = tmp_path / "g" / "adapter.gguf"
    adapters.write_gguf(adapters.read(peft(tmp_path / "p")), BASE, file)
    with pytest.raises(Unfit, match="for the architecture llama, the base is qwen2"):
        adapters.check(adapters.read(tmp_path / "g"), BASE._replace(architecture="qwen2"))
    whole = file.read_bytes()
    for size in (3, 20, 100, len(whole) - 100):
        file.write_bytes(whole[:size])
        with pytest.raises(Unfit, match=r"not copied whole|not a GGUF file"):
            adapters.read(tmp_path / "g")
    gguf.write(file, {"general.architecture": "llama", "general.type": "model"}, [])
    with pytest.raises(Unfit, match="no LoRA adapter"):
        adapters.read(tmp_path / "g")


def test_our_files_are_read_by_the_library_of_the_format(tmp_path: Path) -> None:
    from gguf import GGUFReader

    adapters.write_gguf(adapters.read(peft(tmp_path / "p")), BASE, tmp_path / "x.gguf")
    read = GGUFReader(tmp_path / "x.gguf")
    assert read.fields["adapter.type"].contents() == "lora"
    assert read.fields["adapter.lora.alpha"].contents() == 4.0
    assert {t.name: tuple(t.shape) for t in read.tensors}["blk.0.attn_v.weight.lora_a"] == (576, 2)


def test_the_headers_of_real_weights_are_read() -> None:
    from batos.bridge.profiles import load_profile

    header = gguf.read_header(next(iter(load_profile("embedded").models[0].paths().values())))
    assert AdapterBase.of(header.metadata | {"llama.vocab_size": 1}) == BASE
    assert header.tensors["blk.29.ffn_down.weight"].dims == (1536, 576)
