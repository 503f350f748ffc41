"""A page of another origin, in a real Chromium, against the daemon's TCP endpoint: nothing of what it sends becomes a request."""

from __future__ import annotations

import contextlib
import http.server
import json
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import WebDriverException

from batos.testing import ScriptedOllama
from tests.support.browser import WAIT_S, Browser, browser
from tests.support.daemon import Peer, daemon, provisioned

pytestmark = pytest.mark.timeout(240)

COMMAND = '{"op":"submit","id":"pwned","brief":"obey"}'
_TRIED = "tried"  # the title of a page that is through with what it does

PAGE = """<!doctype html><title>a page</title><script>
const port = %(port)d, command = %(command)s;
function body(at) {
  const sled = "\\u0001".repeat(600 + at);
  return sled + "\\u0001\\u0000" + String.fromCharCode(command.length + 1) + "\\u0000" + command;
}
async function attack() {
  const tried = [];
  for (const at of [0, 1]) for (let path = 0; path < 8; path++) {
    const url = `http://127.0.0.1:${port}/${"x".repeat(path)}`;
    const given_up = AbortSignal.timeout(3000);
    tried.push(fetch(url, {method: "POST", mode: "no-cors", body: body(at), signal: given_up}).catch(() => 0));
    tried.push(fetch(url, {method: "POST", mode: "no-cors", body: new Blob([body(at)]), signal: given_up}).catch(() => 0));
    navigator.sendBeacon(url, body(at));
  }
  for (const kind of ["ws", "http"]) tried.push(new Promise(done => {
    const one = kind == "ws" ? new WebSocket(`ws://127.0.0.1:${port}/`) : new EventSource(`http://127.0.0.1:${port}/`);
    one.onopen = one.onerror = done;
    setTimeout(done, 3000);
  }));
  await Promise.all(tried);
  document.title = "%(tried)s";
}
attack();
</script>"""

FORM = """<!doctype html><title>a form</title>
<form method="post" enctype="text/plain" action="http://127.0.0.1:%(port)d/%(padding)s"><input type="hidden" name="x"></form><script>
const command = %(command)s;
const end = "\\u0001\\u0002", length = String.fromCharCode(command.length + 1);
document.forms[0].x.value = "\\u0001".repeat(600 + %(at)d) + end + length + "\\u0002" + command;
document.forms[0].submit();
</script>"""
"""A hidden field keeps all but NUL, which ends no frame there: flags of 2 say the same to ZMTP/1.0, which looks at their lowest bit."""


_BARE = """
import sys, zmq
router = zmq.Context().socket(zmq.ROUTER)
print(router.bind_to_random_port("tcp://127.0.0.1"), flush=True)
while True:
    if sys.argv[1].encode() in router.recv_multipart():
        print("taken for a message", flush=True)
"""


class Pages(http.server.BaseHTTPRequestHandler):
    """Serves whatever page its server holds."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.page.encode())  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Any]]:
    """Chromium, and the server of the other origin."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with browser(tmp_path_factory.mktemp("window"), f"http://localhost:{server.server_port}") as one:
        yield one, server
    server.shutdown()
    server.server_close()
    thread.join()


def show_page(window: tuple[Browser, Any], port: int) -> None:
    """Open the page, and wait until it is through."""
    one, server = window
    server.page = PAGE % {"port": port, "command": json.dumps(COMMAND), "tried": _TRIED}
    one.open("/")
    one.until(lambda: one.driver.title == _TRIED or None, "the page is through")


def send_forms(window: tuple[Browser, Any], port: int) -> None:
    """Open pages that send a form by themselves, for each alignment of the request before its body."""
    one, server = window
    usual = one.driver.timeouts.page_load
    one.driver.set_page_load_timeout(5)
    for at in (0, 1):
        for padding in range(4):
            server.page = FORM % {"port": port, "command": json.dumps(COMMAND), "at": at, "padding": "x" * padding}
            with contextlib.suppress(WebDriverException):  # the connection was reset, or never answered: the form was sent
                one.open(f"/form{at}{padding}")
                one.until(lambda: not one.driver.current_url.startswith(one.address) or None, "the form was sent")
    one.driver.set_page_load_timeout(usual)


@contextmanager
def bare_router() -> Iterator[subprocess.Popen[str]]:
    """A process with a ROUTER as libzmq makes it: it prints its port, and then a line for each message that holds the command.

    Not in this process: libzmq 4.3.5 aborts where such a socket is closed while a connection before ZMTP/3 begins, as a browser still makes
    them. With a domain for authentication, as the daemon's socket has, it refuses those first.
    """
    with subprocess.Popen([sys.executable, "-c", _BARE, COMMAND], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints, waited for; empty if it ends or says nothing."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], WAIT_S)
    return process.stdout.readline().strip() if ready else ""


@pytest.mark.parametrize("attack", [show_page, send_forms])
def test_it_gets_through_to_a_socket_that_nothing_guards(window: tuple[Browser, Any], attack: Callable[..., None]) -> None:
    """So what the next test does is an attack."""
    with bare_router() as process:
        attack(window, int(heard(process)))
        assert heard(process) == "taken for a message"


def test_a_page_and_a_form_of_another_origin_command_nothing(window: tuple[Browser, Any], tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        with daemon(tmp_path / "data", ollama_host=server.host) as running, Peer(running.endpoint) as peer:
            for attack in (show_page, send_forms):
                attack(window, int(running.endpoint.rpartition(":")[2]))
            assert peer.ask("missions")["missions"] == []
            assert peer.ask("status", id="pwned")["code"] == "unknown_mission"
            assert "foreign_bytes" not in [line["event"] for line in running.log], "libzmq's own wall stands before ours"
