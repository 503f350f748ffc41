"""The desk: answers the requests that come in over the wire."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from batos.api.queries import Queries
from batos.api.subscriptions import Subscriptions
from batos.api.uploads import Uploads
from batos.bridge.capabilities import Needs
from batos.bridge.model_management import ModelManager
from batos.concurrency import answering
from batos.errors import RoleRefused
from batos.forge import lessons
from batos.forge.method_prompts import SynthesisLimits
from batos.image import history, journal, ledger, storage
from batos.image.history import Moment
from batos.image.living_image import LivingImage
from batos.image.upkeep import Upkeep
from batos.mind import answer_schema, messages
from batos.mind.events import Event, Events
from batos.mind.router import Router
from batos.missions.replay import Replays
from batos.missions.scheduler import Scheduler
from batos.objects import Primitive, find
from batos.wire import schemas
from batos.wire.outbox import Recipient

if TYPE_CHECKING:
    from batos.memory.curator import Curator

Reply = dict[str, Any]
_FACTS = ("brief", "persona", "origin", "priority", "attempts", "accepted", "finished")
PROVIDED = ("state", "needs", "model", "source", "bytes", "context", "memory", "why", "change", "left_out")
"""What `status` tells of what a mission is provided with."""
_Message = schemas.SendRequest | schemas.TeachRequest | schemas.RevertRequest | schemas.GrantRequest


class IngestJob(Protocol):
    """Files that are being read into the memory; to be waited for, or closed."""

    files: list[str]
    refused: list[Reply]
    left_out: Reply

    async def done(self, tell: Callable[[Reply], object], /) -> Reply:
        """Wait until each file is read or refused; the figures. `tell` hears of each as it comes."""

    def close(self) -> None:
        """Wait no more."""


class MemoryService(Protocol):
    """Answers requests about the memory."""

    curator: Curator

    async def tell(self, *args: Any, **request: Any) -> Reply:
        """What the memory holds, after the changes asked for."""

    async def search(self, request: schemas.SearchRequest, /) -> Reply:
        """The passages that answer a question."""

    async def ask(self, paths: list[str], follow: list[str], exclude: Sequence[str], /) -> IngestJob:
        """Have files read, and folders followed."""


class UndoService(Protocol):
    """Takes back what missions and the system did."""

    async def undo(self, asked: schemas.UndoRequest, /) -> Reply:
        """Undo a mission, or do it again."""

    async def undo_change(self, number: int, why: str, /, *, dry: bool) -> Reply:
        """Take back a change that the system made of its own accord."""


class Dispatcher:
    """One method an op. Raises BatosError for a request that cannot be served; the listener makes it a reply."""

    def __init__(
        self,
        *,
        image: LivingImage,
        scheduler: Scheduler,
        events: Events,
        router: Router,
        info: Callable[[], Reply],
        metrics: Callable[[], list[Reply]],
        models: ModelManager,
        experts: Callable[[bool, str | None, str | None], Awaitable[Reply]],
        personas: Callable[[schemas.Accepting | None], Awaitable[Reply]],
        upkeep: Upkeep,
        replays: Replays,
        memory: MemoryService,
        undoing: UndoService,
        uploads: Uploads,
        assessed: Callable[[Any, int], Reply | None],
        rate: Callable[[str, int, str], Awaitable[None]],
        watches_per_client: int,
    ) -> None:
        """
        :param info: facts about the daemon.
        :param metrics: its metrics; takes a thread of its own.
        :param experts: facts about its experts, after a scan or a choice of a persona's voice if one is asked for.
        :param personas: facts about its personas, after the codex's values were accepted where that is asked for.
        :param assessed: what is known of the entropy of the mission of a number; takes the image's root and that.
        :param rate: keeps what a user thinks of a mission: its id, 1 or -1, why.
        """
        self._image, self._scheduler, self._events, self._router = image, scheduler, events, router
        self._info, self._metrics, self._models, self._experts, self._personas = info, metrics, models, experts, personas
        self._upkeep, self._replays, self._memory = upkeep, replays, memory
        self._undoing, self._uploads = undoing, uploads
        self._looks = Queries(image.db, image.snapshot, self._state, assessed)
        self._rate = rate
        self._ingests_watched: dict[tuple[Recipient, str | int | None], tuple[schemas.IngestRequest, int]] = {}
        self._models_watched: set[Recipient] = set()
        self._watches = Subscriptions(events, watches_per_client, self._status)

    async def handle(self, request: schemas.Request, client: Recipient) -> None:
        """Serve one request."""
        try:
            await self._serve(request, client)
        except OSError as e:
            raise storage.disk_full_error(e) or e from None

    async def _serve(self, request: schemas.Request, client: Recipient) -> None:
        match request:
            case schemas.SubmitRequest():
                persona = self._router.known(request.persona) if request.persona else None
                images = self._uploads.named(request.images)
                options = {"persona": persona, **_options(request), **self._asked(request), "images": images}
                await self._submit(request, request.brief, options, client)
            case schemas.SendRequest():
                self._check_reach(request, client)
                brief = f"send {request.target} {request.selector}"
                await self._message(request, request.selector, request.args, brief, client, request.kwargs)
            case schemas.TeachRequest():
                await self._teach(request, client)
            case schemas.RevertRequest():
                wanted = [request.selector] if request.version is None else [request.selector, request.version]
                await self._message(request, "revert_", wanted, f"revert {request.target} {request.selector}", client)
            case schemas.GrantRequest():
                wanted, brief = [request.selector, request.message, request.revoke], f"grant {request.target} {request.selector}"
                await self._message(request, "grant_", wanted, brief, client)
            case schemas.WatchRequest():
                await self._follow(request.id, client)
            case schemas.ModelsRequest():
                await self._tell_of_models(request, client)
            case schemas.IngestRequest():
                await self._ingest(request, client)
            case schemas.UploadRequest():
                client.send(await self._uploads.take(request))  # what it says is durable
            case _:
                reply = await self._reply(request, client)
                await self._image.barrier()  # after the look: what was seen may not have been durable when it began, either
                client.send(reply)

    def _check_reach(self, request: schemas.SendRequest, client: Recipient) -> None:
        """See that who sends a message may do what it changes.

        :raises RoleRefused: for one that changes more than its receiver, where he is no operator.
        """
        if client.operates:
            return

        def reach(root: Any) -> str:
            held = find(history.resolve(root, request.target), request.selector)
            primitive = held[1] if held is not None and isinstance(held[1], Primitive) else None
            return primitive.reach.what if primitive is not None and primitive.reach is not None else ""

        if what := self._image.read(reach):
            raise RoleRefused(f"send: {request.selector} changes {what}: that needs the role operate; see docs/wire.md, Roles")

    async def _reply(self, request: schemas.Request, client: Recipient) -> Reply:
        """The one reply to what is no mission and no stream."""
        match request:
            case schemas.MethodRequest():
                return await answering(self._looks.method, request.target, request.selector, request.at)
            case schemas.MethodsRequest():
                return await answering(self._looks.methods, request.target, request.at)
            case schemas.StatusRequest():
                return self._status(request.id)
            case schemas.ResultRequest():
                return await self._result(request.id, request.wait_s)
            case schemas.CancelRequest():
                return await self._steered(request.id, self._scheduler.cancel)
            case schemas.PauseRequest():
                return await self._steered(request.id, self._scheduler.pause)
            case schemas.ResumeRequest():
                return await self._steered(request.id, self._scheduler.resume)
            case schemas.AnswerRequest():
                await self._scheduler.answer(request.id, request.text, request.number, may_grant=client.operates)
                return self._status(request.id)
            case schemas.RateRequest():
                await self._rate(request.id, request.rating, request.why)
                return self._status(request.id)
            case schemas.ShowRequest():
                return await self._seen(request.at, self._looks.show, request.target)
            case schemas.LsRequest():
                return await self._seen(request.at, self._looks.ls, request.target)
            case schemas.DiffRequest():
                return await answering(self._looks.diff, request.target, request.a, request.b)
            case schemas.HistoryRequest():
                return await answering(self._looks.history, request.target, request.limit)
            case schemas.MissionsRequest() if (
                request.state is request.at is request.before is None and not request.words and request.system
            ):
                return self._looks.missions(None, request.limit)
            case schemas.MissionsRequest():  # in a thread where a filter may look through them all; so below
                fits = (request.state, request.limit, request.at, request.before, request.words or "", request.system)
                return await answering(self._looks.missions, *fits)
            case schemas.FailuresRequest():
                sought = (request.id, request.code, request.selector, request.limit, request.at)
                return await answering(self._looks.failures, *sought)
            case schemas.ChangesRequest():
                return self._looks.changes(request.number, request.state, request.limit)
            case schemas.UndoChangeRequest():
                why = request.why or "taken back by its user"
                return {"type": "undo_change", **await self._undoing.undo_change(request.number, why, dry=request.dry)}
            case schemas.ReplayRequest():
                return {"type": "replay", **await self._replays.replay(request.id, prompts=request.prompts)}
            case schemas.PackRequest():
                return {"type": "pack", **await self._upkeep.pack(request.days)}
            case schemas.ForkRequest():
                return {"type": "fork", **await self._upkeep.fork(request.folder, request.at)}
            case schemas.BackupRequest():
                return {"type": "backup", **await self._upkeep.backup(request.folder, full=request.full)}
            case schemas.UndoRequest():
                return {"type": "undo", **await self._undoing.undo(request)}
            case schemas.InfoRequest():
                return {"type": "info", **self._info()}
            case schemas.MetricsRequest():
                return {"type": "metrics", "metrics": await answering(self._metrics)}
            case schemas.PersonasRequest():
                return {"type": "personas", **await self._personas(request.accept)}
            case schemas.ExpertsRequest():
                return {"type": "experts", **await self._experts(request.scan, request.persona, request.voice)}
            case schemas.MemoryRequest():
                return {"type": "memory", **await self._memory.tell(**request.model_dump(exclude={"op", "ref"}))}
            case schemas.CurateRequest():
                return {"type": "curate", **await self._memory.curator.round("it was asked for", dry=request.dry)}
            case schemas.SearchRequest():
                return {"type": "search", **await self._memory.search(request)}
            case _:
                raise AssertionError(f"the schema knows {request.op!r}, the desk does not")

    def forget(self, client: Recipient) -> None:
        """The client is gone: its watches end, also those of missions in which nothing happens."""
        self._watches.forget(client)

    # --- missions

    def _asked(self, request: schemas.SubmitRequest) -> Reply:
        """What the client wants of the answer, and what it follows.

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
            "schema": schema,
            "may_ask": request.may_ask,
            "depth": request.depth,
            "flavour": request.flavour,
            "needs": json.dumps(request.needs) if request.needs else None,
        }

    async def _message(
        self, request: _Message, selector: str, args: list[Any], brief: str, client: Recipient, kwargs: Reply | None = None
    ) -> None:
        """A message to an object is a mission. What could only fail is refused, not accepted to fail: a target that is not there,
        arguments that do not fit."""
        may_ask, write = (request.may_ask, request.write) if isinstance(request, schemas.SendRequest) else (False, False)
        first = functools.partial(
            messages.check_message, target=request.target, selector=selector, args=args, kwargs=kwargs or {}, write=write
        )
        message = _said(request.target, selector, args, kwargs, write=write)
        await self._submit(request, brief, {**message, **_options(request), "may_ask": may_ask}, client, first)

    async def _teach(self, request: schemas.TeachRequest, client: Recipient) -> None:
        """A lesson is a message, `learn_`. Its examples are kept with its acceptance: of one that is not accepted nothing is."""
        pupil = self._image.read(history.resolve, request.target)
        told = [{**one.model_dump(exclude_defaults=True), "result": one.result} for one in request.examples]
        lesson = lessons.Lesson(request.id, history.oid_of(pupil) or "", request.selector, told, request.intent)
        begin = functools.partial(lessons.begin, lesson=lesson, limit=SynthesisLimits.of(self._scheduler.settings).examples)
        options = {**_said(request.target, "learn_", [request.selector]), **lesson.options(), **_options(request)}
        await self._submit(request, f"teach {request.target} {request.selector}", options, client, begin)

    async def _submit(
        self,
        request: schemas.SubmitRequest | _Message,
        brief: str,
        options: Reply,
        client: Recipient,
        first: Callable[[Any], object] | None = None,
    ) -> None:
        # Heard from before the acceptance on, so that nothing is missed; passed on after `accepted`.
        watched = request.watch and (request.id, client) in self._watches
        watch = self._watches.open(request.id, client) if request.watch else None
        try:
            new, given = await self._scheduler.submit(request.id, brief, {**options, "origin": client.origin}, first)
        except BaseException:
            if watch is not None and not watched:
                watch.stop()
            raise
        accepted: Reply = {
            "type": "accepted",
            "id": request.id,
            "state": given["state"] if new else self._state(request.id, given["state"]),
        }
        if not new:
            accepted["duplicate"] = True
            accepted.update(_outcome(given))
        client.send(accepted)
        if watch is None:
            return
        if given["state"] in ledger.FINAL:
            watch.stop()
            client.send(_final(given))
        else:
            watch.release()

    async def _follow(self, id: str, client: Recipient) -> None:
        known = self._record(id)
        if known["state"] in ledger.FINAL:
            await self._image.barrier()
            client.send(_final(known))
            return
        watched = (id, client) in self._watches
        watch = self._watches.open(id, client)
        try:
            status = self._status(id)
            await self._image.barrier()
        except BaseException:
            if not watched:
                watch.stop()
            raise
        client.send(status)
        watch.release()

    async def _result(self, id: str, wait_s: float) -> Reply:
        known = self._record(id)
        if known["state"] in ledger.FINAL:
            return _final(known)
        if wait_s > 0:
            ended: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
            stop = self._events.watch(id, lambda event: None if event["type"] != "result" or ended.done() else ended.set_result(event))
            try:
                async with asyncio.timeout(wait_s):
                    return await ended
            except TimeoutError:
                pass
            finally:
                stop()
        return self._status(id)

    async def _steered(self, id: str, steer: Callable[[str], Awaitable[object]]) -> Reply:
        """Where a mission stands after it was cancelled, paused or let go on; `already` says that it had ended before, and stays so."""
        already = self._record(id)["state"] in ledger.FINAL
        await steer(id)
        return self._status(id) | ({"already": True} if already else {})

    def _status(self, id: str) -> Reply:
        known = self._record(id)
        facts = {name: known[name] for name in _FACTS}
        if known["result"] and not facts["persona"]:
            facts["persona"] = str(known["result"].get("persona") or "").lower() or None
        live = {} if known["state"] in ledger.FINAL else self._scheduler.live(id)
        facts |= {name: known[name] for name in ("context", "questions", "rating", "undone", "images") if known[name]}
        if (route := self._image.read(journal.route_of, id)) is not None:
            facts["routing"] = json.loads(route)
        if provided := self._image.read(journal.provided_of, id):
            facts["provided"] = {name: provided[name] for name in PROVIDED if provided.get(name) not in (None, "")}
        state = self._state(id, known["state"])
        return {"type": "status", "id": id, "state": state, **facts, **live, **_outcome(known)}

    async def _seen(self, at: Moment | None, look: Callable[..., Reply], target: str | None) -> Reply:
        """The past is looked at in a thread: nothing of it is loaded yet."""
        return look(target) if at is None else await answering(look, target, at)

    def _record(self, id: str) -> Reply:
        return self._image.read(ledger.record_of, id)  # type: ignore[no-any-return]

    def _state(self, id: str, recorded: str) -> str:
        return recorded if recorded in ledger.FINAL else self._scheduler.state(id) or recorded

    # --- models

    async def _tell_of_models(self, request: schemas.ModelsRequest, client: Recipient) -> None:
        """The list; watched, the list as it is at first, then events, then the list at the end."""
        if request.use is not None or request.fit:
            done = await self._models.fit(request.names) if request.use is None else await self._models.use(request.use)
            client.send({"type": "models", **done})
            return
        stop = None
        await self._models.refresh()
        if request.watch:
            client.send({"type": "models", "watching": True, **self._models.describe(request.names)})
            if client in self._models_watched:
                return  # asked for twice, it stays one watch
            self._models_watched.add(client)
            stop = self._models.watch(lambda event: client.send(event, event=True))
        try:
            if request.watch and not request.ensure:
                await self._models.settled()
            found = await self._models.ensure(request.names) if request.ensure else self._models.describe(request.names)
        finally:
            if stop is not None:
                stop()
                self._models_watched.discard(client)
        client.send({"type": "models", **found})

    # --- memory

    async def _ingest(self, request: schemas.IngestRequest, client: Recipient) -> None:
        """The number of files; watched, what becomes of each, and the figures at the end."""
        watched = (client, request.ref)
        asked, queued = self._ingests_watched.get(watched, (None, 0))
        if asked == request:  # again after a silence, in which one file takes long: it stays one watch, and no file is read again
            client.send({"type": "ingest", "watching": True, "queued": queued})
            return
        ingest = await self._memory.ask(request.paths, request.follow, request.exclude)
        if not request.watch:
            ingest.close()
            more = {name: facts for name, facts in (("refused", ingest.refused), ("left_out", ingest.left_out)) if facts}
            client.send({"type": "ingest", "queued": len(ingest.files), **more})
            return
        client.send({"type": "ingest", "watching": True, "queued": len(ingest.files)})
        if watched in self._ingests_watched:
            ingest.close()
            return
        self._ingests_watched[watched] = request, len(ingest.files)
        try:
            client.send({"type": "ingest", **await ingest.done(lambda event: client.send({"type": "file", **event}, event=True))})
        finally:
            del self._ingests_watched[watched]


def _said(target: str, selector: str, args: list[Any], kwargs: Reply | None = None, *, write: bool = False) -> Reply:
    """A message as a mission holds it."""
    told = {"target": target, "selector": selector, "args": args, "kwargs": kwargs or {}}
    return {"message": json.dumps({**told, **({"write": True} if write else {})})}


def _options(request: schemas.SubmitRequest | _Message) -> Reply:
    return {"priority": request.priority, "deadline_s": request.deadline_s}


def _outcome(known: Reply) -> Reply:
    told = {name: known[name] for name in ("result", "error") if known[name] is not None}
    return {**told, "folded": True} if known.get("folded") else told


def _final(known: Reply) -> Reply:
    return {"type": "result", "id": known["id"], "state": known["state"], **_outcome(known)}
