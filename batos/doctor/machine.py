"""Whether this machine is fit: its Python, what is installed, the variables, the data folder, the sandbox, memory for trainings."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from pathlib import Path

from batos import config
from batos.config import Settings
from batos.doctor.findings import REINSTALL, Check, gib, version_of

PYTHON_NEEDED = (3, 11)
DEPENDENCIES = (
    "ZODB", "zodbpickle", "zodburi", "persistent", "BTrees", "transaction", "pyzmq", "ollama", "pydantic", "pydantic-monty", "numpy",
    "gguf", "zope.index", "snowballstemmer", "jsonschema", "charset-normalizer", "prometheus-client", "structlog", "typer", "rich",
    "prompt-toolkit", "backports.zstd",
)  # fmt: skip
"""Distributions that must be there: those of pyproject.toml, which a source tree without installation cannot ask for."""

TRAINING = ("torch", "transformers", "accelerate", "safetensors", "gguf")
"""Distributions of the extra `training` without which no training begins."""
TRAINING_BYTES = 8 * 10**9
"""Memory that `batos train methods` takes, as it was measured."""
_BUILT_IN = {"backports.zstd": (3, 14)}
"""What a Python has itself, from which version on."""


def python() -> Check:
    """Whether this interpreter is new enough."""
    version = platform.python_version()
    if sys.version_info < PYTHON_NEEDED:
        return Check("python", "fail", f"Python {version}", "BAT OS needs Python 3.11 or newer: make PYTHON=/path/to/python3.12 install")
    return Check("python", "ok", f"Python {version} at {sys.executable}")


def dependencies(names: tuple[str, ...] = DEPENDENCIES) -> Check:
    """Whether every distribution is there, in a version that BAT OS was made for."""
    missing = [name for name in names if version_of(name) is None and sys.version_info < _BUILT_IN.get(name, (99,))]
    if missing:
        return Check("dependencies", "fail", f"missing: {', '.join(missing)}", REINSTALL)
    wrong = _wrong_versions()
    if wrong:
        return Check("dependencies", "warn", f"other versions than BAT OS asks for: {', '.join(wrong)}", REINSTALL)
    return Check("dependencies", "ok", f"{len(names)} packages, ZODB {version_of('ZODB')}, pyzmq {version_of('pyzmq')}")


def _wrong_versions() -> list[str]:
    """Exact pins of an installed BAT OS that are not met; lower bounds are pip's business."""
    try:
        required = importlib.metadata.requires("batos") or []
    except importlib.metadata.PackageNotFoundError:
        return []  # run from a source tree
    pins = [r.split("==") for r in required if "==" in r and ";" not in r]
    return [f"{name} {version_of(name)} instead of {pin}" for name, pin in pins if version_of(name) != pin]


def variables(environ: dict[str, str] | None = None) -> Check:
    """Whether every BATOS_ variable of the environment is a setting: a misspelt one is silently without effect."""
    unknown = config.unknown_variables(environ)
    if not unknown:
        return Check("environment", "ok", "every BATOS_ variable is a setting")
    return Check(
        "environment", "warn", f"no settings: {', '.join(unknown)}", "`batos config` lists the settings; their variables are BATOS_<NAME>"
    )


def data_folder(settings: Settings) -> Check:
    """Whether the data folder can be written, or made, and has room."""
    folder = settings.data
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir():
        return Check("data", "fail", f"{there} is a file, not a folder", "name another folder with --data")
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(
            "data", "fail", f"{there} cannot be written by this user", f"change the owner of {there}, or name another folder with --data"
        )
    free = shutil.disk_usage(there).free
    found = f"{folder}{'' if folder.exists() else ' (made at the first start)'}, {gib(free)} free"
    if free < settings.disk_needed_bytes:
        needed = f"less than disk_needed_bytes ({gib(settings.disk_needed_bytes)})"
        remedy = f"{needed}: free some space, or name a folder on another disk with --data; missions fail where the disk is full"
        return Check("data", "warn", found, remedy)
    return Check("data", "ok", found)


def sandbox() -> Check:
    """Whether a worker of the sandbox starts and runs a function."""
    remedy = f"generated methods cannot run without it; {REINSTALL}"
    try:
        # The synchronous pool: the asynchronous one may abort the interpreter when it exits at once.
        from pydantic_monty import Monty

        with Monty(min_processes=1, max_processes=1, checkout_timeout=10, request_timeout=10) as pool, pool.checkout() as session:
            answer = session.feed_run("def twice(n):\n    return 2 * n\n\ntwice(21)")
    except ImportError as e:
        return Check("sandbox", "fail", f"pydantic-monty cannot be imported: {e}", remedy)
    except Exception as e:  # whatever keeps a foreign worker from starting is the finding
        return Check("sandbox", "fail", f"no worker runs: {type(e).__name__}: {e}", remedy)
    if answer != 42:
        return Check("sandbox", "fail", f"a worker answered {answer!r} instead of 42", remedy)
    return Check("sandbox", "ok", f"a worker starts and runs a function (pydantic-monty {version_of('pydantic-monty')})")


def walls() -> Check:
    """Which of the kernel's walls a worker of the sandbox can put up around itself: tried, in a process of its own."""
    from batos.sandbox.walls import standing

    stand = standing()
    found = ", ".join(f"{wall} {'stands' if stands else 'missing'}" for wall, stands in stand.items())
    if all(stand.values()):
        return Check("second wall", "ok", found)
    remedy = "the sandbox's own limits still hold; for the second wall use Linux 5.13 or newer with landlock and seccomp switched on"
    return Check("second wall", "warn", found, remedy)


def training() -> Check:
    """Whether what `batos train` needs is there, whole: that transformers reads no GGUF without accelerate, it says only at work.

    Of memory that is short it says nothing: the kernel may end it, after minutes.
    """
    missing = [name for name in TRAINING if version_of(name) is None]
    if not missing:
        return _room_for_training(_available())
    remedy = "run `make training`, or `pip install 'batos[training]'`"
    if "torch" in missing:
        return Check("training", "ok", f"not installed, and needed by `batos train` only: {remedy}")
    return Check("training", "warn", f"`batos train` lacks {', '.join(missing)}", remedy)


def _room_for_training(available: int | None) -> Check:
    found = f"`batos train` has what it needs; `train methods` takes {gib(TRAINING_BYTES)} of memory"
    if available is None or available >= TRAINING_BYTES:
        return Check("training", "ok", found)
    remedy = "before `batos train methods` end what takes memory (Ollama's models, say), or train on another machine and copy the expert"
    return Check("training", "warn", f"{found}, {gib(available)} are free", remedy)


def _available() -> int | None:
    """Memory that a process may have without swapping; None where the kernel does not say."""
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
