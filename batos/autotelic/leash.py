"""The leash: each change that the loop makes of itself is watched, and undone by itself where it does harm.

look ─ the watch is over, nothing got worse ──────── kept
     ├ worse, and worse still at a later look ────── undone, one transaction with its record
     └ neither ───────────────────────────────────── the next look
start ─ the daemon died too often under its watch ── disabled, before any mission goes on

Nothing but the record says how far it has come: killed at any moment, the next start goes on with the watch.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog

from batos.autotelic import changes, effect, home
from batos.errors import BatosError, HistoryGone, UndoConflict
from batos.image.living import LivingImage
from batos.image.turns import in_helper

log = structlog.get_logger("batos.autotelic")

PATIENCE = 4  # times `leash_s`: how long it is waited for missions that could tell
Change = dict[str, Any]


class Undo(Protocol):
    """Takes a change back and records that, in one transaction: see `batos.undoing.Undoing.undo_change`."""

    def __call__(self, number: int, why: str, *, state: str, effect: Change) -> Awaitable[Any]:
        """
        :raises UndoConflict: if later work depends on it.
        :raises BatosError: if it could not be done for another reason.
        """


class Leash:
    """Watches the change that was made last. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        limits: effect.Limits,
        *,
        period_s: float,
        deaths: int,
        undo: Undo,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        :param period_s: how long a change is watched.
        :param deaths: of the daemon, while a change is watched, that disable it.
        """
        self._image, self._limits, self._period, self._deaths, self._undo, self._now = image, limits, period_s, deaths, undo, now
        self._suspect: tuple[int, int] | None = None  # the change that looked worse at the last look, and of how many missions
        self._set_back: tuple[int, float] | None = None  # the change that will be made, says the clock, and when that was seen first

    async def begin(self) -> None:
        """Note that a daemon begins; if the former ones died too often under the watch of a change, that is taken back first."""
        try:
            deaths, change = await self._image.system(begun)
        except (BatosError, OSError) as e:  # a full disk, say: a daemon that begins is more than what it notes
            log.warning("start_not_noted", error=str(e))
            return
        if change is None or deaths < self._deaths:
            return
        why = f"the daemon died {deaths} times since it was made"
        log.error("change_disabled", change=change["number"], kind=change["kind"], target=change["target"], why=why)
        await self._take_back(change, why, changes.DISABLED, {"deaths": deaths})

    async def end(self) -> None:
        """Note that the daemon ends in good order."""
        try:
            await self._image.system(ended)
        except (BatosError, OSError) as e:
            log.warning("end_not_noted", error=str(e))

    async def look(self) -> str | None:
        """See how it stands with the change that is watched; what became of it, None where that is open or there is none."""
        change = self._image.read(changes.watched)
        if change is None:
            self._suspect = None
            return None
        found: effect.Effect = await in_helper(self._image.read, effect.seen, change, self._limits)
        age, set_back = self._age(change)
        long = set_back or age >= self._period
        over = long and (found.samples >= self._limits.missions or age >= PATIENCE * self._period)
        if found.worse:
            if not (over or self._is_confirmed(change, found)):
                self._suspect = self._suspect or (change["number"], found.harmed)
                log.warning("change_suspected", change=change["number"], worse=list(found.worse))
                return None
            return await self._take_back(change, f"worse since it was made: {'; '.join(found.worse)}", changes.UNDONE, found.figures)
        self._suspect = None
        if not over:
            return None
        why = f"watched for {max(0.0, age) / 3600:.1f} h over {found.samples} missions: nothing got worse"
        return await self._keep(change, why, found.figures)

    def _age(self, change: Change) -> tuple[float, bool]:
        """For how long a change is watched; where the clock was set back to long before it was made, as far as that is known."""
        now = self._now()
        age = now - change["decided"]
        if age > -self._period:
            self._set_back = None
            return age, False
        if self._set_back is None or self._set_back[0] != change["number"] or self._set_back[1] > now:
            self._set_back = change["number"], now
        return now - self._set_back[1], True

    def facts(self) -> dict[str, Any]:
        """What `info` says of it: what is watched until when, deaths under the watch, and what became of the last change that ended."""
        return self._image.read(_facts, self._period)  # type: ignore[no-any-return]

    def _is_confirmed(self, change: Change, found: effect.Effect) -> bool:
        """Whether it looked worse before, and missions since then say so, too."""
        return self._suspect is not None and self._suspect[0] == change["number"] and found.harmed > self._suspect[1]

    async def _take_back(self, change: Change, why: str, state: str, figures: Change) -> str | None:
        self._suspect = None
        try:
            await self._undo(change["number"], why, state=state, effect=figures)
        except (UndoConflict, HistoryGone) as e:  # it can never be undone by itself: its user is told, and it is watched no more
            log.error("change_not_undone", change=change["number"], why=why, error=e.message)
            return await self._keep(change, f"{why}; it could not be taken back: {e.message}", figures)
        except (BatosError, OSError) as e:
            log.warning("change_not_undone_yet", change=change["number"], why=why, error=str(e))
            return None
        log.warning("change_taken_back", change=change["number"], state=state, why=why)
        return state

    async def _keep(self, change: Change, why: str, figures: Change) -> str | None:
        if not await self._image.system(changes.keep, change["number"], why, figures):
            return None  # its user has undone it just now
        log.info("change_kept", change=change["number"], why=why)
        return changes.KEPT


def begun(root: Any) -> tuple[int, Change | None]:
    """System transaction: a daemon begins; how often one died while the change was watched that is watched now, and that change."""
    held, change = home.part(root, "leash"), changes.watched(root)
    number = 0 if change is None else change["number"]
    deaths = held.deaths if number == held.change else 0
    held.deaths = deaths + 1 if held.running and number else deaths
    held.running, held.change = True, number
    return held.deaths, change


def ended(root: Any) -> None:
    """System transaction: a daemon ends in good order."""
    home.part(root, "leash").running = False


def _facts(root: Any, period_s: float) -> dict[str, Any]:
    held, change = home.part(root, "leash"), changes.watched(root)
    last = next((one for one in changes.newest_first(root) if one.ended is not None), None)
    return {
        "watched": None if change is None else {"number": change["number"], "until": change["decided"] + period_s},
        "deaths": held.deaths if change is not None and held.change == change["number"] else 0,
        "last": None if last is None else {name: getattr(last, name) for name in ("number", "state", "reason")},
        "proposed": len(changes.listed(root, state=changes.PROPOSED)),
    }
