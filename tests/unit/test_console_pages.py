"""The console's pages, on a real image with missions, memory, methods and an object that has lived; and what can be done on them."""

from __future__ import annotations

import asyncio
import hashlib
import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import changes
from batos.console.missions import answer_of
from batos.console.pages import ago, changed_lines, facet, number, size, span, step_of, url
from batos.errors import SandboxFailed
from batos.image import blobs, ledger
from batos.image.taught_examples import examples_digest
from batos.objects import Intent, Method, find
from batos.objects.json_form import oid_of
from tests.support.autonomy import EVIDENCE, Proposal
from tests.support.console import HOSTILE, Seat, seated, seen, served
from tests.support.methods import writing
from tests.support.missions import WAIT_S, FakeInference
from tests.support.pictures import png

ADD = "def add_(self, number, number2):\n    return number + number2\n"
NOTE = "The spare key is under the third pot."


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with served(tmp_path, inference) as kernel:
        yield kernel


async def done(seat: Seat, id: str) -> str:
    """The page of a mission that has ended."""
    await seat.kernel.scheduler.quiet()
    return await seat.see("/mission", id=id)


async def sent(kernel: Kernel, id: str, target: str, selector: str, *args: Any) -> None:
    message = {"target": target, "selector": selector, "args": list(args), "kwargs": {}, "write": True}
    await kernel.scheduler.submit(id, f"send {target} {selector}", {"message": json.dumps(message)})
    await kernel.scheduler.quiet()


async def changed(kernel: Kernel, mission: str, **slots: Any) -> None:
    """A revision of `thing`, by a mission of that name."""
    async with kernel.image.unit() as unit:
        lobby = unit.root["lobby"]
        if "thing" not in lobby._slots:
            lobby.thing = lobby.genesis.derive(name="thing", comment="I am a thing for tests.")
        for name, value in slots.items():
            lobby.thing._slots[name] = value
        unit.note(mission, f"COMPLETE by {mission}")


async def second_version(kernel: Kernel) -> None:
    """A second version of what `thing` holds as `add_`."""
    async with kernel.image.unit() as unit:
        thing = unit.root["lobby"].thing
        thing.add_ = Method("add_", ADD.replace("number + number2", "0"), previous=find(thing, "add_")[1])
        unit.note("m2", "COMPLETE by m2")


# --- missions


async def test_a_brief_becomes_a_mission_with_all_that_was_thought(seat: Seat) -> None:
    id = await seat.gave("I feel stuck", persona="robin")
    told = seen(await done(seat, id))
    for words in ("I feel stuck", "complete", "ROBIN", "Who said what", "sage", "what of sage_facet_",
                  "Take one small step and look where it led.", "What it cost", "robin:embedded", "inferences"):  # fmt: skip
        assert words in told, words
    assert "I feel stuck" in seen(await seat.see("/"))
    assert "I feel stuck" in seen(await seat.see("/", state="COMPLETE"))
    assert "None is in that state." in seen(await seat.see("/", state="FAILED"))


async def test_missions_of_the_system_s_own_are_listed_where_they_are_asked_for(seat: Seat) -> None:
    await seat.gave("I feel stuck", persona="robin")
    await seat.kernel.scheduler.submit("own-1", "look at yourself", {"origin": "system"})
    await done(seat, "own-1")
    for state in ("", "COMPLETE"):
        assert "look at yourself" not in seen(await seat.see("/", state=state))
        told = seen(await seat.see("/", state=state, all="yes"))
        assert "look at yourself" in told
        assert "I feel stuck" in told


async def test_the_form_sent_twice_makes_one_mission(seat: Seat) -> None:
    for _ in range(2):
        assert (await seat.post("/submit", id="twice", brief="Plan the day")).status_code == 303
    assert seat.kernel.image.facts()["accepted"] == 1
    other = await seat.post("/submit", id="twice", brief="Something else")
    assert (other.status_code, "mission_id_taken" in other.text or "id" in other.text) == (400, True)


async def test_a_mission_under_way_can_rest_go_on_and_be_cancelled(seat: Seat, inference: FakeInference) -> None:
    inference.hold()
    id = await seat.gave("Take your time")
    await inference.came(1)
    page = await seat.see("/mission", id=id)
    assert 'aria-current="step">decomposing' in page
    assert f'data-live-mission="/mission/events?id={id}"' in page
    assert (await seat.post("/pause", id=id)).status_code == 303
    assert "Resume" in seen(await seat.see("/mission", id=id, said="paused"))
    assert (await seat.post("/resume", id=id)).status_code == 303
    answer = await seat.post("/cancel", id=id)
    assert answer.headers["location"] == f"/mission?id={id}&said=cancelled"
    inference.release()
    told = seen(await done(seat, id))
    assert "failed" in told
    for path in ("/cancel", "/pause", "/resume"):
        assert (await seat.post(path, id=id)).headers["location"] == f"/mission?id={id}&said=ended"
    assert "had already ended" in seen(await seat.see("/mission", id=id, said="ended"))
    assert "cancelled" in told


async def test_a_mission_asks_and_is_answered(seat: Seat) -> None:
    id = await seat.gave("Choose a restaurant", may_ask="yes")
    await seat.kernel.scheduler.quiet()
    page = await seat.see("/mission", id=id)
    assert "asks you" in seen(page)
    assert '<label for="text">what of question_to_the_user</label>' in page
    assert (await seat.post("/answer", id=id, number="1", text="")).status_code == 400
    assert (await seat.post("/answer", id=id, number="1", text="At eight")).status_code == 303
    told = seen(await done(seat, id))
    assert "It asked: what of question_to_the_user You said: At eight" in told


async def test_a_mission_is_rated(seat: Seat) -> None:
    id = await seat.gave("Plan the day")
    await done(seat, id)
    assert (await seat.post("/rate", id=id, rating="sideways")).status_code == 400
    assert (await seat.post("/rate", id=id, rating="up", why="to the point")).status_code == 303
    page = await seat.see("/mission", id=id, said="rated")
    assert 'value="up" aria-pressed="true"' in page
    assert 'value="to the point"' in page
    assert "Thank you" in seen(page)


async def test_what_was_measured_of_a_mission(tmp_path: Path) -> None:
    async with served(tmp_path, autotelic="on", heartbeat_first_s=600) as kernel, seated(kernel) as seat:
        id = await seat.gave("Plan the day")
        async with asyncio.timeout(WAIT_S):
            while "Entropy 0." not in (told := seen(await done(seat, id))):
                await asyncio.sleep(0.02)
        assert re.search(r"relevance \d\.\d\d, diversity \d\.\d\d, novelty", told)


async def test_what_failed_says_why(seat: Seat, inference: FakeInference) -> None:
    inference.fail_when = lambda request: SandboxFailed("nothing goes")
    told = seen(await done(seat, await seat.gave("Plan the day")))
    assert "failed" in told
    assert "nothing goes" in told
    assert "Attempt 1" in told


async def test_what_a_mission_remembered_and_cites(seat: Seat, kernel: Kernel, inference: FakeInference) -> None:
    inference.say = lambda request: NOTE if request.schema is None else "{}"
    await sent(kernel, "note", "memory", "remember_", NOTE, "Keys")
    page = await done(seat, await seat.gave("What did you say about the spare key under the pot?"))
    assert "What it remembered" in seen(page)
    assert f"<p>{NOTE}</p>" in page
    assert 'class="cited"' in page
    assert re.search(r'<ol class="sources">\s*<li value="1"><a href="/object\?target=oid%3A\w+">Keys</a>', page)


async def test_an_answer_that_is_an_object_leads_to_it(seat: Seat, kernel: Kernel) -> None:
    await sent(kernel, "note", "memory", "remember_", NOTE, "Keys")
    page = await seat.see("/mission", id="note")
    (oid,) = re.findall(r'aria-label="Answer">\s*<a class="oid" href="/object\?target=(oid%3A\w+)"', page)
    assert "Keys" in seen(await seat.see(f"/object?target={oid}"))


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"text": "plain"}, ("plain", None)),
        ({"text": "3", "value": 3}, ("3", None)),
        ({"text": '{"a": 1}', "value": {"a": 1}}, ("", {"a": 1})),
        ({"text": "one of them", "value": [1]}, ("one of them", [1])),
        ({}, ("", None)),
    ],
)
def test_what_is_shown_of_a_result(result: dict[str, Any], shown: tuple[str, Any]) -> None:
    assert answer_of(result) == shown


async def test_an_id_that_is_an_objects_name_is_said_to_be_hidden(seat: Seat) -> None:
    assert (await seat.post("/submit", id="robin", brief="Plan the day")).status_code == 303
    assert "name of an object" in seen(await seat.see("/mission", 400, id="robin"))


# --- objects


async def test_an_object_with_its_slots_parents_and_revisions(seat: Seat, kernel: Kernel) -> None:
    await changed(kernel, "m1", mood="calm", tags=("a", "b"), other=None)
    await changed(kernel, "m2", mood="bright")
    page = await seat.see("/object", target="thing")
    told = seen(page)
    for words in ("thing", "revision 2 of 2", "mood was calm now bright", "Parents", "parent*", "by m2", "I am a thing for tests."):
        assert words in told, words
    assert 'max="1" value="1"' in page
    tids = re.findall(r'data-tid="([0-9a-f]{16})"', page)
    assert len(tids) == 2
    past = seen(await seat.see("/object", target="thing", at=tids[0]))
    assert "revision 1 of 2" in past
    assert "calm" in past
    assert "bright" not in past
    assert "as it is now" in past


async def test_every_object_of_the_lobby_can_be_looked_at(seat: Seat, kernel: Kernel) -> None:
    await done(seat, await seat.gave("Plan the day"))
    seen_paths: set[str] = set()
    waiting = ["/object"]
    while waiting:
        path = waiting.pop(0)
        if path in seen_paths:
            continue
        seen_paths.add(path)
        page = await seat.see(path)
        waiting += [html.unescape(found) for found in re.findall(r'href="(/(?:object|method)\?[^"]+)"', page.partition("<main")[2])]
    assert len(seen_paths) > 40


async def test_a_method_with_versions_source_and_where_it_is_from(seat: Seat, kernel: Kernel, inference: FakeInference) -> None:
    writing(inference, ADD, ADD.replace("number + number2", "number2 + number"))
    await changed(kernel, "m0", n=1)
    await sent(kernel, "m1", "thing", "add_", 2, 3)
    page = await seat.see("/method", target="thing", selector="add_")
    assert html.escape(ADD.strip()) in page
    told = seen(page)
    for words in ("Version 1", "in force", "mission m1", "model", "digest"):
        assert words in told, words
    assert "Methods 1" in seen(await seat.see("/object", target="thing"))


async def test_what_the_examples_of_a_method_leave_open_is_asked(seat: Seat, kernel: Kernel) -> None:
    open_ = tuple(json.dumps({"args": ["<b>"], "result": result}) for result in (1, 2))
    await changed(kernel, "m0", sub_=Method("sub_", ADD))
    thing = kernel.image.read(lambda root: oid_of(root["lobby"].thing))
    came = {"open": open_, "receiver": thing, "taught": examples_digest([])}
    await changed(kernel, "m1", add_=Method("add_", ADD, provenance=came))
    page = await seat.see("/method", target="thing", selector="add_")
    told = seen(page)
    assert "What they leave open Which of these is right?" in told
    assert f"batos teach {thing} add_ -e" in told
    assert page.count("&lt;b&gt;") == len(open_)
    assert "&#34;result&#34;: 2" in page
    assert "leave open" not in seen(await seat.see("/method", target="thing", selector="sub_"))


async def test_an_earlier_version_of_a_method_is_looked_at_and_brought_back(seat: Seat, kernel: Kernel, inference: FakeInference) -> None:
    writing(inference, ADD, ADD.replace("number + number2", "number2 + number"))
    await changed(kernel, "m0", n=1)
    await sent(kernel, "m1", "thing", "add_", 2, 3)
    page = await seat.see("/method", target="thing", selector="add_")
    assert "version=0" in page
    assert "version=1" not in page, "it is in force"
    await second_version(kernel)
    page = await seat.see("/method", target="thing", selector="add_")
    assert html.escape("/revert?target=thing&selector=add_&version=1") in page
    assert "/revert" not in await seat.see("/method", target="thing", selector="add_", at=kernel.image.db.lastTransaction().hex())
    shown = await seat.see("/revert", target="thing", selector="add_", version=1)
    for words in ("Bring version 1 back?", "becomes version 3", "return number + number2", "return 0"):
        assert words in seen(shown), words
    form = dict(re.findall(r'name="(id|target|selector|version)" value="([^"]*)"', shown))
    for _ in range(2):
        answer = await seat.post("/revert", **form)
        assert answer.headers["location"] == f"/mission?id={form['id']}&said=accepted"
    assert "complete" in seen(await done(seat, form["id"]))
    told = seen(await seat.see("/method", target="thing", selector="add_"))
    assert "Version 3 in force" in told
    assert "Version 4" not in told, "sent twice it is done once"


async def test_a_method_goes_back_to_before_its_first_version(seat: Seat, kernel: Kernel) -> None:
    await changed(kernel, "m0", n=1, add_=Method("add_", ADD, provenance={"intent": "add two <numbers>"}), sub_=Method("sub_", ADD))
    shown = await seat.see("/revert", target="thing", selector="add_", version=0)
    assert "Back to its intent?" in shown
    assert "add two &lt;numbers&gt;" in shown
    assert "Take the method away?" in await seat.see("/revert", target="thing", selector="sub_", version=0)
    for id, selector in (("r1", "add_"), ("r2", "sub_")):
        assert (await seat.post("/revert", id=id, target="thing", selector=selector, version="0")).status_code == 303
        assert "complete" in seen(await done(seat, id))
    slots = kernel.image.read(lambda root: dict(root["lobby"].thing._slots))
    assert slots["add_"] == Intent("add two <numbers>")
    assert "sub_" not in slots


async def test_what_cannot_be_brought_back_is_said(seat: Seat, kernel: Kernel) -> None:
    await changed(kernel, "m0", n=1, add_=Method("add_", ADD))
    for version in ("1", "7"):
        assert "no version" in seen(await seat.see("/revert", 400, target="thing", selector="add_", version=version))
    assert "no version" in seen(await seat.see("/revert", 400, target="thing", selector="n", version=0))
    assert "whole number" in seen(await seat.see("/revert", 400, target="thing", selector="add_", version="x"))
    assert "did you mean" in seen(await seat.see("/revert", 404, target="thingy", selector="add_", version=0))
    for fields in ({"target": "thing", "selector": "add_", "version": "0"}, {"id": "r", "target": "thing", "selector": "add_"}):
        assert (await seat.post("/revert", **fields)).status_code == 400
    elsewhere = {"Origin": "http://elsewhere.example"}
    answer = await seat.client.post("/revert", data={"id": "r", "target": "thing", "selector": "add_", "version": "0"}, headers=elsewhere)
    assert answer.status_code == 403
    assert kernel.image.facts()["accepted"] == 0


async def test_what_is_not_there_is_said_with_the_nearest_name(seat: Seat) -> None:
    assert "did you mean 'robin'" in seen(await seat.see("/object", 404, target="robbin"))
    assert "no mission" in seen(await seat.see("/mission", 404, id="nobody"))
    assert "is missing" in seen(await seat.see("/mission", 400))
    assert "This page does not exist" in seen(await seat.see("/nowhere", 404))
    assert "`at`" in seen(await seat.see("/object", 400, target="robin", at="yesterday"))
    for path in ("/mission/events", "/method", "/undo", "/revert"):
        await seat.see(path, 400)


# --- memory, models, changes


async def test_memory_is_searched_with_its_reasons(seat: Seat, kernel: Kernel) -> None:
    await sent(kernel, "note", "memory", "remember_", NOTE, "Keys")
    assert "Keys" in seen(await seat.see("/search"))
    page = await seat.see("/search", q="where is the spare key?")
    told = seen(page)
    for words in ("1 passage", NOTE, "Why:", "words", "found by words", "What the question was taken to ask"):
        assert words.lower() in told.lower(), words
    assert re.search(r'<progress max="[\d.]+" value="[\d.]+" aria-label="\w+">', page)
    assert "Nothing in the memory fits" in seen(await seat.see("/search", q="key", speaker="Nobody"))
    assert "since" in seen(await seat.see("/search", 400, q="key", since="someday"))


async def test_models_and_personas(seat: Seat) -> None:
    told = seen(await seat.see("/models"))
    for words in ("Profile embedded", "ROBIN", "BRICK", "BABS", "ALFRED", "robin:embedded", "exemplars"):
        assert words in told, words


async def test_an_undo_is_shown_first_and_then_done(seat: Seat, kernel: Kernel) -> None:
    await sent(kernel, "note", "memory", "remember_", NOTE, "Keys")
    assert "send memory remember_" in seen(await seat.see("/changes"))
    page = await seat.see("/undo", id="note")
    assert "goes: Keys" in seen(page)
    assert NOTE in seen(await seat.see("/search", q="spare key")), "nothing is done yet"
    assert re.findall(r'name="expect" value="([^"]+)"', page) == ["note"]
    answer = await seat.post("/undo", id="note", expect="note")
    assert answer.headers["location"] == "/mission?id=note&said=undone"
    assert "undone" in seen(await seat.see("/changes"))
    assert "Nothing in the memory fits" in seen(await seat.see("/search", q="spare key"))
    assert (await seat.post("/undo", id="note", expect="note")).headers["location"].endswith("said=already")
    assert "Do it again?" in seen(await seat.see("/undo", id="note", redo=1))
    assert (await seat.post("/undo", id="note", redo="1", expect="note")).status_code == 303
    assert NOTE in seen(await seat.see("/search", q="spare key"))


async def test_what_later_work_depends_on_is_named_and_goes_with_a_cascade(seat: Seat, kernel: Kernel, inference: FakeInference) -> None:
    writing(inference, "def set_(self, text):\n    self.mood = text\n    self._p_changed = True\n    return text\n")
    await changed(kernel, "m0", mood="none")
    await sent(kernel, "first", "thing", "set_", "calm")
    await sent(kernel, "second", "thing", "set_", "bright")
    refused = await seat.see("/undo", id="first")
    assert "mood" in seen(refused)
    assert "/undo?id=first&amp;cascade=1" in refused
    lot = await seat.see("/undo", id="first", cascade=1)
    assert "2 missions" in seen(lot)
    assert (await seat.post("/undo", id="first", cascade="1", expect="first")).status_code == 409, "more than was agreed to"
    answer = await seat.client.post(
        "/undo",
        data={"id": "first", "cascade": "1", "expect": re.findall(r'name="expect" value="([^"]+)"', lot)},
        headers={"Origin": str(seat.client.base_url).rstrip("/")},
    )
    assert answer.status_code == 303
    assert kernel.image.read(lambda root: root["lobby"].thing.mood) == "none"


async def promoted(kernel: Kernel, **slots: Any) -> int:
    """A change that the loop made of its own accord."""
    comparison = {"without": {"passed": 3, "seconds": 1.5}, "changed": {"passed": 4, "seconds": 1.25}, "missions": ["a", "b"]}
    number = await kernel.image.system(changes.propose, Proposal(), EVIDENCE, "")
    async with kernel.image.unit() as unit:
        for name, value in slots.items():
            unit.root["lobby"].robin._slots[name] = value
        changes.promote(unit.root, number, comparison)
        unit.note(changes.name_of(number), f"{changes.NOTE} facet of robin")
    return int(number)


async def test_what_the_loop_changed_is_told_and_taken_back(seat: Seat, kernel: Kernel) -> None:
    number = await promoted(kernel, surprise_facet_="Think of what would surprise.")
    assert f"Of its own accord 1 {number}." in seen(await seat.see("/changes"))
    told = seen(await seat.see("/change", number=number))
    for words in ("watched", "from a measurement", EVIDENCE["words"], "passed 3 4", "Taking it back", "surprise_facet_"):
        assert words in told, words
    answer = await seat.post("/change", number=str(number), why="I liked it better before")
    assert answer.headers["location"] == f"/change?number={number}"
    told = seen(await seat.see("/change", number=number))
    assert "undone" in told
    assert "I liked it better before" in told
    assert "Taking it back" not in told
    assert not kernel.image.read(lambda root: "surprise_facet_" in root["lobby"].robin._slots)
    for query, status in (({"number": 99}, 404), ({"number": "x"}, 400), ({}, 400)):
        await seat.see("/change", status, **query)


async def test_a_change_that_later_work_depends_on_is_not_torn_out(seat: Seat, kernel: Kernel) -> None:
    number = await promoted(kernel, mood="calm")
    async with kernel.image.unit() as unit:
        unit.root["lobby"].robin._slots["mood"] = "bright"
        unit.note("m1", "COMPLETE by m1")
    told = seen(await seat.see("/change", number=number))
    assert "It cannot be taken back alone" in told
    assert "mood" in told
    assert (await seat.post("/change", number=str(number))).status_code == 409


# --- nothing that anybody wrote is HTML


async def test_what_others_wrote_is_text(seat: Seat, kernel: Kernel, inference: FakeInference) -> None:
    inference.say = lambda request: HOSTILE if request.schema is None else json.dumps(dict.fromkeys(request.schema["properties"], HOSTILE))
    await changed(kernel, HOSTILE, **{"mood": HOSTILE, "name": HOSTILE, "tags": (HOSTILE, {HOSTILE: HOSTILE})})
    await changed(kernel, "m2", mood="calm")
    await sent(kernel, "note", "memory", "remember_", f"{NOTE} {HOSTILE}", HOSTILE)
    id = await seat.gave(f"What about the spare key? {HOSTILE}", may_ask="yes")
    await seat.kernel.scheduler.quiet()
    paths = ["/", "/changes", "/models", "/search", "/object", "/object?target=thing", f"/mission?id={id}", "/undo?id=note"]
    pages = [await seat.see(path) for path in paths]
    await seat.post("/answer", id=id, text=HOSTILE)
    await seat.post("/rate", id=id, rating="down", why=HOSTILE)
    pages += [
        await done(seat, id),
        await seat.see("/search", q=f"spare key {HOSTILE}", source=HOSTILE),
        await seat.see("/search", q="spare key"),
    ]
    pages += [await seat.see(path, 404, **{name: HOSTILE}) for path, name in (("/object", "target"),)]
    pages += [
        await seat.see("/mission", 400, id=HOSTILE),
        await seat.see("/", 400, state=HOSTILE),
        (await seat.post("/rate", id="note", rating=HOSTILE)).text,
    ]
    assert sum(html.escape(HOSTILE, quote=False)[:20] in page.replace("&#39;", "'") for page in pages) > 8
    for page in pages:
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "13391" not in page


# --- filters


def test_filters() -> None:
    assert [size(n) for n in (0, 1, 1023, 1536, 5 * 1024**2, 3 * 1024**3)] == [
        "0 bytes",
        "1 byte",
        "1023 bytes",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
    assert [span(n) for n in (0.04, 9.9, 59, 60, 7199, 90000)] == ["0.0 s", "9.9 s", "59 s", "1 min", "1 h", "1 d"]
    assert ago(9e12) == "now"
    assert [facet(one) for one in ("still_point_facet_", "plan", "")] == ["still point", "plan", "the weaver"]
    assert number(1234567) == "1\u202f234\u202f567"
    assert url("/a", x="b c", y=None, z="") == "/a?x=b+c"
    assert [step_of(one) for one in ("IDLE", "COMPLETE", "FAILED", "ACCEPTED")] == [1, 5, 0, 0]
    assert changed_lines("a\nb\n", "a\nc\n") == [("@", "@@ -1,2 +1,2 @@"), (" ", "a"), ("-", "b"), ("+", "c")]


async def test_the_images_of_a_mission_are_named(seat: Seat) -> None:
    data = png()
    digest = hashlib.sha256(data).hexdigest()
    about = {"type": "image/png", "bytes": len(data), "width": 8, "height": 8}
    await seat.kernel.image.system(blobs.add_picture, digest, data, about)
    named = json.dumps([{"digest": digest, "name": HOSTILE}])
    await seat.kernel.scheduler.submit("shown", "What is this?", {"images": named})
    page = await done(seat, "shown")
    assert f"image {HOSTILE}, image/png, 8 × 8, {len(data)} bytes" in seen(page)
    assert "<script>alert" not in page
    address = f"/image?id=shown&digest={digest}"
    for shown in (page, await seat.see("/conversation", id="shown")):
        assert f'<img src="{html.escape(address)}" width="8" height="8"' in shown
    answer = await seat.client.get(address)
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "image/png", data)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "no image" in await seat.see("/image", 404, id="shown", digest="0" * 64)
    assert "nothing" in await seat.see("/image", 404, id="nothing", digest=digest)
    await seat.kernel.image.system(lambda root: blobs.release_pictures(root, ledger.mission_of(root, "shown")))
    assert "no longer kept" in await seat.see("/image", 404, id="shown", digest=digest)


async def test_an_image_is_put_together_from_as_many_parts_as_messages_allow(tmp_path: Path, inference: FakeInference) -> None:
    data = png(60, 60)
    digest = hashlib.sha256(data).hexdigest()
    async with served(tmp_path, inference, message_bytes=4096) as kernel, seated(kernel) as seat:
        about = {"type": "image/png", "bytes": len(data), "width": 60, "height": 60}
        await kernel.image.system(blobs.add_picture, digest, data, about)
        await kernel.scheduler.submit("shown", "What is this?", {"images": json.dumps([{"digest": digest, "name": ""}])})
        answer = await seat.client.get(f"/image?id=shown&digest={digest}")
        assert len(data) > 8192
        assert answer.content == data
