"""What was given, and the name that was meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_SHOWN = 200


def shown(given: Any) -> str:
    """What somebody gave, as an error tells it: somebody may have given a megabyte."""
    text = repr(given)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def nearest(word: str, names: Iterable[str], prefix: str = "") -> str:
    """A helping half sentence for a name that does not exist: ` (did you mean 'x'?)`, `prefix` before the x, or nothing."""
    import difflib  # late: only mistakes need it

    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f" (did you mean {prefix + lower[found[0]]!r}?)" if found else ""
