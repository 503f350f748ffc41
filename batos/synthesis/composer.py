"""The composer: methods put together of parts that are known to give the examples' answers.

Inputs, expressions of them and of their items (`batos.synthesis.terms`), and aggregations (`batos.synthesis.aggregations`) are searched
for the goals of the examples (`batos.synthesis.targets`). What fits becomes a source, which the sandbox runs as a whole.

Arguments are renamed while a method is composed, where a user's name is also one of ours. A user may call an argument `n`, as idioms call
their variable. In the result both swap names (capture-avoiding substitution: Barendregt 1984, The Lambda Calculus, 2.1).
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.concurrency import in_helper
from batos.objects.json_form import Example
from batos.synthesis import adaptation, batch_runner, mutations
from batos.synthesis.adaptation import SourceRequest, asked
from batos.synthesis.aggregations import FILTERED, FOUND, Aggregation, fitting, lists
from batos.synthesis.enumeration import ITEM, names_in
from batos.synthesis.handbook import HandbookEntry, handbook, words_in
from batos.synthesis.idiom_costs import MODULES, reserved
from batos.synthesis.ranking import Passed, as_expected
from batos.synthesis.specification import MethodCall, SearchContext, Specification
from batos.synthesis.targets import ANSWER, WHETHER, Goal, goals, spelled, targets, written_together
from batos.synthesis.terms import UNSAID, Computed, Over, computed, grown_of, overs


def clashing(what: Specification, ours: Collection[str]) -> dict[str, str]:
    """Return new names for the arguments that have one of our names."""
    theirs = {name for call in what.calls for name in call.kwargs}
    # `self` is not the name of an argument
    return {name: _free(name, {*theirs, *ours}) for name in sorted(theirs.intersection(ours) - {"self"})}


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def renamed(what: Specification, names: Mapping[str, str]) -> Specification:
    """Return the specification with its arguments renamed."""

    def their(given: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(name, name): value for name, value in given.items()}

    def call(one: MethodCall) -> MethodCall:
        return one._replace(kwargs=their(one.kwargs))

    def example(one: Example) -> Example:
        return one._replace(kwargs=tuple(their(dict(one.kwargs)).items()))

    return what._replace(examples=[(call(one), example(other)) for one, other in what.examples], calls=[call(one) for one in what.calls])


def named_back(passed: Passed, names: Mapping[str, str]) -> Passed:
    """Return methods with the user's names of arguments. A method that needs the Python name behind such a name is left out."""
    both = {**names, **{other: name for name, other in names.items()}}
    found = []
    for cost, source in passed:
        tree = ast.parse(source)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if any(name in used and (hasattr(builtins, name) or name in MODULES) for name in names):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = both.get(node.id, node.id)
            elif isinstance(node, ast.arg):
                node.arg = both.get(node.arg, node.arg)
        text = mutations.unparsed(tree)
        if text is not None:
            found.append((cost, text))
    return tuple(found)


_WRITTEN, _PASSED = 1000, 100  # limits: candidates that are written (the cheapest), and candidates that pass and are run whole
_KINDS, _CHARS = 6, 8000  # limits: inputs of a method, and characters of one input in an example
_OVERS, _GOALS = 7, 6  # limits: kinds of items, and goals for them
_LOOKS, _FITS = 3, 20_000  # limits: evaluations of frames for each computed value, and aggregations of one kind of items that reach a goal
# for each of several goals: number of the cheapest parts, and the highest cost of a part without its unexplained words
_EACH, _WITHIN = 6, 5.0
_BASE = 0.3
_UNTOLD = 2.0  # cost of a candidate that explains none of the request's words
_BY_LENGTH = 0.01  # cost of one character
_TURNED = 0.4  # cost of a slot's new value that does not start from the old value
_SHARP, _LIKELY = 1.3, 12.0  # factor that makes costs comparable with the costs of known methods; the highest cost of a candidate


class FoundPart(NamedTuple):
    """An aggregation that gives a goal.

    :ivar over: the items that it goes through.
    """

    cost: float
    made: Aggregation
    over: Over
    end: Goal


async def composed(context: SearchContext, known: Sequence[tuple[float, HandbookEntry]]) -> Passed:
    """Return methods composed of parts that pass the examples.

    :param known: known methods, each with the share of the request's words that it explains, the largest first.
    """
    what, most = context.spec, context.budget.parts
    if not most:
        return ()
    ours = await in_helper(_ours)  # reads all idioms on the first call
    if names := clashing(what, ours):
        held = await composed(context.about(renamed(what, names)), known)
        return await in_helper(lambda: tuple(one for one in named_back(held, names) if context.auditor(one[1])))
    if (request := asked(what)) is None or not _small(request, what):
        return ()
    wanted = list(itertools.islice(goals(what, request), _GOALS))
    several = [] if wanted else targets(what, request)
    ends = [*wanted, *several]
    bands = [one.words | WHETHER for one in spelled(what.known.told)]
    # remove the words that ask for the surrounding expression
    said = words_in(what.known.told) - frozenset[str]().union(*bands, *(end.spoken for end in ends))
    weights = await in_helper(lambda: handbook().weights(what.known.told, without=what.known.slots))
    given = await in_helper(lambda: list(itertools.islice(overs(request, what), _OVERS if ends else 0)))
    soon = await in_helper(lambda: list(adaptation.soon(known, what)))
    found: list[FoundPart] = []
    whole: list[Computed] = []
    more: list[Computed] = []

    def look(over: Over, parts: Sequence[Computed]) -> None:
        looks = _LOOKS * most // ((len(given) + 1) * len(ends))
        for end in ends:
            fits = itertools.islice(fitting(over, parts, end.values, frozenset(weights), looks), _FITS)
            found.extend(FoundPart(_cost([(one, over, end)], weights), one, over, end) for one in fits)

    share = most // (len(given) + 2)
    for over in given:  # inputs as a whole come first: most candidates use them
        parts = await computed(context, over, request, soon, said=said, whole=whole, most=share if over.text else 2 * share)
        whole = whole if over.text else parts
        more += await in_helper(lambda over=over, parts=parts: list(lists(over, parts, weights.keys())))
        await in_helper(lambda over=over, parts=parts: look(over, parts))
    if more and ends:
        parts = await in_helper(lambda: grown_of(given[0], request, what, more, said=said, most=share))
        await in_helper(lambda: look(given[0], parts))

    def able() -> list[tuple[float, str]]:
        texts: dict[str, float] = {}
        for cost, text in itertools.islice(_written(found, wanted, several, request, weights), _WRITTEN):
            if text not in texts and mutations.makes_sense(text, what.known) and context.auditor(text):
                texts[text] = cost + adaptation.unused(text, what.known.told)
            if len(texts) >= _PASSED:
                break
        return [(cost, text) for text, cost in texts.items()]

    expected = [example for _, example in what.examples]
    tried = await context.run_examples(await in_helper(able))
    return tuple(one for one, texts in tried if all(map(as_expected, texts, expected)))


def _small(request: SourceRequest, what: Specification) -> bool:
    """Return True if the inputs are so few and small that the search takes a second or two."""
    given = [(*call.args, *call.kwargs.values(), *call.slots.values()) for call, _ in what.examples]
    return len(request.kinds) <= _KINDS and not _ours() & {*request.names} and all(len(repr(values)) <= _CHARS for values in given)


def _ours() -> frozenset[str]:
    """Return the names that a composed method uses beside its inputs."""
    return reserved() | {ITEM, FOUND, ANSWER, "self", batch_runner.SLOTS}


def _written(
    found: Sequence[FoundPart], wanted: Sequence[Goal], several: Sequence[Goal], request: SourceRequest, weights: Mapping[str, float]
) -> Iterator[tuple[float, str]]:
    """Yield composed methods with their costs, the cheapest first."""
    if wanted:
        likely = [one for one in found if one.cost <= _LIKELY and _uses_all([one], request)]
        for one in sorted(likely, key=lambda one: one.cost):
            before, text = _expression(one.made, one.over)
            yield from ((one.cost + more, source) for more, source in one.end.sources(request, text, before))
        return
    together = []
    for end in several:
        near = sorted((one for one in found if one.end is end and _bare(one) <= _WITHIN and one.made.frame.begin is None), key=_bare)
        together.append(near[:_EACH])
    both = [(_cost([one[1:] for one in held], weights), held) for held in itertools.product(*together)]
    for cost, held in sorted(both, key=lambda one: one[0]):
        if cost <= _LIKELY + 1 and _uses_all(held, request):
            texts = [(one.end, _expression(one.made, one.over)[1]) for one in held]
            yield from ((cost + more, source) for more, source in written_together(request, texts))


def _uses_all(found: Sequence[FoundPart], request: SourceRequest) -> bool:
    texts = [
        text
        for one in found
        for text in (one.over.text, one.end.around, _expression(one.made, one.over)[1], *(end for _, end in one.end.ends))
    ]
    texts += [line for one in found for line in _expression(one.made, one.over)[0]]
    return names_in(" ".join(texts)).issuperset(request.names)


def _bare(one: FoundPart) -> float:
    return _cost([one[1:]], {})


def _cost(together: Sequence[tuple[Aggregation, Over, Goal]], weights: Mapping[str, float]) -> float:
    """Return the improbability of parts that stand together: their own costs, parts that no word mentions, and words that no part
    explains.
    """
    said, words, cost = weights.keys(), frozenset[str](), 0.0
    for (frame, of, by, only), over, end in together:
        parts = [part for part, there in ((of, frame.has("of")), (by, True), (only, True)) if part is not None and there]
        words = words.union(over.words, frame.words, frame.also, end.words, end.also, *(part.words for part in parts))
        first = f"self.{end.slot}"
        turned = bool(end.slot) and "self." in of.text and not of.text.startswith((first, f"{{**{first}", f"[*{first}", f"({first}"))
        chars = len(frame.template) + len(end.around) + sum(len(part.text) for part in parts)
        unsaid = [held for held in (over.words, frame.words, end.words) if weights and held and not held & said]
        cost += over.cost + sum(part.cost for part in parts) + UNSAID * len(unsaid)
        cost += _BY_LENGTH * chars + end.cost + (FILTERED if only else 0.0) + (_TURNED if turned else 0.0)
    told = sum(weight for word, weight in weights.items() if word in words) / (sum(weights.values()) or 1.0)
    return _SHARP * (_BASE + cost + (_UNTOLD * (1 - told) if weights else 0.0))


def _expression(made: Aggregation, over: Over) -> tuple[list[str], str]:
    """Return the lines before the expression of an aggregation, and the expression."""
    frame, of, by, only = made
    if not over.text:
        return [], frame.template.format(of=f"({of.text})")
    each, some = f"for {ITEM} in {over.text}", over.text
    if only is not None and frame.begin is None:
        each, some = f"{each} if ({only.text})", f"({ITEM} {each} if ({only.text}))"
    key = f"lambda {ITEM}: {by.text}" if by is not None else ""
    text = frame.template.format(of=f"({of.text})", by=f"({by.text})" if by is not None else "", row=ITEM, key=key, each=each, some=some)
    if frame.begin is None or by is None:
        return [], text
    lines = [f"found = {frame.begin}", f"{each}:", *([f"    if ({only.text}):"] if only else [])]
    return [*lines, f"{'        ' if only else '    '}found[{by.text}] = {text}"], "found"
