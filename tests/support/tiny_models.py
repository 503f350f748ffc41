"""Small models of several architectures for a real Ollama: a test says what one writes, token by token.

Attention and feed-forward layers are there with random weights, but add nothing to what runs past them: the next token depends on the last
one only. A script, in which no token comes twice, is written from its beginning after any prompt, and then the text ends. Where a grammar
forbids that, the model writes whatever the grammar lets it. One that sees begins with a word for a picture that is bright, and another for
one that is dark: its first layer carries how bright the pixels are to all that comes after them. The tokenizer is that of the installed
SmolLM2; a piece of a script that its vocabulary does not have is added to it.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batos.bridge.client import connect
from batos.bridge.model_builder import blob_digest, upload_blob
from batos.bridge.profiles import load_profile

if TYPE_CHECKING:
    import gguf

WIDTH, HEADS, FEED, LAYERS = 64, 2, 96, 2
HEAD = WIDTH // HEADS
CONTEXT = 4096
_STATES = WIDTH - 4  # tokens of a script at most
_SPECIAL = {" ": "Ġ", "\n": "Ċ"}


@dataclass(frozen=True)
class Kind:
    """An architecture, and how its models speak: a template, or a renderer and a parser that are Ollama's own."""

    architecture: str
    template: str = ""
    renderer: str = ""
    parser: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    sees: bool = False


# Each in the form of its family, with its own marks.
CHATML = """{{- $lastUser := -1 -}}
{{- range $i, $m := .Messages }}{{ if eq $m.Role "user" }}{{ $lastUser = $i }}{{ end }}{{ end -}}
{{- if or .System .Tools }}<|im_start|>system
{{ .System }}{{ if .Tools }}
# Tools
{{ range .Tools }}{{ . }}
{{ end }}{{ end }}<|im_end|>
{{ end }}
{{- range $i, $_ := .Messages }}{{- $last := eq (len (slice $.Messages $i)) 1 -}}
{{- if eq .Role "user" }}<|im_start|>user
{{ .Content }}{{ if and $.IsThinkSet (eq $i $lastUser) }}{{ if $.Think }} /think{{ else }} /no_think{{ end }}{{ end }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ if and $.IsThinkSet .Thinking -}}
<think>{{ .Thinking }}</think>
{{ end -}}
{{ .Content }}{{ range .ToolCalls }}<tool_call>{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}</tool_call>{{ end }}
{{- if not $last }}<|im_end|>
{{ end }}{{ end }}
{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant
{{ if and $.IsThinkSet (not $.Think) }}<think>

</think>

{{ end }}{{ end }}{{ end }}"""
GEMMA = """{{- range $i, $_ := .Messages }}{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if or (eq .Role "user") (eq .Role "system") }}<start_of_turn>user
{{ .Content }}<end_of_turn>
{{ else }}<start_of_turn>model
{{ .Content }}<end_of_turn>
{{ end }}{{ if $last }}<start_of_turn>model
{{ end }}{{ end }}"""
LLAMA = """{{- if or .System .Tools }}<|start_header_id|>system<|end_header_id|>

{{ .System }}{{ if .Tools }}You may call tools.{{ range .Tools }}
{{ . }}{{ end }}{{ end }}<|eot_id|>{{ end }}
{{- range .Messages }}{{ if ne .Role "system" }}<|start_header_id|>{{ .Role }}<|end_header_id|>

{{ .Content }}{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", "parameters": {{ .Function.Arguments }}}{{ end }}<|eot_id|>{{ end }}
{{- end }}<|start_header_id|>assistant<|end_header_id|>

"""
MISTRAL = """{{- range $i, $_ := .Messages }}{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "system" }}[SYSTEM_PROMPT]{{ .Content }}[/SYSTEM_PROMPT]
{{- else if eq .Role "user" }}[INST]{{ .Content }}[/INST]
{{- else }}{{ .Content }}{{ if not $last }}</s>{{ end }}{{ end }}{{ end }}"""
HARMONY = """<|start|>system<|message|>Reasoning: {{ if .ThinkLevel }}{{ .ThinkLevel }}{{ else }}medium{{ end }}<|end|>
{{- range $i, $_ := .Messages }}{{- if eq .Role "user" }}<|start|>user<|message|>{{ .Content }}<|end|>
{{- else if eq .Role "system" }}<|start|>developer<|message|>{{ .Content }}<|end|>
{{- else }}<|start|>assistant{{ if .Thinking }}<|channel|>analysis<|message|>{{ .Thinking }}<|end|><|start|>assistant{{ end -}}
<|channel|>final<|message|>{{ .Content }}<|end|>{{ end }}{{ end }}{{ if .Tools }}{{ end }}<|start|>assistant"""

QWEN3 = Kind("qwen3", CHATML, parameters={"stop": ["<|im_start|>", "<|im_end|>"]})
QWEN3_PARSED = Kind("qwen3", renderer="qwen3-vl-thinking", parser="qwen3-vl-thinking")
GEMMA3 = Kind("gemma3", GEMMA, parameters={"stop": ["<end_of_turn>"]})
LLAMA32 = Kind("llama", LLAMA, parameters={"stop": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]})
GPT_OSS = Kind("gptoss", HARMONY)
OLMO3 = Kind("olmo3", renderer="olmo3", parser="olmo3")
MISTRAL3 = Kind("mistral3", MISTRAL, sees=True)
KINDS = {
    "mistral3": MISTRAL3, "qwen3": QWEN3, "qwen3-parsed": QWEN3_PARSED, "gemma3": GEMMA3, "llama3.2": LLAMA32, "gpt-oss": GPT_OSS,
    "olmo3": OLMO3,
}  # fmt: skip


HELLO = ("Hello", " there", ",", " <|im_end|>", " you", ".")
SAID = {
    "mistral3": HELLO,
    "qwen3": HELLO,
    "qwen3-parsed": ("hm", "</think>", *HELLO),
    "gemma3": HELLO,
    "llama3.2": HELLO,
    "gpt-oss": ("<|channel|>analysis<|message|>", "hm", "<|end|><|start|>assistant<|channel|>final<|message|>", *HELLO),
    "olmo3": HELLO,
}
"""What each of them says, whatever it is asked; with a stop mark of one family in the middle."""
BRIGHT, DARK = "Bright", "Dark"
"""What one that sees says before it, where there is a picture."""


@contextmanager
def created(host: str, folder: Path, kinds: Iterable[str]) -> Iterator[dict[str, str]]:
    """Models of these kinds at an Ollama, their names by kind; removed with the block, with what was made on them."""
    run = uuid.uuid4().hex[:8]
    made = {kind: f"tiny-{run}-{kind}:test" for kind in kinds}
    try:
        asyncio.run(_create(host, folder, made))
        yield made
    finally:
        asyncio.run(_remove(host, run))


async def _create(host: str, folder: Path, names: dict[str, str]) -> None:
    async with connect(host) as client:
        for kind, name in names.items():
            file = folder / f"{kind}.gguf"
            write(file, KINDS[kind].architecture, SAID[kind], sees=KINDS[kind].sees, name=name)
            await upload_blob(client, file, digest=blob_digest(file))
            said = {key: value for key in ("template", "renderer", "parser", "parameters") if (value := getattr(KINDS[kind], key))}
            body = {"model": name, "files": {file.name: blob_digest(file)}, "stream": False, **said}
            await client._request_raw("POST", "/api/create", json=body)


async def _remove(host: str, run: str) -> None:
    async with connect(host) as client:
        for listed in (await client.list()).models:
            if run in (listed.model or ""):
                await client.delete(listed.model or "")


def write(path: Path, architecture: str, script: Sequence[str], *, sees: bool = False, name: str = "") -> None:
    """Write the weights of a model that says `script`, a token each piece: `["<think>", "hm", "</think>", "Hello", " there"]`.

    :param sees: whether it sees, and says `BRIGHT` or `DARK` before it.
    :param name: is in the file, which so is no other test's: Ollama deletes a file with the last model that has it, and another one may
        have been told just before that it need not be sent.
    """
    import gguf
    import numpy as np

    assert len(set(script)) == len(script) <= _STATES, f"a token twice, or too many: {script}"
    tokens, values = _tokenizer()
    pieces = ["".join(_SPECIAL.get(c, c) for c in piece) for piece in (*script, *((BRIGHT, DARK) if sees else ()))]
    added = [piece for piece in pieces if piece not in tokens]
    tokens = {**tokens, **{piece: len(tokens) + at for at, piece in enumerate(added)}}
    values = {
        **values,
        "tokenizer.ggml.tokens": [*values["tokenizer.ggml.tokens"], *added],
        "tokenizer.ggml.token_type": [*values["tokenizer.ggml.token_type"], *[1] * len(added)],
    }
    said = [tokens[piece] for piece in pieces[: len(script)]]
    random = np.random.default_rng(1)
    embedding = np.zeros((len(tokens), WIDTH), np.float32)
    embedding[:, 0] = 1  # wherever nothing else is said, the script begins
    output = np.zeros_like(embedding)
    chain = [*said, int(values["tokenizer.ggml.eos_token_id"])]
    output[chain[0], 0] = 10
    for state, (token, following) in enumerate(itertools.pairwise(chain), 1):
        embedding[token, state] = 2
        output[following, state] = 30
    if sees:
        embedding[said, 1:] *= 3  # what was said counts more than what is seen
        for piece, side in ((BRIGHT, 1), (DARK, -1)):
            embedding[tokens[piece], _AFTER] = 6
            output[tokens[piece], _BRIGHTNESS] = 20 * side
        output[chain[0], 0], output[chain[0], _AFTER] = 1, 30
    writer = gguf.GGUFWriter(path, architecture)
    _describe(writer, architecture, values)
    writer.add_name(name)
    writer.add_tensor("token_embd.weight", embedding.astype(np.float16))
    writer.add_tensor("output.weight", output.astype(np.float16))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for name, shape in _layer(architecture).items():
            weights = random.normal(0, 0.02, shape) if name not in _SILENT else np.zeros(shape)
            weights = np.ones(shape) if "norm" in name else weights
            if sees and layer == 0 and name in _CARRIED:
                weights = np.zeros(shape)
                weights[_CARRIED[name]] = 1
            writer.add_tensor(f"blk.{layer}.{name}", weights.astype(np.float32 if len(shape) == 1 else np.float16))
    if sees:
        for name, weights in _eye().items():
            writer.add_tensor(name, weights.astype(np.float32 if weights.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_SILENT = {"attn_output.weight", "attn_out.weight", "ffn_down.weight", "ffn_down_exps.weight"}
"""What the layers add, they add through these."""


_AFTER, _BRIGHTNESS, _SEEN = WIDTH - 3, WIDTH - 2, WIDTH - 1
"""States of one that sees: that it said how bright it is; how bright what came before was; how bright this piece of a picture is."""
_CARRIED = {"attn_v.weight": (0, _SEEN), "attn_output.weight": (_BRIGHTNESS, 0)}
"""The weights of the first layer that carry the one to the other, from all places alike."""
_PATCH, _EDGE, _EYE = 8, 128, 32
"""Pixels of a patch and of a picture, each way, and the width of what sees. Four patches are one token, each row has one more."""


def _eye() -> dict[str, Any]:
    """The tensors of what sees: how bright a patch is goes through all of them, and nothing else."""
    import numpy as np

    def only(rows: int, columns: int, **at: tuple[int, slice | int, float]) -> Any:
        found = np.zeros((rows, columns))
        for row, column, value in at.values():
            found[row, column] = value
        return found

    conv = np.zeros((_EYE, 3, _PATCH, _PATCH))
    conv[0] = 1 / (3 * _PATCH * _PATCH)
    made = {"v.patch_conv.weight": conv, "v.encoder_norm.weight": np.ones(_EYE), "mm.norm.weight": np.ones(_EYE)}
    for name, shape in (("attn_q", (_EYE, _EYE)), ("attn_k", (_EYE, _EYE)), ("attn_v", (_EYE, _EYE)), ("attn_output", (_EYE, _EYE))):
        made[f"v.blk.0.{name}.weight"] = np.zeros(shape)
    for name, shape in (("ffn_gate", (FEED, _EYE)), ("ffn_up", (FEED, _EYE)), ("ffn_down", (_EYE, FEED))):
        made[f"v.blk.0.{name}.weight"] = np.zeros(shape)
    made |= {f"v.blk.0.{name}.weight": np.ones(_EYE) for name in ("attn_norm", "ffn_norm")}
    made["mm.patch_merger.merging_layer.weight"] = only(_EYE, 4 * _EYE, mean=(0, slice(0, 4), 0.25))
    made["mm.linear_1.weight"] = only(WIDTH, _EYE, bright=(0, 0, 1.0), dark=(1, 0, -1.0))  # what follows lets only one of them pass
    made["mm.linear_2.weight"] = only(WIDTH, WIDTH, bright=(_SEEN, 0, 1.0), dark=(_SEEN, 1, -1.0))
    return made


def _layer(architecture: str) -> dict[str, tuple[int, ...]]:
    """The tensors of a layer, with their shapes."""
    square, feed = (WIDTH, WIDTH), (FEED, WIDTH)
    shapes: dict[str, tuple[int, ...]] = {f"attn_{name}.weight": square for name in "qkv"}
    if architecture == "gptoss":
        experts = {f"ffn_{name}_exps.weight": (4, *feed) for name in ("gate", "up")}
        rest = {
            "attn_out.weight": square,
            "attn_sinks": (HEADS,),
            "ffn_gate_inp.weight": (4, WIDTH),
            "ffn_down_exps.weight": (4, WIDTH, FEED),
        }
        return {**shapes, **experts, **rest, "attn_norm.weight": (WIDTH,), "ffn_norm.weight": (WIDTH,)}
    shapes |= {"attn_output.weight": square, "ffn_gate.weight": feed, "ffn_up.weight": feed, "ffn_down.weight": (WIDTH, FEED)}
    normed = {
        "llama": ("attn_norm", "ffn_norm"),
        "mistral3": ("attn_norm", "ffn_norm"),
        "qwen3": ("attn_norm", "ffn_norm"),
        "gemma3": ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"),
        "olmo3": ("post_attention_norm", "post_ffw_norm"),
    }[architecture]
    shapes |= {f"{name}.weight": (WIDTH,) for name in normed}
    by_head = {"qwen3": HEAD, "gemma3": HEAD, "olmo3": WIDTH}.get(architecture)
    if by_head:
        shapes |= {"attn_q_norm.weight": (by_head,), "attn_k_norm.weight": (by_head,)}
    return shapes


def _describe(writer: gguf.GGUFWriter, architecture: str, tokenizer: dict[str, Any]) -> None:
    figures: dict[str, int | float] = {
        "context_length": CONTEXT, "embedding_length": WIDTH, "block_count": LAYERS, "feed_forward_length": FEED,
        "attention.head_count": HEADS, "attention.head_count_kv": HEADS, "attention.key_length": HEAD, "attention.value_length": HEAD,
        "rope.dimension_count": HEAD, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10000.0,
        "attention.sliding_window": 128, "expert_count": 4, "expert_used_count": 2,
    }  # fmt: skip
    if architecture == "mistral3":
        figures |= {
            "vision.block_count": 1, "vision.embedding_length": _EYE, "vision.feed_forward_length": FEED, "vision.attention.head_count": 2,
            "vision.attention.key_length": _EYE // 2, "vision.image_size": _EDGE, "vision.longest_edge": _EDGE, "vision.patch_size": _PATCH,
            "vision.num_channels": 3, "spatial_merge_size": 2,
        }  # fmt: skip
    for name, value in figures.items():
        if "expert" in name and architecture != "gptoss":
            continue
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{architecture}.{name}", value)
    writer.add_file_type(1)
    if architecture in ("gemma3", "olmo3"):
        writer.add_array(f"{architecture}.attention.sliding_window_pattern", [True] * LAYERS)
    for name, value in tokenizer.items():
        add = {list: writer.add_array, str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}[type(value)]
        add(name, value)


@functools.cache
def _tokenizer() -> tuple[dict[str, int], dict[str, Any]]:
    """The tokens of SmolLM2 by their text, and what its file says of them."""
    import gguf

    (path,) = load_profile("embedded").models[0].paths().values()
    reader = gguf.GGUFReader(path)
    values = {name: f.contents() for name, f in reader.fields.items() if name.startswith("tokenizer.ggml.")}
    return {token: number for number, token in enumerate(values["tokenizer.ggml.tokens"])}, values
