"""Requests about tools: connections, grants, and the effects of missions."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from batos.api.dispatcher import handles
from batos.errors import InvalidInput
from batos.image import effects, ledger
from batos.image import grants as image_grants
from batos.image.effects import AGAIN, ENDED, EffectRecord
from batos.image.grants import CurrentGrant, GrantRecord
from batos.image.living_image import LivingImage
from batos.missions.scheduler import Scheduler
from batos.objects import Root
from batos.tools import connections, grants, known_places, operation_messages
from batos.tools.connections import PinnedConnection
from batos.tools.definitions import ConnectionSpec, ToolDefinition, secrets_in
from batos.tools.effects import asks_about
from batos.tools.known_places import KnownPlace
from batos.tools.toolbox import Toolbox
from batos.wire import schemas
from batos.wire.outbox import Recipient

log = structlog.get_logger("batos.tools")
Reply = dict[str, Any]
LIST_CHARS = 400
"""Characters of arguments and results in a list of effects."""
DEFINITIONS_BYTES = 512 << 10
"""Bytes of definitions in a reply about one connection."""
CHANGES_CHARS = 64 << 10
"""Characters of what changed in a reply about one connection."""
_LONG = ("description", "parameters", "result")
MISSION_CHARS = 4000
"""Characters of arguments and results in the effects of one mission."""


class ToolRequests:
    """Handlers of the requests about connections."""

    def __init__(self, image: LivingImage, toolbox: Toolbox, resume: Callable[[], Awaitable[None]]) -> None:
        """
        :param resume: lets an image act again that was copied, restored or replaced.
        """
        self._image, self._toolbox, self._resume = image, toolbox, resume

    @handles(schemas.ToolsRequest)
    async def tools(self, request: schemas.ToolsRequest, client: Recipient) -> Reply:
        """Return the connections, or one of them whole.

        :raises UnknownTool: if there is none of that name.
        """
        if request.name is None:
            return self._listed()
        name, _, tool = request.name.partition(".")
        held = self._toolbox.connection(name)
        if not tool:
            return self._whole(held)
        return self._whole(held, operation_messages.tool_named(held, tool))

    @handles(schemas.ToolAddRequest)
    async def add(self, request: schemas.ToolAddRequest, client: Recipient) -> Reply:
        """Add a connection."""
        spec = ConnectionSpec(request.name, request.kind, request.place, request.options, request.on or "")
        return self._whole(await self._toolbox.add(spec))

    @handles(schemas.ToolDescribeRequest)
    async def describe(self, request: schemas.ToolDescribeRequest, client: Recipient) -> Reply:
        """Read a description that is not a schema."""
        from batos.tools import descriptions  # late: it loads connectors
        from batos.tools.description_form import to_json

        services = self._toolbox.services
        if request.kind == "usage":
            read = await descriptions.of_program(request.source, request.options, services)
        else:
            read = await descriptions.of_document(request.source, services)
        told = {"form": None if read.form is None else to_json(read.form), "text": read.text, "notes": list(read.notes)}
        return {"type": "tool_description", "kind": request.kind, "by": "rule" if read.form is not None else "", **told}

    @handles(schemas.ToolTestRequest)
    async def test(self, request: schemas.ToolTestRequest, client: Recipient) -> Reply:
        """Ask a connection's place for its tools anew."""
        return self._whole(await self._toolbox.test(request.name))

    @handles(schemas.ToolAcceptRequest)
    async def accept(self, request: schemas.ToolAcceptRequest, client: Recipient) -> Reply:
        """Pin the tools of a connection as they are offered now."""
        return self._whole(await self._toolbox.accept(request.name))

    @handles(schemas.ToolRemoveRequest)
    async def remove(self, request: schemas.ToolRemoveRequest, client: Recipient) -> Reply:
        """Remove a connection."""
        await self._toolbox.remove(request.name)
        return self._listed()

    @handles(schemas.ToolOfferRequest)
    async def offer(self, request: schemas.ToolOfferRequest, client: Recipient) -> Reply:
        """List a place that may be proposed."""
        spec = ConnectionSpec(request.name, request.kind, request.place, request.options)
        await self._image.system(known_places.offer, KnownPlace(spec, request.line, known_places.LISTED), mission="operator")
        log.info("place_offered", name=request.name, kind=request.kind)
        return self._offered()

    @handles(schemas.ToolOffersRequest)
    async def offers(self, request: schemas.ToolOffersRequest, client: Recipient) -> Reply:
        """Return the places that may be proposed."""
        return self._offered()

    @handles(schemas.ToolWithdrawRequest)
    async def withdraw(self, request: schemas.ToolWithdrawRequest, client: Recipient) -> Reply:
        """Take a place off the list."""
        await self._image.system(known_places.withdraw, request.name, mission="operator")
        log.info("place_withdrawn", name=request.name)
        return self._offered()

    def _offered(self) -> Reply:
        return {"type": "tool_offers", "offers": [one.to_wire() for one in self._image.read(known_places.listed)]}

    @handles(schemas.ToolsResumeRequest)
    async def resume(self, request: schemas.ToolsResumeRequest, client: Recipient) -> Reply:
        """Let an image act again that was copied, restored or replaced."""
        await self._resume()
        return self._listed()

    def _listed(self) -> Reply:
        table = self._image.read(image_grants.all_grants, time.time())
        open_names = self._toolbox.open_names()
        return {
            "type": "tools",
            "connections": [
                {
                    **_facts(held),
                    "open": name in open_names,
                    "tools": [_line(held, tool, table) for tool in held.tools],
                    "missing": self._missing(held),
                }
                for name, held in self._toolbox.connections().items()
            ],
            "tied": self._toolbox.tied(),
            "in_doubt": len(self._image.read(effects.in_doubt)),
        }

    def _whole(self, held: PinnedConnection, only: ToolDefinition | None = None) -> Reply:
        table = self._image.read(image_grants.all_grants, time.time())
        told = _definitions(held, table) if only is None else [{**_line(held, only, table), **_definition(held, only)}]
        if only is not None and (message := self._image.read(_message, held.spec.name, only)):
            told[0]["message"] = message
        return {
            "type": "tools",
            "connections": [
                {
                    **_facts(held),
                    "open": held.spec.name in self._toolbox.open_names(),
                    "options": dict(held.spec.options),
                    "tools": told,
                    "changes": held.changes if len(held.changes) <= CHANGES_CHARS else f"{held.changes[: CHANGES_CHARS - 1]}…",
                    **({"notes": list(held.notes)} if held.notes else {}),
                    "missing": self._missing(held),
                }
            ],
            "tied": self._toolbox.tied(),
            "in_doubt": len(self._image.read(effects.in_doubt)),
        }

    def _missing(self, held: PinnedConnection) -> list[str]:
        """Return the names of the secrets that a connection needs and that are not set."""
        return [name for name in secrets_in(held.spec) if not self._has_secret(name)]

    def _has_secret(self, name: str) -> bool:
        try:
            self._toolbox.services.secret(name)
        except InvalidInput:
            return False
        return True


class GrantRequests:
    """Handlers of the requests about grants."""

    def __init__(self, image: LivingImage) -> None:
        self._image = image

    @handles(schemas.ToolGrantsRequest)
    async def listed(self, request: schemas.ToolGrantsRequest, client: Recipient) -> Reply:
        """Return the grants, each with its use today."""
        return {"type": "tool_grants", "grants": [_grant(held) for held in self._image.read(image_grants.all_grants, time.time())]}

    @handles(schemas.ToolGrantRequest)
    async def grant(self, request: schemas.ToolGrantRequest, client: Recipient) -> Reply:
        """Add a grant.

        :raises InvalidInput: if a part of it is not valid.
        :raises UnknownMission: if it is for a mission that is not there.
        """
        now = time.time()
        wanted = grants.checked(
            GrantRecord(
                0,
                request.verdict,
                request.pattern,
                persona=(request.persona or "").strip().lower(),
                mission=request.of_mission or "",
                args=request.args,
                until=0.0 if request.until is None else grants.parse_until(request.until, now),
                uses=request.uses or 0,
                bytes=request.bytes or 0,
                leaks=request.leaks,
                system=request.system,
            )
        )
        if wanted.mission:
            self._image.read(ledger.require, wanted.mission)
        made = await self._image.system(image_grants.add, wanted, now, mission="operator")
        log.info("granted", number=made.id, grant=grants.describe(made))
        personas = self._image.read(lambda root: list(root["lobby"]._slots.get("personas", ())))
        hints = grants.hints(made, self._image.read(connections.load), personas)
        told = [held for held in self._told() if held["number"] == made.id]
        return {"type": "tool_grants", "grants": told, **({"hints": hints} if hints else {})}

    @handles(schemas.ToolUngrantRequest)
    async def ungrant(self, request: schemas.ToolUngrantRequest, client: Recipient) -> Reply:
        """Remove a grant; return those that are left."""
        removed = await self._image.system(image_grants.remove, request.number, mission="operator")
        log.info("grant_removed", number=removed.id, grant=grants.describe(removed))
        return {"type": "tool_grants", "grants": self._told()}

    def _told(self) -> list[Reply]:
        return [_grant(held) for held in self._image.read(image_grants.all_grants, time.time())]


class EffectRequests:
    """Handlers of the requests about what missions did outside."""

    def __init__(self, image: LivingImage, scheduler: Scheduler) -> None:
        self._image, self._scheduler = image, scheduler

    @handles(schemas.EffectsRequest)
    async def effects(self, request: schemas.EffectsRequest, client: Recipient) -> Reply:
        """Return the effects of all missions, the newest first, or of one, in their order.

        :raises UnknownMission: if there is no mission of that id.
        """
        if (mission := request.of_mission) is not None:
            self._image.read(ledger.require, mission)
            found = [(mission, record) for record in self._image.read(effects.load, mission)]
            if request.doubt:
                found = [(of, record) for of, record in found if record.state not in ENDED]
            found = found[-request.limit :]
        elif request.doubt:
            found = sorted(self._image.read(effects.in_doubt), key=lambda one: -one[1].at)[: request.limit]
        else:
            found = self._image.read(lambda root: list(effects.recent(root, request.limit)))
        chars = LIST_CHARS if mission is None else MISSION_CHARS
        return {"type": "effects", "effects": [_effect(of, record, chars) for of, record in found]}

    @handles(schemas.EffectSettleRequest)
    async def settle(self, request: schemas.EffectSettleRequest, client: Recipient) -> Reply:
        """Settle an effect in doubt: by the answer to its mission's question where that waits, else in the image.

        :raises InvalidInput: if no effect of that key is in doubt, its mission is at it now, or has ended and cannot do it again.
        """
        mission, record = self._doubted(request.key)
        held = self._image.read(ledger.record_of, mission)
        question = held.open_question
        if not held.is_final and question is not None and asks_about(question["question"], record.key):
            await self._scheduler.answer(mission, request.how, question["number"], may_grant=True)
            return {"type": "effects", "effects": [{**_effect(mission, record, LIST_CHARS), "settled": request.how}]}
        if self._scheduler.live(mission).get("running"):
            raise InvalidInput(f"mission {mission!r} is at the effect {record.key[:8]} now, and asks if it cannot tell what became of it")
        if held.is_final and request.how == AGAIN:
            raise InvalidInput(
                f"mission {mission!r} is {held.state} and does nothing again; say `happened` or `leave`, and give another mission"
            )
        settled = await self._image.system(effects.settle, record.key, request.how, "its user", record, mission="operator")
        log.info("effect_settled", key=record.key, mission=mission, how=request.how)
        return {"type": "effects", "effects": [{**_effect(mission, settled, LIST_CHARS), "settled": request.how}]}

    def _doubted(self, key: str) -> tuple[str, EffectRecord]:
        open_ones = self._image.read(effects.in_doubt)
        found = [one for one in open_ones if one[1].key.startswith(key)]
        if len(found) == 1:
            return found[0]
        there = ", ".join(record.key[:8] for _, record in open_ones[:5]) or "none"
        which = "more than one effect" if found else "no effect"
        raise InvalidInput(f"{which} of the key {key!r} is in doubt; in doubt are: {there}; `batos effects --doubt` shows them")


def _facts(held: PinnedConnection) -> Reply:
    spec = held.spec
    facts = {"name": spec.name, "kind": spec.kind, "place": spec.place, "suspended": [tool.name for tool in held.suspended]}
    return {**facts, "on": spec.on} if spec.on else facts


def _line(held: PinnedConnection, tool: ToolDefinition, table: list[CurrentGrant]) -> Reply:
    """Return one tool, with what the grants say of a call by a mission of its user's, whatever its arguments."""
    asked = grants.ToolRequest(connection=held.spec.name, tool=tool, arguments={}, mission="", now=time.time())
    suspended = any(one.name == tool.name for one in held.suspended)
    verdict = "suspended" if suspended else grants.decide(table, asked).verdict
    return {"name": tool.name, "class": tool.kind, "verdict": verdict, "line": tool.line()}


def _definitions(held: PinnedConnection, table: list[CurrentGrant]) -> list[Reply]:
    """Return the tools of a connection with their definitions, as far as a reply has room; a request for its name gets each whole."""
    found, left = [], DEFINITIONS_BYTES
    for tool in held.tools:
        whole = {**_line(held, tool, table), **_definition(held, tool)}
        left -= len(json.dumps(whole, ensure_ascii=False).encode("utf-8", "replace"))
        found.append(whole if left >= 0 else {name: value for name, value in whole.items() if name not in _LONG} | {"cut": True})
    return found


def _message(root: Root, name: str, tool: ToolDefinition) -> str:
    return operation_messages.message_of(root["lobby"].tools._slots[name], tool)


def _definition(held: PinnedConnection, tool: ToolDefinition) -> Reply:
    told = {name: value for name, value in tool.to_wire().items() if name not in ("kind", "details")}
    told |= operation_messages.request_of(held.spec, tool)
    claims = tool.details.get("annotations") or {}
    return {**told, "says_reads": True} if claims.get("readOnlyHint") else told


def _grant(held: CurrentGrant) -> Reply:
    grant, use = held
    facts = {name: value for name, value in grant._asdict().items() if name != "id" and value not in ("", 0, False)}
    return {
        "number": grant.id, **facts, "used": {"uses": use.uses, "bytes": use.bytes}, "text": grants.describe(held),
        "expired": image_grants.has_expired(grant, time.time()),
    }  # fmt: skip


def _effect(mission: str, record: EffectRecord, chars: int) -> Reply:
    return {"mission": mission, **effects.to_wire(record, chars=chars)}
