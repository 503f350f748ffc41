"""Containers in slots: no change in place is lost, and they go on working as what was put in."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from batos.objects import Intent, Primitive, SlotDict, SlotList, SlotSet, UvmObject
from tests.support.image import Store

CHANGES: list[tuple[Any, Callable[[Any], Any], Any]] = [
    ([1], lambda v: v.append(2), [1, 2]),
    ([1], lambda v: v.extend([2]), [1, 2]),
    ([2, 1], lambda v: v.sort(), [1, 2]),
    ([1, 2], lambda v: v.__delitem__(0), [2]),
    ([[1]], lambda v: v[0].append(2), [[1, 2]]),
    ([([1],)], lambda v: v[0][0].append(2), [([1, 2],)]),
    ({"k": 1}, lambda v: v.update(k=2), {"k": 2}),
    ({"k": {"l": 1}}, lambda v: v["k"].pop("l"), {"k": {}}),
    ({"k": 1}, lambda v: v.setdefault("j", []).append(1), {"k": 1, "j": [1]}),
    ({"k": 1}, lambda v: v.clear(), {}),
    ({1}, lambda v: v.add(2), {1, 2}),
    ({1, 2}, lambda v: v.discard(2), {1}),
    ({1, 2}, lambda v: v.update({3}, [4]), {1, 2, 3, 4}),
    ({1, 2}, lambda v: v.difference_update([1]), {2}),
    ({1, 2}, lambda v: v.intersection_update([1, 3]), {1}),
    ({1, 2}, lambda v: v.__ior__({3}), {1, 2, 3}),
    ({1}, lambda v: v.pop(), set()),
    ({1}, lambda v: v.clear(), set()),
]


@pytest.mark.parametrize(("value", "change", "expected"), CHANGES)
def test_a_change_in_place_is_stored_before_and_after_the_first_commit(
    store: Store, value: Any, change: Callable[[Any], Any], expected: Any
) -> None:
    import copy

    early, late = UvmObject(slot=copy.deepcopy(value)), UvmObject(slot=copy.deepcopy(value))
    change(early.slot)
    store.put(early=early, late=late, again=UvmObject(slot=copy.deepcopy(value)))
    with store.open(commit=True) as root:
        change(root["late"].slot)
    with store.open(commit=True) as root:
        _ = list(root["again"].slot)  # loaded first
        change(root["again"].slot)
    store.reopen()
    with store.open() as root:
        for name in ("early", "late", "again"):
            assert root[name].slot == expected


def test_a_change_in_the_same_connection_after_a_commit_is_stored(store: Store) -> None:
    """What was converted by the commit stays so in memory."""
    with store.open(commit=True) as root:
        obj = root["obj"] = UvmObject(list=[1], dict={"k": [1]}, set={1}, tuple=([1],))
        tm = root._p_jar.transaction_manager
        tm.commit()
        tm.begin()
        obj.list.append(2)
        obj.dict["k"].append(2)
        obj.set.add(2)
        obj.tuple[0].append(2)
    with store.open() as root:
        obj = root["obj"]
        assert (obj.list, obj.dict, obj.set, obj.tuple) == ([1, 2], {"k": [1, 2]}, {1, 2}, ([1, 2],))
        assert [type(v) for v in obj._slots.values()] == [SlotList, SlotDict, SlotSet, tuple]


def test_a_container_in_two_slots_stays_one(store: Store) -> None:
    shared = [1]
    store.put(obj=UvmObject(a=shared, b={"k": shared}))
    with store.open(commit=True) as root:
        root["obj"].a.append(2)
    with store.open() as root:
        assert root["obj"].b["k"] is root["obj"].a
        assert root["obj"].b["k"] == [1, 2]


def test_a_container_that_holds_itself_is_stored_and_ends(store: Store) -> None:
    ring: list[Any] = [1]
    ring.append({"again": (ring,)})
    stored = SlotList([2])
    stored.append([stored])
    store.put(obj=UvmObject(ring=ring, stored=stored))
    with store.open() as root:
        found = root["obj"].ring
        assert found[1]["again"][0] is found
        assert root["obj"].stored[1][0] is root["obj"].stored


def test_nesting_is_limited(store: Store) -> None:
    def nest(depth: int) -> list[Any]:
        value: list[Any] = []
        for _ in range(depth):
            value = [value]
        return value

    store.put(obj=UvmObject(deep=nest(64)))
    with pytest.raises(TypeError, match="nested deeper than 64"):
        store.put(obj=UvmObject(deep=nest(65)))


PLAIN = [
    None, True, 1 << 200, 1.5, float("inf"), 2j, "ü\ud800", b"\0",
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.date(2026, 1, 1), datetime.timedelta(1),
    decimal.Decimal("1.10"), uuid.UUID(int=1), Intent("greet"), Primitive("m.f"), (1, (2,)), frozenset({(1, "a")}),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back_as_they_were(store: Store, value: Any) -> None:
    store.put(obj=UvmObject(slot=value, nested=[value], key={"k": value}))
    store.reopen()
    with store.open() as root:
        obj = root["obj"]
        assert type(obj.slot) is type(value)
        assert obj.slot == obj.nested[0] == obj.key["k"] == value


def test_a_set_that_was_stored_has_the_methods_of_a_set() -> None:
    a = SlotSet({1, 2})
    assert a == {1, 2}
    assert a.union([3]) == a | {3} == {1, 2, 3}
    assert a.intersection([1]) == a & {1} == {1}
    assert a.difference([1]) == a - {1} == {2}
    assert a.symmetric_difference([1, 3]) == {2, 3}
    assert a.issubset([1, 2, 3])
    assert a.issuperset([1])
    assert {1} <= a
    assert isinstance(a.union([3]), SlotSet)
    other = a.copy()
    other.add(9)
    assert 9 not in a
    assert repr(SlotSet({1})) == "SlotSet({1})"


def test_adding_what_is_there_changes_nothing(store: Store) -> None:
    store.put(obj=UvmObject(set={1}))
    with store.open() as root:
        root["obj"].set.add(1)
        root["obj"].set.discard(2)
        assert not root["obj"].set._p_changed
