"""The client of a BAT OS daemon: `Client`, an async context manager.

    async with Client() as batos:
        accepted = await batos.submit("Plan a birthday party for a cat lover on a budget")
        async for event in batos.watch(accepted.id):
            print(event)

Every request carries a `ref`, so several requests can be open at once. A request without an answer is sent again. The client gives a
mission its id, and the daemon accepts each id once. Neither a lost message nor a restarted daemon makes two missions of one. `Operating`
holds the requests about the daemon itself (facts, metrics, methods). `image_bytes` reads the images that a client attaches.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import math
import os
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from batos.config import MIB
from batos.errors import Busy, MissionFailed, MissionPending, UnknownPicture, Unreadable, from_wire
from batos.wire.compare_client import Comparing
from batos.wire.connection import MESSAGE_BYTES
from batos.wire.fields import IMAGE_NAME_CHARS, WAIT_S_LIMIT
from batos.wire.notice_client import Noticing
from batos.wire.step_client import StepClient


class Operating(Comparing, Noticing, StepClient):
    """Part of `batos.wire.client.Client` for the operator of a daemon."""

    async def info(self) -> dict[str, Any]:
        """Return the daemon's facts about itself."""
        return await self._ask("info")

    async def metrics(self) -> dict[str, Any]:
        """Return the Prometheus metrics as data: `metrics`, each with `name`, `kind`, `help` and `samples`."""
        return await self._ask("metrics")

    async def method(self, target: str, selector: str, at: float | str | None = None) -> dict[str, Any]:
        """Return the method of an object under a selector: `kind`, `versions` (newest first), `examples`, `intent`.

        :param at: the moment, as in `show`.
        :raises InvalidInput: if the object has nothing under that selector.
        """
        return await self._ask("method", target=target, selector=selector, at=at)

    async def methods(self, target: str | None = None, at: float | str | None = None) -> dict[str, Any]:
        """Return the generated methods that the object `target` holds itself (default: all of the image); `at` as in `show`."""
        return await self._ask("methods", target=target, at=at)

    async def missions(
        self,
        state: str | None = None,
        limit: int | None = None,
        at: float | str | None = None,
        *,
        before: str | None = None,
        words: str | None = None,
        system: bool | None = None,
    ) -> dict[str, Any]:
        """Return the missions that the daemon knows, newest first: all, or those in `state`; `at` as in `show`.

        :param before: list only missions accepted before the mission of this id.
        :param words: list only missions whose brief has all of these words, or whose id begins with them.
        :param system: False leaves out system missions.
        """
        return await self._ask("missions", state=state, limit=limit, at=at, before=before, words=words, system=system)

    async def failures(
        self,
        id: str | None = None,
        *,
        code: str | None = None,
        selector: str | None = None,
        limit: int | None = None,
        at: float | str | None = None,
    ) -> dict[str, Any]:
        """Return the failed attempts, newest first: all, or those of one mission, one error code or cause, or one selector."""
        return await self._ask("failures", id=id, code=code, selector=selector, limit=limit, at=at)


ImageFile = str | os.PathLike[str] | bytes
"""The path of an image file, or its bytes."""
LIMIT = 128 * MIB  # the most that any daemon accepts; a larger file is not read


def image_bytes(image: ImageFile) -> tuple[bytes, str]:
    """Return the content of an image file, and its name.

    :raises Unreadable: if the file is missing, unreadable, empty or larger than any daemon accepts.
    """
    if isinstance(image, bytes):
        data, name, what = image, "", "the image"
    else:
        path = Path(image).expanduser()
        name, what = path.name, f"the image {os.fspath(image)!r}"
        try:
            with path.open("rb") as file:
                data = file.read(LIMIT + 1)
        except (OSError, ValueError) as e:  # ValueError: the path contains a zero byte
            raise Unreadable(f"{what} cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if not data:
        raise Unreadable(f"{what} is empty")
    if len(data) > LIMIT:
        raise Unreadable(f"{what} is larger than {LIMIT // MIB} MiB, which no daemon takes; save it smaller")
    return data, name


__all__ = ["LONG_S", "MESSAGE_BYTES", "Accepted", "Client"]

Options = Mapping[str, Any] | None
CONNECT_S = 90.0
"""Seconds that a client waits for a connection to say what it offers."""
LONG_S = 3600.0  # seconds for operations whose time grows with the size of the image
_BUSY_PAUSE_S = 1.0
_KEEPING_S = 30.0  # seconds for a daemon to write an upload to a slow disk
_BESIDE_DATA = 512  # bytes of a message besides its data


@dataclass(frozen=True, slots=True)
class Accepted:
    """A mission that the daemon has on disk. `duplicate`: the daemon had accepted it before; then `result` or `error` may be set."""

    id: str
    state: str
    duplicate: bool = False
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class GrantTerms(TypedDict, total=False):
    """Terms of a grant of tools; each that is left out does not narrow it."""

    persona: str | None
    mission: str | None
    args: str | None
    """constraints of arguments: `path=notes/* mode=r`, or a JSON object"""
    until: str | None
    """a date (`2026-12-31`), a time (`2026-12-31T18:00`), or a span from now on (`2h`, `7d`)"""
    uses: int | None
    """greatest number of uses a day"""
    bytes: int | None
    """greatest number of bytes of payload a day"""
    leaks: bool
    """True: a mission that read untrusted text and private data may act outward without a question"""
    system: bool
    """True: also for missions of the system's own, which may only read"""


class Client(Operating):
    """A connection to a daemon.

    :param endpoint: the daemon's endpoint; default: the one that the settings name, or this user's own (`Connection`).
    :param timeout_s: seconds to wait for an answer, except where a method waits on purpose.
    :param message_bytes: largest message to send, in bytes; give the daemon's limit of that name if it was changed.
    :param keys: the client's keys, for a daemon that asks for keys (`batos.wire.ClientKeys.load`).
    """

    async def submit(  # noqa: PLR0913  each is a field of the wire; none goes by its place
        self,
        brief: str,
        *,
        id: str | None = None,
        persona: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        context: str | None = None,
        schema: dict[str, Any] | None = None,
        may_ask: bool = False,
        depth: str | None = None,
        flavour: str | None = None,
        needs: Sequence[str] = (),
        images: Sequence[ImageFile | Mapping[str, Any]] = (),
        instructions: str = "",
    ) -> Accepted:
        """Give the daemon a mission; it is durable when this returns.

        :param id: the mission's id; default: a new one. The same id with the same brief means the same mission.
        :param context: the mission to follow: the new mission sees its conversation, and begins when it has ended.
        :param schema: JSON schema of the answer; the result's `value` then fits it.
        :param depth: depth of thought: `direct`, `facets` or `council`; default `auto`: by the brief and the model.
        :param flavour: amount of the persona's own flavour in the answer: `full`, `light`, `off`, `auto`.
        :param needs: capabilities that the model must have: `vision`, `tools`, `thinking`, `context:32k`; `auto`: those in the plan.
        :param images: pictures for the brief (PNG, JPEG, WebP): files, their bytes, or results of `upload`.
        :param may_ask: True if the mission may ask its user a question (event `needs_input`); it then waits for `answer`.
        :param instructions: how to answer. Each mission of a conversation has them.
        :raises Unreadable: if a picture cannot be read.
        :raises BatosError: if the daemon refuses the mission (InvalidRequest, MessageTooLarge, Busy, UnknownPersona, MissionIdTaken ...).
        :raises DaemonUnavailable: if no answer came. The daemon may have accepted the mission; submit it again with the same id.
        """
        mission = str(uuid.uuid4()) if id is None else id
        wants: dict[str, Any] = {"context": context, "schema": schema, "may_ask": may_ask or None, "depth": depth, "flavour": flavour}
        wants |= {"needs": list(needs) or None, "instructions": instructions or None}
        wants |= {"persona": persona, "deadline_s": deadline_s, "priority": priority}
        for again in (False, True):
            known = [dict(one) if isinstance(one, Mapping) else await self.upload(one) for one in images]
            named = [{name: one[name] for name in ("digest", "name") if name in one} for one in known]
            try:
                return await self._accept("submit", id=mission, brief=brief, images=named or None, **wants)
            except UnknownPicture:  # the daemon removed the image between upload and submission
                if again:
                    raise
        raise AssertionError("the second time returns or raises")

    async def upload(self, image: ImageFile, name: str | None = None) -> dict[str, Any]:
        """Upload a picture to the daemon, for later missions. It is durable on return, kept for `UploadLimits.hours` without a mission.

        :param image: a file, or its bytes.
        :param name: name to show; default: that of the file.
        :returns: `digest` and `name`, which `submit` accepts, and `type`, `bytes`, `width`, `height`.
        :raises Unreadable: if the file cannot be read.
        :raises InvalidInput: if it is not a picture that models accept.
        :raises MessageTooLarge: if it has more bytes or pixels than the daemon accepts.
        """
        data, called = await asyncio.to_thread(image_bytes, image)
        digest = hashlib.sha256(data).hexdigest()
        reply = await self._ask("upload", digest=digest, bytes=len(data))
        while not reply["whole"]:
            have, most = reply["have"], min(reply["part"], self._part_bytes)
            part = base64.b64encode(data[have : have + most]).decode()
            reply = await self._ask("upload", hold_s=_KEEPING_S, digest=digest, bytes=len(data), offset=have, data=part)
        return {"digest": digest, "name": (called if name is None else name)[-IMAGE_NAME_CHARS:], **reply["image"]}

    @property
    def _part_bytes(self) -> int:
        """Return the number of bytes of an image that fit into one message: base64 makes four bytes of three."""
        return max(3, (self._message_bytes - _BESIDE_DATA) * 3 // 4)

    async def send(
        self,
        target: str,
        selector: str,
        /,
        *args: Any,
        id: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        **kwargs: Any,
    ) -> Accepted:
        """Send a message to the object `target` (path or oid): a mission, whose result holds the answer. Errors as in `submit`.

        For keyword arguments of the message with the same names as options of this method, use `send_message`.
        """
        return await self.send_message(target, selector, args, kwargs, id=id, deadline_s=deadline_s, priority=priority)

    async def send_message(  # noqa: PLR0913  each is a field of the wire
        self,
        target: str,
        selector: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        may_ask: bool = False,
        write: bool = False,
        tools: bool = False,
    ) -> Accepted:
        """Send a message like `send`, with its arguments as a sequence and a mapping: any name may be a keyword.

        :param may_ask: as in `submit`.
        :param write: also write a method for a selector that resembles a known one, and keep it without a rating or an example.
        :param tools: let the method that is written for it use tools.
        """
        mission = str(uuid.uuid4()) if id is None else id
        message: dict[str, Any] = {"target": target, "selector": selector, "args": list(args), "kwargs": dict(kwargs or {})}
        more = {"deadline_s": deadline_s, "priority": priority, "may_ask": may_ask or None, "write": write or None, "tools": tools or None}
        return await self._accept("send", id=mission, **message, **more)

    async def teach(
        self,
        target: str,
        selector: str,
        examples: list[dict[str, Any]],
        *,
        intent: str | None = None,
        tools: bool = False,
        id: str | None = None,
    ) -> Accepted:
        """Teach examples of a message: a mission makes a method that keeps them.

        :param examples: `{"args", "kwargs", "slots", "result", "after"}` each: the arguments of the message, the slots before, the
            result, the slots after. All but `result` may be left out.
        :param intent: the purpose of the message, in words.
        :param tools: let the method use tools.
        """
        mission = str(uuid.uuid4()) if id is None else id
        lesson = {"target": target, "selector": selector, "examples": examples, "intent": intent}
        return await self._accept("teach", id=mission, **lesson, tools=tools or None)

    async def revert(self, target: str, selector: str, version: int | None = None, *, id: str | None = None) -> Accepted:
        """Bring back an earlier version of a method: the one before the newest, or `version`; 0 is the state before the first."""
        mission = str(uuid.uuid4()) if id is None else id
        return await self._accept("revert", id=mission, target=target, selector=selector, version=version)

    async def grant(self, target: str, selector: str, message: str, *, revoke: bool = False, id: str | None = None) -> Accepted:
        """Let the method that answers `selector` send a message that changes more than its receiver. A later version needs another grant.

        :param message: the selector that the method may send, such as `forget_`.
        :param revoke: revoke the grant instead.
        """
        mission = str(uuid.uuid4()) if id is None else id
        return await self._accept("grant", id=mission, target=target, selector=selector, message=message, revoke=revoke or None)

    async def status(self, id: str) -> dict[str, Any]:
        """Return the state of a mission.

        :raises UnknownMission: if there is no mission with that id.
        """
        return await self._ask("status", id=id)

    async def result(self, id: str, wait: bool = True, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the result of the mission: `text`, `value`, `persona`, `usage` and more.

        :param wait: wait for the result, for `timeout_s` seconds, or without a limit by default.
        :raises MissionFailed: (or MissionCancelled, DeadlineExceeded ...) if the mission ended FAILED; `context["code"]` says why.
        :raises MissionPending: if there is no result in that time.
        """
        now = asyncio.get_running_loop().time
        end = None if timeout_s is None else now() + timeout_s
        while True:
            left = 0.0 if not wait else math.inf if end is None else max(0.0, end - now())
            wait_s = round(min(left, WAIT_S_LIMIT, self.timeout_s), 3)  # short waits, so that the client notices a restart
            try:
                reply = await self._ask("result", hold_s=wait_s, id=id, wait_s=wait_s)
            except Busy:
                if left <= _BUSY_PAUSE_S:
                    raise
                await asyncio.sleep(_BUSY_PAUSE_S)
                continue
            if reply.get("type") == "result":
                return _result_of(reply)
            if wait_s >= left:
                raise MissionPending(f"the mission {id} has no result yet: it is {reply.get('state')}", id=id, state=reply.get("state"))

    async def watch(self, id: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of the mission as they happen: first its present state, last its result.

        A watch survives a restart of the daemon that takes less than the timeout; events of that time may be missing. If a reader is
        slow, events are left out, and the next one says how many: `"dropped": N`. The result is never left out.

        :raises UnknownMission: if no mission has that id.
        :raises DaemonUnavailable: if the daemon does not answer any more.
        """
        async with contextlib.aclosing(self._follow("watch", id=id)) as events:
            async for event in events:
                yield event
                if event.get("type") == "result":
                    return

    async def cancel(self, id: str) -> dict[str, Any]:
        """Cancel the mission. It ends FAILED with the code `cancelled`, unless it had ended before. The reply is its status."""
        return await self._ask("cancel", id=id)

    async def pause(self, id: str) -> dict[str, Any]:
        """Pause the mission until `resume`, also across restarts. Its deadline goes on. The reply is its status."""
        return await self._ask("pause", id=id)

    async def resume(self, id: str) -> dict[str, Any]:
        """Resume a paused mission. The reply is its status."""
        return await self._ask("resume", id=id)

    async def answer(self, id: str, text: str, number: int | None = None) -> dict[str, Any]:
        """Answer the mission's question: the open one, or question `number`. The reply is the mission's status.

        :raises InvalidInput: if the mission has no such question, or has another answer to it.
        """
        return await self._ask("answer", id=id, text=text, number=number)

    async def rate(self, id: str, rating: Literal[1, -1], why: str | None = None) -> dict[str, Any]:
        """Rate a mission that has ended. The reply is its status.

        :raises InvalidInput: if the mission has not ended.
        """
        return await self._ask("rate", id=id, rating=rating, why=why)

    async def show(self, target: str, at: float | str | None = None) -> dict[str, Any]:
        """Return the object `target` (path or oid) as it is now, or as it was at a moment.

        :param at: seconds since the epoch, or the id of a transaction (`tid` of `history`), whose writes are included.
        :raises UnknownTarget: if there is no such object.
        :raises HistoryGone: if the moment is no longer kept.
        """
        return await self._ask("show", target=target, at=at)

    async def ls(self, target: str | None = None, at: float | str | None = None) -> dict[str, Any]:
        """Return the slots of the object `target` (default: the lobby): name, kind, oid and a short text of each."""
        return await self._ask("ls", target=target, at=at)

    async def diff(self, target: str, a: float | str, b: float | str | None = None) -> dict[str, Any]:
        """Return the slots of the object `target` that differ between the moments `a` and `b` (default: now); moments as in `show`."""
        return await self._ask("diff", target=target, a=a, b=b)

    async def history(self, target: str, limit: int | None = None) -> dict[str, Any]:
        """Return the revisions of the object `target`, the newest first."""
        return await self._ask("history", target=target, limit=limit)

    async def replay(self, id: str, timeout_s: float = LONG_S, *, prompts: bool = False) -> dict[str, Any]:
        """Replay a finished mission from its journal, without any model: `outcome` is same, different or journal_ended.

        :param prompts: return the prompt of each inference, too.
        """
        return await self._ask("replay", hold_s=timeout_s, id=id, prompts=prompts or None)

    async def undo(
        self,
        id: str,
        *,
        redo: bool = False,
        cascade: bool = False,
        dry: bool = False,
        expect: Sequence[str] | None = None,
        timeout_s: float = LONG_S,
    ) -> dict[str, Any]:
        """Undo a mission's changes to the image; `missions`, `objects` and `documents` list them.

        :param redo: redo what was undone.
        :param cascade: also undo the missions whose work depends on this one.
        :param dry: only report what would be done.
        :param expect: the missions that the user agreed to undo; the daemon refuses if it would undo others.
        :raises UndoConflict: if later work depends on these changes.
        :raises HistoryGone: if the changes are older than the last pack.
        """
        flags = {"redo": redo or None, "cascade": cascade or None, "dry": dry or None}
        return await self._ask("undo", hold_s=timeout_s, id=id, **flags, expect=None if expect is None else list(expect))

    async def changes(self, number: int | None = None, *, state: str | None = None, limit: int | None = None) -> dict[str, Any]:
        """Return the changes that the system proposed or made of its own accord, newest first; with a number, all of that change.

        :param state: list only changes in this state: proposed, refused, promoted, kept, undone or disabled.
        :raises UnknownChange: if no change has that number.
        """
        return await self._ask("changes", number=number, state=state, limit=limit)

    async def undo_change(self, number: int, *, why: str | None = None, dry: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Undo a change that the system made of its own accord; `objects` lists it. The system does not make it again.

        :param why: the reason, kept with the change.
        :param dry: only report what would be done.
        :raises UndoConflict: if later work depends on these changes.
        :raises HistoryGone: if the changes are older than the last pack.
        """
        return await self._ask("undo_change", hold_s=timeout_s, number=number, why=why, dry=dry or None)

    async def fork(self, folder: str, at: float | str | None = None, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Copy the image, as of a moment (as in `show`; default: now), into a folder of the daemon's machine, for another daemon.

        :raises Busy: while the daemon packs, backs up or forks already.
        :raises HistoryGone: if the image no longer holds that moment.
        """
        return await self._ask("fork", hold_s=timeout_s, folder=folder, at=at)

    async def pack(self, days: float | None = None, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Remove the history older than `days`, or than the setting `image.history_days`. Return the sizes before and after.

        :raises Busy: while the daemon packs or backs up already.
        """
        return await self._ask("pack", hold_s=timeout_s, days=days)

    async def backup(self, folder: str | None = None, *, full: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Add a backup to a folder of the daemon's machine, and verify it by restoring it. Return its figures.

        :raises Busy: while the daemon packs or backs up already.
        """
        return await self._ask("backup", hold_s=timeout_s, folder=folder, full=full or None)

    async def models(self, names: Sequence[str] = (), *, ensure: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Return the state of the models, or of those named. With `ensure`, first make or pull the named models that are missing."""
        return await self._ask("models", hold_s=timeout_s if ensure else 0.0, names=list(names) or None, ensure=ensure or None)

    async def use_model(self, name: str, *, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Use a model from now on, also after a restart: a name, a profile (`auto`: the best installed), or `robin=NAME` for one persona.

        In the reply, `model` is the new model, `before` the former one, and `models` the status of all models that it needs.

        :raises InvalidInput: if the model does not exist or is unfit.
        """
        return await self._ask("models", hold_s=timeout_s, use=name)

    async def fit_models(self, names: Sequence[str] = (), *, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Return the models to think with: `fit` lists Ollama's models, with capabilities and memory; `budget` is the memory limit in
        bytes.

        :param names: models to try first.
        """
        return await self._ask("models", hold_s=timeout_s, fit=True, names=list(names) or None)

    async def watch_models(self, names: Sequence[str] = (), *, ensure: bool = False) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the list of models as `models`, then `progress` and `model` events, and the list again at the end."""
        fields = {"names": list(names) or None, "ensure": ensure or None}
        async with contextlib.aclosing(self._follow("models", **fields, watch=True)) as events:
            async for event in events:
                yield event
                if event.get("type") == "models" and not event.get("watching"):
                    return

    async def experts(
        self, *, scan: bool = False, persona: str | None = None, voice: str | None = None, timeout_s: float = LONG_S
    ) -> dict[str, Any]:
        """Return the LoRA experts, the refused folders, and the voice of each persona.

        :param scan: look into the staging folder first, and build new experts.
        :param persona: with `voice`: let `newest`, `plain` or an expert's model speak for it from now on.
        :raises ExpertRefused: if the expert cannot speak.
        """
        return await self._ask("experts", hold_s=timeout_s if scan else 0.0, scan=scan or None, persona=persona, voice=voice)

    async def ingest(self, paths: Sequence[str] = (), *, follow: Sequence[str] = (), exclude: Sequence[str] = ()) -> dict[str, Any]:
        """Read files, and the files of folders, into the memory: absolute paths of the daemon's machine. `queued` is their number.

        They are in the daemon's queue on return, and survive a kill. `refused` has the paths that do not exist.

        :param follow: folders that the daemon watches from now on.
        :param exclude: ignore patterns for folders, as in `.gitignore`; `left_out` counts what they exclude.
        :raises Unreadable: if none of the paths exists.
        """
        return await self._ask("ingest", paths=list(paths) or None, follow=list(follow) or None, exclude=list(exclude) or None)

    async def watch_ingest(
        self, paths: Sequence[str] = (), *, follow: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Ingest like `ingest`. Yield an event `file` for each file, and the figures at the end."""
        fields = {"paths": list(paths) or None, "follow": list(follow) or None, "exclude": list(exclude) or None}
        async with contextlib.aclosing(self._follow("ingest", **fields, watch=True)) as events:
            async for event in events:
                yield event
                if event.get("type") == "ingest" and not event.get("watching"):
                    return

    async def memory(self, documents: int | None = None, **change: str | int) -> dict[str, Any]:
        """Return the content of the memory.

        :param documents: number of documents to list, newest first.
        :param change: `archives`, the number of archives to list, or one change to make first. The change is `forget`, the source of a
            document; `unfollow`, a folder; or `restore`, the number of an archive or the source of a document. Or it is `pin` or `unpin`,
            the source of a document to keep, or a folder.
        :raises UnknownSource: if the memory holds nothing from that source.
        """
        return await self._ask("memory", hold_s=LONG_S if change else 0.0, documents=documents, **change)

    async def curate(self, *, dry: bool = False) -> dict[str, Any]:
        """Have the memory's curator archive old, redundant or excess sections. With `dry`, only list them."""
        return await self._ask("curate", hold_s=LONG_S, dry=dry)

    async def search(
        self,
        question: str,
        k: int = 10,
        *,
        explain: bool = False,
        kind: str | None = None,
        source: str | None = None,
        speaker: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> dict[str, Any]:
        """Return the passages of the memory that answer a question best: `hits`, the best first, each with its source.

        :param k: maximum number of passages.
        :param explain: return also the contribution of each signal to each score, and the links that led to a passage.
        :param kind: only documents of this kind; likewise `source`, a file or folder, and `speaker`.
        :param since: only this day (`2026-05-31`) or later; `until`: this day or earlier.
        """
        fields: dict[str, Any] = {"kind": kind, "source": source, "speaker": speaker, "since": since, "until": until}
        return await self._ask("search", question=question, k=k, explain=explain or None, **fields)

    async def personas(self, *, accept: str | None = None, slot: str | None = None) -> dict[str, Any]:
        """Return the personas: mission, facets and protocols, model, exemplars, and the slots that a new codex did not change.

        :param accept: a persona in which the codex's values first replace the image's own.
        :param slot: replace only this slot; default: all that differ. A deleted persona comes back.
        :raises InvalidInput: if the values do not differ.
        """
        wanted = None if accept is None else {"persona": accept, **({} if slot is None else {"slot": slot})}
        return await self._ask("personas", accept=wanted)

    async def tools(self, name: str | None = None) -> dict[str, Any]:
        """Return the connections with their tools, and why nothing may act, if so; with a name, all of that one.

        :param name: `CONNECTION` or `CONNECTION.TOOL`.
        :raises UnknownTool: if there is none of that name.
        """
        return await self._ask("tools", name=name)

    async def tool_add(
        self, name: str, kind: str, place: str = "", options: Options = None, *, on: str | None = None, timeout_s: float = CONNECT_S
    ) -> dict[str, Any]:
        """Add a connection: its place is asked for its tools, which are pinned. Return it whole.

        :param kind: mcp, openapi, http, folder, program or web.
        :param place: command line, URL, origin or path, by kind; so are the options, see docs/tools.md.
        :param on: machine that it belongs to, where several kernels serve the image; `*`: all; None: by what it reaches.
        :raises ToolFailed: (or EgressFailed, EgressRefused) if the place cannot be reached; nothing was added.
        """
        return await self._ask("tool_add", hold_s=timeout_s, name=name, kind=kind, place=place, options=dict(options or {}) or None, on=on)

    async def tool_describe(
        self, kind: Literal["usage", "text"], source: str, options: Mapping[str, Any] | None = None, *, timeout_s: float = CONNECT_S
    ) -> dict[str, Any]:
        """Read a description without a schema. Return `form`, the operations that rules read, else `text`, for a model that fills the form:
        `send_message("tools", "describe_", ["program" or "http", text])`. Nothing is connected before `tool_add` with the option `form`.

        :param source: of a usage the command of a program; of a text a URL, or an absolute path of a file on the daemon's machine.
        :param options: of a usage: `env`, `without_walls`.
        :raises ToolFailed: (or EgressFailed, EgressRefused) if it cannot be had.
        """
        return await self._ask("tool_describe", hold_s=timeout_s, kind=kind, source=source, options=dict(options or {}) or None)

    async def tool_test(self, name: str, *, timeout_s: float = CONNECT_S) -> dict[str, Any]:
        """Ask a connection's place for its tools anew, and suspend those that changed. Return it whole; `changes` is the difference."""
        return await self._ask("tool_test", hold_s=timeout_s, name=name)

    async def tool_accept(self, name: str) -> dict[str, Any]:
        """Accept the tools of a connection as they are offered now. Return it whole."""
        return await self._ask("tool_accept", name=name)

    async def tool_remove(self, name: str) -> dict[str, Any]:
        """Remove a connection. What was done through it stays done.

        :raises UnknownTool: if there is none of that name.
        """
        return await self._ask("tool_remove", name=name)

    async def tool_offer(
        self, name: str, line: str, kind: str, place: str = "", options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """List a place (as for `tool_add`), with a line on what it does: it is proposed where such a connection is wanted and not there."""
        return await self._ask("tool_offer", name=name, line=line, kind=kind, place=place, options=dict(options or {}) or None)

    async def tool_offers(self) -> dict[str, Any]:
        """Return the places that may be proposed: listed, removed, and those that come with BAT OS."""
        return await self._ask("tool_offers")

    async def tool_withdraw(self, name: str) -> dict[str, Any]:
        """Take a place off the list; a connection that was removed is not proposed any more either. Return the list."""
        return await self._ask("tool_withdraw", name=name)

    async def tools_resume(self) -> dict[str, Any]:
        """Let an image act that was copied, restored or replaced. The reply is that of `tools`."""
        return await self._ask("tools_resume")

    async def tool_grant(self, verdict: Literal["deny", "ask", "allow"], pattern: str, **terms: Unpack[GrantTerms]) -> dict[str, Any]:
        """Allow or deny tools to missions, or have them ask first. Return the grant; one that says the same is returned as it is.

        :param pattern: over `CONNECTION.TOOL`; `*` stands for any characters.
        :param terms: what narrows it (`GrantTerms`).
        """
        told: dict[str, Any] = {name: value for name, value in terms.items() if value not in (None, False)}
        return await self._ask("tool_grant", verdict=verdict, pattern=pattern, **told)

    async def tool_grants(self) -> dict[str, Any]:
        """Return the grants, in the order in which they were made, each with its use today."""
        return await self._ask("tool_grants")

    async def tool_ungrant(self, number: int) -> dict[str, Any]:
        """Remove a grant. What was done by its leave stands.

        :raises InvalidInput: if there is no grant of that number.
        """
        return await self._ask("tool_ungrant", number=number)

    async def effects(self, mission: str | None = None, *, doubt: bool = False, limit: int | None = None) -> dict[str, Any]:
        """Return what missions did outside, the newest first; those that only read, with a mission's id alone.

        :param mission: only effects of this mission, in the order in which they began.
        :param doubt: only those that may have happened.
        """
        return await self._ask("effects", mission=mission, doubt=doubt or None, limit=limit)

    async def effect_settle(self, key: str, how: Literal["happened", "again", "leave"]) -> dict[str, Any]:
        """Say what became of an effect in doubt; a mission that waits for it goes on.

        :param key: of the effect, or its first digits.
        :raises InvalidInput: if no effect of that key is in doubt.
        """
        return await self._ask("effect_settle", key=key, how=how)

    async def _accept(self, op: str, **fields: Any) -> Accepted:
        reply = await self._ask(op, **fields)
        return Accepted(reply["id"], reply["state"], reply.get("duplicate", False), reply.get("result"), reply.get("error"))


def _result_of(reply: dict[str, Any]) -> dict[str, Any]:
    if reply.get("state") == "COMPLETE":
        result: dict[str, Any] = reply["result"]
        return result
    error = from_wire(reply["error"])
    if not isinstance(error, MissionFailed):  # one type to catch, whatever made the mission fail
        error = MissionFailed(error.message, **error.context)
    error.context["code"] = reply["error"]["code"]
    raise error
