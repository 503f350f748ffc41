"""The parts that a method may be put together of: what can be computed of what a request gives, or of each item of it.

Known methods and idioms (`batos.mind.idioms`) are run on all examples at once, and more is made of what came: expressions are grown from
below, and of those that come to the same the cheapest go on (Udupa et al. 2013, doi:10.1145/2462156.2462174). What is made of all items
together is `batos.mind.frames`' to find.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.image.turns import in_helper
from batos.mind import edits, prompting, reuse, side_by_side
from batos.mind.amending import Wanted
from batos.mind.goals import read
from batos.mind.handbook import Entry
from batos.mind.handbook.entries import words_in
from batos.mind.idioms import LONG, MADE_OF, OF_ANY, OF_TWO, Spoken
from batos.mind.reuse import Asked
from batos.mind.side_by_side import Call, Run
from batos.mind.tidy import ITEM

UNSAID = 1.0
"""What costs what the words do not speak of, though there are words for it."""
_ITEMS, _FIELDS = 40, 6  # of all examples together; of a record
_AGAIN = 30  # expressions of which more is made
_KNOWN = 300  # methods that are known, the likest
_TERM, _COMPUTED = 0.2, 0.5  # what an expression costs: what is given, or a part of an item; and what is made of one
_FAR = 3.0  # what a known method costs that shares no word with the request
_LARGE = 100  # a number with which what is `LONG` is too long
_CHARS = 400  # of what is computed of one of several items
_GIVEN = re.compile(r"\{(number|text|items|record)\}")


class Over(NamedTuple):
    """Items that something is computed of; or what is given as a whole.

    :ivar text: the expression that they are items of: `items`, `text.split()`; "" for what is given as a whole, the one item of itself.
    :ivar kind: of each, as `prompting.kind_of`.
    :ivar fixed: what else a method is given, by name, with its kind.
    :ivar of: the items of each example.
    """

    text: str
    kind: str
    fixed: Mapping[str, str]
    of: Sequence[Sequence[Any]]


class Part(NamedTuple):
    """An expression.

    :ivar cost: how unlikely it is.
    :ivar words: that speak of it, as `words_in` has them.
    :ivar kind: of the value, where more may be made of it.
    """

    cost: float
    text: str
    words: frozenset[str] = frozenset()
    kind: str = ""


class Computed(NamedTuple):
    """A part, and its values: of each item of each example."""

    part: Part
    values: tuple[tuple[Any, ...], ...]


def overs(request: Asked, what: Wanted) -> Iterator[Over]:
    """What a request gives as a whole; and what of it has items, all of one kind."""
    yield Over("", "", request.kinds, [[None] for _ in what.examples])
    for name, kind in request.kinds.items():
        given = [read(name, call) for call, _ in what.examples]
        for text, items in _split(name, kind, given):
            flat = [item for one in items for item in one]
            kind_of_it = _kind(flat)
            if 0 < len(flat) <= _ITEMS and kind_of_it:
                yield Over(text, kind_of_it, {other: its for other, its in request.kinds.items() if other != name}, items)


def _kind(values: Sequence[Any]) -> str:
    """The kind that all of these are of; "" where they are of several."""
    kinds = {prompting.kind_of(value) for value in values}
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
    over: Over, request: Asked, what: Wanted, known: Sequence[tuple[float, Entry]], run: Run, *, most: int, limit: int
) -> list[Computed]:
    """What is computed of each item, the cheapest first.

    :param known: methods with the share of the words that they have in common with the request, the most first.
    :param most: expressions that are tried.
    :param limit: see `side_by_side.did`.
    """
    said = words_in(what.known.told)
    names = ", ".join(("self", ITEM, *request.names))
    calls = [
        Call((item, *prompting.arguments(call.args, call.kwargs).values()), {}, call.slots)
        for items, (call, _) in zip(over.of, what.examples, strict=True)
        for item in items
    ]
    found: dict[str, Computed] = {}

    async def add(parts: Callable[[], Iterable[Part]]) -> None:
        tried = await in_helper(lambda: cheapest(parts()))
        sources = [f"def {request.selector}({names}):\n    return {part.text}" for part in tried]
        came = await side_by_side.did(sources, calls, run, limit=limit)
        await in_helper(lambda: keep(tried, came))  # tens of thousands of values

    def cheapest(parts: Iterable[Part]) -> list[Part]:
        new: dict[str, Part] = {}
        for part in parts:
            if part.text not in found:
                new[part.text] = min(part, new.get(part.text, part), key=lambda one: one.cost)
        return sorted(new.values(), key=_by_cost)[: most // 2]

    def keep(tried: Sequence[Part], came: Sequence[tuple[str, ...]]) -> None:
        for part, did in zip(tried, came, strict=True):
            if over.text and any(len(one) > _CHARS for one in did):
                continue
            held = [one for one in map(side_by_side.held, did) if one is not None]
            if len(held) == len(calls):
                values = iter([one[0] for one in held])
                came_to = Computed(part, tuple(tuple(itertools.islice(values, len(items))) for items in over.of))
                if not _by_alphabet(came_to) and not reuse.has(list(came_to.values), _unordered):
                    found[part.text] = came_to

    terms = list(_terms(over, what, said))
    repeats = not reuse.has([value for call in calls for value in (*call.args, *call.slots.values())], _large)
    first = made_of(terms, over, request, said, repeats=repeats)
    await add(lambda: itertools.chain(terms, first, _of_known(over, request, known)))
    best = await in_helper(lambda: _further(found, terms))
    further = [Part(one.part.cost, f"({one.part.text})", one.part.words, kind) for one, kind in best]
    await add(lambda: made_of(further, over, request, said, terms, repeats=False))  # a computed number may be large
    return sorted(found.values(), key=lambda one: _by_cost(one.part))


def _unordered(value: Any) -> bool:
    """Whether what is made of it may depend on the order of hashes, which another process has otherwise."""
    return isinstance(value, set | frozenset)


def _by_alphabet(one: Computed) -> bool:
    """Whether it is the first or last of texts by alphabet: hardly what is meant by the largest."""
    extreme = one.part.text.startswith(("max(", "min(")) and "key=" not in one.part.text
    return extreme and any(isinstance(value, str) for values in one.values for value in values)


def _by_cost(part: Part) -> tuple[float, int, str]:
    return part.cost, len(part.text), part.text


def _large(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) > _LARGE


def _further(found: Mapping[str, Computed], terms: Sequence[Part]) -> list[tuple[Computed, str]]:
    """Of what was computed that of which more is made, with its kind: the cheapest of what comes to the same."""
    before = {repr(found[one.text].values) for one in terms if one.text in found}
    best: list[tuple[Computed, str]] = []
    for one in sorted(found.values(), key=lambda one: _by_cost(one.part)):
        kind = _kind([value for values in one.values for value in values])
        if kind in MADE_OF and kind != "flag" and (shown := repr(one.values)) not in before:
            before.add(shown)
            best.append((one, kind))
    return best[:_AGAIN]


def made_of(
    terms: Sequence[Part], over: Over, request: Asked, said: frozenset[str], others: Sequence[Part] = (), *, repeats: bool
) -> Iterator[Part]:
    """What is made of one or two parts, and what else is given.

    :param said: the words of what is asked.
    :param others: of which one of two may be, too.
    :param repeats: whether texts may be repeated so many times as a number says.
    """

    def of(template: Spoken, cost: float, words: frozenset[str], **names: str) -> Part:
        unsaid = UNSAID if template.words and not template.words & said else 0.0
        return Part(cost + _COMPUTED + unsaid, template.template.format(**names), words | template.words)

    for term in terms:
        for template in (*MADE_OF.get(term.kind, ()), *OF_ANY, *(LONG.get(term.kind, ()) if repeats else ())):
            kinds = list(dict.fromkeys(_GIVEN.findall(template.template)))
            for given in itertools.product(*(_fixed(kind, over, request) for kind in kinds)):
                if term.text not in given:
                    yield of(template, term.cost, term.words, it=term.text, **dict(zip(kinds, given, strict=True)))
    numbers, more = ([term for term in held if term.kind == "number"] for held in (terms, others))
    for one, other in (*itertools.permutations(numbers, 2), *itertools.product(numbers, more), *itertools.product(more, numbers)):
        for template in OF_TWO:
            if one.text < other.text or template.template[5] not in "+*=":
                yield of(template, one.cost + other.cost - _TERM, one.words | other.words, it=one.text, other=other.text)


def _fixed(kind: str, over: Over, request: Asked) -> list[str]:
    """What of a kind is given besides the items, or named."""
    named: dict[str, Sequence[Any]] = {"number": [one for one in request.numbers if not _large(one)], "text": request.texts}
    return [*(name for name, its in over.fixed.items() if its == kind), *map(repr, named.get(kind, ()))]


def _terms(over: Over, what: Wanted, said: frozenset[str]) -> Iterator[Part]:
    """An item and its parts, or what is given as a whole."""
    if not over.text:
        for name, kind in over.fixed.items():
            yield Part(_TERM, name, frozenset(), kind)
            if kind == "record":
                records = [read(name, call) for call, _ in what.examples]
                yield from _fields(name, records, said) if all(isinstance(one, dict) for one in records) else ()
        return
    yield Part(_TERM, ITEM, frozenset(), over.kind)
    items = [item for one in over.of for item in one]
    if over.kind == "record":
        yield from _fields(ITEM, items, said)
    if over.kind == "items" and len(sizes := {len(item) for item in items}) == 1:
        for at in range(min(3, *sizes, 3)):
            if kind := _kind([item[at] for item in items]):
                yield Part(_TERM + _COMPUTED / 2, f"{ITEM}[{at}]", frozenset(), kind)


def _fields(name: str, records: Sequence[Mapping[Any, Any]], said: frozenset[str]) -> Iterator[Part]:
    """The fields that all of these records have, each of one kind."""
    for field in list(dict.fromkeys(itertools.chain.from_iterable(records)))[:_FIELDS]:
        if isinstance(field, str) and all(field in one for one in records) and (kind := _kind([one[field] for one in records])):
            words = words_in(field.replace("_", " "))
            yield Part(_TERM + (0.0 if words & said else UNSAID), f"{name}[{field!r}]", words, kind)


def _of_known(over: Over, request: Asked, known: Sequence[tuple[float, Entry]]) -> Iterator[Part]:
    """Known methods of one expression, with the item as what they are given, or some of what is given as a whole."""
    names, kinds = ((ITEM,), {ITEM: over.kind, **over.fixed}) if over.text else ((), over.fixed)
    one = Asked(request.selector, names, kinds, request.numbers, request.texts)
    for share, entry in known[:_KNOWN]:
        for source in reuse.adapted(entry, one, changes=False):
            if (text := _expression(source)) is not None:
                yield Part(_TERM + _COMPUTED + _FAR * (1 - share), text, entry.words)


def _expression(source: str) -> str | None:
    """The expression that a method answers, if it does nothing else."""
    tree = edits.parsed(source)
    if tree is None or not isinstance(method := tree.body[0], ast.FunctionDef):
        return None
    match method.body:
        case [ast.Return(value=ast.expr() as value)]:
            names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
            given = [node.arg for node in ast.walk(value) if isinstance(node, ast.arg)]
            return None if ITEM in (*names, *given) else edits.unparsed(value)
    return None
