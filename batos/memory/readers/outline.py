"""A document by its headings: parts, each called by the way of headings that leads to it."""

from __future__ import annotations

from batos.memory.drafts import DraftPart
from batos.memory.readers import dates

TITLE_CHARS = 200
"""Of a heading that its part is called by: what is longer is a paragraph that was made large."""


class Outline:
    """Gathers text under headings."""

    def __init__(self) -> None:
        self.first = ""
        """The first heading of the highest level."""
        self.parts: list[DraftPart] = []
        self._way: list[tuple[int, str]] = []
        self._held: list[str] = []

    def heading(self, level: int, name: str) -> None:
        """Begin a part.

        :param level: 1 for the highest.
        """
        self._close()
        name = " ".join(name.split())[:TITLE_CHARS]
        self._way[:] = [(other, at) for other, at in self._way if other < level] + [(level, name)]
        if level == 1 and not self.first:
            self.first = name

    def text(self, text: str) -> None:
        """Go on with the part."""
        self._held.append(text)

    def done(self) -> list[DraftPart]:
        """All parts that have text."""
        self._close()
        return self.parts

    def _close(self) -> None:
        text = "".join(self._held)
        if text.strip():
            title = " > ".join(name for _, name in self._way)
            self.parts.append(DraftPart(text, title, dates.found(self._way[-1][1]) if self._way else 0))
        self._held.clear()
