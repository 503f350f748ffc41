"""`batos` alone: what it shows, live and once, on wide and narrow terminals, and when nobody is there."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from batos.cli import main
from batos.cli.dashboard import WIDE, WINDOW_S, Panels, Speed, facts_of, keys_of, personas_of
from tests.support.cli import Script, daemon

ROOT = Path(__file__).parents[2]
INFO: dict[str, Any] = {
    "type": "info",
    "version": "9.9",
    "uptime_s": 7200.0,
    "profile": "embedded",
    "endpoints": ["tcp://127.0.0.1:5757"],
    "personas": ["robin", "brick"],
    "missions": {"running": 1, "queued": 4, "under_way": ["m2"], "paused": 0},
    "costs": {"answer_tokens": 300, "model_s": 20.0},
    "image": {"bytes": 3 * 1024 * 1024, "objects": 912},
    "residency": {"resident": ["robin:embedded"], "bytes": 150 * 1024 * 1024, "budget": 6_900_000_000},
    "autotelic": {"cem": {"last": {"cem": 0.71}, "rolling": 0.64}, "triggers": {"fired": ["growth"], "ever": 1}},
    "upkeep": {"under_way": "backup", "progress": {"step": "writing"}},
}
MISSIONS = [
    {"id": "m2", "state": "ACCEPTED", "brief": "Plan a party", "accepted": 1.0},
    {"id": "m1", "state": "COMPLETE", "brief": "A cat \x1b[2J purrs", "accepted": 1.0},
]
SCRIPT: Script = {
    "info": INFO,
    "status": {"type": "status", "state": "DELEGATING", "persona": "robin", "brief": "Plan a party", "accepted": 1.0},
    "missions": {"type": "missions", "missions": MISSIONS},
}
SEEN = {"info": INFO, "missions": [{**MISSIONS[0], "state": "DELEGATING", "persona": "robin"}, MISSIONS[1]]}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("BATOS_") or n in ("NO_COLOR", "FORCE_COLOR")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def drawn(width: int, height: int = 40, **changed: Any) -> list[str]:
    """The lines of the dashboard on a terminal of that size."""
    panels = Panels("tcp://127.0.0.1:1")
    panels.seen, panels.tokens_s = SEEN, 12.34
    for name, value in changed.items():
        setattr(panels, name, value)
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(panels, height=height)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_once_and_plainly_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(SCRIPT) as scripted:
        assert main(["--connect", scripted.endpoint]) == 0
        out = capsys.readouterr().out
        assert main(["--json", "--connect", scripted.endpoint]) == 0
        told = json.loads(capsys.readouterr().out)
    for part in (
        "9.9",
        "1 running, 4 queued",
        "3.0 MiB, 912 objects",
        "robin:embedded",
        "0.71 last",
        "ROBIN",
        "thinks about 1",
        "BRICK",
        "rests",
    ):
        assert part in out
    assert re.search(r"DELEGATING +ROBIN +\S+ d +m2 +Plan a party", out), (
        "what the daemon knows of a mission under way, not what is on record"
    )
    assert out.count("m2") == 1
    assert "\x1b" not in out
    assert (told["type"], [mission["id"] for mission in told["missions"]]) == ("dashboard", ["m2", "m1"])


def test_nobody_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--connect", "tcp://127.0.0.1:9"]) == 3
    assert "batos run" in capsys.readouterr().err


def test_nothing_is_known_of_a_daemon_that_just_began() -> None:
    assert facts_of({"info": {}, "missions": []})[0] == ("missions", "none under way")
    assert personas_of({"info": {}, "missions": []}) == []


@pytest.mark.parametrize("width", [40, WIDE - 1, WIDE, 200])
def test_it_fits_the_width(width: int) -> None:
    lines = drawn(width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    for part in ("DELEGATING", "ROBIN", "12.3", "3.0 MiB", "backup: writing", "growth", "q leaves"):
        assert part in text
    beside = any(("DELEGATING" in line and "running" in line) or ("missions" in line and "now" in line) for line in lines)
    assert beside == (width >= WIDE), "two of panels beside each other on a wide terminal, below each other on a narrow one"
    assert "\x1b[2J" not in text


@pytest.mark.parametrize("height", [24, 60])
def test_it_fits_the_height(height: int) -> None:
    many = {"info": INFO, "missions": [dict(MISSIONS[1], id=str(n)) for n in range(200)]}
    assert len(drawn(WIDE, height, seen=many)) <= height


def test_a_daemon_that_went_away_is_told_of_over_what_was_seen_last() -> None:
    lines = drawn(WIDE, away="no daemon answers at x")
    assert lines[0].startswith("no daemon answers")
    assert any("DELEGATING" in line for line in lines)


def test_tokens_a_second_are_those_of_the_last_while() -> None:
    speed = Speed()
    assert speed.take(100.0, 500) is None
    assert speed.take(110.0, 700) == 20.0
    assert speed.take(100.0 + WINDOW_S, 700) == pytest.approx(200 / WINDOW_S)
    assert speed.take(111.0 + WINDOW_S, 700) == 0.0, "nothing came within the window"
    assert speed.take(112.0 + WINDOW_S, 3) is None, "another daemon"


def test_keys_are_known_by_what_a_terminal_sends() -> None:
    assert keys_of(b"\x1b[A\x1b[Bjk\r \x1b[6~\x1bqz\xc3") == ["up", "down", "down", "up", "enter", "page down", "page down", "back", "q"]


def read(mission: dict[str, Any], *keys: str, width: int = 60, height: int = 14) -> tuple[Panels, list[str]]:
    """The dashboard after keys, the mission that is read being as it is given."""
    panels = Panels("tcp://127.0.0.1:1")
    panels.seen = SEEN
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    for key in keys:
        if panels.press(key) == "read":
            panels.reading = mission
        console.print(panels, height=height)
    console.file.seek(0)  # type: ignore[attr-defined]
    console.file.truncate()
    console.print(panels, height=height)
    return panels, console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_mission_is_selected_and_read() -> None:
    long = {
        "id": "m1",
        "state": "COMPLETE",
        "brief": "A cat \x1b[2J",
        "persona": "BABS",
        "result": {"text": "\n".join(f"line {n}" for n in range(40))},
    }
    panels, lines = read(long, "down", "down", "down")
    assert panels.selected == "m1", "the last is the last"
    panels, lines = read(long, "down", "down", "enter")
    text = "\n".join(lines)
    for words in ("A cat", "COMPLETE, BABS", "line 0", "more lines", "Esc goes back"):
        assert words in text
    assert "line 39" not in text
    assert "\x1b[2J" not in text
    assert len(lines) <= 14
    assert max(map(len, lines)) <= 60
    panels, lines = read(long, "down", "down", "enter", *["page down"] * 20)
    assert any("line 39" in line for line in lines)
    panels, lines = read(long, "down", "down", "enter", *["page down"] * 20, *["page up"] * 20)
    assert any("line 0" in line for line in lines)
    panels, lines = read(long, "down", "down", "enter", "q")
    assert (panels.reading, panels.selected) == (None, "m1"), "back, and not away"
    assert panels.press("q") == "leave"
    assert panels.press("gone") == "leave"


def test_what_there_is_to_read_of_a_mission() -> None:
    asks = {"id": "m9", "state": "NEEDS_INPUT", "brief": "x", "question": {"question": "How many?", "number": 1}}
    failed = {"id": "m9", "state": "FAILED", "brief": "x", "error": {"code": "deadline", "message": "late"}}
    for mission, words in (
        (asks, "batos answer m9 TEXT"),
        (failed, "deadline: late"),
        ({"id": "m", "state": "IDLE", "brief": "x"}, "nothing yet"),
    ):
        assert words in "\n".join(read(mission, "enter")[1])


def test_nothing_is_selected_where_there_is_nothing() -> None:
    panels = Panels("x")
    assert [panels.press(key) for key in ("down", "enter", "back", "page up")] == [""] * 4
    assert (panels.selected, panels.reading) == ("", None)


def test_the_selected_one_stays_in_sight() -> None:
    many = {"info": INFO, "missions": [dict(MISSIONS[1], id=str(n), brief=f"mission {n}.") for n in range(50)]}
    assert any("mission 49." in line for line in drawn(WIDE, 24, seen=many, selected="49"))


def on_a_terminal(words: list[str], keys: bytes | signal.Signals, until: str, **environ: str) -> tuple[int, str, list[Any], list[Any]]:
    """Press keys once something stands on the terminal; exit code, what was written, the terminal's settings before and after."""
    leader, follower = pty.openpty()
    before = termios.tcgetattr(follower)
    env = {**os.environ, "TERM": "xterm-256color", **environ}
    child = subprocess.Popen([sys.executable, "-c", "import batos.cli; raise SystemExit(batos.cli.main())", *words],
                             stdin=follower, stdout=follower, stderr=follower, env=env)  # fmt: skip
    read, pressed = b"", False
    try:
        while child.poll() is None:
            if select.select([leader], [], [], 0.2)[0]:
                read += os.read(leader, 65536)
            if not pressed and until.encode() in read:
                pressed = True
                child.send_signal(keys) if isinstance(keys, signal.Signals) else os.write(leader, keys)
        return child.wait(30), read.decode(), before, termios.tcgetattr(follower)
    finally:
        child.kill()
        child.wait()
        os.close(leader)
        os.close(follower)


@pytest.mark.parametrize("key", [b"q", signal.SIGINT])
def test_live_until_a_key_is_pressed(key: bytes | signal.Signals) -> None:
    with daemon(SCRIPT) as scripted:
        code, shown, before, after = on_a_terminal(["--connect", scripted.endpoint], key, "purrs")
    assert code == 0
    assert "DELEGATING" in shown
    assert "\x1b[36m" in shown, "colours on a terminal"
    assert "Traceback" not in shown
    assert before == after, "the terminal is as it was"


def test_live_a_mission_is_read() -> None:
    told = {"type": "status", "state": "COMPLETE", "brief": "Plan a party", "accepted": 1.0, "result": {"text": "Invite six friends."}}
    with daemon({**SCRIPT, "status": told}) as scripted:
        code, shown, *_ = on_a_terminal(["--connect", scripted.endpoint], b"\x1b[B\rqq", "purrs")
        assert {request.id for request in scripted.requests if request.op == "status"} == {"m2"}
    assert code == 0
    assert "Traceback" not in shown


def test_live_without_colours() -> None:
    with daemon(SCRIPT) as scripted:
        code, shown, *_ = on_a_terminal(["--connect", scripted.endpoint], b"q", "purrs", NO_COLOR="1")
    assert code == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown)
