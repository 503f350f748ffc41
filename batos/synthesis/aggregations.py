"""Aggregations of all items: lists, sums, extremes, filters, and records by a key.

The expressions of each item are computed by `batos.synthesis.terms`. An aggregation is evaluated on their values (over lists and records
as in Feser et al. 2015, doi:10.1145/2737924.2737977).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from batos.synthesis.enumeration import ITEM, Expression, names_in
from batos.synthesis.handbook import words_in
from batos.synthesis.literals import built, joined
from batos.synthesis.specification import same
from batos.synthesis.terms import UNSAID, Computed, Over
from batos.synthesis.transformations import COUNTED, GROUPED, OF_EACH, ORDERED, WHOLE, Frame, Row, compiled_frame

FILTERED = 0.3
_MAPPED, _MAPS = 1.4, 14  # the highest cost of an expression of each item in a list, and the greatest number of such expressions
_BOTH = 2  # greatest number of expressions combined with each filter
_KEPT = 8  # greatest number of filters for these lists
_OF, _BY, _IF = 250, 40, 24  # greatest number of the cheapest expressions used as results, as keys and as filters
_ALL = 6  # greatest number of conditions that hold for all items and that the request names
_PLAIN = 10  # greatest number of result expressions that are combined with a key
_CONSTANT = 0.8  # cost of a constant that each item becomes
_SAME = 3  # greatest number of expressions with equal values


def _apart(separator: str) -> Callable[[Any], list[str] | None]:
    return lambda whole: whole.split(separator) if isinstance(whole, str) and separator in whole else None


_NOT = WHOLE[-1]
_PLAINLY = re.compile(r"[\w.]+")
_SEPARATED = {"\n": "line lines", ", ": "comma commas", ",": "comma commas", " ": "space spaces text", "; ": "semicolon semicolons"}
_APART: dict[Frame, Callable[[Any], list[Any] | None]] = {
    OF_EACH[0]: lambda whole: whole if isinstance(whole, list) else None,
    **{Frame(f"{one!r}.join({{of}} {{each}})", words_in(words)): _apart(one) for one, words in _SEPARATED.items()},
}
"""Frames that join items into one value, each with the function that splits a result into its items again."""
FOUND = "found"
"""Name of the record that a method fills."""
_FAILS = (ArithmeticError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)


class Aggregation(NamedTuple):
    """A frame, with the expression of each item, the key, and the filter that it is filled with."""

    frame: Frame
    of: Expression
    by: Expression | None
    only: Expression | None


def fitting(over: Over, parts: Sequence[Computed], expected: Sequence[Any], said: frozenset[str], most: int) -> Iterator[Aggregation]:
    """Yield the aggregations that give the expected values, one of each example.

    :param said: words of the request.
    :param most: evaluations of frames at most.
    """
    if not over.text:
        yield from (Aggregation(WHOLE[0], one, None, None) for one in _composed(parts, expected, said))
        for held in _alike(parts):
            if all(_is(value, end) for (value,), end in zip(held[0].values, expected, strict=True)):
                yield from (Aggregation(WHOLE[0], one.part, None, None) for one in held)
    yield from _of_each(over, parts, expected, said)
    if not expected:
        return
    classes = _alike(parts)
    of, by = classes[:_OF], [one for one in classes if _orders(one[0])][:_BY]
    asked = frozenset(over.fixed) | frozenset(word for word in said if word.isdigit())
    for only in (None, *(_filters(parts, asked)[:_IF] if over.text else ())):
        kept = [tuple(map(bool, values)) for values in only[0].values] if only else [(True,) * len(items) for items in over.of]
        several = (OF_EACH, of, [None]), (COUNTED, of[:1], [None]), ((*ORDERED, *GROUPED), of[:_PLAIN], by)
        ways = several if over.text else ((WHOLE[1:], of, [None]),)
        for frames, ofs, bys in ways:
            able = [frame for frame in frames if frame.may_give(expected[0])]
            for one, other in itertools.product(ofs, bys) if able else ():
                if (most := most - len(frames)) < 0:  # all frames count, so that the search finds the same candidates whatever is wanted
                    return
                rows = [_rows(*given) for given in zip(over.of, one[0].values, (other or one)[0].values, kept, strict=True)]
                plain = _PLAINLY.fullmatch(one[0].part.text) is not None
                for frame in able:
                    if all(_comes_to(frame, row, end) for row, end in zip(rows, expected, strict=True)) and not _hardly_meant(
                        frame, rows, expected, (other or one) is one, plain
                    ):
                        for of_, by_, if_ in itertools.product(one[:_SAME], (other or [None])[:_SAME], (only or [None])[:_SAME]):
                            yield Aggregation(frame, of_.part, by_.part if by_ else None, if_.part if if_ else None)


def _of_each(over: Over, parts: Sequence[Computed], expected: Sequence[Any], said: frozenset[str]) -> Iterator[Aggregation]:
    """Yield aggregations where the expected list, or text between separators, has one entry for each item."""
    counts = [len(items) for items in over.of]
    if not over.text or not sum(counts):
        return
    rows = [Computed(one.part, _each(itertools.chain.from_iterable(one.values))) for one in parts]
    for frame, apart in _APART.items():
        wanted = [apart(one) for one in expected]
        if [len(one) if one is not None else -1 for one in wanted] == counts:
            flat = [value for one in wanted for value in one or ()]
            some = _of_some(over, parts, flat)
            yield from (Aggregation(frame, part, None, None) for part in itertools.chain(_composed(rows, flat, said), some))


def _of_some(over: Over, parts: Sequence[Computed], expected: Sequence[Any]) -> Iterator[Expression]:
    """Yield expressions that change the items for which a condition holds, and leave the others as they are."""
    items = [item for held in over.of for item in held]
    changed = [not _is(item, end) for item, end in zip(items, expected, strict=True)]
    if over.pairs or all(changed) or not any(changed):
        return
    flat = [(one.part, [value for values in one.values for value in values]) for one in parts if one.part.text != ITEM]
    constant = next(end for end, other in zip(expected, changed, strict=True) if other)
    if isinstance(constant, int | str | None):
        flat.append((Expression(_CONSTANT, repr(constant)), [constant] * len(items)))
    meant = [
        (part, [_is(value, end) for value, end in zip(values, expected, strict=True)])
        for part, values in flat
        if all(_is(value, end) for value, end, other in zip(values, expected, changed, strict=True) if other)
    ]
    for only in _filters(parts):
        so = [value for values in only[0].values for value in values]
        for part, right in meant[:_SAME]:
            if all(is_right if is_so else not other for is_so, is_right, other in zip(so, right, changed, strict=True)):
                for one in (held.part for held in only):
                    text = f"({part.text}) if ({one.text}) else {ITEM}"
                    yield Expression(part.cost + one.cost + FILTERED, text, part.words | one.words)


def _composed(parts: Sequence[Computed], expected: Sequence[Any], said: frozenset[str]) -> Iterator[Expression]:
    """Yield texts, lists and records of parts that give the expected values, one of each row."""
    yield from joined(parts, expected, said)
    yield from built(parts, expected, said)


def _hardly_meant(frame: Frame, rows: Sequence[Sequence[Row]], expected: Sequence[Any], by_itself: bool, plain: bool) -> bool:
    """Return True for an aggregation that passes by chance rather than by sense.

    Examples: it asks numbers or lists for their truth, or converts a text to a text. Other examples: it takes the last text by alphabet, or
    loses entries of a record by equal keys.

    :param by_itself: True if items are ordered by the answer itself.
    :param plain: True if the answer is an input, and not computed.
    """
    if frame.asks and any(isinstance(of, int | float) and not isinstance(of, bool) for row in rows for _, of, _ in row):
        return True
    if any(
        frame.template == f"{kind.__name__}({{of}})" and all(type(of) is kind for row in rows for _, of, _ in row) for kind in (int, str)
    ):
        return True
    if frame is _NOT and not plain and not all(isinstance(of, bool) for row in rows for _, of, _ in row):
        return True
    if frame.extreme:
        return by_itself and not isinstance(expected[0], int | float)
    return frame.keyed and any(len({repr(by) for _, _, by in row}) < len(row) for row in rows)


def _rows(items: Sequence[Any], of: Sequence[Any], by: Sequence[Any], kept: Sequence[bool]) -> list[Row]:
    return [row for row, keep in zip(zip(items, of, by, strict=True), kept, strict=True) if keep]


def _alike(parts: Sequence[Computed]) -> list[list[Computed]]:
    """Group expressions by their values, the cheapest first."""
    found: dict[str, list[Computed]] = {}
    for part in parts:
        found.setdefault(repr(part.values), []).append(part)
    return list(found.values())


def _filters(parts: Sequence[Computed], asked: Collection[str] = ()) -> list[list[Computed]]:
    """Return the conditions on items, and their negations, grouped by the items that they keep.

    A condition that keeps all items counts only where it uses a number or an input that the request names.

    :param asked: these numbers and inputs.
    """
    found: dict[tuple[tuple[bool, ...], ...], list[Computed]] = {}
    all_of_them: list[Computed] = []
    for one in parts:
        flat = [value for values in one.values for value in values]
        if asked and flat and len(all_of_them) < _ALL and all(value is True for value in flat) and names_in(one.part.text) & {*asked}:
            all_of_them.append(one._replace(part=one.part._replace(cost=one.part.cost + FILTERED)))
        if all(isinstance(value, bool) for value in flat) and len(set(flat)) == 2:
            found.setdefault(one.values, []).append(one)
            opposite = tuple(tuple(not value for value in values) for values in one.values)
            if not one.part.text.startswith("not "):
                part = Expression(one.part.cost + FILTERED, f"not ({one.part.text})", one.part.words)
                found.setdefault(opposite, []).append(Computed(part, opposite))
    held = [sorted(one, key=lambda one: one.part.cost)[:_SAME] for one in found.values()]
    return [*sorted(held, key=lambda one: one[0].part.cost)[: _IF - len(all_of_them)], *([one] for one in all_of_them)]


def _orders(one: Computed) -> bool:
    return all(isinstance(value, int | float | str) for values in one.values for value in values)


def lists(over: Over, parts: Sequence[Computed], said: Collection[str]) -> Iterator[Computed]:
    """Yield expressions of each item as lists and records, of which more is made as of the inputs.

    :param said: words of the request; none where they tell nothing.
    """
    if not over.text:
        return
    cost = FILTERED + over.cost + (UNSAID if said and over.words and over.words.isdisjoint(said) else 0.0)

    def all_of(part: Expression, text: str, kind: str) -> Expression:
        return Expression(part.cost + cost, text, part.words | over.words, kind)

    of = [one for one in parts if one.part.cost <= _MAPPED and one.part.kind not in ("", "flag") and one.part.text != ITEM][:_MAPS]
    for one in of:
        yield Computed(all_of(one.part, f"[{one.part.text} for {ITEM} in {over.text}]", "items"), _each(map(list, one.values)))
    for only in _filters(parts)[:_KEPT]:
        part = only[0].part
        each = f"for {ITEM} in {over.text} if ({part.text})"
        kept = [[item for item, keep in zip(*both, strict=True) if keep] for both in zip(over.of, only[0].values, strict=True)]
        if over.entries:
            yield Computed(all_of(part, f"{{{ITEM}[0]: {ITEM}[1] {each}}}", "record"), _each(map(dict, kept)))
        elif not over.pairs:
            yield Computed(all_of(part, f"[{ITEM} {each}]", "items"), _each(kept))
            for one in of[:_BOTH]:
                both = Expression(part.cost + one.part.cost, "", part.words | one.part.words)
                some = [[value for value, keep in zip(*held, strict=True) if keep] for held in zip(one.values, only[0].values, strict=True)]
                yield Computed(all_of(both, f"[{one.part.text} {each}]", "items"), _each(some))
    if over.entries:
        for one in of:
            rows = [{item[0]: value for item, value in zip(*both, strict=True)} for both in zip(over.of, one.values, strict=True)]
            yield Computed(all_of(one.part, f"{{{ITEM}[0]: {one.part.text} for {ITEM} in {over.text}}}", "record"), _each(rows))


def _each(values: Iterable[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple((value,) for value in values)


def _comes_to(frame: Frame, rows: Sequence[Row], expected: Any) -> bool:
    try:
        return _is(compiled_frame(frame)(rows), expected)
    except _FAILS:
        return False


def _is(value: Any, expected: Any) -> bool:
    try:
        if type(value) in (int, float) and type(expected) in (int, float):
            return value == expected or math.isclose(value, expected, rel_tol=1e-12, abs_tol=1e-12)
        if type(value) is not type(expected):
            return False
        return bool(value == expected) or (isinstance(value, list | dict) and len(value) == len(expected) and same(value, expected))
    except _FAILS:
        return False
