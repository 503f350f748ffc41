"""Requests about missions: acceptance, messages and lessons, watching, steering, results, ratings, replays.

submit ─ watched from before the acceptance ─ scheduler.submit ─ durable ─ `accepted` ─ events ─ `result`
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from batos.api.dispatcher import handles
from batos.api.subscriptions import Subscriptions
from batos.api.uploads import Uploads
from batos.bridge.capabilities import Needs
from batos.errors import RoleRefused
from batos.forge import lessons
from batos.forge.method_prompts import SynthesisLimits
from batos.image import history, journal, ledger
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.mind import answer_schema, messages
from batos.mind.events import Event, Events
from batos.mind.router import Router
from batos.missions.held_missions import NEEDS_INPUT, PAUSED, held_state
from batos.missions.replay import Replays
from batos.missions.scheduler import Scheduler
from batos.objects import Primitive, Root, find
from batos.tools import connections, known_places
from batos.wire import schemas
from batos.wire.outbox import Recipient

Reply = dict[str, Any]
_FACTS = ("brief", "persona", "origin", "priority", "attempts", "accepted", "finished")
_FACTS_IF_ANY = ("context", "questions", "rating", "undone", "images", "kernel", "continued")
PROVIDED = ("state", "needs", "model", "source", "bytes", "context", "memory", "why", "change", "left_out")
"""The fields with which `status` describes the model that is provided for a mission."""
_Message = schemas.SendRequest | schemas.TeachRequest | schemas.RevertRequest | schemas.GrantRequest


Elsewhere = Callable[[MissionRecord], Awaitable[Reply]]
"""Returns what only another kernel knows of a mission that it thinks through; nothing for any other mission."""


async def _nowhere(record: MissionRecord) -> Reply:
    return {}


class Ratings(Protocol):
    """Keeper of users' ratings of missions."""

    async def rate(self, id: str, rating: int, why: str, /) -> None:
        """Store a user's rating of a mission: 1 or -1, and the reason."""


class MissionRequests:
    """Handlers of the requests about missions."""

    def __init__(
        self,
        image: LivingImage,
        scheduler: Scheduler,
        events: Events,
        router: Router,
        uploads: Uploads,
        *,
        ratings: Ratings,
        watches_per_client: int,
        elsewhere: Elsewhere = _nowhere,
    ) -> None:
        """
        :param uploads: knows the pictures that briefs name.
        :param watches_per_client: most missions that one client watches at a time.
        :param elsewhere: asks the other kernels of the image about their missions.
        """
        self._image, self._scheduler, self._events, self._router = image, scheduler, events, router
        self._uploads, self._ratings, self._elsewhere = uploads, ratings, elsewhere
        self.watches = Subscriptions(events, watches_per_client, self._status)

    def forget(self, client: Recipient) -> None:
        """End the watches of a client that has left, also those of missions without events."""
        self.watches.forget(client)

    def state_of(self, id: str, recorded: str) -> str:
        """Return the state of a mission: the recorded one if that is final, else the live one."""
        if recorded in ledger.FINAL:
            return recorded
        said = held_state(self._record(id)) if self._image.kernel else None  # what its user said at another kernel stands at once
        return said or self._scheduler.state(id) or recorded

    # --- acceptance

    @handles(schemas.SubmitRequest)
    async def submit(self, request: schemas.SubmitRequest, client: Recipient) -> None:
        """Accept a mission with a brief."""
        persona = self._router.known(request.persona) if request.persona else None
        images = self._uploads.named(request.images)
        options = {"persona": persona, **_options(request), **self._asked(request), "images": images}
        await self.accept(request, request.brief, options, client)

    def _asked(self, request: schemas.SubmitRequest) -> Reply:
        """Return the options of a mission that say which answer the client wants, and which mission it follows.

        :raises InvalidInput: for a schema or a need that is none.
        :raises UnknownMission: for a mission to follow that is not there.
        """
        if request.form is not None:
            answer_schema.check_schema(request.form)
        Needs.parse(request.needs)
        if request.context is not None:
            self._image.read(ledger.require, request.context)
        schema = None if request.form is None else json.dumps(request.form)
        return {
            "context": request.context,
            "instructions": request.instructions.strip(),
            "schema": schema,
            "may_ask": request.may_ask,
            "depth": request.depth,
            "flavour": request.flavour,
            "needs": json.dumps(request.needs) if request.needs else None,
        }

    async def accept(
        self,
        request: schemas.SubmitRequest | _Message,
        brief: str,
        options: Reply,
        client: Recipient,
        first: Callable[[Any], object] | None = None,
    ) -> None:
        """Accept a mission durably, and report that to the client; then pass on its events if the client watches.

        :param first: called with the image's root before the acceptance, in its transaction; raises BatosError to refuse.
        """
        # Subscribe before the acceptance, so that no event is lost. Pass the events on after `accepted`.
        watched = request.watch and (request.id, client) in self.watches
        watch = self.watches.open(request.id, client) if request.watch else None
        try:
            new, record = await self._scheduler.submit(request.id, brief, {**options, "origin": client.origin}, first)
        except BaseException:
            if watch is not None and not watched:
                watch.stop()
            raise
        accepted: Reply = {
            "type": "accepted",
            "id": request.id,
            "state": record.state if new else self.state_of(request.id, record.state),
        }
        if not new:
            accepted["duplicate"] = True
            accepted.update(_outcome(record))
        client.send(accepted)
        if watch is None:
            return
        if record.is_final:
            watch.stop()
            client.send(_final(record))
        else:
            watch.release()

    # --- watching

    @handles(schemas.WatchRequest)
    async def watch(self, request: schemas.WatchRequest, client: Recipient) -> None:
        """Send the status of a mission, then its events up to its result."""
        id = request.id
        known = self._record(id)
        if known.is_final:
            await self._image.barrier()
            client.send(_final(known))
            return
        watched = (id, client) in self.watches
        watch = self.watches.open(id, client)
        try:
            status = await self._told(id)
            await self._image.barrier()
        except BaseException:
            if not watched:
                watch.stop()
            raise
        client.send(status)
        watch.release()

    @handles(schemas.StatusRequest)
    async def status(self, request: schemas.StatusRequest, client: Recipient) -> Reply:
        """Return the state of a mission, and facts about it."""
        return await self._told(request.id)

    @handles(schemas.ResultRequest)
    async def result(self, request: schemas.ResultRequest, client: Recipient) -> Reply:
        """Return the result of a mission; wait for it for `wait_s` seconds at most, then return the status."""
        id, known = request.id, self._record(request.id)
        if known.is_final:
            return _final(known)
        if request.wait_s > 0:
            ended: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
            stop = self._events.watch(id, lambda event: None if event["type"] != "result" or ended.done() else ended.set_result(event))
            try:
                async with asyncio.timeout(request.wait_s):
                    return await ended
            except TimeoutError:
                pass
            finally:
                stop()
        return await self._told(id)

    # --- steering

    @handles(schemas.CancelRequest)
    async def cancel(self, request: schemas.CancelRequest, client: Recipient) -> Reply:
        """Cancel a mission."""
        return await self._steered(request.id, self._scheduler.cancel)

    @handles(schemas.PauseRequest)
    async def pause(self, request: schemas.PauseRequest, client: Recipient) -> Reply:
        """Pause a mission."""
        return await self._steered(request.id, self._scheduler.pause)

    @handles(schemas.ResumeRequest)
    async def resume(self, request: schemas.ResumeRequest, client: Recipient) -> Reply:
        """Resume a mission that was paused."""
        return await self._steered(request.id, self._scheduler.resume)

    async def _steered(self, id: str, steer: Callable[[str], Awaitable[object]]) -> Reply:
        """Steer a mission and return its status; `already` says that it had ended before, and stays so."""
        already = self._record(id).is_final
        await steer(id)
        return await self._told(id) | ({"already": True} if already else {})

    @handles(schemas.AnswerRequest)
    async def answer(self, request: schemas.AnswerRequest, client: Recipient) -> Reply:
        """Answer the question of a mission. Only an operator's answer may give a grant."""
        await self._scheduler.answer(request.id, request.text, request.number, may_grant=client.operates)
        return await self._told(request.id)

    @handles(schemas.RateRequest)
    async def rate(self, request: schemas.RateRequest, client: Recipient) -> Reply:
        """Store a user's rating of a mission."""
        await self._ratings.rate(request.id, request.rating, request.why)
        return self._status(request.id)

    async def _told(self, id: str) -> Reply:
        """Return the status of a mission, with what only another kernel knows of it."""
        there = await self._elsewhere(self._record(id))
        status = self._status(id)
        if status["state"] in ledger.FINAL:
            return status
        return {**status, **there, **({"state": status["state"]} if status["state"] in (PAUSED, NEEDS_INPUT) else {})}

    def _status(self, id: str) -> Reply:
        known = self._record(id)
        facts = known.to_wire(_FACTS)
        if known.result and not known.persona:
            facts["persona"] = str(known.result.get("persona") or "").lower() or None
        live = {} if known.is_final else self._scheduler.live(id)
        if self._image.kernel and not known.is_final and not known.kernel:
            live = {**self._waiting(known), **live}
        facts |= {name: value for name, value in known.to_wire(_FACTS_IF_ANY).items() if value}
        if (route := self._image.read(journal.route_of, id)) is not None:
            facts["routing"] = json.loads(route)
        if provided := self._image.read(journal.provided_of, id):
            facts["provided"] = {name: provided[name] for name in PROVIDED if provided.get(name) not in (None, "")}
        if known.cancelled and not known.is_final:
            facts["cancelled"] = True
        state = self.state_of(id, known.state)
        if state in (PAUSED, NEEDS_INPUT):
            live = {**live, "state": state}
        return {"type": "status", "id": id, "state": state, **facts, **live, **_outcome(known)}

    def _waiting(self, known: MissionRecord) -> Reply:
        """Return what a mission without an owner waits for: another kernel may hold it back, or none."""
        if (question := known.open_question) is not None:
            return {"question": question}
        follows = known.context is not None and not self._image.read(ledger.is_final, known.context)
        return {"waits_for": known.context} if follows and held_state(known) is None else {}

    def _record(self, id: str) -> MissionRecord:
        return self._image.read(ledger.record_of, id)


class MessageRequests:
    """Handlers of the requests that send a message to an object. Each message is a mission."""

    def __init__(self, image: LivingImage, scheduler: Scheduler, missions: MissionRequests) -> None:
        self._image, self._scheduler, self._missions = image, scheduler, missions

    @handles(schemas.SendRequest)
    async def send(self, request: schemas.SendRequest, client: Recipient) -> None:
        """Send a message.

        :raises RoleRefused: if the message changes more than its receiver and the client is not an operator.
        """
        self._check_reach(request, client)
        brief = f"send {request.target} {request.selector}"
        await self._message(request, request.selector, request.args, brief, client, request.kwargs)

    @handles(schemas.TeachRequest)
    async def teach(self, request: schemas.TeachRequest, client: Recipient) -> None:
        """Send a lesson, the message `learn_`. Its examples are kept in the transaction that accepts it, or not at all."""
        pupil = self._image.read(history.resolve, request.target)
        told = [{**one.model_dump(exclude_defaults=True), "result": one.result} for one in request.examples]
        lesson = lessons.Lesson(request.id, history.oid_of(pupil) or "", request.selector, told, request.intent, request.tools)
        begin = functools.partial(lessons.begin, lesson=lesson, limit=SynthesisLimits.of(self._scheduler.settings).examples)
        options = {**_message_option(request.target, "learn_", [request.selector]), **lesson.options(), **_options(request)}
        await self._missions.accept(request, f"teach {request.target} {request.selector}", options, client, begin)

    @handles(schemas.RevertRequest)
    async def revert(self, request: schemas.RevertRequest, client: Recipient) -> None:
        """Send `revert_`: an earlier version of a method takes the place of the present one."""
        wanted = [request.selector] if request.version is None else [request.selector, request.version]
        await self._message(request, "revert_", wanted, f"revert {request.target} {request.selector}", client)

    @handles(schemas.GrantRequest)
    async def grant(self, request: schemas.GrantRequest, client: Recipient) -> None:
        """Send `grant_`: let a generated method send a message that changes more than its receiver, or take that back."""
        wanted, brief = [request.selector, request.message, request.revoke], f"grant {request.target} {request.selector}"
        await self._message(request, "grant_", wanted, brief, client)

    def _check_reach(self, request: schemas.SendRequest, client: Recipient) -> None:
        if client.operates:
            return

        def reach(root: Root) -> str:
            if known_places.wanted_name(root, request.target) is not None:
                return "what is outside, by a connection that it looks for"
            target = history.resolve(root, request.target)
            if connections.reaches_outside(root, target):
                return "what is outside, by a tool"
            held = find(target, request.selector)
            primitive = held[1] if held is not None and isinstance(held[1], Primitive) else None
            return primitive.reach.what if primitive is not None and primitive.reach is not None else ""

        if what := self._image.read(reach):
            raise RoleRefused(f"send: {request.selector} changes {what}: that needs the role operate; see docs/wire.md, Roles")

    async def _message(
        self, request: _Message, selector: str, args: list[Any], brief: str, client: Recipient, kwargs: Reply | None = None
    ) -> None:
        """Accept a message as a mission. One that could only fail is refused: a target that is not there, arguments that do not fit."""
        sent = request if isinstance(request, schemas.SendRequest) else None
        marks: dict[str, Any] = {name: True for name in ("write", "tools") if sent is not None and getattr(sent, name)}
        first = functools.partial(messages.check_message, target=request.target, selector=selector, args=args, kwargs=kwargs or {}, **marks)
        message = _message_option(request.target, selector, args, kwargs, marks)
        options = {**message, **_options(request), "may_ask": sent is not None and sent.may_ask}
        await self._missions.accept(request, brief, options, client, first)


class ReplayRequests:
    """Handler of the requests to think a finished mission through again from its journal."""

    def __init__(self, replays: Replays) -> None:
        self._replays = replays

    @handles(schemas.ReplayRequest)
    async def replay(self, request: schemas.ReplayRequest, client: Recipient) -> Reply:
        """Replay a mission, and return how the replay compares with its record."""
        return {"type": "replay", **await self._replays.replay(request.id, prompts=request.prompts)}


def _message_option(target: str, selector: str, args: list[Any], kwargs: Reply | None = None, marks: Reply | None = None) -> Reply:
    """Return a message in the form in which a mission holds it.

    :param marks: `write` and `tools`, where the request says so.
    """
    told = {"target": target, "selector": selector, "args": args, "kwargs": kwargs or {}}
    return {"message": json.dumps({**told, **(marks or {})})}


def _options(request: schemas.SubmitRequest | _Message) -> Reply:
    return {"priority": request.priority, "deadline_s": request.deadline_s}


def _outcome(known: MissionRecord) -> Reply:
    told = {name: value for name, value in known.to_wire(("result", "error")).items() if value is not None}
    return {**told, "folded": True} if known.folded else told


def _final(known: MissionRecord) -> Reply:
    return {"type": "result", "id": known.id, "state": known.state, **_outcome(known)}
