"""Questions about reach: a version of a method that would reach more tools than the one before it is its user's to decide."""

from __future__ import annotations

from batos import scope
from batos.errors import MethodRefused
from batos.guardian import Verdict
from batos.methods import reach
from batos.methods.runtime import may_use_tools
from batos.mind.attempt import YES, Attempt
from batos.mind.messages import called
from batos.objects import Method, UvmObject

_SHOWN = 1500  # greatest number of characters of a source in a question


def check_growth(attempt: Attempt, holder: UvmObject, before: Method | None, verdict: Verdict) -> None:
    """Check that a version of a method may be kept, with regard to the tools that it reaches.

    Nothing is asked where nothing is kept (a trial, a rehearsal, a replay). Nothing is asked either where the version before had no leave
    to use tools, since its user has just given that.

    :param before: the version that it replaces; None if there is none.
    :raises NeedAnswer: where its user is asked: the attempt ends, and the mission waits.
    :raises MethodRefused: if its user says no, or the mission is the system's own.
    """
    if before is None or not may_use_tools(before) or reach.reach_of(before) is None:
        return
    more = reach.growth(before, verdict.contract["reaches"])
    if not more or not attempt.policy.keeps or scope.current().in_trial:
        return
    selector = verdict.selector
    told = f"new version of {selector!r} of {called(holder)} reach tools that version {before.version} does not: {', '.join(more)}"
    if attempt.mission.origin == "system":
        why = "a mission of the system's own may not do that; its user may have it written (`batos teach … --tools`)"
    else:
        source = verdict.source if len(verdict.source) <= _SHOWN else f"{verdict.source[:_SHOWN]}…"
        question = f"May a {told}? Answer yes, and it is kept; any other answer refuses it.\n\n{source}"
        if attempt.ask_operator(question).strip().casefold() in YES:
            return
        why = "its user said no"
    reason = f"a {told.replace(' reach tools', ' would reach tools', 1)}; {why}"
    raise MethodRefused(reason, selector=selector, source=verdict.source, reasons=[reason], cause="reach")
