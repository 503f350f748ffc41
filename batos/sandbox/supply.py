"""What the interpreter of the sandbox lacks and methods use: supplied as text that runs in the sandbox, at no cost to the host.

`FUNCTIONS` maps `module.name` to a definition of `_b_module_name`; only what a method names is put before it.
"""

from __future__ import annotations

import re

from batos.sandbox.supplied_classes import TEXT as CLASSES_TEXT
from batos.sandbox.supplied_codecs import TEXT as CODECS_TEXT
from batos.sandbox.supplied_lines import TEXT as LINES_TEXT
from batos.sandbox.supplied_methods import ATTRIBUTES_TEXT
from batos.sandbox.supplied_methods import TEXT as METHODS_TEXT
from batos.sandbox.supplied_modules import TEXT as MODULES_TEXT
from batos.sandbox.supplied_texts import TEXT as TEXTS_TEXT

NATIVE = frozenset(
    [
        "asyncio",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "functools",
        "hashlib",
        "itertools",
        "json",
        "math",
        "random",
        "re",
        "time",
        "tomllib",
        "typing",
        "unicodedata",
    ]
)
"""Modules of the interpreter itself that a method may import. Those that ask the host for anything (os, sys, pathlib) are left out."""


def _functions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in re.split(r"^# (?=[\w.]+$)", text, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        found[name] = text
    return found


FUNCTIONS = _functions(MODULES_TEXT) | _functions(CLASSES_TEXT) | _functions(TEXTS_TEXT) | _functions(LINES_TEXT) | _functions(CODECS_TEXT)
METHOD_TEXTS, _ATTRIBUTE_TEXTS = _functions(METHODS_TEXT), _functions(ATTRIBUTES_TEXT)
_ALL = FUNCTIONS | {f"x.{name}": text for name, text in (METHOD_TEXTS | _ATTRIBUTE_TEXTS).items()}
ALIASES = {"urllib.parse": "urls"}
"""Modules whose names have dots, and what `FUNCTIONS` calls them."""
MODULES = {name.partition(".")[0] for name in FUNCTIONS} - NATIVE - {"builtins", *ALIASES.values()} | ALIASES.keys()
"""Modules that are supplied as far as `FUNCTIONS` goes, and that the interpreter does not have."""


def member(module: str, name: str) -> str:
    """What `FUNCTIONS` calls a member of a module."""
    return f"{ALIASES.get(module, module)}.{name}"


def with_needs(names: set[str]) -> list[str]:
    """The texts for `names` and for what they need in turn, in the order of the tables.

    :param names: `module.name`, or `x.name` for a method of builtin types.
    """
    wanted = set(names)
    todo = list(names)
    while todo:
        text = _ALL[todo.pop()]
        for module, name in re.findall(r"_b_([a-z]+)_(\w+)", text):
            needed = f"{module}.{name}"
            if needed in _ALL and needed not in wanted:
                wanted.add(needed)
                todo.append(needed)
    return [text for name, text in _ALL.items() if name in wanted]


METHODS = frozenset(METHOD_TEXTS)
"""Methods of builtin types that the interpreter lacks; a method that sends one has `_b_x_<name>` before it."""
ATTRIBUTES = frozenset(_ATTRIBUTE_TEXTS)
"""Attributes of builtin types that it lacks, in the same way."""
