"""What the forge does with methods near a draft: a refused draft is amended by them, and of one that is kept they tell what the
examples leave open. They run aside, and nothing is kept of that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from batos.mind import amending, doubt, side_by_side
from batos.mind.thinking import current
from batos.objects import Method, UvmObject

Faults = Callable[[UvmObject, str], Awaitable[tuple[list[str], str]]]
"""Why a source cannot be kept, nothing if it can; and what it did on the call that asked for it."""
_AMENDED = 3  # edits that do the same, of which the first that passes everything is taken


async def amended(cycle: UvmObject, source: str, faults: Faults) -> tuple[str, str] | None:
    """An edit of a draft that was refused, and what it did on the call that asked for the method; None where none is likely to be right."""
    settings = current().settings
    what, run, audit = _aside(cycle)
    if not (settings.synthesis_edits and what.tells):
        return None
    before, limit = [known for known, _ in cycle.refusals], settings.method_bytes
    new = await amending.passing(source, before, what, audit, run, most=settings.synthesis_edits, limit=limit)
    cycle.passed = (*cycle.passed, *new)
    for text in (await amending.likely(cycle.passed, what, run, limit=limit))[:_AMENDED] if new else ():
        reasons, did = await faults(cycle, text)
        if not reasons:
            return text, did
    return None


async def left_open(cycle: UvmObject, source: str, did: str) -> tuple[str, ...]:
    """What the examples leave open of a method that passes them, as `doubt.Question.texts`; empty where that is nothing.

    :param did: what it did on the call that asked for it, in its trial.
    """
    settings = current().settings
    if not (settings.synthesis_edits and cycle.taught):
        return ()
    what, run, audit = _aside(cycle)
    question = await doubt.of_kept(source, did, what, audit, run, most=settings.synthesis_edits, limit=settings.method_bytes)
    return question.texts() if question else ()


async def still_open(cycle: UvmObject) -> doubt.Question | None:
    """What the examples leave open where every draft was refused, and no edit of one was likely enough to be right."""
    if not cycle.passed:
        return None
    what, run, _ = _aside(cycle)
    return await doubt.of_refused(cycle.passed, what, run, limit=current().settings.method_bytes)


def _aside(cycle: UvmObject) -> tuple[amending.Wanted, side_by_side.Run, Callable[[str], bool]]:
    """What a method shall do; what runs others in its place, and what audits them."""
    attempt = current()
    methods = attempt.making.methods

    async def run(text: str, given: list[Any]) -> Any:
        method, activity = Method(side_by_side.SELECTOR, text), attempt.making.new_activity()
        return await (await methods.sandbox()).run(UvmObject(), method, [given], activity=activity, apart=True)

    asked = cycle.target, cycle.selector, cycle.args, dict(cycle.kwargs)
    return amending.wanted(*asked, intent=cycle.intent, examples=cycle.taught), run, lambda text: methods.lets_pass(text, cycle.selector)
