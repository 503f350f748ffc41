"""Objects of the memory in the image: documents, chunks of their text, entities, summaries.

They answer messages, so that moving from one to the next is sending. A chunk answers its `neighbours_`, its `source_` and what it
`mentions_`. A document answers its `chunks_`, an entity the chunks that mention it. Prototypes hold what is common; an object holds only
what differs, so that a chunk is little more than its text on disk.

The origin of a document tells who stated its content: a file, the user, a tool, or the system itself. A statement by the system is not
evidence of a fact. Mostly the kind of the document gives its origin, also for documents older than origins. For a note, the note itself or
the record of its mission gives it. `memory_contents` reports all of it as plain values.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from BTrees.LLBTree import LLTreeSet
from ZODB.POSException import POSKeyError

from batos.errors import BatosError, ImageDamaged, InvalidInput
from batos.image import ledger
from batos.image.living_image import add_missing
from batos.image.mission_index import descending
from batos.memory.records import DIGEST, FAILURE, MISSION, NOTE, STATEMENT, SUMMARY
from batos.memory.store import Library, library_of
from batos.objects import Primitive, Root, UvmObject
from batos.objects.json_form import oid_of

FILE, USER, TOOL, SELF = "file", "user", "tool", "self"
ORIGINS = (FILE, USER, TOOL, SELF)

_LEAST = 12
"""Least number of characters of a model's answer that a note must repeat to have the model as its origin."""


def origin_of(root: Root, document: UvmObject) -> str:
    """Return the origin of a document's content; one of `ORIGINS`."""
    kind = document.kind
    if document.origin in ORIGINS:
        return str(document.origin)
    if kind == STATEMENT:
        return USER
    if kind in (MISSION, FAILURE, DIGEST):
        return SELF
    if kind == SUMMARY:
        return _of_summary(root, document)
    return _of_note(root, document) if kind == NOTE else FILE


def _of_summary(root: Root, document: UvmObject) -> str:
    """Return the origin of a summary: chosen sentences keep their origin, a model's text belongs to the system."""
    if document.archive is None or document.archive.by_model:
        return SELF
    origins = {origin_of(root, one) for one in document.of if "kind" in one._slots or "sections" in one._slots}
    return origins.pop() if len(origins) == 1 else FILE


def _of_note(root: Root, document: UvmObject) -> str:
    """Return the origin of a note without one, as in version 0.1.0, from the mission that kept it."""
    try:
        mission = ledger.mission_of(root, document.mission)
    except BatosError:  # the mission is unknown by now
        return TOOL
    text = "".join(chunk.text for chunk in library_of(root).chunks_of(document))
    return noted_by(text, str(mission.brief), mission.message, ())


def noted_by(text: str, brief: str, message: str | None, said: Iterable[str]) -> str:
    """Return the origin of a note that a mission keeps.

    :param message: message of the mission, from the ledger; None if the mission thinks about its brief.
    :param said: texts that models answered in it.
    """
    given = " ".join([brief, *_texts(json.loads(message))] if message else [brief])
    if " ".join(text.split()) in " ".join(given.split()):
        return USER
    told = [one.strip() for one in said]
    if any((len(one) >= _LEAST and one in text) or (text.strip() in one) for one in told):
        return SELF
    return TOOL if message else SELF


def _texts(value: Any) -> list[str]:
    """Return all texts in a JSON value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


# --- own answers that the user confirmed


def vouched(root: Root) -> frozenset[int]:
    """Return the numbers of the documents that are of missions which the user rated +1."""
    return frozenset(root["lobby"].memory.vouched.keys(0, excludemin=True))


def none_vouched() -> LLTreeSet:
    """Return the tree of `vouched`. The 0 in it is not the number of a document and stays: two transactions that add to an empty tree would
    conflict.
    """
    return LLTreeSet([0])


def vouch(root: Root, mission: str, rating: int) -> None:
    """System transaction: make a mission's answers evidence if the user rates it +1, and revoke that otherwise."""
    number = library_of(root).by_source.get(f"mission:{mission}")
    if number is None:  # the rating is applied again when the mission becomes memory
        return
    numbers = root["lobby"].memory.vouched
    if rating > 0:
        numbers.add(number)
    elif number in numbers:
        numbers.remove(number)


DOCUMENT: dict[str, Any] = {
    "title": "", "source": "", "sources": (), "kind": "text", "day": 0, "tags": (), "mission": "", "origin": "", "sections": (),
    "speakers": (), "days": (), "of": (), "doubts": (),
    "digest": b"", "complete": False, "archives": (), "whole": (), "archive": None,
}  # fmt: skip
"""Slots of the prototype of documents. `origin` is the speaker, if the kind does not give it (`batos.memory.objects`). `day` counts as
`datetime.date.toordinal` does; 0: no day. `sections` are numbers. `of` lists what a summary covers. `doubts` lists what the reader was
unsure of or left out. `complete` is True once all of the document is stored, also for a file that takes several transactions. `archives`
hold some of its sections. `whole` lists all sections of an archived document in order, if the order of numbers differs. `archive` is the
archive that a summary stands for.
"""
ARCHIVE: dict[str, Any] = {
    "of": (), "chunks": 0, "bytes": 0, "summary": None, "by_model": False, "level": 1, "entities": (), "made": 0.0,
}  # fmt: skip
"""Slots of the prototype of archives. `of` are documents, `bytes` is the size of the blob, `made` is in seconds since the epoch.
`entities` are entities that no live chunk names any more. `level` is 1 for documents and missions, more for summaries.
"""
CHUNK: dict[str, Any] = {"text": "", "speaker": "", "mentioned": ()}
"""Slots of the prototype of chunks. `mentioned` are keys of entities."""


def install(lobby: UvmObject) -> None:
    """Create the memory: its prototypes, its library, and `lobby.memory`, by which it is found. A step of genesis."""
    derive = lobby.genesis.derive
    add_missing(
        lobby.traits,
        document=lambda: derive(comment="I am the prototype of documents: what was read or remembered as one, with its source."),
        chunk=lambda: derive(comment="I am the prototype of memory chunks: a passage of a document that can be found by what it says."),
        entity=lambda: derive(comment="I am the prototype of entities: what documents speak of by name."),
        summary=lambda: derive(comment="I am the prototype of summaries: what other objects say, in fewer words."),
        archive=lambda: derive(comment="I am the prototype of archives: parts of documents that a summary stands for, in a blob."),
    )
    traits = lobby.traits
    add_missing(traits.document, chunks_=Primitive.of(chunks_), **DOCUMENT)
    messages = {"neighbours_": Primitive.of(neighbours_), "source_": Primitive.of(source_), "mentions_": Primitive.of(mentions_)}
    add_missing(traits.chunk, **messages, **CHUNK)
    add_missing(traits.entity, mentions_=Primitive.of(mentioned_by_), name="", kind="")
    add_missing(traits.archive, source_=Primitive.of(summarised_), **ARCHIVE)
    add_missing(traits.summary, source_=Primitive.of(summarised_), text="", of=(), mission="")
    add_missing(
        lobby,
        memory=lambda: derive(name="memory", comment="I am the memory: what was read and what was lived through, to be found again."),
    )
    add_missing(lobby.memory, library=Library, vouched=none_vouched)
    comment = "I am the Memory Curator: when I was last at work, and how large the image was then."
    add_missing(lobby.memory, curator=lambda: derive(name="curator", comment=comment, at=0.0, bytes=0, rounds=0))
    lobby.memory.library.complete()


# --- primitives of the prototypes


@Primitive.register("memory.neighbours_")
def neighbours_(chunk: UvmObject, each_side: int = 1) -> tuple[UvmObject, ...]:
    """Return the chunks before and after this one in its section, in their order.

    :param each_side: number of chunks on each side.
    :raises InvalidInput: for a number below 1 or above 1,000.
    """
    if not (isinstance(each_side, int) and 1 <= each_side <= 1000):
        raise InvalidInput(f"neighbours_ takes a number of chunks from 1 to 1000, got {each_side!r}")
    library = _library(chunk)
    own = library.section_of(chunk).numbers
    around = range(max(own.start, chunk.number - each_side), min(own.stop, chunk.number + each_side + 1))
    return tuple(library.chunks[n] for n in around if n != chunk.number)


@Primitive.register("memory.source_")
def source_(chunk: UvmObject) -> UvmObject:
    """Return the document that a chunk is from."""
    return chunk.document  # type: ignore[no-any-return]


@Primitive.register("memory.mentions_")
def mentions_(chunk: UvmObject) -> tuple[UvmObject, ...]:
    """Return the entities that a chunk speaks of."""
    entities = _library(chunk).entities
    return tuple(entities[key] for key in chunk.mentioned if key in entities)


@Primitive.register("memory.mentioned_by_")
def mentioned_by_(entity: UvmObject) -> tuple[UvmObject, ...]:
    """Return the chunks that speak of an entity, in the order in which they came."""
    chunks = _library(entity).chunks
    return tuple(chunks[number] for number in entity.chunks if number in chunks)


@Primitive.register("memory.chunks_")
def chunks_(document: UvmObject) -> tuple[UvmObject, ...]:
    """Return the chunks of a document, from its beginning to its end."""
    return tuple(_library(document).chunks_of(document))


@Primitive.register("memory.summarised_")
def summarised_(summary: UvmObject) -> tuple[UvmObject, ...]:
    """Return the documents or chunks that a summary stands for."""
    return tuple(summary.of)


def _library(obj: UvmObject) -> Library:
    """Return the library of the image that holds an object.

    :raises InvalidInput: for one that no image holds yet.
    """
    if obj._p_jar is None:
        raise InvalidInput(f"{obj!r} is not in the memory yet; it is once its transaction knows it")
    return library_of(obj._p_jar.root())


_SHOWN = 100  # greatest number of refusals in one answer


def memory_contents(root: Root, documents: int | None, away: Mapping[str, str], left: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the memory as plain values; with `documents`, also that many documents, newest first.

    :param away: watched folders that cannot be read, with the reasons.
    :param left: content of watched folders that is not read (`batos.memory.files.LeftOut`).
    """
    library = library_of(root)
    told: dict[str, Any] = {
        **library.counts.told(),
        "archives": len(library.archives),
        "waiting": {"files": len(library.queue), "sections": len((library.change or library).waiting) - 1},
        "refused": [{"path": path, "code": code, "message": text, "at": at} for path, (code, text, at, *_) in library.refused.items()][
            :_SHOWN
        ],
        "followed": [
            {
                "folder": folder,
                "away": away.get(folder, ""),
                **({"exclude": exclude} if exclude else {}),
                **({"left_out": left[folder]} if left.get(folder) else {}),
            }
            for folder, (_, _, *exclude) in library.watched.items()
        ],
    }
    if documents is not None:
        told["listed"] = []
        for _, document in itertools.islice(descending(library.documents), documents):
            with contextlib.suppress(ImageDamaged, POSKeyError):  # the self-audit reports the damage
                told["listed"].append(_listed(root, library, document))
    return told


def _listed(root: Root, library: Library, document: UvmObject) -> dict[str, Any]:
    return {
        "source": document.source,
        "sources": list(document.sources),
        "title": document.title,
        "kind": document.kind,
        "origin": origin_of(root, document),
        "chunks": sum(section.size for section in library.sections_of(document)),
        "day": datetime.date.fromordinal(document.day).isoformat() if document.day else None,
        "mission": document.mission,
        "complete": document.complete,
        "doubts": list(document.doubts),
        "archives": [node.number for node in document.archives],
        "oid": oid_of(document),
    }
