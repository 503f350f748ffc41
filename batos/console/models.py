"""The models page: what is there, what is in memory, who speaks with what."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from batos.console.seat import Seat


async def overview(seat: Seat, request: Request) -> Response:
    """The models and their residency, the personas and their voices, the experts."""
    models = await seat.asker.ask("models")
    info = await seat.asker.ask("info")
    experts = await seat.asker.ask("experts")
    personas = await seat.asker.ask("personas")
    return await seat.show("models.html", "models", "Models", models=models, info=info, experts=experts, personas=personas)
