"""Records of comparisons in the image: `lobby.comparisons`. Each has its variant, its pairs, what judges said of them, and what was paid.

waiting ─ running ─┬ done       every pair is thought through, and judged if its judge is no user
                   ├ stopped    by its user, or because no model answered; a resume goes on
                   ├ spent      its budget is; a resume with a larger one goes on
                   └ failed     it cannot go on: what there is was changed in the middle

A comparison that is `running` and that no daemon works at was interrupted by the daemon's end. All functions are parts of system
transactions, or reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree

from batos.comparisons.variant import Variant
from batos.errors import InvalidInput, UnknownComparison
from batos.image import kernels
from batos.image.journal import InferenceRecord, JournalEntry
from batos.image.living_image import LivingImage, add_missing
from batos.objects import Root, UvmObject

WAITING, RUNNING, DONE, STOPPED, SPENT, FAILED = "waiting", "running", "done", "stopped", "spent", "failed"
STATES = (WAITING, RUNNING, DONE, STOPPED, SPENT, FAILED)
USER, ALFRED, RULES, ITSELF = "me", "alfred", "rules", "itself"
"""Judges: the user, the persona ALFRED, rules; and the comparison itself, for pairs that need no judge."""
JUDGES = (USER, ALFRED, RULES)
BASE, CHANGED, TIE = "base", "changed", "tie"
SPEC: Mapping[str, str] = {
    "asked": "digest of the request, so that the same one again makes no other comparison",
    "words": "what is compared, in words",
    "variant": "fields of `Variant`",
    "standing": "digest of what there was when it began",
    "items": "the recorded missions and given briefs, one for each pair",
    "judge": "who judges: me, alfred or rules",
    "rules": "the rules by which it is judged, the first that tells decides",
    "budget": "greatest cost: inferences, tokens, minutes",
    "before": "cost of the inferences that the record no longer keeps: inferences, tokens, minutes",
}
"""Names in the record of what was asked for -> their meaning."""
_COMMENT = "I know which variants were compared with what there was, side by side: the answers, what they cost, and how they were judged."
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


def install(lobby: UvmObject) -> None:
    """Create the container of comparisons. A step of genesis."""
    add_missing(lobby, comparisons=lambda: lobby.genesis.derive(name="comparisons", comment=_COMMENT))
    add_missing(lobby.comparisons, log=OOBTree, ever=0)


def _held(root: Root) -> UvmObject | None:
    """Return the container; None in an image of an earlier version that is only read."""
    found = root["lobby"]._slots.get("comparisons")
    return found if isinstance(found, UvmObject) else None


# --- parts of system transactions


def begin(root: Root, id: str, spec: Mapping[str, Any], seed: int, limit: int) -> bool:
    """Record a comparison that is asked for; return True if it is new.

    :param spec: what is compared, a JSON object (`SPEC`).
    :param seed: seed of the order in which sides are shown.
    :param limit: number of comparisons that are kept.
    :raises InvalidInput: if the id names another comparison.
    """
    held = root["lobby"].comparisons
    if (found := held.log.get(id)) is not None:
        if (there := json.loads(found.spec))["asked"] != spec["asked"]:
            raise InvalidInput(f"the id {id!r} names another comparison already ({there['words']}); choose a new id")
        return False
    held.ever += 1
    held.log[id] = held.derive(
        **{"id": id, "number": held.ever, "spec": _COMPACT.encode(dict(spec)), "seed": seed, "state": WAITING, "reason": ""},
        **{"begun": time.time(), "ended": None, "promoted": 0, "note": "", "kernel": kernels.me(root)},
        **{"pairs": LOBTree(), "judgements": OOBTree(), "paid": OOBTree()},
    )
    over = sorted((one.number, one.id) for one in held.log.values() if one.state not in (WAITING, RUNNING))
    for _, old in over[: max(0, len(held.log) - limit)]:
        if old != id:
            del held.log[old]
    return True


def set_state(root: Root, id: str, state: str, reason: str = "") -> None:
    """Record how far a comparison is."""
    record = record_of(root, id)
    if state == WAITING and record.kernel != kernels.me(root):
        record.kernel = kernels.me(root)
    if (record.state, record.reason) != (state, reason):
        record.state, record.reason = state, reason
    if state not in (WAITING, RUNNING):
        record.ended = time.time()
    if state == DONE and record.paid:  # nothing asks for its inferences any more
        record.spec = _COMPACT.encode({**json.loads(record.spec), "before": cost_of(record)})
        record.paid.clear()


def amend(root: Root, id: str, changed: Mapping[str, Any]) -> None:
    """Change parts of what was asked for: the budget, the judge, the rules."""
    record = record_of(root, id)
    record.spec = _COMPACT.encode({**json.loads(record.spec), **changed})


def keep_pair(root: Root, id: str, number: int, pair: Mapping[str, Any]) -> None:
    """Keep the outcome of one pair."""
    record_of(root, id).pairs[number] = _COMPACT.encode(dict(pair))


def keep_judgement(root: Root, id: str, by: str, number: int, judgement: Mapping[str, Any]) -> None:
    """Keep what a judge said of a pair, in the place of what he said before.

    :raises InvalidInput: if there is no such pair.
    """
    record = record_of(root, id)
    if number not in record.pairs or json.loads(record.pairs[number]).get("left_out"):
        raise InvalidInput(f"comparison {id!r} has no pair {number} that could be judged")
    record.judgements[f"{by} {number:06}"] = _COMPACT.encode({**judgement, "at": round(time.time(), 3)})


def remove(root: Root, id: str, is_at: bool) -> None:
    """Forget a comparison.

    :param is_at: True if a daemon works at it.
    :raises InvalidInput: if one does.
    """
    check_here(root, id)
    if is_at:
        raise InvalidInput(f"comparison {id!r} is under way; `batos compare --stop {id}` stops it")
    del root["lobby"].comparisons.log[id]


# --- reads


def record_of(root: Root, id: str) -> UvmObject:
    """Return the object of a comparison.

    :raises UnknownComparison: if there is none of that id.
    """
    held = _held(root)
    found = None if held is None else held.log.get(id)
    if found is None:
        raise UnknownComparison(f"no comparison {id!r} in this image; `batos compare` lists them")
    return found  # type: ignore[no-any-return]


def elsewhere(root: Root, record: UvmObject) -> str:
    """Return the name of the other kernel that works at a comparison; empty if none does."""
    name = str(record.kernel)
    is_other = bool(name) and record.state in (WAITING, RUNNING) and name != kernels.me(root)
    return name if is_other and not kernels.is_gone(root, name) else ""


def check_here(root: Root, id: str) -> None:
    """See that no other kernel works at a comparison.

    :raises InvalidInput: if one does, with its name.
    """
    if name := elsewhere(root, record_of(root, id)):
        raise InvalidInput(f"the kernel {name} is at the comparison {id!r}; ask that one (`batos kernels` says where it answers)")


def newest_first(root: Root) -> Iterator[UvmObject]:
    """Yield the objects of all comparisons that are kept, the last begun first."""
    held = _held(root)
    yield from sorted(held.log.values() if held is not None else (), key=lambda one: -one.number)


def described(record: UvmObject) -> dict[str, Any]:
    """Return a comparison as plain values, without its pairs. They are `id`, `number`, `state`, `reason`, `spec`, `seed`, `begun`, `ended`,
    `promoted` (number of the change; 0: none) and `note`."""
    names = ("id", "number", "state", "reason", "spec", "seed", "begun", "ended", "promoted", "note")
    told = {name: getattr(record, name) for name in names}
    return {**told, "spec": json.loads(told["spec"])}


def pairs_of(record: UvmObject) -> dict[int, dict[str, Any]]:
    """Return the pairs of a comparison by their numbers, from 1."""
    return {int(number): json.loads(text) for number, text in record.pairs.items()}


def judgements_of(record: UvmObject, by: str) -> dict[int, dict[str, Any]]:
    """Return what a judge said, by the numbers of the pairs."""
    return {int(key.split(" ")[1]): json.loads(text) for key, text in record.judgements.items(f"{by} ", f"{by}!")}


def cost_of(record: UvmObject) -> dict[str, float]:
    """Return the cost of a comparison so far: `inferences`, `tokens`, `minutes`."""
    before = json.loads(record.spec)["before"]
    paid = [entry.inference for entry in record.paid.values() if entry.intact()]
    return {
        "inferences": before["inferences"] + len(paid),
        "tokens": before["tokens"] + sum(one.prompt_tokens + one.answer_tokens for one in paid),
        "minutes": round(before["minutes"] + sum(one.total_ms - one.load_ms for one in paid) / 60_000, 3),
    }


def variant_in(spec: Mapping[str, Any]) -> Variant:
    """Return the variant of a comparison from what was asked for."""
    return Variant(**spec["variant"])


class ComparePayments:
    """Payments of one comparison, in the image (`batos.missions.purse.Payments`)."""

    def __init__(self, image: LivingImage, id: str) -> None:
        """
        :param image: the living one, not a mirror.
        """
        self._image, self._id = image, id

    @property
    def name(self) -> str:
        """See `Payments`."""
        return f"the comparison {self._id!r}"

    def load(self) -> dict[str, InferenceRecord]:
        """See `Payments`."""
        return self._image.read(_paid, self._id)

    async def keep(self, key: str, paid: InferenceRecord) -> None:
        """See `Payments`."""
        await self._image.system(_keep_paid, self._id, key, paid)


def _paid(root: Root, id: str) -> dict[str, InferenceRecord]:
    return {key: entry.inference for key, entry in record_of(root, id).paid.items() if entry.intact()}


def _keep_paid(root: Root, id: str, key: str, paid: InferenceRecord) -> None:
    record_of(root, id).paid[key] = JournalEntry(paid)
