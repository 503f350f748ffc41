"""Hooks in the image: objects under `lobby.hooks`. Their secrets are not in it, but beside it, as `hook.NAME` (`batos.tools.secrets`).

The id of a delivery's mission comes from the hook and the name that the sender gave the delivery. Without a name it comes from the body,
and the time in which the same body counts as a repetition. So a sender that tries again, over a kill as well, gets the mission that it has.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NamedTuple

from batos.errors import HookRefused, InvalidInput
from batos.image import ledger
from batos.objects import Root, UvmObject
from batos.triggers.register import MissionTerms, Register, TriggeredRun, check_terms, note_run, runs_of, terms_of
from batos.triggers.signatures import HookDelivery
from batos.triggers.templates import MissingField, field_of

ORIGIN = "hook"
"""Origin of the missions of hooks."""
RATE = 60
"""Missions of one hook in a minute, unless its user says otherwise."""
MOST_CONDITIONS = 16
HOOKS = Register("hooks", "hook", "batos hooks add", "hook", 1000)
_CONDITION_CHARS = 500
_HOST = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?\Z")


class HookSpec(NamedTuple):
    """Words of a user about a hook."""

    name: str
    brief: str
    """may hold fields of the body, such as `{issue.title}` (`batos.triggers.templates`)"""
    terms: MissionTerms = MissionTerms()
    rate: int = RATE
    """missions in a minute"""
    hosts: tuple[str, ...] = ()
    """names under which a tunnel or proxy may bring requests to it, in lower case"""
    when: tuple[str, ...] = ()
    """`field=value`: deliveries for which one of them does not hold become no missions"""


class KeptHook(NamedTuple):
    """A hook as plain values."""

    spec: HookSpec
    number: int
    """given once in an image"""
    paused: bool = False
    runs: tuple[TriggeredRun, ...] = ()
    """the newest last"""

    def missions_of(self, delivery: HookDelivery, now: float, repeat_s: float) -> list[str]:
        """Return the ids that the mission of a delivery may have: one that it gets if it has none, then that of a repetition.

        :param now: seconds since the epoch.
        :param repeat_s: seconds in which the same body is a repetition, where the sender gave it no name.
        """
        if delivery.key:
            return [self._id("key", delivery.key)]
        digest, span = hashlib.sha256(delivery.body).hexdigest(), int(now // repeat_s)
        return [self._id("body", f"{digest} {moment}") for moment in (span, span - 1)]

    def _id(self, kind: str, text: str) -> str:
        digest = hashlib.sha256(f"{kind} {text}".encode("utf-8", "surrogatepass")).hexdigest()
        return f"hook-{self.spec.name}-{self.number}-{digest[:24]}"


def install(lobby: UvmObject) -> None:
    """Make the object that holds the hooks. A step of genesis."""
    comment = "I hold the hooks: briefs that become missions when another program calls."
    prototype = "I am the prototype of hooks: a brief with fields, who may call, and what became of it."
    HOOKS.install(lobby, (comment, prototype), rate=RATE, hosts="[]", when="[]")


def secret_name(name: str) -> str:
    """Return the name of a hook's secret."""
    return f"hook.{name}"


def find(root: Root, name: str) -> KeptHook | None:
    """Return the hook of a name; None if there is none."""
    found = HOOKS.find(root, name)
    return None if found is None else _described(name, found)


def load(root: Root, name: str) -> KeptHook:
    """Return the hook of a name.

    :raises InvalidInput: if there is none.
    """
    return _described(name, HOOKS.held(root, name))


def known_mission(root: Root, held: KeptHook, delivery: HookDelivery, now: float, repeat_s: float) -> tuple[str, bool]:
    """Return the id of a delivery's mission, and True if it is there already."""
    wanted, *earlier = held.missions_of(delivery, now, repeat_s)
    if ledger.is_known(root, wanted):
        return wanted, True
    for id in earlier:
        if ledger.is_known(root, id) and now - ledger.record_of(root, id).accepted < repeat_s:
            return id, True
    return wanted, False


def holds(body: Any, when: tuple[str, ...]) -> bool:
    """Return True if a body fulfils all conditions."""
    return all(_fits(body, *condition.split("=", 1)) for condition in when)


def _fits(body: Any, field: str, wanted: str) -> bool:
    try:
        value = field_of(body, field)
    except MissingField:
        return False
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) == wanted


# --- system transactions


def add(root: Root, spec: HookSpec) -> KeptHook:
    """System transaction: add a hook; return it. One of the same words is returned as it is.

    :raises InvalidInput: if a part of it is not valid, the name is taken, or there are too many.
    """
    check_terms(spec.brief, spec.terms)
    _check_conditions(spec.when)
    for host in spec.hosts:
        if not _HOST.match(host):
            raise InvalidInput(f"{host[:80]!r} is not the name of a host; write hooks.example.org, without https:// and without a path")
    known = find(root, spec.name)
    if known is not None and known.spec == spec:
        return known
    slots = {"brief": spec.brief, **spec.terms._asdict(), "rate": spec.rate, "hosts": json.dumps(spec.hosts), "when": json.dumps(spec.when)}
    return _described(spec.name, HOOKS.make(root, spec.name, slots))


def set_paused(root: Root, name: str, paused: bool) -> KeptHook:
    """System transaction: pause a hook, or let it go on; return it.

    :raises InvalidInput: if there is none of that name.
    """
    one = HOOKS.held(root, name)
    if bool(one.paused) != paused:
        one._slots["paused"] = paused
    return _described(name, one)


def note(root: Root, held: KeptHook, mission: str, at: float) -> None:
    """Part of a system transaction: note a mission of a hook.

    :raises HookRefused: if the hook was removed meanwhile.
    """
    found = HOOKS.find(root, held.spec.name)
    if found is None or int(found.number) != held.number:
        raise HookRefused(f"the hook {held.spec.name!r} was removed meanwhile")
    note_run(found, TriggeredRun(mission, at))


def _check_conditions(when: tuple[str, ...]) -> None:
    if len(when) > MOST_CONDITIONS:
        raise InvalidInput(f"there are {len(when)} conditions; at most {MOST_CONDITIONS} are allowed")
    for one in when:
        if "=" not in one[1:] or len(one) > _CONDITION_CHARS:
            raise InvalidInput(f"the condition {one[:80]!r} is not valid; write FIELD=VALUE, such as action=opened")


def _described(name: str, one: UvmObject) -> KeptHook:
    spec = HookSpec(name, one.brief, terms_of(one), int(one.rate), tuple(json.loads(one.hosts)), tuple(json.loads(one.when)))
    return KeptHook(spec, int(one.number), bool(one.paused), runs_of(one))
