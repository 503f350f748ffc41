"""Modelfiles: the text that describes a model, as `ollama create` reads it and `ollama show` writes it.

The syntax is Ollama's: one instruction a line, its name in any case; `#` opens a comment at the start of a line only; a value in
`"..."` or three double quotes may run over several lines and ends at a line that ends with the same quotes; there are no
escapes. `PARAMETER stop` may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from batos.errors import ModelfileError

ROLES = ("system", "user", "assistant")
_SINGLE = {"from": "from_", "system": "system", "template": "template", "renderer": "renderer", "parser": "parser", "requires": "requires"}
_MANY = {"adapter": "adapters", "license": "licenses"}
_INSTRUCTIONS = (*_SINGLE, *_MANY, "parameter", "message")

_INTS = "num_ctx num_batch num_gpu main_gpu num_thread num_keep num_predict seed top_k repeat_last_n mirostat num_gqa draft_num_predict"
_FLOATS = (
    "temperature top_p min_p typical_p repeat_penalty presence_penalty frequency_penalty mirostat_tau mirostat_eta tfs_z"
    " rope_frequency_base rope_frequency_scale"
)
_BOOLS = "use_mmap use_mlock low_vram f16_kv logits_all vocab_only embedding_only penalize_newline numa"
PARAMETER_TYPES: dict[str, type] = {
    **dict.fromkeys(_INTS.split(), int),
    **dict.fromkeys(_FLOATS.split(), float),
    **dict.fromkeys(_BOOLS.split(), bool),
    "stop": list,
}
"""Every parameter that Ollama knows, those of older versions included (models made then still show them)."""

_TRUTH = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}


@dataclass(frozen=True, slots=True)
class Modelfile:
    """What a Modelfile says. `None` and empty mean: not said, the base's holds."""

    from_: str
    adapters: tuple[str, ...] = ()
    system: str | None = None
    template: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    messages: tuple[tuple[str, str], ...] = ()
    licenses: tuple[str, ...] = ()
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None

    def render(self) -> str:
        """The text of it: `parse` reads the same value back."""
        lines = [f"FROM {self.from_}"]
        lines += [f"ADAPTER {a}" for a in self.adapters]
        for name in ("template", "system", "renderer", "parser", "requires"):
            if (value := getattr(self, name)) is not None:
                lines.append(f"{name.upper()} {_quote(value)}")
        for name, value in sorted(self.parameters.items()):
            lines += [f"PARAMETER {name} {_quote(_show(v))}" for v in (value if isinstance(value, list) else [value])]
        lines += [f"MESSAGE {role} {_quote(content)}" for role, content in self.messages]
        lines += [f"LICENSE {_quote(text)}" for text in self.licenses]
        return "\n".join(lines) + "\n"


def parse(text: str) -> Modelfile:
    """Read a Modelfile.

    :raises ModelfileError: with the line where the instruction at fault begins.
    """
    said: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    messages: list[tuple[str, str]] = []
    for line, name, rest in _instructions(text):
        if name == "parameter":
            _add_parameter(parameters, *_two(rest, "PARAMETER needs a name and a value", line), line)
        elif name == "message":
            role, content = _two(rest, "MESSAGE needs a role and a text", line)
            if role not in ROLES:
                raise ModelfileError(f"MESSAGE of the role {role!r}; a role is one of {', '.join(ROLES)}", line)
            messages.append((role, content))
        elif name in _MANY:
            said.setdefault(_MANY[name], []).append(_unquote(rest))
        else:
            said[_SINGLE[name]] = _unquote(rest)
    if not said.get("from_"):
        raise ModelfileError("no FROM: a Modelfile names the model that it builds on", 1 + text.count("\n"))
    for name in _MANY.values():
        said[name] = tuple(said.get(name, ()))
    return Modelfile(**said, parameters=parameters, messages=tuple(messages))


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, name in lower case, and the raw value of each instruction."""
    lines = iter(enumerate(text.split("\n"), 1))
    for number, raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.replace("\t", " ", 1).partition(" ")
        name, rest = word.lower(), rest.strip()
        if name not in _INSTRUCTIONS:
            raise ModelfileError(f"{word!r} is no instruction; known are {', '.join(i.upper() for i in _INSTRUCTIONS)}", number)
        if not rest:
            raise ModelfileError(f"{word.upper()} without a value", number)
        head, value = _split_head(name, rest)
        while not _complete(value.strip()):
            _, more = next(lines, (0, None))
            if more is None:
                raise ModelfileError(f"the quotes opened by {word.upper()} are never closed", number)
            value += "\n" + more
        yield number, name, f"{head} {value.strip()}" if head else value.strip()


def _split_head(name: str, rest: str) -> tuple[str, str]:
    """The parameter's name or the message's role, apart from the value: quotes begin after it."""
    if name not in ("parameter", "message"):
        return "", rest
    head, _, value = rest.replace("\t", " ", 1).partition(" ")
    return head, value.lstrip()


def _complete(value: str) -> bool:
    """Whether the quotes that open `value` are closed at its end; unquoted values always are."""
    if value.startswith('"""'):
        return len(value) >= 6 and value.endswith('"""')
    return not value.startswith('"') or (len(value) >= 2 and value.endswith('"'))


def _unquote(value: str) -> str:
    if value.startswith('"""'):
        return value[3:-3]
    return value[1:-1] if value.startswith('"') else value


def _quote(value: str) -> str:
    """The value so that `_unquote` gives it back. No escapes exist: three quotes can hold all but themselves at a line's end."""
    if value and value == value.strip() and not value.startswith('"') and "\n" not in value:
        return value
    return f'"""{value}"""'


def _two(rest: str, complaint: str, line: int) -> tuple[str, str]:
    head, _, value = rest.partition(" ")
    if not value:
        raise ModelfileError(complaint, line)
    return head, _unquote(value)


def _add_parameter(parameters: dict[str, Any], name: str, value: str, line: int) -> None:
    kind = PARAMETER_TYPES.get(name)
    if kind is None:
        raise ModelfileError(f"unknown parameter {name!r}", line)
    if kind is list:
        parameters.setdefault(name, []).append(value)
        return
    try:
        parameters[name] = _TRUTH[value.lower()] if kind is bool else kind(value)
    except (ValueError, KeyError):
        raise ModelfileError(f"PARAMETER {name} is of the type {kind.__name__}; got {value!r}", line) from None


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
