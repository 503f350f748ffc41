"""Undo of random sequences, against a plain model: what is in the image is what the model says, and so is what is refused."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batos.errors import UndoConflict
from batos.image import ledger
from tests.support.undo import House, house

Place = tuple[str, str]
State = dict[Place, int]
OBJECTS, SLOTS, ITEMS = ("robin", "brick"), ("a", "b"), ("x", "y")
A: Place = ("robin", "a")
PLACES = [(name, slot) for name in OBJECTS for slot in (*SLOTS, *(f"d.{item}" for item in ITEMS))]

writes = st.dictionaries(st.sampled_from(PLACES), st.one_of(st.none(), st.integers(0, 2)), min_size=1, max_size=4)
step = st.one_of(
    st.tuples(st.just("do"), writes),
    st.tuples(st.sampled_from(["undo", "cascade", "redo"]), st.integers(0, 7)),
)


class Model:
    """What the image should hold: a value, or none, at each place; and of each mission what it found and what it left."""

    def __init__(self) -> None:
        self.now: State = {}
        self.done: list[tuple[State, State]] = []
        self.undone: set[int] = set()

    def do(self, wanted: dict[Place, int | None]) -> None:
        before = dict(self.now)
        for place, value in wanted.items():
            self.now.pop(place, None)
            if value is not None:
                self.now[place] = value
        self.done.append((before, dict(self.now)))

    def turn(self, number: int, redo: bool) -> bool:
        """Undo or redo one mission; whether nothing stood against it."""
        base, mine = self.done[number] if redo else self.done[number][::-1]
        touched = [place for place in PLACES if base.get(place) != mine.get(place) and self.now.get(place) != mine.get(place)]
        if any(self.now.get(place) != base.get(place) for place in touched):
            return False
        for place in touched:
            self.now.pop(place, None)
            if place in mine:
                self.now[place] = mine[place]
        (self.undone.discard if redo else self.undone.add)(number)
        return True


async def do(at: House, number: int, wanted: dict[Place, int | None]) -> None:
    def work(root: Any) -> None:
        for (name, place), value in wanted.items():
            held = root["lobby"]._slots[name]._slots
            slot, _, item = place.partition(".")
            inner = held[slot] if item else held
            if value is None:
                inner.pop(item or slot, None)
            else:
                inner[item or slot] = value

    await at.did(f"m{number}", work)


def seen(root: Any) -> State:
    found: State = {}
    for name in OBJECTS:
        held = root["lobby"]._slots[name]._slots
        found |= {(name, slot): held[slot] for slot in SLOTS if slot in held}
        found |= {(name, f"d.{item}"): value for item, value in held["d"].items()}
    return found


def undone(root: Any) -> set[int]:
    return {int(one.id[1:]) for one in ledger.newest_first(root) if one.undone is not None and one.id != "begin"}


def empty_dicts(root: Any) -> None:
    for name in OBJECTS:
        root["lobby"]._slots[name].d = {}


async def followed(folder: Path, steps: list[tuple[str, Any]]) -> None:
    model = Model()
    async with house(folder) as at:
        await at.did("begin", empty_dicts)
        for kind, what in steps:
            if kind == "do":
                await do(at, len(model.done), what)
                model.do(what)
                continue
            number = what % len(model.done) if model.done else None
            if number is None or (number in model.undone) is (kind != "redo"):
                continue
            if kind == "cascade":
                await cascade(at, model, number)
            else:
                free = model.turn(number, kind == "redo")
                try:
                    await at.undo(f"m{number}", redo=kind == "redo")
                except UndoConflict:
                    assert not free
                else:
                    assert free
            assert at.image.read(seen) == model.now
            assert at.image.read(undone) == model.undone
        for number in reversed(range(len(model.done))):
            if number not in model.undone:
                await cascade(at, model, number)
        assert at.image.read(seen) == model.now


async def cascade(at: House, model: Model, number: int) -> None:
    """Undo a mission with what depends on it; refused only where it stands in the way of nobody's work that could go first."""
    try:
        lot = [int(one["id"][1:]) for one in (await at.undo(f"m{number}", cascade=True))["missions"]]
    except UndoConflict:
        assert not model.turn(number, False)
        return
    assert number in lot
    assert all(model.turn(one, False) for one in lot), "the lot is undone in this order"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, min_size=3, max_size=14))
@example([("do", {A: 0}), ("do", {A: 1}), ("undo", 1), ("do", {A: None}), ("do", {A: 0}), ("redo", 1)])  # later than what came after it
def test_undo_and_redo_do_what_a_plain_model_does(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(followed(Path(folder), steps))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(writes, min_size=1, max_size=6))
def test_undone_the_newest_first_nothing_is_left_and_done_again_all_is_there(missions: list[dict[Place, int | None]]) -> None:
    async def there_and_back(folder: Path) -> None:
        async with house(folder) as at:
            await at.did("begin", empty_dicts)
            states = [at.image.read(seen)]
            for number, wanted in enumerate(missions):
                await do(at, number, wanted)
                states.append(at.image.read(seen))
            for number in reversed(range(len(missions))):
                await at.undo(f"m{number}")
                assert at.image.read(seen) == states[number]
            for number in range(len(missions)):
                await at.undo(f"m{number}", redo=True)
                assert at.image.read(seen) == states[number + 1]

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(there_and_back(Path(folder)))
