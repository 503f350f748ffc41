"""What a mission recalls from memory: passages for its prompts, and which of them its answer comes from.

What was recalled about a question, nothing included, stays what it was: it is recorded in the journal, so that a mission that is
taken up again, or replayed, asks its models the same and finds what was paid for. The texts are recorded only while the mission goes
on, afterwards the numbers of the chunks; a document that was forgotten in the meantime is gone from here, too.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import structlog
from ZODB.POSException import POSKeyError

from batos.errors import BatosError, BatosSignal, ImageDamaged, InvalidInput
from batos.image import history, journal
from batos.image.living import LivingImage
from batos.memory.library import library_of
from batos.memory.sentences import sentences
from batos.mind import weaving
from batos.mind.tally import in_trial
from batos.objects import UvmObject

if TYPE_CHECKING:  # they bring numpy
    from batos.memory.segments import Segment
    from batos.memory.shelving import Shelver

log = structlog.get_logger("batos.mind")

_HEADING = re.compile(r"^ {0,3}#{1,6} .*\n(?=\s*\S)", re.MULTILINE)  # but for one that stands alone
_QUOTED = 3  # sentences of one passage, where they hold as many of the brief's words
_MARK = re.compile(r"\s?\[(\d{1,3})\]")
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(r"[^\W\d_]+")  # of letters
_FALSE_MARK = re.compile(r"(?:\s|(?<!\w))\[(\d{1,3})\]")  # what stands at a word may be an index: `rows[0]`


class Passage(NamedTuple):
    """A chunk of memory, as a prompt shows it."""

    number: int
    """Of the chunk."""
    oid: str
    """Of the chunk as an object: `batos show` finds it by that."""
    title: str
    source: str
    text: str
    document: int = 0
    """The number of its document."""


class Memory(Protocol):
    """The memory as missions need it; `batos.recollection.Recollection` is it."""

    @property
    def shelver(self) -> Shelver:
        """What cuts a text into chunks."""
        ...

    def stored(self, segment: Segment | None, dropped: list[int]) -> None:
        """Let searches see what was committed: the index entries of new chunks, and without the numbers of those that are gone."""
        ...

    async def recall(self, question: str) -> Sequence[int]:
        """The numbers of the chunks that speak to a question, the best first; none where memory has nothing to say.

        :raises BatosError: if it cannot be asked now.
        """
        ...


class NeedEvidence(BatosSignal):
    """A cycle under the gate asks memory something that was not asked before."""

    def __init__(self, question: str) -> None:
        super().__init__(question)
        self.question = question


class Evidence:
    """What one mission recalled so far, by question, and what it does to the memory."""

    def __init__(self, id: str, image: LivingImage, memory: Memory | None, *, chars: int, ask: bool = True) -> None:
        """
        :param memory: None: nothing is ever recalled.
        :param chars: how much of the passages one question gets, in characters.
        :param ask: False: only what was recalled before is; a replay leaves no trace.
        """
        self._id, self._image, self._memory, self._chars, self._ask = id, image, memory, chars, ask
        self._found: dict[str, tuple[Passage, ...]] = {}
        self._loaded = False
        self._nothing_on: frozenset[bytes] = frozenset()
        self._asking = asyncio.Lock()
        self._changes: list[tuple[Segment | None, list[int]]] = []

    @property
    def memory(self) -> Memory:
        """What keeps and finds chunks.

        :raises InvalidInput: where there is none.
        """
        if self._memory is None:
            raise InvalidInput("there is no memory here")
        return self._memory

    @property
    def remembers(self) -> bool:
        """Whether there is a memory that keeps and finds chunks."""
        return self._memory is not None

    @property
    def recalled(self) -> bool:
        """Whether memory may have had anything to say to this mission: of earlier attempts that is not asked, since what they were shown
        may be forgotten by now, and stands in the journal all the same."""
        return self._loaded or any(self._found.values())

    def changed(self, segment: Segment | None, dropped: list[int]) -> None:
        """Note what the mission's transaction does to the memory: index entries of new chunks, numbers of those that are gone. What a trial
        does is not kept."""
        if not in_trial():
            self._changes.append((segment, dropped))

    def restart(self) -> None:
        """The transaction begins anew; what was recalled stays."""
        self._changes.clear()

    def committed(self) -> None:
        """The transaction is durable: let searches see what it did."""
        for segment, dropped in self._changes:
            self.memory.stored(segment, dropped)

    def load(self) -> None:
        """Take over what earlier attempts recalled."""
        self._loaded = True
        self._found = self._image.read(recorded, self._id, self._chars)
        self._nothing_on = self._image.read(journal.nothing_on, self._id)

    async def about(self, question: str, *, gated: bool = False) -> tuple[Passage, ...]:
        """The passages that speak to a question.

        :raises NeedEvidence: under the gate, where memory would have to be asked.
        """
        if question not in self._found:
            if self._memory is None or not self._ask or journal.mark_of(question) in self._nothing_on:
                return ()
            if gated:
                raise NeedEvidence(question)
            async with self._asking:  # facets ask at once, and are to see the same
                if question not in self._found:
                    self._found[question] = await self._asked(self._memory, question)
        return self._found[question]

    async def _asked(self, memory: Memory, question: str) -> tuple[Passage, ...]:
        try:
            numbers = tuple(await memory.recall(question))
        except BatosError as e:
            log.warning("nothing_recalled", mission=self._id, error=e.message)
            numbers = ()  # the mission is thought through without, also when it is taken up again: what was paid for fits no other prompt
        found: tuple[Passage, ...] = self._image.read(passages, numbers, self._chars) if numbers else ()
        self._image.committer.defer(journal.add_recalled, self._id, question, numbers, tuple(map(tuple, found)))
        return found


def recorded(root: Any, mission: str, chars: int) -> dict[str, tuple[Passage, ...]]:
    """What a mission recalled, by question, without what is forgotten since.

    :param chars: how much of the passages one question gets, in characters.
    """
    documents, found = library_of(root).documents, {}
    for question, one in journal.recalled_of(root, mission).items():
        shown = (Passage(*fields) for fields in one.shown)
        found[question] = tuple(p for p in shown if p.document in documents) if one.shown else passages(root, one.chunks, chars)
    return found


def passages(root: Any, numbers: Iterable[int], chars: int) -> tuple[Passage, ...]:
    """The chunks of these numbers that there still are, whole, as far as `chars` characters reach; the last is cut."""
    chunks, found = library_of(root).chunks, []
    for number in numbers:
        if number not in chunks or chars <= 0:
            continue
        try:
            found.append(_passage(number, chunks[number], chars))
        except (ImageDamaged, POSKeyError) as e:  # the self-audit tells of it, too
            log.error("passage_damaged", error=str(e))
        else:
            chars -= len(found[-1].text)
    return tuple(found)


def _passage(number: int, chunk: UvmObject, chars: int) -> Passage:
    document = chunk.document
    said = _HEADING.sub("", chunk.text) if document.kind in ("markdown", "conversation") else chunk.text
    named = f"{chunk.speaker}:" if chunk.speaker else ""  # which a turn of a conversation has before it already
    text = " ".join((said if said.lstrip().startswith(named) else f"{named} {said}").split())
    if document.kind != "code":
        text = _MARK.sub(r" (\1)", text)  # a document's own footnotes are no marks of ours
    text = text if len(text) <= chars else text[: max(0, chars - 1)] + "…"
    title = document.title or document.source
    return Passage(number, history.oid_of(chunk) or "", title, document.source, text, document.number)


def shown(prompt: str, found: Sequence[Passage]) -> str:
    """What a state's `evidence_prompt` makes of passages; "" where there are none."""
    if not found:
        return ""
    return weaving.fill(prompt, passages="\n".join(f"[{n}] ({one.title}) {one.text}" for n, one in enumerate(found, 1)))


def told_apart(prompt: str) -> tuple[str, str]:
    """An `evidence_prompt` in two: what shows the passages, and what is said about them, which stands at the prompt's end."""
    before, mark, after = prompt.partition("$passages")
    return (before + mark, after.strip()) if mark else (prompt, "")


def without_false_marks(text: str, found: Sequence[Passage]) -> str:
    """An answer without the marks `[n]` that name no passage; as it is where nothing was recalled: then `[1]` is no mark."""
    if not found:
        return text
    return _FALSE_MARK.sub(lambda mark: mark.group() if 1 <= int(mark.group(1)) <= len(found) else "", text)


def unmarked(text: str) -> str:
    """An answer without its marks, for who sees other passages under their numbers."""
    return _MARK.sub("", text)


def cited(text: str, found: Sequence[Passage], brief: str = "") -> list[tuple[int, str]]:
    """Which passages an answer comes from: for each sentence the numbers, from 1, of those it names, or that hold most of what it says.

    :param brief: what is said in it already, a sentence does not say anew.
    """
    if not found:
        return []
    contents, asked = [weaving.content(one.text) for one in found], weaving.content(brief)
    pairs: list[tuple[int, str]] = []
    for sentence in weaving.sentences(text):
        named = [int(n) for n in _MARK.findall(sentence) if 1 <= int(n) <= len(found)]
        pairs += [(n, sentence) for n in dict.fromkeys(named or _alike(weaving.content(_MARK.sub("", sentence)) - asked, contents))]
    return pairs


def _alike(said: set[str], contents: Sequence[set[str]]) -> list[int]:
    """The passage that holds the most of what a sentence says, if that is enough."""
    if not said:
        return []
    shares = [len(said & own) / len(said) for own in contents]
    best = max(range(len(shares)), key=shares.__getitem__)
    return [best + 1] if shares[best] >= weaving.SHARED else []


def keeps_to(text: str, found: Sequence[Passage], brief: str) -> bool:
    """Whether an answer keeps to the passages: at least half of its sentences hold mostly what one of them says, whatever they are
    marked with, and it has no figure and no name that neither the passages nor the brief have.
    """
    contents, asked = [weaving.content(one.text) for one in found], weaving.content(brief)
    said = weaving.sentences(text)
    from_them = [sentence for sentence in said if _alike(weaving.content(unmarked(sentence)) - asked, contents)]
    return 2 * len(from_them) >= len(said) and not invented(text, found, brief)


def invented(text: str, found: Sequence[Passage], brief: str) -> list[str]:
    """The figures, and the words with a capital inside a sentence, of an answer that are not in the passages, their titles or the brief."""
    given = " ".join([brief, *(f"{one.title} {one.text}" for one in found)])
    figures, words = set(_FIGURE.findall(given)), {word.casefold() for word in _WORD.findall(given)}
    new: list[str] = []
    for sentence in weaving.sentences(unmarked(text)):
        new += [figure for figure in _FIGURE.findall(sentence) if figure not in figures]
        new += [word for word in _WORD.findall(sentence)[1:] if word[0].isupper() and word != "I" and word.casefold() not in words]
    return new


def quoted(brief: str, found: Sequence[Passage]) -> str:
    """An answer of nothing but passages: of each the sentences that hold most of the brief's words, of the first at least its first one."""
    asked, lines = weaving.content(brief), []
    for n, one in enumerate(found, 1):
        said = [one.text[begin:end].strip() for begin, end in sentences(one.text, "text")] or [one.text]
        shares = [len(asked & weaving.content(sentence)) for sentence in said]
        best = max(shares)
        if best:
            lines.append((best, n, " ".join(itertools.islice((s for s, held in zip(said, shares, strict=True) if held == best), _QUOTED))))
        elif n == 1:
            lines.append((0, n, said[0]))
    most = max(share for share, _, _ in lines)
    return "\n".join(f"{text} [{n}]" for share, n, text in lines if n == 1 or 2 * share >= most)


class Citation(NamedTuple):
    """A passage that an answer comes from. Stored as a plain tuple."""

    n: int
    chunk: str
    """Its oid."""
    title: str
    source: str
    sentences: tuple[str, ...]
    """Those of the answer that are from it."""

    def to_wire(self) -> dict[str, Any]:
        """As a JSON object of a mission's result."""
        return {**self._asdict(), "sentences": list(self.sentences)}


def citations(pairs: Iterable[tuple[int, str]], found: Sequence[Passage]) -> tuple[Citation, ...]:
    """The passages of `cited`, in the order of their numbers."""
    sentences: dict[int, list[str]] = {}
    for n, sentence in pairs:
        sentences.setdefault(n, []).append(sentence)
    rows = sorted((n, found[n - 1], tuple(said)) for n, said in sentences.items())
    return tuple(Citation(n, one.oid, one.title, one.source, said) for n, one, said in rows)
