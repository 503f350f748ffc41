"""Attempt: one try to think a mission through, as the states and primitives see it.

An attempt has the mission's record, the services that all attempts share (`AttemptServices`), and a source of inferences
(`batos.mind.inference`). The source is live for a mission, the journal alone for a replay, and a budget for a rehearsal. Its permissions
are an `AttemptPolicy`. Code that runs inside finds it by `current` (see `batos.scope`).
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import structlog

from batos import scope
from batos.bridge.capabilities import Needs
from batos.bridge.inference import ChatReply, ChatRequest
from batos.bridge.structured_output import Form, Structured, structured
from batos.errors import BudgetSpent, InferenceFailed, InvalidInput, ModelBlind, QualityRefused
from batos.image import journal, model_registry
from batos.image.mission_record import MissionRecord
from batos.methods.runtime import Making
from batos.mind import answer_schema, prompts
from batos.mind.answer_checks import no_similarity
from batos.mind.attempt_services import LIVE, AttemptPolicy, AttemptServices
from batos.mind.brief_analysis import (
    AUTO,
    DEPTHS,
    FLAVOURS,
    Approach,
    AskedApproach,
    BriefFacts,
    Errand,
    decide,
    errand_of,
    has_read,
)
from batos.mind.cycle_stepper import CycleStepper, amend
from batos.mind.decisions import Decisions
from batos.mind.events import TextBatch
from batos.mind.evidence import Evidence, EvidenceLimits
from batos.mind.inference import (
    AttemptTally,
    InferenceAsker,
    InferenceSource,
    JournaledInference,
    LiveSource,
    NeedAnswer,
    NeedInference,
    PromptTooLong,
    ThinkingLimits,
    is_full,
    why_no_answer,
)
from batos.mind.model_needs import (
    PROVISIONING,
    NeedModel,
    Provision,
    Shown,
    model_named_for_pictures,
    needed_context,
    needs_named,
    pictures_shown,
    pictures_together,
)
from batos.mind.router import Route, RoutingLimits, Shares, shares
from batos.mind.tool_use import ToolUse
from batos.objects import Root, UvmObject, find
from batos.tools.effects import NeedEffect

log = structlog.get_logger("batos.mind")
_REPLY_OF = operator.attrgetter(*(one.name for one in fields(ChatReply)))  # fields of an `InferenceRecord`

YES = ("yes", "y")
"""Answers of the user that permit an action."""


class PromptContext(NamedTuple):
    """Part of the mission that goes with a prompt."""

    turns: tuple[tuple[str, str], ...] = ()
    """Earlier turns: pairs of the user's text and the answer."""
    narrows: bool = False
    """True if the prompt becomes shorter when `Attempt.room` is smaller."""
    pictured: bool = False
    """True if the prompt includes the brief's pictures, for a model that sees. Pictures of the conversation belong to their turns."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tools that the model may ask for, in the form of Ollama's API, for a model that can use tools."""


_ALONE = PromptContext()


class Attempt:
    """One attempt at one mission."""

    stepper: CycleStepper | None = None
    """Follows the cycles of an attempt that its user steps through; None for any other."""

    def __init__(
        self,
        mission: MissionRecord,
        services: AttemptServices,
        source: InferenceSource | None = None,
        policy: AttemptPolicy = LIVE,
    ) -> None:
        """
        :param mission: the mission's record (`ledger.describe`).
        :param source: None: the services' inference, journaled.
        """
        terms = services.terms()
        self.mission, self.id = mission, mission.id
        self.services, self.terms, self.policy, self.settings = services, terms, policy, terms.settings
        self.inference = JournaledInference(
            source or LiveSource(self.id, services.image, services.inference, terms.settings, services.on_paid)
        )
        self.decisions = Decisions(self.id, services.image, records=policy.keeps)
        self.direct, self.plain = dict(terms.direct), dict(terms.plain)
        self.earlier = False  # True if a version with another order of prompts began the mission: the journal's answers fit that order
        self.talk = prompts.EarlierTalk()  # the conversation before, if the mission follows another
        self.told_by_user: dict[str, Any] | None = None  # the result, where the mission asks about its user and needs no model
        self.shown: Shown = ()  # pictures of each turn of the conversation, and of the brief
        self._lent = model_named_for_pictures(mission.questions)
        self.follows_deep = False  # True if the mission that this one follows was thought about in several ways
        self._read: dict[str, tuple[Any, str | None]] = {}
        self._options = {**terms.options, "seed": int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:4], "big") >> 1}
        if "thinking" in (mission.needs or ()):
            self._options["think"] = True
        self.provision = Provision()
        self._voices: dict[str, str] = {}
        self.evidence = Evidence(
            self.id, services.image, services.memory, chars=EvidenceLimits.of(self.settings).chars, ask=policy.compares
        )
        self._since = time.monotonic()
        self.saw = ""  # id of the first transaction that its view of the image does not see; empty before it has one
        self.state, self.persona, self.why = "IDLE", "", ""
        self.reached = "IDLE"  # the state of thought; it stays when the mission FAILED
        self._own: dict[str, Any] = {"cycle": "", "model": None}  # fields of the mission's own cycle, for its events
        self._tally = AttemptTally()
        self.making = Making(self.id, mission.accepted, services.methods)
        self.tools = ToolUse(self, services.image, services.toolbox, services.on_called, self.settings, acts=policy.keeps)

    def recall(self) -> None:
        """Load what earlier attempts decided and paid for."""
        self.inference.source.recall()
        self.evidence.load()
        self.decisions.recall()
        self.earlier = bool(self.inference.recorded) and not self.decisions.has_approaches
        if self.policy.reroutes:
            self.decisions.route = None
        if self.policy.rethinks:
            self.decisions.forget_approaches()
        self._think_with(Provision.of(self.services.image.read(journal.provided_of, self.id)))

    # --- state

    @property
    def gated(self) -> bool:
        """Return True while the cycle is replayed under the gate, where nothing waits for a model."""
        return self.inference.gated

    @property
    def paid(self) -> int:
        """Return how many inferences this attempt has paid for."""
        return self.inference.paid

    @property
    def routed(self) -> Route | None:
        """Return the route to the mission's persona; None until it is decided."""
        return self.decisions.route

    @property
    def room(self) -> int | None:
        """Return how many characters a prompt may tell; None as long as all had room."""
        return self.decisions.room

    @property
    def tally(self) -> AttemptTally:
        """Return the current counters: those of the attempt, or those of the trial under way."""
        return scope.current().trial or self._tally

    @property
    def live_state(self) -> str:
        """Return the state as clients see it until the mission is final: another cycle may follow one that FAILED."""
        return self.reached if self.state in ("COMPLETE", "FAILED") else self.state

    @property
    def has_begun(self) -> bool:
        """Return True if an earlier attempt was given to a persona, or paid for something: then it goes on as it began."""
        return self.routed is not None or bool(self.inference.recorded)

    def restart(self, *, gated: bool) -> None:
        """Begin the cycle anew, from the journal."""
        self._tally = AttemptTally()
        self.evidence.restart()
        self.making.restart()
        self.tools.restart(gated=gated)
        self.inference.restart(gated=gated)
        self.state = self.reached = "IDLE"
        if not gated:
            self._voices.clear()

    def trial(self, drafts: tuple[Any, ...] = ()) -> scope.Entering:
        """Enter the scope of a trial. What is asked inside counts as not asked: a trial's inferences are journaled, and the real run finds
        them there. What is written inside counts as not written: its cycles are of a transaction that is aborted.

        :param drafts: the methods that are tried (see `Scope.drafts`).
        """
        return scope.enter(trial=self.tally.copy(), drafts=drafts)

    # --- stepping

    @property
    def is_stepped(self) -> bool:
        """Return True if `arrive` has to hear of each state: the cycles have followers, or their slots were changed."""
        return self.stepper is not None or bool(self.decisions.amended)

    async def arrive(self, cycle: UvmObject, after: int) -> None:
        """Give a cycle the slots that its user changed for this state, and tell who follows.

        :param after: number of states that the cycle was in before.
        """
        amend(cycle, self.decisions.amended.get((str(cycle.number), after), ()))
        if self.stepper is not None:
            await self.stepper.arrive(cycle, after)

    # --- models with the abilities that the mission needs

    async def check_needs(self) -> None:
        """Check that the mission's models meet the needs in its record.

        :raises NeedModel: if a need is not met, or the provided model is no longer installed.
        """
        if self.services.provider is None or self.mission.origin == "system":
            return
        if self.provision and not await self.services.provider.is_installed(self.provision):
            lost, self.provision = self.provision, Provision()
            raise NeedModel(lost.needs)
        await self.require(needs_named(self.mission))
        context, answer = (int(self._options.get(name) or 0) for name in ("num_ctx", "num_predict"))
        length = needed_context(self.mission.brief, context, answer) if context else Needs()
        if not self.provision.declined.covers(length):
            await self.require(length, may_do_without=True)

    async def require(self, needs: Needs, *, may_do_without: bool = False) -> None:
        """Check that the mission's models meet these needs.

        :param may_do_without: True if the mission goes on without such a model when none is available.
        :raises NeedModel: where it does not: the attempt ends, and the mission goes on when a model is provided that does.
        """
        if self.services.provider is None or not needs or self.provision.needs.covers(needs):
            return
        if self.provision or not await self.services.provider.is_met(needs):
            raise NeedModel(needs | self.provision.needs, may_do_without=may_do_without)

    async def provide(self, need: NeedModel) -> None:
        """Provide the mission with a model that meets its needs.

        :raises NeedAnswer, ModelNeeded, InferenceFailed: see `Provider.provide`.
        """
        assert self.services.provider is not None
        self.state = self.reached = PROVISIONING
        self.publish("state", needs=need.needs.words())
        before = self.provision
        self._think_with(await self.services.provider.provide(self, need.needs, may_do_without=need.may_do_without))
        # the context has changed: prompts that were too long may fit now
        if self.room is not None and self.provision.options != before.options:
            self.decisions.take_room(None)

    def _think_with(self, provision: Provision) -> None:
        self.provision = provision
        self._options |= provision.options
        if provision.needs.thinking:
            self._options["think"] = True
        if provision.model:
            self.direct, self.plain = dict(provision.direct), {}

    # --- personas and depth

    @functools.cached_property
    def errand(self) -> Errand | None:
        """Return the errand that the mission asks for and that nothing here can do, or a question about the machine's clock. None for any
        other mission, and for one that has started to think. A tool may know the time of another city better than the clock does.
        """
        found = None if self.has_begun else self._errand
        return None if found is None or (found.is_for_tools and self.tools.offers()) else found

    def forget_errand(self) -> None:
        """Look anew if the mission's errand can be done: something was connected."""
        self.__dict__.pop("errand", None)

    @property
    def open_errand(self) -> Errand | None:
        """Return the errand that a tool may do. Where none does, the clock answers it, or the result says that it cannot be done."""
        found = self._errand if self.tools.has_any else None
        return found if found is not None and found.is_for_tools else None

    @functools.cached_property
    def _errand(self) -> Errand | None:
        mission = self.mission
        if mission.message or mission.schema or mission.has_own_pictures or mission.origin == "system":
            return None
        return errand_of(mission.brief, lambda name: self.services.image.read(has_read, name), alone=mission.context is None)

    async def decide(self) -> Route:
        """Choose the persona of this mission. Later calls return the same route."""
        if self.routed is None:
            services = self.services
            pictured = bool(self.mission.images) and self.mission.persona is None and not self._lent
            among = await services.sight.personas(services.router.personas, RoutingLimits.of(self.settings).look_s) if pictured else None
            compare = self.policy.compares or self.policy.reroutes
            route = await services.router.decide(self.mission, compare=compare, among=among)
            self.persona, self.why = route.persona.upper(), route.why
            self.decisions.take_route(route)
        assert self.routed is not None
        return self.routed

    async def check_sight(self) -> None:
        """Check that the persona's model sees the mission's own pictures. Pictures of earlier missions are shown only if it does.

        :raises ModelBlind: where it does not, with what follows.
        :raises NeedAnswer: where the mission may ask which model shall.
        :raises NeedModel: if no model here sees, and another one is available.
        """
        if self.routed is None or not self.mission.has_own_pictures or self.provision.needs.vision:
            return
        try:
            await self.services.sight.check(self.routed.persona, self._lent, self.ask if self.mission.may_ask else None)
        except ModelBlind as e:
            if e.context["models"] or self.services.provider is None:
                raise
            seeing = Needs(vision=True)  # no model here sees: another model may
            if not self.provision.declined.covers(seeing):
                await self.require(seeing, may_do_without=True)
            raise ModelBlind(f"{e.message}. {self.provision.why_not}", **e.context) from None

    def sees(self, persona: str) -> bool:
        """Return True if a persona may be asked about the brief. That holds if the brief has no pictures of its own, or the persona's model
        sees as far as is known."""
        sight, own = self.services.sight, self.mission.has_own_pictures
        return not own or bool(self._lent) or self.provision.needs.vision or sight.known(sight.model_of(persona)) is not False

    async def ruled(self, root: Root, mission: UvmObject, persona: UvmObject) -> dict[str, Any] | None:
        """Return the result of a system mission that a rule decides; None if a model must think it through."""
        return await self.services.ruled(root, mission, persona) if mission.origin == "system" else None

    def share_out(self, brief: str) -> Shares:
        """Return the personas that a brief needs, each with its part; empty where one is enough. Decided once."""
        return self.decisions.shares(brief, lambda: self._shares(brief))

    def _shares(self, brief: str) -> Shares:
        if self.mission.persona is not None or self.mission.origin == "system":
            return ()
        return shares(brief, self.services.router.weights, ThinkingLimits.of(self.settings).voices)

    async def approach(self, persona: UvmObject, brief: str, *, inner: bool) -> Approach:
        """Return how a persona is to think about a brief. Decided once, when the size of its model is known.

        :param inner: True if the brief is a part of another cycle's brief.
        """
        if self.earlier:
            return Approach("facets", "it began so", "full")
        about = f"{persona.name} {brief}" if inner else brief
        if not (self.gated or self._errand or self.decisions.has_approach(about)):  # an errand may need no model
            await self.terms.learn(self.model_of(self.voice_of(persona)))
        return self.decisions.approach(about, lambda: self._approach(persona, brief, inner))

    def _approach(self, persona: UvmObject, brief: str, inner: bool) -> Approach:
        mission, settings = self.mission, self.settings
        parts = 0 if inner else len(self.share_out(brief))
        facts = BriefFacts(
            parameters=self.terms.parameters(self.model_of(self.voice_of(persona))),
            parts=parts if ThinkingLimits.of(settings).depth > 1 else 0,
            follows_deep=self.follows_deep and not inner,
            deadline_s=mission.deadline_s,
            inferences=settings.missions.inferences,
            expert=bool(getattr(persona, "voice", "")),
            speaks=inner or self.routed is None or self.routed.speaks,
        )
        asked = {}
        for name, known in (("depth", DEPTHS), ("flavour", FLAVOURS)):
            by = (("mission", getattr(mission, name)), ("persona", _said(persona, name, AUTO)), ("setting", getattr(settings, name)))
            asked[name] = [AskedApproach(value, whose) for whose, value in by if value in known]
        depths = asked["depth"]
        if inner:  # the requested depth is that of the whole mission: the words of each part decide on the depth of the part
            depths = [one for one in depths if one.by == "persona"]
        return decide(self.services.router.window(brief), depths, asked["flavour"], facts)

    def council(self) -> Shares:
        """Return the personas for a requested council: those for which the whole brief speaks most."""
        if self.routed is None:
            return ()
        scores = {self.routed.persona: math.inf} | {
            name: found["score"] for name, found in self.routed.scores.items() if name != self.routed.persona
        }
        names = sorted(filter(self.sees, scores), key=lambda name: -scores[name])[: ThinkingLimits.of(self.settings).voices]
        return tuple((name, self.mission.brief) for name in names) if len(names) > 1 else ()

    async def nearness(self, text: str, others: Sequence[str]) -> float | None:
        """Return the cosine of a text to the most similar of others; None if it cannot be measured.

        Measured once: an answer that was refused for it is refused again by an attempt that takes the mission up. Under the gate nothing
        waits for a model: there it is what was measured before.
        """
        mark = journal.mark_of("\0".join((text, *others)))
        if not self.decisions.has_nearness(mark) and not self.gated:
            nearest = self.services.nearness if self.policy.compares else no_similarity
            self.decisions.take_nearness(mark, await nearest(text, others))
        return self.decisions.nearness(mark)

    async def read(self, text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
        """Return the value in an answer of the mission's schema, and its fault (`answer_schema.read`). Each answer is read once: the
        child process may take seconds, for which a replay would hold the gate, and a timeout need not repeat.
        """
        if text not in self._read:
            self._read[text] = await answer_schema.read(text, schema)
        return self._read[text]

    def narrow(self, found: PromptTooLong) -> None:
        """Shorten prompts from now on, also in later attempts.

        :raises InferenceFailed: where less would be too little.
        """
        room = found.told if self.room is None and any(self.shown[:-1]) else prompts.narrower(found.told, self.room)
        if room is None:
            model = found.cause.context["model"]
            raise InferenceFailed(f"{found.cause.message}; {prompts.TOO_LONG.format(model=model)}", cause="too_long", model=model)
        log.info("told_less", mission=self.id, chars=room, why=found.cause.message)
        self.decisions.take_room(room)

    def load_conversation(self, root: Root, mission: UvmObject) -> None:
        """Load the conversation before the mission. Which part of it the prompts show is decided once."""
        limits, decided = EvidenceLimits.of(self.settings), self.decisions.told_before
        if decided is None and mission.context is not None and not self.inference.recorded:
            context, answer = (int(self._options.get(name) or 0) for name in ("num_ctx", "num_predict"))
            window = prompts.CHARS_A_TOKEN * max(context - answer, context // 2) if context else limits.former_bounds["chars"]
            chars = min(limits.context_chars, window)
            decided = prompts.conversation_range(root, mission, missions=limits.context_missions, chars=chars)
            self.decisions.take_told_before(decided)
        self.talk = prompts.earlier_talk(root, mission, decided, limits.former_bounds)
        if images := self.mission.images:
            self.shown = pictures_shown(images, self.id, self.talk.missions, ThinkingLimits.of(self.settings).images)
        self.follows_deep = prompts.is_deep_before(root, mission)

    # --- voices

    def voice_of(self, persona: UvmObject) -> str:
        """Return the model that speaks for a persona in this mission: its expert, or its plain model's role.

        A mission keeps the model that its journal names, also after a restart, unless that model is no longer available.
        """
        if self.policy.revoices:
            return getattr(persona, "voice", "") or str(persona.model)
        if self._lent and not self.provision.needs.vision:
            return self._lent
        if self.provision.model:
            return self.provision.voices.get(str(persona.model).lower(), self.provision.model)
        name = str(persona.name)
        if name not in self._voices:
            plain = str(persona.model)
            root = persona._p_jar.root()
            heard = dict.fromkeys(entry.model for entry in self.inference.recorded.values())
            began = (m for m in heard if m == self.model_of(plain) or model_registry.speaks_for(root, m) == name.lower())
            self._voices[name] = next(began, None) or _said(persona, "voice", "") or plain
        return self._voices[name]

    def plain_voice_of(self, persona: UvmObject) -> str:
        """Return the model for texts without a persona's voice: the base of the persona's own model."""
        if self._lent and not self.provision.needs.vision:
            return self._lent
        return self.provision.model or self.terms.base_of(str(persona.model))

    def model_of(self, role: str) -> str:
        """Return the name of a model, from a persona's role or from the name itself."""
        return self.terms.model_of(role)

    def number(self, outer: str) -> str:
        """Return the number of the next cycle inside the cycle `outer` (its number; empty: the mission itself)."""
        self.tally.cycles[outer] += 1
        return f"{outer}.{self.tally.cycles[outer]}" if outer else str(self.tally.cycles[outer])

    # --- questions to the user

    def ask(self, question: str) -> str:
        """Return the user's answer to a question. A repeated question has an answer of its own each time.

        :raises NeedAnswer: where it is not answered: the attempt ends, and the mission waits, also over restarts.
        :raises InvalidInput: for a question that is blank, or longer than `ThinkingLimits.question_chars`.
        """
        if not question.strip() or len(question) > ThinkingLimits.of(self.settings).question_chars:
            raise InvalidInput(
                f"a question has 1 to {ThinkingLimits.of(self.settings).question_chars} characters; this one has {len(question.strip())}"
            )
        occurrence = self.tally.questions[question]
        self.tally.questions[question] += 1
        return self._answer(NeedAnswer(question, occurrence))

    def ask_operator(self, question: str) -> str:
        """Return an operator's answer to a question: whether a tool may act, or what became of an effect. A repeated question has an answer
        of its own each time.

        :raises NeedAnswer: where it is not answered, as `ask`.
        """
        occurrence = self.tally.questions[question]
        self.tally.questions[question] += 1
        return self._answer(NeedAnswer(question, occurrence, grant=True))

    @property
    def has_private(self) -> bool:
        """Return True if the mission has read what belongs to its user alone: passages from memory, or pictures that he gave it."""
        return self.evidence.has_read or any(self.shown)

    def agrees(self, question: str) -> bool | None:
        """Return True if the user says yes to a question, which is asked once. None where the mission may not ask, or the question is too
        long.

        :raises NeedAnswer: where it is not answered, as `ask`.
        """
        if not self.mission.may_ask or len(question) > ThinkingLimits.of(self.settings).question_chars:
            return None
        agreed = self.tally.agreed
        if question not in agreed:
            agreed[question] = self._answer(NeedAnswer(question, 0, grant=True)).strip().casefold() in YES
        return agreed[question]

    def _answer(self, need: NeedAnswer) -> str:
        found = self.mission.answer_to(need.question, need.occurrence, grant=need.grant)
        if found is None:
            raise self.inference.source.unanswered(need)
        return found

    # --- questions to models

    async def chat(
        self,
        role: str,
        system: str,
        user: str,
        *,
        schema: dict[str, Any] | None = None,
        part: str | None = None,
        silent: bool = False,
        by: InferenceAsker | None = None,
        context: PromptContext = _ALONE,
        **options: Any,
    ) -> ChatReply:
        """Return an inference of this mission.

        :param role: the persona's role, or a model's name.
        :param part: the speaking part of the cycle: a facet, `plan`, `critic`; None for the mission's own voice.
        :param silent: True if its text makes no events.
        :param by: the cycle that asks, for the events and the journal.
        :param context: parts of the mission that belong to the prompt.
        :raises PromptTooLong: where one that narrows does not fit the context, or leaves no room in it for the answer.
        :raises InferenceFailed: with its cause.
        :raises QualityRefused: where all of it is thought, and none of it answer.
        :raises BudgetSpent: past `missions.inferences`.
        """
        if self.tally.asked.total() >= self.settings.missions.inferences:
            raise BudgetSpent(
                f"mission {self.id!r} asked for more than {self.settings.missions.inferences} inferences (setting missions.inferences)"
            )
        by = by or InferenceAsker(state=self.state, persona=self.persona)
        chosen = {name: tuple(of) if isinstance(of, list) else of for name, of in {**self._options, **options}.items()}
        model, turns = self.model_of(role), context.turns
        digest = await self.services.inference.digest(model)
        shown = self._shown_to(model, turns) if context.pictured and self.shown else ()
        request = ChatRequest(model, system, user, schema, tuple(sorted(chosen.items())), digest=digest, turns=turns, shown=shown)
        if context.tools:
            request = replace(request, tools=context.tools)
        told = len(system) + len(user) + sum(len(said) + len(answered) for said, answered in turns)
        heard = None if silent else self._batch(part, by, model)
        try:
            found = await self.inference.infer(request, by.label(part), self.tally, heard)
        except InferenceFailed as e:
            if context.narrows and e.cause == "too_long":
                raise PromptTooLong(told, e) from None
            raise
        if context.narrows and is_full(found, chosen) and prompts.narrower(told, self.room) is not None:
            why = f"the prompt left {model} no room for an answer: it took {found.prompt_tokens} of {chosen['num_ctx']} tokens"
            raise PromptTooLong(told, InferenceFailed(why, cause="too_long", model=model))
        if schema is None and not found.calls and (why := why_no_answer(found)):
            raise QualityRefused(why)
        return ChatReply(*_REPLY_OF(found))

    async def structured(self, role: str, system: str, user: str, form: type[Form], **more: Any) -> Structured[Form]:
        """Ask a model, silently, until an answer has the form. Return that answer.

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
        if self.services.sight.known(model) is False:
            return ()
        if self.room is None:
            return self.shown if turns else pictures_together(self.shown)
        own = self.shown[-1]  # all pictures together were too long: those of earlier turns take the most tokens
        return (((),) * len(turns) + (own,)) if own else ()

    def _batch(self, part: str | None, by: InferenceAsker, model: str) -> TextBatch:
        """Return what publishes the text of an inference as it comes, to all who listen by then: a page may be opened meanwhile."""

        def tell(text: str, pieces: int) -> None:
            self.publish("token", text=text, pieces=pieces, facet=part, model=model, **by._asdict())

        return TextBatch(tell, ThinkingLimits.of(self.settings).token_batch_s)

    async def settle(self, need: NeedInference | NeedEffect) -> None:
        """Bring to its end, outside the gate, what a replay needs: an inference is paid for, a tool called."""
        if isinstance(need, NeedEffect):
            await self.tools.settle(need)
        else:
            await self.inference.settle(need)

    # --- events

    def moved(self, by: InferenceAsker, role: str, **facts: Any) -> None:
        """Report a cycle's transition to the watchers and to the log."""
        model = self.model_of(role)
        if by.is_own:
            self._own = {"cycle": by.cycle, "model": model}
        log.debug("transition", mission=self.id, model=model, **by._asdict())
        self.publish("state", model=model, **by._asdict(), **facts)

    def revised(self, by: InferenceAsker, why: str) -> None:
        """Report to the watchers that an answer which they may have seen is refused, and that another one follows."""
        self.publish("revised", why=why, model=self._own["model"], **by._asdict())

    def publish(self, kind: str, **facts: Any) -> None:
        """Publish an event of this mission."""
        events = self.services.events
        if not events.heard(self.id, kind):
            return
        events.publish(
            self.id,
            {
                "type": kind,
                "id": self.id,
                "state": self.state,
                "persona": self.persona,
                **self._own,
                "elapsed_s": round(time.monotonic() - self._since, 4),
                **facts,
            },
        )

    def usage(self) -> dict[str, Any]:
        """Return what this mission's answer cost: inferences, tokens, model time in milliseconds, and how much of it went into reading."""
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
    """Return the text in a persona's slot, own or inherited. Sending a message that the persona does not understand would cost far more."""
    held = find(persona, name)
    return otherwise if held is None else held[1]


def attempt_or_none() -> Attempt | None:
    """Return the attempt in which this code runs; None outside of missions."""
    attempt: Attempt | None = scope.current().attempt
    return attempt


def current() -> Attempt:
    """Return the attempt in which this code runs; for primitives, whose arguments come from messages.

    :raises LookupError: outside of missions.
    """
    attempt = attempt_or_none()
    if attempt is None:
        raise LookupError("this runs outside of any mission")
    return attempt
