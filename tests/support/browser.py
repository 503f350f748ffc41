"""A real Chromium, driven as a user would: Debian's packages chromium and chromium-driver, a fresh profile each time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "artifacts" / "console"
WAIT_S = 60
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip
DESK, PHONE = (1120, 800), (390, 844)
T = TypeVar("T")


def programs() -> tuple[str, str]:
    """Where Chromium and its driver are; where they are not, the test is skipped, or fails if NEED_BROWSER is set (as .ci/run does)."""
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if found[0] and found[1]:
        return found[0], found[1]
    why = "Chromium is not installed: `make chromium` installs Debian's packages chromium and chromium-driver"
    if os.environ.get("NEED_BROWSER"):
        pytest.fail(why)
    pytest.skip(why)


class Browser:
    """One window of Chromium."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, path: str) -> None:
        """Go to a page of the console."""
        self.driver.get(self.address + path)

    def find(self, css: str) -> WebElement:
        """The first element; waited for."""
        return self.until(lambda: next(iter(self.driver.find_elements(By.CSS_SELECTOR, css)), None), f"there is {css}")

    def click(self, css: str) -> None:
        """Click the first element, of a page that may replace it meanwhile."""
        self.until(lambda: (self.find(css).click(),), f"{css} can be clicked")

    def click_words(self, words: str, css: str) -> None:
        """Click the first element that says these words, of a page that may replace it meanwhile."""

        def clicked() -> bool | None:
            said = next((one for one in self.all(css) if one.text == words), None)
            if said is not None:
                said.click()
            return said is not None or None

        self.until(clicked, f"{css} says {words!r} and can be clicked")

    def type(self, css: str, *keys: str) -> None:
        """Type into the first element, of a page that may replace it meanwhile."""
        self.until(lambda: (self.find(css).send_keys(*keys),), f"{css} can be typed into")

    def all(self, css: str) -> list[WebElement]:
        """Those that are there now."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str = "main") -> str:
        """What a reader sees of an element."""
        return self.until(lambda: (self.find(css).text,), f"{css} has a text")[0]

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """What `look` says, once it says something."""

        def seen(_: Any) -> T | None:
            try:
                return look()
            except StaleElementReferenceException:  # replaced just now, by an update
                return None

        found: T = WebDriverWait(self.driver, WAIT_S, 0.05).until(seen, f"not in {WAIT_S} s: {what}; the page says {self.driver.title!r}")
        return found

    def until_text(self, words: str, css: str = "main") -> None:
        """Wait until an element says these words."""
        self.until(lambda: words in self.find(css).text or None, f"{css} says {words!r}")

    def press(self, *keys: str) -> None:
        """Press keys, one after another, wherever the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focused(self) -> WebElement:
        """The element that has the focus."""
        return self.driver.switch_to.active_element

    def tab_to(self, css: str, limit: int = 60) -> WebElement:
        """Press Tab until an element has the focus."""
        for _ in range(limit):
            self.press(Keys.TAB)
            if self.focused().is_displayed() and self.focused() in self.all(css):
                return self.focused()
        raise AssertionError(f"Tab does not reach {css}")

    def does(self, script: str, *words: Any) -> Any:
        """What a script of the test's own returns, run by the driver."""
        return self.driver.execute_script(script, *words)

    def resize(self, width: int, height: int, *, touch: bool = False) -> None:
        """Show the pages on a screen of that size."""
        shape = {"width": width, "height": height, "deviceScaleFactor": 2 if touch else 1, "mobile": touch}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)

    def colours(self, scheme: str) -> None:
        """Prefer light or dark."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def picture(self, name: str) -> Path:
        """Keep a picture of what is seen now."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path

    def overflow(self) -> int:
        """Pixels by which the page is wider than the screen."""
        return int(self.does("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def complaints(self) -> list[str]:
        """What the browser logged as errors: scripts, styles or requests that were refused or failed."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@contextmanager
def browser(folder: Path, address: str) -> Iterator[Browser]:
    """A window with a profile of its own in `folder`."""
    binary, driver = programs()
    options = ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={folder / 'chromium'}", f"--window-size={DESK[0]},{DESK[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = Chrome(options=options, service=Service(driver))
    try:
        yield Browser(window, address)
    finally:
        window.quit()
