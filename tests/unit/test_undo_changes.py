"""A change that the loop made of itself is taken back: what it wrote, and its record, in one transaction."""

from __future__ import annotations

import pytest

from batos.autotelic import changes
from batos.errors import InvalidInput, UndoConflict, UnknownChange
from batos.image import transaction_undo
from batos.objects import UvmObject
from tests.support.autonomy import EVIDENCE, Proposal
from tests.support.undo import FACET, House, facet, made


async def test_what_it_wrote_is_gone_and_the_record_says_so(at: House) -> None:
    await at.sets("m1", a=1)
    number = await made(at, facet)
    assert at.slots() == {"a": 1, "surprise_facet_": FACET}
    reply = await at.undoing.undo_change(number, "failures rose")
    assert [one["parts"] for one in reply["objects"]] == [["surprise_facet_"]]
    assert at.slots() == {"a": 1}
    told = at.image.read(changes.of, number)
    assert (told["state"], told["reason"], told["comparison"]) == (changes.UNDONE, "failures rose", {"failures": [0, 0]})
    assert at.image.read(changes.watched) is None
    last = at.image.db.lastTransaction()
    assert (await at.undoing.undo_change(number, "again", state=changes.DISABLED))["already"] is True
    assert at.image.db.lastTransaction() == last
    assert at.image.read(changes.of, number)["state"] == changes.UNDONE


async def test_what_was_there_before_is_there_again_and_what_others_did_stays(at: House) -> None:
    await at.sets("m1", prompt="Think.", a=1)
    number = await made(at, lambda root: setattr(root["lobby"].robin, "prompt", "Think twice."))
    await at.sets("m2", a=2)
    await at.undoing.undo_change(number, "slower", state=changes.DISABLED)
    assert at.slots() == {"prompt": "Think.", "a": 2}
    assert at.image.read(changes.of, number)["state"] == changes.DISABLED


async def test_a_dry_run_changes_nothing(at: House) -> None:
    number = await made(at, facet)
    last = at.image.db.lastTransaction()
    assert (await at.undoing.undo_change(number, "", dry=True))["objects"]
    assert at.image.db.lastTransaction() == last


async def test_later_work_on_the_same_part_is_a_conflict_that_is_named(at: House) -> None:
    number = await made(at, facet)
    await at.sets("m1", surprise_facet_="mine")
    with pytest.raises(UndoConflict, match=r"surprise_facet_ of oid:.* by m1\. undo that first") as caught:
        await at.undoing.undo_change(number, "")
    assert caught.value.context["missions"] == ["m1"]
    assert at.image.read(changes.of, number)["state"] == changes.PROMOTED
    await at.undo("m1")
    await at.undoing.undo_change(number, "")
    assert at.slots() == {}


async def test_a_mission_whose_work_a_change_took_on_names_the_change(at: House) -> None:
    await at.sets("m1", prompt="Think.")
    number = await made(at, lambda root: setattr(root["lobby"].robin, "prompt", "Think twice."))
    with pytest.raises(UndoConflict, match=f"by change:{number}.*`batos changes undo {number}` first"):
        await at.undo("m1")
    await at.undoing.undo_change(number, "")
    await at.undo("m1")
    assert at.slots() == {}


async def test_what_was_never_made_cannot_be_undone(at: House) -> None:
    with pytest.raises(UnknownChange):
        await at.undoing.undo_change(1, "")
    number = await at.image.system(changes.propose, Proposal(), EVIDENCE, "")
    await at.undoing.undo_change(number, "not wanted", dry=True)
    assert at.image.read(changes.of, number)["state"] == changes.PROPOSED
    assert (await at.undoing.undo_change(number, "not wanted"))["objects"] == []
    refused = at.image.read(changes.of, number)
    assert (refused["state"], refused["reason"]) == (changes.REFUSED, "not wanted")
    with pytest.raises(InvalidInput, match="change 1 is refused"):
        await at.undoing.undo_change(number, "")


async def test_an_object_that_it_made_is_out_of_reach_after(at: House) -> None:
    number = await made(at, lambda root: setattr(root["lobby"].robin, "made", UvmObject(x=1)))
    await at.undoing.undo_change(number, "")
    assert at.slots() == {}
    revision = at.image.db.history(at.image.read(lambda root: root["lobby"].robin._p_oid), 1)[0]
    assert revision["user_name"] == transaction_undo.UNDO + changes.name_of(number)
