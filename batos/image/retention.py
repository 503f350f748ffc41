"""Retention and folding: old missions lose their texts, and very old ones become one line.

*Retention* drops the texts and pictures of old journals and keeps their cost. Missions are handled in the order of
their acceptance, a batch in one system transaction, so that no commit waits long. A mission that has not ended is
passed over, and handled when it has: it may be paused, or wait for an answer, for ever. So is one from the future,
accepted under a wrong clock.

*Folding* replaces an old mission by a line (`batos.image.mission_index`); record, thought, journal and failures go with the next pack. A
mission is old by its age or by the number of missions after it. Everything that may still be needed stays whole. These are missions that
have not ended or left an effect in doubt, rated ones, lessons, and those that a conversation continues. Messages and undone missions stay
for as long as the history allows to undo or redo them. Missions are examined in the order of their acceptance, in helper threads, which
also make the lines; a system transaction takes a batch of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from batos.concurrency import LoopTurns, in_helper
from batos.errors import ImageDamaged
from batos.image import blobs, effects, journal, mission_index
from batos.image.ledger import ledger_of, own_pictures, unfinished
from batos.image.living_image import LivingImage
from batos.image.mission_index import (
    FAILED,
    FINAL,
    MILESTONE,
    Line,
    leave_out_missions,
    mark_of,
    missions_between,
    newest_first,
    next_numbered,
    of_numbers,
)
from batos.objects import Root, UvmObject

RETAIN_LIMIT = 20_000  # missions in one run
_BATCH = 32  # missions in one system transaction


class DueJournals(NamedTuple):
    """Missions that are due for retention."""

    missions: list[tuple[int, str]]
    """Number and id of the missions to handle: at most a stretch, and those passed over that are due by now."""
    mark: tuple[int, tuple[int, ...]]
    """Progress after that: the number of the last mission, and of those before it that are passed over."""


async def drop_uploads(image: LivingImage, hours: float) -> int:
    """Drop pictures that were uploaded more than `hours` ago for a mission which never came; return their number."""
    dropped, before = 0, time.time() - hours * 3600
    while await asyncio.to_thread(image.read, blobs.unheld_pictures, before):
        dropped += await image.system(blobs.forget_unheld_pictures, before)
    return dropped


async def retain(image: LivingImage, days: float, limit: int = RETAIN_LIMIT) -> dict[str, int]:
    """Drop the texts of journals older than `days`, counted from the mission's acceptance.

    :returns: `missions` handled, and `dropped`, the number that had anything to drop.
    """
    now = time.time()
    dealt = dropped = 0
    first = True
    while dealt < limit:
        missions, mark = await asyncio.to_thread(image.read, due_journals, now - days * 86400, now, first)
        first = False
        for i in range(0, len(missions), _BATCH):
            dropped += await image.system(drop_journals, missions[i : i + _BATCH])
        dealt += len(missions)
        if not await image.system(note_retained, mark):
            break
    return {"missions": dealt, "dropped": dropped}


def due_journals(root: Root, before: float, now: float, again: bool) -> DueJournals:
    """Return the next missions to handle; those after one that is too young are not examined.

    :param again: examine once more those that were passed over.
    """
    until, passed_over = _mark(root)
    early = of_numbers(root, passed_over) if again else []
    missions: list[tuple[int, str]] = []
    waiting = [] if again else list(passed_over)
    for mission in (*early, *next_numbered(root, until, MILESTONE)):
        if mission.number > until and before <= mission.accepted <= now:
            break
        if mission.state in FINAL and mission.accepted < before:
            missions.append((mission.number, mission.id))
        else:
            waiting.append(mission.number)
        until = max(until, mission.number)
    return DueJournals(missions, (until, tuple(waiting)))


def drop_journals(root: Root, missions: list[tuple[int, str]]) -> int:
    """Handle these missions; return the number that had anything to drop. A system transaction."""
    ledger, dropped = ledger_of(root), 0
    for _, id in missions:
        with contextlib.suppress(ImageDamaged):  # it stays as it is, and the self-audit tells of it
            mission = ledger.missions[id]
            released = blobs.release_pictures(root, mission)
            told = effects.drop_texts(mission)
            dropped += journal.drop_texts(journal.of(mission)) or told or released
    return dropped


def note_retained(root: Root, mark: tuple[int, tuple[int, ...]]) -> bool:
    """Note the progress of retention; return False if it was there already. A system transaction."""
    if _mark(root) == mark:
        return False
    costs = ledger_of(root).costs
    costs.retained, costs.passed_over = mark
    return True


def _mark(root: Root) -> tuple[int, tuple[int, ...]]:
    costs = ledger_of(root).costs
    return costs.retained, tuple(costs.passed_over)


FOLD_LIMIT = 50_000  # missions folded in one run
_BATCH_FOLDING = 64  # in one system transaction
_LOADED = 256  # missions that are looked at before what was loaded is let go
_DAY_S = 86400.0
_SECOND_KEYS = 1.0  # by which the key of a failure may be later than its mission's end
Free = Callable[[Any], tuple[int, Collection[int]]]
"""Function of the root. It returns the number of the last mission that another part of BAT OS is done with, and those before it
that it still needs."""


class FoldTerms(NamedTuple):
    """Settings that say which missions stay whole."""

    kept: int = 10_000
    """Number of the newest missions that may stay."""
    days: float = 365.0
    """Maximum age of these, in days."""
    history_days: float = 30.0
    conversation: int = 6
    """Number of missions of a conversation that stay before one that stays."""


class Followed(NamedTuple):
    """Missions that stay because later ones follow them."""

    ids: frozenset[str] = frozenset()
    """Ids of missions that stay because others that stay follow them."""
    newest: int = 0
    """Number of the last mission that was examined for it."""


class DueMissions(NamedTuple):
    """Missions of a stretch that are due for folding."""

    upto: int
    """Number of the last mission that was examined."""
    lines: tuple[Line, ...]
    failures: tuple[str, ...]
    """Keys of the failed attempts at these missions."""
    behind: str
    """Id of the mission after the last of the stretch."""
    followed: Followed
    """As it was given, with the missions that newer ones follow."""


def everything(root: Root) -> tuple[int, Collection[int]]:
    """Return that all missions are free to be folded: the `Free` of a part that waits for none."""
    return _newest(ledger_of(root)), ()


async def complete_index(image: LivingImage) -> None:
    """Index the missions that had ended before the index existed, a batch in one system transaction."""
    while found := await in_helper(image.read, mission_index.unindexed_missions):
        ids, upto = found
        await image.system(mission_index.index_ended, ids, upto)


async def fold(image: LivingImage, terms: FoldTerms, free: Free = everything, limit: int = FOLD_LIMIT) -> int:
    """Fold old missions; return their number.

    :param free: returns the missions with which another part of BAT OS is done.
    """
    now, after, count = time.time(), 0, 0
    followed: Followed | None = None
    while count < limit:
        found: DueMissions | None = await in_helper(image.read, due_missions, after, terms, free, now, followed or Followed())
        if found is None:
            break
        if found.lines and followed is None:
            followed = await in_helper(image.read, followed_by_the_kept, terms, now)
            continue  # now with those left out
        for lines in (found.lines[i : i + _BATCH_FOLDING] for i in range(0, len(found.lines), _BATCH_FOLDING)):
            count += await image.system(take_lines, lines, found)
        after, followed = found.upto, found.followed if followed is not None else None
    return count


def due_missions(root: Root, after: int, terms: FoldTerms, free: Free, now: float, followed: Followed) -> DueMissions | None:
    """Return the missions to fold in the next stretch; None if no further stretch has an old one."""
    ledger = ledger_of(root)
    if not ledger.ended.is_whole or (number := _next_ended(ledger, after)) is None:
        return None
    others_until, others_apart = free(root)
    until = min(ledger.costs.until, others_until)
    newest = _newest(ledger)
    old = _Old(newest - max(1, terms.kept), now - terms.days * _DAY_S)
    if number > until or not old.is_old(ledger, number):
        return None
    upto = min(number - 1 + MILESTONE, until)
    missions, behind = missions_between(root, number - 1, upto)
    if behind is None and not missions:
        return None
    behind = behind or missions.pop()  # the newest stays
    followed = Followed(followed.ids | _followed_since(root, followed.newest), newest) if followed.newest else followed
    apart = {*ledger.costs.apart, *others_apart}
    held = now - terms.history_days * _DAY_S
    gone = [
        mission
        for mission in missions
        if old.fits(mission) and mission.number not in apart and mission.id not in followed.ids and not stays_whole(ledger, mission, held)
    ]
    return DueMissions(upto, tuple(map(line_of, gone)), tuple(_failures(ledger, gone)), behind.id, followed)


def stays_whole(ledger: Any, mission: UvmObject, held: float) -> bool:
    """Return True if a mission may still be needed, however old it is.

    :param held: beginning of the history that is kept, in seconds since the epoch.
    """
    if mission.state not in FINAL or mission.id in ledger.pending or mission.rating is not None or mission.lesson is not None:
        return True
    if not effects.are_ended(mission):
        return True
    return (mission.message is not None or mission.undone is not None) and mission.finished >= held


def followed_by_the_kept(root: Root, terms: FoldTerms, now: float) -> Followed:
    """Return the missions that whole ones follow, as far back as a conversation is shown."""
    ledger, turns = ledger_of(root), LoopTurns()
    newest = _newest(ledger)
    old = _Old(newest - max(1, terms.kept), now - terms.days * _DAY_S)
    level = {mission.context for mission in unfinished(root)}
    for place, mission in enumerate(newest_first(root)):
        turns.take()
        if old.fits(mission):
            break
        level.add(mission.context)
        if place % _LOADED == _LOADED - 1:
            root._p_jar.cacheGC()
    found: set[str] = set()
    for _ in range(terms.conversation):
        level -= {None, *found}
        found |= level
        level = {ledger.missions[id].context for id in level if id in ledger.missions}
    return Followed(frozenset(found), newest)


def line_of(mission: UvmObject) -> Line:
    """Return the line of a mission."""
    cost = journal.spent_on(journal.of(mission))
    return Line(
        int(mission.number),
        mission.id,
        mission.state,
        mission.origin,
        int(mission.accepted),
        max(0, round(mission.finished - mission.accepted)),
        (
            sum(one.inferences for one in cost),
            sum(one.prompt_tokens for one in cost),
            sum(one.answer_tokens for one in cost),
            round(sum(one.model_ms for one in cost) / 1000),
        ),
        mark_of(mission.brief, mission.message, own_pictures(mission.images)),
        mission.brief,
        _came(mission),
        mission.undone is not None,
    )


def take_lines(root: Root, lines: Iterable[Line], found: DueMissions) -> int:
    """Put lines in the place of missions; return their number. A mission that is needed since stays. A system
    transaction."""
    ledger = ledger_of(root)
    followed = _followed_since(root, found.followed.newest)
    gone: dict[int, Line] = {}
    for line in lines:
        with contextlib.suppress(ImageDamaged):
            mission = ledger.missions.get(line.id)
            if mission is None or mission.rating is not None or (mission.undone is not None) != line.undone or line.id in followed:
                continue
            effects.forget(root, mission)
            blobs.release_pictures(root, mission)
            ledger.folded.keep(line)
            ledger.ended.by(line.state).pop(line.number, None)
            del ledger.missions[line.id]
            gone[line.number] = line
    behind = ledger.missions.get(found.behind)
    leave_out_missions(behind, gone.keys(), min(gone, default=0))
    for number in gone.keys() & set(ledger.milestones.keys(min(gone), max(gone))) if gone else ():
        del ledger.milestones[number]
        if behind is not None:
            ledger.milestones[behind.number] = behind
    ids = {line.id for line in gone.values()}
    for key in found.failures:
        if mission_index.failed_mission_id(key) in ids:
            mission_index.drop_failure(ledger, key)
    return len(gone)


class _Old(NamedTuple):
    number: int
    """Missions up to this number are too many."""
    before: float
    """Missions accepted before this time are too old."""

    def fits(self, mission: UvmObject) -> bool:
        return bool(mission.number <= self.number or mission.accepted < self.before)

    def is_old(self, ledger: Any, number: int) -> bool:
        with contextlib.suppress(ImageDamaged):
            return any(self.fits(held[number]) for held in (ledger.ended.complete, ledger.ended.failed) if number in held)
        return True


def _newest(ledger: Any) -> int:
    return 0 if ledger.newest.mission is None else int(ledger.newest.mission.number)


def _next_ended(ledger: Any, after: int) -> int | None:
    found = [next(iter(held.keys(after + 1)), None) for held in (ledger.ended.complete, ledger.ended.failed)]
    return min((int(number) for number in found if number is not None), default=None)


def _failures(ledger: Any, missions: Collection[UvmObject]) -> list[str]:
    """Return the keys of the failed attempts at missions."""
    failing = [mission for mission in missions if mission.state == FAILED or mission.attempts > 1]
    if not failing:
        return []
    ids = {mission.id for mission in failing}
    first = f"{min(mission.accepted for mission in failing):017.6f}"
    last = f"{max(mission.finished for mission in failing) + _SECOND_KEYS:017.6f}"
    return [key for key in ledger.failures.keys(first, last) if mission_index.failed_mission_id(key) in ids]


def _followed_since(root: Root, newest: int) -> set[str]:
    """Return the ids of the missions that are followed by those after a number."""
    found = set()
    for mission in newest_first(root):
        if mission.number <= newest:
            break
        found.add(mission.context)
    return found


def _came(mission: UvmObject) -> str:
    if mission.state == FAILED:
        error = json.loads(mission.error) if mission.error else {}
        return f"{error.get('code', 'internal')} {error.get('message', '')}"
    result = json.loads(mission.result) if mission.result else {}
    return str(result.get("text") or "")
