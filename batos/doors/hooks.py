"""Hooks: `POST /hooks/NAME` makes a mission of a signed request.

The doors' token is not asked for here: each hook has a secret of its own.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from batos.console.api_client import Asker
from batos.doors import forms
from batos.doors.routes import DoorServices, route
from batos.errors import BatosError, Busy, HookRefused, MessageTooLarge
from batos.triggers.deliveries import HookLimits
from batos.triggers.signatures import HEADERS

_AGAIN_S = 5  # seconds after which a full queue is worth another try
_HEADER_CHARS = 2000
_NAME_CHARS = 200


class HookRoutes:
    """Routes of the hooks."""

    def __init__(self, services: DoorServices) -> None:
        self._asker, self._most = services.asker, HookLimits.of(services.settings).body_bytes

    def routes(self) -> Iterable[BaseRoute]:
        """Yield the routes."""
        yield route("/hooks/{name}", self.deliver, "POST")

    async def deliver(self, request: Request) -> Response:
        """Pass a delivery on; answer 202 with its mission as soon as that is accepted."""
        try:
            told = await self._asker.ask("hook_deliver", **await self._delivery(request))
        except BatosError as e:
            return _refused(e)
        accepted = {name: told[name] for name in ("id", "state", "duplicate", "why") if told.get(name) is not None}
        status = 202 if "id" in accepted else 200
        headers = {"X-Batos-Mission": accepted["id"]} if "id" in accepted else {}
        return JSONResponse({"hook": told["hook"], **accepted}, status, headers=headers)

    async def _delivery(self, request: Request) -> dict[str, Any]:
        taken = bytearray()
        async for piece in request.stream():
            taken += piece
            if len(taken) > self._most:
                raise MessageTooLarge(f"a body of more than {self._most} bytes; have the sender leave something out")
        return {
            "name": str(request.path_params["name"])[:_NAME_CHARS],
            "body": base64.b64encode(taken).decode(),
            "kind": request.headers.get("content-type", "")[:_HEADER_CHARS],
            "headers": {name: request.headers[name][:_HEADER_CHARS] for name in HEADERS if name in request.headers},
            "token": request.query_params.get("token", "")[:_HEADER_CHARS],
        }


def _refused(error: BatosError) -> Response:
    status, again_s = forms.status_of(error), error.context.get("again_s", _AGAIN_S)
    if isinstance(error, HookRefused):
        status = 401
    elif isinstance(error, Busy) and "rate" in error.context:
        status = 429
    answer = forms.error_answer(status, error.message, error.code)
    if status in (429, 503):
        answer.headers["Retry-After"] = str(again_s)
    return answer


async def hosts_of(asker: Asker, name: str) -> list[str]:
    """Return the names under which a tunnel or proxy may bring requests to a hook; none for one that is not there."""
    try:
        told = await asker.ask("hooks", name=name)
    except BatosError:
        return []
    return list(told["hooks"][0]["hosts"])


def hook_routes(services: DoorServices) -> Iterable[BaseRoute]:
    """Yield the routes of the hooks."""
    return HookRoutes(services).routes()
