"""The walk that looks for damage: bounded steps, rounds, and what it finds."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from batos.errors import ImageDamaged, InferenceFailed
from batos.image import LivingImage, journal, ledger, retention
from batos.image.checksummed_storage import base_of
from batos.image.packing import pack
from batos.image.scrubber import FileWalk, Walk
from batos.image.zodb_patches import index_position
from batos.memory.store import library_of
from batos.objects import Method, UvmObject
from tests.support.memory import flip
from tests.support.missions import FakeInference, audited, mind, submit

ANSWER = journal.InferenceRecord(b"k" * 16, 0, "an answer", "m", "d", 1, 1, 0.0, 0.0, "stop", 0.0)


async def test_it_goes_through_all_records_in_bounded_steps_and_begins_again(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await image.system(lambda root: root["lobby"]._slots.update({f"o{i}": UvmObject(n=i) for i in range(50)}))
    walk, records, size = Walk(image.db), len(image.db.storage), image.db.getSize()
    assert walk.file is not None
    while not walk.rounds:
        before = walk.checked, walk.file.checked
        assert walk.step(10, 500) == []
        assert walk.checked <= before[0] + 10
        assert walk.file.checked < before[1] + 500 + 2000
    assert (walk.checked, walk.rounds, walk.damaged) == (records, 1, {})
    while not walk.file.rounds:
        walk.step(1, 500)
    assert walk.file.checked == size - 4, "all but the four bytes that say what the file is"
    walk.step(3 * records, 2 * size)
    assert (walk.rounds, walk.file.rounds) == (2, 2), "a step ends at the end of a round"
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
    assert walk.damaged == {found.record: found.what}
    await image.close()
    path = tmp_path / "i.fs"
    data = path.read_bytes()
    assert data.count(b"an answer") == 1
    path.write_bytes(data.replace(b"an answer", b"an Answer"))
    image = await LivingImage.open(f"file://{path}")
    walk = Walk(image.db)
    inference, method = sorted((damage.what for damage in walk.step(1000)), key=len, reverse=True)
    assert re.fullmatch(r"the record oid:\w+ of the image .*, a batos.image.JournalEntry, is not what .* restore a backup .*", inference)
    assert "'greet_' is not what was audited" in method
    assert image.read(journal.load, "m1") == [], "it counts as not paid for"
    await image.system(lambda root: setattr(root["lobby"].greet_, "source", "def greet_(self): ..."))
    walk.step(1000)
    assert len(walk.damaged) == 1, "what is mended is not counted for ever"
    await image.close()


async def test_the_audit_measures_it(tmp_path: Path) -> None:
    inference = FakeInference()
    settings = {"autotelic": "on", "heartbeat_first_s": 0.05, "heartbeat_s": 60, "audit_records": 7}
    async with mind(tmp_path, inference, **settings) as kernel:
        assert "Of its records 7 were checked for damage since then, 0 are damaged" in (await audited(kernel)).brief
        assert (await (await submit(kernel, "m1")).end())["state"] == "COMPLETE"


async def test_a_record_with_many_references_is_checked_in_several_steps(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    others = len(image.db.storage)
    await image.system(lambda root: setattr(root["lobby"], "many", tuple(UvmObject(n=i) for i in range(2000))))
    walk = Walk(image.db)
    walk.step(others)
    for _ in range(2000 // (others * 20) - 1):
        before = walk.checked
        walk.step(others)
        assert walk.checked - before <= others
    assert walk.checked < 2000
    walk.step(10_000)
    assert (walk.checked, walk.rounds, walk.damaged) == (others + 2000, 1, {})
    await image.close()


async def test_a_reference_that_leads_nowhere(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await image.system(lambda root: setattr(root["lobby"], "many", tuple(UvmObject(n=i) for i in range(100))))
    with image.snapshot() as root:
        oid = root["lobby"].many[77]._p_oid
    del base_of(image.db.storage)._index[oid]
    walk = Walk(image.db)
    walk.step(1000)
    assert [what for what in walk.damaged.values() if f"refers to oid:{int.from_bytes(oid, 'big'):x}, which is not there" in what]
    await image.close()


@pytest.mark.long
async def test_it_goes_on_beside_commits_and_packs(tmp_path: Path) -> None:
    """What changes under it is not taken for damage."""
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await image.system(lambda root: root["lobby"]._slots.update({f"o{i}": UvmObject(n=i) for i in range(200)}))
    walk, rounds = Walk(image.db), 4

    def go() -> None:
        while min(walk.rounds, walk.file.rounds if walk.file else 0) < rounds:
            walk.step(20, 2000)

    going = asyncio.create_task(asyncio.to_thread(go))
    n = 0
    while not going.done():
        n += 1
        await image.system(lambda root, n=n: root["lobby"]._slots.update({f"o{n % 200}": UvmObject(n=n)}))
        if n % 50 == 0:
            await asyncio.to_thread(pack, image.db, tmp_path / "i.fs", time.time(), threading.Event())
        await asyncio.sleep(0.002)  # as a disk takes: on a RAM disk no round would ever come to an end
    await going
    assert walk.damaged == {}
    await image.close()


async def test_a_pack_in_the_middle_of_a_step_is_not_taken_for_damage(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    for n in range(5):  # that a pack takes away
        await image.system(lambda root, n=n: root["lobby"]._slots.update(filler=UvmObject(text=f"{n}" * 2000)))
    await image.system(lambda root: root["lobby"]._slots.update(last=UvmObject(text="x" * 100_000)))  # the new file ends in it
    damage: list[tuple[str, str]] = []
    walk = FileWalk(image.db.storage, lambda *one: damage.append(one), lambda why: damage.append(("index", why)))
    pauses = iter(range(10**6))

    def pause() -> None:
        if next(pauses) == 0:
            pack(image.db, tmp_path / "i.fs", time.time(), threading.Event())

    before = (tmp_path / "i.fs").stat().st_size
    while walk.rounds < 2:
        walk.step(10**6, pause)
    assert before - 100_000 < (tmp_path / "i.fs").stat().st_size < before
    assert damage == []
    await image.close()


async def test_a_step_between_the_two_renames_of_a_pack_waits_for_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "i.fs"
    image = await LivingImage.open(f"file://{path}")
    await image.system(lambda root: root["lobby"]._slots.update(last=UvmObject(n=1)))
    walk, storage = FileWalk(image.db.storage, lambda *one: pytest.fail(str(one)), pytest.fail), base_of(image.db.storage)
    lock, rename, asked, failed = storage._lock, os.rename, threading.Event(), []

    class Asked:
        """The storage's lock; tells that another thread wants it."""

        def __enter__(self) -> None:
            asked.set()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def step() -> None:
        try:
            walk.step(10**6, lambda: None)
        except OSError as e:
            failed.append(e)
            asked.set()

    stepping = threading.Thread(target=step)

    def renamed(one: str, other: str) -> None:
        rename(one, other)
        if other == f"{path}.old":
            storage._lock = Asked()
            stepping.start()
            assert asked.wait(60)
            storage._lock = lock

    monkeypatch.setattr(os, "rename", renamed)
    await asyncio.to_thread(pack, image.db, path, time.time(), threading.Event())
    await asyncio.to_thread(stepping.join)
    assert (failed, walk.rounds) == ([], 1)
    await image.close()


async def test_what_follows_damage_is_not_taken_for_damage(tmp_path: Path) -> None:
    path = tmp_path / "i.fs"
    image = await LivingImage.open(f"file://{path}")
    await image.system(lambda root: setattr(root["lobby"], "thing", UvmObject(n=0)), mission="a mission of note")
    for n in range(1, 4):
        await image.system(lambda root, n=n: setattr(root["lobby"].thing, "n", n))
    path.write_bytes(path.read_bytes().replace(b"a mission of note", b"a Mission of note"))
    walk = Walk(image.db)
    for _ in range(2):
        walk.step(1000, 1 << 20)
        assert len(walk.damaged) == 1
    assert walk.file is not None
    assert walk.file.checked == 2 * (image.db.getSize() - 4)
    assert "is damaged: its checksum is wrong" in next(iter(walk.damaged.values()))
    data = path.read_bytes()
    with path.open("r+b") as file:  # in place, since the image is open
        file.write(data.replace(b"a Mission of note", b"a mission of note"))
    walk.step(1000, 1 << 20)
    assert walk.facts()["damages"] == 0, "what is mended is not counted for ever"
    await image.close()


async def damaged_kernel(tmp_path: Path, old: bytes, new: bytes) -> None:
    """Two missions that wait, and a byte of a record of theirs changed on disk."""
    image = await LivingImage.open(f"file://{tmp_path / 'live_image.fs'}")
    await image.system(ledger.accept, "m1", "Plan the first day", {}, False, mission="m1")
    await image.system(ledger.accept, "m2", "Plan the second day", {}, False, mission="m2")
    await image.close()
    data = (tmp_path / "live_image.fs").read_bytes()
    assert data.count(old) == 1
    (tmp_path / "live_image.fs").write_bytes(data.replace(old, new))


async def test_damage_fails_the_mission_that_meets_it_and_no_other(tmp_path: Path) -> None:
    """The first mission's own record: the daemon starts, says so, and goes on with the second."""
    await damaged_kernel(tmp_path, b"Plan the first day", b"Plan the First day")
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.scheduler.quiet()
        with kernel.image.snapshot() as root:
            assert ledger.mission_of(root, "m2").state == ledger.COMPLETE
            with pytest.raises(ImageDamaged, match=r"last written by 'm1'.*restore a backup"):
                _ = ledger.mission_of(root, "m1").state
        assert (await (await submit(kernel, "m3")).end())["state"] == "COMPLETE"
        walk = kernel.walk
        walk.step(1000, 1 << 20)
        assert len(walk.damaged) == 2, "the record, and the transaction that it is in"


def ended_mission(root: Any, id: str) -> None:
    ledger.accept(root, id, f"Brief of {id}", {}, True)
    journal.add(root, id, ANSWER)
    ledger.fail(root, id, {"code": "internal", "message": "no"}, {}, True)


@pytest.mark.parametrize("damaged", [(3,), (256,), (255, 256, 257), (300,), (256, 299, 300), (1, 2)])
async def test_the_chain_of_missions_leads_past_those_that_are_damaged(tmp_path: Path, damaged: tuple[int, ...]) -> None:
    path = tmp_path / "i.fs"
    image = await LivingImage.open(f"file://{path}")
    await image.system(lambda root: [ended_mission(root, f"m{n}") for n in range(1, 301)])
    index = base_of(image.db.storage)._index
    places = image.read(lambda root: [index[ledger.mission_of(root, f"m{n}")._p_oid] for n in damaged])
    await image.close()
    flip(path, *places)
    image = await LivingImage.open(f"file://{path}")
    left = [n for n in range(1, 301) if n not in damaged]
    assert image.read(lambda root: [one.number for one in ledger.newest_first(root)]) == left[::-1]
    for after, count in ((0, 256), (0, 300), (250, 10), (2, 1), (255, 1), (256, 256)):
        found = image.read(lambda root, *window: [one.number for one in ledger.numbered(root, *window)], after, count)
        assert found == [n for n in left if after < n <= after + count]
    assert await retention.retain(image, 0) == {"missions": len(left), "dropped": len(left)}
    await image.close()


async def test_one_damaged_journal_holds_up_the_retention_of_no_other(tmp_path: Path) -> None:
    path = tmp_path / "i.fs"
    image = await LivingImage.open(f"file://{path}")
    await image.system(lambda root: [ended_mission(root, f"m{n}") for n in range(1, 4)])
    at = image.read(lambda root: index_position(base_of(image.db.storage), ledger.mission_of(root, "m2").journal._p_oid))
    await image.close()
    flip(path, at)
    image = await LivingImage.open(f"file://{path}")
    assert await retention.retain(image, 0) == {"missions": 3, "dropped": 2}
    await image.close()


async def test_one_damaged_mission_keeps_no_other_from_becoming_memory(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), remember="off") as kernel:
        for n in range(6):
            await (await submit(kernel, f"m{n}")).end()
        at = kernel.image.read(lambda root: index_position(base_of(kernel.image.db.storage), ledger.mission_of(root, "m3")._p_oid))
    flip(tmp_path / "live_image.fs", at)
    async with mind(tmp_path, FakeInference()) as kernel:
        async with asyncio.timeout(90):
            while len(found := kernel.image.read(lambda root: list(library_of(root).by_source))) < 5:
                await asyncio.sleep(0.01)
        assert found == [f"mission:m{n}" for n in range(6) if n != 3]


async def test_damage_that_a_mission_meets_on_its_way(tmp_path: Path) -> None:
    """An object that it is sent to: FAILED, with the code and what was hit, and recorded."""
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.image.system(lambda root: setattr(root["lobby"], "thing", UvmObject(text="the thing itself", add_=1)))
    path = tmp_path / "live_image.fs"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"the thing itself", b"the Thing itself"))
    async with mind(tmp_path, FakeInference()) as kernel:
        message = json.dumps({"target": "thing", "selector": "add_", "args": [], "kwargs": {}})
        ended = await (await submit(kernel, "m1", "send thing add_", message=message)).end()
        assert (ended["state"], ended["error"]["code"]) == ("FAILED", "image_damaged")
        assert "batos.objects.UvmObject" in ended["error"]["message"]
        (row,) = kernel.image.read(lambda root: ledger.failures(root, code="image_damaged"))
        assert row["mission"] == "m1"
        assert (await (await submit(kernel, "m2")).end())["state"] == "COMPLETE"


async def test_a_mission_whose_own_record_is_damaged_ends_for_those_who_watch(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        inference.hold()
        heard = await submit(kernel, "m1", "Plan the day of days")
        await inference.came(1)
        path = tmp_path / "live_image.fs"
        with path.open("r+b") as file:
            at = path.read_bytes().index(b"day of days")
            file.seek(at)
            file.write(b"D")
        for _, connection in kernel.image.idle:
            connection.cacheMinimize()
        kernel.image.committer.connection.cacheMinimize()
        base_of(kernel.image.db.storage)._files.flush()
        inference.fail_when = lambda request: InferenceFailed("no", cause="refused")
        inference.release()
        ended = await heard.end()
        assert ended["state"] == "FAILED"
        assert ended["error"]["code"] == "image_damaged"
        await kernel.scheduler.quiet()
        assert (await (await submit(kernel, "m2")).end())["error"]["code"] == "inference_failed"
        with kernel.image.snapshot() as root:
            assert ledger.mission_of(root, "m2").number == ledger.MILESTONE
