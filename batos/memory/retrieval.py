"""Retrieval: find the passages of the memory that answer a question, with their sources.

It reads a snapshot in helper threads: it waits for no mission, and no mission waits for it. The embedder that made the vectors reads the
question; if it is unavailable, words, names and days decide, and the answer says so.

A passage can be merely the nearest of those there are, so a further test decides whether it speaks to the question. Recall adds passages to
a brief, or none: a search always finds something, and a prompt is better off without most of it. An answer of the system itself is not
evidence of a fact. It is recalled only if the user rated it +1, or asks for an earlier answer.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import structlog
from ZODB.POSException import POSKeyError

from batos.concurrency import answering, in_helper
from batos.config import nearest
from batos.errors import BatosError, ImageDamaged, InvalidInput
from batos.image.living_image import LivingImage
from batos.memory import search
from batos.memory.objects import SELF, origin_of, vouched
from batos.memory.question import Question
from batos.memory.records import KINDS
from batos.memory.search import Filters, Hit, QuestionVectors, SearchResult
from batos.memory.search_index import View
from batos.memory.segments import LIVED, NUMBER, WHEN, Array, speaker_key
from batos.memory.segments import SUMMARY as TELLS_OTHERS
from batos.memory.store import library_of
from batos.memory.tokenizer import asks_what_was_answered, subject_of
from batos.objects import Root
from batos.objects.json_form import oid_of

if TYPE_CHECKING:
    from batos.memory.embedders import Embedder, Maker
    from batos.memory.search_index import Collection

COVERED = 0.6
"""Least share of the subject's words that a chunk and its neighbours must hold, if neither the text asks nor the vector decides."""
ASKED = 0.5
"""The same share for a text that asks; the words that only ask are left out already."""
_FEWEST_WORDS = 2
"""Least number of words of the subject, if the text does not ask; a question may have one."""


def speaks(view: View, question: str, vectors: QuestionVectors | None, rows: Array, alike: float) -> Array:
    """Return bool: True for each row that is relevant to a question.

    :param vectors: vectors of the question; None: words alone decide.
    :param alike: cosine from which a chunk speaks to it.
    """
    found = _covered(view, question, rows)
    if vectors is not None and len(rows):
        found |= view.has[rows] & (view.matrix[rows] @ vectors.cleaned >= alike)
    return found


def _covered(view: View, question: str, rows: Array) -> Array:
    """Return bool: True for each row that, with its neighbours, holds most of the question's words."""
    subject = subject_of(question)
    asked = subject.words or subject.figured
    if len(asked) < (1 if subject.asks else _FEWEST_WORDS):
        return np.zeros(len(rows), bool)
    least = ASKED if subject.asks else COVERED
    held = sum((view.bm25([word])[rows] > 0).astype(np.int64) for word in asked)
    return np.asarray(held >= least * len(asked))


log = structlog.get_logger("batos.memory")


_SOURCES = 20  # greatest number of sources that a summary's passage names
_OVERFETCH = 2  # factor: candidates for each passage, if some of them move to the end


class PassageQuery(NamedTuple):
    """Search of the memory: a question, the number of passages, and filters."""

    question: str
    k: int = 10
    kind: str | None = None
    source: str | None = None
    """A source, such as a file, or a folder of sources."""
    speaker: str | None = None
    """Name of the speaker, or its beginning: "Caroline" finds Caroline Smith, too."""
    since: date | None = None
    until: date | None = None
    """First and last day of passages, both included; None: no limit."""


@dataclass(frozen=True)
class RetrievalTerms:
    """Limits of a search."""

    limit_s: float
    """Seconds for the embedder to embed a question; after a timeout the search uses words alone."""
    pause_s: float
    """Seconds for which an embedder that did not answer is not asked again."""
    alike: float = 0.3
    """Cosine with a question from which a passage fits it."""


class Retrieval:
    """Searches the memory. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        collection: Callable[[], Collection],
        reader: Callable[[Maker], Embedder],
        terms: RetrievalTerms,
        *,
        on_read: Callable[[list[int]], object] = lambda ids: None,
        today: Callable[[], date] = date.today,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        :param collection: returns the search index of now.
        :param reader: returns the embedder of questions for vectors of that maker.
        :param on_read: takes the chunks that a search answers with.
        """
        self._image, self._collection, self._reader = image, collection, reader
        self._limit_s, self._pause_s, self._today, self._now = terms.limit_s, terms.pause_s, today, now
        self._on_read, self._alike = on_read, terms.alike
        self._away, self._away_until, self._why = "", -math.inf, ""
        self.vouched = image.kept(vouched)
        """Return the numbers of the documents that are of missions which the user rated +1."""

    def view(self) -> View:
        """Return the view of the search index now."""
        return self._collection().view()

    async def search(self, wanted: PassageQuery, *, explain: bool = False) -> dict[str, Any]:
        """Return the passages that answer a question best, the best first, as the wire's `search` gives them.

        :param explain: tell also what each signal added to a score, and what the question was taken to say.
        :raises InvalidInput: for a question without any words, or a kind that no document can have.
        """
        if not any(char.isalnum() for char in wanted.question):
            raise InvalidInput("the question has no words: say what you look for")
        begun = self._now()
        view, today = self.view(), self._today()
        filters, question = await answering(self._understand, view, wanted, today)
        vectors, why = await self.vectors(view, question)
        found, passages = await answering(self._find, view, question, vectors, wanted.k, filters)
        self._on_read([hit.id for hit in found.hits])
        fits = any(passage["fits"] for passage in passages)
        reply = {"question": wanted.question, "hits": passages, "fits": fits, "by_vectors": found.by_vectors, "why": why}
        for hit, passage in zip(found.hits, passages, strict=True):
            if not explain:
                del passage["signals"], passage["path"]
            else:
                passage |= {"signals": hit.signals}
        if explain:
            reply["understood"] = _told(found)
        return {**reply, "took_ms": round((self._now() - begun) * 1e3, 2)}

    def _understand(self, view: View, wanted: PassageQuery, today: date) -> tuple[Filters | None, Any]:

        def understand(root: Root) -> tuple[Filters | None, Any]:
            called = library_of(root).catalogue.called
            return _filters(wanted, _documents(root, wanted), called), search.prepare_question(
                view, wanted.question, today=today, called=called
            )

        return self._image.read(understand)

    def _find(
        self, view: View, question: Any, vectors: QuestionVectors | None, k: int, filters: Filters | None
    ) -> tuple[SearchResult, list[dict[str, Any]]]:

        found = search.search(view, question, vectors, k if view.read >= view.n else k * _OVERFETCH, filters=filters)
        rows = view.rows_of(np.array([hit.id for hit in found.hits], np.int64))
        fits = speaks(view, question.text, vectors if found.by_vectors else None, rows, self._alike).tolist()
        passages = self._image.read(_passages, found.hits)
        there = [  # a mission may have forgotten one meanwhile
            (hit, {**passage, "fits": one}) for hit, passage, one in zip(found.hits, passages, fits, strict=True) if passage is not None
        ]
        if not asks_what_was_answered(question.text):  # answers of the system come after other sources
            trusted = self._image.read(vouched)
            there.sort(key=lambda one: one[1]["origin"] == SELF and one[1]["document"] not in trusted)
        for _, passage in there:
            del passage["document"]
        return found._replace(hits=[hit for hit, _ in there[:k]]), [passage for _, passage in there[:k]]

    async def vectors(self, view: View, question: Any) -> tuple[QuestionVectors | None, str]:
        """Return the vectors of a question, made by the embedder of the view's vectors; or the reason why there are none."""

        if not view.has.any():
            return None, "no passage has a vector yet"
        maker = view.maker
        if self._now() < self._away_until and maker.identity == self._away:
            return None, self._why
        embedder = self._reader(maker)
        try:
            async with asyncio.timeout(self._limit_s):
                identity = await embedder.identity()
                if str(identity) != maker.identity or identity.dimensions != view.matrix.shape[1]:
                    return None, f"the vectors are from {maker.identity}, which is no longer available; {identity} makes them anew"
                # for a question of few words the two texts are equal
                rows = await embedder.embed(list(dict.fromkeys((question.cleaned, question.text))))
        except (TimeoutError, BatosError) as e:
            cause = e.message if isinstance(e, BatosError) else f"no answer within {self._limit_s:g} s"
            self._away, self._away_until, self._why = maker.identity, self._now() + self._pause_s, f"the embedder is away: {cause}"
            log.warning("searching_by_words_only", pause_s=self._pause_s, cause=cause)
            return None, self._why
        return QuestionVectors(rows[0], rows[-1]), ""


def _filters(wanted: PassageQuery, documents: set[int] | None, called: Callable[[str], Iterable[int]]) -> Filters | None:

    since = wanted.since.toordinal() if wanted.since is not None else 0
    until = wanted.until.toordinal() if wanted.until is not None else 0
    name = " ".join((wanted.speaker or "").split())
    filters = Filters(documents, since, until, (speaker_key(name), *called(name.casefold())) if name else ())
    return filters if filters != Filters() else None


def _documents(root: Root, wanted: PassageQuery) -> set[int] | None:
    """Return the numbers of the documents that fit; None for all.

    :raises InvalidInput: for a kind that no document can have.
    """

    library = library_of(root)
    found = library.catalogue.find(kind=wanted.kind) if wanted.kind is not None else None
    if found is not None and not found and wanted.kind not in KINDS:
        raise InvalidInput(
            f"no document is of the kind {wanted.kind!r}{nearest(str(wanted.kind), KINDS)}; the kinds are {', '.join(KINDS)}"
        )
    if wanted.source is not None:
        below = wanted.source.rstrip("/") + "/"
        fits = set(library.by_source.values(below, below + chr(sys.maxunicode)))
        if wanted.source in library.by_source:
            fits.add(library.by_source[wanted.source])
        found = fits if found is None else found & fits
    return found


def _passages(root: Root, hits: list[Hit]) -> list[dict[str, Any] | None]:
    """Return the facts about each chunk; None for a chunk that is gone or damaged."""

    library = library_of(root)
    return [_readable(root, library, hit) if hit.id in library.chunks else None for hit in hits]


def _readable(root: Root, library: Any, hit: Hit) -> dict[str, Any] | None:
    try:
        return _passage(root, library, hit)
    except (ImageDamaged, POSKeyError) as e:  # the self-audit reports the damage as well; the search returns the other passages
        log.error("passage_damaged", error=str(e))
        return None


def _passage(root: Root, library: Any, hit: Hit) -> dict[str, Any]:

    chunk = library.chunks[hit.id]
    document = chunk.document
    section = library.section_of(chunk)
    day = section.day or document.day
    return {
        "text": chunk.text.strip(),
        "score": hit.score,
        "source": document.source,
        "title": document.title,
        "section": section.title,
        "kind": document.kind,
        "origin": origin_of(root, document),
        "document": document.number,
        "speaker": chunk.speaker,
        "day": date.fromordinal(day).isoformat() if day else None,
        "oid": oid_of(chunk),
        "signals": hit.signals,
        **_stands_for(document),
        "path": [oid_of(library.chunks[id]) for id in hit.path if id in library.chunks],
    }


def _stands_for(document: Any) -> dict[str, Any]:
    """Return the facts about an archive's summary: the archive's number, and the documents in it."""
    if document.archive is None:
        return {}
    return {"archive": document.archive.number, "of": [one.source for one in document.of[:_SOURCES]]}


def _told(found: SearchResult) -> dict[str, Any]:
    """Return the reading of a question, in plain values."""

    question = found.question
    wants = [name for name, flag in (("when", WHEN), ("number", NUMBER)) if question.wants & flag]
    return {
        "words": question.words,
        "cleaned": question.cleaned,
        "names_speakers": question.people,
        "days": [[date.fromordinal(day).isoformat() for day in span] for span in question.spans],
        "wants": wants,
        "bridges": question.bridges,
    }


_MORE = 2
"""Factor: candidates for each passage, since a model's summary is left out beside its sources."""


class _TrustedFilter(search.Filters):
    """Documents that were read or said to it; of missions those that were vouched for, which are `documents`."""

    def mask(self, view: View) -> Array:
        read = np.asarray((view.facts["flags"] & LIVED) == 0)
        return read | np.isin(view.facts["document"], np.fromiter(self.documents or (), np.int64)) if self.documents else read


async def recall_passages(text: str, image: LivingImage, retrieval: Retrieval, *, most: int, alike: float) -> list[int]:
    """Return the ids of the chunks that speak to a brief, the best first; none where nothing does.

    :param most: greatest number of chunks.
    :param alike: cosine with the brief from which a chunk speaks to it.
    """
    view = retrieval.view()
    if not most or not view.n or not any(char.isalnum() for char in text):
        return []
    own = asks_what_was_answered(text)
    filters = None if own else _TrustedFilter(retrieval.vouched())
    if not (own or view.read or (filters is not None and filters.documents)):
        return []  # no search can give evidence: the memory holds only missions, and the brief does not ask about them
    question = await in_helper(image.read, _understood, view, text)
    vectors, _ = await retrieval.vectors(view, question)
    found = await in_helper(_best, view, question, vectors, most * _MORE, alike, filters)
    retold = await in_helper(image.read, _retold, [number for number, of_others in found if of_others]) if found else frozenset()
    return [number for number, _ in found if number not in retold][:most]


def _understood(root: Root, view: View, text: str) -> Question:
    return search.prepare_question(view, text, called=library_of(root).catalogue.called)


def _best(
    view: View, question: Question, vectors: QuestionVectors | None, most: int, alike: float, filters: search.Filters | None
) -> list[tuple[int, bool]]:
    """Return the chunks that speak to a question, each with whether it tells what others hold."""
    found = search.search(view, question, vectors, most, filters=filters)
    rows = view.rows_of(np.array([hit.id for hit in found.hits], np.int64))
    fits = speaks(view, question.text, vectors if found.by_vectors else None, rows, alike)
    of_others = (view.facts["flags"][rows] & TELLS_OTHERS) > 0
    return [(hit.id, of) for hit, one, of in zip(found.hits, fits.tolist(), of_others.tolist(), strict=True) if one]


def _retold(root: Root, found: list[int]) -> frozenset[int]:
    """Return those of these chunks that a model made from documents that are still live."""
    chunks = library_of(root).chunks
    return frozenset(number for number in found if number in chunks and _is_retold(root, chunks[number].document))


def _is_retold(root: Root, document: Any) -> bool:
    return document.archive is None and origin_of(root, document) == SELF
