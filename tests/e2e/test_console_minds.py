"""Pages on which minds are compared and stepped into, in a real Chromium, on a whole daemon. Pictures go to artifacts/console/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from selenium.webdriver.common.keys import Keys

from batos.testing import ScriptedOllama
from tests.support.browser import DESK, PHONE, Browser, browser
from tests.support.console_checks import CONTRAST, NAMED, link_of
from tests.support.daemon import Daemon, Peer, daemon, provisioned

pytestmark = pytest.mark.timeout(240)

TIRED = "Why do I feel tired on Mondays?"


class Mind(NamedTuple):
    """A daemon with a console, the Ollama that it asks, and a window."""

    server: ScriptedOllama
    running: Daemon
    peer: Peer
    window: Browser


@pytest.fixture(scope="module")
def mind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mind]:
    folder = tmp_path_factory.mktemp("minds")
    with ScriptedOllama() as server:
        provisioned(server)
        settings = {"ollama_host": server.host, "console": "on", "doors.enabled": "on", "doors.listen": "127.0.0.1:0"}
        with daemon(folder, **settings) as running, Peer(running.endpoint) as peer:
            server.say("BRICK says: go to bed at ten.", when=lambda request: "You are BRICK" in request["messages"][0]["content"])
            link = link_of(running)
            with browser(folder, link.partition("/?")[0]) as window:
                window.driver.get(link)
                window.find("#rows")
                yield Mind(server, running, peer, window)


@pytest.fixture
def window(mind: Mind) -> Iterator[Browser]:
    """The window as a user leaves it: a wide screen, light; nothing was refused or failed in it."""
    seat = mind.window
    seat.resize(*DESK)
    seat.colours("light")
    yield seat
    assert seat.complaints() == []


def fits(window: Browser, page: str, name: str) -> None:
    """See that a page can be read, is told apart without a screen, and is no wider than a phone."""
    window.open(page)
    window.find("h1")
    window.picture(name)
    assert window.does(NAMED) == []
    for scheme in ("dark", "light"):
        window.colours(scheme)
        assert window.does(CONTRAST)[1] == []
    window.resize(*PHONE, touch=True)
    window.open(page)
    window.find("h1")
    assert window.overflow() == 0
    window.picture(f"{name}-phone")
    window.resize(*DESK)


def test_two_personas_are_compared_and_judged_by_the_keyboard(mind: Mind, window: Browser) -> None:
    for number, day in enumerate(("Mondays", "Tuesdays", "Fridays"), 1):
        brief = TIRED.replace("Mondays", day)
        mind.peer.ask("submit", id=f"tired-{number}", brief=brief, persona="robin", depth="direct", flavour="full")
        assert mind.peer.result(f"tired-{number}")["state"] == "COMPLETE"
    window.open("/")
    window.press("9")
    window.until_text("Compare", "h1")
    window.find("#other").send_keys("brick")
    window.click("form.brief button.main")
    window.until_text("robin with brick in its place", "h1")
    assert "at most\n200 inferences" in window.text()
    window.picture("compare-plan")
    window.click("form button.main")
    window.until_text("It has begun")
    window.until_text("Judge 3 pairs")
    report = window.driver.current_url.partition("&")[0]
    assert "BRICK" not in window.text()
    window.click(".acts a.main")
    for number, key in enumerate((Keys.ARROW_LEFT, Keys.ARROW_RIGHT, "t"), 1):
        window.until_text(f"pair {number} of 3")
        if number == 1:
            fits(window, window.driver.current_url.removeprefix(window.address), "compare-judge")
            window.until_text("pair 1 of 3")
        window.press(key)
    window.until_text("Undecided")
    assert "1 ties" in window.text()
    assert "too few to say anything" in window.text()
    window.click(".pair summary")
    window.until_text("BRICK says: go to bed at ten.", ".pair")
    fits(window, report.removeprefix(window.address), "comparison")
    fits(window, "/compare", "compare")
