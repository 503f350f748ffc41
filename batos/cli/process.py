"""The process of a command: its streams, and the exit code that each end has.

A verb ends with an exit code and a message; it never ends with a traceback.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from batos import logs, private_files
from batos.cli.output import Output
from batos.cli.streams import discard_output, set_up_streams
from batos.errors import BatosError, BatosSignal, OutputFailed

INTERRUPTED = 130  # the exit code with which a shell reports SIGINT
_DASHBOARD_FLAGS = ("--connect", "--json", "--once")  # flags of a command line that names no verb
_WITH_VALUE = ("--connect", "--data", "--image", "--listen", "--profile", "--model", "--config", "--set")
_OWN = ("-h", "--help", "--version", "--install-completion", "--show-completion")  # options of the program itself


def with_verb(words: list[str], alone: str = "run") -> list[str]:
    """Return the words, with `run` in front if they begin with no verb: `batos --data ./var` is `batos run --data ./var`. Options before a
    verb go behind what is said after it: `batos --json missions` is `batos missions --json`.

    :param alone: verb to use if there are no words, or one that `run` does not know.
    """
    if at := _options_before_verb(words):
        end = words.index("--") if "--" in words else len(words)
        return [*words[at:end], *words[:at], *words[end:]]
    if not words or words[0].split("=", 1)[0] in _DASHBOARD_FLAGS:
        return [alone, *words]
    if words[0].startswith("-") and words[0].split("=", 1)[0] not in _OWN:
        return ["run", *words]
    return words


def _options_before_verb(words: list[str]) -> int:
    """Return the number of words before the verb; 0 if it comes first, or there is none."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--" or words[at].split("=", 1)[0] in _OWN:
            return 0
        at += 2 if words[at] in _WITH_VALUE else 1
    return at if at < len(words) else 0


def own_process(verb: str) -> None:
    """Set up a process that is nothing but this command. What it, its libraries and its children make is for its user alone."""
    os.umask(private_files.UMASK)
    set_up_streams(output_may_be_closed=verb == "run")
    if verb != "run":  # the daemon configures its own log
        logs.configure("error", "auto")  # log lines of libraries must not appear between the results
        logging.getLogger().setLevel(logging.ERROR)


def exit_code_of(work: Callable[[], object], *, as_json: bool) -> int:
    """Run the work of a verb. Return its exit code, and print its error.

    :param as_json: print an error as a JSON document.
    """
    try:
        work()
    except SystemExit as e:  # typer ends with SystemExit
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except BatosError as e:
        return _told(e, as_json)
    except BatosSignal as e:
        print(f"batos: stopped: {e}; start again, the image recovers by itself", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the pipe is gone
        discard_output()
        return 1
    except Exception as e:  # an internal fault: report it with a code, and without pages of source
        return _told(BatosError(f"{type(e).__name__}: {e}; this is a fault in BAT OS, please report it"), as_json)
    return 0


def _told(error: BatosError, as_json: bool) -> int:
    """Tell an error, and return its exit code."""
    if isinstance(error, OutputFailed):
        discard_output()
    Output(as_json and not isinstance(error, OutputFailed)).error(error)
    return error.exit_code


def flushed(code: int) -> int:
    """Flush the output while an error can still be reported: a result that could not be written is not a success.

    :returns: the exit code, that of the error if it would be 0.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        return code or 1
    except OutputFailed as e:
        return code or _told(e, as_json=False)
    return code
