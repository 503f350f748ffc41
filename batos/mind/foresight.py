"""Which persona is likely to be asked next by a user: a table of who came after whom, in which the past fades.

It is not stored: the ledger names the personas of the last missions, and the table is made from those at each start.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

from batos.image import ledger

FADE = 0.95  # what is left of older observations at each new one after the same persona
LIKELY = 0.2  # least share of the cases
REMEMBERED = 200  # missions; of a first observation 0.95 ** 200 is left


class Foresight:
    """Counts transitions between personas."""

    def __init__(self) -> None:
        self._after: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._last: str | None = None

    def note(self, persona: str) -> None:
        """A mission of this persona begins."""
        if self._last is not None:
            row = self._after[self._last]
            for name in row:
                row[name] *= FADE
            row[persona] = row.get(persona, 0.0) + 1.0
        self._last = persona

    def likely(self) -> list[str]:
        """The personas that are likely to come next, the likeliest first."""
        row = self._after.get(self._last or "", {})
        total = sum(row.values())
        return sorted((name for name in row if row[name] >= LIKELY * total), key=lambda name: (-row[name], name))


def recent_personas(root: Any) -> list[str]:
    """The personas of the last missions, oldest first: what `Foresight` is filled with at the start."""
    missions = (m for m in itertools.islice(ledger.newest_first(root), REMEMBERED) if m.origin != "system")
    named = [m.persona or (json.loads(m.result).get("persona") if m.result else None) for m in missions]
    return [str(name).lower() for name in reversed(named) if name]
