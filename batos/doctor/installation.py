"""Checks of the installation: Python, packages, variables, data folder, sandbox, memory for trainings. Also checks of what a daemon holds:
who can read its files, its image, its endpoints, its settings in combination.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from batos import config
from batos.config import MIB, Settings, local_endpoint
from batos.config.limits import Limits, limit
from batos.errors import BatosError, ConfigError, EndpointError, ImageError

State = Literal["ok", "warn", "fail"]
REINSTALL = "run `make install`, or `pip install .` of the checkout in a fresh virtual environment"


@dataclass(frozen=True, slots=True)
class DoctorLimits(Limits):
    """Limits of `batos doctor`."""

    disk_bytes: int = limit(1024 * MIB, ge=0, le=2**50)
    """Free disk space in bytes below which `batos doctor` warns. With 0 it never warns."""


@dataclass(frozen=True, slots=True)
class Check:
    """A finding. `remedy` says what to do about a warning or a failure; it is empty if all is well."""

    name: str
    state: State
    finding: str
    remedy: str = ""


def version_of(name: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def gib(count: int) -> str:
    """Return a number of bytes in GiB, as text."""
    return f"{count / 1024**3:.1f} GiB"


PYTHON_NEEDED = (3, 11)
DEPENDENCIES = (
    "ZODB", "zodbpickle", "zodburi", "persistent", "BTrees", "transaction", "pyzmq", "ollama", "pydantic", "pydantic-monty", "numpy",
    "gguf", "zope.index", "snowballstemmer", "jsonschema", "charset-normalizer", "prometheus-client", "structlog", "typer", "rich",
    "prompt-toolkit", "cronsim", "backports.zstd", "starlette", "uvicorn", "h11",
)  # fmt: skip
"""Distributions that must be installed: those of pyproject.toml. A source tree without an installation cannot read that list."""

TRAINING = ("torch", "transformers", "accelerate", "safetensors", "gguf")
"""Distributions of the extra `training` that a training needs."""
TRAINING_BYTES = 8 * 10**9
"""Memory in bytes that `batos train methods` needs, as measured."""
_BUILT_IN = {"backports.zstd": (3, 14)}
"""Distributions that later Python versions include, each with the first such version."""


def python() -> Check:
    """Check that this interpreter is new enough."""
    version = platform.python_version()
    if sys.version_info < PYTHON_NEEDED:
        return Check("python", "fail", f"Python {version}", "BAT OS needs Python 3.11 or newer: make PYTHON=/path/to/python3.12 install")
    return Check("python", "ok", f"Python {version} at {sys.executable}")


def dependencies(names: tuple[str, ...] = DEPENDENCIES) -> Check:
    """Check that every distribution is installed, in a version that BAT OS was made for."""
    missing = [name for name in names if version_of(name) is None and sys.version_info < _BUILT_IN.get(name, (99,))]
    if missing:
        return Check("dependencies", "fail", f"missing: {', '.join(missing)}", REINSTALL)
    wrong = _wrong_versions()
    if wrong:
        return Check("dependencies", "warn", f"other versions than BAT OS asks for: {', '.join(wrong)}", REINSTALL)
    return Check("dependencies", "ok", f"{len(names)} packages, ZODB {version_of('ZODB')}, pyzmq {version_of('pyzmq')}")


def _wrong_versions() -> list[str]:
    """Return the exact pins of an installed BAT OS that are not met; pip sees to lower bounds."""
    try:
        required = importlib.metadata.requires("batos") or []
    except importlib.metadata.PackageNotFoundError:
        return []  # run from a source tree
    pins = [r.split("==") for r in required if "==" in r and ";" not in r]
    return [f"{name} {version_of(name)} instead of {pin}" for name, pin in pins if version_of(name) != pin]


def variables(environ: dict[str, str] | None = None) -> Check:
    """Check that every BATOS_ variable of the environment is a setting: a misspelt one has no effect."""
    unknown = config.unknown_variables(environ)
    if not unknown:
        return Check("environment", "ok", "every BATOS_ variable is a setting")
    return Check(
        "environment",
        "warn",
        f"no settings: {', '.join(unknown)}",
        "`batos config` lists the settings; the variable of missions.queue is BATOS_MISSIONS_QUEUE",
    )


def data_folder(settings: Settings) -> Check:
    """Check that the data folder can be written, or made, and has room."""
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
    if free < DoctorLimits.of(settings).disk_bytes:
        needed = f"less than a daemon needs ({gib(DoctorLimits.of(settings).disk_bytes)})"
        remedy = f"{needed}: free some space, or name a folder on another disk with --data; missions fail where the disk is full"
        return Check("data", "warn", found, remedy)
    return Check("data", "ok", found)


def sandbox() -> Check:
    """Check that a worker of the sandbox starts and runs a function."""
    remedy = f"generated methods cannot run without it; {REINSTALL}"
    try:
        # Use the synchronous pool: the asynchronous one may abort the interpreter when it exits at once.
        from pydantic_monty import Monty

        with Monty(min_processes=1, max_processes=1, checkout_timeout=10, request_timeout=10) as pool, pool.checkout() as session:
            answer = session.feed_run("def twice(n):\n    return 2 * n\n\ntwice(21)")
    except ImportError as e:
        return Check("sandbox", "fail", f"pydantic-monty cannot be imported: {e}", remedy)
    except Exception as e:  # any failure to start a foreign worker is the finding
        return Check("sandbox", "fail", f"no worker runs: {type(e).__name__}: {e}", remedy)
    if answer != 42:
        return Check("sandbox", "fail", f"a worker answered {answer!r} instead of 42", remedy)
    return Check("sandbox", "ok", f"a worker starts and runs a function (pydantic-monty {version_of('pydantic-monty')})")


def walls() -> Check:
    """Check which walls of the kernel a worker of the sandbox can put up around itself, by trying in a process of its own."""
    from batos.sandbox.workers import standing_walls

    stand = standing_walls()
    found = ", ".join(f"{wall} {'stands' if stands else 'missing'}" for wall, stands in stand.items())
    if all(stand.values()):
        return Check("second wall", "ok", found)
    remedy = "the sandbox's own limits still hold; for the second wall use Linux 5.13 or newer with landlock and seccomp switched on"
    return Check("second wall", "warn", found, remedy)


def training() -> Check:
    """Check that all that `batos train` needs is installed, and that there is memory for it.

    Otherwise a training fails only after minutes: transformers reads no GGUF without accelerate, and the kernel may end a process that
    takes too much memory.
    """
    missing = [name for name in TRAINING if version_of(name) is None]
    if not missing:
        return _room_for_training(available_bytes())
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


def available_bytes() -> int | None:
    """Return the bytes of memory that a process may have without swapping; None if the kernel does not say."""
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


_LOOKED_AT = ("data", "wire.listen", "image.uri", "inference.profile", "inference.host", "inference.hosts")
"""Settings that have a check of their own."""
_NAMED = 3  # most files that a finding names


def files(settings: Settings) -> Check:
    """Check that no other user can read the daemon's files, or could have them written elsewhere."""
    from batos.image import daemon_files

    found = daemon_files.exposed_files(settings)
    if not found:
        return Check("files", "ok", "no other user can read or write what is kept")
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    remedy = (
        "start the daemon, which closes its own files; of the files that stay open, change owner or mode (a file system without modes: how "
    )
    remedy += "it is mounted), or name a folder of yours with --data; replace keys that others may have read"
    return Check("files", "warn", f"open to other users: {', '.join(found[:_NAMED])}{more}", remedy)


def image(settings: Settings, running: bool, served: str = "") -> Check:
    """Check that the image can be opened, without changing it.

    :param served: URI of the image of the daemon that answers.
    """
    from batos.image import storage

    uri = storage.shown_uri(settings.image_uri)
    if served and _place(served) != _place(uri):
        return Check(
            "image", "warn", f"{uri}; the daemon that answers has {served}", "name that one's folder with --data to examine what is in use"
        )
    try:
        found = storage.probe(settings.image_uri)
    except (ImageError, ConfigError) as e:
        return Check("image", "fail", e.message, _remedy_within(e))
    if not found.get("exists", True):
        return Check("image", "ok", f"none yet at {uri}; the first start makes one")
    text = f"{uri}, format {found['format']}, {found['objects']} objects, {found['bytes'] / config.MIB:.2f} MiB"
    if found["kernels"]:
        text += f", served by {', '.join(found['kernels'])}"
    if found.get("locked") and not running:
        return Check(
            "image",
            "warn",
            f"{text}; another process has it open",
            "no daemon answers at the endpoints: stop that process, or name another --data",
        )
    return Check("image", "ok", f"{text}{', in use by the daemon' if found.get('locked') else ''}")


def _place(uri: str) -> str:
    """Return a URI in a form for comparison: a file by its real path."""
    return os.path.realpath(uri.removeprefix("file://")) if uri.startswith("file://") else uri


def _remedy_within(error: BatosError) -> str:
    """Return the remedy of an error of the image: the text after the last semicolon."""
    return error.message.rpartition("; ")[2] if "; " in error.message else "see docs/errors.md"


async def info_at(endpoint: str, settings: Settings) -> dict[str, Any] | None:
    """Return the answer of the daemon at an endpoint to `info`; None if none answers."""
    from batos.wire import Client, ClientKeys
    from batos.wire.endpoints import WireLimits, to_connect

    try:
        async with Client(to_connect(endpoint), timeout_s=WireLimits.of(settings).probe_s, keys=ClientKeys.of(settings)) as client:
            return dict(await client.info())
    except BatosError:
        return None


def endpoint(address: str, info: dict[str, Any] | None, *, guarded: bool = False) -> Check:
    """Check that an endpoint is free, or a daemon answers there.

    :param guarded: true if clients need keys; then the endpoint may be on other interfaces than loopback.
    """
    from batos.wire.endpoints import normalised

    if info is not None:
        version = info.get("version")
        return Check("endpoint", "ok", f"{address}: BAT OS{f' {version}' if version else ''} answers")
    try:
        bound = normalised(address, guarded=guarded)
    except EndpointError as e:
        return Check("endpoint", "fail", e.message, "listen at an ipc:// path or tcp://127.0.0.1:PORT")
    if bound.startswith("ipc://"):
        folder = Path(bound.removeprefix("ipc://")).parent
        if bound == local_endpoint():  # its folder is made at the first start
            folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not bound.startswith("ipc://@") and not os.access(folder, os.W_OK):
            return Check("endpoint", "fail", f"{address}: {folder} cannot be written", "name a path in a folder of yours")
        return Check("endpoint", "ok", f"{address}: free")
    host, _, port = bound.removeprefix("tcp://").rpartition(":")
    if port != "*" and not _is_free(host.strip("[]"), int(port)):
        return Check("endpoint", "fail", f"{address} is taken by a process that is not BAT OS", "stop it, or choose another --listen")
    return Check("endpoint", "ok", f"{address}: free")


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # libzmq does the same: lingering connections do not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def others(settings: Settings) -> list[Check]:
    """Check in combination the settings that have no check of their own, and former names."""
    from batos import preflight

    found = [("fail", name, why) for name, why in preflight.refusals(settings) if name not in _LOOKED_AT]
    found += [("warn", name, why) for name, why in preflight.doubts(settings)]
    checks = []
    for note in settings.notes:
        finding, _, remedy = note.rpartition("; ")
        checks.append(Check("settings", "warn", finding, remedy))
    for state, name, why in found:
        finding, _, remedy = why.rpartition("; ")
        checks.append(Check("settings", cast(State, state), f"{name}: {finding or why}", remedy if finding else "see docs/settings.md"))
    return checks or [Check("settings", "ok", "no setting contradicts another, and everything that they name exists")]
