"""The `_slots` view."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest

from batos.objects import UvmObject
from tests.support.image import Store, is_ghost


def test_it_is_a_live_mapping_of_own_slots_in_their_order() -> None:
    parent = UvmObject(inherited=1)
    obj = UvmObject(**{"b": 2, "parent*": parent, "a": 1})
    view = obj._slots
    obj.c = 3
    assert isinstance(view, MutableMapping)
    assert list(view) == ["b", "parent*", "a", "c"]
    assert len(view) == 4
    assert view["a"] == 1
    assert "inherited" not in view
    assert view.get("inherited") is None
    assert view.pop("a") == 1
    assert not hasattr(obj, "a")
    with pytest.raises(KeyError):
        del view["a"]
    with pytest.raises(KeyError):
        _ = view["a"]
    assert 5 not in view  # type: ignore[comparison-overlap]
    assert repr(view) == "<slots of <UvmObject new>: b, parent*, c>"


def test_volatile_attributes_are_no_slots() -> None:
    obj = UvmObject(x=1)
    obj._v_cache = 1
    assert list(obj._slots) == ["x"]
    assert len(obj._slots) == 1
    assert "_v_cache" not in obj._slots
    for use in (lambda: obj._slots["_v_cache"], lambda: obj._slots.__delitem__("_v_cache")):
        with pytest.raises(KeyError):
            use()


@pytest.mark.parametrize("name", ["__x", "__class__", "_p_changed", "_p_x", "_v_x", "_slots", "", "*", "a*b", "a**", 5, None])
def test_reserved_and_malformed_names_are_refused(name: Any) -> None:
    obj = UvmObject()
    with pytest.raises(ValueError, match="name"):
        obj._slots[name] = 1
    assert len(obj._slots) == 0
    if isinstance(name, str):
        for _ in range(2):  # what is said of a name is remembered
            with pytest.raises((ValueError, TypeError), match=r"reserved|parent|name"):
                UvmObject(**{name: 1})


@pytest.mark.parametrize("value", [None, 1, "x", [UvmObject()], (UvmObject(), 1)])
def test_a_parent_slot_holds_objects_only(value: Any) -> None:
    with pytest.raises(TypeError, match="parent slot"):
        UvmObject(**{"p*": value})


def test_names_that_are_no_identifiers_work() -> None:
    obj = UvmObject(**{"two words": 1, "ünï": 2, "class": 3})
    assert obj._slots["two words"] + obj.ünï + getattr(obj.derive(), "class") == 6


def test_writing_and_deleting_by_the_view_is_stored_also_in_a_ghost(store: Store) -> None:
    store.put(obj=UvmObject(a=1, b=2))
    with store.open(commit=True) as root:
        assert is_ghost(root["obj"])
        root["obj"]._slots["c"] = 3
    with store.open(commit=True) as root:
        assert is_ghost(root["obj"])
        del root["obj"]._slots["a"]
    store.reopen()
    with store.open() as root:
        assert dict(root["obj"]._slots) == {"b": 2, "c": 3}


def test_an_object_whose_last_slot_goes_stays_empty(store: Store) -> None:
    store.put(obj=UvmObject(a=1))
    with store.open(commit=True) as root:
        del root["obj"].a
        assert not hasattr(root["obj"], "a")  # an empty dict is not a ghost: nothing is loaded back
    with store.open() as root:
        assert not hasattr(root["obj"], "a")
        assert len(root["obj"]._slots) == 0
