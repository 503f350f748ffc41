"""Evaluation of an expert for methods beside another: both write methods that the image has accepted, and tasks that neither was trained
on.

Each is asked once for each method, at temperature 0, in the form that a message without a method would use. The source must pass the
guardian, the compiler and all trials. No judgement here: `batos.autotelic.rehearsal_verdict` decides which is better.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

from batos import scope
from batos.autotelic.changes import Proposal
from batos.errors import BatosError, ExpertRefused, InvalidInput, MethodUnsupported
from batos.forge import method_prompts, trials
from batos.guardian import repair
from batos.image import history, ledger, model_registry, taught_examples
from batos.methods.runtime import MethodRuntime
from batos.mind.attempt import Attempt
from batos.objects import Example, Method, Root, UvmObject, find
from batos.synthesis.handbook import Handbook

KIND, TARGET = "training", "methods"
LOOKED_AT = 256  # greatest number of missions that are looked at, the newest first


class Synthesis(NamedTuple):
    """A method that the image has accepted, and its known answers."""

    target: str
    selector: str
    prompt: str
    cases: tuple[trials.Case, ...]


class WritingTask(NamedTuple):
    """A method that is not of the image."""

    selector: str
    prompt: str
    right: Callable[[str], Awaitable[bool]]
    """Returns True if a source is right."""


class Wrong(NamedTuple):
    """Number of methods that an expert did not write correctly."""

    own: int = 0
    tasks: int = 0

    def __add__(self, other: Any) -> Wrong:
        return Wrong(self.own + other.own, self.tasks + other.tasks)


# --- the kind of change


def check(root: Root, proposal: Proposal, why_not: str) -> None:
    """See that a training makes sense, or what came of it.

    :raises BatosError: saying why it does not.
    """
    if proposal.target != TARGET:
        raise InvalidInput(f"only the expert for {TARGET} is trained, not {proposal.target!r}")
    if (model := model_of(proposal)) is not None:
        if model == model_registry.speaks_methods(root):
            raise InvalidInput(f"{model} writes methods already")
        return
    if why_not:
        raise InvalidInput(why_not)
    if not model_registry.speaks_methods(root):
        raise InvalidInput("no expert for methods is in use, so none can be trained further")


def apply(root: Root, proposal: Proposal) -> None:
    """Use the new expert as the writer of methods.

    :raises ExpertRefused: if it cannot.
    """
    if (model := model_of(proposal)) is None:
        raise ExpertRefused("nothing is trained yet")
    model_registry.choose_writer(root, model)


def model_of(proposal: Proposal) -> str | None:
    """Return the expert that was made; None if it is not yet."""
    return proposal.content.get("model") if isinstance(proposal.content, Mapping) else None


# --- tasks


def accepted(root: Root, count: int, chars: int, book: Handbook) -> list[Synthesis]:
    """Return methods of a model that are in place and whose right answers are known, the last called first.

    That is known from what users taught, and from calls of methods that change nothing.
    """
    return list(itertools.islice(_accepted(root, chars, book), count))


def _accepted(root: Root, chars: int, book: Handbook) -> Iterator[Synthesis]:
    seen: set[str] = set()
    for mission in itertools.islice(ledger.newest_first(root), LOOKED_AT):
        if not mission.message or mission.state != ledger.COMPLETE or mission.origin == "system":
            continue
        message = json.loads(mission.message)
        found = _written(root, message)
        if found is None or found[1].source in seen:
            continue
        seen.add(found[1].source)
        target, method = found
        taught, intent = taught_examples.examples_of(root, target, method.selector)
        cases = [trials.Case(one.args, dict(one.kwargs), one) for one in taught]
        args, kwargs = tuple(message["args"]), message["kwargs"]
        does = dict(method.contract)
        if not does.get("writes") and not does.get("sends"):
            value = (json.loads(mission.result) or {}).get("value")
            cases.append(trials.Case(args, kwargs, Example(args, tuple(kwargs.items()), value)))
        if cases:
            why = intent or str(dict(method.provenance).get("intent", ""))
            wanted = method_prompts.WantedMethod(target, method.selector, args, kwargs, why, taught)
            (prompt,) = method_prompts.compact(wanted, chars=chars, book=book)
            yield Synthesis(message["target"], method.selector, prompt, tuple(cases))


def _written(root: Root, message: dict[str, Any]) -> tuple[UvmObject, Method] | None:
    """Return the receiver of a message, and the method that answers it, where a model wrote that."""
    try:
        target = history.resolve(root, message["target"])
    except BatosError:  # the object is gone
        return None
    held = find(target, message["selector"])
    if held is None or not isinstance(held[1], Method) or dict(held[1].provenance).get("model") in (None, "rule"):
        return None
    return target, held[1]


# --- the evaluation


async def written(attempt: Attempt, model: str, selector: str, prompt: str) -> str:
    """Return the source that an expert writes at its first try.

    :raises Unknown: if that cannot be paid for.
    """
    attempt.restart(gated=False)
    more: dict[str, Any] = {"temperature": 0.0, "seed": 1, "repeat_penalty": 1.0}
    reply = await attempt.chat(model, method_prompts.COMPACT_SYSTEM, prompt, part=selector, silent=True, **more)
    return str(repair(reply.text, selector, attempt.settings).source)


async def is_right(one: Synthesis, source: str, root: Root, attempt: Attempt, methods: MethodRuntime) -> bool:
    """Return True if a source gives all known answers of the accepted method."""
    verdict = methods.audit(source, one.selector)
    if not verdict.accepted:
        return False
    try:
        await (await methods.sandbox()).compile(source)
    except MethodUnsupported:
        return False
    method, target = Method(one.selector, source), history.resolve(root, one.target)
    with scope.begin(attempt):
        for case in one.cases:
            outcome = await trials.run(case, target, method, attempt, methods, attempt.making.new_activity(), verdict.contract["writes"])
            if outcome.reason:
                return False
    return True
