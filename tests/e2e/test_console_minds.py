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
            server.say("", when=lambda request: "moon" in str(request["messages"]) and "stone" not in str(request["messages"]))
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
    wide = window.does(
        "return [...document.querySelectorAll('main *')]"
        ".filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)"
        ".map(one => one.outerHTML.slice(0, 100))"
    )
    assert (window.overflow(), wide[:3]) == (0, [])
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
    window.type("#other", "brick")
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


def test_a_failed_mission_is_entered_mended_in_place_and_continued(mind: Mind, window: Browser) -> None:
    mind.peer.ask("submit", id="moon", brief="Why does the moon shine?", persona="robin", depth="direct", flavour="full")
    assert mind.peer.result("moon")["state"] == "FAILED"
    window.open("/mission?id=moon")
    window.click("form[action='/step/open'] button")
    window.until_text("synthesizing", ".rail [aria-current]")
    assert "quality_refused" in window.text(".failed")
    session = window.driver.current_url.removeprefix(window.address)
    fits(window, session, "step")
    window.open(session)
    window.find(".rail li:first-child button").click()
    window.until_text("before any thought", ".rail [aria-current]")
    window.press("f")
    window.until_text("synthesizing", ".rail [aria-current]")
    window.press("x")
    window.until(lambda: window.focused().get_attribute("id") == "expression" or None, "the expression has the focus")
    window.press("cycle.depth", Keys.ENTER)
    window.until_text("direct", ".answer[role=status]")
    window.open(f"{session}&inference=1")
    window.until_text("Why does the moon shine?", "section[aria-labelledby=whole]")
    window.click("section[aria-labelledby=whole] .change summary")
    window.type("textarea[aria-label='answer 1']", "It is a stone that the sun lights.")
    window.click("section[aria-labelledby=whole] .change button")
    window.until_text("answer 1", "ul[aria-labelledby=edits]")
    window.picture("step-changed")
    window.press("e")
    window.until_text("It ends well here", ".answer")
    window.press("c")
    window.until_text("It is a stone that the sun lights.")
    fits(window, window.driver.current_url.removeprefix(window.address), "step-continue")
    window.type("#note", "the model said nothing", Keys.ENTER)
    window.until_text("It is a stone that the sun lights.", "#live-answer")
    window.until_text("complete", "#live-head")


def test_the_source_of_a_method_is_stepped_through_by_line(mind: Mind, window: Browser) -> None:
    source = "def first_word_(self, text):\n    words = text.split()\n    return words[0]\n"
    mind.server.say(source, when=lambda request: "You write one method" in str(request["messages"]))
    mind.peer.ask("send", id="word", target="brick", selector="first_word_", args=["tea now"], write=True)
    assert mind.peer.result("word")["state"] == "COMPLETE"
    window.open("/method?target=brick&selector=first_word_")
    window.click(".change summary")
    field = window.find("#args")
    field.clear()
    field.send_keys('[""]', Keys.ENTER)
    window.until_text("return words[0]", ".stepped .at")
    assert "list index out of range" in window.text() or "IndexError" in window.text()
    fits(window, window.driver.current_url.removeprefix(window.address), "step-method")
    window.press(",")
    window.until_text("words = text.split()", ".stepped .at")
