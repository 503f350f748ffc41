"""Routes of the doors: what a group of routes is given, and how its handlers are served.

A group is a callable that takes `DoorServices` and yields routes, each made by `route`: a class with a method `routes`, or a function.
`app.py` lists the groups.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from batos.config import Settings
from batos.console.api_client import Asker
from batos.console.server import Listen
from batos.doors import forms
from batos.doors.access import DoorLimits
from batos.doors.missions import TurnMissions
from batos.doors.turns import PlainModel
from batos.errors import BatosError, UnknownPersona

log = structlog.get_logger("batos.doors")

INTERNAL = {"code": BatosError.code, "message": "something went wrong inside; the daemon's log says what"}
"""Error of an answer whose making failed."""
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class DoorServices:
    """Services behind the doors; the same for each group of routes."""

    asker: Asker
    missions: TurnMissions
    plain: PlainModel
    settings: Settings
    listen: Listen = lambda kind, hear: lambda: None
    """Subscribes to a kind of events of all missions (`Events.listen`)."""
    at_stop: list[Callable[[], object]] = field(default_factory=list)
    """Called when the doors close, in this order: each ends at once what it keeps open, so that the server can end."""

    @functools.cached_property
    def limits(self) -> DoorLimits:
        """Return the limits of the doors."""
        return DoorLimits.of(self.settings)


RouteGroup = Callable[[DoorServices], Iterable[BaseRoute]]
"""Makes the routes of one interface. Called once, when the first client connects."""


def route(path: str, handler: Handler, *methods: str) -> Route:
    """Return a route. What its handler raises is answered in the form of the interface to which the path belongs."""
    return Route(path, functools.partial(_served, handler), methods=list(methods))


async def _served(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except BatosError as e:
        return refusal(request.scope["path"], forms.status_of(e), e.message, None if isinstance(e, UnknownPersona) else e.code)
    except ClientDisconnect:  # the client left in the middle of its request and reads no answer
        return Response(status_code=400)
    except Exception:
        log.exception("a door failed", path=request.scope["path"])
        return refusal(request.scope["path"], 500, INTERNAL["message"])


def refusal(path: str, status: int, why: str, code: str | None = None) -> Response:
    """Return the answer to a request that is refused, in the form of the interface to which its path belongs."""
    return forms.failed(status, why) if path.startswith("/api/") else forms.error_answer(status, why, code)
