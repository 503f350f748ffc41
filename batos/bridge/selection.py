"""Which model meets what a mission needs, by capability and room: of those that are here, else of those that can be had.

Of those here it is the best, by the same rate as the profile `auto` goes by. Of those that can be had it is the smallest download that is
no weaker than what thinks now, or where none is so strong the strongest; what the user's own registry has goes before what the shipped
catalogue names. Why it is that one is said in a sentence, and so is why there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from batos.bridge.candidates import CONTEXTS, Candidate
from batos.bridge.catalogue import Offer
from batos.bridge.choice import answer_of
from batos.bridge.needs import Needs


class Space(NamedTuple):
    """The room that there is.

    :ivar memory: bytes that models may take. `disk`: bytes that may be written for one; None: not known.
    """

    memory: int
    disk: int | None = None


class Choice(NamedTuple):
    """A model that meets the needs.

    :ivar model: empty: the one that thinks anyway, with another context.
    :ivar source: where it is to be had, in words; empty: it is here.
    :ivar context: tokens that it is loaded with, `answer` those of its answer at most, `memory` the bytes that it takes then.
    """

    model: str
    source: str
    bytes: int
    context: int
    answer: int
    memory: int
    why: str


def widened(present: Candidate, needs: Needs, room: Space) -> Choice | None:
    """The model that thinks anyway, with the context that is needed; None where it cannot, or that does not fit."""
    memory = present.memory(needs.context)
    if needs.lacking(present.can) or not needs.context or memory > room.memory:
        return None
    why = f"{present.name} reads as many, with num_ctx {needs.context}, and takes {_gb(memory)} then"
    return Choice("", "", present.bytes, needs.context, answer_of(needs.context), memory, why)


def here(found: Sequence[Candidate], needs: Needs, room: Space, left_out: Collection[str] = ()) -> Choice | None:
    """The best of the models that are here; None where none can or fits."""
    own = [one for one in found if not one.ours and not one.can.remote and one.name not in left_out]
    fit = [one for one in own if not _unfit(one, needs, room, disk=False)]
    best = max(fit, key=lambda one: (one.worth, one.bytes, one.name), default=None)
    if best is None:
        return None
    which = f"the best of {len(fit)} models here that do" if len(fit) > 1 else "the one model here that does"
    why = f"{best.name} {needs.told()}: it is {which} and that fits {_gb(room.memory)} (memory_budget_bytes)"
    return _chosen(best, "", needs, room, why)


def had(
    offered: Sequence[Sequence[Offer]],
    needs: Needs,
    room: Space,
    *,
    least: int = 0,
    first: Collection[str] = (),
    left_out: Collection[str] = (),
) -> Choice | None:
    """The model to be had of several lists, of which an earlier one goes first; None where none can or fits.

    :param least: parameters of what thinks now.
    :param first: models that go before all others: those that may be pulled without asking.
    :param left_out: models that were tried and cannot, or that their user did not want.
    """
    fit = [[one for one in some if one.model.name not in left_out and not _unfit(one.model, needs, room, disk=True)] for some in offered]
    for some in ([one for all_ in fit for one in all_ if one.model.name in first], *fit):
        if not some:
            continue
        strong = [one for one in some if (one.model.can.parameters or 0) >= least]
        if strong:
            model, source = min(strong, key=lambda one: (_is_short(one.model), one.model.bytes, one.model.name))
            which = "the smallest download" if len(strong) > 1 else "the one"
            weaker = " and is no weaker than what thinks now" if least else ""
        else:
            model, source = max(some, key=lambda one: (one.model.can.parameters or 0, one.model.name))
            which, weaker = "the strongest", ", though it is weaker than what thinks now"
        disk = "" if room.disk is None else f", and {_gb(room.disk)} of disk"
        fits = f"it fits {_gb(room.memory)} (memory_budget_bytes){disk}"
        why = f"{model.name} is {which} of {len(some)} in {source} that {needs.told()}{weaker}; {fits}"
        return _chosen(model, source, needs, room, why)
    return None


def why_none(offered: Sequence[Sequence[Offer]], needs: Needs, room: Space, left_out: Collection[str] = ()) -> str:
    """Why none of these can be had, in words."""
    reasons = Counter(
        "was tried, or not wanted" if one.model.name in left_out else _unfit(one.model, needs, room, disk=True) or "fits"
        for some in offered
        for one in some
    )
    told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"of {reasons.total()} models that could be had: {told}" if reasons else "no model is known that could be had"


def _is_short(one: Candidate) -> bool:
    """Whether a model has less context than others are given here: a mission's prompts may not fit."""
    return (one.can.context or 0) < CONTEXTS[0]


def _unfit(one: Candidate, needs: Needs, room: Space, *, disk: bool) -> str:
    """Why a model does not do, as the end of a sentence about several; empty where it does."""
    if not one.can.chats:
        return "do not answer messages"
    if lacks := needs.lacking(one.can):
        return f"lack what is needed ({', '.join(lacks.words())})" if len(lacks.words()) < len(needs.words()) else "lack what is needed"
    if one.memory(_context(one, needs, room)) > room.memory:
        return f"do not fit {_gb(room.memory)} of memory (memory_budget_bytes)"
    if disk and room.disk is not None and one.bytes > room.disk:
        return f"do not fit {_gb(room.disk)} of free disk (disk_reserve_bytes stay free)"
    return ""


def _context(one: Candidate, needs: Needs, room: Space) -> int:
    """The context that a model is given: what is needed, or more where that fits, as other models are."""
    usual = one.context_within(room.memory)
    return max(needs.context, usual) if needs.context <= CONTEXTS[0] else needs.context


def _chosen(one: Candidate, source: str, needs: Needs, room: Space, why: str) -> Choice:
    context = _context(one, needs, room)
    return Choice(one.name, source, one.bytes, context, answer_of(context), one.memory(context), why)


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
