"""Both text indexes keep zope.index's interfaces and rank alike: ours in segments, and zope.index's own with our words."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from zope.index.interfaces import IIndexSearch, IInjection, IStatistics
from zope.index.text.interfaces import ILexicon, ILexiconBasedIndex, IPipelineElement
from zope.index.text.lexicon import CaseNormalizer, Lexicon, Splitter
from zope.index.text.okapiindex import OkapiIndex
from zope.interface.verify import verifyObject

from batos.memory.search_index import Collection
from batos.memory.segments import Entry, Facts, build
from batos.memory.text_index import OkapiText, SegmentedText, Words
from batos.memory.tokenizer import words

INDEXES = pytest.mark.parametrize("make", [SegmentedText, OkapiText])
Make = Callable[..., Any]
SAID = {
    3: "Harriet rowed to the C++ evening at the lighthouse on 7 May.",
    -4: "Oskar's cafés are painted: don’t miss the paintings!",
    2**40: "Painting, painting, painting. What a lighthouse!",
    5: "",
}


def scores(index: Any, query: str) -> dict[int, float]:
    return dict(index.apply(query) or {})


def filled(make: Make) -> Any:
    index = make()
    for id, text in SAID.items():
        index.index_doc(id, text)
    return index


def corpus(seed: int, size: int) -> dict[int, str]:
    """Texts of words as frequent as those of a language are."""
    rng = random.Random(seed)
    vocabulary = [f"w{i}x" for i in range(400)]
    weights = [1 / (i + 1) for i in range(400)]
    return {rng.randrange(-(2**62), 2**62): " ".join(rng.choices(vocabulary, weights, k=rng.randrange(40))) for _ in range(size)}


@INDEXES
def test_keeps_the_interfaces(make: Make) -> None:
    index = filled(make)
    for interface in (IInjection, IIndexSearch, IStatistics, ILexiconBasedIndex):
        assert verifyObject(interface, index)
    assert verifyObject(ILexicon, index.lexicon)
    assert verifyObject(IPipelineElement, Words())


@INDEXES
def test_a_question_finds_what_holds_any_of_its_words(make: Make) -> None:
    index = filled(make)
    assert set(scores(index, "When did Harriet paint?")) == {3, -4, 2**40}
    assert max(scores(index, "painting"), key=scores(index, "painting").__getitem__) == 2**40
    assert set(scores(index, "CAFE")) == {-4}
    assert scores(index, "zebra") == {}
    assert index.apply("What is it?") is None  # no word that says anything: all would match
    assert scores(index, "caf*") == {}  # no pattern


@INDEXES
def test_counts_what_it_holds(make: Make) -> None:
    index = filled(make)
    assert index.documentCount() == 4
    assert index.wordCount() == len({word for text in SAID.values() for word in words(text)})
    index.clear()
    assert index.documentCount() == index.wordCount() == 0
    assert scores(index, "painting") == {}
    index.index_doc(1, "painting")
    assert scores(index, "painting") == {1: pytest.approx(np.log(2))}


@INDEXES
def test_a_text_can_be_taken_out_and_put_in_anew(make: Make) -> None:
    index = filled(make)
    index.unindex_doc(3)
    index.unindex_doc(3)
    index.unindex_doc(99)
    assert (index.documentCount(), scores(index, "Harriet")) == (3, {})
    index.index_doc(3, "Harriet sings")
    index.index_doc(-4, "Oskar sings, too")
    assert set(scores(index, "singing")) == {3, -4}
    assert set(scores(index, "cafés")) == set()
    assert index.documentCount() == 4


def test_a_lexicon_of_the_users_own_is_used() -> None:
    for make in (SegmentedText, OkapiText):
        index = make(Lexicon(Splitter(), CaseNormalizer()))
        index.index_doc(1, "The paintings")
        assert set(scores(index, "the")) == {1}
        assert scores(index, "painting") == {}


@pytest.mark.parametrize("seed", range(4))
def test_both_give_the_same_scores(seed: int) -> None:
    texts = corpus(seed, 300)
    ours, theirs = SegmentedText(), OkapiText()
    for begin in range(0, 300, 37):
        batch = list(texts.items())[begin : begin + 37]
        ours.index_docs(batch)
        theirs.index_docs(batch)
    rng = random.Random(seed)
    for id in rng.sample(list(texts), 60):
        changed = rng.random() < 0.5
        for index in (ours, theirs):
            index.index_doc(id, texts[id][::2] + " w7x") if changed else index.unindex_doc(id)
    assert ours.documentCount() == theirs.documentCount()
    assert ours.wordCount() == theirs.wordCount()
    for _ in range(30):
        query = " ".join(rng.choices([f"w{i}x" for i in range(420)], k=rng.randrange(1, 9)))
        assert scores(ours, query) == pytest.approx(scores(theirs, query), rel=1e-5)


def test_a_window_ranks_as_counts_that_neighbours_add_to() -> None:
    """A collection ranks by the formula of zope.index's Okapi index over counts to which neighbours add a third and a sixth of theirs."""
    rng = random.Random(11)
    chunks = list(corpus(5, 200).values())
    sections = [(i // 40, i // 13) for i in range(200)]
    entries = [Entry(i, words(text), Facts(*sections[i])) for i, text in enumerate(chunks)]
    counts: list[dict[str, float]] = [defaultdict(float) for _ in chunks]
    for i, text in enumerate(chunks):
        for j in range(max(0, i - 2), min(200, i + 3)):
            if sections[j] == sections[i]:
                for word in words(text):
                    counts[j][word] += (1.0, 1 / 3, 1 / 6)[abs(i - j)]
    mean = sum(sum(one.values()) for one in counts) / 200
    collection = Collection()
    for begin in range(0, 200, 31):  # cut where sections go on, too
        collection.append(build(entries[begin : begin + 31]))
    view = collection.view()
    for _ in range(30):
        query = words(" ".join(rng.choices([f"w{i}x" for i in range(420)], k=rng.randrange(1, 9))))
        expected = {}
        for i, one in enumerate(counts):
            norm = OkapiIndex.K1 * (1 - OkapiIndex.B + OkapiIndex.B * sum(one.values()) / mean)
            idf = {word: math.log1p(200 / sum(word in other for other in counts)) for word in query if word in one}
            if idf:
                expected[i] = sum(idf[word] * one[word] * (OkapiIndex.K1 + 1) / (one[word] + norm) for word in query if word in one)
        found = view.bm25(query)
        assert {int(view.ids[row]): float(found[row]) for row in np.flatnonzero(found)} == pytest.approx(expected, rel=1e-4)
