"""Consoles of several kernels on one image: each shows the missions of all, gives missions, and steps into what another kernel thought."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batos.bridge.inference import ChatRequest
from batos.errors import InferenceFailed
from tests.support.console import Seat, seated, seen
from tests.support.servers import Postgres, postgres  # noqa: F401
from tests.support.several import Member, pair, until

BRIEF = "Which tea shall I drink in the evening?"


@pytest.fixture
async def two(postgres: Postgres, tmp_path: Path) -> AsyncIterator[tuple[Member, Member]]:  # noqa: F811
    async with pair(postgres.image(), tmp_path, console="on", console_listen="127.0.0.1:0", mission_attempts=1) as members:
        yield members


@pytest.fixture
async def seat(two: tuple[Member, Member]) -> AsyncIterator[Seat]:
    """A browser at the second kernel."""
    async with seated(two[1].kernel) as seat:
        yield seat


async def test_the_console_of_a_kernel_shows_what_another_thinks_and_gives_missions(two: tuple[Member, Member], seat: Seat) -> None:
    a, b = two
    a.inference.hold()
    await a.client.submit(BRIEF, id="m1")
    await a.inference.came(1)
    await until(lambda: b.record("m1").kernel == a.name, "the mission, at the first kernel")
    assert BRIEF in seen(await seat.see("/"))
    assert "Cancel" in seen(await seat.see("/mission", id="m1"))
    a.inference.release()
    text = (await b.client.result("m1"))["text"]
    assert text in seen(await seat.see("/mission", id="m1"))
    given = await seat.gave("And in the morning?")
    assert (await a.client.result(given))["text"] in seen(await seat.see("/mission", id=given))
    assert a.record(given).brief == "And in the morning?"


async def test_a_mission_that_failed_at_one_kernel_is_stepped_into_and_continued_at_another(two: tuple[Member, Member], seat: Seat) -> None:
    a, b = two

    def fails(request: ChatRequest) -> InferenceFailed | None:
        return InferenceFailed("no such model here", cause="model_missing", model=request.model) if request.schema is None else None

    a.inference.fail_when = fails
    b.inference.fail_when = fails
    await a.client.submit(BRIEF, id="m1", persona="robin", depth="facets")
    await until(lambda: a.record("m1").state == b.record("m1").state == "FAILED", "the failure")
    assert (a.record("m1").kernel, b.inference.asked) == (a.name, [])
    assert "Step into it" in seen(await seat.see("/mission", id="m1"))
    opened = await b.ask("step.open", id="m1", session="s")
    assert (opened["error"]["code"], opened["counts"]["recorded"], opened["counts"]["new"]) == ("inference_failed", 1, 0)
    a.inference.fail_when = b.inference.fail_when = lambda request: None
    await b.ask("step.continue", session="s", note="the model is there again")
    assert (await a.client.result("m1"))["text"] == (await b.client.result("m1"))["text"]
    assert a.record("m1").state == b.record("m1").state == "COMPLETE"
    planned = [one for one in a.inference.asked + b.inference.asked if one.schema is not None and BRIEF in one.user]
    assert len(planned) == 1, "what the first kernel paid for is not asked for again"
