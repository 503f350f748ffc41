"""Terms: the expressions of a request's inputs, and of each item of them, with their values.

Known methods of one expression run on all examples at once, and from the inputs and these results more is grown
(`batos.synthesis.enumeration`). `batos.synthesis.aggregations` makes one value of all items.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.concurrency import in_helper
from batos.synthesis import adaptation, batch_runner, enumeration, mutations, specification
from batos.synthesis.adaptation import SourceRequest
from batos.synthesis.enumeration import ITEM, Expression, Valued, names_in, valued
from batos.synthesis.handbook import HandbookEntry, words_in
from batos.synthesis.specification import MethodCall, SearchContext, Specification
from batos.synthesis.targets import spelled, value_read

_ITEMS, _FIELDS = 40, 6  # limits: items of all examples together; fields of a record
_KNOWN, _RUN = 300, 1200  # limits: known methods (the most similar ones), and their expressions that are run
_GROWN = 40  # number of the cheapest results from which more expressions are made
UNSAID = 1.0
"""Cost of an expression that has words of its own, if the request says none of them."""
_COMPUTED = 0.5  # cost of an expression that is made from a value
_TERM, _NAMED = 0.2, 0.1  # costs: an input or a part of an item; a constant that the request mentions
_SENDS = 0.3  # cost of sending a message that the request names
_SENT, _SENT_WITH = 1.3, 30  # the highest cost of an argument of a sent message, and the greatest number of such arguments
_SELDOM = (
    ("range(", "", 0.4, words_in("up until limit first each every numbers count down through sum product all")),
    ("enumerate(", "", 0.5, words_in("place places position positions index where nth number numbered")),
    ("zip(", "", 0.5, words_in("next neighbour follow pair before previous between step steps gap both two same other")),
    ("", ".items()", 0.3, frozenset[str]()),
    ("", ".split()", 0.0, words_in("word words sentence phrase initials acronym tag tags hashtags mentions")),
    ("", ".splitlines()", 0.0, words_in("line lines row rows table")),
)
"""Iterables that are not lists: how the expression begins and ends, its cost, and words. Nine of ten requests that want it say one of
these words.
"""
_CALLED = {"text": words_in("text word"), "number": words_in("number"), "items": words_in("list items"), "record": words_in("record")}
"""Kind of an input -> words that name it."""
_LISTS = 60  # number of the cheapest lists computed from items that are used further
_BESIDE, _ASIDE = 1.4, 30  # the highest cost of a value that stands beside an item, and the greatest number of such values
_FAR = 3.0  # cost of a known method that shares no word with the request


class Over(NamedTuple):
    """Items that expressions are computed of; or the inputs as a whole.

    :ivar text: the expression of the items: `items`, `text.split()`; "" for the inputs as a whole.
    :ivar kind: the kind of each item, as `plain_values.kind_of`.
    :ivar fixed: the kinds of further inputs, by name.
    :ivar of: the items of each example.
    :ivar cost: the improbability of going through these.
    :ivar words: words that speak of it.
    """

    text: str
    kind: str
    fixed: Mapping[str, str]
    of: Sequence[Sequence[Any]]
    cost: float = 0.0
    words: frozenset[str] = frozenset()

    @property
    def entries(self) -> bool:
        """Return True if the items are keys with their values."""
        return self.text.endswith(".items()")

    @property
    def pairs(self) -> bool:
        """Return True if each item is a pair of which only the parts are used: a tuple in a method, and a list here."""
        return self.entries or self.text.startswith(("enumerate(", "zip("))


class Computed(NamedTuple):
    """An expression with its values: of each item of each example."""

    part: Expression
    values: tuple[tuple[Any, ...], ...]


def overs(request: SourceRequest, what: Specification) -> Iterator[Over]:
    """Yield the inputs as a whole, then the items of each input, where they are of one kind."""
    yield Over("", "", request.kinds, [[None] for _ in what.examples])
    given = {name: [value_read(name, call) for call, _ in what.examples] for name in request.kinds}
    lists = {name: held for name, held in given.items() if all(isinstance(one, list) for one in held)}
    split = [(name, *one) for name, held in given.items() for one in _split(name, request.kinds[name], held)]
    split += [(name, *one) for name, held in lists.items() for one in _together(name, held, lists)]
    for name, text, items in split:
        flat = [item for one in items for item in one]
        kind_of_it = _kind(flat)
        if 0 < len(flat) <= _ITEMS and kind_of_it:
            fixed = {other: its for other, its in request.kinds.items() if other != name}
            known = (held for begin, end, *held in _SELDOM if text.startswith(begin) and text.endswith(end))
            yield Over(text, kind_of_it, fixed, items, *next(known, ()))


def _together(name: str, given: Sequence[list[Any]], lists: Mapping[str, Sequence[list[Any]]]) -> Iterator[tuple[str, list[list[Any]]]]:
    """Yield items with their places, with the items after them, and with those of another list."""
    yield f"enumerate({name})", [[[at, item] for at, item in enumerate(one)] for one in given]
    yield f"zip({name}, {name}[1:])", [[list(pair) for pair in itertools.pairwise(one)] for one in given]
    for other, held in lists.items():
        if other > name:
            both = zip(given, held, strict=True)
            yield f"zip({name}, {other})", [[list(pair) for pair in zip(one, two, strict=False)] for one, two in both]


def _kind(values: Sequence[Any]) -> str:
    """Return the kind of all these values; "" where they are of several."""
    kinds = {specification.kind_of(value) for value in values}
    return kinds.pop() if len(kinds) == 1 else ""


def _split(name: str, kind: str, given: Sequence[Any]) -> Iterator[tuple[str, list[list[Any]]]]:
    match kind:
        case "items" if all(isinstance(one, list) for one in given):
            yield name, [list(one) for one in given]
            if all(isinstance(row, list) for one in given for row in one):
                yield f"sum({name}, [])", [[item for row in one for item in row] for one in given]
        case "text" if all(isinstance(one, str) for one in given):
            yield f"{name}.split()", [one.split() for one in given]
            yield name, [list(one) for one in given]
            if any("\n" in one for one in given):
                yield f"{name}.splitlines()", [one.splitlines() for one in given]
        case "record" if all(isinstance(one, dict) for one in given):
            yield f"{name}.items()", [[[key, value] for key, value in one.items()] for one in given]
        case "number" if all(type(one) is int and 0 < one <= _ITEMS for one in given):
            yield f"range(1, {name} + 1)", [list(range(1, one + 1)) for one in given]


async def computed(
    context: SearchContext,
    over: Over,
    request: SourceRequest,
    known: Sequence[tuple[float, HandbookEntry]],
    *,
    said: frozenset[str],
    whole: Sequence[Computed] = (),
    most: int,
) -> list[Computed]:
    """Return the expressions that are computed of each item, the cheapest first.

    :param known: known methods, each with the share of the request's words that it explains, the largest first.
    :param said: words that speak of the result.
    :param whole: expressions of the inputs as a whole, which may stand beside an item.
    :param most: values that are computed at most.
    """
    what = context.spec
    rows = [(item, call) for items, (call, _) in zip(over.of, what.examples, strict=True) for item in items]
    if len(rows) > most:
        return []
    came = await _of_known(context, over, request, known, rows)

    def all_parts() -> list[Computed]:
        terms, given = _terms(over, rows, said), _given(over, request, rows, whole)
        kinded = [one for one in came if one.part.kind][:_GROWN]
        made = enumeration.grown(
            [*terms, *(one for one in kinded if one.part.cost <= enumeration.DEAREST)],
            given,
            said,
            most=most,
            more=list(spelled(what.known.told)),
        )
        told = {one.part.text: one.part.words for one in came}
        found = {one.part.text: _also(one, told.get(one.part.text)) for one in (*came[::-1], *made)}
        needed = {ITEM} if over.text else {*request.kinds}
        depends = (one for one in found.values() if needed & names_in(one.part.text))  # otherwise the value is constant: `'b'.upper()`
        return [_nested(one, over) for one in sorted(depends, key=_by_cost) if not _by_alphabet(one)]

    parts = await in_helper(all_parts)
    return parts if not what.helpers else await _with_sent(context, parts, over, request, rows)


async def _with_sent(
    context: SearchContext, parts: Sequence[Computed], over: Over, request: SourceRequest, rows: Sequence[tuple[Any, MethodCall]]
) -> list[Computed]:
    """Return these expressions, and the answers of messages with the cheapest expressions as arguments."""
    helpers = context.spec.helpers
    terms = {f"self.{name}({ITEM})" for name in helpers}
    given = [one.part for one in parts if one.part.cost <= _SENT and "self." not in one.part.text and one.part.text not in terms][
        :_SENT_WITH
    ]
    sent = [_sent(name, part, part.cost) for name in helpers for part in given]
    came = [one for one in await _run(context, sent, request, rows) if one.part.text not in {part.part.text for part in parts}]
    return sorted([*parts, *(_nested(one, over) for one in came)], key=lambda one: one.part.cost)


def grown_of(
    over: Over, request: SourceRequest, what: Specification, lists: Sequence[Computed], *, said: frozenset[str], most: int
) -> list[Computed]:
    """Return expressions of lists of computed items, together with the inputs as a whole, the cheapest first."""
    rows = [(None, call) for call, _ in what.examples]
    atoms = [Valued(one.part, tuple(value for (value,) in one.values)) for one in sorted(lists, key=lambda one: one.part.cost)[:_LISTS]]
    terms = _terms(over, rows, said)
    made = enumeration.grown([*terms, *atoms], _given(over, request, rows, ()), said, most=most, more=list(spelled(what.known.told)))
    return [_nested(one, over) for one in made if f"for {ITEM} in" in one.part.text and not _by_alphabet(one)]


def _also(one: Valued, words: frozenset[str] | None) -> Valued:
    """Return an expression with the words of an equal known method besides."""
    return one if words is None else one._replace(part=one.part._replace(words=one.part.words | words))


def _nested(one: Valued, over: Over) -> Computed:
    values = iter(one.values)
    return Computed(one.part, tuple(tuple(itertools.islice(values, len(items))) for items in over.of))


def _by_alphabet(one: Valued) -> bool:
    """Return True for the first or last of texts by alphabet, which "the largest" hardly means."""
    extreme = one.part.text.startswith(("max(", "min(")) and "key=" not in one.part.text
    return extreme and any(isinstance(value, str) for value in one.values)


def _by_cost(one: Valued) -> tuple[float, int, str]:
    return one.part.cost, len(one.part.text), one.part.text


def _given(over: Over, request: SourceRequest, rows: Sequence[tuple[Any, MethodCall]], whole: Sequence[Computed]) -> list[Valued]:
    """Return what stands beside an item: inputs, the cheapest expressions of them, and constants that the words mention."""
    found: list[Valued | None] = []
    if over.text:  # otherwise the terms are the inputs
        found += [
            valued(_TERM, name, [value_read(name, call) for _, call in rows], _CALLED.get(kind, frozenset()))
            for name, kind in request.kinds.items()
        ]
        counts = [len(items) for items in over.of]
        for one in [one for one in whole if one.part.cost <= _BESIDE and one.part.kind and one.part.text not in request.kinds][:_ASIDE]:
            values = [value for (value,), count in zip(one.values, counts, strict=True) for _ in range(count)]
            found.append(Valued(one.part, tuple(values)))
    constants = dict.fromkeys((*request.numbers, *request.texts, *request.marks))
    found += [valued(_NAMED, repr(value), [value] * len(rows), words_in(str(value))) for value in constants]
    found += [valued(_NAMED, repr(sign), [sign] * len(rows), words) for sign, words in request.signs.items() if sign not in constants]
    return [one for one in found if one is not None]


def _terms(over: Over, rows: Sequence[tuple[Any, MethodCall]], said: frozenset[str]) -> list[Valued]:
    """Return an item and its parts, or the inputs as a whole."""

    def told() -> Iterator[Valued | None]:
        if not over.text:
            for name, kind in over.fixed.items():
                values = [value_read(name, call) for _, call in rows]
                yield valued(_TERM, name, values, _CALLED.get(kind, frozenset()))
                if kind == "record" and all(isinstance(one, dict) for one in values):
                    yield from _fields(name, values, said)
            return
        items = [item for item, _ in rows]
        item = valued(_TERM, ITEM, items)
        if item is not None and over.pairs:  # a tuple in the method
            item = item._replace(part=item.part._replace(kind="", text=f"list({ITEM})"))
        yield item
        if over.kind == "record":
            yield from _fields(ITEM, items, said)
        if over.kind == "items" and len(sizes := {len(item) for item in items}) == 1:
            for at in range(min(3, *sizes, 3)):
                cost = _TERM if over.pairs else _TERM + _COMPUTED / 2
                yield valued(cost, f"{ITEM}[{at}]", [item[at] for item in items])

    return [one for one in told() if one is not None]


def _fields(name: str, records: Sequence[Mapping[Any, Any]], said: frozenset[str]) -> Iterator[Valued | None]:
    """Yield the fields that all of these records have."""
    for field in list(dict.fromkeys(itertools.chain.from_iterable(records)))[:_FIELDS]:
        if isinstance(field, str) and all(field in one for one in records):
            words = words_in(field.replace("_", " "))
            cost = _TERM + (0.0 if words & said else UNSAID)
            yield valued(cost, f"{name}[{field!r}]", [one[field] for one in records], words)


async def _of_known(
    context: SearchContext,
    over: Over,
    request: SourceRequest,
    known: Sequence[tuple[float, HandbookEntry]],
    rows: Sequence[tuple[Any, MethodCall]],
) -> list[Valued]:
    """Return the values of known methods of one expression, called with the item or with inputs, and of helpers sent with these."""
    sends: Collection[str] = context.spec.helpers
    names, kinds = ((ITEM,), {ITEM: over.kind, **over.fixed}) if over.text else ((), over.fixed)
    one = SourceRequest(request.selector, names, kinds, request.numbers, request.texts, request.marks)

    def told() -> list[Expression]:
        found: dict[str, Expression] = {}
        for share, entry in known[:_KNOWN]:
            for source in adaptation.adapted(entry, one, changes=False):
                if (text := _expression(source)) is not None and text not in found:
                    found[text] = Expression(_TERM + _COMPUTED + _FAR * (1 - share), text, entry.words)
        best = sorted(found.values(), key=lambda part: part.cost)[: max(100, _RUN // max(1, len(rows)))]
        return [*(_sent(name, term.part) for name in sends for term in _terms(over, rows, frozenset())), *best]

    return await _run(context, await in_helper(told), request, rows)


async def _run(
    context: SearchContext, parts: Sequence[Expression], request: SourceRequest, rows: Sequence[tuple[Any, MethodCall]]
) -> list[Valued]:
    """Run expressions in the sandbox and return the values of those that never fail."""
    head = f"def {request.selector}({', '.join(('self', ITEM, *request.names))}):"
    sources = [
        "\n    ".join([head, *(f"import {one}" for one in enumeration.modules_in(part.text)), f"return {part.text}"]) for part in parts
    ]
    calls = [MethodCall((item, *specification.arguments(call.args, call.kwargs).values()), {}, call.slots) for item, call in rows]
    came = await context.runner.outcomes(sources, calls)

    def held() -> Iterator[Valued | None]:
        for part, did in zip(parts, came, strict=True):
            values = [one[0] for one in map(batch_runner.outcome_values, did) if one is not None]
            if len(values) == len(calls):
                yield valued(part.cost, part.text, values, part.words)

    return await in_helper(lambda: [one for one in held() if one is not None])


def _sent(name: str, term: Expression, cost: float = _TERM) -> Expression:
    return Expression(cost + _SENDS, f"self.{name}({term.text})", words_in(name.replace("_", " ")) | term.words)


def _expression(source: str) -> str | None:
    """Return the expression that a method answers. Return None for a method that does more than import known modules."""
    tree = mutations.parsed(source)
    if tree is None or not isinstance(method := tree.body[0], ast.FunctionDef):
        return None
    *before, last = method.body
    if not isinstance(last, ast.Return) or last.value is None:
        return None
    if not all(isinstance(one, ast.Import) and not any(alias.asname for alias in one.names) for one in before):
        return None
    nodes = list(ast.walk(last.value))
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for node in nodes if isinstance(node, ast.arg)]
    text = mutations.unparsed(last.value)
    imported = [alias.name for one in before if isinstance(one, ast.Import) for alias in one.names]
    if text is None or ITEM in names or set(imported) != set(enumeration.modules_in(text)):
        return None
    return text
