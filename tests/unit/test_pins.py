"""What is public stays: images, clients, scripts and dashboards go on with a newer BAT OS."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from batos.objects import Primitive
from batos.objects.slot_values import FORMER
from tests.support.missions import FakeInference, mind, submit
from tests.support.public_names import KINDS, PINS, compared, pinned, written


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_public_is_as_it_was(kind: str) -> None:
    broken, new = compared(kind, pinned(kind), KINDS[kind]())
    assert not broken, "\n".join(broken)
    assert not new, "\n".join(new)


@pytest.mark.parametrize("path", sorted(PINS.iterdir()), ids=lambda path: path.name)
def test_the_files_are_written_by_make_pins(path: Path) -> None:
    assert path.stem in KINDS
    assert path.read_text("utf-8") == written(pinned(path.stem))


def test_what_is_gone_or_changed_is_told_from_what_is_new() -> None:
    before = {"send": {"role": "submit", "fields": ["id", "brief"]}, "list": {}, "rate": {"role": "submit", "fields": ["id"]}}
    after = {"send": {"role": "operate", "fields": ["id", "text"]}, "list": {"limit": "int"}, "watch": {"role": "read"}}
    broken, new = compared("ops", before, after)
    assert [line.partition(";")[0] for line in broken] == [
        "ops: send › fields › brief is gone",
        "ops: rate is gone",
        "ops: send › role is 'operate' and was 'submit'",
    ]
    assert all("bring it back" in line and "tests/pins/ops.json" in line for line in broken)
    assert [line.partition(" is new")[0] for line in new] == ["ops: send › fields › text", "ops: list › limit", "ops: watch"]
    assert all("make pins" in line for line in new)
    assert compared("ops", after, after) == ([], [])


def test_what_is_new_and_required_breaks_who_does_not_know_of_it() -> None:
    before = {"send": {"fields": {"id": {"required": True}}}}
    after = {"send": {"fields": {"id": {"required": True}, "to": {"required": True}, "by": {"required": False}}}}
    broken, new = compared("ops", before, {**after, "rate": {"fields": {"id": {"required": True}}}})
    assert [line.partition(";")[0] for line in broken] == ["ops: send › fields › to is new and required"]
    assert [line.partition(";")[0] for line in new] == ["ops: send › fields › by is new", "ops: rate is new"]


def test_every_primitive_has_one_stable_name_and_one_function() -> None:
    names = [name for name in Primitive.names() if not name.startswith("test.")]
    functions = {Primitive(name).resolve() for name in names}
    assert len(functions) == len(names) == len(pinned("primitives"))
    assert {Primitive.of(function).text for function in functions} == set(names)
    assert set(FORMER.values()) <= set(names)
    assert not FORMER.keys() & FORMER.values()


@pytest.mark.parametrize("name", pinned("classes"))
def test_a_class_is_found_under_the_name_that_images_have(name: str) -> None:
    module, _, cls = name.rpartition(".")
    found = getattr(importlib.import_module(module), cls)
    assert f"{found.__module__}.{found.__qualname__}" == name


async def test_what_a_mission_tells_is_pinned(tmp_path: Path) -> None:
    """The pins of events are taken from the page; here the code is held against them."""
    public = pinned("wire_events")
    async with mind(tmp_path, FakeInference()) as kernel:
        listened = await submit(kernel, "m1", "Plan the day")
        await listened.end()
    assert {"state", "token", "result"} <= {event["type"] for event in listened.events}
    for event in listened.events:
        assert event.keys() <= set(public[event["type"]]), event["type"]
