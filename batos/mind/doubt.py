"""What the examples of a method leave open: a call on which another method that passes them too answers otherwise.

That a change of one name, comparison or number goes unnoticed by the examples is what mutation analysis measures of tests (DeMillo, Lipton
and Sayward 1978, doi:10.1109/C-M.1978.218136). Of methods of which that is so many more are wrong than of others (docs/training.md). The
call on which two of them differ is what a user should be asked next (oracle-guided synthesis: Jha et al. 2010,
doi:10.1145/1806799.1806833).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from batos.image.examples import Example
from batos.mind import amending, plain_values, side_by_side
from batos.mind.amending import Group, Wanted
from batos.mind.edits import SMALLEST
from batos.mind.plain_values import same
from batos.mind.side_by_side import Call, Run

_CHARS = 400  # of an example that a user is asked to look at


class Question(NamedTuple):
    """A call, with what a method answers to it, and what another one does that passes the examples, too."""

    answer: Example
    other: Example

    def texts(self) -> tuple[str, ...]:
        """Both as JSON, in the form in which examples are taught."""
        return tuple(json.dumps(one.to_json(), ensure_ascii=False) for one in self)

    def said(self, selector: str) -> str:
        """What is open, in words: `add_(3) when total = 5 answers 8 or 2`."""
        one = self.answer
        given = ", ".join([*map(_text, one.args), *(f"{name}={_text(value)}" for name, value in one.kwargs)])
        when = f" when {_state(one.slots)}" if one.slots else ""
        return f"{selector}({given}){when} answers {' or '.join(map(_answer, self))}"


async def of_kept(
    source: str, did: str, what: Wanted, audit: Callable[[str], bool], run: Run, *, most: int, limit: int, other: amending.Passed = ()
) -> Question | None:
    """What the examples leave open of a method that passes them; None where they leave nothing open that is near, or where it does
    otherwise here than in its trial.

    :param did: what it did in that, `trial.Outcome.did` of the call that asked for it.
    :param other: further methods that pass them.

    The other parameters are those of `amending.passing`.
    """
    near = (*await amending.passing(source, (), what, audit, run, most=most, limit=limit, within=SMALLEST), *other)
    if not near:
        return None
    calls = amending.elsewhere(what)
    first = min(cost for cost, _ in near) - 1  # no others may crowd it out
    found = await amending.groups(((first, source), *near), calls, run, limit=limit)
    own = next(one for one in found if source in one.sources)
    if not _as_tried(own, did, what):
        return None
    return _question(source, own, [one for one in found if one is not own], what, calls)


async def of_refused(passed: amending.Passed, what: Wanted, run: Run, *, limit: int) -> Question | None:
    """What is open between methods that pass the examples, of which none was taken; None where nothing is."""
    if not passed:
        return None
    calls = amending.elsewhere(what)
    best, *others = await amending.groups(passed, calls, run, limit=limit)
    return _question(best.sources[0], best, others, what, calls)


def _question(source: str, own: Group, others: Sequence[Group], what: Wanted, calls: Sequence[Call]) -> Question | None:
    """The call that parts a method and its group from most of the others; of several the one that asked for the method, or a short one."""
    slots = _slots_in([source, *(text for one in others for text in one.sources)])
    found: list[tuple[tuple[float, bool, int], Question]] = []
    for at in range(len(what.examples), len(calls)):
        weights: dict[str, float] = {}
        for one in others:
            weights[one.did[at]] = weights.get(one.did[at], 0.0) + one.weight
        did = side_by_side.read(own.did[at])
        differs = {text: asked for text in weights if (asked := _between(calls[at], did, side_by_side.read(text), slots))}
        if not differs:
            continue
        asked = differs[max(differs, key=lambda text: weights[text])]
        if (chars := max(map(len, asked.texts()))) <= _CHARS:
            found.append(((sum(weights[text] for text in differs), at < len(what.calls), -chars), asked))
    return max(found, key=lambda one: one[0])[1] if found else None


def _between(call: Call, one: side_by_side.Did, two: side_by_side.Did, shown: Collection[str]) -> Question | None:
    """What is open if methods did this and that on a call; None where that is the same, one of them failed, or no example can say it.

    Both sides tell of every slot that one of them changes: an example that is silent about it would let the other method pass.

    :param shown: slots that the methods speak of.
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
    plain = all(plain_values.is_plain(value) for side in told for value in (side.result, *dict(side.after).values()))
    alike = same(told[0].result, told[1].result) and same(dict(told[0].after), dict(told[1].after))
    return Question(*told) if plain and not alike else None


def _as_tried(own: Group, did: str, what: Wanted) -> bool:
    """Whether a method did here what it does elsewhere: what the examples say, and what its trial on the user's call came to."""
    if not all(amending.as_expected(text, example) for text, (_, example) in zip(own.did, what.examples, strict=False)):
        return False
    if len(what.calls) == len(what.examples):  # that call has what no example can say
        return True
    here, there = side_by_side.read(own.did[len(what.examples)]), side_by_side.read(did)
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
    """The names of the slots that methods speak of."""
    nodes: list[Any] = [node for source in sources for node in ast.walk(ast.parse(source))]
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"}
