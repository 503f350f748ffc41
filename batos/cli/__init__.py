"""The command line: verbs for people and scripts. The daemon needs nothing of it; typer and rich stay out of the daemon's imports.

    app.py           the typer application and its options; which verb is in which module
    process.py       the process of a command, and its exit codes; streams.py: streams that are full or closed
    settings.py      settings as flags give them; the data folder that is meant
    start.py         start of the daemon, without typer and rich
    client.py        asking a daemon: connecting, hints for names that are not there
    daemon.py        run, doctor, config; run --supervise
    missions.py      send, send-to, missions, result, status, watch, answer, pause, resume, cancel, rate, undo, replay, failures
    schedules.py     schedule
    hooks.py         hooks
    folders.py       folders
    notices.py       notices: where the user hears of missions
    mission_view.py  a mission as it is thought through, and its record as a page
    memory.py        ingest, search, memory
    tools.py         tools; tool_places.py: the options of its `add`
    secrets.py       secrets
    grants.py        allow, ask, deny, grants
    effects.py       effects
    methods.py       method, methods, revert, teach, grant, audit
    objects.py       ls, show, history, diff, at, personas
    changes.py       changes that the system made of its own accord
    models.py        models, experts, train
    dashboard.py     what `batos` alone shows; info, metrics
    access.py        console, doors, keys
    mcp.py           mcp: an MCP server over standard input and output
    service.py       service: a systemd unit
    upkeep.py        backup, restore, fork, pack
    output.py        text for people, JSON for programs
    chat/            chat

Exit codes: 0 success, 1 the mission FAILED, 2 wrong usage or settings, 3 no daemon answers, 4 refused or invalid,
130 interrupted. Of `run` besides: 62 its loop stood, 70 its storage failed; a supervisor starts it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from batos import __version__

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, *, alone: str = "dashboard") -> int:
    """Run a command line and return its exit code. `--version` alone does not import the application.

    :param argv: words after the program's name; default: those of the process.
    :param alone: verb to run if there are no words.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["--version"] and sys.stdout is not None:
        try:
            print(f"batos {__version__}", flush=True)
        except OSError:
            pass  # the application reports this error
        else:
            return 0
    from batos.cli import process  # imported late, as all that follows: imports take most of the time of a short command

    words = process.with_verb(words, alone)
    if argv is None:
        process.own_process(words[0])
    code = _run(words)
    return process.flushed(code) if argv is None else code


def _run(words: list[str]) -> int:
    """Run a verb, `run` without typer where its flags are read without it; return the exit code."""
    from batos.cli import process

    if words[0] == "run":
        from batos.cli import start

        flags = start.flags_of(words[1:])
        if flags is not None:
            return process.exit_code_of(lambda: start.start(flags), as_json=flags.as_json)
    from batos.cli import app

    return app.run(words)
