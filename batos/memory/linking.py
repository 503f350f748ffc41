"""A title that is new is looked for in what the memory holds already: who named it before it was there points at it from then on.

Which titles are new stands in the image (`Library.unlinked`), so that none is passed over when the process dies. Nothing is embedded
anew: chunks keep their numbers, texts and vectors, and get other entries in the index. The functions of the root are reads and
system transactions.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged
from batos.memory import meaning, mentions
from batos.memory.library import Library, library_of
from batos.memory.links import targets
from batos.memory.naming import Gazetteer, Name
from batos.memory.segments import Segment, build
from batos.memory.shelving import Shelved, Shelver
from batos.memory.words import words

if TYPE_CHECKING:
    from batos.memory.view import View


class Relinked(NamedTuple):
    """A section whose chunks name something that they did not name before."""

    was: meaning.Work
    shelved: Shelved


def unlinked(root: Any, most: int) -> list[Name]:
    """Titles that are new; one whose document is gone already is of document 0."""
    library = library_of(root)
    found = ((key, library.by_title.get(key, 0)) for key in itertools.islice(library.unlinked.keys("", excludemin=True), most))
    return [Name(library.documents[number].title if number else key, number) for key, number in found]


class Naming(NamedTuple):
    """A section with chunks that name a document."""

    work: meaning.Work
    astray: bool
    """Whether they point at one that is not there any more: of the same title, it may be."""


def naming(root: Any, view: View, names: Sequence[Name], most: int) -> list[Naming]:
    """The sections with chunks that name one of these documents.

    :param most: chunks that are looked at for one name, those with most of its words first.
    """
    library = library_of(root)
    gazetteer = Gazetteer((name.text, name.document) for name in names)
    found: dict[int, Naming] = {}
    for name in names:
        for chunk in (library.chunks.get(number) for number in _with_words(view, name, most)):
            with contextlib.suppress(ImageDamaged, POSKeyError):  # what cannot be read holds up no other
                if chunk is not None and set(gazetteer.find(chunk.text)) - {chunk.document.number}:
                    section = library.section_of(chunk).number
                    known = found.get(section) or Naming(meaning.work_of(library, section), astray=False)
                    row = int(view.rows_of(np.array([chunk.number]))[0])
                    gone = any(to not in library.documents for to in targets(view.links, row))
                    found[section] = known._replace(astray=known.astray or gone)
    return list(found.values())


def _with_words(view: View, name: Name, most: int) -> list[int]:
    terms = list(dict.fromkeys(words(name.text)))
    if not name.document or not terms or not view.n:
        return []
    scores = [view.bm25([term]) for term in terms]
    rows = np.flatnonzero(np.logical_and.reduce([score > 0 for score in scores]) & ~view.gone)
    best = rows[np.argsort(-sum(score[rows] for score in scores), kind="stable")[:most]]
    return view.ids[best].tolist()  # type: ignore[no-any-return]


def relinked(found: Iterable[Naming], shelver: Shelver) -> list[Relinked]:
    """The sections as they are with all names that are known now; those of which nothing changes are left out. No image needed."""
    made = []
    for work, astray in found:
        cuts = list(zip(work.texts, work.speakers, strict=True))
        one = Relinked(work, shelver.filled(work.section, cuts, work.kind, work.about))
        if astray or tuple(passage.mentioned for passage in one.shelved.shelf.passages) != work.mentioned:
            made.append(one)
    return made


def keep(root: Any, names: Iterable[Name], made: Sequence[Relinked]) -> Segment | None:
    """System transaction: these chunks name more than before, and the titles are new no more; the chunks' entries, if any changed."""
    library: Library = library_of(root)
    entries = []
    for one in made:
        number = one.was.section.number
        if number in library.sections and meaning.work_of(library, number) == one.was:  # else it is another by now, cut with all names
            mentions.change(library, root, one.shelved.shelf)
            entries += one.shelved.entries
    for name in names:
        library.unlinked.discard(name.text.casefold())
    if not entries:
        return None
    segment = build(entries)
    library.text.drop(segment.ids.tolist())
    library.text.add(segment)
    return segment
