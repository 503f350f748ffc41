"""Recalling: what memory has to say to a brief, or nothing. A search always finds something; a prompt is better off without most of it.

What the system answered itself is no evidence of a fact: it is recalled where the user rated it +1, or where he asks what was answered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from batos.image.living import LivingImage
from batos.image.turns import in_helper
from batos.memory import search
from batos.memory.fusion import Vectors
from batos.memory.library import library_of
from batos.memory.origins import SELF, origin_of, vouched
from batos.memory.question import Question
from batos.memory.retrieval import Retrieval
from batos.memory.segments import SUMMARY as TELLS_OTHERS
from batos.memory.segments import Array
from batos.memory.speaking import speaks
from batos.memory.subject import asks_what_was_answered
from batos.memory.traits import LIVED
from batos.memory.view import View

_MORE = 2
"""Times as many are looked at as are wanted: a model's summary beside what it is of is left out."""


class _Evidence(search.Filters):
    """Documents that were read or said to it; of missions those that were vouched for, which are `documents`."""

    def mask(self, view: View) -> Array:
        read = np.asarray((view.facts["flags"] & LIVED) == 0)
        return read | np.isin(view.facts["document"], np.fromiter(self.documents or (), np.int64)) if self.documents else read


async def recalled(text: str, image: LivingImage, retrieval: Retrieval, *, most: int, alike: float) -> list[int]:
    """The ids of the chunks that speak to a brief, the best first; none where nothing does.

    :param most: how many at most.
    :param alike: cosine with the brief from which a chunk speaks to it.
    """
    view = retrieval.view()
    if not most or not view.n or not any(char.isalnum() for char in text):
        return []
    own = asks_what_was_answered(text)
    filters = None if own else _Evidence(image.read(vouched))
    if not (own or view.read or (filters is not None and filters.documents)):
        return []  # nobody is asked where nothing can come of it: with none but missions in memory, and a brief that is not about them
    question = await in_helper(image.read, _understood, view, text)
    vectors, _ = await retrieval.vectors(view, question)
    found = await in_helper(_best, view, question, vectors, most * _MORE, alike, filters)
    retold = await in_helper(image.read, _retold, [number for number, of_others in found if of_others]) if found else frozenset()
    return [number for number, _ in found if number not in retold][:most]


def _understood(root: Any, view: View, text: str) -> Question:
    return search.read(view, text, called=library_of(root).catalogue.called)


def _best(
    view: View, question: Question, vectors: Vectors | None, most: int, alike: float, filters: search.Filters | None
) -> list[tuple[int, bool]]:
    """The chunks that speak to a question, each with whether it tells what others hold."""
    found = search.search(view, question, vectors, most, filters=filters)
    rows = view.rows_of(np.array([hit.id for hit in found.hits], np.int64))
    fits = speaks(view, question.text, vectors if found.by_vectors else None, rows, alike)
    of_others = (view.facts["flags"][rows] & TELLS_OTHERS) > 0
    return [(hit.id, of) for hit, one, of in zip(found.hits, fits.tolist(), of_others.tolist(), strict=True) if one]


def _retold(root: Any, found: list[int]) -> frozenset[int]:
    """Which of these chunks are what a model made of documents that are there themselves."""
    chunks = library_of(root).chunks
    return frozenset(number for number in found if number in chunks and _is_retold(root, chunks[number].document))


def _is_retold(root: Any, document: Any) -> bool:
    return document.archive is None and origin_of(root, document) == SELF
