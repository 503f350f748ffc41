"""The forge: the Prototypal State Machine that writes a missing method. Its states are objects of the image.

A message without a method, or with an Intent, becomes a cycle. Its states are IDLE → DECOMPOSING (gather facts) → DELEGATING (a model
writes) → SYNTHESIZING (guardian, sandbox, trials) → COMPLETE (installed). After a refusal it goes back to DELEGATING with the reasons, a
bounded number of times. All of it happens in the mission's own transaction.

The module also warms up the tables of the search while the daemon is idle. These tables are the same for each search, and stay for the life
of the process.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from batos.concurrency import in_helper
from batos.config import Settings
from batos.errors import InvalidInput, MethodRefused, MethodUnsupported
from batos.forge import lessons, method_prompts, operation_pins, tool_mends, tool_prompts, tool_readings, trials
from batos.forge.method_prompts import SynthesisLimits
from batos.forge.reach_questions import check_growth, check_others, denied_to
from batos.forge.session import MethodCandidate, SynthesisSession, open_session, session_of
from batos.guardian import Verdict, repair
from batos.image import history, ledger, method_doubts, model_registry, taught_examples
from batos.image.living_image import add_missing
from batos.image.method_doubts import Doubt
from batos.methods.runtime import WriterAwaited, home_of, may_use_tools, misfit, parameters_in
from batos.mind import answer_checks
from batos.mind.attempt import Attempt, current
from batos.mind.psm import inner_number, lobby_of, run_cycle
from batos.mind.sealed_sends import speaking_model
from batos.objects import Intent, Method, Primitive, Root, UvmObject, find
from batos.resources import charged, give_memory_back
from batos.tools import connections

if TYPE_CHECKING:  # a daemon without an expert writer does not load the search
    from batos.forge.candidate_search import CandidateSearch
    from batos.synthesis.ranking import OpenQuestion

log = structlog.get_logger(__name__)


def _handbook() -> None:
    from batos.synthesis.handbook import handbook  # late import, as the others here: only a daemon with an expert for methods pays for it

    handbook()


def _channel() -> None:
    from batos.synthesis.word_costs import channel

    channel()


def _idioms() -> None:
    from batos.synthesis.idiom_costs import all_idioms

    all_idioms()


def _reserved() -> None:
    from batos.synthesis.idiom_costs import reserved

    reserved()


WARM_UP_KNOWN: Sequence[Callable[[], Any]] = (_handbook, _channel)
WARM_UP_PARTS: Sequence[Callable[[], Any]] = (_idioms, _reserved)
"""Functions that load the tables for known and for composed methods. Each takes tenths of a second to some seconds of processor time,
and cannot be interrupted.
"""


_RECENT = 256  # missions that are looked at for a message, the newest


def is_warm_up_wanted(root: Root, writer: str) -> bool:
    """Return True if an expert for methods is likely to write soon: only its searches need the tables, which take 100 MB.

    Where no object was sent a message lately, none is expected: a user who gives briefs does not pay for methods.

    :param writer: the setting `methods.writer`.
    """
    writes = bool(model_registry.speaks_methods(root)) if writer == "expert" else model_registry.writes_methods(root, writer)
    return writes and any(mission.message for mission in itertools.islice(ledger.newest_first(root), _RECENT))


async def warm_up(settings: Settings, quiet: Callable[[], Awaitable[None]], asked_for: Callable[[], Awaitable[bool]]) -> None:
    """Read the tables of the search, a step at a time, `SynthesisLimits.ahead_s` from now.

    :param quiet: returns when no mission is under way or waits.
    :param asked_for: returns True if a search needs the tables, once that is known.
    """
    steps = (
        *(WARM_UP_KNOWN if SynthesisLimits.of(settings).reuse or SynthesisLimits.of(settings).parts else ()),
        *(WARM_UP_PARTS if SynthesisLimits.of(settings).parts else ()),
    )
    if not (SynthesisLimits.of(settings).ahead_s and steps):
        return
    await asyncio.sleep(SynthesisLimits.of(settings).ahead_s)
    if not await asked_for():
        await in_helper(_give_back)
        return  # the tables are loaded on first use
    for step in steps:
        await quiet()
        await in_helper(step)
    gc.freeze()  # the tables stay: a collection that visits them would block the loop for a tenth of a second each time
    await in_helper(give_memory_back)  # loading takes twice the memory that stays in use
    log.debug("handbook_read")


def _give_back() -> None:
    """Return the memory to the system that the start used and freed."""
    gc.collect()
    give_memory_back()


HANDBOOK, PARTS = "handbook", "parts"
"""Writers of methods without a model: `handbook` for an adapted known method, `parts` for a composed one."""
_WITHOUT_MODEL = (HANDBOOK, PARTS)
_PLAN_TRIES = 2  # a model that writes no plan then calls its tools one by one
_DRAWS = 2  # draws for each allowed try: a repeated draft does not count as a try, and the expert may know no other
_SEARCH_MODULE = (
    "batos.forge.candidate_search"  # a module that loads numpy and dictionaries: late, in a helper thread, and only if a lesson needs it
)


async def forge(
    attempt: Attempt,
    obj: UvmObject,
    selector: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    lacked: Sequence[tuple[str, Any]] = (),
) -> Method:
    """Write, try and install the method for a message, and return it.

    Within one mission a message is written once, also where two of its parts send it at the same time.

    :param lacked: slots that the receiver lacks, and has while methods are tried: the call of a lesson is that of its example.
    :raises InvalidInput: for a name under which no source could be kept.
    :raises MethodRefused: (or CovenantViolationError) when every try was refused.
    :raises BeingWritten: when another mission writes it; the cycle begins again when that one has ended.
    :raises WriterAwaited: when the expert that writes methods is not there yet, but may be soon; as above.
    """
    lessons.check_name(selector)
    holder = home_of(obj, selector)
    key = (holder._p_oid or id(holder), selector)
    async with attempt.making.writing(key) as written_before:
        if written_before:
            found = find(obj, selector)
            if found is not None and isinstance(found[1], Method):
                return found[1]
        cycle = _new_cycle(obj, holder, selector)
        open_session(cycle, args, kwargs, lacked)
        if attempt.policy.keeps:
            if attempt.making.methods.writer_awaited and not model_registry.speaks_methods(_root(cycle)):
                raise WriterAwaited  # otherwise a model that cannot write methods would answer the first message of a new image
            attempt.making.methods.claims.claim(key, attempt.id)
        cycle.number = inner_number(attempt)
        attempt.tally.forged.append(cycle)
        # the cycle has limits of its own, and does not count as work of the method that sent the message
        await charged(run_cycle(cycle, attempt), None)
        method: Method = holder._slots[selector]
        return method


def _new_cycle(obj: UvmObject, holder: UvmObject, selector: str) -> UvmObject:
    """Return the object of a cycle in its first state. The image keeps these slots, in this order."""
    lobby = lobby_of(obj if obj._p_jar is not None else holder)
    parents = {"state*": lobby.forge.IDLE, "parent*": lobby.traits.cycle}
    cycle = UvmObject(**parents, machine=lobby.forge, persona=_writer(lobby), target=obj, holder=holder, selector=selector)
    cycle.brief = f"write the method {selector!r} of {getattr(obj, 'name', None) or 'an object'}"
    cycle.why = "no object understands the message"
    cycle.tries, cycle.draws, cycle.refusals, cycle.edited, cycle.open, cycle.last = 0, 0, (), False, (), False
    return cycle


def _writer(lobby: UvmObject) -> UvmObject:
    writer = lobby._slots.get(lobby.forge.writer)
    if not isinstance(writer, UvmObject):
        raise InvalidInput(f"the slot forge.writer names {lobby.forge.writer!r}, which is not a persona in the lobby")
    return writer


# --- the states


@Primitive.register("forge.reify")
async def reify(cycle: UvmObject) -> str:
    """IDLE: turn the message into a cycle, and find its purpose and its examples."""
    await in_helper(importlib.import_module, _SEARCH_MODULE)
    found = find(cycle.target, cycle.selector)
    held = found[1] if found is not None else None
    taught, intent = taught_examples.examples_of(_root(cycle), cycle.target, cycle.selector)
    if isinstance(held, Intent):
        intent = intent or held.text
    elif isinstance(held, Method):
        intent = intent or dict(held.provenance).get("intent", "")
    cycle.intent = intent
    session_of(cycle).taught = tuple(taught)
    session_of(cycle).sealed = _is_plan(cycle)
    session_of(cycle).tools = session_of(cycle).sealed or _may_use_tools(cycle)
    return "DECOMPOSING"


@Primitive.register("forge.study")
async def study(cycle: UvmObject) -> str:
    """DECOMPOSING: gather the facts that a model must know. A facet needs none: it passes its intent to the persona's own model."""
    attempt, session = current(), session_of(cycle)
    if (
        cycle.selector.endswith("_facet_")
        and cycle.intent
        and len(session.args) == 1
        and not session.kwargs
        and find(cycle.target, "think_")
    ):
        cycle._tmp_synthesis_ = f"def {cycle.selector}(self, text):\n    return self.think_({cycle.intent!r}, text)\n"
        cycle.written_by, session.prompt = "rule", ""
        return "SYNTHESIZING"
    cycle.model, chars = _model(cycle, attempt), SynthesisLimits.of(attempt.settings).chars
    cycle.expert = model_registry.writes_methods(_root(cycle), cycle.model)
    called, (tools, rules) = (session.args, dict(session.kwargs)), await _told_tools(cycle, attempt)
    doubts = tuple(doubt.reason for doubt in _doubts_about(cycle))
    obj = tool_readings.stand_in(cycle.target, session.readings) if session.readings else cycle.target
    wanted = method_prompts.WantedMethod(obj, cycle.selector, *called, cycle.intent, session.taught, tools, rules)
    wanted = wanted._replace(sealed=session.sealed, doubts=doubts)
    if cycle.expert:
        from batos.synthesis.handbook import handbook  # late import: only a daemon with an expert loads the tables

        own = lessons.accepted_entries(_root(cycle), attempt.mission.accepted, (cycle.target, cycle.selector))
        book = await in_helper(handbook)
        session.prompts = method_prompts.compact(wanted, chars=chars, book=book, own=own, views=method_prompts.VIEWS)
        search = _search(cycle)
        if known := await search.exact_match():
            cycle._tmp_synthesis_, cycle.written_by, session.prompt = known, HANDBOOK, ""
            return "SYNTHESIZING"
        if made := await search.best_composed():
            cycle._tmp_synthesis_, cycle.written_by, session.prompt = made, _without_model(session, made) or PARTS, ""
            return "SYNTHESIZING"
    else:
        avoid = [*doubts, *_earlier_refusals(cycle, attempt)]
        session.prompts = (method_prompts.prompt(wanted, lessons=avoid, chars=chars),)
    return "DELEGATING"


@Primitive.register("forge.write")
async def write(cycle: UvmObject) -> str:
    """DELEGATING: have the model write a draft, and repair its form without the model."""
    attempt, session = current(), session_of(cycle)
    if _spent(cycle):
        search = _search(cycle)
        if not cycle.last and (before := _passing_doubts(cycle)) is not None:
            cycle.last, cycle._tmp_synthesis_, cycle.mended, session.prompt = True, before.source, (), ""
            cycle.written_by = dict(before.provenance).get("model", "")
            return "SYNTHESIZING"
        if cycle.expert and not cycle.last and (last := await search.last_resort()):
            cycle.last, cycle._tmp_synthesis_, cycle.mended, session.prompt = True, last, (), ""
            cycle.written_by = _without_model(session, last)
            return "SYNTHESIZING"
        source, reasons = cycle.refusals[-2 if cycle.last and len(cycle.refusals) > 1 else -1]  # the draft of the model
        raise _refused(cycle, source, reasons, None if session.readings else await search.open_question())
    reply = await (method_prompts.ask_expert if cycle.expert else method_prompts.ask_writer)(cycle, session, attempt)
    mended = repair(reply.text, cycle.selector, attempt.settings)
    source, repairs = mended.source, tuple(mended.repairs)
    if session.tools:
        source, calls = tool_mends.with_calls(source, connections.load(_root(cycle)))
        repairs += calls
    cycle.draws += 1
    if not (cycle.expert and any(known == source for known, _ in cycle.refusals)):
        cycle.tries += 1
    cycle._tmp_synthesis_, cycle.mended = source, repairs
    cycle.written_by, cycle.written_digest = reply.model, reply.digest
    return "SYNTHESIZING"


@Primitive.register("forge.try_out")
async def try_out(cycle: UvmObject) -> str:
    """SYNTHESIZING: audit, compile and try the draft.

    A refusal goes back to the model. The draft of an expert is repaired first: an expert is asked the same again, and its prompt cannot
    take the reason.
    """
    session, search, source = session_of(cycle), _search(cycle), cycle._tmp_synthesis_
    known = _known(cycle, source)
    reasons, did = known or await _faults(cycle, source)
    if reasons and known is None and cycle._slots.get("expert") and (amended := await search.repair(source)):
        source, did = amended
        cycle._tmp_synthesis_ = source
        reasons, other = [], _without_model(session, source)
        cycle.edited = not other
        if other:
            cycle.written_by, cycle.mended, session.prompt = other, (), ""
    if not reasons and cycle.written_by != "rule" and (whole := await search.add_edge_case(source)):
        source, did = whole
        cycle._tmp_synthesis_, cycle.edited = source, True
    if not reasons and cycle.written_by != "rule" and not session.candidates and not session.readings:  # what it reads is unknown
        cycle.open = await search.ambiguity(source, did)
    if not reasons:
        cycle.tries = max(1, cycle.tries) if cycle.written_by in _WITHOUT_MODEL else cycle.tries
        session.candidates = (*session.candidates, MethodCandidate(source, cycle._slots.get("mended", ()), did, session.prompt))
    if session.candidates and (len(session.candidates) >= _wanted(cycle) or _spent(cycle)):
        _settle(cycle)
        return "COMPLETE"
    if not reasons:
        return "DELEGATING"
    if cycle.written_by == "rule":
        raise _refused(cycle, source, reasons)
    cycle.refusals = (*cycle.refusals, (source, tuple(reasons)))
    del cycle._slots["_tmp_synthesis_"]
    return "DELEGATING"


@Primitive.register("forge.put_in_place", reaches="the methods of any object", grantable=False)
async def put_in_place(cycle: UvmObject) -> None:
    """COMPLETE: install the method with its contract and provenance. It is kept when the mission commits."""
    attempt, session = current(), session_of(cycle)
    source = tool_readings.with_calls(cycle._tmp_synthesis_, session.readings)
    verdict = _audit(cycle, source)
    verdict.check()  # also for a cycle that came here past the other states
    before = cycle.holder._slots.get(cycle.selector)
    replaced = before if isinstance(before, Method) else None
    check_growth(attempt, cycle.holder, replaced, verdict)
    provenance = {
        "mission": attempt.id,
        "intent": cycle.intent,
        "model": cycle.written_by,
        "model_digest": cycle._slots.get("written_digest", "") if cycle.written_by not in _WITHOUT_MODEL else "",
        "prompt_digest": hashlib.sha256(session.prompt.encode("utf-8", "surrogatepass")).hexdigest(),
        "policy": verdict.policy,
        "warnings": tuple(str(finding) for finding in verdict.findings),
        "repairs": cycle._slots.get("mended", ()),
        "edited": cycle.edited,
        "tries": cycle.tries,
        "trials": 1 + len(session.taught),
        "constant": taught_examples.all_constant(session.taught),
        "open": cycle.open,
        "receiver": history.oid_of(cycle.target) or "",
        "taught": taught_examples.examples_digest(session.taught),
        "candidates": cycle.compared,
        "agreed": cycle.agreed,
    }
    if session.tools:  # what it was written for: an operation that changes makes it doubtful
        provenance["operations"] = operation_pins.pins_of(_root(cycle), source)
        provenance["doubts"] = tuple(doubt.reason for doubt in _doubts_about(cycle))
    cycle.holder._slots[cycle.selector] = Method(
        cycle.selector,
        source,
        parameters=tuple(parameters_in(source)),
        contract=verdict.contract,
        provenance=provenance,
        previous=replaced,
    )
    cycle._slots.pop("_tmp_synthesis_", None)  # the session holds the rest of the working state
    cycle.answer = source


# --- helpers of the states


def _search(cycle: UvmObject) -> CandidateSearch:
    from batos.forge.candidate_search import CandidateSearch  # late import: `reify` has loaded it in a helper thread

    return CandidateSearch(cycle, session_of(cycle), partial(_faults, cycle))


def _without_model(session: SynthesisSession, source: str) -> str:
    """Return the author of a method that no model wrote, HANDBOOK or PARTS; "" where a model wrote it."""
    found = ((HANDBOOK, session.adapted), (PARTS, session.composed))
    return next((author for author, passed in found if any(source == one for _, one in passed or ())), "")


def _spent(cycle: UvmObject) -> bool:
    """Return True if the method was written as often as the settings allow."""
    settings = current().settings
    limits = SynthesisLimits.of(settings)
    bound = limits.expert_tries if cycle._slots.get("expert") else limits.tries
    if session_of(cycle).sealed:
        bound = min(bound, _PLAN_TRIES)
    return bool(cycle.tries >= bound or cycle.draws >= _DRAWS * bound)


def _known(cycle: UvmObject, source: str) -> tuple[list[str], str] | None:
    """Return the outcome of a source that was tried before in this cycle; None for a new one."""
    for known, reasons in cycle.refusals:
        if known == source:
            return list(reasons), ""
    return next((([], one.did) for one in session_of(cycle).candidates if one.source == source), None)


def _wanted(cycle: UvmObject) -> int:
    """Return how many candidates are compared. Without an example, only their agreement tells whether one is right."""
    return (
        SynthesisLimits.of(current().settings).candidates
        if cycle.written_by != "rule" and cycle.expert and not session_of(cycle).taught
        else 1
    )


def _settle(cycle: UvmObject) -> None:
    """Take the first candidate of the largest group with equal results on the call that needs the method."""
    session = session_of(cycle)
    counts = Counter(one.did for one in session.candidates)
    agreed = max(counts.values())
    source, mended, _, prompt = next(one for one in session.candidates if counts[one.did] == agreed)
    cycle._tmp_synthesis_, cycle.mended, session.prompt = source, mended, prompt
    cycle.compared, cycle.agreed = len(session.candidates), agreed


_LARGER = "; the expert that wrote it writes methods of one operation: for several, set `methods.writer` to a larger model"


def _refused(cycle: UvmObject, source: str, reasons: Sequence[str], question: OpenQuestion | None = None) -> MethodRefused:
    """Return the error of the last refusal; a violation of the covenant, where there was one.

    :param question: the call that the examples leave open.
    """
    session = session_of(cycle)
    source = tool_readings.with_calls(source, session.readings)
    verdict = _audit(cycle, source)
    small = bool(cycle._slots.get("expert")) and connections.is_connection(_root(cycle), cycle.target)
    if not verdict.accepted:
        try:
            verdict.check()
        except MethodRefused as e:
            e.message += _LARGER if small else ""
            return e
    tried = f" after {cycle.tries} {'try' if cycle.tries == 1 else 'tries'}" if cycle.tries else ""
    more = {"open": [one.to_json() for one in question]} if question else {}
    whose = lessons.whose(_root(cycle), (cycle.target, *_kin(cycle)), cycle.selector, reasons[0], current().id)
    asks = f"; the examples leave open whether {question.said(cycle.selector)}: teach it that" if question else ""
    return MethodRefused(
        f"no method {cycle.selector!r} could be kept{tried}: {reasons[0]}{whose}{asks}{_LARGER if small else ''}",
        selector=cycle.selector, source=source, reasons=list(reasons), cause="trial", **more,
    )  # fmt: skip


def _audit(cycle: UvmObject, source: str) -> Verdict:
    """Return the guardian's verdict on a source for a cycle."""
    session, attempt = session_of(cycle), current()
    denied = denied_to(attempt, cycle.holder) if session.tools and not session.sealed else None  # a plan is not kept
    return attempt.making.methods.audit(source, cycle.selector, tools=session.tools, sealed=session.sealed, denied=denied)


async def _faults(cycle: UvmObject, source: str) -> tuple[list[str], str]:
    """Return the reasons why a source cannot be kept, and its outcome on the call that asked for it.

    Checks run in the order of their cost: audit, texts, signature, compiler, trials. Only the first that refuses gives reasons.
    """
    attempt = current()
    methods, selector = attempt.making.methods, cycle.selector
    session = session_of(cycle)
    draft, source = source, tool_readings.with_calls(source, session.readings)
    verdict = _audit(cycle, source)
    if not verdict.accepted:
        return [str(finding) for finding in verdict.errors[: SynthesisLimits.of(attempt.settings).reasons]], ""
    if session.sealed and not verdict.contract["reaches"]:
        return ["the plan calls no tool; where the request needs none, nothing is planned"], ""
    if session.readings and not verdict.contract["reaches"]:  # what it answers was so once, and may be otherwise now
        return ["it uses nothing that the connection answers"], ""
    if written := {one.slot for one in session.readings} & set(verdict.contract["writes"]):
        return [f"{', '.join(sorted(written))} is what the connection answers, which a method cannot change"], ""
    if fault := answer_checks.fault_of_method_texts(draft, _own_words(cycle)):
        return [fault], ""
    cases = [(cycle.target, one) for one in trials.cases(session.args, dict(session.kwargs), session.taught, session.lacked)]
    cases += [(obj, one) for obj in _kin(cycle) for one in trials.of_examples(taught_examples.examples_of(_root(cycle), obj, selector)[0])]
    if reason := next(filter(None, (misfit(source, case.args, case.kwargs) for _, case in cases)), None):
        return [reason], ""
    try:
        await (await methods.sandbox()).compile(source)
    except MethodUnsupported as e:
        return [e.message], ""
    method, writes = Method(selector, source, contract=verdict.contract, provenance={"policy": verdict.policy}), verdict.contract["writes"]
    held = cycle.holder._slots.get(selector)
    session.agreed |= check_others(attempt, cycle.holder, held if isinstance(held, Method) else None, verdict, session.agreed)
    recorded = trials.NOTHING_RECORDED
    if session.tools and isinstance(held, Method):
        answers = operation_pins.recorded_answers(_root(cycle), cycle.holder, held, attempt.mission.accepted)
        recorded = trials.RecordedCalls(answers, method_doubts.refusals(_doubts_about(cycle)))
    outcomes = []
    for obj, case in cases:
        outcomes.append(await trials.run(case, obj, method, attempt, methods, attempt.making.new_activity(), writes, recorded))
    if (exchange := _recorded_call(cycle)) is not None and not any(outcome.reason for outcome in outcomes):
        case = trials.of_examples([exchange.example])[0]._replace(exchanges=exchange.exchanges)
        outcomes.append(await trials.run(case, cycle.target, method, attempt, methods, attempt.making.new_activity()))
    return [outcome.reason for outcome in outcomes if outcome.reason][: SynthesisLimits.of(attempt.settings).reasons], outcomes[0].did


def _recorded_call(cycle: UvmObject) -> operation_pins.ToolExchange | None:
    """Return a call that the version before answered well, where the method is written anew for a doubt, and was taught nothing since."""
    held = cycle.holder._slots.get(cycle.selector)
    if not isinstance(held, Method) or not _doubts_about(cycle):
        return None
    if dict(held.provenance).get("taught") != taught_examples.examples_digest(session_of(cycle).taught):
        return None
    return operation_pins.recorded_call(_root(cycle), cycle.holder, held)


def _may_use_tools(cycle: UvmObject) -> bool:
    """Return True if the user lets the method use tools. He does so by a lesson, with the message of the mission, by an earlier version, or
    by sending the message to a connection."""
    root, selector, message = _root(cycle), cycle.selector, json.loads(current().mission.message or "{}")
    if connections.is_connection(root, cycle.target):  # what it is for is to use that connection's tools
        return True
    held = find(cycle.target, selector)
    if held is not None and isinstance(held[1], Method) and may_use_tools(held[1]):
        return True
    if message.get("tools") and message["selector"] == selector and history.resolve(root, message["target"]) is cycle.target:
        return True
    return any(taught_examples.allows_tools(root, obj, selector) for obj in (cycle.target, cycle.holder, *_kin(cycle)))


def _is_plan(cycle: UvmObject) -> bool:
    """Return True if the method is a plan's (`batos.mind.tool_plans`)."""
    return cycle.target._slots.get("parent*") is _root(cycle)["lobby"].traits._slots.get("plan")


async def _told_tools(cycle: UvmObject, attempt: Attempt) -> tuple[Sequence[str], str]:
    """Return the tools that the method may use, and what holds for all of them; nothing where it may use none."""
    if not session_of(cycle).tools:
        return (), ""
    offers, most, purpose = attempt.tools.offers(), attempt.settings.tools.offered, f"{cycle.selector} {cycle.intent}"
    if not connections.is_connection(_root(cycle), cycle.target):
        lines = tool_prompts.plan_lines if session_of(cycle).sealed else tool_prompts.tool_lines
        return lines(offers, purpose, most), tool_prompts.head(tool for _, tool in offers)
    held = connections.pinned(cycle.target)
    callable_ = {name for name, _ in offers}
    own = [tool for tool in held.tools if f"{held.spec.name}.{tool.name}" in callable_]
    own = await tool_prompts.ranked(held.spec.name, own, purpose, most)
    if cycle.expert:
        session = session_of(cycle)
        session.readings = await tool_readings.readings(held.spec.name, own, cycle.target, attempt, attempt.making.methods)
        if session.readings:  # it knows nothing of tools, and much of slots
            return (), ""
    limits = SynthesisLimits.of(attempt.settings)
    room = limits.chars // 2 if cycle.expert else limits.tool_chars
    return tool_prompts.operation_lines(held.spec.name, own, most, room), tool_prompts.head(own)


def _own_words(cycle: UvmObject) -> str:
    """Return the words of the user, which a method may repeat."""
    session = session_of(cycle)
    return " ".join((cycle.selector, cycle.intent, repr(session.args), repr(session.kwargs), repr(session.taught)))


def _kin(cycle: UvmObject) -> list[UvmObject]:
    return lessons.kin(_root(cycle), cycle.target, cycle.holder, cycle.selector)


def _model(cycle: UvmObject, attempt: Attempt) -> str:
    """Return the model that writes (setting `methods.writer`): the expert for methods if there is one, else the writer's own voice. A plan
    is written by the model of its mission's persona, which was found able to."""
    chosen = attempt.settings.methods.writer
    if session_of(cycle).sealed:
        return speaking_model()
    if chosen == "expert":
        return model_registry.speaks_methods(_root(cycle)) or attempt.voice_of(cycle.persona)
    return attempt.voice_of(cycle.persona) if chosen == "plain" else chosen


def _doubts_about(cycle: UvmObject) -> list[Doubt]:
    """Return the doubts for which the method of a cycle is written anew, the newest first."""
    held = cycle.holder._slots.get(cycle.selector)
    found = method_doubts.about(cycle.holder, held, current().mission.accepted) if isinstance(held, Method) else []
    return found[::-1]


def _passing_doubts(cycle: UvmObject) -> Method | None:
    """Return the version before if it may be right all the same: its calls were refused for what they are about, not for their form.
    Where no draft is better it is tried again.
    """
    held = cycle.holder._slots.get(cycle.selector)
    doubts = _doubts_about(cycle)
    return held if isinstance(held, Method) and doubts and all(one.met for one in doubts) else None


def _earlier_refusals(cycle: UvmObject, attempt: Attempt) -> list[str]:
    """Return the reasons of earlier refusals for this selector, the newest first. Only those before the mission was accepted count, so
    that a replay asks the same.
    """
    found = ledger.failures(_root(cycle), selector=cycle.selector, limit=SynthesisLimits.of(attempt.settings).lessons)
    until = attempt.mission.accepted
    reasons = [str(reason) for row in found if row["at"] < until for reason in (row["error"].get("context") or {}).get("reasons", ())[:1]]
    return list(dict.fromkeys(reasons))


def _root(cycle: UvmObject) -> Any:
    return lobby_of(cycle.persona)._p_jar.root()


STATES: dict[str, dict[str, Any]] = {
    "IDLE": {
        "behaviour": reify,
        "successors": ("DECOMPOSING",),
        "comment": "I am where a message that nobody understands becomes a mandate.",
    },
    "DECOMPOSING": {
        "behaviour": study,
        "successors": ("DELEGATING", "SYNTHESIZING"),
        "comment": "I gather what must be known to write a method: the object, the purpose, examples, earlier failures.",
    },
    "DELEGATING": {"behaviour": write, "successors": ("SYNTHESIZING",), "comment": "I let a model write the method."},
    "SYNTHESIZING": {
        "behaviour": try_out,
        "successors": ("DELEGATING", "COMPLETE"),
        "comment": "I let the guardian, the sandbox and trials judge what was written; what they refuse goes back with the reason.",
    },
    "COMPLETE": {"behaviour": put_in_place, "successors": (), "comment": "I put the method in its place."},
}


def install(lobby: UvmObject) -> None:
    """Make the forge: a step of genesis."""
    comment = "I hold the states in which missing methods are written; my slot writer names the persona that writes them."
    add_missing(lobby, forge=lambda: lobby.genesis.derive(name="forge", comment=comment))
    add_missing(lobby.forge, writer="brick", FAILED=lobby.psm.FAILED)
    for name, slots in STATES.items():
        made = {**slots, "name": name, "behaviour": Primitive.of(slots["behaviour"])}
        add_missing(lobby.forge, **{name: lambda: lobby.traits.state.derive()})
        add_missing(lobby.forge._slots[name], **made)
