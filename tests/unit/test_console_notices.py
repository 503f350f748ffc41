"""The console's pages of notices."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.console.access import ConsoleLimits
from batos.console.api_client import Asker
from batos.errors import InvalidInput, UnknownPersona
from batos.image import notices
from batos.image.effects import DONE, FAILED, IN_DOUBT, SETTLED
from batos.image.notices import Notice, NoticeMessage
from tests.support.console import HOSTILE, seated, seen, served
from tests.support.notices import World, world

ROWS = ConsoleLimits().rows
LONG_AGO = 8 * 86400.0


async def add(kernel: Kernel, there: World, **more: Any) -> None:
    """Add the channel desk, a hook to a world."""
    await Asker(kernel.transport.dispatcher, kernel.settings).ask(
        "notice_add", name="desk", way="hook", place=there.url, options={"seconds": 20}, on=["end", "question"], **more
    )


def messages(root: Any, now: float) -> None:
    """Put a message of each outcome into the outbox: one in doubt, one that failed, one of last week, one that is sent again, one told."""
    outbox = notices.outbox_of(root)
    assert outbox is not None
    for title, state, at, more in (
        (f"Lost {HOSTILE}", IN_DOUBT, now, {"why": f"no answer {HOSTILE}"}), ("Refused", FAILED, now, {"why": "answered 403"}),
        ("Stale", FAILED, now - LONG_AGO, {}), ("Soon", FAILED, now, {"again": now + 60, "attempts": 3}), ("Fine", DONE, now, {}),
    ):  # fmt: skip
        outbox.serial += 1
        facts = (("end", "m/1"), ("change", "7"), ("schedule", "monthly"), ("question", "m2"))
        made = NoticeMessage("a" * 32, "desk", state, json.dumps({"title": title}), facts, at)
        outbox.messages[outbox.serial] = tuple(made._replace(serial=outbox.serial, **more))


async def test_channels_and_messages_are_shown_those_that_may_be_lost_first(tmp_path: Path) -> None:
    async with served(tmp_path) as kernel, seated(kernel) as seat:
        text = seen(await seat.see("/notices"))
        assert "No channels, so no notices." in text
        assert "Perhaps not arrived" not in text
        with world() as there:
            await add(kernel, there, once=True, quiet="22:00-7:00", zone="Europe/Berlin", origin="schedule", persona="robin")
            await Asker(kernel.transport.dispatcher, kernel.settings).ask("notice_pause", name="desk")
            await kernel.image.system(messages, time.time())
            page = await seat.see("/notices")
        assert "<script>alert" not in page, "what a message says is text"
        lost, rest = seen(page).split("Channels 1")
        assert "Perhaps not arrived 2" in lost
        for part in ("Lost", "in doubt", "no answer", "Refused", "not sent", "answered 403"):
            assert part in lost, part
        for part in ("Stale", "Soon", "3 tries", "again 20", "Fine", "Messages 3", "desk hook", "tells end, question", "paused"):
            assert part in rest, part
        for link in ("/mission?id=m%2F1", "/change?number=7", "/mission?id=m2", "/notice?name=desk"):
            assert f'href="{link}"' in page, link
        text = seen(await seat.see("/notice", name="desk"))
        for part in ("22:00-7:00 (Europe/Berlin)", "ROBIN", "schedule", "not sent again, so that it may be lost", "seconds", "It rests.",
                     "Messages 5", "Nothing waits."):  # fmt: skip
            assert part in text, part


async def test_a_channel_of_a_persona_and_the_log_of_a_channel_take_names_that_there_are(tmp_path: Path) -> None:
    async with served(tmp_path) as kernel:
        asker = Asker(kernel.transport.dispatcher, kernel.settings)
        with world() as there:
            with pytest.raises(UnknownPersona, match=r"no persona 'robyn'; there are: robin, brick"):
                await add(kernel, there, persona="robyn")
            assert (await asker.ask("notices"))["channels"] == []
            with pytest.raises(InvalidInput, match="'desk' is not a channel"):
                await asker.ask("notice_log", name="desk", limit=5)
            await add(kernel, there, persona="Robin")
            assert (await asker.ask("notices", name="desk"))["channels"][0]["persona"] == "robin"
            assert (await asker.ask("notice_log", name="desk", limit=5))["messages"] == []
            await kernel.image.system(messages, time.time())
            assert (await asker.ask("notices"))["untold"] == 2
            settled = await asker.ask("notice_settle", name="desk")
            assert (settled["settled"], settled["untold"]) == (3, 0), "what is sent again, and what was told, stays as it is"
            states = [one["state"] for one in (await asker.ask("notice_log", limit=5))["messages"]]
            assert states == [DONE, FAILED, SETTLED, SETTLED, SETTLED]
            assert (await asker.ask("notice_settle"))["settled"] == 0
            with pytest.raises(InvalidInput, match="'disk' is not a channel"):
                await asker.ask("notice_settle", name="disk")
            await asker.ask("notice_remove", name="desk")
            assert len((await asker.ask("notice_log", name="desk", limit=50))["messages"]) == 5, "what was told before stays to be seen"


async def test_what_waits_is_listed_with_its_words(tmp_path: Path) -> None:
    def wait(root: Any) -> None:
        for n in range(60):
            notices.note(root, Notice("question", f"m{n}", 1.0, f"A question {n}: {HOSTILE}"))

    async with served(tmp_path) as kernel, seated(kernel) as seat:
        with world() as there:
            await add(kernel, there)
            await seat.post("/notice/pause", name="desk")
            await kernel.image.system(wait)
            assert "60 wait" in seen(await seat.see("/notices"))
            page = await seat.see("/notice", name="desk")
    assert "<script>alert" not in page
    assert "Waiting 60" in seen(page)
    assert "A question 49:" in seen(page)
    assert "10 more" in seen(page)
    assert 'href="/mission?id=m49"' in page


async def test_a_channel_is_tested_rests_goes_on_and_is_removed(tmp_path: Path) -> None:
    async with served(tmp_path) as kernel, seated(kernel) as seat:
        with world() as there:
            await add(kernel, there)
            page = await seat.see("/notice", name="desk")
            id = re.search(r'name="id" value="([0-9a-f-]{36})"', page)
            assert id is not None
            for _ in range(2):  # sent twice, it is one test
                answer = await seat.post("/notice/test", name="desk", id=id[1])
                assert (answer.status_code, answer.headers["location"]) == (303, "/notice?name=desk&said=told")
            assert len(there.heard) == 1
            assert "see whether it arrived" in seen(await seat.see(answer.headers["location"]))
            there.answers = [403]
            answer = await seat.post("/notice/test", name="desk", id="other")
            page = await seat.see(answer.headers["location"])
            assert "the first message below says why" in page.partition('role="alert">')[2].partition("</p>")[0]
            assert "403" in seen(page)
            assert (await seat.post("/notice/pause", name="desk")).headers["location"] == "/notice?name=desk&said=paused"
            page = await seat.see("/notice", name="desk")
            assert "/notice/resume" in page
            assert "/notice/test" not in page, "a channel that rests is not tested"
            assert (await seat.post("/notice/test", name="desk", id="third")).status_code == 400
            assert (await seat.post("/notice/resume", name="desk")).status_code == 303
            assert (await seat.post("/notice/remove", name="desk")).headers["location"] == "/notices?said=removed"
        text = seen(await seat.see("/notices", said="removed"))
        assert "It is removed" in text
        assert "No channels" in text
        assert "Perhaps not arrived 1" in text, "what its last message came to is still there"
        await seat.see("/notice", 400, name="desk")


@pytest.mark.parametrize("path", ["/notice/test", "/notice/pause", "/notice/resume", "/notice/remove"])
async def test_an_unknown_channel_and_a_form_without_one_are_refused(tmp_path: Path, path: str) -> None:
    async with served(tmp_path) as kernel, seated(kernel) as seat:
        for form in ({}, {"name": "nobody", "id": "t"}, {"name": HOSTILE, "id": "t"}):
            answer = await seat.post(path, **form)
            assert answer.status_code == 400
            assert "<script>alert" not in answer.text


async def test_a_long_log_is_cut_and_says_so(tmp_path: Path) -> None:
    def told(root: Any) -> None:
        outbox = notices.outbox_of(root)
        assert outbox is not None
        made = NoticeMessage("a" * 32, "desk", DONE, "{}", (("end", "m"),), 1.0)
        for n in range(ROWS + 1):
            outbox.messages[n + 1] = tuple(made._replace(words=json.dumps({"title": f"Told {n}"}), serial=n + 1))

    async with served(tmp_path) as kernel, seated(kernel) as seat:
        with world() as there:
            await add(kernel, there)
            await kernel.image.system(told)
            for text in (seen(await seat.see("/notices")), seen(await seat.see("/notice", name="desk"))):
                assert f"Messages {ROWS + 1}" in text
                assert "Told 0 " not in text
                assert "1 more" in text or "1 earlier" in text
