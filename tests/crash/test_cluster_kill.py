"""Three kernels on one PostgreSQL, killed and stopped at random for half a minute (`bench/cluster.py`): nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.crash import SEED
from tests.support.servers import postgres  # noqa: F401

ROOT = Path(__file__).parents[2]
MISSIONS = 30


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("postgres")  # where there is none, the bench has none either
def test_kernels_that_are_killed_and_stopped_lose_nothing_and_do_nothing_twice() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
    command = [sys.executable, "bench/cluster.py", "--missions", str(MISSIONS), "--seed", str(SEED), "--lease", "1", "--json"]
    command += ["--acts", "0.4"]
    done = subprocess.run(command, cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["broken"] == [], found
    assert found["states"] == {"COMPLETE": MISSIONS}, found
    assert found["faults"], "the time was too short for any"
    assert (found["acts"], found["acts_done"], found["acts_twice"], found["acts_lost"]) == (12, 12, 0, 0), found
