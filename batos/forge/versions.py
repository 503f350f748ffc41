"""The versions of a method: what there is, an earlier one brought back, a better one learned from examples.

Every version stays reachable from the one after it, so nothing is ever lost by going back. Bringing an earlier version back makes a new one
with its source.
"""

from __future__ import annotations

import json
import math
from typing import Any

from batos.errors import InvalidInput, UnknownTarget
from batos.forge import trials
from batos.forge.lessons import check
from batos.forge.machine import forge
from batos.forge.reach_questions import check_growth
from batos.image import method_doubts, taught_examples
from batos.image.history import resolve
from batos.image.living_image import add_missing
from batos.methods.inventory import grants_needed
from batos.methods.runtime import may_use_tools
from batos.mind.attempt import current
from batos.mind.messages import called
from batos.objects import Intent, Method, Primitive, Root, UvmObject, find
from batos.objects.json_form import oid_of
from batos.sandbox import senders


def describe(root: Root, obj: UvmObject, selector: str) -> dict[str, Any]:
    """Return what an object (`oid`) holds under a selector: `kind`, `holder`, the `versions` newest first, taught examples, the intent, and
    the `doubts`. For these doubts the method is written anew when it is next sent.

    :raises InvalidInput: where nothing is held under it and nothing was taught.
    """
    held = find(obj, selector)
    taught, intent = taught_examples.examples_of(root, obj, selector)
    if held is None and not taught:
        raise InvalidInput(f"{called(obj)} has no slot {selector!r}, and no user taught it what the message is for")
    value = None if held is None else held[1]
    told: dict[str, Any] = {
        "oid": oid_of(obj),
        "selector": selector,
        "kind": type(value).__name__.lower() if isinstance(value, Method | Intent | Primitive) else "missing" if held is None else "data",
        "holder": None if held is None else oid_of(held[0]),
        "intent": intent or (value.text if isinstance(value, Intent) else ""),
        "examples": [one.to_json() for one in taught],
        "versions": [_version(root, one) for one in value.versions()] if isinstance(value, Method) else [],
    }
    if isinstance(value, Method) and held is not None and (doubts := method_doubts.about(held[0], value, math.inf)):
        told["doubts"] = [one.reason for one in doubts]
    return told


def _version(root: Root, method: Method) -> dict[str, Any]:
    came = {name: list(value) if isinstance(value, tuple) else value for name, value in method.provenance}
    if came.get("open"):
        came["open"] = [json.loads(text) for text in came["open"]] if _as_taught(root, method.selector, came) else []
    return {
        "version": method.version,
        "source": method.source,
        "parameters": list(method.parameters),
        "contract": {**{name: list(names) for name, names in method.contract}, "needs_grant": grants_needed(method)},
        "granted": [name for name, _ in method.grants],
        "provenance": came,
        "digest": method.digest,
        "intact": method.intact(),
    }


def _as_taught(root: Root, selector: str, came: dict[str, Any]) -> bool:
    """Return True if nothing was taught since to the receiver that a method was written for. Otherwise its open question is out of date."""
    try:
        receiver = resolve(root, came.get("receiver", ""))
    except UnknownTarget:
        return False
    taught, _ = taught_examples.examples_of(root, receiver, selector)
    return bool(taught_examples.examples_digest(taught) == came["taught"])


@Primitive.register("method.revert_", reaches="which version of a method answers")
async def revert_(obj: UvmObject, selector: str, version: int | None = None) -> dict[str, Any]:
    """Bring an earlier version of a method back, as a new version; the one before the newest, if none is named. Version 0 is what
    was there before the first: its intent, or nothing.

    :raises InvalidInput: where there is no method, or no such version.
    """
    held = find(obj, selector)
    if held is None or not isinstance(held[1], Method):
        raise InvalidInput(_no_method(obj, selector, None if held is None else held[1]))
    holder, newest = held
    wanted = newest.version - 1 if version is None else version
    if wanted == 0:
        intent = dict(newest.provenance).get("intent", "")
        if intent:
            holder._slots[selector] = Intent(intent)
        else:
            del holder._slots[selector]
        return {"selector": selector, "version": 0, "kind": "intent" if intent else "missing"}
    found = next((one for one in newest.versions() if one.version == wanted), None)
    if found is None or found is newest:
        raise InvalidInput(f"method {selector!r} has versions 1 to {newest.version}; name one before the newest, or 0")
    verdict = current().making.methods.audit(found.source, selector, tools=may_use_tools(found)).check()  # the rules may be stricter now
    if senders():  # a method sends it: its user has not named the version himself
        check_growth(current(), holder, newest, verdict)
    contract = {**dict(found.contract), "reaches": verdict.contract["reaches"]}
    provenance = {**dict(found.provenance), "mission": current().id, "reverted_to": found.version}
    holder._slots[selector] = Method(
        selector, found.source, parameters=found.parameters, contract=contract, provenance=provenance, previous=newest
    )
    return {"selector": selector, "version": newest.version + 1, "kind": "method", "reverted_to": found.version}


def _no_method(obj: UvmObject, selector: str, value: object) -> str:
    """Return the error for a revert without a method: where to look, and how a method comes back that was reverted to its intent."""
    path = next((name for name, one in obj._p_jar.root()["lobby"]._slots.items() if one is obj), oid_of(obj))
    told = f"{called(obj)} has no method {selector!r}{', but an intent' if isinstance(value, Intent) else ''}"
    undo = (
        ""
        if value is not None and not isinstance(value, Intent)
        else "; if a mission reverted it, `batos undo` with that mission's id brings it back"
    )
    return f"{told}; `batos methods {path}` lists what it has{undo}"


@Primitive.register("method.learn_", reaches="methods, which it has written anew")
async def learn_(obj: UvmObject, selector: str) -> dict[str, Any]:
    """Make sure that a method answers as its examples say: one that does is kept, else one is written.

    :raises InvalidInput: where nothing was taught, or no method could be in that place.
    :raises MethodRefused: where no method that keeps the examples could be written.
    """
    attempt = current()
    taught, _ = taught_examples.examples_of(obj._p_jar.root(), obj, selector)
    if not taught:
        raise InvalidInput(f"{called(obj)} has no taught example of {selector!r}; `batos teach` takes examples")
    check(obj, selector)
    held, first = find(obj, selector), taught[0]
    making = attempt.making
    if held is not None and isinstance(held[1], Method):
        cases = trials.of_examples(taught)
        outcomes = [await trials.run(case, obj, held[1], attempt, making.methods, making.new_activity()) for case in cases]
        if not any(outcome.reason for outcome in outcomes):
            return {"selector": selector, "version": held[1].version, "examples": len(taught), "written": False}
    lacked = [(name, value) for name, value in first.slots if find(obj, name) is None]
    method = await forge(attempt, obj, selector, first.args, dict(first.kwargs), lacked)
    return {"selector": selector, "version": method.version, "examples": len(taught), "written": True}


def install(lobby: UvmObject) -> None:
    """Give every object the messages `revert_` and `learn_`: a step of genesis."""
    add_missing(lobby.genesis, revert_=Primitive.of(revert_), learn_=Primitive.of(learn_))
