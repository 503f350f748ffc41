"""Ranking of candidates by their costs and by what they do on other calls, and the question that examples leave open.

What passes one example may do so by chance (Smith et al. 2015, doi:10.1145/2786805.2786825). So nothing is repaired by an example that is
not specific. Candidates must also agree on mutated calls, but for a fifth of their weight. Where they do not, the example leaves open which
is meant.

A change of one name, comparison or number that no example notices is what mutation analysis measures (DeMillo, Lipton and Sayward 1978,
doi:10.1109/C-M.1978.218136). Methods with such mutants are wrong more often (docs/synthesis.md). The call on which two candidates differ is
the next to ask a user about (oracle-guided synthesis: Jha et al. 2010, doi:10.1145/1806799.1806833).
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from batos.concurrency import in_helper
from batos.objects.json_form import Example, uncut
from batos.synthesis import batch_runner, mutations, specification
from batos.synthesis.batch_runner import variations
from batos.synthesis.mutations import SMALLEST
from batos.synthesis.specification import MethodCall, Runner, SearchContext, Specification, same

SURE = 0.8
"""Share of the weight of all passing candidates that must behave alike. docs/synthesis.md compares other values."""
_BY_COST = 2.0  # the weight of an edit is exp(-_BY_COST * cost)
ABOUT = 0.3
"""Difference of cost up to which two composed methods count as equally cheap: then the shorter one wins. A longer one may explain the
words slightly better (`min(map(int, str(count)))` for `count` of the digits); that says nothing if both do the same.
"""
_VARIATIONS = 24
_COMPARED = 60  # number of the cheapest passing methods that are compared

Passed = tuple[tuple[float, str], ...]
"""Sources that pass the examples, with their costs."""


class Group(NamedTuple):
    """Methods that do the same on all calls, the best first.

    :ivar weight: the sum of their weights.
    :ivar did: their outcomes.
    :ivar cost: the cost of the cheapest.
    """

    weight: float
    sources: list[str]
    did: tuple[str, ...]
    cost: float

    @property
    def best(self) -> float:
        """Return the weight of the cheapest source alone."""
        return math.exp(-_BY_COST * self.cost)


async def mutants_passing(context: SearchContext, source: str, before: Sequence[str] = (), *, within: float = math.inf) -> Passed:
    """Return the mutants of a draft that pass the examples: methods that are one edit away from it.

    :param before: earlier drafts, which lend their expressions.
    :param within: the highest cost of an edit (`mutations.edits`).
    """
    spec = context.spec

    def audited() -> list[tuple[float, str]]:
        found = mutations.edits(source, spec.known, before, most=context.budget.edits, within=within)
        return [one for one in found if context.auditor(one[1])]

    expected = [example for _, example in spec.examples]
    tried = await context.run_examples(await in_helper(audited))
    return tuple(one for one, texts in tried if all(map(as_expected, texts, expected)))


async def likely(context: SearchContext, passed: Passed) -> list[str]:
    """Return the sources that are most likely right, the cheapest first. Return none where the examples leave that open.

    :param passed: sources that passed, of all drafts so far. A question that one draft leaves open is not closed by the mutants of another.
    """
    share, sources = await likeliest(context, passed)
    return list(sources) if share >= SURE else []


async def likeliest(context: SearchContext, passed: Passed) -> tuple[float, Sequence[str]]:
    """Return the group of most weight, the cheapest source first, with its share of the whole weight."""
    found = await able(context, passed)
    return (found[0].weight / sum(one.weight for one in found), found[0].sources) if found else (0.0, ())


def by_best(found: Sequence[Group]) -> list[tuple[float, Group]]:
    """Return groups in the order of their cheapest method, each with its share of the weight of all cheapest methods.

    For composed methods it says nothing how many ways there are to write the same.
    """
    whole = sum(one.best for one in found)
    return sorted(((one.best / whole, one) for one in found), key=lambda one: -one[0])


async def able(context: SearchContext, passed: Passed, *, about: float = 0.0) -> list[Group]:
    """Return sources that pass the examples, grouped by their outcomes elsewhere, the likeliest group first.

    Sources that fail on the call that asked for the method are left out where others do not fail. So are sources that answer every call
    alike.

    :param about: see `groups`.
    """
    found = await groups(context.runner, passed, elsewhere(context.spec), about=about)
    found = [one for one in found if all(one.did[: len(context.spec.calls)])] or found
    return [one for one in found if len(set(one.did)) > 1] or found


def elsewhere(spec: Specification) -> list[MethodCall]:
    """Return the calls that compare methods which pass the examples: the known calls, and variations of them."""
    return [*spec.calls, *variations(spec.calls, _VARIATIONS)]


async def groups(runner: Runner, passed: Passed, calls: Sequence[MethodCall], *, about: float = 0.0) -> list[Group]:
    """Group methods by their outcomes on calls. The group of the most weight comes first; in each group the cheapest method.

    :param about: costs that differ by no more than this count as equal. Then the shortest method comes first.
    """
    cheapest: dict[str, float] = {}
    for cost, text in sorted(passed):
        cheapest.setdefault(text, cost)
    compared = list(cheapest.items())[:_COMPARED]
    came = await runner.outcomes([text for text, _ in compared], calls)
    alike: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    for one, texts in zip(compared, came, strict=True):
        alike.setdefault(texts, []).append(one)
    found = []
    for texts, held in alike.items():
        least = held[0][1]
        near = sorted((one for one in held if one[1] <= least + about), key=lambda one: len(one[0]) if about else one[1])
        held = [*near, *held[len(near) :]]
        found.append(Group(sum(math.exp(-_BY_COST * cost) for _, cost in held), [text for text, _ in held], texts, least))
    return sorted(found, key=lambda one: -one.weight)


def as_expected(text: str, expected: Example) -> bool:
    """Return True if an outcome is what an example says.

    :param text: an outcome of `Runner.outcomes`.
    """
    if (found := batch_runner.read_outcome(text)) is None:
        return False
    value, slots = found
    return same(value, expected.result) and as_left(slots, expected)


def as_left(slots: Mapping[str, Any], expected: Example) -> bool:
    """Return True if slots are as an example leaves them: a slot before the call stays so, unless the example says otherwise."""
    left = dict(expected.slots) | dict(expected.after)
    return all(same(uncut(slots.get(name)), held) for name, held in left.items())


_CHARS = 400  # greatest number of characters of an example in a question to the user


class OpenQuestion(NamedTuple):
    """A question that examples leave open: a call, the outcome of a method, and that of another one that passes the examples too."""

    answer: Example
    other: Example

    def texts(self) -> tuple[str, ...]:
        """Return both outcomes as JSON, in the form of taught examples."""
        return tuple(json.dumps(one.to_json(), ensure_ascii=False) for one in self)

    def said(self, selector: str) -> str:
        """Return the question in words: `add_(3) when total = 5 answers 8 or 2`."""
        one = self.answer
        given = ", ".join([*map(_text, one.args), *(f"{name}={_text(value)}" for name, value in one.kwargs)])
        when = f" when {_state(one.slots)}" if one.slots else ""
        return f"{selector}({given}){when} answers {' or '.join(map(_answer, self))}"


async def ambiguity_of_kept(context: SearchContext, source: str, did: str, *, other: Passed = ()) -> OpenQuestion | None:
    """Return the question that the examples leave open about a method that passes them.

    Return None where no near method differs, or where the method did something else here than in its trial.

    :param did: the outcome of its trial on the call that asked for it.
    :param other: further methods that pass the examples.
    """
    near = (*await mutants_passing(context, source, within=SMALLEST), *other)
    if not near:
        return None
    calls = elsewhere(context.spec)
    first = min(cost for cost, _ in near) - 1  # the lowest cost: no other candidate may displace it
    found = await groups(context.runner, ((first, source), *near), calls)
    own = next(one for one in found if source in one.sources)
    if not _as_tried(own, did, context.spec):
        return None
    return _question(source, own, [one for one in found if one is not own], context.spec, calls)


async def ambiguity_of_refused(context: SearchContext, passed: Passed) -> OpenQuestion | None:
    """Return the question that is open between methods that pass the examples, or None. None of the methods was taken."""
    if not passed:
        return None
    calls = elsewhere(context.spec)
    best, *others = await groups(context.runner, passed, calls)
    return _question(best.sources[0], best, others, context.spec, calls)


def _question(source: str, own: Group, others: Sequence[Group], what: Specification, calls: Sequence[MethodCall]) -> OpenQuestion | None:
    """Return the call that tells a method from most others: the call that asked for the method, or a short one."""
    slots = _slots_in([source, *(text for one in others for text in one.sources)])
    found: list[tuple[tuple[float, bool, int], OpenQuestion]] = []
    for at in range(len(what.examples), len(calls)):
        weights: dict[str, float] = {}
        for one in others:
            weights[one.did[at]] = weights.get(one.did[at], 0.0) + one.weight
        did = batch_runner.read_outcome(own.did[at])
        differs = {text: asked for text in weights if (asked := _between(calls[at], did, batch_runner.read_outcome(text), slots))}
        if not differs:
            continue
        asked = differs[max(differs, key=lambda text: weights[text])]
        if (chars := max(map(len, asked.texts()))) <= _CHARS:
            found.append(((sum(weights[text] for text in differs), at < len(what.calls), -chars), asked))
    return max(found, key=lambda one: one[0])[1] if found else None


def _between(call: MethodCall, one: batch_runner.CallOutcome, two: batch_runner.CallOutcome, shown: Collection[str]) -> OpenQuestion | None:
    """Return the question between two outcomes of a call; None where they are equal, a method failed, or no example can say it.

    Both sides name every slot that one of them changes. Otherwise the other method would pass an example that is silent about it.

    :param shown: slots that the methods use.
    """
    if one is None or two is None:
        return None
    changed: dict[str, None] = {}
    for _, left in (one, two):
        changed |= dict.fromkeys(name for name, held in left.items() if name not in call.slots or not same(held, call.slots[name]))
    before = tuple((name, held) for name, held in call.slots.items() if name in shown)
    told = [
        Example(tuple(call.args), tuple(call.kwargs.items()), result, before, tuple((name, left.get(name)) for name in changed))
        for result, left in (one, two)
    ]
    plain = all(specification.is_plain(value) for side in told for value in (side.result, *dict(side.after).values()))
    alike = same(told[0].result, told[1].result) and same(dict(told[0].after), dict(told[1].after))
    return OpenQuestion(*told) if plain and not alike else None


def _as_tried(own: Group, did: str, what: Specification) -> bool:
    """Return True if a method has the same results here as elsewhere: those of the examples, and that of its trial."""
    if not all(as_expected(text, example) for text, (_, example) in zip(own.did, what.examples, strict=False)):
        return False
    if len(what.calls) == len(what.examples):  # no example can express that call
        return True
    here, there = batch_runner.read_outcome(own.did[len(what.examples)]), batch_runner.read_outcome(did)
    if here is None or there is None:
        return False
    return same(here[0], there[0]) and all(same(here[1].get(name), held) for name, held in there[1].items())


def _answer(one: Example) -> str:
    return f"{_text(one.result)} and leaves {_state(one.after)}" if one.after else _text(one.result)


def _state(slots: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} = {_text(value)}" for name, value in slots)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _slots_in(sources: Sequence[str]) -> set[str]:
    """Return the names of the slots in methods."""
    nodes: list[Any] = [node for source in sources for node in ast.walk(ast.parse(source))]
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"}
