"""Whether what a daemon holds is fit: who can read its files, its image, its endpoints, its settings together."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, cast

from batos import config
from batos.config import Settings
from batos.doctor.findings import Check, State
from batos.errors import BatosError, ConfigError, EndpointError, ImageError

_LOOKED_AT = ("data", "listen", "image", "profile", "ollama_host", "ollama_hosts")
"""Settings that have a check of their own."""
_NAMED = 3  # files that a finding names


def files(settings: Settings) -> Check:
    """Whether other users can read what the daemon keeps, or could have it written somewhere else."""
    from batos.image import premises

    found = premises.exposed(settings)
    if not found:
        return Check("files", "ok", "no other user can read or write what is kept")
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    remedy = "start the daemon, which closes what is its own; of what stays open, change owner or mode (a file system without modes: how "
    remedy += "it is mounted), or name a folder of yours with --data; what others may have read is no secret any more"
    return Check("files", "warn", f"open to other users: {', '.join(found[:_NAMED])}{more}", remedy)


def image(settings: Settings, running: bool, served: str = "") -> Check:
    """Whether the image can be opened, without changing it.

    :param served: URI of the one that the daemon that answers has.
    """
    from batos.image import storage

    uri = settings.image_uri
    if served and _place(served) != _place(uri):
        return Check(
            "image", "warn", f"{uri}; the daemon that answers has {served}", "name that one's folder with --data to examine what is in use"
        )
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


def _place(uri: str) -> str:
    """A URI as it is compared: a file by where it really is."""
    return os.path.realpath(uri.removeprefix("file://")) if uri.startswith("file://") else uri


def _remedy_within(error: BatosError) -> str:
    """Errors of the image carry their remedy after the last semicolon."""
    return error.message.rpartition("; ")[2] if "; " in error.message else "see docs/errors.md"


async def info_at(endpoint: str, settings: Settings) -> dict[str, Any] | None:
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
        return Check("endpoint", "fail", e.message, "listen at an ipc:// path or tcp://127.0.0.1:PORT")
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
