"""What this transaction made may be written by any of its methods; what is stored and not loaded yet is not of that kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batos.objects import Method, UvmObject, is_new
from tests.support.methods import give, sent
from tests.support.missions import FakeInference, mind

MEDDLE = "def meddle_(self, number):\n    self.mate.total = number\n    self._p_changed = True\n    return number\n"


async def test_an_object_is_new_until_it_is_stored(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel, kernel.image.unit() as unit:
        unit.doom()
        made = UvmObject(total=1)
        assert is_new(made)
        unit.root["lobby"].made = made
        unit.root._p_jar.add(made)
        assert is_new(made)
        known = unit.root["lobby"].brick
        known._p_activate()
        assert not is_new(known)
        known._p_deactivate()
        assert known._p_changed is None
        assert not is_new(known), "it knows no serial until it is loaded"


async def test_a_method_does_not_write_another_object_that_is_not_loaded(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:

        def mate(root: Any) -> None:
            root["lobby"].other = UvmObject(total=1)
            root["lobby"].thing._slots.update(mate=root["lobby"].other, meddle_=Method("meddle_", MEDDLE))

        await give(kernel)
        await kernel.image.system(mate)
        kernel.image.db.cacheMinimize()
        end = await sent(kernel, "m1", "thing", "meddle_", 9)
        assert "written by that object's own methods" in end["error"]["message"]
        assert kernel.image.read(lambda root: root["lobby"].other.total) == 1
