"""Sending messages to objects: data, primitives, copies, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.errors import InvalidInput, MessageNotUnderstood, MessageTooLarge
from batos.image import history
from batos.mind.messages import send
from batos.objects import UvmObject
from tests.support.missions import FakeInference, mind


async def sent(kernel: Kernel, target: str, selector: str, *args: Any, **kwargs: Any) -> Any:
    async with kernel.image.unit() as unit:
        return history.plain(await send(history.resolve(unit.root, target), selector, *args, **kwargs))


async def test_an_object_is_cloned_by_a_message(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        answer = await sent(kernel, "robin", "_clone_persistent_", name="ROBIN2")
        assert await sent(kernel, answer["oid"], "name") == "ROBIN2"
        assert await sent(kernel, answer["oid"], "core_mission") == await sent(kernel, "robin", "core_mission")
        child = await sent(kernel, "robin", "derive")
        assert await sent(kernel, child["oid"], "name") == "ROBIN"


@pytest.mark.parametrize(
    ("selector", "args", "kwargs", "error"),
    [
        ("name", (5,), {}, InvalidInput),
        ("synthesize_response_for_", (), {}, InvalidInput),
        ("synthesize_response_for_", (" ",), {}, InvalidInput),
        ("clone", (1,), {}, InvalidInput),
        ("clone", (), {"__x": 1}, InvalidInput),
        ("nothing_", (), {}, MessageNotUnderstood),
        ("sage_facet_", (), {}, MessageNotUnderstood),
    ],
)
async def test_what_does_not_fit_is_the_callers_fault(
    tmp_path: Path, selector: str, args: tuple[Any, ...], kwargs: dict[str, Any], error: type[Exception]
) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        with pytest.raises(error):
            await sent(kernel, "robin", selector, *args, **kwargs)


def test_a_result_is_whole_or_refused() -> None:
    assert history.whole(["x" * 5000]) == ["x" * 5000]
    nested: Any = 1
    for _ in range(50):
        nested = [nested]
    assert history.whole(nested) == nested
    with pytest.raises(MessageTooLarge):
        history.whole("x" * (history.WHOLE_BYTES + 1))


def test_a_parent_that_is_none_is_named() -> None:
    broken = UvmObject(n=1)
    setattr(broken, "parent*", 5)
    with pytest.raises(TypeError, match="parent slot"):
        hasattr(broken, "other")
    setattr(broken, "parent*", (UvmObject(), 5))
    with pytest.raises(TypeError, match="parent slot"):
        hasattr(broken, "other")
