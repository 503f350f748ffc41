"""Recalling: what memory has to say to a brief, or nothing. A search always finds something; a prompt is better off without most of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from batos.image.living import LivingImage
from batos.image.turns import in_helper
from batos.memory import search
from batos.memory.fusion import Vectors
from batos.memory.library import library_of
from batos.memory.question import Question
from batos.memory.retrieval import Retrieval
from batos.memory.segments import Array
from batos.memory.traits import LIVED
from batos.memory.view import View

COVERED = 0.6
"""Share of a brief's words that a chunk with its neighbours must hold, where its vector does not speak for it."""
_FEWEST_WORDS = 2
_OF_US = re.compile(
    r"\b(?:you (?:said|told|answered|suggested|recommended|wrote|mentioned|planned|explained)|(?:did|have|had) you "
    r"(?:say|said|tell|told|answer|suggest|recommend|write|mention)|(?:i|we) (?:asked|told|said|mentioned|talked|spoke|discussed|decided)|"
    r"did (?:i|we) (?:ask|tell|say|mention|talk|discuss|decide)|last time|earlier|previous(?:ly)?|remember|yesterday|the other day)\b",
    re.IGNORECASE,
)
"""How a brief sounds that is about what was asked and answered before. Earlier answers are recalled for such ones only: a model that
is shown what it said before says it again."""


class _Read(search.Filters):
    """Documents that were read, none that were made of missions."""

    def mask(self, view: View) -> Array:
        return np.asarray((view.facts["flags"] & LIVED) == 0)


async def recalled(text: str, image: LivingImage, retrieval: Retrieval, *, most: int, alike: float) -> list[int]:
    """The ids of the chunks that speak to a brief, the best first; none where nothing does.

    :param most: how many at most.
    :param alike: cosine with the brief from which a chunk speaks to it.
    """
    view = retrieval.view()
    if not most or not (view.read or (view.n and _OF_US.search(text))) or not any(char.isalnum() for char in text):
        return []  # nobody is asked where nothing can come of it: with none but missions in memory, and a brief that is not about them
    question = await in_helper(image.read, _understood, view, text)
    vectors, _ = await retrieval.vectors(view, question)
    return await in_helper(_best, view, question, vectors, most, alike)


def _understood(root: Any, view: View, text: str) -> Question:
    return search.read(view, text, called=library_of(root).catalogue.called)


def _best(view: View, question: Question, vectors: Vectors | None, most: int, alike: float) -> list[int]:
    filters = None if _OF_US.search(question.text) else _Read()
    found = search.search(view, question, vectors, most, filters=filters)
    rows = view.rows_of(np.array([hit.id for hit in found.hits], np.int64))
    speaks = _covered(view, question.words, rows)
    if found.by_vectors and vectors is not None:
        speaks |= view.has[rows] & (view.matrix[rows] @ vectors.cleaned >= alike)
    return [hit.id for hit, fits in zip(found.hits, speaks.tolist(), strict=True) if fits]


def _covered(view: View, words: Sequence[str], rows: Array) -> Array:
    """bool: the rows that hold most of these words, with their neighbours."""
    asked = set(words)
    if len(asked) < _FEWEST_WORDS:
        return np.zeros(len(rows), bool)
    held = sum((view.bm25([word])[rows] > 0).astype(np.int64) for word in asked)
    return np.asarray(held >= COVERED * len(asked))
