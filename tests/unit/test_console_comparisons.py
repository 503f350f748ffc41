"""The console's pages of comparisons: their cost before they begin, blind judging, the report, what is made so."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.console.api_client import Asker
from tests.support.autonomy import BRIEFS, thought
from tests.support.console import HOSTILE, Seat, seated, seen, served
from tests.support.missions import WAIT_S, FakeInference, answer


@pytest.fixture
def inference() -> FakeInference:
    """BRICK speaks of spring, each time otherwise."""
    made = FakeInference()

    def say(request: ChatRequest) -> str:
        if request.schema is None and "You are BRICK" in request.system:
            return f"It is spring, and {HOSTILE} grows. Of {request.user[-40:]}"
        return answer(request)

    made.say = say
    return made


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with served(tmp_path, inference, autotelic="on", heartbeat_first_s=6e5, senses_s=86400) as kernel:
        await thought(kernel, *BRIEFS, depth="direct", flavour="full")
        yield kernel


@pytest.fixture
async def seat(kernel: Kernel) -> AsyncIterator[Seat]:
    async with seated(kernel) as seat:
        yield seat


async def begun(seat: Seat, **fields: str) -> str:
    """Begin a comparison as its pages do; its id, once it has ended."""
    asker = Asker(seat.kernel.transport.dispatcher, seat.kernel.settings)
    page = await seat.see("/compare/plan", persona="robin", other="brick", **fields)
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
    reply = await seat.post("/compare/start", **form, inferences="")
    assert reply.status_code == 303, reply.text
    for _ in range(2):  # sent twice, it begins one
        assert (await seat.post("/compare/start", **form, inferences="")).headers["location"] == reply.headers["location"]
    async with asyncio.timeout(WAIT_S):
        while (await asker.ask("compare.show", id=form["id"], wait_s=5.0))["state"] in ("waiting", "running"):
            pass
    return form["id"]


async def test_the_cost_is_named_first_and_pairs_are_judged_blind(seat: Seat) -> None:
    assert "None so far" in seen(await seat.see("/compare"))
    plan = seen(await seat.see("/compare/plan", persona="robin", other="brick", judge="me"))
    for words in ("robin with brick in its place", "pairs 4", "at most 200 inferences", "judge you"):
        assert words in plan
    assert "None so far" in seen(await seat.see("/compare")), "a plan begins nothing"
    id = await begun(seat, judge="me")
    report = await seat.see("/comparison", id=id)
    assert "spring" not in report
    assert "Judge 4 pairs" in seen(report)
    for number in range(1, 5):
        page = await seat.see("/compare/judge", id=id)
        assert f"pair {number} of 4" in seen(page)
        assert "BRICK" not in page
        assert "ROBIN" not in page
        assert "<script>alert" not in page
        left = page.partition(">Left</h2>")[2].partition("</section>")[0]
        reply = await seat.post("/compare/judge", id=id, number=str(number), verdict="left" if "spring" in left else "right")
        assert reply.headers["location"] == f"/compare/judge?id={id}"
    assert (await seat.client.get("/compare/judge", params={"id": id})).headers["location"] == f"/comparison?id={id}"
    report = seen(await seat.see("/comparison", id=id))
    for words in ("Undecided", "4 with it, 0 as it is, 0 ties", "too few to say anything", "exact binomial", "BRICK", HOSTILE):
        assert words in report, words


async def test_what_makes_no_sense_comes_back_with_the_reason_and_the_words(seat: Seat) -> None:
    page = await seat.see("/compare/plan", 400, persona="robin", other="brik", match="Monday")
    assert "neither a persona nor a model that is there" in seen(page)
    assert 'value="brik"' in page
    page = await seat.see("/compare/plan", 400, persona="robin", other="brick", judge="rules", rules="beauty")
    assert "is not a valid rule" in seen(page)
    await seat.see("/comparison", 404, id="nothing")


async def test_it_is_judged_otherwise_made_so_and_forgotten(seat: Seat, kernel: Kernel) -> None:
    id = await begun(seat, judge="rules", rules="contains:spring, length")
    report = await seat.see("/comparison", id=id)
    assert "rules: contains:spring, length" in seen(report)
    refused = await seat.post("/compare/promote", id=id, note="it is warm")
    assert (refused.status_code, "does not say that the variant is better" in seen(refused.text)) == (400, True)
    assert (await seat.post("/compare/promote", id=id, note="it is warm", anyway="1")).status_code == 303
    report = await seat.see("/comparison", id=id)
    assert "It was made so: change 1 , “it is warm”." in seen(report)
    change = seen(await seat.see("/change", number="1"))
    assert "Comparison of robin" in change
    assert (await seat.post("/change", number="1", why="no")).status_code == 303
    assert "It was made so" not in seen(await seat.see("/comparison", id=id))
    assert (await seat.post("/compare/remove", id=id)).headers["location"] == "/compare?said=removed"
    assert "None so far" in seen(await seat.see("/compare"))
