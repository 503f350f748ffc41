"""The rolling record in the image: one small object an interval, in a ring of fixed length that is written round and round.

An interval in which nothing happened leaves nothing, so a quiet system remembers further back than a busy one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from batos.autotelic import home
from batos.autotelic.tallies import Tallies
from batos.objects import UvmObject

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
Bucket = dict[str, Any]
"""Of one interval: `begun` and `ended` in seconds since the epoch, `tallies` (`Tallies.plain`), `levels` (what is a state and no
count, as it was at the end)."""


def write(root: Any, bucket: Bucket, length: int) -> None:
    """System transaction: add a bucket; past `length` it takes the place of the oldest."""
    senses = home.part(root, "senses")
    number, ring = senses.written, senses.ring
    slot = number % length
    for beyond in list(ring.keys(length)):  # the ring was longer once
        del ring[beyond]
    if slot not in ring:
        ring[slot] = senses.derive()
    held: UvmObject = ring[slot]
    held.number, held.facts = number, _COMPACT.encode(bucket)
    senses.written = number + 1


def read(root: Any, since: float = 0.0) -> list[Bucket]:
    """The buckets that ended after `since`, oldest first."""
    held = sorted(home.part(root, "senses").ring.values(), key=lambda one: one.number)
    return [bucket for one in held if (bucket := json.loads(one.facts))["ended"] > since]


def summed(buckets: Iterable[Bucket], keys: int) -> Tallies:
    """What buckets say together."""
    tallies = Tallies(keys)
    for bucket in buckets:
        tallies.merge(bucket["tallies"])
    return tallies
