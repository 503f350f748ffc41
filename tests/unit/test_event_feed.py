"""The feed of events at `/v1/events`: filters, one who comes back, slow readers, and what it costs without readers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.doors.access import DoorLimits
from batos.doors.event_feed import KEPT, EventFeed, FeedLimits, FeedReader
from batos.errors import Busy
from batos.mind.events import Events
from tests.support.doors import chat_client, completion, kernel_with_doors, user

ALL = frozenset(KEPT)
NO_MISSIONS: frozenset[str] = frozenset()


def happen(events: Events, kind: str, mission: str, **more: Any) -> None:
    facts = {"cycle": "1", "state": "IDLE", "elapsed_s": 0.1} if kind == "state" else {"state": "COMPLETE"}
    events.publish(mission, {"type": kind, "id": mission, **facts, **more})


def waiting(reader: FeedReader) -> list[dict[str, Any]]:
    """What waits for a reader, with the id of each."""
    found = []
    for message in reader.waiting:
        fields = dict(line.split(": ", 1) for line in message.decode().strip().split("\n"))
        found.append({**json.loads(fields["data"]), "at": fields.get("id")})
    return found


def made(limits: FeedLimits | None = None) -> tuple[Events, EventFeed]:
    events = Events()
    return events, EventFeed(events.listen, limits or FeedLimits(), 60.0)


async def test_without_readers_nothing_is_heard_and_some_time_after_the_last_one_neither() -> None:
    events, feed = made(FeedLimits(resume_s=0.01))
    assert not events.heard("m", "token")
    reader = feed.open(frozenset({"token"}), NO_MISSIONS)
    assert events.heard("m", "token")
    feed.shut(reader)
    assert not events.heard("m", "token"), "at once: tokens are many"
    while events.heard("", "result"):
        await asyncio.sleep(0.01)
    assert not any(events.heard("", kind) for kind in ("state", "token", "result"))


async def test_a_reader_gets_the_kinds_and_missions_that_he_names() -> None:
    events, feed = made()
    everything, some = feed.open(ALL, NO_MISSIONS), feed.open(frozenset({"result", "token"}), frozenset({"a"}))
    for kind in ("state", "token", "result"):
        for mission in ("a", "b"):
            happen(events, kind, mission)
    assert [(one["type"], one["id"]) for one in waiting(everything)] == [("state", "a"), ("state", "b"), ("result", "a"), ("result", "b")]
    assert [(one["type"], one["id"], bool(one["at"])) for one in waiting(some)] == [("token", "a", False), ("result", "a", True)]
    feed.close()
    assert not any(events.heard("", kind) for kind in ("state", "token", "result"))


async def test_one_who_comes_back_gets_what_he_missed() -> None:
    events, feed = made()
    reader = feed.open(ALL, NO_MISSIONS)
    happen(events, "result", "a")
    last = waiting(reader)[-1]["at"]
    feed.shut(reader)
    happen(events, "result", "b")
    happen(events, "state", "c")
    again = feed.open(frozenset({"result"}), NO_MISSIONS, last)
    happen(events, "result", "d")
    assert [one["id"] for one in waiting(again)] == ["b", "d"]
    feed.close()


@pytest.mark.parametrize("last", ["0000-3", "nonsense", "{run}-99", "{run}-1", "{run}-"])
async def test_one_who_comes_back_too_late_is_told_of_a_gap(last: str) -> None:
    events, feed = made(FeedLimits(kept=2))
    reader = feed.open(ALL, NO_MISSIONS)
    for mission in ("a", "b", "c", "d"):
        happen(events, "result", mission)
    run = waiting(reader)[-1]["at"].partition("-")[0]
    again = feed.open(ALL, NO_MISSIONS, last.format(run=run))
    (gap,) = waiting(again)
    assert (gap["type"], gap["at"]) == ("gap", f"{run}-4"), "from here on he misses nothing"
    feed.close()


async def test_a_slow_reader_loses_the_oldest_and_is_told_how_many() -> None:
    events, feed = made(FeedLimits(waiting=10))
    reader = feed.open(ALL, NO_MISSIONS)
    for number in range(25):
        happen(events, "result", f"m{number}")
    assert len(reader.waiting) == 10
    messages = feed.messages(reader)
    await anext(messages)
    gap = json.loads((await anext(messages)).decode().split("data: ")[1])
    assert (gap["type"], gap["lost"]) == ("gap", 15)
    assert b"m15" in await anext(messages)
    await messages.aclose()
    feed.close()


async def test_readers_are_bounded_and_ended_with_the_daemon() -> None:
    _, feed = made(FeedLimits(readers=2))
    readers = [feed.open(ALL, NO_MISSIONS) for _ in range(2)]
    with pytest.raises(Busy):
        feed.open(ALL, NO_MISSIONS)
    feed.shut(readers[0])
    feed.shut(readers[0])
    last = feed.open(ALL, NO_MISSIONS)
    messages = feed.messages(last)
    await anext(messages)
    ending = asyncio.ensure_future(anext(messages, None))
    await asyncio.sleep(0)
    feed.close()
    assert await ending is None
    with pytest.raises(Busy):
        feed.open(ALL, NO_MISSIONS)


async def test_silence_is_told_as_a_comment() -> None:
    events = Events()
    feed = EventFeed(events.listen, FeedLimits(), 0.01)
    messages = feed.messages(feed.open(ALL, NO_MISSIONS))
    await anext(messages)
    assert (await anext(messages)).startswith(b": ")
    await messages.aclose()
    feed.close()


async def lines(reply: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any], str]]:
    """The events of a stream: kind, data and id."""
    fields: dict[str, str] = {}
    async for line in reply.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields["event"], json.loads(fields["data"]), fields.get("id", "")
            fields = {}
        else:
            fields = {}


async def test_a_reader_over_http_follows_a_mission_comes_back_and_leaves_nothing(tmp_path: Path) -> None:
    async with kernel_with_doors(tmp_path, limits=(DoorLimits(beat_s=0.1),)) as kernel, chat_client(kernel) as client:
        async with client.stream("GET", "/v1/events?kinds=state,result") as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            reading = lines(reply)
            first = await completion(client, user("Hello there"))
            kind, data, last = "", {}, ""
            while kind != "result":
                kind, data, last = await anext(reading)
            assert (data["id"], data["state"], data["origin"]) == (first["mission"], "COMPLETE", "client")
            await reading.aclose()
        second = await completion(client, user("And again, hello"))
        async with client.stream("GET", "/v1/events?kinds=result", headers={"Last-Event-ID": last}) as reply:
            kind, data, _ = await anext(reading := lines(reply))
            assert (kind, data["id"], data["origin"]) == ("result", second["mission"], "client")
            await reading.aclose()
        for bad, word in (("kinds=stat", "state"), ("mission=" + ",".join(f"m{n}" for n in range(101)), "at most 100")):
            refused = await client.get(f"/v1/events?{bad}")
            assert refused.status_code == 400
            assert word in refused.json()["error"]["message"]
        assert (await client.get("/v1/events", headers={"Authorization": "Bearer wrong"})).status_code == 401
        async with client.stream("GET", "/v1/events") as reply:
            reading = reply.aiter_lines()
            await anext(reading)
            stopping = asyncio.create_task(kernel.stop())
            async for _ in reading:
                pass
            await stopping
