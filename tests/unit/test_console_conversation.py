"""The console's page of a conversation: missions that follow one another, and the box to go on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from batos.console import missions
from tests.support.console import HOSTILE, Seat, seated, seen, served
from tests.support.missions import FakeInference


@pytest.fixture
async def seat(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Seat]:
    async with served(tmp_path, inference) as kernel, seated(kernel) as seat:
        yield seat


async def said(seat: Seat, *briefs: str, context: str = "") -> list[str]:
    """Missions that follow one another; their ids."""
    ids: list[str] = []
    for brief in briefs:
        context = await seat.gave(brief, context=context)
        await seat.kernel.scheduler.quiet()
        ids.append(context)
    return ids


def turns(page: str) -> list[str]:
    return re.findall(r'<h2 class="ask">(.*?)</h2>', page)


async def test_a_conversation_is_one_page_whichever_of_its_missions_is_named(seat: Seat) -> None:
    ids = await said(seat, "I feel stuck", "And what then?", "And after that?")
    for id in ids:
        page = await seat.see("/conversation", id=id)
        assert turns(page) == ["I feel stuck", "And what then?", "And after that?"]
        assert seen(page).count("Take one small step") == 3
        assert f'name="context" value="{ids[-1]}"' in page


async def test_it_goes_on_from_its_box(seat: Seat) -> None:
    (first,) = await said(seat, "I feel stuck")
    page = await seat.see("/conversation", id=first)
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page[page.index('action="/submit"') :]))
    answer = await seat.post("/submit", **fields, brief="And what then?")
    address = urlsplit(answer.headers["location"])
    assert (answer.status_code, address.path, address.fragment) == (303, "/conversation", "now")
    again = await seat.post("/submit", **fields, brief="And what then?")
    assert again.headers["location"] == answer.headers["location"], "sent twice, it is one turn"
    await seat.kernel.scheduler.quiet()
    page = await seat.see("/conversation", id=parse_qs(address.query)["id"][0], said="accepted")
    assert turns(page) == ["I feel stuck", "And what then?"]
    assert "The mission is accepted" in seen(page)


async def test_of_two_ways_on_the_newest_is_shown_and_the_other_is_a_link(seat: Seat) -> None:
    (first,) = await said(seat, "I feel stuck")
    (other,) = await said(seat, "The older way", context=first)
    await said(seat, "The newer way", context=first)
    page = await seat.see("/conversation", id=first)
    assert turns(page) == ["I feel stuck", "The newer way"]
    assert f'/conversation?id={other}">The older way' in page
    assert turns(await seat.see("/conversation", id=other)) == ["I feel stuck", "The older way"]


async def test_a_long_conversation_is_cut_and_leads_back(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missions, "TURNS", 2)
    ids = await said(seat, "One", "Two", "Three")
    page = await seat.see("/conversation", id=ids[0])
    assert turns(page) == ["Two", "Three"]
    assert f"/conversation?id={ids[0]}" in page[page.index("What was said before") - 80 :]


async def test_what_is_under_way_can_be_stopped_and_told_from_what_failed(seat: Seat, inference: FakeInference) -> None:
    inference.hold()
    id = await seat.gave("Never mind")
    await inference.came(1)
    page = await seat.see("/conversation", id=id)
    assert f'data-live-mission="/mission/events?id={id}"' in page
    assert "<noscript>" in page
    answer = await seat.post("/cancel", id=id, page="conversation")
    assert answer.headers["location"] == f"/conversation?id={id}&said=cancelled#now"
    inference.release()
    page = await seat.see("/conversation", id=id)
    assert "data-live-mission" not in page
    assert "cancelled" in seen(page)


async def test_a_question_is_answered_on_the_page(seat: Seat, inference: FakeInference) -> None:
    id = await seat.gave("Choose a restaurant", may_ask="yes")
    await seat.kernel.scheduler.quiet()
    page = await seat.see("/conversation", id=id)
    assert 'action="/answer"' in page
    answer = await seat.post("/answer", id=id, text="At eight", number="1", page="conversation")
    assert answer.headers["location"].startswith("/conversation?")
    await seat.kernel.scheduler.quiet()
    page = await seat.see("/conversation", id=id)
    assert "You said: At eight" in seen(page)


async def test_lists_and_missions_lead_there(seat: Seat) -> None:
    first, second = await said(seat, "I feel stuck", "And what then?")
    overview = await seat.see("/")
    assert f"/conversation?id={second}" in overview
    assert f"/conversation?id={first}" not in overview, "nothing says yet that it is one"
    assert f"/conversation?id={first}" in await seat.see("/mission", id=first)


async def test_what_is_said_is_text_and_who_asks_for_nothing_is_told(seat: Seat) -> None:
    (id,) = await said(seat, HOSTILE)
    page = await seat.see("/conversation", id=id)
    assert HOSTILE not in page
    await seat.see("/conversation", status=404, id="nobody")
    await seat.see("/conversation", status=400)
