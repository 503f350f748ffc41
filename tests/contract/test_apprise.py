"""Notices through the real apprise, in its jail: to a server of this machine, by its own URL."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from batos.image.effects import DONE, FAILED, IN_DOUBT
from tests.support.notices import SOON, opened, world

pytestmark = pytest.mark.skipif(importlib.util.find_spec("apprise") is None, reason="the extra notify is not installed")


async def test_a_notice_arrives_by_a_url_of_apprise_that_is_a_secret(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            office.secrets["notices.phone"] = there.url.replace("http://", "json://")
            await office.add("phone", "apprise", "{secret:notices.phone}")
            async with office.courier():
                await office.accept("a", "Water the plants")
                await office.end("a", "They are watered.")
                await office.until(lambda: office.messages() and not office.messages()[0].is_open)
            assert office.messages()[0].state == DONE, office.messages()[0].why
        (one,) = there.heard
        assert (one["title"], one["message"].splitlines()[0]) == ("Done: Water the plants", "They are watered.")


@pytest.mark.parametrize("url", ["nosuch://verysecrettoken", "json://127.0.0.1:1/verysecrettoken"])
async def test_a_failure_says_why_without_the_secret(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path) as office:
        office.secrets["PHONE"] = url
        await office.add("phone", "apprise", "{secret:PHONE}")
        async with office.courier():
            await office.accept("a")
            await office.end("a")
            await office.until(lambda: office.messages() and not office.messages()[0].is_open)
        last = office.messages()[0]
        assert (last.state, last.attempts) == (FAILED, SOON.tries)
        assert "verysecrettoken" not in last.why
        assert "exit code" in last.why


@pytest.mark.parametrize("once", [False, True])
async def test_what_a_server_may_have_taken_is_in_doubt(tmp_path: Path, once: bool) -> None:
    with world() as there:
        there.answers = [503]
        async with opened(tmp_path) as office:
            office.secrets["PHONE"] = there.url.replace("http://", "json://")
            await office.add("phone", "apprise", "{secret:PHONE}", once=once)
            async with office.courier():
                await office.accept("a", "Water the plants")
                await office.end("a")
                await office.until(lambda: office.messages() and not office.messages()[0].is_open)
            last = office.messages()[0]
        titles = ["Done: Water the plants", *([] if once else ["Perhaps told before: Done: Water the plants"])]
        assert [one["title"] for one in there.heard] == titles
        assert (last.state, last.attempts) == ((IN_DOUBT, 1) if once else (DONE, 2))
