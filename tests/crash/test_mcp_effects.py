"""Calls of MCP servers, killed at every step: over standard streams the server dies with the daemon, over HTTP it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.crash import sampled

pytest.importorskip("mcp")

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "tests" / "support" / "faulty_mcp.py"
WAIT_S = 60.0
POINTS = ("before intent", "intent durable", "sent", "world did it", "answered", "result durable", "never")
IN_DOUBT = ("intent durable", "sent", "world did it", "answered")
CASES = [("acts", point) for point in POINTS] + [(kind, point) for kind in ("keyed", "idempotent", "verifiable") for point in IN_DOUBT[1:]]


@dataclass
class Market:
    """A world of one file, and the server that acts in it."""

    folder: Path
    place: str
    environment: dict[str, str]

    @property
    def lines(self) -> list[str]:
        world = Path(self.environment["WORLD"])
        return world.read_text().splitlines() if world.exists() else []

    @property
    def trades(self) -> int:
        return sum(line.startswith("traded tea") for line in self.lines)

    def attempt(self, kind: str, point: str, *answers: str) -> tuple[int, str, str]:
        """Run one attempt; its exit status, its last line, and its errors. It kills itself, or is killed where the world is at a point."""
        chosen: dict[str, Any] = {"class": kind} | {"verifiable": {"look": "seen"}, "keyed": {"key": "key"}}.get(kind, {})
        options: dict[str, Any] = {"classes": {"trade": chosen, "seen": "reads"}, "seconds": 2.0}
        if not self.place.startswith("http"):
            options["env"] = self.environment
        words = [sys.executable, "-m", "tests.support.mcp_effect_child", str(self.folder), self.place, json.dumps(options), point, *answers]
        awaited = {"sent": "asked-tea", "world did it": "traded tea"}.get(point, "")
        with forked.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            if awaited:
                self.until(awaited)
                child.kill()
            said, errors = child.communicate(timeout=WAIT_S)
        return child.returncode, said.splitlines()[-1] if said else "", errors

    def until(self, line: str) -> None:
        """Wait for a line of the world."""
        end = time.monotonic() + WAIT_S
        while not any(one.startswith(line) for one in self.lines):
            assert time.monotonic() < end, f"no {line!r} in {self.lines}"
            time.sleep(0.005)


@pytest.fixture(params=["stdio modern", "http legacy"])
def market(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Market]:
    way, era = request.param.split()
    words, environment = [sys.executable, str(SERVER), way, era], {"WORLD": str(tmp_path / "world")}
    if way == "stdio":
        yield Market(tmp_path, " ".join(f"'{word}'" for word in words), environment)
        return
    with subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, **environment}, text=True) as server:
        assert server.stdout is not None
        yield Market(tmp_path, f"http://127.0.0.1:{int(server.stdout.readline())}/mcp", environment)
        server.kill()


@pytest.mark.parametrize(("kind", "point"), sampled(CASES, lambda case: case[1]))
def test_a_trade_that_is_killed_anywhere_is_made_once(market: Market, kind: str, point: str) -> None:
    status, _, errors = market.attempt(kind, point)
    assert status == (0 if point == "never" else -9), errors
    _, said, errors = market.attempt(kind, "never")
    if kind == "acts" and point in IN_DOUBT:
        assert said.startswith("asked"), said + errors
        assert "market.trade" in said
        happened = market.trades
        assert happened <= 1
        if market.place.startswith("http") and point != "intent durable":
            assert happened == 1, "it went on with what it was asked, and was waited for"
        _, said, errors = market.attempt(kind, "never", "happened" if happened else "again")
    assert said.startswith("done"), said + errors
    if point == "sent":
        assert market.attempt(kind, "never")[1] == said, "it is replayed"
    if kind == "idempotent":
        assert 1 <= market.trades <= 2, "a second time makes no difference"
    else:
        assert market.trades == 1
