"""What the entropy metric reads of a mission in the image, as plain values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from batos.autotelic import entropy
from batos.autotelic.entropy import Kinds
from batos.image import ledger, undamaged
from batos.mind.incarnation import facets
from batos.objects import Method, UvmObject, find


class Material(NamedTuple):
    """A completed mission of a user's, asked in words."""

    number: int
    id: str
    brief: str
    answer: str
    personas: tuple[str, ...]
    facets: tuple[str, ...]
    described: int
    context: str | None
    """The mission that it follows."""
    rating: int
    """Of its user; 0 where there is none yet."""
    undone: bool


def of(root: Any, mission: UvmObject) -> Material | None:
    """What there is to measure of a mission; None for one that did not complete, is a message, or the system's own."""
    told = ledger.describe(mission)
    cycle = mission.thought
    if told["state"] != ledger.COMPLETE or told["origin"] == "system" or told["message"] or cycle is None or told["result"] is None:
        return None
    personas, spoke, described = shape_of(cycle)
    return Material(
        number=told["number"],
        id=told["id"],
        brief=told["brief"],
        answer=str(told["result"].get("text", "")),
        personas=personas,
        facets=spoke,
        described=described,
        context=told["context"],
        rating=told["rating"]["rating"] if told["rating"] else 0,
        undone=told["undone"] is not None,
    )


def shape_of(cycle: UvmObject) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Which personas and facets took part in a cycle and those inside it, and how many bytes its structure takes to describe."""
    cycles = list(_cycles(cycle))
    personas = tuple(str(one.persona.name).lower() for one in cycles if not one._slots.get("cycles"))
    spoke = tuple(f"{str(one.persona.name).lower()} {name}" for one in cycles for name in _spoke(one))
    return personas, spoke, entropy.description_length(line for one in cycles for line in _described(one))


def recent(root: Any, count: int, looked_at: int) -> list[Material]:
    """The material of the last `count` missions that have any, oldest first; of at most `looked_at` missions."""
    rows = (of(root, mission) for mission in itertools.islice(undamaged.newest_first(root), looked_at))
    return list(itertools.islice((row for row in rows if row is not None), count))[::-1]


def kinds(root: Any) -> Kinds:
    """How many personas there are to choose from, and how many facets they have."""
    lobby = root["lobby"]
    personas = [found for name in lobby.personas if isinstance(found := lobby._slots.get(name), UvmObject)]
    return Kinds(len(personas), sum(1 for persona in personas for _ in facets(persona)))


def _cycles(cycle: UvmObject) -> Iterator[UvmObject]:
    """A cycle and those inside it."""
    yield cycle
    for inner in cycle._slots.get("cycles", ()):
        yield from _cycles(inner)


def _spoke(cycle: UvmObject) -> list[str]:
    """The facets of a cycle that had something to say; other personas that it was shared out to are no facets."""
    return [name for name, _ in cycle._slots.get("voices", ()) if name.endswith("_facet_")]


def _described(cycle: UvmObject) -> Iterator[str]:
    """The structure of a cycle in words: who, which parts, what became of them, which sentence is whose, and the methods among them."""
    slots = cycle._slots
    yield f"{cycle.number} {cycle.persona.name} {slots.get('plan_source', '')}"
    silent = dict(slots.get("silent", ()))
    for name, _ in slots.get("plan", ()):
        yield f"{name} silent" if name in silent else name
        held = find(cycle.persona, name)
        if held is not None and isinstance(held[1], Method):
            yield held[1].source
    yield " ".join(name or "-" for name in slots.get("woven", ()))
