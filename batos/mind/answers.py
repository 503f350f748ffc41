"""Another answer of a method that does nearly what is wanted: one made of its own, or, of what it leaves in its slots.

That is found among values, without another run: what a method answered is known, and so is what it shall answer.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from batos.image import history
from batos.image.examples import Example
from batos.mind import edits, plain_values, side_by_side
from batos.mind.amending import Wanted, as_left
from batos.mind.plain_values import same

_MADE_OF = (
    "sorted({})", "sorted({}, reverse=True)", "sorted(set({}))", "list({})", "list(dict.fromkeys({}))", "list({}.values())",
    "list({}.keys())", "dict({})", "len({})", "len(set({}))", "sum({})", "sum({}.values())", "max({})", "min({})", "str({})", "int({})",
    "float({})", "abs({})", "round({})", "round({}, 1)", "round({}, 2)", "round({}, 3)", "not {}", "bool({})", "-{}", "{}[0]", "{}[-1]",
    "{}[::-1]", "{}.lower()", "{}.upper()", "{}.title()", "{}.capitalize()", "{}.strip()", "{}.split()", "' '.join({})", "''.join({})",
    "', '.join({})", "[str(x) for x in {}]",
)  # fmt: skip
"""What is made of an answer."""
_CALCULATED = ("{} + 1", "{} - 1", "{} * 2", "{} / 2", "{} // 2", "{} * 100", "{} > 0", "{} == 0")
"""What is made of one that is a number."""
_LEFT = (
    "{slot}", "len({slot})", "sum({slot})", "max({slot})", "min({slot})", "{slot}[-1]", "{slot}[{given}]", "{slot}.get({given}, 0)",
    "{given}", "len({given})", "True", "sum({slot}.values())", "sorted({slot})", "list({slot})", "sum({slot}) / len({slot})",
    "round(sum({slot}) / len({slot}), 1)", "round(sum({slot}) / len({slot}), 2)", "', '.join({slot})", "len({slot}) + 1",
)  # fmt: skip
"""What is answered of a slot that was changed, and of what was given."""


def _computing(text: str) -> Callable[[Any, Any], Any]:
    """What computes an expression of this module here: of an answer, or of a slot and what was given."""
    made: Callable[[Any, Any], Any] = eval(f"lambda it, given: {text.format('it', slot='it', given='given')}")  # noqa: S307 - they stand above
    return made


_COMPUTING = {text: _computing(text) for text in (*_MADE_OF, *_CALCULATED, *_LEFT)}
_COST = 2.2
_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def others(source: str, did: Sequence[str], what: Wanted, names: Sequence[str]) -> Iterator[tuple[float, str]]:
    """What becomes of a method that passes the examples but for its answers, once these are others: what that costs, and its source.

    :param did: what it did on each example (`side_by_side.did`).
    :param names: of its arguments.
    """
    came = [side_by_side.held(text) for text in did]
    if any(one is None for one in came):
        return
    known = [one for one in came if one is not None]
    if any(value is None for value, _ in known):  # what ends without an answer has none that could be another
        return
    wanted = [example for _, example in what.examples]
    if not all(as_left(slots, example) for (_, slots), example in zip(known, wanted, strict=True)):
        return
    numbers = all(isinstance(value, int | float) for value, _ in known)
    for text in (*_MADE_OF, *(_CALCULATED if numbers else ())):
        if all(_comes_to(text, value, None, one.result) for (value, _), one in zip(known, wanted, strict=True)):
            yield from _returning(source, text)
    for slot in sorted(name for name in what.known.changed if edits.sayable(name)):
        for text in of_left(slot, [slots.get(slot) for _, slots in known], wanted, names):
            yield from _returning(source, text)


def of_left(slot: str, left: Sequence[Any], wanted: Sequence[Example], names: Sequence[str]) -> Iterator[str]:
    """What the answers of examples are made of, where a method changes a slot: expressions of what it leaves there, and of what was given.

    :param left: what each leaves there.
    :param names: of the method's arguments.
    """
    calls = [plain_values.arguments(one.args, dict(one.kwargs)) for one in wanted]
    for given in names or ("",):
        held = [(value, call.get(given), one.result) for value, call, one in zip(left, calls, wanted, strict=True)]
        for text in _LEFT:
            if all(_comes_to(text, *one) for one in held):
                yield text.format(slot=f"self.{slot}", given=given or "None")


def _comes_to(text: str, it: Any, given: Any, expected: Any) -> bool:
    try:
        value = _COMPUTING[text](it, given)
        return _could_be(value, expected) and same(history.uncut(value), expected)
    except _WRONG:
        return False


def _could_be(value: Any, expected: Any) -> bool:
    """Whether it is worth a look: of most answers it is not, and some are long."""
    if isinstance(expected, list):
        return isinstance(value, list | tuple | set | frozenset) and len(value) == len(expected)
    if isinstance(expected, dict):
        return isinstance(value, dict) and len(value) == len(expected)
    return not isinstance(value, list | tuple | set | frozenset | dict)


def _returning(source: str, other: str) -> Iterator[tuple[float, str]]:
    try:
        tree = _Returning(other).visit(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError):  # what has no source, or none that another part may stand in
        return
    text = edits.unparsed(ast.fix_missing_locations(tree))
    if text is not None and edits.parsed(text) is not None:
        yield _COST, text


class _Returning(ast.NodeTransformer):
    """Another answer at every place where the method gives one, made of that where it has `{}`; functions in it keep theirs."""

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
