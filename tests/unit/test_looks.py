"""Looks into the image: as of a moment, what changed between two, what an object holds; and on a file without a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from batos.api.queries import Queries
from batos.autotelic import schema
from batos.cli import main
from batos.cli.client import moment
from batos.config import MIB
from batos.errors import HistoryGone, ImageError, InvalidInput, UnknownMission, UnknownTarget
from batos.image import LivingImage, history, ledger
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.objects import Intent, Method, Primitive, UvmObject
from tests.support.daemon import END_S
from tests.support.image import change, step


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}", steps=(step,))
    yield image
    await image.close()


def looks(image: LivingImage) -> Queries:
    return Queries(image.db, image.snapshot)


async def test_an_object_is_shown_as_it_was_at_a_revision_and_at_a_time(image: LivingImage) -> None:
    first = await change(image, "m1", n=1)
    between = time.time()
    await change(image, "m2", n=2)
    look = looks(image)
    assert look.show("robin")["slots"]["n"] == 2
    assert look.show("robin", first)["slots"]["n"] == look.show("robin", between)["slots"]["n"] == 1
    assert look.show("robin", time.time() + 1e6)["slots"]["n"] == 2, "the future is not known: what is known last"


async def test_each_revision_of_history_can_be_looked_at(image: LivingImage) -> None:
    for n in range(1, 4):
        await change(image, f"m{n}", n=n)
    look = looks(image)
    seen = [look.show("robin", one["tid"])["slots"]["n"] for one in look.history("robin", 10)["revisions"]]
    assert seen == [3, 2, 1, 0]


async def test_a_mission_is_shown_as_it_stood_then(image: LivingImage) -> None:
    await image.system(ledger.accept, "job", "the brief", {}, True, mission="job")
    then = image.db.lastTransaction().hex()
    await image.system(ledger.fail, "job", {"code": "x", "message": "y"}, {}, True, mission="job")
    look = looks(image)
    assert look.show("job", then)["record"]["state"] == "ACCEPTED"
    assert look.show("job")["record"]["state"] == "FAILED"


async def test_a_mission_under_way_is_shown_in_the_state_that_it_is_in(image: LivingImage) -> None:
    """As `status` and `missions` tell it; on record it is ACCEPTED until it ends."""
    await image.system(ledger.accept, "job", "the brief", {}, True, mission="job")
    look = Queries(image.db, image.snapshot, lambda id, recorded: {"job": "DELEGATING"}.get(id, recorded))
    assert look.show("job")["record"]["state"] == look.missions(None, 1)["missions"][0]["state"] == "DELEGATING"
    assert look.show("job", image.db.lastTransaction().hex())["record"]["state"] == "ACCEPTED"


@pytest.mark.parametrize("at", ["zz", "", "00", "0" * 15, 1e300, -1e300, 1.8e18])
async def test_what_is_no_moment_is_refused(image: LivingImage, at: float | str) -> None:
    with pytest.raises(InvalidInput, match="not a valid moment"):
        looks(image).show("robin", at)


@pytest.mark.parametrize("at", [253402300799.0, 250800000000.0, 4e9])  # the ends of the years 9999 and 9917
async def test_a_far_future_is_the_present(image: LivingImage, at: float) -> None:
    assert looks(image).show("robin", at)["tid"] == looks(image).show("robin")["tid"]


@pytest.mark.parametrize("at", [0.0, 1.0, "0000000000000001"])
async def test_before_there_was_an_image(image: LivingImage, at: float | str) -> None:
    with pytest.raises(HistoryGone, match=r"the image did not exist yet at .*; it began at 20"):
        looks(image).show("robin", at)


async def test_before_the_last_pack_nothing_is_guessed(image: LivingImage, tmp_path: Path) -> None:
    first = await change(image, "m1", n=1)
    await change(image, "m2", n=2)

    upkeep = Upkeep(image, None, UpkeepPlan(0, 1, interval_s=1, first_s=1), backups=tmp_path)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    async with asyncio.timeout(END_S):
        await upkeep.pack(0)
    with pytest.raises(HistoryGone, match="last pack"):
        looks(image).show("robin", first)
    assert looks(image).show("robin")["slots"]["n"] == 2


async def test_a_storage_without_history_is_refused_with_the_remedy(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(image.db), "supportsUndo", lambda db: False)
    look, refusals = looks(image), []
    for ask in (lambda: look.show("robin", 1.0), lambda: look.diff("robin", 1.0, None), lambda: look.ls(None, 1.0)):
        with pytest.raises(ImageError, match="keep_history=1") as caught:
            ask()
        refusals.append(caught.value)
    assert len(refusals) == 3
    assert look.show("robin")["slots"]["n"] == 0


async def test_a_difference_names_what_came_what_went_and_what_changed(image: LivingImage) -> None:
    a = await change(image, "m1", n=1, gone="x", way=Method("way", "def way(self): pass"))
    b = await change(image, "m2", n=2, gone=None, came=(1, 2), way=Method("way", "def way(self): return 1"), tags=["a", "b"])
    told = looks(image).diff("robin", a, b)
    assert (told["a"]["mission"], told["b"]["mission"], told["b"]["note"]) == ("m1", "m2", "COMPLETE by m2")
    assert (told["a"]["tid"], told["b"]["tid"]) == (a, b)
    changed = {one["slot"]: one for one in told["changes"]}
    assert list(changed) == ["came", "gone", "n", "tags", "way"]
    assert changed["n"] == {"slot": "n", "before": 1, "after": 2}
    assert changed["gone"] == {"slot": "gone", "before": "x"}
    assert changed["came"] == {"slot": "came", "after": [1, 2]}
    assert changed["tags"] == {"slot": "tags", "before": ["a"], "after": ["a", "b"]}
    assert changed["way"]["after"]["source"] == "def way(self): return 1"
    assert looks(image).diff("robin", b, None)["changes"] == []
    assert looks(image).diff("robin", b, a)["changes"][2] == {"slot": "n", "before": 2, "after": 1}
    json.dumps(told)


async def test_a_difference_in_a_container_is_seen_though_its_owner_was_not_written(image: LivingImage) -> None:
    a = image.db.lastTransaction().hex()
    async with image.unit() as unit:
        unit.root["lobby"].robin.tags.append("b")
    assert looks(image).diff("robin", a, None)["changes"] == [{"slot": "tags", "before": ["a"], "after": ["a", "b"]}]


async def test_a_difference_past_what_is_shown_of_a_text_is_one(image: LivingImage) -> None:
    a = await change(image, "m1", text="x" * 30_000 + "a")
    await change(image, "m2", text="x" * 30_000 + "b")
    assert [one["slot"] for one in looks(image).diff("robin", a, None)["changes"]] == ["text"]


async def test_a_difference_from_before_it_was_there_and_after_it_was_gone(image: LivingImage) -> None:
    before = image.db.lastTransaction().hex()
    async with image.unit() as unit:
        unit.root["lobby"].hand = UvmObject(x=1)
    there = image.db.lastTransaction().hex()
    async with image.unit() as unit:
        del unit.root["lobby"]._slots["hand"]
    look = looks(image)
    told = look.diff("hand", before, there)
    assert told["a"]["tid"] is None
    assert told["changes"] == [{"slot": "x", "after": 1}]
    with pytest.raises(UnknownTarget, match="'foot'"):
        look.diff("foot", before, there)


async def test_ls_tells_what_there_is_and_of_what_kind(image: LivingImage) -> None:
    await change(image, "m", way=Method("way", "def way(self): pass"), hope=Intent("do good"), act=Primitive("a.b"), hand=UvmObject(x=1))
    then = image.db.lastTransaction().hex()
    await change(image, "m", hand=None)
    look = looks(image)
    told = {one["name"]: one for one in look.ls("robin", then)["entries"]}
    kinds = {name: one["kind"] for name, one in told.items()}
    assert kinds == {
        "parent*": "parent", "act": "primitive", "comment": "data", "hand": "object", "hope": "intent", "n": "data", "name": "data",
        "tags": "data", "way": "method",
    }  # fmt: skip
    assert told["way"]["about"] == "version 1"
    assert told["tags"]["about"] == '["a"]'
    assert look.show(told["hand"]["oid"], then)["slots"] == {"x": 1}
    assert "hand" not in {one["name"] for one in look.ls("robin")["entries"]}
    lobby = {one["name"]: one for one in look.ls(None)["entries"]}
    assert lobby["robin"]["about"] == "I am ROBIN."
    with image.snapshot() as root:
        assert {one["name"]: one["kind"] for one in look.ls("traits")["entries"]}["mission"] == "object"
        assert look.ls(None)["oid"] == look.show("lobby")["oid"]
        assert root["lobby"].robin.n == 0


async def test_names_that_are_not_there_have_the_nearest_beside_them(image: LivingImage) -> None:
    for number in range(60):
        await image.system(ledger.accept, f"party-{number}", "b", {}, False)
    with pytest.raises(UnknownTarget, match="did you mean 'robin'"):
        looks(image).show("robbin")
    with pytest.raises(UnknownMission, match="did you mean 'party-"):
        image.read(ledger.mission_of, "party-1x")
    with pytest.raises(UnknownMission, match="did you mean 'party-59'"):
        image.read(ledger.mission_of, "parti-59")
    with pytest.raises(UnknownMission) as caught:
        image.read(ledger.mission_of, "zzz")
    assert "did you mean" not in caught.value.message


# --- moments as people write them

NOW = time.mktime((2026, 5, 31, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-30", NOW - 12 * 3600),  # the end of the day
        ("2026-05-31 11:59", NOW),  # of the minute
        ("11:59", NOW),
        ("2026-05-31T11:59:58", NOW - 1),  # of the second, as `history` shows it
        ("11:59:58.5", NOW - 1.5),
        ("2026-05-31 10", NOW - 3600), ("20260530", NOW - 12 * 3600), ("2026-W21", NOW - 6.5 * 86400), ("2026-05-31T115958", NOW - 1),
        ("10 mins ago", NOW - 600), ("2 hours ago", NOW - 7200), ("1 hour", NOW - 3600), ("1 week ago", NOW - 7 * 86400),
        (" 2h ", NOW - 7200),
        ("10 min ago", NOW - 600), ("10m", NOW - 600), ("2h", NOW - 7200), ("1.5 d ago", NOW - 1.5 * 86400), ("30s", NOW - 30),
    ],
)  # fmt: skip
def test_a_time_is_the_last_instant_of_what_it_names(text: str, expected: float) -> None:
    found = moment(text, lambda: NOW)
    assert isinstance(found, float)
    assert abs(found - expected) < 0.001


def test_a_zone_and_a_revision_and_now() -> None:
    assert moment("2026-05-31T10:00:00.5+00:00") == 1780221600.5
    assert moment("03f0b3a1c2d4e5f6") == "03f0b3a1c2d4e5f6"
    assert moment("now") is None
    assert moment(None) is None


@pytest.mark.parametrize("text", ["9999-12-31", "9999-12-31 23:59", "9999-12-31 23:59:59", "9999-12-31T23:59:59.9+00:00", "9998-01-01"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "UTC", "Pacific/Niue"])
def test_the_end_of_all_years_is_a_time(text: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with _zone(zone, monkeypatch):
        found = moment(text)
        assert isinstance(found, float)
        assert 253e9 < found < 254e9


@pytest.mark.parametrize("text", ["0001-01-01", "0001-01-01 00:00", "1969-12-30", "99999999999 d ago", "1000000d"])
def test_before_all_images_is_a_time_at_which_there_was_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with _zone("Europe/Berlin", monkeypatch):
        assert moment(text) == 0.0


def test_an_hour_that_there_is_twice_ends_with_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    with _zone("Europe/Berlin", monkeypatch):
        found = moment("2026-10-25 02:30")
        assert isinstance(found, float)
        assert abs(found - moment("2026-10-25T01:31+00:00") + 60) < 0.001  # type: ignore[operator]


def test_a_year_of_two_digits_is_asked_for_with_four() -> None:
    for text in ("24-05-31", "31.05.24", "05/31/24"):
        with pytest.raises(typer.BadParameter, match="four digits"):
            moment(text)


@contextlib.contextmanager
def _zone(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("text", ["yesterday", "", "25:00", "2026-13-01", "10 fortnights", "-5m", "03f0"])
def test_what_is_no_time_says_how_to_write_one(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="10 min ago"):
        moment(text)


# --- on a file, where no daemon runs


def test_the_reading_verbs_look_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "i.fs"

    async def made() -> str:
        image = await LivingImage.open(f"file://{path}", steps=(step,))
        first = await change(image, "m1", n=1)
        await change(image, "m2", n=2)
        await image.system(ledger.accept, "job", "the brief", {}, True, mission="job")
        await image.system(ledger.fail, "job", {"code": "x", "message": "y"}, {}, True, mission="job")
        await image.close()
        return first

    first = asyncio.run(made())
    before = path.read_bytes()

    def batos(*words: str) -> tuple[int, str]:
        code = main([*words, "--image", str(path)])
        return code, capsys.readouterr().out

    assert batos("show", "robin")[0] == 0
    assert json.loads(batos("show", "robin", "--at", first, "--json")[1])["slots"]["n"] == 1
    assert batos("history", "robin")[1].count("COMPLETE by m") == 2
    assert first in batos("history", "robin")[1]
    code, out = batos("diff", "robin", first)
    assert code == 0
    assert "-1\n+2\n" in out
    assert "m1" in out
    assert batos("diff", "robin", first, first)[0] == 1
    assert "I am ROBIN." in batos("ls")[1]
    assert "the brief" in batos("missions")[1]
    assert "x: y" in batos("failures")[1]
    assert batos("show", "robbin")[0] == 4
    assert batos("show", "robin", "--at", "1970-01-02")[0] == 4
    assert batos("diff", "robin", "now")[0] == 2
    assert path.read_bytes() == before
    assert main(["show", "robin", "--image", str(tmp_path / "none.fs")]) == 4
    assert "there is no image" in capsys.readouterr().err
    assert not (tmp_path / "none.fs").exists()


async def test_a_file_is_looked_into_beside_the_daemon_that_has_it(image: LivingImage, tmp_path: Path) -> None:
    from batos.cli.client import into_file

    await change(image, "m1", n=1)
    assert into_file(str(tmp_path / "i.fs"), lambda look: look.show("robin"))["slots"]["n"] == 1
    await change(image, "m2", n=2)
    assert looks(image).show("robin")["slots"]["n"] == 2


def method(source: str = "def twice_(self, n):\n    return n * 2\n", **more: Any) -> Method:
    return Method("twice_", source, parameters=("self", "n"), contract={}, provenance={"mission": "m1", "model": "robin:x"}, **more)


async def test_the_methods_of_the_image_are_listed_now_and_as_they_were(image: LivingImage) -> None:
    before = await change(image, "m0", n=1)
    await image.system(lambda root: schema.install(root["lobby"]))
    await change(image, "m1", twice_=method())
    async with image.unit() as unit:  # an object that no path leads to, known from what the senses noted
        lost = unit.root["lobby"].genesis.derive(twice_=method())
        unit.root["lost"] = lost
        unit.note("m2", "COMPLETE")
    oid = image.read(lambda root: history.oid_of(root["lost"]))
    look = looks(image)
    row = {"holder": "robin", "selector": "twice_", "version": 1, "mission": "m1", "model": "robin:x", "intact": True}
    [told] = look.methods()["methods"]
    assert {name: told[name] for name in row} == row
    assert "runs" not in told
    await image.system(
        lambda root: root["lobby"].autotelic.usage.methods.update({f"{oid} twice_": (1.0, 2.0, 7), "oid:fffff x_": (1.0, 2.0, 1)})
    )
    assert [(one["holder"], one.get("runs")) for one in look.methods()["methods"]] == [(oid, 7), ("robin", None)]
    assert look.methods("robin")["methods"][0]["oid"] == told["oid"]
    assert look.methods("genesis")["methods"] == []
    assert look.methods("robin", before)["methods"] == []


async def test_a_list_of_missions_has_the_beginnings_of_long_briefs(image: LivingImage) -> None:
    briefs = {"a": "b" * 65_536, "b": "é" * 500, "c": "short"}
    for id, brief in briefs.items():
        await image.system(ledger.accept, id, brief, {}, False, mission=id)
    assert {one["id"]: one["brief"] for one in looks(image).missions(None, 9)["missions"]} == {**briefs, "a": "b" * 500 + "…"}


async def test_a_list_of_failures_ends_where_it_becomes_too_large(image: LivingImage) -> None:
    await image.system(ledger.accept, "m", "b", {}, False, mission="m")
    for size in (2 * MIB, 3 * MIB, 1, 5 * MIB):
        await image.system(ledger.fail, "m", {"code": "failed", "message": "x" * size}, {}, False, mission="m")

    def told(limit: int) -> list[Any]:
        reply = looks(image).failures(None, None, None, limit)
        return [len(one["error"]["message"]) for one in reply["failures"]] + (["more"] if reply.get("more") else [])

    assert told(9) == [5 * MIB, "more"], "one at least"
    assert told(1) == [5 * MIB]
    await image.system(ledger.fail, "m", {"code": "failed", "message": "x"}, {}, False, mission="m")
    assert told(9) == [1, "more"]
    for _ in range(2):
        await image.system(ledger.fail, "m", {"code": "failed", "message": "x" * MIB}, {}, False, mission="m")
    assert told(9) == [MIB, MIB, 1, "more"]
    assert told(3) == [MIB, MIB, 1]


async def test_missions_failures_and_methods_of_a_moment(image: LivingImage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = await change(image, "m1", twice_=method())
    await image.system(ledger.accept, "m2", "a brief", {}, False)
    async with image.unit() as unit:
        robin = unit.root["lobby"].robin
        robin._slots["twice_"] = method("def twice_(self, n):\n    return n + n\n", previous=robin._slots["twice_"])
        unit.note("m3", "COMPLETE")
    look = looks(image)
    assert [one["id"] for one in look.missions(None, 9)["missions"]] == ["m2"]
    assert look.missions(None, 9, first)["missions"] == look.failures(None, None, None, 9, first)["failures"] == []
    assert len(look.method("robin", "twice_")["versions"]) == 2
    assert [one["version"] for one in look.method("robin", "twice_", first)["versions"]] == [1]
    flags = ["--image", str(tmp_path / "i.fs")]

    def batos(*words: str, code: int = 0) -> str:
        assert main([*words, *flags]) == code
        return capsys.readouterr().out

    shown = await asyncio.to_thread(batos, "at", first, "method", "robin", "twice_")
    assert "n * 2" in shown
    told = json.loads(await asyncio.to_thread(batos, "at", first, "--json"))
    assert (told["type"], told["at"], told["missions"]) == ("at", first, [])
    assert "robin" in [entry["name"] for entry in told["entries"]]
    assert "m2" in await asyncio.to_thread(batos, "at", "now", "missions", "--state", "accepted")
    assert "robin" in await asyncio.to_thread(batos, "at", first)


@pytest.mark.parametrize(
    ("words", "hint"), [(["shwo", "robin"], "did you mean 'show'"), (["undo", "m1"], "at a time there are"), (["--x"], "not '--x'")]
)
def test_what_cannot_be_looked_at_as_of_a_time(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["at", "2h", *words]) == 2
    assert hint in re.sub(r"[\s│]+", " ", capsys.readouterr().err)


def test_a_time_is_told_in_utc() -> None:
    assert history.when(bytes.fromhex("0000000000000000")) == "1900-01-01 00:00:00 UTC"


async def test_at_the_time_that_is_told_of_a_revision_it_is_seen(image: LivingImage) -> None:
    for n in range(20):
        await image.system(lambda root, n: setattr(root["lobby"], "n", n), n)
        (newest,) = history.revisions(image.db, image.read(lambda root: root["lobby"]._p_oid), 1)
        with history.looking_at(image.db, image.snapshot, newest["time"]) as root:
            assert root["lobby"].n == n
    first = int(newest["tid"], 16)
    for tid in range(first - 2000, first + 2000, 7):
        told = history.seconds_of(tid.to_bytes(8, "big"))
        found = int.from_bytes(history.stamp(told), "big")
        assert found >= tid
        assert history.seconds_of(found.to_bytes(8, "big")) == told


async def test_missions_are_looked_for_and_paged_through(image: LivingImage) -> None:
    for number, brief in enumerate(("Plan a birthday party", "Plan the week", "The BIRTHDAY cake", "Something else")):
        await image.system(ledger.accept, f"m-{number}", brief, {}, False)
    seen = looks(image)

    def found(*given: Any, **more: Any) -> list[str]:
        return [one["id"] for one in seen.missions(*given, **more)["missions"]]

    assert found(None, 2) == ["m-3", "m-2"]
    assert found(None, 2, before="m-2") == ["m-1", "m-0"]
    assert found(None, 2, before="m-0") == []
    assert found("ACCEPTED", 9, before="m-2") == ["m-1", "m-0"]
    assert found("COMPLETE", 9, before="m-2") == []
    assert found(None, 9, words="birthday") == ["m-2", "m-0"]
    assert found(None, 9, words=" plan BIRTH ") == ["m-0"]
    assert found(None, 9, words="birthday", before="m-2") == ["m-0"]
    assert found(None, 9, words="M-1") == ["m-1"]
    assert found(None, 9, words="nothing has these") == []
    with pytest.raises(UnknownMission):
        found(None, 9, before="nobody")
