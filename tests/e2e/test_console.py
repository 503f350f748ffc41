"""The web console in a real Chromium, on a whole daemon: the main paths of its user. Pictures go to artifacts/console/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from batos.testing import ScriptedOllama
from tests.support.browser import DESK, PHONE, Browser, browser
from tests.support.console_checks import CONTRAST, NAMED, link_of
from tests.support.daemon import Daemon, Peer, daemon, provisioned, sent

pytestmark = pytest.mark.timeout(240)

NOTE = "The spare key of the greenhouse is under the third stone of the garden wall."
PARTY = "Plan a birthday party for a cat lover on a budget"
SET_MOOD = "def set_mood_(self, text):\n    self.mood = text\n    self._p_changed = True\n    return text\n"


class House(NamedTuple):
    """A daemon with a console, the Ollama that it asks, and a window."""

    server: ScriptedOllama
    running: Daemon
    peer: Peer
    window: Browser


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("console")
    with ScriptedOllama() as server:
        provisioned(server)
        settings = {
            "ollama_host": server.host,
            "console": "on",
            "doors.enabled": "on",
            "doors.listen": "127.0.0.1:0",
            "console_refresh_s": 0.05,
            "depth": "facets",
            "wire.folders": "/bin",
        }
        with daemon(folder, **settings) as running, Peer(running.endpoint) as peer:
            server.say(SET_MOOD, when=lambda request: "You write one method" in request["messages"][0]["content"])
            sent(peer, "note", "memory", "remember_", NOTE, "Keys")
            for n, mood in enumerate(("calm", "bright", "stormy"), 1):
                sent(peer, f"mood-{n}", "robin", "set_mood_", mood)
            peer.ask("schedule_add", when="on the first of each month at 7", brief="What changed in my notes since {last}?", name="monthly")
            place = f"/bin/false {{title}} {'w' * 300}"
            wide = f"/bin/echo {'w' * 300}"
            added = peer.ask("tool_add", name="wide", kind="program", place=wide, options={"without_walls": True})
            assert added["type"] == "tools", added
            peer.ask("notice_add", name="desk", way="program", place=place, on=["schedule"], options={"without_walls": True})
            link = link_of(running)
            with browser(folder, link.partition("/?")[0]) as window:
                window.resize(*DESK)
                window.driver.get(link)
                window.find("#rows")
                assert "token" not in window.driver.current_url
                yield House(server, running, peer, window)


@pytest.fixture
def window(house: House) -> Iterator[Browser]:
    """The window as a user leaves it: a wide screen, light; nothing was refused or failed in it."""
    seat = house.window
    seat.resize(*DESK)
    seat.colours("light")
    yield seat
    assert seat.complaints() == []
    seat.does("sessionStorage.clear()")


def test_a_mission_is_given_and_its_states_move(house: House, window: Browser) -> None:
    window.open("/")
    house.server.hold()
    window.type("#brief", PARTY)
    window.click("form.brief button.main")
    window.until_text("The mission is accepted, and on disk.")
    window.until_text("decomposing", ".psm [aria-current]")
    mission = window.driver.current_url
    window.picture("mission-thinking")
    window.open("/")
    assert "decomposing" in window.text("#rows li:first-child")
    window.does("document.body.dataset.mark = 'the same page'")
    house.server.release()
    window.until_text("complete", "#rows li:first-child")
    assert window.does("return document.body.dataset.mark") == "the same page", "it moved by itself"
    window.picture("missions")
    window.driver.get(mission)
    told = window.text()
    for words in ("Who said what", "What it cost", "complete", PARTY):
        assert words in told


def test_a_missions_page_becomes_its_answer_by_itself(house: House, window: Browser) -> None:
    window.open("/")
    house.server.hold()
    window.type("#brief", "What does the sea say?")
    window.click("form.brief button.main")
    window.until_text("decomposing", ".psm [aria-current]")
    window.does("document.body.dataset.mark = 'the same page'")
    house.server.release()
    window.find(".answer .prose")
    window.until_text("Who said what")
    assert window.does("return document.body.dataset.mark") == "the same page"


def test_a_mission_is_cancelled_and_another_rated(house: House, window: Browser) -> None:
    house.server.hold()
    window.open("/")
    window.type("#brief", "Never mind")
    window.click("form.brief button.main")
    window.until_text("decomposing", ".psm [aria-current]")
    window.click("form[action='/cancel'] button")
    window.until_text("The mission was cancelled.")
    house.server.release()
    window.until_text("failed", ".state")
    window.open("/mission?id=mood-1")
    window.type("#why", "just so")
    window.click("button[value=up]")
    window.until_text("your rating is kept")
    assert window.find("button[value=up]").get_attribute("aria-pressed") == "true"


def test_a_waiting_mission_is_answered(house: House, window: Browser) -> None:
    window.open("/")
    window.type("#brief", "Find a restaurant for Friday")
    window.click("input[name=may_ask]")
    window.click("form.brief button.main")
    window.type(".asks textarea", "At eight, by the window")
    window.picture("mission-asks")
    window.click(".asks button")
    window.until_text("The mission has your answer")
    window.find(".answer .prose")
    assert "At eight, by the window" in window.text()


def test_a_conversation_is_a_page(house: House, window: Browser) -> None:
    window.open("/")
    window.type("#brief", "What does the wind say?")
    window.click("form.brief button.main")
    window.find(".answer .prose")
    window.click_words("Follow up", "main a")
    window.until(lambda: window.focused().get_attribute("id") == "brief" or None, "the box has the focus")
    house.server.hold()
    window.press("And the rain?")
    window.click("form.brief button.main")
    window.until_text("decomposing", "#live-turn .state")
    window.does("document.body.dataset.mark = 'the same page'")
    window.picture("conversation-thinking")
    house.server.release()
    window.find("#live-turn .answer .prose")
    assert window.does("return document.body.dataset.mark") == "the same page", "it moved by itself"
    assert [one.text for one in window.all("h2.ask")] == ["What does the wind say?", "And the rain?"]
    assert not window.all("#live-actions form")
    window.type("#brief", "Thank you.")
    window.picture("conversation")
    window.resize(*PHONE, touch=True)
    assert window.overflow() <= 0
    window.picture("phone-conversation")
    window.resize(*DESK)
    window.open("/")
    window.click("#rows li:first-child .facts a")
    window.until_text("And the rain?", "#live-turn")


def test_an_answer_is_streamed_into_its_conversation_and_stopped_there(house: House, window: Browser) -> None:
    house.server.fail("stall", when="Write the answer to the request")
    window.open("/conversation?id=mood-1")
    house.server.hold()  # a page hears what is said from when it listens
    window.type("#brief", "Talk without end")
    window.click("form.brief button.main")
    window.find("#link[data-on]")
    house.server.release()
    window.until(lambda: (window.all("#stream [data-who] p") and window.text("#stream [data-who]:last-child p")) or None, "it is said")
    window.click("form[action='/cancel'] button")
    window.until_text("The mission was cancelled.")
    window.until_text("failed", "#live-turn .state")
    assert not window.all("#stream")
    assert [one.text for one in window.all("h2.ask")][-1] == "Talk without end"


def test_an_object_is_browsed_and_its_history_slid_through(house: House, window: Browser) -> None:
    window.open("/")
    window.click("nav a[data-key='2']")
    window.click_words("robin", "#object dt a")
    window.until_text("ROBIN", "h1")
    assert "stormy" in window.text("#object")
    slider = window.find("#revision")
    last = int(slider.get_attribute("max") or 0)
    assert last >= 3
    slider.send_keys(Keys.ARROW_LEFT)
    window.until_text("bright", ".changes ins")
    assert "calm" in window.text(".changes del")
    assert f"revision {last} of {last + 1}" in window.text("#object")
    assert "at=" in window.driver.current_url
    assert window.focused() == slider, "the slider keeps the focus"
    window.picture("object-history")
    slider.send_keys(Keys.HOME)
    window.until_text(f"revision 1 of {last + 1}", "#object")
    assert "stormy" not in window.text("#object")
    window.click("#object .facts a[href*='target=']")
    window.until_text("stormy", "#object")


OVERTAKEN = """
return (async () => {
  const real = window.fetch, held = [];
  window.fetch = (address, more) => new Promise((answered) => held.push(() => answered(real(address, more))));
  const first = refresh("/object?target=brick"), second = refresh("/object?target=robin");
  held[1]();
  await second;
  held[0]();
  await first;
  window.fetch = real;
})();
"""


def test_a_look_whose_answer_comes_after_that_of_a_later_one_shows_nothing(window: Browser) -> None:
    window.open("/object?target=babs")
    window.does(OVERTAKEN)
    assert "ROBIN" in window.text("#object")


def test_a_method_is_shown_with_its_source_and_origin(window: Browser) -> None:
    window.open("/object?target=robin")
    window.click_words("set_mood_", "#object dt a")
    window.until_text("Version 1")
    told = window.text()
    for words in ("self.mood = text", "mood-1", "digest", "in force"):
        assert words in told
    window.picture("method")


def test_a_method_is_taken_back_by_the_keyboard_and_without_scripts(house: House, window: Browser) -> None:
    for n, person in enumerate(("brick", "babs")):
        sent(house.peer, f"other-{n}", person, "set_mood_", "calm")
        window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": bool(n)})
        try:
            window.open(f"/method?target={person}&selector=set_mood_")
            window.tab_to("a[href*='version=0']").send_keys(Keys.ENTER)
            window.until_text("Take the method away?")
            window.picture("revert")
            window.tab_to("form[action='/revert'] button").send_keys(Keys.ENTER)
            window.until_text("The mission is accepted")
        finally:
            window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        house.peer.result(parse_qs(urlsplit(window.driver.current_url).query)["id"][0])
        assert "set_mood_" not in house.peer.ask("show", target=person)["slots"]


def test_memory_is_searched(window: Browser) -> None:
    window.open("/")
    window.press("/")
    window.type("#q", "Where is the spare key?", Keys.ENTER)
    window.until_text(NOTE)
    window.click(".hits summary")
    window.find(".signals progress")
    assert "words" in window.text(".signals")
    window.picture("memory")


def test_an_undo_is_looked_at_and_done_and_done_again(house: House, window: Browser) -> None:
    window.open("/changes")
    window.click("[data-id='mood-1'] a.button")
    window.until_text("What stands in its way")
    window.picture("undo-conflict")
    window.click("a.button.main")
    window.until_text("3 missions")
    window.picture("undo-cascade")
    window.click("button.danger")
    window.until_text("What the mission did is taken back.")
    window.open("/object?target=robin")
    assert "stormy" in window.text(".changes del")
    assert "mood" not in house.peer.ask("show", target="robin")["slots"]
    assert house.peer.ask("status", id="mood-3")["undone"]["with"] == "mood-1"
    for id in ("mood-1", "mood-2", "mood-3"):
        window.open(f"/undo?id={id}&redo=1")
        window.click("form[action='/undo'] button.main")
        window.until_text("done again")
    assert house.peer.ask("show", target="robin")["slots"]["mood"] == "stormy"


PAGES = ("/", "/mission?id=mood-1", "/conversation?id=mood-1", "/object", "/object?target=robin", "/method?target=robin&selector=set_mood_",
         "/revert?target=robin&selector=set_mood_&version=0",
         "/search?q=key", "/search", "/models", "/changes", "/tools", "/schedules", "/schedule?name=monthly", "/doors",
         "/notices", "/notice?name=desk",
         "/undo?id=note", "/mission?id=nobody")  # fmt: skip


def test_a_schedule_is_added_said_back_and_run(window: Browser) -> None:
    window.open("/")
    window.press("7")
    window.until_text("What changed in my notes", "#main .rows")
    window.type("#brief", "What shall I cook?")
    window.type("#when", "every blue moon")
    window.click("form.brief button.main")
    window.until_text("blue", "[role=alert]")
    assert window.find("#brief").get_attribute("value") == "What shall I cook?", "what was written is not lost"
    window.find("#when").clear()
    window.type("#when", "on the last of each month at 18:30")
    window.picture("schedules-form")
    window.click("form.brief button.main")
    window.until_text("It is added.")
    assert len(window.all("#times ~ ol li")) == 5
    assert window.text("#times ~ ol li").endswith(("18:30 UTC", "18:30 CET", "18:30 CEST"))
    window.picture("schedule")
    window.click(".acts form[action='/schedule/run'] button")
    window.until_text("by a schedule")
    window.open("/schedules")
    window.picture("schedules")
    window.driver.get_log("browser")  # that the first words were refused is said in it, too


def test_a_channel_is_opened_by_its_key_and_says_why_its_test_failed(window: Browser) -> None:
    window.open("/")
    window.press("0")
    window.until_text("desk", "#main .rows")
    window.click("#main .rows a[href='/notice?name=desk']")
    window.until_text("Send a test")
    window.click(".acts form[action='/notice/test'] button")
    window.until_text("says why", "[role=alert]")
    window.until_text("exit code 1", "#messages ~ ol")
    window.click(".acts form[action='/notice/pause'] button")
    window.until_text("Its notices wait.", ".done")
    window.click(".acts form[action='/notice/resume'] button")
    window.until_text("It goes on", ".done")
    window.picture("notice")
    window.open("/notices")
    window.until_text("Perhaps not arrived")
    window.picture("notices")


def test_nothing_is_wider_than_a_phone(house: House, window: Browser) -> None:
    sent(house.peer, "wide", "memory", "remember_", f"{'w' * 900}\n\n{'| a ' * 80}", "t" * 300)
    window.resize(*PHONE, touch=True)
    wide = {}
    for page in (*PAGES, "/mission?id=wide", "/conversation?id=wide", "/search?q=" + "w" * 900, "/undo?id=wide"):
        window.open(page)
        window.find("main")
        if page in (
            "/",
            "/mission?id=mood-1",
            "/object?target=robin",
            "/schedules",
            "/schedule?name=monthly",
            "/doors",
            "/notices",
            "/notice?name=desk",
        ):
            window.picture(f"phone{page.partition('?')[0].replace('/', '-')}")
        if (over := window.overflow()) > 0:
            wide[page] = over
    assert wide == {}
    window.driver.get_log("browser")  # that a mission is not there is said in it, too


def test_the_dark_is_dark_and_can_be_read(window: Browser) -> None:
    for scheme in ("dark", "light"):
        window.colours(scheme)
        for page in PAGES:
            window.open(page)
            background, poor = window.does(CONTRAST)
            assert (sum(background) < 150) is (scheme == "dark")
            assert poor == [], f"{page} in {scheme}"
        window.open("/mission?id=note")
        window.picture(f"mission-{scheme}")
    window.driver.get_log("browser")


def test_who_sees_no_screen_is_told_what_is_what(window: Browser) -> None:
    for page in PAGES:
        window.open(page)
        window.find("h1")
        assert window.does(NAMED) == [], page
    window.driver.get_log("browser")


def test_the_keyboard_alone_will_do(house: House, window: Browser) -> None:
    window.open("/changes")
    window.press(Keys.TAB)
    assert window.focused().text == "Skip to the content"
    window.press(Keys.ENTER)
    assert window.focused().get_attribute("id") == "main"
    window.press("j")
    first = window.focused().text
    window.press("j", "k")
    assert window.focused().text == first != ""
    outline = window.does("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is seen"
    window.press("?")
    window.until_text("Keyboard", "#keys[open]")
    window.press(Keys.ESCAPE)
    assert not window.all("#keys[open]")
    window.press("n")
    window.find("#brief")
    window.until(lambda: window.focused().get_attribute("id") == "brief" or None, "the brief has the focus")
    window.press("Is 1 + 1 really 2?")
    window.tab_to("form.brief button.main")
    window.press(Keys.ENTER)
    window.until_text("The mission is accepted")
    window.find(".answer .prose")
    assert "Is 1 + 1 really 2?" in window.text("h1")
    window.press("2")
    window.until_text("lobby", "h1")
    window.tab_to("#object dt a")
    window.press(Keys.ENTER)
    window.until_text("oid:", "h1")


def test_a_brief_that_is_html_is_a_text(house: House, window: Browser) -> None:
    hostile = "<img src=x onerror=\"document.body.dataset.taken='yes'\"><script>document.body.dataset.taken='yes'</script>"
    house.server.hold()
    window.open("/")
    window.type("#brief", f"Say {hostile}")
    window.click("form.brief button.main")
    window.until_text("decomposing", ".psm [aria-current]")
    house.server.release()
    window.find(".answer .prose")
    assert hostile in window.text("h1")
    for page in ("/", "/changes"):
        window.open(page)
        window.until_text(hostile)
        assert window.does("return document.body.dataset.taken") is None
        assert window.does("return document.querySelectorAll('main img, main script').length") == 0


def test_it_works_without_scripts(house: House, window: Browser) -> None:
    window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        window.open("/")
        window.type("#brief", "Plain and simple")
        window.click("form.brief button.main")
        window.until_text("The mission is accepted")
        id = parse_qs(urlsplit(window.driver.current_url).query)["id"][0]
        house.peer.result(id)
        window.open(f"/conversation?id={id}")
        window.type("#brief", "And simpler still")
        window.click("form.brief button.main")
        window.until_text("The mission is accepted")
        assert [one.text for one in window.all("h2.ask")] == ["Plain and simple", "And simpler still"]
        window.open("/object?target=robin")
        window.all("#revisions a")[0].click()
        window.until_text("revision 1 of")
    finally:
        window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("words", ["Sign out", "Sign out everywhere"])
def test_who_leaves_is_asked_for_the_token_and_so_is_a_copy_of_the_cookie(house: House, window: Browser, words: str) -> None:
    window.open("/")
    copied = window.driver.get_cookies()
    window.click_words(words, "form[action='/logout'] button")
    window.find("#token")
    for cookie in copied:
        window.driver.add_cookie(cookie)
    window.open("/")
    window.type("#token", "wrong", Keys.ENTER)
    window.until_text("That is not the token")
    window.picture("entrance")
    window.type("#token", link_of(house.running).rpartition("=")[2], Keys.ENTER)
    window.find("#rows")
    window.driver.get_log("browser")  # 401 is told there


NARROW = (360, 740)
BROKEN_WORDS = """
const words = [...document.querySelectorAll('nav a, button, .button, th, .state, summary')].filter((one) => one.offsetParent);
return words.filter((one) => {
  const range = document.createRange();
  const texts = [...one.childNodes].filter((part) => part.nodeType === Node.TEXT_NODE);
  return texts.some((text) => [...text.data.matchAll(/\\S+/g)].some((word) => {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    return word[0].length < 20 && new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1;
  }));
}).map((one) => one.textContent.trim());
"""
BEYOND_THE_EDGE = """
return [...document.querySelectorAll('main td, nav a, main button, main .state')].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map((one) => one.textContent.trim());
"""


def test_on_a_narrow_phone_no_word_is_broken_and_no_table_cut(window: Browser) -> None:
    window.resize(*NARROW, touch=True)
    for page in PAGES:
        window.open(page)
        window.find("main")
        assert window.overflow() <= 0, page
        assert window.does(BROKEN_WORDS) == [], page
        assert window.does(BEYOND_THE_EDGE) == [], page
    window.picture("phone-narrow")
    window.driver.get_log("browser")  # that a mission is not there is said in it, too


IDS = "return [...document.querySelectorAll('#rows li')].map((one) => one.dataset.id)"


def test_older_missions_are_paged_to_and_looked_for(house: House, window: Browser) -> None:
    for number in range(55):
        sent(house.peer, f"older-{number:02}", "memory", "remember_", f"note {number}", f"Entry {number}")
    window.open("/")
    first = window.does(IDS)
    window.click("a[rel=next]")
    window.until(lambda: "before=" in window.driver.current_url or None, "the next page")
    second = window.does(IDS)
    assert second
    assert not set(first) & set(second)
    window.type("#find", "birthday CAT", Keys.ENTER)
    window.until(lambda: "q=birthday" in window.driver.current_url or None, "what was found")
    assert window.does("return [...document.querySelectorAll('#rows li > a:first-child')].map((one) => one.textContent)") == [PARTY]
    window.open("/?q=older-07")
    assert window.does(IDS) == ["older-07"]
    window.open("/?q=nothing+has+these")
    window.until_text("None fits.")


def test_what_was_done_is_said_once_and_whence_a_mission_came_is_told(house: House, window: Browser) -> None:
    window.open("/")
    window.type("#brief", "Who gave this?")
    window.click("form.brief button.main")
    window.until_text("The mission is accepted")
    window.until_text("given here")
    assert "said=" not in window.driver.current_url
    window.find(".answer .prose")
    window.until(lambda: not window.all(".done") or None, "the notice is gone")
    window.driver.refresh()
    window.find(".answer .prose")
    assert not window.all(".done")
    window.open("/mission?id=note")
    window.until_text("from a client")
    id = parse_qs(urlsplit(window.driver.current_url).query)["id"][0]
    assert house.peer.ask("status", id=id)["origin"] == "client"
