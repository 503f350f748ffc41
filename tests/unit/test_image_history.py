"""What can be asked of objects: by path, by id, over time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from persistent.mapping import PersistentMapping

from batos.errors import ImageError, UnknownTarget
from batos.image import LivingImage, history, ledger
from batos.objects import Intent, Method, Primitive, SlotDict, SlotList, SlotSet, UvmObject


def step(lobby: UvmObject) -> None:
    if "robin" not in lobby._slots:
        lobby.robin = lobby.genesis.derive(name="robin", hand=UvmObject(name="hand"), tags=["a"])


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}", steps=(step,))
    yield image
    await image.close()


async def test_objects_are_found_by_path_oid_and_mission(image: LivingImage) -> None:
    await image.system(ledger.accept, "job:1.2/3", "b", {}, False)
    with image.snapshot() as root:
        lobby = root["lobby"]
        assert history.resolve(root, "lobby") is lobby
        assert history.resolve(root, "robin") is lobby.robin
        assert history.resolve(root, "robin.hand") is history.resolve(root, "robin/hand") is lobby.robin.hand
        assert history.resolve(root, "job:1.2/3").brief == "b"
        oid = history.oid_of(lobby.robin)
        assert oid is not None
        assert history.resolve(root, oid) is history.resolve(root, oid.replace("oid:", "0x")) is lobby.robin


@pytest.mark.parametrize(
    "target", ["nobody", "robin.foot", "robin.name", "robin.hand.x", "oid:0", "oid:ffffff", "0xfffff", "", ".", "robin."]
)
async def test_what_is_not_there_is_named(image: LivingImage, target: str) -> None:
    with image.snapshot() as root, pytest.raises(UnknownTarget) as caught:
        history.resolve(root, target)
    assert repr(target) in caught.value.message
    if target == "nobody":
        assert "there are: genesis, robin, traits" in caught.value.message


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("robin.tags", ": it is data; there are: hand"),
        ("robin.wave_", ": it is an intent; there are: hand"),
        ("robin.hand.x", "; there are none"),
        ("robin.hand.name", ": it is data; there are none"),
        ("robin.hnd", " (did you mean 'hand'?); there are: hand"),
    ],
)
async def test_what_is_no_object_is_said_to_be_what_it_is(image: LivingImage, target: str, told: str) -> None:
    await image.system(lambda root: root["lobby"].robin._slots.__setitem__("wave_", Intent("wave")))
    with image.snapshot() as root, pytest.raises(UnknownTarget) as caught:
        history.resolve(root, target)
    assert caught.value.message == f"no object {target.rpartition('.')[2]!r} on the path {target!r}{told}"


@pytest.mark.parametrize("id", ["robin", "lobby", "robin.hand"])
async def test_no_mission_takes_the_place_of_an_object(image: LivingImage, id: str) -> None:
    await image.system(ledger.accept, id, "b", {}, False)
    with image.snapshot() as root:
        assert not hasattr(history.resolve(root, id), "brief")


async def test_a_shown_object_is_plain(image: LivingImage) -> None:
    with image.snapshot() as root:
        shown = history.show(root["lobby"].robin)
        assert shown["slots"]["name"] == "robin"
        assert shown["slots"]["tags"] == ["a"]
        assert shown["slots"]["parent*"] == {"oid": history.oid_of(root["lobby"].genesis), "class": "UvmObject"}
        assert len(shown["tid"]) == 16
        assert json.loads(json.dumps(shown)) == shown
    assert history.show(UvmObject(x=1)) == {"oid": None, "slots": {"x": 1}, "tid": None}


async def test_revisions_name_their_missions_newest_first(image: LivingImage) -> None:
    oid = image.read(lambda root: root["lobby"].robin._p_oid)
    for i in range(3):
        async with image.unit() as unit:
            unit.root["lobby"].robin.n = i
            unit.note(f"m{i}", f"note {i}")
    found = history.revisions(image.db, oid, 10)
    assert [(r["mission"], r["note"]) for r in found] == [("m2", "note 2"), ("m1", "note 1"), ("m0", "note 0"), ("genesis", "")]
    assert [r["time"] for r in found] == sorted((r["time"] for r in found), reverse=True)
    assert len(history.revisions(image.db, oid, 2)) == 2
    with image.snapshot(at=bytes.fromhex(found[1]["tid"])) as root:
        assert root["lobby"].robin.n == 1


async def test_revisions_of_nothing_and_of_a_storage_without_history(image: LivingImage) -> None:
    import ZODB
    from ZODB.MappingStorage import MappingStorage

    with pytest.raises(UnknownTarget, match="oid:ffff"):
        history.revisions(image.db, b"\0" * 6 + b"\xff\xff", 3)

    class Forgetful(MappingStorage):  # type: ignore[misc]
        def history(self, oid: bytes, size: int = 1) -> Any:
            raise NotImplementedError

    db = ZODB.DB(Forgetful())
    with pytest.raises(ImageError, match="keep_history=1"):
        history.revisions(db, b"\0" * 8, 3)
    db.close()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (1 << 70, 1 << 70), (1.5, 1.5), (float("nan"), "nan"), (float("-inf"), "-inf"),
        ("ü", "ü"), ("x" * 2000, "x" * 2000), ("x" * 2001, "x" * 2000 + "…"), (b"\0\xff", {"base64": "AP8="}),
        (Intent("greet"), {"intent": "greet"}), (Primitive("a.b"), {"primitive": "a.b"}),
        (Method("m", "source"), {"method": "m", "version": 1, "source": "source", "oid": None}),
        ((1, [2]), [1, [2]]), (SlotList([1, SlotDict(k=1)]), [1, {"k": 1}]), (SlotSet({1}), [1]), ({1: 2}, {"1": 2}),
        (SlotDict({1: 2, "1": 3}), {"1 (int)": 2, "1": 3}),
        ({(): 1, "()": 2, "() (tuple)": 3}, {"() (tuple) (tuple)": 1, "()": 2, "() (tuple)": 3}),
        (UvmObject(x=1), {"oid": None, "class": "UvmObject"}), (PersistentMapping(), {"oid": None, "class": "PersistentMapping"}),
        (1 + 2j, "(1+2j)"),
    ],
)  # fmt: skip
def test_plain_values(value: Any, expected: Any) -> None:
    assert history.plain(value) == expected
    json.dumps(history.plain(value), allow_nan=False)


def test_plain_ends_for_what_holds_itself() -> None:
    ring = SlotList()
    ring.append(ring)
    json.dumps(history.plain(ring))
