"""Examples from an image's own record: methods that were accepted, with the calls that users made of them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from batos.errors import BatosError
from batos.image import examples, history, ledger
from batos.mind import prompting
from batos.mind.messages import BUILT_IN
from batos.objects import Method, UvmObject, find
from batos.training.dataset import answered, as_read

_CALLS = 6  # of one method
HARD = 3
"""How often a method counts that was refused before it was accepted: what the model could not do."""


def pairs_of(root: Any, *, chars: int) -> list[tuple[str, str]]:
    """Prompt and answer of each accepted method of an image, for the calls that missions made of it, newest first.

    Methods that a model wrote, and that are in place; one that was refused before counts several times.
    """
    found: list[tuple[str, str]] = []
    calls: Counter[bytes] = Counter()
    for mission in ledger.newest_first(root):
        if not mission.message or mission.state != "COMPLETE":
            continue
        message = json.loads(mission.message)
        method = _method(root, message)
        if method is None:
            continue
        target, written = method
        calls[written.source.encode()] += 1
        if calls[written.source.encode()] > _CALLS:
            continue
        taught, intent = examples.of(root, target, written.selector)
        came = dict(written.provenance)
        prompt = prompting.compact(
            target, written.selector, message["args"], message["kwargs"], chars=chars, examples=taught,
            intent=intent or str(came.get("intent", "")),
        )  # fmt: skip
        refused = came.get("tries", 1) > came.get("candidates", 1) or ledger.failures(root, selector=written.selector, limit=1)
        found += [(as_read(prompt), answered(written.source))] * (HARD if refused else 1)
    return found


def _method(root: Any, message: dict[str, Any]) -> tuple[UvmObject, Method] | None:
    """The receiver of a message and the method that answers it, where a model wrote that."""
    if message["selector"] in BUILT_IN:
        return None
    try:
        target = history.resolve(root, message["target"])
    except BatosError:  # it is gone
        return None
    held = find(target, message["selector"])
    if held is None or not isinstance(held[1], Method) or dict(held[1].provenance).get("model") in (None, "rule"):
        return None
    return target, held[1]
