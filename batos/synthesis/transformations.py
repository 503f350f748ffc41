"""The table of value transformations, and the bounded evaluation of expressions in the daemon's own process.

A transformation is a constant; the value that it is given is not. `c * int(n)` of the text `x20240208` is 20 MB, and all memory with a few
digits more. So operators and methods that multiply, raise, shift, fill or count are replaced by functions that refuse such sizes.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, NamedTuple

from batos.synthesis.handbook import words_in

LONGEST = 100_000
"""Greatest size that an evaluation makes: items, characters, steps of a range, or bits of a number."""
_COUNTED = 1_000  # the largest argument of a factorial or a binomial
_FEW = 1_000  # the largest constant factor that needs no check
_MATTERS = re.compile(r"\*|<<|range\(|just\(|center\(|zfill\(|expandtabs\(|pow\(|factorial\(|comb\(|perm\(|prod\(|:[^}]*\{")
"""Matches an expression with an operation that needs a bound. Most expressions have none."""
_FILLING = ("ljust", "rjust", "center", "zfill", "expandtabs")
_COUNTING = ("factorial", "comb", "perm")


def compiled(text: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function that an expression of ours denotes. It raises OverflowError in place of a value beyond `LONGEST`.

    :param text: a constant of this package, such as `lambda it: it + 1`; never a client's text.
    :param names: names that it may use beside the builtins.
    """
    tree = ast.parse(text, mode="eval")
    if _MATTERS.search(text):
        tree = ast.fix_missing_locations(_Bounding().visit(tree))
    made: Callable[..., Any] = eval(compile(tree, "<transformation>", "eval"), {**names, **_IN_PLACE})  # noqa: S307 - texts are constants
    return made


def times(left: Any, right: Any) -> Any:
    """Return `left * right`."""
    if isinstance(left, int) and isinstance(right, int):
        _check(left.bit_length() + right.bit_length())
    for held, often in ((left, right), (right, left)):
        if isinstance(held, Sized) and isinstance(often, int):
            _check(len(held) * often)
    return left * right


def power(base: Any, exponent: Any, *modulus: Any) -> Any:
    """Return `base ** exponent`, or `pow` with a modulus."""
    if isinstance(base, int) and isinstance(exponent, int) and not modulus:
        _check(base.bit_length() * exponent)
    return pow(base, exponent, *modulus)


def product(values: Iterable[Any], *, start: Any = 1) -> Any:
    """Return the product, as `math.prod` does."""
    return functools.reduce(times, values, start)


def _shifted(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check(left.bit_length() + right)
    return left << right


def _range(*given: Any) -> range:
    found = range(*given)
    if found:
        _check((found[-1] - found[0]) // found.step)
    return found


def _filled(held: Any, name: str, *given: Any) -> Any:
    return getattr(held, name)(*map(_width, given))


def _counted(module: Any, name: str, *given: Any) -> Any:
    if any(isinstance(one, int) and one > _COUNTED for one in given):
        raise OverflowError(f"{name} of more than {_COUNTED}")
    return getattr(module, name)(*given)


def _width(given: Any) -> Any:
    if isinstance(given, int):
        _check(given)
    return given


def _check(size: int) -> None:
    if size > LONGEST:
        raise OverflowError(f"more than {LONGEST}")


_IN_PLACE = {
    "range": _range, "pow": power, "_times": times, "_power": power, "_shifted": _shifted, "_product": product, "_filled": _filled,
    "_counted": _counted, "_width": _width,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {ast.Mult: "_times", ast.Pow: "_power", ast.LShift: "_shifted"}


class _Bounding(ast.NodeTransformer):
    """Replaces operators and methods by the bounded functions above."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = _OPERATORS.get(type(node.op))
        if name is None or (name == "_times" and (_is_few(node.left) or _is_few(node.right))):
            return node
        return _call(name, node.left, node.right)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        held, name = node.func.value, node.func.attr
        if name in _FILLING and not all(isinstance(one, ast.Constant) for one in node.args):
            return _call("_filled", held, ast.Constant(name), *node.args)
        if name in _COUNTING:
            return _call("_counted", held, ast.Constant(name), *node.args)
        if name == "prod":
            node.func = ast.Name("_product", ast.Load())
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.format_spec, ast.JoinedStr):
            for part in node.format_spec.values:
                if isinstance(part, ast.FormattedValue):
                    part.value = _call("_width", part.value)
        return node


def _is_few(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) <= _FEW


def _call(name: str, *given: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(given), [])


_SORTED = "sort sorted order alphabet alphabetical alphabetically rank arrange rising ascending increasing"
_SUM, _MEAN = "sum total altogether add much many overall together whole combined plus worth", "average mean typical"
_DISTINCT = "differ different distinct unique once twice duplicates several double repeat repeated kinds"
_MOST = (
    "dearest max largest highest biggest longest most latest greatest best maximum newest oldest top tallest heaviest widest farthest "
    "furthest recent winner peak"
)
_FALLING = "reverse descending falling largest highest longest newest biggest most best decreasing"
_LEAST = (
    "min smallest lowest shortest least earliest cheapest minimum oldest youngest fewest nearest closest lightest soonest fastest worst"
)


class Transformation(NamedTuple):
    """An expression that is made of a value.

    :ivar template: the expression, with `{}` for the value.
    :ivar uses: one letter a use, in any order. E: an edit puts it around an expression of a draft. A: the answer of a known method becomes
        it. N: likewise, if the answer is a number. W: a composed method answers it of a part.
    :ivar words: words that speak of it.
    """

    template: str
    uses: str
    words: str = ""


TRANSFORMATIONS = (
    Transformation("{}", "W"),
    Transformation("sorted({})", "EAW", _SORTED),
    Transformation("sorted({}, reverse=True)", "EAW", _FALLING),
    Transformation("' '.join({})", "EAW", "word words text sentence space spaces"),
    Transformation("''.join({})", "EAW", "text letter letters together"),
    Transformation("', '.join({})", "EAW", "comma commas"),
    Transformation("len({})", "EAW", "many length long count number"),
    Transformation("sum({})", "EAW", "sum total altogether"),
    Transformation("max({})", "EAW", _MOST),
    Transformation("min({})", "EAW", _LEAST),
    Transformation("round({}, 2)", "EAW", "round rounded cents"),
    Transformation("round({}, 1)", "AW", "round rounded"),
    Transformation("round({})", "EAW", "round rounded whole"),
    Transformation("str({})", "EAW", "text"),
    Transformation("int({})", "EAW", "number whole"),
    Transformation("{}[::-1]", "EAW", "reverse reversed backwards backward mirror turned"),
    Transformation("{}[0]", "EAW", "first begin start"),
    Transformation("{}[-1]", "EAW", "last end final"),
    Transformation("list(dict.fromkeys({}))", "EAW", _DISTINCT),
    Transformation("not {}", "EAW", "no not none"),
    *(Transformation(one, "EA") for one in (
        "sorted(set({}))", "list({})", "list({}.keys())", "dict({})", "float({})", "abs({})", "bool({})", "-{}", "{}.lower()", "{}.upper()",
        "{}.title()", "{}.capitalize()", "{}.strip()", "{}.split()",
    )),
    *(Transformation(one, "A") for one in (
        "list({}.values())", "len(set({}))", "sum({}.values())", "round({}, 3)", "[str(x) for x in {}]",
    )),
    *(Transformation(one, "EN") for one in ("{} + 1", "{} - 1", "{} * 2", "{} / 2", "{} // 2")),
    *(Transformation(one, "N") for one in ("{} * 100", "{} > 0", "{} == 0")),
    *(Transformation(one, "E") for one in (
        "list({}.items())", "set({})", "{}[1:]", "{}[:-1]", "{}.values()", "{}.items()", "' '.join({}.split())", "{} ** 2", "{} % 2 == 0",
        "{} % 2 == 1", "{} or 0",
    )),
)  # fmt: skip
"""Transformations of a value that need no word of the request. `idioms.txt` and `phrases.txt` have those that need words."""
SLOT_ANSWERS = (
    "{slot}", "len({slot})", "sum({slot})", "max({slot})", "min({slot})", "{slot}[-1]", "{slot}[{given}]", "{slot}.get({given}, 0)",
    "{given}", "len({given})", "True", "sum({slot}.values())", "sorted({slot})", "list({slot})", "sum({slot}) / len({slot})",
    "round(sum({slot}) / len({slot}), 1)", "round(sum({slot}) / len({slot}), 2)", "', '.join({slot})", "len({slot}) + 1",
)  # fmt: skip
"""Answers of a method that changed a slot: expressions of the new slot and of an argument. The first one that fits wins."""


def templates(use: str) -> tuple[str, ...]:
    """Return the templates of a use, in the order of the table."""
    return tuple(one.template for one in TRANSFORMATIONS if use in one.uses)


class Frame(NamedTuple):
    """An expression that is made of all items together, or of a part of the inputs as a whole.

    Its template has `{of}` for the answer of an item, and `{by}` for its key. `{each}` goes through the items, `{row}` is one of `{some}`
    of them, and `{key}` a function that gives the key of a row.

    :ivar words: words that speak of it.
    :ivar begin: the empty record of a frame that fills one. The template is then the value of an entry.
    :ivar also: further words that it explains, and that need not be said.
    """

    template: str
    words: frozenset[str]
    begin: str | None = None
    also: frozenset[str] = frozenset()

    @property
    def keyed(self) -> bool:
        """Return True for a record with one entry for each item."""
        return "{by}: {of}" in self.template

    @property
    def extreme(self) -> bool:
        """Return True for the largest, the smallest, or the first item of an order."""
        return self.template.startswith(("max(", "min(")) or self.template.endswith(")][0]")

    @property
    def asks(self) -> bool:
        """Return True for a question whose answer is yes or no."""
        return self.template.startswith(("any(", "all(", "not "))

    def has(self, name: str) -> bool:
        """Return True if a name such as `of` occurs in the template."""
        return f"{{{name}}}" in self.template

    def may_give(self, value: Any) -> bool:
        """Return True if the template can give a value of this kind, by its form."""
        if self.begin is not None or self.template.startswith("{{"):
            return isinstance(value, dict)
        if self.template.startswith("[") and self.template.endswith(("}]", ")]")):
            return isinstance(value, list)
        return isinstance(value, next((kinds for begins, kinds in _GIVE.items() if self.template.startswith(begins)), object))


_GIVE: Mapping[tuple[str, ...], tuple[type, ...]] = {
    ("sorted(", "list("): (list,), ("len(", "sum(", "round(", "int("): (int, float), ("any(", "all(", "not "): (bool,),
    ("'", "str("): (str,),
}  # fmt: skip
"""Beginnings of frames -> the kinds of value that these frames give."""


def _frame(template: str, words: str = "", begin: str | None = None, also: str = "") -> Frame:
    return Frame(template, words_in(words), begin, words_in(also))


OF_EACH = (
    _frame("[{of} {each}]"), _frame("sorted({of} {each})", f"{_SORTED} smallest first"),
    _frame("sorted(({of} {each}), reverse=True)", f"{_FALLING} last"),
    _frame("sorted({{{of} {each}}})", _DISTINCT), _frame("list(dict.fromkeys({of} {each}))", _DISTINCT),
    _frame("sum({of} {each})", _SUM),
    _frame("round(sum({of} {each}), 2)", "round rounded cents", also=_SUM),
    _frame("max({of} {each})", _MOST), _frame("min({of} {each})", _LEAST), _frame("len({{{of} {each}}})", _DISTINCT),
    _frame("any({of} {each})", "any some whether one is contain has there somewhere"),
    _frame("all({of} {each})", "all every each whether only both everything"),
    _frame("not any({of} {each})", "no none not never without nothing"),
    _frame("' '.join({of} {each})", "word words text sentence space spaces"),
    _frame("''.join({of} {each})", "text letter letters character characters initials together"),
    _frame("', '.join({of} {each})", "comma commas"), _frame("sum({of} {each}) / sum(1 {each})", _MEAN),
    _frame("round(sum({of} {each}) / sum(1 {each}), 2)", "round rounded", also=_MEAN),
    _frame("round(sum({of} {each}) / sum(1 {each}), 1)", "round rounded", also=_MEAN),
    _frame("next(({of} {each}), None)", "first earliest find"), _frame("[{of} {each}][-1]", "last latest final recent"),
)  # fmt: skip
"""Frames of an expression of each item."""
WHOLE = tuple(_frame(one.template.replace("{}", "{of}"), one.words) for one in TRANSFORMATIONS if "W" in one.uses)
"""Frames of a whole input, without a loop over items."""
COUNTED = (_frame("sum(1 {each})", "many count number often times amount"),)
"""Frames that count the items."""
ORDERED = (
    _frame("[{of} for {row} in sorted({some}, key={key})]", _SORTED), _frame("[{of} for {row} in sorted({some}, key={key})][0]", _LEAST),
    _frame("[{of} for {row} in sorted({some}, key={key}, reverse=True)]", _FALLING),
    _frame("[{of} for {row} in sorted({some}, key={key}, reverse=True)][0]", _MOST), _frame("{{{by}: {of} {each}}}", "each by per map"),
)  # fmt: skip
"""Frames that sort the items by a key, or map keys to items."""
GROUPED = (
    _frame("found.get({by}, 0) + {of}", "each by per every for", "{}"),
    _frame("[*found.get({by}, []), {of}]", "each by per group grouped every under", "{}"),
    _frame("found.get({by}, 0) + 1", "each many count often every per times", "{}"),
)  # fmt: skip
"""Frames that fill a record by a key."""
_ROW = "it_, of_, by_"
_IN_PROCESS = {"of": "of_", "by": "by_", "each": f"for {_ROW} in rows_", "row": _ROW, "some": "rows_", "key": "lambda row_: row_[2]"}
Row = tuple[Any, Any, Any]
"""An item, its result, and its key."""


@functools.lru_cache(maxsize=256)
def compiled_frame(frame: Frame) -> Callable[[Sequence[Row]], Any]:
    """Return the function that computes a frame of rows."""
    text = frame.template.format(**_IN_PROCESS)
    if frame.begin is not None:
        begin, entry = compiled(f"lambda: {frame.begin}", {}), compiled(f"lambda found, of_, by_: {text}", {})

        def filled(rows: Sequence[Row]) -> Any:
            found = begin()
            for _, of, by in rows:
                found[by] = entry(found, of, by)
            return found

        return filled
    return compiled(
        f"lambda rows_: {text}" if frame.has("each") or frame.has("some") else f"lambda rows_: [{text} for {_ROW} in rows_][0]", {}
    )
