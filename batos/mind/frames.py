"""What is made of all items together, from what is computed of each: lists, sums, the largest, those that are so, records by a key.

Methods are put together from parts that are known to give what the examples give (bottom-up enumeration with observational equivalence:
Udupa et al. 2013, doi:10.1145/2462156.2462174; over lists and records: Feser et al. 2015, doi:10.1145/2737924.2737977). The parts have been
run; what comes of them together is computed here from their values, and what passes is run in the sandbox once more, whole.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from batos.image.turns import in_helper
from batos.mind import edits, reuse, side_by_side
from batos.mind.amending import Passed, Wanted, as_expected
from batos.mind.goals import Goal, goals
from batos.mind.handbook import Entry, handbook
from batos.mind.handbook.entries import words_in
from batos.mind.joined import joined
from batos.mind.parts import UNSAID, Computed, Over, Part, computed, overs
from batos.mind.reuse import Asked, asked
from batos.mind.side_by_side import Run
from batos.mind.tidy import ITEM
from batos.mind.trial import same

_OF, _BY, _IF = 250, 40, 24  # what is computed of items that is answered, that orders or groups, and that says which count: the cheapest
_PLAIN = 10  # of those that are answered, beside what orders or groups
_SAME = 3  # of what comes to the same values
_WRITTEN, _PASSED = 1000, 100  # that are written, the cheapest, and run whole
_KINDS, _CHARS = 6, 8000  # things that are given, and characters of them in an example
_OVERS, _GOALS = 5, 4  # kinds of items, and what may be wanted of them
_LOOKS, _FITS = 600_000, 20_000  # at what a frame comes to, in all; what comes to what is wanted, of one kind of items
_BASE, _FILTERED = 0.3, 0.3
_UNTOLD = 2.0  # what costs what tells nothing of what is asked
_BY_LENGTH = 0.01  # a character
_SHARP, _LIKELY = 1.3, 5.8  # against what known methods cost; what one costs at most


class Frame(NamedTuple):
    """What is made of items: its template, and words that speak of it.

    In it stand `{of}` for what is answered of an item and `{by}` for what they are ordered or grouped by; `{each}` goes through them,
    `{row}` is one of `{some}` of them, and `{key}` a function that gives what one is ordered by.

    :ivar begin: of a record that is filled: what it holds at first; the template then is what an entry becomes.
    :ivar also: further words, which it tells and which need not be said.
    """

    template: str
    words: frozenset[str]
    begin: str | None = None
    also: frozenset[str] = frozenset()

    @property
    def keyed(self) -> bool:
        """Whether it has one entry for each item."""
        return "{by}: {of}" in self.template

    @property
    def extreme(self) -> bool:
        """Whether it is the largest or the smallest, or the first of what is ordered."""
        return self.template.startswith(("max(", "min(")) or self.template.endswith(")][0]")

    def has(self, name: str) -> bool:
        return f"{{{name}}}" in self.template


def _frame(template: str, words: str = "", begin: str | None = None, also: str = "") -> Frame:
    return Frame(template, words_in(words), begin, words_in(also))


_SORTED = "sort sorted order alphabet alphabetical alphabetically"
_SUM, _MEAN = "sum total altogether add much many overall together whole", "average mean"
_DISTINCT = "differ different distinct unique once twice duplicates several"
_MOST = "dearest max largest highest biggest longest most latest greatest best maximum newest oldest"
_LEAST = "min smallest lowest shortest least earliest cheapest minimum oldest youngest"
_ONE = (
    _frame("[{of} {each}]"), _frame("sorted({of} {each})", f"{_SORTED} smallest first"),
    _frame("sorted(({of} {each}), reverse=True)", "reverse descending falling last largest highest newest"),
    _frame("sorted({{{of} {each}}})", _DISTINCT), _frame("list(dict.fromkeys({of} {each}))", _DISTINCT),
    _frame("sum({of} {each})", _SUM),
    _frame("round(sum({of} {each}), 2)", "round rounded cents", also=_SUM),
    _frame("max({of} {each})", _MOST), _frame("min({of} {each})", _LEAST), _frame("len({{{of} {each}}})", _DISTINCT),
    _frame("any({of} {each})", "any some whether one is"), _frame("all({of} {each})", "all every each whether"),
    _frame("not any({of} {each})", "no none not never"), _frame("' '.join({of} {each})", "word words text sentence space spaces"),
    _frame("''.join({of} {each})", "text letter letters character characters initials together"),
    _frame("', '.join({of} {each})", "comma commas"), _frame("sum({of} {each}) / sum(1 {each})", _MEAN),
    _frame("round(sum({of} {each}) / sum(1 {each}), 2)", "round rounded", also=_MEAN),
    _frame("round(sum({of} {each}) / sum(1 {each}), 1)", "round rounded", also=_MEAN),
    _frame("next({of} {each})", "first"), _frame("[{of} {each}][-1]", "last"),
)  # fmt: skip
"""Of what is computed of each."""
_WHOLE = (
    _frame("{of}"), _frame("sorted({of})", _SORTED), _frame("sorted({of}, reverse=True)", "reverse descending falling largest highest"),
    _frame("' '.join({of})", "word words text sentence space spaces"), _frame("''.join({of})", "text letter letters together"),
    _frame("', '.join({of})", "comma commas"), _frame("len({of})", "many length long count number"),
    _frame("sum({of})", "sum total altogether"),
    _frame("max({of})", _MOST), _frame("min({of})", _LEAST), _frame("round({of}, 2)", "round rounded cents"),
    _frame("round({of}, 1)", "round rounded"), _frame("round({of})", "round rounded whole"), _frame("str({of})", "text"),
    _frame("int({of})", "number whole"), _frame("{of}[::-1]", "reverse reversed backwards"), _frame("{of}[0]", "first"),
    _frame("{of}[-1]", "last"), _frame("list(dict.fromkeys({of}))", _DISTINCT), _frame("not {of}", "no not none"),
)  # fmt: skip
"""Of what is computed of what is given."""
_COUNTED = (_frame("sum(1 {each})", "many count number often"),)
_ORDERED = (
    _frame("[{of} for {row} in sorted({some}, key={key})]", _SORTED), _frame("[{of} for {row} in sorted({some}, key={key})][0]", _LEAST),
    _frame("[{of} for {row} in sorted({some}, key={key}, reverse=True)]", "newest highest largest most best falling descending reverse"),
    _frame("[{of} for {row} in sorted({some}, key={key}, reverse=True)][0]", _MOST), _frame("{{{by}: {of} {each}}}", "each by per map"),
)  # fmt: skip
"""And by something else that is computed of each."""
_GROUPED = (
    _frame("found.get({by}, 0) + {of}", "each by per every", "{}"),
    _frame("[*found.get({by}, []), {of}]", "each by per group grouped", "{}"),
    _frame("found.get({by}, 0) + 1", "each many count often", "{}"),
)  # fmt: skip
FOUND = "found"
"""What a record is called that is filled."""
_ROW = "it_, of_, by_"
_IN_PROCESS = {"of": "of_", "by": "by_", "each": f"for {_ROW} in rows_", "row": _ROW, "some": "rows_", "key": "lambda row_: row_[2]"}
_FAILS = (ArithmeticError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)
Row = tuple[Any, Any, Any]
"""An item, what is answered of it, and what it is ordered or grouped by."""


class Made(NamedTuple):
    """A method of parts: in a frame, what is answered of each item, by what, and which of them count."""

    frame: Frame
    of: Part
    by: Part | None
    only: Part | None


async def passing(
    what: Wanted, selector: str, known: Sequence[tuple[float, Entry]], audit: Callable[[str], bool], run: Run, *, most: int, limit: int
) -> Passed:
    """Methods put together of parts that pass the examples.

    :param most: expressions that are tried; none where it is 0.

    The other parameters are those of `reuse.passing`.
    """
    if not most or (request := asked(what, selector)) is None or not _small(request, what):
        return ()
    wanted = list(itertools.islice(goals(what, request), _GOALS))
    weights = await in_helper(lambda: handbook().weights(what.known.told, without=what.known.slots))
    given = await in_helper(lambda: list(itertools.islice(overs(request, what), _OVERS if wanted else 0)))
    soon = await in_helper(lambda: list(reuse.soon(known, what)))
    made: list[tuple[float, Made, Over, Goal]] = []
    for over in given:
        parts = await computed(over, request, what, soon, run, most=most // len(given), limit=limit)
        for end in wanted:
            looks = _LOOKS // (len(given) * len(wanted))
            found_so = functools.partial(fitting, over, parts, end.values, frozenset(weights), looks)
            made += await in_helper(functools.partial(_costing, found_so, over, end, weights, request))

    def able() -> list[tuple[float, str]]:
        found: dict[str, float] = {}
        for cost, one, over, end in sorted(made, key=lambda one: one[0])[:_WRITTEN]:
            for more, text in _sources(one, over, request, end):
                if text not in found and edits.makes_sense(text, what.known) and audit(text):
                    found[text] = cost + more
            if len(found) >= _PASSED:
                break
        return [(cost, text) for text, cost in found.items()]

    found = await in_helper(able)
    came = await side_by_side.did([text for _, text in found], [call for call, _ in what.examples], run, limit=limit)
    expected = [example for _, example in what.examples]
    return tuple(one for one, texts in zip(found, came, strict=True) if all(map(as_expected, texts, expected)))


def _small(request: Asked, what: Wanted) -> bool:
    """Whether there is so little given that three thousand expressions of it take a second or two, and nothing by names of ours."""
    given = [(*call.args, *call.kwargs.values(), *call.slots.values()) for call, _ in what.examples]
    return (
        len(request.kinds) <= _KINDS
        and not {ITEM, FOUND, "self", side_by_side.SLOTS} & {*request.names}
        and all(len(repr(values)) <= _CHARS for values in given)
    )


def _costing(
    fits: Callable[[], Iterator[Made]], over: Over, end: Goal, weights: dict[str, float], request: Asked
) -> list[tuple[float, Made, Over, Goal]]:
    """What is likely enough, and uses all that it is given."""
    found = []
    for one in itertools.islice(fits(), _FITS):
        texts = " ".join((over.text, end.around, *(part.text for part in one[1:] if isinstance(part, Part))))
        if (cost := _cost(one, end, weights)) <= _LIKELY and all(name in texts for name in request.names):
            found.append((cost, one, over, end))
    return found


def fitting(over: Over, parts: Sequence[Computed], expected: Sequence[Any], said: frozenset[str], most: int) -> Iterator[Made]:
    """What comes to the values that are wanted, one of each example.

    :param said: the words of what is asked.
    :param most: looks at what a frame comes to.
    """
    if not over.text:
        yield from (Made(_WHOLE[0], one, None, None) for one in joined(parts, expected, said))
    classes = _alike(parts)
    of, by = classes[:_OF], [one for one in classes if _orders(one[0])][:_BY]
    for only in (None, *(_filters(parts)[:_IF] if over.text else ())):
        kept = [tuple(map(bool, values)) for values in only[0].values] if only else [(True,) * len(items) for items in over.of]
        several = (_ONE, of, [None]), (_COUNTED, of[:1], [None]), ((*_ORDERED, *_GROUPED), of[:_PLAIN], by)
        ways = several if over.text else ((_WHOLE, of, [None]),)
        for frames, ofs, bys in ways:
            for one, other in itertools.product(ofs, bys):
                if (most := most - len(frames)) < 0:
                    return
                rows = [_rows(*given) for given in zip(over.of, one[0].values, (other or one)[0].values, kept, strict=True)]
                for frame in frames:
                    if not _hardly_meant(frame, rows, expected, (other or one) is one) and all(
                        _comes_to(frame, row, end) for row, end in zip(rows, expected, strict=True)
                    ):
                        for of_, by_, if_ in itertools.product(one[:_SAME], (other or [None])[:_SAME], (only or [None])[:_SAME]):
                            yield Made(frame, of_.part, by_.part if by_ else None, if_.part if if_ else None)


def _hardly_meant(frame: Frame, rows: Sequence[Sequence[Row]], expected: Sequence[Any], by_itself: bool) -> bool:
    """Whether it is the last by alphabet of what is no number, or has one entry for each item and a key twice: what is lost then?"""
    if frame.extreme:
        return by_itself and not isinstance(expected[0], int | float)
    return frame.keyed and any(len({repr(by) for _, _, by in row}) < len(row) for row in rows)


def _rows(items: Sequence[Any], of: Sequence[Any], by: Sequence[Any], kept: Sequence[bool]) -> list[Row]:
    return [row for row, keep in zip(zip(items, of, by, strict=True), kept, strict=True) if keep]


def _alike(parts: Sequence[Computed]) -> list[list[Computed]]:
    """What is computed of items by the values it comes to, the cheapest first."""
    found: dict[str, list[Computed]] = {}
    for part in parts:
        found.setdefault(repr(part.values), []).append(part)
    return list(found.values())


def _filters(parts: Sequence[Computed]) -> list[list[Computed]]:
    """What says which items count, and the opposite of each, by which they are; what says all or none of them says nothing."""
    found: dict[tuple[tuple[bool, ...], ...], list[Computed]] = {}
    for one in parts:
        flat = [value for values in one.values for value in values]
        if all(isinstance(value, bool) for value in flat) and len(set(flat)) == 2:
            found.setdefault(one.values, []).append(one)
            opposite = tuple(tuple(not value for value in values) for values in one.values)
            if not one.part.text.startswith("not "):
                part = Part(one.part.cost + _FILTERED, f"not ({one.part.text})", one.part.words)
                found.setdefault(opposite, []).append(Computed(part, opposite))
    held = [sorted(one, key=lambda one: one.part.cost)[:_SAME] for one in found.values()]
    return sorted(held, key=lambda one: one[0].part.cost)


def _orders(one: Computed) -> bool:
    return all(isinstance(value, int | float | str) for values in one.values for value in values)


def _cost(made: Made, end: Goal, weights: dict[str, float]) -> float:
    """How unlikely it is: its parts, what of it is not spoken of, and what is asked that none of it tells."""
    frame, of, by, only = made
    said = weights.keys()
    parts = [part for part, there in ((of, frame.has("of")), (by, True), (only, True)) if part is not None and there]
    words = frozenset[str]().union(frame.words, frame.also, end.words, *(part.words for part in parts))
    told = sum(weight for word, weight in weights.items() if word in words) / (sum(weights.values()) or 1.0)
    unsaid = sum(UNSAID for held in (frame.words, end.words) if held and not held & said)
    chars = len(frame.template) + len(end.around) + sum(len(part.text) for part in parts)
    return _SHARP * (
        _BASE
        + _BY_LENGTH * chars
        + end.cost
        + unsaid
        + sum(part.cost for part in parts)
        + (_FILTERED if only else 0.0)
        + _UNTOLD * (1 - told)
    )


@functools.lru_cache(maxsize=256)
def _computing(frame: Frame) -> Callable[[Sequence[Row]], Any]:
    """What computes a frame of items with what was computed of them."""
    text = frame.template.format(**_IN_PROCESS)
    body = f"    return {text}" if frame.has("each") or frame.has("some") else f"    return [{text} for {_ROW} in rows_][0]"
    if frame.begin is not None:
        body = f"    found = {frame.begin}\n    for {_ROW} in rows_:\n        found[by_] = {text}\n    return found"
    space: dict[str, Any] = {}
    exec(f"def computing_(rows_):\n{body}", space)  # noqa: S102 - the templates stand above
    made: Callable[[Sequence[Row]], Any] = space["computing_"]
    return made


def _comes_to(frame: Frame, rows: Sequence[Row], expected: Any) -> bool:
    try:
        value = _computing(frame)(rows)
        if type(value) in (int, float) and type(expected) in (int, float):
            return value == expected or math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-9)
        if type(value) is not type(expected):
            return False
        return bool(value == expected) or (isinstance(value, list | dict) and len(value) == len(expected) and same(value, expected))
    except _FAILS:
        return False


def _sources(made: Made, over: Over, request: Asked, wanted: Goal) -> Iterator[tuple[float, str]]:
    """Methods of such parts, and what the end of each costs besides."""
    frame, of, by, only = made
    each, some = f"for {ITEM} in {over.text}", over.text
    if only is not None and frame.begin is None:
        each, some = f"{each} if ({only.text})", f"({ITEM} {each} if ({only.text}))"
    key = f"lambda {ITEM}: {by.text}" if by is not None else ""
    if not over.text:
        yield from wanted.sources(request, frame.template.format(of=f"({of.text})"))
        return
    text = frame.template.format(of=f"({of.text})", by=f"({by.text})" if by is not None else "", row=ITEM, key=key, each=each, some=some)
    if frame.begin is None or by is None:
        yield from wanted.sources(request, text)
    else:
        lines = [f"found = {frame.begin}", f"{each}:", *([f"    if ({only.text}):"] if only else [])]
        yield from wanted.sources(request, "found", [*lines, f"{'        ' if only else '    '}found[{by.text}] = {text}"])
