"""The names that the memory knows: titles of documents, and who speaks in conversations. They are looked for in every chunk.

What a chunk names it `mentions_`; where that is a document's title, it points at that document, whatever becomes of its chunks,
which is a step that a search may go. A title that comes after the texts that name it is looked for in those (`batos.memory.linking`).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged
from batos.memory.library import library_of
from batos.memory.words import content_words

_WORD = re.compile(r"[^\W_]+")
_ASIDE = re.compile(r"(?<!\s)\s*\([^()]*+\)\s*+$")
_LONGEST = 12
"""Words of a name; what is longer is a sentence, and no text names it."""


class Named(NamedTuple):
    """Whom a chunk names: keys of entities, and numbers of the documents that it points at by that."""

    keys: tuple[str, ...] = ()
    links: tuple[int, ...] = ()


class Name(NamedTuple):
    """A name: as it is written, and if it is a document's title the number of that, else zero."""

    text: str
    document: int = 0


class Gazetteer:
    """Names that are looked for in texts, each with what it stands for. Built once, asked by any thread; names can be added.

    A name is found as whole words, whatever its case, the longest first; one of a single word only where it is written with a
    capital, so that a note called "ideas" is not pointed at by every text that has one.
    """

    def __init__(self, names: Iterable[tuple[str, int]] = ()) -> None:
        """:param names: names and what they stand for; one name may stand for several."""
        self._known: dict[str, dict[tuple[str, ...], list[int]]] = {}
        for name, target in names:
            self.add(name, target)

    def add(self, name: str, target: int) -> None:
        """One name more. What is in brackets at its end tells namesakes apart and is not looked for."""
        parts = tuple(_words(_ASIDE.sub("", name) or name))
        if 0 < len(parts) <= _LONGEST and content_words(name):
            targets = self._known.setdefault(parts[0], {}).setdefault(parts, [])
            if target not in targets:
                targets.append(target)

    def find(self, text: str) -> list[int]:
        """What the names in a text stand for, in the order in which they come, each once."""
        matches = list(_WORD.finditer(text))
        said = [match.group().casefold() for match in matches]
        found: dict[int, None] = {}
        at = 0
        while at < len(said):
            names = self._known.get(said[at])
            if names is None:  # no name begins so, as with most words
                at += 1
                continue
            fits = [parts for parts in names if tuple(said[at : at + len(parts)]) == parts]
            parts = max(fits, key=len, default=())
            if parts and (len(parts) > 1 or not matches[at].group().islower()):
                found.update(dict.fromkeys(names[parts]))
                at += len(parts)
            else:
                at += 1
        return list(found)


def _words(name: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(name)]


class Names:
    """Looks for names. May be asked by any thread."""

    def __init__(self, names: Iterable[Name] = (), there: Callable[[int], bool] = lambda document: True) -> None:
        """
        :param there: whether a document is still in the memory: its title is no name any more once it is not.
        """
        self._names: dict[Name, int] = {}
        self._known: list[Name] = []
        self._there = there
        self._gazetteer = Gazetteer()
        self._lock = threading.Lock()
        self.add(names)

    def add(self, names: Iterable[Name]) -> None:
        """Know more names."""
        with self._lock:
            for name in names:
                if name not in self._names:
                    self._names[name] = len(self._known)
                    self._gazetteer.add(name.text, len(self._known))
                    self._known.append(name)

    def of(self, text: str, document: int) -> Named:
        """Whom a text of a document names; not the document itself."""
        with self._lock:
            found = [self._known[place] for place in self._gazetteer.find(text)]
        others = [name for name in found if name.document != document and (not name.document or self._there(name.document))]
        keys = tuple(dict.fromkeys(name.text.casefold() for name in others))
        return Named(keys, tuple(dict.fromkeys(name.document for name in others if name.document)))


def known(root: Any) -> list[Name]:
    """All names in the image, but for those in records that are damaged: the self-audit tells of them."""
    library, found = library_of(root), []
    for entity in library.entities.values():
        with contextlib.suppress(ImageDamaged, POSKeyError):
            if entity.kind == "person":
                found.append(Name(entity.name))
    for number in library.by_title.values():
        with contextlib.suppress(ImageDamaged, POSKeyError):
            found.append(Name(library.documents[number].title, number))
    return found
