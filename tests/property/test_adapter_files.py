"""Adapter files from anywhere: whatever their bytes are, they are an adapter or they are refused; nothing else happens."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from batos.bridge.lora import adapters
from batos.bridge.lora.adapters import Unfit
from tests.support.lora import BASE, peft, weights


@functools.cache
def whole() -> tuple[bytes, bytes]:
    """A small PEFT adapter's weights, and the same as GGUF."""
    with tempfile.TemporaryDirectory() as name:
        folder = peft(Path(name), weights(layers=1, rank=1))
        adapters.write_gguf(adapters.read(folder), BASE, folder / "x.gguf")
        return (folder / adapters.WEIGHTS).read_bytes(), (folder / "x.gguf").read_bytes()


def read(weights_file: bytes | None, gguf_file: bytes | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if weights_file is not None:
            peft(folder, {})
            (folder / adapters.WEIGHTS).write_bytes(weights_file)
        if gguf_file is not None:
            (folder / "x.gguf").write_bytes(gguf_file)
        adapter = adapters.read(folder)
        adapters.check(adapter, BASE)


def refused(weights_file: bytes | None, gguf_file: bytes | None) -> bool:
    try:
        read(weights_file, gguf_file)
    except Unfit:
        return True
    return False


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_cut_anywhere_it_is_refused(data: st.DataObject) -> None:
    peft_file, gguf_file = whole()
    assert refused(peft_file[: data.draw(st.integers(0, len(peft_file) - 1))], None)
    # A GGUF file may end in padding: without it, it is whole.
    assert refused(None, gguf_file[: data.draw(st.integers(0, len(gguf_file) - 33))])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 600), st.binary(min_size=1, max_size=16))
def test_changed_anywhere_in_its_header_it_is_an_adapter_or_refused(at: int, change: bytes) -> None:
    peft_file, gguf_file = whole()
    refused(peft_file[:at] + change + peft_file[at + len(change) :], None)
    refused(None, gguf_file[:at] + change + gguf_file[at + len(change) :])
