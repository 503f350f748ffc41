"""Promotion of a variant that a comparison found better: in one transaction, with its user's note, which `batos changes undo N` takes back.

Slots of the persona are set. Where another persona stood in its place, the briefs that it won become its exemplars: the router gives it
such briefs from then on. Settings are not of the image, so they are not promoted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from transaction.interfaces import TransientError

from batos.autotelic import changes
from batos.autotelic.change_types import ASKED_BY_USER
from batos.autotelic.changes import ChangeLimits, Proposal
from batos.comparisons import figures, records, report, variant
from batos.comparisons.records import CHANGED
from batos.comparisons.variant import Variant
from batos.config import Settings
from batos.errors import BatosError, Conflicted, InvalidInput
from batos.image.living_image import LivingImage
from batos.mind import incarnation
from batos.mind.router import RoutingLimits
from batos.missions.mission_queue import AttemptLimits
from batos.objects import Root

log = structlog.get_logger("batos.comparisons")


async def promote(
    image: LivingImage, settings: Settings, window: Callable[[str], str], id: str, note: str, *, anyway: bool
) -> dict[str, Any]:
    """Make a compared variant the present state; return `change`, the number of the change that it became.

    :param window: returns the part of a brief that is analysed (`Router.window`).
    :param note: why, in the user's words.
    :param anyway: True: also where pairs are not judged yet, the verdict is not that it is better, or what there is was changed since.
    :raises InvalidInput: saying why not.
    """
    plan = image.read(_planned, id, anyway)
    if plan.promoted:
        return {"change": plan.promoted}
    number: int = await image.system(_propose, id, plan, note, ChangeLimits.of(settings).kept)
    for _ in range(AttemptLimits.of(settings).conflict_retries + 1):
        try:
            async with image.unit() as unit:
                try:
                    now = _planned(unit.root, id, anyway)
                    if now.promoted:
                        raise _AlreadyPromoted(now.promoted)
                    _make(unit.root, now, number, note, window, RoutingLimits.of(settings).learned)
                except BaseException:
                    unit.doom()
                    raise
                unit.note(changes.name_of(number), f"{changes.NOTE}: comparison {id}: {plan.words}: {note}")
        except TransientError as e:
            log.info("promotion_conflict", comparison=id, error=str(e)[:200])
        except _AlreadyPromoted as e:
            if number != e.number:
                await image.system(changes.refuse, number, f"it was promoted meanwhile, by change {e.number}", {})
            return {"change": e.number}
        except BatosError as e:
            await image.system(changes.refuse, number, e.message, {})
            raise
        else:
            log.info("promoted", comparison=id, change=number)
            return {"change": number}
    why = f"the promotion of comparison {id!r} met conflicts with missions under way too often; try again"
    await image.system(changes.refuse, number, why, {})
    raise Conflicted(why)


class _AlreadyPromoted(Exception):
    """Another request promoted the variant in the meantime."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Plan(NamedTuple):
    """A promotion that may be made."""

    id: str
    variant: Variant
    words: str
    verdict: str
    why: str
    wins: Mapping[str, int]
    won: Sequence[str]
    """Briefs that the other persona won."""
    promoted: int


def _planned(root: Root, id: str, anyway: bool) -> _Plan:
    """Return what a promotion would make.

    :raises InvalidInput: saying why it may not be made.
    """
    record = records.record_of(root, id)
    told = records.described(record)
    spec = told["spec"]
    made, found = records.variant_in(spec), report.report(record, is_at=False)
    figured = found["figures"]
    won = [pair["brief"] for pair in found["compared"] if pair.get("winner") == CHANGED]
    plan = _Plan(id, made, spec["words"], figured["verdict"], figured["why"], figured["wins"], won, int(told["promoted"]))
    if plan.promoted:
        return plan
    if not anyway and (open_ones := found["unjudged"]):
        raise InvalidInput(
            f"of comparison {id!r} {open_ones} of {found['done']} pairs are not judged yet; `batos compare --resume {id}` judges them, "
            "--anyway promotes by those that are judged"
        )
    if not anyway and told["state"] in (records.WAITING, records.RUNNING) and found["done"] < found["pairs"]:
        raise InvalidInput(
            f"comparison {id!r} is under way: {found['done']} of {found['pairs']} pairs are thought through; wait for it "
            f"(`batos compare --show {id}`), or --anyway promotes by those"
        )
    if not anyway and plan.verdict != figures.BETTER:
        raise InvalidInput(f"comparison {id!r} does not say that the variant is better: {plan.why}; --anyway makes it so all the same")
    if not anyway and variant.standing(root, made) != spec["standing"]:
        raise InvalidInput(f"{made.persona} was changed since it was compared; --anyway makes it so all the same")
    if made.settings:
        lines = ", ".join(f"{name} = {value!r}" for name, value in made.settings.items())
        raise InvalidInput(f"settings are not of the image: write {lines} into batos.toml (`batos config` says where it is)")
    if made.instead and not won:
        raise InvalidInput(f"{made.instead} won no brief of comparison {id!r}, so there is none that the router could learn")
    return plan


def _propose(root: Root, id: str, plan: _Plan, note: str, limit: int) -> int:
    """System transaction: record the change, so that the one that makes it writes slots only, and can be undone one by one."""
    proposal = Proposal(changes.COMPARED, plan.variant.persona, plan.variant._asdict(), note)
    evidence = {"words": f"comparison {id}: {plan.why}"}
    return changes.propose(root, proposal, evidence, f"compare:{id}", source=ASKED_BY_USER, limit=limit)


def _make(root: Root, plan: _Plan, number: int, note: str, window: Callable[[str], str], learned: int) -> None:
    """Make the variant what there is, as part of a transaction."""
    variant.apply(root, plan.variant)
    if plan.variant.instead and learned:
        for brief in plan.won[-learned:]:
            incarnation.learn(variant.personas_of(root), plan.variant.instead, window(brief), f"compare:{plan.id}", learned)
    comparison = {"comparison": plan.id, "verdict": plan.verdict, "wins": dict(plan.wins)}
    changes.make(root, number, comparison, "its user made it so")
    record = records.record_of(root, plan.id)
    record.promoted, record.note = number, note
