"""Partial texts: what has come of inferences that are not finished, kept so that a restart goes on from there.

A record of its own for each, rewritten as the text grows, and let go of when the inference is journaled (`batos.image.journal.add`).
"""

from __future__ import annotations

from typing import Any

from batos.image.journal import Key, PartialText, of, opened


def keep(root: Any, mission: str, key: Key, text: str, tokens: int) -> None:
    """System transaction: keep the text that has come so far; shorter than what is kept, it is left out."""
    journal = opened(root["ledger"].missions[mission])
    partial = dict(journal.partials).get(key)
    if partial is None:
        partial = PartialText()
        journal.partials += ((key, partial),)
    if tokens > partial.tokens:
        partial.text, partial.tokens = text, tokens


def load(root: Any, mission: str) -> dict[Key, tuple[str, int]]:
    """The partial texts of a mission."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else {key: (partial.text, partial.tokens) for key, partial in of(found).partials}
