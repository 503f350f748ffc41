"""A shop on loopback that takes its time, and counts what it sold, for kernels that die or stand still meanwhile."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from http.server import ThreadingHTTPServer

from tests.support.http_world import QuietHandler


class CountingShop:
    """A shop: `POST /keyed` sells once for each `Idempotency-Key`, `POST /plain` sells each time. The body names who orders: `{"for": ID}`.

    It goes on with what it was asked for when who asked is gone.
    """

    def __init__(self, chance: random.Random, seconds: tuple[float, float]) -> None:
        """
        :param seconds: least and most seconds of an order, one half before it is sold and one half before the answer.
        """
        self.asked: Counter[str] = Counter()
        """How often each one's order came in."""
        self.sold: Counter[str] = Counter()
        """How often each one's order was sold."""
        lock, keys, shop = threading.Lock(), dict[str, threading.Event](), self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                id = str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["for"])
                key = self.headers["Idempotency-Key"] if self.path == "/keyed" else ""
                with lock:
                    shop.asked[id] += 1
                    pause = chance.uniform(*seconds) / 2
                    is_first = not key or key not in keys
                    done = keys.setdefault(key, threading.Event()) if key else threading.Event()
                if is_first:
                    time.sleep(pause)
                    with lock:
                        shop.sold[id] += 1
                    done.set()
                done.wait()
                time.sleep(pause)
                try:
                    self.answer(200, {"sold": id})
                except OSError:
                    self.close_connection = True  # whoever asked is gone

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
