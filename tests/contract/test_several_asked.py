"""Several kernels on one image are asked: any of them answers for the missions of all."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.bridge.inference import ChatReply, ChatRequest
from batos.errors import DeadlineExceeded, InvalidInput, KeyRefused, MissionCancelled, RoleRefused
from batos.wire import keys
from batos.wire.client import Client
from batos.wire.keys import ClientKeys
from tests.support.missions import WAIT_S, FakeInference, answer
from tests.support.servers import Postgres, postgres  # noqa: F401
from tests.support.several import Member, member, met, pair, until

BRIEF = "Plan the day"


@pytest.fixture
async def two(postgres: Postgres, tmp_path: Path) -> AsyncIterator[tuple[Member, Member]]:  # noqa: F811
    async with pair(postgres.image(), tmp_path) as members:
        yield members


async def under_way(one: Member, id: str, **options: Any) -> None:
    """Give a kernel a mission, which its model does not answer before it is let to."""
    one.inference.hold()
    await one.client.submit(BRIEF, id=id, **options)
    await one.inference.came(1)


async def heard(one: Member, id: str, events: list[dict[str, Any]]) -> None:
    """Watch a mission to its end."""
    async with asyncio.timeout(WAIT_S):
        async for event in one.client.watch(id):
            events.append(event)


# --- ends


async def test_an_end_is_told_at_each_kernel_once(two: tuple[Member, Member]) -> None:
    a, b = two
    await under_way(a, "m1")
    waited = asyncio.create_task(b.client.result("m1"))
    assert (await b.client.status("m1"))["kernel"] == a.name
    a.inference.release()
    result = await waited
    assert result["text"] == a.record("m1").result["text"]  # type: ignore[index]
    await until(lambda: b.ended("m1"))
    for id in ("m2", "m3"):  # two that begin and end, so that further looks came by
        await a.client.submit(BRIEF, id=id)
        await b.client.result(id)
    await until(lambda: len(b.ends) == len(a.ends) == 3, "the ends")
    assert [(one.mission, one.state, one.here) for one in a.ends] == [(id, "COMPLETE", True) for id in ("m1", "m2", "m3")]
    assert sorted((one.mission, one.state, one.here) for one in b.ends) == [(id, "COMPLETE", False) for id in ("m1", "m2", "m3")]
    counted = {one: await one.ask("metrics") for one in two}
    missions = {one: next(m for m in told["metrics"] if m["name"] == "batos_missions")["samples"] for one, told in counted.items()}
    assert sum(sample["value"] for sample in missions[a]) == 3
    assert missions[b] == []


async def test_a_failure_is_told_with_its_code(two: tuple[Member, Member]) -> None:
    a, b = two
    await under_way(a, "m1")
    failing = asyncio.create_task(b.client.result("m1"))
    await a.client.cancel("m1")
    with pytest.raises(MissionCancelled):
        await failing
    await until(lambda: b.ended("m1"))
    assert (b.ended("m1")[0].state, b.ended("m1")[0].error_code) == ("FAILED", "cancelled")


async def test_text_and_states_of_a_thought_come_live_and_the_end_comes_last(two: tuple[Member, Member]) -> None:
    a, b = two
    await under_way(a, "m1")
    events: list[dict[str, Any]] = []
    watching = [asyncio.create_task(heard(b, "m1", events)), asyncio.create_task(heard(b, "m1", []))]
    await until(lambda: b.kernel.info()["kernel"]["relayed"]["missions"] == 1, "the relay")
    assert len(a.kernel.transport.missions.watches) == 1  # however many watch there
    a.inference.release()
    await asyncio.gather(*watching)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "status"
    assert kinds[-1] == "result"
    assert kinds.count("result") == 1
    assert "".join(e["text"] for e in events if e["type"] == "token").split() == answer(a.inference.asked[-1]).split()
    states = [e["state"] for e in events if e["type"] == "state"]
    assert states[-1] == "COMPLETE"
    assert states.count("COMPLETE") == 1
    assert [one.here for one in b.ended("m1")] == [False]
    await until(lambda: b.kernel.info()["kernel"]["relayed"]["missions"] == 0)


async def test_a_kernel_that_cannot_be_reached_costs_only_what_is_live(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    async with pair(postgres.image(), tmp_path) as (a, b):
        await a.kernel.membership.describe(endpoint=f"ipc://{tmp_path}/nobody.sock")
        await until(lambda: b.kernel.membership.others()[0].endpoint.endswith("nobody.sock"))
        await under_way(a, "m1")
        events: list[dict[str, Any]] = []
        watching = asyncio.create_task(heard(b, "m1", events))
        await until(lambda: b.kernel.info()["kernel"]["relayed"]["unreached"], "word of the kernel that is not reached")
        a.inference.release()
        await watching
        assert [event["type"] for event in events] == ["status", "state", "result"]
        told = next(one for one in (await b.client.kernels())["kernels"] if one["name"] == a.name)
        assert "no daemon answers at" in told["unreached"]


async def test_another_daemon_at_the_address_of_a_kernel_is_not_believed(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    async with pair(postgres.image(), tmp_path) as (a, b):
        await a.kernel.membership.describe(endpoint=b.kernel.endpoints[0])
        await until(lambda: b.kernel.membership.others()[0].endpoint == b.kernel.endpoints[0])
        await under_way(a, "m1")
        watching = asyncio.create_task(heard(b, "m1", []))
        await until(lambda: b.kernel.info()["kernel"]["relayed"]["unreached"], "word of the kernel that is not reached")
        assert f"answers {b.name}" in b.kernel.info()["kernel"]["relayed"]["unreached"][a.name]
        a.inference.release()
        await watching


async def test_kernels_let_each_other_in_by_the_keys_that_the_image_tells_to_read_and_no_more(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
) -> None:
    uri = postgres.image()
    async with contextlib.AsyncExitStack() as stack:
        members, own = [], []
        for host in ("a", "b"):
            secret, public = keys.create(tmp_path / f"keys-{host}", "server")
            of_client, _ = keys.create(tmp_path / f"client-{host}", "client", tmp_path / f"clients-{host}", role="operate")
            wire = {"listen": ("tcp://127.0.0.1:*",), "secret_key": str(secret), "client_keys": str(tmp_path / f"clients-{host}")}
            given = {"wire": wire, "keys": ClientKeys.load(of_client, public)}
            members.append(await stack.enter_async_context(member(uri, tmp_path, host, **given)))
            own.append(keys.load_pair(secret))
        a, b = members
        await met(a, b)
        await under_way(a, "m1")
        events: list[dict[str, Any]] = []
        watching = asyncio.create_task(heard(b, "m1", events))
        await until(lambda: b.kernel.info()["kernel"]["relayed"]["missions"] == 1, "the relay")
        a.inference.release()
        await watching
        assert "token" in {event["type"] for event in events}
        async with Client(a.kernel.endpoints[0], timeout_s=WAIT_S, keys=ClientKeys(own[1], own[0].public)) as other:
            assert (await other.status("m1"))["state"] == "COMPLETE"
            with pytest.raises(RoleRefused):
                await other.cancel("m1")
        _, stranger = keys.create(tmp_path / "stranger", "x")
        pair_of_stranger = keys.load_pair(stranger.with_suffix(".key_secret"))
        async with Client(a.kernel.endpoints[0], keys=ClientKeys(pair_of_stranger, own[0].public)) as refused:
            with pytest.raises(KeyRefused):
                await refused.status("m1")


async def test_what_is_watched_goes_on_at_the_kernel_that_takes_the_mission_over(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri = postgres.image()
    async with contextlib.AsyncExitStack() as stack:
        a, b, c = [await stack.enter_async_context(member(uri, tmp_path, host, shutdown_s=0.1)) for host in ("a", "b", "c")]
        await met(a, b, c)
        await c.kernel.membership.drain()  # it serves clients, and thinks nothing
        await under_way(a, "m1")
        b.inference.hold()
        events: list[dict[str, Any]] = []
        watching = asyncio.create_task(heard(c, "m1", events))
        await until(lambda: c.kernel.info()["kernel"]["relayed"]["missions"] == 1, "the relay from the first")
        await a.kernel.stop()
        await b.inference.came(1)
        await until(lambda: c.kernel.info()["kernel"]["relayed"]["missions"] == 1, "the relay from the second")
        assert (await c.client.status("m1"))["kernel"] == b.name
        b.inference.release()
        async with asyncio.timeout(WAIT_S):
            await watching
        assert "".join(e["text"] for e in events if e["type"] == "token").split() == answer(b.inference.asked[-1]).split()
        assert [e["type"] for e in events].count("result") == 1
        assert c.record("m1").attempts == 1


# --- steering


class Pondering(FakeInference):
    """Takes another time for each answer."""

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        await asyncio.sleep(random.random() * 0.15)
        return await super().chat(request, deadline_s=deadline_s, on_text=on_text)


async def test_a_cancellation_at_another_kernel_ends_the_mission_there(two: tuple[Member, Member]) -> None:
    a, b = two
    await under_way(a, "m1")
    told = await b.client.cancel("m1")
    assert (told["state"], told["error"]["code"], told["kernel"]) == ("FAILED", "cancelled", a.name)
    assert a.record("m1").state == "FAILED"
    assert not a.kernel.scheduler.facts()["running"]
    await until(lambda: a.ended("m1") and b.ended("m1"))
    assert [one.here for one in a.ended("m1")] == [True]
    assert [one.here for one in b.ended("m1")] == [False]


async def test_a_pause_at_another_kernel_holds_the_mission_back_until_it_is_resumed_anywhere(two: tuple[Member, Member]) -> None:
    a, b = two
    await under_way(a, "m1")
    assert (await b.client.pause("m1"))["state"] == "PAUSED"
    await until(lambda: not a.kernel.scheduler.facts()["running"], "the end of the attempt")
    await until(lambda: a.record("m1").kernel == "", "a mission that is nobody's")
    for one in two:
        assert (await one.client.status("m1"))["state"] == "PAUSED"
    assert (a.record("m1").state, a.record("m1").attempts) == ("ACCEPTED", 0)
    a.inference.release()
    await b.client.resume("m1")
    assert await a.client.result("m1")
    assert a.record("m1").attempts == 1


async def test_a_question_is_told_at_each_kernel_and_answered_once_at_any(two: tuple[Member, Member]) -> None:
    a, b = two
    a.inference.hold()
    await a.client.submit("Choose a restaurant", id="m1", may_ask=True)
    await a.inference.came(1)
    events: list[dict[str, Any]] = []
    watching = asyncio.create_task(heard(b, "m1", events))
    await until(lambda: any(event["type"] == "status" for event in events))
    a.inference.release()
    await until(lambda: any(event["type"] == "needs_input" for event in events), "the question")
    asked = next(event for event in events if event["type"] == "needs_input")
    statuses = [await one.client.status("m1") for one in two]
    assert {status["state"] for status in statuses} == {"NEEDS_INPUT"}
    assert [status["question"] for status in statuses] == [{"number": 1, "question": asked["question"]}] * 2
    replies = await asyncio.gather(*(one.client.answer("m1", f"of {one.name}", 1) for one in two), return_exceptions=True)
    (refused,) = [reply for reply in replies if isinstance(reply, InvalidInput)]
    assert "was answered already" in refused.message
    await watching
    assert [event["type"] for event in events].count("needs_input") == 1
    said = a.record("m1").questions[0]["answer"]
    assert said == ("of " + two[[isinstance(reply, InvalidInput) for reply in replies].index(False)].name)


async def test_a_deadline_ends_what_waits_also_where_its_kernel_has_gone(two: tuple[Member, Member]) -> None:
    a, b = two
    await under_way(a, "m1", deadline_s=12)  # it is paused long before, and then waited for
    assert (await b.client.pause("m1"))["state"] == "PAUSED"
    await until(lambda: a.record("m1").kernel == "", "a mission that is nobody's")
    await a.kernel.stop()
    with pytest.raises(DeadlineExceeded):
        await b.client.result("m1")
    assert b.record("m1").attempts == 0


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_is_said_at_the_other_kernel_while_a_mission_is_thought_is_what_is_on_disk(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    async with pair(postgres.image(), tmp_path, inference=Pondering) as (a, b):
        said: dict[str, str] = {}
        answered: dict[str, str] = {}

        async def one_mission(number: int) -> None:
            id, owner, other = f"m{number}", *chance.sample((a, b), 2)
            what = chance.choice(("cancel", "pause", "pause and cancel", "answer", "answer and cancel", "nothing"))
            asks = "answer" in what
            await owner.client.submit(f"{'Choose a restaurant' if asks else BRIEF} {number}", id=id, may_ask=asks)
            await asyncio.sleep(chance.random() * 0.15)  # the moment is what the test tries, not what it waits for
            if asks:
                await until(lambda: other.record(id).open_question, "the question, at the other kernel")
                answered[id] = f"That of {other.name}"
                assert (await other.client.answer(id, answered[id], 1))["state"] != "NEEDS_INPUT"
            if "pause" in what:
                await other.client.pause(id)
            if "cancel" in what:
                told = await other.client.cancel(id)
                assert told["state"] in ("COMPLETE", "FAILED"), told
                said[id] = told["state"]
            if what == "pause":
                told = await owner.client.status(id)
                assert told["state"] in ("COMPLETE", "PAUSED"), told
                await chance.choice((a, b)).client.resume(id)

        await asyncio.gather(*map(one_mission, range(24)))
        for number in range(24):
            id = f"m{number}"
            ends = {}
            for one in (a, b):
                async with asyncio.timeout(WAIT_S):
                    reply = await one.ask("result", id=id, wait_s=60)
                ends[one.name] = reply["state"]
            assert len(set(ends.values())) == 1
            assert set(ends.values()) <= {"COMPLETE", "FAILED"}
            assert said.get(id, ends[a.name]) == ends[a.name] == a.record(id).state == b.record(id).state
            answers = [[question["answer"] for question in one.record(id).questions] for one in (a, b)]
            assert answers == [[answered[id]] if id in answered else []] * 2
        await until(lambda: all(len({e.mission for e in one.ends}) == 24 for one in (a, b)), "the ends of all")
        for one in (a, b):
            assert len(one.ends) == 24
            assert {e.mission: e.state for e in one.ends} == {f"m{n}": one.record(f"m{n}").state for n in range(24)}
        assert {e.mission for e in a.ends if e.here}.isdisjoint({e.mission for e in b.ends if e.here})


# --- one mission


async def test_one_id_given_to_all_kernels_at_once_is_one_mission(two: tuple[Member, Member], tmp_path: Path) -> None:
    a, b = two
    async with member(a.kernel.settings.image.uri, tmp_path, "c") as c:
        await met(a, b, c)
        for number in range(5):
            accepted = await asyncio.gather(*(one.client.submit(BRIEF, id=f"m{number}") for one in (a, b, c, a, b, c)))
            assert [one.duplicate for one in accepted].count(False) == 1
            results = [await one.client.result(f"m{number}") for one in (a, b, c)]
            assert results[0] == results[1] == results[2]
        asked = sum(len(one.inference.asked) for one in (a, b, c))
        assert asked == sum(a.record(f"m{n}").result["usage"]["inferences"] for n in range(5))  # type: ignore[index]


async def test_a_mission_that_follows_one_of_another_kernel_waits_for_it_and_sees_it(two: tuple[Member, Member]) -> None:
    a, b = two
    await under_way(a, "m1")
    await b.client.submit("And the evening?", id="m2", context="m1")
    assert (await b.client.status("m2"))["waits_for"] == "m1"
    a.inference.release()
    assert await b.client.result("m2")

    def seen(request: ChatRequest) -> bool:
        return BRIEF in str(request.turns) or BRIEF in request.user

    asked = [one for one in a.inference.asked + b.inference.asked if "And the evening?" in one.user]
    assert asked
    assert all(map(seen, asked))


# --- who is there


async def test_the_kernels_are_listed_with_where_and_what_they_do(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri = postgres.image()
    async with member(uri, tmp_path, "z"):
        pass
    async with pair(uri, tmp_path) as (a, b):
        await under_way(a, "m1")
        await until(lambda: b.kernel.transport.kernels.describe()["kernels"][1]["missions"] == 1, "the mission")
        told = await b.client.kernels()
        gone, first, second = told["kernels"]
        assert told["name"] == b.name
        assert not told["draining"]
        assert (gone["state"], gone["gone"]) == ("gone", "ended")
        assert gone["ended"] >= gone["began"]
        assert (first["name"], first["state"], first["leads"], first["missions"]) == (a.name, "leads", True, 1)
        assert (first["endpoint"], first["host"], first["unreached"]) == (a.kernel.endpoints[0], "a", None)
        assert (second["state"], second["missions"]) == ("works", 0)
        info = (await b.client.info())["kernel"]
        assert (info["name"], info["leads"], info["states"]) == (b.name, False, {"gone": 1, "leads": 1, "works": 1})
        metrics = {one["name"]: one["samples"] for one in (await b.client.metrics())["metrics"]}
        assert {s["labels"]["kernel"]: s["value"] for s in metrics["batos_kernel_missions"]} == {a.name: 1, b.name: 0}
        assert metrics["batos_kernel_leads"][0]["value"] == 0
        assert (await b.client.kernels(drain=True))["draining"]
        await until(lambda: [k.draining for k in a.kernel.membership.others()] == [True])
        assert (await a.client.kernels())["kernels"][2]["state"] == "drains"
