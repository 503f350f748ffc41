"""What is known of documents besides their words: zope.index field and keyword indexes over document numbers.

Day, speaker and kind of a single chunk are in the facts that searches keep in memory (`batos.memory.segments.FACTS`); here is what
narrows a search to documents, and what lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import BTrees
from persistent import Persistent

from batos.errors import InvalidInput

FIELDS = ("kind", "mission", "day")
"""One value a document."""
KEYWORDS = ("tags", "speakers", "days")
"""Any number of values a document."""


class Catalogue(Persistent):
    """The indexes of one library, by name."""

    __module__ = "batos.memory"

    def __init__(self) -> None:
        from zope.index.field import FieldIndex  # late: a daemon that remembers nothing does not pay for it
        from zope.index.keyword import KeywordIndex

        family = BTrees.family64
        self.fields = {name: FieldIndex(family) for name in FIELDS}
        self.keywords = {name: KeywordIndex(family) for name in KEYWORDS}

    def put(self, number: int, facts: Mapping[str, Any]) -> None:
        """Index a document, in place of what was known of it. Fields that are empty are not indexed."""
        for name, index in self.fields.items():
            index.unindex_doc(number)
            if facts.get(name):
                index.index_doc(number, facts[name])
        for name, index in self.keywords.items():
            index.unindex_doc(number)
            if words := [_key(word) for word in facts.get(name, ())]:
                index.index_doc(number, words)

    def drop(self, number: int) -> None:
        """Forget a document."""
        for index in (*self.fields.values(), *self.keywords.values()):
            index.unindex_doc(number)

    def find(self, **wanted: Any) -> set[int] | None:
        """The numbers of the documents that fit all of these; None where nothing is asked for.

        :param wanted: of a field one value, or a pair (lowest, highest; None is open); of a keyword one value, or several of
            which one must be there.
        :raises InvalidInput: for an index that there is not.
        """
        found: set[int] | None = None
        for name, value in wanted.items():
            if name in self.fields:
                span = value if isinstance(value, tuple) else (value, value)
                fits = set(self.fields[name].apply(span))
            elif name in self.keywords:
                several = [value] if isinstance(value, str | int) else list(value)
                fits = set(self.keywords[name].apply({"query": [_key(word) for word in several], "operator": "or"}))
            else:
                raise InvalidInput(f"documents are not indexed by {name!r}; they are by {', '.join((*FIELDS, *KEYWORDS))}")
            found = fits if found is None else found & fits
        return found

    def called(self, name: str) -> list[int]:
        """Keys (`speaker_key`) of the speakers whose names begin with a name: their first ones, for example.

        :param name: its words, casefolded.
        """
        from batos.memory.segments import speaker_key

        return [speaker_key(known) for known in self.keywords["speakers"]._fwd_index.keys(f"{name} ", f"{name} \U0010ffff")]

    def values(self, name: str) -> list[Any]:
        """The values that there are of a keyword, in order."""
        return list(self.keywords[name]._fwd_index)


def _key(word: Any) -> Any:
    return word.casefold() if isinstance(word, str) else word
