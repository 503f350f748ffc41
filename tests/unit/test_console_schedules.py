"""The console's pages of schedules, and that of the doors."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from batos.app.kernel import Kernel
from batos.console.access import ConsoleLimits
from batos.console.api_client import Asker
from tests.support.console import HOSTILE, Seat, seated, seen, served
from tests.support.doors import door_token, kernel_with_doors

MORNING = {"when": "every weekday at 8:00", "brief": "What changed since {last}?", "zone": "Europe/Berlin", "name": "morning"}


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with served(tmp_path) as kernel:
        yield kernel


async def add(seat: Seat, **fields: str) -> str:
    """Add a schedule; the page that says back when it runs."""
    answer = await seat.post("/schedule/add", **{**MORNING, **fields})
    assert answer.status_code == 303, answer.text
    return await seat.see(answer.headers["location"])


async def test_a_schedule_is_added_and_said_back(seat: Seat) -> None:
    assert "None so far" in seen(await seat.see("/schedules"))
    text = seen(await add(seat, stop_after="3", missed="skip", persona="robin"))
    for part in (
        "It is added.",
        "every weekday at 8:00",
        "Europe/Berlin",
        "ROBIN",
        "Understood as cron 0 8 * * 1-5",
        "missed times: none",
        "3 failures",
    ):
        assert part in text, part
    times = re.findall(r"(?:Mon|Tue|Wed|Thu|Fri) \d{4}-\d\d-\d\d 08:00 CES?T", text)
    assert len(times) == 5
    listed = seen(await seat.see("/schedules"))
    assert f"next {times[0]}" in listed
    assert "Schedules 1" in listed
    assert await add(seat, stop_after="3", missed="skip", persona="robin"), "the same form, sent again"
    assert "Schedules 1" in seen(await seat.see("/schedules"))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"when": "monday at 8"}, "monday"),
        ({"when": "every blue moon"}, "blue"),
        ({"when": ""}, "`when` is missing"),
        ({"brief": ""}, "`brief` is missing"),
        ({"zone": "Europe/Berln"}, "Europe/Berlin"),
        ({"persona": "nobody"}, "nobody"),
        ({"stop_after": "many"}, "whole number"),
        ({"stop_after": "21"}, "20"),
        ({"missed": "never"}, "once"),
        ({"name": HOSTILE}, "name"),
    ],
)
async def test_what_is_refused_comes_back_with_the_reason_and_the_words(seat: Seat, fields: dict[str, str], why: str) -> None:
    answer = await seat.post("/schedule/add", **{**MORNING, "brief": HOSTILE, **fields})
    assert answer.status_code == 400
    alert = answer.text.partition('role="alert">')[2].partition("</p>")[0]
    assert why in alert
    assert "<script>alert" not in answer.text
    if "brief" not in fields:
        assert "&lt;script&gt;alert" in answer.text, "what was written is not lost"
    assert "None so far" in seen(await seat.see("/schedules"))


async def test_it_rests_goes_on_runs_now_and_is_removed(kernel: Kernel, seat: Seat) -> None:
    await add(seat)
    assert (await seat.post("/schedule/pause", name="morning")).headers["location"] == "/schedule?name=morning&said=paused"
    page = await seat.see("/schedule", name="morning")
    assert "It runs at no time" in seen(page)
    assert "/schedule/resume" in page
    assert "paused" in seen(await seat.see("/schedules"))
    assert (await seat.post("/schedule/resume", name="morning")).status_code == 303
    page = await seat.see("/schedule", name="morning")
    id = re.search(r'name="id" value="([0-9a-f-]{36})"', page)
    assert id is not None
    for _ in range(2):  # sent twice, it is one mission
        answer = await seat.post("/schedule/run", name="morning", id=id[1])
        assert answer.status_code == 303
        assert parse_qs(urlsplit(answer.headers["location"]).query)["id"] == [id[1]]
    await kernel.scheduler.quiet()
    assert "by a schedule" in seen(await seat.see("/mission", id=id[1]))
    page = seen(await seat.see("/schedule", name="morning"))
    assert "Its runs 1" in page
    assert "complete" in page
    assert "last run" in seen(await seat.see("/schedules"))
    assert (await seat.post("/schedule/remove", name="morning")).headers["location"] == "/schedules?said=removed"
    assert "None so far" in seen(await seat.see("/schedules"))
    for path in ("/schedule/pause", "/schedule/resume", "/schedule/remove"):
        assert (await seat.post(path, name="morning")).status_code == 400
        assert (await seat.post(path)).status_code == 400
    await seat.see("/schedule", 400, name="morning")


async def test_a_long_list_begins_with_what_runs_next_and_is_searched(kernel: Kernel, seat: Seat) -> None:
    asker = Asker(kernel.transport.dispatcher, kernel.settings)
    rows = ConsoleLimits().rows
    for n in range(rows + 1):
        await asker.ask("schedule_add", when=f"at 2100-01-01 0{n % 10}:00", brief=f"Brief {n}", zone="UTC", name=f"far{n}")
    await asker.ask("schedule_add", when="every minute", brief="Soon", name="near")
    text = seen(await seat.see("/schedules"))
    assert f"Schedules {rows + 2}" in text
    assert "2 more: search for them" in text
    assert text.index("near: Soon") < text.index("far0: Brief 0")
    text = seen(await seat.see("/schedules", q=f"brief {rows}"))
    assert f"far{rows}" in text
    assert "near" not in text
    assert "None fits." in seen(await seat.see("/schedules", q="<script>"))


# --- the doors


async def test_the_page_of_the_doors_says_what_the_command_prints(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path) as kernel, seated(kernel) as seat:
        assert kernel.doors is not None
        answer = await seat.client.get("/doors")
        text = seen(answer.text)
        for part in (kernel.doors.address, door_token(kernel), "batos:robin", "Open WebUI", "OPENAI_API_KEY", "doors.token"):
            assert part in text, part
        assert answer.headers["cache-control"] == "no-store"
        assert door_token(kernel) not in await seat.see("/")


async def test_without_doors_their_page_says_how_to_have_them(seat: Seat, kernel: Kernel) -> None:
    page = await seat.see("/doors")
    assert "doors.enabled" in page
    assert door_token(kernel) not in page
