"""What a persona says of a part of the memory in fewer words: the message `summarise_` of chunks and documents.

A summary is an object of its own that points at what it is of, and is kept with the mission that asked for it. It is a document of the
memory as well, which searches find beside what it is of, never instead, and whose chunks point at that; it goes when that goes or
changes.
"""

from __future__ import annotations

from batos.errors import InferenceFailed, InvalidInput
from batos.image.genesis import add_missing
from batos.memory.drafts import Draft, DraftPart
from batos.memory.kinds import SUMMARY
from batos.memory.library import library_of, summary_source
from batos.mind.incarnation import system_message
from batos.mind.thinking import Thinking, attempt_or_none, current
from batos.objects import Primitive, UvmObject, find

PROMPT = "Say in at most $sentences sentences what this says. Use nothing but what is in it.\n\n$text"
SPEAKER = "babs"
CHARS = 6000
"""Characters of a text that one inference reads; longer ones are summarised in parts, and then the summaries of those."""
_HALVED = 400  # characters of a text that is halved where it does not fit the model's context


def install(lobby: UvmObject) -> None:
    """The step of genesis that lets chunks and documents be summarised."""
    for prototype in (lobby.traits.chunk, lobby.traits.document):
        add_missing(prototype, summarise_=Primitive.of(summarise_))
    add_missing(lobby.traits.summary, prompt=PROMPT, speaker=SPEAKER)


@Primitive.register("memory.summarise_")
async def summarise_(obj: UvmObject, sentences: int = 3) -> UvmObject:
    """A summary of a chunk or a document, by the persona that the prototype of summaries names.

    :param sentences: at most so many.
    :raises InvalidInput: outside a mission, or for a number below 1 or above 50.
    """
    text = await in_few_words(obj, _texts(obj), sentences)
    attempt, prototype = current(), obj._p_jar.root()["lobby"].traits.summary
    summary = UvmObject(**{"parent*": prototype, "text": text, "of": (obj,), "mission": attempt.id})
    obj._p_jar.add(summary)
    obj.summary = summary
    if attempt.evidence.remembers:
        _remember(obj, summary, attempt)
    return summary


async def in_few_words(memory: UvmObject, texts: list[str], sentences: int) -> str:
    """What texts say, by the persona that the prototype of summaries names; long ones in parts, and then what was said of those.

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


def _remember(obj: UvmObject, summary: UvmObject, attempt: Thinking) -> None:
    """Let searches find a summary, in the place of an earlier one of the same."""
    from batos.memory.remembering import remember  # late: it brings numpy

    root = obj._p_jar.root()
    library, source = library_of(root), summary_source(obj.number)
    earlier = library.summary_of(obj.number)
    dropped = library.forget(earlier) if earlier is not None else []
    document = obj.document if "document" in obj._slots else obj
    title = f"Summary of {document.title or document.source}"
    draft = Draft(SUMMARY, title, [DraftPart(summary.text, title)], document.day)
    longest = attempt.settings.ingest_section_chars
    segment = remember(root, draft, attempt.evidence.memory.shelver, source=source, mission=attempt.id, section_chars=longest, of=(obj,))
    attempt.evidence.changed(segment, dropped)


def _texts(obj: UvmObject) -> list[str]:
    """What an object says, in parts that one inference can read."""
    own = find(obj, "text")
    if own is not None and own[0] is obj:
        return _gathered([str(own[1])])
    return _gathered(_chunks(obj))


def _chunks(document: UvmObject) -> list[str]:
    found = find(document, "chunks_")
    assert found is not None, "only chunks and documents are told to summarise themselves"
    return [str(chunk.text) for chunk in found[1](document)]


def _gathered(texts: list[str]) -> list[str]:
    """Neighbouring texts in one, as long as that is not too long."""
    found: list[str] = []
    for text in texts:
        if found and len(found[-1]) + len(text) <= CHARS:
            found[-1] += "\n" + text
        else:
            found += [text[at : at + CHARS] for at in range(0, len(text), CHARS)]
    return found or [""]
