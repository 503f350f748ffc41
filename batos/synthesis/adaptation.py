"""Adaptation: methods of the handbook and of the image, called with the inputs of a request and judged by its examples.

A small model imitates the few methods that it is shown. Among thousands that it is not shown, one often does what is wanted under other
words. Methods are found by what they do (semantics-based code search: Reiss 2009, doi:10.1109/ICSE.2009.5070525). They are adapted by their
names, and kept or not (case-based reasoning: Aamodt and Plaza 1994, doi:10.3233/AIC-1994-7104). Words tell how likely each is.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from batos.concurrency import in_helper
from batos.objects.json_form import Example
from batos.synthesis import mutations, specification
from batos.synthesis.handbook import HandbookEntry, words_in
from batos.synthesis.ranking import Passed, as_expected
from batos.synthesis.repair import other_answers, without_edge_cases
from batos.synthesis.specification import MethodCall, SearchContext, Specification

_NAMES = {
    ",": "comma", ".": "dot point period stop", ":": "colon", ";": "semicolon", "-": "dash hyphen minus", "_": "underscore", "/": "slash",
    "\\": "backslash", "*": "star asterisk", "#": "hash", "+": "plus", "=": "equals equal", "|": "bar pipe", " ": "space blank",
    "?": "question", "!": "exclamation", "%": "percent", "&": "ampersand", "'": "apostrophe", '"': "quote quotation", "\t": "tab",
    "\n": "newline", "~": "tilde", "$": "dollar", "€": "euro", "[": "bracket", "]": "bracket",
    "(": "bracket parenthesis parentheses", ")": "bracket parenthesis parentheses",
}  # fmt: skip
_LONGEST = 4000  # greatest number of characters of a value that is searched for parts


def signs_named(said: frozenset[str], values: Iterable[Any]) -> Mapping[str, frozenset[str]]:
    """Return the signs that words name and that occur in a value, each with the words that name it: `','` for "the number of commas".

    :param said: stems, as `words_in` returns them.
    """
    spoken = {sign: words & said for sign, words in ((sign, words_in(names)) for sign, names in _NAMES.items())}
    if not any(spoken.values()):
        return {}
    there = set("".join(itertools.islice(_characters(values), _LONGEST)))
    return {sign: words for sign, words in spoken.items() if words and sign in there}


def _characters(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield from value
        elif isinstance(value, dict):
            yield from _characters(value)
            yield from _characters(value.values())
        elif isinstance(value, list | tuple):
            yield from _characters(value)


_INPUTS, _FIXED, _MEANT = 5, 3, 6  # limits: arguments of a known method, constants in it, and numbers or texts that a request mentions
_BINDINGS = 12  # greatest number of ways to bind the available values to the arguments of one known method
_SLOTS = 4  # greatest number of slots that a known method may be called with
_FAR = 5.0  # cost of a method that shares no word with the request
_UNUSED = 0.8  # cost of each number or sign that the request mentions and the method does not use
_SUCH_AS = re.compile(r"\b(?:such as|as in|like|for example|e\.g|from \d+ to \d+|between \d+ and \d+)\b")
_FROM_0 = re.compile(r"\b(?:from|begin(?:ning|s)? (?:with|at|by)) 0\b")  # counted from 0, as in Python
_ALONE = re.compile(r"(?<![\w:./-])\d{1,6}(?![\w:/-]|\.\d)")
_ARTICLE = re.compile(r"(?<!letter )(?<!letters )\b[aAI]\b")
_LETTER = re.compile(r"(?<![^\W_])(?<!['’])([^\W\d_])(?![^\W_])")
"""Matches a letter that stands alone and does not follow an apostrophe: `don't` has no such letter."""
_QUOTED = re.compile(r"(?<!\w)['\"]([^'\"]+)['\"](?!\w)")
_SIGN = re.compile(r"(?:(?<=\s)|^)([@#&*+=/|:;%$-])(?=[\s,.]|$)")
_TURNS, _ORDERED = 100, 7  # a larger number may make a loop too long; a longer list may have too many permutations
_COUNTED = re.compile(r"\brange\((?![^()]*\blen\()|\*\*(?!\s*\d)|<<|factorial|comb\(|perm\(|repeat|accumulate")
_ORDERS = re.compile(r"permutations|combinations|product\(")


class SourceRequest(NamedTuple):
    """The inputs that a request offers to a method.

    :ivar names: names of the arguments, in order.
    :ivar kinds: the kind of each input, by the expression that reads it: `text`, `self.total`.
    :ivar numbers: numbers in the words.
    :ivar texts: fields of records that the words mention, and quoted texts.
    :ivar marks: signs that stand alone in the words: `@`, `#`.
    :ivar signs: signs that the words name and the examples contain, with the words that name them.
    """

    selector: str
    names: tuple[str, ...]
    kinds: Mapping[str, str]
    numbers: tuple[int, ...]
    texts: tuple[str, ...]
    marks: tuple[str, ...] = ()
    signs: Mapping[str, frozenset[str]] = MappingProxyType({})


class Anatomy(NamedTuple):
    """The exchangeable parts of a known method.

    :ivar slots: its slots as they stand in the source: `self.total`.
    :ivar fixed: its numbers and texts that its purpose mentions.
    """

    parameters: tuple[str, ...]
    slots: tuple[str, ...]
    changes: bool
    fixed: tuple[int | str, ...]


def asked(what: Specification) -> SourceRequest | None:
    """Return the inputs that a request offers: the arguments of its examples, and slots that words or examples mention.

    Return None where the examples differ in their arguments.
    """
    selector = what.selector
    if not mutations.sayable(selector):
        return None
    ways = {tuple(specification.arguments(call.args, call.kwargs)) for call, _ in what.examples}
    if len(ways) != 1 or any(len(*ways) != len(call.args) + len(call.kwargs) for call, _ in what.examples):
        return None
    call, known = what.examples[0][0], what.known
    given = specification.arguments(call.args, call.kwargs)
    spoken = [slot for slot in known.slots if mutations.sayable(slot) and known.speaks_of(slot)][:_SLOTS]
    kinds = {name: specification.kind_of(value) for name, value in given.items()}
    kinds |= {f"self.{slot}": specification.kind_of(call.slots.get(slot)) for slot in spoken}
    words = frozenset(re.split(r"[\W_]+", known.told.lower()))
    fields = [field for field in known.fields if field.lower() in words]
    letters = sorted({letter.lower() for letter in _LETTER.findall(_ARTICLE.sub("", known.told))} - {selector.strip("_").lower()})
    texts = dict.fromkeys((*fields, *_QUOTED.findall(known.told), *letters))
    marks = dict.fromkeys(_SIGN.findall(known.told))
    numbers = mutations.numbers_in(known.told)[:_MEANT]
    named = signs_named(words_in(known.told), (value for call, one in what.examples for value in _values(call, one)))
    return SourceRequest(selector, tuple(given), kinds, numbers, tuple(texts)[:_MEANT], tuple(marks)[:_FIXED], named)


def _values(call: MethodCall, example: Example) -> Iterator[Any]:
    """Yield the inputs and outputs of an example."""
    yield from (*call.args, *call.kwargs.values(), *call.slots.values(), example.result, *dict(example.after).values())


async def adapted_passing(
    context: SearchContext, entries: Sequence[tuple[float, HandbookEntry]], *, exactly: bool = False, within: float = math.inf
) -> Passed:
    """Return known methods that pass the examples, as they are or with another answer made of theirs.

    :param entries: known methods, each with the share of the request's words that it explains, the largest first.
    :param exactly: keep their own answers only.
    :param within: the highest cost of an adapted method.
    """
    spec = context.spec
    if (request := asked(spec)) is None:
        return ()
    changes = bool(spec.known.changed)

    def bound() -> list[tuple[float, str]]:
        found = (
            (_FAR * (1 - share) + unused(text, spec.known.told), text)
            for share, entry in soon(entries, spec)
            for text in adapted(entry, request, changes=changes)
        )
        tried = itertools.islice(found, context.budget.adaptations)
        return list({text: (cost, text) for cost, text in tried if cost <= within}.values())

    tried = await context.run_examples(await in_helper(bound))

    def passed() -> Iterator[tuple[float, str]]:
        for (cost, text), texts in tried:
            if all(as_expected(told, one) for told, (_, one) in zip(texts, spec.examples, strict=True)):
                yield cost, text
            elif not exactly:
                for more, other in other_answers(text, texts, spec, request.names):
                    if cost + more <= within:
                        yield cost + more, other

    def audited() -> Passed:
        return tuple(one for one in sorted(passed()) if mutations.makes_sense(one[1], spec.known) and context.auditor(one[1]))

    return await in_helper(audited)


def unused(text: str, told: str) -> float:
    """Return the cost of a method for each number and sign in the words that it leaves out. Those of examples in the words are free."""
    spoken = _spoken(told)
    return _UNUSED * sum(not re.search(rf"(?<!\w){re.escape(one)}(?!\w)" if one.isdigit() else re.escape(one), text) for one in spoken)


@lru_cache(maxsize=4)
def _spoken(told: str) -> frozenset[str]:
    """Return numbers and signs that a method needs. Those of an edge case do not count: it is added later (`batos.synthesis.repair`)."""
    told = _FROM_0.sub("", _SUCH_AS.split(without_edge_cases(told))[0])
    return frozenset({*_ALONE.findall(told), *_SIGN.findall(told)})


def soon(entries: Iterable[tuple[float, HandbookEntry]], what: Specification) -> Iterator[tuple[float, HandbookEntry]]:
    """Yield the methods that end soon on the examples. Left out are methods that count up to a large number, or permute many items."""
    values = [value for call, _ in what.examples for value in (*call.args, *call.kwargs.values(), *call.slots.values())]
    counts, orders = has(values, _counts), has(values, _orders)
    for one in entries:
        if not (counts and _COUNTED.search(one[1].source)) and not (orders and _ORDERS.search(one[1].source)):
            yield one


def adapted(entry: HandbookEntry, request: SourceRequest, *, changes: bool) -> Iterator[str]:
    """Yield the ways to call a known method with the inputs of a request. Each uses all arguments, and may use slots.

    :param changes: True if the method shall change slots.
    """
    known = anatomy(entry.source, entry.purpose)
    if known is None or known.changes is not changes:
        return
    inputs = (*known.parameters, *known.slots)
    if not len(request.names) <= len(inputs) <= min(_INPUTS, len(request.kinds)) or len(known.fixed) > _FIXED:
        return
    fixed = [_instead(one, request) for one in known.fixed]
    ways = ((names, values) for names in _calls(inputs, request, known) for values in itertools.product(*fixed))
    for names, values in itertools.islice(ways, _BINDINGS):
        text = _bound(entry.source, request, dict(zip(inputs, names, strict=True)), dict(zip(known.fixed, values, strict=True)))
        if text is not None:
            yield text


def _calls(inputs: Sequence[str], request: SourceRequest, known: Anatomy, given: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the bindings of a known method's inputs, in their order. Each input of the request is used once, and all arguments are used."""
    if len(given) == len(inputs):
        yield given
        return
    left = [name for name in request.names if name not in given]
    for to in request.kinds if len(inputs) - len(given) > len(left) else left:
        if to not in given and _fits(inputs[len(given)], to, request, known):
            yield from _calls(inputs, request, known, (*given, to))


@lru_cache(maxsize=8192)
def anatomy(source: str, purpose: str) -> Anatomy | None:
    """Return the exchangeable parts of a method. Return None for one that may not end, or that uses its receiver for more than slots."""
    tree = mutations.parsed(source)
    if tree is None or not mutations.settled(tree):
        return None
    method = tree.body[0]
    assert isinstance(method, ast.FunctionDef)
    told = f"{purpose} {method.name.replace('_', ' ')}".lower()
    words, numbers = set(re.findall(r"[^\W_]+", told)), mutations.numbers_in(told)
    nodes = list(ast.walk(tree))
    held = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"]
    slots = dict.fromkeys(f"self.{node.attr}" for node in held if node.attr != "_p_changed")
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    fixed: dict[int | str, None] = {}
    for value in constants:
        if (isinstance(value, str) and value.lower() in words) or (type(value) is int and value in numbers):
            fixed[value] = None
    return Anatomy(tuple(one.arg for one in method.args.args[1:]), tuple(slots), len(held) > 0 and _changes(held), tuple(fixed))


def _changes(held: Sequence[ast.Attribute]) -> bool:
    return any(node.attr == "_p_changed" for node in held)


def has(values: Sequence[Any], such: Callable[[Any], bool]) -> bool:
    """Return True if a predicate holds for one of the values, or for a value inside them."""
    inside = [[*value, *value.values()] if isinstance(value, dict) else value for value in values if isinstance(value, list | tuple | dict)]
    return any(map(such, values)) or any(has(more, such) for more in inside)


def _counts(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) > _TURNS


def _orders(value: Any) -> bool:
    return isinstance(value, list | tuple | str | dict) and len(value) > _ORDERED


def _fits(one: str, to: str, request: SourceRequest, known: Anatomy) -> bool:
    """Return True if an input of the request can stand for a parameter or slot of a known method.

    An argument there may be a slot here. A slot that is only read there may be an argument here.
    """
    if one.startswith("self."):
        return to.startswith("self.") or not known.changes
    return one.rstrip("0123456789") == request.kinds[to]


def _instead(value: int | str, request: SourceRequest) -> Sequence[int | str]:
    """Return the values that can replace a number or a text in a known method."""
    given: Sequence[int | str] = request.numbers if isinstance(value, int) else request.texts
    return given or (value,)


def _bound(source: str, request: SourceRequest, names: Mapping[str, str], values: Mapping[int | str, int | str]) -> str | None:
    tree = _Bound(names, values).visit(ast.parse(source))
    method = tree.body[0]
    method.name, method.args.args = request.selector, [ast.arg("self"), *map(ast.arg, request.names)]
    text = mutations.unparsed(ast.fix_missing_locations(tree))
    return text if text is not None and mutations.parsed(text) is not None else None


class _Bound(ast.NodeTransformer):
    """Replaces names and constants in a method."""

    def __init__(self, names: Mapping[str, str], values: Mapping[int | str, int | str]) -> None:
        self._names, self._values = names, values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _expression(self._names[node.id], node.ctx) if node.id in self._names else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and (name := f"self.{node.attr}") in self._names:
            return _expression(self._names[name], node.ctx)
        self.generic_visit(node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        value: Any = node.value
        return ast.Constant(self._values[value]) if type(value) in (int, str) and value in self._values else node


def _expression(text: str, ctx: ast.expr_context) -> ast.expr:
    owner, _, attribute = text.partition(".")
    return ast.Attribute(ast.Name(owner, ast.Load()), attribute, ctx) if attribute else ast.Name(owner, ctx)
