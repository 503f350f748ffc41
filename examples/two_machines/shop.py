"""A small shop whose till is slow: a second request with the key of a first one gets its answer, and buys nothing more.

    python shop.py [--port 8090] [--host 127.0.0.1] [--seconds 10] [--book orders.txt]

`POST /order` with a JSON object takes `--seconds`, then writes one line into the book. `GET /orders` lists what was sold, `GET /asked` what
was asked for. Standard library only.
"""

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, default=8090)
parser.add_argument("--seconds", type=float, default=10)
parser.add_argument("--book", type=Path, default=Path("orders.txt"))
asked = parser.parse_args()
keys: dict[str, threading.Event] = {}
one = threading.Lock()
orders: list[object] = []


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        sold = [json.loads(line) for line in asked.book.read_text().splitlines()] if asked.book.exists() else []
        self.answer(orders if self.path == "/asked" else sold)

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Idempotency-Key", "")
        with one:
            first = key not in keys
            done = keys.setdefault(key, threading.Event())
            orders.append(order)
        print(f"{'asked for' if first else 'asked again for'} {order} {key}", flush=True)
        if first:
            time.sleep(asked.seconds)
            with asked.book.open("a") as book:
                book.write(json.dumps(order) + "\n")
            print(f"sold {order} {key}", flush=True)
            done.set()
        done.wait()
        self.answer({"sold": order})

    def answer(self, value: object) -> None:
        words = json.dumps(value).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)
        except OSError:
            self.close_connection = True  # whoever asked is gone

    def log_message(self, *words: object) -> None:
        pass


print(f"shop at http://{asked.host}:{asked.port}", flush=True)
ThreadingHTTPServer((asked.host, asked.port), Shop).serve_forever()
