"""Which walls stand around a worker, and the launcher that puts them up."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from batos.sandbox import jail

_SCRIPT = """#!/bin/sh
exec {python} -I -S {jail} {without}{binary} "$@" 2>/dev/null
"""


def standing() -> dict[str, bool]:
    """Which walls this machine can put up, tried in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", jail.__file__, "--probe"], capture_output=True, text=True, timeout=20, check=True, env={}
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        found = {}
    return {wall: bool(found.get(wall)) for wall in jail.WALLS}


def launcher(folder: Path, binary: str, *, without: tuple[str, ...] = ()) -> Path:
    """A program, written into `folder`, that locks itself up and becomes the worker.

    A shell script and no Python one: a `#!` line with a path of a virtual environment may be too long or hold a space.
    """
    path = folder / "worker"
    words = "".join(f"--without {wall} " for wall in without)
    path.write_text(
        _SCRIPT.format(python=shlex.quote(sys.executable), jail=shlex.quote(jail.__file__), without=words, binary=shlex.quote(binary))
    )
    path.chmod(0o700)
    return path
