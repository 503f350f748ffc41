"""What the service manager is told, over a real socket of its kind, and what the environment says of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from batos.config import Supervision, supervision, user_folder
from batos.supervision import Supervisor

ROOT = Path(__file__).parents[2]


def manager(address: str) -> socket.socket:
    """A service manager's ear."""
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(address)
    ear.settimeout(10)
    return ear


@pytest.mark.parametrize("abstract", [False, True])
def test_each_message_is_one_datagram(tmp_path: Path, abstract: bool) -> None:
    name = f"@batos-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with manager(name.replace("@", "\0")) as ear:
        told = Supervisor(Supervision(name))
        told.starting_for(30)
        told.ready("two\nlines")
        told.alive("well")
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        told.reloading()
        told.stopping()
        said = [ear.recv(4096).decode().split("\n") for _ in range(5)]
    assert said[0] == ["EXTEND_TIMEOUT_USEC=30000000"]
    assert said[1] == ["READY=1", "STATUS=two lines"]
    assert said[2] == ["WATCHDOG=1", "STATUS=well"]
    assert said[3][0] == "RELOADING=1"
    assert before <= int(said[3][1].removeprefix("MONOTONIC_USEC=")) <= before + 10_000_000
    assert said[4] == ["STOPPING=1"]


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    with capture_logs() as logged:
        Supervisor(Supervision()).ready("x")
        away = Supervisor(Supervision(str(tmp_path / "none")))
        for _ in range(3):
            away.alive("x")
    assert [line["event"] for line in logged] == ["service_manager_not_told"], "said once"


def test_a_manager_that_does_not_read_holds_nothing_up(tmp_path: Path) -> None:
    with manager(str(tmp_path / "notify")), capture_logs():
        told = Supervisor(Supervision(str(tmp_path / "notify")))
        begun = time.monotonic()
        for _ in range(10_000):
            told.alive("x")
        assert time.monotonic() - begun < 10


def test_what_the_environment_says() -> None:
    given = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}
    assert supervision(given, pid=7) == Supervision("/run/x", 60.0, False)
    assert supervision(given, pid=8).watchdog_s == 0, "another process was meant"
    assert supervision({"WATCHDOG_USEC": "5000000"}).watchdog_s == 5
    assert supervision({"WATCHDOG_USEC": "soon", "NOTIFY_SOCKET": "vsock:2:1"}) == Supervision(), "not one of ours"
    assert supervision({}) == Supervision()


def test_the_journal_is_known_by_its_stream(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as stream:
        seen = os.fstat(stream.fileno())
        assert supervision({"JOURNAL_STREAM": f"{seen.st_dev}:{seen.st_ino}"}, stream=stream.fileno()).journal
        assert not supervision({"JOURNAL_STREAM": f"{seen.st_dev}:{seen.st_ino + 1}"}, stream=stream.fileno()).journal
    assert not supervision({"JOURNAL_STREAM": "1:2"}, stream=9999).journal


def test_where_a_user_s_programs_keep_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    assert user_folder({"XDG_CONFIG_HOME": "/c"}) == Path("/c")
    assert user_folder({"XDG_CONFIG_HOME": "relative"}) == user_folder({}) == Path("/h/.config")


# --- the log


def logged(code: str) -> list[str]:
    """What a process writes to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", f"from batos import logs; import structlog; log = structlog.get_logger('x')\n{code}"],
        capture_output=True, text=True, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_lines_for_the_journal_have_their_priority_before_them() -> None:
    lines = logged(
        "logs.configure('debug', 'auto', journal=True)\n"
        "for level in ('debug', 'info', 'warning', 'error', 'critical'): getattr(log, level)('said', n=1)\n"
        "try: 1 / 0\nexcept ZeroDivisionError: log.exception('raised')"
    )
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<2>", "<3>"]
    told = [json.loads(line[3:]) for line in lines]
    assert (told[1]["event"], told[1]["n"], told[1]["level"]) == ("said", 1, "info")
    assert "ZeroDivisionError" in told[5]["exception"], "a traceback is no second line"


def test_the_level_may_change_after_a_logger_was_used() -> None:
    lines = logged(
        "logs.configure('warning', 'json')\nlog.info('a'); log.warning('b')\n"
        "logs.set_level('debug'); log.debug('c')\nlogs.set_level('error'); log.warning('d')"
    )
    assert [json.loads(line)["event"] for line in lines] == ["b", "c"]


def test_what_libraries_say_is_of_the_same_form() -> None:
    said = logged(
        "import logging\nlogs.configure('info', 'journal')\nlogging.getLogger('ZODB.FileStorage').warning('Ignoring %s', 'index')\n"
        "logging.getLogger('asyncio').info('nothing')\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.getLogger('asyncio').critical('it fell', exc_info=True)"
    )
    first, second = (json.loads(line[3:]) for line in said)
    assert [line[:3] for line in said] == ["<4>", "<3>"]
    assert (first["event"], first["logger"], first["level"]) == ("Ignoring index", "ZODB.FileStorage", "warning")
    assert "ZeroDivisionError" in second["exception"]
