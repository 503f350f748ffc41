"""Memory by messages: `recall_`, `remember_` and `forget_` of `lobby.memory`, for personas, methods and people.

What a mission remembers or forgets is part of its own transaction, and searches see it once that is committed.
"""

from __future__ import annotations

import datetime
import hashlib
from typing import Any

from batos.errors import InvalidInput
from batos.image import history
from batos.image.genesis import add_missing
from batos.memory.drafts import DraftPart, bounded
from batos.memory.library import library_of
from batos.mind.thinking import current
from batos.objects import Primitive, UvmObject

NOTE = "note"
"""The kind of the documents that missions remember."""
_TITLE = 80


def install(lobby: UvmObject) -> None:
    """The step of genesis that lets the memory answer missions, and makes the mark up to which missions were remembered."""
    comment = "I know up to which mission all that has ended is in memory, and which before that had not ended."
    add_missing(lobby.memory, lived=lambda: lobby.genesis.derive(comment=comment, until=0, open=()))
    add_missing(lobby.memory, recall_=Primitive.of(recall_), remember_=Primitive.of(remember_), forget_=Primitive.of(forget_))


@Primitive.register
async def recall_(memory: UvmObject, question: str) -> tuple[UvmObject, ...]:
    """The chunks that speak to a question, the best first. They answer `neighbours_`, `source_` and `mentions_`.

    :raises InvalidInput: for what is no question.
    """
    asked = _text(question, "recall_ takes a question: a text")
    found = await current().evidence.about(asked, gated=current().gated)
    chunks = library_of(_root(memory)).chunks
    return tuple(chunks[one.number] for one in found if one.number in chunks)


@Primitive.register
def remember_(memory: UvmObject, text: str, title: str = "") -> UvmObject:
    """Keep a text as a document of its own; that document. A text that is kept already stays as it is.

    :raises InvalidInput: for what is no text, or more than one document holds.
    """
    from batos.memory.segments import build  # late: it brings numpy

    attempt, kept = current(), _text(text, "remember_ takes a text")
    if len(kept) > attempt.settings.ingest_section_chars:
        raise InvalidInput(
            f"remember_ takes at most {attempt.settings.ingest_section_chars} characters (setting ingest_section_chars); "
            f"this text has {len(kept)}: put it into a file and ingest that"
        )
    root = _root(memory)
    library, keeper = library_of(root), attempt.evidence.memory
    digest = hashlib.sha256(f"{NOTE}\0{kept}".encode("utf-8", "surrogatepass")).digest()
    known = library.by_content.get(digest)
    if known is not None:
        return library.documents[known]  # type: ignore[no-any-return]
    number, day = keeper.number(), datetime.datetime.fromtimestamp(attempt.mission["accepted"], datetime.UTC).toordinal()
    heading = " ".join(str(title or kept.strip().split("\n", 1)[0]).split())[:_TITLE]
    parts = bounded([DraftPart(kept, heading)], attempt.settings.ingest_section_chars)
    shelved = [keeper.shelver.shelve(part, document=number, kind="text", day=day) for part in parts]
    entries = [entry for each in shelved for entry in each.entries]
    source = f"mission:{attempt.id}:{digest.hex()[:12]}"
    facts = {
        "title": heading, "kind": NOTE, "source": source, "sources": (source,), "mission": attempt.id, "day": day, "days": (day,),
        "digest": digest, "complete": True,
    }  # fmt: skip
    library.put(root, number, facts, [each.shelf for each in shelved], build(entries), [each.shelf.section.number for each in shelved])
    attempt.evidence.changed(entries, [])
    document = library.documents[number]
    root._p_jar.add(document)  # so that whoever is told of it can name it
    return document  # type: ignore[no-any-return]


@Primitive.register
def forget_(memory: UvmObject, document: UvmObject) -> int:
    """Take a document out of the memory, with all that comes from it; how many chunks that were.

    :raises InvalidInput: for what is no document of the memory.
    """
    library = library_of(_root(memory))
    number = document._slots.get("number") if isinstance(document, UvmObject) else None
    if number is None or library.documents.get(number) is not document:
        raise InvalidInput(f"forget_ takes a document of the memory, got {history.plain(document)!r}")
    dropped = library.forget(document)
    current().evidence.changed([], dropped)
    return len(dropped)


def _text(value: Any, otherwise: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(otherwise)
    return value


def _root(memory: UvmObject) -> Any:
    return memory._p_jar.root()
