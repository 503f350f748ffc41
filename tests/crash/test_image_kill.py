"""kill -9 of a process that writes the image: what was acknowledged is there, and nothing is there in part.

The seed is printed; with `CRASH_SEED=…` a run is repeated, as far as scheduling can be. `CRASH_N=…` sets the kills.
"""

from __future__ import annotations

import asyncio
import collections
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from batos.image import LivingImage, journal, ledger
from tests.support import forked
from tests.support.image_child import PARTS, STEPS, WORKERS

CHILD = Path(__file__).parents[1] / "support" / "image_child.py"
KILLS = int(os.environ.get("CRASH_N", "6"))
SEED = int(os.environ.get("CRASH_SEED") or random.randrange(1 << 32))
LIVES = 25  # of one image: all that it holds is looked at after each kill
POINTS = [f"{moment}_{step}" for step in STEPS for moment in ("before", "after")]


class Told:
    """What the children acknowledged, over all lives of the image."""

    def __init__(self) -> None:
        self.ids: dict[str, set[str]] = collections.defaultdict(set)
        self.journaled: dict[str, int] = collections.Counter()
        self.resumed: list[str] = []

    def hear(self, line: str) -> None:
        what, *words = line.split()
        if what == "journaled":
            self.journaled[words[0]] = int(words[1]) + 1
        elif what == "resumed":
            self.resumed.append(words[0])
        elif words:
            self.ids[what].add(words[0])


def live(uri: str, seed: int, told: Told, *, lines: int = 0, point: str = "") -> None:
    """One life of a child: killed after it said `lines` lines, or by itself at `point`. What it said before counts."""
    command = [sys.executable, str(CHILD), uri, str(seed), point]
    with forked.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as child:
        assert child.stdout is not None
        heard, ready = 0, False
        for line in child.stdout:
            if not line.endswith("\n"):
                break
            told.hear(line)
            ready = ready or line == "ready\n"
            heard += ready
            if lines and heard == lines:
                child.kill()  # and hear on: what is in the pipe was acknowledged
        assert child.wait(30) == -9
        assert ready


async def compare(uri: str, told: Told) -> collections.Counter[str]:
    """Open the image and hold it against what was acknowledged. Counts for the report."""
    image = await LivingImage.open(uri)
    found: collections.Counter[str] = collections.Counter()
    with image.snapshot() as root:
        missions = {m.id: m for m in ledger.newest_first(root)}
        chain = [m.number for m in ledger.newest_first(root)]
        assert chain == list(range(len(chain), 0, -1))
        assert set(ledger.ledger_of(root).missions) == set(missions)
        found["accepted lost"] = len(told.ids["accepted"] - set(missions))
        for state, what in ((ledger.COMPLETE, "complete"), (ledger.FAILED, "failed")):
            found[f"{what} lost"] = sum(missions[id].state != state for id in told.ids[what] if id in missions)
        for id, count in told.journaled.items():
            entries = journal.load(root, id)
            found["journaled lost"] += max(0, count - len(entries))
            found["partial"] += sum(not entry.text.startswith(f"{id} {i} ") for i, entry in enumerate(entries))
        pending = set(ledger.ledger_of(root).pending)
        for id, mission in missions.items():
            record = ledger.describe(mission)
            complete, failed = record.state == ledger.COMPLETE, record.state == ledger.FAILED
            found["partial"] += complete != (record.result == {"text": id}) or failed != (record.error is not None)
            found["partial"] += failed != bool(ledger.failures_of(root, id))
            found["not pending"] += not complete and not failed and id not in pending
        parts = root["lobby"].parts
        for worker in range(WORKERS):
            effects = {part.effects for part in parts[worker * PARTS : (worker + 1) * PARTS]}
            found["partial"] += len(effects) != 1
            for id in (ids := effects.pop()):
                found["partial"] += missions[id].state != ledger.COMPLETE
                found["doubled"] += ids.count(id) != 1
    await image.close()
    return found


@pytest.mark.timeout(240 + 5 * KILLS)
def test_nothing_acknowledged_is_lost_and_nothing_is_there_in_part(tmp_path: Path) -> None:
    print(f"CRASH_SEED={SEED} CRASH_N={KILLS}")
    rng, accepted = random.Random(SEED), 0
    for kill in range(KILLS):
        if kill % LIVES == 0:
            path, told = tmp_path / f"{kill}.fs", Told()
        uri = f"file://{path}"
        live(uri, kill, told, lines=rng.randrange(1, 400))
        if kill % 2:  # and every other time without the index of the last close
            path.with_name(f"{path.name}.index").unlink(missing_ok=True)
        found = asyncio.run(compare(uri, told))
        assert not +found, (f"seed {SEED}, kill {kill}", found)
        if (kill + 1) % LIVES == 0 or kill + 1 == KILLS:
            accepted += len(told.ids["accepted"])
    assert accepted > KILLS


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point(tmp_path: Path, point: str) -> None:
    told, uri = Told(), f"file://{tmp_path / 'i.fs'}"
    live(uri, 1, told, point=point)
    found = asyncio.run(compare(uri, told))
    assert not +found, found
    ended = told.ids["complete"] | told.ids["failed"]
    live(uri, 2, told, lines=1)
    # Of the others, those are resumed whose end had not reached the disk: `compare` saw that they are pending.
    assert told.resumed
    assert not set(told.resumed) & ended
