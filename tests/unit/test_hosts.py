"""Inference over several Ollamas: who gets the work, who takes over, and what waits."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batos.bridge.client import OllamaInference
from batos.bridge.failures import RetryPolicy
from batos.bridge.hosts import Hosts, unless_away
from batos.bridge.inference import ChatRequest, Inference
from batos.errors import InferenceFailed
from batos.testing import ScriptedOllama

MODEL = "robin:embedded"
HELLO = ChatRequest(MODEL, "", "Say hello to the cat")
QUICK = RetryPolicy(inference_retries=1, inference_backoff_s=0.01, breaker_failures=3, breaker_probe_s=0.02)


@pytest.fixture
def one() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        yield server


@pytest.fixture
def two() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        yield server


@asynccontextmanager
async def over(*servers: ScriptedOllama, wait_s: float = 30, switch_s: float = 30, **more: Any) -> AsyncIterator[Hosts]:
    each = [OllamaInference(server.host, policy=QUICK, **more) for server in servers]
    hosts = Hosts(each, wait_s=wait_s, switch_s=switch_s, look_s=0.02)
    try:
        yield hosts
    finally:
        await hosts.close()


def rebuilt(server: ScriptedOllama) -> None:
    server.models[MODEL] = dataclasses.replace(server.models[MODEL], system="made anew")


async def test_the_least_busy_gets_the_work(one: ScriptedOllama, two: ScriptedOllama) -> None:
    async with over(one, two) as hosts:
        assert isinstance(hosts, Inference)
        one.hold()
        two.hold()
        chats = [asyncio.create_task(hosts.chat(HELLO, deadline_s=30)) for _ in range(4)]
        await asyncio.to_thread(one.wait_for, "/api/chat", 2)
        await asyncio.to_thread(two.wait_for, "/api/chat", 2)
        assert [fact["under_way"] for fact in hosts.facts()] == [2, 2]
        one.release()
        two.release()
        await asyncio.gather(*chats)
    assert (len(one.chats), len(two.chats)) == (2, 2)


async def test_only_who_has_the_model(one: ScriptedOllama, two: ScriptedOllama) -> None:
    del one.models[MODEL]
    async with over(one, two) as hosts:
        for _ in range(3):
            assert (await hosts.chat(HELLO, deadline_s=10)).text
        assert await hosts.embed("minilm:embedded", ["a"], deadline_s=10)
        assert await hosts.continues(MODEL)
    assert (len(one.chats), len(two.chats)) == (0, 3)


@pytest.mark.parametrize("kind", ["refuse", "status_500", "status_503", "status_404", "junk", "hang"])
async def test_another_takes_over_before_the_first_token(one: ScriptedOllama, two: ScriptedOllama, kind: str) -> None:
    one.fail(kind, times=None)  # type: ignore[arg-type]
    async with over(one, two) as hosts:
        heard: list[str] = []
        reply = await hosts.chat(HELLO, deadline_s=2 if kind == "hang" else 10, on_text=heard.append)
        assert "".join(heard) == reply.text
    assert len(two.chats) == 1


@pytest.mark.parametrize("kind", ["cut", "error", "stall"])
async def test_nobody_takes_over_what_has_been_heard(one: ScriptedOllama, two: ScriptedOllama, kind: str) -> None:
    """It is for the caller to go on with it: half an answer and a whole one are not one answer."""
    one.fail(kind)  # type: ignore[arg-type]
    async with over(one, two) as hosts:
        with pytest.raises(InferenceFailed):
            await hosts.chat(HELLO, deadline_s=2 if kind == "stall" else 60)
    assert len(two.chats) == 0


async def test_one_that_is_down_is_passed_over(one: ScriptedOllama, two: ScriptedOllama) -> None:
    async with over(one, two) as hosts:
        one.stop()
        for _ in range(4):
            assert (await hosts.chat(HELLO, deadline_s=10)).text
        first, second = hosts.facts()
        assert (first["answers"], second["answers"]) == (False, True)
        assert hosts.outage == ""
        assert len(two.chats) == 4


async def test_when_none_answers_it_waits(one: ScriptedOllama, two: ScriptedOllama) -> None:
    async with over(one, two) as hosts:
        one.stop()
        two.stop()
        chats = [asyncio.create_task(hosts.chat(HELLO, deadline_s=10)) for _ in range(3)]
        async with asyncio.timeout(90):
            while not hosts.outage:
                await asyncio.sleep(0.01)
        assert one.host in hosts.outage
        assert two.host in hosts.outage
        two.start()
        assert all(reply.text for reply in await asyncio.gather(*chats))


@pytest.mark.parametrize("failures", [1, 3, 1000])
async def test_it_waits_no_longer_than_it_may(one: ScriptedOllama, failures: int) -> None:
    """Whether the breaker is open by then or not."""
    policy = dataclasses.replace(QUICK, breaker_failures=failures)
    hosts = Hosts([OllamaInference(one.host, policy=policy)], wait_s=0.3, switch_s=0, look_s=0.02)
    one.stop()
    begun = time.monotonic()
    with pytest.raises(InferenceFailed) as failed:
        await hosts.chat(HELLO, deadline_s=90)
    assert failed.value.cause in ("unreachable", "breaker")
    assert failed.value.may_retry
    assert 0.3 <= time.monotonic() - begun < 60, "the time of the wait, not that of the chat"
    await hosts.close()


async def test_one_that_is_away_keeps_nobody_waiting_for_another_that_fails(one: ScriptedOllama, two: ScriptedOllama) -> None:
    """The caller hears of the failure, and decides; whichever of the two comes first."""
    for down, failing in ((one, two), (two, one)):
        failing.fail("status_500", times=None)
        down.stop()
        async with over(one, two) as hosts:
            with pytest.raises(InferenceFailed) as failed:
                await hosts.chat(HELLO, deadline_s=10)
        assert failed.value.cause == "server_error"
        failing.clear()
        down.start()


async def test_one_that_waits_can_be_cancelled(one: ScriptedOllama) -> None:
    async with over(one) as hosts:
        one.stop()
        chat = asyncio.create_task(hosts.chat(HELLO, deadline_s=10))
        async with asyncio.timeout(90):
            while not hosts.outage:
                await asyncio.sleep(0.01)
        chat.cancel()
        with pytest.raises(asyncio.CancelledError):
            await chat


async def test_what_a_model_can_do_is_not_waited_for_while_none_answers(one: ScriptedOllama) -> None:
    async with over(one) as hosts:
        async with asyncio.timeout(90):
            await unless_away(hosts.digest(MODEL), lambda: hosts.outage)
            assert await hosts.digest(MODEL)
            await unless_away(hosts.digest("nobody:none"), lambda: hosts.outage)  # there is no such model: whatever comes of it
            one.stop()
            await unless_away(hosts.digest("robin:other"), lambda: hosts.outage)
        assert hosts.outage


async def test_a_refusal_is_not_carried_from_host_to_host(one: ScriptedOllama, two: ScriptedOllama) -> None:
    async with over(one, two) as hosts:
        with pytest.raises(InferenceFailed) as failed:
            await hosts.chat(dataclasses.replace(HELLO, options=(("think", True),)), deadline_s=10)
    assert failed.value.cause == "refused"
    assert len(one.chats) + len(two.chats) == 1


# --- the digest that answers are keyed by


async def test_other_weights_under_the_name_do_not_answer(one: ScriptedOllama, two: ScriptedOllama) -> None:
    rebuilt(two)
    async with over(one, two) as hosts:
        digest = await hosts.digest(MODEL)
        assert digest == one.models[MODEL].digest
        for _ in range(3):
            assert (await hosts.chat(HELLO, deadline_s=10)).digest == digest
        assert [fact["differs"] for fact in hosts.facts()] == [[], [MODEL]]
    assert len(two.chats) == 0


async def test_a_digest_is_held_to_while_its_host_is_away(one: ScriptedOllama, two: ScriptedOllama) -> None:
    """And let go of after the wait: the next attempt thinks with what is there."""
    rebuilt(two)
    async with over(one, two, switch_s=0.3) as hosts:
        digest = await hosts.digest(MODEL)
        one.stop()
        with pytest.raises(InferenceFailed):
            await hosts.chat(dataclasses.replace(HELLO, digest=digest), deadline_s=10)
        assert await hosts.digest(MODEL) == two.models[MODEL].digest
        assert (await hosts.chat(HELLO, deadline_s=10)).text
    assert len(two.chats) == 1


async def test_a_digest_that_two_hosts_share_outlives_one_of_them(one: ScriptedOllama, two: ScriptedOllama) -> None:
    async with over(one, two, digest_ttl_s=0) as hosts:
        digest = await hosts.digest(MODEL)
        one.stop()
        assert await hosts.digest(MODEL) == digest
        rebuilt(one)
        one.start()
        async with asyncio.timeout(90):
            while not all(fact["answers"] for fact in hosts.facts()):
                await asyncio.sleep(0.01)
        assert await hosts.digest(MODEL) == digest, "who comes back with another is passed over"
        assert (await hosts.chat(HELLO, deadline_s=10)).digest == digest


async def test_a_model_made_anew_everywhere_is_followed(one: ScriptedOllama) -> None:
    async with over(one, digest_ttl_s=0) as hosts:
        before = await hosts.digest(MODEL)
        rebuilt(one)
        assert await hosts.digest(MODEL) == one.models[MODEL].digest != before
        with pytest.raises(InferenceFailed) as failed:
            await hosts.chat(dataclasses.replace(HELLO, digest=before), deadline_s=10)
        assert (failed.value.cause, failed.value.may_retry) == ("model_changed", True)


async def test_what_the_first_lacks_is_for_provisioning(one: ScriptedOllama, two: ScriptedOllama) -> None:
    """Also while another is away: the first can have it made, the other may never come back."""
    async with over(one, two) as hosts:
        two.stop()
        del one.models[MODEL]
        with pytest.raises(InferenceFailed) as failed:
            await hosts.digest(MODEL)
    assert failed.value.cause == "model_missing"
