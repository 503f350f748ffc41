"""Outline: gathers the text of a document under its headings."""

from __future__ import annotations

from batos.memory.drafts import DraftPart
from batos.memory.readers.dates import day_in

HEADING_CHARS = 200
"""Greatest number of characters of a heading that names its part; longer text is a paragraph in large type."""


class Outline:
    """Gathers text under headings."""

    def __init__(self) -> None:
        self.first = ""
        """Text of the first heading of the highest level."""
        self.parts: list[DraftPart] = []
        self._way: list[tuple[int, str]] = []
        self._held: list[str] = []

    def heading(self, level: int, name: str) -> None:
        """Begin a part.

        :param level: 1 for the highest.
        """
        self._close()
        name = " ".join(name.split())[:HEADING_CHARS]
        self._way[:] = [(other, at) for other, at in self._way if other < level] + [(level, name)]
        if level == 1 and not self.first:
            self.first = name

    def text(self, text: str) -> None:
        """Go on with the part."""
        self._held.append(text)

    def done(self) -> list[DraftPart]:
        """Return all parts that have text."""
        self._close()
        return self.parts

    def _close(self) -> None:
        text = "".join(self._held)
        if text.strip():
            title = " > ".join(name for _, name in self._way)
            self.parts.append(DraftPart(text, title, day_in(self._way[-1][1]) if self._way else 0))
        self._held.clear()
