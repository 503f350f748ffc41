"""Weights written anew in other blocks: the same values, to within the rounding of the blocks."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from batos.bridge.lora import gguf
from batos.bridge.lora.gguf import UnreadableWeights, WritingStopped, requantize


def made(path: Path, *, file_type: bool = True) -> dict[str, np.ndarray]:
    """A GGUF with a matrix in blocks of Q4_1, one of F16, and a vector; their values."""
    numbers = np.random.default_rng(7)
    rows = quantize(numbers.normal(0, 1, (6, 64)).astype(np.float32), GGMLQuantizationType.Q4_1)
    half = numbers.normal(0, 1, (3, 40)).astype("<f2")
    norm = numbers.normal(0, 1, 64).astype("<f4")
    keys: dict[str, str | int | float] = {"general.architecture": "llama", **({gguf.FILE_TYPE: 3} if file_type else {})}
    with path.open("wb") as file:
        packed = b"".join(gguf.packed(key, value) for key, value in keys.items())
        tensors = [("a.weight", (64, 6), int(GGMLQuantizationType.Q4_1)), ("b.weight", (40, 3), gguf.F16), ("n.weight", (64,), gguf.F32)]
        gguf.write_header(file, packed, len(keys), tensors)
        for array in (rows, half, norm):
            gguf.write_tensor(file, array)
    return {"a.weight": dequantize(rows, GGMLQuantizationType.Q4_1), "b.weight": half, "n.weight": norm}


def test_matrices_in_blocks_are_written_anew_and_all_else_stays(tmp_path: Path) -> None:
    values = made(tmp_path / "in.gguf")
    out = tmp_path / "out.gguf"
    requantize(tmp_path / "in.gguf", "q8_0", out, Event())
    header = gguf.read_header(out)
    assert header.metadata == {"general.architecture": "llama", gguf.FILE_TYPE: 7}
    assert {i.name: (i.dims, i.kind) for i in header.tensors.values()} == {
        "a.weight": ((64, 6), gguf.Q8_0), "b.weight": ((40, 3), gguf.F16), "n.weight": ((64,), gguf.F32),
    }  # fmt: skip
    a = dequantize(gguf.read_rows(out, header, header.tensors["a.weight"]), GGMLQuantizationType.Q8_0)
    blocks, given = a.reshape(-1, 32), values["a.weight"].reshape(-1, 32)
    largest = np.abs(given).max(axis=1, keepdims=True)
    assert (np.abs(blocks - given) <= largest / 254 + largest / 1000).all(), "half a step, and the scale in half precision"
    assert gguf.read_rows(out, header, header.tensors["b.weight"]).tobytes() == values["b.weight"].tobytes()
    assert gguf.read_rows(out, header, header.tensors["n.weight"]).tobytes() == values["n.weight"].tobytes()


def test_what_is_in_such_blocks_already_stays_as_it_is(tmp_path: Path) -> None:
    made(tmp_path / "in.gguf")
    requantize(tmp_path / "in.gguf", "q8_0", tmp_path / "once.gguf", Event())
    requantize(tmp_path / "once.gguf", "q8_0", tmp_path / "twice.gguf", Event())
    assert (tmp_path / "twice.gguf").read_bytes() == (tmp_path / "once.gguf").read_bytes()


@pytest.mark.parametrize("cut", [3, 60, 400])
def test_a_file_that_was_not_copied_whole_is_named(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "in.gguf"
    made(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UnreadableWeights, match=r"in\.gguf|copied whole"):
        requantize(path, "q8_0", tmp_path / "out.gguf", Event())


def test_a_file_that_does_not_say_its_type_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "in.gguf", file_type=False)
    with pytest.raises(UnreadableWeights, match=r"general\.file_type"):
        requantize(tmp_path / "in.gguf", "q8_0", tmp_path / "out.gguf", Event())


def test_it_stops_between_two_tensors(tmp_path: Path) -> None:
    made(tmp_path / "in.gguf")
    stop = Event()
    stop.set()
    with pytest.raises(WritingStopped):
        requantize(tmp_path / "in.gguf", "q8_0", tmp_path / "out.gguf", stop)
