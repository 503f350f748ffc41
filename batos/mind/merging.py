"""What a new codex changes in a persona that has lived: a merge of three, slot by slot.

The three are what the codex said when the slot was last as the codex had it (kept as a digest), what the image holds
now, and what the codex says now. What the image has changed or deleted itself is left as it is, and reported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from batos.objects import Intent

CHANGED = "changed in the image"
DELETED = "deleted in the image"
OWN = "the image has a slot of its own under this name"
DROPPED = "no longer in the codex, but changed in the image"


class Merged(NamedTuple):
    """What is to be done, and what was left alone."""

    store: dict[str, Any]
    remove: tuple[str, ...]
    said: dict[str, str]
    """By slot: the digest of what codex and image last agreed on."""
    kept: dict[str, str]
    """By slot: why the image does not hold what the codex says."""


def digest(value: object) -> str | None:
    """The digest of a value such as a codex has: a text, texts, an Intent, yes or no. None for any other."""
    content: Any = value.text if isinstance(value, Intent) else value
    if not (isinstance(content, str | bool) or (type(content) is tuple and all(isinstance(text, str) for text in content))):
        return None
    return hashlib.sha256(json.dumps([type(value).__name__, content]).encode()).hexdigest()[:32]


def merge(said: Mapping[str, str], image: Mapping[str, Any], codex: Mapping[str, Any]) -> Merged:
    """Merge the slots of one persona.

    :param said: `Merged.said` of the last time; empty for the first.
    :param image: the persona's own slots; those of which the codex never spoke do not matter.
    :param codex: the slots as the codex has them now.
    """
    found = Merged({}, (), dict(said), {})
    remove = []
    for name in {**codex, **said}:
        was, new = said.get(name), digest(codex[name]) if name in codex else None
        if name not in image:
            _missing(found, name, was, new, codex)
        elif digest(image[name]) == new is not None:
            found.said[name] = new
        elif was is None or digest(image[name]) != was:
            found.kept[name] = DROPPED if new is None else CHANGED if was else OWN
        elif new is None:
            remove.append(name)
            del found.said[name]
        else:
            found.store[name] = codex[name]
            found.said[name] = new
    return found._replace(remove=tuple(remove))


def _missing(found: Merged, name: str, was: str | None, new: str | None, codex: Mapping[str, Any]) -> None:
    """A slot that the image does not have."""
    if new is None:  # nor the codex any more
        found.said.pop(name)
    elif was is None:
        found.store[name], found.said[name] = codex[name], new
    else:
        found.kept[name] = DELETED
