"""Methods that nobody vouches for: no example, no intent, no agreement of several candidates, no rating, no word of their user's.

Such a method answers the message that it was written for, once. It is not kept in its place but with the mission's thought, and the result
says that it is unsure. A rating of +1 confirms it (`keep`); else the next such message has another one written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from batos.mind.thinking import Thinking
from batos.objects import Method, UvmObject, find

DRAFTS = "drafts"
"""Slot of a thought: for each method that is not in its place its holder, selector and itself."""
_NO_MODEL = ("rule", "handbook")  # who wrote it, where that is no model
UNSURE = (
    "nobody said what {selector} is for: it was written for this one answer, and is not kept; `batos rate {id} +1` keeps it, and "
    "`batos teach` with an example has one written that is held against it"
)


def settle(attempt: Thinking, message: Mapping[str, Any], receiver: UvmObject) -> dict[str, Any]:
    """At the end of a mission that sent a message: take what nobody vouches for out of its place, and keep it with the thought; facts for
    the result.

    What a method sends is vouched for by the method, so that nothing is written anew at each of its runs: only where the message's own one
    is tentative, what was written on its way is, too.
    """
    forged = attempt.tally.forged
    own = next((one for one in forged if one.selector == message["selector"] and one.target is receiver), None)
    written = None if own is None else own.holder._slots.get(own.selector)
    if own is None or message.get("write") or not isinstance(written, Method) or is_vouched_for(written):
        return {}
    drafts = []
    for one in forged:
        method = one.holder._slots.get(one.selector)
        if isinstance(method, Method) and not is_vouched_for(method):
            drafts.append((one.holder, one.selector, method))
            del one.holder._slots[one.selector]
    if drafts:
        forged[-1]._slots[DRAFTS] = tuple(drafts)
    return {"unsure": UNSURE.format(selector=own.selector, id=attempt.id)}


def is_vouched_for(method: Method) -> bool:
    """Whether anything but the model that wrote it speaks for a method: what was taught, what it is for, an earlier version in its place, a
    rule or a handbook in a model's place, or most of several candidates that do the same."""
    came = dict(method.provenance)
    if method.previous is not None or came["trials"] > 1 or came["intent"] or came["model"] in _NO_MODEL:
        return True
    return bool(came["candidates"] > 1 and 2 * came["agreed"] > came["candidates"])


def keep(mission: UvmObject, rating: int) -> None:
    """System transaction's part: a user rated a mission; +1 puts the methods that were written for it into their places, where nothing is
    by now, and -1 takes them out again."""
    if mission.message is None or mission.thought is None:
        return
    for holder, selector, method in mission.thought._slots.get(DRAFTS) or ():
        if rating > 0 and find(holder, selector) is None:
            holder._slots[selector] = method
        elif rating < 0 and holder._slots.get(selector) is method:
            del holder._slots[selector]


def settle_again(mission: UvmObject, *, redo: bool) -> None:
    """Part of the transaction that undoes a mission, or does it again: what a rating confirmed goes with it, and comes back."""
    rated = json.loads(mission.rating)["rating"] if mission.rating else 0
    keep(mission, rated if redo else -1)
