"""Whether a passage speaks to a question, or is only the nearest of those there are."""

from __future__ import annotations

import numpy as np

from batos.memory.fusion import Vectors
from batos.memory.segments import Array
from batos.memory.subject import subject_of
from batos.memory.view import View

COVERED = 0.6
"""Share of a question's words that a chunk with its neighbours must hold, where its vector does not speak for it."""
ASKED = 0.5
"""The same of what a question is about: those that only ask are left out of it already."""
_FEWEST_WORDS = 2
"""Words by which what asks nothing is known; a question may be about one."""


def speaks(view: View, question: str, vectors: Vectors | None, rows: Array, alike: float) -> Array:
    """bool: which of these rows speak to a question.

    :param vectors: of the question; None: words alone decide.
    :param alike: cosine from which a chunk speaks to it.
    """
    found = _covered(view, question, rows)
    if vectors is not None and len(rows):
        found |= view.has[rows] & (view.matrix[rows] @ vectors.cleaned >= alike)
    return found


def _covered(view: View, question: str, rows: Array) -> Array:
    """bool: the rows that hold most of these words, with their neighbours."""
    subject = subject_of(question)
    asked = subject.words or subject.figured
    if len(asked) < (1 if subject.asks else _FEWEST_WORDS):
        return np.zeros(len(rows), bool)
    least = ASKED if subject.asks else COVERED
    held = sum((view.bm25([word])[rows] > 0).astype(np.int64) for word in asked)
    return np.asarray(held >= least * len(asked))
