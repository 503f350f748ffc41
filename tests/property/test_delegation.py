"""Delegation against a model of it in plain Python, in memory and through commit, close, reopen and pack."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batos.errors import MessageNotUnderstood
from batos.objects import UvmObject, find, lookup_order, understands
from tests.support.image import Store

NAMES = ["a", "b", "c", "clone"]
PARENTS = ["p*", "q*", "r*"]
COUNT = 6

# A model object: its slots in order; a parent slot holds the number of an object or a tuple of numbers.
Model = dict[str, Any]

indexes = st.integers(0, COUNT - 1)
parent_slots = st.dictionaries(st.sampled_from(PARENTS), indexes | st.lists(indexes, max_size=3).map(tuple), max_size=3)
own_slots = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 99), max_size=3)
worlds = st.lists(st.builds(lambda own, parents: {**own, **parents}, own_slots, parent_slots), min_size=COUNT, max_size=COUNT)
edits = st.lists(
    st.tuples(indexes, st.sampled_from(NAMES), st.integers(100, 199) | st.none())
    | st.tuples(indexes, st.sampled_from(PARENTS), indexes | st.lists(indexes, max_size=2).map(tuple) | st.none()),
    max_size=6,
)


def order(world: list[Model], at: int, seen: set[int] | None = None) -> list[int]:
    """Depth first, left to right, each object once: the definition, by recursion."""
    seen = set() if seen is None else seen
    if at in seen:
        return []
    seen.add(at)
    found = [at]
    for name, value in world[at].items():
        if name.endswith("*"):
            for parent in value if isinstance(value, tuple) else (value,):
                found += order(world, parent, seen)
    return found


def lookup(world: list[Model], at: int, name: str) -> tuple[int, Any] | None:
    return next(((i, world[i][name]) for i in order(world, at) if name in world[i]), None)


def build(world: list[Model]) -> list[UvmObject]:
    objects = [UvmObject() for _ in world]
    for at, slots in enumerate(world):
        for name, value in slots.items():
            put(objects, at, name, value)
    return objects


def put(objects: list[UvmObject], at: int, name: str, value: Any) -> None:
    if value is None:
        objects[at]._slots.pop(name, None)
    elif name.endswith("*"):
        objects[at]._slots[name] = tuple(objects[i] for i in value) if isinstance(value, tuple) else objects[value]
    else:
        setattr(objects[at], name, value)


def apply(world: list[Model], edit: tuple[int, str, Any]) -> None:
    at, name, value = edit
    if value is None:
        world[at].pop(name, None)
    else:
        world[at][name] = value


def agree(world: list[Model], objects: list[UvmObject]) -> None:
    numbers = {id(obj): i for i, obj in enumerate(objects)}
    for at, obj in enumerate(objects):
        for name in NAMES:
            expected, found = lookup(world, at, name), find(obj, name)
            assert (None if found is None else (numbers[id(found[0])], found[1])) == expected
            assert understands(obj, name) == (expected is not None)
            if expected is not None:
                assert getattr(obj, name) == expected[1]
            elif name != "clone":
                assert not hasattr(obj, name)
                with pytest.raises(MessageNotUnderstood) as caught:
                    getattr(obj, name)
                assert (caught.value.target, caught.value.selector) == (obj, name)
        assert [numbers[id(o)] for o in lookup_order(obj)] == order(world, at)
        assert list(obj._slots) == list(world[at])


@given(worlds, edits)
@settings(max_examples=150, deadline=None)
def test_lookup_in_memory_is_the_models(world: list[Model], changes: list[tuple[int, str, Any]]) -> None:
    objects = build(world)
    agree(world, objects)
    for change in changes:
        put(objects, *change)
        apply(world, change)
        agree(world, objects)


@given(worlds, edits, st.lists(st.tuples(indexes, st.sampled_from(NAMES)), max_size=4))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_lookup_survives_commit_close_reopen_and_pack(
    world: list[Model], changes: list[tuple[int, str, Any]], first: list[tuple[int, str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "o.fs")
        try:
            store.put(objects=tuple(build(world)))
            for step, change in enumerate([None, *changes]):
                with store.open(commit=True) as root:
                    objects = list(root["objects"])
                    for at, name in first:  # load some before others: what is a ghost must not decide the answer
                        expected = lookup(world, at, name)
                        if expected is not None:
                            assert getattr(objects[at], name) == expected[1]
                    if change is not None:
                        put(objects, *change)
                        apply(world, change)
                if step % 2:
                    store.reopen()
                with store.open() as root:
                    agree(world, list(root["objects"]))
            store.db.pack()
            store.reopen()
            with store.open() as root:
                agree(world, list(root["objects"]))
        finally:
            store.close()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.lists(inner, max_size=2).map(tuple)
    ),
    max_leaves=8,
)


def plain(value: Any) -> Any:
    """Stored containers as what they were, for comparison."""
    if hasattr(value, "keys"):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return [plain(item) for item in value] if hasattr(value, "append") else value


@given(st.dictionaries(st.text(min_size=1, max_size=4).filter(lambda n: "*" not in n and n[0] != "_"), values, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_names_and_values_round_trip_and_a_clone_is_equal_and_apart(slots: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "o.fs")
        try:
            obj = UvmObject(**slots)
            store.put(obj=obj, clone=obj.clone())
            store.reopen()
            with store.open() as root:
                for name in ("obj", "clone"):
                    assert {key: plain(value) for key, value in root[name]._slots.items()} == slots
                for key in slots:
                    value = root["obj"]._slots[key]
                    assert not hasattr(value, "data") or value is not root["clone"]._slots[key]
        finally:
            store.close()
