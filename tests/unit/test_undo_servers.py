"""Undo on images behind a server: ZEO's, and PostgreSQL by RelStorage. The tests are those of a file; what differs is where it lies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batos.api.queries import Queries
from batos.image import history, ledger
from tests.support.servers import postgres, zeo  # noqa: F401
from tests.support.undo import House, house
from tests.support.undo_contract import (  # noqa: F401
    test_a_part_that_was_changed_again_is_a_conflict_that_names_who_did,
    test_slots_that_came_went_and_changed_are_as_before,
    test_the_undo_is_one_annotated_transaction_and_the_record_says_so,
    test_undo_and_redo_as_often_as_one_likes,
    test_undone_twice_is_undone_once,
    test_what_others_did_to_other_parts_stays,
)


@pytest.fixture(params=["zeo", "postgres"])
async def at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, request.getfixturevalue(request.param).image()) as opened:
        yield opened


async def test_the_past_is_looked_at_as_in_a_file(at: House) -> None:
    await at.sets("m1", a=1)
    await at.sets("m2", a=2)
    looks = Queries(at.image.db, at.image.snapshot)
    revisions = looks.history("robin", 10)["revisions"]
    assert [one["mission"] for one in revisions][:2] == ["m2", "m1"]
    assert looks.show("robin", revisions[1]["tid"])["slots"]["a"] == 1
    assert looks.diff("robin", revisions[1]["tid"], None)["changes"]
    assert at.image.db.lastTransaction().hex() >= revisions[0]["tid"]
    oid = at.image.read(lambda root: ledger.mission_of(root, "m2")._p_oid)
    assert len(history.revisions(at.image.db, oid, 10)) > 1
