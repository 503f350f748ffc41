"""`batos doctor`: is everything that BAT OS needs fit, and what is to be done where it is not?

Each check looks for itself, changes nothing, and answers with a `Check`. Only the command line imports this package.

    findings.py    what a check answers with
    machine.py     this Python, what is installed, variables, the data folder, the sandbox, trainings
    house.py       who else can read its files, the image, the endpoints, the settings together
    inference.py   Ollama, the profile's models, the embedder
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from batos.config import Settings
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

__all__ = [
    "DEPENDENCIES", "REINSTALL", "Check", "State", "data_folder", "dependencies", "embedder", "endpoint", "examine", "files", "image",
    "info_at", "models", "ollama", "others", "python", "sandbox", "training", "variables", "walls",
]  # fmt: skip


async def examine(settings: Settings) -> list[Check]:
    """Every check, in the order in which things are needed at start."""
    checks: list[Check] = [python(), dependencies(), variables(), data_folder(settings), _guarded("files", partial(files, settings))]
    daemon = {endpoint: await info_at(endpoint, settings) for endpoint in settings.endpoints}
    running = any(daemon.values())
    checks += [
        _guarded("endpoint", partial(endpoint, address, info, guarded=bool(settings.wire.secret_key))) for address, info in daemon.items()
    ]
    info = next(filter(None, daemon.values()), None)
    served = str(((info or {}).get("image") or {}).get("uri") or "")
    checks.append(_guarded("image", partial(image, settings, running, served)))
    checks += await ollama(settings, info)
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
