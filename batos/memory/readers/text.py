"""Plain text."""

from __future__ import annotations

import pathlib

from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import dates


def read_text(path: pathlib.PurePath, text: str) -> Draft:
    """The whole text as one part; its day is that in its name, if there is one."""
    return Draft("text", path.stem, [DraftPart(text)], day=dates.in_name(path.stem))
