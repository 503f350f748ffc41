"""Writer of memory documents about missions that ended.

Each mission of a user becomes a document: its brief, and its answer or failure. Statements that the user made in the
brief become a document of their own, word for word. It counts as the user's text, not as BAT OS's. Missions of the system's own are left
out.

The record of a mission is the truth: it was committed with the answer, or not at all. Documents are made from these
records in the order of their numbers, a batch at a time. The transaction that stores a batch moves the mark up to
which missions are remembered. So after `kill -9` no document is missing and none is there twice, and no mission waits
for its document.

A statement is a whole sentence about its speaker ("My name is Kim"), or one that the user asks to have remembered ("Remember that …"). A
brief of nothing but statements may be about anything ("The bins are collected on Tuesdays."). Statements are found by rule; no model is
asked and nothing is concluded. Wishes, feelings, requests, suppositions and quotations are not statements. A false statement would be shown
where it does not belong, and a user can repeat a missed one. So in doubt a sentence is left out. `statements.toml` lists, by language,
how sentences begin.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import structlog

from batos.bus import EventBus, MissionEnded
from batos.concurrency import in_helper
from batos.config.limits import Limits, limit
from batos.errors import BatosError
from batos.image import continuations, ledger
from batos.image.living_image import LivingImage
from batos.image.mission_index import next_numbered, of_numbers
from batos.image.mission_record import BY_USER
from batos.memory.chunking import sentences
from batos.memory.drafts import Draft, DraftPart
from batos.memory.objects import USER, vouch
from batos.memory.records import FAILURE, MISSION, STATEMENT
from batos.memory.section_builder import PreparedDocument, Shelver, prepare_document, store_document
from batos.memory.segments import Segment, build
from batos.memory.store import library_of
from batos.mind.brief_analysis import kind_of
from batos.objects import Root, UvmObject

LONGEST = 2000
"""Characters of a brief that are examined: a longer one is a paste."""
_MOST = 12  # statements of one brief
_SENTENCE = 400  # characters of one
_WORDS, _LEAST = 3, 2
"""Least number of words of a statement; of one about oneself."""
_QUESTION = re.compile(
    r"[?？؟]\W{0,5}$|(?:ですか|ますか|でしょうか|かな|吗|嗎|呢)[。.！!]?$|"
    r"什么|什麼|谁|誰|哪[里裡儿些]|多少|几[岁歲]|누구|어디|무엇|언제|뭐[야예]|뭘|몇 ?살"
)
_SUM = re.compile(
    r"\b(?:left|remain\w{0,3}|altogether|in total|übrig|bleiben|insgesamt|reste(?:-t-il|nt)?|"
    r"au total|quedan?|en total|restano|in totale|sobram|"
    r"restam|blijven|осталось|zostało)\b[^.?!]{0,20}\?|还剩|剩下|残り|남아|남았",
    re.IGNORECASE,
)
"""Matches the question of a sum that a story tells."""
_FIGURE = re.compile(r"\d")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_ANNOUNCES = re.compile(r"[:：]\s{0,5}$")


def statements_of(brief: str) -> list[str]:
    """Return the statements of a brief, word for word; empty if it has none."""
    text, found, alone = brief.partition("```")[0][:LONGEST], list[tuple[str, bool]](), True
    asked = list[str]()
    for part in (text[start:end] for start, end in sentences(text)):
        if kept := _asked_to_keep(part):
            asked.append(kept)
            found.append((kept, True))
        elif _patterns().before.search(part) and not _patterns().first.match(part):
            found, alone = [(kept, True) for kept in asked], False
            break  # what stands before it is its text, and says nothing of the user
        elif _patterns().pretend.match(part) or (_patterns().text.search(part) and not _patterns().first.match(part)):
            alone = False
            break  # what comes after it is what it is about
        elif (surely := _statement_certainty(part, before=found[-1][1] if found else None)) is not None:
            found.append((part, surely))
        elif not _is_remark(part):
            alone = False
    sum_ = _SUM.search(text) is not None  # "I have 3 apples. How many are left?"
    said = (part for part, surely in found if (surely or alone) and len(part) <= _SENTENCE and not (sum_ and _FIGURE.search(part)))
    return list(dict.fromkeys(said))[:_MOST]


def is_about_speaker(sentence: str) -> bool:
    """Return True if a sentence speaks of its speaker, by its beginning: "I", "mein", "notre"."""
    return _patterns().first.match(sentence) is not None


def _asked_to_keep(part: str) -> str:
    """Return the text that a sentence asks to remember; empty if it does not ask for that."""
    found = _patterns().keep.match(part)
    return part[found.end() :].strip() if found else ""


def _statement_certainty(part: str, *, before: bool | None) -> bool | None:
    """Return True if a sentence surely is a statement, False if it is one only beside other statements, None if it is not one.

    :param before: the same of the statement before it; None if there is none. A sentence that goes on about that one is as certain.
    """
    patterns, length = _patterns(), len(part.split())
    if _QUESTION.search(part) or _ANNOUNCES.search(part) or patterns.supposed.match(part):
        return None
    if patterns.first.match(part):
        if _UNSPACED.search(part):
            length = max(length, len(part) // _LEAST)  # a word is a character or two
        plain = not (patterns.wish.match(part) or patterns.quoted.search(part))
        return True if plain and length >= _LEAST else None
    if before is not None and length >= _WORDS and patterns.anaphora.match(part):
        return before
    return False if patterns.third.match(part) and not patterns.remark.match(part) and kind_of(part)[0] is not True else None


def _is_remark(part: str) -> bool:
    if _QUESTION.search(part) or _patterns().supposed.match(part):
        return False
    return _patterns().remark.match(part) is not None or len(part.split()) < _WORDS


@dataclass(frozen=True, slots=True)
class RememberLimits(Limits):
    """Limits of the writing of finished missions into the memory."""

    pause_s: float = limit(1.0, ge=0, le=3600)
    """Least time between two batches: missions that end meanwhile are gathered. One that ends after a rest is remembered at once."""


class _Patterns(NamedTuple):
    keep: re.Pattern[str]
    first: re.Pattern[str]
    wish: re.Pattern[str]
    supposed: re.Pattern[str]
    third: re.Pattern[str]
    anaphora: re.Pattern[str]
    remark: re.Pattern[str]
    text: re.Pattern[str]
    before: re.Pattern[str]
    pretend: re.Pattern[str]
    quoted: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """Return the patterns, which are compiled at the first call."""
    table = tomllib.loads(resources.files(__package__).joinpath("statements.toml").read_text("utf-8"))
    greeting, begin = table["greeting"] + table["lead"], r"\W{0,5}"
    third = [pattern.replace("{named}", table["named"]) for pattern in table["third"]]

    def compiled(patterns: Iterable[str], before: str = begin, after: str = "", flags: int = re.IGNORECASE) -> re.Pattern[str]:
        return re.compile(f"{before}(?:{'|'.join(_each(patterns))}){after}", flags)

    return _Patterns(
        keep=compiled(table["keep"], rf"{begin}(?:(?:please|bitte|por favor|per favore|alsjeblieft),? )?", r"\s{0,5}"),
        first=compiled(
            [f"(?:{'|'.join(_each(table['first']))})(?=[ '’.!])", *table["first_unspaced"]],
            rf"{begin}{greeting}(?:and |also,? |und |et |y |e |en |и |i |ve )?",
        ),
        wish=compiled(table["wish"], rf"{begin}{greeting}"),
        supposed=compiled(table["supposed"]),
        third=compiled(third, flags=0),
        anaphora=compiled(table["anaphora"]),
        remark=compiled(table["remark"]),
        text=compiled(table["text"], before=""),
        before=compiled(table["before"], before=""),
        pretend=compiled(table["pretend"]),
        quoted=compiled(table["quoted"], before=""),
    )


def _each(patterns: Iterable[str]) -> Iterator[str]:
    return (f"(?:{pattern})" for pattern in patterns)


log = structlog.get_logger("batos.mind")

RETRY_S = 10.0  # before what could not be stored is tried again
_BATCH = 32  # missions in one system transaction
_STRETCH = 256  # missions looked at in one read
_TITLE = 80


class MissionDocument(NamedTuple):
    """Document about a mission that ended, or about the statements of its brief, before it is prepared."""

    id: str
    draft: Draft
    source: str


class MemoryWriter:
    """Task that makes memory of missions until it is cancelled."""

    def __init__(
        self,
        image: LivingImage,
        *,
        shelver: Shelver,
        stored: Callable[[Segment | None, list[int]], object],
        section_chars: int,
        pause_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        :param stored: receives the segment that a transaction stored, once it is durable.
        :param section_chars: maximum characters in one section.
        :param pause_s: least seconds between two batches.
        """
        self._image, self._shelver, self._stored = image, shelver, stored
        self._chars, self._pause_s, self._clock = section_chars, pause_s, clock
        self._more = asyncio.Event()
        self._heard = False

    async def run(self, bus: EventBus) -> None:
        """Remember the missions that have ended, then each that ends, soon after its end."""
        bus.subscribe(MissionEnded, lambda ended: self._more.set())
        while True:
            self._more.clear()
            try:
                await self._apply_earlier_ratings()
                while await self.write_batch():
                    pass
            except (BatosError, OSError) as e:  # a full disk, say: the mark stays, and with it what is to be remembered
                log.warning("not_remembered", error=str(e), retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
                continue
            written = self._clock()
            await self._more.wait()
            await asyncio.sleep(max(0.0, written + self._pause_s - self._clock()))

    async def _apply_earlier_ratings(self) -> None:
        """Take over ratings that were given before the memory used them. Needed once in an image's life."""
        if not self._heard and not self._image.read(_ratings_are_heard):
            up = await in_helper(self._image.read, _missions_rated_up)
            await self._image.system(_apply_ratings, up, mission="remember")
        self._heard = True

    def wake(self) -> None:
        """Look for missions to remember."""
        self._more.set()

    async def write_batch(self) -> bool:
        """Remember one batch; return True if there may be more."""
        until, still_open, found = await in_helper(self._image.read, missions_to_remember)
        mark = self._image.read(_mark)
        if not found and (until, still_open) == mark:
            return False
        prepared = await in_helper(self.prepared, found)
        entries = [entry for one in prepared for entry in one.entries]
        segment = build(entries) if entries else None
        if not await self._image.system(store_remembered, prepared, segment, mark, until, still_open, mission="remember"):
            return True
        self._stored(segment, [])
        log.debug("remembered", missions=[one.mission for one in prepared])
        return True

    def prepared(self, found: list[MissionDocument]) -> list[PreparedDocument]:
        """Return missions as documents that are ready to be stored."""
        return [
            prepare_document(lived.draft, self._shelver, source=lived.source, mission=lived.id, section_chars=self._chars)
            for lived in found
        ]


def missions_to_remember(root: Root) -> tuple[int, tuple[int, ...], list[MissionDocument]]:
    """Return the next batch: the new mark, the numbers before it of missions that go on, and the documents to make."""
    until, waiting = _mark(root)
    missions = [*of_numbers(root, sorted(waiting)), *next_numbered(root, until, _STRETCH)]
    found: list[MissionDocument] = []
    gathered = 0
    still_open: list[int] = []
    for mission in missions:
        if mission.state not in ledger.FINAL:
            still_open.append(mission.number)
        elif gathered == _BATCH:
            if mission.number > until:
                break
            still_open.append(mission.number)  # its turn comes with the next ones
            continue
        elif lived := _documents_of(mission):
            found += lived
            gathered += 1
        until = max(until, mission.number)
    return until, tuple(still_open), found


def store_remembered(
    root: Root, prepared: list[PreparedDocument], segment: Segment | None, mark: tuple[Any, ...], until: int, still_open: tuple[int, ...]
) -> bool:
    """Store documents and move the mark. A system transaction.

    :returns: False, with nothing stored, if the mark has moved meanwhile or one of the missions was undone, or continued.
    """
    missions = (ledger.mission_of(root, one.mission) for one in prepared)
    if _mark(root) != mark or any(mission.undone or mission.state not in ledger.FINAL for mission in missions):
        return False
    for i, one in enumerate(prepared):
        store_document(root, one, segment if not i else None)
        rating = ledger.mission_of(root, one.mission).rating
        if rating and one.draft.kind == MISSION:
            vouch(root, one.mission, int(json.loads(rating)["rating"]))
    lived = root["lobby"].memory.lived
    lived.until, lived.open = until, still_open
    return True


def forget_failure(root: Root, mission: UvmObject) -> list[int]:
    """Forget the document of a mission that FAILED and is continued, and queue the mission for its next end; return the numbers of the
    chunks. Part of a transaction."""
    lived = root["lobby"].memory.lived
    lived._p_activate()
    root._p_jar.readCurrent(lived)  # another transaction may be making the document just now
    library, dropped = library_of(root), list[int]()
    for kind in ("mission", "said"):
        if (number := library.by_source.get(f"{kind}:{mission.id}")) is not None:
            dropped += library.forget(library.documents[number])
    remember_again(root, mission)
    return dropped


def remember_again(root: Root, mission: UvmObject) -> None:
    """Queue a redone mission for the next batch; a mission beyond the mark is in a later batch anyway."""
    lived = root["lobby"].memory.lived
    if mission.number <= lived.until and mission.number not in lived.open:
        lived.open = (*lived.open, mission.number)


_HEARD = -1  # among those vouched for: that ratings of old are, too


def _ratings_are_heard(root: Root) -> bool:
    return _HEARD in root["lobby"].memory.vouched


def _missions_rated_up(root: Root) -> list[str]:
    """Return the ids of the missions that are rated +1."""
    found, until = [], 0
    while missions := next_numbered(root, until, _STRETCH):
        found += [mission.id for mission in missions if mission.rating and json.loads(mission.rating)["rating"] > 0]
        until = missions[-1].number
        root._p_jar.cacheGC()
    return found


def _apply_ratings(root: Root, missions: list[str]) -> None:
    for id in missions:
        vouch(root, id, 1)
    root["lobby"].memory.vouched.add(_HEARD)


def _mark(root: Root) -> tuple[int, tuple[int, ...]]:
    lived = root["lobby"].memory.lived
    return lived.until, tuple(lived.open)


def _documents_of(mission: UvmObject) -> list[MissionDocument]:
    """Return the documents of an ended mission; none for the system's own, for cancelled, undone, mending and damaged ones."""
    try:
        facts = ledger.describe(mission)
    except BatosError as e:
        log.warning("mission_not_remembered", mission=mission.id, error=e.message)
        return []
    error = facts.error or {}
    if facts.origin == "system" or error.get("code") == "cancelled" or facts.undone or continuations.is_mending(mission):
        return []
    brief = facts.brief.strip()
    day = datetime.date.fromtimestamp(facts.finished or facts.accepted).toordinal()  # as `today` of a question is
    title = brief.split("\n", 1)[0][:_TITLE]
    told = _statement_documents(mission.id, brief, facts.accepted) if facts.origin in BY_USER and not facts.message else []
    source = f"mission:{mission.id}"
    if error:
        failed = f"{brief}\n\nThis failed ({error.get('code')}): {error.get('message')}"
        return [MissionDocument(mission.id, Draft(FAILURE, title, [DraftPart(failed, title)], day), source), *told]
    result = facts.result or {}
    tags = (str(result["persona"]).lower(),) if result.get("persona") else ()
    parts = [DraftPart(f"{brief}\n\n{result.get('text', '')}", title)]
    return [MissionDocument(mission.id, Draft(MISSION, title, parts, day, tags), source), *told]


def _statement_documents(id: str, brief: str, accepted: float) -> list[MissionDocument]:
    """Return the statements of a brief as a document; none if there are no statements."""
    said = "\n".join(statements_of(brief))
    day = datetime.date.fromtimestamp(accepted).toordinal()
    return [MissionDocument(id, Draft(STATEMENT, said[:_TITLE], [DraftPart(said)], day, origin=USER), f"said:{id}")] if said else []
