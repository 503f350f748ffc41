"""Undo: what a mission did taken back part by part, conflicts named, cascades, and done again."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from BTrees.OOBTree import OOBTree
from transaction.interfaces import TransientError

from batos.api.queries import Queries
from batos.errors import Busy, Conflicted, HistoryGone, ImageError, InvalidInput, UndoConflict, UnknownMission
from batos.image import effects, history, ledger, packing
from batos.image.scrubber import Walk
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.objects import Method, UvmObject
from tests.support.undo import House, house
from tests.support.undo_contract import (  # noqa: F401
    test_a_part_that_was_changed_again_is_a_conflict_that_names_who_did,
    test_slots_that_came_went_and_changed_are_as_before,
    test_the_undo_is_one_annotated_transaction_and_the_record_says_so,
    test_undo_and_redo_as_often_as_one_likes,
    test_undone_twice_is_undone_once,
    test_what_others_did_to_other_parts_stays,
)


async def test_whose_work_it_is_survives_undos_in_between(at: House) -> None:
    """The present value is m2's, though an undo and a redo gave it last."""
    await at.sets("m1", a=1)
    await at.sets("m2", a=2)
    await at.sets("m3", a=3)
    await at.undo("m3")
    with pytest.raises(UndoConflict, match="by m2"):
        await at.undo("m1")
    await at.undo("m3", redo=True)
    with pytest.raises(UndoConflict, match="by m3"):
        await at.undo("m1")
    assert [one["id"] for one in (await at.undo("m1", cascade=True))["missions"]] == ["m3", "m2", "m1"]
    assert at.slots() == {}


async def test_an_undo_names_the_effects_that_stand_in_the_world(at: House) -> None:
    await at.sets("m1", a=1)
    assert "effects" not in await at.undo("m1", dry=True)
    record = effects.EffectRecord("k1", "shop.buy", effects.ACTS, "{}", 0, effects.INTENDED, 1.0, undo="shop.cancel")
    await at.image.system(effects.intend, "m1", record)
    await at.image.system(effects.end, "m1", record._replace(state=effects.DONE))
    told = (await at.undo("m1"))["effects"]
    assert told == [{"mission": "m1", "key": "k1", "tool": "shop.buy", "state": "DONE", "at": 1.0, "compensation": "shop.cancel"}]
    assert "effects" not in await at.undo("m1", redo=True)


async def test_a_value_that_is_as_it_was_before_anyway_is_no_conflict(at: House) -> None:
    await at.sets("m0", a=0)
    await at.sets("m1", a=1)
    await at.sets("m2", a=0)
    await at.undo("m1")
    assert at.slots() == {"a": 0}


async def test_true_is_not_one(at: House) -> None:
    await at.sets("m0", a=1)
    await at.sets("m1", a=True)
    await at.undo("m1")
    assert at.slots()["a"] is not True


async def test_a_cascade_undoes_the_lot_in_one_transaction(at: House) -> None:
    await at.sets("m1", a=1)
    await at.sets("m2", a=2, b=1)
    await at.sets("m3", b=2)
    await at.sets("m4", c=1)
    shown = await at.undo("m1", cascade=True, dry=True)
    assert [one["id"] for one in shown["missions"]] == ["m3", "m2", "m1"]
    assert at.slots() == {"a": 2, "b": 2, "c": 1}, "a dry run changes nothing"
    before = history.revisions(at.image.db, at.image.read(lambda root: root["lobby"].robin._p_oid), 100)
    done = await at.undo("m1", cascade=True, expect=[one["id"] for one in shown["missions"]])
    assert done["missions"] == shown["missions"]
    assert at.slots() == {"c": 1}
    after = history.revisions(at.image.db, at.image.read(lambda root: root["lobby"].robin._p_oid), 100)
    assert len(after) == len(before) + 1
    for id in ("m1", "m2", "m3"):
        assert at.image.read(lambda root, id=id: ledger.describe(ledger.mission_of(root, id))).undone["with"] == "m1"
    with pytest.raises(UndoConflict, match="first redo"):
        await at.undo("m3", redo=True)
    for id in ("m1", "m2", "m3"):
        await at.undo(id, redo=True)
    assert at.slots() == {"a": 2, "b": 2, "c": 1}


async def test_a_cascade_is_refused_if_the_lot_is_not_what_was_agreed_to(at: House) -> None:
    await at.sets("m1", a=1)
    await at.sets("m2", a=2)
    with pytest.raises(UndoConflict, match="agreed"):
        await at.undo("m1", cascade=True, expect=["m1"])
    assert at.slots() == {"a": 2}


async def test_a_cascade_has_a_limit(tmp_path: Path) -> None:
    async with house(tmp_path, undo_missions=2) as at:
        for n in range(3):
            await at.sets(f"m{n}", a=n)
        with pytest.raises(UndoConflict, match="missions depend on"):
            await at.undo("m0", cascade=True)
        await at.undo("m1", cascade=True)
        assert at.slots() == {"a": 0}


async def test_work_that_is_no_missions_is_never_undone_with_it(at: House) -> None:
    await at.sets("m1", a=1)
    await at.image.system(lambda root: setattr(root["lobby"].robin, "a", 2), mission="operator")
    for cascade in (False, True):
        with pytest.raises(UndoConflict, match="by operator") as caught:
            await at.undo("m1", cascade=cascade)
        assert caught.value.context["missions"] == []
    assert at.slots() == {"a": 2}


async def test_containers_are_merged_by_their_items(at: House) -> None:
    await at.sets("m0", d={"x": 1}, s={1, 2}, l=[1])

    def work(root: Any) -> None:
        robin = root["lobby"].robin
        robin.d["y"] = 2
        del robin.d["x"]
        robin.s.add(3)
        robin.s.discard(1)
        robin.l.append(2)

    await at.did("m1", work)
    await at.did("m2", lambda root: (root["lobby"].robin.d.update(z=3), root["lobby"].robin.s.add(4)))
    await at.undo("m1")
    with at.image.snapshot() as root:
        robin = root["lobby"].robin
        assert dict(robin.d) == {"x": 1, "z": 3}
        assert set(robin.s) == {1, 2, 4}
        assert list(robin.l) == [1]
    await at.did("m3", lambda root: root["lobby"].robin.l.append(9))
    with pytest.raises(UndoConflict, match="m3"):
        await at.undo("m1", redo=True)


async def test_trees_in_slots_are_merged_by_their_keys(at: House) -> None:
    await at.did("m0", lambda root: setattr(root["lobby"].robin, "learned", OOBTree({n: n for n in range(200)})))
    await at.did("m1", lambda root: root["lobby"].robin.learned.update({n: -n for n in range(50, 60)} | {500: 1}))
    await at.did("m2", lambda root: root["lobby"].robin.learned.update(dict.fromkeys(range(300, 400), 1)))
    told = await at.undo("m1")
    assert told["objects"][-1]["parts"] == ["learned"]
    expected = {n: n for n in range(200)} | dict.fromkeys(range(300, 400), 1)
    assert at.image.read(lambda root: dict(root["lobby"].robin.learned)) == expected
    await at.undo("m1", redo=True)
    assert at.image.read(lambda root: dict(root["lobby"].robin.learned)) == expected | {n: -n for n in range(50, 60)} | {500: 1}
    await at.did("m3", lambda root: root["lobby"].robin.learned.update({500: 2}))
    with pytest.raises(UndoConflict, match="500"):
        await at.undo("m1")


async def test_a_method_that_was_installed_goes_and_comes(at: House) -> None:
    await at.sets("m1", way=Method("way", "def way(self): pass"))

    def better(root: Any) -> None:
        robin = root["lobby"].robin
        robin.way = Method("way", "def way(self): return 1", previous=robin.way)

    await at.did("m2", better)
    with pytest.raises(UndoConflict, match="m2"):
        await at.undo("m1")
    await at.undo("m2")
    assert at.image.read(lambda root: root["lobby"].robin.way.version) == 1
    await at.undo("m1")
    assert at.slots() == {}


async def test_an_object_that_was_made_and_then_changed_by_others_is_depended_on(at: House) -> None:
    await at.sets("m1", hand=UvmObject(x=1))
    await at.did("m2", lambda root: setattr(root["lobby"].robin.hand, "x", 2))
    with pytest.raises(UndoConflict, match=r"x of oid:.* was changed since, by m2"):
        await at.undo("m1")
    assert [one["id"] for one in (await at.undo("m1", cascade=True))["missions"]] == ["m2", "m1"]
    assert at.slots() == {}


async def test_an_object_that_was_made_and_is_referred_to_elsewhere_is_depended_on(at: House) -> None:
    await at.sets("m1", hand=UvmObject(finger=UvmObject(x=1)))
    await at.did("m2", lambda root: setattr(root["lobby"].brick, "tool", (root["lobby"].robin.hand.finger,)))
    with pytest.raises(UndoConflict, match=r"tool of oid:.* refers to oid:.*, which 'm1' made, by m2"):
        await at.undo("m1")
    await at.undo("m2")
    await at.undo("m1")
    assert at.slots() == at.slots("brick") == {}


async def test_what_the_mission_read_or_only_sent_to_is_no_conflict(at: House) -> None:
    hand = UvmObject(x=1)
    await at.sets("m1", hand=hand)
    await at.did("m2", lambda root: setattr(root["lobby"].brick, "seen", root["lobby"].robin.hand.x))
    await at.undo("m1")
    assert at.slots("brick") == {"seen": 1}


async def test_the_thought_stays_in_the_record(at: House) -> None:
    await at.image.system(ledger.accept, "m1", "b", {}, True, mission="m1")
    async with at.image.unit() as unit:
        cycle = UvmObject(brief="b")
        unit.root["lobby"].robin.a = 1
        ledger.complete(ledger.mission_of(unit.root, "m1"), {"text": "x"}, cycle)
        unit.note("m1", "COMPLETE by ROBIN")
    await at.undo("m1")
    assert at.slots() == {}
    assert at.image.read(lambda root: ledger.mission_of(root, "m1").thought.brief) == "b"


async def test_what_cannot_be_undone_is_refused(at: House) -> None:
    with pytest.raises(UnknownMission):
        await at.undo("nobody")
    await at.image.system(ledger.accept, "open", "b", {}, True)
    with pytest.raises(InvalidInput, match="batos cancel"):
        await at.undo("open")
    await at.image.system(ledger.fail, "open", {"code": "x", "message": "y"}, {}, True)
    with pytest.raises(InvalidInput, match="FAILED"):
        await at.undo("open")


async def test_a_tree_that_no_slot_holds_is_not_guessed_at(at: House) -> None:
    await at.did("m0", lambda root: root.__setitem__("tree", OOBTree()))
    await at.did("m1", lambda root: root["tree"].update({"a": 1}))
    with pytest.raises(UndoConflict, match="cannot be undone one by one"):
        await at.undo("m1")
    assert at.image.read(lambda root: dict(root["tree"])) == {"a": 1}


async def test_a_storage_without_history_is_refused_with_the_remedy(at: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await at.sets("m1", a=1)
    monkeypatch.setattr(type(at.image.db), "supportsUndo", lambda db: False)
    with pytest.raises(ImageError, match="keep_history=1"):
        await at.undo("m1")


async def pack(at: House, folder: Path) -> None:
    upkeep = Upkeep(at.image, None, UpkeepPlan(0, 1, interval_s=1, first_s=1), backups=folder)  # type: ignore[arg-type]
    await upkeep.pack(0)


async def test_what_was_packed_is_not_guessed_at(at: House, tmp_path: Path) -> None:
    await at.sets("m1", a=1)
    await at.sets("m2", b=1)
    await at.undo("m2")
    await pack(at, tmp_path)
    for id, redo in (("m1", False), ("m2", True)):
        with pytest.raises(HistoryGone, match="last pack"):
            await at.undo(id, redo=redo)
    assert at.slots() == {"a": 1}


async def test_made_again_after_a_pack_that_did_not_reach_it(at: House, tmp_path: Path) -> None:
    await pack(at, tmp_path)
    await at.sets("m1", hand=UvmObject(x=1))
    await at.undo("m1")
    await at.undo("m1", redo=True)
    assert at.image.read(lambda root: root["lobby"].robin.hand.x) == 1


async def test_a_mission_that_commits_meanwhile_has_its_way(at: House) -> None:
    """The undo is planned again on what the other one left."""
    await at.sets("m1", a=1)
    commit, tries = at.image.committer.commit, []

    async def meanwhile(tm: Any) -> None:
        tries.append(tm)
        if len(tries) == 1:
            at.image.committer.commit = commit  # type: ignore[method-assign]
            await at.sets("m2", b=1)
            at.image.committer.commit = meanwhile  # type: ignore[method-assign]
        await commit(tm)

    at.image.committer.commit = meanwhile  # type: ignore[method-assign]
    await at.undo("m1")
    assert at.slots() == {"b": 1}
    assert len(tries) == 2


async def test_conflicts_without_end_are_given_up(at: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await at.sets("m1", a=1)

    async def conflict(tm: Any) -> None:
        raise TransientError("a conflict")

    monkeypatch.setattr(at.image.committer, "commit", conflict)
    with pytest.raises(Conflicted):
        await at.undo("m1")


async def test_whoever_asked_may_go_and_a_stop_waits(at: House) -> None:
    await at.sets("m1", a=1)
    asking = asyncio.create_task(at.undo("m1"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await at.undoing.stop()
    assert at.slots() == {}
    assert len(at.memory.seen) == 1, "searches hear of it all the same"
    with pytest.raises(Busy):
        await at.undo("m1", redo=True)


async def test_two_at_once_are_done_one_after_the_other(at: House) -> None:
    for n in range(4):
        await at.sets(f"m{n}", **{f"s{n}": n})
    await asyncio.gather(*(at.undo(f"m{n}") for n in range(4)))
    assert at.slots() == {}


async def test_an_object_that_is_changed_while_its_maker_is_undone(at: House) -> None:
    """The undo itself does not write it, and meets the change all the same."""
    await at.sets("m1", hand=UvmObject(x=1))
    commit = at.image.committer.commit

    async def meanwhile(tm: Any) -> None:
        at.image.committer.commit = commit  # type: ignore[method-assign]
        await at.did("m2", lambda root: setattr(root["lobby"].robin.hand, "x", 2))
        await commit(tm)

    at.image.committer.commit = meanwhile  # type: ignore[method-assign]
    with pytest.raises(UndoConflict, match="by m2"):
        await at.undo("m1")
    assert at.image.read(lambda root: root["lobby"].robin.hand.x) == 2


async def test_a_pack_in_the_middle_of_an_undo(at: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was changed must not be taken for what was made, and so for what need not be put back."""
    await at.sets("m0", a=0)
    await at.sets("m1", a=1)
    storage, change = at.image.db.storage, at.image.read(lambda root: root["lobby"].robin._p_activate() or root["lobby"].robin._p_serial)
    real, packed = storage.loadBefore, []

    def packed_first(oid: bytes, tid: bytes) -> Any:
        if tid == change and not packed:  # the undo asks for what an object was before the change
            packed.append(oid)
            at.image.db.pack(time.time() + 1)
        return real(oid, tid)

    monkeypatch.setattr(storage, "loadBefore", packed_first)
    with pytest.raises(HistoryGone):
        await at.undo("m1")
    assert packed
    assert at.slots() == {"a": 1}


@pytest.mark.parametrize("how", ["made, undone, done again", "taken away, undone"])
async def test_what_was_brought_back_is_not_lost_to_a_pack_up_to_when_it_was_out_of_reach(at: House, tmp_path: Path, how: str) -> None:
    """A month later a pack comes by that time: what refers to it then is younger than that."""
    await at.sets("m1", hand=UvmObject(x=1, finger=UvmObject(x=2)))
    if how == "taken away, undone":
        await at.sets("m2", hand=None)
    else:
        await at.undo("m1")
    meanwhile = history.seconds_of(at.image.db.lastTransaction()) + 1e-6
    await at.sets("m3", name="brick", b=1)
    await at.undo("m2" if how == "taken away, undone" else "m1", redo=how != "taken away, undone")
    packing.pack(at.image.db, tmp_path / "i.fs", meanwhile, threading.Event())
    walk = Walk(at.image.db)
    walk.step(100_000)
    assert walk.damaged == {}
    assert at.image.read(lambda root: (root["lobby"].robin.hand.x, root["lobby"].robin.hand.finger.x)) == (1, 2)


async def test_what_is_done_again_while_a_pack_is_under_way_is_not_lost(at: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack that has looked for what is out of reach does not see that it is brought back."""
    await at.sets("m1", hand=UvmObject(x=1))
    await at.undo("m1")
    await at.sets("m2", name="brick", b=1)
    looked, go = threading.Event(), threading.Event()

    def held(self: Any) -> Any:
        looked.set()
        assert go.wait(30)
        return super(packing.Packer, self).copyToPacktime()

    monkeypatch.setattr(packing.Packer, "copyToPacktime", held)
    packed = asyncio.create_task(pack(at, tmp_path))
    assert await asyncio.to_thread(looked.wait, 30)
    acquire, asked = at.image.reach.acquire, asyncio.Event()

    async def noted() -> Any:
        asked.set()
        return await acquire()

    monkeypatch.setattr(at.image.reach, "acquire", noted)
    again = asyncio.create_task(at.undo("m1", redo=True))
    async with asyncio.timeout(90):
        while not (again.done() or asked.is_set()):
            await asyncio.sleep(0.01)
    go.set()
    await packed
    with pytest.raises(HistoryGone):
        await again
    walk = Walk(at.image.db)
    walk.step(100_000)
    assert walk.damaged == {}


async def test_all_undos_that_wait_for_a_pack_go_before_the_next_one(at: House, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = ["m1", "m2", "m3"]
    for n, id in enumerate(ids):
        await at.sets(id, **{id: n})
    left: list[dict[str, Any]] = []

    async def pack_next() -> None:
        async with at.image.reach.alone():
            left.append(at.slots())

    acquire, asked = at.image.reach.acquire, asyncio.Event()

    async def noted() -> Any:
        asked.set()
        return await acquire()

    monkeypatch.setattr(at.image.reach, "acquire", noted)
    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks, at.image.reach.alone():
        for id in ids:
            tasks.create_task(at.undo(id))
        await asked.wait()
        for _ in range(20):  # turns of the loop, in which the others ask, too
            await asyncio.sleep(0)
        tasks.create_task(pack_next())
        await asyncio.sleep(0)
    assert left == [{}]


async def test_missions_say_that_they_are_undone(at: House) -> None:
    await at.sets("m1", a=1)
    await at.sets("m2", b=1)
    await at.undo("m1")
    listed = Queries(at.image.db, at.image.snapshot).missions(None, 5)["missions"]
    assert [(one["id"], one.get("undone")) for one in listed] == [("m2", None), ("m1", True)]
