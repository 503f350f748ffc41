"""Methods of an image that somebody vouches for, with the calls that asked for them: what may be learned from.

A model wrote them, they are in place, and there is an example that they answer, or a rating of +1 and none of -1.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from batos.errors import BatosError, CovenantViolationError, ImageDamaged, MethodRefused
from batos.image import examples, history, ledger
from batos.image.examples import Example
from batos.mind import plain_values, prompting
from batos.mind.handbook.entries import LONGEST, Entry, words_in
from batos.mind.messages import BUILT_IN
from batos.objects import Method, UvmObject, find

_LOOKED_AT = 16  # failures of a selector, the newest first
_MISSIONS = 256  # the newest, among which a handbook looks for methods
_REFUSED = (MethodRefused.code, CovenantViolationError.code)


class Call(NamedTuple):
    """A message that a mission sent, or was to learn to answer."""

    target: UvmObject
    selector: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def entries(root: Any, before: float, but: tuple[UvmObject, str]) -> list[Entry]:
    """The image's own methods for a handbook, the last called first.

    :param before: of missions that had ended by then (seconds of the epoch), so that a replay finds the same.
    :param but: an object, and a selector whose methods for it are left out: another one was asked for.
    """
    found: dict[str, Entry] = {}
    for mission in itertools.islice(ledger.newest_first(root), _MISSIONS):
        with contextlib.suppress(ImageDamaged):  # what cannot be read vouches for nothing
            for call in calls(root, mission) if (mission.finished or before) < before else ():
                held = find(call.target, call.selector)
                known = held is not None and isinstance(held[1], Method) and held[1].source in found
                if not known and (call.target, call.selector) != but and (method := method_for(root, mission, call)) is not None:
                    found[method.source] = _entry(root, call, method)
    return [entry for entry in found.values() if len(entry.source) <= LONGEST]


def _entry(root: Any, call: Call, method: Method) -> Entry:
    came, does = dict(method.provenance), dict(method.contract)
    intent = examples.of(root, call.target, call.selector)[1] or str(came.get("intent", ""))
    slots = {*does.get("reads", ()), *does.get("writes", ())}
    told = f"{intent} {call.selector}".replace("_", " ")
    return Entry(
        " ".join(prompting.purpose(call.selector, intent).split()),  # it stands behind a mark of one line
        method.source.strip(),
        words_in(told) - words_in(" ".join(map(str, slots)).replace("_", " ")),
        tuple(plain_values.parameters(call.selector, call.args, call.kwargs)),
        bool(slots),
        method.source,
    )


def calls(root: Any, mission: UvmObject) -> Iterator[Call]:
    """The message of a mission that came to its end, or failed since no method could be kept; of a lesson, the message that was taught."""
    if not mission.message or mission.undone or not (mission.state == ledger.COMPLETE or refused(mission)):
        return
    message = json.loads(mission.message)
    if (target := _resolved(root, message["target"])) is None:
        return
    if message["selector"] == "learn_" and message["args"]:
        selector = str(message["args"][0])
        taught: list[Example] = examples.of(root, target, selector)[0]
        if taught:
            yield Call(target, selector, taught[0].args, dict(taught[0].kwargs))
    elif message["selector"] not in BUILT_IN:
        yield Call(target, message["selector"], tuple(message["args"]), message["kwargs"])


def refused(mission: UvmObject) -> bool:
    """Whether a mission failed because no method could be kept."""
    return bool(mission.error) and json.loads(mission.error)["code"] in _REFUSED


def method_for(root: Any, mission: UvmObject, call: Call) -> Method | None:
    """The method that answers a call now, where a model wrote it and somebody vouches for it."""
    held = find(call.target, call.selector)
    if held is None or not isinstance(method := held[1], Method):
        return None
    came = dict(method.provenance)
    if came.get("model") in (None, "rule"):
        return None
    writer = ledger.ledger_of(root).missions.get(came.get("mission", ""))
    ratings = {_rating(mission), _rating(writer)}
    if -1 in ratings or (writer is not None and last_refusal(root, call) > (writer.finished or 0)):
        return None  # it is wrong, or in place because nothing better could be written
    return method if 1 in ratings or examples.of(root, call.target, call.selector)[0] else None


def _rating(mission: UvmObject | None) -> int:
    return int(json.loads(mission.rating)["rating"]) if mission is not None and mission.rating else 0


def last_refusal(root: Any, call: Call) -> float:
    """When a method for that message to that object was last refused for good; 0 if never."""
    for row in ledger.failures(root, selector=call.selector, limit=_LOOKED_AT):
        message = ledger.message_of(root, row["mission"])
        if row["final"] and row["error"]["code"] in _REFUSED and message and _resolved(root, json.loads(message)["target"]) is call.target:
            return float(row["at"])
    return 0.0


def _resolved(root: Any, target: str) -> UvmObject | None:
    try:
        return history.resolve(root, target)
    except BatosError:  # it is gone
        return None
