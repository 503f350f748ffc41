"""The units on a real systemd, on a machine booted for it: started, supervised, reloaded, restarted, walled in, stopped."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.cli.service import NAME
from tests.support.booted import PYTHON, Machine, Unbootable, booted
from tests.support.shown_pages import commands_of

pytestmark = pytest.mark.timeout(240)

SOURCE = "[Service]\nEnvironment=PYTHONPATH=/opt/source\n"
OLLAMA = f"[Service]\nType=notify\nEnvironment=PYTHONPATH=/opt/source\nExecStart={PYTHON} -m tests.support.booted_ollama\n"
SETTINGS = 'ollama_host = "{host}"\nautotelic = "off"\nremember = "off"\nlora_staging = "/nothing/there"\nqueue_limit = {queue}\n'
LEVELS = {"info": "6", "warning": "4", "error": "3"}
ANNA = 1500
MANAGER = f"""\
[Service]
Type=notify
User={ANNA}
Delegate=yes
KillMode=mixed
Environment=XDG_RUNTIME_DIR=/run/user/{ANNA} HOME=/home/u{ANNA}
ExecStart=/lib/systemd/systemd --user
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())  # never on /dev/shm: the machine has this one's /dev in it
        try:
            made = stack.enter_context(booted(Path(folder)))
        except Unbootable as e:
            pytest.skip(f"systemd cannot be tried here: {e}")
        made.write("/etc/systemd/system/ollama.service", OLLAMA)
        made.write(f"/etc/systemd/system/{NAME}.d/source.conf", SOURCE)
        made.run("systemctl", "daemon-reload")
        made.run("systemctl", "start", "ollama.service")
        configure(made)
        yield made


def configure(machine: Machine, queue: int = 50) -> None:
    host = machine.run("systemctl", "show", "-P", "StatusText", "ollama.service")
    machine.write("/etc/batos.toml", SETTINGS.format(host=host, queue=queue))


def test_it_is_installed_and_up_when_systemd_says_so(machine: Machine) -> None:
    told = json.loads(machine.batos("service", "install", "--config", "/etc/batos.toml", "--json"))
    assert (told["installed"], told["systemd"]) == (True, "done")
    machine.run("systemctl", "start", NAME)  # returns when it said that it is ready
    assert machine.batos("info", "--json"), "it answers at once"
    assert "ipc:///run/batos/wire.sock" in machine.shown("StatusText")
    status = json.loads(machine.batos("service", "status", "--json"))
    assert (status["active"], status["enabled"]) == ("active", "enabled")


def test_a_generated_method_runs_behind_all_walls(machine: Machine) -> None:
    """The sandbox locks its worker up inside what systemd has locked up."""
    pid = machine.shown("MainPID")
    rights = dict(line.split(":\t") for line in machine.run("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line)
    assert (rights["NoNewPrivs"], rights["Seccomp"], rights["CapEff"]) == ("1", "2", "0" * 16)
    assert rights["Uid"].split()[0] != "0"
    for place in ("/usr/x", "/root/x", "/etc/x"):
        assert "Read-only file system" in machine.run("nsenter", "-t", pid, "--mount", "--root", "touch", place, code=1)
    machine.batos("send-to", "robin", "set_mood_", "calm", "--watch")
    assert json.loads(machine.batos("show", "robin", "--json"))["slots"]["mood"] == "calm"
    assert machine.run("stat", "-L", "-c", "%a", "/var/lib/batos") == "700"
    walls = [line for line in log(machine) if line["MESSAGE"].get("event") == "sandbox_wall_missing"]
    assert walls == []


def log(machine: Machine) -> list[dict[str, Any]]:
    """What the daemon wrote into the journal: every line is one JSON object."""
    lines = machine.run("journalctl", "_SYSTEMD_UNIT=batos.service", "-o", "json", "--no-pager", "--output-fields=MESSAGE,PRIORITY")
    return [{**entry, "MESSAGE": json.loads(entry["MESSAGE"])} for entry in map(json.loads, lines.splitlines())]


def test_the_journal_has_its_log_by_priority(machine: Machine) -> None:
    lines = log(machine)
    assert "started" in {line["MESSAGE"]["event"] for line in lines}
    assert {line["PRIORITY"] for line in lines} == {LEVELS[line["MESSAGE"]["level"]] for line in lines}
    assert all(line["PRIORITY"] == LEVELS[line["MESSAGE"]["level"]] for line in lines)


def test_a_reload_takes_over_settings(machine: Machine) -> None:
    pid = machine.shown("MainPID")
    configure(machine, queue=7)
    machine.run("systemctl", "reload", NAME)
    done = machine.until(lambda: [line["MESSAGE"] for line in log(machine) if line["MESSAGE"]["event"] == "reloaded"], "it was reloaded")
    assert done[-1]["applied"] == ["missions.queue"]
    assert machine.shown("MainPID") == pid
    assert json.loads(machine.batos("info", "--json"))["reloaded"]["applied"] == ["missions.queue"]


def test_what_was_killed_comes_back_with_what_it_knew(machine: Machine) -> None:
    pid, restarts = machine.shown("MainPID"), int(machine.shown("NRestarts"))
    machine.run("kill", "-9", pid)
    machine.until(lambda: int(machine.shown("NRestarts")) > restarts and machine.shown("ActiveState") == "active", "it is back")
    assert machine.shown("MainPID") != pid
    assert json.loads(machine.batos("show", "robin", "--json"))["slots"]["mood"] == "calm"


def test_the_watchdog_bites_what_hangs(machine: Machine) -> None:
    machine.write(f"/etc/systemd/system/{NAME}.d/watchdog.conf", "[Service]\nWatchdogSec=5\nTimeoutAbortSec=1\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", NAME)
    pid, restarts = machine.shown("MainPID"), int(machine.shown("NRestarts"))
    machine.run("kill", "-STOP", pid)
    machine.until(lambda: int(machine.shown("NRestarts")) > restarts and machine.shown("ActiveState") == "active", "it is back")
    assert machine.shown("MainPID") != pid
    assert "Watchdog timeout" in machine.run("journalctl", "-u", NAME, "--no-pager", "-o", "cat")


def test_it_is_stopped_in_good_order_and_taken_away(machine: Machine) -> None:
    pid = machine.shown("MainPID")
    told = json.loads(machine.batos("service", "uninstall", "--json"))
    assert told["systemd"] == "done"
    assert [line["MESSAGE"]["event"] for line in log(machine) if line["MESSAGE"]["event"] == "stopped"], "it stopped, and was not killed"
    machine.run("test", "-e", f"/proc/{pid}", code=1)
    machine.run("test", "-s", "/var/lib/batos/live_image.fs")
    assert json.loads(machine.batos("service", "status", "--json", code=3))["installed"] is False


def test_settings_that_are_not_fit_are_not_tried_again_and_again(machine: Machine) -> None:
    machine.batos("service", "install", "--no-now", "--config", "/etc/batos.toml")
    machine.write("/etc/batos.toml", "queue_limit = 0\n")
    machine.run("systemctl", "start", NAME, code=1)
    assert (machine.shown("ActiveState"), machine.shown("ExecMainStatus"), machine.shown("NRestarts")) == ("failed", "2", "0")
    assert "missions.queue" in machine.run("journalctl", "-u", NAME, "-n", "20", "--no-pager", "-o", "cat")
    machine.batos("service", "uninstall")
    configure(machine)


def anna(machine: Machine) -> None:
    """Make a user with a systemd of her own, and what the page takes to be there: `batos` on her PATH, sudo, a login service."""
    if machine.run("id", "-u", "anna", code=None) == str(ANNA):
        return
    machine.run("useradd", "--create-home", "--home-dir", f"/home/u{ANNA}", "--uid", str(ANNA), "anna")
    machine.run("install", "-d", "-o", str(ANNA), "-m", "700", f"/run/user/{ANNA}")
    machine.write("/etc/systemd/system/anna.service", MANAGER)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "anna.service")
    machine.run("systemctl", "--user", "set-environment", "PYTHONPATH=/opt/source", user=ANNA)


def test_a_user_has_one_of_his_own(machine: Machine) -> None:
    anna(machine)
    told = json.loads(machine.batos("service", "install", "--user", "--config", "/etc/batos.toml", "--json", user=ANNA))
    assert told["systemd"] == "done"
    machine.run("systemctl", "--user", "start", NAME, user=ANNA)
    pid = machine.shown("MainPID", user=ANNA)
    rights = machine.run("cat", f"/proc/{pid}/status")
    assert (f"Uid:\t{ANNA}\t" in rights, "NoNewPrivs:\t1" in rights, "Seccomp:\t2" in rights) == (True, True, True)
    assert (
        json.loads(machine.batos("info", "--json", user=ANNA))["image"]["uri"] == f"file:///home/u{ANNA}/.local/share/batos/live_image.fs"
    )
    assert json.loads(machine.batos("service", "uninstall", "--user", "--json", user=ANNA))["systemd"] == "done"
    machine.run("test", "-e", f"/proc/{pid}", code=1)


def test_the_words_of_the_page_are_run(machine: Machine) -> None:
    """Each as it stands there, by a user whose systemd comes with his login; `sudo` is root."""
    anna(machine)
    machine.run("systemctl", "stop", "anna.service")
    machine.write("/usr/bin/sudo", '#!/bin/sh\nexec "$@"\n')
    machine.run("chmod", "+x", "/usr/bin/sudo")
    machine.run("ln", "-s", "/opt/batos/bin/batos", "/usr/bin/batos")
    machine.run("systemctl", "start", "dbus.socket", "systemd-logind")
    host = machine.run("systemctl", "show", "-P", "StatusText", "ollama.service")
    install, linger, of_the_machine, status, reload, journal, uninstall = commands_of("docs/operations.md", "tests/e2e/test_systemd.py")
    machine.run("runuser", "-l", "anna", "-c", linger)
    machine.until(lambda: machine.run("systemctl", "show", "-P", "ActiveState", f"user@{ANNA}") == "active", "her systemd stays")
    given = ("PYTHONPATH=/opt/source", f"BATOS_INFERENCE_HOST={host}", "BATOS_AUTONOMY_MODE=off")
    machine.run("systemctl", "--user", "set-environment", *given, user=ANNA)
    machine.run("sh", "-c", install, user=ANNA)
    machine.run("systemctl", "--user", "start", NAME, user=ANNA)  # returns when it said that it is ready
    assert "active     active" in machine.run("sh", "-c", status, user=ANNA)
    machine.run("sh", "-c", reload, user=ANNA)
    machine.until(lambda: '"reloaded"' in machine.run("timeout", "1", "sh", "-c", journal, user=ANNA, code=124), "it was reloaded")
    machine.run("sh", "-c", uninstall, user=ANNA)
    assert "installed  False" in machine.run("sh", "-c", status, user=ANNA, code=3)
    if sys.executable.startswith("/tmp/"):
        pytest.skip("this Python is in /tmp, which a unit of the machine does not see; all before was run")
    machine.run("sh", "-c", of_the_machine)
    assert json.loads(machine.batos("service", "status", "--json", code=None))["installed"] is True
    machine.batos("service", "uninstall")
