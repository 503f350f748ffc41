"""Values of OpenAPI files: JSON, or YAML of version 1.2, where `on` and `2020-01-01` are texts, bounded in what they stand for."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import math
import re
from typing import Any

from batos.config import shown
from batos.errors import InvalidInput

DOCUMENT_BYTES = 32 << 20
"""Greatest size of a document."""
WRITTEN_OUT = 5_000_000
"""Greatest number of values of a YAML document, its aliases written out."""
YAML_DEPTH = 2000
"""Greatest depth of YAML; JSON is read to half of it."""
_FLOW_BYTES = 1 << 20
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_OPENING = frozenset(b"[{")
_INDENTED = re.compile(rb"[ \t?:\x00-]{%d}" % YAML_DEPTH)
_PLAIN_SCALARS = (
    ("tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    ("tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]{0,300})\Z"), "-+0123456789"),
    ("tag:yaml.org,2002:float", re.compile(r"[-+]?(?:(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{0,99})?(?:[eE][-+]?[0-9]{1,3})?)\Z"), "-+0123456789"),
    ("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
)  # fmt: skip


def value_of(data: bytes, place: str) -> Any:
    """Return the value that a file of JSON or YAML holds.

    :raises InvalidInput: if it is neither, too large, or nested too deep.
    """
    if len(data) > DOCUMENT_BYTES:
        raise InvalidInput(f"{shown(place)} has {len(data)} bytes; an OpenAPI document has at most {DOCUMENT_BYTES}")
    try:
        return _json(data) if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else _yaml(data)
    except RecursionError:
        raise InvalidInput(f"{shown(place)} is nested too deep for an OpenAPI document") from None
    except ValueError as e:
        raise InvalidInput(f"{shown(place)} is neither valid JSON nor valid YAML: {str(e)[:300]}") from None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as e:
        if len(data) > _FLOW_BYTES:
            raise
        with contextlib.suppress(ValueError):
            return _yaml(data)  # which may begin with a brace, too
        raise e from None


def check_depth(data: bytes) -> None:
    """Look whether a text of YAML may be nested too deep, without reading it: each level takes a bracket, or a column of its line. Its
    parser, which is written in C, takes stack for each level, and ends the process where there is no more.

    :raises ValueError: if it may.
    """
    if _INDENTED.search(data) is not None:
        raise ValueError(f"it may be nested too deep: a line of it is indented by {YAML_DEPTH} columns")
    depth = 0
    for byte in data.translate(None, _NO_BRACKETS):
        depth += 1 if byte in _OPENING else -1
        depth = max(depth, 0)
        if depth > YAML_DEPTH:
            raise ValueError(f"it may be nested too deep: {YAML_DEPTH} brackets more are opened than closed")


def _yaml(data: bytes) -> Any:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise InvalidInput("YAML is not read, for PyYAML is missing; give the document as JSON") from None
    check_depth(data)
    try:
        found = yaml.load(data, Loader=_loader())
    except yaml.YAMLError as e:
        raise ValueError(str(e)) from None
    if (size := _written_out(found, {})) > WRITTEN_OUT:
        raise ValueError(f"its aliases stand for {size} values; at most {WRITTEN_OUT} are allowed")
    return found


@functools.cache
def _loader() -> type[Any]:
    """Return PyYAML's loader, with the scalars of YAML 1.2."""
    yaml = importlib.import_module("yaml")
    safe: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    kept = {"tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"}
    resolvers = {first: [one for one in there if one[0] in kept] for first, there in safe.yaml_implicit_resolvers.items()}
    loader: type[Any] = type("_Yaml12", (safe,), {"yaml_implicit_resolvers": resolvers})
    for tag, pattern, first in _PLAIN_SCALARS:
        loader.add_implicit_resolver(tag, pattern, list(first))
    return loader


def _written_out(value: Any, known: dict[int, float]) -> float:
    """Return the number of values that a YAML document holds with each alias written out; infinite for one that holds itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = -1
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_written_out(one, known) for one in inner)
    return known[id(value)] if known[id(value)] >= 0 else math.inf
