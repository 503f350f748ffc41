"""Tests of undo for every kind of image: a file, and those behind a server. Test modules import them, each with its fixture `at`."""

from __future__ import annotations

import pytest

from batos.errors import UndoConflict
from batos.image import history, ledger
from batos.objects import UvmObject
from tests.support.undo import House


async def test_slots_that_came_went_and_changed_are_as_before(at: House) -> None:
    await at.sets("m0", a=1, b=2, t=(1, "x"))
    before = at.slots()
    await at.sets("m1", a=None, b=3, c=4, t=(1, "y"))
    told = await at.undo("m1")
    assert at.slots() == before
    assert [one["id"] for one in told["missions"]] == ["m1"]
    [touched] = told["objects"]
    assert sorted(touched["parts"]) == ["a", "b", "c", "t"]


async def test_what_others_did_to_other_parts_stays(at: House) -> None:
    await at.sets("m1", a=1)
    await at.sets("m2", b=2)
    await at.undo("m1")
    assert at.slots() == {"b": 2}


async def test_the_undo_is_one_annotated_transaction_and_the_record_says_so(at: House) -> None:
    await at.sets("m1", a=1)
    await at.undo("m1")
    oid = at.image.read(lambda root: root["lobby"].robin._p_oid)
    newest = history.revisions(at.image.db, oid, 2)
    assert [(one["mission"], one["note"]) for one in newest] == [("undo:m1", "UNDO of m1"), ("m1", "COMPLETE by ROBIN")]
    known = at.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m1")))
    assert (known.state, known.result) == ("COMPLETE", {"text": "m1"}), "the ledger is never undone"
    assert (known.undone["with"], known.undone["missions"]) == ("m1", 1)
    record = at.image.read(lambda root: history.revisions(at.image.db, ledger.mission_of(root, "m1")._p_oid, 1))
    assert record[0]["tid"] == newest[0]["tid"]


async def test_undone_twice_is_undone_once(at: House) -> None:
    await at.sets("m1", a=1)
    await at.undo("m1")
    last = at.image.db.lastTransaction()
    assert (await at.undo("m1"))["already"] is True
    await at.undo("m1", redo=True)
    assert (await at.undo("m1", redo=True))["already"] is True
    assert at.slots() == {"a": 1}
    assert at.image.db.lastTransaction() != last


async def test_undo_and_redo_as_often_as_one_likes(at: House) -> None:
    await at.sets("m0", a=0)
    await at.sets("m1", a=1, made=UvmObject(x=1))
    made = at.slots()["made"]._p_oid
    for _ in range(3):
        await at.undo("m1")
        assert at.slots() == {"a": 0}
        await at.undo("m1", redo=True)
        assert at.slots()["a"] == 1
        assert at.slots()["made"]._p_oid == made
        assert at.image.read(lambda root: root["lobby"].robin.made.x) == 1
        assert at.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m1"))).undone is None


async def test_a_part_that_was_changed_again_is_a_conflict_that_names_who_did(at: House) -> None:
    await at.sets("m1", a=1)
    await at.sets("m2", a=2)
    before = at.image.db.lastTransaction()
    with pytest.raises(UndoConflict) as caught:
        await at.undo("m1")
    [conflict] = caught.value.context["conflicts"]
    oid = at.image.read(lambda root: history.oid_of(root["lobby"].robin))
    assert conflict == {"oid": oid, "part": "a", "why": "was changed since", "mission": "m2", "writer": "m2"}
    assert caught.value.context["missions"] == ["m2"]
    assert "by m2" in caught.value.message
    assert "--cascade" in caught.value.message
    assert at.image.db.lastTransaction() == before
