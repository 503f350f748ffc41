"""Journal: the durable record of a mission's inferences.

Each inference is keyed by its content and an occurrence number, and is durable before it is used. A resumed, retried
or replayed cycle takes from here what was paid for. The key is the content, not the step: after a conflict the inputs
may differ, and then a new call is rightly paid. Each inference has a record of its own, since a record that grows is
rewritten at each change.

A partial text is the output of an inference that is not finished, kept so that a restart goes on from there. It has a
record of its own, which is rewritten as the text grows, and dropped when the inference is journaled (`add`).
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
from batos.image import kernels, ownership
from batos.objects import Root

log = structlog.get_logger("batos.image")

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=list)


PARTS = ("digest", "system", "user", "schema", "options")
Content = tuple[bytes, bytes, bytes, bytes, bytes]
Key = tuple[bytes, int]
"""Content key and occurrence of an inference."""


class InferenceRecord(NamedTuple):
    """Finished inference, as plain values."""

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
    """Short checksum of each of `PARTS`. It tells a replay which part changed; the key only tells that one did."""
    # Fields are only ever added at the end: a record written before them has their defaults.
    label: str = ""
    """Origin: the cycle's number, its state, its persona and its part, separated by spaces; `-` for none."""
    prompt_eval_ms: float = 0.0
    eval_ms: float = 0.0
    seed: int | None = None
    thinking: str = ""
    """Text that the model thought before its answer, cut to the setting `ThinkingLimits.thinking_chars`."""
    calls: tuple[tuple[str, str], ...] = ()
    """Tools that the model asked for: the name, and the arguments as JSON."""


class JournalEntry(Persistent):
    """Persistent record of one inference."""

    __module__ = "batos.image"

    def __init__(self, inference: InferenceRecord) -> None:
        self.inference = inference
        self._v_intact = True

    def __getstate__(self) -> tuple[Any, ...]:
        fields = tuple(self.inference)
        return *fields[:_TEXT], _packed(self.inference.text), *fields[_TEXT + 1 :], _check(fields)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *fields, check = state
        fields[_TEXT] = _unpacked(fields[_TEXT])
        self.inference = InferenceRecord(*fields)
        self._v_intact = check == _check(tuple(fields))

    def intact(self) -> bool:
        """Return True if the entry still is what was recorded."""
        return bool(self._v_intact)


_TEXT = InferenceRecord._fields.index("text")
_PACKED_FROM = 200  # characters of a text below which compression gains next to nothing


def _packed(text: str) -> str | bytes:
    """Return a text compressed if that makes it smaller. Many answers are prose, which takes a third less."""
    if len(text) < _PACKED_FROM:
        return text
    plain = text.encode("utf-8", "surrogatepass")
    packed = zlib.compress(plain, 6)
    return packed if len(packed) < len(plain) else text


def _unpacked(text: str | bytes) -> str:
    """Return a text from its stored form; empty for one that cannot be read, which the entry's checksum shows."""
    if isinstance(text, str):
        return text
    try:
        return zlib.decompress(text).decode("utf-8", "surrogatepass")
    except (zlib.error, UnicodeDecodeError):
        return ""


def _check(fields: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(fields).encode("utf-8", "backslashreplace"))


class ModelCost(NamedTuple):
    """Cost of inferences of one model."""

    model: str
    inferences: int
    prompt_tokens: int
    answer_tokens: int
    model_ms: float

    def and_also(self, other: ModelCost) -> ModelCost:
        """Return the sum of two costs of the same model."""
        return ModelCost(
            self.model,
            self.inferences + other.inferences,
            self.prompt_tokens + other.prompt_tokens,
            self.answer_tokens + other.answer_tokens,
            round(self.model_ms + other.model_ms, 1),
        )


Shared = tuple[tuple[bytes, tuple[tuple[str, str], ...]], ...]
Approaches = tuple[tuple[bytes, tuple[str, ...]], ...]


class Decision(Persistent):
    """Decisions about a mission, made before it is thought about. A record of its own: the journal's is rewritten
    with each entry."""

    __module__ = "batos.image"
    nothing_on: tuple[bytes, ...] = ()
    shared: Shared = ()
    approaches: Approaches = ()
    """See `Journal`, which has those of earlier versions."""

    route: str | bytes | None = None
    """Which persona thinks the mission through, and why, as JSON, compressed if it is long (`_packed`); None: not decided yet."""


class Recalled(Persistent):
    """Passages that a mission recalled from memory for a question: the numbers of chunks, the best first."""

    __module__ = "batos.image"
    shown: tuple[tuple[Any, ...], ...] = ()
    """Passages as the prompts show them, kept while the mission goes on: the document may be cut otherwise meanwhile."""

    def __init__(self, question: str, chunks: tuple[int, ...], shown: tuple[tuple[Any, ...], ...] = ()) -> None:
        self.question, self.chunks, self.shown = question, chunks, shown


class PartialText(Persistent):
    """Text of one unfinished inference, and the tokens that it took."""

    __module__ = "batos.image"
    text: str = ""
    tokens: int = 0


class Journal(Persistent):
    """Inferences of one mission, in the order in which they ended."""

    __module__ = "batos.image"
    entries: tuple[JournalEntry, ...] = ()
    partials: tuple[tuple[Key, PartialText], ...] = ()
    decided: Decision | None = None
    """Decisions about the mission, such as which persona thinks it through: durable no later than the first entry that
    follows from them."""
    recalled: tuple[Recalled, ...] = ()
    """Passages recalled for it, durable no later than the first inference that used them."""
    nothing_on: tuple[bytes, ...] = ()
    """Marks of the questions for which the memory had nothing. These three were written here by earlier versions:
    see `Decision`, and `_decisions`."""
    shared: Shared = ()
    """By the mark of a brief: the personas that it was split over, each with its part."""
    approaches: Approaches = ()
    """By the mark of a brief: how it is thought about, as the fields of `batos.mind.brief_analysis.Approach`."""
    choices: tuple[tuple[bytes, str], ...] = ()
    """By the mark of a brief and a round: the calls of tools that were chosen, as JSON (`batos.mind.tool_choice.ToolChoice`)."""
    provided: str | None = None
    """Progress of providing the mission with a model that can do more than those here, as JSON (`batos.mind.model_needs`)."""
    room: int | None = None
    """Maximum characters of its prompts, set when the full prompt did not fit the context; None: no limit."""
    told_before: tuple[int, int, str] | None = None
    """Earlier turns in its prompts, as the fields of `batos.mind.prompts.ConversationRange`; None: it follows no mission, or a version that
    did not record them began it."""
    nearness: tuple[tuple[bytes, float], ...] = ()
    """By the mark of an answer and its question: the cosine of their embeddings."""
    effects: tuple[Any, ...] = ()
    """Acts of the mission outside the image: one `batos.image.effects.RecordedEffect` each."""
    amended: tuple[tuple[str, int, str, str], ...] = ()
    """Slots of its cycles that its user changed before it was continued. Each has the cycle's number, how many states the cycle had been in
    before, the slot, the value as JSON."""
    withdrawn: tuple[JournalEntry, ...] = ()
    """Entries that its user had added, and whose undo took them out: a redo puts them back."""
    spent: tuple[tuple[Any, ...], ...] = ()
    """In place of the entries, once retention has dropped their texts: the fields of one `ModelCost` a model."""


def of(mission: Any) -> Journal:
    """Return the journal of a mission for reading; an empty one if it has none yet."""
    held = mission.journal
    return Journal() if held is None else held


def opened(mission: Any) -> Journal:
    """Return the journal of a mission for writing; it has one from its first attempt on. Part of a system
    transaction."""
    if mission.journal is None:
        mission.journal = Journal()
    return mission.journal  # type: ignore[no-any-return]


def _writable(root: Root, mission: str) -> Journal:
    """Return the journal of a mission of this kernel's for writing.

    :raises Overtaken: if the mission is another kernel's.
    """
    found = root["ledger"].missions[mission]
    ownership.own(root, found)
    return opened(found)


def _decisions(journal: Journal) -> Decision:
    """Return the decisions about a mission, for writing. Those that an earlier version wrote into the journal move
    there."""
    decided = journal.decided
    if decided is None:
        decided = journal.decided = Decision()
    for name in ("nothing_on", "shared", "approaches"):
        if found := getattr(journal, name):
            setattr(decided, name, found + getattr(decided, name))
            setattr(journal, name, ())
    return decided


def _decided(journal: Journal, name: str) -> tuple[Any, ...]:
    """Return `nothing_on`, `shared` or `approaches` of a mission."""
    found: tuple[Any, ...] = getattr(journal, name)
    return found if journal.decided is None else found + getattr(journal.decided, name)


def content_of(
    digest: str,
    system: str,
    user: str,
    schema: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    turns: Sequence[tuple[str, str]] = (),
    shown: Sequence[Sequence[str]] = (),
    tools: Sequence[Mapping[str, Any]] = (),
) -> Content:
    """Return everything that decides the answer of an inference: each of `PARTS` as bytes.

    :param turns: earlier turns of the conversation; they count as part of `user`.
    :param shown: digests of the pictures of each turn, and of the user's text.
    :param tools: tools that the model may ask for; they count as part of `schema`.
    """
    form = {"schema": schema, "tools": tools} if tools else schema
    said = _CANONICAL.encode([*turns, user, *([{"images": shown}] if shown else [])]) if turns or shown else user
    return (
        digest.encode(),
        system.encode("utf-8", "surrogatepass"),
        said.encode("utf-8", "surrogatepass"),
        _CANONICAL.encode(form).encode("utf-8", "surrogatepass") if form is not None else b"",
        _CANONICAL.encode(options).encode("utf-8", "surrogatepass"),
    )


def key_of(content: Content) -> bytes:
    """Return the content key of an inference: 16 bytes of SHA-256 over its parts, each with its length before it."""
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in content)).digest()[:16]


def parts_of(content: Content) -> bytes:
    """Return four bytes of checksum for each of `PARTS`, in that order."""
    return b"".join(zlib.crc32(part).to_bytes(4, "big") for part in content)


def changed_parts(one: bytes, other: bytes) -> list[str]:
    """Return the names of the parts in which two requests differ."""
    return [name for i, name in enumerate(PARTS) if one[4 * i : 4 * i + 4] != other[4 * i : 4 * i + 4]]


def add(root: Root, mission: str, inference: InferenceRecord) -> None:
    """Record an inference of a mission, once. A system transaction.

    :raises Overtaken: if the mission is another kernel's.
    """
    journal = _writable(root, mission)
    done = (inference.key, inference.occurrence)
    if kernels.me(root) and any((entry.inference.key, entry.inference.occurrence) == done for entry in _readable(journal)):
        return  # the commit of an earlier try had come through
    journal.entries += (JournalEntry(inference),)
    if journal.partials:  # it is journaled now
        journal.partials = tuple(entry for entry in journal.partials if entry[0] != done)


def set_route(root: Root, mission: str, route: str) -> None:
    """Record which persona thinks a mission through; the first decision stays. A system transaction."""
    decided = _decisions(_writable(root, mission))
    if decided.route is None:
        decided.route = _packed(route)


def route_of(root: Root, mission: str) -> str | None:
    """Return the recorded decision as JSON; None if there is none."""
    found = root["ledger"].missions.get(mission)
    decided = None if found is None else of(found).decided
    return None if decided is None or decided.route is None else _unpacked(decided.route)


def mark_of(text: str) -> bytes:
    """Return eight bytes that stand for a question or a brief."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]


def add_recalled(root: Root, mission: str, question: str, chunks: tuple[int, ...], shown: tuple[tuple[Any, ...], ...] = ()) -> None:
    """Record what was recalled for a question, also if it was nothing; the first record stays. A system transaction."""
    journal, mark = _writable(root, mission), mark_of(question)
    if mark in _decided(journal, "nothing_on") or any(known.question == question for known in journal.recalled):
        return
    if chunks:
        journal.recalled += (Recalled(question, chunks, shown),)
    else:
        _decisions(journal).nothing_on += (mark,)


def recalled_of(root: Root, mission: str) -> dict[str, Recalled]:
    """Return what a mission recalled, by question."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else {one.question: one for one in of(found).recalled}


def nothing_on(root: Root, mission: str) -> frozenset[bytes]:
    """Return the marks of a mission's questions for which the memory had nothing."""
    found = root["ledger"].missions.get(mission)
    return frozenset() if found is None else frozenset(_decided(of(found), "nothing_on"))


def forget_shown(journal: Journal) -> None:
    """Drop what an ended mission was shown from memory; the numbers of the chunks stay. Part of a system transaction."""
    for one in journal.recalled:
        if one.shown:
            one.shown = ()


def add_shared(root: Root, mission: str, mark: bytes, parts: tuple[tuple[str, str], ...]) -> None:
    """Record how a brief was split over personas; the first record stays. A system transaction."""
    decided = _decisions(_writable(root, mission))
    if mark not in dict(decided.shared):
        decided.shared += ((mark, parts),)


def shared_of(root: Root, mission: str) -> dict[bytes, tuple[tuple[str, str], ...]]:
    """Return how briefs were split over personas, by the marks of the briefs."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else dict(_decided(of(found), "shared"))


def add_approach(root: Root, mission: str, mark: bytes, approach: tuple[str, ...]) -> None:
    """Record how a brief is thought about; the first record stays. A system transaction."""
    decided = _decisions(_writable(root, mission))
    if mark not in dict(decided.approaches):
        decided.approaches += ((mark, approach),)


def approaches_of(root: Root, mission: str) -> dict[bytes, tuple[Any, ...]]:
    """Return how briefs are thought about, by the marks of the briefs."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else dict(_decided(of(found), "approaches"))


def add_choice(root: Root, mission: str, mark: bytes, choice: str) -> None:
    """Record which tools are to be called; the first record stays. A system transaction."""
    journal = _writable(root, mission)
    if mark not in dict(journal.choices):
        journal.choices += ((mark, choice),)


def choices_of(root: Root, mission: str) -> dict[bytes, str]:
    """Return which tools are to be called, by the marks of briefs and rounds."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else dict(of(found).choices)


def set_provided(root: Root, mission: str, record: Mapping[str, Any]) -> None:
    """Record the progress of providing a mission with a model; nothing for a mission that does not exist. A system
    transaction."""
    if mission in root["ledger"].missions:
        opened(root["ledger"].missions[mission]).provided = json.dumps(dict(record), ensure_ascii=False)


def provided_of(root: Root, mission: str) -> dict[str, Any]:
    """Return the recorded progress of providing a mission with a model; empty if there is none."""
    found = root["ledger"].missions.get(mission)
    held = None if found is None else of(found).provided
    return {} if held is None else json.loads(held)


def set_room(root: Root, mission: str, chars: int | None) -> None:
    """Record the maximum characters of a mission's prompts; None: no limit. A system transaction."""
    _writable(root, mission).room = chars


def room_of(root: Root, mission: str) -> int | None:
    """Return the maximum characters of a mission's prompts; None: no limit."""
    found = root["ledger"].missions.get(mission)
    return None if found is None else of(found).room


def set_told_before(root: Root, mission: str, told: tuple[int, int, str]) -> None:
    """Record which earlier turns a mission's prompts show; the first record stays. A system transaction."""
    journal = _writable(root, mission)
    if journal.told_before is None:
        journal.told_before = told[0], told[1], told[2]


def told_before_of(root: Root, mission: str) -> tuple[int, int, str] | None:
    """Return which earlier turns a mission's prompts show; None if that is not recorded."""
    found = root["ledger"].missions.get(mission)
    return None if found is None else of(found).told_before


def add_nearness(root: Root, mission: str, mark: bytes, cosine: float) -> None:
    """Record how similar an answer is to its question; the first record stays. A system transaction."""
    journal = _writable(root, mission)
    if mark not in dict(journal.nearness):
        journal.nearness += ((mark, cosine),)


def nearness_of(root: Root, mission: str) -> dict[bytes, float]:
    """Return the recorded cosines of answers to their questions, by the marks of the answers."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else dict(of(found).nearness)


def amended_of(root: Root, mission: str) -> dict[tuple[str, int], list[tuple[str, str]]]:
    """Return the slots of cycles that a mission's user changed, by cycle and number of states before: slot, and value as JSON."""
    found = root["ledger"].missions.get(mission)
    amended: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for cycle, after, slot, value in () if found is None else of(found).amended:
        amended.setdefault((cycle, after), []).append((slot, value))
    return amended


def record_oids(mission: Any) -> set[bytes]:
    """Return the ids of a mission's own records: its record, its journal, and all that the journal holds."""
    journal = of(mission)
    held = [mission, journal, journal.decided, *journal.entries, *journal.recalled, *journal.effects]
    held += [partial for _, partial in journal.partials]
    return {one._p_oid for one in held if one is not None and one._p_oid}


def load(root: Root, mission: str) -> list[InferenceRecord]:
    """Return all intact inferences of a mission, in the order in which they ended."""
    found = root["ledger"].missions.get(mission)
    return [] if found is None else [entry.inference for entry in _readable(of(found))]


def _readable(journal: Journal) -> Iterator[JournalEntry]:
    """Yield the intact entries; a damaged one counts as not paid for."""
    for entry in journal.entries:
        try:
            if entry.intact():  # a ghost is loaded to be asked
                yield entry
        except ImageDamaged as e:
            log.error("inference_damaged", error=e.message)


def spent_on(journal: Journal) -> list[ModelCost]:
    """Return the cost of a mission by model; also after its texts are gone."""
    return merged([*(ModelCost(*row) for row in journal.spent), *(spent_by(entry.inference) for entry in _readable(journal))])


def spent_by(inference: InferenceRecord) -> ModelCost:
    """Return the cost of one inference."""
    return ModelCost(inference.model, 1, inference.prompt_tokens, inference.answer_tokens, inference.total_ms)


def merged(rows: Iterable[ModelCost]) -> list[ModelCost]:
    """Return one row a model, in the order of their names."""
    found: dict[str, ModelCost] = {}
    for row in rows:
        found[row.model] = found.get(row.model, ModelCost(row.model, 0, 0, 0, 0.0)).and_also(row)
    return [found[model] for model in sorted(found)]


def drop_texts(journal: Journal) -> bool:
    """Keep the cost of the inferences and drop the rest; return True if there was anything to drop. Part of a system
    transaction."""
    if not (_decided(journal, "shared") or journal.entries or journal.partials or journal.recalled):  # the first: damage shows here
        return False
    journal.spent = tuple(tuple(row) for row in spent_on(journal))
    journal.withdrawn = ()
    journal.entries, journal.partials, journal.recalled, journal.choices = (), (), (), ()
    journal.nothing_on, journal.shared, journal.approaches = (), (), ()
    if (decided := journal.decided) is not None:
        decided.nothing_on, decided.shared, decided.approaches = (), (), ()
    return True


def now() -> float:
    """Return the time that an entry carries, in seconds since the epoch."""
    return round(time.time(), 3)


def keep_partial(root: Root, mission: str, key: Key, text: str, tokens: int) -> None:
    """Keep the text that has come so far; a text shorter than the kept one is ignored. A system transaction.

    :raises Overtaken: if the mission is another kernel's.
    """
    journal = _writable(root, mission)
    partial = dict(journal.partials).get(key)
    if partial is None:
        partial = PartialText()
        journal.partials += ((key, partial),)
    if tokens > partial.tokens:
        partial.text, partial.tokens = text, tokens


def load_partials(root: Root, mission: str) -> dict[Key, tuple[str, int]]:
    """Return the partial texts of a mission."""
    found = root["ledger"].missions.get(mission)
    return {} if found is None else {key: (partial.text, partial.tokens) for key, partial in of(found).partials}
