"""The command line: verbs for people and scripts. Nothing here is needed by the daemon; typer and rich stay out of `import batos.kernel`.

    app.py        the typer application, its options, the exit codes; verbs.py names the verbs and who has them
    asking.py     asking a daemon; hints for names that are not there
    folders.py    which data folder is meant where none is named
    daemon.py     run, doctor, config: what needs no daemon
    supervisor.py run --supervise: the daemon as a child that is started again
    chat/         chat
    missions.py   send, send-to, missions, result, status, watch, cancel, failures, replay
    steering.py   pause, resume, answer
    undo.py       undo
    changes.py    changes: what the system changed of its own accord
    audit.py      audit: the guardian's verdict on a file
    at.py         at: those that only read, as of a time
    dashboard.py  what `batos` alone shows; panels.py lays it out
    figures.py    metrics
    objects.py    show, ls, history, diff, info, personas
    looking.py    moments in words; the verbs that only read, on a file
    keys.py       keys: CURVE
    models.py     models: the list, and bars while they are pulled or made
    experts.py    experts
    methods.py    method, methods, revert, teach, grant
    training.py   train
    service.py    service: a systemd unit; units.py has the texts
    upkeep.py     pack, backup, restore, fork
    watching.py   a mission as it is thought through; answering.py reads what it asks for
    record.py     the record of a mission as a page
    output.py     text for people, JSON for programs; streams.py where standard streams are full or closed

Exit codes: 0 success, 1 the mission FAILED, 2 wrong usage or settings, 3 no daemon answers, 4 refused or invalid,
130 interrupted. Of `run` besides: 62 its loop stood, 70 its storage failed; a supervisor starts it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from batos import __version__

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, *, alone: str = "dashboard") -> int:
    """Run a command line and return its exit code. The version alone needs nothing of the application.

    :param argv: the words after the program's name; those of the process if left out.
    :param alone: the verb where there is no word at all.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["--version"] and sys.stdout is not None:
        try:
            print(f"batos {__version__}", flush=True)
        except OSError:
            pass  # what it is, the application says
        else:
            return 0
    from batos.cli import app  # late: it takes most of the time of a short command

    return app.main(argv, alone=alone)
