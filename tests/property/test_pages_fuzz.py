"""Any request at any route of the server, pages and interfaces: no answer is a fault of the server; strangers are refused at each."""

from __future__ import annotations

import contextlib
import dataclasses
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from batos.config import Settings
from batos.console.api_client import Asker
from batos.console.app import GET, POST
from batos.doors.app import application
from batos.doors.routes import DoorServices
from tests.support.doors import Served, accepted, door_token

BROWSER = {"Accept": "text/html,*/*;q=0.8"}
FIELDS = (
    "id", "q", "target", "number", "name", "when", "brief", "state", "before", "context", "at", "revision", "kind", "speaker", "since",
    "until", "source", "text", "persona", "zone", "missed", "stop_after", "key", "how", "page", "value", "why", "version", "selector",
    "method", "digest", "all", "may_ask", "redo", "said", "oid",
)  # fmt: skip
texts = st.sampled_from(["", "robin", "m1", "0", "1", "-1", "99999999999999999999", "every day at 8", "2026-01-01", "yes"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=20
)
queries = st.dictionaries(st.sampled_from(FIELDS), texts, max_size=6)
WHOLE_FORM = dict.fromkeys(FIELDS, "1")
LEAVE = ("/login", "/logout", "/logout/all")  # they end the session, and are tested below
FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def interfaces() -> list[tuple[str, str]]:
    """Each method and path of the interfaces, as they are now."""
    needed = [one.name for one in dataclasses.fields(DoorServices) if one.default is one.default_factory is dataclasses.MISSING]
    services: dict[str, Any] = {**{name: MagicMock() for name in needed}, "settings": Settings()}
    routes = application(DoorServices(**services)).routes
    found = [one for one in routes if isinstance(one, Route)]
    paths = [(one.path.replace("{", "").replace("}", "").replace(":path", ""), one.methods or ()) for one in found]
    return [(method, path) for path, methods in paths for method in sorted(methods)]


PAGES = [*(("GET", path) for path in GET), *(("POST", path) for path in POST)]


class Browsing(Served):
    """A kernel with doors and console, a browser that is signed in, and one that is not."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        assert self.kernel.console is not None
        self.address = self.kernel.console.address
        self.browser = httpx.Client(base_url=self.address, headers={**BROWSER, "Origin": self.address}, timeout=60, verify=False)
        assert self.browser.get(self.kernel.console.link).status_code == 303
        self.stranger = httpx.Client(base_url=self.address, timeout=60, verify=False)

    def status(self, method: str, path: str, **more: Any) -> int:
        """The status of an answer, of which not all may ever come: a live page ends with its reader."""
        with self.browser.stream(method, path, **more) as answer:
            return answer.status_code

    def facts(self) -> tuple[Any, ...]:
        """What a request that was let in could have changed."""
        asker = Asker(self.kernel.transport.dispatcher, self.kernel.settings)
        return self.run(accepted(self.kernel)), self.run(asker.ask("schedules"))["schedules"]

    def close(self) -> None:
        self.browser.close()
        self.stranger.close()
        super().close()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    with contextlib.closing(Browsing(tmp_path_factory.mktemp("pages"))) as made:
        yield made


@pytest.mark.parametrize("path", GET)
@FUZZ
@given(query=queries)
@example(query=WHOLE_FORM)
def test_no_query_is_a_fault_of_the_server(house: Browsing, path: str, query: dict[str, str]) -> None:
    assert house.status("GET", path, params=query) in (200, 303, 400, 401, 404, 409, 503)


@pytest.mark.parametrize("path", [path for path in POST if path not in LEAVE])
@FUZZ
@given(form=queries)
@example(form=WHOLE_FORM)
def test_no_form_is_a_fault_of_the_server(house: Browsing, path: str, form: dict[str, str]) -> None:
    assert house.status("POST", path, data=form) in (200, 303, 400, 404, 409, 413, 503)


@FUZZ
@given(route=st.sampled_from(PAGES), content=st.binary(max_size=60))
def test_no_body_is_a_fault_of_the_server(house: Browsing, route: tuple[str, str], content: bytes) -> None:
    if route[1] not in LEAVE:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        assert house.status(*route, content=content, headers=kind) < 500


@pytest.mark.parametrize(("method", "path"), [*PAGES, *interfaces(), ("GET", "/nothing"), ("GET", "/static/console.css")])
@pytest.mark.parametrize("accept", ["text/html", "*/*"])
def test_strangers_are_refused_at_each_route(house: Browsing, method: str, path: str, accept: str) -> None:
    """Without session and token; and with both, from a foreign name or from a page of another site."""
    before = house.facts()
    form = dict.fromkeys(("id", "brief", "when", "name", "number", "text", "token"), "1") if method == "POST" else None
    ask = {"Accept": accept, "Origin": house.address}
    if not path.startswith(("/static/", "/login")):
        for more in ({}, {"Cookie": "batos=x"}, {"Authorization": "Bearer no"}, {"Sec-Fetch-Site": "same-origin"}):
            assert house.stranger.request(method, path, data=form, headers={**ask, **more}).status_code in (401, 404), more
    let_in = {**ask, "Authorization": f"Bearer {door_token(house.kernel)}"}
    for more, status in (
        ({"Host": "evil.example"}, 421), ({"Host": "127.0.0.1"}, 421), ({"Host": ""}, 421), ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403), ({"Origin": house.address.replace("http:", "https:")}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403), ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "img"}, 403),
    ):  # fmt: skip
        assert house.browser.request(method, path, data=form, headers={**let_in, **more}).status_code == status, more
    assert house.facts() == before


@FUZZ
@given(
    path=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    signed_in=st.booleans(),
    accept=st.sampled_from(["text/html", "*/*"]),
)
def test_no_path_is_a_fault_of_the_server(house: Browsing, path: str, signed_in: bool, accept: str) -> None:
    client = house.browser if signed_in else house.stranger
    url = "/x" + urllib.parse.quote(path, safe="")
    assert client.get(url, headers={"Accept": accept}).status_code in (401, 404)
