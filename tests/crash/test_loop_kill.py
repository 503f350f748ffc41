"""kill -9 of a daemon whose loop is at work: no beat and no trigger becomes two missions, and what it remembers is whole."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import entropy_records, schema, telemetry
from batos.image import ledger
from tests.support.crash import KILLS, SEED, SETTINGS, Sender, on_disk, provision, slow_ollama
from tests.support.daemon import REPLY_S, Peer, daemon, until

LIVES = max(3, KILLS // 2)
QUICK = {
    "autotelic": "on", "heartbeat_first_s": 0.05, "heartbeat_s": 0.1, "heartbeat_jitter": 0.5, "senses_s": 0.05, "senses_intervals": 8,
    "trigger_personas": 2, "cem_window": 2, "cem_baseline": 4,
}  # fmt: skip


@pytest.mark.timeout(240 + 10 * LIVES)
def test_what_the_loop_remembers_survives_any_kill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" CRASH_SEED={SEED} ", end="", flush=True)
    chance = random.Random(SEED)
    beaten = fired = 0
    with slow_ollama(random.Random(SEED)) as server:
        provision(tmp_path, server)
        for life in range(LIVES):
            with daemon(tmp_path, ollama_host=server.host, **SETTINGS, **QUICK) as running:
                sender = Sender(running.endpoint, 6 * life, chance)
                sender.start()
                try:
                    assert sender.enough.wait(REPLY_S)
                    if life % 2:  # else it may be killed before the loop has done anything
                        running.logged("accepted", origin="system")
                    time.sleep(chance.uniform(0.0, 1.5))  # not to wait for anything: to kill at a random point
                finally:
                    running.kill()
                    sender.over.set()
                    sender.join()
            told = on_disk(tmp_path, _remembered)
            audits = [id for id in told["system"] if id.startswith("self_audit-")]
            assert told["beats"] <= len(audits) <= told["beats"] + 1, f"seed {SEED}: each beat is one mission"
            numbers = sorted(int(id.split("-")[1]) for id in told["system"] if id.startswith("self_improvement-"))
            assert numbers == sorted(set(numbers)), f"seed {SEED}: a trigger that fired is one mission"
            assert max(numbers, default=0) <= told["ever"]
            assert told["beats"] >= beaten, SEED
            assert told["ever"] >= fired, f"seed {SEED}: what fired is remembered"
            beaten, fired = told["beats"], told["ever"]
            assert told["weights"] == pytest.approx(1), SEED
            assert told["assessed"] <= told["complete"], f"seed {SEED}: only what completed is measured"
            assert len(told["buckets"]) <= QUICK["senses_intervals"]
        with daemon(tmp_path, ollama_host=server.host, **SETTINGS, **QUICK) as running, Peer(running.endpoint) as peer:
            until(lambda: peer.ask("info")["autotelic"]["heartbeat"]["beats"], "a beat, however early each life ended")
            assert running.terminate() == 0


def _remembered(root: Any) -> dict[str, Any]:
    missions = list(ledger.newest_first(root))
    heartbeat, triggers = schema.part_of(root, "heartbeat"), schema.part_of(root, "triggers")
    return {
        "system": [mission.id for mission in missions if mission.origin == "system"],
        "complete": {mission.number for mission in missions if mission.state == ledger.COMPLETE},
        "beats": heartbeat.beats,
        "ever": triggers.ever,
        "weights": sum(entropy_records.weights_of(root)),
        "assessed": {one.number for one in entropy_records.last_assessments(root, 1000)},
        "buckets": telemetry.read_buckets(root),
    }
