"""UvmObject: delegation, cloning, and what must neither load an object nor run code."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from batos.errors import MessageNotUnderstood
from batos.objects import Method, Primitive, SlotList, UvmObject, find, lookup_order, understands
from tests.support.image import Store, is_ghost


@Primitive.register("test._answer_selector")
def _answer_selector(receiver: UvmObject, selector: str) -> str:
    return f"{receiver.name} heard {selector}"


def chain(depth: int) -> list[UvmObject]:
    objects = [UvmObject(deep="value", own0=0)]
    for i in range(depth):
        objects.append(objects[-1].derive(**{f"own{i + 1}": i}))
    return objects


def test_own_slots_come_before_parents_and_parents_from_left_to_right() -> None:
    left, right = UvmObject(x="left", y="left"), UvmObject(x="right", z="right")
    child = UvmObject(**{"a*": left, "b*": right, "y": "own"})
    assert (child.x, child.y, child.z) == ("left", "own", "right")


def test_a_tuple_of_parents_is_searched_in_its_order() -> None:
    a, b = UvmObject(x="a"), UvmObject(x="b", y="b")
    assert UvmObject(**{"p*": (b, a)}).x == "b"
    assert UvmObject(**{"p*": (a, b)}).y == "b"
    assert UvmObject(**{"p*": (a,)}).x == "a"
    with pytest.raises(AttributeError):
        _ = UvmObject(**{"p*": ()}).x


def test_depth_comes_before_breadth_in_a_diamond() -> None:
    top = UvmObject(x="top")
    left, right = top.derive(), top.derive(x="right")
    assert UvmObject(**{"p*": (left, right)}).x == "top"


def test_cycles_end_the_search() -> None:
    a, b = UvmObject(name="a"), UvmObject(x=1)
    a._slots["p*"], b._slots["p*"] = b, a
    assert a.x == 1
    assert b.name == "a"
    assert lookup_order(a) == [a, b]
    own = UvmObject()
    own._slots["p*"] = own
    for obj in (a, own):
        with pytest.raises(MessageNotUnderstood):
            _ = obj.nothing


@pytest.mark.parametrize("depth", [1, 10, 31, 32, 33, 100, 500])
def test_chains_of_any_length(depth: int) -> None:
    last = chain(depth)[-1]
    assert last.deep == "value"
    assert not hasattr(last, "missing")
    assert len(lookup_order(last)) == depth + 1


def test_find_names_the_holder() -> None:
    objects = chain(3)
    assert find(objects[-1], "deep") == (objects[0], "value")
    assert find(objects[-1], "own3") == (objects[3], 2)
    assert find(objects[-1], "nowhere") is None
    assert understands(objects[-1], "own1")
    assert not understands(objects[0], "own1")


def test_a_value_of_none_or_false_is_a_value() -> None:
    parent = UvmObject(none=None, zero=0)
    child = parent.derive()
    assert child.none is None
    assert child.zero == 0


def test_what_nobody_answers_is_an_attribute_error_that_names_target_and_selector() -> None:
    obj = UvmObject()
    with pytest.raises(MessageNotUnderstood) as caught:
        _ = obj.fly
    assert isinstance(caught.value, AttributeError)
    assert (caught.value.target, caught.value.selector) == (obj, "fly")
    assert getattr(obj, "fly", "default") == "default"


def test_any_object_overrides_what_is_not_understood_for_itself_and_its_children() -> None:
    parent = UvmObject(name="parent", _doesNotUnderstand_=Primitive.of(_answer_selector))
    child = parent.derive(name="child")
    assert parent.fly == "parent heard fly"
    assert child.fly == "child heard fly"
    shadowed = child.derive(_doesNotUnderstand_="no code")
    with pytest.raises(MessageNotUnderstood):
        _ = shadowed.fly


def test_a_slot_takes_the_place_of_a_method_of_the_class_also_inherited_and_in_a_ghost(store: Store) -> None:
    parent = UvmObject(clone="a slot", derive="too")
    store.put(parent=parent, child=UvmObject(**{"parent*": parent}))
    with store.open() as root:
        assert is_ghost(root["parent"])
        assert root["parent"].clone == "a slot"
    with store.open() as root:
        assert root["child"].clone == "a slot"
        assert root["child"].derive == "too"
        assert copy.copy(root["child"])._slots.keys() == {"parent*"}  # what the class needs itself is not taken away


def test_the_methods_of_the_class_say_what_they_are() -> None:
    assert "copies of the own slots" in (inspect.getdoc(UvmObject.clone) or "")
    assert list(inspect.signature(UvmObject().derive).parameters) == ["slots"]
    obj = UvmObject(x=1)
    assert UvmObject.clone(obj).x == 1
    assert obj._clone_persistent_(y=2).y == 2


def test_a_slot_may_be_called_self() -> None:
    obj = UvmObject(self=1)
    assert obj.derive(self=2).clone(self=3)._slots["self"] == 3


# --- ghosts


def test_a_ghost_is_loaded_by_the_first_read_write_and_delegated_read(store: Store) -> None:
    top = UvmObject(x="top", list=[1])
    store.put(top=top, child=top.derive(y="own"))
    with store.open() as root:
        assert root["child"].x == "top"
    with store.open() as root:
        assert root["child"].y == "own"
    with store.open() as root:
        assert find(root["child"], "x") == (root["top"], "top")
    with store.open() as root:
        assert is_ghost(root["child"])
        assert dict(root["child"]._slots) == {"parent*": root["top"], "y": "own"}
    with store.open(commit=True) as root:
        assert is_ghost(root["top"])
        root["top"].new = 1
    with store.open() as root:
        assert dict(root["top"]._slots) == {"x": "top", "list": [1], "new": 1}


def test_an_object_made_a_ghost_by_another_commit_shows_the_new_value(store: Store) -> None:
    store.put(obj=UvmObject(x=1))
    with store.open() as root:
        obj = root["obj"]
        assert obj.x == 1
        with store.open(commit=True) as other:
            other["obj"].x = 2
        assert obj.x == 1  # the snapshot
        root._p_jar.transaction_manager.abort()
        root._p_jar.transaction_manager.begin()
        assert obj.x == 2


def test_an_object_that_is_gone_is_a_storage_error_not_a_missing_slot(store: Store) -> None:
    from ZODB.POSException import POSKeyError

    with store.open() as root:
        ghost = UvmObject.__new__(UvmObject)
        ghost._p_oid, ghost._p_jar = b"\0" * 6 + b"\xff\xff", root._p_jar
        ghost._p_deactivate()
        ghost._p_changed = None
        with pytest.raises(POSKeyError):
            _ = ghost.x


@pytest.mark.parametrize(
    "probe",
    [
        repr,
        str,
        lambda o: hasattr(o, "__len__"),
        lambda o: hasattr(o, "__deepcopy_me__"),
        lambda o: hasattr(o, "_v_cache"),
        lambda o: getattr(o, "__wrapped__", None),
        lambda o: getattr(o, "_p_resolveConflict", None),
        callable,
        inspect.iscoroutine,
        inspect.isawaitable,
        lambda o: isinstance(o, dict),
        hash,
        lambda o: o == 1,
    ],
)
def test_probes_load_nothing_and_ask_nobody(store: Store, probe: Any) -> None:
    store.put(obj=UvmObject(x=1, _doesNotUnderstand_=Primitive.of(_answer_selector)))
    with store.open() as root:
        probe(root["obj"])
        assert is_ghost(root["obj"])


def test_a_half_made_object_raises_attribute_errors_and_does_not_recurse() -> None:
    half = UvmObject.__new__(UvmObject)
    assert not hasattr(half, "anything")
    assert not hasattr(half, "__anything__")


# --- cloning


def test_clone_copies_plain_values_and_shares_objects() -> None:
    part, parent = UvmObject(), UvmObject(inherited=1)
    obj = UvmObject(**{"parent*": parent, "part": part, "list": [[1], part], "dict": {"k": [2]}, "set": {1}})
    obj._v_cache = 1
    new = obj.clone(extra=5)
    new.list[0].append(9)
    new.dict["k"].append(9)
    new.set.add(9)
    assert obj.list == [[1], part]
    assert obj.dict == {"k": [2]}
    assert obj.set == {1}
    assert new.part is part
    assert new.list[1] is part
    assert new._slots["parent*"] is parent
    assert new.extra == 5
    assert "_v_cache" not in vars(new)


def test_clone_of_a_stored_object_has_containers_of_its_own(store: Store) -> None:
    store.put(obj=UvmObject(list=[[1]], set={1}, dict={"k": [1]}))
    with store.open(commit=True) as root:
        new = root["new"] = root["obj"].clone()
        assert isinstance(new.list, SlotList)
        new.list[0].append(2)
        new.set.add(2)
        new.dict["k"].append(2)
    with store.open() as root:
        assert (root["obj"].list, root["obj"].set, root["obj"].dict) == ([[1]], {1}, {"k": [1]})
        assert (root["new"].list, root["new"].set, root["new"].dict) == ([[1, 2]], {1, 2}, {"k": [1, 2]})


def test_a_container_held_twice_or_by_itself_is_copied_as_such() -> None:
    shared: list[Any] = [1]
    shared.append(shared)
    new = UvmObject(a=shared, b=shared).clone()
    assert new.a is new.b
    assert new.a[1] is new.a
    assert new.a is not shared


def test_deep_copy_never_follows_objects(store: Store) -> None:
    """A chain of a thousand earlier missions must not be copied with the last (nor exhaust the stack)."""
    last = None
    for i in range(1000):
        last = UvmObject(number=i, before=last, method=Method("m", "source"))
    assert last is not None
    new = copy.deepcopy({"it": [last]})["it"][0]
    assert new is not last
    assert new.before is last.before
    assert new.method is last.method


def test_deep_copy_keeps_identity_within_one_copy() -> None:
    obj = UvmObject(list=[1])
    first, second = copy.deepcopy([obj, obj])
    assert first is second
    assert first.list is not obj.list


def test_pickling_a_new_object_round_trips() -> None:
    obj = pickle.loads(pickle.dumps(UvmObject(x=[1], **{"parent*": UvmObject(y=2)})))
    assert (obj.x, obj.y) == ([1], 2)


# --- storing


def test_names_of_slots_are_bytes_on_disk_and_those_written_as_text_are_read() -> None:
    name = "größe\udc80"  # whatever a str can hold
    obj = UvmObject(text="x", **{name: 2})
    assert obj.__getstate__() == {b"text": "x", name.encode("utf-8", "surrogatepass"): 2}
    for state in (obj.__getstate__(), {"text": "x", name: 2}):
        read = UvmObject(other=1)
        read.__setstate__(state)
        assert dict(read._slots) == {"text": "x", name: 2}


def test_slots_survive_commit_close_reopen_and_pack(store: Store) -> None:
    parent = UvmObject(y=1)
    store.put(obj=parent.derive(x=(1, "a", None)))
    for _ in range(3):
        with store.open(commit=True) as root:
            root["obj"].n = getattr(root["obj"], "n", 0) + 1
    store.db.pack()
    store.reopen()
    with store.open() as root:
        assert (root["obj"].x, root["obj"].y, root["obj"].n) == ((1, "a", None), 1, 3)


def test_volatile_slots_are_not_stored_and_do_not_hinder(store: Store) -> None:
    obj = UvmObject(x=1)
    obj._v_cache = object()
    store.put(obj=obj)
    with store.open() as root:
        assert dict(root["obj"]._slots) == {"x": 1}


@pytest.mark.parametrize("value", [lambda: 1, object(), open, UvmObject, range(3), bytearray(b"x"), iter([])])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": (v,)}])
def test_what_may_not_be_stored_is_refused_by_name_and_nothing_is(store: Store, value: Any, wrap: Any) -> None:
    with pytest.raises(TypeError, match=r"'bad'|an item of|item 'k'"):
        store.put(other=UvmObject(), obj=UvmObject(bad=wrap(value)))
    with store.open() as root:
        assert not root


@pytest.mark.parametrize(("name", "value"), [("__x", 1), ("_p_x", 1), ("a*b", 1), ("*", UvmObject()), ("p*", 1), ("p*", (1,)), ("", 1)])
def test_names_that_came_past_the_view_are_refused_when_stored(store: Store, name: str, value: Any) -> None:
    obj = UvmObject()
    setattr(obj, name, value)
    with pytest.raises((ValueError, TypeError), match=r"reserved|only at the end|holds a UvmObject|not empty"):
        store.put(obj=obj)
