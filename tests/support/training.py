"""Models that are small enough to train in a test."""

from __future__ import annotations

from pathlib import Path

import pytest


def tiny(folder: Path) -> Path:
    """A folder with a model of two layers and a tokenizer of characters, as transformers reads them."""
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    config = transformers.LlamaConfig(
        vocab_size=200, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    letters = tokenizers.Tokenizer(tokenizers.models.WordLevel({chr(i): i for i in range(32, 127)} | {"\n": 10}, unk_token=" "))
    letters.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=letters, unk_token=" ").save_pretrained(folder)
    return folder
