"""LoRA adapters: check that one fits its base, translate it for Ollama, and fuse it into its base.

PEFT adapters are translated to GGUF here and not by Ollama. Ollama reorders `lora_A` of q_proj and k_proj where `lora_B` is meant
(convert/convert_llama_adapter.go, v0.17.4), so that the model loads and answers nonsense. It also knows two architectures only.

Fusing merges an adapter into its base, so that an expert has weights of its own and stays resident beside others. It works on the base's
GGUF, a tensor at a time: memory for the largest one, disk for the whole in half precision. It needs the `gguf` package, which reads
quantised weights.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from batos import private_files
from batos.bridge.lora import gguf
from batos.bridge.lora.gguf import WritingStopped

if TYPE_CHECKING:
    import numpy as np

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_HEADER = 16 * 1024 * 1024  # greatest number of bytes of a safetensors header
_CONFIG_BYTES = 1024 * 1024  # greatest number of bytes of an adapter_config.json
_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_SAFE_NAME = re.compile(
    r"(?:base_model\.model\.)?(?:model\.)?layers\.(\d+)\.(?:self_attn|mlp)\.(\w+_proj)\.lora_([AB])(?:\.default)?\.weight\Z"
)
_GGUF_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.weight\.lora_([ab])\Z")
_IN_GGUF = {
    "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
    "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
}  # fmt: skip
PERMUTED = frozenset({"llama"})
"""Architectures whose GGUF stores the rows of q and k in another order than Hugging Face (llama.cpp, convert_hf_to_gguf.py: permute)."""
TRANSLATED = PERMUTED | {"qwen2", "qwen3", "gemma2"}
"""Architectures whose PEFT adapters BAT OS can translate. For others, llama.cpp's convert_lora_to_gguf.py makes a GGUF adapter."""


class Unfit(Exception):
    """An adapter that cannot be used; the message says why, and what to do."""


class AdapterBase(NamedTuple):
    """Shape of a base model, as Ollama's `show` reports it; it decides whether an adapter fits."""

    architecture: str
    layers: int
    heads: int
    heads_kv: int
    shapes: Mapping[str, tuple[int, int]]
    """Name of a projection in GGUF -> sizes of its input and its output."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> AdapterBase:
        """:param info: `model_info` of Ollama's show.
        :raises Unfit: if it lacks a figure, as for models that are not decoders.
        """
        kind = str(info.get("general.architecture", ""))

        def figure(name: str, default: Any = None) -> int:
            value = info.get(f"{kind}.{name}", default)
            if not isinstance(value, int) or value < 1:
                raise Unfit(f"the base (architecture {kind!r}) does not say its {name}; adapters cannot be checked against it")
            return value

        hidden, heads, feed = figure("embedding_length"), figure("attention.head_count"), figure("feed_forward_length")
        heads_kv = figure("attention.head_count_kv", heads)
        key = figure("attention.key_length", hidden // heads)
        value = figure("attention.value_length", key)
        shapes = {
            "attn_q": (hidden, heads * key), "attn_k": (hidden, heads_kv * key), "attn_v": (hidden, heads_kv * value),
            "attn_output": (heads * value, hidden), "ffn_gate": (hidden, feed), "ffn_up": (hidden, feed), "ffn_down": (feed, hidden),
        }  # fmt: skip
        return cls(kind, figure("block_count"), heads, heads_kv, shapes)


class MatrixPair(NamedTuple):
    """The two matrices of one projection: their shapes as (rows, columns), A: rank x in, B: out x rank."""

    a: tuple[int, int]
    b: tuple[int, int]


class Adapter(NamedTuple):
    """Content of an adapter by layer and projection (GGUF's name), from its header."""

    file: Path
    alpha: float
    pairs: Mapping[tuple[int, str], MatrixPair]
    base_name: str = ""
    architecture: str = ""
    stabilised: float = 0.0
    """Rank to which `alpha` applies in a rank-stabilised adapter; 0 for any other adapter."""

    def weight(self, pair: MatrixPair) -> float:
        """Return the factor of a pair beside `alpha` / rank, which is all that GGUF can express. A rank-stabilised adapter applies
        alpha / sqrt(rank), and `alpha` includes the square root of one rank only.
        """
        return math.sqrt(pair.a[0] / self.stabilised) if self.stabilised else 1.0

    @property
    def mixed(self) -> bool:
        """Return True if pairs have different factors."""
        return any(self.weight(pair) != 1.0 for pair in self.pairs.values())


def read(folder: Path) -> Adapter:
    """Return the adapter in a folder, from its headers; no weights are loaded.

    :raises Unfit: if there is none, or not one of a kind that can be applied.
    :raises OSError: if it cannot be read.
    """
    ggufs = sorted(path for path in folder.iterdir() if path.suffix == ".gguf")
    weights = folder / WEIGHTS
    if (weights.exists() and ggufs) or len(ggufs) > 1:
        raise Unfit("more than one adapter in the folder; leave one")
    if ggufs:
        return _read_gguf(ggufs[0])
    if not weights.exists():
        raise Unfit(f"no adapter: put {WEIGHTS} with {CONFIG}, or a .gguf file, beside expert.toml")
    return _read_peft(folder)


def check(adapter: Adapter, base: AdapterBase) -> None:
    """See that an adapter fits a base.

    :raises Unfit: naming the first tensor that does not.
    """
    if adapter.architecture and adapter.architecture != base.architecture:
        raise Unfit(f"wrong base: the adapter is for the architecture {adapter.architecture}, the base is {base.architecture}")
    if not adapter.architecture and base.architecture not in TRANSLATED:
        raise Unfit(
            f"PEFT adapters of {base.architecture} are not translated here; make a GGUF of it with llama.cpp's convert_lora_to_gguf.py"
        )
    for (layer, name), pair in adapter.pairs.items():
        where = f"layer {layer}, {name}"
        if layer >= base.layers:
            raise Unfit(f"wrong shape: {where}: the base has {base.layers} layers; the adapter was trained on another")
        if name not in base.shapes:
            raise Unfit(f"{where}: no projection that can be adapted; there are {', '.join(base.shapes)}")
        into, out = base.shapes[name]
        if pair.a[1] != into or pair.b[0] != out:
            raise Unfit(
                f"wrong shape: {where}: the adapter has {pair.a[1]} in and {pair.b[0]} out, the base {into} and {out}; "
                "the adapter was trained on another base"
            )


def matrices(adapter: Adapter, base: AdapterBase) -> Iterator[tuple[int, str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Return layer, projection, and A and B as float32, in GGUF's order of rows.

    :raises Unfit: for numbers that are none.
    """
    import numpy as np

    arrays = _gguf_arrays(adapter) if adapter.architecture else _peft_arrays(adapter.file)
    for (layer, name), pair in sorted(adapter.pairs.items()):
        a, b = arrays[layer, name, "a"].reshape(pair.a), arrays[layer, name, "b"].reshape(pair.b)
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise Unfit(f"layer {layer}, {name}: holds values that are NaN or infinite; train it again")
        if not adapter.architecture and base.architecture in PERMUTED and name in ("attn_q", "attn_k"):
            b = permuted(b, base.heads if name == "attn_q" else base.heads_kv)
        if (weight := adapter.weight(pair)) != 1.0:
            b = b * np.float32(weight)
        yield layer, name, a, b


def permuted(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Return rows of q or k, moved from Hugging Face's order to GGUF's: the halves of each head's rotary pairs interleaved."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(adapter: Adapter, base: AdapterBase, path: Path) -> None:
    """Write a PEFT adapter as a GGUF adapter.

    :raises Unfit: for numbers that are none.
    """
    tensors = []
    for layer, name, a, b in matrices(adapter, base):
        tensors += [(f"blk.{layer}.{name}.weight.lora_a", a), (f"blk.{layer}.{name}.weight.lora_b", b)]
    metadata: dict[str, str | int | float] = {
        "general.architecture": base.architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(adapter.alpha),
    }
    gguf.write(path, metadata, tensors)


# --- PEFT


def _read_peft(folder: Path) -> Adapter:
    config = _config(folder / CONFIG)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise Unfit(f"{CONFIG}: peft_type {kind!r}; only LORA can be applied")
    for name, plain in {"use_dora": False, "bias": "none", "fan_in_fan_out": False, "lora_bias": False}.items():
        if config.get(name, plain) != plain:
            raise Unfit(f"{CONFIG}: {name} = {config[name]!r} cannot be applied; train with {name} = {plain!r}")
    for name in ("alpha_pattern", "modules_to_save", "layer_replication", "alora_invocation_tokens"):
        if config.get(name):
            raise Unfit(f"{CONFIG}: {name} cannot be applied; train without it")
    alpha, rank = _positive(config, "lora_alpha", CONFIG), _positive(config, "r", CONFIG)
    shapes = {name: tuple(facts["shape"]) for name, facts in _safe_header(folder / WEIGHTS)[0].items()}
    # The scale is alpha / rank; for a rank-stabilised adapter it is alpha / sqrt(rank), with the rank of each pair (`rank_pattern`).
    stabilised = rank if config.get("use_rslora") else 0.0
    scale, base_name = alpha * (math.sqrt(stabilised) or 1.0), str(config.get("base_model_name_or_path") or "")
    return Adapter(folder / WEIGHTS, scale, _pairs(shapes, _safe_place), base_name, stabilised=stabilised)


def _positive(facts: Mapping[str, Any], name: str, where: str) -> float:
    value = facts.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e6:
        raise Unfit(f"{where}: {name} is a number above 0, got {value!r}")
    return float(value)


def _config(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            config = json.loads(file.read(_CONFIG_BYTES))
    except FileNotFoundError:
        raise Unfit(f"no {CONFIG} beside the weights; PEFT writes both") from None
    except (ValueError, RecursionError) as e:
        raise Unfit(f"{CONFIG} is not valid JSON: {e}") from None
    if not isinstance(config, dict):
        raise Unfit(f"{CONFIG} is not a JSON object")
    return config


def _safe_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the tensors of a safetensors file, and where their data begins (github.com/huggingface/safetensors: format)."""
    size = path.stat().st_size
    with path.open("rb") as file:
        lead = file.read(8)
        length = struct.unpack("<Q", lead)[0] if len(lead) == 8 else 0
        if not 2 <= length <= _HEADER or 8 + length > size:
            raise Unfit(f"{path.name} has {size} bytes and a header of {length}: no safetensors file, or not copied whole")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as e:
            raise Unfit(f"{path.name}: its header is not valid JSON: {e}") from None
    if not isinstance(header, dict):
        raise Unfit(f"{path.name}: its header is not a JSON object")
    header.pop("__metadata__", None)
    end = 0
    for name, facts in header.items():
        end = max(end, _checked(path, name, facts))
    if 8 + length + end != size:
        raise Unfit(f"{path.name} has {size} bytes, its header tells of {8 + length + end}: it was not copied whole")
    return header, 8 + length


def _checked(path: Path, name: str, facts: Any) -> int:
    """Return the end of a tensor in the file, after checking that its type, shape and position agree."""
    try:
        kind, shape, (begin, end) = facts["dtype"], facts["shape"], facts["data_offsets"]
        count = math.prod(shape)
        fits = kind in _TYPES and all(type(n) is int and n > 0 for n in shape)
        if not fits or begin < 0 or end - begin != count * int(_TYPES[kind][-1]):
            raise ValueError
    except (TypeError, ValueError, KeyError):
        raise Unfit(f"{path.name}: {name[:120]}: {str(facts)[:200]} is not a matrix of F32, F16 or BF16") from None
    return int(end)


def _peft_arrays(path: Path) -> dict[tuple[int, str, str], np.ndarray[Any, Any]]:
    import numpy as np

    header, at = _safe_header(path)
    found = {}
    for name, facts in header.items():
        count = math.prod(facts["shape"])
        raw = np.fromfile(path, _TYPES[facts["dtype"]], count, offset=at + facts["data_offsets"][0])
        found[_safe_place(name)] = _float32(raw, facts["dtype"] == "BF16")
    return found


def _safe_place(name: str) -> tuple[int, str, str]:
    match = _SAFE_NAME.match(name)
    if match is None or match[2] not in _IN_GGUF:
        raise Unfit(f"tensor {name[:160]} cannot be applied; adapt only {', '.join(_IN_GGUF)} of the layers")
    return int(match[1]), _IN_GGUF[match[2]], match[3].lower()


# --- GGUF


def _read_gguf(path: Path) -> Adapter:
    try:
        header = gguf.read_header(path)
        gguf.check_length(path, header)
    except gguf.Malformed as e:
        raise Unfit(str(e)) from None
    facts = header.metadata
    if facts.get("general.type") != "adapter" or facts.get("adapter.type") != "lora":
        raise Unfit(f"{path.name} is a GGUF file but no LoRA adapter")
    kind = facts.get("general.architecture")
    if not isinstance(kind, str) or not kind:
        raise Unfit(f"{path.name}: does not say its general.architecture")
    shapes = {name: tuple(reversed(info.dims)) for name, info in header.tensors.items()}
    return Adapter(path, _positive(facts, "adapter.lora.alpha", path.name), _pairs(shapes, _gguf_place), architecture=kind)


def _gguf_place(name: str) -> tuple[int, str, str]:
    match = _GGUF_NAME.match(name)
    if match is None:
        raise Unfit(f"tensor {name[:160]} is not part of a LoRA on the projections of a layer")
    return int(match[1]), match[2], match[3]


def _gguf_arrays(adapter: Adapter) -> dict[tuple[int, str, str], np.ndarray[Any, Any]]:
    import numpy as np

    header = gguf.read_header(adapter.file)
    found = {}
    for name, info in header.tensors.items():
        kind = {gguf.F32: "<f4", gguf.F16: "<f2", gguf.BF16: "<u2"}[info.kind]
        raw = np.fromfile(adapter.file, kind, info.elements, offset=header.data_at + info.offset)
        found[_gguf_place(name)] = _float32(raw, info.kind == gguf.BF16)
    return found


# --- shared


def _float32(raw: np.ndarray[Any, Any], halved: bool) -> np.ndarray[Any, Any]:
    import numpy as np

    return (raw.astype("<u4") << 16).view("<f4") if halved else raw.astype(np.float32)  # a bfloat16 is the upper half of a float32


def _pairs(shapes: Mapping[str, tuple[int, ...]], place: Any) -> dict[tuple[int, str], MatrixPair]:
    halves: dict[tuple[int, str], dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        layer, projection, half = place(name)
        if len(shape) != 2 or half in halves.setdefault((layer, projection), {}):
            raise Unfit(f"tensor {name[:160]}: of the shape {shape}, or there twice")
        halves[layer, projection][half] = shape
    if not halves:
        raise Unfit("the adapter is empty")
    found = {}
    for (layer, projection), both in halves.items():
        a, b = both.get("a"), both.get("b")
        if a is None or b is None or a[0] != b[1]:
            raise Unfit(f"layer {layer}, {projection}: lora_A {a} and lora_B {b} do not belong together")
        found[layer, projection] = MatrixPair((a[0], a[1]), (b[0], b[1]))
    return found


_MOSTLY_F16 = 1  # a file type of llama.cpp


def fuse(source: Path, adapter: Adapter, base: AdapterBase, out: Path, stop: Event) -> None:
    """Write the base with the adapter in it: W + alpha / rank * B A, in half precision.

    :param source: the GGUF of the base.
    :param stop: looked at between two tensors.
    :raises Unfit: if base or adapter cannot be merged.
    :raises Stopped: when `stop` was set.
    """
    import numpy as np

    try:
        header = gguf.read_header(source)
        keys = gguf.with_file_type(header, _MOSTLY_F16)
    except gguf.Malformed as e:
        raise Unfit(f"the base cannot be read: {e}") from None
    changes = {f"blk.{layer}.{name}.weight": (a, b) for layer, name, a, b in matrices(adapter, base)}
    if missing := changes.keys() - header.tensors.keys():
        raise Unfit(f"the base has no tensor {min(missing)}")
    # Norms and biases keep their precision: they are small, and Ollama's quantiser expects them so.
    kinds = {info.name: gguf.F32 if len(info.dims) == 1 else gguf.F16 for info in header.tensors.values()}
    with private_files.renew(out) as file:
        gguf.write_header(file, keys, len(header.metadata), [(i.name, i.dims, kinds[i.name]) for i in header.tensors.values()])
        for info in header.tensors.values():
            if stop.is_set():
                raise WritingStopped
            weights = _dequantised(source, header, info)
            if info.name in changes:
                a, b = changes[info.name]
                weights = weights + np.float32(adapter.alpha / a.shape[0]) * (b @ a)
            gguf.write_tensor(file, weights.astype("<f4" if kinds[info.name] == gguf.F32 else "<f2"))


def _dequantised(source: Path, header: gguf.Header, info: gguf.TensorInfo) -> Any:
    import numpy as np
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        rows = gguf.read_rows(source, header, info)
        return dequantize(rows, GGMLQuantizationType(info.kind)).reshape(tuple(reversed(info.dims))).astype(np.float32)
    except (ValueError, NotImplementedError) as e:
        raise Unfit(f"the base's tensor {info.name} of type {info.kind} cannot be read: {e}") from None
