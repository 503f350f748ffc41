"""Verbs that need no daemon: run one, examine this machine, print the settings.

`batos run --supervise` runs the daemon as a child, and restarts it after failures that a restart mends: a failed storage and a stalled
loop. Other exit codes are passed on: 0 and signals were requested, 2 and 4 would recur. As the first process of a container it also
reaps the orphaned children of the daemon.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from batos import logs
from batos.bridge import launcher
from batos.cli.app import ConfigFlag, DataFlag, ImageFlag, Json, ListenFlag, ModelFlag, ProfileFlag, SetFlag, app, how_to_send, run_async
from batos.cli.output import Output
from batos.cli.settings import meant_folder, settings_from
from batos.cli.start import CONSOLE_ON, StartFlags, start
from batos.config import SettingRow, Settings, former, meant, supervision, table
from batos.errors import EXIT_IMAGE_FAILED, EXIT_STALLED, ConfigError

log = structlog.get_logger("batos")

RESTARTED = {EXIT_IMAGE_FAILED: "its storage failed", EXIT_STALLED: "its loop stood"}
"""Exit codes after which the daemon is restarted, and their meaning."""

RESTARTS, WITHIN_S = 5, 60.0
"""Number of starts within that many seconds after which the command gives up."""

PAUSE_S = 1.0
"""Seconds to wait before a restart."""

_ENDING = {signal.SIGTERM, signal.SIGINT}
_PASSED_ON = {*_ENDING, signal.SIGHUP}
_HEARD = {*_PASSED_ON, signal.SIGCHLD}


def run_supervised(words: Sequence[str]) -> int:
    """Run a daemon until it ends for good; its exit code (128 and the number, where a signal ended it).

    SIGTERM, SIGINT and SIGHUP are passed on to it. It has a session of its own, so that a Ctrl-C reaches it once and not twice.

    :param words: its command line.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent may have set it to be ignored; then children could not be waited for
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    try:
        return _until_it_ends(words, before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _until_it_ends(words: Sequence[str], mask: set[signal.Signals | int]) -> int:
    starts: deque[float] = deque(maxlen=RESTARTS)
    while True:
        code, stopped = _once(words, mask)
        why = RESTARTED.get(code)
        if why is None or stopped:
            return code
        if len(starts) == RESTARTS and time.monotonic() - starts[0] < WITHIN_S:
            log.critical(
                "daemon_given_up", code=code, why=why, restarts=RESTARTS, within_s=WITHIN_S, hint="the log above says why it ended"
            )
            return code
        log.error("daemon_restarts", code=code, why=why, pause_s=PAUSE_S)
        if _asked_to_end_within(PAUSE_S):
            return 0
        starts.append(time.monotonic())


def _once(words: Sequence[str], mask: set[signal.Signals | int]) -> tuple[int, bool]:
    """Start the daemon and wait for its end. Return its exit code, and True if it was asked to end."""
    # Use the launcher, so that the daemon ends whenever this process ends.
    command = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), "--", *words]
    child = subprocess.Popen(command, start_new_session=True, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask))
    stopped = False
    while True:
        number = signal.sigwait(_HEARD)
        if number in _PASSED_ON:
            stopped = stopped or number in _ENDING
            child.send_signal(number)
        elif (status := _reaped(child.pid)) is not None:
            child.returncode = code = os.waitstatus_to_exitcode(status)
            return (code if code >= 0 else 128 - code), stopped


def _reaped(pid: int) -> int | None:
    """Wait for all children that have ended; the status of the one that counts, if it is among them."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        if ended == pid:
            found = status


def _asked_to_end_within(seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        heard = signal.sigtimedwait(_HEARD, left)
        if heard is not None and heard.si_signo in _ENDING:
            return True
    return False


ConsoleFlag = Annotated[bool, typer.Option("--console", help="Serve the web console, on loopback: the setting console.enabled = on.")]

SuperviseFlag = Annotated[
    bool, typer.Option("--supervise", help="Restart it after a storage failure or a blocked loop (exit codes 70 and 62).")
]


@app.command(context_settings={"allow_extra_args": True})
def run(  # noqa: PLR0913  each is an option of the command line
    ctx: typer.Context,
    data: DataFlag = None,
    image: ImageFlag = None,
    listen: ListenFlag = None,
    profile: ProfileFlag = None,
    model: ModelFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
    console: ConsoleFlag = False,
    supervise: SuperviseFlag = False,
) -> None:
    """Run the daemon in the foreground. Ctrl-C or SIGTERM ends it; no mission is lost."""
    if ctx.args:
        ctx.fail(f"`run` starts the daemon, and takes options only; {how_to_send(ctx.args)}")
    flags = StartFlags(
        data,
        image,
        tuple(listen or ()),
        profile,
        tuple(model or ()),
        config_file,
        (*(assignments or ()), *((CONSOLE_ON,) if console else ())),
        as_json,
    )
    if not supervise:
        return start(flags)
    flags = flags.with_folder()
    settings = flags.settings()
    logs.configure(settings.daemon.log_level, settings.daemon.log_format, journal=supervision().journal)
    raise typer.Exit(run_supervised([sys.executable, "-m", "batos", "run", *flags.words()]))


@app.command()
def doctor(
    data: DataFlag = None,
    image: ImageFlag = None,
    listen: ListenFlag = None,
    profile: ProfileFlag = None,
    model: ModelFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Check everything that BAT OS needs, with a remedy for each problem. Changes nothing."""
    from batos.doctor import examine

    output = Output(as_json)
    data = meant_folder(data, output, image=image, config_file=config_file, more=assignments)
    settings, _ = settings_from(data, image, listen, profile, config_file, assignments, model)
    checks = run_async(examine(settings))
    failed = [check for check in checks if check.state == "fail"]
    if as_json:
        output.document({"type": "doctor", "fit": not failed, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
        output.rows(("", "", ""), ((c.state, c.name, c.finding) for c in checks), styles)
        for check in checks:
            if check.remedy:
                output.say(f"\n{check.name}: {check.remedy}", styles[check.state])
    raise typer.Exit(4 if failed else 0)


@app.command("config")
def show_config(  # noqa: PLR0913  each is an option of the command line
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this setting.")] = None,
    data: DataFlag = None,
    image: ImageFlag = None,
    listen: ListenFlag = None,
    profile: ProfileFlag = None,
    model: ModelFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Print the settings in force: value and source of each (a flag, the environment, a file, or the default). Exit code 2 if
    `batos run` would refuse one."""
    from batos.preflight import doubts, refusals  # imported late: it imports many modules

    settings, sources = settings_from(data, image, listen, profile, config_file, assignments, model)
    rows = [_row(row, settings, sources) for row in _named(name)]
    output = Output(as_json)
    if as_json:
        output.document(rows if name is None else rows[0])
    else:
        output.rows(("setting", "value", "source", "limits", "meaning"), ([_shown(row, column) for column in _COLUMNS] for row in rows))
    shown = {row["name"] for row in rows}
    refused = [(name, why) for name, why in refusals(settings) if name in shown]
    for name, why in refused:
        output.note(f"`batos run` refuses {name} (from {sources[name]}): {why}", "red")
    for name, why in doubts(settings):
        if name in shown:
            output.note(f"{name} (from {sources[name]}): {why}", "yellow")
    for note in settings.notes:
        output.note(note, "yellow")
    if refused:
        raise typer.Exit(ConfigError.exit_code)
    if not as_json and {"inference.profile", "inference.model"} & shown:
        output.say(run_async(_thinks(settings)), "dim")


async def _thinks(settings: Settings) -> str:
    """Return the model that a start would use now, and the reason. The profile `auto` asks Ollama for its models."""
    from batos.doctor import ollama

    checks = await ollama(settings, None)
    return next((f"model: {check.finding}" for check in checks if check.name == "model"), "model: not known; see `batos doctor`")


_COLUMNS = ("name", "value", "source", "limits", "help")


def _named(name: str | None) -> list[SettingRow]:
    rows = table()
    if name is None:
        return rows
    asked = name.replace("-", "_")
    found = [row for row in rows if row.name == former.RENAMED.get(asked, asked)]
    if not found and asked in former.LIMITS:
        return [SettingRow(asked, former.type_name(asked), former.limit_value((), asked), "", "no longer a setting; see docs/settings.md")]
    if not found:
        raise ConfigError(f"no setting {name!r}{meant(name)}; `batos config` lists them")
    return found


def _row(row: SettingRow, settings: Settings, sources: dict[str, str]) -> dict[str, Any]:
    value = settings.value(row.name)
    value = list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
    return {
        "name": row.name,
        "value": value,
        "source": sources.get(row.name, "default"),
        "type": row.type,
        "limits": row.limits,
        "help": row.help,
    }


def _shown(row: dict[str, Any], column: str) -> str:
    value = row[column]
    return " ".join(value) if isinstance(value, list) else str(value)
