"""Questions about reach: a method that would reach more than its user granted is his to decide.

A later version that reaches more than the one before it is asked about before it is kept. The first version for a connection that reaches
another connection is asked about before it is tried, since its trial reads there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from batos import scope
from batos.errors import MethodRefused
from batos.guardian import Verdict
from batos.image import grants as image_grants
from batos.image.grants import ALLOW, DENY
from batos.methods import reach
from batos.methods.runtime import may_use_tools
from batos.mind.attempt import YES, Attempt
from batos.mind.messages import called
from batos.objects import Method, UvmObject
from batos.tools import connections, grants

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
    told = f"new version of {verdict.selector!r} of {called(holder)} reach tools that version {before.version} does not: {', '.join(more)}"
    _ask(attempt, verdict, told, "it is kept")


def check_others(attempt: Attempt, holder: UvmObject, before: Method | None, verdict: Verdict, agreed: frozenset[str]) -> frozenset[str]:
    """Check that a draft for a connection may be tried, with regard to the other connections that it reaches. Return those of their tools
    that its user lets it reach, by this question.

    What a grant allows is not asked. Where nothing is asked, or later (`check_growth`), doubles answer for those tools in trials.

    :param before: the version that it replaces; None if there is none.
    :param agreed: tools that he was asked about before.
    :raises NeedAnswer, MethodRefused: see `check_growth`.
    """
    own = _own_name(holder)
    if not own:
        return frozenset()
    system, image, now = attempt.mission.origin == "system", attempt.making.methods.image, time.time()
    known = reach.reach_of(before) if before is not None else {}
    others = {name: kind for name, kind in reach.tools_in(verdict.contract["reaches"]).items() if not name.startswith(f"{own}.")}
    more = {name: kind for name, kind in others.items() if known is not None and name not in known and name not in agreed}
    if not more:
        return frozenset()
    table = image.read(image_grants.all_grants, now)
    more = {
        name: kind
        for name, kind in more.items()
        if grants.may_refuse(table, name, now) or not grants.always(ALLOW, table, name, now, system=system)
    }
    if not more:
        return frozenset()
    if before is not None or not attempt.policy.keeps or scope.current().in_trial:
        there = image.read(connections.load)
        tools = {f"{name}.{tool.name}" for name, one in there.items() for tool in one.tools}
        attempt.tally.unread |= {name if name in tools else name.partition(".")[0] for name in more}  # a method reads what it reads
        return frozenset()
    shown = ", ".join(f"{name} ({kind})" for name, kind in sorted(more.items()))
    told = f"first version of {verdict.selector!r} of {called(holder)} reach tools of other connections: {shown}"
    _ask(attempt, verdict, told, "it is tried")
    return frozenset(more)


def denied_to(attempt: Attempt, holder: UvmObject) -> Callable[[str], bool] | None:
    """Return the function that says of a tool (`CONNECTION.TOOL`) if a draft may not call it, since a grant denies each call of it. None
    where no grant denies anything.

    A connection's method may name the tools of its own connection all the same: each call of them is refused when it is made.
    """
    now = time.time()
    table = attempt.making.methods.image.read(image_grants.all_grants, now)
    if not any(held.grant.verdict == DENY for held in table):
        return None
    own = _own_name(holder)
    return lambda name: not (own and name.startswith(f"{own}.")) and grants.always(DENY, table, name, now)


def _own_name(holder: UvmObject) -> str:
    """Return the name of a connection; "" for any other object."""
    is_one = holder._p_jar is not None and connections.is_connection(holder._p_jar.root(), holder)
    return str(holder.name) if is_one else ""


def _ask(attempt: Attempt, verdict: Verdict, told: str, then: str) -> None:
    """Ask the user if a method may reach what it would; see `check_growth` for what it raises.

    :param then: what follows a yes.
    """
    if attempt.mission.origin == "system":
        why = "a mission of the system's own may not do that; its user may have it written (`batos teach … --tools`)"
    else:
        source = verdict.source if len(verdict.source) <= _SHOWN else f"{verdict.source[:_SHOWN]}…"
        question = f"May a {told}? Answer yes, and {then}; any other answer refuses it.\n\n{source}"
        if attempt.ask_operator(question).strip().casefold() in YES:
            return
        why = "its user said no"
    reason = f"a {told.replace(' reach tools', ' would reach tools', 1)}; {why}"
    raise MethodRefused(reason, selector=verdict.selector, source=verdict.source, reasons=[reason], cause="reach")
