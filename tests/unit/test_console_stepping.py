"""The console's page for stepping: a failed mission is entered, looked at, mended and continued."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from tests.support.console import HOSTILE, Seat, seated, seen, served
from tests.support.methods import ADD, sent, writing
from tests.support.missions import FakeInference, answer, submit


@pytest.fixture
def inference() -> FakeInference:
    """A model that says nothing where it is asked about the moon."""
    made = FakeInference()

    def say(request: ChatRequest) -> str:
        return "" if request.schema is None and "moon" in request.user and "gently" not in request.user else answer(request)

    made.say = say
    return made


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with served(tmp_path, inference, mission_attempts=1) as kernel:
        yield kernel


@pytest.fixture
async def seat(kernel: Kernel) -> AsyncIterator[Seat]:
    async with seated(kernel) as seat:
        yield seat


async def failed(kernel: Kernel, id: str = "moon") -> None:
    end = await (await submit(kernel, id, f"Why the moon? {HOSTILE}", persona="robin", depth="direct")).end()
    assert end["state"] == "FAILED", end


async def entered(seat: Seat, id: str = "moon") -> str:
    """Step into a mission by its page; the address of where that stands."""
    page = await seat.see("/mission", id=id)
    assert "Step into it" in seen(page)
    reply = await seat.post("/step/open", id=id)
    assert reply.status_code == 303, reply.text
    return str(reply.headers["location"])


def session_of(address: str) -> str:
    found = re.search(r"session=([\w-]+)", address)
    assert found is not None
    return found[1]


async def test_a_failed_mission_is_entered_where_it_failed_and_looked_at(seat: Seat, kernel: Kernel, inference: FakeInference) -> None:
    await failed(kernel)
    asked = len(inference.asked)
    address = await entered(seat)
    assert await entered(seat) == address, "the same mission, the same session"
    page = await seat.see(address)
    text = seen(page)
    for words in ("the image as it was", "quality_refused", "synthesizing", "Slots of the cycle", "Prompts and answers", HOSTILE):
        assert words in text, words
    assert re.search(r'<li aria-current="step"><button[^>]*>synthesizing', page)
    assert "<script>alert" not in page
    session = session_of(address)
    whole = seen(await seat.see("/step", session=session, inference="1"))
    assert "Inference 1" in whole
    assert "the prompt of synthesizing" in whole
    looked = seen(await seat.see("/step", session=session, target="robin"))
    assert "core_mission" in looked
    assert "To interpret the 'why'" in looked
    assert "nowhere" in seen(await seat.see("/step", session=session, target="nowhere"))
    back = await seat.post("/step/go", session=session, to="0")
    assert back.status_code == 303
    assert "before any thought" in seen(await seat.see(back.headers["location"]))
    assert (await seat.post("/step/go", session=session, to="failure")).status_code == 303
    told = seen((await seat.post("/step/eval", session=session, expression="cycle.depth")).text)
    assert "direct" in told
    refused = await seat.post("/step/eval", session=session, expression="import os")
    assert refused.status_code == 400
    assert len(inference.asked) == asked, "nobody was asked"
    assert "moon" in seen(await seat.see("/steps"))


async def test_it_is_mended_in_place_seen_as_a_diff_and_continued(seat: Seat, kernel: Kernel) -> None:
    await failed(kernel)
    address = await entered(seat)
    session = session_of(address)
    refused = await seat.post("/step/edit", session=session, kind="prompt", place="psm.SYNTHESIZING", value="$nothing of the kind")
    assert (refused.status_code, "must name" in seen(refused.text)) == (400, True)
    made = await seat.post("/step/edit", session=session, kind="answer", place="1", value="It is made of stone.", inference="1")
    assert made.headers["location"] == f"/step?session={session}&inference=1"
    assert "something was changed since" in seen(await seat.see("/step", session=session)).lower()
    assert (await seat.post("/step/go", session=session, to="end")).status_code == 303
    assert "It ends well here: It is made of stone." in seen(await seat.see("/step", session=session))
    preview = seen(await seat.see("/step/continue", session=session))
    assert "answer 1" in preview
    assert "It is made of stone." in preview
    reply = await seat.post("/step/continue", session=session, note="the model said nothing")
    assert reply.headers["location"] == "/mission?id=moon&said=continued"
    await kernel.scheduler.quiet()
    told = seen(await seat.see("/mission", id="moon"))
    assert "It is made of stone." in told
    assert "complete" in told
    assert "None is open" in seen(await seat.see("/steps"))


async def test_a_change_is_taken_back_and_a_session_left(seat: Seat, kernel: Kernel) -> None:
    await failed(kernel)
    session = session_of(await entered(seat))
    await seat.post("/step/edit", session=session, kind="slot", place="robin.core_mission", value='"To be kind."')
    page = await seat.see("/step", session=session, target="robin")
    assert 'from now on "To be kind."' in seen(page)
    assert "slot robin.core_mission Take back" in seen(page)
    await seat.post("/step/edit", session=session, drop="1")
    assert "To be kind." not in seen(await seat.see("/step", session=session, target="robin"))
    assert (await seat.post("/step/close", session=session, id="moon")).headers["location"] == "/mission?id=moon"
    assert "unknown_session" in await seat.see("/step", 404, session=session)


async def test_a_method_is_run_alone_with_its_line_and_values(seat: Seat, kernel: Kernel, inference: FakeInference) -> None:
    writing(inference, ADD)
    await sent(kernel, "m1", "brick", "add_", 1, 2)
    page = await seat.see("/method", target="brick", selector="add_")
    assert "Step through a run" in seen(page)
    reply = await seat.post("/step/open", target="brick", selector="add_", args="[40, 2]")
    page = await seat.see(reply.headers["location"])
    assert re.search(r'class="at" aria-current="step"><i>2</i>\s+return', page)
    text = seen(page)
    assert "It answered 42" in text
    assert "number2 2" in text
    assert (await seat.post("/step/open", target="brick", selector="add_", args="{")).status_code == 400
