"""The names that the memory knows: titles of documents, and who speaks in conversations. They are looked for in every chunk.

What a chunk names it `mentions_`; where that is a document's title, it points at the beginning of that document, which is a step
that a search may go.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from batos.memory.library import library_of
from batos.memory.links import Gazetteer


class Named(NamedTuple):
    """Whom a chunk names: keys of entities, and numbers of the chunks that it points at by that."""

    keys: tuple[str, ...] = ()
    links: tuple[int, ...] = ()


class Name(NamedTuple):
    """A name: as it is written, and if it is a document's title that document and its first chunk, else zeros."""

    text: str
    document: int = 0
    first: int = 0


class Names:
    """Looks for names. May be asked by any thread."""

    def __init__(self, names: Iterable[Name] = ()) -> None:
        self._names: list[Name] = []
        self._places: dict[tuple[str, int], int] = {}
        self._leads: dict[int, int] = {}  # first chunk of a document -> the place of its title
        self._gazetteer = Gazetteer()
        self._lock = threading.Lock()
        self.add(names)

    def add(self, names: Iterable[Name]) -> None:
        """Know more names; of a title that is known already, where it leads to now."""
        with self._lock:
            for name in names:
                place = self._places.setdefault((name.text, name.document), len(self._names))
                if place < len(self._names):
                    self._names[place] = name
                else:
                    self._names.append(name)
                    self._gazetteer.add(name.text, place)
                if name.first:
                    self._leads[name.first] = place

    def drop(self, chunks: Iterable[int]) -> None:
        """Chunks are gone; the title of a document that began with one of them leads nowhere."""
        with self._lock:
            for place in [self._leads.pop(chunk) for chunk in chunks if chunk in self._leads]:
                self._names[place] = self._names[place]._replace(first=0)

    def of(self, text: str, document: int) -> Named:
        """Whom a text of a document names; not the document itself."""
        with self._lock:
            found = [self._names[place] for place in self._gazetteer.find(text)]
        others = [name for name in found if name.document != document and bool(name.document) == bool(name.first)]
        keys = tuple(dict.fromkeys(name.text.casefold() for name in others))
        return Named(keys, tuple(dict.fromkeys(name.first for name in others if name.first)))


def known(root: Any) -> list[Name]:
    """All names in the image."""
    library = library_of(root)
    titles = [library.documents[number] for number in library.by_title.values()]
    people = [Name(entity.name) for entity in library.entities.values() if entity.kind == "person"]
    return people + [Name(d.title, d.number, library.section(d.sections[0]).first) for d in titles if d.sections]
