"""What the forge does with methods near a draft, and with those that are known: a refused draft is amended by them, or one of them is
taken; and of one that is kept they tell what the examples leave open. They run aside, and nothing is kept of that.

What a method shall do, by its examples, as the search for it takes it: in plain values, taken from the objects of the image.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from batos.concurrency import in_helper
from batos.forge import lessons, method_prompts
from batos.forge.method_prompts import SynthesisLimits
from batos.guardian.policy import AuditLimits
from batos.image import taught_examples
from batos.image.taught_examples import Example
from batos.mind.attempt import current
from batos.mind.psm import lobby_of
from batos.objects import Method, SlotDict, SlotList, UvmObject, find, lookup_order
from batos.synthesis import adaptation, batch_runner, composer, mutations, ranking, translation_model
from batos.synthesis.batch_runner import MethodCall
from batos.synthesis.handbook import HandbookEntry, handbook, words_in
from batos.synthesis.plain_values import is_plain
from batos.synthesis.ranking import Specification
from batos.synthesis.repair import answers_edge_case, implied, lacks_edge_case, with_edge_case

_TITLES = ("name", "comment")  # of the object: where the words say "name", they mean another
_LARGE = 4000  # characters of a slot's value


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
    """What a method shall do, by its examples.

    :param slots: that the object has for the call that asks for the method, beside its own.
    """
    shown = tuple(dict.fromkeys(name for one in examples for name, _ in (*one.slots, *one.after)))
    values = [value for one in examples for value in (*one.args, *dict(one.kwargs).values(), *dict(one.slots).values())]
    known = mutations.RequestFacts(
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
    return Specification(known, list(zip(shown_calls, examples, strict=True)), calls, helpers)


def _helpers(obj: UvmObject, selector: str, intent: str) -> dict[str, str]:
    """The sources of messages that the words name, of those that are functions of what they are given."""
    named = {name: find(obj, name) for name in method_prompts.sends_spoken_of(obj, selector, intent)}
    held = {name: found[1] for name, found in named.items() if found is not None}
    return {
        name: one.source for name, one in held.items() if name != "think_" and isinstance(one, Method) and batch_runner.is_pure(one.source)
    }


def _held(obj: UvmObject, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The slots of an object that are wanted and hold what JSON has, inherited ones too; none that is large: each edit gets its own."""
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
    """A slot's value, with nothing in it cut or told otherwise than it is.

    :raises ValueError: for what is large, or of no form of JSON's.
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


Faults = Callable[[UvmObject, str], Awaitable[tuple[list[str], str]]]
"""Why a source cannot be kept, nothing if it can; and what it did on the call that asked for it."""
KNOWN = 4.2
"""What a known method costs at most."""
_LIKE = 2.5  # what a method that is known or put together costs at most, if it is to cast doubt on another
_CHANCE = (2.64, 3.24, -0.81, -0.27, 0.14)
"""How likely what is known or put together is right, in log odds: of any, by its share of the weight, by what it costs, by how many words
are said, and where the examples tell much. Logistic regression on 176 searches of tasks for validation (docs/training.md)."""
_WORDS = 40  # that make it less likely, at most: no request that was fitted had more
AT_ONCE, _AFTER, _LAST = 0.8, 0.5, 0.5
"""How likely it must be: if no model is asked, after a refused draft, and where every draft was refused."""
ELSEWHERE = 0.8
"""What it costs that a method was written for something else."""
_AMENDED = 3  # edits that do the same, of which the first that passes everything is taken


async def exact_match(cycle: UvmObject) -> str | None:
    """A method that is known and passes the examples, where its words tell all that is asked, or nearly; None where none does, or where
    words are asked in that the handbook cannot read, or the examples say little more than that there is an answer."""
    settings = current().settings
    what, run, _ = _aside(cycle)
    if not _legible(cycle, what):
        return None
    known = await _known(cycle, what)

    def telling() -> list[tuple[float, HandbookEntry]]:
        found = set(map(id, handbook().telling(what.known.told, (one for _, one in known), method_prompts.TOLD, without=what.known.slots)))
        return [one for one in known if id(one[1]) in found]

    passed = await _priced(await _tried(cycle, await in_helper(telling), exactly=True), what)
    return next(iter(await ranking.likely(passed, what, run, limit=AuditLimits.of(settings).bytes)), None)


async def best_composed(cycle: UvmObject) -> str | None:
    """A method that is known or put together of parts, where it is likelier than all else that is; None where none is, or where nothing
    may be taken at once (`told`)."""
    what, run, _ = _aside(cycle)
    if not _legible(cycle, what):
        return None
    return next(iter(await _likely(await _priced(await _found(cycle), what), what, run, AT_ONCE)), None)


async def last_resort(cycle: UvmObject) -> str | None:
    """A method that is known or put together, once all drafts were refused: likelier than all else, if not by far."""
    what, run, _ = _aside(cycle)
    if not _legible(cycle, what):
        return None
    refused = {source for source, _ in cycle.refusals}
    found = await _likely(await _priced(await _found(cycle), what), what, run, _LAST)
    return next((text for text in found if text not in refused), None)


async def repaired(cycle: UvmObject, source: str, faults: Faults) -> tuple[str, str] | None:
    """An edit of a draft that was refused, or a method that is known, with what it did on the call that asked for the method; None where
    none is likely to be right."""
    settings = current().settings
    what, run, audit = _aside(cycle)
    if not (SynthesisLimits.of(settings).edits and (what.tells or _legible(cycle, what))):
        return None
    before, limit, most = (
        [known for known, _ in cycle.refusals],
        AuditLimits.of(settings).bytes,
        SynthesisLimits.of(settings).edits if what.tells else 0,
    )
    new = await ranking.mutants_passing(source, before, what, audit, run, most=most, limit=limit)
    if not before:  # what is known does not change with the draft
        new = (*new, *await _found(cycle))
    cycle.passed = (*cycle.passed, *new)
    if not new:
        return None
    if cycle.reused or cycle._slots.get("made"):
        found = await _likely(await _priced(cycle.passed, what), what, run, _AFTER)
    else:
        found = await ranking.likely(cycle.passed, what, run, limit=limit)
    for text in found[:_AMENDED]:
        reasons, did = await faults(cycle, text)
        if not reasons:
            return text, did
    return None


async def edge_case_added(cycle: UvmObject, source: str, faults: Faults) -> tuple[str, str] | None:
    """A method that passes its examples and has no answer where there is nothing, made to answer what the words say of that
    (`batos.synthesis.repair`), and what it did on the call that asked for it; None where they say nothing of it, or it has an answer."""
    settings = current().settings
    what, run, audit = _aside(cycle)
    if not SynthesisLimits.of(settings).edits or not (said := implied(what)):
        return None
    (before,) = await batch_runner.run_batch([source], [one.call for one in said], run, limit=AuditLimits.of(settings).bytes)
    for one, did in zip(said, before, strict=True):
        if not lacks_edge_case(did, one) or (whole := with_edge_case(source, one, did)) is None or not audit(whole):
            continue
        ((after,),) = await batch_runner.run_batch([whole], [one.call], run, limit=AuditLimits.of(settings).bytes)
        if answers_edge_case(after, one):
            reasons, did = await faults(cycle, whole)
            return None if reasons else (whole, did)
    return None


async def _found(cycle: UvmObject) -> ranking.Passed:
    """Methods that are known, or put together of parts, and pass the examples."""
    return (*((cost + ELSEWHERE, text) for cost, text in await _reused(cycle)), *await _made(cycle))


async def _reused(cycle: UvmObject) -> ranking.Passed:
    """Methods that are known and pass the examples; found once, since they do not change with a draft."""
    if cycle.reused is None:
        cycle.reused = await _tried(cycle, await _known(cycle, _aside(cycle)[0]))
    return tuple(cycle.reused)


async def _made(cycle: UvmObject) -> ranking.Passed:
    """Methods put together of parts that pass the examples; found once, as those are."""
    if cycle._slots.get("made") is None:
        settings = current().settings
        what, run, audit = _aside(cycle)
        most, limit = 0 if _sends(cycle, but=what.helpers) else SynthesisLimits.of(settings).parts, AuditLimits.of(settings).bytes
        known = await _known(cycle, what)
        cycle.made = await composer.composed(what, cycle.selector, known, audit, run, most=most, limit=limit)
    return tuple(cycle.made)


def _legible(cycle: UvmObject, what: ranking.Specification) -> bool:
    """Whether the words can be read that say what is asked, and the examples say more than that there is an answer."""
    legible = what.known.told.isascii() and (words_in(cycle.intent) or not cycle.intent)
    return bool(legible and what.examples and not taught_examples.all_constant(cycle.taught))


async def _likely(passed: ranking.Passed, what: ranking.Specification, run: batch_runner.Run, sure: float) -> Sequence[str]:
    """What most likely is right, the cheapest first; none where that is not likely enough."""
    found = ranking.by_best(await ranking.able(passed, what, run, limit=AuditLimits.of(current().settings).bytes, about=ranking.ABOUT))
    if not found:
        return ()
    share, group = found[0]
    return group.sources if chance(share, group.cost, what) >= sure else ()


def chance(share: float, cost: float, what: ranking.Specification) -> float:
    """How likely a method that is known or put together is right, 0 to 1.

    :param share: of the weight of the cheapest of each that does something else (`amending.by_best`).
    :param cost: of the cheapest that does the same (`channel.priced`).
    """
    words = words_in(what.known.told) - words_in(" ".join(what.known.slots).replace("_", " "))
    told = 1.0, share, cost, min(len(words), _WORDS), what.tells
    return 1 / (1 + math.exp(-sum(one * by for one, by in zip(told, _CHANCE, strict=True))))


def _sends(cycle: UvmObject, *, but: Collection[str] = ()) -> bool:
    """Whether the words name a message: what is known sends none, and what is put together only those that are functions.

    :param but: those that do not count.
    """
    named = method_prompts.sends_spoken_of(cycle.target, cycle.selector, cycle.intent)
    return any(one != "think_" and one not in but for one in named)


async def _priced(passed: ranking.Passed, what: ranking.Specification) -> ranking.Passed:
    """What passes, with what it costs where the words are what they are (`batos.synthesis.translation_model`)."""
    return await in_helper(lambda: translation_model.priced(passed, what.known.told, without=what.known.slots))


async def _tried(cycle: UvmObject, known: Sequence[tuple[float, HandbookEntry]], *, exactly: bool = False) -> ranking.Passed:
    most, limit = SynthesisLimits.of(current().settings).reuse, AuditLimits.of(current().settings).bytes
    what, run, audit = _aside(cycle)
    return await adaptation.adapted_passing(what, cycle.selector, known, audit, run, most=most, limit=limit, exactly=exactly, within=KNOWN)


async def _known(cycle: UvmObject, what: ranking.Specification) -> Sequence[tuple[float, HandbookEntry]]:
    """The methods of the handbook and of the image, those first whose words are likest to what is asked; found once. None where words name
    a message."""
    if _sends(cycle) or not SynthesisLimits.of(current().settings).reuse:
        return ()
    if cycle.known is None:
        own = lessons.accepted_entries(lobby_of(cycle.persona)._p_jar.root(), current().mission.accepted, (cycle.target, cycle.selector))
        cycle.known = await in_helper(lambda: tuple(handbook().alike(what.known.told, without=what.known.slots, more=own)))
    return tuple(cycle.known)


async def left_open(cycle: UvmObject, source: str, did: str) -> tuple[str, ...]:
    """What the examples leave open of a method that passes them, as `doubt.Question.texts`; empty where that is nothing.

    :param did: what it did on the call that asked for it, in its trial.
    """
    settings = current().settings
    if not (SynthesisLimits.of(settings).edits and cycle.taught):
        return ()
    what, run, audit = _aside(cycle)
    tree = mutations.parsed(source)
    aside = cycle._slots.get("expert") and what.tells and tree is not None and mutations.settled(tree)
    found = await _priced(await _found(cycle), what) if aside else ()
    other = tuple(one for one in found if one[0] <= _LIKE)
    question = await ranking.ambiguity_of_kept(
        source, did, what, audit, run, most=SynthesisLimits.of(settings).edits, limit=AuditLimits.of(settings).bytes, other=other
    )
    return question.texts() if question else ()


async def still_open(cycle: UvmObject) -> ranking.OpenQuestion | None:
    """What the examples leave open where every draft was refused, and no edit of one was likely enough to be right."""
    if not cycle.passed:
        return None
    what, run, _ = _aside(cycle)
    return await ranking.ambiguity_of_refused(await _priced(cycle.passed, what), what, run, limit=AuditLimits.of(current().settings).bytes)


def _aside(cycle: UvmObject) -> tuple[ranking.Specification, batch_runner.Run, Callable[[str], bool]]:
    """What a method shall do; what runs others in its place, and what audits them."""
    attempt = current()
    methods = attempt.making.methods

    async def run(text: str, given: list[Any]) -> Any:
        method, activity = Method(batch_runner.SELECTOR, text), attempt.making.new_activity()
        return await (await methods.sandbox()).run(UvmObject(), method, [given], activity=activity, apart=True)

    asked = cycle.target, cycle.selector, cycle.args, dict(cycle.kwargs)
    what = specification_of(*asked, intent=cycle.intent, examples=cycle.taught, slots=cycle.lacked)
    return what, batch_runner.Aside(run, what.helpers), lambda text: methods.lets_pass(text, cycle.selector)
