"""Effects of old missions: the index stays bounded, texts go, doubts stay; failures and undos name what stands in the world."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.image import LivingImage, effects, ledger, retention
from batos.image.effects import ACTS, DONE, FAILED, IN_DOUBT, INTENDED, READS, EffectRecord
from batos.image.retention import FoldTerms
from batos.image.usage_totals import CostMeter


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    opened = await LivingImage.open(f"file://{tmp_path / 'image.fs'}")
    yield opened
    await opened.close()


def effect(key: str, **fields: Any) -> EffectRecord:
    return EffectRecord(
        **{"key": key, "tool": "shop.buy", "kind": ACTS, "arguments": '{"n":1}', "occurrence": 0, "state": INTENDED, "at": 1.0, **fields}
    )


async def missions(image: LivingImage, count: int) -> None:
    """Missions m1 to m<count>, each with an effect k<number> on the target `shelf` that ended."""

    def put(root: Any) -> None:
        for n in range(1, count + 1):
            ledger.accept(root, f"m{n}", "brief", {}, True)
            effects.intend(root, f"m{n}", effect(f"k{n}", target="shelf"))
            effects.end(root, f"m{n}", effect(f"k{n}", target="shelf", state=DONE, result='"bought"'))
            ledger.complete(ledger.mission_of(root, f"m{n}"), {"text": "done"}, None)
            ledger.settle(root, f"m{n}")

    await image.system(put)


async def fold(image: LivingImage) -> int:
    await CostMeter(image).fold()
    await image.committer.told()
    return await retention.fold(image, FoldTerms(kept=1, days=0, history_days=0))


def index(image: LivingImage) -> tuple[list[int], list[str], list[str]]:
    def look(root: Any) -> tuple[list[int], list[str], list[str]]:
        found = effects.index_of(root)
        assert found is not None
        return list(found.missions), list(found.open), list(found.targets)

    return image.read(look)


async def test_effects_of_folded_missions_leave_the_index(image: LivingImage) -> None:
    count = 2 * ledger.MILESTONE
    await missions(image, count)
    assert len(index(image)[0]) == count
    folded = await fold(image)
    assert folded >= ledger.MILESTONE - 1
    assert len(index(image)[0]) == count - folded
    kept = [record.key for _, record in image.read(lambda root: list(effects.recent(root, count)))]
    assert kept == [f"k{n}" for n in range(count, folded, -1)]
    assert image.read(effects.last_on, "shelf") == f"k{count}"


async def test_a_target_goes_with_the_last_effect_on_it(image: LivingImage) -> None:
    await missions(image, 4)
    await image.system(lambda root: [effects.forget(root, ledger.mission_of(root, f"m{n}")) for n in (1, 2)])
    assert index(image)[2] == ["shelf"]
    await image.system(lambda root: effects.forget(root, ledger.mission_of(root, "m4")))
    assert image.read(effects.last_on, "shelf") == ""
    assert index(image) == ([3], [], [])


async def test_a_mission_that_left_a_doubt_is_never_folded_away(image: LivingImage) -> None:
    def doubt(root: Any) -> None:
        ledger.accept(root, "doubt", "brief", {}, True)
        effects.intend(root, "doubt", effect("open"))
        effects.end(root, "doubt", effect("open", state=IN_DOUBT))
        ledger.fail(root, "doubt", {"code": "x", "message": "y"}, {}, True)

    await image.system(doubt)
    await missions(image, 2 * ledger.MILESTONE)
    await fold(image)
    assert [mission for mission, _ in image.read(effects.in_doubt)] == ["doubt"]
    await image.system(effects.settle, "open", effects.HAPPENED, "its user")
    assert await fold(image) == 1
    assert image.read(effects.in_doubt) == []
    assert image.read(lambda root: ledger.ledger_of(root).folded.get("doubt")) is not None
    assert 1 not in index(image)[0]


async def test_an_effect_that_is_tried_again_has_one_place_in_the_index(image: LivingImage) -> None:
    await image.system(ledger.accept, "m1", "brief", {}, True)
    for attempt in range(1, 4):
        await image.system(effects.intend, "m1", effect("k1", attempts=attempt, target="shelf"))
        await image.system(effects.end, "m1", effect("k1", attempts=attempt, state=IN_DOUBT, target="shelf"))
    assert [len(part) for part in index(image)] == [1, 1, 1]
    assert image.read(effects.last_on, "shelf") == "k1"


async def test_texts_of_old_effects_go_and_those_in_doubt_stay(image: LivingImage) -> None:
    def put(root: Any) -> None:
        ledger.accept(root, "m1", "brief", {}, True)
        effects.intend(root, "m1", effect("done"))
        effects.end(root, "m1", effect("done", state=DONE, result='"secret"'))
        effects.intend(root, "m1", effect("open"))
        ledger.fail(root, "m1", {"code": "x", "message": "y"}, {}, True)

    await image.system(put)
    assert (await retention.retain(image, -1.0))["dropped"] == 1
    done, open_one = image.read(effects.load, "m1")
    assert (done.result, done.arguments, done.state, done.tool) == (None, "{}", DONE, "shop.buy")
    assert open_one.arguments == '{"n":1}'


async def test_a_final_failure_names_what_stands_in_the_world(image: LivingImage) -> None:
    def put(root: Any) -> None:
        ledger.accept(root, "m1", "brief", {}, True)
        effects.end(root, "m1", effect("read", kind=READS, state=DONE))
        effects.intend(root, "m1", effect("no"))
        effects.end(root, "m1", effect("no", state=FAILED))
        effects.intend(root, "m1", effect("yes", undo="shop.cancel", at=2.0))
        effects.end(root, "m1", effect("yes", undo="shop.cancel", at=2.0, state=DONE))
        effects.intend(root, "m1", effect("maybe", at=3.0))

    await image.system(put)
    await image.system(ledger.fail, "m1", {"code": "x", "message": "y"}, {"selector": "s_"}, False)
    await image.system(ledger.fail, "m1", {"code": "x", "message": "y"}, {"selector": "s_"}, True)
    first, final = image.read(ledger.failures_of, "m1")
    assert first["context"] == {"selector": "s_"}
    assert final["context"] == {
        "selector": "s_",
        "effects": [
            {"key": "maybe", "tool": "shop.buy", "state": INTENDED, "at": 3.0},
            {"key": "yes", "tool": "shop.buy", "state": DONE, "at": 2.0, "compensation": "shop.cancel"},
        ],
    }
    assert len(image.read(effects.standing, "m1", 1)) == 1
