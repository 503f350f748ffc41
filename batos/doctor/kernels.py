"""Checks of the kernels that serve an image together: who leads, who takes up no missions, who cannot be reached from here."""

from __future__ import annotations

from typing import Any

from batos.config import Settings
from batos.doctor.installation import Check
from batos.errors import BatosError


async def kernels(settings: Settings, endpoint: str) -> list[Check]:
    """Check the kernels that a running daemon knows; nothing where it has its image to itself.

    :param endpoint: where it answers.
    """
    from batos.wire import Client, ClientKeys

    try:
        async with Client(endpoint, keys=ClientKeys.of(settings)) as client:
            told = await client.kernels()
    except BatosError:  # a daemon of an earlier version has none
        return []
    return found_of(told)


def found_of(told: dict[str, Any]) -> list[Check]:
    """Return the findings about kernels.

    :param told: the reply to `kernels`.
    """
    if not told["name"]:
        return []
    living = [one for one in told["kernels"] if not one["gone"]]
    found = []
    if not any(one["leads"] for one in living):
        remedy = (
            "one takes the lead within image.lease_s; if none does, look at their logs: no schedule runs and no memory is made meanwhile"
        )
        found.append(Check("kernels", "warn", f"none of {len(living)} kernels leads", remedy))
    for one in living:
        if one["unfit"]:
            found.append(
                Check(
                    "kernels",
                    "warn",
                    f"{one['name']} takes up no missions: {'; '.join(one['unfit'])}",
                    "give it the models that the others have",
                )
            )
        if one["unreached"]:
            remedy = "let it listen where this machine reaches it (wire.listen, with keys); until then only ends are heard of its missions"
            why = f"{one['name']} is not reached from here: {one['unreached']}"
            found.append(Check("kernels", "warn", why, remedy))
        if one["draining"]:
            found.append(Check("kernels", "warn", f"{one['name']} takes up no missions: it drains", "it stops by itself; start it again"))
    if not found:
        leader = next(one["name"] for one in living if one["leads"])
        serve = "kernel serves" if len(living) == 1 else "kernels serve"
        found.append(Check("kernels", "ok", f"{len(living)} {serve} the image; {leader} leads"))
    return found
