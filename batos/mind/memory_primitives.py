"""Memory primitives: `recall_`, `remember_` and `forget_` of `lobby.memory`, `summarise_` of chunks and documents, and gists.

* A mission's changes to the memory are part of its own transaction, and searches see them once that is committed.
* A summary is an object of its own that points at its sources, and is stored with the mission that asked for it. It is also a document of
  the memory: searches find it beside its sources, never instead, and its chunks point at them. It goes when a source goes or changes.
* A gist is a model's summary of sections, which the curator requests as a system mission. Such a mission goes after those of users, is
  journaled, and is paid for once. The curator uses an id made of the sections, and after a kill finds the answer. The text is stored with
  the summary, and then removed from the mission.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from batos.config import Settings
from batos.errors import BatosError, InferenceFailed, InvalidInput
from batos.image import history
from batos.image.living_image import add_missing
from batos.image.mission_record import FROM_OTHERS, MissionRecord
from batos.memory.chunking import ChunkLimits
from batos.memory.drafts import Draft, DraftPart
from batos.memory.objects import noted_by
from batos.memory.records import NOTE, SUMMARY
from batos.memory.store import library_of, summary_source
from batos.mind.attempt import Attempt, attempt_or_none, current
from batos.mind.events import Event, Events
from batos.mind.incarnation import system_message
from batos.objects import Primitive, Root, UvmObject, find

if TYPE_CHECKING:
    from batos.memory.curator import Gist  # it loads numpy

_TITLE = 80


def install_memory(lobby: UvmObject) -> None:
    """Let the memory answer missions, and set the mark up to which missions were remembered. A step of genesis."""
    comment = "I know up to which mission all that has ended is in memory, and which before that had not ended."
    add_missing(lobby.memory, lived=lambda: lobby.genesis.derive(comment=comment, until=0, open=()))
    add_missing(lobby.memory, recall_=Primitive.of(recall_), remember_=Primitive.of(remember_), forget_=Primitive.of(forget_))


def remembered_until(root: Root) -> tuple[int, tuple[int, ...]]:
    """Return the number up to which missions are in memory, and those before it that are not yet; see `batos.image.retention.Free`."""
    lived = root["lobby"].memory.lived
    return int(lived.until), tuple(lived.open)


@Primitive.register("memory.recall_")
async def recall_(memory: UvmObject, question: str) -> tuple[UvmObject, ...]:
    """Return the chunks that speak to a question, the best first. They answer `neighbours_`, `source_` and `mentions_`.

    :raises InvalidInput: if the argument is not a question.
    """
    asked = _text(question, "recall_ takes a question: a text")
    found = await current().evidence.about(asked, gated=current().gated)
    chunks = library_of(_root(memory)).chunks
    return tuple(chunks[one.number] for one in found if one.number in chunks)


@Primitive.register("memory.remember_")
def remember_(memory: UvmObject, text: str, title: str = "") -> UvmObject:
    """Store a text as a document of its own. Return that document. A text that is already stored stays as it is.

    :raises InvalidInput: if the argument is not a text, or longer than one document.
    """
    from batos.memory.section_builder import remember_document  # late import: it loads numpy

    attempt, kept, root = current(), _text(text, "remember_ takes a text"), _root(memory)
    library, longest = library_of(root), ChunkLimits.of(attempt.settings).section_chars
    if len(kept) > longest:
        raise InvalidInput(f"remember_ takes at most {longest} characters; this text has {len(kept)}: put it into a file and ingest that")
    source = f"note:{hashlib.sha256(kept.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    if source not in library.by_source:
        heading = " ".join(str(title or kept.strip().split("\n", 1)[0]).split())[:_TITLE]
        day = datetime.date.fromtimestamp(attempt.mission.accepted).toordinal()  # as for `today` of a question
        given = "" if attempt.mission.origin in FROM_OTHERS else attempt.mission.brief  # its words are not its user's
        origin = noted_by(kept, given, attempt.mission.message, (one.text for one in attempt.tally.used))
        draft = Draft(NOTE, heading, [DraftPart(kept, heading)], day, origin=origin)
        shelver = attempt.evidence.memory.shelver
        segment = remember_document(root, draft, shelver, source=source, mission=attempt.id, section_chars=longest)
        attempt.evidence.changed(segment, [])
    document = library.document(source)
    if document._p_jar is None:
        root._p_jar.add(document)  # so that the index entries can name its id
    return document


@Primitive.register("memory.forget_", reaches="documents of the memory")
def forget_(memory: UvmObject, document: UvmObject) -> int:
    """Remove a document from the memory, with everything that comes from it. Return the number of chunks.

    :raises InvalidInput: if the argument is not a document of the memory.
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


PROMPT = "Say in at most $sentences sentences what this says. Use nothing but what is in it.\n\n$text"
SPEAKER = "babs"
CHARS = 6000
"""Greatest number of characters of a text for one inference. A longer text is summarised in parts, and then its summaries are."""
_HALVED = 400  # least number of characters of a text that is halved if it exceeds the model's context


def install_summaries(lobby: UvmObject) -> None:
    """Let chunks and documents be summarised. A step of genesis."""
    for prototype in (lobby.traits.chunk, lobby.traits.document):
        add_missing(prototype, summarise_=Primitive.of(summarise_))
    add_missing(lobby.traits.summary, prompt=PROMPT, speaker=SPEAKER)


@Primitive.register("memory.summarise_")
async def summarise_(obj: UvmObject, sentences: int = 3) -> UvmObject:
    """Return a summary of a chunk or a document, by the persona that the prototype of summaries names.

    :param sentences: maximum number of sentences.
    :raises InvalidInput: outside a mission, or for a number below 1 or above 50.
    """
    text = await summarize_texts(obj, _texts(obj), sentences)
    attempt, prototype = current(), obj._p_jar.root()["lobby"].traits.summary
    summary = UvmObject(**{"parent*": prototype, "text": text, "of": (obj,), "mission": attempt.id})
    obj._p_jar.add(summary)
    obj.summary = summary
    if attempt.evidence.remembers:
        _remember(obj, summary, attempt)
    return summary


async def summarize_texts(memory: UvmObject, texts: list[str], sentences: int) -> str:
    """Return a summary of texts by the persona that the prototype of summaries names; long texts in parts, then those summaries together.

    :param memory: any object of the image.
    :raises InvalidInput: outside a mission, or for a number below 1 or above 50.
    """
    attempt = attempt_or_none()
    if attempt is None:
        raise InvalidInput("a summary asks a model: send it in a mission, `batos send-to`")
    if not (isinstance(sentences, int) and 1 <= sentences <= 50):
        raise InvalidInput(f"a summary takes a number of sentences from 1 to 50, got {sentences!r}")
    lobby = memory._p_jar.root()["lobby"]
    prototype = lobby.traits.summary
    speaker = lobby._slots.get(prototype.speaker) or lobby._slots[lobby.personas[0]]

    async def told(text: str) -> str:
        prompt = prototype.prompt.replace("$sentences", str(sentences)).replace("$text", text)
        try:
            reply = await attempt.chat(attempt.voice_of(speaker), system_message(speaker), prompt, part="summary", temperature=0.2)
        except InferenceFailed as e:
            if e.cause != "too_long" or len(text) < _HALVED:
                raise
            middle = text.rfind("\n", 0, len(text) // 2) + 1 or text.rfind(" ", 0, len(text) // 2) + 1 or len(text) // 2
            halves = f"{await told(text[:middle])}\n{await told(text[middle:])}"
            return await told(halves) if len(halves) < len(text) else halves
        return reply.text.strip()

    texts = _gathered(texts)
    while len(texts) > 1:
        texts = _gathered([await told(text) for text in texts])
    return await told(texts[0])


def _remember(obj: UvmObject, summary: UvmObject, attempt: Attempt) -> None:
    """Let searches find a summary, in the place of an earlier one of the same."""
    from batos.memory.section_builder import remember_document  # late import: it loads numpy

    root = obj._p_jar.root()
    library, source = library_of(root), summary_source(obj.number)
    earlier = library.summary_of(obj.number)
    dropped = library.forget(earlier) if earlier is not None else []
    document = obj.document if "document" in obj._slots else obj
    title = f"Summary of {document.title or document.source}"
    draft = Draft(SUMMARY, title, [DraftPart(summary.text, title)], document.day)
    longest = ChunkLimits.of(attempt.settings).section_chars
    segment = remember_document(
        root, draft, attempt.evidence.memory.shelver, source=source, mission=attempt.id, section_chars=longest, of=(obj,)
    )
    attempt.evidence.changed(segment, dropped)


def _texts(obj: UvmObject) -> list[str]:
    """Return the text of an object, in parts that one inference can read."""
    own = find(obj, "text")
    if own is not None and own[0] is obj:
        return _gathered([str(own[1])])
    return _gathered(_chunks(obj))


def _chunks(document: UvmObject) -> list[str]:
    found = find(document, "chunks_")
    assert found is not None, "only chunks and documents are told to summarise themselves"
    return [str(chunk.text) for chunk in found[1](document)]


def _gathered(texts: list[str]) -> list[str]:
    """Join neighbouring texts up to the limit of length."""
    found: list[str] = []
    for text in texts:
        if found and len(found[-1]) + len(text) <= CHARS:
            found[-1] += "\n" + text
        else:
            found += [text[at : at + CHARS] for at in range(0, len(text), CHARS)]
    return found or [""]


log = structlog.get_logger("batos.mind")


class Submits(Protocol):
    """Interface to the scheduler of missions (`batos.missions.scheduler.Scheduler`)."""

    settings: Settings

    async def submit(self, id: str, brief: str, options: dict[str, Any]) -> tuple[bool, MissionRecord]:
        """Submit a mission."""


def install_gists(lobby: UvmObject) -> None:
    """Let the memory summarise its sections. A step of genesis."""
    add_missing(lobby.memory, gist_=Primitive.of(gist_))


@Primitive.register("memory.gist_")
async def gist_(memory: UvmObject, sections: Sequence[int], sentences: int = 3) -> str:
    """Return a summary of sections by the persona that the prototype of summaries names.

    :param sections: their numbers; those that are gone are left out.
    :raises InvalidInput: if none of the sections exists.
    """
    library = memory.library
    there = [number for number in sections if number in library.sections]
    if not there:
        raise InvalidInput("none of these sections is in the memory")
    return await summarize_texts(memory, [library.text_of(library.section(number)) for number in there], sentences)


def gist_source(scheduler: Submits, events: Events) -> Callable[[str, Sequence[int], int], Awaitable[Gist]]:
    """Return the function with which the curator requests gists.

    :returns: takes an id, numbers of sections, and a number of sentences; returns a Gist, a blank one if no model answers.
    """

    from batos.memory.curator import Gist  # late import: it loads numpy

    async def ask(id: str, sections: Sequence[int], sentences: int) -> Gist:
        ended: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        stop = events.watch(id, lambda event: None if event["type"] != "result" or ended.done() else ended.set_result(event))
        message = {"target": "memory", "selector": "gist_", "args": [list(sections), sentences], "kwargs": {}}
        options = {"origin": "system", "message": json.dumps(message)}
        try:
            _, record = await scheduler.submit(id, f"what {len(sections)} sections of the memory say", options)
            result = record.result
            if not record.is_final:
                async with asyncio.timeout(2 * scheduler.settings.missions.deadline_s):  # the user may have paused the mission
                    result = (await ended).get("result")
        except (TimeoutError, BatosError) as e:
            log.warning("no_gist", mission=id, error=str(e) or "it took too long")
            return Gist()
        finally:
            stop()
        result = result or {}
        usage = result.get("usage") or {}
        tokens = int(usage.get("prompt_tokens") or 0) + int(usage.get("answer_tokens") or 0)
        return Gist(str(result.get("text") or ""), tokens, id)

    return ask
