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
from batos.memory.drafts import Draft, DraftPart
from batos.memory.kinds import NOTE
from batos.memory.library import library_of
from batos.memory.origins import noted_by
from batos.mind.thinking import current
from batos.objects import Primitive, UvmObject

_TITLE = 80


def install(lobby: UvmObject) -> None:
    """The step of genesis that lets the memory answer missions, and makes the mark up to which missions were remembered."""
    comment = "I know up to which mission all that has ended is in memory, and which before that had not ended."
    add_missing(lobby.memory, lived=lambda: lobby.genesis.derive(comment=comment, until=0, open=()))
    add_missing(lobby.memory, recall_=Primitive.of(recall_), remember_=Primitive.of(remember_), forget_=Primitive.of(forget_))


def lived_through(root: Any) -> tuple[int, tuple[int, ...]]:
    """The number up to which missions are in memory, and those before it that are not yet; see `batos.image.folding.Free`."""
    lived = root["lobby"].memory.lived
    return int(lived.until), tuple(lived.open)


@Primitive.register("memory.recall_")
async def recall_(memory: UvmObject, question: str) -> tuple[UvmObject, ...]:
    """The chunks that speak to a question, the best first. They answer `neighbours_`, `source_` and `mentions_`.

    :raises InvalidInput: for what is no question.
    """
    asked = _text(question, "recall_ takes a question: a text")
    found = await current().evidence.about(asked, gated=current().gated)
    chunks = library_of(_root(memory)).chunks
    return tuple(chunks[one.number] for one in found if one.number in chunks)


@Primitive.register("memory.remember_")
def remember_(memory: UvmObject, text: str, title: str = "") -> UvmObject:
    """Keep a text as a document of its own; that document. A text that is kept already stays as it is.

    :raises InvalidInput: for what is no text, or more than one document holds.
    """
    from batos.memory.remembering import remember  # late: it brings numpy

    attempt, kept, root = current(), _text(text, "remember_ takes a text"), _root(memory)
    library, longest = library_of(root), attempt.settings.ingest_section_chars
    if len(kept) > longest:
        raise InvalidInput(
            f"remember_ takes at most {longest} characters (setting ingest_section_chars); this text has {len(kept)}: "
            "put it into a file and ingest that"
        )
    source = f"note:{hashlib.sha256(kept.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    if source not in library.by_source:
        heading = " ".join(str(title or kept.strip().split("\n", 1)[0]).split())[:_TITLE]
        day = datetime.date.fromtimestamp(attempt.mission["accepted"]).toordinal()  # as `today` of a question is
        origin = noted_by(kept, str(attempt.mission["brief"]), attempt.mission["message"], (one.text for one in attempt.tally.used))
        draft = Draft(NOTE, heading, [DraftPart(kept, heading)], day, origin=origin)
        shelver = attempt.evidence.memory.shelver
        segment = remember(root, draft, shelver, source=source, mission=attempt.id, section_chars=longest)
        attempt.evidence.changed(segment, [])
    document = library.document(source)
    if document._p_jar is None:
        root._p_jar.add(document)  # so that whoever is told of it can name it
    return document


@Primitive.register("memory.forget_", reaches="documents of the memory")
def forget_(memory: UvmObject, document: UvmObject) -> int:
    """Take a document out of the memory, with all that comes from it; how many chunks that were.

    :raises InvalidInput: for what is no document of the memory.
    """
    library = library_of(_root(memory))
    number = document._slots.get("number") if isinstance(document, UvmObject) else None
    if number is None or library.documents.get(number) is not document:
        raise InvalidInput(f"forget_ takes a document of the memory, got {history.plain(document)!r}")
    dropped = library.forget(document)
    current().evidence.changed(None, dropped)
    return len(dropped)


def _text(value: Any, otherwise: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(otherwise)
    return value


def _root(memory: UvmObject) -> Any:
    return memory._p_jar.root()
