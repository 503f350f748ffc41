"""The leash: a change is watched, undone by itself where it does harm, kept where it does not, disabled where the daemon dies of it."""

from __future__ import annotations

import errno
import time
from typing import Any
from unittest.mock import AsyncMock

import pytest

from batos.autotelic import changes
from batos.autotelic.rollback_monitor import PATIENCE, Leash
from batos.errors import Busy, UndoConflict
from tests.support.autonomy import LIMITS, ended
from tests.support.undo import FACET, House, facet, made

HOUR = 3600.0


class World:
    """A leash with a clock that stands."""

    def __init__(self, at: House, **more: Any) -> None:
        self.house, self.now = at, time.time()
        self.leash = Leash(
            at.image, LIMITS, **{"period_s": HOUR, "deaths": 3, "undo": at.undoing.undo_change, "now": lambda: self.now, **more}
        )
        self._count = 0

    async def missions(self, count: int, **how: Any) -> None:
        for _ in range(count):
            self._count += 1
            await ended(self.house.image, f"m{self._count}", **how)

    def change(self, number: int) -> dict[str, Any]:
        return self.house.image.read(changes.of, number)  # type: ignore[no-any-return]


async def test_where_nothing_gets_worse_it_is_kept_when_the_watch_is_over(at: House) -> None:
    world = World(at)
    assert await world.leash.check() is None
    await world.missions(12)
    number = await made(at, facet)
    await world.missions(8)
    assert await world.leash.check() is None
    assert world.leash.facts()["watched"]["number"] == number
    world.now += HOUR + 1
    assert await world.leash.check() == changes.KEPT
    kept = world.change(number)
    assert (kept["state"], kept["effect"]["client brief"]["missions"]) == (changes.KEPT, [12, 8])
    assert "nothing got worse" in kept["reason"]
    assert at.slots() == {"surprise_facet_": FACET}
    assert world.leash.facts()["watched"] is None
    assert await world.leash.check() is None


async def test_a_clock_that_was_set_back_does_not_watch_for_as_long(at: House) -> None:
    world = World(at)
    await world.missions(12)
    number = await made(at, facet)
    world.now -= 365 * 24 * HOUR
    assert await world.leash.check() is None, "there is nothing that could tell"
    await world.missions(8)
    assert await world.leash.check() == changes.KEPT
    assert "watched for 0.0 h" in world.change(number)["reason"]


@pytest.mark.parametrize("set_back", [False, True])
async def test_without_missions_it_waits_for_some_but_not_for_ever(at: House, set_back: bool) -> None:
    world = World(at)
    await world.missions(12)
    number = await made(at, facet)
    await world.missions(1)
    if set_back:
        world.now -= 365 * 24 * HOUR
        assert await world.leash.check() is None
    world.now += HOUR + 1
    assert await world.leash.check() is None
    world.now += (PATIENCE - 1) * HOUR
    assert await world.leash.check() == changes.KEPT
    assert "over 1 missions" in world.change(number)["reason"]


async def test_harm_that_shows_twice_undoes_it_and_is_a_lesson(at: House) -> None:
    world = World(at)
    await world.missions(12)
    number = await made(at, facet)
    await world.missions(3, state="internal")
    assert await world.leash.check() is None, "it may be chance"
    assert await world.leash.check() is None, "no mission more says so"
    await world.missions(1, state="internal")
    assert await world.leash.check() == changes.UNDONE
    assert at.slots() == {}
    undone = world.change(number)
    assert undone["reason"] == "worse since it was made: client brief: 4 of 4 FAILED or unsure; before, 0 of 12"
    assert undone["effect"]["client brief"]["failed"] == [0, 4]
    proposal = type("P", (), {name: undone[name] for name in ("kind", "target", "content", "why")})()
    lesson = at.image.read(changes.lesson, proposal)
    assert lesson is not None
    assert lesson["number"] == number
    assert world.leash.facts()["last"]["state"] == changes.UNDONE


async def test_missions_of_another_kind_neither_confirm_harm_nor_put_it_off(at: House) -> None:
    world = World(at)
    await world.missions(12)
    await made(at, facet)
    await world.missions(9, origin="system")
    await world.missions(3, state="internal")
    assert await world.leash.check() is None
    await world.missions(3, origin="system")
    assert await world.leash.check() is None
    await world.missions(1, state="internal")
    assert await world.leash.check() == changes.UNDONE


async def test_what_looked_worse_and_is_not_any_more_is_forgotten(at: House) -> None:
    world = World(at)
    await world.missions(12)
    number = await made(at, facet)
    await world.missions(3, state="internal")
    await world.leash.check()
    await world.missions(40)
    assert await world.leash.check() is None
    world.now += HOUR + 1
    assert await world.leash.check() == changes.KEPT
    assert world.change(number)["state"] == changes.KEPT


async def test_harm_at_the_end_of_the_watch_is_harm(at: House) -> None:
    """Nobody asks any more, perhaps because all fails: it is undone, not kept."""
    world = World(at)
    await world.missions(12)
    await made(at, facet)
    await world.missions(8, state="internal")
    assert await world.leash.check() is None
    world.now += HOUR + 1
    assert await world.leash.check() == changes.UNDONE


async def test_slower_missions_undo_it(at: House) -> None:
    world = World(at)
    await world.missions(12, ms=2000)
    number = await made(at, facet)
    await world.missions(8, ms=9000)
    await world.leash.check()
    await world.missions(1, ms=9000)
    assert await world.leash.check() == changes.UNDONE
    assert "9.0 s of model time in the middle; before, 2.0 s" in world.change(number)["reason"]


async def test_falling_entropy_undoes_it(at: House) -> None:
    world = World(at)
    await world.missions(12, cem=0.6)
    number = await made(at, facet)
    await world.missions(9, cem=0.3)
    await world.leash.check()
    await world.missions(1, cem=0.3)
    assert await world.leash.check() == changes.UNDONE
    assert "entropy 0.300 on average; before, 0.600" in world.change(number)["reason"]


async def test_what_later_work_depends_on_is_kept_and_told(at: House) -> None:
    world = World(at)
    await world.missions(12)
    number = await made(at, facet)
    await at.sets("later", surprise_facet_="mine")
    await world.missions(8, state="internal")
    world.now += HOUR + 1
    assert await world.leash.check() == changes.KEPT
    kept = world.change(number)
    assert "8 of 9 FAILED" in kept["reason"]
    assert "could not be taken back" in kept["reason"]
    assert "by later" in kept["reason"]
    assert at.slots() == {"surprise_facet_": "mine"}


async def test_an_undo_that_may_go_through_later_is_tried_again(at: House) -> None:
    refusals = [Busy("the daemon is stopping")]

    async def undo(number: int, why: str, **more: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await at.undoing.undo_change(number, why, **more)

    world = World(at, undo=undo)
    await world.missions(12)
    number = await made(at, facet)
    await world.missions(8, state="internal")
    world.now += HOUR + 1
    assert await world.leash.check() is None
    assert world.change(number)["state"] == changes.PROMOTED
    assert await world.leash.check() == changes.UNDONE


async def test_a_change_that_its_user_undid_is_not_kept(at: House) -> None:
    async def undo(number: int, why: str, **more: Any) -> Any:
        """Its user is quicker than the leash, whose own undo then finds nothing to take back."""
        await at.undoing.undo_change(number, "by its user")
        raise UndoConflict("it was taken back a moment ago", conflicts=[], missions=[])

    world = World(at, undo=undo)
    await world.missions(12)
    number = await made(at, facet)
    await world.missions(8, state="internal")
    world.now += HOUR + 1
    assert await world.leash.check() is None
    assert (world.change(number)["state"], world.change(number)["reason"]) == (changes.UNDONE, "by its user")


# --- a daemon that dies


async def test_deaths_under_the_watch_disable_it_and_others_do_not(at: House) -> None:
    world = World(at)
    await world.leash.begin()
    await world.leash.begin()
    assert world.leash.facts()["deaths"] == 0, "nothing was watched when it died"
    number = await made(at, facet)
    for deaths in (1, 2):
        await world.leash.begin()
        assert world.leash.facts()["deaths"] == deaths
        assert at.slots() == {"surprise_facet_": FACET}
    await world.leash.end()
    await world.leash.begin()
    assert world.leash.facts()["deaths"] == 2, "it ended in good order"
    await world.leash.begin()
    assert at.slots() == {}
    disabled = world.change(number)
    assert (disabled["state"], disabled["effect"]) == (changes.DISABLED, {"deaths": 3})
    assert disabled["reason"] == "the daemon died 3 times since it was made"
    await world.leash.begin()
    assert world.leash.facts()["deaths"] == 0
    await made(at, facet, content="another")
    await world.leash.begin()
    assert world.leash.facts()["deaths"] == 1, "the next change begins anew"


async def test_a_full_disk_keeps_no_daemon_from_starting_or_ending(at: House, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(at, deaths=1)
    await world.leash.begin()
    number = await made(at, facet)
    full = OSError(errno.ENOSPC, "No space left on device")

    def refuse(*_: Any) -> None:
        raise full

    storage = at.image.db.storage.base
    with monkeypatch.context() as patched:
        patched.setattr(storage, "tpc_vote", refuse)
        await world.leash.begin()
        await world.leash.end()
    with monkeypatch.context() as patched:
        patched.setattr(at.undoing, "_undo_once", AsyncMock(side_effect=full))
        await world.leash.begin()
        assert world.change(number)["state"] == changes.PROMOTED
    await world.leash.begin()
    assert world.change(number)["state"] == changes.DISABLED


async def test_one_that_cannot_be_disabled_does_not_keep_the_daemon_from_starting(at: House) -> None:
    world = World(at, deaths=1)
    await world.leash.begin()
    number = await made(at, facet)
    await at.sets("later", surprise_facet_="mine")
    await world.leash.begin()
    assert "could not be taken back" in world.change(number)["reason"]
    assert at.image.read(changes.watched) is None
