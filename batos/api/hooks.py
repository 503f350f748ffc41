"""Requests about hooks, and deliveries to them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import structlog

from batos.api.dispatcher import handles
from batos.concurrency import in_helper
from batos.config import Settings
from batos.errors import BatosError
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.mind.router import Router
from batos.missions.scheduler import Scheduler
from batos.objects import Root
from batos.tools.secrets import SECRETS_FILE, SecretStore
from batos.triggers import hooks
from batos.triggers.deliveries import Deliveries, HookLimits
from batos.triggers.hooks import HOOKS, HookSpec, KeptHook, secret_name
from batos.triggers.register import MissionTerms, outcome
from batos.triggers.signatures import HookDelivery, new_secret
from batos.triggers.templates import fields_of
from batos.wire import schemas
from batos.wire.outbox import Recipient

log = structlog.get_logger("batos.hooks")
Reply = dict[str, Any]
_LISTED_CHARS = 200


class HookRequests:
    """Handlers of the requests about hooks."""

    def __init__(self, image: LivingImage, scheduler: Scheduler, router: Router, settings: Settings) -> None:
        self._image, self._scheduler, self._router = image, scheduler, router
        self._secrets = SecretStore(settings.data / SECRETS_FILE)
        self._deliveries = Deliveries(image, scheduler.submit, self._secrets, HookLimits.of(settings), settings.missions.brief_bytes)
        self._adding = asyncio.Lock()

    @handles(schemas.HooksRequest)
    async def listed(self, request: schemas.HooksRequest, client: Recipient) -> Reply:
        """Return the hooks by name, or one of them whole.

        :raises InvalidInput: if there is none of that name.
        """
        secrets = await self._secrets_set()
        if request.name is not None:
            return self._told(self._image.read(hooks.load, request.name), secrets)
        return {"type": "hooks", "hooks": self._image.read(self._lines, secrets)}

    @handles(schemas.HookAddRequest)
    async def add(self, request: schemas.HookAddRequest, client: Recipient) -> Reply:
        """Add a hook; return it with its secret: that which its user has set for it, or a new one. One that says the same is returned as
        it is.

        :raises InvalidInput: if a part of it is not valid.
        """
        persona = self._router.known(request.persona) if request.persona else ""
        terms = MissionTerms(persona, request.depth or "", request.priority)
        hosts = tuple(host.lower() for host in request.hosts)
        spec = HookSpec(request.name, request.brief, terms, request.rate, hosts, tuple(request.when))
        async with self._adding:  # a client that hears nothing sends its request again
            known = spec.name in await self._secrets_set()
            # Before the hook is: a secret without a hook opens nothing.
            secret = await (in_helper(self._secrets.get, secret_name(spec.name)) if known else self._rolled(spec.name))
            try:
                held = await self._image.system(hooks.add, spec, mission="operator")
            except BatosError:
                if not known:
                    await in_helper(self._secrets.remove, secret_name(spec.name))
                raise
        log.info("hook_added", name=spec.name)
        return {**self._told(held, {spec.name}), "secret": secret}

    @handles(schemas.HookPauseRequest)
    async def pause(self, request: schemas.HookPauseRequest, client: Recipient) -> Reply:
        """Pause a hook; return it."""
        return await self._set_paused(request.name, paused=True)

    @handles(schemas.HookResumeRequest)
    async def resume(self, request: schemas.HookResumeRequest, client: Recipient) -> Reply:
        """Let a hook go on; return it."""
        return await self._set_paused(request.name, paused=False)

    @handles(schemas.HookRemoveRequest)
    async def remove(self, request: schemas.HookRemoveRequest, client: Recipient) -> Reply:
        """Remove a hook and its secret; return those that are left."""
        await self._image.system(HOOKS.remove, request.name, mission="operator")
        secrets = await self._secrets_set()
        if request.name in secrets:
            await in_helper(self._secrets.remove, secret_name(request.name))
        log.info("hook_removed", name=request.name)
        return {"type": "hooks", "hooks": self._image.read(self._lines, secrets)}

    @handles(schemas.HookRollRequest)
    async def roll(self, request: schemas.HookRollRequest, client: Recipient) -> Reply:
        """Give a hook another secret; return it with that."""
        held = self._image.read(hooks.load, request.name)
        secret = await self._rolled(request.name)
        log.info("hook_rolled", name=request.name)
        return {**self._told(held, {request.name}), "secret": secret}

    @handles(schemas.HookDeliverRequest)
    async def deliver(self, request: schemas.HookDeliverRequest, client: Recipient) -> Reply:
        """Take a delivery in; return its mission, or why it became none.

        :raises HookRefused: if nothing proves that it knows the hook's secret.
        """
        delivery = HookDelivery(request.name, base64.b64decode(request.body), request.kind, request.headers, request.token)
        taken = await self._deliveries.take(delivery)
        if not taken.mission:
            return {"type": "hook_deliver", "hook": request.name, "id": None, "why": taken.why}
        told = {"type": "hook_deliver", "hook": request.name, "id": taken.mission, "state": self._state(taken.mission)}
        return {**told, "duplicate": True} if taken.known else told

    async def _set_paused(self, name: str, *, paused: bool) -> Reply:
        held = await self._image.system(hooks.set_paused, name, paused, mission="operator")
        return self._told(held, await self._secrets_set())

    async def _rolled(self, name: str) -> str:
        """Give a hook a new secret; return it."""
        secret = new_secret()
        await in_helper(self._secrets.set, secret_name(name), secret)
        return secret

    async def _secrets_set(self) -> set[str]:
        """Return the names of hooks that have a secret."""
        prefix = secret_name("")
        return {one.name.removeprefix(prefix) for one in await in_helper(self._secrets.list) if one.name.startswith(prefix)}

    def _told(self, held: KeptHook, secrets: set[str]) -> Reply:
        """Return one hook, whole."""
        told = self._line(held, secrets)
        runs = [{"id": run.mission, "at": run.at, "state": self._state(run.mission)} for run in reversed(held.runs)]
        return {"type": "hooks", "hooks": [{**told, "brief": held.spec.brief, "runs": runs}]}

    def _lines(self, root: Root, secrets: set[str]) -> list[Reply]:
        return [self._line(hooks.load(root, name), secrets) for name in HOOKS.names(root)]

    def _line(self, held: KeptHook, secrets: set[str]) -> Reply:
        spec, last = held.spec, held.runs[-1] if held.runs else None
        return {
            "name": spec.name,
            "path": f"/hooks/{spec.name}",
            "brief": spec.brief[:_LISTED_CHARS],
            "fields": fields_of(spec.brief),
            "persona": spec.terms.persona or None,
            "depth": spec.terms.depth or None,
            "priority": spec.terms.priority,
            "rate": spec.rate,
            "hosts": list(spec.hosts),
            "when": list(spec.when),
            "last": None if last is None else {"id": last.mission, "at": last.at, "state": self._state(last.mission)},
            "paused": held.paused,
            "has_secret": spec.name in secrets,
        }

    def _state(self, mission: str) -> str:
        recorded = self._image.read(outcome, mission)[0]
        return recorded if recorded in ledger.FINAL else self._scheduler.state(mission) or recorded
