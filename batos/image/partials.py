"""Partial texts: what has come of inferences that are not finished, kept so that a restart goes on from there.

A record of its own for each, rewritten as the text grows, and let go of when the inference is journaled.
"""

from __future__ import annotations

from typing import Any

from persistent import Persistent

Key = tuple[bytes, int]  # content key and occurrence, as in the journal


class PartialText(Persistent):
    """The text of one unfinished inference, and the tokens it took."""

    __module__ = "batos.image"
    text: str = ""
    tokens: int = 0


def keep(root: Any, mission: str, key: Key, text: str, tokens: int) -> None:
    """System transaction: keep the text that has come so far; shorter than what is kept, it is left out."""
    journal = root["ledger"].missions[mission].journal
    partial = dict(journal.partials).get(key)
    if partial is None:
        partial = PartialText()
        journal.partials += ((key, partial),)
    if tokens > partial.tokens:
        partial.text, partial.tokens = text, tokens


def forget(journal: Any, key: Key) -> None:
    """System transaction's part: let go of a partial text; its inference is journaled."""
    if journal.partials:
        journal.partials = tuple(entry for entry in journal.partials if entry[0] != key)


def load(root: Any, mission: str) -> dict[Key, tuple[str, int]]:
    """The partial texts of a mission."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else {key: (partial.text, partial.tokens) for key, partial in found.journal.partials}
