"""Application of the doors: the groups of routes, and the answer to a path that none of them has.

To add an interface: write a module whose group takes `DoorServices` and yields routes (see routes.py), and name the group in `GROUPS`.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from batos.doors.chats import chat_routes
from batos.doors.embeddings import embedding_routes
from batos.doors.event_feed import event_routes
from batos.doors.hooks import hook_routes
from batos.doors.mcp_route import mcp_routes
from batos.doors.models import model_routes
from batos.doors.responses import response_routes
from batos.doors.routes import DoorServices, RouteGroup, refusal

GROUPS: tuple[RouteGroup, ...] = (
    model_routes, chat_routes, response_routes, embedding_routes, event_routes, mcp_routes, hook_routes,
)  # fmt: skip
"""The interfaces of the doors. Where two have the same path, the first one answers."""


def application(services: DoorServices) -> Starlette:
    """Return the application."""

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        why = {404: "there is nothing at this path", 405: "this path does not take this method"}.get(error.status_code, error.detail)
        return refusal(request.scope["path"], error.status_code, why, "not_found" if error.status_code == 404 else None)

    routes = [one for group in GROUPS for one in group(services)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: of_http})
    app.router.redirect_slashes = False  # a redirect would lose a token in the path
    return app
