"""Permission: which mission may call which tool with which arguments, by the grants of the image.

A deny goes before an ask, an ask before an allow; within each, the first that fits decides. Where none fits, a user's mission asks, unless
the tool only reads, in a connection that its user added. A mission of the system's own is refused.

A mission collects three marks: it read untrusted text, it read private data, it acted outward. With all three, text of strangers could make
it send away what is private. So the call that brings the third one, and each outward call after it, asks with its payload, even where a
grant allows it. A grant with `leaks: allowed` is the exception.
"""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from batos.config import nearest
from batos.errors import InvalidInput
from batos.image.effects import READS, EffectRecord
from batos.image.grants import ALLOW, ASK, DENY, VERDICTS, CurrentGrant, GrantRecord, has_expired, is_used_up
from batos.tools.connections import PinnedConnection
from batos.tools.definitions import ToolDefinition
from batos.tools.grant_arguments import OTHERS, fits, glob, parse_constraints

UNTRUSTED, PRIVATE, OUTWARD = "untrusted", "private", "outward"
MARKS = frozenset({UNTRUSTED, PRIVATE, OUTWARD})
USER, SYSTEM = "user", "system"
_PATTERN = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_*-]*(\.[A-Za-z0-9_.:/*-]+)?\Z")
_PATTERN_CHARS = 200
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 1000, "mb": 10**6, "gb": 10**9}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_FORMS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """One call that a mission means to make, as grants judge it."""

    connection: str
    tool: ToolDefinition
    arguments: Mapping[str, Any]
    mission: str
    persona: str = ""
    origin: str = USER
    """`USER`, or `SYSTEM` for a mission of the system's own"""
    now: float
    """seconds since the epoch"""
    size: int = 0
    """bytes of the payload"""
    marks: frozenset[str] = frozenset()
    """marks that the mission has collected before"""
    effect: str = ""
    """key of the call's effect, for grants that are for it alone"""

    @property
    def name(self) -> str:
        """Return `CONNECTION.TOOL`."""
        return f"{self.connection}.{self.tool.name}"


class Permission(NamedTuple):
    """Decision about a call."""

    verdict: str
    """one of `batos.image.grants.VERDICTS`"""
    grant: GrantRecord | None
    """the grant that decided; None where none fits"""
    reason: str
    """in plain words, for its user"""
    leak: bool = False
    """True if the mission would have all three marks, so that an answer for later calls lets such calls act outward"""

    @property
    def by(self) -> str:
        """Return by whose leave the call is made, for the effect's record."""
        return "a read of a connection that its user added" if self.grant is None else f"grant {self.grant.id} ({self.grant.origin})"


def decide(grants: Sequence[CurrentGrant], request: ToolRequest) -> Permission:
    """Return the decision about a call. The caller counts its use (`batos.image.grants.spend`) where a grant allows it."""
    fitting = [held.grant for held in grants if _covers(held, request)]
    leaving = third_mark(request.marks, request.tool)
    denying, asking, allowing = ([grant for grant in fitting if grant.verdict == verdict] for verdict in VERDICTS)
    if denying:
        return Permission(DENY, denying[0], _denied(denying[0]))
    if request.origin == SYSTEM:
        return _for_the_system(asking, [grant for grant in allowing if grant.system], request, leaving)
    answered = [grant for grant in allowing if grant.effect]  # its user has been asked about this very call
    if asking and not answered:
        reason = f"grant {asking[0].id} asks first: {describe(asking[0])}"
        return Permission(ASK, asking[0], f"{reason}; and {_LEAK}" if leaving else reason, leaving)
    allowing = answered or allowing
    if leaving:
        allowing = [grant for grant in allowing if grant.leaks]
        if not allowing:
            return Permission(ASK, None, _LEAK, leaving)
    if allowing:
        return Permission(ALLOW, allowing[0], f"grant {allowing[0].id} allows it: {describe(allowing[0])}")
    if request.tool.kind == READS:
        return Permission(ALLOW, None, f"it only reads, in the connection {request.connection!r} that its user added")
    return Permission(ASK, None, f"no grant covers {request.name} with these arguments")


def _denied(grant: GrantRecord) -> str:
    if grant.origin == USER:
        return f"grant {grant.id} denies it: {describe(grant)}"
    if grant.mission:
        return "its user said no"
    return f"its user said `never` (grant {grant.id}: {describe(grant)}); `batos grants remove {grant.id}` lifts that"


_LEAK = (
    "the mission would have read untrusted text, read private data, and act outward: text of strangers could make it send private data away"
)


def _for_the_system(asking: list[GrantRecord], allowing: list[GrantRecord], request: ToolRequest, leaving: bool) -> Permission:
    if asking:
        return Permission(DENY, asking[0], f"grant {asking[0].id} asks first, and a mission of the system's own has no user to ask")
    if not allowing:
        return Permission(DENY, None, f"no grant lets a mission of the system's own call {request.name} (`batos allow PATTERN --system`)")
    if request.tool.kind != READS:
        return Permission(
            DENY, None, f"a mission of the system's own may only read, and {request.name} is of the class {request.tool.kind}"
        )
    allowing = [grant for grant in allowing if grant.leaks or not leaving]
    if not allowing:
        return Permission(DENY, None, _LEAK)
    return Permission(ALLOW, allowing[0], f"grant {allowing[0].id} allows it: {describe(allowing[0])}")


def _covers(held: CurrentGrant, request: ToolRequest) -> bool:
    grant = held.grant
    return (
        glob(grant.pattern, request.name)
        and grant.persona in ("", request.persona)
        and grant.mission in ("", request.mission)
        and grant.effect in ("", request.effect)
        and not has_expired(grant, request.now)
        and not is_used_up(grant, held.use, request.size)
        and fits(grant.args, request.arguments, strict=grant.verdict == ALLOW)
    )


def always(verdict: str, grants: Sequence[CurrentGrant], name: str, now: float, *, system: bool = False) -> bool:
    """Return True if a grant has a verdict on each call of a tool: of all missions and personas, with whatever arguments.

    :param name: `CONNECTION.TOOL`
    :param system: True for missions of the system's own, which an allow only covers if it says so.
    """
    found = [grant for grant, _ in grants if grant.verdict == verdict and glob(grant.pattern, name) and not has_expired(grant, now)]
    return any(
        not (grant.persona or grant.mission or grant.effect)
        and all(constraint is True for constraint in json.loads(grant.args or "{}").values())
        and (grant.system or not system or verdict != ALLOW)
        for grant in found
    )


def may_refuse(grants: Sequence[CurrentGrant], name: str, now: float) -> bool:
    """Return True if a grant denies some calls of a tool (`CONNECTION.TOOL`), or asks about them."""
    return any(grant.verdict != ALLOW and glob(grant.pattern, name) and not has_expired(grant, now) for grant, _ in grants)


# --- marks


def marks_of(tool: ToolDefinition) -> frozenset[str]:
    """Return the marks that a call of a tool brings."""
    marks = ((UNTRUSTED, tool.untrusted), (PRIVATE, tool.private), (OUTWARD, tool.outward))
    return frozenset(mark for mark, brought in marks if brought)


def collected_marks(records: Iterable[EffectRecord], tool: Callable[[str], ToolDefinition | None], recalled: bool) -> frozenset[str]:
    """Return the marks that a mission has collected.

    :param records: its effects. Failed ones count too: an error is a text of the tool's, and its arguments may have left. One that could
        not be made (no attempts) does not.
    :param tool: returns a definition by `CONNECTION.TOOL`; one that is gone counts as bringing every mark.
    :param recalled: True if it was shown anything from memory, which is private.
    """
    marks = frozenset({PRIVATE}) if recalled else frozenset[str]()
    for name in {record.tool for record in records if record.attempts}:
        definition = tool(name)
        marks |= MARKS if definition is None else marks_of(definition)
    return marks


def third_mark(marks_before: frozenset[str], tool: ToolDefinition) -> bool:
    """Return True if a call must be asked about for the mission's marks. With the call the mission has all three marks, and the call brings
    the last one, or acts outward."""
    return marks_before | marks_of(tool) == MARKS and (marks_before != MARKS or tool.outward)


# --- what a user writes


def checked(grant: GrantRecord) -> GrantRecord:
    """Return a grant as it is kept: a connection's name alone covers all its tools, and constraints are canonical.

    :raises InvalidInput: if a part is not valid, or does not go with another.
    """
    if grant.verdict not in VERDICTS:
        raise InvalidInput(f"the verdict {grant.verdict!r} is not valid; allowed are {', '.join(VERDICTS)}")
    pattern = grant.pattern.strip()
    if not _PATTERN.match(pattern) or len(pattern) > _PATTERN_CHARS:
        raise InvalidInput(
            f"the pattern {pattern[:80]!r} is not valid; write CONNECTION.TOOL, with `*` for any characters: `notes.*`, `github.create_*`"
        )
    if "." not in pattern and not pattern.endswith("*"):
        pattern += ".*"
    limits = [name for name, value in (("uses", grant.uses), ("bytes", grant.bytes)) if value]
    if any(value < 0 for value in (grant.uses, grant.bytes)):
        raise InvalidInput(f"uses and bytes a day are 0 (no limit) or more; these are {grant.uses} and {grant.bytes}")
    flags = [name for name, value in (("leaks", grant.leaks), ("system", grant.system)) if value]
    if grant.verdict != ALLOW and (limits or flags):
        raise InvalidInput(f"only an allow has {(limits + flags)[0]!r}; this grant's verdict is {grant.verdict}")
    return grant._replace(pattern=pattern, args=parse_constraints(grant.args))


def parse_until(text: str, now: float) -> float:
    """Return a time from `2026-12-31`, `2026-12-31T18:00` (local time), `2026-12-31T18:00:00Z`, or a span from now on such as `2h`, `7d`.

    :raises InvalidInput: if it is none of them, or has passed.
    """
    found, text = 0.0, text.strip()
    if span := re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)\s*([smhdw])", text):
        found = now + float(span[1]) * _SECONDS[span[2]]
    for form in _FORMS:
        try:
            parsed = time.strptime(text, form)
            found = calendar.timegm(parsed) if form.endswith("Z") else time.mktime(parsed)
        except (ValueError, OverflowError):
            continue
    if found <= now:
        why = "has passed" if found else "is not a valid time"
        raise InvalidInput(f"{text[:40]!r} {why}; write a date (2026-12-31), a time (2026-12-31T18:00), or a span from now on (2h, 7d)")
    return found


def parse_daily(text: str, what: str) -> int:
    """Return a limit a day from `50`, `50/day`, `2MiB/day`.

    :param what: `uses` or `bytes`; only the latter have units.
    :raises InvalidInput: if it is not a whole number above 0.
    """
    found = re.fullmatch(r"(\d{1,15})\s{0,3}([a-z]{0,8})\s{0,3}(?:/\s{0,3}d(?:ay)?)?", text.strip().casefold())
    unit = None if found is None else (_UNITS if what == "bytes" else {"": 1}).get(found[2])
    if found is None or unit is None or not int(found[1]):
        units = " (units: KiB, MiB, GiB, kB, MB, GB)" if what == "bytes" else ""
        raise InvalidInput(f"{text[:40]!r} is not a valid number of {what} a day; write a whole number above 0: `50/day`{units}")
    return int(found[1]) * unit


def hints(grant: GrantRecord, there: Mapping[str, PinnedConnection], personas: Collection[str]) -> list[str]:
    """Return what a grant names and nothing has now: a slip of the pen, or what its user adds later."""
    tools = {f"{name}.{tool.name}": tool for name, held in there.items() for tool in (*held.tools, *held.suspended)}
    covered = [tool for name, tool in tools.items() if glob(grant.pattern, name)]
    found = []
    if not covered:
        found.append(f"no connection has a tool {grant.pattern!r} now{nearest(grant.pattern, [*tools, *(f'{name}.*' for name in there)])}")
    known = {name for tool in covered for name in tool.parameters.get("properties") or {}}
    for name in json.loads(grant.args or "{}"):
        if covered and name != OTHERS and name not in known:
            found.append(f"{grant.pattern} takes no argument {name!r}{nearest(name, known)}")
    if grant.persona and grant.persona not in personas:
        found.append(f"there is no persona {grant.persona!r}{nearest(grant.persona, personas)}")
    return found


def describe(grant: GrantRecord | CurrentGrant) -> str:
    """Return a grant in one line: verdict, pattern, and all that narrows it; with its use where that is known."""
    use = None
    if isinstance(grant, CurrentGrant):
        grant, use = grant
    parts = [f"{grant.verdict} {grant.pattern}{f' with {grant.args}' if grant.args else ''}"]
    parts += [f"{what} {value}" for what, value in (("persona", grant.persona), ("mission", grant.mission)) if value]
    parts += [f"only the effect {grant.effect[:8]}"] if grant.effect else []
    if grant.until:
        parts.append(f"until {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(grant.until))}")
    for what, most, used in (("uses", grant.uses, use and use.uses), ("bytes", grant.bytes, use and use.bytes)):
        if most:
            parts.append(f"{most} {what} a day" if used is None else f"{used} of {most} {what} today")
    parts += [
        word for word, said in (("leaks: allowed", grant.leaks), ("also the system's own missions, reads only", grant.system)) if said
    ]
    return ", ".join(parts) if grant.origin == USER else f"{', '.join(parts)} ({grant.origin})"
