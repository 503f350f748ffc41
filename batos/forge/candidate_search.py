"""The search for a method without a model: adapt a known method, compose a new one, or repair a refused draft.

The search also says what the examples leave open about a method. `batos.synthesis` does the work. This module takes the specification from
the objects of the image and from the cycle, and decides which candidate is likely enough.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from batos.concurrency import in_helper
from batos.forge import lessons, method_prompts
from batos.forge.method_prompts import SynthesisLimits
from batos.forge.session import SynthesisSession
from batos.forge.tool_readings import stand_in
from batos.guardian.policy import AuditLimits
from batos.image import taught_examples
from batos.mind.attempt import current
from batos.mind.psm import lobby_of
from batos.objects import Example, Method, SlotDict, SlotList, UvmObject, find, lookup_order
from batos.sandbox import unsupported
from batos.synthesis import adaptation, batch_runner, composer, mutations, ranking, word_costs
from batos.synthesis.batch_runner import BatchRunner
from batos.synthesis.handbook import HandbookEntry, handbook, words_in
from batos.synthesis.repair import answers_edge_case, implied, lacks_edge_case, with_edge_case
from batos.synthesis.specification import MethodCall, RequestFacts, SearchBudget, SearchContext, Specification, is_plain

_TITLES = ("name", "comment")  # slots of the object itself: the word "name" in a request has another meaning
_LARGE = 4000  # characters of a slot's value above which the search ignores the slot


def specification_of(
    obj: UvmObject,
    selector: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    intent: str,
    examples: Sequence[Example],
    slots: Sequence[tuple[str, Any]] = (),
) -> Specification:
    """Return the specification of a method by its examples.

    :param slots: slots that the object has for the call that asks for the method, beside its own.
    """
    shown = tuple(dict.fromkeys(name for one in examples for name, _ in (*one.slots, *one.after)))
    values = [value for one in examples for value in (*one.args, *dict(one.kwargs).values(), *dict(one.slots).values())]
    known = RequestFacts(
        f"{intent}\n{selector.replace('_', ' ')}",
        (),
        shown,
        {name for one in examples for name, _ in one.after},
        tuple(sorted({field for value in values for field in mutations.fields_of(value)})),
    )
    state = _held(obj, known.speaks_of)
    helpers = _helpers(obj, selector, intent)
    known = known._replace(slots=tuple(dict.fromkeys((*state, *shown))), sends=tuple(helpers))
    shown_calls = [MethodCall(one.args, dict(one.kwargs), {**state, **dict(one.slots)}) for one in examples]
    calls = [
        *shown_calls,
        *([MethodCall(tuple(args), dict(kwargs), {**state, **dict(slots)})] if all(map(is_plain, (*args, *kwargs.values()))) else []),
    ]
    return Specification(selector, known, list(zip(shown_calls, examples, strict=True)), calls, helpers)


def _helpers(obj: UvmObject, selector: str, intent: str) -> dict[str, str]:
    """Return the sources of the pure methods that the words name as messages, by selector."""
    named = {name: find(obj, name) for name in method_prompts.sends_spoken_of(obj, selector, intent)}
    held = {name: found[1] for name, found in named.items() if found is not None}
    return {
        name: one.source for name, one in held.items() if name != "think_" and isinstance(one, Method) and batch_runner.is_pure(one.source)
    }


def _held(obj: UvmObject, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """Return slots of an object that hold JSON values, inherited ones too. Large values are left out: each candidate gets a copy.

    :param wanted: returns True for the name of a slot that is wanted.
    """
    found: dict[str, Any] = {}
    seen: set[str] = set(_TITLES)
    for holder in lookup_order(obj):
        for name, value in holder._slots.items():
            if name in seen or name[-1] == "*" or not wanted(name):
                continue
            seen.add(name)
            with contextlib.suppress(ValueError, RecursionError):
                if len(repr(plain := _as_json(value))) <= _LARGE:
                    found[name] = plain
    return found


def _as_json(value: Any) -> Any:
    """Return the value of a slot as plain lists and dicts.

    :raises ValueError: for a large value, and for a value that JSON cannot express.
    """
    if isinstance(value, SlotList | SlotDict | list | dict) and len(value) > _LARGE:
        raise ValueError("large")
    if isinstance(value, SlotList | list):
        return [_as_json(one) for one in value]
    if isinstance(value, SlotDict | dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(one) for key, one in value.items()}
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(type(value).__name__)


Faults = Callable[[str], Awaitable[tuple[list[str], str]]]
"""Returns the reasons why a source cannot be kept (an empty list: it can), and its result for the call that needs the method."""
KNOWN = 4.2
"""Highest cost of an adapted method."""
_LIKE = 2.5  # highest cost of an adapted or composed method that casts doubt on another method
_CHANCE = (2.64, 3.24, -0.81, -0.27, 0.14)
"""Log odds that an adapted or composed method is right, as a constant and four factors. The factors are those of its share of the weight,
its cost, the number of words in the request, and the number of specific examples. Logistic regression on 176 searches of tasks for
validation (docs/synthesis.md).
"""
_WORDS = 40  # greatest number of words that count: no fitted request had more
AT_ONCE, _AFTER, _LAST = 0.8, 0.5, 0.5
"""Least chance of a method that is accepted: before a model is asked, after a refused draft, and after the refusal of all drafts."""
ELSEWHERE = 0.8
"""Cost of a method that was written for another request."""
_AMENDED = 3  # mutants of equal cost, of which the first one that passes all trials wins


class CandidateSearch:
    """The search of one state of a cycle for methods: adapted from known ones, composed of parts, or near a draft.

    Candidates run in the sandbox on plain values, in place of the receiver; nothing of that is kept.
    """

    def __init__(self, cycle: UvmObject, session: SynthesisSession, faults: Faults) -> None:
        self._cycle, self._session, self._faults, self._attempt = cycle, session, faults, current()
        self._settings = self._attempt.settings

    @cached_property
    def context(self) -> SearchContext:
        """Return the specification by the cycle's examples, with a runner and an auditor of this attempt."""
        cycle, session, making, settings = self._cycle, self._session, self._attempt.making, self._settings
        methods = making.methods

        async def run(text: str, given: list[Any]) -> Any:
            method, activity = Method(batch_runner.SELECTOR, text), making.new_activity()
            return await (await methods.sandbox()).run(UvmObject(), method, [given], activity=activity, apart=True)

        obj = stand_in(cycle.target, session.readings) if session.readings else cycle.target
        asked = cycle.selector, session.args, dict(session.kwargs)
        spec = specification_of(obj, *asked, intent=cycle.intent, examples=session.taught, slots=session.lacked)
        runner = BatchRunner(
            run, source_bytes=AuditLimits.of(settings).bytes, helpers=spec.helpers, supports=lambda text: not unsupported(text)
        )
        budget = SearchBudget(SynthesisLimits.of(settings).edits, SynthesisLimits.of(settings).reuse, SynthesisLimits.of(settings).parts)
        return SearchContext(spec, runner, lambda text: methods.lets_pass(text, cycle.selector), budget)

    @property
    def spec(self) -> Specification:
        """Return the specification by the cycle's examples."""
        return self.context.spec

    async def exact_match(self) -> str | None:
        """Return a known method that passes the examples and whose words explain the request, or nearly.

        Return None where there is none, where the handbook cannot read the words, or where the examples say too little.
        """
        if not self._legible():
            return None
        known, told, without = await self._known(), self.spec.known.told, self.spec.known.slots

        def telling() -> list[tuple[float, HandbookEntry]]:
            found = set(map(id, handbook().telling(told, (one for _, one in known), method_prompts.TOLD, without=without)))
            return [one for one in known if id(one[1]) in found]

        passed = await self._priced(await self._adapt(await in_helper(telling), exactly=True))
        return next(iter(await ranking.likely(self.context, passed)), None)

    async def best_composed(self) -> str | None:
        """Return an adapted or composed method that is likely enough to be used before a model is asked; None if there is none."""
        if not self._legible():
            return None
        return next(iter(await self._likely(await self._priced(await self._found()), AT_ONCE)), None)

    async def last_resort(self) -> str | None:
        """Return an adapted or composed method that is likelier right than wrong, after all drafts were refused; None if there is none."""
        if not self._legible():
            return None
        refused = {source for source, _ in self._cycle.refusals}
        found = await self._likely(await self._priced(await self._found()), _LAST)
        return next((text for text in found if text not in refused), None)

    async def repair(self, draft: str) -> tuple[str, str] | None:
        """Return a mutant of a refused draft, or an adapted or composed method, that passes all trials; None where none is likely right.

        :return: the source, and its outcome on the call that asked for the method.
        """
        session, settings = self._session, self._settings
        if not (SynthesisLimits.of(settings).edits and (self.spec.tells or self._legible())):
            return None
        before = [known for known, _ in self._cycle.refusals]
        new = await ranking.mutants_passing(self.context, draft, before) if self.spec.tells else ()
        if not before:  # known methods do not change between drafts
            new = (*new, *await self._found())
        session.passed = (*session.passed, *new)
        if not new:
            return None
        if session.adapted or session.composed:
            found = await self._likely(await self._priced(session.passed), _AFTER)
        else:
            found = await ranking.likely(self.context, session.passed)
        for text in found[:_AMENDED]:
            reasons, did = await self._faults(text)
            if not reasons:
                return text, did
        return None

    async def add_edge_case(self, source: str) -> tuple[str, str] | None:
        """Complete a method that passes its examples by the edge case that the words state (`batos.synthesis.repair`).

        :return: the source, and its outcome on the call that asked for the method. None where the words state no edge case, or the method
            has an answer to it.
        """
        context = self.context
        if not SynthesisLimits.of(self._settings).edits or not (said := implied(context.spec)):
            return None
        (before,) = await context.runner.outcomes([source], [one.call for one in said])
        for one, did in zip(said, before, strict=True):
            if not lacks_edge_case(did, one) or (whole := with_edge_case(source, one, did)) is None or not context.auditor(whole):
                continue
            ((after,),) = await context.runner.outcomes([whole], [one.call])
            if answers_edge_case(after, one):
                reasons, did = await self._faults(whole)
                return None if reasons else (whole, did)
        return None

    async def ambiguity(self, source: str, did: str) -> tuple[str, ...]:
        """Return the question that the examples leave open about a method that passes them (`OpenQuestion.texts`), or nothing.

        :param did: its outcome on the call that asked for the method, in its trial.
        """
        if not (SynthesisLimits.of(self._settings).edits and self._session.taught):
            return ()
        tree = mutations.parsed(source)
        aside = self._cycle._slots.get("expert") and self.spec.tells and tree is not None and mutations.settled(tree)
        found = await self._priced(await self._found()) if aside else ()
        other = tuple(one for one in found if one[0] <= _LIKE)
        question = await ranking.ambiguity_of_kept(self.context, source, did, other=other)
        return question.texts() if question else ()

    async def open_question(self) -> ranking.OpenQuestion | None:
        """Return the question that is open between methods that pass the examples, once every draft was refused, or None."""
        if not self._session.passed:
            return None
        return await ranking.ambiguity_of_refused(self.context, await self._priced(self._session.passed))

    def _legible(self) -> bool:
        """Return True if the handbook can read the request, and the examples say more than that there is an answer."""
        cycle, spec = self._cycle, self.spec
        legible = spec.known.told.isascii() and (words_in(cycle.intent) or not cycle.intent)
        return bool(legible and spec.examples and not taught_examples.all_constant(self._session.taught))

    async def _found(self) -> ranking.Passed:
        """Return adapted and composed methods that pass the examples. Drafts do not change them, so they are searched for once."""
        session = self._session
        if session.adapted is None:
            session.adapted = await self._adapt(await self._known())
        if session.composed is None:
            may = not self._sends(but=self.spec.helpers)
            session.composed = await composer.composed(self.context, await self._known()) if may else ()
        return (*((cost + ELSEWHERE, text) for cost, text in session.adapted), *session.composed)

    async def _adapt(self, known: Sequence[tuple[float, HandbookEntry]], *, exactly: bool = False) -> ranking.Passed:
        return await adaptation.adapted_passing(self.context, known, exactly=exactly, within=KNOWN)

    async def _known(self) -> Sequence[tuple[float, HandbookEntry]]:
        """Return the methods of the handbook and of the image, the likest to the request first; none where the words name a message."""
        cycle, session, told = self._cycle, self._session, self.spec.known.told
        if self._sends() or not SynthesisLimits.of(self._settings).reuse:
            return ()
        if session.known is None:
            root = lobby_of(cycle.persona)._p_jar.root()
            own = lessons.accepted_entries(root, self._attempt.mission.accepted, (cycle.target, cycle.selector))
            without = self.spec.known.slots
            session.known = await in_helper(lambda: tuple(handbook().alike(told, without=without, more=own)))
        return session.known

    def _sends(self, *, but: Collection[str] = ()) -> bool:
        """Return True if the words name a message. Known methods send none, and composed ones only pure helpers.

        :param but: messages that do not count.
        """
        cycle = self._cycle
        named = method_prompts.sends_spoken_of(cycle.target, cycle.selector, cycle.intent)
        return any(one != "think_" and one not in but for one in named)

    async def _priced(self, passed: ranking.Passed) -> ranking.Passed:
        """Return sources with their costs given the words of the request (`batos.synthesis.word_costs`)."""
        known = self.spec.known
        return await in_helper(lambda: word_costs.priced(passed, known.told, without=known.slots))

    async def _likely(self, passed: ranking.Passed, sure: float) -> Sequence[str]:
        """Return the sources that are most likely right, the cheapest first; none below a chance of `sure`."""
        found = ranking.by_best(await ranking.able(self.context, passed, about=ranking.ABOUT))
        if not found:
            return ()
        share, group = found[0]
        return group.sources if chance(share, group.cost, self.spec) >= sure else ()


def chance(share: float, cost: float, spec: Specification) -> float:
    """Return the chance that an adapted or composed method is right, from 0 to 1.

    :param share: its share of the weight of the cheapest method of each group (`ranking.by_best`).
    :param cost: cost of the cheapest method of its group (`word_costs.priced`).
    """
    words = words_in(spec.known.told) - words_in(" ".join(spec.known.slots).replace("_", " "))
    told = 1.0, share, cost, min(len(words), _WORDS), spec.tells
    return 1 / (1 + math.exp(-sum(one * by for one, by in zip(told, _CHANCE, strict=True))))
