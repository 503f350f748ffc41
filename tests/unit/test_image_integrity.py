"""The walk that looks for damage: bounded steps, rounds, and what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batos.image import LivingImage, journal, ledger
from batos.image.integrity import Walk
from batos.objects import Method, UvmObject
from tests.unit.mind_support import FakeInference, mind, submit

ANSWER = journal.Inference(b"k" * 16, 0, "an answer", "m", "d", 1, 1, 0.0, 0.0, "stop", 0.0)


async def test_it_goes_through_all_records_in_bounded_steps_and_begins_again(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await image.system(lambda root: setattr(root["lobby"], "many", tuple(UvmObject(n=i) for i in range(50))))
    walk, records = Walk(image.db), len(image.db.storage)
    for step in range(1, 1 + records // 10):
        assert walk.step(10) == []
        assert walk.checked == 10 * step
    assert walk.step(10) == []
    assert (walk.checked, walk.rounds, walk.damaged) == (records, 1, {})
    walk.step(records)
    assert (walk.checked, walk.rounds) == (2 * records, 2)
    await image.close()


async def test_a_method_and_an_inference_that_are_not_what_they_were(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")

    def spoil(root: Any) -> None:
        ledger.accept(root, "m1", "brief", {}, True)
        journal.add(root, "m1", ANSWER)
        root["lobby"].greet_ = method = Method("greet_", "def greet_(self): ...")
        method.source = "def greet_(self): 'spoilt'"

    await image.system(spoil)
    walk = Walk(image.db)
    [found] = walk.step(1000)
    assert "'greet_' is not what was audited" in found.what
    assert walk.damaged == {found.oid: found.what}
    await image.close()
    path = tmp_path / "i.fs"
    data = path.read_bytes()
    assert data.count(b"an answer") == 1
    path.write_bytes(data.replace(b"an answer", b"an Answer"))
    image = await LivingImage.open(f"file://{path}")
    walk = Walk(image.db)
    assert sorted(damage.what.split(" is ")[0] for damage in walk.step(1000)) == ["the inference", "the source of the method 'greet_'"]
    assert image.read(journal.load, "m1") == [], "it counts as not paid for"
    await image.system(lambda root: setattr(root["lobby"].greet_, "source", "def greet_(self): ..."))
    walk.step(1000)
    assert len(walk.damaged) == 1, "what is mended is not counted for ever"
    await image.close()


async def test_the_audit_measures_it(tmp_path: Path) -> None:
    inference = FakeInference()
    settings = {"autotelic": "on", "heartbeat_first_s": 0.05, "heartbeat_s": 60, "audit_records": 7}
    async with mind(tmp_path, inference, **settings) as kernel:
        await inference.came(1)
        assert "Of its records 7 were checked for damage since then, 0 are damaged" in inference.asked[0].user
        assert (await (await submit(kernel, "m1")).end())["state"] == "COMPLETE"
