"""Three kernels on one server, killed and stopped at random for half a minute (`bench/cluster.py`): nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.crash import SEED
from tests.support.servers import postgres, zeo  # noqa: F401

ROOT = Path(__file__).parents[2]
MISSIONS = 30


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["postgres", "zeo"])
def test_kernels_that_are_killed_and_stopped_lose_nothing_and_do_nothing_twice(engine: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(engine)  # where there is none, the bench has none either
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
    command = [sys.executable, "bench/cluster.py", "--engine", engine, "--missions", str(MISSIONS), "--seed", str(SEED), "--json"]
    command += ["--lease", "1", "--acts", "0.4"]
    done = subprocess.run(command, cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["engine"] == engine
    assert found["broken"] == [], found
    assert found["states"] == {"COMPLETE": MISSIONS}, found
    assert found["faults"], "the time was too short for any"
    assert (found["acts"], found["acts_done"], found["acts_twice"], found["acts_lost"]) == (12, 12, 0, 0), found
