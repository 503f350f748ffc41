"""What the memory is made of, as objects of the image: documents, chunks of their text, entities, summaries.

They answer messages, so that going from one to the next is sending: a chunk its `neighbours_`, its `source_` and what it
`mentions_`, a document its `chunks_`, an entity the chunks that mention it. Prototypes hold what is common; an object holds
only what differs, so that a chunk is little more than its text on disk.
"""

from __future__ import annotations

from typing import Any

from batos.errors import InvalidInput
from batos.image.genesis import add_missing
from batos.memory.library import Library, library_of
from batos.memory.origins import none_vouched
from batos.objects import Primitive, UvmObject

DOCUMENT: dict[str, Any] = {
    "title": "", "source": "", "sources": (), "kind": "text", "day": 0, "tags": (), "mission": "", "origin": "", "sections": (),
    "speakers": (), "days": (), "of": (), "doubts": (),
    "digest": b"", "complete": False, "archives": (), "whole": (), "archive": None,
}  # fmt: skip
"""Slots of the prototype of documents. `origin` is who says it, where the kind does not tell (`batos.memory.origins`); `day` counts as
`datetime.date.toordinal` does, 0 is none; `sections` are numbers; `of` is what a summary is of; `doubts` are what its reader was not sure
of, or did not read; `complete` says that all of it is there, also of a file that takes several transactions;
`archives` are those that hold some of its sections; `whole` are all that it has then, in their order, where that is not that of
their numbers; `archive` is what a summary stands for."""
ARCHIVE: dict[str, Any] = {
    "of": (), "chunks": 0, "bytes": 0, "summary": None, "by_model": False, "level": 1, "entities": (), "made": 0.0,
}  # fmt: skip
"""Slots of the prototype of archives. `of` are documents, `bytes` those of its blob, `made` is in seconds since the epoch, `entities` are
those that nothing names any more; `level` is 1 where it holds what was read or lived through, more where it holds summaries."""
CHUNK: dict[str, Any] = {"text": "", "speaker": "", "mentioned": ()}
"""Slots of the prototype of chunks. `mentioned` are keys of entities."""


def install(lobby: UvmObject) -> None:
    """The step of genesis that makes the memory: its prototypes, its library, and `lobby.memory`, by which it is found."""
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


# --- what they answer


@Primitive.register("memory.neighbours_")
def neighbours_(chunk: UvmObject, each_side: int = 1) -> tuple[UvmObject, ...]:
    """The chunks before and after this one in its section, in their order.

    :param each_side: how many of them on each side.
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
    """The document that a chunk is from."""
    return chunk.document  # type: ignore[no-any-return]


@Primitive.register("memory.mentions_")
def mentions_(chunk: UvmObject) -> tuple[UvmObject, ...]:
    """The entities that a chunk speaks of."""
    entities = _library(chunk).entities
    return tuple(entities[key] for key in chunk.mentioned if key in entities)


@Primitive.register("memory.mentioned_by_")
def mentioned_by_(entity: UvmObject) -> tuple[UvmObject, ...]:
    """The chunks that speak of an entity, in the order in which they came."""
    chunks = _library(entity).chunks
    return tuple(chunks[number] for number in entity.chunks if number in chunks)


@Primitive.register("memory.chunks_")
def chunks_(document: UvmObject) -> tuple[UvmObject, ...]:
    """The chunks of a document, from its beginning to its end."""
    return tuple(_library(document).chunks_of(document))


@Primitive.register("memory.summarised_")
def summarised_(summary: UvmObject) -> tuple[UvmObject, ...]:
    """What a summary is of."""
    return tuple(summary.of)


def _library(obj: UvmObject) -> Library:
    """The library of the image that holds an object.

    :raises InvalidInput: for one that no image holds yet.
    """
    if obj._p_jar is None:
        raise InvalidInput(f"{obj!r} is not in the memory yet; it is once its transaction knows it")
    return library_of(obj._p_jar.root())
