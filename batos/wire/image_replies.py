"""Replies about the image: objects, methods, undo and upkeep, memory, stepping, and comparisons. See `batos.wire.mission_replies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict  # of `typing`, pydantic takes it from Python 3.12 on

from batos.wire.fields import ChangeState, State
from batos.wire.mission_replies import (
    CitationRow,
    EffectClass,
    EffectState,
    FailureRow,
    ImageRow,
    JsonObject,
    MissionResult,
    Origin,
    QuestionRow,
    RatingRow,
    RoutingRow,
    UndoneRow,
    WireError,
    WireReply,
)

# --- objects

_OperationClass = TypedDict("_OperationClass", {"class": Annotated[EffectClass, "what a repetition does"]})


class OperationRow(_OperationClass):
    """An operation of a connection, performed by a message."""

    message: Annotated[str, "the message"]
    tool: Annotated[str, "name of the tool"]
    line: Annotated[str, "one line on what it does"]


class PassageRow(TypedDict):
    """A passage that a question to the memory gave."""

    n: Annotated[int, "its mark in the text"]
    chunk: Annotated[str, "its id"]
    title: Annotated[str, "title of its document"]
    source: Annotated[str, "its file, or where else it comes from"]
    text: Annotated[str, "the passage"]


class RecalledRow(TypedDict):
    """A question to the memory."""

    question: Annotated[str, "the question"]
    passages: Annotated[list[PassageRow], "the passages that it gave"]


class PlanRow(TypedDict):
    """A part of a plan."""

    part: Annotated[str, "name of the facet or persona"]
    query: Annotated[str, "what it was asked"]
    said: NotRequired[Annotated[str, "its answer"]]
    silent: NotRequired[Annotated[str, "why it said nothing"]]


class AskedUser(TypedDict):
    """A question to the user and its answer."""

    question: Annotated[str, "the question"]
    answer: Annotated[str, "the answer"]


class CycleRow(TypedDict):
    """A cycle of thought."""

    cycle: Annotated[str, "number of the cycle"]
    persona: Annotated[str, "the persona that thought"]
    why: Annotated[str, "why this persona"]
    brief: Annotated[str, "what it thought about"]
    state: Annotated[str, "state in which it ended"]
    depth: Annotated[str, "how much it thought"]
    depth_why: Annotated[str, "why that much"]
    left_out: NotRequired[Annotated[dict[str, int], "characters that the model did not read, by what they belong to"]]
    flavour: Annotated[str, "how much of the persona's own flavour is in the answer"]
    planned_by: Annotated[str, "who planned"]
    plan: Annotated[list[PlanRow], "parts of the plan"]
    woven_from: Annotated[list[Any], "the part that each sentence of the answer comes from"]
    citations: Annotated[list[CitationRow], "passages of the memory that the answer comes from"]
    cycles: Annotated[list[CycleRow], "cycles inside it"]
    asked: NotRequired[Annotated[AskedUser, "what it asked its user"]]


class InferenceRow(TypedDict):
    """An inference of a journal."""

    cycle: Annotated[str, "number of the cycle that asked"]
    state: Annotated[str, "state that asked"]
    persona: Annotated[str, "persona that asked"]
    part: Annotated[str, "part of the plan that asked; empty: the mission's own voice"]
    model: Annotated[str, "the model"]
    digest: Annotated[str, "digest of the model"]
    prompt_tokens: Annotated[int, "tokens read"]
    answer_tokens: Annotated[int, "tokens written"]
    model_ms: Annotated[float, "time of the model, in milliseconds"]
    prompt_ms: Annotated[float, "part of `model_ms` that reading took"]
    ended: Annotated[str, "why it ended, as Ollama says"]
    at: Annotated[float, "time of the inference"]
    text: Annotated[str, "the answer, cut if long; empty: dropped by retention"]


class CostRow(TypedDict):
    """Cost of a model."""

    model: Annotated[str, "the model"]
    inferences: Annotated[int, "number of inferences"]
    prompt_tokens: Annotated[int, "tokens read"]
    answer_tokens: Annotated[int, "tokens written"]
    model_ms: Annotated[float, "time of the model, in milliseconds"]


class EntropyRow(TypedDict):
    """Entropy of a mission ([entropy.md](entropy.md))."""

    cem: Annotated[float, "the composite, from 0 to 1"]
    relevance: Annotated[float, "part of it"]
    diversity: Annotated[float, "part of it"]
    novelty: Annotated[float, "part of it"]
    structure: Annotated[float, "part of it"]
    source: Annotated[Literal["embedding", "words"], "what texts were compared by"]


class RecordRow(TypedDict):
    """Record of a mission."""

    id: Annotated[str, "id of the mission"]
    brief: Annotated[str, "the brief; of an old mission the beginning"]
    state: Annotated[State, "as in `status`; for a past moment the recorded one"]
    origin: Annotated[str, "source of the mission, as in `status`"]
    persona: Annotated[str | None, "the persona that its user chose"]
    priority: Annotated[int, "the higher goes first"]
    accepted: Annotated[float, "time of the acceptance"]
    finished: Annotated[float | None, "time of the end"]
    attempts: Annotated[int, "number of attempts that count"]
    context: Annotated[str | None, "the mission that it follows"]
    schema: Annotated[JsonObject | None, "JSON schema of its answer"]
    questions: Annotated[list[QuestionRow], "all questions of the mission"]
    rating: Annotated[RatingRow | None, "the user's rating"]
    images: Annotated[list[ImageRow], "images of the brief and of earlier missions"]
    result: NotRequired[Annotated[MissionResult, "the result, if it is COMPLETE"]]
    error: NotRequired[Annotated[WireError, "the error, if it is FAILED"]]
    undone: NotRequired[Annotated[UndoneRow, "the undo that took it back"]]
    folded: NotRequired[Annotated[bool, "true: one line is kept of it"]]
    routing: NotRequired[Annotated[RoutingRow, "which persona thinks the mission, and why"]]
    recalled: Annotated[list[RecalledRow], "questions to the memory"]
    thought: NotRequired[Annotated[CycleRow, "the cycle that completed"]]
    inferences: Annotated[list[InferenceRow], "the journal"]
    cost: Annotated[list[CostRow], "cost by model"]
    texts_dropped: Annotated[bool, "true: retention dropped the texts of the journal"]
    failures: Annotated[list[FailureRow], "failed attempts, the newest first"]
    entropy: NotRequired[Annotated[EntropyRow, "entropy, if it was measured"]]


class ShowReply(WireReply):
    """An object: its slots; for a mission its record, too."""

    type: Literal["show"]
    oid: Annotated[str | None, "id of the object; null: an old mission of which one line is kept, or an operation of a connection"]
    slots: Annotated[JsonObject, "its own slots as plain values; those that end in `*` are parents"]
    tid: Annotated[str | None, "id of the transaction that wrote it"]
    record: NotRequired[Annotated[RecordRow, "of a mission: its record"]]
    understands: NotRequired[Annotated[list[OperationRow], "of a connection: its operations"]]


class SlotEntry(TypedDict):
    """A slot."""

    name: Annotated[str, "name of the slot"]
    kind: Annotated[Literal["object", "parent", "method", "intent", "primitive", "tree", "data", "operation"], "its kind"]
    oid: NotRequired[Annotated[str, "id of its value, if it has one"]]
    about: Annotated[str, "summary of its value"]


class LsReply(WireReply):
    """The contents of an object."""

    type: Literal["ls"]
    target: Annotated[str, "the object"]
    oid: Annotated[str | None, "its id; null: an operation of a connection"]
    entries: Annotated[list[SlotEntry], "its slots by name, then the operations of a connection"]


class RevisionRow(TypedDict):
    """A revision of an object."""

    tid: Annotated[str, "id of the transaction that wrote it"]
    time: Annotated[float, "time of the transaction"]
    mission: Annotated[str, "the mission that wrote it; empty: none"]
    note: Annotated[str, "note of the transaction"]
    size: Annotated[int, "bytes"]


class HistoryReply(WireReply):
    """The revisions of an object, back to the last pack."""

    type: Literal["history"]
    target: Annotated[str, "the object"]
    revisions: Annotated[list[RevisionRow], "the newest first"]


class DiffSide(TypedDict):
    """A side of a difference."""

    at: Annotated[float, "time of the moment"]
    tid: Annotated[str | None, "id of the transaction that wrote the revision; null: the object did not exist"]
    time: NotRequired[Annotated[float, "time of that transaction"]]
    mission: NotRequired[Annotated[str, "the mission that wrote it; empty: none"]]
    note: NotRequired[Annotated[str, "note of that transaction"]]


class SlotChange(TypedDict):
    """A slot that differs."""

    slot: Annotated[str, "name of the slot"]
    before: NotRequired[Annotated[Any, "its value at `a`; left out: it came"]]
    after: NotRequired[Annotated[Any, "its value at `b`; left out: it went"]]


class DiffReply(WireReply):
    """The differences of an object between two moments."""

    type: Literal["diff"]
    target: Annotated[str, "the object"]
    oid: Annotated[str, "its id"]
    a: Annotated[DiffSide, "the earlier side"]
    b: Annotated[DiffSide, "the later side"]
    changes: Annotated[list[SlotChange], "slots that differ"]


class TaughtRow(TypedDict):
    """An example that was taught. Empty fields are left out."""

    args: NotRequired[Annotated[list[Any], "the arguments"]]
    kwargs: NotRequired[Annotated[JsonObject, "the arguments by name"]]
    slots: NotRequired[Annotated[JsonObject, "slots of the receiver before"]]
    after: NotRequired[Annotated[JsonObject, "slots of the receiver after"]]
    result: Annotated[Any, "the answer"]


class MethodVersion(TypedDict):
    """A version of a method."""

    version: Annotated[int, "number of the version, from 1"]
    source: Annotated[str, "its source"]
    parameters: Annotated[list[str], "names of its parameters"]
    contract: Annotated[dict[str, list[str]], "effects by name: `reads`, `writes`, `sends`, `reaches`, `needs_grant`, `imports`, `raises`"]
    granted: Annotated[list[str], "messages that its user let it send"]
    provenance: Annotated[JsonObject, "where it comes from: `mission`, `model`, `intent`, `tries` and more"]
    digest: Annotated[str, "digest of the audited source"]
    intact: Annotated[bool, "true: the source is the audited one"]


class MethodReply(WireReply):
    """Value that an object holds under a selector."""

    type: Literal["method"]
    target: Annotated[str, "the object"]
    oid: Annotated[str, "its id"]
    selector: Annotated[str, "the selector"]
    kind: Annotated[Literal["method", "intent", "primitive", "data", "missing"], "kind of the value"]
    holder: Annotated[str | None, "id of the object that holds it: itself or a parent"]
    intent: Annotated[str, "purpose of the message in words; may be empty"]
    examples: Annotated[list[TaughtRow], "examples that were taught"]
    versions: Annotated[list[MethodVersion], "versions of a method, the newest first"]
    doubts: NotRequired[Annotated[list[str], "reasons for which the next `send` writes the method anew"]]


class MethodRow(TypedDict):
    """A generated method."""

    holder: Annotated[str, "path of its object, or the id if no path is known"]
    oid: Annotated[str, "id of its object"]
    selector: Annotated[str, "the message"]
    version: Annotated[int, "number of the newest version"]
    mission: Annotated[str | None, "the mission that wrote it"]
    model: Annotated[str | None, "the model that wrote it"]
    intact: Annotated[bool, "true: the source is the audited one"]
    reaches: NotRequired[Annotated[list[str], "tools that it calls, as `CONNECTION.TOOL=CLASS`"]]
    lacks_grant: NotRequired[Annotated[list[str], "messages in it that need a grant which it does not have"]]
    runs: NotRequired[Annotated[int, "number of runs, once the senses noted one"]]
    last: NotRequired[Annotated[float, "time of the last run"]]


class MethodsReply(WireReply):
    """The generated methods."""

    type: Literal["methods"]
    methods: Annotated[list[MethodRow], "by path and selector"]


# --- undo and upkeep


class UndoneMission(TypedDict):
    """An undone mission."""

    id: Annotated[str, "id of the mission"]
    brief: Annotated[str, "the first 500 characters of its brief"]
    finished: Annotated[float | None, "time of its end"]


class TouchedObject(TypedDict):
    """An object that is changed."""

    oid: Annotated[str, "id of the object"]
    parts: Annotated[list[str], "slots, items of containers, or other parts"]


class MovedDocuments(TypedDict):
    """Documents of the memory, by their titles."""

    gone: Annotated[list[str], "documents that go"]
    back: Annotated[list[str], "documents that come back"]


class StandingEffect(TypedDict):
    """A call of a tool that stays done."""

    mission: Annotated[str, "id of the mission"]
    key: Annotated[str, "key of the effect"]
    tool: Annotated[str, "the tool, as `CONNECTION.TOOL`"]
    state: Annotated[EffectState, "state of the effect"]
    at: Annotated[float, "time of the call"]
    compensation: NotRequired[Annotated[str, "the tool that takes the effect back"]]


class UndoReply(WireReply):
    """Undo of a mission, and of all that was undone with it; or its redo."""

    type: Literal["undo"]
    id: Annotated[str, "id of the mission"]
    redo: Annotated[bool, "true: it was done again"]
    dry: Annotated[bool, "true: nothing was changed"]
    missions: Annotated[list[UndoneMission], "the undone missions, the newest first"]
    objects: Annotated[list[TouchedObject], "changed objects"]
    documents: Annotated[MovedDocuments, "documents of the memory that go and come back"]
    already: NotRequired[Annotated[bool, "true: it was undone before, and nothing changed"]]
    effects: NotRequired[Annotated[list[StandingEffect], "calls of tools that stay done, the last 20 of each mission"]]


class ChangeRow(TypedDict):
    """A change that the system proposed or made by itself ([autotelic.md](autotelic.md))."""

    number: Annotated[int, "number of the change"]
    kind: Annotated[str, "kind of the change"]
    target: Annotated[str, "object and slot, or a name"]
    why: Annotated[str, "the expected effect in words"]
    evidence: Annotated[JsonObject, "the measurement: `words`, and its figures"]
    source: Annotated[str, "`measurement`, `model`, `user`, or `mission`"]
    mission: Annotated[str, "the mission whose work the proposal is; empty: none"]
    state: Annotated[ChangeState, "`promoted`: it is made, and watched; `disabled`: the daemon died of it"]
    reason: Annotated[str, "why it has that state; may be empty"]
    proposed: Annotated[float, "time of the proposal"]
    decided: Annotated[float | None, "time of the decision"]
    ended: Annotated[float | None, "time of the end of its watch"]
    content: NotRequired[Annotated[Any, "of a single change: the proposed content"]]
    comparison: NotRequired[Annotated[JsonObject, "of a single change: figures of its rehearsal"]]
    effect: NotRequired[Annotated[JsonObject, "of a single change: figures of its watch"]]
    missions: NotRequired[Annotated[int, "of a single change: number of the last mission accepted before it"]]
    digest: NotRequired[Annotated[str, "of a single change: digest that equal proposals share"]]


class ChangesReply(WireReply):
    """Changes that the system proposed and made of its own accord."""

    type: Literal["changes"]
    changes: Annotated[list[ChangeRow], "the newest first; or the one of the given number"]


class UndoChangeReply(WireReply):
    """Undo of a change that the system made by itself."""

    type: Literal["undo_change"]
    number: Annotated[int, "number of the change"]
    dry: Annotated[bool, "true: nothing was changed"]
    objects: Annotated[list[TouchedObject], "changed objects"]
    missions: NotRequired[Annotated[list[UndoneMission], "empty: no mission is undone"]]
    documents: NotRequired[Annotated[MovedDocuments, "documents of the memory that go and come back"]]
    already: NotRequired[Annotated[bool, "true: it was undone before"]]
    refused: NotRequired[Annotated[bool, "true: it was only proposed, and is refused now"]]
    models: NotRequired[Annotated[list[str], "models that were deleted with it"]]
    waits: NotRequired[Annotated[str, "why its models are deleted later"]]


class ForkReply(WireReply):
    """A data folder for another daemon."""

    type: Literal["fork"]
    image: Annotated[str, "path of the new image"]
    bytes: Annotated[int, "its size"]
    objects: Annotated[int, "number of its objects"]
    tid: Annotated[str, "id of its last transaction"]
    time: Annotated[float, "time of that transaction"]
    unfinished: Annotated[int, "number of missions that have not ended"]
    took_s: Annotated[float, "seconds"]


class PackReply(WireReply):
    """Removal of old history."""

    type: Literal["pack"]
    bytes_before: Annotated[int, "size of the image before"]
    bytes_after: Annotated[int, "size of the image after"]
    objects_before: Annotated[int, "number of objects before"]
    objects_after: Annotated[int, "number of objects after"]
    packed_to: Annotated[float, "moment to which history was dropped"]
    took_s: Annotated[float, "seconds"]


class BackupReply(WireReply):
    """A backup that was proved."""

    type: Literal["backup"]
    folder: Annotated[str, "folder of the backup"]
    kind: Annotated[Literal["full", "incremental", "unchanged"], "kind of the backup"]
    file: Annotated[str | None, "the new file; null: nothing was new"]
    bytes: Annotated[int, "size of the new file"]
    total_bytes: Annotated[int, "size of the restored image"]
    blob_bytes: Annotated[int, "size of its blobs"]
    objects: Annotated[int, "number of its objects"]
    methods: Annotated[int, "number of its generated methods"]
    damaged: Annotated[list[str], "methods and places with other content than was written"]
    tid: Annotated[str, "id of its last transaction"]
    took_s: Annotated[float, "seconds"]


# --- memory


class RefusedFile(TypedDict):
    """A file that was not read."""

    path: Annotated[str, "the file or folder"]
    code: Annotated[str, "code of the error"]
    message: Annotated[str, "the reason in words"]
    at: NotRequired[Annotated[float, "time of the refusal"]]
    context: NotRequired[Annotated[JsonObject, "facts about the error"]]


class IgnoredLink(TypedDict):
    """A link that is not followed."""

    path: Annotated[str, "the link"]
    to: Annotated[str, "its target"]


class LeftOutFiles(TypedDict):
    """Content of folders that is not read."""

    files: Annotated[int, "number of files of other kinds"]
    kinds: Annotated[dict[str, int], "number of those files by kind"]
    ignored: Annotated[int, "number of files and folders that a pattern excludes"]
    links: Annotated[list[IgnoredLink], "links that are not followed"]
    hidden: Annotated[int, "number of files and folders whose names start with a full stop"]


class IngestReply(WireReply):
    """Files that are queued for the memory; with `watch`, at the end, what became of them."""

    type: Literal["ingest"]
    queued: Annotated[int, "number of files"]
    watching: NotRequired[Annotated[bool, "true: events `file` follow"]]
    added: NotRequired[Annotated[int, "at the end: number of new files"]]
    updated: NotRequired[Annotated[int, "at the end: number of changed files"]]
    unchanged: NotRequired[Annotated[int, "at the end: number of files that were read before"]]
    forgotten: NotRequired[Annotated[int, "at the end: number of files that vanished"]]
    chunks: NotRequired[Annotated[int, "at the end: number of passages"]]
    refused: NotRequired[Annotated[list[RefusedFile], "files and folders that cannot be read"]]
    left_out: NotRequired[Annotated[LeftOutFiles, "content of the folders that is not read"]]
    took_s: NotRequired[Annotated[float, "at the end: seconds"]]


class FileEvent(WireReply):
    """A file of an `ingest` that is watched."""

    type: Literal["file"]
    path: Annotated[str, "the file"]
    state: Annotated[Literal["reading", "waiting", "added", "updated", "unchanged", "forgotten", "refused"], "what became of it"]
    chunks: NotRequired[Annotated[int, "number of passages"]]
    kind: NotRequired[Annotated[str, "kind of the document"]]
    dropped: NotRequired[Annotated[int, "number of passages of the earlier version; or as in all replies"]]
    document: NotRequired[Annotated[int, "number of the document"]]
    code: NotRequired[Annotated[str, "of `refused`: code of the error"]]
    message: NotRequired[Annotated[str, "of `refused` and `waiting`: the reason in words"]]
    context: NotRequired[Annotated[JsonObject, "of `refused`: facts about the error"]]


class WaitingCounts(TypedDict):
    """Work that waits."""

    files: Annotated[int, "number of files to read"]
    sections: Annotated[int, "number of sections without vectors"]


class FollowedFolder(TypedDict):
    """A folder that the memory watches."""

    folder: Annotated[str, "the folder"]
    away: Annotated[str, "why it cannot be read now; empty: it can"]
    exclude: NotRequired[Annotated[list[str], "ignore patterns"]]
    left_out: NotRequired[Annotated[LeftOutFiles, "its content that is not read"]]


class EmbedderState(TypedDict):
    """The embedder of the memory."""

    identity: Annotated[str, "the embedder in use"]
    state: Annotated[Literal["ready", "working", "waiting", "away", "elsewhere"], "its state"]
    why: Annotated[str, "the reason; may be empty"]
    vectors: Annotated[int, "number of passages with a vector"]
    serving: Annotated[str, "the embedder that made these vectors"]


class DocumentRow(TypedDict):
    """A document of the memory."""

    source: Annotated[str, "its file, or where else it comes from"]
    sources: Annotated[list[str], "all files with this content"]
    title: Annotated[str, "its title"]
    kind: Annotated[str, "its kind"]
    origin: Annotated[Origin, "who says it"]
    chunks: Annotated[int, "number of its passages"]
    day: Annotated[str | None, "its day, if it is known"]
    mission: Annotated[str | None, "the mission that it comes from"]
    complete: Annotated[bool, "true: it was read to its end"]
    doubts: Annotated[list[str], "what may be wrong with it"]
    archives: Annotated[list[int], "numbers of the archives that hold parts of it"]
    oid: Annotated[str, "its id"]


class ArchiveRow(TypedDict):
    """An archive of the memory."""

    archive: Annotated[int, "its number"]
    of: Annotated[list[str], "sources of its documents, the first ones"]
    documents: Annotated[int, "number of its documents"]
    chunks: Annotated[int, "number of its passages"]
    bytes: Annotated[int, "its size"]
    level: Annotated[int, "1, or more if it holds archives"]
    by_model: Annotated[bool, "true: a model wrote its summary"]
    made: Annotated[float, "time of its making"]
    summary: Annotated[str | None, "id of its summary"]
    oid: Annotated[str, "its id"]


class ArchivedRow(TypedDict):
    """The archives."""

    archives: Annotated[int, "number of archives"]
    listed: Annotated[list[ArchiveRow], "the newest first"]
    pinned: Annotated[list[str], "sources that are never archived"]


class RestoredRow(TypedDict):
    """Content that came back."""

    archives: Annotated[list[int], "numbers of the archives"]
    chunks: Annotated[int, "number of passages"]


class PinRow(TypedDict):
    """A source that is pinned or unpinned."""

    source: Annotated[str, "the source"]
    stays: Annotated[bool, "true: it is pinned"]
    new: Annotated[bool, "true: it was not so before"]
    documents: Annotated[int, "number of pinned documents in all"]
    restored: Annotated[int, "number of passages that came back"]


class ForgottenRow(TypedDict):
    """A document that was forgotten."""

    source: Annotated[str, "its source"]
    title: Annotated[str, "its title"]
    kept: Annotated[list[str], "other files with the same content, which the memory still has"]
    chunks: Annotated[int, "number of passages that went"]


class MemoryReply(WireReply):
    """The contents of the memory."""

    type: Literal["memory"]
    documents: Annotated[int, "number of documents"]
    sections: Annotated[int, "number of sections"]
    chunks: Annotated[int, "number of passages"]
    entities: Annotated[int, "number of names"]
    archives: Annotated[int, "number of archives"]
    waiting: Annotated[WaitingCounts, "work that waits"]
    refused: Annotated[list[RefusedFile], "files that were refused"]
    followed: Annotated[list[FollowedFolder], "folders that are watched"]
    under_way: Annotated[str | None, "the file that is read now"]
    trouble: Annotated[str, "why nothing can be stored now; empty: all is well"]
    embedder: Annotated[EmbedderState, "the embedder"]
    listed: NotRequired[Annotated[list[DocumentRow], "documents, the newest first, if they were asked for"]]
    archived: NotRequired[Annotated[ArchivedRow, "archives, if they were asked for"]]
    restored: NotRequired[Annotated[RestoredRow, "of `restore`: what came back"]]
    pin: NotRequired[Annotated[PinRow, "of `pin` and `unpin`: the source"]]
    forgotten: NotRequired[Annotated[ForgottenRow, "of `forget`: the document"]]


class ClusterRow(TypedDict):
    """Sections that are archived together."""

    archive: NotRequired[Annotated[int, "number of the archive; left out by a dry run"]]
    why: Annotated[str, "why they are archived"]
    chunks: Annotated[int, "number of passages"]
    bytes: NotRequired[Annotated[int, "size of the archive; left out by a dry run"]]
    documents: NotRequired[Annotated[int, "of a dry run: number of documents"]]
    sources: NotRequired[Annotated[list[str], "of a dry run: their sources, the first ones"]]


class CurateReply(WireReply):
    """A round of the curator."""

    type: Literal["curate"]
    why: Annotated[str, "why it ran"]
    found: Annotated[int, "number of clusters that might be archived"]
    clusters: Annotated[list[ClusterRow], "those that were archived; of a dry run all"]
    chunks: Annotated[int, "number of archived passages"]
    bytes: Annotated[int, "size of the new archives"]
    by_model: Annotated[int, "number of summaries that a model wrote"]
    tokens: Annotated[int, "tokens that it took"]
    took_s: Annotated[float, "seconds"]


class SearchHit(TypedDict):
    """A passage."""

    text: Annotated[str, "the passage"]
    score: Annotated[float, "its score; the higher, the better"]
    source: Annotated[str, "its file, or where else it comes from"]
    title: Annotated[str, "title of its document"]
    section: Annotated[str, "title of its section"]
    kind: Annotated[str, "kind of its document"]
    origin: Annotated[Origin, "who says it"]
    speaker: Annotated[str, "who speaks in it; may be empty"]
    day: Annotated[str | None, "its day, if it is known"]
    oid: Annotated[str, "its id"]
    fits: Annotated[bool, "true: it fits the question well; every question has nearest passages"]
    archive: NotRequired[Annotated[int, "of the summary of an archive: the archive's number"]]
    of: NotRequired[Annotated[list[str], "of the summary of an archive: sources of its documents"]]
    signals: NotRequired[Annotated[dict[str, float], "with `explain`: the part of each signal in its score"]]
    path: NotRequired[Annotated[list[str], "with `explain`: passages whose links led to it"]]


class UnderstoodQuestion(TypedDict):
    """The reading of a question."""

    words: Annotated[list[str], "its terms"]
    cleaned: Annotated[str, "what was compared by meaning"]
    names_speakers: Annotated[int, "number of speakers that it names"]
    days: Annotated[list[list[str]], "spans of days: the first and the last"]
    wants: Annotated[list[Literal["when", "number"]], "what it asks for"]
    bridges: Annotated[bool, "true: it may need two passages that are linked"]


class SearchReply(WireReply):
    """The passages that answer a question best, the best first."""

    type: Literal["search"]
    question: Annotated[str, "the question"]
    hits: Annotated[list[SearchHit], "the passages"]
    fits: Annotated[bool, "true: at least one passage fits the question well"]
    by_vectors: Annotated[bool, "true: meaning counted; false: words, names and days decided"]
    why: Annotated[str, "why meaning did not count: the embedder is away, or no passage has a vector yet; else empty"]
    understood: NotRequired[Annotated[UnderstoodQuestion, "with `explain`: how the question was understood"]]
    took_ms: Annotated[float, "milliseconds"]
