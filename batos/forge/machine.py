"""The forge: the Prototypal State Machine that writes a missing method. Its states are objects of the image, as those of thinking are.

A message that finds nothing, or an Intent, is reified into a cycle: IDLE → DECOMPOSING (what is known of the object, the
purpose, what was taught, what failed before) → DELEGATING (a model writes) → SYNTHESIZING (guardian, sandbox, trials), and back
to DELEGATING with the reasons of a refusal, a bounded number of times → COMPLETE (installed). All in the mission's own transaction.

What the first lesson would wait for, read ahead while nothing is under way: the handbook, the idioms, and what words come of them.

It is the same for each lesson, and kept for as long as the process lives.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import structlog

from batos.concurrency import in_helper
from batos.config import Settings
from batos.errors import InvalidInput, MethodRefused, MethodUnsupported
from batos.forge import lessons, method_prompts, trials
from batos.forge.method_prompts import SynthesisLimits
from batos.guardian import repair
from batos.image import history, ledger, model_registry, taught_examples
from batos.image.living_image import add_missing
from batos.methods.runtime import WriterAwaited, home_of, misfit, parameters_in
from batos.mind import answer_checks
from batos.mind.attempt import Attempt, current
from batos.mind.psm import inner_number, lobby_of, run_cycle
from batos.objects import Intent, Method, Primitive, UvmObject, find
from batos.resources import charged, give_memory_back
from batos.synthesis.handbook import handbook
from batos.synthesis.ranking import OpenQuestion

log = structlog.get_logger(__name__)


def _handbook() -> None:
    from batos.synthesis.handbook import handbook  # late, as the others here: whoever has no expert for methods pays for none of it

    handbook()


def _channel() -> None:
    from batos.synthesis.translation_model import channel

    channel()


def _idioms() -> None:
    from batos.synthesis.idiom_costs import all_idioms

    all_idioms()


def _reserved() -> None:
    from batos.synthesis.idiom_costs import reserved

    reserved()


WARM_UP_KNOWN: Sequence[Callable[[], Any]] = (_handbook, _channel)
WARM_UP_PARTS: Sequence[Callable[[], Any]] = (_idioms, _reserved)
"""What is read for methods that are known, and for those put together of parts: each some tenths of a second to some seconds of a
processor, which nothing interrupts."""


def is_warm_up_wanted(root: Any, writer: str) -> bool:
    """Whether lessons will ask for it: only those of an expert for methods do.

    :param writer: the setting `methods.writer`.
    """
    return bool(model_registry.speaks_methods(root)) if writer == "expert" else model_registry.writes_methods(root, writer)


async def warm_up(settings: Settings, quiet: Callable[[], Awaitable[None]], asked_for: Callable[[], Awaitable[bool]]) -> None:
    """Read what lessons will ask for, a step at a time, `SynthesisLimits.ahead_s` from now.

    :param quiet: returns when no mission is under way or waits.
    :param asked_for: whether any will; returns once that is known.
    """
    steps = (
        *(WARM_UP_KNOWN if SynthesisLimits.of(settings).reuse or SynthesisLimits.of(settings).parts else ()),
        *(WARM_UP_PARTS if SynthesisLimits.of(settings).parts else ()),
    )
    if not (SynthesisLimits.of(settings).ahead_s and steps):
        return
    await asyncio.sleep(SynthesisLimits.of(settings).ahead_s)
    if not await asked_for():
        return  # it is read when it is first needed
    for step in steps:
        await quiet()
        await in_helper(step)
    gc.freeze()  # it stays: to look through it would stop the loop for a tenth of a second, each time
    await in_helper(give_memory_back)  # reading takes twice what is kept
    log.debug("handbook_read")


HANDBOOK, PARTS = "handbook", "parts"
"""Who wrote a method without a model: it is known, and was put to another use; or it was put together of parts."""
_WITHOUT_MODEL = {HANDBOOK: "reused", PARTS: "made"}  # and where a cycle has those that it found
_NOT_KEPT = (
    "_tmp_synthesis_", "args", "kwargs", "lacked", "taught", "prompt", "prompts", "candidates", "passed", "known", "reused", "made",
)  # fmt: skip
_DRAWS = 2  # times the bound of its tries: what it wrote before is no further try, and may be all that it knows
_SECOND_LOOK = (
    "batos.forge.candidate_search"  # brings numpy and dictionaries: late, for whoever is taught nothing, and not on the loop's time
)


async def forge(
    attempt: Attempt,
    obj: UvmObject,
    selector: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    lacked: Sequence[tuple[str, Any]] = (),
) -> Method:
    """Write, try and install the method for a message; the method.

    Within one mission the same message is written once, also where two of its parts send it at the same time.

    :param lacked: slots that the receiver has not, and has for the call while methods are tried on it: a lesson's call is that of its
        example, which nobody has sent.
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
        cycle = _new_cycle(obj, holder, selector, args, kwargs)
        cycle.lacked = tuple(lacked)
        if attempt.policy.keeps:
            if attempt.making.methods.writer_awaited and not model_registry.speaks_methods(_root(cycle)):
                raise WriterAwaited  # else the first message of a new image is left to a voice that can write no methods
            attempt.making.methods.claims.claim(key, attempt.id)
        cycle.number = inner_number(attempt)
        attempt.tally.forged.append(cycle)
        await charged(run_cycle(cycle, attempt), None)  # it has bounds of its own, and is not the work of the method that sent the message
        method: Method = holder._slots[selector]
        return method


def _new_cycle(obj: UvmObject, holder: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> UvmObject:
    lobby = lobby_of(obj if obj._p_jar is not None else holder)
    parents = {"state*": lobby.forge.IDLE, "parent*": lobby.traits.cycle}
    cycle = UvmObject(**parents, machine=lobby.forge, persona=_writer(lobby), target=obj, holder=holder, selector=selector)
    cycle.brief = f"write the method {selector!r} of {getattr(obj, 'name', None) or 'an object'}"
    cycle.why = "nobody understands the message"
    cycle.args, cycle.kwargs = tuple(args), tuple(kwargs.items())
    cycle.tries, cycle.draws, cycle.refusals, cycle.candidates = 0, 0, (), ()
    cycle.edited, cycle.passed, cycle.known, cycle.reused, cycle.made, cycle.open = False, (), None, None, None, ()
    cycle.last = False
    return cycle


def _writer(lobby: UvmObject) -> UvmObject:
    writer = lobby._slots.get(lobby.forge.writer)
    if not isinstance(writer, UvmObject):
        raise InvalidInput(f"the slot forge.writer names {lobby.forge.writer!r}, and no such persona is in the lobby")
    return writer


# --- what the states do


@Primitive.register("forge.reify")
async def reify(cycle: UvmObject) -> str:
    """IDLE: the message has become a cycle; find what it is for."""
    await in_helper(importlib.import_module, _SECOND_LOOK)
    found = find(cycle.target, cycle.selector)
    held = found[1] if found is not None else None
    taught, intent = taught_examples.examples_of(_root(cycle), cycle.target, cycle.selector)
    if isinstance(held, Intent):
        intent = intent or held.text
    elif isinstance(held, Method):
        intent = intent or dict(held.provenance).get("intent", "")
    cycle.intent = intent
    cycle.taught = tuple(taught)
    return "DECOMPOSING"


@Primitive.register("forge.study")
async def study(cycle: UvmObject) -> str:
    """DECOMPOSING: gather what a model must know. A facet needs none: it is its intent, as guidance for the persona's own model."""
    from batos.forge import candidate_search

    attempt = current()
    if cycle.selector.endswith("_facet_") and cycle.intent and len(cycle.args) == 1 and not cycle.kwargs and find(cycle.target, "think_"):
        cycle._tmp_synthesis_ = f"def {cycle.selector}(self, text):\n    return self.think_({cycle.intent!r}, text)\n"
        cycle.written_by, cycle.prompt = "rule", ""
        return "SYNTHESIZING"
    cycle.model, chars = _model(cycle, attempt), SynthesisLimits.of(attempt.settings).chars
    cycle.expert = model_registry.writes_methods(_root(cycle), cycle.model)
    asked = (cycle.target, cycle.selector, cycle.args, dict(cycle.kwargs))
    if cycle.expert:
        own = lessons.accepted_entries(_root(cycle), attempt.mission.accepted, (cycle.target, cycle.selector))
        told = {"intent": cycle.intent, "examples": cycle.taught, "chars": chars, "book": await in_helper(handbook), "own": own}
        cycle.prompts = method_prompts.compact(*asked, **told, views=method_prompts.VIEWS)
        if known := await candidate_search.exact_match(cycle):
            cycle._tmp_synthesis_, cycle.written_by, cycle.prompt = known, HANDBOOK, ""
            return "SYNTHESIZING"
        if made := await candidate_search.best_composed(cycle):
            cycle._tmp_synthesis_, cycle.written_by, cycle.prompt = made, _without_model(cycle, made) or PARTS, ""
            return "SYNTHESIZING"
    else:
        avoid = _lessons(cycle, attempt)
        cycle.prompts = (method_prompts.prompt(*asked, intent=cycle.intent, examples=cycle.taught, lessons=avoid, chars=chars),)
    return "DELEGATING"


@Primitive.register("forge.write")
async def write(cycle: UvmObject) -> str:
    """DELEGATING: the model writes; what can be mended without it is."""
    from batos.forge import candidate_search

    attempt = current()
    if _spent(cycle):
        if cycle.expert and not cycle.last and (last := await candidate_search.last_resort(cycle)):
            cycle.last, cycle._tmp_synthesis_, cycle.mended, cycle.prompt = True, last, (), ""
            cycle.written_by = _without_model(cycle, last)
            return "SYNTHESIZING"
        source, reasons = cycle.refusals[-2 if cycle.last and len(cycle.refusals) > 1 else -1]  # the model's
        raise _refused(cycle, source, reasons, await candidate_search.still_open(cycle))
    reply = await (method_prompts.ask_expert if cycle.expert else method_prompts.ask_writer)(cycle, attempt)
    mended = repair(reply.text, cycle.selector, attempt.settings)
    cycle.draws += 1
    if not (cycle.expert and any(known == mended.source for known, _ in cycle.refusals)):
        cycle.tries += 1
    cycle._tmp_synthesis_, cycle.mended = mended.source, tuple(mended.repairs)
    cycle.written_by, cycle.written_digest = reply.model, reply.digest
    return "SYNTHESIZING"


@Primitive.register("forge.try_out")
async def try_out(cycle: UvmObject) -> str:
    """SYNTHESIZING: the guardian, the sandbox's compiler and type check, and trials; what any of them refuses goes back, unless it is an
    expert's and an edit of it is right: an expert is asked the same again, and cannot be told what was wrong."""
    from batos.forge import candidate_search

    source = cycle._tmp_synthesis_
    known = _known(cycle, source)
    reasons, did = known or await _faults(cycle, source)
    if reasons and known is None and cycle._slots.get("expert") and (amended := await candidate_search.repaired(cycle, source, _faults)):
        source, did = amended
        cycle._tmp_synthesis_ = source
        reasons, other = [], _without_model(cycle, source)
        cycle.edited = not other
        if other:
            cycle.written_by, cycle.mended, cycle.prompt = other, (), ""
    if not reasons and cycle.written_by != "rule" and (whole := await candidate_search.edge_case_added(cycle, source, _faults)):
        source, did = whole
        cycle._tmp_synthesis_, cycle.edited = source, True
    if not reasons and cycle.written_by != "rule" and not cycle.candidates:
        cycle.open = await candidate_search.left_open(cycle, source, did)
    if not reasons:
        cycle.tries = max(1, cycle.tries) if cycle.written_by in _WITHOUT_MODEL else cycle.tries
        cycle.candidates = (*cycle.candidates, (source, cycle._slots.get("mended", ()), did, cycle.prompt))
    if cycle.candidates and (len(cycle.candidates) >= _wanted(cycle) or _spent(cycle)):
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
    """COMPLETE: install the method with its contract and provenance; it is kept when the mission commits."""
    attempt, source = current(), cycle._tmp_synthesis_
    verdict = attempt.making.methods.audit(source, cycle.selector).check()  # also where a cycle came here past the other states
    before = cycle.holder._slots.get(cycle.selector)
    provenance = {
        "mission": attempt.id,
        "intent": cycle.intent,
        "model": cycle.written_by,
        "model_digest": cycle._slots.get("written_digest", "") if cycle.written_by not in _WITHOUT_MODEL else "",
        "prompt_digest": hashlib.sha256(cycle.prompt.encode("utf-8", "surrogatepass")).hexdigest(),
        "policy": verdict.policy,
        "warnings": tuple(str(finding) for finding in verdict.findings),
        "repairs": cycle._slots.get("mended", ()),
        "edited": cycle.edited,
        "tries": cycle.tries,
        "trials": 1 + len(cycle.taught),
        "constant": taught_examples.all_constant(cycle.taught),
        "open": cycle.open,
        "receiver": history.oid_of(cycle.target) or "",
        "taught": taught_examples.examples_digest(cycle.taught),
        "candidates": cycle.compared,
        "agreed": cycle.agreed,
    }
    cycle.holder._slots[cycle.selector] = Method(
        cycle.selector,
        source,
        parameters=tuple(parameters_in(source)),
        contract=verdict.contract,
        provenance=provenance,
        previous=before if isinstance(before, Method) else None,
    )
    # The journal has the prompt, the mission the arguments.
    for name in _NOT_KEPT:
        cycle._slots.pop(name, None)
    cycle.answer = source


# --- what they need


def _without_model(cycle: UvmObject, source: str) -> str:
    """Who wrote a method that no model wrote; "" where a model did."""
    found = (who for who, slot in _WITHOUT_MODEL.items() if any(source == one for _, one in cycle._slots.get(slot) or ()))
    return next(found, "")


def _spent(cycle: UvmObject) -> bool:
    """Whether the method was written as often as it may be."""
    settings = current().settings
    limits = SynthesisLimits.of(settings)
    bound = limits.expert_tries if cycle._slots.get("expert") else limits.tries
    return bool(cycle.tries >= bound or cycle.draws >= _DRAWS * bound)


def _known(cycle: UvmObject, source: str) -> tuple[list[str], str] | None:
    """What is known of a source that was written before in this cycle."""
    for known, reasons in cycle.refusals:
        if known == source:
            return list(reasons), ""
    return next((([], did) for known, _, did, _ in cycle.candidates if known == source), None)


def _wanted(cycle: UvmObject) -> int:
    """How many methods are to be compared: nothing else tells whether one is right where nobody gave an example."""
    return SynthesisLimits.of(current().settings).candidates if cycle.written_by != "rule" and cycle.expert and not cycle.taught else 1


def _settle(cycle: UvmObject) -> None:
    """Take the first of the candidates that most others agree with: of those that did the same on the call that asked for the method."""
    counts = Counter(did for _, _, did, _ in cycle.candidates)
    agreed = max(counts.values())
    source, mended, _, prompt = next(one for one in cycle.candidates if counts[one[2]] == agreed)
    cycle._tmp_synthesis_, cycle.mended, cycle.prompt = source, mended, prompt
    cycle.compared, cycle.agreed = len(cycle.candidates), agreed


def _refused(cycle: UvmObject, source: str, reasons: Sequence[str], question: OpenQuestion | None = None) -> MethodRefused:
    """The error of the last refusal: of the covenant, where that was broken.

    :param question: what the examples leave open.
    """
    verdict = current().making.methods.audit(source, cycle.selector)
    if not verdict.accepted:
        try:
            verdict.check()
        except MethodRefused as e:
            return e
    tried = f" after {cycle.tries} {'try' if cycle.tries == 1 else 'tries'}" if cycle.tries else ""
    more = {"open": [one.to_json() for one in question]} if question else {}
    whose = lessons.whose(_root(cycle), (cycle.target, *_kin(cycle)), cycle.selector, reasons[0], current().id)
    asks = f"; the examples leave open whether {question.said(cycle.selector)}: teach it that" if question else ""
    return MethodRefused(
        f"no method {cycle.selector!r} could be kept{tried}: {reasons[0]}{whose}{asks}",
        selector=cycle.selector, source=source, reasons=list(reasons), cause="trial", **more,
    )  # fmt: skip


async def _faults(cycle: UvmObject, source: str) -> tuple[list[str], str]:
    """Why a source cannot be kept, in the order of cost: audit, texts, form, compiler, trials; only the first kind that refuses is named.
    And what it did on the call that asked for it."""
    attempt = current()
    methods, selector = attempt.making.methods, cycle.selector
    verdict = methods.audit(source, selector)
    if not verdict.accepted:
        return [str(finding) for finding in verdict.errors[: SynthesisLimits.of(attempt.settings).reasons]], ""
    if fault := answer_checks.fault_of_method_texts(source, _own_words(cycle)):
        return [fault], ""
    cases = [(cycle.target, one) for one in trials.cases(cycle.args, dict(cycle.kwargs), cycle.taught, cycle.lacked)]
    cases += [(obj, one) for obj in _kin(cycle) for one in trials.of_examples(taught_examples.examples_of(_root(cycle), obj, selector)[0])]
    if reason := next(filter(None, (misfit(source, case.args, case.kwargs) for _, case in cases)), None):
        return [reason], ""
    try:
        await (await methods.sandbox()).compile(source)
    except MethodUnsupported as e:
        return [e.message], ""
    method, writes = Method(selector, source), verdict.contract["writes"]
    outcomes = []
    for obj, case in cases:
        outcomes.append(await trials.run(case, obj, method, attempt, methods, attempt.making.new_activity(), writes))
    return [outcome.reason for outcome in outcomes if outcome.reason][: SynthesisLimits.of(attempt.settings).reasons], outcomes[0].did


def _own_words(cycle: UvmObject) -> str:
    """What the user said himself, as far as a method may say it, too."""
    return " ".join((cycle.selector, cycle.intent, repr(cycle.args), repr(cycle.kwargs), repr(cycle.taught)))


def _kin(cycle: UvmObject) -> list[UvmObject]:
    return lessons.kin(_root(cycle), cycle.target, cycle.holder, cycle.selector)


def _model(cycle: UvmObject, attempt: Attempt) -> str:
    """Who writes, by the setting `methods.writer`: an expert for methods, if there is one; else the writer's own voice."""
    chosen = attempt.settings.methods.writer
    if chosen == "expert":
        return model_registry.speaks_methods(_root(cycle)) or attempt.voice_of(cycle.persona)
    return attempt.voice_of(cycle.persona) if chosen == "plain" else chosen


def _lessons(cycle: UvmObject, attempt: Attempt) -> list[str]:
    """Why earlier missions' methods for this selector were refused, newest first; those known when the mission was accepted, so that
    a replay asks the same."""
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
    """The step of genesis that makes the forge."""
    comment = "I hold the states in which missing methods are written; my slot writer names the persona that writes them."
    add_missing(lobby, forge=lambda: lobby.genesis.derive(name="forge", comment=comment))
    add_missing(lobby.forge, writer="brick", FAILED=lobby.psm.FAILED)
    for name, slots in STATES.items():
        made = {**slots, "name": name, "behaviour": Primitive.of(slots["behaviour"])}
        add_missing(lobby.forge, **{name: lambda: lobby.traits.state.derive()})
        add_missing(lobby.forge._slots[name], **made)
