"""Examples from an image's own record: methods that were accepted, with the calls that users made of them, refused ones included."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from batos.errors import BatosError, CovenantViolationError, MethodRefused
from batos.image import examples, history, ledger
from batos.image.examples import Example
from batos.mind import prompting
from batos.mind.handbook import handbook
from batos.mind.messages import BUILT_IN
from batos.objects import Method, UvmObject, find
from batos.training.dataset import answered, as_read

_CALLS = 6  # of one method
HARD = 3
"""How often a method counts that was refused before it was accepted: what the model could not do."""
_LOOKED_AT = 16  # failures of a selector, the newest first
_REFUSED = (MethodRefused.code, CovenantViolationError.code)


class _Call(NamedTuple):
    """A message that a mission sent, or was to learn to answer."""

    target: UvmObject
    selector: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def pairs_of(root: Any, *, chars: int) -> list[tuple[str, str]]:
    """Prompt and answer of each accepted method of an image, for the calls that missions made of it, newest first.

    Methods that a model wrote, that are in place, and that somebody vouches for: by an example, or a rating of +1; of those that were
    written on no more than a name and an intent most are wrong. A mission whose method was refused asks for what was accepted later:
    a repaired pair. What was refused before counts several times.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    calls: Counter[bytes] = Counter()
    for mission in ledger.newest_first(root):
        for call in _calls(root, mission):
            method = _method(root, mission, call)
            if method is None:
                continue
            calls[method.source.encode()] += 1
            if calls[method.source.encode()] > _CALLS:
                continue
            taught, intent = examples.of(root, call.target, call.selector)
            intent = intent or str(dict(method.provenance).get("intent", ""))
            prompt = prompting.compact(
                call.target, call.selector, call.args, call.kwargs, chars=chars, examples=taught, intent=intent, book=handbook()
            )
            pair = as_read(prompt), answered(method.source)
            found.setdefault(prompt, [pair] * (HARD if _was_hard(root, mission, call, method) else 1))
    return [pair for pairs in found.values() for pair in pairs]


def _calls(root: Any, mission: UvmObject) -> Iterator[_Call]:
    """The message of a mission that came to its end, or failed since no method could be kept; of a lesson, the message that was taught."""
    if not mission.message or mission.undone or not (mission.state == ledger.COMPLETE or _refusal(mission)):
        return
    message = json.loads(mission.message)
    if (target := _resolved(root, message["target"])) is None:
        return
    if message["selector"] == "learn_" and message["args"]:
        selector = str(message["args"][0])
        taught: list[Example] = examples.of(root, target, selector)[0]
        if taught:
            yield _Call(target, selector, taught[0].args, dict(taught[0].kwargs))
    elif message["selector"] not in BUILT_IN:
        yield _Call(target, message["selector"], tuple(message["args"]), message["kwargs"])


def _refusal(mission: UvmObject) -> bool:
    """Whether a mission failed because no method could be kept."""
    return bool(mission.error) and json.loads(mission.error)["code"] in _REFUSED


def _method(root: Any, mission: UvmObject, call: _Call) -> Method | None:
    """The method that answers a call now, where a model wrote it and somebody vouches for it."""
    held = find(call.target, call.selector)
    if held is None or not isinstance(method := held[1], Method):
        return None
    came = dict(method.provenance)
    if came.get("model") in (None, "rule"):
        return None
    writer = ledger.ledger_of(root).missions.get(came.get("mission", ""))
    ratings = {_rating(mission), _rating(writer)}
    if -1 in ratings or (writer is not None and _last_refusal(root, call) > (writer.finished or 0)):
        return None  # it is wrong, or in place because nothing better could be written
    return method if 1 in ratings or examples.of(root, call.target, call.selector)[0] else None


def _rating(mission: UvmObject | None) -> int:
    return int(json.loads(mission.rating)["rating"]) if mission is not None and mission.rating else 0


def _last_refusal(root: Any, call: _Call) -> float:
    """When a method for that message to that object was last refused for good; 0 if never."""
    for row in ledger.failures(root, selector=call.selector, limit=_LOOKED_AT):
        message = ledger.mission_of(root, row["mission"]).message
        if row["final"] and row["error"]["code"] in _REFUSED and message and _resolved(root, json.loads(message)["target"]) is call.target:
            return float(row["at"])
    return 0.0


def _resolved(root: Any, target: str) -> UvmObject | None:
    try:
        return history.resolve(root, target)
    except BatosError:  # it is gone
        return None


def _was_hard(root: Any, mission: UvmObject, call: _Call, method: Method) -> bool:
    """Whether the model did not write a method at its first try, in its own mission or an earlier one."""
    came = dict(method.provenance)
    return bool(came.get("tries", 1) > came.get("candidates", 1) or _refusal(mission) or _last_refusal(root, call))
