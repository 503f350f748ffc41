"""Modelfiles: the text that describes a model, as `ollama create` reads it and `ollama show` writes it; and names of models.

The syntax is Ollama's: one instruction a line, its name in any case. `#` opens a comment at the start of a line only. A value in `"..."` or
three double quotes may run over several lines. It ends at a line that ends with the same quotes; there are no escapes. FROM may be repeated
for further files (a projector), and so may ADAPTER, LICENSE, MESSAGE and `PARAMETER stop`.

Ollama accepts a model's name in many spellings, and lists it in one. `SmolLM2:Embedded`, `library/smollm2:embedded` and
`registry.ollama.ai/library/smollm2:embedded` are one model. Case is ignored, Ollama's own registry and library may be left out, and
`latest` is the default tag (ollama/types/model/name.go).
"""

from __future__ import annotations

import codecs
import math
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batos.errors import ModelfileError

_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_SCHEMES = ("https://", "http://")
_REGISTRY, _LIBRARY, _TAG = "registry.ollama.ai/", "library/", "latest"


def tagged(name: str) -> str:
    """Return a model's name in the form in which names are compared: `Robin` becomes `robin:latest`. A pull uses the original name."""
    bare = name.strip().translate(_SMALL)
    for scheme in _SCHEMES:
        bare = bare.removeprefix(scheme)
    bare = bare.removeprefix(_REGISTRY)
    if bare.startswith(_LIBRARY) and bare.count("/") == 1:
        bare = bare.removeprefix(_LIBRARY)
    last = bare.rpartition("/")[2]
    return bare + ("" if ":" in last else f":{_TAG}") + (_TAG if last.endswith(":") else "")


ROLES = ("system", "user", "assistant")
_MANY = ("from", "adapter", "license")
_INSTRUCTIONS = ("from", "adapter", "template", "system", "parameter", "message", "license", "renderer", "parser", "requires")
_NEVER_EMPTY = ("from", "adapter", "requires")

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
"""Parameters that Ollama knows -> their types. Those of older versions are among them, since older models still show them."""

DEPRECATED = (
    "penalize_newline", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mlock", "mirostat", "mirostat_tau", "mirostat_eta",
)  # fmt: skip
"""Parameters that Ollama 0.17 accepts and ignores."""

_TRUTH = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_INT = re.compile(r"[+-]?[0-9]+")
_SHOWN_INT = re.compile(r"-?[0-9](\.[0-9]+)?e\+[0-9]{2}")
"""Matches how Ollama shows an integer of seven digits or more; it takes none in this form."""
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INT_LIMIT, _FLOAT_LIMIT = 2**63, 3.4028235e38  # limits of 64-bit integers and 32-bit floats
_VERSION = re.compile(r"v?(?P<number>[0-9]+(\.[0-9]+(\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?)?)")
_LINE_END = re.compile(r"(\r\n|\r|\n)")
_INSTRUCTION = re.compile(r"[ \t]*(?P<word>[^ \t]+)(?P<rest>[ \t].*)?", re.DOTALL)
# Characters that Ollama trims from a value: Unicode's white space. (str.strip() would trim the separators 0x1c to 0x1f as well.)
_BLANK = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


@dataclass(frozen=True, slots=True)
class Modelfile:
    """Content of a Modelfile. `None` and empty values are inherited from the base.

    `from_` names a model, a file or a folder; `also_from` are files beside it.
    """

    from_: str
    also_from: tuple[str, ...] = ()
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
        """Return the text of it: `parse` reads the same value back.

        :raises ModelfileError: for a text that the syntax cannot say: a line of it, not the last, ends in three double quotes.
        """
        lines: list[str] = []

        def say(instruction: str, value: str) -> None:
            lines.append(f"{instruction} {_quote(instruction, value, len(lines) + 1)}")

        for value in (self.from_, *self.also_from):
            say("FROM", value)
        for value in self.adapters:
            say("ADAPTER", value)
        for name in ("template", "system", "renderer", "parser", "requires"):
            if (value := getattr(self, name)) is not None:
                say(name.upper(), value)
        for name, given in sorted(self.parameters.items()):
            for one in given if isinstance(given, list) else [given]:
                say(f"PARAMETER {name}", _show(one))
        for role, content in self.messages:
            say(f"MESSAGE {role}", content)
        for text in self.licenses:
            say("LICENSE", text)
        return "\n".join(lines) + "\n"


def read_modelfile(path: Path) -> Modelfile:
    """Read the Modelfile at `path`: UTF-8, or UTF-16 with its mark, with line ends of any system.

    :raises ModelfileError: as `parse`.
    :raises OSError, UnicodeDecodeError: if it cannot be read.
    """
    data = path.read_bytes()
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return parse_modelfile(data.decode("utf-16" if wide else "utf-8").replace("\r\n", "\n").replace("\r", "\n"))


def parse_modelfile(text: str) -> Modelfile:
    """Read a Modelfile.

    :raises ModelfileError: with the line where the instruction at fault begins.
    """
    said: dict[str, Any] = {}
    many: dict[str, list[str]] = {name: [] for name in _MANY}
    parameters: dict[str, Any] = {}
    messages: list[tuple[str, str]] = []
    for line, name, head, value in _instructions(text.removeprefix("\ufeff")):
        if name == "parameter":
            _add_parameter(parameters, head, value, line)
        elif name == "message":
            if head not in ROLES:
                raise ModelfileError(f"MESSAGE of the role {head!r}; a role is one of {', '.join(ROLES)}", line)
            messages.append((head, value))
        elif name in _NEVER_EMPTY and not value:
            raise ModelfileError(f"{name.upper()} without a value", line)
        elif name in _MANY:
            many[name].append(value)
        else:
            said[name] = _version(value, line) if name == "requires" else value
    if not many["from"]:
        raise ModelfileError("no FROM: a Modelfile names the model that it builds on", 1 + text.count("\n"))
    first, *others = many["from"]
    return Modelfile(
        from_=first,
        also_from=tuple(others),
        adapters=tuple(many["adapter"]),
        licenses=tuple(many["license"]),
        parameters=parameters,
        messages=tuple(messages),
        **said,
    )


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Return the lines of a text, each with what ends it."""
    parts = _LINE_END.split(text)
    return zip(parts[::2], [*parts[1::2], ""], strict=True)


def _instructions(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield line, name in lower case, head (a parameter's name, a message's role) and value of each instruction."""
    lines = enumerate(_lines(text), 1)
    for number, (line, end) in lines:
        parts = _INSTRUCTION.fullmatch(line)
        if parts is None or parts["word"].startswith("#"):
            continue
        name, rest = parts["word"].lower(), parts["rest"]
        if name not in _INSTRUCTIONS:
            known = ", ".join(i.upper() for i in _INSTRUCTIONS)
            raise ModelfileError(f"{parts['word']!r} is not an instruction; known are {known}", number)
        if rest is None:
            raise ModelfileError(f"{name.upper()} without a value", number)
        head = ""
        if name in ("parameter", "message"):
            pair = _INSTRUCTION.fullmatch(rest)
            if pair is None or pair["rest"] is None:
                raise ModelfileError(f"{name.upper()} needs a {'name and a value' if name == 'parameter' else 'role and a text'}", number)
            head, rest = pair["word"], pair["rest"]
        value = _value(rest, end, (more for _, more in lines))
        if value is None:
            raise ModelfileError(f"the quotes opened by {name.upper()} are never closed", number)
        yield number, name, head, value


def _value(rest: str, end: str, more: Iterator[tuple[str, str]]) -> str | None:
    """Return the value that begins with `rest` and goes on over lines while its quotes are open; None if they stay so."""
    first = rest.strip(_BLANK)
    quotes = '"""' if first.startswith('"""') else '"' if first.startswith('"') else ""
    if not quotes:
        return first
    if len(first) >= 2 * len(quotes) and first.endswith(quotes):
        return first[len(quotes) : -len(quotes)]
    parts = [rest.lstrip(_BLANK)[len(quotes) :], end]
    for line, line_end in more:
        last = line.rstrip(_BLANK)
        if last.endswith(quotes):
            return "".join([*parts, last[: -len(quotes)]])
        parts += [line, line_end]
    return None


def _quote(instruction: str, value: str, line: int) -> str:
    """Return the first form of a value that reads back unchanged: unquoted, in quotes, in triple quotes."""
    for quotes in ("", '"', '"""') if value else ('"',):
        lines = _lines(quotes + value + quotes)
        if _value(*next(lines), lines) == value and next(lines, None) is None:
            return quotes + value + quotes
    raise ModelfileError(f"{instruction}: no quotes can hold a text with such quotes at the end of a line: {value[:40]!r}", line)


def _version(value: str, line: int) -> str:
    found = _VERSION.fullmatch(value)
    if found is None:
        raise ModelfileError(f"REQUIRES names a version of Ollama, as 0.14.0; got {value!r}", line)
    return found["number"]


def _add_parameter(parameters: dict[str, Any], name: str, value: str, line: int) -> None:
    kind = PARAMETER_TYPES.get(name)
    if kind is None:
        raise ModelfileError(f"unknown parameter {name!r}", line)
    if kind is list:
        parameters.setdefault(name, []).append(value)
        return
    read = _typed(kind, value)
    if read is None:
        raise ModelfileError(f"PARAMETER {name} is of the type {kind.__name__}; got {value!r}", line)
    parameters[name] = read


def _typed(kind: type, value: str) -> bool | int | float | None:
    if kind is bool:
        return _TRUTH.get(value)
    found = float(value) if _FLOAT.fullmatch(value) else math.inf
    if kind is int:
        shown = found.is_integer() and _SHOWN_INT.fullmatch(value)
        whole = int(value) if _INT.fullmatch(value) else int(found) if shown else _INT_LIMIT + 1
        return whole if abs(whole) <= _INT_LIMIT else None
    return found if abs(found) <= _FLOAT_LIMIT else None


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
