"""The checks of `batos doctor`: each says if one thing that BAT OS needs is fit, and names the remedy if it is not.

A check changes nothing and returns a `Check`. Only the command line imports this package.

    installation.py   Python, packages, variables, data folder, sandbox, trainings, files, image, endpoints, settings in combination
    image_server.py   the server of the image, where it is in PostgreSQL or ZEO
    inference.py      Ollama, the profile's models, the embedder
    connections.py    the connections of a running daemon
    kernels.py        the kernels that serve its image together
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from batos.config import Settings
from batos.doctor.connections import connections, unreachable
from batos.doctor.image_server import served_image
from batos.doctor.inference import embedder, models, ollama
from batos.doctor.installation import (
    DEPENDENCIES,
    REINSTALL,
    Check,
    State,
    data_folder,
    dependencies,
    endpoint,
    files,
    image,
    info_at,
    others,
    python,
    sandbox,
    training,
    variables,
    walls,
)
from batos.doctor.kernels import kernels

__all__ = [
    "DEPENDENCIES", "REINSTALL", "Check", "State", "connections", "data_folder", "dependencies", "embedder", "endpoint", "examine", "files",
    "image", "info_at", "kernels", "models", "ollama", "others", "python", "sandbox", "served_image", "training", "unreachable",
    "variables", "walls",
]  # fmt: skip


async def examine(settings: Settings) -> list[Check]:
    """Run all checks, in the order in which a start needs their things."""
    checks: list[Check] = [python(), dependencies(), variables(), data_folder(settings), guarded_check("files", partial(files, settings))]
    daemon = {endpoint: await info_at(endpoint, settings) for endpoint in settings.endpoints}
    running = any(daemon.values())
    checks += [
        guarded_check("endpoint", partial(endpoint, address, info, guarded=bool(settings.wire.secret_key)))
        for address, info in daemon.items()
    ]
    info = next(filter(None, daemon.values()), None)
    served = str(((info or {}).get("image") or {}).get("uri") or "")
    checks.append(guarded_check("image", partial(image, settings, running, served)))
    checks += await asyncio.to_thread(served_image, settings)
    checks += await ollama(settings, info)
    checks += [*others(settings), embedder(settings), training()]
    if answering := next((address for address, told in daemon.items() if told), None):
        checks += await connections(settings, answering)
        checks += await kernels(settings, answering)
    checks.append(await asyncio.to_thread(guarded_check, "sandbox", sandbox))
    checks.append(walls())
    return checks


def guarded_check(name: str, check: Callable[[], Check]) -> Check:
    """Run a check; turn an unforeseen error into a finding, so that the other checks go on."""
    try:
        return check()
    except Exception as e:
        return Check(name, "fail", f"{type(e).__name__}: {e}", "this was not foreseen; please report it with the line above")
