"""The verb `service`: a systemd unit that keeps a daemon running, for this user or for the machine.

The hardening allows what BAT OS itself needs:

* landlock and seccomp, by which a worker for generated methods gives up its rights (systemd 252 has no group for them);
* executable memory, since models run code made at run time;
* devices, since a GPU is one.

Only the main process may notify the manager, so that no child can.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from batos import private_files
from batos.cli.app import ConfigFlag, DataFlag, Json, app, check_named
from batos.cli.client import showing
from batos.cli.output import Output
from batos.cli.settings import meant_folder, settings_from
from batos.config import nearest, user_folder
from batos.errors import ConfigError, DaemonUnavailable

MARK = "# made by `batos service install`: changed by hand it is not overwritten any more if this line is taken out"
NAME = "batos.service"
_STOP_S = 90  # covers daemon.shutdown_s, a last commit, and the end of Ollama

_SERVICE = """\
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
WatchdogSec=60
TimeoutStartSec=300
TimeoutStopSec={stop_s}
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2
KillMode=mixed
OOMPolicy=continue
LimitNOFILE=65536
UMask=0077
"""
_WALLS = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp
SystemCallErrorNumber=EPERM
"""
_ROOMS = """\
CapabilityBoundingSet=
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectProc=invisible
RemoveIPC=yes
"""
"""Directives for a unit of the whole machine only. They need rights that a user's service manager lacks."""


def unit(data: Path, config: Path | None, *, user: bool, python: str = sys.executable) -> str:
    """Return the text of a unit.

    :param data: the data folder; of a unit of the machine its last part is a folder of /var/lib.
    :param config: a settings file, where it is none of those that are found by themselves.
    :param python: the interpreter that has BAT OS.
    """
    words = [python, "-m", "batos", "run", "--data", str(data), *(["--config", str(config)] if config else [])]
    service = _SERVICE.format(command=" ".join(map(quoted, words)), stop_s=_STOP_S)
    if user:
        where, rooms, target = "", "", "default.target"
    else:
        home = quoted(str(data))
        where = f"DynamicUser=yes\nUser=batos\nStateDirectory={data.name}\nStateDirectoryMode=0700\nWorkingDirectory={home}\n"
        where += f"RuntimeDirectory={NAME.removesuffix('.service')}\n"  # the folder of its socket, where root finds it
        where += f"Environment=HOME={home}\n"  # else the home of a dynamic user is /, and Ollama would keep its keys there
        rooms, target = _ROOMS, "multi-user.target"
    return (
        f"{MARK}\n[Unit]\nDescription=BAT OS, an agent that lasts\nDocumentation=man:systemd.service(5)\nAfter=network.target\n"
        f"StartLimitIntervalSec=300\nStartLimitBurst=5\n\n[Service]\n{service}{where}\n{_WALLS}{rooms}\n[Install]\nWantedBy={target}\n"
    )


def quoted(word: str) -> str:
    """Return a word of a command line as a unit has it; systemd.service(5), "Command lines"."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(c.isspace() or c in "\"'\\;" for c in word) or not word else escaped


ACTIONS = ("install", "uninstall", "status", "show")
MACHINE = Path("/etc/systemd/system")
STATE = Path("/var/lib/batos")
SYSTEMCTL_S = 120.0  # stopping waits for the end of the daemon
_ROOT = 0
_OWN = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108  what `PrivateTmp` hides


@app.command()
def service(
    action: Annotated[
        str,
        typer.Argument(metavar="|".join(ACTIONS), help="Write the unit and start it; stop it and take it away; say how it is; print it."),
    ],
    user: Annotated[bool, typer.Option("--user", help="Make a user unit; default: a system unit, which needs root.")] = False,
    now: Annotated[bool, typer.Option("--now/--no-now", help="Start the daemon now, and at each boot or login.")] = True,
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    as_json: Json = False,
) -> None:
    """Keep a daemon running by systemd: install, uninstall, status (exit code 3 where it does not run), show. Data stays where it is."""
    if action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is not one of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    check_named(data, config_file)
    path = (user_folder() / "systemd" / "user" if user else MACHINE) / NAME
    output, manager = Output(as_json), _Manager(user)
    if action in ("install", "uninstall") and not user and os.geteuid() != _ROOT:
        raise ConfigError(f"a unit of the machine is written to {MACHINE} by root; say `batos service {action} --user` for one of yours")
    if action == "install" and not user:
        _check_reach(Path(sys.executable), Path(__file__))
    if user and action in ("install", "show"):
        data = meant_folder(data, output, config_file=config_file)
    if action in ("install", "show"):
        text = _text(data, config_file, user)
        if action == "show":
            output.document({"type": "service", "unit": str(path), "text": text}) if as_json else typer.echo(text, nl=False)
            return
        told = _install(path, text, manager, now)
    elif action == "uninstall":
        told = _uninstall(path, manager)
    else:
        told = _status(path, manager)
    if as_json:
        output.document({"type": "service", "unit": str(path), **told})
    else:
        output.pairs([("unit", path), *told.items()])
        if action == "install" and user:
            output.note("it ends when you log out, unless you say once: loginctl enable-linger", "dim")
    if action == "status" and told["active"] != "active":
        raise typer.Exit(DaemonUnavailable.exit_code)


def _text(data: str | None, config_file: str | None, user: bool) -> str:
    config = Path(config_file).expanduser().absolute() if config_file else None
    if user:
        return unit(settings_from(data, None, None, None, config_file, None)[0].data, config, user=True)
    folder = Path(data or STATE)
    if folder.parent != STATE.parent:
        raise ConfigError(
            f"a unit of the machine has its data in a folder of {STATE.parent}, not in {folder}; leave --data out, or take --user"
        )
    return unit(folder, config, user=False)


def _check_reach(*files: Path) -> None:
    """Check that the machine's unit, which runs as its own user with a private /tmp, can reach these files.

    :raises ConfigError: if it cannot reach the program that it runs.
    """
    for file in dict.fromkeys(found for one in files for found in (one.absolute(), one.resolve())):
        own = next((folder for folder in _OWN if folder in file.parents), None)
        closed = next((folder for folder in reversed(file.parents) if not folder.stat().st_mode & stat.S_IXOTH), None)
        if own or closed:
            why = f"its {own} is another" if own else f"{closed} is closed to others"
            raise ConfigError(
                f"a unit of the machine runs as a separate user, who cannot reach {file}: {why}. Install BAT OS and its Python where "
                f"all can read them, /opt/batos for example, and say it there; or take --user"
            )


def _install(path: Path, text: str, manager: _Manager, now: bool) -> dict[str, Any]:
    if private_files.taken(path) and (not path.is_file() or MARK not in path.read_text("utf-8", "replace")):
        raise ConfigError(f"{path} was not made by this command; nothing is overwritten: move it away")
    try:
        private_files.folder(path.parent)
        private_files.write(path, text, 0o644)  # readable for all, like every unit: the service manager may run as another user
    except OSError as e:
        raise ConfigError(f"{path} cannot be written: {e.strerror}") from None
    steps = [["daemon-reload"], *([["enable", NAME], ["restart", "--no-block", NAME]] if now else [])]
    return {
        "installed": True,
        "systemd": manager.say(*steps),
        **({"next": f"systemctl {manager.flag}start batos".replace("  ", " ")} if not now else {}),
    }


def _uninstall(path: Path, manager: _Manager) -> dict[str, Any]:
    if not path.exists():
        return {"installed": False}
    if MARK not in path.read_text("utf-8", "replace"):
        raise ConfigError(f"{path} was not made by this command, and is left alone")
    said = manager.say(["disable", "--now", NAME])
    path.unlink()
    manager.say(["daemon-reload"])
    return {"installed": False, "systemd": said, "kept": "the data folder, with the image"}


def _status(path: Path, manager: _Manager) -> dict[str, Any]:
    return {"installed": path.exists(), "active": manager.ask("is-active"), "enabled": manager.ask("is-enabled")}


class _Manager:
    """systemd, of this user or of the machine; nothing if it does not run."""

    def __init__(self, user: bool) -> None:
        self.flag = "--user " if user else ""
        self._command = [found, *self.flag.split()] if (found := shutil.which("systemctl")) else []

    def say(self, *steps: list[str]) -> str:
        """Run systemctl. Return `done`, or its error text."""
        for words in steps:
            code, said = self._run(words)
            if code:
                return f"{' '.join(words)}: {said or code}"
        return "done"

    def ask(self, question: str) -> str:
        """Return its answer in a word: active, failed, enabled ...; `unknown` where it cannot be asked."""
        answer = self._run([question, NAME])[1].split("\n")[0]
        return answer if answer.replace("-", "").isalpha() else "unknown"

    def _run(self, words: list[str]) -> tuple[int, str]:
        if not self._command:
            return 1, "systemctl is not installed here"
        try:
            with showing(lambda: f"systemctl {words[0]}"):
                done = subprocess.run([*self._command, *words], capture_output=True, text=True, timeout=SYSTEMCTL_S)
        except subprocess.TimeoutExpired:
            return 1, f"no answer within {SYSTEMCTL_S:g} s"
        return done.returncode, (done.stdout + done.stderr).strip()
