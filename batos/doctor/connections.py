"""Checks of connections: whether each can be reached, has its secrets, and offers what its user accepted. And of channels of notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from batos.config import Settings
from batos.doctor.installation import Check
from batos.errors import BatosError

_REACH_S = 3.0  # seconds for a connection of TCP
_PORTS = {"http": 80, "https": 443}


async def connections(settings: Settings, endpoint: str) -> list[Check]:
    """Check the connections of a running daemon. Nothing is called, and nothing started.

    :param endpoint: where it answers.
    """
    from batos.wire import Client, ClientKeys

    noticing: dict[str, Any] = {"channels": [], "untold": 0}
    try:
        async with Client(endpoint, keys=ClientKeys.of(settings)) as client:
            told = await client.tools()
            with contextlib.suppress(BatosError):  # a daemon of an earlier version has no notices
                noticing = await client.notices()
    except BatosError as e:
        return [Check("tools", "warn", f"the daemon did not tell of its connections: {e.message}", "ask it with `batos tools`")]
    found = list(await asyncio.gather(*(_connection(one) for one in told["connections"])))
    if told["tied"]:
        found.append(Check("tools", "warn", f"nothing may act: {told['tied']}", "look at `batos effects`, then `batos tools resume`"))
    if told["in_doubt"]:
        found.append(Check("tools", "warn", f"{told['in_doubt']} effects have not ended", "`batos effects --doubt` shows them"))
    return [*found, *_channels(noticing)]


def _channels(told: dict[str, Any]) -> list[Check]:
    """Return what channels of notices could not tell; nothing without channels."""
    found = []
    for one in told["channels"]:
        last = one["last"] or {}
        if last.get("again") or last.get("state") in ("FAILED", "IN_DOUBT"):
            remedy = f"`batos notices test {one['name']}` tries it; `batos notices log {one['name']}` shows what was not told"
            found.append(Check("notices", "warn", f"{one['name']} was not told: {last.get('why', '')}", remedy))
        else:
            waits = f", {one['waiting']} wait" if one["waiting"] else ""
            found.append(Check("notices", "ok", f"{one['name']}: {one['way']}{', paused' if one['paused'] else ''}{waits}"))
    if told["untold"]:
        found.append(
            Check(
                "notices",
                "warn",
                f"{told['untold']} messages were not told for sure",
                "`batos notices log` shows them, and `batos notices settle` says that you have seen them",
            )
        )
    return found


async def _connection(one: dict[str, Any]) -> Check:
    name, place = one["name"], one["place"]
    if one["missing"]:
        return Check("tools", "warn", f"{name} lacks the secret {one['missing'][0]}", f"batos secrets set {one['missing'][0]}")
    if why := await unreachable(one["kind"], place):
        return Check("tools", "warn", f"{name} cannot be reached: {why}", f"`batos tools test {name}` asks it again")
    if one["suspended"]:
        changed = ", ".join(one["suspended"][:5])
        return Check("tools", "warn", f"{name} has changed tools, which are suspended: {changed}", f"look: batos tools test {name}")
    count = len(one["tools"])
    return Check("tools", "ok", f"{name}: {one['kind']}{f' {place}' if place else ''}, {count} {'tool' if count == 1 else 'tools'}")


async def unreachable(kind: str, place: str) -> str:
    """Return why a place of a kind of connection cannot be reached; empty if it can, or that is not known."""
    if not place:
        return ""
    if place.startswith(("http://", "https://")):
        return await _no_server(place)
    return await asyncio.to_thread(_not_here, kind, place)


def _not_here(kind: str, place: str) -> str:
    """Return why a file, folder or program of this machine cannot be used; empty if it can."""
    if kind == "folder":
        return "" if os.access(place, os.R_OK | os.X_OK) and Path(place).is_dir() else f"{place} is not a folder that can be read"
    if kind == "openapi":
        return "" if os.access(place, os.R_OK) else f"{place} is not a file that can be read"
    try:
        program = shlex.split(place)[0]
    except (ValueError, IndexError):
        return f"{place!r} is not a command"
    return "" if os.access(program, os.X_OK) and Path(program).is_file() else f"{program} is not a program that can be run"


async def _no_server(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        async with asyncio.timeout(_REACH_S):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
    except TimeoutError:
        return f"{parts.netloc} did not answer within {_REACH_S:g} s"
    except (OSError, ValueError) as e:
        return f"{url}: {getattr(e, 'strerror', None) or e}"
    return ""
