"""Repair of a method that is nearly right: an edge case that the words state, or another answer.

Words such as `the largest of the list, 0 if it is empty` state an edge case that examples seldom show. It gives further calls and their
answer, by which a method is completed. Another answer is made of a method's own, or of the slots that it changes: that is searched for
among values, without another run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.objects.json_form import Example, uncut
from batos.synthesis import batch_runner, mutations, specification
from batos.synthesis.ranking import as_left
from batos.synthesis.specification import MethodCall, RequestFacts, Specification, same
from batos.synthesis.transformations import SLOT_ANSWERS, compiled, templates

_ANSWERS, _OF_NUMBERS = templates("A"), templates("N")
_EVALUATED = {
    text: compiled(f"lambda it, given: {text.format('it', slot='it', given='given')}", {})
    for text in (*_ANSWERS, *_OF_NUMBERS, *SLOT_ANSWERS)
}
_COST = 2.2
_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def other_answers(source: str, did: Sequence[str], what: Specification, names: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Yield methods that pass the examples once their answers are others, with the cost of that.

    :param did: outcomes of the method, one of each example.
    :param names: names of its arguments.
    """
    came = [batch_runner.outcome_values(text) for text in did]
    if any(one is None for one in came):
        return
    known = [one for one in came if one is not None]
    if any(value is None for value, _ in known):  # a method that ends without an answer has no other answer to give
        return
    wanted = [example for _, example in what.examples]
    if not all(as_left(slots, example) for (_, slots), example in zip(known, wanted, strict=True)):
        return
    numbers = all(isinstance(value, int | float) for value, _ in known)
    for text in (*_ANSWERS, *(_OF_NUMBERS if numbers else ())):
        if all(_comes_to(text, value, None, one.result) for (value, _), one in zip(known, wanted, strict=True)):
            yield from _returning(source, text)
    for slot in sorted(name for name in what.known.changed if mutations.sayable(name)):
        for text in answers_from_slot(slot, [slots.get(slot) for _, slots in known], wanted, names):
            yield from _returning(source, text)


def answers_from_slot(slot: str, left: Sequence[Any], wanted: Sequence[Example], names: Sequence[str]) -> Iterator[str]:
    """Yield the answers of a method that changes a slot: expressions of the slot as it is left, and of an argument.

    :param left: the slot after each example.
    :param names: names of the method's arguments.
    """
    calls = [specification.arguments(one.args, dict(one.kwargs)) for one in wanted]
    for given in names or ("",):
        held = [(value, call.get(given), one.result) for value, call, one in zip(left, calls, wanted, strict=True)]
        for text in SLOT_ANSWERS:
            if all(_comes_to(text, *one) for one in held):
                yield text.format(slot=f"self.{slot}", given=given or "None")


def _comes_to(text: str, it: Any, given: Any, expected: Any) -> bool:
    try:
        value = _EVALUATED[text](it, given)
        return _could_be(value, expected) and same(uncut(value), expected)
    except _WRONG:
        return False


def _could_be(value: Any, expected: Any) -> bool:
    """Return True if a value may equal the expected one, by its kind and length. Few answers are, and some are long."""
    if isinstance(expected, list):
        return isinstance(value, list | tuple | set | frozenset) and len(value) == len(expected)
    if isinstance(expected, dict):
        return isinstance(value, dict) and len(value) == len(expected)
    return not isinstance(value, list | tuple | set | frozenset | dict)


def _returning(source: str, other: str) -> Iterator[tuple[float, str]]:
    try:
        tree = _Returning(other).visit(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError):  # there is no valid source, or another part does not fit in this place
        return
    text = mutations.unparsed(ast.fix_missing_locations(tree))
    if text is not None and mutations.parsed(text) is not None:
        yield _COST, text


class _Returning(ast.NodeTransformer):
    """Replaces each answer of a method by another, made of it where that has `{}`. Inner functions keep theirs."""

    def __init__(self, other: str) -> None:
        self._other, self._inside = other, False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        if not self._inside:
            self._inside = True
            self.generic_visit(node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value is not None:
            node.value = ast.parse(self._other.replace("{}", f"({ast.unparse(node.value)})"), mode="eval").body
        return node


_WORDED = r"none|null|an empty (?:text|string|list|record|dict|dictionary)"
_QUOTED = r"\"[^\"]*\"|'[^']*'"
_VALUE = (
    rf"(?<![\w.,-])(?P<value>-?\d+(?:\.\d+)?(?![\w.])|{_QUOTED}|{_WORDED}|zero|true|false"
    rf"|(?:the (?:text|word)|say|answer) (?:\w+|{_QUOTED})|not found|not there|unknown|missing|absent)"
)
_NONE = (  # bounded, since a request may say `if` a thousand times
    r"(?P<none>(?:[^,;.\n]{0,80}?\bempty\b|(?:there (?:is|are|was|were)|it has|I have) (?:no\b|none\b|nothing\b|not any\b)"
    r"|none\b|nothing\b|no \w+ (?:is|are)\b)[^,;.\n]*?)"
)
_GONE = (
    r"(?P<gone>(?:(?:it|that|this|they|he|she|one|the \w+(?: \w+)?|any) (?:is|are|was|were)(?:n't| not)|not)"
    r" (?:there|known|found|listed|present|in (?:it|the \w+|\w+)|one of \w+(?: \w+)?)"
    r"|(?:(?:it|that|this|they|he|she|one|the \w+(?: \w+)?) (?:is|are|was|were) )?(?:missing|unknown|absent))"
)
_IF, _END = r"(?:if|when|where)\s+", r"(?<!\s)\s*(?:[,;.!\n]|$)"
_SAID = (
    re.compile(rf"{_VALUE}\s+{_IF}(?:{_NONE}|{_GONE}){_END}", re.IGNORECASE),
    re.compile(rf"{_IF}(?:{_NONE}|{_GONE}),?(?<!\s)\s+(?:it (?:is|shall be)|answer|return|then)\s+{_VALUE}", re.IGNORECASE),
    re.compile(rf"(?<![\d\"'])(?<!true)(?<!false)(?:, or|(?<!,) or(?= (?:{_WORDED}|-1)\b))\s+{_VALUE}{_END}", re.IGNORECASE),
)
_NOT = re.compile(r"\bnot\b|n't\b|\bnon\b|\bnever\b|\bunless\b", re.IGNORECASE)
_EMPTY: Mapping[str, Any] = {"text": "", "items": [], "record": {}}
_CALLED = {"text": ("text", "word", "line", "string"), "items": ("list", "item", "number", "record"), "record": ("record", "dict")}
_WORDS = {"none": None, "null": None, "zero": 0, "true": True, "false": False}
_MADE = {"text": "", "string": "", "list": [], "record": {}, "dict": {}, "dictionary": {}}
_NOTHING = (None, "")  # answers of a method that found nothing
_FAR, _STRANGE = 10**6, "\u00a4"  # a number and a text that no input contains
_FAILING = "(ArithmeticError, LookupError, StopIteration, ValueError)"


class Implied(NamedTuple):
    """An edge case that the words state: a call and its answer.

    :ivar of: the expression that is empty then: `items`, `self.queue`; "" where the answer is that of a method without another one.
    """

    of: str
    call: MethodCall
    result: Any


def implied(what: Specification) -> tuple[Implied, ...]:
    """Return the edge case that the words state, as one call or several; empty where they state none."""
    if not what.examples or what.known.changed or (said := _in(what.known.told)) is None:
        return ()
    words, (call, example) = said.groupdict(), what.examples[0]
    none, gone = words.get("none"), words.get("gone")
    if none and _NOT.search(none.replace("not any", "")):
        return ()
    held, result = _held(what, call), _value(said["value"], isinstance(example.result, str))
    away = [_with(call, name, other) for name, other in _not_there(held)]
    if not _alike(result, example.result) and not (gone and away):
        return ()
    able = {name: kind for name, value in held.items() if (kind := _kind(value)) is not None}
    if none and "empty" in none:
        of = _meant(able, none.lower())
        return (Implied(of, _with(call, of, _EMPTY[able[of]]), result),) if of else ()
    if not gone:
        away += [_with(call, name, _EMPTY[kind]) for name, kind in able.items()]
        away += [_with(call, name, far) for name, value in held.items() if type(value) in (int, float) for far in (_FAR, -_FAR)]
    return tuple(Implied("", one, result) for one in away)


def without_edge_cases(told: str) -> str:
    """Return the words without the edge case that they state."""
    said = _in(told)
    return told if said is None else told[: said.start()] + told[said.end() :]


def answers_edge_case(did: str, one: Implied) -> bool:
    """Return True if an outcome is the answer of an edge case.

    :param did: the outcome of its call.
    """
    found = batch_runner.read_outcome(did)
    return found is not None and same(found[0], one.result)


def lacks_edge_case(did: str, one: Implied) -> bool:
    """Return True if a method has no answer to an edge case: it fails, or answers nothing. Any other answer may be meant."""
    found = batch_runner.read_outcome(did)
    return found is None or (found[0] in _NOTHING and one.result not in _NOTHING)


def with_edge_case(source: str, one: Implied, did: str) -> str | None:
    """Return a method completed by an edge case. Return None for a method that changes slots, or that does not run in a batch.

    :param did: its outcome on the call of the edge case.
    """
    tree = mutations.parsed(source)
    if tree is None or not mutations.settled(tree) or any(map(_is_changed, ast.walk(tree))):
        return None
    method = tree.body[0]
    assert isinstance(method, ast.FunctionDef)
    if one.of:
        method.body[:0] = ast.parse(f"if not {one.of}:\n    return {one.result!r}").body
    elif (found := batch_runner.read_outcome(did)) is not None:
        if not isinstance(last := method.body[-1], ast.Return) or last.value is None:
            return None
        lacking = "is None" if found[0] is None else f"== {found[0]!r}"
        method.body[-1:] = ast.parse(f"found = {ast.unparse(last.value)}\nreturn {one.result!r} if found {lacking} else found").body
    else:
        imports = [node for node in method.body if isinstance(node, ast.Import)]
        (whole,) = ast.parse(f"try:\n    pass\nexcept {_FAILING}:\n    return {one.result!r}").body
        assert isinstance(whole, ast.Try)
        whole.body = [node for node in method.body if node not in imports]
        method.body = [*imports, whole]
    return mutations.unparsed(tree)


def _in(told: str) -> re.Match[str] | None:
    """Return the match of an edge case in the words."""
    return next(filter(None, (one.search(told) for one in _SAID)), None)


def _is_changed(node: ast.AST) -> bool:
    """Return True if a node changes a slot."""
    return isinstance(node, ast.Attribute) and (node.attr == "_p_changed" or not isinstance(node.ctx, ast.Load))


def _held(what: Specification, call: MethodCall) -> dict[str, Any]:
    """Return the arguments, and the slots that the words name, by their expressions."""
    slots = {
        f"self.{slot}": call.slots[slot]
        for slot in what.known.slots
        if slot in call.slots and mutations.sayable(slot) and what.known.speaks_of(slot)
    }
    return specification.arguments(call.args, call.kwargs) | slots


def _with(call: MethodCall, name: str, value: Any) -> MethodCall:
    """Return a call with another value under a name of `_held`."""
    if (slot := name.removeprefix("self.")) != name:
        return call._replace(slots={**call.slots, slot: value})
    if name in call.kwargs:
        return call._replace(kwargs={**call.kwargs, name: value})
    names = specification.arguments(call.args, {})
    return call._replace(args=tuple(value if one == name else old for one, old in zip(names, call.args, strict=True)))


def _not_there(held: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each input that occurs in another one, with a value that does not."""
    for name, value in held.items():
        plain = isinstance(value, str | int | float) and not isinstance(value, bool) and not name.startswith("self.")
        if plain and any(_stands_in(value, other) for one, other in held.items() if one != name):
            yield name, _STRANGE if isinstance(value, str) else _FAR


def _stands_in(value: Any, other: Any) -> bool:
    if isinstance(other, str):
        return isinstance(value, str) and value in other
    rows = [one for one in other if isinstance(one, dict)] if isinstance(other, list) else []
    return isinstance(other, list | dict) and (value in other or any(value in row.values() for row in rows))


def _kind(value: Any) -> str | None:
    return "text" if isinstance(value, str) else "items" if isinstance(value, list) else "record" if isinstance(value, dict) else None


def _meant(able: Mapping[str, str], words: str) -> str | None:
    """Return the input that is empty in the edge case: the one that the words name, or the only one of its kind."""
    named = [name for name in able if name.startswith("self.") and RequestFacts(words, ()).names(name.removeprefix("self."))]
    called = [name for name, kind in able.items() if any(word in words for word in _CALLED[kind])]
    return next((found[0] for found in (named, called, list(able)) if len(found) == 1), None)


def _alike(value: Any, other: Any) -> bool:
    """Return True if two values may be answers of one method. Otherwise the words were about a part of it."""
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (value, other))
    return value is None or other is None or numbers or type(value) is type(other)


def _value(said: str, texts: bool) -> Any:
    """Return the answer that the words state.

    :param texts: True if the method answers texts: then `none` in small letters is one.
    """
    text, quoted = said.lower(), re.search(_QUOTED, said)
    if quoted:
        return quoted[0][1:-1]
    if text.startswith("an empty "):
        return _MADE[text.rsplit(" ", 1)[1]]
    if text in _WORDS and not (texts and said == "none"):
        return _WORDS[text]
    if re.fullmatch(r"-?[\d.]+", text):
        return float(text) if "." in text else int(text)
    said = re.sub(r"^(?:the (?:text|word)|say|answer) ", "", said, flags=re.IGNORECASE)
    return said if texts else _WORDS.get(said.lower(), said)
