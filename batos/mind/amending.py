"""A refused draft amended by what is one edit away from it: of what passes the examples, that which most likely is right.

A small model's draft often lacks one thing, which no further draw of its brings; the sandbox tries hundreds of edits in the time of one.
What passes one example by chance is the danger of it (Smith et al. 2015, doi:10.1145/2786805.2786825). So nothing is amended by an
example that tells little, no edit counts that makes no sense (`edits.makes_sense`), and what passes must do the same on other calls, too,
but for a fifth of its weight: where it does not, the example leaves open which is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.image import history
from batos.image.examples import Example
from batos.image.turns import in_helper
from batos.mind import edits, side_by_side
from batos.mind.plain_values import same
from batos.mind.side_by_side import Call, Run
from batos.mind.variations import variations

SURE = 0.8
"""Share of the weight of all that passes which must do the same: docs/training.md has what others gave."""
_HUGE = 10**15  # a number that is larger than any float has no form of so many digits
_DIGITS = 3  # of a number that is not soon hit by chance
_BY_COST = 2.0  # an edit weighs exp(-_BY_COST * its cost)
ABOUT = 0.3
"""Methods that are put together cost about the same where they differ by so much: the shorter one is meant then. That a longer one explains
the words a little better (`min(map(int, str(count)))` for `count` of the digits) says nothing where both do the same."""
_VARIATIONS = 24
_COMPARED = 60  # methods that pass and are compared: the cheapest

Passed = tuple[tuple[float, str], ...]
"""Sources that pass the examples, with what each costs."""


class Wanted(NamedTuple):
    """What a method shall do, in plain values."""

    known: edits.Known
    examples: Sequence[tuple[Call, Example]]
    calls: Sequence[Call]
    """Those of the examples and the one that asked for the method."""
    helpers: Mapping[str, str] = {}
    """Sources of the messages that may be sent (`side_by_side.Aside`)."""

    @property
    def tells(self) -> bool:
        """Whether the examples tell enough to amend anything by them."""
        return any(tells(example) for _, example in self.examples)


class Group(NamedTuple):
    """Methods that do the same on all calls, the first in the order of `groups` first, with their weight, and what they do.

    :ivar cost: of the cheapest.
    """

    weight: float
    sources: list[str]
    did: tuple[str, ...]
    cost: float

    @property
    def best(self) -> float:
        """The weight of the cheapest alone."""
        return math.exp(-_BY_COST * self.cost)


def tells(example: Example) -> bool:
    """Whether an example tells much: slots that it has changed, or an answer that is not among what was given and that few methods give."""
    if example.after:
        return True
    result = example.result
    if result is None or isinstance(result, bool) or result in ("", [], {}):
        return False
    if isinstance(result, int | float) and abs(result) < _HUGE and len(f"{abs(result):.10g}".replace(".", "").lstrip("0")) < _DIGITS:
        return False
    given = (*example.args, *dict(example.kwargs).values(), *dict(example.slots).values())
    return not any(type(one) is type(result) and one == result for value in given for one in _parts(value))


async def passing(
    source: str,
    before: Sequence[str],
    what: Wanted,
    audit: Callable[[str], bool],
    run: Run,
    *,
    most: int,
    limit: int,
    within: float = math.inf,
) -> Passed:
    """What is one edit away from a draft and passes the examples.

    :param before: drafts before it.
    :param audit: whether the guardian lets a source pass; called in a helper thread.
    :param most: edits that are tried.
    :param limit: see `side_by_side.did`.
    :param within: see `edits.edits`.
    """

    def audited() -> list[tuple[float, str]]:
        return [one for one in edits.edits(source, what.known, before, most=most, within=within) if audit(one[1])]

    found = await in_helper(audited)
    came = await side_by_side.did([text for _, text in found], [call for call, _ in what.examples], run, limit=limit)
    expected = [example for _, example in what.examples]
    return tuple(one for one, texts in zip(found, came, strict=True) if all(map(as_expected, texts, expected)))


async def likely(passed: Passed, what: Wanted, run: Run, *, limit: int) -> list[str]:
    """Of what passes the examples that which most likely is right, the cheapest first; none where that is open.

    :param passed: what passed of all drafts till now: what one of them leaves open another one's edits do not close.
    """
    share, sources = await likeliest(passed, what, run, limit=limit)
    return list(sources) if share >= SURE else []


async def likeliest(passed: Passed, what: Wanted, run: Run, *, limit: int) -> tuple[float, Sequence[str]]:
    """Of what passes the examples that which does the same and has the most weight, the cheapest first; and its share of the weight."""
    found = await able(passed, what, run, limit=limit)
    return (found[0].weight / sum(one.weight for one in found), found[0].sources) if found else (0.0, ())


def by_best(found: Sequence[Group]) -> list[tuple[float, Group]]:
    """Groups by the cheapest of each, with its share of the weight of all of these: how many ways there are to write the same says nothing
    of methods that are put together."""
    whole = sum(one.best for one in found)
    return sorted(((one.best / whole, one) for one in found), key=lambda one: -one[0])


async def able(passed: Passed, what: Wanted, run: Run, *, limit: int, about: float = 0.0) -> list[Group]:
    """What passes the examples, by what it does elsewhere, the likeliest first: what does not fail on the call that asked for it, and does
    not do the same whatever it is given, where there is such.

    :param about: see `groups`.
    """
    found = await groups(passed, elsewhere(what), run, limit=limit, about=about)
    found = [one for one in found if all(one.did[: len(what.calls)])] or found
    return [one for one in found if len(set(one.did)) > 1] or found


def elsewhere(what: Wanted) -> list[Call]:
    """The calls on which methods that pass the examples are compared: those that are known, and variations of them."""
    return [*what.calls, *variations(what.calls, _VARIATIONS)]


async def groups(passed: Passed, calls: Sequence[Call], run: Run, *, limit: int, about: float = 0.0) -> list[Group]:
    """Methods by what they do on calls, the group of the most weight first; in each the cheapest first.

    :param about: but the shortest before those that cost so much less.
    """
    cheapest: dict[str, float] = {}
    for cost, text in sorted(passed):
        cheapest.setdefault(text, cost)
    compared = list(cheapest.items())[:_COMPARED]
    came = await side_by_side.did([text for text, _ in compared], calls, run, limit=limit)
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
    """Whether a method did what an example says.

    :param text: of `side_by_side.did`.
    """
    if (found := side_by_side.read(text)) is None:
        return False
    value, slots = found
    return same(value, expected.result) and as_left(slots, expected)


def as_left(slots: Mapping[str, Any], expected: Example) -> bool:
    """Whether slots are as an example leaves them: what it says of one stays so, unless it says what becomes of it."""
    left = dict(expected.slots) | dict(expected.after)
    return all(same(history.uncut(slots.get(name)), held) for name, held in left.items())


def _parts(value: Any) -> Iterator[Any]:
    """A value and all that is in it, keys too."""
    yield value
    if isinstance(value, Mapping):
        yield from value
    for one in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _parts(one)
