"""Proposals by rule: remedies that follow from the measurements, so that the loop works with any model, or with none.

For each trigger it lists possible remedies, the likeliest first. They are guesses by rule; the rehearsal decides on their worth.

If the guardian refuses methods for the same message again and again, the rule's own words become part of the message's intent. A model
reads why earlier tries failed. An expert, whose prompt is short, does not: its intent is all that a mission can change.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from batos.autotelic import changes, telemetry
from batos.autotelic.change_types import EXEMPLAR_CHARS, Ground, prompted
from batos.autotelic.changes import Proposal
from batos.autotelic.replay_selection import FAULTS, REFUSED, is_taken
from batos.autotelic.telemetry import Tallies
from batos.autotelic.triggers import TriggerLimits
from batos.autotelic.writer_evaluation import KIND, TARGET
from batos.errors import BatosError, CovenantViolationError, MethodRefused
from batos.forge.method_prompts import purpose
from batos.image import history, journal, ledger, model_registry, taught_examples
from batos.mind import psm
from batos.mind.incarnation import facets
from batos.mind.router import CHOSEN, OWN, Route
from batos.objects import Intent, Method, Root, UvmObject, find

REFUSALS_LOOKED_AT = 64  # greatest number of failures that are looked at, the newest first
REFUSED_AGAIN = 2  # missions that the same rule must refuse before a purpose mentions the rule
REFUSAL_RULES = 3  # greatest number of rules in one purpose
_CHARS = 160  # greatest number of characters about one rule
_FINDING = re.compile(r"line \d+: (?P<reason>.+) \[(?P<rule>[\w-]+)\]\. (?P<hint>.+)", re.DOTALL)


class _Refused(NamedTuple):
    """One message, and how often missions failed because no method for it could be kept."""

    holder: str
    """Id of the object that has the method, or needs it."""
    selector: str
    rule: str


def refusal_intents(root: Root) -> Iterator[Proposal]:
    """Yield Intents with the guardian's reason, for the message that was refused most often first."""
    counted: Counter[_Refused] = Counter()
    said: dict[_Refused, str] = {}
    for row in ledger.failures(root, limit=REFUSALS_LOOKED_AT):
        for one, words in _read(root, row):
            counted[one] += 1
            said.setdefault(one, words)
    for one, times in counted.most_common():
        if times < REFUSED_AGAIN:
            return
        text = _taught(root, one, said[one])
        if text:
            why = f"{times} missions FAILED because the guardian refused {one.selector} by the rule {one.rule}; the new intent says so"
            yield Proposal("intent", f"{one.holder}.{one.selector}", text, why)


def _read(root: Root, row: dict[str, Any]) -> list[tuple[_Refused, str]]:
    """Return the rules that refused the message of a failed mission, without repetitions, with the guardian's words."""
    context = row["context"]
    method = context.get("method")
    if not method or not row["final"] or row["error"]["code"] not in (MethodRefused.code, CovenantViolationError.code):
        return []
    if method["selector"] != context.get("selector"):  # the refusal belongs to a message that was sent inside
        return []
    try:
        target = history.resolve(root, context["target"])
    except BatosError:  # the object is gone
        return []
    found = find(target, method["selector"])
    holder = target if found is None else found[0]
    # the object understands the message by now
    if (oid := history.oid_of(holder)) is None or (found is not None and not isinstance(found[1], Intent)):
        return []
    rules: dict[_Refused, str] = {}
    for reason in method["reasons"]:
        if (match := _FINDING.fullmatch(reason)) is not None:
            hint = match["hint"].partition(". ")[0].rstrip(".")
            rules.setdefault(_Refused(oid, method["selector"], match["rule"]), f"{match['reason']}: {hint}"[:_CHARS])
    return list(rules.items())


def _taught(root: Root, one: _Refused, words: str) -> str:
    """Return the purpose with the rule to follow; empty if that would change nothing."""
    holder = history.resolve(root, one.holder)
    held = holder._slots.get(one.selector)
    text = held.text if isinstance(held, Intent) else ""
    if (
        taught_examples.examples_of(root, holder, one.selector)[1] or words in text or text.count(_MIND) >= REFUSAL_RULES
    ):  # the user's words come first
        return ""
    return f"{text or purpose(one.selector, '')}{_MIND}{words}."


_MIND = ". Mind: "


LOOKED_AT = 64  # greatest number of missions that are looked at, the newest first
NEAREST = 3  # number of briefs that become exemplars at a time
RUT = 0.6  # share of one persona in the missions from which the choice is a rut
HARDLY = 0.1  # share of the sentences below which a facet is hardly heard
SENTENCES = 20  # least number of sentences for this measurement
BRIEFLY = "Use as few words as the request allows."
_KEYS = 1000


def remedies(root: Root, trigger: str, key: str, ground: Ground) -> Iterator[Proposal]:
    """Yield possible remedies for a trigger, the likeliest first; none if no rule applies.

    :param key: key of the measurement, as in `triggers.Measurement`.
    """
    if trigger in RULES:
        yield from RULES[trigger](root, key)
    if may_be_trained(trigger, key):
        yield from _training(root, ground)
    if trigger in SPOKEN:
        yield from _other_models(root, trigger, key, ground.settings.autonomy.models)


# --- methods


def _failing(root: Root, key: str) -> Iterator[Proposal]:
    """Yield remedies for a kind of failure (`code cause target selector`)."""
    code, where = key.split(" ")[0], key.rpartition(" ")[0].rpartition(" ")[2]
    selector = key.rpartition(" ")[2]
    if code not in FAULTS or _method(root, where, selector) is None:
        yield from refusal_intents(root) if code in REFUSED else _as_shipped(root, f"missions fail ({key})")
    elif _was_taken(root, code, where, selector):
        yield from _at_fault(root, f"{where} {selector}")


def _was_taken(root: Root, code: str, target: str, selector: str) -> bool:
    """Return True if the failing method accepts one of the messages that last failed this way, or if no such message is known now."""
    sent = []
    for row in ledger.failures(root, selector=selector, code=code, limit=LOOKED_AT):
        message = ledger.message_of(root, row["mission"]) if row["final"] else ""
        if message and (told := json.loads(message))["target"] == target and told["selector"] == selector:
            sent.append(told)
    return not sent or any(is_taken(root, one) for one in sent)


def _at_fault(root: Root, key: str) -> Iterator[Proposal]:
    """Yield remedies for a method (`oid selector`)."""
    target, _, selector = key.partition(" ")
    found = _method(root, target, selector)
    if found is None:
        return
    holder, method = found
    where = f"{history.oid_of(holder)}.{selector}"
    for earlier in method.versions()[1:]:
        if earlier.source != method.source:
            yield Proposal(
                "method", where, earlier.source, f"version {method.version} fails; version {earlier.version} was there before it"
            )
    yield Proposal("retire", where, "", f"{selector} fails: it is written anew when it is needed, with what failures taught")


def _method(root: Root, target: str, selector: str) -> tuple[UvmObject, Method] | None:
    with contextlib.suppress(BatosError):
        held = find(history.resolve(root, target), selector)
        if held is not None and isinstance(held[1], Method):
            return held[0], held[1]
    return None


def _unused(root: Root, key: str) -> Iterator[Proposal]:
    oid, _, selector = key.partition(" ")
    yield Proposal("retire", f"{oid}.{selector}", "", f"{selector} has not run for long; it is written anew when it is needed again")


# --- prompts


def _as_shipped(root: Root, why: str) -> Iterator[Proposal]:
    """Yield proposals to restore changed meta-prompts to those of BAT OS."""
    for name in prompted():
        shipped = psm.STATES[name]["meta_prompt"]
        if root["lobby"].psm._slots[name].meta_prompt != shipped:
            yield Proposal("meta_prompt", f"psm.{name}", shipped, f"{why}; this is the prompt that BAT OS came with")


def _slow(root: Root, key: str) -> Iterator[Proposal]:
    yield from (one for one in _as_shipped(root, f"{key} takes longer than it did") if one.target == f"psm.{key}")
    yield from _briefer(root, (key,), f"{key} takes longer than it did")


def _costly(root: Root, key: str) -> Iterator[Proposal]:
    yield from _hardly_heard(root)
    yield from _as_shipped(root, "missions cost more than they did")
    yield from _briefer(root, ("SYNTHESIZING", "DELEGATING"), "missions cost more than they did")


def _briefer(root: Root, names: tuple[str, ...], why: str) -> Iterator[Proposal]:
    for name in names:
        if name in ("SYNTHESIZING", "DELEGATING"):
            now = root["lobby"].psm._slots[name].meta_prompt
            if BRIEFLY not in now:
                yield Proposal("meta_prompt", f"psm.{name}", f"{now} {BRIEFLY}", f"{why}; shorter answers take less")


def _hardly_heard(root: Root) -> Iterator[Proposal]:
    """Return the facets from which hardly a sentence gets into the answers."""
    for name, heard in _woven(root).items():
        persona = root["lobby"]._slots[name]
        own = [selector for selector, _ in facets(persona) if isinstance(persona._slots.get(selector), Intent)]
        total = sum(heard.values())
        if len(own) < 2 or total < SENTENCES:
            continue
        least = min(own, key=lambda selector: heard[selector])
        if heard[least] <= HARDLY * total:
            why = f"of {total} sentences of {name.upper()}'s last answers {heard[least]} came from it, for an inference each time"
            yield Proposal("retire", f"{name}.{least}", "", why)


def _woven(root: Root) -> dict[str, Counter[str]]:
    """Return, by persona, the number of sentences of the last answers from each facet."""
    found: dict[str, Counter[str]] = {name: Counter() for name in root["lobby"].personas}
    for mission in _missions(root):
        cycle = mission.thought
        if cycle is not None and cycle._slots.get("woven"):
            found.get(str(cycle.persona.name).lower(), Counter()).update(name or "" for name in cycle.woven)
    return {name: heard for name, heard in found.items() if isinstance(root["lobby"]._slots.get(name), UvmObject)}


# --- experts


def may_be_trained(trigger: str, key: str) -> bool:
    """Return True if an expert with more training may help."""
    return trigger in ("guardian_refuses", "expert_behind") or (trigger == "failure_repeats" and key.split(" ")[0] in REFUSED)


def _training(root: Root, ground: Ground) -> Iterator[Proposal]:
    """Yield a training of the expert for methods, where enough has come since it was made, or was trained in vain."""
    if ground.trains():
        return
    written, refused = learned(root)
    if written + refused >= TriggerLimits.of(ground.settings).syntheses:
        why = f"{written} methods were written since it was made or trained last, and {refused} could not be"
        last = next((one.number for one in changes.newest_first(root) if one.kind == KIND), 0)  # another training uses other data
        content = {"minutes": ground.settings.autonomy.training_minutes, "methods": written, "refused": refused, "after": last}
        yield Proposal(KIND, TARGET, content, why)


def learned(root: Root) -> tuple[int, int]:
    """Return the number of methods written, and of missions that failed because no method could be written. Both count since the expert for
    methods was made, or its training was decided.
    """
    since = max(
        (one["built"] or 0.0 for one in model_registry.describe_experts(root) if one["model"] == model_registry.speaks_methods(root)),
        default=0.0,
    )
    since = max([since, *(one.decided or 0.0 for one in changes.newest_first(root) if one.kind == KIND)])
    written = sum(one.written > since for one in telemetry.used_methods(root))
    refused = sum(row["final"] and row["at"] > since and row["error"]["code"] in REFUSED for row in ledger.failures(root, limit=LOOKED_AT))
    return written, refused


# --- models


def _other_models(root: Root, trigger: str, key: str, models: Sequence[str]) -> Iterator[Proposal]:
    """Yield a model that its operator allows, for the persona whose missions are in trouble, or that thinks most of them."""
    failing = _failed(root, key.split(" ")[0]) if trigger == "failure_repeats" else _chosen(root)
    persona, times = next(iter(failing.most_common(1)), ("", 0))
    for model in models if times else ():
        yield Proposal(
            "model", persona, model, f"{persona.upper()} thought {times} of the missions in question; another model may do better"
        )


def _failed(root: Root, code: str) -> Counter[str]:
    """Return, by persona, the number of the last briefs that FAILED with a code."""
    found: Counter[str] = Counter()
    for mission in itertools.islice(ledger.newest_first(root), LOOKED_AT):
        if mission.origin != "system" and not mission.message and mission.error and json.loads(mission.error)["code"] == code:
            record = journal.route_of(root, mission.id)
            if record is not None:
                found[Route.from_record(record).persona] += 1
    return found


# --- variety


def _rut(root: Root, key: str) -> Iterator[Proposal]:
    """Yield remedies if one persona thinks nearly all missions: another way of thinking for it, or other briefs for the others."""
    chosen = _chosen(root)
    total = sum(chosen.values())
    if not total or chosen.most_common(1)[0][1] < RUT * total:
        return
    deep, times = chosen.most_common(1)[0]
    why = f"{deep.upper()} thought {times} of the last {total} missions, always in the same ways"
    names = [name for name, _ in facets(root["lobby"]._slots[deep])]
    others = sorted((name for name in chosen if name != deep), key=lambda name: chosen[name])
    for name in others:
        lender = root["lobby"]._slots[name]
        for selector, intent in facets(lender):
            if selector in lender._slots and selector not in names and intent:
                yield Proposal("facet", f"{deep}.{selector}", intent, f"{why}; this is how {name.upper()} looks at things")
    for name in others:
        yield from _unchosen(root, name)


def _chosen(root: Root) -> Counter[str]:
    """Return the number of recent missions that each persona thought, from the telemetry."""
    noted: Tallies = telemetry.summed_buckets(telemetry.read_buckets(root), _KEYS)
    there = (name for name in root["lobby"].personas if isinstance(root["lobby"]._slots.get(name), UvmObject))
    return Counter({name: noted.of("personas", name).times for name in there})


def _unchosen(root: Root, key: str) -> Iterator[Proposal]:
    """Yield the briefs of last missions that were nearest to going to a persona become its exemplars."""
    near: dict[str, float] = {}
    for mission in _missions(root):
        told, record = " ".join(str(mission.brief).split()), journal.route_of(root, mission.id)
        if record is None or not 0 < len(told) <= EXEMPLAR_CHARS:
            continue
        route = Route.from_record(record)
        scores = {name: score.get("score", 0.0) for name, score in route.scores.items()}
        if route.by not in (CHOSEN, OWN) and route.persona != key and scores.get(key, 0.0) > 0:
            near.setdefault(told, max(scores.values()) - scores[key])
    nearest = sorted(near, key=lambda told: near[told])[:NEAREST]
    if nearest:
        why = f"{key.upper()} is hardly ever chosen; of the last briefs these came nearest to it, by {near[nearest[0]]:.2f} points at best"
        yield Proposal("exemplar", key, nearest, why)


def _missions(root: Root) -> Iterator[UvmObject]:
    """Yield the last briefs of users that ended well, the newest first."""
    for mission in itertools.islice(ledger.newest_first(root), LOOKED_AT):
        if mission.origin != "system" and not mission.message and mission.state == ledger.COMPLETE and mission.undone is None:
            yield mission


def _curate(root: Root, key: str) -> Iterator[Proposal]:
    yield Proposal("curate", "memory", "", "what is old, never read or redundant is summarised and archived")


RULES: dict[str, Callable[[Any, str], Iterator[Proposal]]] = {
    "failure_repeats": _failing,
    "method_fails": _at_fault,
    "method_unused": _unused,
    "guardian_refuses": lambda root, key: refusal_intents(root),
    "entropy_falls": _rut,
    "entropy_still": _rut,
    "state_slow": _slow,
    "missions_costly": _costly,
    "image_grows": _curate,
    "persona_unchosen": _unchosen,
}
"""Trigger -> the rule that makes proposals for it."""
SPOKEN = ("failure_repeats", "entropy_falls", "entropy_still", "state_slow", "missions_costly")
"""Triggers for which another model may help, if no smaller change is left to try."""
