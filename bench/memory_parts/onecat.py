"""The same conversations in one catalogue: a question's evidence among all that anybody ever said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.memory_parts import conversations
from bench.memory_parts.locomo import lacks

if TYPE_CHECKING:
    from bench.memory import Bench

__all__ = ["AIMS", "lacks", "measure"]

AIMS = {"onecat_recall_10": (">=", 0.84)}


async def measure(bench: Bench) -> dict[str, Any]:
    return await conversations.measure([await conversations.case(conversations.conversations(bench.args.locomo))], "onecat")
