"""Methods put together of parts: of what is given, of the items of it, and of what a slot becomes."""

from __future__ import annotations

import ast
import builtins
import contextlib
import itertools
from typing import Any

import pytest

from batos.objects import Example
from batos.synthesis import adaptation, aggregations, enumeration, terms
from batos.synthesis.enumeration import tidied
from batos.synthesis.handbook import words_in
from batos.synthesis.idiom_costs import MODULES
from batos.synthesis.ranking import likely
from batos.synthesis.transformations import COUNTED, GROUPED, OF_EACH, ORDERED, WHOLE, compiled_frame
from batos.synthesis.word_costs import tables
from tests.support.synthesis import ROWS, WIDE, asked, context, entry, made


async def test_nothing_is_lost_where_a_key_comes_twice() -> None:
    rows = [{"city": "Rome", "age": 41}, {"city": "Bern", "age": 17}, {"city": "Rome", "age": 23}]
    found = [text for _, text in await made(asked("age by city", Example((rows,), (), {"Rome": 23, "Bern": 17})), most=WIDE)]
    assert not [text for text in found if "{item['city']: " in text and " if " not in text]


async def test_the_last_by_alphabet_is_not_what_is_meant_by_the_largest() -> None:
    found = [text for _, text in await made(asked("the longest word", Example(("we yess a had",), (), "yess")), most=WIDE)]
    assert "def m_(self, text):\n    return max(text.split(), key=len)" in found
    assert not [text for text in found if "max(text.split())" in text]


async def test_none_are_tried_where_none_may_be_and_all_are_audited() -> None:
    what = asked("the total age", Example((ROWS,), (), 81))
    assert await made(what, most=0) == await made(what, audit=lambda text: False) == []
    assert not [text for _, text in await made(what, audit=lambda text: "sum(" not in text) if "sum(" in text]
    assert len(await made(what)) <= 100


async def test_what_is_likely_is_told_from_what_passes_by_chance() -> None:
    what = asked("the names sorted by age", Example((ROWS,), (), ["Bob", "Abe", "Ann"]))
    sources = await likely(context(what), tuple(await made(what)))
    assert sources[0].endswith("return [item['name'] for item in sorted(items, key=lambda item: item['age'])]")


@pytest.mark.parametrize("given", [("ab", 10**9), ("ab", 101), (["a"], 10**9), ({"a": "b"}, 10**9), (10**9, 10**9), (2.5, 10**14)])
def test_nothing_is_repeated_a_million_times_nor_raised_to_such_a_power(given: tuple[Any, ...]) -> None:
    atoms = [enumeration.valued(0.2, name, [value]) for name, value in zip(("one", "number"), given, strict=True)]
    found = enumeration.grown([atom for atom in atoms if atom], [], words_in("times power of"), most=20_000)
    assert found
    assert max(len(repr(one.values)) for one in found) < 10_000


@pytest.mark.parametrize(
    "examples",
    [
        [Example((), (), 3, (("scores", {"a": 1, "b": 2}),)), Example((), (), 0)],
        [Example((), (("data", {"a": 1}),), 1), Example((), (("data", ["a"]),), 0)],
        [Example((3,), (), 10**400)],
        [Example((1.5,), (), 10**400)],
        [Example((), (("item", "milk"),), "MILK")],
        [Example((), (("found", "milk"), ("self", 3)), "MILK")],
        [Example((list(range(5000)), 3), (), 77777)],
        [Example((), tuple((f"n{n}", n) for n in range(30, 46)), 77777)],
        [Example(("x{}y", "{it}"), (), "x{}y{it}!")],
        [Example(({"{b}": 1, "a}": "\ud800"},), (), "\ud800")],
        [Example((10**4000,), (), 10**4000 + 1)],
    ],
)  # fmt: skip
async def test_whatever_is_given_nothing_fails(examples: list[Example]) -> None:
    assert isinstance(await made(asked("the scores of data, capitals", *examples)), list)


async def test_what_comes_as_a_set_has_no_order_here() -> None:
    letters = entry("the letters of the text", "def letters_(self, text):\n    return set(text)")
    found = [text for _, text in await made(asked("the letters of the text", Example(("abc",), (), "abc")), letters, most=WIDE)]
    assert not [text for text in found if "set(text)" in text.replace("sorted(set(text))", "")]


@pytest.mark.parametrize("given", [[1, "a"], list(range(41)), [], None, ["x" * 500] * 3])
async def test_what_has_no_items_of_one_kind_or_too_many_is_taken_as_a_whole(given: Any) -> None:
    what = asked("all", Example((given,), (), 7))
    request = adaptation.asked(what)
    assert request is not None
    first, *texts = [over.text for over in terms.overs(request, what)]
    assert first == ""
    assert ("items" in texts) is (given == ["x" * 500] * 3)
    assert isinstance(await made(what), list)


VALUES = (3, 2.5, True, "b", "a", None, [1, 2], ["x"], {"a": 1}, 0, "", [], float("nan"))


@pytest.mark.parametrize(
    "frame",
    [*OF_EACH, *COUNTED, *ORDERED, *GROUPED, *WHOLE],
    ids=lambda one: one.template,
)
def test_a_frame_gives_nothing_but_what_it_may_give(frame: aggregations.Frame) -> None:
    came = 0
    for one, other in itertools.product(VALUES, repeat=2):
        for rows in ([(one, one, other), (other, other, one)], [(one, other, one)], [(one, one, one)] * 3):
            with contextlib.suppress(*aggregations._FAILS):
                value = compiled_frame(frame)(rows)
                assert frame.may_give(value), value
                came += 1
    assert came


def test_every_idiom_is_an_expression_that_stands_once_and_uses_nothing_but_its_holes_and_what_it_binds() -> None:
    names = {name: name for name in ("it", "number", "number2", "text", "text2", "items", "record", "flag", "date", "moment")}
    known = tables()
    titled = [*known.made_of.values(), *known.long.values(), *known.numeric.values(), *known.counted.values()]
    for held in (*titled, known.of_any, known.of_two):
        templates = [one.template for one in held]
        assert len(set(templates)) == len(templates), sorted(text for text in templates if templates.count(text) > 1)
        for template in templates:
            nodes = list(ast.walk(ast.parse(template.format(**names), mode="eval")))
            bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
            read = {node.id for node in nodes if isinstance(node, ast.Name)} - bound
            assert read <= {*names, *dir(builtins), *MODULES}, template
            assert "it" in read, template


@pytest.mark.parametrize(
    ("rough", "text"),
    [
        ("[item for item in items]", "list(items)"),
        ("[item for item in sorted(items)]", "sorted(items)"),
        ("sum((item for item in items))", "sum(items)"),
        ("[item for item in sorted(items, key=lambda item: len(item), reverse=True)][0]", "max(items, key=len)"),
        ("[item['a'] for item in sorted(items, key=lambda item: item['b'])][0]", "min(items, key=lambda item: item['b'])['a']"),
        ("[item for item in sorted(items, key=lambda item: item)][0]", "min(items)"),
        ("[item + item for item in sorted(items)][0]", "[item + item for item in sorted(items)][0]"),  # would be computed twice
        ("[item for item in items if item]", "[item for item in items if item]"),
        ("next((item for item in iter(items)))", "next((item for item in iter(items)))"),
        ("[item for item in sorted(items) if item > 'a'][0]", "next((item for item in sorted(items) if item > 'a'), None)"),
        ("sorted(items, reverse=False)[0]", "sorted(items, reverse=False)[0]"),
        ("[item for x, item in sorted(zip(items, items))][0]", "[item for x, item in sorted(zip(items, items))][0]"),
        ("sorted(items, key=lambda x: x)[0]", "min(items, key=lambda x: x)"),
        ("sorted(list(items), key=lambda item: item)", "sorted(items)"),
    ],
)
def test_what_is_made_of_parts_is_told_as_one_would_write_it(rough: str, text: str) -> None:
    assert ast.unparse(tidied(ast.parse(rough))) == text
    for items in (["bb", "a", "ccc"], ["a", "b"]):
        if "['a']" not in rough:
            assert eval(text, {"items": items}) == eval(rough, {"items": items}) if "sum" not in text else True


@pytest.mark.parametrize(
    ("rough", "text"),
    [
        ("(items[0] + 0) * (number + 10)", "items[0] * (number + 10)"),
        ("(number + 0.0) * 2", "(number + 0.0) * 2"),
        ("(number + False) * 2", "(number + False) * 2"),
        ("number + 0", "number + 0"),  # of a flag it makes a number
    ],
)
def test_what_makes_sure_of_a_factor_is_not_written(rough: str, text: str) -> None:
    assert ast.unparse(tidied(ast.parse(rough))) == text
