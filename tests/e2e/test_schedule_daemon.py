"""Schedules of a daemon: by the command line, over a restart."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from zoneinfo import ZoneInfo

from batos.testing import ScriptedOllama
from tests.support.crash import prepare
from tests.support.daemon import Peer, batos, daemon, until


def today(zone: str) -> str:
    return datetime.datetime.now(ZoneInfo(zone)).date().isoformat()


def test_a_schedule_is_added_listed_run_and_kept_over_a_kill(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        assert peer.ask("schedules")["schedules"] == []
        code, told = batos(running, "schedule", "add", "every weekday at 8:00", "What is new on {date}?", "--tz", "Europe/Berlin")
        assert code == 0, told
        (made,) = told["schedules"]
        assert (made["name"], made["rule"], len(made["times"])) == ("what-is-new-on-date", "cron 0 8 * * 1-5", 5)
        assert batos(running, "schedule", "add", "when it rains", "x")[0] == 4
        assert batos(running, "schedule", "add", "hourly", "x", "--tz", "Mars/Olympus")[0] == 4
        days = [today("Europe/Berlin")]
        code, ran = batos(running, "schedule", "run", made["name"])
        days.append(today("Europe/Berlin"))  # it may be midnight meanwhile
        assert peer.result(ran["id"])["state"] == "COMPLETE"
        status = peer.ask("status", id=ran["id"])
        assert status["brief"] in [f"What is new on {day}?" for day in days]
        assert status["origin"] == "schedule"
        assert peer.ask("schedule_add", when="in 1 minute", brief="Wake up", name="soon")["type"] == "schedules"
        assert batos(running, "schedule", "pause", "soon")[1]["schedules"][0]["paused"] is True
        running.kill()
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        listed = {one["name"]: one for one in peer.ask("schedules")["schedules"]}
        assert listed["soon"]["next"] is None
        assert listed[made["name"]]["next"] >= made["next"]
        assert listed[made["name"]]["last"] == {"id": ran["id"], "planned": listed[made["name"]]["last"]["planned"], "state": "COMPLETE"}
        assert batos(running, "schedule", "remove", "soon")[1]["schedules"][0]["name"] == made["name"]
        assert peer.ask("schedule_run", name="soon", id="m1")["code"] == "invalid"
        assert peer.ask("history", target=f"schedules.{made['name']}")["type"] == "history"


def test_a_run_that_passed_without_a_daemon_is_made_at_the_next_start(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        assert peer.ask("schedule_add", when="0 8 * * *", brief="Wake up", zone="UTC", name="morning")["type"] == "schedules"
        running.kill()
    long_ago = time.time() - 3 * 86400
    prepare(tmp_path, lambda image: image.system(lambda root: setattr(root["lobby"].schedules.morning, "settled", long_ago)))
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        until(lambda: peer.ask("schedules")["schedules"][0]["last"])
        (one,) = peer.ask("schedules", name="morning")["schedules"]
        assert len(one["runs"]) == 1, "one run for all that passed"
        assert time.time() - 86400 < one["last"]["planned"] <= time.time()
        assert peer.result(one["last"]["id"])["state"] == "COMPLETE"
