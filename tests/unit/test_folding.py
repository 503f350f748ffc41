"""Folding: of old missions one line stays; what somebody may still go by stays whole."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from batos.api.queries import Queries
from batos.errors import InvalidInput, MissionFolded, MissionIdTaken
from batos.image import Ended, Folded, LivingImage, journal, ledger, retention, usage_totals
from batos.image.journal import InferenceRecord
from batos.image.mission_index import LINE_BYTES, Line, mark_of, unpack_line
from batos.image.retention import FoldTerms
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.image.usage_totals import CostMeter
from batos.memory import curation
from batos.mind import prompts
from batos.objects import UvmObject

STRETCH = ledger.MILESTONE
ALL = FoldTerms(kept=1, days=0, history_days=0)


def keeper(image: LivingImage, folder: Path, terms: FoldTerms = ALL) -> Upkeep:
    days = {"history_days": 0, "journal_days": 1000}
    return Upkeep(image, CostMeter(image), UpkeepPlan(interval_s=1e6, first_s=1e6, missions=terms, **days), backups=folder / "backups")


def inference(text: str) -> InferenceRecord:
    return InferenceRecord(text.encode(), 0, text, "model", "d", 10, 5, 0.5, 1500.0, "stop", journal.now(), b"")


async def ended(image: LivingImage, first: int, count: int, **options: Any) -> None:
    """Missions m<number>, of which each tenth FAILED."""

    def put(root: Any) -> None:
        for n in range(first, first + count):
            ledger.accept(root, f"m{n}", f"brief {n}", options, True)
            journal.add(root, f"m{n}", inference(f"text {n}"))
            if n % 10:
                ledger.complete(ledger.mission_of(root, f"m{n}"), {"text": f"result {n}"}, UvmObject(said="x" * 2000))
                ledger.settle(root, f"m{n}")
            else:
                ledger.fail(root, f"m{n}", {"code": "deadline", "message": f"late {n}"}, {"selector": "s_"}, True)

    await image.system(put)


async def fold(image: LivingImage, terms: FoldTerms = ALL) -> int:
    await CostMeter(image).fold()
    await image.committer.told()
    return await retention.fold(image, terms)


def whole(image: LivingImage) -> list[int]:
    return image.read(lambda root: [mission.number for mission in ledger.newest_first(root)])  # type: ignore[no-any-return]


def looks(image: LivingImage) -> Queries:
    return Queries(image.db, image.snapshot)


async def test_of_old_missions_a_line_stays_and_the_rest_leaves_with_the_pack(image: LivingImage, tmp_path: Path) -> None:
    await ended(image, 1, 2 * STRETCH)
    cost = image.read(usage_totals.total_spent)
    kept = keeper(image, tmp_path, FoldTerms(kept=10, days=1000, history_days=0))
    before = (await kept.pack())["bytes_after"]
    assert (await kept.retain())["folded"] == 2 * STRETCH - 10
    assert (await kept.retain())["folded"] == 0
    assert whole(image) == list(range(2 * STRETCH, 2 * STRETCH - 10, -1))
    assert image.read(usage_totals.total_spent) == cost
    after = (await kept.pack())["bytes_after"]
    assert (before - after) > 2000 * (2 * STRETCH - 10), "their thoughts are gone"
    assert image.read(lambda root: len(ledger.ledger_of(root).failures)) == 1, "with those that are kept"
    assert image.read(lambda root: len(ledger.ledger_of(root).failures_by_selector)) == 1
    listed = looks(image).missions(None, 1000)["missions"]
    assert [one["id"] for one in listed] == [f"m{n}" for n in range(2 * STRETCH, 0, -1)]
    assert [one.get("folded", False) for one in listed] == [False] * 10 + [True] * (2 * STRETCH - 10)
    assert [one["state"] for one in listed] == ["COMPLETE" if n % 10 else "FAILED" for n in range(2 * STRETCH, 0, -1)]
    failed = looks(image).missions("FAILED", 1000)["missions"]
    assert [one["id"] for one in failed] == [f"m{n}" for n in range(2 * STRETCH // 10 * 10, 0, -10)]
    assert len(looks(image).missions("COMPLETE", 7)["missions"]) == 7


async def test_a_folded_mission_is_still_the_same_mission(image: LivingImage) -> None:
    message = json.dumps({"target": "robin", "selector": "x_", "args": [], "kwargs": {}})
    await ended(image, 1, 9)
    await ended(image, 10, STRETCH, message=message)
    assert await fold(image) == STRETCH - 1 + 1
    new, record = await image.system(ledger.accept, "m1", "brief 1", {}, True)
    assert (new, record.state, record.folded, record.result["text"]) == (False, "COMPLETE", True, "result 1")
    new, record = await image.system(ledger.accept, "m10", "brief 10", {"message": message}, True)
    assert (new, record.state, record.error) == (False, "FAILED", {"code": "deadline", "message": "late 10"})
    for id, brief, options in (("m1", "another", {}), ("m1", "brief 1", {"message": message}), ("m10", "brief 10", {})):
        with pytest.raises(MissionIdTaken, match=f"'{id}' names another mission already"):
            await image.system(ledger.accept, id, brief, options, True)
    assert image.read(ledger.counts)["accepted"] == STRETCH + 9
    shown = looks(image).show("m1")["record"]
    assert (shown["folded"], shown["brief"], shown["cost"][0]["prompt_tokens"], shown["cost"][0]["model_ms"]) == (True, "brief 1", 10, 2000)
    with pytest.raises(MissionFolded, match="so old that only one line of it is kept"):
        await image.system(ledger.rate, "m1", 1, "")
    with pytest.raises(InvalidInput):
        looks(image).failures("m10", None, None, 9)


async def test_what_somebody_may_still_go_by_stays_whole(image: LivingImage) -> None:
    terms = FoldTerms(kept=2, days=1000, history_days=1, conversation=2)
    await ended(image, 1, STRETCH - 3)
    await image.system(ledger.rate, "m5", 1, "good")
    await image.system(ledger.accept, "paused", "b", {"context": "m9"}, True)
    await ended(image, STRETCH - 1, 1, message="{}", context="m7")
    await ended(image, STRETCH, 2)
    count = await fold(image, terms)
    assert whole(image) == [STRETCH + 1, STRETCH, STRETCH - 1, STRETCH - 2, 9, 5], "newest two, a message, a paused one, followed, rated"
    assert count == STRETCH - 3 - 2
    await image.system(ledger.fail, "paused", {"code": "cancelled", "message": ""}, {}, True)
    await ended(image, STRETCH + 2, STRETCH)
    await fold(image)
    assert whole(image) == [2 * STRETCH + 1, *range(2 * STRETCH, 2 * STRETCH, -1), 5]


async def test_a_conversation_is_kept_as_far_back_as_it_is_shown(image: LivingImage) -> None:
    await ended(image, 1, 1)
    for n in range(2, 7):
        await ended(image, n, 1, context=f"m{n - 1}")
    await ended(image, 7, STRETCH)
    await image.system(ledger.accept, "next", "b", {"context": "m6"}, False)
    await fold(image, FoldTerms(kept=1, days=0, history_days=0, conversation=3))
    assert [n for n in whole(image) if n < 7] == [6, 5, 4]

    def said(root: Any) -> list[tuple[str, str]]:
        return list(prompts.conversation_turns(root, ledger.mission_of(root, "next"), missions=10, chars=10_000))

    assert image.read(said) == [(f"brief {n}", f"result {n}") for n in (3, 4, 5, 6)], "of the last one before, what is left"


async def test_a_rating_or_a_follower_that_comes_meanwhile_is_heeded(image: LivingImage) -> None:
    await ended(image, 1, STRETCH + 1)
    await CostMeter(image).fold()
    await image.committer.told()
    followed = image.read(retention.followed_by_the_kept, ALL, time.time())
    found = image.read(retention.due_missions, 0, ALL, retention.everything, time.time(), followed)
    await image.system(ledger.rate, "m3", 1, "")
    await image.system(ledger.accept, "new", "b", {"context": "m4"}, False)
    assert await image.system(retention.take_lines, found.lines, found) == STRETCH - 2
    assert whole(image)[1:] == [STRETCH + 1, 4, 3]


async def test_what_other_parts_are_not_done_with_is_not_folded(image: LivingImage) -> None:
    await ended(image, 1, STRETCH + 1)
    assert await retention.fold(image, ALL) == 0, "what it cost is not in the total"
    await CostMeter(image).fold()
    await image.committer.told()
    assert await retention.fold(image, ALL, lambda root: (9, (3,))) == 8
    assert [n for n in whole(image) if n < 11] == [10, 3]


async def test_missions_are_found_by_number_where_many_are_folded(image: LivingImage) -> None:
    await ended(image, 1, 5 * STRETCH)
    for n in (7, 300, 301, 1000):
        await image.system(ledger.rate, f"m{n}", 1, "")
    await fold(image, FoldTerms(kept=STRETCH, days=1000, history_days=0))
    left = [n for n in whole(image)[::-1] if n <= 4 * STRETCH]
    assert left == [7, 300, 301, 1000]
    for after, count in ((0, 2000), (7, 300), (299, 1), (302, 500), (0, 7)):
        found = image.read(lambda root, a=after, c=count: [m.number for m in ledger.numbered(root, a, c)])
        assert found == [n for n in (*left, *range(4 * STRETCH + 1, 5 * STRETCH + 1)) if after < n <= after + count]
    await ended(image, 5 * STRETCH + 1, 3)
    assert whole(image)[:3] == [5 * STRETCH + 3, 5 * STRETCH + 2, 5 * STRETCH + 1]


async def test_an_image_of_an_earlier_version_gets_the_index_in_pieces(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await ended(image, 1, STRETCH + 50)

    def strip(root: Any) -> None:
        del root["ledger"].ended, root["ledger"].folded
        root["ledger"].pending.insert("m60")  # as if it had not been settled

    await image.system(strip)
    at = image.read(lambda root: root._p_jar.db().lastTransaction())
    await image.close()
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    failed = [f"m{n}" for n in range((STRETCH + 50) // 10 * 10, 0, -10)]
    assert [one["id"] for one in looks(image).missions("FAILED", 99)["missions"]] == failed
    await ended(image, STRETCH + 51, 3)
    await retention.complete_index(image)
    assert image.read(lambda root: ledger.ledger_of(root).ended.is_whole)
    assert [one["id"] for one in looks(image).missions("FAILED", 99)["missions"]] == failed
    assert [one["id"] for one in looks(image).missions("FAILED", 99, at.hex())["missions"]] == failed, "as it was then"
    indexed = image.read(lambda root: len(ledger.ledger_of(root).ended.complete) + len(ledger.ledger_of(root).ended.failed))
    assert indexed == STRETCH + 53
    await image.close()


async def test_missions_that_wait_for_ever_hold_up_no_others(image: LivingImage) -> None:
    def wait(root: Any) -> None:
        for n in range(200):
            ledger.accept(root, f"asks{n}", "which one?", {}, True)

    await image.system(wait)
    await ended(image, 201, 2 * STRETCH - 199)
    assert await fold(image) == 2 * STRETCH - 200
    assert whole(image) == [2 * STRETCH + 1, *range(200, 0, -1)]


async def test_an_index_that_was_held_up_at_the_start_is_completed_before_missions_are_folded(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await ended(image, 1, STRETCH + 50)

    def strip(root: Any) -> None:
        del root["ledger"].ended, root["ledger"].folded

    await image.system(strip)
    await image.close()
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    assert (await keeper(image, tmp_path).retain())["folded"] == STRETCH
    await image.close()


async def test_a_list_by_state_reads_no_other_missions(image: LivingImage) -> None:
    await ended(image, 1, 3 * STRETCH)
    read: list[str] = []
    activate = ledger.describe

    def listed(root: Any) -> list[str]:
        root._p_jar.cacheMinimize()
        found = [one.id for one in ledger.listed(root, "FAILED")]
        held = (root._p_jar._cache.get(one) for one, _ in root._p_jar._cache.items())
        read.extend(one.id for one in held if isinstance(one, UvmObject) and one._p_changed is not None and "accepted" in one.__dict__)
        return found

    assert activate is ledger.describe
    assert set(read) <= set(image.read(listed))
    assert read


async def test_a_mission_is_in_the_list_of_its_state_at_once(image: LivingImage) -> None:
    await image.system(ledger.accept, "m1", "b", {}, True)
    async with image.unit() as unit:
        ledger.complete(ledger.mission_of(unit.root, "m1"), {"text": ""}, None)
    assert [one["id"] for one in looks(image).missions("COMPLETE", 9)["missions"]] == ["m1"]
    await image.system(ledger.settle, "m1")
    assert [one["id"] for one in looks(image).missions("COMPLETE", 9)["missions"]] == ["m1"]


@pytest.mark.parametrize("id", ["a", "3064a590-a23c-4f4c-8663-f23ddc3c5f9c", "x" * 128])
@pytest.mark.parametrize("brief", ["short", "b" * 5000, '"\\\n' * 900, "猫が好きです。" * 100, "\ud800" * 90, "😀" * 300, "\x00\x1f" * 99])
@pytest.mark.parametrize("came", ["", "ok", "r" * 5000])
def test_a_line_is_short_whatever_is_in_it(id: str, brief: str, came: str) -> None:
    line = Line(123_456, id, "FAILED", "client", 1_800_000_000, 90_000, (64, 90_000, 9000, 700), mark_of(brief, None), brief, came)
    data = line.packed()
    assert len(data) <= max(LINE_BYTES, len(id) + 110)
    back = unpack_line(data, "FAILED")
    assert back[:8] == line[:8]
    for was, now in ((brief, back.brief), (came, back.came)):
        assert now == was or (not now and len(id) > 100) or was.encode("utf-8", "replace").startswith(now[:-1].encode("utf-8", "replace"))
    if len(id) < 50:
        assert len(back.brief) > 5 or back.brief == brief


async def test_what_a_model_said_of_what_is_forgotten_goes_from_the_line_too(image: LivingImage) -> None:
    await ended(image, 1, STRETCH + 1)
    await fold(image)
    await image.system(curation.blank, "m7")
    assert image.read(lambda root: (ledger.record_of(root, "m7").result["text"], ledger.record_of(root, "m7").brief)) == (
        "",
        "brief 7",
    )
    assert image.read(lambda root: len(ledger.ledger_of(root).folded)) == STRETCH


async def test_a_folded_mission_is_no_object_any_more_and_that_is_said(image: LivingImage) -> None:
    await ended(image, 1, STRETCH + 1)
    await fold(image)
    for look in (looks(image).ls, lambda id: looks(image).history(id, 9)):
        with pytest.raises(MissionFolded, match="only one line of it is kept"):
            look("m7")


async def test_a_kill_between_two_batches_loses_nothing(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await ended(image, 1, 2 * STRETCH)
    await CostMeter(image).fold()
    await image.committer.told()
    work = asyncio.ensure_future(retention.fold(image, ALL))
    while not image.read(lambda root: len(ledger.ledger_of(root).folded)):
        await asyncio.sleep(0)
    work.cancel()
    await asyncio.wait([work])
    await image.close()
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    ids = [f"m{n}" for n in range(2 * STRETCH, 0, -1)]
    assert [one["id"] for one in looks(image).missions(None, 1000)["missions"]] == ids
    some = image.read(lambda root: len(ledger.ledger_of(root).folded))
    assert some > 0
    assert await fold(image) == 2 * STRETCH - 1 - some
    assert [one["id"] for one in looks(image).missions(None, 1000)["missions"]] == ids
    await image.close()


def test_the_classes_are_stored_under_stable_names() -> None:
    assert {Ended.__module__, Folded.__module__} == {"batos.image"}
