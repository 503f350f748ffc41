"""Requests about stepping into missions. See `batos.stepping`."""

from __future__ import annotations

import uuid
from typing import Any

from batos.api.dispatcher import handles
from batos.errors import UnknownSession
from batos.stepping import step_evaluation, step_report
from batos.stepping.continuation import StepContinuation
from batos.stepping.session import StepSession
from batos.stepping.step_sessions import StepSessions
from batos.wire import step_schemas
from batos.wire.outbox import Recipient

Reply = dict[str, Any]


class StepRequests:
    """Handlers of the requests `step.*`."""

    def __init__(self, sessions: StepSessions, continuation: StepContinuation) -> None:
        self._sessions, self.continuation = sessions, continuation

    @handles(step_schemas.StepOpenRequest)
    async def open(self, request: step_schemas.StepOpenRequest, client: Recipient) -> Reply:
        """Open a session, and return where it stands."""
        name = request.session or uuid.uuid4().hex[:12]
        if request.id is not None:
            await self._sessions.open_mission(name, request.id, request.at, request.inferences)
        else:
            message = (str(request.target), str(request.selector), request.args, request.kwargs)
            await self._sessions.open_method(name, message, request.inferences)
        async with self._sessions.using(name) as session:
            return _place(session)

    @handles(step_schemas.StepShowRequest)
    async def show(self, request: step_schemas.StepShowRequest, client: Recipient) -> Reply:
        """Return where a session stands, or the sessions that are open."""
        if request.session is None:
            return self._listed()
        async with self._sessions.using(request.session) as session:
            reply = _place(session)
            if request.target is not None:
                reply["object"] = session.look_at(request.target)
            if request.inference is not None:
                reply["inference"] = step_report.inference_row(request.inference, session.inference(request.inference), whole=True)
            if request.run is not None:
                reply["method"] = session.method_run(request.run).whole(request.line)
            return reply

    @handles(step_schemas.StepGoRequest)
    async def go(self, request: step_schemas.StepGoRequest, client: Recipient) -> Reply:
        """Go to another place."""
        async with self._sessions.using(request.session) as session:
            await session.go(request.to, request.inferences)
            return _place(session)

    @handles(step_schemas.StepEditRequest)
    async def edit(self, request: step_schemas.StepEditRequest, client: Recipient) -> Reply:
        """Change something in the mirror, or take a change back."""
        async with self._sessions.using(request.session) as session:
            if request.drop is not None:
                await session.drop(request.drop)
            else:
                await session.edit(str(request.kind), request.target, request.value, remove=request.remove)
            return _place(session)

    @handles(step_schemas.StepEvalRequest)
    async def evaluate(self, request: step_schemas.StepEvalRequest, client: Recipient) -> Reply:
        """Evaluate an expression where a session stands, or send a message there."""
        async with self._sessions.using(request.session) as session:
            if request.expression is not None:
                value = await step_evaluation.evaluate(session, request.expression, request.inferences)
            else:
                sent = (request.target or "lobby", str(request.selector), request.args, request.kwargs)
                value = await step_evaluation.send_message(session, *sent, request.inferences)
            return {"type": "step_value", "session": session.name, "value": value}

    @handles(step_schemas.StepContinueRequest)
    async def go_on(self, request: step_schemas.StepContinueRequest, client: Recipient) -> Reply:
        """Take the changes over into the image, and let the mission go on; then the session is over."""
        name = request.session
        if (known := self._sessions.continued.get(name)) is not None and not request.dry:
            return known
        try:
            return await self._gone_on(name, request)
        except UnknownSession:  # the same request came twice, and the first one has just ended the session
            if (known := self._sessions.continued.get(name)) is None or request.dry:
                raise
            return known

    async def _gone_on(self, name: str, request: step_schemas.StepContinueRequest) -> Reply:
        async with self._sessions.using(name) as session:
            reply: Reply = {"type": "step_continued", "session": name, "id": session.id, "dry": request.dry}
            if request.dry:
                return {**reply, **await self.continuation.dry(session)}
            reply |= await self.continuation.carry_out(session, request.note, anyway=request.anyway)
            self._sessions.remember(name, reply)
        await self._sessions.close(name)
        return reply

    @handles(step_schemas.StepCloseRequest)
    async def close(self, request: step_schemas.StepCloseRequest, client: Recipient) -> Reply:
        """Drop a session."""
        await self._sessions.close(request.session)
        return self._listed()

    def _listed(self) -> Reply:
        rows = [
            {"session": one.name, "id": one.id, "at": step_report.transition(one.standing), "edits": len(one.edits)}
            for one in self._sessions.listed()
        ]
        return {"type": "steps", "sessions": rows}


def _place(session: StepSession) -> Reply:
    return {"type": "step", **step_report.place(session)}
