"""Bound of the depth of YAML: its parser, which is written in C, takes stack for each level, and ends the process without more."""

from __future__ import annotations

import re

DEEPEST = 2000
"""Greatest number of levels; JSON is read to half of it."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_OPENING = frozenset(b"[{")
_INDENTED = re.compile(rb"[ \t?:\x00-]{%d}" % DEEPEST)


def check_depth(data: bytes) -> None:
    """Look whether a text of YAML may be nested too deep, without reading it: each level takes a bracket, or a column of its line.

    :raises ValueError: if it may.
    """
    if _INDENTED.search(data) is not None:
        raise ValueError(f"it may be nested too deep: a line of it is indented by {DEEPEST} columns")
    depth = 0
    for byte in data.translate(None, _OTHERS):
        depth += 1 if byte in _OPENING else -1
        depth = max(depth, 0)
        if depth > DEEPEST:
            raise ValueError(f"it may be nested too deep: {DEEPEST} brackets more are opened than closed")
