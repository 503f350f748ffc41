"""Provision of a mission with a model, if no available model meets its needs.

chosen ─ asked, or allowed ─ begun (a change) ─ pulled ─ probed ─ its personas made ─ kept (one transaction) ─ ready

Each step is durable before the next, and may be repeated. After a kill between two steps, the mission goes on with the same model, asks
its user nothing twice, and pulls only the missing parts. If a model is given up, its download and its personas are deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from transaction.interfaces import TransientError

from batos.autotelic import changes, provided_models
from batos.autotelic.changes import ChangeLimits
from batos.bridge import selection
from batos.bridge.capabilities import Needs
from batos.bridge.catalogue import offers, registry_models
from batos.bridge.downloads import ProvisionLimits
from batos.bridge.model_status import ModelStatus
from batos.bridge.modelfile import tagged
from batos.bus import EventBus, MissionEnded
from batos.config import MIB, Settings
from batos.errors import BatosError, Conflicted, InferenceFailed, InvalidInput, ModelNeeded, ProvisioningFailed
from batos.image import journal
from batos.image.living_image import LivingImage
from batos.mind.events import Event
from batos.mind.model_needs import BEGUN, CHOSEN, DECLINED, READY, Provision
from batos.missions.mission_queue import AttemptLimits

if TYPE_CHECKING:
    from batos.app.inference import ModelRuntime
    from batos.bridge.selection import ModelChoice
    from batos.mind.attempt import Attempt

log = structlog.get_logger("batos")
Record = dict[str, Any]

TRIES = 3
"""Models tried for one mission. A model may lack a capability that it claims."""
MORE = 1.25
"""Largest allowed size of a model, as a multiple of the size that its user has seen. The catalogue may be out of date."""
TOLD_S = 1.0  # seconds between two events of one pull
CANNOT = ("server_error", "refused", "malformed")
"""Causes of a failed inference that show that a model cannot be used here."""


class PullBudget(Protocol):
    """`autotelic.budget.Budget`, as a pull needs it."""

    async def may_pull(self) -> int:
        """Return the bytes that may be pulled now."""

    async def why_no_change(self) -> str:
        """Say why the autotelic loop may not change anything now; empty where it may."""


class _Unfit(Exception):
    """A model was tried and does not meet the needs; the message gives the reason."""


class ModelProvisioning:
    """Provides missions with models; see `batos.mind.model_needs.Provider`. All methods are called on the loop's thread."""

    def __init__(self, settings: Settings, image: LivingImage, substrate: ModelRuntime, budget: PullBudget) -> None:
        self._settings, self._image, self._substrate, self._budget = settings, image, substrate, budget
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._open: set[str] = set()  # missions for which a model is being provided
        self._look = asyncio.Event()
        self._look.set()

    # --- asked by missions

    async def is_met(self, needs: Needs) -> bool:
        """See `Provider`."""
        return await self._substrate.is_met(needs)

    async def is_installed(self, provision: Provision) -> bool:
        """See `Provider`."""
        if not provision.model:
            return True
        if not self._is_wanted(provision.change):
            return False
        async with self._locks[provision.model]:
            return await self._speaks(provision.model)

    async def provide(self, attempt: Attempt, needs: Needs, *, may_do_without: bool) -> Provision:
        """See `Provider`."""
        before = self._image.read(journal.provided_of, attempt.id)
        try:
            return await self._provide(attempt, needs)
        except ModelNeeded as e:
            if not may_do_without:
                raise
            log.info("model_declined", mission=attempt.id, needs=needs.words(), why=e.message)
            declined = (needs | Needs.parse(before.get("declined", ()))).words()
            kept = before if before.get("state") == READY else {"state": DECLINED, "needs": declined, "why": e.message}
            record = {**kept, "declined": declined, "why_not": e.message}
            await self._image.system(journal.set_provided, attempt.id, record, mission=attempt.id)
            return Provision.of(record)

    async def _provide(self, attempt: Attempt, needs: Needs) -> Provision:
        id = attempt.id
        for _ in range(TRIES):
            held = self._image.read(journal.provided_of, id)
            left_out = set(held.get("left_out", ()))
            if held.get("state") == READY and not self._is_wanted(held.get("change")):
                left_out.add(held["model"])
            if held.get("state") not in (CHOSEN, BEGUN) or Needs.parse(held["needs"]) != needs:
                held = await self._choose(id, needs, left_out)
            try:
                async with self._locks[held["model"]]:
                    return await self._install(attempt, needs, held)
            except _Unfit as e:
                log.warning("model_unfit", mission=id, model=held["model"], why=str(e))
                left_out.add(held["model"])
                record = {**_declined(held), "needs": needs.words(), "left_out": sorted(left_out)}
                await self._image.system(journal.set_provided, id, record, mission=id)
        raise ModelNeeded(
            f"mission {id!r} needs a model that {needs.told()}; {TRIES} were tried, and none can: {', '.join(sorted(left_out))}. "
            "Name one that can: `batos models use NAME`",
            needs=needs.words(),
        )

    def _is_wanted(self, number: int | None) -> bool:
        """Return True if a change is in effect and its user has not undone it."""
        return number is None or self._image.read(provided_models.state_of, number) in changes.STANDING

    # --- choosing a model

    async def _choose(self, id: str, needs: Needs, left_out: set[str]) -> Record:
        """Choose a model, and record that.

        :raises ModelNeeded: where none is known that can and fits.
        """
        substrate, room = self._substrate, self._substrate.room
        found = await substrate.here()
        present = next((one for one in found if one.name == tagged(substrate.profile.base)), None)
        choice = selection.with_wider_context(present, needs, room) if present is not None and await substrate.able(needs) else None
        choice = choice or selection.best_installed(found, needs, room, left_out)
        if choice is None:
            choice = await self.choice_for(id, needs, left_out, 0 if present is None else present.can.parameters or 0)
        kept = _declined(self._image.read(journal.provided_of, id))
        record = {**kept, **choice._asdict(), "needs": needs.words(), "state": CHOSEN, "left_out": sorted(left_out)}
        await self._image.system(journal.set_provided, id, record, mission=id)
        log.info("model_chosen", mission=id, needs=needs.words(), model=choice.model or substrate.profile.base, why=choice.why)
        return record

    async def choice_for(self, id: str, needs: Needs, left_out: set[str], least: int) -> ModelChoice:
        settings, room = self._settings, self._substrate.room
        registry = await registry_models(settings.inference.registry) if settings.inference.registry else None
        shipped = await asyncio.to_thread(offers, settings.data)
        offered = [list(registry.offers if registry else ()), shipped]
        first = {tagged(name) for name in settings.autonomy.models} if settings.autonomy.mode == "on" else set()
        choice = selection.best_available(offered, needs, room, least=least, first=first, left_out=left_out)
        if choice is None:
            trouble = f" ({registry.trouble})" if registry and registry.trouble else ""
            raise ModelNeeded(
                f"mission {id!r} needs a model that {needs.told()}, and none here does; "
                f"{selection.why_none_available(offered, needs, room, left_out)}{trouble}. Pull one that does (`ollama pull NAME`), raise "
                "inference.memory_bytes, or name a registry that has one (setting inference.registry), and give the mission again",
                needs=needs.words(),
            )
        return choice

    # --- providing the model

    async def _install(self, attempt: Attempt, needs: Needs, held: Record) -> Provision:
        """Provide the chosen model, from the step that was reached.

        :raises _Unfit: if the model does not meet the needs; then it is deleted.
        """
        model, id = held["model"], attempt.id
        if not model:
            return await self._record_ready(id, needs, held, {})
        number: int | None = held.get("change")
        if number is None:
            there = await self._substrate.models.has(model)
            number = self._image.read(provided_models.standing, model) if there else None
            if number is None:
                by = provided_models.HERE if there else await self._permission(attempt, needs, held)
                terms = (id, held, by, ChangeLimits.of(self._settings).kept, time.time())
                number = await self._image.system(provided_models.begin, *terms, mission=id)
        state = self._image.read(provided_models.state_of, number)
        if state == changes.PROPOSED:
            self._open.add(id)
            await self._make(attempt, needs, held, number)
            self._open.discard(id)
        elif state not in changes.STANDING or not await self._speaks(model):
            raise _taken_back(id, needs, held, number)
        return await self._record_ready(id, needs, {**held, "change": number}, self._substrate.voices_on(model))

    async def _make(self, attempt: Attempt, needs: Needs, held: Record, number: int) -> None:
        """Pull, probe, make personas, and keep all that as a change.

        :raises _Unfit: see `_install`.
        """
        try:
            if self._image.read(provided_models.facts, number)["pulled"]:
                await self._pull(attempt, held, number)
            await self._probe(held, needs)
            voices = [name for name, _ in self._substrate.voices_on(held["model"]).values()]
            await self._image.system(changes.note, number, {"voices": voices})
            if not await self._speaks(held["model"]):
                raise _Unfit(f"no personas can be made on {held['model']}")
            await self._record_change(held, number)
        except InvalidInput:  # its user refused the change meanwhile; the refusal deletes the model
            raise _taken_back(attempt.id, needs, held, number) from None
        except _Unfit as e:
            await self._record_refusal(number, str(e))
            raise
        except ProvisioningFailed as e:
            await self._record_refusal(number, e.message)
            raise

    async def _permission(self, attempt: Attempt, needs: Needs, held: Record) -> str:
        """Return which party permits the pull of a model.

        :raises NeedAnswer: if the mission asks its user.
        :raises ModelNeeded: if no party permits it.
        """
        model = held["model"]
        why_not = await self._why_not_by_itself(held)
        if not why_not:
            return provided_models.ITSELF
        size, memory = _gb(held["bytes"]), _gb(held["memory"])
        agreed = attempt.agrees(
            f"This mission needs a model that {needs.told()}, and none here does. May {model} be pulled for it? It is a download of {size} "
            f"from {held['source']}, and takes {memory} of memory with a context of {held['context']:,} tokens: {held['why']}. "
            "Answer yes, and it is pulled and tried, and the mission goes on with it; any other answer leaves it. "
            "`batos changes undo` takes it back."
        )
        if agreed:
            return provided_models.USER
        said = "its user said no to" if agreed is False else "it may not ask for (`--may-ask`)"
        raise ModelNeeded(
            f"mission {attempt.id!r} needs a model that {needs.told()}, and none here does; {said} {model}, a download of {size} from "
            f"{held['source']}. By itself BAT OS does not pull it: {why_not}. `{_command(model)}` gets it; give the mission again then",
            needs=needs.words(), model=model, bytes=held["bytes"], command=_command(model),
        )  # fmt: skip

    async def _why_not_by_itself(self, held: Record) -> str:
        """Say why a model is not pulled without asking; empty where it may be."""
        settings, model = self._settings, held["model"]
        if settings.autonomy.mode != "on":
            return f"autotelic is {settings.autonomy.mode}"
        if model not in map(tagged, settings.autonomy.models):
            return "autonomy.models does not name it"
        if self._image.read(provided_models.was_undone, model):
            return "its user has taken it back before"
        if (left := await self._budget.may_pull()) < held["bytes"]:
            return f"{_gb(left)} are left of what it may pull in 24 hours (autonomy.pull_bytes)"
        return await self._budget.why_no_change()

    async def _pull(self, attempt: Attempt, held: Record, number: int) -> None:
        """Pull the model; return at once if it is there.

        :raises ProvisioningFailed: if the model cannot be provided.
        :raises InferenceFailed: if no Ollama answers now.
        """
        model, facts = held["model"], self._image.read(provided_models.facts, number)
        most = int(held["bytes"] * MORE) + 64 * MIB
        if facts["by"] == provided_models.ITSELF:  # the budget has already counted the announced size
            most = facts["counted"] + await self._budget.may_pull()

        def begins(layer: str) -> None:
            self._image.later(provided_models.note_layer, number, layer)

        stop = self._substrate.models.watch(_teller(attempt, model))
        try:
            status, came = await self._substrate.models.fetch(model, most, lambda size: None, begins)
        finally:
            stop()
        await self._image.system(changes.note, number, {"bytes": facts["bytes"] + came})
        log.info("model_fetched", change=number, mission=attempt.id, model=model, bytes=came, there=status.ready, why=status.detail)
        if not status.ready:
            raise self._failure(model, status, number)

    def _failure(self, model: str, status: ModelStatus, number: int) -> InferenceFailed:
        if status.state != "failed":
            return InferenceFailed(status.detail, cause=status.cause or "unreachable", model=model)
        if self._image.read(provided_models.state_of, number) != changes.PROPOSED:
            status = ModelStatus(model, "failed", f"its user has refused change {number}", "give the mission again", "stopping")
        return ProvisioningFailed(
            f"the model {model} could not be had: {status.detail}. Remedy: {status.remedy}",
            cause=status.cause, model=model, detail=status.detail, remedy=status.remedy,
        )  # fmt: skip

    async def _probe(self, held: Record, needs: Needs) -> None:
        """Probe the model for the needed capabilities.

        :raises _Unfit: if it lacks one.
        :raises InferenceFailed: if it cannot be probed now.
        """
        model, place = held["model"], self._substrate.places[0]
        options = self._substrate.options_on(held["context"], held["answer"])
        try:
            can = await place.probe(model, needs.probes, options=options)
            if can is not None and (lacks := needs.lacking(can)):
                raise _Unfit(f"it was tried, and is not a model that {lacks.told()}")
            if needs.context and not await place.takes(model, needs.context, options):
                raise _Unfit(f"its Ollama does not give it a context of {needs.context} tokens")
        except InferenceFailed as e:
            if e.cause in CANNOT:
                raise _Unfit(e.message) from e
            raise

    async def _speaks(self, model: str) -> bool:
        """See that the personas' models on `model` are there; False where they cannot be, since it is not there itself.

        :raises InferenceFailed: where no Ollama answers now.
        """
        made = dict(self._substrate.voices_on(model).values())
        statuses = await self._substrate.places[0].provisioner.make(model, made)
        if any(status.state == "waiting" for status in statuses):
            raise InferenceFailed(statuses[0].detail or "Ollama does not answer", cause="unreachable", model=model)
        return all(status.ready for status in statuses)

    async def _record_change(self, held: Record, number: int) -> None:
        """Make the change, in one transaction: from here on the model is what missions that need it are provided with."""
        for _ in range(AttemptLimits.of(self._settings).conflict_retries + 1):
            try:
                async with self._image.unit() as unit:
                    try:
                        provided_models.make(unit.root, number)
                    except BaseException:
                        unit.doom()
                        raise
                    unit.note(changes.name_of(number), f"{changes.NOTE}: {provided_models.KIND} {held['model']}: {held['why']}")
            except TransientError as e:
                log.info("change_conflict", change=number, error=str(e)[:200])
            else:
                log.info("model_provided", change=number, model=held["model"])
                return
        raise Conflicted(f"change {number} met conflicts too often; it is tried again")

    async def _record_ready(self, id: str, needs: Needs, held: Record, voices: Mapping[str, tuple[str, Any]]) -> Provision:
        """Record that the mission thinks with the provided model."""
        options = self._substrate.options_on(held["context"], held["answer"])
        if not held["model"]:
            options = {"num_ctx": options["num_ctx"]}
        record = {
            **held, "state": READY, "needs": needs.words(), "voices": {role: name for role, (name, _) in voices.items()},
            "options": options, "direct": {}, "at": round(time.time(), 3),
        }  # fmt: skip
        await self._image.system(journal.set_provided, id, record, mission=id)
        return Provision.of(record)

    # --- removing models

    async def run(self, bus: EventBus) -> None:
        """Delete models that were given up, at the start and whenever a mission with a provided model ends. Runs until cancelled."""

        def hear(ended: MissionEnded) -> None:
            if ended.mission in self._open:
                self._open.discard(ended.mission)
                self._look.set()

        bus.subscribe(MissionEnded, hear)
        self._open |= self._image.read(provided_models.under_way)
        while True:
            await self._look.wait()
            self._look.clear()
            if not await self.delete_abandoned():
                await asyncio.sleep(ProvisionLimits.of(self._settings).retry_s)
                self._look.set()

    async def delete_abandoned(self) -> bool:
        """Delete models that were given up. Return True if none is left."""
        done = True
        for number, state in self._image.read(provided_models.left_over):
            try:
                async with self._locks[self._image.read(provided_models.facts, number)["model"]]:
                    if state == changes.PROPOSED:
                        await self._record_refusal(number, "its mission ended before it was there")
                    else:
                        await self._clear(number)
            except (BatosError, OSError) as e:
                log.warning("not_cleared", change=number, error=str(e))
                done = False
        return done

    async def withdraw(self, number: int) -> list[str]:
        """End the pull of a change that its user took back, and delete its models; return their names.

        :raises InferenceFailed: where Ollama does not do it now; it is done later.
        """
        held = self._image.read(provided_models.facts, number)
        if self._image.read(provided_models.state_of, number) == changes.REFUSED:  # a pull may be under way
            await self._substrate.places[0].provisioner.abandon(held["model"], others=1)
        try:
            async with self._locks[held["model"]]:
                return await self._clear(number)
        except InferenceFailed:
            self._look.set()
            raise

    async def _record_refusal(self, number: int, why: str) -> None:
        """Record that a change is not made, unless its user did, and delete the models of it."""

        await self._image.system(provided_models.refuse, number, why, time.time())
        log.info("refused", change=number, kind=provided_models.KIND, why=why)
        try:
            await self._clear(number)
        except InferenceFailed as e:
            log.warning("not_cleared", change=number, error=e.message)
            self._look.set()

    async def _clear(self, number: int) -> list[str]:
        """Delete the models pulled and made for a change, unless another part needs them. May be repeated.

        :raises InferenceFailed: if Ollama does not delete them now.
        """
        held, substrate = self._image.read(provided_models.facts, number), self._substrate
        if held.get("cleared"):
            return []
        gone, model = [], held["model"]
        if not self._image.read(provided_models.in_use, model, number):
            wanted = [*held["voices"], *([model] if held["pulled"] else [])]
            for name in (one for one in wanted if not substrate.in_force(one)):
                await substrate.places[0].provisioner.abandon(name)  # stop the making of a model whose mission was cancelled
                if await substrate.models.has(name):
                    await substrate.models.discard(name)
                    gone.append(name)
            if held["pulled"]:
                await substrate.places[0].provisioner.clear(held["layers"], self._image.read(provided_models.begun, number))
        await self._image.system(changes.note, number, {"cleared": True})
        log.info("model_cleared", change=number, models=gone)
        return gone


def _declined(held: Mapping[str, Any]) -> Record:
    """Return the part of a record that lists the needs that its mission does without. It stays, whatever model is provided."""
    return {name: held[name] for name in ("declined", "why_not") if name in held}


def _taken_back(id: str, needs: Needs, held: Mapping[str, Any], number: int) -> ModelNeeded:
    model = held["model"]
    return ModelNeeded(
        f"mission {id!r} needs a model that {needs.told()}: {model} was chosen, and change {number} was taken back",
        needs=needs.words(), model=model, bytes=held["bytes"], command=_command(model),
    )  # fmt: skip


def _teller(attempt: Attempt, model: str) -> Callable[[Event], None]:
    """Return a listener that tells the watchers of a mission how far the pull of its model is."""
    told = float("-inf")

    def hear(event: Event) -> None:
        nonlocal told
        if event["type"] != "progress" or event["model"] != tagged(model) or time.monotonic() - told < TOLD_S:
            return
        told = time.monotonic()
        known: Record = {name: event[name] for name in ("status", "completed", "total") if name in event}
        attempt.publish("provision", **{**known, "model": model})

    return hear


def _command(model: str) -> str:
    return f"batos models --ensure {model}"


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
