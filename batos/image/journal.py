"""The journal: the durable record of inferences.

Each inference is keyed by its content and an occurrence number, and is durable before it is used; a resumed, retried or
replayed cycle takes from here what was paid for. By content, not by step: after a conflict the inputs may differ, and
then a new call is rightly paid. One record an inference, since a record that grows is rewritten whole at each change.

Partial texts: what has come of inferences that are not finished, kept so that a restart goes on from there.

A record of its own for each, rewritten as the text grows, and let go of when the inference is journaled (`batos.image.journal.add`).
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from persistent import Persistent

from batos.errors import ImageDamaged

log = structlog.get_logger("batos.image")

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=list)


PARTS = ("digest", "system", "user", "schema", "options")
Content = tuple[bytes, bytes, bytes, bytes, bytes]
Key = tuple[bytes, int]
"""Content key and occurrence of an inference."""


class InferenceRecord(NamedTuple):
    """One finished inference, as plain values."""

    key: bytes
    occurrence: int
    text: str
    model: str
    digest: str
    prompt_tokens: int
    answer_tokens: int
    load_ms: float
    total_ms: float
    done_reason: str
    at: float
    parts: bytes = b""
    """A short checksum of each of `PARTS`: it tells a replay what changed, where the key only tells that something did."""
    # Fields are only ever added at the end: a record written before them has their defaults.
    label: str = ""
    """Who asked: the cycle's number, its state, its persona and the part of it, parted by spaces, `-` for none."""
    prompt_eval_ms: float = 0.0
    eval_ms: float = 0.0
    seed: int | None = None
    thinking: str = ""
    """What the model thought before it answered; no longer than the limit `ThinkingLimits.thinking_chars`."""


class JournalEntry(Persistent):
    """The record of one inference."""

    __module__ = "batos.image"

    def __init__(self, inference: InferenceRecord) -> None:
        self.inference = inference
        self._v_intact = True

    def __getstate__(self) -> tuple[Any, ...]:
        fields = tuple(self.inference)
        return *fields, _check(fields)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *fields, check = state
        self.inference = InferenceRecord(*fields)
        self._v_intact = check == _check(tuple(fields))

    def intact(self) -> bool:
        """Whether it still is what was recorded."""
        return bool(self._v_intact)


def _check(fields: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(fields).encode("utf-8", "backslashreplace"))


class ModelCost(NamedTuple):
    """What inferences of one model cost."""

    model: str
    inferences: int
    prompt_tokens: int
    answer_tokens: int
    model_ms: float

    def and_also(self, other: ModelCost) -> ModelCost:
        """Both together; of the same model."""
        return ModelCost(
            self.model,
            self.inferences + other.inferences,
            self.prompt_tokens + other.prompt_tokens,
            self.answer_tokens + other.answer_tokens,
            round(self.model_ms + other.model_ms, 1),
        )


class Decision(Persistent):
    """Who thinks a mission through, and why, as JSON. A record of its own: the journal's is rewritten with each entry."""

    __module__ = "batos.image"

    def __init__(self, route: str) -> None:
        self.route = route


class Recalled(Persistent):
    """What a mission recalled from memory about a question: the numbers of chunks, the best first."""

    __module__ = "batos.image"
    shown: tuple[tuple[Any, ...], ...] = ()
    """The passages as the prompts show them, while the mission goes on: a document may be cut otherwise meanwhile."""

    def __init__(self, question: str, chunks: tuple[int, ...], shown: tuple[tuple[Any, ...], ...] = ()) -> None:
        self.question, self.chunks, self.shown = question, chunks, shown


class PartialText(Persistent):
    """The text of one unfinished inference, and the tokens it took (`batos.image.journal`)."""

    __module__ = "batos.image"
    text: str = ""
    tokens: int = 0


class Journal(Persistent):
    """The inferences of one mission, in the order in which they ended."""

    __module__ = "batos.image"
    entries: tuple[JournalEntry, ...] = ()
    partials: tuple[tuple[Key, PartialText], ...] = ()
    decided: Decision | None = None
    """Who thinks the mission through: decided once, and durable no later than the first of the entries."""
    recalled: tuple[Recalled, ...] = ()
    """What was recalled for it, durable no later than the first inference that was asked with it."""
    nothing_on: tuple[bytes, ...] = ()
    """Marks of the questions to which memory had nothing to say, when it was asked."""
    shared: tuple[tuple[bytes, tuple[tuple[str, str], ...]], ...] = ()
    """By the mark of a brief: the personas that it was shared out to, each with its part."""
    approaches: tuple[tuple[bytes, tuple[str, ...]], ...] = ()
    """By the mark of a brief: how it is thought about, as the fields of `batos.mind.brief_analysis.Approach`."""
    provided: str | None = None
    """What the mission was, or is being, provided with where it needs what no model here can do, as JSON (`batos.mind.model_needs`)."""
    room: int | None = None
    """How many characters it may tell its models, where all were too many for the context; None: all."""
    nearness: tuple[tuple[bytes, float], ...] = ()
    """By the mark of an answer and of what it answers to: how alike they are by their embeddings, as a cosine."""
    spent: tuple[tuple[Any, ...], ...] = ()
    """In place of the entries, once retention has dropped their texts: the fields of one Spent a model."""


def of(mission: Any) -> Journal:
    """The journal of a mission; an empty one, to look into, where it has none yet."""
    held = mission.journal
    return Journal() if held is None else held


def opened(mission: Any) -> Journal:
    """System transaction's part: the journal of a mission, to be written to. It has one from its first attempt on."""
    if mission.journal is None:
        mission.journal = Journal()
    return mission.journal  # type: ignore[no-any-return]


def _writable(root: Any, mission: str) -> Journal:
    return opened(root["ledger"].missions[mission])


def content_of(
    digest: str,
    system: str,
    user: str,
    schema: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    turns: Sequence[tuple[str, str]] = (),
    shown: Sequence[Sequence[str]] = (),
) -> Content:
    """What decides the answer of an inference: each of `PARTS` as bytes.

    :param turns: what was said before, which counts with what the user says.
    :param shown: digests of the pictures of each turn, and of what the user says.
    """
    said = _CANONICAL.encode([*turns, user, *([{"images": shown}] if shown else [])]) if turns or shown else user
    return (
        digest.encode(),
        system.encode("utf-8", "surrogatepass"),
        said.encode("utf-8", "surrogatepass"),
        _CANONICAL.encode(schema).encode("utf-8", "surrogatepass") if schema is not None else b"",
        _CANONICAL.encode(options).encode("utf-8", "surrogatepass"),
    )


def key_of(content: Content) -> bytes:
    """The content key of an inference: 16 bytes of SHA-256 over its parts, each with its length before it."""
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in content)).digest()[:16]


def parts_of(content: Content) -> bytes:
    """Four bytes of checksum for each of `PARTS`, in that order."""
    return b"".join(zlib.crc32(part).to_bytes(4, "big") for part in content)


def changed_parts(one: bytes, other: bytes) -> list[str]:
    """The names of the parts in which two requests differ."""
    return [name for i, name in enumerate(PARTS) if one[4 * i : 4 * i + 4] != other[4 * i : 4 * i + 4]]


def add(root: Any, mission: str, inference: InferenceRecord) -> None:
    """System transaction: record an inference of a mission."""
    journal = _writable(root, mission)
    journal.entries += (JournalEntry(inference),)
    if journal.partials:  # it is journaled now
        done = (inference.key, inference.occurrence)
        journal.partials = tuple(entry for entry in journal.partials if entry[0] != done)


def set_route(root: Any, mission: str, route: str) -> None:
    """System transaction: record who thinks a mission through; the first decision stays."""
    journal = _writable(root, mission)
    if journal.decided is None:
        journal.decided = Decision(route)


def route_of(root: Any, mission: str) -> str | None:
    """The recorded decision who thinks a mission through."""
    found = root["ledger"].missions.get(mission)
    decided = None if found is None else of(found).decided
    return None if decided is None else decided.route


def mark_of(text: str) -> bytes:
    """Eight bytes that stand for a question or a brief."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]


def add_recalled(root: Any, mission: str, question: str, chunks: tuple[int, ...], shown: tuple[tuple[Any, ...], ...] = ()) -> None:
    """System transaction: record what was recalled about a question, nothing included; the first time stays."""
    journal, mark = _writable(root, mission), mark_of(question)
    if mark in journal.nothing_on or any(known.question == question for known in journal.recalled):
        return
    if chunks:
        journal.recalled += (Recalled(question, chunks, shown),)
    else:
        journal.nothing_on += (mark,)


def recalled_of(root: Any, mission: str) -> dict[str, Recalled]:
    """By question: what a mission recalled about it."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else {one.question: one for one in of(found).recalled}


def nothing_on(root: Any, mission: str) -> frozenset[bytes]:
    """The marks of the questions of a mission to which memory had nothing to say."""
    found = root["ledger"].missions.get(mission)
    return frozenset() if found is None else frozenset(of(found).nothing_on)


def forget_shown(journal: Journal) -> None:
    """System transaction's part: the mission has ended; of what it was shown the numbers stay."""
    for one in journal.recalled:
        if one.shown:
            one.shown = ()


def add_shared(root: Any, mission: str, mark: bytes, parts: tuple[tuple[str, str], ...]) -> None:
    """System transaction: record how a brief was shared out; the first time stays."""
    journal = _writable(root, mission)
    if mark not in dict(journal.shared):
        journal.shared += ((mark, parts),)


def shared_of(root: Any, mission: str) -> dict[bytes, tuple[tuple[str, str], ...]]:
    """By the marks of briefs: how they were shared out."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else dict(of(found).shared)


def add_approach(root: Any, mission: str, mark: bytes, approach: tuple[str, ...]) -> None:
    """System transaction: record how a brief is thought about; the first time stays."""
    journal = _writable(root, mission)
    if mark not in dict(journal.approaches):
        journal.approaches += ((mark, approach),)


def approaches_of(root: Any, mission: str) -> dict[bytes, tuple[str, ...]]:
    """By the marks of briefs: how they are thought about."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else dict(of(found).approaches)


def set_provided(root: Any, mission: str, record: Mapping[str, Any]) -> None:
    """System transaction: record how far a mission is with what it is provided with; nothing is recorded of one that is not there."""
    if mission in root["ledger"].missions:
        _writable(root, mission).provided = json.dumps(dict(record), ensure_ascii=False)


def provided_of(root: Any, mission: str) -> dict[str, Any]:
    """What is recorded of what a mission is provided with; empty where that is nothing."""
    found = root["ledger"].missions.get(mission)
    held = None if found is None else of(found).provided
    return {} if held is None else json.loads(held)


def set_room(root: Any, mission: str, chars: int | None) -> None:
    """System transaction: record how many characters a mission may tell its models; None: all that there is."""
    _writable(root, mission).room = chars


def room_of(root: Any, mission: str) -> int | None:
    """How many characters a mission may tell its models; None: all that there is."""
    found = root["ledger"].missions.get(mission)
    return None if found is None else of(found).room


def add_nearness(root: Any, mission: str, mark: bytes, cosine: float) -> None:
    """System transaction: record how alike an answer is to what it answers to; the first time stays."""
    journal = _writable(root, mission)
    if mark not in dict(journal.nearness):
        journal.nearness += ((mark, cosine),)


def nearness_of(root: Any, mission: str) -> dict[bytes, float]:
    """By the marks of answers: how alike they are to what they answer to."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else dict(of(found).nearness)


def load(root: Any, mission: str) -> list[InferenceRecord]:
    """All recorded inferences of a mission that are intact, in the order in which they ended."""
    found = root["ledger"].missions.get(mission)
    return [] if found is None else [entry.inference for entry in _readable(of(found))]


def _readable(journal: Journal) -> Iterator[JournalEntry]:
    """The entries that are intact; any other counts as not paid for."""
    for entry in journal.entries:
        try:
            if entry.intact():  # a ghost is loaded to be asked
                yield entry
        except ImageDamaged as e:
            log.error("inference_damaged", error=e.message)


def spent_on(journal: Journal) -> list[ModelCost]:
    """What a mission cost, by model; also after its texts are gone."""
    return merged([*(ModelCost(*row) for row in journal.spent), *(spent_by(entry.inference) for entry in _readable(journal))])


def spent_by(inference: InferenceRecord) -> ModelCost:
    """What one inference cost."""
    return ModelCost(inference.model, 1, inference.prompt_tokens, inference.answer_tokens, inference.total_ms)


def merged(rows: Iterable[ModelCost]) -> list[ModelCost]:
    """One row a model, in the order of their names."""
    found: dict[str, ModelCost] = {}
    for row in rows:
        found[row.model] = found.get(row.model, ModelCost(row.model, 0, 0, 0, 0.0)).and_also(row)
    return [found[model] for model in sorted(found)]


def drop_texts(journal: Journal) -> bool:
    """System transaction's part: keep what the inferences cost, let go of the rest; whether there was anything to drop."""
    if not (journal.entries or journal.partials or journal.recalled or journal.shared):
        return False
    journal.spent = tuple(tuple(row) for row in spent_on(journal))
    journal.entries, journal.partials, journal.recalled, journal.nothing_on, journal.shared, journal.approaches = (), (), (), (), (), ()
    return True


def now() -> float:
    """The time that an entry carries, in seconds since the epoch."""
    return round(time.time(), 3)


def keep_partial(root: Any, mission: str, key: Key, text: str, tokens: int) -> None:
    """System transaction: keep the text that has come so far; shorter than what is kept, it is left out."""
    journal = opened(root["ledger"].missions[mission])
    partial = dict(journal.partials).get(key)
    if partial is None:
        partial = PartialText()
        journal.partials += ((key, partial),)
    if tokens > partial.tokens:
        partial.text, partial.tokens = text, tokens


def load_partials(root: Any, mission: str) -> dict[Key, tuple[str, int]]:
    """The partial texts of a mission."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else {key: (partial.text, partial.tokens) for key, partial in of(found).partials}
