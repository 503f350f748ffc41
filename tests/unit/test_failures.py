"""The failure ledger: what is recorded of a failure, and what can be asked of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import InferenceFailed, MethodRefused, UnknownMission, from_wire
from batos.image import LivingImage, ledger
from batos.objects import Primitive, UvmObject
from tests.support.missions import FakeInference, mind, submit


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    for id in ("a", "b", "c", "x.a"):
        await image.system(ledger.accept, id, "b", {}, False)
    for id, code, selector, final in [
        ("a", {"code": "inference_failed", "message": "", "context": {"cause": "timeout"}}, None, False),
        ("b", {"code": "not_understood", "message": ""}, "add_", True),
        ("a", {"code": "inference_failed", "message": "", "context": {"cause": "refused"}}, None, True),
        ("x.a", {"code": "internal", "message": ""}, "add_", False),
        ("x.a", {"code": "timeout", "message": ""}, "sub_", True),
    ]:
        await image.system(ledger.fail, id, code, {"selector": selector} if selector else {}, final)
    yield image
    await image.close()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["x.a", "x.a", "a", "b", "a"]),
        ({"limit": 2}, ["x.a", "x.a"]),
        ({"id": "a"}, ["a", "a"]),
        ({"id": "a", "limit": 1}, ["a"]),
        ({"id": "c"}, []),
        ({"code": "inference_failed"}, ["a", "a"]),
        ({"code": "timeout"}, ["x.a", "a"]),
        ({"code": "timeout", "id": "a"}, ["a"]),
        ({"code": "no_such"}, []),
        ({"selector": "add_"}, ["x.a", "b"]),
        ({"selector": "add_", "code": "internal"}, ["x.a"]),
        ({"selector": "add_", "limit": 1}, ["x.a"]),
    ],
)
async def test_queries(image: LivingImage, asked: dict[str, Any], found: list[str]) -> None:
    rows = image.read(lambda root: ledger.failures(root, **asked))
    assert [row["mission"] for row in rows] == found
    assert [row["at"] for row in rows] == sorted((row["at"] for row in rows), reverse=True)
    assert all(set(row) == {"at", "mission", "attempt", "final", "error", "context"} for row in rows)


async def test_a_mission_that_is_not_there(image: LivingImage) -> None:
    with pytest.raises(UnknownMission):
        image.read(lambda root: ledger.failures(root, id="nobody"))


async def test_many_failures_are_found_newest_first(image: LivingImage) -> None:
    def put(root: Any) -> None:
        for n in range(500):
            ledger.fail(root, "c", {"code": "busy", "message": str(n)}, {}, False)

    await image.system(put)
    rows = image.read(lambda root: ledger.failures(root, id="c"))
    assert [row["error"]["message"] for row in rows] == [str(n) for n in reversed(range(500))]


async def test_a_failed_message_is_recorded_with_target_and_selector(tmp_path: Path) -> None:
    message = {"target": "robin", "selector": "_no_such_", "args": [], "kwargs": {}}
    async with mind(tmp_path, FakeInference()) as kernel:
        await (await submit(kernel, "m1", "send robin _no_such_", message=json.dumps(message))).end()
        (row,) = kernel.image.read(lambda root: ledger.failures(root, selector="_no_such_", code="not_understood"))
        assert row["mission"] == "m1"
        assert row["final"]
        assert (row["context"]["target"], row["context"]["class"]) == ("robin", "MessageNotUnderstood")


@Primitive.register("test.refused_")
async def refused_(receiver: UvmObject) -> None:
    """What method synthesis comes to when every draft is refused."""
    reasons = ["line 2: the slot 'total' is written and the change is not told", "line 3: an import of os"]
    source = "def add_(self):\n    self.total = 1\n" + "    # ü\n" * 4000
    raise MethodRefused("add_ was refused 3 times", selector="add_", source=source, reasons=reasons, cause="guardian")


async def test_a_refused_method_is_kept_with_its_source_and_its_reasons(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), failure_source_bytes=1000) as kernel:
        await kernel.image.system(lambda root: setattr(root["lobby"], "counter", UvmObject(count_=Primitive.of(refused_))))
        message = json.dumps({"target": "counter", "selector": "count_", "args": [], "kwargs": {}})
        ended = await (await submit(kernel, "m1", "send counter count_", message=message)).end()
        assert ended["error"]["code"] == "method_refused"
        assert "source" not in ended["error"]["context"]
        told = from_wire(ended["error"])
        assert isinstance(told, MethodRefused)
        assert (told.selector, told.cause, len(told.reasons)) == ("add_", "guardian", 2)
        for asked in ({"selector": "add_"}, {"selector": "count_"}, {"code": "guardian"}, {"code": "method_refused"}, {"id": "m1"}):
            (row,) = kernel.image.read(lambda root, asked=asked: ledger.failures(root, **asked))
            method = row["context"]["method"]
            assert method["source"].startswith("def add_(self):\n    self.total = 1\n")
            assert 996 <= len(method["source"].encode()) <= 1000
            assert (method["selector"], method["reasons"]) == ("add_", list(told.reasons))
        assert kernel.image.read(lambda root: ledger.failures(root, selector="add_", code="timeout")) == []


async def test_an_image_from_before_is_given_the_index_by_selector(image: LivingImage) -> None:
    await image.system(lambda root: delattr(ledger.ledger_of(root), "failures_by_selector"))
    await image.system(ledger.add_missing_indexes)
    rows = image.read(lambda root: ledger.failures(root, selector="add_"))
    assert [row["mission"] for row in rows] == ["x.a", "b"]


async def test_a_fault_is_recorded_with_its_own_class(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = lambda request: str(1 / 0)
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m1")).end()
        (row,) = kernel.image.read(ledger.failures)
        assert (row["error"]["code"], row["context"]["class"]) == ("internal", "ZeroDivisionError")


async def test_a_failed_inference_is_found_by_its_cause(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused")
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m1")).end()
        for code in ("refused", "inference_failed"):
            (row,) = kernel.image.read(lambda root, code=code: ledger.failures(root, code=code))
            assert (row["context"]["class"], row["context"]["state"]) == ("InferenceFailed", "DECOMPOSING")
            assert "selector" not in row["context"]
