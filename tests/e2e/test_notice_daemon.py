"""Notices of a daemon: by the command line, over a kill."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from batos.config import load
from batos.doctor import connections
from batos.testing import ScriptedOllama
from tests.support.daemon import Peer, batos, daemon, until
from tests.support.notices import world

BRIEF = "I feel stuck, and need a plan"


def test_a_channel_is_added_tried_and_told_of_missions_over_a_kill(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with world() as there:
        with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
            assert batos(running, "notices")[1]["channels"] == []
            place = there.url.replace("/hook", "/T0123456789ABCDEF")
            code, told = batos(running, "notices", "add", "desk", "--hook", place, "--on", "all", "--tz", "Europe/Berlin")
            assert code == 0, told
            (made,) = told["channels"]
            assert made["place"].endswith("{secret:notices.desk}")
            assert "T0123456789ABCDEF" not in json.dumps(told)
            assert batos(running, "notices", "add", "desk", "--hook", "http://127.0.0.1:1/other")[0] == 4
            assert batos(running, "notices", "add", "bad", "--hook", place, "--quiet", "late")[0] == 4
            assert batos(running, "notices", "add", "bad", "--program", "/bin/true {colour}")[0] == 4
            assert batos(running, "notices", "test", "desk")[1]["messages"][0]["state"] == "DONE"
            there.answers = [403]
            assert batos(running, "notices", "test", "desk")[0] == 1
            assert batos(running, "notices", "add", "bad", "--program", "/bin/nosuchprogram {title}")[0] == 2
            (check,) = [one for one in asyncio.run(connections(load(), running.endpoint)) if one.finding.startswith("desk")]
            assert (check.name, check.state) == ("notices", "warn")
            assert "403" in check.finding
            peer.ask("submit", id="first", brief=BRIEF)
            assert peer.result("first")["state"] == "COMPLETE"
            until(lambda: "first" in there.told)
            assert batos(running, "notices", "pause", "desk")[1]["channels"][0]["paused"] is True
            peer.ask("submit", id="second", brief=BRIEF)
            peer.result("second")
            running.kill()
        with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
            (one,) = batos(running, "notices")[1]["channels"]
            assert one["waiting"] == 1, "what ended just before the kill was noted"
            assert "second" not in there.told
            batos(running, "notices", "resume", "desk")
            until(lambda: "second" in there.told)
            assert there.told.count("second") == 1
            log = batos(running, "notices", "log", "desk")[1]["messages"]
            assert [one["state"] for one in log][1:] == ["DONE", "FAILED", "DONE"]
            assert peer.ask("history", target="notices.desk")["type"] == "history"
            assert batos(running, "notices", "remove", "desk")[1]["channels"] == []
            assert "T0123456789ABCDEF" not in (tmp_path / "secrets.json").read_text()
        image = b"".join(path.read_bytes() for path in tmp_path.glob("live_image.fs*") if path.is_file())
        assert b"T0123456789ABCDEF" not in image, "the secret was never in the image"
