"""How much there is in a library: kept with each change, since a tree knows its size only by a walk through all its leaves."""

from __future__ import annotations

from persistent import Persistent


class Counts(Persistent):
    """Documents, sections, chunks and entities. A record of its own, that transactions which commit at once both change."""

    __module__ = "batos.memory"

    def __init__(self, documents: int = 0, sections: int = 0, chunks: int = 0, entities: int = 0) -> None:
        self.documents, self.sections, self.chunks, self.entities = documents, sections, chunks, entities

    def add(self, *, documents: int = 0, sections: int = 0, chunks: int = 0, entities: int = 0) -> None:
        """So many more, or fewer, in the transaction that is open."""
        self.documents += documents
        self.sections += sections
        self.chunks += chunks
        self.entities += entities

    def told(self) -> dict[str, int]:
        """By name."""
        return {"documents": self.documents, "sections": self.sections, "chunks": self.chunks, "entities": self.entities}

    def _p_resolveConflict(self, old: dict[str, int], saved: dict[str, int], new: dict[str, int]) -> dict[str, int]:
        """What both have added is there."""
        return {name: saved[name] + new[name] - old[name] for name in new}
