"""What missions do outside the image, killed at every step: never twice, never lost, and asked only where nobody can know."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.crash import sampled

ROOT = Path(__file__).parents[2]
POINTS = ("before intent", "intent durable", "sent", "world did it", "answered", "result durable", "never")
KINDS = ("reads", "keyed", "idempotent", "verifiable", "acts")


class Shop:
    """A world that takes its time, counts, and goes on with what it was asked when who asked is gone."""

    def __init__(self) -> None:
        self.acts, self.reads, self.state, self.keys = 0, 0, 0, dict[str, bytes]()
        self.lock, self.seconds = threading.Lock(), 0.2
        self.when: dict[str, Callable[[], None]] = {}  # "sent", "world did it" -> what is done then
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do(self) -> None:
                key = self.headers.get("Idempotency-Key")
                if self.path == "/seen":
                    body = b'{"orders": 1}' if shop.acts else b"null"
                else:
                    shop.when.pop("sent", bool)()
                    time.sleep(shop.seconds)
                    body = shop.take(self.path, key)
                    shop.when.pop("world did it", bool)()
                    time.sleep(0.2)
                try:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass

            do_GET = do_POST = do_PUT = do

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path: str, key: str | None) -> bytes:
        with self.lock:
            if path == "/read":
                self.reads += 1
            elif path == "/put":
                self.state = 1
            elif key is None or key not in self.keys:
                self.acts += 1
                if key is not None:
                    self.keys[key] = b"{}"
        return b"{}"

    @property
    def times(self) -> int:
        """How often it came to something."""
        return self.acts + self.state


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.server.shutdown()
    made.server.server_close()


def attempt(folder: Path, shop: Shop, kind: str, point: str, *answers: str) -> tuple[int, str, str]:
    """Run one attempt; its exit status, its last line, and its errors. The world kills it, or it does so itself."""
    words = [sys.executable, "-m", "tests.support.effect_child", str(folder), str(shop.port), kind, point, *answers]
    started: Future[subprocess.Popen[str]] = Future()
    if point in ("sent", "world did it"):
        shop.when[point] = lambda: started.result(100).kill()  # it may come to the point before its start is heard of here
    with forked.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        started.set_result(child)
        said, errors = child.communicate(timeout=100)
    return child.returncode, said.splitlines()[-1] if said else "", errors


@pytest.mark.parametrize(("point", "kind"), sampled(itertools.product(POINTS, KINDS), lambda case: case[0], 2))
def test_nothing_happens_twice_and_nothing_is_lost(tmp_path: Path, shop: Shop, kind: str, point: str) -> None:
    status, _, errors = attempt(tmp_path, shop, kind, point)
    never_there = kind == "reads" and point in ("before intent", "intent durable")  # what only reads is not intended
    assert status == (0 if point == "never" or never_there else -9), errors
    _, said, errors = attempt(tmp_path, shop, kind, "never")
    if kind == "acts" and point in ("intent durable", "sent", "world did it", "answered"):
        assert said.startswith("asked"), said + errors
        assert "shop.order" in said
        assert shop.times == (0 if point == "intent durable" else 1)
        _, said, errors = attempt(tmp_path, shop, kind, "never", "perhaps", "happened" if shop.times else "again")
        assert said.startswith("done"), said + errors
        _, said, errors = attempt(tmp_path, shop, kind, "never")
    assert said.startswith("done"), said + errors
    assert attempt(tmp_path, shop, kind, "never")[1] == said, "it is replayed"
    if kind == "reads":
        assert shop.reads == (1 if point in ("never", "result durable") or never_there else 2)
    else:
        assert shop.times == 1


def test_what_its_user_leaves_is_left(tmp_path: Path, shop: Shop) -> None:
    attempt(tmp_path, shop, "acts", "sent")
    _, said, errors = attempt(tmp_path, shop, "acts", "never", "leave")
    assert said.startswith("done"), errors
    assert '"happened": false' in said
    assert attempt(tmp_path, shop, "acts", "never")[1] == said
    assert shop.times == 1


@pytest.mark.parametrize("kind", ["verifiable", "keyed", "acts"])
def test_a_slow_world_is_waited_for_before_anything_is_done_about_a_doubt(tmp_path: Path, shop: Shop, kind: str) -> None:
    """A look that came before the time of the request is over would find nothing, and do it again."""
    shop.seconds = 1.2
    attempt(tmp_path, shop, kind, "sent")
    assert shop.times == 0, "it is still at it"
    _, said, errors = attempt(tmp_path, shop, kind, "never", "happened")
    assert said.startswith("done"), said + errors
    assert shop.times == 1
