"""A daemon that is killed at each step of a delivery: its sender tries again, and there is one mission."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.daemon import END_S, ROOT, Peer, daemon, provisioned
from tests.support.hook_child import POINTS
from tests.support.hooks import ISSUE, github
from tests.support.servers import free_port

BODY = json.dumps(ISSUE).encode()


def child(folder: Path, point: str, headers: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.support.hook_child", str(folder), point, json.dumps(headers)]
    return forked.run(words, capture_output=True, text=True, timeout=END_S, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize(("point", "headers"), [*((point, {}) for point in POINTS), ("when it is durable", {"webhook-id": "m1"})])
def test_a_kill_at_each_step_leaves_one_mission(tmp_path: Path, point: str, headers: dict[str, str]) -> None:
    killed = child(tmp_path, point, headers)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = child(tmp_path, "", headers)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["missions"] == told["noted"] == [told["id"]]


@pytest.mark.parametrize("name", [{}, {"X-GitHub-Delivery": "72d3162e"}])
def test_a_delivery_to_a_daemon_that_is_killed_before_its_sender_hears(
    tmp_path: Path, scripted: ScriptedOllama, name: dict[str, str]
) -> None:
    provisioned(scripted)
    given = {"doors.enabled": "on", "doors.listen": f"127.0.0.1:{free_port()}", "remember": "off"}
    address = f"http://{given['doors.listen']}/hooks/issues"
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host, **given) as running, Peer(running.endpoint) as peer:
        secret = peer.ask("hook_add", name="issues", brief="Suggest labels for {issue.title}")["secret"]
        headers = github(secret, BODY, **name)
        first = httpx.post(address, content=BODY, headers=headers, timeout=60)
        assert first.status_code == 202, first.text
        running.kill()
    scripted.release()
    with daemon(tmp_path, ollama_host=scripted.host, **given) as running, Peer(running.endpoint) as peer:
        again = httpx.post(address, content=BODY, headers=headers, timeout=60)
        assert (again.status_code, again.json()["id"], again.json()["duplicate"]) == (202, first.json()["id"], True)
        assert peer.result(first.json()["id"])["state"] == "COMPLETE"
        assert [one["id"] for one in peer.ask("missions", system=False)["missions"]] == [first.json()["id"]]
