"""The page of the doors: address and token of the interfaces for chat clients, with the settings of each."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from batos.console.access import TOKEN_NAME
from batos.console.pages import PageContext


async def overview(seat: PageContext, request: Request) -> Response:
    """Return what `batos doors` prints. Who sees it has shown the token before."""
    info = await seat.asker.ask("info")
    models = ["batos", *(f"batos:{name.lower()}" for name in info["personas"]), "batos:plain"]
    file = str(seat.settings.data / TOKEN_NAME)
    return await seat.show(
        "doors.html", "doors", "Doors", address=info["doors"], token=seat.access.token, models=models, clients=seat.clients, file=file
    )
