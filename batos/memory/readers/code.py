"""Source code: a part between two places where lines begin a definition at the margin, small ones together."""

from __future__ import annotations

import pathlib
import re

from batos.memory.drafts import Draft, DraftPart

_DEFINITION = re.compile(
    r"^(?:@|(?:export |pub(?:\([^)]*\))? |public |private |static |async |abstract |final |unsafe |extern )*"
    r"(?:def|class|fn|func|function|struct|enum|impl|trait|interface|module|type|object|namespace)\b)[^\n]*",
    re.MULTILINE,
)
_NAME = re.compile(r"(?:def|class|fn|func|function|struct|enum|impl|trait|interface|module|type|object|namespace)\s+([\w.:<>]+)")
_TOGETHER = 2000  # characters up to which definitions share a part


def read_code(path: pathlib.PurePath, text: str) -> Draft:
    """Its definitions; the name of each part is that of its first one."""
    starts = [match.start() for match in _DEFINITION.finditer(text)]
    parts, begin = [], 0
    for at in [*starts[1:], len(text)]:
        if at - begin >= _TOGETHER or at == len(text):
            piece = text[begin:at]
            named = _NAME.search(piece)
            parts.append(DraftPart(piece, named[1] if named else ""))
            begin = at
    return Draft("code", path.name, parts)
