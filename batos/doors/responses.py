"""OpenAI's Responses interface: `POST /v1/responses`, and the response of a known mission, looked at, heard or cancelled.

A response is a turn of a mission. Its id is `resp_` and the mission's id; one that answers the mission's second question ends with `.2`. So
`previous_response_id` names what the next turn follows, or the question that it answers, and nothing is kept for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from batos.console.api_client import Reply
from batos.doors.answer_text import AnswerPart
from batos.doors.answers import GONE, Answers, AnswerStream, AskedAnswer, Parts, PendingAnswer, failure, whole_answer
from batos.doors.bodies import ResponseBody, body_of, checked_body
from batos.doors.models import NAME
from batos.doors.response_forms import PREFIX, ResponseEvents, ResponseForm, response_id
from batos.doors.routes import DoorServices, route
from batos.doors.turns import EarlierTurn
from batos.errors import InvalidInput

_STREAM = "text/event-stream"


class _Responses:
    def __init__(self, services: DoorServices) -> None:
        self._answers, self._asker, self._missions, self._limits = Answers(services), services.asker, services.missions, services.limits

    def routes(self) -> Iterator[BaseRoute]:
        yield route("/v1/responses", self.create, "POST")
        yield route("/v1/responses/{id:path}/cancel", self.cancel, "POST")
        yield route("/v1/responses/{id:path}", self.retrieve, "GET")

    async def create(self, request: Request) -> Response:
        """Answer a turn."""
        fields = await body_of(request, self._limits)
        body = checked_body(ResponseBody, fields)
        words = body.words(self._limits)
        before = body.previous_response_id
        follows = None if before is None else await self._missions.turn_of(before.removeprefix(PREFIX))
        asked = AskedAnswer(
            request, fields, body.model, words, body.schema_wanted, body.options, "", streams=bool(body.stream), follows=follows
        )
        pending = await self._answers.begun(asked)
        form = ResponseForm(response_id(pending.id, pending.answers), body.model, kept=bool(pending.headers), given=body.told)
        if body.background and not pending.headers:
            pending.leave()
            raise InvalidInput("background: a model that is asked directly answers at once only; a mission can be left alone")
        if body.stream:
            return AnswerStream(pending, _stream(pending.parts, form), _STREAM)
        if body.background:
            pending.leave()
            return JSONResponse(form.under_way(), headers=dict(pending.headers))
        if (ended := await whole_answer(request, pending)) is None:
            return Response(status_code=GONE)
        end, thought = ended
        if end.error is not None:
            return failure(request.url.path, end.error)
        return JSONResponse(form.whole(end, thought), headers=dict(pending.headers))

    async def retrieve(self, request: Request) -> Response:
        """Return the response of a known mission; with `stream`, its events from now on."""
        turn, status = await self._known(request)
        form = _form(turn, status)
        if request.query_params.get("starting_after"):
            raise InvalidInput("starting_after: events are not kept; leave it out, and the stream tells the whole response")
        if request.query_params.get("stream") != "true":
            return JSONResponse(self._told(form, turn, status))
        following = await self._missions.follow(turn.mission)
        parts = self._missions.parts(following)
        pending = PendingAnswer(turn.mission, parts, lambda: self._missions.leave(following), {"X-Batos-Mission": turn.mission})
        return AnswerStream(pending, _stream(parts, form), _STREAM)

    async def cancel(self, request: Request) -> Response:
        """Cancel the mission of a response; one that has ended stays as it is."""
        turn, _ = await self._known(request)
        status = await self._asker.ask("cancel", id=turn.mission)
        return JSONResponse(self._told(_form(turn, status), turn, status))

    async def _known(self, request: Request) -> tuple[EarlierTurn, Reply]:
        """Return the turn that a path names, with the status of its mission.

        :raises UnknownMission: if there is none.
        """
        turn = await self._missions.turn_of(request.path_params["id"].removeprefix(PREFIX))
        return turn, await self._asker.ask("status", id=turn.mission)

    def _told(self, form: ResponseForm, turn: EarlierTurn, status: Reply) -> dict[str, Any]:
        end = self._missions.end_of(status, turn.answers)
        return form.under_way() if end is None else form.whole(end)


def _form(turn: EarlierTurn, status: Reply) -> ResponseForm:
    model = f"{NAME}:{status['persona']}" if status.get("persona") else NAME
    return ResponseForm(response_id(*turn), model, kept=True, created=status.get("accepted"))


async def _stream(parts: Parts, form: ResponseForm) -> AsyncIterator[bytes]:
    events = ResponseEvents(form)
    for event in events.begin():
        yield event
    async for part in parts:
        for event in events.part(part) if isinstance(part, AnswerPart) else events.end(part):
            yield event


def response_routes(services: DoorServices) -> Iterator[BaseRoute]:
    """Yield the routes of responses."""
    yield from _Responses(services).routes()
