"""A host that fails: asked again at once, then left alone until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from batos.bridge.client import OllamaInference
from batos.bridge.failures import Breaker, RetryPolicy
from batos.bridge.inference import ChatRequest
from batos.errors import InferenceFailed
from batos.testing import ScriptedOllama

HELLO = ChatRequest("robin:embedded", "", "Say hello to the cat")
QUICK = RetryPolicy(inference_retries=2, inference_backoff_s=0.01, breaker_failures=3, breaker_probe_s=0.02)


@pytest.fixture
async def inference(scripted: ScriptedOllama) -> AsyncIterator[OllamaInference]:
    made = OllamaInference(scripted.host, policy=QUICK)
    yield made
    await made.close()


# --- again at once


@pytest.mark.parametrize("kind", ["refuse", "status_500", "status_503"])
async def test_a_fault_before_the_first_token_is_mended_at_once(scripted: ScriptedOllama, inference: OllamaInference, kind: str) -> None:
    scripted.fail(kind, times=2)  # type: ignore[arg-type]
    assert (await inference.chat(HELLO, deadline_s=10)).text
    assert len(scripted.chats) == 3


@pytest.mark.parametrize("path", ["/api/tags", "/api/embed"])
async def test_the_other_requests_too(scripted: ScriptedOllama, inference: OllamaInference, path: str) -> None:
    scripted.fail("status_500", times=2, path=path)
    if path == "/api/tags":
        assert await inference.digest(HELLO.model)
    else:
        assert await inference.embed("minilm:embedded", ["a"], deadline_s=10)
    assert scripted.counts[path] == 3


async def test_no_more_often_than_the_limit(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    scripted.fail("status_500", times=None)
    with pytest.raises(InferenceFailed):
        await inference.chat(HELLO, deadline_s=10)
    assert len(scripted.chats) == 3


@pytest.mark.parametrize("kind", ["cut", "error", "junk", "status_404"])
async def test_what_has_begun_or_will_not_pass_is_not_asked_again(scripted: ScriptedOllama, inference: OllamaInference, kind: str) -> None:
    scripted.fail(kind)  # type: ignore[arg-type]
    with pytest.raises(InferenceFailed):
        await inference.chat(HELLO, deadline_s=10)
    assert len(scripted.chats) == 1


async def test_the_deadline_holds_over_all_tries(scripted: ScriptedOllama) -> None:
    inference = OllamaInference(scripted.host, policy=RetryPolicy(inference_retries=20, inference_backoff_s=60))
    scripted.fail("status_500", times=None)
    with pytest.raises(InferenceFailed) as failed:
        await inference.chat(HELLO, deadline_s=0.2)
    assert failed.value.cause == "timeout"
    await inference.close()


# --- the breaker


async def test_it_opens_refuses_at_once_and_closes_by_itself(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    assert (await inference.chat(HELLO, deadline_s=10)).text
    scripted.stop()
    with pytest.raises(InferenceFailed) as failed:
        await inference.chat(HELLO, deadline_s=10)
    assert failed.value.cause == "unreachable"
    assert inference.breaker.open
    for asked in (inference.chat(HELLO, deadline_s=10), inference.embed("minilm:embedded", ["a"], deadline_s=10)):
        with pytest.raises(InferenceFailed, match="has not answered for") as failed:
            await asked
        assert (failed.value.cause, failed.value.may_retry) == ("breaker", True)
    assert inference.breaker.facts()["why"]
    before = scripted.counts
    scripted.start()
    async with asyncio.timeout(90):
        await inference.breaker.closed()
    assert scripted.counts - before == {"/api/version": 1}, "nothing but the cheap question"
    assert (await inference.chat(HELLO, deadline_s=10)).text
    assert inference.breaker.facts() == {"answers": True, "outages": 1}


async def test_an_error_that_ollama_reports_is_a_sign_of_life(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    scripted.fail("status_500", times=None)
    for _ in range(3):
        with pytest.raises(InferenceFailed):
            await inference.chat(HELLO, deadline_s=10)
    assert not inference.breaker.open


async def test_a_host_that_takes_requests_and_says_nothing(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    scripted.fail("hang", times=None)
    scripted.fail("hang", times=None, path="/api/version")
    for _ in range(3):
        with pytest.raises(InferenceFailed) as failed:
            await inference.chat(HELLO, deadline_s=0.1)
        assert failed.value.cause == "timeout"
    assert inference.breaker.open
    scripted.clear()
    scripted.stop()
    scripted.start()
    await inference.breaker.closed()


async def test_a_fault_of_the_listener_does_not_open_it(scripted: ScriptedOllama, inference: OllamaInference) -> None:
    def never_done(text: str) -> None:
        raise TimeoutError

    for _ in range(4):
        with pytest.raises(TimeoutError):  # the listener's own, and not the deadline's
            await inference.chat(HELLO, deadline_s=10, on_text=never_done)
    assert not inference.breaker.open


async def test_an_answer_that_is_too_long_for_its_deadline_does_not_open_it(scripted: ScriptedOllama) -> None:
    inference = OllamaInference(scripted.host, 4, policy=QUICK)
    scripted.fail("stall", times=4)

    async def too_long() -> None:
        begun = asyncio.Event()
        with pytest.raises(InferenceFailed) as failed:
            await inference.chat(HELLO, deadline_s=3.0, on_text=lambda text: begun.set())
        assert begun.is_set()
        assert failed.value.cause == "timeout"

    await asyncio.gather(*(too_long() for _ in range(4)))
    assert not inference.breaker.open
    await inference.close()


async def test_open_closed_and_open_again_between_two_probes() -> None:
    async def answers() -> bool:
        return True

    breaker = Breaker("h", answers, RetryPolicy(breaker_failures=1, breaker_probe_s=0.05))
    breaker.failed("no")
    await asyncio.sleep(0)
    breaker.answered()
    breaker.failed("no")
    assert [task.get_name() for task in asyncio.all_tasks()].count("probe of h") == 1
    async with asyncio.timeout(90):
        await breaker.closed()
    await breaker.stop()


async def test_only_failures_in_a_row_count() -> None:
    async def answers() -> bool:
        return False

    breaker = Breaker("h", answers, RetryPolicy(breaker_failures=3))
    for _ in range(5):
        breaker.failed("no")
        breaker.failed("no")
        breaker.answered()
    assert not breaker.open
    for _ in range(3):
        breaker.failed("no")
    assert breaker.open
    breaker.answered()  # a long inference that had begun before comes to its end
    assert not breaker.open
    await breaker.stop()
