"""LoCoMo (Maharana et al., ACL 2024) as evidence retrieval: index the turns, ask the questions, see which evidence comes back.

Measured twice: a catalogue for each conversation (`locomo_…`), and all conversations in one catalogue (`onecat_…`).
The data is not part of this repository: its file is an argument. recall@k = |evidence among the first k| / |evidence|, mean over all
questions that have evidence. Ids that are written wrongly in the file ("D:11:26", "D30:05") are read as they are meant.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from batos.memory.search import QuestionVectors, prepare_question, search
from batos.memory.search_index import Collection, View
from batos.memory.segments import Entry, Facts, build, speaker_key, traits
from batos.memory.tokenizer import words
from bench.memory_parts.catalogue import RRF_K
from bench.memory_parts.embedder import Array, vectors

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {
    "locomo_recall_5": (">=", 0.76),
    "locomo_recall_10": (">=", 0.85),
    "locomo_recall_20": (">=", 0.90),
    "onecat_recall_10": (">=", 0.84),
}
CUTS = (5, 10, 20)
CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}


class Turn(NamedTuple):
    """What somebody says."""

    id: str
    session: int
    speaker: str
    text: str
    day: int


class Asked(NamedTuple):
    """A question and the rows of its evidence."""

    text: str
    evidence: frozenset[int]
    category: int


class Case(NamedTuple):
    """A catalogue with its questions."""

    view: View
    texts: list[str]
    asked: list[Asked]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--locomo", metavar="FILE", type=pathlib.Path, help="conversations as LoCoMo has them, for locomo")


def lacks(args: argparse.Namespace) -> str:
    return "" if args.locomo else "no --locomo FILE"


async def measure(bench: Bench) -> dict[str, Any]:
    samples = conversations(bench.args.locomo)
    apart = await _figures([await _case([sample]) for sample in samples], "locomo")
    return {**apart, **await _figures([await _case(samples)], "onecat")}


def conversations(path: pathlib.Path) -> list[tuple[list[Turn], list[dict[str, Any]]]]:
    """The turns of each conversation, and its questions as the file has them."""
    found = []
    for sample in json.loads(path.read_text("utf-8")):
        said = sample["conversation"]
        numbers = sorted(int(name.split("_")[1]) for name in said if re.fullmatch(r"session_\d+", name))
        found.append(([turn for number in numbers for turn in _session(said, number)], sample["qa"]))
    return found


def _session(said: dict[str, Any], number: int) -> list[Turn]:
    when = re.search(r"\d+ \w+, \d{4}", said[f"session_{number}_date_time"])
    assert when is not None, f"session {number} has no date"
    day = datetime.datetime.strptime(when[0], "%d %B, %Y").toordinal()
    turns = []
    for turn in said[f"session_{number}"]:
        caption = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
        turns.append(Turn(turn["dia_id"], number, turn["speaker"], f"{turn['speaker']}: {turn['text']}{caption}", day))
    return turns


async def _case(samples: Sequence[tuple[list[Turn], list[dict[str, Any]]]]) -> Case:
    """One catalogue of these conversations, each a document, each session a section."""
    entries: list[Entry] = []
    texts: list[str] = []
    asked: list[Asked] = []
    for document, (turns, questions) in enumerate(samples):
        rows = {turn.id: len(entries) + at for at, turn in enumerate(turns)}
        for turn in turns:
            flags, told = traits(turn.text)
            facts = Facts(document, turn.session, speaker=speaker_key(turn.speaker), day=turn.day, length=told, flags=flags)
            entries.append(Entry(len(entries), words(turn.text), facts))
            texts.append(turn.text)
        for question in questions:
            evidence = frozenset(rows[id] for id in _ids(question["evidence"]) if id in rows)
            if evidence:
                asked.append(Asked(question["question"], evidence, question["category"]))
    collection = Collection()
    collection.append(build(entries))
    collection.vectors(np.arange(len(texts)), await vectors(texts))
    view = collection.view()
    assert (view.ids == np.arange(len(texts))).all()
    return Case(view, texts, asked)


def _ids(evidence: list[str]) -> set[str]:
    return {f"D{int(session)}:{int(turn)}" for text in evidence for session, turn in re.findall(r"D:?(\d+):(\d+)", text)}


async def _figures(samples: Sequence[Case], name: str) -> dict[str, Any]:
    """Recall of the search, of it without vectors, and of what others do, over all questions."""
    fused = [row for one in samples for row in await _fused(one)]
    figures: dict[str, Any] = {f"{name}_questions": len(fused)}
    figures |= {f"{name}_recall_{k}": _mean([row[1][k] for row in fused]) for k in CUTS}
    for number, category in CATEGORIES.items():
        figures[f"{name}_{category}_recall_10"] = _mean([row[1][10] for row in fused if row[0] == number])
    figures[f"{name}_without_vectors_recall_10"] = _mean([recall[10] for one in samples for _, recall in _words_only(one)])
    floors = {"fts5_porter": _fts5, "bm25": _bm25}
    for floor, ranking in floors.items():
        figures[f"{name}_{floor}_recall_10"] = _mean([recall[10] for one in samples for recall in _ranked(one, ranking(one))])
    hybrid = [recall for one in samples for recall in _ranked(one, await _rrf(one))]
    figures |= {f"{name}_hybrid_rrf60_recall_{k}": _mean([recall[k] for recall in hybrid]) for k in CUTS}
    return figures


async def _fused(one: Case) -> list[tuple[int, dict[int, float]]]:
    questions = [prepare_question(one.view, asked.text) for asked in one.asked]
    cleaned = await vectors([question.cleaned for question in questions])
    full = await vectors([question.text for question in questions])
    found = []
    for asked, question, *pair in zip(one.asked, questions, cleaned, full, strict=True):
        hits = search(one.view, question, QuestionVectors(*pair), max(CUTS)).hits
        found.append((asked.category, _recall([hit.id for hit in hits], asked.evidence)))
    return found


def _words_only(one: Case) -> list[tuple[int, dict[int, float]]]:
    found = []
    for asked in one.asked:
        hits = search(one.view, prepare_question(one.view, asked.text), None, max(CUTS)).hits
        found.append((asked.category, _recall([hit.id for hit in hits], asked.evidence)))
    return found


def _recall(rows: list[int], evidence: frozenset[int]) -> dict[int, float]:
    return {k: len(evidence.intersection(rows[:k])) / len(evidence) for k in CUTS}


def _mean(recalls: list[float]) -> float:
    return round(sum(recalls) / max(1, len(recalls)), 4)


# --- what others do

Ranking = Callable[[str], list[int]]


def _ranked(one: Case, ranking: Ranking) -> list[dict[int, float]]:
    return [_recall(ranking(asked.text), asked.evidence) for asked in one.asked]


def _fts5(one: Case) -> Ranking:
    """SQLite's full text search with its English stemmer, an OR of the question's words."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE turns USING fts5(text, tokenize='porter unicode61')")
    db.executemany("INSERT INTO turns(rowid, text) VALUES (?, ?)", enumerate(one.texts))

    def ranking(text: str) -> list[int]:
        query = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text))
        found = db.execute("SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT ?", (query, max(CUTS)))
        return [row for (row,) in found]

    return ranking


def _alone(one: Case) -> View:
    """Each turn by itself, without windows."""
    alone = Collection()
    alone.append(build([Entry(row, words(text), Facts(section=row)) for row, text in enumerate(one.texts)]))
    return alone.view()


def _bm25(one: Case) -> Ranking:
    """BM25 of each turn alone, with our words."""
    view = _alone(one)
    return lambda text: np.argsort(-view.bm25(words(text)), kind="stable")[: max(CUTS)].tolist()


async def _rrf(one: Case) -> Ranking:
    """The textbook's hybrid: ranks of BM25 and of the question's vector as it is, added as 1 / (60 + rank)."""
    rows: dict[str, Array] = dict(zip((a.text for a in one.asked), await vectors([a.text for a in one.asked]), strict=True))
    view, depth = _alone(one), 10 * max(CUTS)

    def ranking(text: str) -> list[int]:
        score: dict[int, float] = {}
        for scores in (view.bm25(words(text)), one.view.matrix @ rows[text]):
            for rank, row in enumerate(np.argsort(-scores, kind="stable")[:depth].tolist(), 1):
                score[row] = score.get(row, 0.0) + 1 / (RRF_K + rank)
        return sorted(score, key=lambda row: (-score[row], row))[: max(CUTS)]

    return ranking
