"""A small memory in RAM for tests of searching: texts with speakers, days and sections, and vectors that tests choose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from batos.memory.search_index import Collection
from batos.memory.segments import Entry, Facts, build, speaker_key, traits
from batos.memory.tokenizer import words

DIMENSIONS = 16


class Said(NamedTuple):
    """A chunk to be."""

    text: str
    section: int = 1
    speaker: str = ""
    day: date | None = None
    document: int = 1
    links: tuple[int, ...] = ()


def entry(id: int, said: Said) -> Entry:
    """As ingest makes it."""
    flags, told = traits(said.text)
    speaker = speaker_key(said.speaker) if said.speaker else 0
    day = said.day.toordinal() if said.day is not None else 0
    facts = Facts(said.document, said.section, speaker=speaker, day=day, length=told, flags=flags)
    return Entry(id, words(said.text), facts, said.links)


def collection(chunks: Sequence[Said | str], vectors: Any = None) -> Collection:
    """The chunks, numbered from 0, with a vector each where there are any."""
    made = Collection()
    made.append(build([entry(id, said if isinstance(said, Said) else Said(said)) for id, said in enumerate(chunks)]))
    if vectors is not None:
        made.vectors(np.arange(len(chunks)), np.asarray(vectors, np.float32))
    return made


def axis(number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A unit vector; two of different numbers have nothing in common."""
    row = np.zeros(DIMENSIONS, np.float32)
    row[number] = 1
    return row


def noise(count: int, seed: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Unit vectors that mean nothing."""
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
