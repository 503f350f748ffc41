"""The console's application: its routes, errors, and the guard before them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
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
from batos.console import changes, comparisons, doors, inspection, login, missions, notices, schedules, stepping, tools
from batos.console.access import Access, ConsoleLimits, Sessions
from batos.console.api_client import Asker
from batos.console.live_events import Feed
from batos.console.login import Guard
from batos.console.pages import HERE, PageContext, Views
from batos.errors import (
    BatosError,
    Busy,
    InvalidInput,
    MessageTooLarge,
    UndoConflict,
    UnknownChange,
    UnknownComparison,
    UnknownMission,
    UnknownPersona,
    UnknownPicture,
    UnknownSession,
    UnknownTarget,
    UnknownTool,
)

log = structlog.get_logger("batos.console")

Page = Callable[[PageContext, Request], Awaitable[Response]]

GET: dict[str, Page] = {
    "/": missions.overview,
    "/events": missions.live,
    "/mission": missions.mission,
    "/mission/events": missions.mission_live,
    "/conversation": missions.conversation,
    "/undo": changes.preview_undo,
    "/object": inspection.browse,
    "/method": inspection.method,
    "/revert": changes.preview_revert,
    "/search": inspection.search_memory,
    "/models": inspection.models_page,
    "/changes": changes.overview,
    "/change": changes.change,
    "/tools": tools.overview,
    "/schedules": schedules.overview,
    "/schedule": schedules.one,
    "/notices": notices.overview,
    "/notice": notices.one,
    "/doors": doors.overview,
    "/compare": comparisons.overview,
    "/compare/plan": comparisons.plan,
    "/comparison": comparisons.one,
    "/compare/judge": comparisons.judge,
    "/steps": stepping.overview,
    "/step": stepping.page,
    "/step/continue": stepping.preview,
    "/image": missions.image,
    "/login": login.ask_token,
}
POST: dict[str, Page] = {
    "/submit": missions.submit,
    "/cancel": missions.cancel,
    "/pause": missions.pause,
    "/resume": missions.resume,
    "/answer": missions.answer,
    "/rate": missions.rate,
    "/undo": changes.undo,
    "/revert": changes.revert,
    "/change": changes.undo_change,
    "/effect": tools.settle,
    "/grant/remove": tools.ungrant,
    "/schedule/add": schedules.add,
    "/schedule/pause": schedules.pause,
    "/schedule/resume": schedules.resume,
    "/schedule/run": schedules.run,
    "/schedule/remove": schedules.remove,
    "/notice/test": notices.test,
    "/notice/pause": notices.pause,
    "/notice/resume": notices.resume,
    "/notice/remove": notices.remove,
    "/compare/start": comparisons.start,
    "/compare/judge": comparisons.judged,
    "/compare/stop": comparisons.stop,
    "/compare/resume": comparisons.resume,
    "/compare/promote": comparisons.promote,
    "/compare/remove": comparisons.remove,
    "/step/open": stepping.open_session,
    "/step/go": stepping.go,
    "/step/edit": stepping.edit,
    "/step/eval": stepping.evaluate,
    "/step/continue": stepping.go_on,
    "/step/close": stepping.close,
    "/login": login.enter,
    "/logout": login.leave,
    "/logout/all": login.leave_all,
}
STATUS: tuple[tuple[type[BatosError], int], ...] = (
    (UnknownMission, 404),
    (UnknownPicture, 404),
    (UnknownTarget, 404),
    (UnknownPersona, 404),
    (UnknownChange, 404),
    (UnknownComparison, 404),
    (UnknownSession, 404),
    (UnknownTool, 404),
    (UndoConflict, 409),
    (MessageTooLarge, 413),
    (InvalidInput, 400),
    (Busy, 503),
)


def application(
    asker: Asker, settings: Settings, access: Access, sessions: Sessions, clients: Sequence[tuple[str, str]] = ()
) -> tuple[ASGIApp, Feed]:
    """Return the console as an ASGI application, and the feed of its pages.

    :param clients: chat clients, each with its settings.
    """
    views = Views()
    feed = Feed(functools.partial(missions.rows, asker, views, settings), settings, asker.forget)
    seat = PageContext(asker, settings, access, sessions, views, feed, clients)

    async def refused(status: int, why: str) -> Response:
        return await (login.login_page(seat, why) if status == 401 else problem(seat, status, why))

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return await problem(seat, error.status_code, "This page does not exist." if error.status_code == 404 else error.detail)

    routes = [
        *(Route(path, _served(seat, page), methods=["GET"]) for path, page in GET.items()),
        *(Route(path, _served(seat, page), methods=["POST"]) for path, page in POST.items()),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    pages = Starlette(routes=routes, exception_handlers={HTTPException: of_http})
    return Guard(pages, access, sessions, refused, ConsoleLimits.of(settings).request_s), feed


def _served(seat: PageContext, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            return await page(seat, request)
        except BatosError as e:
            return await problem(seat, status_of(e), e.message, e.code)
        except ClientDisconnect:  # the client left in the middle of a form and reads no answer
            return Response(status_code=400)
        except Exception:
            log.exception("a page failed", path=request.url.path)
            return await problem(seat, 500, "Something went wrong inside the console; the daemon's log says what.", BatosError.code)

    return serve


def status_of(error: BatosError) -> int:
    """Return the HTTP status for an error."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


async def problem(seat: PageContext, status: int, why: str, code: str = "") -> Response:
    """Return a page with an error."""
    return await seat.show("problem.html", "", HTTPStatus(status).phrase, status, why=why, code=code, number=status)
