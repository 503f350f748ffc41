"""Trials: a method that is not installed yet runs in a transaction that is aborted, on the call that asked for it and on examples.

The trial of one method may need another one, which may send the first: so a trial knows those that are tried around it (`Scope.drafts`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos import scope
from batos.errors import GrantNeeded, InvalidInput, MessageNotUnderstood, MethodError, MethodFailed, ToolFailed, ToolsTied
from batos.image import history
from batos.image.method_doubts import Refusal
from batos.methods.runtime import MethodRuntime, home_of
from batos.mind.attempt import Attempt
from batos.mind.tool_use import is_about_request
from batos.objects import Example, Method, UvmObject, find, is_new
from batos.sandbox import Activity
from batos.synthesis.specification import same

_SHOWN = 120  # greatest number of characters of a value in a reason
_FAULTS_OF_FORM = ("TypeError", "AttributeError", "NameError", "UnboundLocalError")
Draft = tuple[bytes, Method]
"""Id of the object that would hold the method, and the method, which is not installed."""


class RecordedCalls(NamedTuple):
    """Answers and refusals of tools as they were recorded before, for calls that a trial does not make."""

    answers: Mapping[str, Any]
    """by `CONNECTION.TOOL`"""
    refused: Mapping[tuple[str, str], Refusal]
    """by `CONNECTION.TOOL` and canonical arguments"""


NOTHING_RECORDED = RecordedCalls({}, {})


class Case(NamedTuple):
    """Call on which a method is tried, and what must come of it, where that is known."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    expected: Example | None = None
    slots: tuple[tuple[str, Any], ...] = ()
    """Slots that the receiver has before the call, if the example does not give them."""
    exchanges: Mapping[tuple[str, str], Sequence[Any]] | None = None
    """Answers to the calls of a recorded mission, by tool and arguments: nothing else is called or known then."""


class Outcome(NamedTuple):
    """Outcome of a trial. It has the reason against the method, or "" if there is none, and the effects of the method, for comparison with
    those of another.
    """

    case: Case
    reason: str
    did: str = ""
    doubled: bool = False
    """True if a double answered in the place of a tool."""


def cases(args: Sequence[Any], kwargs: Mapping[str, Any], examples: Sequence[Example], slots: Sequence[tuple[str, Any]] = ()) -> list[Case]:
    """Return the call that asked for the method, then the examples that were taught of it.

    :param slots: slots that the receiver has for that call, beside its own.
    """
    return [Case(tuple(args), kwargs, slots=tuple(slots)), *of_examples(examples)]


def of_examples(examples: Sequence[Example]) -> list[Case]:
    """Return examples as cases."""
    return [*map(_case, examples)]


def _case(example: Example) -> Case:
    return Case(example.args, dict(example.kwargs), example)


async def run(
    case: Case,
    obj: UvmObject,
    method: Method,
    attempt: Attempt,
    methods: MethodRuntime,
    activity: Activity,
    writes: Sequence[str] = (),
    recorded: RecordedCalls = NOTHING_RECORDED,
) -> Outcome:
    """Run a method once in a transaction that is aborted.

    :param writes: slots that it may write, by the audit.
    :param recorded: what is known of the tools that the trial does not call.
    :raises BatosError: for a failure outside of the method: a failed inference, or no available worker.
    """
    drafts: tuple[Draft, ...] = scope.current().drafts
    async with _apart(obj, case, methods, (*_forged(attempt), *drafts)) as apart:
        if apart is None:
            return Outcome(case, "")
        receiver, args, kwargs = apart
        # the holder of a copy belongs to another transaction
        home = home_of(receiver, method.selector) if receiver._p_jar is not None else receiver
        home._slots[method.selector] = method  # the method may send its own selector, also to objects that inherit it
        for name, value in case.expected.slots if case.expected else case.slots:
            receiver._slots[name] = value
        sandbox = await methods.sandbox()
        try:
            with attempt.trial((*drafts, (home._p_oid, method)) if home._p_oid else drafts) as entered:
                entered.trial.recorded, entered.trial.refused, entered.trial.exchanges = *recorded, case.exchanges
                value = await sandbox.run(receiver, method, args, kwargs, activity=activity, apart=True)
        except ToolsTied:  # what the tool would answer is not known here, so nothing can be said against the method
            return Outcome(case, "")
        except ToolFailed as e:  # the place refused the request as it was made; else it is no fault of the method
            wrong = is_about_request(e.context.get("status"))
            return Outcome(case, f"{_call(case, method.selector)} failed: {e.message}" if wrong else "")
        # InvalidInput: from a message to the system that the method sent wrongly
        except (MethodError, MessageNotUnderstood, InvalidInput) as e:
            if entered.trial.doubled and not _is_fault_of_form(e, method.source):
                return Outcome(case, "")
            return Outcome(case, f"{_call(case, method.selector)} failed: {e.message}")
        except GrantNeeded as e:  # a grant would permit an effect that this trial cannot roll back: stop here
            return Outcome(case, "" if e.context["grant"] else f"{_call(case, method.selector)} failed: {e.message}")
        reason = (
            "" if case.expected is None or entered.trial.doubled else _difference(case, case.expected, method.selector, value, receiver)
        )
        left = {name: history.uncut(held[1]) for name in writes if (held := find(receiver, name))}
        return Outcome(case, reason, repr((history.uncut(value), left)), entered.trial.doubled)


def _is_fault_of_form(error: Exception, source: str) -> bool:
    """Return True for an error that a method makes whatever the values of an answer of this form are. A double's values are made up: that
    a search finds nothing in them, or that a loop does not end, says nothing.
    """
    if not isinstance(error, MethodFailed):
        return isinstance(error, MessageNotUnderstood)
    if error.type == "KeyError":  # a name that the schema does not have; any other key is a value
        return any(f"{quote}{error.text.strip(chr(39))}{quote}" in source for quote in "\"'")
    return error.type in _FAULTS_OF_FORM


@contextlib.asynccontextmanager
async def _apart(
    obj: UvmObject, case: Case, methods: MethodRuntime, drafts: Sequence[Draft]
) -> AsyncIterator[tuple[UvmObject, tuple[Any, ...], Mapping[str, Any]] | None]:
    """Yield the receiver and the arguments as another transaction sees them, which is aborted at the end.

    An object of this very transaction is in no other: a copy of it is tried. Yield None where an argument is such an object: a method
    could change it, so nothing can be tried without a trace.
    """
    async with methods.image.unit() as unit:
        unit.doom()
        for oid, draft in drafts:
            with contextlib.suppress(LookupError):  # its holder is an object of this transaction
                unit.get(oid)._slots[draft.selector] = draft

        def there(value: Any) -> Any:
            if isinstance(value, UvmObject):
                if is_new(value):
                    raise LookupError
                return unit.get(value._p_oid)
            return value

        try:
            receiver = obj.clone() if is_new(obj) else unit.get(obj._p_oid)
            given = tuple(there(value) for value in case.args), {name: there(value) for name, value in case.kwargs.items()}
        except LookupError:
            yield None
            return
        yield receiver, *given


def _forged(attempt: Attempt) -> list[Draft]:
    """Return the methods that this mission has written so far, which no other transaction has."""
    found = ((one.holder._p_oid, one.holder._slots.get(one.selector)) for one in attempt.tally.forged)
    return [(oid, method) for oid, method in found if oid and isinstance(method, Method)]


def _difference(case: Case, expected: Example, selector: str, value: Any, receiver: UvmObject) -> str:
    found = history.uncut(value)
    if not same(found, expected.result):
        return f"{_call(case, selector)} answered {_shown(found)} and not {_shown(expected.result)}"
    for name, wanted in expected.after:
        held = history.uncut(receiver._slots.get(name))
        if not same(held, wanted):
            return f"after {_call(case, selector)} the slot {name} held {_shown(held)} and not {_shown(wanted)}"
    return ""


def speaks_of(reason: str, example: Example, selector: str) -> bool:
    """Return True if a reason names the fault of the answer to an example."""
    call = _call(_case(example), selector)
    if reason.startswith(f"{call} answered "):
        return reason.endswith(f" and not {_shown(example.result)}")
    return reason.startswith((f"{call} failed: ", f"after {call} the slot "))


def call_key(example: Example) -> str:
    """Return the call of an example, with the slots before it, as the user wrote it."""
    return json.dumps([example.args, *(sorted(pairs, key=lambda pair: pair[0]) for pairs in (example.kwargs, example.slots))])


def contradict(one: Example, other: Example) -> bool:
    """Return True if no method can keep two examples of the same call: they want another answer, or another value of a slot after it."""
    left = dict(other.after)
    return not same(one.result, other.result) or any(name in left and not same(value, left[name]) for name, value in one.after)


def example_text(example: Example, selector: str) -> str:
    """Return an example in words."""
    before = f" with {_named(example.slots)}" if example.slots else ""
    after = f", and {_named(example.after)} after it" if example.after else ""
    return f"{_call(_case(example), selector)}{before} -> {_shown(example.result)}{after}"


def _named(slots: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in slots)


def _call(case: Case, selector: str) -> str:
    given = [_shown(value) for value in case.args] + [f"{name}={_shown(value)}" for name, value in case.kwargs.items()]
    return f"{selector}({', '.join(given)})"


def _shown(value: Any) -> str:
    text = repr(history.plain(value))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
