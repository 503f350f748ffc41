"""What the entropy metric said of each of the last missions, in the image: by the mission's number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from batos.autotelic import home
from batos.autotelic.entropy import Parts


class Assessment(NamedTuple):
    """Of one mission. Stored as a plain tuple."""

    number: int
    cem: float
    relevance: float
    diversity: float
    novelty: float
    structure: float
    source: str
    """What texts were compared by: `embedding`, or `words` where there was no embedder."""

    @property
    def parts(self) -> Parts:
        return Parts(self.relevance, self.diversity, self.novelty, self.structure)

    def to_wire(self) -> dict[str, Any]:
        """As a JSON object of a mission's record."""
        return {name: value for name, value in self._asdict().items() if name != "number"}


def keep(root: Any, new: Sequence[Assessment], state: dict[str, Any], limit: int) -> None:
    """System transaction: keep new ones and the state of the watch over them; those of more than `limit` missions ago go."""
    held = home.part(root, "entropy")
    for one in new:
        held.missions[one.number] = tuple(one)
    for old in list(held.missions.keys(None, held.missions.maxKey() - limit)) if held.missions else ():
        del held.missions[old]
    held.watch = tuple(sorted(state.items()))


def of(root: Any, number: int) -> Assessment | None:
    """What was said of the mission of that number."""
    found = home.part(root, "entropy").missions.get(number)
    return None if found is None else Assessment(*found)


def last(root: Any, count: int) -> list[Assessment]:
    """The last ones by number, oldest first."""
    missions = home.part(root, "entropy").missions
    newest = missions.maxKey() if missions else 0
    found: list[Assessment] = []
    bound, step = newest, count
    while missions and len(found) < count and bound >= missions.minKey():
        rows = [Assessment(*row) for row in missions.values(bound - step + 1, bound)]
        found = [*rows, *found]
        bound, step = bound - step, 2 * step
    return found[-count:]


def weights_of(root: Any) -> Parts:
    """The weights in force."""
    return Parts(*home.part(root, "weights").weights)


def watch_of(root: Any) -> dict[str, Any]:
    """The state of the watch over the metric, as `keep` was given it."""
    return dict(home.part(root, "entropy").watch)
