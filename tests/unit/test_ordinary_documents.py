"""Ordinary documents: what is asked about this repository's own pages is found as well as by plain BM25, or better.

tests/data/ordinary_questions.tsv: question, page, words of the page that answer it. A question whose words a page has lost does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from batos.memory import readers
from batos.memory.chunking import ChunkLimits
from batos.memory.drafts import bounded
from batos.memory.records import Numbers
from batos.memory.search import prepare_question, search
from batos.memory.search_index import Collection, View
from batos.memory.section_builder import KnownNames, Shelver
from batos.memory.segments import Entry, Facts, build
from batos.memory.tokenizer import words

ROOT = Path(__file__).parents[2]
ASKED = ROOT / "tests" / "data" / "ordinary_questions.tsv"
K = 5


class Pages(NamedTuple):
    """The pages in a view, each chunk alone in another, and each question with the ids of the chunks that answer it."""

    view: View
    alone: View
    asked: list[tuple[str, set[int]]]


@pytest.fixture(scope="module")
def pages() -> Pages:
    shelver, entries = Shelver(Numbers(1), ChunkLimits(), KnownNames()), []
    said: dict[int, tuple[str, str]] = {}
    for number, path in enumerate([ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], 1):
        draft = readers.read(path.name, path.read_bytes())
        for part in bounded(draft.parts, 20_000):
            shelf, found = shelver.shelve(part, document=number, kind=draft.kind)
            entries += found
            texts = (str(path.relative_to(ROOT)), *(" ".join(passage.text.split()) for passage in shelf.passages))
            said |= {entry.id: (texts[0], text) for entry, text in zip(found, texts[1:], strict=True)}
    rows = [line.split("\t") for line in ASKED.read_text("utf-8").splitlines()]
    asked = [
        (text, {id for id, (page, own) in said.items() if page == where and " ".join(says.split()) in own}) for text, where, says in rows
    ]
    alone = [Entry(id, words(text), Facts(section=at)) for at, (id, (_, text)) in enumerate(said.items())]
    return Pages(_view(entries), _view(alone), [(text, answers) for text, answers in asked if answers])


def _view(entries: list[Entry]) -> View:
    made = Collection()
    made.append(build(entries))
    return made.view()


def found(pages: Pages, ranking: Callable[[str], list[int]]) -> list[bool]:
    """Of each question: whether an answer is among the first."""
    return [bool(answers & set(ranking(text)[:K])) for text, answers in pages.asked]


def test_ordinary_documents_are_found_as_well_as_by_plain_bm25(pages: Pages) -> None:
    assert len(pages.asked) >= 50, "the pages have changed: give the questions in tests/data/ordinary_questions.tsv the words of today"

    def plain(text: str) -> list[int]:
        return pages.alone.ids[np.argsort(-pages.alone.bm25(words(text)), kind="stable")[:K]].tolist()  # type: ignore[no-any-return]

    ours = found(
        pages, lambda text: [hit.id for hit in search(pages.view, prepare_question(pages.view, text), None, K).hits]
    )  # without vectors
    theirs = found(pages, plain)
    assert 0.6 < sum(theirs) / len(theirs) < 0.9
    better, worse = (
        sum(one and not other for one, other in pairs) for pairs in (zip(ours, theirs, strict=True), zip(theirs, ours, strict=True))
    )
    # McNemar's test, one-sided at 5 %: each edit of a page moves a question or two
    assert worse - better <= 1.645 * math.sqrt(worse + better), f"{worse} questions lost, {better} won"
