"""A short soak (`bench/soak.py`): load without a pause, four kills, upkeep all the while; nothing is lost, and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MISSIONS = 600


@pytest.mark.long
@pytest.mark.timeout(600)
def test_after_a_soak_nothing_is_lost_and_nothing_is_left(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
    command = [sys.executable, "bench/soak.py", "--missions", str(MISSIONS), "--json", "--dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-4000:]  # it exits with 1 for a traceback, and for an aim of time or size, which a busy machine misses
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["lost"] == 0
    assert {name: found["left"][name] for name in ("files", "sections", "missions")} == {"files": 0, "sections": 0, "missions": 0}
    assert sum(found["ended"].values()) >= MISSIONS
    assert set(found["ended"]) <= {"complete", "cancelled"}, "no mission is the victim of a kill"
    assert found["folded"] > MISSIONS / 4
    assert set(found["refused"]) <= {"conflict", "history_gone", "invalid", "mission_folded", "undo_conflict"}
