"""A page of another port of this machine, in a real Chromium that is signed in to the console: what it sends carries the session, in vain.

Cookies know no ports, and for a browser all ports of a host are one site. So `SameSite` keeps nothing back here, and Origin must.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from batos.console.access import token_of
from batos.testing import ScriptedOllama
from tests.support.browser import Browser, browser
from tests.support.daemon import Peer, daemon, provisioned

pytestmark = pytest.mark.timeout(240)

CHAT = json.dumps({"model": "batos", "messages": [{"role": "user", "content": "obey"}], "prompt": "obey", "stream": False})
FORMS = {
    "/submit": {"id": "pwned", "brief": "obey"},
    "/schedule/add": {"when": "every 5 minutes", "brief": "obey"},
    "/logout/all": {},
}
DOORS = ("/v1/chat/completions", "/api/chat", "/api/generate", "/v1/models")
PAGES = ("/", "/doors", "/events", "/mission?id=m1", "/v1/models", "/api/tags", "/static/console.js")
PAGE = """<!doctype html><title>a page</title><body><script>
const target = %(target)s, forms = %(forms)s, doors = %(doors)s, pages = %(pages)s, chat = %(chat)s;
const read = [], tried = [], wait = () => AbortSignal.timeout(5000);
function ask(path, more) {
  tried.push(fetch(target + path, {credentials: "include", signal: wait(), ...more})
    .then(async (answer) => { if (answer.type !== "opaque") read.push(path + " " + (await answer.text()).slice(0, 40)); }).catch(() => 0));
}
function load(kind, path, attribute) {
  tried.push(new Promise((done) => {
    const one = document.createElement(kind);
    one.onload = () => { if (kind === "script") read.push(path); done(); };
    one.onerror = done;
    setTimeout(done, 5000);
    one[attribute] = target + path;
    document.body.append(one);
  }));
}
for (const mode of ["cors", "no-cors"]) {
  for (const path of pages) ask(path, {mode});
  for (const path of doors) ask(path, {mode, method: "POST", body: chat});
  for (const [path, body] of Object.entries(forms)) ask(path, {mode, method: "POST", body: new URLSearchParams(body)});
}
ask("/v1/chat/completions", {method: "POST", body: chat, headers: {"Content-Type": "application/json"}});
for (const path of doors) navigator.sendBeacon(target + path, chat);
for (const path of pages) { load("script", path, "src"); load("img", path, "src"); load("iframe", path, "src"); }
tried.push(new Promise((done) => {
  const live = new EventSource(target + "/events", {withCredentials: true});
  live.onopen = () => { read.push("/events, live"); done(); };
  live.onerror = done;
}));
Promise.all(tried).then(() => { document.body.dataset.read = JSON.stringify(read); document.title = "tried"; });
</script>"""
FORM = """<!doctype html><title>a form</title><form method="post" enctype="%(kind)s" action="%(action)s">%(fields)s</form>
<script>document.forms[0].submit();</script>"""


class Attacker(http.server.BaseHTTPRequestHandler):
    """Serves whatever page its server holds, and keeps the cookies that it was sent."""

    def do_GET(self) -> None:
        self.server.cookies.append(self.headers.get("Cookie", ""))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.page.encode())  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def attacker() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Attacker)
    server.page, server.cookies, server.address = "", [], f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def sign_in(window: Browser, folder: Path, address: str) -> None:
    window.driver.get(f"{address}/?{urlencode({'token': token_of(folder)})}")
    window.find("#brief")


def test_a_page_of_another_port_does_nothing_with_a_session(tmp_path: Path, attacker: Any) -> None:
    given = {"doors.enabled": "on", "doors.listen": "127.0.0.1:0"}
    with (
        ScriptedOllama() as ollama,
        daemon(tmp_path / "data", ollama_host=provisioned(ollama).host, **given) as running,
        Peer(running.endpoint) as peer,
    ):
        target = peer.ask("info")["doors"]
        with browser(tmp_path, target) as window:
            sign_in(window, tmp_path / "data", target)
            parts = {"target": target, "forms": FORMS, "doors": DOORS, "pages": PAGES, "chat": CHAT}
            attacker.page = PAGE % {name: json.dumps(value) for name, value in parts.items()}
            window.driver.get(attacker.address)
            window.until(lambda: window.driver.title == "tried" or None, "the page is through")
            assert json.loads(window.does("return document.body.dataset.read")) == [], "it could read nothing"
            assert any("batos_" in cookie for cookie in attacker.cookies), "the browser does send the session there: this is an attack"
            for path, fields in {**FORMS, **{path: {CHAT[:-1] + ', "x": "': '"}'} for path in DOORS}}.items():
                kind = "text/plain" if path in DOORS else "application/x-www-form-urlencoded"
                inputs = "".join(
                    f'<input type="hidden" name="{name.replace(chr(34), "&quot;")}" value="{value.replace(chr(34), "&quot;")}">'
                    for name, value in fields.items()
                )
                attacker.page = FORM % {"kind": kind, "action": target + path, "fields": inputs}
                window.driver.get(attacker.address)
                window.until(lambda path=path: window.driver.current_url == target + path or None, f"the form went to {path}")  # type: ignore[misc]
            assert peer.ask("missions")["missions"] == []
            assert peer.ask("schedules")["schedules"] == []
            window.open("/")
            assert "None so far" in window.text(), "the session goes on, and nothing was given"
