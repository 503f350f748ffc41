"""Folding: of old missions one line stays (`batos.image.folded`); record, thought, journal and failures go with the next pack.

A mission is old by its age or by how many came after it. Whatever somebody may still go by stays whole: what has not ended, what its user
has rated, lessons, missions that a conversation goes on from, and messages and undone ones for as long as the history reaches back in which
they can be undone or done again. Missions are looked at in the order of their acceptance, in helper threads; the lines are made there, too,
and a system transaction takes in a few.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from batos.errors import ImageDamaged
from batos.image import ended, failed, journal, pictures
from batos.image.chain import MILESTONE, leave_out, newest_first, stretch
from batos.image.folded import FAILED, FINAL, Line, mark_of
from batos.image.ledger import ledger_of, own_pictures, unfinished
from batos.image.living import LivingImage
from batos.image.turns import Turns, in_helper
from batos.objects import UvmObject

RUN_LIMIT = 50_000  # missions folded in one run
_BATCH = 64  # in one system transaction
_LOADED = 256  # missions that are looked at before what was loaded is let go
_DAY_S = 86400.0
_SECOND_KEYS = 1.0  # by which the key of a failure may be later than its mission's end
Free = Callable[[Any], tuple[int, Collection[int]]]
"""Of an image's root: the number of the last mission that another part is done with, and those before it with which it is not."""


class Terms(NamedTuple):
    """What stays whole: settings."""

    kept: int = 10_000
    """So many missions, the newest."""
    days: float = 365.0
    """Of these, those that are no older."""
    history_days: float = 30.0
    conversation: int = 6
    """So many missions of a conversation, before those that stay."""


class Followed(NamedTuple):
    """What is known of who follows whom."""

    ids: frozenset[str] = frozenset()
    """Missions that stay, since others that stay follow them."""
    newest: int = 0
    """Number of the last mission that was looked at for it."""


class Due(NamedTuple):
    """What a look at a stretch of missions came to."""

    upto: int
    """Number of the last that was looked at."""
    lines: tuple[Line, ...]
    failures: tuple[str, ...]
    """Keys of the failed attempts at these."""
    behind: str
    """Id of the mission after the last of the stretch."""
    followed: Followed
    """As it was given, and what missions follow that came since."""


def everything(root: Any) -> tuple[int, Collection[int]]:
    """`Free` of a part that waits for no mission."""
    return _newest(ledger_of(root)), ()


async def complete_index(image: LivingImage) -> None:
    """Enter the missions that had ended before there was an index of those, a few in one system transaction."""
    while found := await in_helper(image.read, ended.unindexed):
        ids, upto = found
        await image.system(ended.index_some, ids, upto)


async def fold(image: LivingImage, terms: Terms, free: Free = everything, limit: int = RUN_LIMIT) -> int:
    """Fold what is old; how many missions.

    :param free: whose work on missions is waited for.
    """
    now, after, count = time.time(), 0, 0
    followed: Followed | None = None
    while count < limit:
        found: Due | None = await in_helper(image.read, due, after, terms, free, now, followed or Followed())
        if found is None:
            break
        if found.lines and followed is None:
            followed = await in_helper(image.read, followed_by_the_kept, terms, now)
            continue  # now with those left out
        for lines in (found.lines[i : i + _BATCH] for i in range(0, len(found.lines), _BATCH)):
            count += await image.system(take, lines, found)
        after, followed = found.upto, found.followed if followed is not None else None
    return count


def due(root: Any, after: int, terms: Terms, free: Free, now: float, followed: Followed) -> Due | None:
    """The missions to fold of the next stretch; None where there is no other with any that is old."""
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
    missions, behind = stretch(root, number - 1, upto)
    if behind is None and not missions:
        return None
    behind = behind or missions.pop()  # the newest stays
    followed = Followed(followed.ids | _followed_since(root, followed.newest), newest) if followed.newest else followed
    apart = {*ledger.costs.apart, *others_apart}
    held = now - terms.history_days * _DAY_S
    gone = [
        mission
        for mission in missions
        if old.fits(mission) and mission.number not in apart and mission.id not in followed.ids and not stays(ledger, mission, held)
    ]
    return Due(upto, tuple(map(line_of, gone)), tuple(_failures(ledger, gone)), behind.id, followed)


def stays(ledger: Any, mission: UvmObject, held: float) -> bool:
    """Whether somebody may still go by a mission, however old it is.

    :param held: when history begins that is kept; seconds since the epoch.
    """
    if mission.state not in FINAL or mission.id in ledger.pending or mission.rating is not None or mission.lesson is not None:
        return True
    return (mission.message is not None or mission.undone is not None) and mission.finished >= held


def followed_by_the_kept(root: Any, terms: Terms, now: float) -> Followed:
    """The missions that were followed by those that stay whole, as far back as a conversation is shown."""
    ledger, turns = ledger_of(root), Turns()
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
    """What is left of a mission."""
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


def take(root: Any, lines: Iterable[Line], found: Due) -> int:
    """System transaction: put lines in the place of missions; of how many. One that somebody goes by since they were made stays."""
    ledger = ledger_of(root)
    followed = _followed_since(root, found.followed.newest)
    gone: dict[int, Line] = {}
    for line in lines:
        with contextlib.suppress(ImageDamaged):
            mission = ledger.missions.get(line.id)
            if mission is None or mission.rating is not None or (mission.undone is not None) != line.undone or line.id in followed:
                continue
            pictures.release(root, mission)
            ledger.folded.keep(line)
            ledger.ended.by(line.state).pop(line.number, None)
            del ledger.missions[line.id]
            gone[line.number] = line
    behind = ledger.missions.get(found.behind)
    leave_out(behind, gone.keys(), min(gone, default=0))
    for number in gone.keys() & set(ledger.milestones.keys(min(gone), max(gone))) if gone else ():
        del ledger.milestones[number]
        if behind is not None:
            ledger.milestones[behind.number] = behind
    ids = {line.id for line in gone.values()}
    for key in found.failures:
        if failed.mission_in(key) in ids:
            failed.drop(ledger, key)
    return len(gone)


class _Old(NamedTuple):
    number: int
    """Up to this one, missions are too many."""
    before: float
    """Accepted before that, they are too old."""

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
    """Keys of the failed attempts at missions."""
    failing = [mission for mission in missions if mission.state == FAILED or mission.attempts > 1]
    if not failing:
        return []
    ids = {mission.id for mission in failing}
    first = f"{min(mission.accepted for mission in failing):017.6f}"
    last = f"{max(mission.finished for mission in failing) + _SECOND_KEYS:017.6f}"
    return [key for key in ledger.failures.keys(first, last) if failed.mission_in(key) in ids]


def _followed_since(root: Any, newest: int) -> set[str]:
    """What missions follow that came after the one of that number."""
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
