"""Examples from an image's own record: methods that were accepted, with the calls that users made of them, refused ones included."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from batos.errors import ImageDamaged
from batos.image import examples, ledger
from batos.mind import prompting
from batos.mind.handbook.nearest import handbook
from batos.mind.vouched import Call, calls, last_refusal, method_for, refused
from batos.objects import Method, UvmObject
from batos.training.dataset import answered, as_read

_CALLS = 6  # of one method
HARD = 3
"""How often a method counts that was refused before it was accepted: what the model could not do."""


def pairs_of(root: Any, *, chars: int) -> list[tuple[str, str]]:
    """Prompt and answer of each accepted method of an image, for the calls that missions made of it, newest first.

    Methods that a model wrote, that are in place, and that somebody vouches for: by an example, or a rating of +1; of those that were
    written on no more than a name and an intent most are wrong. A mission whose method was refused asks for what was accepted later:
    a repaired pair. What was refused before counts several times.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    counted: Counter[bytes] = Counter()
    for mission in ledger.newest_first(root):
        with contextlib.suppress(ImageDamaged):  # from what cannot be read nothing is learned
            for prompt, answer, times in _asked(root, mission, counted, chars):
                found.setdefault(prompt, [(as_read(prompt), answer)] * times)
    return [pair for pairs in found.values() for pair in pairs]


def _asked(root: Any, mission: UvmObject, counted: Counter[bytes], chars: int) -> Iterator[tuple[str, str, int]]:
    """Prompt and answer of what a mission asked for, and how often they count.

    :param counted: how many calls of each method there were so far.
    """
    for call in calls(root, mission):
        method = method_for(root, mission, call)
        if method is None:
            continue
        counted[method.source.encode()] += 1
        if counted[method.source.encode()] > _CALLS:
            continue
        taught, intent = examples.of(root, call.target, call.selector)
        intent = intent or str(dict(method.provenance).get("intent", ""))
        (prompt,) = prompting.compact(
            call.target, call.selector, call.args, call.kwargs, chars=chars, examples=taught, intent=intent, book=handbook()
        )
        yield prompt, answered(method.source), HARD if _was_hard(root, mission, call, method) else 1


def _was_hard(root: Any, mission: UvmObject, call: Call, method: Method) -> bool:
    """Whether the model did not write a method at its first try, in its own mission or an earlier one."""
    came = dict(method.provenance)
    return bool(came.get("tries", 1) > came.get("candidates", 1) or refused(mission) or last_refusal(root, call))
