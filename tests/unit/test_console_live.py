"""What moves on the console's pages: rows and missions as server-sent events, their limits, their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from batos.app.kernel import Kernel
from batos.config import Settings
from batos.console.api_client import Heard
from batos.console.live_events import Feed, message_of
from batos.errors import Busy, ImageError
from tests.support.console import Seat, seated, served, stream
from tests.support.missions import WAIT_S, FakeInference


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with served(tmp_path, inference, console_refresh_s=0.05, console_pages=2, ping_s=0.1) as kernel:
        yield kernel


async def test_rows_move_with_their_missions(seat: Seat, inference: FakeInference) -> None:
    inference.hold()
    async with stream(seat, "/events") as rows:
        id = await seat.gave("Think <b>slowly</b>")
        row = await rows.until("synthesizing")
        assert f'data-id="{id}"' in row
        assert "Think &lt;b&gt;slowly&lt;/b&gt;" in row
        inference.release()
        assert 'data-state="COMPLETE"' in await rows.until("complete")


async def test_no_brief_tears_the_rows_apart(seat: Seat, kernel: Kernel) -> None:
    ids = [await seat.gave(f"{n} \f</li><li data-id='x'>") for n in range(3)]
    await kernel.scheduler.quiet()
    async with stream(seat, "/events") as rows:
        told = dict((await rows.next("rows"))["rows"])
    assert list(told) == ids[::-1]
    assert [told[id].count("<li") for id in ids] == [1, 1, 1]


async def test_a_page_that_is_left_is_no_longer_told_of_a_mission_that_waits(seat: Seat, kernel: Kernel) -> None:
    id = await seat.gave("Choose a restaurant", may_ask="yes")
    await kernel.scheduler.quiet()
    for _ in range(3):
        async with stream(seat, f"/mission/events?id={id}") as events:
            assert (await events.next("status"))["state"] == "NEEDS_INPUT"
    async with asyncio.timeout(WAIT_S):
        while kernel.events.heard(id, "token"):
            await asyncio.sleep(0.01)


async def test_a_mission_page_hears_states_words_and_the_end(seat: Seat, inference: FakeInference) -> None:
    inference.hold()
    id = await seat.gave("Think slowly")
    async with stream(seat, f"/mission/events?id={id}") as events:
        assert (await events.next("status"))["id"] == id
        inference.release()
        assert (await events.next("token"))["text"]
        assert (await events.next("result"))["state"] == "COMPLETE"
        await events.ended()


async def test_a_mission_that_has_ended_is_told_at_once(seat: Seat, kernel: Kernel) -> None:
    id = await seat.gave("Think")
    await kernel.scheduler.quiet()
    async with stream(seat, f"/mission/events?id={id}") as events:
        assert (await events.next("result"))["state"] == "COMPLETE"
        await events.ended()


async def test_live_pages_are_bounded_and_a_page_that_leaves_makes_room(seat: Seat) -> None:
    async with stream(seat, "/events") as first:
        async with stream(seat, "/events"):
            assert (await seat.client.get("/events")).status_code == 503
            assert (await seat.client.get("/mission/events?id=nobody")).status_code == 503
            await seat.gave("Think")
            await first.until("complete")
        async with asyncio.timeout(WAIT_S):
            while (answer := await _begin(seat)) == 503:  # the server notices it with its next ping
                await asyncio.sleep(0.01)
        assert answer == 200


async def _begin(seat: Seat) -> int:
    async with seat.client.stream("GET", "/events") as answer:
        return answer.status_code


async def test_a_watch_of_nothing_takes_no_room(seat: Seat) -> None:
    for _ in range(5):
        assert (await seat.client.get("/mission/events?id=nobody")).status_code == 404


async def test_the_daemon_stops_while_pages_are_open(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with served(tmp_path, inference, shutdown_s=0.2) as kernel, seated(kernel) as seat:
        id = await seat.gave("Think slowly")
        async with stream(seat, "/events") as rows, stream(seat, f"/mission/events?id={id}") as events:
            await rows.next("rows")
            await events.next("status")
            stopping = asyncio.create_task(kernel.stop())
            with contextlib.suppress(httpx.RemoteProtocolError):
                await rows.ended()
                await events.ended()
            async with asyncio.timeout(WAIT_S):
                await stopping
        with pytest.raises(httpx.TransportError):
            await seat.client.get("/")


# --- the feed alone


async def test_only_what_changed_is_told_and_nobody_looks_for_nobody() -> None:
    looked = asyncio.Event()
    rows = {"b": "<li>b</li>", "a": "<li>a</li>"}

    async def look() -> dict[str, str]:
        looked.set()
        return dict(rows)

    feed = Feed(look, Settings(console_refresh_s=0.05))
    page = feed.open("mine")
    assert not looked.is_set()
    feed.follow(page)
    assert (await page.next() or {})["rows"] == [["b", "<li>b</li>"], ["a", "<li>a</li>"]]
    rows["a"] = "<li>A</li>"
    feed.touch({})
    assert (await page.next() or {})["rows"] == [["a", "<li>A</li>"]]
    feed.shut(page)
    looked.clear()
    feed.touch({})
    await asyncio.sleep(0)
    assert feed.reader is None
    assert not looked.is_set()


async def test_a_look_that_fails_is_made_again() -> None:
    looks = 0

    async def look() -> dict[str, str]:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise (ImageError, ZeroDivisionError)[looks - 1]("not now")
        return {"a": "A"}

    feed = Feed(look, Settings(console_refresh_s=0.05))
    page = feed.open("mine")
    feed.follow(page)
    feed.touch({})
    async with asyncio.timeout(WAIT_S):
        while looks < 3:
            feed.touch({})
            await asyncio.sleep(0.01)
        assert (await page.next() or {})["rows"] == [["a", "A"]]
    feed.close()
    with pytest.raises(Busy):
        feed.open("mine")


async def test_who_does_not_read_loses_events_and_no_reply() -> None:
    heard = Heard(2)
    for n in range(4):
        heard.send({"type": "token", "n": n}, event=True)
    heard.send({"type": "result"})
    heard.close()
    heard.send({"type": "late"})
    assert [await heard.next() for _ in range(4)] == [{"type": "token", "n": 0}, {"type": "token", "n": 1}, {"type": "result"}, None]


def test_a_message_is_one_whatever_is_in_it() -> None:
    message = message_of("token", {"text": "a\n\nevent: result\r\ndata: {}\u2028\x00"})
    assert message.count(b"\n") == 3
    assert b"\r" not in message
    assert message.endswith(b"\n\n")
