"""Mutations: the methods that are one edit away from a draft, among which the right one is likely.

The edits are those of generate-and-validate program repair (GenProg, Weimer et al. 2009, doi:10.1109/ICSE.2009.5070536). They are another
operator, name, constant or function, a call put around an expression or taken away, and a statement left out. Expressions of earlier drafts
are put in, too, since one draft often has what another lacks (the plastic surgery hypothesis, Barr et al. 2014,
doi:10.1145/2635868.2635898). The guardian, the sandbox and the examples judge the results.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.synthesis.specification import RequestFacts
from batos.synthesis.transformations import templates

_COMPARED: tuple[type[ast.cmpop], ...] = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
_CALCULATED: tuple[type[ast.operator], ...] = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_LIKE = (
    ("max", "min"), ("any", "all"), ("sum", "len", "max", "min"), ("list", "sorted", "set"), ("int", "float", "str", "round"),
    ("lower", "upper", "title", "capitalize", "swapcase"), ("startswith", "endswith"), ("strip", "lstrip", "rstrip"),
    ("find", "rfind", "index"), ("split", "splitlines"), ("keys", "values", "items"), ("add", "discard"), ("append", "extend"),
    ("ceil", "floor", "trunc"), ("year", "month", "day"), ("weekday", "isoweekday"), ("ljust", "rjust", "center", "zfill"),
    ("isalpha", "isdigit", "isupper", "islower", "isalnum", "isspace"),
)  # fmt: skip
"""Groups of names that people confuse."""
_AROUND = templates("E")
_WITHOUT_PARTS = (ast.Constant, ast.UnaryOp, ast.GeneratorExp, ast.Set, ast.SetComp, ast.Compare, ast.Lambda)
_ALWAYS = ("0", "1", "''", "' '", "[]", "{}", "None", "True", "False")
_IN_WORDS = {
    "half": 2, "double": 2, "twice": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "week": 7, "eight": 8, "nine": 9,
    "ten": 10, "dozen": 12, "hundred": 100,
}  # fmt: skip
_COSTS = {"swap": 1.0, "like": 1.0, "number": 1.0, "unwrap": 1.1, "leave_out": 1.2, "order": 1.4, "around": 1.3, "lent": 1.5, "known": 1.0}
_ALWAYS_COST, _BY_LENGTH = 1.4, 0.01  # cost of a value that is always available; cost of one character
SMALLEST = 1.0
"""Cost of a different comparison, name or number, or of an available value in place of an expression."""
_LENT_CHARS = 80
_LONG, _PARTS = 500, 250  # longest source (characters) and largest tree (nodes) that is mutated: more would take minutes
_USUAL = 250  # factor: mutants that are generated for each mutant that may be tried


def edits(source: str, known: RequestFacts, drafts: Sequence[str] = (), *, most: int, within: float = math.inf) -> list[tuple[float, str]]:
    """Return the mutants of a draft that make sense, with their costs, the cheapest first. Longer mutants cost more.

    Return none where the draft is too long, or has too many parts.

    :param drafts: other drafts of the method, which lend their expressions.
    :param most: greatest number of mutants of usual length.
    :param within: the highest cost of an edit, apart from length.
    """
    tree = parsed(source)
    if tree is None or not settled(tree) or len(source) > _LONG or sum(1 for _ in ast.walk(tree)) > _PARTS:
        return []
    costs: dict[str, float] = {}
    others = [one for one in (*_at_hand(tree, known), *_lent(drafts)) if one[1] <= within]
    for cost in _edited(tree, others, within):
        if cost <= within and (text := unparsed(tree)) is not None:
            costs[text] = min(cost, costs.get(text, cost))
    costs.pop(unparsed(tree) or source, None)
    best = sorted((cost + _BY_LENGTH * len(text), text) for text, cost in costs.items())
    found: list[tuple[float, str]] = []
    room = most * _USUAL
    for cost, text in best:
        if len(found) == most or len(text) > room:
            break
        if makes_sense(text, known):
            found.append((cost, text))
            room -= len(text)
    return found


def settled(tree: ast.Module, sends: Collection[str] = ()) -> bool:
    """Return True if a method ends, sends nothing, and uses its receiver for slots alone, as far as one can see.

    A `while` loop may never end once it is edited, a message depends on another method, and in a batch (`batos.synthesis.batch_runner`)
    there is no receiver.

    :param sends: messages that may be sent.
    """
    nodes = list(ast.walk(tree))
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    sent = (isinstance(func, ast.Attribute) and _of_self(func) and func.attr not in sends for func in calls)
    slots = sum(isinstance(node, ast.Attribute) and _of_self(node) for node in nodes)
    of_it = sum(isinstance(node, ast.Name) and node.id == "self" for node in nodes)
    return not any(sent) and slots == of_it and not any(isinstance(node, ast.While | ast.AsyncFor | ast.Await) for node in nodes)


def makes_sense(source: str, known: RequestFacts) -> bool:
    """Return True if a method uses all that it is given, only what the request mentions, and changes only slots that the examples change.

    A mutant that passes an example by chance mostly does not.
    """
    tree = parsed(source)
    if tree is None or not settled(tree, known.sends) or any(map(_never_works, ast.walk(tree))):
        return False
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    slots = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _of_self(node) and node.attr != "_p_changed"]
    stored = {node.attr for node in slots if not isinstance(node.ctx, ast.Load)}
    sent = {node.attr for node in slots} & {*known.sends}
    return (
        (_parameters(tree) | made) <= read
        and {slot for slot in known.shown if known.names(slot)} <= {node.attr for node in slots}
        and all(node.attr in known.slots and known.speaks_of(node.attr) for node in slots if node.attr not in sent)
        and sent == {*known.sends}
        and stored <= set(known.changed)
    )


def _never_works(node: ast.AST) -> bool:
    """Return True for a node that Python's compiler warns of: an impossible subscript, a call of no function, or `is` with a constant."""
    match node:
        case ast.Subscript(value=ast.Constant(value=str()) | ast.JoinedStr() | ast.List() | ast.ListComp() | ast.Tuple(), slice=place):
            return isinstance(place, ast.Constant) and type(place.value) is not int
        case ast.Subscript(value=ast.Subscript(value=ast.Constant(value=str())), slice=ast.Constant(value=str())):
            return True
        case ast.Subscript(value=value):
            return isinstance(value, _WITHOUT_PARTS)
        case ast.Call(func=func):
            return not isinstance(func, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Lambda | ast.IfExp)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [one for one in (left, *others) if isinstance(one, ast.Constant) and not isinstance(one.value, bool | None)]
            return bool(sides) and any(isinstance(one, ast.Is | ast.IsNot) for one in ops)
    return False


def parsed(source: str) -> ast.Module | None:
    """Return the tree of a source that is one method and nothing else; None for any other."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(tree.body) != 1 or not isinstance(method := tree.body[0], ast.FunctionDef):
        return None
    return tree if [one.arg for one in (*method.args.posonlyargs, *method.args.args)][:1] == ["self"] else None


def unparsed(tree: ast.AST) -> str | None:
    """Return the source of a tree; None if it has none."""
    try:
        return ast.unparse(tree)
    except (ValueError, RecursionError):  # Python before 3.12 cannot write this inside an f-string; or the tree is nested too deep
        return None


def _parameters(tree: ast.Module) -> set[str]:
    method = tree.body[0]
    assert isinstance(method, ast.FunctionDef)
    spec = method.args
    return {one.arg for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg) if one is not None} - {"self"}


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


# --- replacements of an expression


def _at_hand(tree: ast.Module, known: RequestFacts) -> list[tuple[ast.expr, float]]:
    """Return names, slots and constants that may replace an expression, with the costs of that."""
    usual = _COSTS["known"]
    found = dict.fromkeys(sorted(_parameters(tree)), usual)
    found |= {f"self.{slot}": usual for slot in known.slots if known.speaks_of(slot)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, usual)
    told = known.told.lower()
    found |= {str(number): usual for number in numbers_in(told)}
    found |= {repr(field): usual for field in known.fields if field.lower() in told}
    found |= {repr(text): usual for text in re.findall(r"['\"]([^'\"]+)['\"]", known.told)}
    for text in _ALWAYS:
        found.setdefault(text, _ALWAYS_COST)
    return [(expression, cost) for text, cost in found.items() if (expression := _expression(text)) is not None]


def _lent(drafts: Iterable[str]) -> list[tuple[ast.expr, float]]:
    """Return the expressions of other drafts, with the cost of using one."""
    found: dict[str, None] = {}
    for tree in filter(None, map(parsed, drafts)):
        for place in _places(tree):
            text = unparsed(place.node)
            if text is not None and len(text) < _LENT_CHARS and not isinstance(place.node, ast.Constant | ast.Name):
                found[text] = None
    return [(expression, _COSTS["lent"]) for text in found if (expression := _expression(text)) is not None]


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):  # a part that is valid in its own place only, such as a slice
        return None


# --- the edits


class _Place(NamedTuple):
    """The place of an expression in a tree."""

    parent: ast.AST
    field: str
    at: int | None
    node: ast.expr

    def put(self, node: ast.expr) -> None:
        if self.at is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.at] = node

    def edited(self, node: ast.expr, cost: float) -> Iterator[float]:
        """Put a node in the place while the caller looks, and yield the cost."""
        self.put(node)
        yield cost
        self.put(self.node)


def _places(tree: ast.Module) -> Iterator[_Place]:
    """Yield the places of expressions that are read. Defaults of parameters do not count."""
    for parent in list(ast.walk(tree)):
        if isinstance(parent, ast.FunctionDef | ast.arguments | ast.JoinedStr):
            continue
        for field, value in ast.iter_fields(parent):
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
                if isinstance(node, ast.expr) and not stored and not isinstance(node, ast.Slice | ast.Starred) and field != "format_spec":
                    yield _Place(parent, field, index, node)


def _edited(tree: ast.Module, others: Sequence[tuple[ast.expr, float]], within: float) -> Iterator[float]:
    """Yield the cost of each edit. The tree has the edit until the caller asks for the next.

    :param others: expressions that may stand in the place of another.
    :param within: the highest cost that the caller uses.
    """
    arounds = _AROUND if _COSTS["around"] <= within else ()
    for place in list(_places(tree)):
        node, parent = place.node, place.parent
        if isinstance(parent, ast.Attribute) and isinstance(node, ast.Name) and node.id == "self":
            continue
        yield from _inside(node)
        for other in _within(node) if _COSTS["unwrap"] <= within else ():
            yield from place.edited(other, _COSTS["unwrap"])
        if isinstance(parent, ast.Call) and place.field == "func":
            continue
        for other, cost in others:
            yield from place.edited(other, cost)
        text = unparsed(node) if arounds else None
        for around in arounds if text is not None else ():
            if (more := _expression(around.format(f"({text})"))) is not None:
                yield from place.edited(more, _COSTS["around"])
    yield from _statements(tree)


def _with(node: Any, field: str, value: Any, cost: float) -> Iterator[float]:
    kept = getattr(node, field)
    setattr(node, field, value)
    yield cost
    setattr(node, field, kept)


def _inside(node: ast.expr) -> Iterator[float]:
    """Yield edits of a node in its place: another operator, name, number or condition."""
    swap, out = _COSTS["swap"], _COSTS["leave_out"]
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            others: Sequence[type[ast.cmpop]] = _COMPARED if isinstance(operator, _COMPARED) else ()
            if isinstance(operator, ast.In | ast.NotIn):
                others = (ast.In, ast.NotIn)
            for other in others:
                if not isinstance(operator, other):
                    yield from _with(node, "ops", [*node.ops[:at], other(), *node.ops[at + 1 :]], swap)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, _CALCULATED):
        for calculated in _CALCULATED:
            if not isinstance(node.op, calculated):
                yield from _with(node, "op", calculated(), out)
        node.left, node.right = node.right, node.left
        yield swap
        node.left, node.right = node.right, node.left
    elif isinstance(node, ast.BoolOp):
        yield from _with(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And(), swap)
    elif isinstance(node, ast.Name):
        for like in _likes(node.id):
            yield from _with(node, "id", like, _COSTS["like"])
    elif isinstance(node, ast.Attribute):
        for like in _likes(node.attr):
            yield from _with(node, "attr", like, _COSTS["like"])
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        for number in (node.value - 1, node.value + 1):
            yield from _with(node, "value", number, _COSTS["number"])
    elif isinstance(node, ast.Call):
        for at in range(len(node.keywords)):
            yield from _with(node, "keywords", [*node.keywords[:at], *node.keywords[at + 1 :]], swap)
    elif isinstance(node, ast.IfExp):
        node.body, node.orelse = node.orelse, node.body
        yield swap
        node.body, node.orelse = node.orelse, node.body
    elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) and node.generators[0].ifs:
        first, *rest = node.generators[0].ifs
        yield from _with(node.generators[0], "ifs", [], out)
        yield from _with(node.generators[0], "ifs", [ast.UnaryOp(ast.Not(), first), *rest], out)


def _likes(name: str) -> Iterator[str]:
    return (other for group in _LIKE if name in group for other in group if other != name)


def _within(node: ast.expr) -> list[ast.expr]:
    """Return the parts of an expression that may stand in its place."""
    match node:
        case ast.Call(func=ast.Attribute(value=value)):
            return [*(one for one in node.args if not isinstance(one, ast.Starred)), value]
        case ast.Call():
            return [one for one in node.args if not isinstance(one, ast.Starred)]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.BoolOp(values=values):
            return list(values)
        case ast.Subscript(value=value):
            return [value]
        case ast.UnaryOp(operand=value):
            return [value]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.ListComp() | ast.GeneratorExp():
            return [node.generators[0].iter]
    return []


def _statements(tree: ast.Module) -> Iterator[float]:
    """Yield edits that leave a statement out, or swap two."""
    for node in list(ast.walk(tree)):
        for field in ("body", "orelse"):
            held: Any = getattr(node, field, None)
            if isinstance(held, list) and len(held) > 1:
                for at in range(len(held)):
                    yield from _with(node, field, [*held[:at], *held[at + 1 :]], _COSTS["leave_out"])
                    if at + 1 < len(held):
                        yield from _with(node, field, [*held[:at], held[at + 1], held[at], *held[at + 2 :]], _COSTS["order"])


def sayable(name: str) -> bool:
    """Return True if a slot, an argument or a selector may have this name in a method."""
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def numbers_in(text: str) -> tuple[int, ...]:
    """Return the numbers in a text, in digits or words: 2 for `doubled`."""
    told = text.lower()
    found = [int(digits) for digits in re.findall(r"(?<!\d)\d{1,18}(?!\d)", told)]
    return tuple(dict.fromkeys((*found, *(number for word, number in _IN_WORDS.items() if re.search(rf"\b{word}", told)))))


def fields_of(value: Any) -> Iterator[str]:
    """Yield the keys of the records in a value."""
    if isinstance(value, Mapping):
        yield from (key for key in value if isinstance(key, str))
    for one in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from fields_of(one)
