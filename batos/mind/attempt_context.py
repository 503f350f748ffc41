"""Thinking: the inferences of one mission, taken from the journal where they were paid for, else asked and journaled.

Nothing is used before it is durable. While a cycle is replayed under the gate it may not wait for a model; then a
journal miss is a NeedInference, which leaves the gate, is paid outside, and the cycle is replayed again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import math
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import structlog

from batos.bridge.capabilities import Needs
from batos.bridge.inference import ChatReply, ChatRequest, Inference
from batos.bridge.structured_output import Form, Structured, structured
from batos.config import Settings
from batos.errors import BudgetSpent, InferenceFailed, InvalidInput, ModelBlind, QualityRefused
from batos.image import blobs, journal, model_registry
from batos.image.ledger import answer_to
from batos.image.living_image import LivingImage
from batos.methods.runtime import Making, MethodRuntime
from batos.mind import answer_schema, prompts
from batos.mind.answer_checks import Nearness, not_told
from batos.mind.brief_analysis import AUTO, DEPTHS, FLAVOURS, Approach, AskedApproach, BriefFacts, Errand, decide, errand_of, has_read
from batos.mind.codex import BASE_MODEL
from batos.mind.events import Events, Propose, Ruled, TextBatch, nothing_proposed, nothing_ruled
from batos.mind.evidence import Evidence, EvidenceLimits, RecallsMemory
from batos.mind.inference import (
    AttemptTally,
    Begun,
    By,
    JournalPlace,
    NeedAnswer,
    NeedInference,
    Paid,
    PromptTooLong,
    apart,
    counting,
    is_full,
    spent,
)
from batos.mind.limits import ThinkingLimits
from batos.mind.model_needs import (
    PROVISIONING,
    NeedModel,
    Provider,
    Provision,
    Shown,
    Sight,
    model_named_for_pictures,
    needed_context,
    needs_named,
    pictures_together,
)
from batos.mind.router import Route, Router, RoutingLimits, Shares
from batos.objects import UvmObject, find

log = structlog.get_logger("batos.mind")
_REPLY_OF = operator.attrgetter(*(field.name for field in dataclasses.fields(ChatReply)))  # of an `Inference`


YES = ("yes", "y")
"""What lets something be done that the user was asked about."""


class Thinking:
    """One attempt at one mission, as the states and primitives see it."""

    compare = True  # whether router and memory may be asked anew
    proposes = True  # whether the system's own missions end with a proposal
    keeps = True  # whether what comes of it is kept: else nobody has to wait for what it writes, nor it for others

    def __init__(
        self,
        mission: dict[str, Any],
        *,
        inference: Inference,
        image: LivingImage,
        events: Events,
        settings: Settings,
        models: Callable[[str], str],
        options: dict[str, Any],
        router: Router,
        share_out: Callable[[str], Shares],
        methods: MethodRuntime,
        memory: RecallsMemory | None = None,
        on_paid: Callable[[journal.InferenceRecord], None] = lambda paid: None,
        outage: Callable[[], str] = lambda: "",
        propose: Propose = nothing_proposed,
        ruled: Ruled = nothing_ruled,
        parameters: Callable[[str], int | None] = lambda model: None,
        base_of: Callable[[str], str] = lambda role: BASE_MODEL,
        nearness: Nearness = not_told,
        direct: Mapping[str, Any] | None = None,
        plain: Mapping[str, Any] | None = None,
        provider: Provider | None = None,
        sight: Sight | None = None,
    ) -> None:
        """
        :param mission: the mission's record (`ledger.describe`).
        :param models: from a persona's role to the name of a model.
        :param options: Ollama's options of every inference (num_ctx, num_predict, ...).
        :param share_out: from a brief to the personas that it needs, each with its part; empty where one is enough.
        :param methods: what generated methods need of the host.
        :param memory: None: nothing is recalled, and nothing can be remembered.
        :param on_paid: hears of each inference that a model was asked for.
        :param propose: what a mission of the system's own proposes, from the image's root, the mission and its cycle: facts of its result.
        :param ruled: the result of a mission of the system's own that no model has to think through.
        :param parameters: of a model, by its name; None where that is not known.
        :param base_of: from a persona's role to the model that its own is made of: nobody's voice.
        :param nearness: of an answer to what it answers to.
        :param direct: options of an answer that is thought about in one inference.
        :param plain: options of inferences in nobody's voice.
        :param provider: provides models that can do more; None: the mission thinks with those that there are.
        :param sight: knows which models see.
        :param outage: says that no Ollama answers, for the error of a mission whose time is up; empty where one does.
        """
        self.mission, self.id = mission, str(mission["id"])
        self.settings, self.model_of, self.router = settings, models, router
        self.routed: Route | None = None
        alone = mission["persona"] is not None or mission["origin"] == "system"
        self._shares: Callable[[str], Shares] = (lambda brief: ()) if alone else share_out
        self._shared: dict[bytes, Shares] = {}
        self._approaches: dict[bytes, Approach] = {}
        self._base_of = base_of
        self._parameters, self.direct, self.plain = parameters, dict(direct or {}), dict(plain or {})
        self.earlier = False  # whether it began under a version that told its models things in another order: what was paid for fits that
        self.conversation = ""  # what was said before, where the mission follows another
        self.turns: tuple[tuple[str, str], ...] = ()  # the same, turn by turn
        self.room: int | None = None  # characters that may be told, where all were too many
        self.shown: Shown = ()  # the pictures of each of these turns, and of the brief
        self.sight, self._lent = sight or Sight(), model_named_for_pictures(mission["questions"])
        self.follows_deep = False  # whether what it follows was thought about in several ways
        self._nearness: Nearness = nearness if self.compare else not_told
        self._near: dict[bytes, float | None] = {}
        self._read: dict[str, tuple[Any, str | None]] = {}
        self._inference, self._image, self._events = inference, image, events
        self._on_paid, self.outage, self.propose, self._ruled = on_paid, outage, propose, ruled
        self._options = {**options, "seed": int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:4], "big") >> 1}
        if "thinking" in (mission.get("needs") or ()):
            self._options["think"] = True
        self._provider, self.provision = provider, Provision()
        self._recorded = Paid()
        self._failed: dict[tuple[bytes, int], InferenceFailed] = {}
        self._voices: dict[str, str] = {}
        self._begun = Begun(
            self.id, image, every_s=ThinkingLimits.of(settings).partial_s, every_tokens=ThinkingLimits.of(settings).partial_tokens
        )
        self.evidence = Evidence(self.id, image, memory, chars=EvidenceLimits.of(settings).chars, ask=self.compare)
        self.begun = time.monotonic()
        self.gated = False
        self.state, self.persona, self.why = "IDLE", "", ""
        self.reached = "IDLE"  # the state of thought, also after it FAILED
        self.paid = 0
        self._own: dict[str, Any] = {"cycle": "", "model": None}  # of the mission's own cycle, for its events
        self._tally = AttemptTally()
        self.making = Making(self.id, mission["accepted"], methods)

    def recall(self) -> None:
        """Load what earlier attempts decided and paid for."""
        self._begun.recall()
        self.evidence.load()
        self._shared = self._image.read(journal.shared_of, self.id)
        self.room = self._image.read(journal.room_of, self.id)
        self._near = dict(self._image.read(journal.nearness_of, self.id))
        recorded = self._image.read(journal.approaches_of, self.id)
        self._approaches = {mark: Approach(*fields) for mark, fields in recorded.items()}
        record = self._image.read(journal.route_of, self.id)
        self.routed = self.routed if record is None else Route.from_record(record)
        self._recorded = Paid(self._image.read(journal.load, self.id))
        self.earlier = bool(self._recorded) and not self._approaches
        self._think_with(Provision.of(self._image.read(journal.provided_of, self.id)))

    async def check_needs(self) -> None:
        """See that what thinks meets what the mission needs, as its record says.

        :raises NeedModel: where it does not, or what it was provided with is there no more.
        """
        if self._provider is None or self.mission["origin"] == "system":
            return
        if self.provision and not await self._provider.stands(self.provision):
            lost, self.provision = self.provision, Provision()
            raise NeedModel(lost.needs)
        await self.require(needs_named(self.mission))
        context, answer = (int(self._options.get(name) or 0) for name in ("num_ctx", "num_predict"))
        length = needed_context(str(self.mission["brief"]), context, answer) if context else Needs()
        if not self.provision.declined.covers(length):
            await self.require(length, may_do_without=True)

    async def require(self, needs: Needs, *, may_do_without: bool = False) -> None:
        """See that what thinks meets these needs.

        :param may_do_without: whether the mission goes on as it is where nothing may be had that does.
        :raises NeedModel: where it does not: the attempt ends, and the mission goes on when a model is provided that does.
        """
        if self._provider is None or not needs or self.provision.needs.covers(needs):
            return
        if self.provision or not await self._provider.met(needs):
            raise NeedModel(needs | self.provision.needs, may_do_without=may_do_without)

    async def provide(self, need: NeedModel) -> None:
        """Have the mission provided with what meets its needs.

        :raises NeedAnswer, ModelNeeded, InferenceFailed: see `Provider.provide`.
        """
        assert self._provider is not None
        self.state = self.reached = PROVISIONING
        self.publish("state", needs=need.needs.words())
        before = self.provision
        self._think_with(await self._provider.provide(self, need.needs, may_do_without=need.may_do_without))
        if self.room is not None and self.provision.options != before.options:  # another context: what did not fit before may
            self.room = None
            self._keep(journal.set_room, None)

    def _think_with(self, provision: Provision) -> None:
        self.provision = provision
        self._options |= provision.options
        if provision.needs.thinking:
            self._options["think"] = True
        if provision.model:
            self.direct, self.plain = dict(provision.direct), {}

    @property
    def has_begun(self) -> bool:
        """Whether an earlier attempt was given to a persona, or paid for something: then it goes on as it began."""
        return self.routed is not None or bool(self._recorded)

    @functools.cached_property
    def errand(self) -> Errand | None:
        """What the mission asks to be done outside of the system, or of its clock; None for any other, for one that is of a form, a
        message or brings images, for the system's own, and for one that has begun otherwise."""
        mission = self.mission
        pictured = any("of" not in one for one in mission.get("images") or ())
        if mission["message"] or mission["schema"] or pictured or mission["origin"] == "system" or self.has_begun:
            return None
        return errand_of(str(mission["brief"]), lambda name: self._image.read(has_read, name))

    async def decide(self) -> Route:
        """Who thinks this mission through. Decided once: whoever takes it up again finds the same, and with it what was paid for.

        The record goes with the mission's next commit, so it is durable no later than anything that depends on it.
        """
        if self.routed is None:
            pictured = bool(self.mission["images"]) and self.mission["persona"] is None and not self._lent
            among = await self.sight.personas(self.router.personas, RoutingLimits.of(self.settings).look_s) if pictured else None
            self.routed = await self.router.decide(self.mission, compare=self.compare, among=among)
            self.persona, self.why = self.routed.persona.upper(), self.routed.why
            self._keep(journal.set_route, self.routed.to_record())
        return self.routed

    async def look(self) -> None:
        """See that whoever thinks the mission through sees its own pictures. Those of earlier missions are shown only where he does.

        :raises ModelBlind: where he does not, with what follows.
        :raises NeedAnswer: where the mission may ask which model shall.
        :raises NeedModel: where no model here sees, and another one may be had.
        """
        if self.routed is None or not any("of" not in one for one in self.mission["images"]) or self.provision.needs.vision:
            return
        try:
            await self.sight.look(self.routed.persona, self._lent, self.ask if self.mission["may_ask"] else None)
        except ModelBlind as e:
            if e.context["models"] or self._provider is None:
                raise
            seeing = Needs(vision=True)  # no model here sees: another one may be had
            if not self.provision.declined.covers(seeing):
                await self.require(seeing, may_do_without=True)
            raise ModelBlind(f"{e.message}. {self.provision.why_not}", **e.context) from None

    def sees(self, persona: str) -> bool:
        """Whether a persona may be asked about the brief: it has no pictures of its own, or the persona's model sees as far as is known."""
        own = any("of" not in one for one in self.mission["images"])
        return not own or bool(self._lent) or self.provision.needs.vision or self.sight.known(self.sight.model_of(persona)) is not False

    async def ruled(self, root: Any, mission: UvmObject, persona: UvmObject) -> dict[str, Any] | None:
        """The result of a mission of the system's own that is told by rule; None where a model is to think it through."""
        return await self._ruled(root, mission, persona) if mission.origin == "system" else None

    def share_out(self, brief: str) -> Shares:
        """The personas that a brief needs, each with its part; empty where one is enough. Decided once, and recorded, as `decide` is."""
        mark = journal.mark_of(brief)
        if mark not in self._shared:
            self._shared[mark] = self._shares(brief)
            self._keep(journal.add_shared, mark, self._shared[mark])
        return self._shared[mark]

    def approach(self, persona: UvmObject, brief: str, *, inner: bool) -> Approach:
        """How a persona is to think about a brief. Decided once, and recorded, as `decide` is.

        :param inner: whether it is a part of another cycle's brief.
        """
        if self.earlier:
            return Approach("facets", "it began so", "full")
        mark = journal.mark_of(f"{persona.name} {brief}" if inner else brief)
        if mark not in self._approaches:
            self._approaches[mark] = self._approach(persona, brief, inner)
            self._keep(journal.add_approach, mark, tuple(self._approaches[mark]))
        return self._approaches[mark]

    def _approach(self, persona: UvmObject, brief: str, inner: bool) -> Approach:
        mission, settings = self.mission, self.settings
        parts = 0 if inner else len(self.share_out(brief))
        facts = BriefFacts(
            parameters=self._parameters(self.model_of(self.voice_of(persona))),
            parts=parts if ThinkingLimits.of(settings).depth > 1 else 0,
            follows_deep=self.follows_deep and not inner,
            deadline_s=mission["deadline_s"],
            inferences=settings.missions.inferences,
            expert=bool(getattr(persona, "voice", "")),
            speaks=inner or self.routed is None or self.routed.speaks,
        )
        asked = {}
        for name, known in (("depth", DEPTHS), ("flavour", FLAVOURS)):
            by = (("mission", mission[name]), ("persona", _said(persona, name, AUTO)), ("setting", getattr(settings.missions, name)))
            asked[name] = [AskedApproach(value, whose) for whose, value in by if value in known]
        depths = asked["depth"]
        if inner:  # what was asked for is the mission's own depth: its parts are as deep as their words ask
            depths = [one for one in depths if one.by == "persona"]
        return decide(self.router.window(brief), depths, asked["flavour"], facts)

    def council(self) -> Shares:
        """The personas that think about a whole brief where a council was asked for: those that it speaks for most."""
        if self.routed is None:
            return ()
        scores = {self.routed.persona: math.inf} | {
            name: found["score"] for name, found in self.routed.scores.items() if name != self.routed.persona
        }
        names = sorted(filter(self.sees, scores), key=lambda name: -scores[name])[: ThinkingLimits.of(self.settings).voices]
        return tuple((name, str(self.mission["brief"])) for name in names) if len(names) > 1 else ()

    async def nearness(self, text: str, others: Sequence[str]) -> float | None:
        """How alike a text is to the one of others that is most so, as a cosine; None where that cannot be told.

        Found once, and recorded, as `decide` is: an answer that was refused for it is refused again by whoever takes the mission up. Under
        the gate nothing waits for a model: there it is what was found before.
        """
        mark = journal.mark_of("\0".join((text, *others)))
        if mark not in self._near and not self.gated:
            self._near[mark] = found = await self._nearness(text, others)
            if found is not None:
                self._keep(journal.add_nearness, mark, found)
        return self._near.get(mark)

    async def read(self, text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
        """The value in an answer of the mission's schema, as `forms.read` tells it. Told once: it may take a child process seconds, for
        which a replay would hold the gate, and where it was too long once it may not be the next time."""
        if text not in self._read:
            self._read[text] = await answer_schema.read(text, schema)
        return self._read[text]

    def narrow(self, found: PromptTooLong) -> None:
        """Tell less from now on; whoever takes the mission up again does, too.

        :raises InferenceFailed: where less would be too little.
        """
        room = found.told if self.room is None and any(self.shown[:-1]) else prompts.narrower(found.told, self.room)
        if room is None:
            raise InferenceFailed(
                f"{found.cause.message}; with all left out that may be it is still longer than what {found.cause.context['model']} reads "
                "at a time: shorten it, raise num_ctx, or use a model with a longer context (`batos models --fit`)",
                cause="too_long", model=found.cause.context["model"],
            )  # fmt: skip
        log.info("told_less", mission=self.id, chars=room, why=found.cause.message)
        self.room = room
        self._keep(journal.set_room, room)

    def _keep(self, record: Callable[..., None], *what: Any) -> None:
        self._image.committer.defer(record, self.id, *what)

    @property
    def tally(self) -> AttemptTally:
        """What counts here: the attempt's, or that of the trial in which this is asked."""
        return counting(self._tally)

    @property
    def live_state(self) -> str:
        """The state as it is told while the mission is not final: a cycle that FAILED may be followed by another."""
        return self.reached if self.state in ("COMPLETE", "FAILED") else self.state

    def restart(self, *, gated: bool) -> None:
        """Begin the cycle anew, from the journal."""
        self._tally = AttemptTally()
        self.evidence.restart()
        self.making.restart()
        self.gated = gated
        self.state = self.reached = "IDLE"
        if not gated:
            self._failed.clear()
            self._voices.clear()

    def voice_of(self, persona: UvmObject) -> str:
        """The model that speaks for a persona in this mission: its expert, or its plain model's role.

        A mission ends with the voice it began with, also after a restart: its journal says which that was. Unless that one
        cannot speak any more.
        """
        if self._lent and not self.provision.needs.vision:
            return self._lent
        if self.provision.model:
            return self.provision.voices.get(str(persona.model).lower(), self.provision.model)
        name = str(persona.name)
        if name not in self._voices:
            plain = str(persona.model)
            root = persona._p_jar.root()
            heard = dict.fromkeys(entry.model for entry in self._recorded.values())
            began = (m for m in heard if m == self.model_of(plain) or model_registry.speaks_for(root, m) == name.lower())
            self._voices[name] = next(began, None) or _said(persona, "voice", "") or plain
        return self._voices[name]

    def plain_voice_of(self, persona: UvmObject) -> str:
        """The model that speaks where nobody's voice is wanted: what the persona's own is made of."""
        if self._lent and not self.provision.needs.vision:
            return self._lent
        return self.provision.model or self._base_of(str(persona.model))

    def number(self, outer: str) -> str:
        """The number of the next cycle inside the cycle `outer` (its number; empty: the mission itself)."""
        self.tally.cycles[outer] += 1
        return f"{outer}.{self.tally.cycles[outer]}" if outer else str(self.tally.cycles[outer])

    @contextlib.contextmanager
    def rehearsing(self) -> Iterator[None]:
        """What is asked inside counts as not asked: a trial's inferences are journaled, and the real run finds them there. What is written
        inside counts as not written: its cycles are of a transaction that is aborted."""
        with apart(self.tally):
            yield

    def ask(self, question: str) -> str:
        """What the user answers to a question; the how-manieth of the same words it is decides which answer is meant.

        :raises NeedAnswer: where it is not answered: the attempt ends, and the mission waits, also over restarts.
        :raises InvalidInput: for a question that is blank, or longer than `ThinkingLimits.question_chars`.
        """
        if not question.strip() or len(question) > ThinkingLimits.of(self.settings).question_chars:
            raise InvalidInput(
                f"a question has 1 to {ThinkingLimits.of(self.settings).question_chars} characters; this one has {len(question.strip())}"
            )
        occurrence = self.tally.questions[question]
        self.tally.questions[question] += 1
        found = answer_to(self.mission, question, occurrence)
        if found is None:
            raise NeedAnswer(question, occurrence)
        return found

    def agrees(self, question: str) -> bool | None:
        """Whether the user says yes to a question, which is asked once; None where the mission may not ask, or not one that is so long.

        :raises NeedAnswer: where it is not answered, as `ask`.
        """
        if not self.mission["may_ask"] or len(question) > ThinkingLimits.of(self.settings).question_chars:
            return None
        agreed = self.tally.agreed
        if question not in agreed:
            found = answer_to(self.mission, question, 0, grant=True)
            if found is None:
                raise NeedAnswer(question, 0, grant=True)
            agreed[question] = found.strip().casefold() in YES
        return agreed[question]

    async def chat(
        self,
        role: str,
        system: str,
        user: str,
        *,
        schema: dict[str, Any] | None = None,
        part: str | None = None,
        silent: bool = False,
        by: By | None = None,
        turns: tuple[tuple[str, str], ...] = (),
        narrows: bool = False,
        pictured: bool = False,
        **options: Any,
    ) -> ChatReply:
        """One inference of this mission.

        :param role: the persona's role, or a model's name.
        :param part: what of the cycle speaks: a facet, `plan`, `critic`; None for the mission's own voice.
        :param silent: whether its text is no event.
        :param by: the cycle that asks, for the events and the journal.
        :param turns: what was said before, as pairs of what the user said and what was answered.
        :param narrows: whether the prompt is shorter where less may be told (`room`).
        :param pictured: whether the brief's pictures go with it, where the model sees; those of the conversation go with their turns.
        :raises PromptTooLong: where one that narrows does not fit the context, or leaves no room in it for the answer.
        :raises InferenceFailed: with its cause.
        :raises QualityRefused: where all of it is thought, and none of it answer.
        :raises BudgetSpent: past `missions.inferences`.
        """
        if self.tally.asked.total() >= self.settings.missions.inferences:
            raise BudgetSpent(
                f"mission {self.id!r} asked for more than {self.settings.missions.inferences} inferences (setting missions.inferences)"
            )
        by = by or By(state=self.state, persona=self.persona)
        chosen = {name: tuple(of) if isinstance(of, list) else of for name, of in {**self._options, **options}.items()}
        model = self.model_of(role)
        digest = await self._inference.digest(model)
        shown = self._shown_to(model, turns) if pictured and self.shown else ()
        request = ChatRequest(model, system, user, schema, tuple(sorted(chosen.items())), digest=digest, turns=turns, shown=shown)
        content = journal.content_of(digest, system, user, schema, chosen, turns, shown)
        key = journal.key_of(content)
        label = by.label(part)
        place = JournalPlace(key, self._recorded.occurrence(key, label, self.tally), journal.parts_of(content))
        self.tally.asked[key] += 1
        self.tally.taken.add(place[:2])
        told = len(system) + len(user) + sum(len(said) + len(answered) for said, answered in turns)
        try:
            known = await self._inferred(request, place, label, None if silent else self._batch(part, by, request.model))
        except InferenceFailed as e:
            if narrows and e.cause == "too_long":
                raise PromptTooLong(told, e) from None
            raise
        self.tally.used.append(known)
        if narrows and is_full(known, chosen) and prompts.narrower(told, self.room) is not None:
            why = f"{model} had no room for its answer: {known.prompt_tokens} of {chosen['num_ctx']} tokens were read"
            raise PromptTooLong(told, InferenceFailed(why, cause="too_long", model=model))
        if schema is None and (why := spent(known)):
            raise QualityRefused(why)
        return ChatReply(*_REPLY_OF(known))

    async def _inferred(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None) -> journal.InferenceRecord:
        known = self.known(place, label)
        if known is not None:
            self.tally.replayed += 1
            return known
        if self.gated and place[:2] in self._failed:
            raise self._failed[place[:2]]
        if self.gated:
            raise NeedInference(request, place, label)
        return await self.pay(request, place, label, heard)

    async def structured(self, role: str, system: str, user: str, form: type[Form], **more: Any) -> Structured[Form]:
        """Inferences of this mission, silent ones, until one is an answer of a form.

        :param more: as for `chat`.
        :raises InferenceFailed: with its cause; `malformed` with all texts as `raw` in its context where none was of the form.
        """

        async def ask(prompt: str, schema: dict[str, Any] | None) -> str:
            return (await self.chat(role, system, prompt, schema=schema, silent=True, **more)).text

        settings = self.settings
        return await structured(
            ask, user, form, repairs=ThinkingLimits.of(settings).repairs, raw_chars=ThinkingLimits.of(settings).malformed_chars
        )

    def _shown_to(self, model: str, turns: tuple[tuple[str, str], ...]) -> Shown:
        if self.sight.known(model) is False:
            return ()
        if self.room is None:
            return self.shown if turns else pictures_together(self.shown)
        own = self.shown[-1]  # all was too long: pictures of earlier turns take the most
        return (((),) * len(turns) + (own,)) if own else ()

    async def with_pictures(self, request: ChatRequest) -> ChatRequest:
        """The request as it is sent: with the bytes of what it shows, which are read when they are needed and kept nowhere else.

        :raises ImageDamaged: where they are not what was uploaded.
        """
        if not request.shown:
            return request

        def read(digest: str) -> str:
            return base64.b64encode(self._image.read(blobs.read_picture, digest)).decode()

        every = dict.fromkeys(digest for turn in request.shown for digest in turn)
        found = {digest: await asyncio.to_thread(read, digest) for digest in every}
        return dataclasses.replace(request, images=tuple(tuple(found[digest] for digest in turn) for turn in request.shown))

    def known(self, place: JournalPlace, label: str) -> journal.InferenceRecord | None:
        """The inference that was paid for already, if it was.

        :param label: who asks (`By.label`).
        """
        return self._recorded.get(place[:2])

    def _batch(self, part: str | None, by: By, model: str) -> TextBatch:
        """What publishes the text of an inference as it comes, to those who listen by then: a page may be opened while it is written."""

        def tell(text: str, pieces: int) -> None:
            self.publish("token", text=text, pieces=pieces, facet=part, model=model, **by._asdict())

        return TextBatch(tell, ThinkingLimits.of(self.settings).token_batch_s)

    async def pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None = None) -> journal.InferenceRecord:
        """Ask the model and journal its answer; returns when that is durable."""
        hear: Callable[[str], None] | None = None if heard is None else heard.add
        begun, tokens = self._begun.of(place[:2])
        if begun and not await self._inference.continues(request.model):
            self._begun.drop(place[:2])
            begun = ""
        if begun:
            request = dataclasses.replace(request, begun=begun, begun_tokens=tokens)
            if hear is not None:
                hear(begun)
        if request.schema is None:  # the grammar of a schema begins at the beginning
            hear = self._begun.listener(place[:2], hear)
        request = await self.with_pictures(request)
        try:
            reply = await self._inference.chat(request, deadline_s=self.settings.inference.deadline_s, on_text=hear)
        finally:
            if heard is not None:
                heard.flush()
        self._begun.drop(place[:2])
        paid = journal.InferenceRecord(
            place.key, place.occurrence, reply.text, reply.model, reply.digest[:16], reply.prompt_tokens, reply.answer_tokens + tokens,
            round(reply.load_ms, 1), round(reply.total_ms, 1), reply.done_reason, journal.now(), place.parts, label,
            round(reply.prompt_eval_ms, 1), round(reply.eval_ms, 1), dict(request.options).get("seed"),
            reply.thinking[: ThinkingLimits.of(self.settings).thinking_chars],
        )  # fmt: skip
        self._recorded.add(paid)
        self._on_paid(paid)
        await self._image.system(journal.add, self.id, paid, mission=self.id)
        self.paid += 1
        return paid

    async def settle(self, need: NeedInference) -> None:
        """Pay what a replay under the gate needs; where that fails, the replay is where it fails: a cycle may do without it."""
        try:
            await self.pay(need.request, need.place, need.label)
        except InferenceFailed as e:
            self._failed[need.place[:2]] = e

    def moved(self, by: By, role: str, **facts: Any) -> None:
        """A cycle's transition, to the watchers and the log."""
        model = self.model_of(role)
        if "." not in by.cycle:
            self._own = {"cycle": by.cycle, "model": model}
        log.debug("transition", mission=self.id, model=model, **by._asdict())
        self.publish("state", model=model, **by._asdict(), **facts)

    def revised(self, by: By, why: str) -> None:
        """Tell the watchers that an answer that they may have heard is refused, and another comes."""
        self.publish("revised", why=why, model=self._own["model"], **by._asdict())

    def publish(self, kind: str, **facts: Any) -> None:
        """An event of this mission."""
        if not self._events.heard(self.id, kind):
            return
        self._events.publish(
            self.id,
            {
                "type": kind,
                "id": self.id,
                "state": self.state,
                "persona": self.persona,
                **self._own,
                "elapsed_s": round(time.monotonic() - self.begun, 4),
                **facts,
            },
        )

    def usage(self) -> dict[str, Any]:
        """What this mission's answer cost: inferences, tokens, model time in milliseconds, and how much of it went into reading."""
        used = self.tally.used
        return {
            "inferences": len(used),
            "replayed": self.tally.replayed,
            "prompt_tokens": sum(e.prompt_tokens for e in used),
            "answer_tokens": sum(e.answer_tokens for e in used),
            "model_ms": round(sum(e.total_ms for e in used), 1),
            "prompt_ms": round(sum(e.prompt_eval_ms for e in used), 1),
            "models": sorted({e.model for e in used}),
        }


def _said(persona: UvmObject, name: str, otherwise: str) -> Any:
    """What a persona's slot says, own or inherited; a message that is not understood costs far more."""
    held = find(persona, name)
    return otherwise if held is None else held[1]


_current: contextvars.ContextVar[Thinking] = contextvars.ContextVar("batos_thinking")


@contextlib.contextmanager
def thinking(attempt: Thinking) -> Iterator[Thinking]:
    """Make `attempt` the current one for the primitives that run inside."""
    token = _current.set(attempt)
    try:
        yield attempt
    finally:
        _current.reset(token)


def attempt_or_none() -> Thinking | None:
    """The attempt in which this code runs; None outside missions."""
    return _current.get(None)


def current() -> Thinking:
    """The attempt in which this code runs; for primitives, whose arguments come from messages."""
    return _current.get()
