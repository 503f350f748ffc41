"""The LoRA factory: builds experts in `lora_staging` into Ollama models, and records each in the image.

Each expert goes through intended, built, or refused. The intent is durable before any work begins, every step may be repeated, and the
result is durable before the expert answers. So a kill between any two steps costs nothing but time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import structlog

from batos.bridge.downloads import ProvisionLimits
from batos.bridge.lora.adapters import Unfit
from batos.bridge.lora.expert_model import (
    ExpertBuilder,
    Foundation,
    NotNow,
    bases_of,
    delete_model,
    expert_mark_of,
    foundation,
    model_digests,
)
from batos.bridge.lora.staging import ExpertManifest, Staged, Staging, StagingRefusal, same_base, scratch_folder, sorted_out, staging_folder
from batos.bridge.modelfile import tagged
from batos.bridge.profiles import Profile, modelfiles_folder
from batos.config import MIB, Settings
from batos.config.limits import Limits, limit
from batos.errors import BatosError, ExpertRefused, InferenceFailed
from batos.image import model_registry
from batos.image.living_image import LivingImage

if TYPE_CHECKING:
    from ollama import AsyncClient

    from batos.bridge.hosts import ManagedHost

log = structlog.get_logger(__name__)
GONE = "its model is gone from Ollama and its folder from lora_staging; put the folder back, and it is built again"
_NOT_LED = "the kernel that leads decides about experts: put this folder into its lora_staging, too"
_LONGEST_PAUSE_S = 3600.0
_LOOKS = 3  # greatest number of further looks at folders that are still being copied, if a scan was requested


@dataclass(frozen=True, slots=True)
class FactoryLimits(Limits):
    """Limits of the building of LoRA experts."""

    scan_s: float = limit(10.0, ge=0.05, le=86_400)
    """Seconds between two looks into the folder of LoRA experts."""
    settle_s: float = limit(2.0, ge=0, le=600)
    """Seconds for which an expert's folder must not change before its build."""
    folders: int = limit(256, ge=1, le=10_000)
    """Greatest number of expert folders that are looked at."""
    file_bytes: int = limit(2048 * MIB, ge=1024, le=2**50)
    """Greatest size of a file of an adapter, in bytes."""
    concurrency: int = limit(2, ge=1, le=16)
    """Greatest number of experts that are built at the same time."""
    quantize: Literal["q8_0", "q4_K_M", "q4_K_S", "f16"] = "q8_0"
    """Quantisation of the weights of a fused expert (`fuse = true`)."""


@dataclass(frozen=True)
class FactoryPace:
    """Times and width of the factory's work."""

    scan_s: float
    """Seconds between two looks into the folder."""
    settle_s: float
    """Seconds for which an expert's folder must not change before its build."""
    concurrency: int
    """Greatest number of experts that are built at the same time."""
    retry_s: float
    """Seconds before a failed build is retried; doubled after each failure."""


@dataclass(frozen=True)
class PlainModels:
    """The models on which experts are built, at the factory's Ollama."""

    is_ready: Callable[[str], bool]
    """Returns True if a plain model is up to date. An expert whose base is about to change would be built twice."""
    bring_back: Callable[[str], Awaitable[object]]
    """Restores a missing plain model."""
    learn: Callable[[str], Awaitable[None]]
    """Takes the name of each built model before it serves a request: its digest may have changed."""


@dataclass(frozen=True)
class OtherFactories:
    """Factories of other kernels that serve the same image; by default there are none."""

    leads: Callable[[], bool] = lambda: True
    """Returns True if this one decides which experts there are, and who speaks: the image says it, and the others build that."""
    have: Callable[[str], bool] = lambda model: False
    """Returns True if another kernel has a model."""
    several: bool = False


class LoraFactory:
    """Builder of the experts of one image on one Ollama.

    :param personas: of each persona its plain model, and the name of that model's base (`bases_of`).
    """

    def __init__(
        self,
        image: LivingImage,
        client: AsyncClient,
        staging: Staging,
        builder: ExpertBuilder,
        personas: Mapping[str, tuple[str, str]],
        profile: Profile,
        pace: FactoryPace,
        plain: PlainModels,
    ) -> None:
        self._image, self._client, self._staging, self._builder = image, client, staging, builder
        self._rest_on(personas, profile)
        self._scan_s, self._settle_s, self._retry_s = pace.scan_s, pace.settle_s, pace.retry_s
        self._plain = plain
        self._slots = asyncio.Semaphore(pace.concurrency)
        self._one_scan = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._known: dict[str, dict[str, Any]] = {}
        self._refused: dict[str, StagingRefusal] = {}
        self._foundations: dict[str, tuple[str, Foundation]] = {}
        self._failed: dict[str, tuple[float, float]] = {}  # model -> time of the next try, and the pause after that
        self._unfit: dict[str, tuple[str, str]] = {}  # model -> the refused recipe, and the reason
        self._voices: dict[str, str] = {}
        self._lacking: dict[str, str] = {}  # expert that the image has -> why it is not here
        self.others = OtherFactories()

    def _rest_on(self, personas: Mapping[str, tuple[str, str]], profile: Profile) -> None:
        self._personas, self._known_as = personas, {tagged(m.name): m.known_as for m in profile.models}
        self._taken = {tagged(m.name) for m in profile.models} | {tagged(m) for m in profile.personas.values()}

    # --- start and stop

    async def adopt(self, personas: Mapping[str, tuple[str, str]], profile: Profile) -> None:
        """Build on the models of another profile from now on. Experts on other bases no longer speak.

        :param personas: see the class.
        """
        self._rest_on(personas, profile)
        await self.begin()

    async def begin(self) -> None:
        """Load the known experts from the image, before missions start: only experts on this profile's bases may speak."""
        bases = {persona: base for persona, (_, base) in self._personas.items()}
        self._take(await self._image.system(model_registry.begin_experts, bases, mission="lora_factory"))

    async def run(self) -> None:
        """Look into the folder, again and again, until cancelled."""
        while True:
            try:
                await self.scan()
            except Exception as e:  # any failure: the next scan may succeed, and the daemon must go on scanning
                log.exception("experts_not_scanned", error=str(e))
            hurry = any(refusal.waits for refusal in self._refused.values())
            await asyncio.sleep(min(self._scan_s, self._settle_s or self._scan_s) if hurry else self._scan_s)

    async def scan(self) -> None:
        """Look into the folder once and build the new experts. Return when that is done.

        :raises BatosError: if the image cannot record it.
        """
        async with self._one_scan:
            try:
                looked = await asyncio.to_thread(self._staging.look)
            except OSError as e:
                looked = [StagingRefusal(".", f"{self._staging.path} cannot be read: {e.strerror or e}; make it, or set inference.staging")]
            if self.others.several:
                await self._refresh()  # what another kernel recorded
            staged, refused = sorted_out(looked, {m: facts["content"] for m, facts in self._known.items() if facts["built"] is not None})
            if not self.others.leads():
                await self._follow(staged, refused)
                return
            self._lacking = {}
            if staged or self._known:
                named = {refusal.about.model for refusal in refused if refusal.about is not None}
                refused += await self._bring_about(staged, named)
            self._tell({refusal.folder: refusal for refusal in refused})
            for refusal in refused:
                if refusal.about is not None and not refusal.waits:
                    await self._refuse(refusal)
            await self._look_at_voices()

    async def scan_settled(self) -> None:
        """Scan like `scan`, and again while a folder is being copied in, for a bounded time."""
        await self.scan()
        for _ in range(_LOOKS):
            if any(refusal.moving for refusal in self._refused.values()):
                await asyncio.sleep(self._settle_s)
                await self.scan()

    async def writes_soon(self) -> bool:
        """Return True if the folder contains an expert for methods that may be built here, or one that is still being copied."""
        async with self._one_scan:
            try:
                looked = await asyncio.to_thread(self._staging.look)
            except OSError:
                return False
        return any(
            (isinstance(one, StagingRefusal) and one.moving) or (one.about is not None and self._may_write(one.about)) for one in looked
        )

    def _may_write(self, about: ExpertManifest) -> bool:
        _, base = self._personas.get(about.persona.lower(), ("", ""))
        return about.role == "methods" and not about.on_choice and same_base(about.base, base, self._known_as.get(base, ()))

    async def discard(self, model: str, why: str) -> None:
        """Delete the model of an expert whose folder was taken away.

        :raises InferenceFailed: if Ollama does not do it now.
        """
        async with self._one_scan:
            try:
                await delete_model(self._client, model)
            except NotNow as e:
                raise InferenceFailed(str(e), cause="unreachable", model=model) from e
            if (known := self._known.get(model)) is not None:
                forgotten = known["built"] is None
                await (
                    self._record(model_registry.forget_expert, model)
                    if forgotten
                    else self._record(model_registry.note_unusable, model, model_registry.MISSING, why)
                )

    def stop(self) -> None:
        """End the work in threads."""
        self._builder.stop()

    # --- for inferences

    def owns(self, model: str) -> bool:
        """Return True if the model is an expert of this image."""
        return model in self._known

    async def ready(self, model: str) -> None:
        """Wait until an expert is there.

        :raises InferenceFailed: if the expert is not available; another attempt goes on with another voice.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._known.get(model, {}).get("state") != model_registry.INTENDED)
        if why := self._lacking.get(model):
            raise InferenceFailed(why, cause="model_missing", retryable=True, model=model)
        facts = self._known.get(model)
        if facts is None or facts["state"] != model_registry.BUILT:
            reason = facts["reason"] if facts else "the expert is not known"
            raise InferenceFailed(f"the expert {model} cannot speak: {reason}", cause="model_missing", retryable=True, model=model)

    async def heal(self, model: str) -> None:
        """Restore a missing expert, or record that it is not available."""
        log.warning("expert_gone", model=model)
        await self._plain.bring_back(self._personas[self._known[model]["persona"]][0])  # the base may be gone, too
        await self.scan()

    # --- queries

    def report(self) -> dict[str, Any]:
        """Return the state of experts, of folders that are not taken, and of voices."""
        return {
            "staging": str(self._staging.path),
            **self._image.read(model_registry.report_experts),
            "refused": [{"folder": r.folder, "reason": r.reason, "waits": r.waits} for r in self._refused.values()],
        }

    def lacks(self, model: str) -> str:
        """Return why an expert that the image has is not at this Ollama, and what to do; "" if it is, or is not an expert."""
        return self._lacking.get(model, "")

    # --- one scan

    async def _follow(self, staged: list[Staged], refused: list[StagingRefusal]) -> None:
        """Build what the image says, out of the own folder, and record nothing: the leader decides."""
        here = {one.model: one for one in staged}
        try:
            have = await model_digests(self._client)
        except NotNow as e:
            log.warning("experts_not_followed", error=str(e))
            return
        wanted = {model: facts for model, facts in self._known.items() if facts["state"] == model_registry.BUILT}
        lacking = {model: await self._followed(facts, here.get(model), have) for model, facts in wanted.items()}
        for model, why in lacking.items():
            if why and self._lacking.get(model) != why:
                log.warning("expert_lacking", model=model, why=why)
        self._lacking = {model: why for model, why in lacking.items() if why}
        told = {one.folder: one for one in refused}
        told |= {
            one.folder.name: StagingRefusal(one.folder.name, _NOT_LED, one.about, waits=True) for one in staged if one.model not in wanted
        }
        self._tell(told)
        await self._look_at_voices()

    async def _followed(self, facts: Mapping[str, Any], staged: Staged | None, have: Mapping[str, str]) -> str:
        """Build an expert as the image says; return why it cannot be here, or "" if it is."""
        model = facts["model"]
        try:
            if tagged(model) in have and (await expert_mark_of(self._client, model)).recipe == facts["recipe"]:
                return ""
            if staged is None or staged.content != facts["content"]:
                what = "is not" if staged is None else "has another content"
                return f"its folder {facts['folder']!r} {what} in {self._staging.path} here: copy it from a machine that has it"
            on = await self._foundation(staged, have)
            on.check(staged)
            if on.recipe(staged, facts["how"]) != facts["recipe"]:
                return f"{facts['persona']}'s own model is another one here than at the kernel that built {model}"
            self._check_patience(model)
            async with self._slots:
                await self._builder.build(staged, on, facts["how"], facts["recipe"])
                await self._builder.attempt(model)
        except Unfit as e:
            return str(e)
        except (NotNow, OSError) as e:
            self._be_patient(model)
            return str(e)
        self._failed.pop(model, None)
        await self._plain.learn(model)
        log.info("expert_followed", model=model, how=facts["how"])
        return ""

    async def _is_same(self, model: str, facts: Mapping[str, Any], there: str | None) -> bool:
        """Return True if Ollama has an expert as it was recorded: of several kernels each has its own digest of it, and one recipe."""
        if there is None or there == facts.get("digest"):
            return there is not None
        return self.others.several and (await expert_mark_of(self._client, model)).recipe == facts.get("recipe")

    async def _bring_about(self, staged: list[Staged], named: set[str]) -> list[StagingRefusal]:
        try:
            have = await model_digests(self._client)
        except NotNow as e:
            return [StagingRefusal(one.folder.name, str(e), one.about, waits=True) for one in staged]
        async with asyncio.TaskGroup() as tasks:
            building = [tasks.create_task(self._one(one, have)) for one in staged]
        await self._missing({one.model for one in staged}, named, have)
        return [refusal for task in building if (refusal := task.result()) is not None]

    async def _one(self, staged: Staged, have: Mapping[str, str]) -> StagingRefusal | None:
        try:
            async with self._slots:
                await self._settle(staged, have)
        except (Unfit, ExpertRefused) as e:
            return StagingRefusal(staged.folder.name, str(e), staged.about)
        except (NotNow, BatosError, OSError) as e:  # BatosError and OSError come from the image if it cannot record, as on a full disk
            return StagingRefusal(staged.folder.name, str(e), staged.about, waits=True)
        return None

    async def _settle(self, staged: Staged, have: Mapping[str, str]) -> None:
        on = await self._foundation(staged, have)
        on.check(staged)
        how, note = self._builder.way(staged, on)
        recipe, model = on.recipe(staged, how), staged.model
        known = self._known.get(model, {})
        facts = _facts(staged, on)
        there = have.get(tagged(model))
        if known.get("state") == model_registry.BUILT and known["recipe"] == recipe and await self._is_same(model, known, there):
            if any(known[name] != value for name, value in facts.items()):
                await self._record(model_registry.note_facts, model, facts)
            return
        if known.get("built") is None and there is not None and (await expert_mark_of(self._client, model)).content != staged.content:
            raise Unfit(f"Ollama has a model {model} of another making; `ollama rm {model}`, or give the expert another name or version")
        if self._unfit.get(model, ("", ""))[0] == recipe:  # the recipe has not changed since
            raise Unfit(self._unfit[model][1])
        self._check_patience(model)
        await self._record(model_registry.intend_expert, facts)
        try:
            if there is None or (await expert_mark_of(self._client, model)).recipe != recipe:
                await self._builder.build(staged, on, how, recipe)
            await self._builder.attempt(model)
            digest = (await model_digests(self._client)).get(tagged(model))
            if digest is None:
                raise NotNow(f"{model} went away after it was built")
        except Unfit as e:
            self._unfit[model] = recipe, str(e)
            await self._record(model_registry.note_unusable, model, model_registry.REFUSED, str(e))
            raise
        except NotNow as e:
            self._be_patient(model)
            if known.get("built") is not None and there is None:  # its persona need not wait for it
                await self._record(model_registry.note_unusable, model, model_registry.MISSING, str(e))
            else:
                await self._record(model_registry.note_facts, model, {"reason": str(e)})
            raise
        self._failed.pop(model, None)
        await self._plain.learn(model)  # before the model can be chosen
        await self._record(model_registry.note_built, model, digest, recipe, how, note)
        log.info("expert_built", model=model, how=how, digest=digest[:12], note=note)

    async def _foundation(self, staged: Staged, have: Mapping[str, str]) -> Foundation:
        persona = staged.about.persona.lower()
        if persona not in self._personas:
            raise Unfit(f"unknown persona {staged.about.persona!r}; there are: {', '.join(self._personas)}")
        if staged.model in self._taken:
            raise Unfit(f"{staged.model} is a model of the profile; give the expert another name")
        model, base = self._personas[persona]
        digest = have.get(tagged(model))
        if digest is None or not self._plain.is_ready(model):
            raise NotNow(f"waits for {persona}'s own model {model}")
        kept = self._foundations.get(persona)
        if kept is None or kept[0] != digest:
            found = await foundation(self._client, persona, model, base, self._known_as.get(base, ()))
            kept = self._foundations[persona] = digest, found
        return kept[1]

    async def _missing(self, staged: set[str], named: set[str], have: Mapping[str, str]) -> None:
        """Look at the experts whose folder is gone or refused."""
        for model, facts in list(self._known.items()):
            if model in staged:
                continue
            if facts["built"] is None:
                if model not in named:
                    await self._record(model_registry.forget_expert, model)
            elif await self._is_same(model, facts, have.get(tagged(model))):
                if facts["state"] != model_registry.BUILT:
                    await self._record(model_registry.note_built, model, facts["digest"], facts["recipe"], facts["how"], "")
            elif self.others.have(model):  # a kernel without it is unfit; the voices of all others stay
                self._lacking[model] = f"its folder {facts['folder']!r} is not in {self._staging.path} here: copy it from another machine"
            elif facts["state"] != model_registry.MISSING:
                await self._record(model_registry.note_unusable, model, model_registry.MISSING, GONE)
                log.warning("expert_missing", model=model, remedy=GONE)

    async def _refuse(self, refusal: StagingRefusal) -> None:
        about = refusal.about
        assert about is not None  # the caller has checked it
        known = self._known.get(about.model)
        named = about.persona.lower() in self._personas and about.model not in self._taken
        if named and (known is None or (known["built"] is None and known["reason"] != refusal.reason)):
            facts = {"model": about.model, "persona": about.persona.lower(), "expert": about.name, "version": about.version}
            facts |= {"base": about.base, "content": "", "folder": refusal.folder, "role": about.role, "fuse": about.fuse}
            await self._record(model_registry.refuse_expert, facts, refusal.reason)

    # --- memory

    async def _record(self, function: Callable[..., Any], first: Any, *more: Any) -> None:
        model = first if isinstance(first, str) else first["model"]
        await self._image.system(function, first, *more, mission=_mission(model))
        await self._refresh()

    async def _refresh(self) -> None:
        self._take(self._image.read(model_registry.describe_experts))
        async with self._changed:
            self._changed.notify_all()

    def _take(self, described: list[dict[str, Any]]) -> None:
        self._known = {facts["model"]: facts for facts in described}

    def _tell(self, refused: dict[str, StagingRefusal]) -> None:
        before, self._refused = self._refused, refused
        for folder, refusal in refused.items():
            if before.get(folder) != refusal:
                say = log.info if refusal.waits else log.warning
                say("expert_waits" if refusal.waits else "expert_refused", folder=folder, reason=refusal.reason)

    async def _look_at_voices(self) -> None:
        heard = {persona: facts["model"] for persona, facts in self._image.read(model_registry.voices).items()}
        for persona, model in heard.items():
            if model != self._voices.get(persona, ""):
                log.info("voice", persona=persona, model=model or self._personas.get(persona, ("",))[0], expert=bool(model))
        self._voices = heard
        await self._refresh()

    def _check_patience(self, model: str) -> None:
        until, _ = self._failed.get(model, (0.0, 0.0))
        if time.monotonic() < until:
            reason = self._known.get(model, {}).get("reason", "")
            raise NotNow(f"{reason}; tried again in {until - time.monotonic():.0f} s" if reason else "tried again soon")

    def _be_patient(self, model: str) -> None:
        _, pause = self._failed.get(model, (0.0, self._retry_s))
        self._failed[model] = time.monotonic() + pause, min(pause * 2, _LONGEST_PAUSE_S)


def open_lora_factory(image: LivingImage, client: AsyncClient, settings: Settings, profile: Profile, place: ManagedHost) -> LoraFactory:
    """Make the factory that the settings describe; it builds at `place`, whose client is `client`."""
    staging = Staging(
        staging_folder(settings.inference.staging, settings.data),
        settle_s=FactoryLimits.of(settings).settle_s,
        limit=FactoryLimits.of(settings).folders,
        limit_bytes=FactoryLimits.of(settings).file_bytes,
    )
    builder = ExpertBuilder(
        client,
        scratch_folder(settings.data),
        quantize=FactoryLimits.of(settings).quantize,
        options=profile.options,
        deadline_s=settings.inference.deadline_s,
    )
    return LoraFactory(
        image,
        client,
        staging,
        builder,
        bases_of(image.read(model_registry.plain_models), profile, modelfiles_folder(settings.inference.modelfiles)),
        profile,
        FactoryPace(
            FactoryLimits.of(settings).scan_s,
            FactoryLimits.of(settings).settle_s,
            FactoryLimits.of(settings).concurrency,
            ProvisionLimits.of(settings).retry_s,
        ),
        PlainModels(place.provisioner.is_ready, place.provisioner.heal, place.made),
    )


def _facts(staged: Staged, on: Foundation) -> dict[str, Any]:
    about = staged.about
    return {
        "model": staged.model,
        "persona": about.persona.lower(),
        "expert": about.name,
        "version": about.version,
        "base": on.base_name,
        "content": staged.content,
        "folder": staged.folder.name,
        "role": about.role,
        "fuse": about.fuse,
        "on_choice": about.on_choice,
        "about": about.comment,
        "missions": tuple(about.lineage.missions),
        "methods": tuple(about.lineage.methods),
        "image_revision": about.lineage.image_revision,
        "data": about.lineage.data,
        "seed": about.lineage.seed,
        "figures": tuple(sorted(about.lineage.figures.items())),
    }


def _mission(model: str) -> str:
    return f"expert:{model}"
