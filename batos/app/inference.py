"""Part of the composition root for the inference: Ollama, its models and experts, their place in memory.

service (an Ollama) ─ factory (experts)
place (an Ollama: its breaker, provisioner, residency) ─ hosts (least busy) ─ ready (waits, heals) ─ `inference`
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from batos import config
from batos.bridge import selection
from batos.bridge.admission import Fairness
from batos.bridge.capabilities import KNOWN_LIMIT, Capabilities, KnownCapabilities, Needs
from batos.bridge.downloads import ProvisionLimits
from batos.bridge.failures import RetryPolicy
from batos.bridge.inference import Inference, ReadyInference
from batos.bridge.model_management import ModelManager
from batos.bridge.modelfile import tagged
from batos.bridge.profiles import Profile, modelfiles_folder, own_profiles, persona_model_name, persona_modelfile, profile_names
from batos.bridge.residency import ResidencyLimits
from batos.bridge.selection import Space
from batos.bridge.shared_digests import SharedDigests
from batos.concurrency import Lifetime
from batos.config import Settings, nearest
from batos.errors import InferenceFailed, InvalidInput
from batos.image import kernels, model_registry, shared_models
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.image.shared_models import SharedModel
from batos.mind.brief_analysis import FIT
from batos.mind.codex import Codex, voices
from batos.mind.model_needs import Sight
from batos.mind.router import PersonaForecast, recent_personas
from batos.missions.fitness import EMBEDS, MissionLoads, NeededModels
from batos.missions.mission_queue import Grouping
from batos.objects import Root

if TYPE_CHECKING:
    from ollama import AsyncClient

    from batos.bridge.admission import Load
    from batos.bridge.hosts import ManagedHost
    from batos.bridge.installed_models import Candidate
    from batos.bridge.lora.factory import LoraFactory
    from batos.bridge.modelfile import Modelfile
    from batos.bridge.ollama_server import OllamaService

_AWAY_LOOK_S = 0.1
log = structlog.get_logger("batos")
Record = dict[str, Any]


class ModelRuntime:
    """Ollamas, their models, and the profile in force. Without `connect` it has no Ollama, and another inference answers."""

    def __init__(
        self,
        settings: Settings,
        image: LivingImage,
        codex: Codex,
        *,
        on_choice: Callable[[Record], None] = lambda chosen: None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """
        :param leads: returns True if this kernel decides for all that serve the image.
        :param on_choice: called with settings that a user chose while the daemon runs.
        """
        self._settings, self._image, self._personas, self._voices_of = settings, image, tuple(codex.personas), voices(codex)
        self._on_choice, self._leads = on_choice, leads
        self._one_choice = asyncio.Lock()
        self.chosen = selection.choose_profile(settings, self._voices_of, None)
        """The profile in force, and why it was chosen. Before `connect`, and without an Ollama of its own, the choice that follows from the
        settings alone."""
        self.known = KnownCapabilities(
            lambda making, record: image.committer.defer(model_registry.keep_capabilities, making, record, KNOWN_LIMIT)
        )
        self.known.recall(image.read(model_registry.recall_capabilities))
        self.models = ModelManager(lambda: self.profile.name)
        self.places: list[ManagedHost] = []
        self.factory: LoraFactory | None = None
        self.facts: Callable[[], Record] = dict
        """Returns the facts for `info` about the Ollamas. The facts are empty without an Ollama."""
        self.outage: Callable[[], str] = str
        """Returns the words for an outage of all Ollamas. The words are empty while one answers."""
        self.asked_only: Inference | None = None
        """The same inference without waiting for a model and without fetching it. None without an Ollama."""
        self._settled = asyncio.Event()
        self._bases: dict[str, str] = {}  # base model by role, under the profile in force
        self._foresight = PersonaForecast()
        self._of_user = ""  # address of the user's own Ollama
        self._shared: SharedDigests | None = None  # where several kernels serve the image

    # --- assembly

    async def connect(self, life: Lifetime) -> Inference:
        """Find or start an Ollama, and connect all parts to it.

        :param life: ends the tasks begun here.
        :raises OllamaUnavailable: if none answers and none can be started.
        """
        from batos.bridge.client import connect  # imported late: the client's imports take longer than all the rest
        from batos.bridge.hosts import Hosts, ManagedHosts
        from batos.bridge.ollama_server import OllamaService

        settings = self._settings
        service = OllamaService(settings)
        host = await service.start()
        life.push_async_callback(service.stop)
        client = connect(host)
        life.push_async_callback(client.close)
        self._client, self._of_user = client, host if service.state == "external" and service.version else ""
        found = await self._found() if self._of_user else None
        self.chosen = selection.choose_profile(settings, self._voices_of, found, self._of_user)
        log.info("models_chosen", profile=self.profile.name, model=self.profile.base, why=self.chosen.why)
        fairness = self._fairness = Fairness(ResidencyLimits.of(settings).group_missions, ResidencyLimits.of(settings).group_wait_s)
        places = self.places = [self._place(client, host, fairness, service)]
        for further in dict.fromkeys(settings.inference.hosts):
            if further != host:
                its_client = connect(further)
                life.push_async_callback(its_client.close)
                places.append(self._place(its_client, further, fairness))
        hosts = Hosts(
            places,
            wait_s=RetryPolicy.of(settings).outage_wait_s,
            switch_s=RetryPolicy.of(settings).switch_wait_s,
            look_s=RetryPolicy.of(settings).breaker_probe_s,
            crowded=lambda place, model: place.crowded(model),
        )
        life.push_async_callback(hosts.close)
        self.outage = lambda: hosts.outage
        self.facts = lambda: {
            "host": service.host, "version": service.version, "state": service.state, "restarts": service.restarts,
            "hosts": [{**at, "residency": place.residency.facts()} for at, place in zip(hosts.facts(), places, strict=True)],
        }  # fmt: skip
        self.models = ModelManager(lambda: self.profile.name, places, use=self._use, fit=self._fit)
        for place in places:
            settled = self._settled if place is places[0] else asyncio.Event()
            life.background(place.look_after(ProvisionLimits.of(settings).retry_s, self._voices, settled), f"provisioning of {place.host}")
        factory = self.factory = await self._found_factory(client, places[0], life)
        everywhere = ManagedHosts(places, RetryPolicy.of(settings).outage_wait_s)

        async def ready(model: str) -> None:
            await (factory if factory.owns(model) else everywhere).ready(model)

        async def heal(model: str) -> None:
            await (factory if factory.owns(model) else everywhere).heal(model)

        named: Inference = hosts
        if self._image.read(kernels.me):
            named = self._shared = SharedDigests(hosts, self.known.content, self._publish)
        self.asked_only = named
        self._inference = ReadyInference(named, ready=ready, heal=heal)
        return self._inference

    async def _publish(self, name: str, digest: str, content: str) -> SharedModel:
        return await shared_models.publish_once(self._image, SharedModel(name, digest, content))

    def republish(self) -> None:
        """Publish the models anew when they are next used: this kernel has another name now."""
        if self._shared is not None:
            self._shared.forget()

    def needed(self, embedder: Callable[[], Awaitable[str]]) -> NeededModels | None:
        """Return the models without which a kernel takes up no missions; None without an Ollama.

        :param embedder: returns the identity of the embedder of memory.
        """
        if self.asked_only is None:
            return None
        return NeededModels(self._needed_by, self._digest_now, embedder, self._abilities)

    async def _digest_now(self, model: str) -> str:
        """Return the digest of a model as the image knows it, without waiting for an Ollama that is away, or for a build.

        What an Ollama has before its models were built is not published. The other kernels would be held to a model that is about to go.

        :raises InferenceFailed: if it cannot be used now.
        """
        assert self.asked_only is not None
        if not self.outage():
            self._check_built(model)
        asking = asyncio.ensure_future(self.asked_only.digest(model))
        try:
            while not asking.done():
                if away := self.outage():
                    raise InferenceFailed(away, cause="breaker", model=model)
                await asyncio.wait({asking}, timeout=_AWAY_LOOK_S)
            return asking.result()
        except InferenceFailed as e:
            why = self.factory.lacks(model) if self.factory is not None and e.cause == "model_missing" else ""
            if not why:
                raise
            raise InferenceFailed(f"{model}: {why}", cause="model_missing", model=model, lacks=why) from e
        finally:
            asking.cancel()

    def _check_built(self, model: str) -> None:
        """Go on only if one Ollama has a model of the profile as the profile wants it.

        :raises InferenceFailed: with cause `model_missing` if the model is not built, or is to be built anew.
        """
        wanted = [place.provisioner.status_of(model) for place in self.places]
        known = [status for status in wanted if status is not None]
        if known and not any(status.ready for status in known):
            failed = known[0].state == "failed"
            why = f"its Ollama has no {model}: {known[0].detail}. Remedy: {known[0].remedy}" if failed else f"{model} is not built yet"
            raise InferenceFailed(why, cause="model_missing", model=model, lacks=why if failed else "")

    def _needed_by(self) -> dict[str, str]:
        used: dict[str, list[str]] = {}
        for persona in self._personas:
            used.setdefault(self.model_of(persona), []).append(persona)
        return {**{model: ", ".join(personas) for model, personas in used.items()}, self.profile.embedder: EMBEDS}

    def _abilities(self) -> Needs:
        """Return what all models with which personas speak are able to do, as they are loaded here."""
        found = [can for model in self._voices() if (can := self.capabilities(model)) is not None]
        context = int(self.options.get("num_ctx") or 0)
        if not found:
            return Needs(context=context)
        return Needs(
            vision=all(can.vision for can in found), tools=all(can.tools for can in found), thinking=all(can.thinks for can in found),
            context=context,
        )  # fmt: skip

    def _place(self, client: AsyncClient, host: str, fairness: Fairness, service: OllamaService | None = None) -> ManagedHost:
        """
        :param service: that of the first place; what the others have on disk is not known.
        """
        from batos.bridge.client import OllamaInference
        from batos.bridge.downloads import DiskSpace
        from batos.bridge.failures import RetryPolicy
        from batos.bridge.hosts import ManagedHost
        from batos.bridge.model_builder import BuiltModels, built_models_file
        from batos.bridge.provisioning import Provisioner
        from batos.bridge.residency import Residency

        settings, folder = self._settings, None if service is None else service.models_folder
        if folder is None:
            log.info("free disk is not checked before pulls: the Ollama is not the daemon's own", host=host)
        kept = settings.data / "ollama"
        provisioner = Provisioner(
            client,
            self.profile,
            modelfiles_folder(settings.inference.modelfiles),
            ProvisionLimits.of(settings).concurrency,
            built=BuiltModels(kept / "built.json" if service is not None else built_models_file(kept, host)),
            room=DiskSpace(folder, ProvisionLimits.of(settings).reserve_bytes),
            note_s=ProvisionLimits.of(settings).note_s,
        )
        inference = OllamaInference(host, settings.inference.concurrency, self.profile.options, RetryPolicy.of(settings))
        residency = Residency(client, settings.inference.memory_bytes, self.options, fairness)
        return ManagedHost(inference, residency, provisioner, self.known, self.profile.options.get("stop", ()))

    async def _found_factory(self, client: AsyncClient, place: ManagedHost, life: Lifetime) -> LoraFactory:
        from batos.bridge.lora.factory import OtherFactories, open_lora_factory

        factory = open_lora_factory(self._image, client, self._settings, self.profile, place)
        if self._image.read(kernels.me):
            have = partial(self._image.read, shared_models.others_have)
            factory.others = OtherFactories(self._leads, lambda model: have(tagged(model)), several=True)
        await factory.begin()
        life.background(factory.run(), "lora factory")
        life.callback(factory.stop)  # before its task is cancelled, so that its thread ends soon
        return factory

    def grouping(self, guess: Callable[[MissionRecord], str]) -> Grouping | None:
        """Return the grouping of missions by model; None without an Ollama.

        :param guess: names the persona that a mission probably goes to.
        """
        if not self.places:
            return None
        residencies = [place.residency for place in self.places]
        for persona in self._image.read(recent_personas):
            if persona in self._personas:
                self._foresight.note(persona)

        def load_of(model: str) -> Load | None:
            return next((load for residency in residencies if (load := residency.load_of(model)) is not None), None)

        return Grouping(
            self._fairness,
            persona_of=lambda record: None if record.message else guess(record),
            model_of=self.model_of,
            load_of=load_of,
            conflict=lambda a, b: all(residency.gate.conflict(a, b) for residency in residencies),
            began=self._foresight.note,
            memories=lambda: max(1, sum(not place.breaker.open for place in self.places)),
        )

    def loads(self, guess: Callable[[MissionRecord], str]) -> MissionLoads | None:
        """Return what is loaded here and what missions need; None without an Ollama.

        :param guess: see `grouping`.
        """
        if not self.places:
            return None
        residencies = [place.residency for place in self.places]

        def weights(record: MissionRecord) -> str:
            if record.message or not (persona := guess(record)):
                return ""
            model = self.model_of(persona)
            return next((load.weights for one in residencies if (load := one.load_of(model)) is not None), "")

        return MissionLoads(lambda: frozenset().union(*(one.resident_weights for one in residencies)), weights)

    def preload(self, waiting: Callable[[int], list[str]]) -> None:
        """Load models in pauses from now on: first those that missions wait for, then those that are likely to be needed.

        :param waiting: returns the models of that many waiting missions, the next ones first.
        """
        from batos.bridge.residency import Expected, Preloader

        def expected() -> Expected:
            return Expected(
                waiting(ResidencyLimits.of(self._settings).group_missions), [self.model_of(p) for p in self._foresight.likely()]
            )

        if ResidencyLimits.of(self._settings).preload_idle_s:
            for place in self.places:
                place.residency.preload_with(Preloader(place.residency, ResidencyLimits.of(self._settings).preload_idle_s, expected))

    def _voices(self) -> list[str]:
        return [self.model_of(persona) for persona in self._personas]

    # --- facts about the inference

    @property
    def profile(self) -> Profile:
        """Return the profile in force."""
        return self.chosen.profile

    @property
    def profile_name(self) -> str:
        """Return the name by which `use` would have the profile in force back."""
        return _profile_summary(self.profile)

    def capabilities(self, model: str) -> Capabilities | None:
        """Return the known capabilities of a model; None as long as they are not known. A role of the profile counts as its model."""
        name = self.profile.model_of(model)
        digests = (place.models_seen.get(tagged(name)) or place.residency.digest_of(name) for place in self.places)
        return next((can for digest in digests if digest and (can := self.known.of(digest)) is not None), None)

    def base_of(self, role: str) -> str:
        """Return the model that the one of a persona's role is made of; a model that is made of none is its own."""
        if role not in self._bases:
            from batos.bridge.lora.expert_model import bases_of  # imported late, like everything that examines models

            self._bases[role] = bases_of({role: role}, self.profile, modelfiles_folder(self._settings.inference.modelfiles))[role][1]
        return self._bases[role]

    @property
    def sight(self) -> Sight:
        """Return which models see images."""
        if not self.places:  # an inference other than Ollama
            return Sight(self.model_of)
        return Sight(self.model_of, self._sees, self._seen, self._seeing)

    def uses_tools(self, model: str) -> bool | None:
        """Return True if a model can ask for tools by itself and is large enough to be trusted with that. Its Ollama says so, or a probe
        found it out; None as long as its Ollama has not said it."""
        can = self.capabilities(model)
        if can is None:
            return None if self.places else False
        return can.tools and (can.parameters is None or can.parameters >= FIT)

    def _seen(self, model: str) -> bool | None:
        can = self.capabilities(model)
        return None if can is None else can.vision

    async def _sees(self, model: str) -> bool | None:
        """Return whether a model sees, as its Ollama says, or was found out when it was tried (`batos models --fit NAME`). It is not tried
        for it: to look at a picture takes a model as long as most of an answer."""
        # waits for a model that is being fetched, and learns its claimed capabilities
        await self._inference.digest(self.profile.model_of(model))
        return self._seen(model)

    async def _seeing(self) -> list[str]:
        """Return the models of the first Ollama that see and could think, the largest first."""
        found = [one for one in await self._found() or () if one.can.vision and one.can.chats and not (one.ours or one.can.remote)]
        return [one.name for one in sorted(found, key=lambda one: -(one.can.parameters or 0))]

    def residency(self) -> Record:
        """Return facts about the models in the memory of the first Ollama; empty without an Ollama."""
        return self.places[0].residency.facts() if self.places else {}

    def parameters(self, model: str) -> int | None:
        """Return the number of parameters of a model; None as long as that is not known."""
        can = self.capabilities(model)
        return None if can is None else can.parameters

    async def learn(self, model: str) -> None:
        """Return when it is known what a model can do; earlier if no Ollama answers, or none can have the model."""
        if self.places and self.capabilities(model) is None:
            from batos.bridge.hosts import unless_away  # imported late, like all that an Ollama needs

            await unless_away(self._inference.digest(self.profile.model_of(model)), self.outage)

    async def why_unfit(self, model: str) -> str:
        """Say why a model is not fit to judge the system itself, in words; empty where it is. It is to be large enough to think by facets,
        and to keep to a form, which is probed once. Where no Ollama infers, nothing is known against it."""
        if not self.places:
            return ""
        name, place = self.profile.model_of(model), self.places[0]
        try:
            await place.digest(name)  # also learns the capabilities of the model
            can = self.capabilities(name)
            if can is None or can.parameters is None:
                return f"it is not known how large {name} is"
            if can.parameters < FIT:
                return f"{name} has {can.parameters / 1e6:.0f} million parameters, and {FIT / 1e6:.0f} million are the least that judge"
            can = await place.probe(name, ("format",))
        except InferenceFailed as e:
            return e.message
        return "" if can is not None and can.format else f"{name} does not keep to a form"

    async def _found(self) -> list[Candidate] | None:
        """Return the models of the first Ollama; None where it does not say."""
        from batos.bridge.installed_models import list_models
        from batos.bridge.model_status import ModelUnavailable

        try:
            found = await list_models(self._client, self.known.note)
        except ModelUnavailable as e:
            log.warning("models_unknown", error=e.detail, hint="the installed models think")
            return None
        return [dataclasses.replace(one, can=self.known.of(one.digest) or one.can) for one in found]

    # --- needs of missions

    async def is_met(self, needs: Needs) -> bool:
        """Return whether all models with which personas speak meet needs, as they are loaded here.

        :raises InferenceFailed: where that cannot be found out.
        """
        return needs.context <= int(self.options.get("num_ctx") or 0) and await self.able(needs)

    async def able(self, needs: Needs) -> bool:
        """Return whether all models with which personas speak could meet needs, however they are loaded.

        :raises InferenceFailed: where that cannot be found out.
        """
        for model in dict.fromkeys(self._voices()):
            await self._inference.digest(model)  # a model's capabilities are known once it is there
            can = self.capabilities(model)
            if can is not None and needs.lacking(can):
                return False
        return True

    async def here(self) -> list[Candidate]:
        """Return the models of the first Ollama.

        :raises InferenceFailed: where it does not say.
        """
        found = await self._found()
        if found is None:
            raise InferenceFailed("Ollama does not say what it has", cause="unreachable")
        return found

    @property
    def room(self) -> Space:
        """Return the room for another model."""
        return Space(self._settings.inference.memory_bytes, self.places[0].provisioner.room)

    def in_force(self, model: str) -> bool:
        """Return whether the profile in force rests on a model, or a persona's model has that name."""
        profile, named = self.profile, selection.named_models(self._settings).personas
        names = {*(one.name for one in profile.models), *profile.personas.values(), *named.values()}
        return tagged(model) in map(tagged, names)

    def voices_on(self, model: str) -> dict[str, tuple[str, Modelfile]]:
        """Return, by persona's role, the name and the Modelfile of its model on `model`."""
        return {one.role: (persona_model_name(persona, model), persona_modelfile(one, model)) for persona, one in self._voices_of.items()}

    def options_on(self, context: int, answer: int) -> Record:
        """Return Ollama's options of an inference on a model loaded with such a context. The user's settings override the defaults."""
        settings = self._settings
        own = {"num_predict": settings.inference.answer_tokens, "num_thread": settings.inference.threads}
        return {"num_ctx": context, "num_predict": answer, **{name: value for name, value in own.items() if value}}

    # --- changes of model

    async def _use(self, name: str) -> Record:
        """See `Models.use`."""
        from batos.bridge.lora.expert_model import bases_of  # imported late, like everything that examines models

        if others := self._image.read(_other_kernels):
            raise InvalidInput(
                f"{', '.join(others)} {'serve' if len(others) > 1 else 'serves'} this image, too: all think with the same models. "
                f"Set inference.model of each kernel to {name!r}, stop them all, and start them again"
            )
        async with self._one_choice:
            before, chosen = self.chosen, self._chosen(name)
            settings = self._settings.model_copy(update=chosen)
            for persona in selection.named_models(settings).personas:
                if persona not in self._voices_of:
                    raise InvalidInput(f"{persona!r} is not a persona with its own model; name one of {', '.join(self._voices_of)}")
            found = await self._found()
            after = selection.choose_profile(settings, self._voices_of, found if self._of_user else None, self._of_user)
            self._check(after.profile, selection.named_models(settings), {one.name for one in found or ()})
            await asyncio.to_thread(config.choose, settings.data, chosen)
            self.chosen, self._settings, self._bases = after, settings, {}
            self._on_choice(chosen)
            for place in self.places:
                place.provisioner.adopt(self.profile)
                place.adopt(self.options, self.profile.options.get("stop", ()))
            log.info("models_chosen", profile=self.profile.name, model=self.profile.base, why=after.why)
            if self.factory is not None:
                roles = self._image.read(model_registry.plain_models)
                await self.factory.adopt(bases_of(roles, self.profile, modelfiles_folder(settings.inference.modelfiles)), self.profile)
            told = await self.models.ensure()
        return {**told, "model": self.profile.base, "why": after.why, "before": _profile_summary(before.profile)}

    def _chosen(self, name: str) -> Record:
        """Return the settings for the model that was asked for."""
        persona, _, model = name.rpartition("=")
        if persona:
            kept = (one for one in self._settings.inference.model if not one.startswith(f"{persona}="))
            return {"inference.model": (*kept, name)}
        own = own_profiles(self._settings.data)
        if model in profile_names(own):
            return {"inference.model": (), "inference.profile": model}
        return {"inference.model": (name,)}

    def _check(self, profile: Profile, named: selection.NamedModels, there: set[str]) -> None:
        """
        :raises InvalidInput: if the chosen model is not available now.
        """
        for model in filter(None, (named.all, *named.personas.values())):
            if tagged(model) not in there:
                raise InvalidInput(
                    f"Ollama has no model {model!r}{nearest(model, there)}; `batos models --fit` says what it has, "
                    f"`batos models --ensure {model}` pulls one"
                )
        if profile.embedder != self.profile.embedder:
            raise InvalidInput(f"the profile {profile.name} embeds with {profile.embedder}, which takes a restart: `batos run --profile`")

    async def _fit(self, names: Sequence[str]) -> Record:
        """See `Models.fit`."""
        for name in names:
            await self.places[0].probe(name)
        found, budget = await self._found(), self._settings.inference.memory_bytes
        if found is None:
            raise InferenceFailed("Ollama does not say what it has", cause="unreachable")
        thinks = {tagged(self.model_of(persona)) for persona in self._personas} | {tagged(self.profile.base)}
        return {
            **self.models.describe(),
            "model": self.profile.base,
            "why": self.chosen.why,
            "budget": budget,
            "fit": [{**_fact(one, budget), "in_use": one.name in thinks} for one in found],
        }

    def model_of(self, persona: str) -> str:
        """Return the model that speaks for a persona, as the image has it now."""

        def model(root: Root) -> str:
            found = root["lobby"]._slots[persona]
            return getattr(found, "voice", "") or self.profile.model_of(str(found.model))

        return self._image.read(model)

    @property
    def options(self) -> dict[str, Any]:
        """Return the options with which Ollama loads a model, and the limit of an answer."""
        settings = self._settings
        own = {
            "num_ctx": settings.inference.window,
            "num_predict": settings.inference.answer_tokens,
            "num_thread": settings.inference.threads,
        }
        return {**self.profile.options, **{name: value for name, value in own.items() if value}}

    @property
    def chat_options(self) -> dict[str, Any]:
        """Return Ollama's options of every chat."""
        settings = self._settings
        think = {"on": {"think": True}, "off": {"think": False}}.get(settings.inference.think, {})
        return {**self.options, **({"stop": list(settings.inference.stop)} if settings.inference.stop else {}), **think}

    async def settled(self) -> None:
        """Wait until each model of the profile has been provided, or found to be unavailable, once."""
        if self.facts():
            await self._settled.wait()

    async def experts_known(self) -> None:
        """Wait until it is known which experts write methods. If such an expert is staged, wait until its base models and the expert have
        been examined once. Otherwise return at once: a pull may take hours.
        """
        if self.factory is not None and await self.factory.writes_soon():
            await self.settled()
            await self.factory.scan_settled()

    async def experts(self, scan: bool, patience_s: float) -> Record:
        """Return the facts about experts, after a scan if one is asked for; without an Ollama those that the image has."""
        if self.factory is None:
            return {"staging": None, **self._image.read(model_registry.report_experts), "refused": []}
        if scan:
            # experts are built on the personas' own models; after the timeout the report says that they wait
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self.settled()
            await self.factory.scan_settled()
        return self.factory.report()


def _other_kernels(root: Root) -> list[str]:
    me = kernels.me(root)
    return [one.name for one in kernels.listed(root) if me and one.name != me and not one.gone]


def _profile_summary(profile: Profile) -> str:
    """Return the name by which `use` would have the profile back."""
    return profile.base if profile.name == selection.OWN else profile.name


def _fact(one: Candidate, budget: int) -> Record:
    """Return the facts of `models` with `fit` about one model; sizes in bytes."""
    context = one.context_within(budget)
    unfit = one.unfit(budget)
    told = {"name": one.name, "bytes": one.bytes, "memory": one.memory(context), "fits": one.memory(context) <= budget}
    return {**told, "num_ctx": context, **one.can.to_wire(), **({"not_by_itself": unfit} if unfit else {})}
