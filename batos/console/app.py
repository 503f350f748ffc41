"""The console's pages put together: routes, errors, and the guard before them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from batos.config import Settings
from batos.console import changes, conversation, entrance, memory, missions, models, objects, reverting, steering
from batos.console.access import Access
from batos.console.asking import Asker
from batos.console.feed import Feed
from batos.console.guard import Guard
from batos.console.seat import Seat
from batos.console.sessions import Sessions
from batos.console.views import HERE, Views
from batos.errors import (
    BatosError,
    Busy,
    InvalidInput,
    MessageTooLarge,
    UndoConflict,
    UnknownChange,
    UnknownMission,
    UnknownPersona,
    UnknownTarget,
)

log = structlog.get_logger("batos.console")

Page = Callable[[Seat, Request], Awaitable[Response]]

GET: dict[str, Page] = {
    "/": missions.overview,
    "/events": missions.live,
    "/mission": missions.mission,
    "/mission/events": missions.mission_live,
    "/conversation": conversation.conversation,
    "/undo": changes.preview,
    "/object": objects.browse,
    "/method": objects.method,
    "/revert": reverting.preview,
    "/search": memory.search,
    "/models": models.overview,
    "/changes": changes.overview,
    "/change": changes.change,
    "/login": entrance.ask,
}
POST: dict[str, Page] = {
    "/submit": steering.submit,
    "/cancel": steering.cancel,
    "/pause": steering.pause,
    "/resume": steering.resume,
    "/answer": steering.answer,
    "/rate": steering.rate,
    "/undo": changes.undo,
    "/revert": reverting.revert,
    "/change": changes.undo_change,
    "/login": entrance.enter,
    "/logout": entrance.leave,
    "/logout/all": entrance.leave_all,
}
STATUS: tuple[tuple[type[BatosError], int], ...] = (
    (UnknownMission, 404),
    (UnknownTarget, 404),
    (UnknownPersona, 404),
    (UnknownChange, 404),
    (UndoConflict, 409),
    (MessageTooLarge, 413),
    (InvalidInput, 400),
    (Busy, 503),
)


def application(asker: Asker, settings: Settings, access: Access, sessions: Sessions) -> tuple[ASGIApp, Feed]:
    """The console as an ASGI application, and what moves its pages."""
    views = Views()
    feed = Feed(functools.partial(missions.rows, asker, views, settings), settings, asker.forget)
    seat = Seat(asker, settings, access, sessions, views, feed)

    async def refused(status: int, why: str) -> Response:
        return await (entrance.page(seat, why) if status == 401 else problem(seat, status, why))

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return await problem(seat, error.status_code, "There is no such page." if error.status_code == 404 else error.detail)

    routes = [
        *(Route(path, _served(seat, page), methods=["GET"]) for path, page in GET.items()),
        *(Route(path, _served(seat, page), methods=["POST"]) for path, page in POST.items()),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: of_http}), access, sessions, refused), feed


def _served(seat: Seat, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            return await page(seat, request)
        except BatosError as e:
            return await problem(seat, status_of(e), e.message, e.code)
        except ClientDisconnect:  # in the middle of a form; nobody reads what is said here
            return Response(status_code=400)
        except Exception:
            log.exception("a page failed", path=request.url.path)
            return await problem(seat, 500, "Something went wrong inside the console; the daemon's log says what.", BatosError.code)

    return serve


def status_of(error: BatosError) -> int:
    """The HTTP status that says who is at fault."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


async def problem(seat: Seat, status: int, why: str, code: str = "") -> Response:
    """A page that says what is wrong."""
    return await seat.show("problem.html", "", HTTPStatus(status).phrase, status, why=why, code=code, number=status)
