"""The disk is full from each byte on, in turn: nothing acknowledged is lost, nothing is there in part, and with room again it goes on.

CRASH_STEP in the environment says how many bytes lie between two runs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support import forked

CHILD = Path(__file__).parents[1] / "support" / "full_disk_child.py"
STEP = int(os.environ.get("CRASH_STEP") or 397)


@pytest.mark.timeout(240 + 40_000 // STEP)
def test_a_disk_that_is_full_from_any_byte_on(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = forked.run([sys.executable, str(CHILD), str(tmp_path), str(STEP)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["broken"] == {}
    assert set(told["refused"]) == {f"{what}: OSError" for what in ("accept", "journal", "complete", "fail")}, "it was full at each"
    assert told["runs"] > 20_000 // STEP
