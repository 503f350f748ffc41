"""What the forge does with methods near a draft, and with those that are known: a refused draft is amended by them, or one of them is
taken; and of one that is kept they tell what the examples leave open. They run aside, and nothing is kept of that."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from batos.image import examples
from batos.image.turns import in_helper
from batos.mind import amending, assembling, channel, doubt, edits, prompting, reuse, side_by_side, specification, vouched
from batos.mind.handbook.entries import Entry, words_in
from batos.mind.handbook.nearest import handbook
from batos.mind.implied import answers, completing, implied, lacks
from batos.mind.states import lobby_of
from batos.mind.thinking import current
from batos.objects import Method, UvmObject

Faults = Callable[[UvmObject, str], Awaitable[tuple[list[str], str]]]
"""Why a source cannot be kept, nothing if it can; and what it did on the call that asked for it."""
KNOWN = 4.2
"""What a known method costs at most."""
_LIKE = 2.5  # what a method that is known or put together costs at most, if it is to cast doubt on another
_CHANCE = (2.64, 3.24, -0.81, -0.27, 0.14)
"""How likely what is known or put together is right, in log odds: of any, by its share of the weight, by what it costs, by how many words
are said, and where the examples tell much. Logistic regression on 176 searches of tasks for validation (docs/training.md)."""
_WORDS = 40  # that make it less likely, at most: no request that was fitted had more
AT_ONCE, _AFTER, _LAST = 0.8, 0.5, 0.5
"""How likely it must be: if no model is asked, after a refused draft, and where every draft was refused."""
ELSEWHERE = 0.8
"""What it costs that a method was written for something else."""
_AMENDED = 3  # edits that do the same, of which the first that passes everything is taken


async def told(cycle: UvmObject) -> str | None:
    """A method that is known and passes the examples, where its words tell all that is asked, or nearly; None where none does, or where
    words are asked in that the handbook cannot read, or the examples say little more than that there is an answer."""
    settings = current().settings
    what, run, _ = _aside(cycle)
    if not _legible(cycle, what):
        return None
    known = await _known(cycle, what)

    def telling() -> list[tuple[float, Entry]]:
        found = set(map(id, handbook().telling(what.known.told, (one for _, one in known), prompting.TOLD, without=what.known.slots)))
        return [one for one in known if id(one[1]) in found]

    passed = await _priced(await _tried(cycle, await in_helper(telling), exactly=True), what)
    return next(iter(await amending.likely(passed, what, run, limit=settings.method_bytes)), None)


async def put_together(cycle: UvmObject) -> str | None:
    """A method that is known or put together of parts, where it is likelier than all else that is; None where none is, or where nothing
    may be taken at once (`told`)."""
    what, run, _ = _aside(cycle)
    if not _legible(cycle, what):
        return None
    return next(iter(await _likely(await _priced(await _found(cycle), what), what, run, AT_ONCE)), None)


async def last(cycle: UvmObject) -> str | None:
    """A method that is known or put together, once all drafts were refused: likelier than all else, if not by far."""
    what, run, _ = _aside(cycle)
    if not _legible(cycle, what):
        return None
    refused = {source for source, _ in cycle.refusals}
    found = await _likely(await _priced(await _found(cycle), what), what, run, _LAST)
    return next((text for text in found if text not in refused), None)


async def amended(cycle: UvmObject, source: str, faults: Faults) -> tuple[str, str] | None:
    """An edit of a draft that was refused, or a method that is known, with what it did on the call that asked for the method; None where
    none is likely to be right."""
    settings = current().settings
    what, run, audit = _aside(cycle)
    if not (settings.synthesis_edits and (what.tells or _legible(cycle, what))):
        return None
    before, limit, most = [known for known, _ in cycle.refusals], settings.method_bytes, settings.synthesis_edits if what.tells else 0
    new = await amending.passing(source, before, what, audit, run, most=most, limit=limit)
    if not before:  # what is known does not change with the draft
        new = (*new, *await _found(cycle))
    cycle.passed = (*cycle.passed, *new)
    if not new:
        return None
    if cycle.reused or cycle._slots.get("made"):
        found = await _likely(await _priced(cycle.passed, what), what, run, _AFTER)
    else:
        found = await amending.likely(cycle.passed, what, run, limit=limit)
    for text in found[:_AMENDED]:
        reasons, did = await faults(cycle, text)
        if not reasons:
            return text, did
    return None


async def completed(cycle: UvmObject, source: str, faults: Faults) -> tuple[str, str] | None:
    """A method that passes its examples and has no answer where there is nothing, made to answer what the words say of that
    (`batos.mind.implied`), and what it did on the call that asked for it; None where they say nothing of it, or it has an answer."""
    settings = current().settings
    what, run, audit = _aside(cycle)
    if not settings.synthesis_edits or not (said := implied(what)):
        return None
    (before,) = await side_by_side.did([source], [one.call for one in said], run, limit=settings.method_bytes)
    for one, did in zip(said, before, strict=True):
        if not lacks(did, one) or (whole := completing(source, one, did)) is None or not audit(whole):
            continue
        ((after,),) = await side_by_side.did([whole], [one.call], run, limit=settings.method_bytes)
        if answers(after, one):
            reasons, did = await faults(cycle, whole)
            return None if reasons else (whole, did)
    return None


async def _found(cycle: UvmObject) -> amending.Passed:
    """Methods that are known, or put together of parts, and pass the examples."""
    return (*((cost + ELSEWHERE, text) for cost, text in await _reused(cycle)), *await _made(cycle))


async def _reused(cycle: UvmObject) -> amending.Passed:
    """Methods that are known and pass the examples; found once, since they do not change with a draft."""
    if cycle.reused is None:
        cycle.reused = await _tried(cycle, await _known(cycle, _aside(cycle)[0]))
    return tuple(cycle.reused)


async def _made(cycle: UvmObject) -> amending.Passed:
    """Methods put together of parts that pass the examples; found once, as those are."""
    if cycle._slots.get("made") is None:
        settings = current().settings
        what, run, audit = _aside(cycle)
        most, limit = 0 if _sends(cycle, but=what.helpers) else settings.synthesis_parts, settings.method_bytes
        known = await _known(cycle, what)
        cycle.made = await assembling.passing(what, cycle.selector, known, audit, run, most=most, limit=limit)
    return tuple(cycle.made)


def _legible(cycle: UvmObject, what: amending.Wanted) -> bool:
    """Whether the words can be read that say what is asked, and the examples say more than that there is an answer."""
    legible = what.known.told.isascii() and (words_in(cycle.intent) or not cycle.intent)
    return bool(legible and what.examples and not examples.constant(cycle.taught))


async def _likely(passed: amending.Passed, what: amending.Wanted, run: side_by_side.Run, sure: float) -> Sequence[str]:
    """What most likely is right, the cheapest first; none where that is not likely enough."""
    found = amending.by_best(await amending.able(passed, what, run, limit=current().settings.method_bytes, about=amending.ABOUT))
    if not found:
        return ()
    share, group = found[0]
    return group.sources if chance(share, group.cost, what) >= sure else ()


def chance(share: float, cost: float, what: amending.Wanted) -> float:
    """How likely a method that is known or put together is right, 0 to 1.

    :param share: of the weight of the cheapest of each that does something else (`amending.by_best`).
    :param cost: of the cheapest that does the same (`channel.priced`).
    """
    words = words_in(what.known.told) - words_in(" ".join(what.known.slots).replace("_", " "))
    told = 1.0, share, cost, min(len(words), _WORDS), what.tells
    return 1 / (1 + math.exp(-sum(one * by for one, by in zip(told, _CHANCE, strict=True))))


def _sends(cycle: UvmObject, *, but: Collection[str] = ()) -> bool:
    """Whether the words name a message: what is known sends none, and what is put together only those that are functions.

    :param but: those that do not count.
    """
    named = prompting.sends_spoken_of(cycle.target, cycle.selector, cycle.intent)
    return any(one != "think_" and one not in but for one in named)


async def _priced(passed: amending.Passed, what: amending.Wanted) -> amending.Passed:
    """What passes, with what it costs where the words are what they are (`batos.mind.channel`)."""
    return await in_helper(lambda: channel.priced(passed, what.known.told, without=what.known.slots))


async def _tried(cycle: UvmObject, known: Sequence[tuple[float, Entry]], *, exactly: bool = False) -> amending.Passed:
    most, limit = current().settings.synthesis_reuse, current().settings.method_bytes
    what, run, audit = _aside(cycle)
    return await reuse.passing(what, cycle.selector, known, audit, run, most=most, limit=limit, exactly=exactly, within=KNOWN)


async def _known(cycle: UvmObject, what: amending.Wanted) -> Sequence[tuple[float, Entry]]:
    """The methods of the handbook and of the image, those first whose words are likest to what is asked; found once. None where words name
    a message."""
    if _sends(cycle) or not current().settings.synthesis_reuse:
        return ()
    if cycle.known is None:
        own = vouched.entries(lobby_of(cycle.persona)._p_jar.root(), current().mission["accepted"], (cycle.target, cycle.selector))
        cycle.known = await in_helper(lambda: tuple(handbook().alike(what.known.told, without=what.known.slots, more=own)))
    return tuple(cycle.known)


async def left_open(cycle: UvmObject, source: str, did: str) -> tuple[str, ...]:
    """What the examples leave open of a method that passes them, as `doubt.Question.texts`; empty where that is nothing.

    :param did: what it did on the call that asked for it, in its trial.
    """
    settings = current().settings
    if not (settings.synthesis_edits and cycle.taught):
        return ()
    what, run, audit = _aside(cycle)
    tree = edits.parsed(source)
    aside = cycle._slots.get("expert") and what.tells and tree is not None and edits.settled(tree)
    found = await _priced(await _found(cycle), what) if aside else ()
    other = tuple(one for one in found if one[0] <= _LIKE)
    question = await doubt.of_kept(source, did, what, audit, run, most=settings.synthesis_edits, limit=settings.method_bytes, other=other)
    return question.texts() if question else ()


async def still_open(cycle: UvmObject) -> doubt.Question | None:
    """What the examples leave open where every draft was refused, and no edit of one was likely enough to be right."""
    if not cycle.passed:
        return None
    what, run, _ = _aside(cycle)
    return await doubt.of_refused(await _priced(cycle.passed, what), what, run, limit=current().settings.method_bytes)


def _aside(cycle: UvmObject) -> tuple[amending.Wanted, side_by_side.Run, Callable[[str], bool]]:
    """What a method shall do; what runs others in its place, and what audits them."""
    attempt = current()
    methods = attempt.making.methods

    async def run(text: str, given: list[Any]) -> Any:
        method, activity = Method(side_by_side.SELECTOR, text), attempt.making.new_activity()
        return await (await methods.sandbox()).run(UvmObject(), method, [given], activity=activity, apart=True)

    asked = cycle.target, cycle.selector, cycle.args, dict(cycle.kwargs)
    what = specification.wanted(*asked, intent=cycle.intent, examples=cycle.taught, slots=cycle.lacked)
    return what, side_by_side.Aside(run, what.helpers), lambda text: methods.lets_pass(text, cycle.selector)
