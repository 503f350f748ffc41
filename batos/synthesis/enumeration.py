"""Bottom-up enumeration of expressions, the cheapest first, by their values.

An expression grows by the idioms of `batos.synthesis.word_costs`. They are evaluated in this process
(`batos.synthesis.idiom_costs`), since they are constants and their inputs are plain values of bounded size. So hundreds of thousands are
tried in the time in which the sandbox runs a thousand. Of expressions that are equal on all examples the cheapest grows further
(observational equivalence: Udupa et al. 2013, doi:10.1145/2462156.2462174; in the order of their costs: Barke, Peleg and Polikarpova 2020,
doi:10.1145/3428295).

The module also simplifies what it grew: `[x for x in sorted(...)][0]` becomes `min(...)`.
"""

from __future__ import annotations

import ast
import datetime
import hashlib
import heapq
import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.synthesis import specification
from batos.synthesis.idiom_costs import CHARS, FAILS, MODULES, Idiom, Priced, callables, priced
from batos.synthesis.word_costs import KINDS, Spoken

ITEM = "item"
"""Name of one item of a list."""


def tidied(tree: ast.Module) -> ast.Module:
    """Simplify a tree in place, and return it. The first of filtered items becomes None if no item passes."""
    _Tidy().visit(tree)
    return ast.fix_missing_locations(tree)


class _Tidy(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not (isinstance(node.slice, ast.Constant) and type(node.slice.value) is int and node.slice.value == 0):
            return node
        match node.value:
            case ast.Call(func=ast.Name("sorted")) as call:
                return _first(call) or node
            case ast.ListComp(
                elt=elt, generators=[ast.comprehension(target=ast.Name(id=name), iter=ast.Call(func=ast.Name("sorted")) as call, ifs=[])]
            ) if name == ITEM and _once(elt) and (first := _first(call)) is not None:
                whole: ast.expr = _Instead(first).visit(elt)
                return whole
            case ast.ListComp(elt=elt, generators=[ast.comprehension(ifs=[_, *_])] as each):
                return ast.Call(ast.Name("next", ast.Load()), [ast.GeneratorExp(elt, each), ast.Constant(None)], [])
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult):
            node.left, node.right = _number(node.left), _number(node.right)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        if (over := _as_they_are(node)) is None:
            return node
        return over if _is_call(over, "sorted") else ast.Call(ast.Name("list", ast.Load()), [over], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _OF_ALL and node.args:
            first = node.args[0]
            if isinstance(first, ast.GeneratorExp) and (over := _as_they_are(first)) is not None:
                node.args[0] = over
            elif isinstance(first, ast.Call) and _is_call(first, "list") and len(first.args) == 1 and not first.keywords:
                node.args[0] = first.args[0]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword | None:
        self.generic_visit(node)
        if node.arg == "key" and isinstance(node.value, ast.Lambda) and [one.arg for one in node.value.args.args] == [ITEM]:
            match node.value.body:
                case ast.Name(id=name) if name == ITEM:
                    return None
                case ast.Call(func=ast.Name("len") as func, args=[ast.Name(id=name)], keywords=[]) if name == ITEM:
                    node.value = func
        return node


_OF_ALL = ("sorted", "sum", "max", "min", "set", "list", "tuple", "any", "all")
"""Functions that go through all of their argument, whatever its kind."""


def _number(node: ast.expr) -> ast.expr:
    """Return a factor without its `+ 0`, by which an idiom makes sure that it is a number and no text to be repeated."""
    match node:
        case ast.BinOp(left=one, op=ast.Add(), right=ast.Constant(value=int() as nought)) if nought == 0 and not isinstance(nought, bool):
            return one
    return node


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _as_they_are(node: ast.ListComp | ast.GeneratorExp) -> ast.expr | None:
    """Return the iterable of a comprehension that yields all items unchanged; None for any other."""
    match node.elt, node.generators:
        case ast.Name(id=one), [ast.comprehension(target=ast.Name(id=other), iter=over, ifs=[])] if one == other:
            return over
    return None


def _once(elt: ast.expr) -> bool:
    """Return True if the item occurs once in an expression, outside of inner functions."""
    names = [one for one in ast.walk(elt) if isinstance(one, ast.Name) and one.id == ITEM]
    inner = any(isinstance(one, ast.Lambda | ast.comprehension) for one in ast.walk(elt))
    return len(names) == 1 and not inner


def _first(call: ast.Call) -> ast.Call | None:
    """Return `min` or `max` in place of the first of a sorted list. Of equal items both take the first. Return None for another order."""
    falling = [one.value for one in call.keywords if one.arg == "reverse"]
    if any(not (isinstance(one, ast.Constant) and one.value is True) for one in falling):
        return None
    keywords = [one for one in call.keywords if one.arg != "reverse"]
    return ast.Call(ast.Name("max" if falling else "min", ast.Load()), call.args, keywords)


class _Instead(ast.NodeTransformer):
    """Replaces the item by an expression."""

    def __init__(self, one: ast.expr) -> None:
        self._one = one

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._one if node.id == ITEM else node


_SPELLED = 0.1  # cost of an expression that the request spells out
DEAREST = 4.0
"""The highest cost of an expression."""
_GIVEN = 8000  # greatest number of characters of the inputs
_UNIT = 20  # characters that count as one further value
_DIGITS = 10**15
_LONGEST = 120  # greatest number of characters of an expression
_ALIKE = 30  # greatest number of kept expressions with equal values
_FEW = 6  # greatest number of expressions beside one whose idiom takes several
_OTHERS = 10  # number of the cheapest expressions of a kind that are combined with another expression
_CONVERTS = frozenset(f"{kind}({{it}})" for kind in ("int", "float", "str", "list", "bool"))
_NAMED = re.compile(rf"(?<![\w.])({'|'.join(MODULES)})\.")
_ATOM = re.compile(r"[\w.]+|'[^'\\]*'")


class Expression(NamedTuple):
    """An expression with its cost.

    :ivar cost: its improbability.
    :ivar words: stems that speak of it.
    :ivar kind: the kind of its values, if more can be made of it; else "".
    """

    cost: float
    text: str
    words: frozenset[str] = frozenset()
    kind: str = ""


class Valued(NamedTuple):
    """An expression with its values: one for each item of each example."""

    part: Expression
    values: tuple[Any, ...]


class _Uses(NamedTuple):
    """Idioms of one kind, the cheapest first.

    :ivar alone: idioms of `{it}` alone.
    :ivar beside: idioms with one other operand.
    :ivar among: idioms with several other operands.
    :ivar second: idioms with one other operand, by its kind.
    """

    alone: Priced
    beside: Priced
    among: Priced
    second: Mapping[str, Priced]


def grown(
    atoms: Sequence[Valued], given: Sequence[Valued], said: frozenset[str], *, most: int, more: Sequence[Spoken] = ()
) -> list[Valued]:
    """Return expressions grown from atoms, with the atoms, the cheapest first.

    :param atoms: expressions to begin with.
    :param given: further operands: other inputs, and constants that the words mention.
    :param said: words of the request.
    :param most: values that are computed at most.
    :param more: idioms of a number that the request itself spells out.
    """
    queue = [(one.part.cost, len(one.part.text), one.part.text, one) for one in atoms]
    heapq.heapify(queue)
    held: dict[bytes, list[Valued]] = {}
    least: dict[str, float] = {}
    plain = {id(one) for one in atoms}
    for one in atoms:
        least[one.part.text] = min(one.part.cost, least.get(one.part.text, one.part.cost))
    beside: dict[str, list[Valued]] = {}
    for one in given:
        beside.setdefault(one.part.kind, []).append(one)
    before: dict[str, list[Valued]] = {}
    size = len(atoms[0].values) if atoms else 0
    costs, spelled = priced(said), [(_SPELLED, one) for one in callables(more)]
    idioms = {kind: arranged([*(spelled if kind == "number" else ()), *costs[kind], *costs["any"]]) for kind in KINDS}
    idioms["two"] = arranged(costs["two"])
    while queue and most > 0:
        cost, _, text, one = heapq.heappop(queue)
        if cost > least[text]:
            continue
        alike = held.setdefault(_key(one), [])
        if len(alike) == _ALIKE:
            continue
        alike.append(one)
        if (len(alike) > 1 and id(one) not in plain) or not one.part.kind:  # two arguments may have equal values in an example
            continue
        for cost, idiom, operands in uses_of(one, idioms, beside, before):
            if (most := most - size) < 0:
                break
            text = _text(idiom, operands)
            if len(text) > _LONGEST or cost >= least.get(text, math.inf):
                continue
            least[text] = cost
            made, length = applied(idiom, operands, cost, text)
            most -= length // _UNIT
            if made is not None and len(held.get(_key(made), ())) < _ALIKE:
                heapq.heappush(queue, (cost, len(text), text, made))
        before.setdefault(one.part.kind, []).append(one)
    rest = [one for cost, _, text, one in sorted(queue, key=lambda entry: entry[:3]) if cost <= least[text]]
    for one in rest:
        if len(alike := held.setdefault(_key(one), [])) < _ALIKE:
            alike.append(one)
    return sorted(itertools.chain.from_iterable(held.values()), key=lambda one: (one.part.cost, len(one.part.text), one.part.text))


def _key(one: Valued) -> bytes:
    """Return a digest of the values, equal for expressions that are equal on all examples."""
    return hashlib.blake2b(repr(one.values).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def valued(cost: float, text: str, values: Sequence[Any], words: frozenset[str] = frozenset()) -> Valued | None:
    """Return an expression with its values. Return None where these are too large, or sets, whose order depends on hashes."""
    if any(_room(value, _GIVEN) < 0 for value in values):
        return None
    return Valued(Expression(cost, text, words, _kind(values)), tuple(values))


def modules_in(text: str) -> list[str]:
    """Return the modules that an expression, or lines of a method, use."""
    if not _NAMED.search(text):
        return []
    try:
        nodes = ast.walk(ast.parse(textwrap.dedent(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    owners = (node.value for node in nodes if isinstance(node, ast.Attribute))
    return sorted({owner.id for owner in owners if isinstance(owner, ast.Name)} & MODULES.keys())


def names_in(text: str) -> set[str]:
    """Return the names and numbers in an expression, slots as `self.total`."""
    return set(re.findall(r"(?<![\w.])(?:self\.)?\w+", text))


def _kind(values: Sequence[Any]) -> str:
    """Return the kind of all these values; "" where they differ, or where nothing is made of that kind."""
    kinds = {_kind_of(value) for value in values}
    return kinds.pop() if len(kinds) == 1 else ""


def _kind_of(value: Any) -> str:
    if isinstance(value, datetime.date):
        return "moment" if isinstance(value, datetime.datetime) else "date"
    kind = specification.kind_of(value)
    return kind if kind in KINDS else ""


def arranged(held: Priced) -> _Uses:
    held = sorted(held, key=lambda one: one[0])
    beside = [one for one in held if len(one[1].holes) == 2]
    second: dict[str, list[tuple[float, Idiom]]] = {}
    for one in beside:
        second.setdefault(one[1].holes[1].rstrip("2"), []).append(one)
    return _Uses([one for one in held if len(one[1].holes) == 1], beside, [one for one in held if len(one[1].holes) > 2], second)


def uses_of(
    one: Valued, idioms: Mapping[str, _Uses], beside: Mapping[str, Sequence[Valued]], before: Mapping[str, Sequence[Valued]]
) -> Iterator[tuple[float, Idiom, tuple[Valued, ...]]]:
    """Yield the ways to use an expression as an operand, with the cost of the result: first, second, or among several.

    Ways that cost too much are skipped early: they are nineteen of twenty.

    :param beside: inputs, and constants.
    :param before: expressions that were grown before, the cheapest first.
    """
    mine, kind = one.part.cost, one.part.kind
    room, known = DEAREST - mine, idioms[kind]
    others = {name: [*beside.get(name, ()), *before.get(name, ())[:_OTHERS]] for name in KINDS}
    few = {name: sorted(held[:_FEW], key=_cost_of) for name, held in others.items()}
    others = {name: sorted(held, key=_cost_of) for name, held in others.items()}
    for cost, idiom in _within(room, known.alone):
        yield cost + mine, idiom, (one,)
    for cost, idiom in _within(room, known.beside):
        for other in _cheap(room - cost, others[idiom.holes[1].rstrip("2")]):
            if other is not one:
                yield cost + mine + other.part.cost, idiom, (one, other)
    for cost, idiom in _within(room, known.among):
        pools = [few[hole.rstrip("2")] for hole in idiom.holes[1:]]
        if all(pools) and cost + sum(pool[0].part.cost for pool in pools) <= room:
            for more in itertools.product(*pools):
                whole = cost + sum(map(_cost_of, more))
                if whole <= room and len({id(one), *map(id, more)}) == len(idiom.holes):
                    yield whole + mine, idiom, (one, *more)
    if kind == "number":
        for cost, idiom in _within(room, idioms["two"].beside):
            for other in _cheap(room - cost, before.get(kind, ())[:_OTHERS]):
                yield cost + mine + other.part.cost, idiom, (one, other)
                yield cost + mine + other.part.cost, idiom, (other, one)
    for name, held in before.items():
        for cost, idiom in _within(room, idioms[name].second.get(kind, ())):
            for other in _cheap(room - cost, held[:_OTHERS]):
                yield cost + mine + other.part.cost, idiom, (other, one)


def _cost_of(one: Valued) -> float:
    return one.part.cost


def _within(room: float, held: Priced) -> Iterator[tuple[float, Idiom]]:
    """Yield the first idioms, in the order of their costs, up to a cost of `room`."""
    return itertools.takewhile(lambda one: one[0] <= room, held)


def _cheap(room: float, held: Sequence[Valued]) -> Iterator[Valued]:
    """Yield the first expressions, in the order of their costs, up to a cost of `room`."""
    return itertools.takewhile(lambda one: one.part.cost <= room, held)


def _text(idiom: Idiom, operands: Sequence[Valued]) -> str:
    names = {}
    for hole, one in zip(idiom.holes, operands, strict=True):
        text = one.part.text
        names[hole] = text if _ATOM.fullmatch(text) else f"({text})"
    return idiom.spoken.template.format(**names)


def applied(idiom: Idiom, operands: Sequence[Valued], cost: float, text: str) -> tuple[Valued | None, int]:
    """Return the expression of an idiom with its values, and their size in characters; None if it fails or is too long."""
    values, length, as_list = [], 0, False
    compute, able = idiom.compute, idiom.able
    try:
        for row in zip(*(one.values for one in operands), strict=True):
            if able is not None and not all(map(able, row)):
                return None, length
            value = compute(*row)
            if (left := _room(value, CHARS)) < 0:
                return None, length + CHARS
            length += CHARS - left
            if isinstance(value, tuple):  # the parts of an item or the new value of a slot: a list, as everywhere else
                value, as_list = list(value), True
            values.append(value)
    except FAILS:
        return None, length
    if idiom.spoken.template in _CONVERTS and repr(values) == repr([*operands[0].values]):  # `int` of an integer or `str` of a text
        return None, length
    words = frozenset[str]().union(idiom.spoken.words, *(one.part.words for one in operands))
    return Valued(Expression(cost, f"list({text})" if as_list else text, words, _kind(values)), tuple(values)), length


def _room(value: Any, room: int) -> int:
    """Return the characters that remain of `room` after a value; a negative number if the value is too long or of another kind.

    Sets are not held: hashes give them an order that differs between processes.
    """
    if isinstance(value, str):
        return room - len(value)
    if isinstance(value, bool) or value is None or isinstance(value, datetime.date):
        return room - 1
    if isinstance(value, int | float):
        return room - 1 if -_DIGITS < value < _DIGITS else -1
    if isinstance(value, dict):
        value = [*value, *value.values()]
    elif not isinstance(value, list | tuple):
        return -1
    for one in value:
        if (room := _room(one, room - 1)) < 0:
            break
    return room
