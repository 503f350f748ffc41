"""Doors of several kernels on one image: clients that reach one now and another then, behind a balancer say, are one client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.image import blobs
from tests.support.doors import accepted, assistant, chat_client, completion, said, user
from tests.support.missions import WAIT_S
from tests.support.pictures import png
from tests.support.servers import Postgres, postgres  # noqa: F401
from tests.support.several import Member, member, pair, until

TEA = "Which tea shall I drink in the evening?"
DOORS = {"enabled": "on", "listen": "127.0.0.1:0"}


@pytest.fixture
async def two(postgres: Postgres, tmp_path: Path) -> AsyncIterator[tuple[Member, Member]]:  # noqa: F811
    async with pair(postgres.image(), tmp_path, doors=DOORS) as members:
        yield members


@pytest.fixture
async def clients(two: tuple[Member, Member]) -> AsyncIterator[list[httpx.AsyncClient]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(chat_client(one.kernel)) for one in two]


async def test_one_idempotency_key_at_two_doors_is_one_mission_with_one_answer(
    two: tuple[Member, Member], clients: list[httpx.AsyncClient]
) -> None:
    named = {"Idempotency-Key": "evening"}
    replies = await asyncio.gather(*(completion(one, user(TEA), headers=named) for one in (*clients, *clients)))
    assert len({reply["mission"] for reply in replies}) == len({said(reply) for reply in replies}) == 1
    assert len(await accepted(two[0].kernel)) == 1
    refused = await completion(clients[1], user("Something else"), headers=named, status=400)
    assert "evening" in refused["error"]["message"] or "id" in refused["error"]["message"]


async def test_a_conversation_goes_on_at_another_door_as_one(two: tuple[Member, Member], clients: list[httpx.AsyncClient]) -> None:
    a, _ = two
    first = await completion(clients[0], user(TEA))
    talk = (user(TEA), assistant(said(first)), user("And in the morning?"))
    named = {"Idempotency-Key": "morning"}
    second, again = [await completion(one, *talk, headers=named) for one in (clients[1], clients[0])]
    assert again["mission"] == second["mission"]
    assert a.record(second["mission"]).context == first["mission"]
    assert a.record(second["mission"]).brief == "And in the morning?"


async def test_a_request_that_was_answered_is_another_turn_at_another_door_too(
    two: tuple[Member, Member], clients: list[httpx.AsyncClient]
) -> None:
    first = await completion(clients[0], user(TEA))
    again = await completion(clients[1], user(TEA))  # sent again within moments: the same turn
    assert again["mission"] == first["mission"]
    two[0].inference.fail_when = two[1].inference.fail_when = _fails
    failed = await completion(clients[0], user("Fail once"), status=500)
    two[0].inference.fail_when = two[1].inference.fail_when = lambda request: None
    better = await completion(clients[1], user("Fail once"))
    assert better["mission"].endswith("-2"), failed


def _fails(request: Any) -> Any:
    from batos.errors import InferenceFailed

    return InferenceFailed("no such model here", cause="model_missing", model=request.model)


async def test_a_response_is_known_and_followed_at_another_door(two: tuple[Member, Member], clients: list[httpx.AsyncClient]) -> None:
    a, b = clients
    first = (await a.post("/v1/responses", json={"model": "batos", "input": TEA})).json()
    known = (await b.get(f"/v1/responses/{first['id']}")).json()
    assert known["output"][-1] == first["output"][-1]
    second = (await b.post("/v1/responses", json={"model": "batos", "input": "And at noon?", "previous_response_id": first["id"]})).json()
    assert second["status"] == "completed"
    assert two[0].record(second["id"].removeprefix("resp_")).context == first["id"].removeprefix("resp_")


async def test_a_picture_that_came_in_at_one_kernel_is_used_at_another(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri = postgres.image()
    async with (
        member(f"{uri}&blob_dir={tmp_path}/blobs-a&shared_blob_dir=0", tmp_path, "a") as a,
        member(f"{uri}&blob_dir={tmp_path}/blobs-b&shared_blob_dir=0", tmp_path, "b") as b,
    ):
        data = png(8, 8)
        image = await a.client.upload(data, "dot.png")
        assert await b.client.upload(data, "dot.png") == image  # it is there, and comes no second time
        await b.client.submit("What is it?", id="seen", images=[{"digest": image["digest"], "name": "dot.png"}])
        assert [one["digest"] for one in a.record("seen").images] == [image["digest"]]
        assert b.kernel.image.read(blobs.read_picture, image["digest"]) == data


async def test_the_feed_of_events_at_one_door_has_the_states_of_thoughts_at_another(
    two: tuple[Member, Member], clients: list[httpx.AsyncClient]
) -> None:
    a, b = two
    a.inference.hold()
    heard: list[dict[str, Any]] = []

    async def read() -> None:
        async with clients[1].stream("GET", "/v1/events?kinds=state,token,result", timeout=WAIT_S) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    heard.append(json.loads(line.removeprefix("data: ")))
                    if heard[-1]["type"] == "result":
                        return

    reading = asyncio.create_task(read())
    await until(lambda: b.kernel.events.is_followed(("token",)), "the reader")
    await a.client.submit(TEA, id="m1")
    await a.inference.came(1)
    await until(lambda: b.kernel.info()["kernel"]["relayed"]["missions"] == 1, "the relay")
    a.inference.release()
    async with asyncio.timeout(WAIT_S):
        await reading
    assert {one["type"] for one in heard} == {"state", "token", "result"}
    assert [one["id"] for one in heard] == ["m1"] * len(heard)
